// SPDX-License-Identifier: MIT
// tier: quick
// timeout: 30
// Passes of stages add up to what the prediction of a whole step counts, whatever the cut; the parts are where they belong; and
// messages cost more on slower links.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "plan_cases.h"
#include <math.h>

static double sum(tr_stage_time t) { return t.forward + t.input + t.weights; }

// All stages of a cut into `n`, added up.
static tr_stage_time all_stages(const tr_plan *p, const tr_workload *w, const tr_cluster *c, int n) {
  tr_stage_time all = {0};
  for (int s = 0; s < n; s++) {
    const int64_t begin = s * w->layers / n, end = (s + 1) * w->layers / n;
    const tr_stage_cut cut = {.begin = begin, .layers = end - begin, .first = s == 0, .last = s == n - 1};
    const tr_stage_time t = tr_predict_stage(p, w, c, &cut);
    assert_true(t.forward > 0 && t.input > 0 && t.weights > 0 && t.reduce >= 0);
    all.forward += t.forward;
    all.input += t.input;
    all.weights += t.weights;
  }
  return all;
}

static int predicted_whole(const tr_plan *p, const tr_workload *w, const tr_cluster *c, double *out) {
  double term[TR_TERM_COUNT];
  if (tr_plan_check(p, w, c) < 0 || p->pp > 1) return 0;
  tr_predict_step(p, w, c, term);
  const double passes = (double)(p->batch / (p->dp * p->micro));
  *out = (term[TR_TERM_COMPUTE] + term[TR_TERM_RECOMPUTE] + term[TR_TERM_TP] + term[TR_TERM_CP] + term[TR_TERM_EP]) /
         passes;
  return 1;
}

static void stages_add_up_to_the_step(void **state) {
  (void)state;
  const tr_cluster c = case_cluster(64);
  const tr_stage_cut embedding = {.first = 1};
  int checked = 0;
  for (int experts = 0; experts < 2; experts++) {
    tr_workload w = case_model();
    if (experts) w.experts = 8, w.active = 2, w.expert_ffn = 2048, w.every = 2, w.dense_first = 3;
    for (int k = 0; k < CASE_PLANS; k++) {
      const tr_plan p = case_plan(k, 64);
      double whole;
      if (!predicted_whole(&p, &w, &c, &whole)) continue;
      const double extra = sum(tr_predict_stage(&p, &w, &c, &embedding));
      for (int n = 1; n <= 8; n++) assert_true(fabs(sum(all_stages(&p, &w, &c, n)) / (whole + extra) - 1) < 1e-9);
      checked++;
    }
  }
  assert_true(checked > 50);
}

// The two halves of the backward pass are alike but for attention and what is elementwise, and gradients being added up; full
// recomputation adds a forward pass to the first.
static void halves_and_recomputation(void **state) {
  (void)state;
  const tr_workload w = case_model();
  const tr_cluster c = case_cluster(64);
  tr_plan p;
  tr_plan_init(&p);
  const tr_stage_time none = all_stages(&p, &w, &c, 4);
  assert_true(none.weights < 1.5 * none.input && none.weights > 0.5 * none.input && none.input < 1.5 * none.forward);
  p.recompute = TR_PLAN_RECOMPUTE_FULL;
  const tr_stage_time full = all_stages(&p, &w, &c, 4);
  assert_true(full.forward == none.forward && full.weights == none.weights);
  assert_true(full.input > none.input + 0.8 * none.forward && full.input < none.input + none.forward);
}

static void ends_of_the_model(void **state) {
  (void)state;
  const tr_workload w = case_model();
  const tr_cluster c = case_cluster(64);
  tr_plan p;
  tr_plan_init(&p);
  const tr_stage_cut middle = {.begin = 4, .layers = 2}, first = {.layers = 2, .first = 1},
                     last = {.begin = 22, .layers = 2, .last = 1};
  const tr_stage_time a = tr_predict_stage(&p, &w, &c, &first), b = tr_predict_stage(&p, &w, &c, &middle),
                      z = tr_predict_stage(&p, &w, &c, &last);
  assert_true(sum(a) > sum(b) && sum(a) < 1.1 * sum(b));                   // a look-up
  assert_true(z.forward > 1.1 * b.forward && z.weights > 1.1 * b.weights); // a product with the vocabulary
  assert_true(a.reduce == 0);
  p.dp = 8;
  assert_true(tr_predict_stage(&p, &w, &c, &first).reduce > tr_predict_stage(&p, &w, &c, &middle).reduce);
}

static void messages_by_link(void **state) {
  (void)state;
  const tr_workload w = case_model();
  const tr_cluster c = case_cluster(64);
  tr_plan p;
  tr_plan_init(&p);
  double inside, outside, more;
  const double latency = tr_predict_message(&p, &w, &c, 0, &inside);
  const double away = tr_predict_message(&p, &w, &c, 1, &outside);
  assert_true(latency > 0 && away == latency);
  assert_true(outside > 2 * inside && inside > 0);
  p.micro = 2;
  tr_predict_message(&p, &w, &c, 0, &more);
  assert_true(fabs(more / inside - 2) < 1e-9);
  p.tp = 2;
  tr_predict_message(&p, &w, &c, 0, &more);
  assert_true(fabs(more / inside - 1) < 1e-9);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(stages_add_up_to_the_step),
      cmocka_unit_test(halves_and_recomputation),
      cmocka_unit_test(ends_of_the_model),
      cmocka_unit_test(messages_by_link),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
