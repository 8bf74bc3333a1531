// SPDX-License-Identifier: MIT
// tier: quick
// timeout: 60
// Proves that a run takes exactly the memory that was predicted, gives it back, and that steps and evaluations take
// none; and that evaluation sums each sequence's own losses.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "run/run_harness.h"
#include "run/run_internal.h"
#include <malloc.h>

static void check_prediction(const rh_case *c, tr_comm *comm) {
  rh_rank r;
  tr_run_memory need;
  size_t before = comm ? tr_arena_mark(tr_comm_arena(comm)) : 0;
  assert_true(rh_works(rh_open(c, comm, &r)));
  const int share = c->per_host ? c->per_host : c->nrank;
  assert_int_equal(tr_run_memory_predict(&r.options, c->nthread, c->nrank, share, &need), TR_OK);
  assert_int_equal(r.run->memory.used, need.private_total);
  const tr_arena *shared = comm ? tr_comm_arena(comm) : &r.run->own_shared;
  size_t once = comm && tr_comm_rank(comm) % share == 0 ? need.host_total : 0;
  assert_int_equal(shared->used - before, need.shared_total + once);
  assert_int_equal(need.host_total > 0, c->zero && share > 1);
  size_t count = (size_t)r.layout.total, wide = tr_dtype_size(tr_wide(c->type));
  assert_true(need.gradients >= count * wide * (c->sync == TR_SYNC_EVERY ? 2 : 1));
  assert_true(need.weights >= count * tr_dtype_size(c->type));
  assert_int_equal(need.master > 0, c->type == TR_BF16);
  assert_int_equal(need.state > 0, c->optim.kind == TR_OPTIM_ADAMW || c->optim.momentum > 0);
  tr_step_result done;
  rh_deal(c, 0, comm ? tr_comm_rank(comm) : 0, r.rows, r.input);
  assert_true(rh_works(tr_run_step(r.run, 0, c->lr, r.input, &done)));
  assert_int_equal(r.run->scratch.used, 0); // kernels give their scratch back
  rh_close(&r);
  if (comm) assert_int_equal(tr_arena_mark(tr_comm_arena(comm)), before);
}

static void runs_take_what_was_predicted(void **state) {
  (void)state;
  static const tr_dtype type[] = {TR_F32, TR_BF16, TR_F64};
  for (int k = 0; k < 48; k++) {
    rh_case c = rh_default();
    c.type = type[k % 3];
    c.recompute = (tr_recompute)(k / 8 % 3);
    c.sync = k & 1 ? TR_SYNC_EVERY : TR_SYNC_LAST;
    c.split = k >> 1 & 1;
    c.micro = 1 + k % 2;
    c.nthread = 1 + k % 3;
    c.optim.kind = k & 4 ? TR_OPTIM_ADAMW : TR_OPTIM_SGD;
    c.optim.momentum = k & 2 ? 0.9 : 0;
    c.kernels = k >= 24 && c.type != TR_F64 ? tr_kernels_cpu() : NULL;
    check_prediction(&c, NULL);
  }
}

static tr_status in_rank(tr_comm *comm, void *user) {
  check_prediction(user, comm);
  return TR_OK;
}

static void state_that_ranks_share_is_taken_once(void **state) {
  (void)state;
  for (int k = 0; k < 16; k++) {
    rh_case c = rh_default();
    tr_launch_options launch;
    tr_launch_options_init(&launch);
    launch.mode = TR_LAUNCH_THREADS;
    launch.nrank = c.nrank = k < 8 ? 2 + k % 2 : 4;
    c.per_host = k < 8 ? 0 : 1 + k % 2;
    launch.arena_nbyte = 1 << 20;
    c.zero = 1;
    c.type = k & 1 ? TR_BF16 : TR_F32;
    c.wire = k & 2 ? TR_BF16 : TR_F32;
    c.sync = k & 4 ? TR_SYNC_EVERY : TR_SYNC_LAST;
    c.optim.kind = TR_OPTIM_ADAMW;
    assert_true(rh_works(tr_launch(&launch, in_rank, &c, NULL)));
  }
}

