// SPDX-License-Identifier: MIT
// The ranks of `trireme bench step`: a job that takes steps of a plan on made-up tokens and says how long they took.
//
// Between steps all ranks run bursts of the register-only loop that makes the peak, at once, so that steps and peak meet the
// same clock frequency and the same neighbours.
//
// Beyond kernels: the time of a step less what rank 0 spent inside pieces and optimizer operations, as an observer of the run
// sees them: walking the program, and communication where there is some.
#include "cli/bench_internal.h"
#include "trireme/base/clock.h"
#include "trireme/train/train.h"
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

enum { STEPS_LEAST = 5 };
static const double measured_seconds = 3, burst_seconds = 0.03;

typedef struct job {
  const tr_train_plan *plan;
  tr__bench_times *out;       // in memory that all ranks and the launcher see
  tr__bench_samples *samples; // there too; NULL: none are taken
  double seconds;             // what steps are taken for
} job;

// Time inside pieces and optimizer operations; what happens inside one of them counts once.
typedef struct kernel_clock {
  int64_t begin, sum;
  int depth;
} kernel_clock;

static void enter(kernel_clock *k) {
  if (k->depth++ == 0) k->begin = tr_clock_ns();
}
static void leave(kernel_clock *k) {
  if (--k->depth == 0) k->sum += tr_clock_ns() - k->begin;
}
static void piece_begin(void *user, int piece, const tr_op *op, const tr_model_input *input) {
  (void)piece, (void)op, (void)input;
  enter(user);
}
static void piece_end(void *user, int piece, const tr_op *op, const tr_model_input *input) {
  (void)piece, (void)op, (void)input;
  leave(user);
}
static int is_state(const tr_op *op) {
  return op->lane == TR_LANE_COMPUTE &&
         (op->kind == TR_OP_NORM || op->kind == TR_OP_UPDATE || op->kind == TR_OP_PUBLISH);
}
static void op_begin(void *user, int64_t step, uint32_t index, const tr_op *op) {
  (void)step, (void)index;
  if (is_state(op)) enter(user);
}
static void op_end(void *user, int64_t step, uint32_t index, const tr_op *op) {
  (void)step, (void)index;
  if (is_state(op)) leave(user);
}

typedef struct bench_rank {
  const job *job;
  tr_comm *comm;
  tr_train_groups groups;
  tr_pool *pool;
  tr_run *run;
  tr_model_input *input; // [accumulation]
  int32_t *token;        // of all inputs: tokens, targets, positions, starts
  int64_t *sample;
  kernel_clock clock;
  int64_t step;
  int npeak;
} bench_rank;

// Micro-batches of random tokens, different in every place of dp.
static tr_status make_input(bench_rank *b) {
  const tr_train_plan *plan = b->job->plan;
  const int64_t sequence = plan->config->data.sequence, rows = plan->micro * sequence;
  const size_t n = (size_t)plan->accumulation, per = 3 * (size_t)rows + (size_t)plan->micro + 1;
  b->input = calloc(n, sizeof *b->input);
  b->token = calloc(n * per, sizeof *b->token);
  b->sample = calloc((size_t)rows, sizeof *b->sample);
  if (!b->input || !b->token || !b->sample) return tr_error(TR_ERR_MEMORY, "no memory for %zu micro-batches", n);
  const tr_rng_key key =
      tr_rng_key_make(1, TR_RNG_TEST, (uint64_t)tr_mesh_coordinate(&plan->mesh, tr_comm_rank(b->comm), TR_AXIS_DP));
  for (int64_t i = 0; i < rows; i++) b->sample[i] = i / sequence;
  for (size_t j = 0; j < n; j++) {
    int32_t *token = b->token + j * per, *target = token + rows, *position = target + rows, *start = position + rows;
    for (int64_t i = 0; i < rows; i++) {
      token[i] = (int32_t)(tr_rng_u32(key, (uint32_t)j, (uint32_t)i, 0) % (uint32_t)plan->sizes.vocab);
      target[i] = (int32_t)(tr_rng_u32(key, (uint32_t)j, (uint32_t)i, 1) % (uint32_t)plan->sizes.vocab);
      position[i] = (int32_t)(i % sequence);
    }
    for (int i = 0; i <= plan->micro; i++) start[i] = (int32_t)(i * sequence);
    b->input[j] =
        (tr_model_input){.rows = rows, .nseq = plan->micro, .token = token, .target = target, .valid = rows};
    b->input[j].position = position, b->input[j].sample = b->sample, b->input[j].start = start;
  }
  return TR_OK;
}

static tr_status open_rank(bench_rank *b) {
  const tr_train_plan *plan = b->job->plan;
  TR_TRY(tr_pool_create(plan->nthread, tr_comm_spin(b->comm), NULL, NULL, &b->pool));
  TR_TRY(tr_train_groups_open(plan, b->comm, &b->groups));
  tr_run_options options;
  tr_train_run_options(plan, tr_comm_rank(b->comm), &options);
  options.pool = b->pool;
  options.comm = b->comm;
  options.dp = b->groups.dp;
  options.pp = b->groups.pp;
  options.grads = b->groups.grads;
  options.tied = b->groups.tied;
  options.observer[options.nobserver++] = (tr_run_observer){op_begin, op_end, piece_begin, piece_end, &b->clock};
  if (b->job->samples && tr_comm_rank(b->comm) == 0) {
    options.observer[0] = tr__bench_sampler;
    options.observer[0].user = b->job->samples;
  }
  TR_TRY(tr_run_create(&options, &b->run));
  TR_TRY(tr_run_init_weights(b->run, (uint64_t)plan->config->train.seed));
  return make_input(b);
}

