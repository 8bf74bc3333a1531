// SPDX-License-Identifier: MIT
// Runs a tiny GPT-2 for a few steps under any plan and hands back everything that can be compared: losses, norms, the
// first step's gradients, the last weights, and a hash per rank of all of it.
//
// The batch of a step is a list of ragged sequences made from their global sample index alone, dealt in runs to the
// micro-batches of the ranks: mb 0 of rank 0, mb 1 of rank 0, ..., mb 0 of rank 1. With fewer sequences than places
// the last ranks get empty micro-batches. Results lie in shared memory, so that ranks may be processes.
#ifndef TRIREME_TESTS_RUN_HARNESS_H
#define TRIREME_TESTS_RUN_HARNESS_H

#include "trireme/base/file.h"
#include "trireme/comm/launch.h"
#include "trireme/mesh/mesh.h"
#include "trireme/model/gpt2.h"
#include "trireme/run/run.h"
#include "trireme/step/values.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { RH_STEPS = 12, RH_RANKS = 16, RH_MICRO = 20, RH_SEQUENCES = 80, RH_VOCAB = 29, RH_POSITIONS = 16 };

typedef enum rh_labels { RH_RAGGED, RH_FIRST_IGNORED, RH_NONE_VALID } rh_labels;

typedef struct rh_case {
  tr_status (*model)(tr_model **out); // NULL: the tiny GPT-2
  int nrank, nthread;
  tr_launch_mode mode;
  tr_dtype type;
  const tr_kernels *kernels; // NULL: reference
  int layers, tied, split, micro, sequences, steps;
  int zero, pack;
  int per_host; // so many consecutive ranks have the state together, as on a host of theirs; 0: all
  tr_dtype wire;
  tr_grad_sync sync;
  tr_recompute recompute;
  int64_t bucket;
  double dropout, lr, clip;
  tr_optim optim;
  rh_labels labels;
  int full; // every sequence is as long as can be
} rh_case;

typedef struct rh_result {
  double loss[RH_STEPS], norm[RH_STEPS], clip[RH_STEPS];
  int64_t tokens[RH_STEPS];
  int skipped[RH_STEPS];
  uint64_t hash[RH_RANKS];
  size_t nbyte;
  double *gradient, *weights; // [layout.total], within the same memory
} rh_result;

static inline rh_case rh_default(void) {
  rh_case c = {.nrank = 1,
               .nthread = 1,
               .mode = TR_LAUNCH_THREADS,
               .type = TR_F32,
               .layers = 2,
               .tied = 1,
               .wire = TR_F32,
               .micro = 1,
               .sequences = 8,
               .steps = 1,
               .lr = 0.05,
               .bucket = 500};
  c.optim = (tr_optim){.kind = TR_OPTIM_SGD, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-6};
  return c;
}

static inline uint32_t rh_mix(uint32_t a, uint32_t b) {
  uint32_t x = a * 0x9e3779b9u + b * 0x85ebca6bu + 12345;
  x ^= x >> 16;
  x *= 0x7feb352du;
  x ^= x >> 15;
  x *= 0x846ca68bu;
  return x ^ (x >> 16);
}

static inline tr_status rh_model(const rh_case *c, tr_model **out) {
  if (c->model) return c->model(out);
  tr_gpt2_config config;
  tr_gpt2_config_init(&config);
  config.layers = c->layers;
  config.width = 12;
  config.heads = 3;
  config.vocab = RH_VOCAB;
  config.positions = RH_POSITIONS;
  config.init_std = 0.2;
  config.tied = c->tied;
  config.dropout_embedding = config.dropout_residual = config.dropout_attention = c->dropout;
  return tr_gpt2_create(&config, out);
}

// ---- inputs

typedef struct rh_rows {
  tr_model_input input;
  int32_t token[RH_SEQUENCES * RH_POSITIONS], target[RH_SEQUENCES * RH_POSITIONS],
      position[RH_SEQUENCES * RH_POSITIONS], start[RH_SEQUENCES + 1];
  int64_t sample[RH_SEQUENCES * RH_POSITIONS];
} rh_rows;

static inline int rh_length(int64_t sample) { return 1 + (int)(rh_mix((uint32_t)sample, 1) % RH_POSITIONS); }

