// SPDX-License-Identifier: MIT
// tier: quick
// timeout: 60
// Proves that a means is its family of plans and no more: what it finds keeps to it, is what trying its plans finds, and fits; that a
// stronger means never fits less; and that the largest model of each fits, while the next larger does not.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "plan_cases.h"
#include "trireme/plan/means.h"
#include <math.h>

static const tr_means_job job = {4096, 64, TR_PLAN_BF16};

static tr_workload sized(int64_t layers, int64_t width) {
  tr_workload w = case_model();
  w.layers = layers, w.width = width, w.heads = w.heads_kv = width / 128, w.ffn = 4 * width;
  return w;
}

static tr_means_result try(tr_means m, const tr_workload *w, const tr_cluster *c) {
  tr_means_result r;
  assert_int_equal(tr_means_try(m, w, c, &job, &r), TR_OK);
  return r;
}

static void families_are_kept(void **state) {
  (void)state;
  tr_cluster c = case_cluster(16);
  tr_workload w = sized(16, 1024);
  for (int m = 0; m < TR_MEANS_COUNT; m++) {
    tr_means_result r = try((tr_means)m, &w, &c);
    const tr_plan *p = &r.entry.plan;
    assert_int_equal(r.exists, m != TR_MEANS_EXPERTS); // the model has none
    if (!r.exists) continue;
    assert_true(r.fits && r.entry.prediction.fits);
    assert_int_equal(tr_plan_devices(p), 16);
    assert_int_equal(tr_plan_check(p, &w, &c), TR_OK);
    assert_true(r.bytes <= r.entry.prediction.memory.process);
    if (m == TR_MEANS_ALL) continue;
    assert_true((p->tp > 1) == (m == TR_MEANS_TENSOR || m == TR_MEANS_TENSOR_PIPELINE));
    assert_true((p->pp > 1) == (m == TR_MEANS_PIPELINE || m == TR_MEANS_TENSOR_PIPELINE));
    assert_int_equal(p->zero, m == TR_MEANS_ZERO3_RECOMPUTE                ? 3
                              : m >= TR_MEANS_ZERO1 && m <= TR_MEANS_ZERO3 ? m - TR_MEANS_ZERO1 + 1
                                                                           : 0);
    assert_true((p->recompute == TR_PLAN_RECOMPUTE_FULL) ==
                (m == TR_MEANS_RECOMPUTE || m == TR_MEANS_ZERO3_RECOMPUTE));
    assert_true(try(TR_MEANS_ALL, &w, &c).entry.prediction.step <= r.entry.prediction.step);
  }
}

// The plans of data parallelism can be counted by hand: a micro-batch that divides the share of each device.
static void data_parallel_is_tried(void **state) {
  (void)state;
  tr_cluster c = case_cluster(16);
  tr_workload w = sized(16, 1024);
  tr_plan p;
  tr_prediction x;
  double best = INFINITY, least = INFINITY;
  tr_plan_init(&p);
  p.dp = 16, p.batch = job.batch, p.sequence = job.sequence;
  for (p.micro = 1; p.micro <= 4; p.micro *= 2) {
    tr_predict(&p, &w, &c, &x);
    if (!x.fits) continue;
    best = fmin(best, x.step);
    least = fmin(least, x.memory.process);
  }
  assert_true(fabs(try(TR_MEANS_DATA, &w, &c).entry.prediction.step / best - 1) < 1e-12);
  assert_true(fabs(try(TR_MEANS_DATA, &w, &c).bytes / least - 1) < 1e-12);
}

static void what_does_not_fit_lacks_memory(void **state) {
  (void)state;
  tr_cluster c = case_cluster(16);
  tr_workload w = sized(48, 8192); // 38 G parameters
  double room = c.device.memory_gib * 1073741824.0;
  tr_plan p;
  tr_footprint m;
  tr_plan_init(&p);
  p.dp = 16, p.batch = job.batch, p.sequence = job.sequence;
  tr_predict_memory(&p, &w, &c, &m);
  tr_means_result data = try(TR_MEANS_DATA, &w, &c);
  assert_true(data.exists && !data.fits && data.bytes > room);
  assert_true(fabs(data.bytes / m.process - 1) < 1e-12);
  assert_true(try(TR_MEANS_ALL, &w, &c).fits);
}

