// SPDX-License-Identifier: MIT
// tier: quick
// timeout: 60
// Proves what pipeline.h says: a long step added up from short ones is the long step simulated, to the tick, for schedules, depths,
// stages and links of many kinds; the closed forms of 1F1B and interleaved 1F1B, time and memory, are what their schedules give; other
// schedules differ as they should; and a prediction's terms still add up.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "plan_cases.h"
#include "trireme/plan/pipeline.h"
#include <math.h>
#include <string.h>

static tr_plan piped(const char *schedule, int64_t pp, int64_t vpp, int64_t m) {
  tr_plan p;
  tr_plan_init(&p);
  p.pp = pp, p.vpp = vpp, p.batch = m, p.schedule = schedule;
  return p;
}

static tr_pipeline_time timed(const tr_plan *p, const tr_workload *w, const tr_cluster *c) {
  tr_pipeline_time t;
  assert_int_equal(tr_predict_pipeline(p, w, c, &t), TR_OK);
  return t;
}

// The whole step, simulated; 0: the schedule does not take this m.
static int64_t whole(const tr_plan *p, const tr_workload *w, const tr_cluster *c) {
  tr_pipeline *l;
  if (tr_pipeline_open(p, w, c, 0, &l) < 0) return 0;
  int64_t makespan = tr_pipeline_result(l)->makespan;
  tr_pipeline_close(l);
  return makespan;
}

static void long_steps_are_short_ones_repeated(void **state) {
  (void)state;
  static const char *const name[] = {"1f1b",  "interleaved", "gpipe",    "1f1b_eager", "zb_h1",
                                     "zb_h2", "zbv",         "dualpipe", "dualpipev"};
  int checked = 0, shorter = 0;
  for (int k = 0; k < 400; k++) {
    const int64_t pp = 2 + k % 5, m = 4 + k * 7 % 90;
    const char *n = name[k % 9];
    tr_plan p = piped(n, pp, strcmp(n, "interleaved") == 0 ? 2 + k % 2 : 1, m);
    tr_workload w = case_model();
    tr_cluster c = case_cluster(64);
    w.layers = 23 + k % 13, w.vocab = k % 3 ? 32000 : 256000;
    p.tp = 1 << k % 3, p.micro = 1;
    if (k % 4 == 0) c.device.link_gbs = 20, c.network_gbit = 5; // slow messages
    if (k % 4 == 1) c.device.fit.link_us = 3000;
    const int64_t all = whole(&p, &w, &c);
    if (all == 0) continue;
    const tr_pipeline_time t = timed(&p, &w, &c);
    if (fabs((t.work + t.bubble + t.messages) * 1e9 - (double)all) > 0.5)
      fail_msg("%s p %lld m %lld, case %d: %.0f ns from %lld micro-batches, %lld simulated", n, (long long)pp,
               (long long)m, k, (t.work + t.bubble + t.messages) * 1e9, (long long)t.simulated, (long long)all);
    checked++;
    shorter += t.simulated < m;
  }
  assert_true(checked > 200 && shorter > 60);
}

// Stages that are alike: next to no vocabulary.
static void closed_forms_hold(void **state) {
  (void)state;
  tr_workload w = case_model();
  w.layers = 48, w.vocab = 8;
  for (int64_t pp = 2; pp <= 16; pp *= 2)
    for (int64_t vpp = 1; vpp <= 3; vpp++)
      for (int64_t rounds = 1; rounds <= 6; rounds += 5) {
        tr_plan p = piped(NULL, pp, vpp, pp * rounds);
        tr_cluster c = case_cluster(pp);
        if (w.layers % (pp * vpp)) continue;
        tr_prediction closed, x;
        tr_predict(&p, &w, &c, &closed);
        assert_int_equal(tr_predict_simulated(&p, &w, &c, &x), TR_OK);
        // The first stage has the embedding besides, which is counted as work, or by others as waiting for it.
        const double both = x.term[TR_TERM_COMPUTE] + x.term[TR_TERM_BUBBLE];
        assert_true(fabs(both / (closed.term[TR_TERM_COMPUTE] + closed.term[TR_TERM_BUBBLE]) - 1) < 0.004);
        assert_true(x.memory.total == closed.memory.total && x.memory.stage == closed.memory.stage);
        for (int i = 0; i < TR_ITEM_COUNT; i++) assert_true(x.memory.item[i] == closed.memory.item[i]);
      }
}