static inline int32_t rh_target(const rh_case *c, int64_t sample, int index, int i) {
  if (c->labels == RH_NONE_VALID || rh_mix((uint32_t)sample, 5000u + (uint32_t)i) % 4 == 0) return -1;
  if (c->labels == RH_FIRST_IGNORED && index < (c->sequences + 3) / 4) return -1;
  return (int32_t)(rh_mix((uint32_t)sample, 100u + (uint32_t)i) % RH_VOCAB);
}

// Sequences [first, last) of the step, one after the other.
static inline void rh_fill(const rh_case *c, int64_t step, int first, int last, rh_rows *out) {
  int64_t n = 0, valid = 0;
  if (last - first > RH_SEQUENCES) abort();
  out->start[0] = 0;
  for (int index = first; index < last; index++) {
    int64_t sample = step * c->sequences + index;
    for (int i = 0, length = c->full ? RH_POSITIONS : rh_length(sample); i < length; i++, n++) {
      out->token[n] = (int32_t)(rh_mix((uint32_t)sample, 10000u + (uint32_t)i) % RH_VOCAB);
      out->target[n] = rh_target(c, sample, index, i);
      out->position[n] = i;
      out->sample[n] = sample;
      valid += out->target[n] >= 0;
    }
    out->start[index - first + 1] = (int32_t)n;
  }
  out->input = (tr_model_input){.rows = n,
                                .nseq = last - first,
                                .token = out->token,
                                .target = out->target,
                                .position = out->position,
                                .sample = out->sample,
                                .start = out->start,
                                .valid = valid};
}

static inline int rh_smaller(int a, int b) { return a < b ? a : b; }

static inline int rh_per_place(const rh_case *c) {
  int places = c->nrank * c->micro;
  return (c->sequences + places - 1) / places;
}

static inline void rh_deal(const rh_case *c, int64_t step, int rank, rh_rows *rows, tr_model_input *input) {
  int per = rh_per_place(c);
  for (int mb = 0; mb < c->micro; mb++) {
    int first = rh_smaller((rank * c->micro + mb) * per, c->sequences);
    rh_fill(c, step, first, rh_smaller(first + per, c->sequences), &rows[mb]);
    input[mb] = rows[mb].input;
  }
}

// ---- one rank

typedef struct rh_rank {
  tr_model *model;
  tr_layout layout;
  tr_run_step_model step_model;
  tr_step_range *range;
  tr_step_options step;
  tr_program program;
  tr_pool *pool;
  tr_group *group, *share; // share: NULL where all have the state together
  tr_run_options options;
  tr_run *run;
  rh_rows *rows;
  tr_model_input input[RH_MICRO];
} rh_rank;

static inline tr_status rh_program(const rh_case *c, rh_rank *r) {
  r->range = malloc(sizeof *r->range * (size_t)tr_model_units(r->model));
  TR_TRY(tr_run_step_model_make(r->model, &r->layout, &r->step_model));
  r->step = (tr_step_options){.microbatches = c->micro,
                              .dp = c->nrank,
                              .split_backward = c->split,
                              .grad_sync = c->sync,
                              .bucket_elements = c->bucket,
                              .zero = c->zero,
                              .recompute = r->range};
  TR_TRY(tr_value_recompute_ranges(r->model, c->recompute, r->range, &r->step.nrecompute));
  TR_TRY(tr_program_build(&r->step_model.model, &r->step, &r->program));
  return tr_program_check(&r->program, &r->step_model.model, &r->step);
}

static inline tr_status rh_share(const rh_case *c, tr_comm *comm, tr_group **out) {
  int rank[RH_RANKS], n = 0, host = tr_comm_rank(comm) / c->per_host;
  for (int r = 0; r < c->nrank; r++)
    if (r / c->per_host == host) rank[n++] = r;
  return tr_group_create(comm, rank, n, "host", out);
}

