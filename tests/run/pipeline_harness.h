// SPDX-License-Identifier: MIT
// Runs the tiny models of run_harness.h through a pipeline, p x dp ranks under any schedule, and hands back what the whole
// model's gradients and weights were, after proving that all ranks which have a copy of a parameter have the same bits, and
// that all were told the same losses, norms and clip factors.
#ifndef TRIREME_TESTS_RUN_PIPELINE_HARNESS_H
#define TRIREME_TESTS_RUN_PIPELINE_HARNESS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "run/run_harness.h"
#include "trireme/base/clock.h"
#include "trireme/step/schedule.h"

enum { PH_STAGES = 40 };

typedef enum ph_cut { PH_EVEN, PH_HEAVY_END, PH_HEAVY_BEGIN } ph_cut;

typedef struct ph_case {
  rh_case run; // nrank: of dp; micro: of the step
  const char *schedule;
  const char *tokens; // of a schedule that no generator makes; NULL: none
  int p, v, group;
  int exchange; // pieces exchange with the rank that has other data, and not with this rank alone
  int one_lane; // X is F, then B
  ph_cut cut;
  tr_dtype stage_wire;
  int sleeps; // random pauses before and after operations
  void (*observe)(tr_comm *comm, tr_run_observer *out);
} ph_case;

typedef struct ph_result {
  double loss[RH_STEPS], norm[RH_STEPS], clip[RH_STEPS];
  int64_t tokens[RH_STEPS];
  int skipped[RH_STEPS];
  uint64_t told[RH_RANKS]; // hash of all that a rank was told
  size_t nbyte;
  int64_t total;
  double *gradient, *weights; // [total] of the whole model
  double *rank_gradient;      // [ranks][total] NaN: not here
  double *rank_weights;
} ph_result;

static inline ph_case ph_default(const char *schedule, int p, int dp, int m) {
  ph_case c = {.run = rh_default(), .schedule = schedule, .p = p, .stage_wire = TR_F32};
  c.run.nrank = dp;
  c.run.micro = m;
  c.run.layers = 6;
  c.run.sequences = 2 * dp * m - 1; // of which most micro-batches get two
  return c;
}

static inline int ph_ranks(const ph_case *c) { return c->p * c->run.nrank; }

// ---- one rank

typedef struct ph_rank {
  const ph_case *c;
  tr_comm *comm;
  int dp_rank, pp_rank;
  tr_schedule schedule;
  tr_model *whole, *part;
  tr_layout whole_layout, layout;
  tr_run_step_model step_model;
  tr_step_range *range;
  tr_step_options step;
  tr_program program;
  tr_pool *pool;
  tr_group *dp, *pp, *grads, *tied, *peers;
  tr_run_options options;
  tr_run *run;
  rh_rows *rows;
  tr_model_input input[RH_MICRO];
  uint32_t random;
} ph_rank;

// First pieces of all stages: cells of embedding, layers and head are dealt to them.
static inline void ph_stages(const tr_model *whole, int S, ph_cut how, int *begin) {
  int cut[PH_STAGES], n = tr_model_cuts(whole, cut, PH_STAGES), cells = n + 1;
  for (int s = 1; s < S; s++) {
    int cell = how == PH_EVEN ? s * cells / S : how == PH_HEAVY_END ? s : cells - S + s;
    begin[s] = cut[cell - 1];
  }
  begin[0] = 0;
  begin[S] = tr_model_pieces(whole);
}

static inline tr_status ph_part(ph_rank *r) {
  int begin[PH_STAGES + 1], stage[PH_STAGES], range[2 * PH_STAGES];
  tr_model_boundary boundary[PH_STAGES];
  ph_stages(r->whole, r->schedule.S, r->c->cut, begin);
  int n = tr_schedule_stages(&r->schedule, r->pp_rank, stage);
  for (int i = 0; i < n; i++) {
    range[2 * i] = begin[stage[i]];
    range[2 * i + 1] = begin[stage[i] + 1];
  }
  return tr_model_part(r->whole, range, n, boundary, &r->part);
}