static void the_shared_arena_is_given_back(void **state) {
  (void)state;
  rh_case c = rh_default();
  tr_launch_options launch;
  tr_launch_options_init(&launch);
  launch.mode = TR_LAUNCH_THREADS;
  launch.arena_nbyte = 1 << 20;
  c.sync = TR_SYNC_EVERY;
  assert_true(rh_works(tr_launch(&launch, in_rank, &c, NULL)));
}

static void an_arena_that_is_too_small_is_an_error(void **state) {
  (void)state;
  rh_case c = rh_default();
  rh_job job = {&c, NULL};
  tr_launch_options launch;
  tr_launch_options_init(&launch);
  launch.mode = TR_LAUNCH_THREADS;
  launch.arena_nbyte = 4096;
  assert_int_equal(tr_launch(&launch, rh_main, &job, NULL), TR_ERR_MEMORY);
}

// ---- nothing is allocated during a step

typedef struct watch {
  size_t in_use;
  int changes, calls;
} watch;

static void look(void *user, int64_t step, uint32_t index, const tr_op *op) {
  watch *w = user;
  (void)step;
  (void)index;
  (void)op;
  w->calls++;
  w->changes += mallinfo2().uordblks != w->in_use;
}

static void steps_allocate_nothing(void **state) {
  (void)state;
  for (int k = 0; k < 4; k++) {
    rh_case c = rh_default();
    rh_rank r;
    watch w = {0};
    c.micro = 2;
    c.dropout = 0.1;
    c.optim.kind = TR_OPTIM_ADAMW;
    c.type = k & 1 ? TR_BF16 : TR_F32;
    c.kernels = k & 2 ? tr_kernels_cpu() : NULL;
    assert_true(rh_works(rh_open(&c, NULL, &r)));
    tr_run_destroy(r.run);
    r.options.nobserver = 1;
    r.options.observer[0] = (tr_run_observer){.op_begin = look, .op_end = look, .user = &w};
    assert_true(rh_works(tr_run_create(&r.options, &r.run)));
    tr_run_init_weights(r.run, 5);
    tr_step_result done;
    for (int step = 0; step < 4; step++) {
      rh_deal(&c, step % 2, 0, r.rows, r.input);
      w.in_use = mallinfo2().uordblks;
      if (step < 2) w.changes = 0; // the first time a shape is seen, the fast table makes its plan for it
      assert_true(rh_works(tr_run_step(r.run, step, c.lr, r.input, &done)));
      if (!c.kernels || step >= 2) assert_int_equal(w.changes, 0);
    }
    assert_int_equal(w.calls, 4 * 2 * (int)r.program.nop);
    rh_close(&r);
  }
}

// ---- limits and evaluation

static void more_rows_than_planned_are_refused(void **state) {
  (void)state;
  rh_case c = rh_default();
  rh_rank r;
  tr_step_result done;
  double loss;
  assert_true(rh_works(rh_open(&c, NULL, &r)));
  rh_deal(&c, 0, 0, r.rows, r.input);
  r.input[0].rows = r.options.rows + 1;
  assert_int_equal(tr_run_step(r.run, 0, 0, r.input, &done), TR_ERR_DATA);
  assert_int_equal(tr_run_eval(r.run, r.input, &loss), TR_ERR_DATA);
  rh_close(&r);
}