static inline tr_status rh_open(const rh_case *c, tr_comm *comm, rh_rank *r) {
  *r = (rh_rank){.rows = calloc(RH_MICRO, sizeof *r->rows)};
  TR_TRY(rh_model(c, &r->model));
  TR_TRY(tr_layout_build(r->model, &r->layout));
  TR_TRY(rh_program(c, r));
  TR_TRY(tr_pool_create(c->nthread, 0, NULL, NULL, &r->pool));
  tr_mesh_spec mesh = {.degree = {1, 1, c->nrank, 1}, .map = {TR_AXIS_TP, TR_AXIS_CP, TR_AXIS_DP, TR_AXIS_PP}};
  TR_TRY(tr_mesh_check(&mesh, comm ? tr_comm_size(comm) : 1));
  if (comm) TR_TRY(tr_mesh_group(&mesh, comm, TR_AXIS_DP, &r->group));
  if (comm && c->per_host) TR_TRY(rh_share(c, comm, &r->share));
  tr_run_options *o = &r->options;
  tr_run_options_init(o);
  o->model = r->model;
  o->layout = &r->layout;
  o->program = &r->program;
  if (c->kernels) o->kernels = c->kernels;
  o->pool = r->pool;
  o->comm = comm;
  o->dp = r->group;
  o->share = r->share;
  o->type = c->type;
  o->rows = rh_per_place(c) * RH_POSITIONS;
  o->split_backward = c->split;
  o->grad_sync = c->sync;
  o->zero = c->zero;
  o->pack = c->pack;
  o->grad_wire = c->wire;
  o->recompute = c->recompute;
  o->optim = c->optim;
  o->clip = c->clip;
  o->seed = 77;
  TR_TRY(tr_run_create(o, &r->run));
  return tr_run_init_weights(r->run, 5);
}

// For tests that open a rank themselves: prints the sentence of a failure.
static inline int rh_works(tr_status status) {
  if (status < 0) fprintf(stderr, "%s\n", tr_status_text());
  return status == TR_OK;
}

static inline void rh_close(rh_rank *r) {
  tr_run_destroy(r->run);
  tr_group_destroy(r->share);
  tr_group_destroy(r->group);
  tr_pool_destroy(r->pool);
  tr_program_destroy(&r->program);
  tr_run_step_model_free(&r->step_model);
  free(r->range);
  tr_layout_destroy(&r->layout);
  tr_model_destroy(r->model);
  free(r->rows);
}

static inline void rh_copy(const rh_rank *r, const void *from, tr_dtype type, double *to) {
  for (int64_t i = 0; i < r->layout.total; i++)
    to[i] = type == TR_F64 ? ((const double *)from)[i] : ((const float *)from)[i];
}

static inline uint64_t rh_hash(uint64_t hash, const void *data, size_t nbyte) {
  uint64_t both[2] = {hash, tr_hash_bytes(data, nbyte)};
  return tr_hash_bytes(both, sizeof both);
}

typedef struct rh_job {
  const rh_case *c;
  rh_result *result;
} rh_job;

// With owned parts each rank has the sums of its own: from every owner to all.
static inline tr_status rh_gather(const rh_case *c, rh_rank *r) {
  int index, count;
  tr_run_sharers(r->run, &index, &count);
  for (int b = 0; count > 1 && b < r->program.nbucket; b++)
    for (int owner = 0; owner < count; owner++) {
      const tr_bucket *bucket = &r->program.bucket[b];
      int64_t first, n;
      tr_layout_own(&r->layout, bucket->unit_begin, bucket->unit_end, count, owner, &first, &n);
      size_t width = tr_dtype_size(tr_wide(c->type));
      char *part = (char *)tr_run_gradients(r->run) + (size_t)first * width;
      tr_group *sharers = r->share ? r->share : r->group;
      if (n) TR_TRY(tr_group_broadcast(sharers, part, (size_t)n * width, TR_U8, owner, NULL));
    }
  return TR_OK;
}