static void close_rank(bench_rank *b) {
  tr_run_destroy(b->run);
  tr_train_groups_close(&b->groups);
  tr_pool_destroy(b->pool);
  free(b->input);
  free(b->token);
  free(b->sample);
}

static tr_status take_step(bench_rank *b, double *seconds, double *kernels) {
  tr_step_result result;
  b->clock = (kernel_clock){0};
  tr__bench_samples *samples = tr_comm_rank(b->comm) == 0 ? b->job->samples : NULL;
  const int64_t begin = tr_clock_ns();
  if (samples) tr__bench_sample_step(samples, 0);
  TR_TRY(tr_run_step(b->run, b->step++, 1e-4, b->input, &result));
  if (samples) tr__bench_sample_step(samples, 1);
  *seconds = (double)(tr_clock_ns() - begin) * 1e-9;
  *kernels = (double)b->clock.sum * 1e-9;
  return TR_OK;
}

// All ranks at once, each as many threads as it computes with.
static tr_status take_peak(bench_rank *b) {
  const tr_train_plan *plan = b->job->plan;
  const int rank = tr_comm_rank(b->comm);
  const tr_dtype type = plan->config->precision.compute == TR_COMPUTE_BF16 ? TR_BF16 : TR_F32;
  TR_TRY(tr_group_barrier(tr_comm_world(b->comm)));
  b->job->out->peak[b->npeak++][rank] = tr_kernel_peak(type, plan->nthread, burst_seconds);
  if (rank == 0) b->job->out->npeak = b->npeak;
  return tr_group_barrier(tr_comm_world(b->comm));
}

// Two steps to warm up, of which the second says how long a step takes: rank 0's word.
static tr_status choose_steps(bench_rank *b, int *nstep) {
  double seconds, kernels;
  for (int i = 0; i < 2; i++) TR_TRY(take_step(b, &seconds, &kernels));
  const int64_t steps = b->job->plan->config->train.steps;
  double wanted = steps > 0 ? (double)steps : b->job->seconds / (seconds > 1e-6 ? seconds : 1e-6);
  if (steps <= 0 && wanted < STEPS_LEAST) wanted = STEPS_LEAST;
  *nstep = wanted > TR__BENCH_STEPS ? TR__BENCH_STEPS : (int)wanted;
  return tr_group_broadcast(tr_comm_world(b->comm), nstep, 1, TR_I32, 0, NULL);
}

static tr_status measure_steps(bench_rank *b) {
  tr__bench_times *out = b->job->out;
  int nstep;
  TR_TRY(choose_steps(b, &nstep));
  const int stride = b->job->samples ? nstep : (nstep + TR__BENCH_PEAKS - 2) / (TR__BENCH_PEAKS - 1);
  for (int i = 0; i < nstep; i++) {
    double seconds, kernels;
    if (tr_comm_stop_requested(b->comm)) return tr_error(TR_ERR_PEER, "the benchmark was interrupted");
    if (i % stride == 0) TR_TRY(take_peak(b));
    TR_TRY(take_step(b, &seconds, &kernels));
    if (tr_comm_rank(b->comm) == 0) out->seconds[i] = seconds, out->kernels[i] = kernels, out->nstep = i + 1;
  }
  return take_peak(b);
}

static tr_status rank_main(tr_comm *comm, void *user) {
  bench_rank b = {.job = user, .comm = comm};
  tr_status status = open_rank(&b);
  if (status == TR_OK) status = measure_steps(&b);
  close_rank(&b);
  return status;
}

typedef struct shared {
  tr__bench_times times;
  tr__bench_samples samples;
} shared;

static tr_status run_job(tr_train_plan *plan, double seconds, int sampled, shared **out) {
  shared *s = mmap(NULL, sizeof *s, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (s == MAP_FAILED) return tr_error(TR_ERR_MEMORY, "no memory for the times of a benchmark");
  job j = {.plan = plan, .out = &s->times, .samples = sampled ? &s->samples : NULL, .seconds = seconds};
  s->samples.thread = plan->nthread == 1;
  s->samples.waits = plan->config->run.ranks > 1;
  fflush(stdout);
  *out = s;
  return tr_train_launch(plan, NULL, rank_main, &j);
}

tr_status tr__bench_ranks(tr_train_plan *plan, tr__bench_times *out) {
  shared *s = NULL;
  tr_status status = run_job(plan, measured_seconds, 0, &s);
  if (!s) return status;
  *out = s->times;
  munmap(s, sizeof *s);
  return status;
}

tr_status tr__bench_sampled(tr_train_plan *plan, double seconds, tr__bench_samples *out) {
  shared *s = NULL;
  tr_status status = run_job(plan, seconds, 1, &s);
  if (!s) return status;
  *out = s->samples;
  munmap(s, sizeof *s);
  return status;
}
