// SPDX-License-Identifier: MIT
// tier: quick
// timeout: 120
// Proves that the search finds what trying every plan finds, in the same order, with and without bounds; that fixed knobs
// hold; and that a model that fits nowhere is refused with what it lacks.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "plan/plan_internal.h"
#include "plan_cases.h"
#include "thin.h"
#include "trireme/plan/pipeline.h"
#include "trireme/plan/search.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KEPT = 20 };

static int ascending(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

// 1f1b or interleaved, zb_h1, dualpipe: the last two where they can be.
static int schedule_works(tr_plan *p, int i) {
  static const char *const name[] = {NULL, "zb_h1", "dualpipe"};
  int64_t m = p->batch / (p->dp * p->micro);
  p->schedule = name[i];
  if (i == 0) return 1;
  if (p->pp == 1 || p->vpp > 1 || p->recompute > TR_PLAN_RECOMPUTE_PARTS) return 0;
  return i == 1 || (m % 2 == 0 && m >= 2 * p->pp && p->pp % 2 == 0);
}

static int divides_evenly(const tr_workload *w, const tr_plan *p) {
  int64_t chunks = p->pp * p->vpp, m = p->batch / (p->dp * p->micro);
  if (p->vpp == 1) return chunks != w->layers + 1;
  return p->pp > 1 && chunks != w->layers + 1 && (w->layers % chunks == 0 || (w->layers + 2) % chunks == 0) &&
         m % p->pp == 0;
}

static double in_best_order(const tr_plan *plan, const tr_workload *w, const tr_cluster *c) {
  tr_axis order[TR__ORDERS][TR_AXIS_COUNT];
  double best = INFINITY, term[TR_TERM_COUNT];
  for (int k = 0, n = tr__orders(plan, order); k < n; k++) {
    tr_plan p = *plan;
    memcpy(p.map, order[k], sizeof p.map);
    double step = tr_predict_step(&p, w, c, term);
    best = step < best * (1 - 1e-9) ? step : best;
  }
  return best;
}

// Steps of all plans that fit, ascending, which the caller frees, and the bytes that the smallest plan needs.
static double *try_all(const tr_workload *w, const tr_cluster *c, int64_t batch, size_t *n, double *least) {
  static const tr_plan_recompute ways[] = {TR_PLAN_RECOMPUTE_NONE, TR_PLAN_RECOMPUTE_PARTS, TR_PLAN_RECOMPUTE_HALF,
                                           TR_PLAN_RECOMPUTE_FULL};
  int64_t devices = c->hosts * c->host_devices, experts = w->experts > 0 ? w->experts : 1;
  size_t room = 1 << 20;
  double *step = malloc(room * sizeof *step);
  assert_non_null(step);
  *n = 0;
  *least = INFINITY;
  for (int64_t tp = 1; tp <= devices; tp++)
    for (int64_t pp = 1; pp <= w->layers + 2; pp++)
      for (int64_t cp = 1; cp <= 9; cp++)
        for (int64_t ep = 1; ep <= experts; ep++)
          for (int64_t vpp = 1; vpp <= w->layers; vpp++)
            for (int64_t micro = 1; micro <= batch; micro++)
              for (int zero = 0; zero < 4; zero++)
                for (int i = 0; i < 12; i++) {
                  tr_plan p;
                  tr_prediction x;
                  tr_plan_init(&p);
                  if (devices % (tp * pp * cp) != 0 || tp > 2 * c->domain || batch % micro != 0) continue;
                  p.tp = tp, p.pp = pp, p.cp = cp, p.ep = ep, p.vpp = vpp, p.micro = micro, p.zero = zero;
                  p.dp = devices / (tp * pp * cp);
                  p.batch = batch, p.sequence = 4096, p.recompute = ways[i / 3];
                  tr_plan_follow_degrees(&p);
                  if (zero > 0 && p.dp * cp == 1) continue;
                  if (!schedule_works(&p, i % 3)) continue;
                  if (tr_plan_check(&p, w, c) < 0 || !divides_evenly(w, &p)) continue;
                  tr_predict(&p, w, c, &x);
                  *least = fmin(*least, x.memory.needed);
                  if (x.fits && *n < room) step[(*n)++] = in_best_order(&p, w, c);
                }
  qsort(step, *n, sizeof *step, ascending);
  return step;
}

static void compare(const tr_workload *w, const tr_cluster *c, int64_t batch) {
  static tr_search_result found;
  tr_search_options o;
  size_t n;
  double least, *step = try_all(w, c, batch, &n, &least);
  assert_true(n > KEPT);
  for (int all = 0; all < 2; all++) {
    tr_search_options_init(&o);
    o.fixed.batch = batch, o.fixed.sequence = 4096;
    o.top = KEPT, o.all = all, o.closed = 1;
    assert_int_equal(tr_search(w, c, &o, &found), TR_OK);
    assert_int_equal(found.n, KEPT);
    for (size_t i = 0; i < KEPT; i++)
      if (fabs(found.top[i].prediction.step / step[i] - 1) > 1e-12)
        fail_msg("place %zu: found %.9g, trying all gives %.9g", i, found.top[i].prediction.step, step[i]);
    if (all) assert_int_equal(found.predicted, n);
    if (!all) assert_true(found.predicted < (int64_t)n);
    size_t near = 0;
    while (near < n && step[near] <= step[0] * (1 + tr_predict_spread(w, c))) near++;
    assert_true(labs((long)found.near - (long)near) <= (long)(near / 20 + 2));
  }
  free(step);
}

static void equals_trying_all(void **state) {
  (void)state;
  tr_workload w = case_model();
  w.layers = 12;
  for (int64_t devices = 8; devices <= (THIN > 1 ? 16 : 24); devices += 8) {
    tr_cluster c = case_cluster(devices);
    compare(&w, &c, devices == 24 ? 48 : 64);
  }
}

static void equals_trying_all_with_experts(void **state) {
  (void)state;
  tr_workload w = case_model();
  w.layers = 8, w.experts = 8, w.active = 2, w.expert_ffn = 2048;
  tr_cluster c = case_cluster(16);
  compare(&w, &c, 32);
}

// The fastest of each group is in, in order, with how many are within a percent of it; nothing that is alike comes twice.
static void groups_stand_for_all(void **state) {
  (void)state;
  static tr_search_result groups, all;
  tr_workload w = case_model();
  tr_cluster c = case_cluster(32);
  tr_search_options o;
  tr_search_options_init(&o);
  o.fixed.batch = 64, o.fixed.sequence = 4096, o.closed = 1, o.top = TR_SEARCH_TOP_MOST;
  assert_int_equal(tr_search(&w, &c, &o, &all), TR_OK);
  for (int exhaustive = 0; exhaustive < 2; exhaustive++) {
    o.grouped = 1, o.top = 8, o.all = exhaustive;
    assert_int_equal(tr_search(&w, &c, &o, &groups), TR_OK);
    assert_int_equal(groups.n, 8);
    size_t next = 0;
    for (size_t i = 0; i < all.n && next < groups.n; i++) {
      int seen = 0;
      for (size_t k = 0; k < i; k++)
        seen |= all.top[k].plan.tp == all.top[i].plan.tp && all.top[k].plan.pp == all.top[i].plan.pp;
      if (seen) continue;
      assert_true(groups.top[next].prediction.step == all.top[i].prediction.step);
      int64_t near = 0;
      for (size_t k = i + 1; k < all.n; k++)
        near += all.top[k].plan.tp == all.top[i].plan.tp && all.top[k].plan.pp == all.top[i].plan.pp &&
                all.top[k].prediction.step < 1.0095 * all.top[i].prediction.step;
      if (all.top[all.n - 1].prediction.step > 1.011 * all.top[i].prediction.step)
        assert_true(groups.top[next].alike >= near && groups.top[next].alike <= near + 3);
      next++;
    }
    assert_true(next > 1);
  }
}

static void schedules_as_asked(void **state) {
  (void)state;
  static const char *const name[] = {"1f1b", "interleaved", "zb_h1", "dualpipe"};
  static tr_search_result found;
  tr_workload w = case_model();
  tr_cluster c = case_cluster(64);
  for (int i = 0; i < 4; i++) {
    tr_search_options o;
    tr_search_options_init(&o);
    o.fixed.batch = 128, o.fixed.sequence = 4096, o.fixed.pp = 4, o.fixed.schedule = name[i];
    assert_string_equal(tr_search_schedule_name(i), name[i]);
    assert_int_equal(tr_search(&w, &c, &o, &found), TR_OK);
    for (size_t k = 0; k < found.n; k++) assert_string_equal(tr_plan_schedule(&found.top[k].plan), name[i]);
  }
  assert_null(tr_search_schedule_name(4));
}

// What is shown is simulated, in order, and no plan of the closed forms' best that could be simulated is faster.
static void the_best_are_simulated(void **state) {
  (void)state;
  static tr_search_result found, closed;
  tr_workload w = case_model();
  tr_cluster c = case_cluster(64);
  tr_search_options o;
  tr_search_options_init(&o);
  w.layers = 80, w.width = 8192, w.heads = 64, w.ffn = 28672;
  o.fixed.batch = 128, o.fixed.sequence = 4096, o.top = KEPT;
  assert_int_equal(tr_search(&w, &c, &o, &found), TR_OK);
  o.closed = 1, o.top = TR_SEARCH_TOP_MOST;
  assert_int_equal(tr_search(&w, &c, &o, &closed), TR_OK);
  assert_true(found.n == KEPT && found.simulated > 0 && closed.simulated == 0);
  for (size_t i = 0; i < found.n; i++) {
    tr_prediction x;
    assert_int_equal(tr_predict_simulated(&found.top[i].plan, &w, &c, &x), TR_OK);
    assert_true(found.top[i].prediction.step == x.step && x.fits);
    assert_true(i == 0 || x.step >= found.top[i - 1].prediction.step);
  }
  size_t faster = 0;
  for (size_t i = 0; i < closed.n; i++) {
    tr_prediction x;
    if (tr_predict_simulated(&closed.top[i].plan, &w, &c, &x) == TR_OK && x.fits)
      faster += x.step < found.top[KEPT - 1].prediction.step;
  }
  assert_true(faster < KEPT);
}

static void fixed_knobs_hold(void **state) {
  (void)state;
  static tr_search_result found;
  tr_workload w = case_model();
  tr_cluster c = case_cluster(64);
  tr_search_options o;
  tr_search_options_init(&o);
  o.fixed.batch = 64, o.fixed.sequence = 4096, o.fixed.tp = 4, o.fixed.pp = 2, o.fixed_zero = 1;
  assert_int_equal(tr_search(&w, &c, &o, &found), TR_OK);
  for (size_t i = 0; i < found.n; i++) {
    const tr_plan *p = &found.top[i].plan;
    assert_true(p->tp == 4 && p->pp == 2 && p->zero == 1 && tr_plan_devices(p) == 64);
    assert_int_equal(tr_plan_check(p, &w, &c), TR_OK);
  }
}

static void too_big(void **state) {
  (void)state;
  static tr_search_result found;
  tr_workload w = case_model();
  w.layers = 1200;
  tr_cluster c = case_cluster(8);
  tr_search_options o;
  tr_search_options_init(&o);
  o.fixed.batch = 64, o.fixed.sequence = 4096;
  assert_int_equal(tr_search(&w, &c, &o, &found), TR_ERR_PLAN);
  assert_non_null(strstr(tr_status_text(), "lacks"));
}

// What is lacking is what the smallest of all plans lacks, also where states alone rule every plan out.
static void lacks_what_the_smallest_lacks(void **state) {
  (void)state;
  static const double left[] = {0.98, 0.5, 0.1}; // of what the smallest needs
  static tr_search_result found;
  tr_workload w = case_model();
  tr_cluster c = case_cluster(2);
  tr_search_options o;
  size_t n;
  double least;
  w.layers = 4;
  free(try_all(&w, &c, 16, &n, &least));
  for (size_t i = 0; i < sizeof left / sizeof *left; i++) {
    c.device.memory_gib = left[i] * least / 1073741824;
    tr_search_options_init(&o);
    o.fixed.batch = 16, o.fixed.sequence = 4096;
    assert_int_equal(tr_search(&w, &c, &o, &found), TR_ERR_PLAN);
    if (fabs(found.lacking / ((1 - left[i]) * least) - 1) > 1e-9)
      fail_msg("with %g of it: lacks %.9g, and needs %.9g", left[i], found.lacking, least);
  }
}

// What does not work as fixed works with the values that the refusal names, each tried here.
static void says_what_would_help(void **state) {
  (void)state;
  static tr_search_result found;
  tr_workload w = case_model();
  tr_search_options o, free_tp;
  tr_search_options_init(&o);
  tr_cluster c = case_cluster(64);
  o.fixed.batch = 64, o.fixed.sequence = 4096, o.fixed.tp = 3;
  assert_int_equal(tr_search(&w, &c, &o, &found), TR_ERR_PLAN);
  free_tp = o;
  free_tp.fixed.tp = 0, free_tp.closed = 1, free_tp.top = 1;
  char says[64], text[512];
  snprintf(text, sizeof text, "%s", tr_status_text());
  assert_int_equal(tr_search(&w, &c, &free_tp, &found), TR_OK);
  snprintf(says, sizeof says, "; tp=%lld would work", (long long)found.top[0].plan.tp);
  if (!strstr(text, says)) fail_msg("'%s' does not say '%s'", text, says);
  // Full copies without recomputation do not fit, sharded or recomputed ones do.
  w.layers = 80, w.width = 8192, w.heads = 64, w.ffn = 28672;
  o.fixed.tp = 8, o.fixed.pp = 1, o.fixed_zero = 0;
  assert_int_equal(tr_search(&w, &c, &o, &found), TR_ERR_PLAN);
  if (!strstr(tr_status_text(), "pp=") || !strstr(tr_status_text(), " or zero=")) fail_msg("%s", tr_status_text());
  tr_cluster few = case_cluster(8), more = case_cluster(64);
  tr_search_options_init(&o);
  o.fixed.batch = 64, o.fixed.sequence = 4096;
  w.layers = 120;
  assert_int_equal(tr_search(&w, &few, &o, &found), TR_ERR_PLAN);
  const char *at = strstr(tr_status_text(), "; on ");
  if (!at) fail_msg("%s", tr_status_text());
  more.hosts = strtoll(at + 5, NULL, 10) / more.host_devices;
  assert_int_equal(tr_search(&w, &more, &o, &found), TR_OK);
  more.hosts /= 2;
  assert_int_equal(tr_search(&w, &more, &o, &found), TR_ERR_PLAN);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(says_what_would_help),
                                     cmocka_unit_test(equals_trying_all),
                                     cmocka_unit_test(equals_trying_all_with_experts),
                                     cmocka_unit_test(groups_stand_for_all),
                                     cmocka_unit_test(schedules_as_asked),
                                     cmocka_unit_test(the_best_are_simulated),
                                     cmocka_unit_test(fixed_knobs_hold),
                                     cmocka_unit_test(too_big),
                                     cmocka_unit_test(lacks_what_the_smallest_lacks)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