static inline tr_status rh_steps(const rh_job *job, rh_rank *r, int rank) {
  const rh_case *c = job->c;
  tr_dtype wide = tr_wide(c->type);
  size_t nbyte = (size_t)r->layout.total * tr_dtype_size(wide);
  uint64_t hash = 0;
  for (int step = 0; step < c->steps; step++) {
    tr_step_result done = {0};
    rh_deal(c, step, rank, r->rows, r->input);
    TR_TRY(tr_run_step(r->run, step, c->lr, r->input, &done));
    TR_TRY(rh_gather(c, r));
    hash = rh_hash(hash, &(double[3]){done.loss, done.norm, done.clip}, 3 * sizeof(double));
    hash = rh_hash(hash, tr_run_gradients(r->run), nbyte);
    if (rank != 0) continue;
    job->result->loss[step] = done.loss;
    job->result->norm[step] = done.norm;
    job->result->clip[step] = done.clip;
    job->result->tokens[step] = done.tokens;
    job->result->skipped[step] = done.skipped;
    if (step == 0) rh_copy(r, tr_run_gradients(r->run), wide, job->result->gradient);
  }
  job->result->hash[rank] = rh_hash(hash, tr_run_master(r->run), nbyte);
  if (rank == 0) rh_copy(r, tr_run_master(r->run), wide, job->result->weights);
  return TR_OK;
}

static inline tr_status rh_main(tr_comm *comm, void *user) {
  const rh_job *job = user;
  rh_rank r;
  tr_status status = rh_open(job->c, comm, &r);
  if (status == TR_OK) status = rh_steps(job, &r, comm ? tr_comm_rank(comm) : 0);
  rh_close(&r);
  return status;
}

// ---- the job

static inline int64_t rh_total(const rh_case *c) {
  tr_model *model;
  tr_layout layout;
  if (rh_model(c, &model) < 0 || tr_layout_build(model, &layout) < 0) abort();
  int64_t total = layout.total;
  tr_layout_destroy(&layout);
  tr_model_destroy(model);
  return total;
}

// Never NULL: a run that fails prints its sentence and ends the test.
static inline rh_result *rh_run(const rh_case *c) {
  int64_t total = rh_total(c);
  size_t nbyte = sizeof(rh_result) + 2 * sizeof(double) * (size_t)total;
  rh_result *result = mmap(NULL, nbyte, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (result == MAP_FAILED) abort();
  result->nbyte = nbyte;
  result->gradient = (double *)(void *)(result + 1);
  result->weights = result->gradient + total;
  rh_job job = {c, result};
  tr_launch_options launch;
  tr_launch_options_init(&launch);
  launch.mode = c->mode;
  launch.nrank = c->nrank;
  launch.nthread = c->nthread;
  launch.bind = 0;
  launch.arena_nbyte = 4 << 20;
  if (tr_launch(&launch, rh_main, &job, NULL) < 0) {
    fprintf(stderr, "%s\n", tr_status_text());
    exit(1);
  }
  return result;
}

static inline void rh_free(rh_result *result) { munmap(result, result->nbyte); }

// ---- comparing

// Elements [*begin, *end) of parameter i whose exact gradient is zero: the bias of the keys. Softmax does not see it.
static inline void rh_key_bias(const tr_param *param, int64_t *begin, int64_t *end) {
  int64_t third = strstr(param->name, "attn.c_attn.bias") ? param->shape.dim[0] / 3 : 0;
  *begin = third;
  *end = 2 * third;
}

// The largest difference over all tensors, each relative to the tensor's largest element (relative 1) or absolute.
// Names the worst tensor. The bias of the keys is left out when `skip_keys`.
static inline double rh_difference(const rh_case *c, const double *a, const double *b, int relative, int skip_keys,
                                   char worst[96]) {
  tr_model *model;
  tr_layout layout;
  if (rh_model(c, &model) < 0 || tr_layout_build(model, &layout) < 0) abort();
  double most = 0;
  worst[0] = '\0';
  for (int p = 0; p < layout.nparam; p++) {
    double size = 0, difference = 0;
    int64_t begin, end, at = layout.param_offset[p];
    rh_key_bias(tr_model_param(model, p), &begin, &end);
    for (int64_t i = 0; i < layout.param_count[p]; i++) {
      size = fmax(size, fabs(b[at + i]));
      if (!skip_keys || i < begin || i >= end) difference = fmax(difference, fabs(a[at + i] - b[at + i]));
      if (isnan(a[at + i]) || isnan(b[at + i])) difference = INFINITY;
    }
    double d = relative ? difference / fmax(size, 1e-30) : difference;
    if (d > most) {
      most = d;
      snprintf(worst, 96, "%s", tr_model_param(model, p)->name);
    }
  }
  tr_layout_destroy(&layout);
  tr_model_destroy(model);
  return most;
}

#endif
