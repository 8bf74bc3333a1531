// SPDX-License-Identifier: MIT
// tier: quick
// timeout: 30
// Proves what must hold of every prediction: terms add up, better hardware never makes a plan slower, more memory never
// makes a plan that fits not fit, states shrink with ZeRO as published, and contradictory plans are refused by name.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "plan_cases.h"
#include <math.h>
#include <string.h>

static void terms_add_up(void **state) {
  (void)state;
  tr_workload w = case_model();
  tr_cluster c = case_cluster(64);
  int checked = 0;
  for (int k = 0; k < CASE_PLANS; k++) {
    tr_plan p = case_plan(k, 64);
    tr_prediction x;
    if (tr_plan_check(&p, &w, &c) < 0) continue;
    tr_predict(&p, &w, &c, &x);
    double sum = 0, bytes = 0;
    for (int i = 0; i < TR_TERM_COUNT; i++) {
      assert_true(x.term[i] >= 0);
      sum += x.term[i];
    }
    for (int i = 0; i < TR_ITEM_COUNT; i++) bytes += x.memory.item[i];
    assert_true(fabs(sum / x.step - 1) < 1e-12);
    assert_true(fabs(bytes / x.memory.total - 1) < 1e-12);
    assert_true(x.low < x.step && x.step < x.high && x.mfu > 0 && x.mfu < 1);
    checked++;
  }
  assert_true(checked > 300);
}

static double step_on(const tr_plan *p, const tr_cluster *c) {
  tr_workload w = case_model();
  double term[TR_TERM_COUNT];
  return tr_predict_step(p, &w, c, term);
}

static void better_is_never_slower(void **state) {
  (void)state;
  tr_workload w = case_model();
  tr_cluster c = case_cluster(64);
  for (int k = 0; k < CASE_PLANS; k++) {
    tr_plan p = case_plan(k, 64);
    if (tr_plan_check(&p, &w, &c) < 0) continue;
    double step = step_on(&p, &c), few = step * (1 + 1e-12);
    for (int what = 0; what < 7; what++) {
      tr_cluster more = c;
      if (what == 0) more.device.link_gbs *= 2;
      if (what == 1) more.network_gbit *= 2;
      if (what == 2) more.device.memory_gbs *= 2;
      if (what == 3) more.device.peak_bf16 *= 2;
      if (what == 4) more.device.fit.link_us /= 2;
      if (what == 5) more.device.fit.network_us /= 2;
      if (what == 6) more.domain *= 2;
      if (step_on(&p, &more) > few) fail_msg("plan %d is slower with a better %d", k, what);
    }
  }
}

static void memory_is_monotone(void **state) {
  (void)state;
  tr_workload w = case_model();
  tr_cluster c = case_cluster(64);
  for (int k = 0; k < CASE_PLANS; k++) {
    tr_plan p = case_plan(k, 64);
    tr_prediction x;
    if (tr_plan_check(&p, &w, &c) < 0) continue;
    tr_predict(&p, &w, &c, &x);
    int fitted = 0;
    for (double room = 1; room < 4096; room *= 1.3) {
      tr_cluster more = c;
      more.device.memory_gib = room;
      tr_predict(&p, &w, &more, &x);
      assert_true(x.fits >= fitted);
      fitted = x.fits;
    }
    assert_true(fitted);
    double bytes = x.memory.total;
    tr_plan again = p;
    again.recompute = TR_PLAN_RECOMPUTE_FULL;
    tr_predict(&again, &w, &c, &x);
    assert_true(x.memory.total <= bytes * (1 + 1e-12));
  }
}

// ZeRO (Rajbhandari et al. 2020), figure 1: 7.5B parameters over 64 devices take 120, 31.4, 16.6 and 1.9 GB of states.
static void zero_as_published(void **state) {
  (void)state;
  static const double gb[] = {120, 31.4, 16.6, 1.9};
  tr_workload w = {.layers = 36,
                   .width = 4096,
                   .heads = 32,
                   .heads_kv = 32,
                   .head_dim = 128,
                   .ffn = 16384,
                   .vocab = 32000,
                   .every = 1};
  w.vocab += (int64_t)((7.5e9 - tr_workload_params(&w)) / 4096 / 2);
  tr_cluster c = case_cluster(64);
  for (int zero = 0; zero < 4; zero++) {
    tr_plan p;
    tr_footprint m;
    tr_plan_init(&p);
    p.dp = p.batch = 64;
    p.zero = zero;
    p.grad_bytes = 2;
    tr_predict_memory(&p, &w, &c, &m);
    double states = m.item[TR_ITEM_WEIGHTS] + m.item[TR_ITEM_GRADS] + m.item[TR_ITEM_STATES];
    assert_true(fabs(states / 1e9 / gb[zero] - 1) < 0.015);
  }
}