static inline tr_status ph_program(ph_rank *r) {
  const ph_case *c = r->c;
  r->range = malloc(sizeof *r->range * (size_t)tr_model_units(r->part));
  TR_TRY(tr_run_step_model_make(r->part, &r->layout, &r->step_model));
  r->step = (tr_step_options){.microbatches = c->run.micro,
                              .dp = c->run.nrank * (r->schedule.map == TR_STAGES_BOTH ? 2 : 1),
                              .bucket_elements = c->run.bucket,
                              .zero = c->run.zero,
                              .recompute = r->range};
  if (c->one_lane) r->step_model.model.ncomm = 0;
  TR_TRY(tr_value_recompute_ranges(r->part, c->run.recompute, r->range, &r->step.nrecompute));
  TR_TRY(tr_program_build_pipeline(&r->schedule, r->pp_rank, &r->step_model.model, r->step_model.chunk_piece,
                                   &r->step, &r->program));
  return tr_program_check(&r->program, &r->step_model.model, &r->step);
}

// All ranks in dp of two places of the pipeline, the lower one first.
static inline tr_status ph_group(ph_rank *r, int a, int b, const char *name, tr_group **out) {
  int rank[RH_RANKS], n = 0, dp = r->c->run.nrank;
  for (int i = 0; i < dp; i++) rank[n++] = (a < b ? a : b) * dp + i;
  for (int i = 0; i < dp; i++) rank[n++] = (a < b ? b : a) * dp + i;
  return tr_group_create(r->comm, rank, n, name, out);
}

static inline tr_status ph_groups(ph_rank *r) {
  tr_mesh_spec mesh = {.degree = {1, 1, r->c->run.nrank, r->c->p},
                       .map = {TR_AXIS_TP, TR_AXIS_CP, TR_AXIS_DP, TR_AXIS_PP}};
  const tr_schedule *s = &r->schedule;
  TR_TRY(tr_mesh_check(&mesh, tr_comm_size(r->comm)));
  r->dp_rank = tr_mesh_coordinate(&mesh, tr_comm_rank(r->comm), TR_AXIS_DP);
  r->pp_rank = tr_mesh_coordinate(&mesh, tr_comm_rank(r->comm), TR_AXIS_PP);
  TR_TRY(tr_mesh_group(&mesh, r->comm, TR_AXIS_DP, &r->dp));
  TR_TRY(tr_mesh_group(&mesh, r->comm, TR_AXIS_PP, &r->pp));
  if (r->c->exchange) TR_TRY(tr_mesh_group(&mesh, r->comm, TR_AXIS_DP, &r->peers));
  if (s->map != TR_STAGES_BOTH) return TR_OK;
  return ph_group(r, r->pp_rank, s->p - 1 - r->pp_rank, "copies", &r->grads);
}

static inline void ph_sleep(void *user, int64_t step, uint32_t index, const tr_op *op) {
  ph_rank *r = user;
  (void)step;
  (void)index;
  (void)op;
  r->random = rh_mix(r->random, (uint32_t)(r->dp_rank * 97 + r->pp_rank));
  if (r->random % 4 == 0) tr_clock_sleep_ns(r->random / 4 % 1000000);
}

static inline void ph_options(ph_rank *r) {
  const rh_case *c = &r->c->run;
  tr_run_options *o = &r->options;
  tr_run_options_init(o);
  o->model = r->part;
  o->layout = &r->layout;
  o->program = &r->program;
  if (c->kernels) o->kernels = c->kernels;
  o->pool = r->pool;
  o->comm = r->comm;
  o->dp = r->dp;
  o->pp = r->pp;
  o->grads = r->grads;
  o->tied = r->tied;
  o->peers = r->peers;
  o->type = c->type;
  o->rows = rh_per_place(c) * RH_POSITIONS;
  o->zero = c->zero;
  o->pack = c->pack;
  o->grad_wire = c->wire;
  o->stage_wire = r->c->stage_wire;
  o->recompute = c->recompute;
  o->optim = c->optim;
  o->clip = c->clip;
  o->seed = 77;
  if (r->c->sleeps)
    o->observer[o->nobserver++] = (tr_run_observer){.op_begin = ph_sleep, .op_end = ph_sleep, .user = r};
  if (r->c->observe) r->c->observe(r->comm, &o->observer[o->nobserver++]);
}