static void terms_add_up(void **state) {
  (void)state;
  const tr_workload w = case_model();
  const tr_cluster c = case_cluster(64);
  int checked = 0;
  for (int k = 0; k < CASE_PLANS; k++) {
    const tr_plan p = case_plan(k, 64);
    tr_prediction x;
    double sum = 0;
    if (tr_plan_check(&p, &w, &c) < 0) continue;
    assert_int_equal(tr_predict_simulated(&p, &w, &c, &x), TR_OK);
    for (int i = 0; i < TR_TERM_COUNT; i++) {
      assert_true(x.term[i] >= 0);
      sum += x.term[i];
    }
    assert_true(fabs(sum / x.step - 1) < 1e-12 && x.low < x.step && x.step < x.high);
    checked++;
  }
  assert_true(checked > 300);
}

static void schedules_differ(void **state) {
  (void)state;
  tr_workload w = case_model();
  const tr_cluster c = case_cluster(8);
  tr_prediction x[4];
  w.vocab = 8; // stages that are alike
  static const char *const name[] = {"1f1b", "zb_h1", "zb_h2", "gpipe"};
  for (int i = 0; i < 4; i++) {
    const tr_plan p = piped(name[i], 8, 1, 64);
    assert_int_equal(tr_predict_simulated(&p, &w, &c, &x[i]), TR_OK);
  }
  assert_true(x[1].term[TR_TERM_BUBBLE] < 0.7 * x[0].term[TR_TERM_BUBBLE]);
  assert_true(x[2].term[TR_TERM_BUBBLE] < x[1].term[TR_TERM_BUBBLE]);
  assert_true(x[2].memory.item[TR_ITEM_ACTIVATIONS] > 1.5 * x[0].memory.item[TR_ITEM_ACTIVATIONS]);
  assert_true(fabs(x[3].memory.item[TR_ITEM_ACTIVATIONS] / x[0].memory.item[TR_ITEM_ACTIVATIONS] - 8) < 0.01);
}

static void faster_links_are_never_slower(void **state) {
  (void)state;
  const tr_workload w = case_model();
  for (int k = 0; k < 60; k++) {
    const tr_plan p = piped(k % 2 ? "1f1b" : "zb_h1", 2 + k % 7, 1, 8 + k);
    double before = INFINITY;
    for (double rate = 1; rate <= 1024; rate *= 4) {
      tr_cluster c = case_cluster(8);
      c.device.link_gbs = rate, c.device.fit.link_us = 1000 / rate;
      const tr_pipeline_time t = timed(&p, &w, &c);
      assert_true(t.bubble >= 0 && t.messages >= 0 && t.work + t.bubble + t.messages <= before);
      before = t.work + t.bubble + t.messages;
    }
  }
}

static void what_cannot_be_built_is_refused(void **state) {
  (void)state;
  const tr_workload w = case_model();
  const tr_cluster c = case_cluster(8);
  tr_plan p = piped("zb_h3", 4, 1, 8);
  tr_prediction x = {.step = -1};
  assert_int_equal(tr_predict_simulated(&p, &w, &c, &x), TR_ERR_PLAN);
  assert_non_null(strstr(tr_status_text(), "no schedule is called \"zb_h3\""));
  assert_true(x.step == -1);
  p = piped("zbv", 4, 3, 8);
  assert_int_equal(tr_predict_simulated(&p, &w, &c, &x), TR_ERR_PLAN);
  p = piped("1f1b", 4, 1, 1 << 20); // more micro-batches than a schedule holds
  assert_int_equal(tr_predict_simulated(&p, &w, &c, &x), TR_OK);
  assert_true(x.step > 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(long_steps_are_short_ones_repeated),
                                     cmocka_unit_test(closed_forms_hold),
                                     cmocka_unit_test(terms_add_up),
                                     cmocka_unit_test(schedules_differ),
                                     cmocka_unit_test(faster_links_are_never_slower),
                                     cmocka_unit_test(what_cannot_be_built_is_refused)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