// The smallest plan is no larger than any that was found, and does not grow with means.
static void the_smallest_is_the_smallest(void **state) {
  (void)state;
  tr_cluster c = case_cluster(16);
  for (int64_t heads = 8; heads <= 128; heads *= 2) {
    tr_workload w = tr_means_shape(heads, 32000);
    double all = tr_means_bytes(TR_MEANS_ALL, &w, &c, job.sequence);
    assert_int_equal(tr_workload_check(&w), TR_OK);
    for (int m = 0; m < TR_MEANS_COUNT; m++) {
      if (m == TR_MEANS_EXPERTS) continue;
      tr_means_result r = try((tr_means)m, &w, &c);
      double least = tr_means_bytes((tr_means)m, &w, &c, job.sequence);
      assert_true(least >= all);
      if (r.fits) assert_true(least <= r.bytes * (1 + 1e-12));
      if (!r.fits) assert_true(least == r.bytes && least > c.device.memory_gib * 1073741824.0);
    }
  }
}

static void experts_are_dealt_out(void **state) {
  (void)state;
  tr_cluster c = case_cluster(16);
  tr_workload w = sized(16, 1024);
  w.experts = 8, w.active = 2, w.expert_ffn = 2048;
  tr_means_result r = try(TR_MEANS_EXPERTS, &w, &c), whole = try(TR_MEANS_ZERO1, &w, &c);
  assert_true(r.fits && whole.fits && r.entry.plan.ep > 1 && r.entry.plan.tp == 1 && r.entry.plan.pp == 1);
  assert_true(r.bytes < whole.bytes);
  assert_true(tr_means_bytes(TR_MEANS_EXPERTS, &w, &c, job.sequence) <= r.bytes * (1 + 1e-12));
}

static void one_device_shares_nothing(void **state) {
  (void)state;
  tr_cluster c = case_cluster(1);
  tr_workload w = sized(8, 1024);
  for (int m = 0; m < TR_MEANS_COUNT; m++) {
    int alone = m == TR_MEANS_DATA || m == TR_MEANS_RECOMPUTE || m == TR_MEANS_ALL;
    tr_means_result r = try((tr_means)m, &w, &c);
    assert_int_equal(r.exists, alone);
    assert_int_equal(r.fits, alone);
    if (!alone) assert_true(isnan(r.bytes));
  }
}

static double largest(tr_means m, const tr_cluster *c, tr_workload *out) {
  assert_int_equal(tr_means_largest(m, c, &job, 32000, out), TR_OK);
  return out->layers ? tr_workload_params(out) : 0;
}

static void the_largest_is_the_largest(void **state) {
  (void)state;
  tr_cluster c = case_cluster(64);
  double size[TR_MEANS_COUNT];
  for (int m = 0; m < TR_MEANS_COUNT; m++) {
    tr_workload w;
    size[m] = largest((tr_means)m, &c, &w);
    if (m == TR_MEANS_EXPERTS) {
      assert_int_equal(w.layers, 0);
      continue;
    }
    assert_true(w.layers > 8 && w.layers % 8 == 0);
    assert_true(try((tr_means)m, &w, &c).fits);
    w.layers = w.heads = w.heads_kv = w.layers + 8;
    w.width += 1024, w.ffn = 352 * w.heads;
    assert_false(try((tr_means)m, &w, &c).fits);
  }
  assert_true(size[TR_MEANS_DATA] < size[TR_MEANS_ZERO1] && size[TR_MEANS_ZERO1] <= size[TR_MEANS_ZERO2]);
  assert_true(size[TR_MEANS_ZERO2] < size[TR_MEANS_ZERO3]);
  assert_true(size[TR_MEANS_ZERO3] <= size[TR_MEANS_ZERO3_RECOMPUTE]);
  assert_true(size[TR_MEANS_TENSOR] < size[TR_MEANS_TENSOR_PIPELINE]);
  for (int m = 0; m < TR_MEANS_ALL; m++) assert_true(size[m] <= size[TR_MEANS_ALL]);
}

static void more_memory_never_means_less(void **state) {
  (void)state;
  for (int m = 0; m < TR_MEANS_COUNT; m++) {
    tr_workload w;
    double before = 0;
    for (double gib = 10; gib <= 160; gib *= 2) {
      tr_cluster c = case_cluster(16);
      c.device.memory_gib = gib;
      double now = largest((tr_means)m, &c, &w);
      assert_true(now >= before);
      before = now;
    }
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(families_are_kept),
                                     cmocka_unit_test(data_parallel_is_tried),
                                     cmocka_unit_test(what_does_not_fit_lacks_memory),
                                     cmocka_unit_test(the_smallest_is_the_smallest),
                                     cmocka_unit_test(one_device_shares_nothing),
                                     cmocka_unit_test(experts_are_dealt_out),
                                     cmocka_unit_test(the_largest_is_the_largest),
                                     cmocka_unit_test(more_memory_never_means_less)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