static inline tr_status ph_open(const ph_case *c, tr_comm *comm, ph_rank *r) {
  *r = (ph_rank){.c = c, .comm = comm, .rows = calloc(RH_MICRO, sizeof *r->rows)};
  tr_schedule_spec spec = {.name = c->schedule, .p = c->p, .m = c->run.micro, .v = c->v, .group = c->group};
  TR_TRY(c->tokens ? tr_schedule_parse(c->schedule, c->tokens, &r->schedule)
                   : tr_schedule_build(&spec, &r->schedule));
  TR_TRY(rh_model(&c->run, &r->whole));
  TR_TRY(tr_layout_build(r->whole, &r->whole_layout));
  TR_TRY(ph_groups(r));
  TR_TRY(ph_part(r));
  TR_TRY(tr_layout_build(r->part, &r->layout));
  TR_TRY(ph_program(r));
  int first = tr_schedule_rank(&r->schedule, 0, 0), last = tr_schedule_rank(&r->schedule, r->schedule.S - 1, 0);
  if (r->step_model.model.ntied) TR_TRY(ph_group(r, first, last, "tied", &r->tied));
  TR_TRY(tr_pool_create(c->run.nthread, 0, NULL, NULL, &r->pool));
  ph_options(r);
  TR_TRY(tr_run_create(&r->options, &r->run));
  return tr_run_init_weights(r->run, 5);
}

static inline void ph_close(ph_rank *r) {
  tr_run_destroy(r->run);
  tr_group_destroy(r->peers);
  tr_group_destroy(r->tied);
  tr_group_destroy(r->grads);
  tr_group_destroy(r->pp);
  tr_group_destroy(r->dp);
  tr_pool_destroy(r->pool);
  tr_program_destroy(&r->program);
  tr_run_step_model_free(&r->step_model);
  free(r->range);
  tr_layout_destroy(&r->layout);
  tr_layout_destroy(&r->whole_layout);
  tr_model_destroy(r->part);
  tr_model_destroy(r->whole);
  tr_schedule_destroy(&r->schedule);
  free(r->rows);
}

// With owned parts each rank has the sums of its own: from every owner to all.
static inline tr_status ph_gather(ph_rank *r) {
  int index, count;
  tr_run_sharers(r->run, &index, &count);
  for (int b = 0; count > 1 && b < r->program.nbucket; b++)
    for (int owner = 0; owner < count; owner++) {
      const tr_bucket *bucket = &r->program.bucket[b];
      int64_t first, n;
      tr_layout_own(&r->layout, bucket->unit_begin, bucket->unit_end, count, owner, &first, &n);
      size_t width = tr_dtype_size(tr_wide(r->c->run.type));
      char *part = (char *)tr_run_gradients(r->run) + (size_t)first * width;
      if (n) TR_TRY(tr_group_broadcast(r->grads ? r->grads : r->dp, part, (size_t)n * width, TR_U8, owner, NULL));
    }
  return TR_OK;
}

// This rank's parameters, at their places in the whole model.
static inline void ph_copy(const ph_rank *r, const void *from, double *to) {
  int wide = tr_wide(r->c->run.type) == TR_F64;
  for (int64_t i = 0; i < r->whole_layout.total; i++) to[i] = NAN;
  for (int p = 0; p < r->layout.nparam; p++) {
    int64_t at = r->layout.param_offset[p], whole = r->whole_layout.param_offset[tr_model_whole_param(r->part, p)];
    for (int64_t i = 0; i < r->layout.param_count[p]; i++)
      to[whole + i] = wide ? ((const double *)from)[at + i] : ((const float *)from)[at + i];
  }
}

typedef struct ph_job {
  const ph_case *c;
  ph_result *result;
} ph_job;

