// SPDX-License-Identifier: MIT
// The equivalence of plans, stated once for ranks as threads and as processes: what one rank computes is what any
// number of ranks computes, for losses, the first step's gradients, norms and the weights at the end.
#ifndef TRIREME_TESTS_RUN_PARALLEL_CASES_H
#define TRIREME_TESTS_RUN_PARALLEL_CASES_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "run/run_harness.h"

// One rank, one micro-batch, everything plain: the yardstick for a case.
static inline rh_case pc_yardstick(const rh_case *c) {
  rh_case one = *c;
  one.nrank = one.nthread = one.micro = 1;
  one.split = one.zero = one.pack = 0;
  one.wire = TR_F32;
  one.sync = TR_SYNC_LAST;
  one.mode = TR_LAUNCH_THREADS;
  return one;
}

static inline void pc_close(const rh_case *c, const char *what, double difference, double allowed,
                            const char *tensor) {
  if (!(difference <= allowed))
    fail_msg("%d ranks, micro %d: %s differ by %g, allowed %g; %s", c->nrank, c->micro, what, difference, allowed,
             tensor);
}

static inline void pc_equal(const rh_case *c, const rh_result *got, const rh_result *want) {
  char tensor[96];
  for (int step = 0; step < c->steps; step++) {
    assert_int_equal(got->tokens[step], want->tokens[step]);
    assert_int_equal(got->skipped[step], want->skipped[step]);
    pc_close(c, "losses", fabs(got->loss[step] - want->loss[step]), 1e-5, "");
    pc_close(c, "norms", fabs(got->norm[step] - want->norm[step]), 1e-5 * (1 + want->norm[step]), "");
    pc_close(c, "clip factors", fabs(got->clip[step] - want->clip[step]), 1e-5, "");
  }
  pc_close(c, "gradients", rh_difference(c, got->gradient, want->gradient, 1, 0, tensor), 1e-5, tensor);
  double allowed = c->optim.kind == TR_OPTIM_SGD ? 1e-5 : 1e-4;
  pc_close(c, "weights", rh_difference(c, got->weights, want->weights, 0, 1, tensor), allowed, tensor);
  for (int rank = 1; rank < c->nrank; rank++) assert_true(got->hash[rank] == got->hash[0]);
}

// Against the yardstick, which starts every case with a loss near log(vocab) and really learns.
static inline void pc_check(const rh_case *c) {
  rh_case one = pc_yardstick(c);
  rh_result *want = rh_run(&one), *got = rh_run(c);
  assert_true(want->loss[0] > 2 && want->loss[0] < 6 && want->tokens[0] > 5);
  pc_equal(c, got, want);
  rh_free(got);
  rh_free(want);
}

static inline rh_case pc_training(int nrank, tr_optim_kind kind, tr_launch_mode mode) {
  rh_case c = rh_default();
  c.nrank = nrank;
  c.mode = mode;
  c.sequences = 9; // does not divide: the last ranks get less
  c.steps = 10;
  c.optim.kind = kind;
  if (kind == TR_OPTIM_ADAMW) c.optim.weight_decay = 0.1, c.lr = 0.002;
  return c;
}

static inline void pc_same_bits(const rh_case *a, const rh_case *b) {
  rh_result *x = rh_run(a), *y = rh_run(b);
  assert_true(x->hash[0] == y->hash[0]);
  rh_free(x);
  rh_free(y);
}

// The last rank fails in its second step while the others wait for its gradients.
static inline tr_status pc_failing_main(tr_comm *comm, void *user) {
  const rh_case *c = user;
  rh_rank r;
  tr_step_result done;
  tr_status status = rh_open(c, comm, &r);
  for (int step = 0; step < 3 && status == TR_OK; step++) {
    rh_deal(c, step, tr_comm_rank(comm), r.rows, r.input);
    if (step == 1 && tr_comm_rank(comm) == c->nrank - 1) r.input[0].rows = r.options.rows + 1;
    status = tr_run_step(r.run, step, c->lr, r.input, &done);
  }
  rh_close(&r);
  return status;
}

static inline void pc_one_failure_stops_all(int nrank, tr_launch_mode mode) {
  rh_case c = rh_default();
  tr_launch_options launch;
  tr_launch_report report;
  tr_launch_options_init(&launch);
  c.nrank = launch.nrank = nrank;
  launch.mode = mode;
  launch.bind = 0;
  launch.arena_nbyte = 4 << 20;
  assert_int_equal(tr_launch(&launch, pc_failing_main, &c, &report), TR_ERR_DATA);
  assert_int_equal(report.culprit, nrank - 1);
  assert_non_null(strstr(report.text, "rows"));
}

#endif