// ---- experts

static tr_workload expert_model(void) {
  tr_workload w = case_model();
  w.experts = 64, w.active = 8, w.shared = 1, w.expert_ffn = 2048, w.dense_first = 1;
  return w;
}

static tr_plan expert_plan(int64_t dp, int64_t ep) {
  tr_plan p;
  tr_plan_init(&p);
  p.dp = p.batch = dp, p.ep = ep, p.zero = 1, p.hides_grads = p.hides_weights = 0;
  return p;
}

// Each rank holds its part of the experts; their gradients are summed over the dp/ep ranks that hold the same part.
static void experts_by_rank(void **state) {
  (void)state;
  tr_workload w = expert_model(), wide = w;
  tr_cluster c = case_cluster(64);
  double expert = tr_workload_expert_params(&w), term[TR_TERM_COUNT], grads[2];
  tr_footprint m[2];
  for (int i = 0; i < 2; i++) {
    tr_plan p = expert_plan(64, 16 << i);
    tr_predict_memory(&p, &w, &c, &m[i]);
  }
  double moved = 23 * 64 * expert * (1. / 16 - 1. / 32); // parameters of 23 layers that go elsewhere
  assert_true(fabs((m[0].item[TR_ITEM_WEIGHTS] - m[1].item[TR_ITEM_WEIGHTS]) / (2 * moved) - 1) < 1e-9);
  assert_true(fabs((m[0].item[TR_ITEM_GRADS] - m[1].item[TR_ITEM_GRADS]) / (4 * moved) - 1) < 1e-9);
  assert_true(m[0].item[TR_ITEM_STATES] == m[1].item[TR_ITEM_STATES]); // sharded over dp/ep of them
  wide.expert_ffn *= 2, wide.shared = 0, w.shared = 0;
  for (int64_t ep = 32; ep <= 64; ep *= 2) {
    tr_plan p = expert_plan(64, ep);
    (void)tr_predict_step(&p, &w, &c, term);
    grads[0] = term[TR_TERM_GRADS];
    (void)tr_predict_step(&p, &wide, &c, term);
    grads[1] = term[TR_TERM_GRADS];
    if (ep == 32) assert_true(grads[1] > grads[0]);
    if (ep == 64) assert_true(grads[1] == grads[0]); // nobody else has these
  }
}

static void uneven_experts_cost(void **state) {
  (void)state;
  tr_workload w = expert_model(), few = w;
  tr_cluster c = case_cluster(64);
  tr_plan p = expert_plan(64, 64);
  tr_prediction even, uneven, limited;
  few.groups = 8, few.group_limit = 2;
  tr_predict(&p, &w, &c, &even);
  tr_predict(&p, &few, &c, &limited);
  assert_true(limited.term[TR_TERM_EP] < even.term[TR_TERM_EP]); // two hosts of eight instead of about five
  assert_true(limited.term[TR_TERM_COMPUTE] == even.term[TR_TERM_COMPUTE]);
  double before = even.step;
  for (w.imbalance = 1; w.imbalance < 4; w.imbalance *= 1.3) {
    tr_predict(&p, &w, &c, &uneven);
    assert_true(uneven.step >= before && uneven.memory.total >= even.memory.total);
    before = uneven.step;
  }
  assert_true(uneven.term[TR_TERM_EP] > 2 * even.term[TR_TERM_EP]);
}

static void refused(void **state) {
  (void)state;
  tr_workload w = case_model();
  tr_cluster c = case_cluster(64);
  tr_plan p;
  tr_plan_init(&p);
  p.tp = 3;
  assert_int_equal(tr_plan_check(&p, &w, &c), TR_ERR_PLAN);
  assert_non_null(strstr(tr_status_text(), "tp is 3"));
  tr_plan_init(&p);
  p.dp = 8, p.batch = 12;
  assert_int_equal(tr_plan_check(&p, &w, &c), TR_ERR_PLAN);
  assert_non_null(strstr(tr_status_text(), "batch, 12"));
  tr_plan_init(&p);
  p.tp = 8, p.dp = 64, p.batch = 64;
  assert_int_equal(tr_plan_check(&p, &w, &c), TR_ERR_PLAN);
  assert_non_null(strstr(tr_status_text(), "64 devices"));
  tr_plan_init(&p);
  p.ep = 2;
  assert_int_equal(tr_plan_check(&p, &w, &c), TR_ERR_PLAN);
  assert_non_null(strstr(tr_status_text(), "no experts"));
}