static inline tr_status ph_steps(const ph_job *job, ph_rank *r) {
  ph_result *result = job->result;
  int rank = tr_comm_rank(r->comm);
  for (int step = 0; step < r->c->run.steps; step++) {
    tr_step_result done = {0};
    rh_deal(&r->c->run, step, r->dp_rank, r->rows, r->input);
    TR_TRY(tr_run_step(r->run, step, r->c->run.lr, r->input, &done));
    TR_TRY(ph_gather(r));
    double told[5] = {done.loss, done.norm, done.clip, (double)done.tokens, done.skipped};
    result->told[rank] = rh_hash(result->told[rank], told, sizeof told);
    if (step == 0) ph_copy(r, tr_run_gradients(r->run), result->rank_gradient + rank * result->total);
    if (rank != 0) continue;
    result->loss[step] = done.loss;
    result->norm[step] = done.norm;
    result->clip[step] = done.clip;
    result->tokens[step] = done.tokens;
    result->skipped[step] = done.skipped;
  }
  ph_copy(r, tr_run_master(r->run), result->rank_weights + rank * result->total);
  return TR_OK;
}

static inline tr_status ph_main(tr_comm *comm, void *user) {
  const ph_job *job = user;
  ph_rank r;
  tr_status status = ph_open(job->c, comm, &r);
  if (status == TR_OK) status = ph_steps(job, &r);
  ph_close(&r);
  return status;
}

// ---- the job

static inline void ph_describe(const ph_case *c, char out[160]) {
  snprintf(out, 160, "%s p %d v %d dp %d m %d zero %d", c->schedule, c->p, c->v, c->run.nrank, c->run.micro,
           c->run.zero);
}

// What some rank has, and the same bits wherever there is a copy.
static inline void ph_combine(const ph_case *c, const ph_result *result, const double *of_ranks, double *out) {
  char name[160];
  ph_describe(c, name);
  for (int64_t i = 0; i < result->total; i++) {
    out[i] = NAN;
    for (int rank = 0; rank < ph_ranks(c); rank++) {
      double x = of_ranks[rank * result->total + i];
      if (isnan(x)) continue;
      if (!isnan(out[i]) && out[i] != x) fail_msg("%s: copies of element %lld differ", name, (long long)i);
      out[i] = x;
    }
    if (isnan(out[i])) out[i] = 0; // padding
  }
}

static inline ph_result *ph_new_result(const ph_case *c) {
  int64_t total = rh_total(&c->run);
  size_t ranks = (size_t)ph_ranks(c), nbyte = sizeof(ph_result) + (2 + 2 * ranks) * sizeof(double) * (size_t)total;
  ph_result *result = mmap(NULL, nbyte, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (result == MAP_FAILED) abort();
  result->nbyte = nbyte;
  result->total = total;
  result->gradient = (double *)(void *)(result + 1);
  result->weights = result->gradient + total;
  result->rank_gradient = result->weights + total;
  result->rank_weights = result->rank_gradient + ranks * (size_t)total;
  return result;
}

static inline void ph_launch_options(const ph_case *c, tr_launch_options *out) {
  tr_launch_options_init(out);
  out->mode = c->run.mode;
  out->nrank = ph_ranks(c);
  out->nthread = c->run.nthread;
  out->bind = 0;
  out->arena_nbyte = 8 << 20;
}

static inline ph_result *ph_run(const ph_case *c) {
  ph_result *result = ph_new_result(c);
  ph_job job = {c, result};
  tr_launch_options launch;
  ph_launch_options(c, &launch);
  if (tr_launch(&launch, ph_main, &job, NULL) < 0) {
    char name[160];
    ph_describe(c, name);
    fprintf(stderr, "%s: %s\n", name, tr_status_text());
    exit(1);
  }
  ph_combine(c, result, result->rank_gradient, result->gradient);
  ph_combine(c, result, result->rank_weights, result->weights);
  for (int rank = 1; rank < ph_ranks(c); rank++) assert_true(result->told[rank] == result->told[0]);
  return result;
}

static inline void ph_free(ph_result *result) { munmap(result, result->nbyte); }

#endif
