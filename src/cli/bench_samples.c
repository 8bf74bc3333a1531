// SPDX-License-Identifier: MIT
// What single calls of a step took (bench_internal.h), as an observer of a run. A piece's first calls, while memory and caches
// warm up, are among few dozen and do not move a median.
#include "cli/bench_internal.h"
#include "trireme/base/clock.h"
#include "trireme/base/sort.h"
#include <time.h>

enum { STEP, OP, PIECE };

// What a rank waits is in its steps, and in no call.
static int64_t now(const tr__bench_samples *s, int level) {
  struct timespec t;
  const int wall = !s->thread || (level == STEP && s->waits);
  if (wall || clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t) != 0) return tr_clock_ns();
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void begin(tr__bench_samples *s, int level) { s->begin[level] = now(s, level); }

static void end(tr__bench_samples *s, int level, tr__bench_sample *sample) {
  const int64_t taken = now(s, level) - s->begin[level];
  if (sample->n < TR__SAMPLES) sample->seconds[sample->n] = (float)taken * 1e-9f;
  sample->n++;
}

void tr__bench_sample_step(tr__bench_samples *s, int ends) {
  if (ends)
    end(s, STEP, &s->step);
  else
    begin(s, STEP);
}

static int is_state(const tr_op *op) { return op->lane == TR_LANE_COMPUTE && op->kind > TR_OP_R; }

static void op_begin(void *user, int64_t step, uint32_t index, const tr_op *op) {
  (void)step, (void)index;
  if (is_state(op)) begin(user, OP);
}
static void op_end(void *user, int64_t step, uint32_t index, const tr_op *op) {
  tr__bench_samples *s = user;
  (void)step;
  if (is_state(op) && index < TR__SAMPLE_OPS) end(s, OP, &s->op[index]);
}
static void piece_begin(void *user, int piece, const tr_op *op, const tr_model_input *input) {
  (void)piece, (void)op, (void)input;
  begin(user, PIECE);
}
static void piece_end(void *user, int piece, const tr_op *op, const tr_model_input *input) {
  tr__bench_samples *s = user;
  const int backward = op->kind == TR_OP_B;
  (void)input;
  if (piece < TR__SAMPLE_PIECES && (backward || op->kind == TR_OP_F)) end(s, PIECE, &s->piece[piece][backward]);
}

const tr_run_observer tr__bench_sampler = {
    .op_begin = op_begin, .op_end = op_end, .piece_begin = piece_begin, .piece_end = piece_end};

double tr__bench_sample_median(const tr__bench_sample *sample) {
  double sorted[TR__SAMPLES];
  const int n = sample->n < TR__SAMPLES ? sample->n : TR__SAMPLES;
  for (int i = 0; i < n; i++) sorted[i] = (double)sample->seconds[i];
  tr_sort_doubles(sorted, (size_t)n);
  return n > 0 ? sorted[n / 2] : 0;
}