// The fullest of all stages is found among the few that are looked at, also where the first layers have no experts.
static void fullest_stage(void **state) {
  (void)state;
  tr_workload w = case_model();
  tr_cluster c = case_cluster(1024);
  w.layers = 60, w.experts = 64, w.active = 4, w.expert_ffn = 2048;
  for (w.dense_first = 0; w.dense_first <= 7; w.dense_first++)
    for (int64_t pp = 1; pp <= 62; pp++)
      for (int recompute = 0; recompute < 2; recompute++) {
        tr_plan p;
        tr_footprint all, one;
        double most = 0, needed = 0;
        tr_plan_init(&p);
        p.pp = pp, p.batch = 128;
        p.recompute = recompute ? TR_PLAN_RECOMPUTE_FULL : TR_PLAN_RECOMPUTE_NONE;
        if (tr_plan_check(&p, &w, &c) < 0) continue;
        for (int64_t i = 0; i < pp; i++) {
          tr_predict_stage_memory(&p, &w, &c, i, &one);
          most = one.total > most ? one.total : most;
          needed = one.needed > needed ? one.needed : needed;
        }
        tr_predict_memory(&p, &w, &c, &all);
        assert_true(all.needed == needed);
        if (all.total != most)
          fail_msg("pp %lld, %lld dense layers: %.4g of %.4g bytes, stage %lld", (long long)pp,
                   (long long)w.dense_first, all.total, most, (long long)all.stage);
      }
}

// One place for the rules: what the search would try, a check lets pass; layers for further tokens count; a schedule's own rules too.
static void stages_and_schedules(void **state) {
  (void)state;
  tr_workload w = case_model();
  tr_cluster c = case_cluster(1024);
  w.layers = 30;
  for (int more = 0; more < 2; more++)
    for (int64_t pp = 1; pp <= 36; pp++)
      for (int64_t vpp = 1; vpp <= 4; vpp++) {
        tr_plan p;
        tr_plan_init(&p);
        w.predict_more = more;
        p.pp = pp, p.vpp = vpp, p.batch = 12 * pp;
        int64_t chunks = pp * vpp, layers = 30 + more;
        int passes = (chunks <= layers || chunks == layers + 2) && (vpp == 1 || pp > 1);
        assert_int_equal(tr_plan_check(&p, &w, &c) == TR_OK, passes);
        if (tr_plan_is_even(&p, &w)) assert_true(passes);
      }
  static const struct {
    const char *schedule, *says;
    int64_t pp, vpp, batch;
  } bad[] = {{"dualpipe", "odd", 3, 1, 12},
             {"dualpipe", "m 6 does not fill", 4, 1, 6},
             {"dualpipe", "v 4", 4, 4, 16},
             {"interleaved", "m 9", 4, 2, 9},
             {"interleaved", "65537 micro-batches", 4, 2, 1 + (1 << 16)},
             {"1f1b1f", "no schedule is called", 4, 1, 8}};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    tr_plan p;
    tr_plan_init(&p);
    p.pp = bad[i].pp, p.vpp = bad[i].vpp, p.batch = bad[i].batch, p.schedule = bad[i].schedule;
    assert_int_equal(tr_plan_check(&p, &w, &c), TR_ERR_PLAN);
    if (!strstr(tr_status_text(), bad[i].says)) fail_msg("'%s' does not say '%s'", tr_status_text(), bad[i].says);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(terms_add_up),
                                     cmocka_unit_test(stages_and_schedules),
                                     cmocka_unit_test(fullest_stage),
                                     cmocka_unit_test(better_is_never_slower),
                                     cmocka_unit_test(memory_is_monotone),
                                     cmocka_unit_test(zero_as_published),
                                     cmocka_unit_test(experts_by_rank),
                                     cmocka_unit_test(uneven_experts_cost),
                                     cmocka_unit_test(refused)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