static void evaluation_agrees_with_the_step_and_changes_nothing(void **state) {
  (void)state;
  rh_case c = rh_default();
  rh_rank r;
  tr_step_result done;
  double loss[16], sum = 0, alone;
  c.dropout = 0.3; // evaluation has none
  assert_true(rh_works(rh_open(&c, NULL, &r)));
  rh_deal(&c, 0, 0, r.rows, r.input);
  uint64_t before = rh_hash(0, tr_run_weights(r.run), (size_t)r.layout.total * sizeof(float));
  assert_true(rh_works(tr_run_eval(r.run, r.input, loss)));
  assert_true(before == rh_hash(0, tr_run_weights(r.run), (size_t)r.layout.total * sizeof(float)));
  for (int s = 0; s < c.sequences; s++) {
    rh_fill(&c, 0, s, s + 1, &r.rows[1]); // the sequence by itself
    assert_true(rh_works(tr_run_eval(r.run, &r.rows[1].input, &alone)));
    assert_true(fabs(alone - loss[s]) < 1e-5);
    sum += loss[s];
  }
  rh_close(&r);
  c.dropout = 0;
  assert_true(rh_works(rh_open(&c, NULL, &r)));
  rh_deal(&c, 0, 0, r.rows, r.input);
  assert_true(rh_works(tr_run_step(r.run, 0, 0, r.input, &done)));
  assert_true(fabs(done.loss - sum / (double)done.tokens) < 1e-6);
  rh_close(&r);
}

// bf16 keeps f32 masters; its losses follow those of f32.
static void bf16_trains_like_f32(void **state) {
  (void)state;
  for (int k = 0; k < 2; k++) {
    rh_case c = rh_default(), low;
    c.steps = 10;
    c.kernels = k ? tr_kernels_cpu() : NULL;
    low = c;
    low.type = TR_BF16;
    low.nrank = 2;
    rh_result *a = rh_run(&c), *b = rh_run(&low);
    for (int step = 0; step < c.steps; step++) assert_true(fabs(a->loss[step] - b->loss[step]) < 0.05);
    assert_true(fabs(a->norm[0] / b->norm[0] - 1) < 0.05);
    assert_true(b->hash[0] == b->hash[1]);
    rh_free(a);
    rh_free(b);
  }
}

// Weights after `skips` steps without a valid target and then one real step with AdamW, copied to `out`.
static void weights_after_skips(int skips, float *out, size_t *nbyte) {
  rh_rank r;
  tr_step_result result;
  rh_case real = rh_default(), empty = real;
  real.optim.kind = empty.optim.kind = TR_OPTIM_ADAMW;
  empty.labels = RH_NONE_VALID;
  assert_true(rh_works(rh_open(&real, NULL, &r)));
  for (int i = 0; i < skips; i++) {
    rh_deal(&empty, 0, 0, r.rows, r.input);
    assert_true(rh_works(tr_run_step(r.run, i, 0.01, r.input, &result)));
    assert_true(result.skipped);
  }
  assert_int_equal(tr_run_updates(r.run), 0);
  rh_deal(&real, 0, 0, r.rows, r.input);
  assert_true(rh_works(tr_run_step(r.run, skips, 0.01, r.input, &result)));
  assert_int_equal(tr_run_updates(r.run), 1);
  *nbyte = (size_t)r.layout.total * sizeof(float);
  memcpy(out, tr_run_master(r.run), *nbyte);
  rh_close(&r);
}

static void skipped_steps_do_not_count_in_bias_correction(void **state) {
  (void)state;
  static float straight[1 << 16], skipped[1 << 16];
  size_t nbyte;
  weights_after_skips(0, straight, &nbyte);
  weights_after_skips(3, skipped, &nbyte);
  assert_memory_equal(straight, skipped, nbyte);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(runs_take_what_was_predicted),
      cmocka_unit_test(state_that_ranks_share_is_taken_once),
      cmocka_unit_test(the_shared_arena_is_given_back),
      cmocka_unit_test(an_arena_that_is_too_small_is_an_error),
      cmocka_unit_test(steps_allocate_nothing),
      cmocka_unit_test(more_rows_than_planned_are_refused),
      cmocka_unit_test(evaluation_agrees_with_the_step_and_changes_nothing),
      cmocka_unit_test(bf16_trains_like_f32),
      cmocka_unit_test(skipped_steps_do_not_count_in_bias_correction),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
