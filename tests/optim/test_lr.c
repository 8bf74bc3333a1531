// SPDX-License-Identifier: MIT
// tier: quick
// timeout: 60
//
// Learning-rate rules at their edges (step 0, end of warm-up, last step, beyond the end, no warm-up,
// degenerate lengths), with expected values worked out by hand, and their shape in between.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "trireme/optim/optim.h"
#include <math.h>

typedef struct golden {
  int64_t step;
  double rate;
} golden;

static void check(const tr_lr *rule, const golden *cases, size_t n) {
  for (size_t i = 0; i < n; i++) {
    double rate = tr_lr_at(rule, cases[i].step);
    if (!(fabs(rate - cases[i].rate) <= 1e-15)) {
      fail_msg("step %lld: %.17g, not %.17g", (long long)cases[i].step, rate, cases[i].rate);
    }
  }
}
#define CHECK(rule, ...)                                                                                             \
  do {                                                                                                               \
    const golden cases[] = {__VA_ARGS__};                                                                            \
    check(rule, cases, sizeof cases / sizeof cases[0]);                                                              \
  } while (0)

// 4 steps of warm-up, then 16 steps from 1 to 0.1: x = (s - 4) / 16.
static tr_lr rule_of(tr_lr_kind kind) {
  return (tr_lr){.kind = kind, .lr = 1, .min_lr = 0.1, .warmup = 4, .steps = 20, .decay_steps = 5};
}

static void cosine_goes_from_lr_to_min(void **state) {
  (void)state;
  tr_lr rule = rule_of(TR_LR_COSINE);
  CHECK(&rule, {0, 0.25}, {1, 0.5}, {2, 0.75}, {3, 1}, {4, 1}, {8, 0.1 + 0.9 * (1 + 0.70710678118654752440) / 2},
        {12, 0.55}, {16, 0.1 + 0.9 * (1 - 0.70710678118654752440) / 2},
        {19, 0.1 + 0.9 * (1 - 0.98078528040323044913) / 2}, {20, 0.1}, {21, 0.1}, {1000000, 0.1}, {INT64_MAX, 0.1});
}

static void linear_goes_from_lr_to_min(void **state) {
  (void)state;
  tr_lr rule = rule_of(TR_LR_LINEAR);
  CHECK(&rule, {0, 0.25}, {3, 1}, {4, 1}, {8, 0.775}, {12, 0.55}, {19, 0.15625}, {20, 0.1}, {21, 0.1},
        {INT64_MAX, 0.1});
}

static void wsd_is_stable_and_then_decays(void **state) {
  (void)state;
  tr_lr rule = rule_of(TR_LR_WSD);
  CHECK(&rule, {0, 0.25}, {3, 1}, {4, 1}, {14, 1}, {15, 1}, {16, 0.82}, {17, 0.64}, {19, 0.28}, {20, 0.1}, {21, 0.1},
        {INT64_MAX, 0.1});
}

static void constant_stays_after_warm_up(void **state) {
  (void)state;
  tr_lr rule = rule_of(TR_LR_CONSTANT);
  CHECK(&rule, {0, 0.25}, {3, 1}, {4, 1}, {19, 1}, {20, 1}, {INT64_MAX, 1});
}

static void no_warm_up_starts_at_lr(void **state) {
  (void)state;
  tr_lr rule = {.lr = 2, .min_lr = 0, .warmup = 0, .steps = 8, .decay_steps = 4};
  rule.kind = TR_LR_COSINE;
  CHECK(&rule, {0, 2}, {4, 1}, {8, 0}, {9, 0});
  rule.kind = TR_LR_LINEAR;
  CHECK(&rule, {0, 2}, {1, 1.75}, {7, 0.25}, {8, 0});
  rule.kind = TR_LR_WSD;
  CHECK(&rule, {0, 2}, {4, 2}, {5, 1.5}, {7, 0.5}, {8, 0});
  rule.kind = TR_LR_CONSTANT;
  CHECK(&rule, {0, 2}, {7, 2}, {8, 2});
}

static void warm_up_as_long_as_the_run_never_decays_in_it(void **state) {
  (void)state;
  for (int kind = TR_LR_COSINE; kind <= TR_LR_CONSTANT; kind++) {
    tr_lr rule = {.kind = (tr_lr_kind)kind, .lr = 1, .min_lr = 0.5, .warmup = 10, .steps = 10, .decay_steps = 3};
    CHECK(&rule, {0, 0.1}, {4, 0.5}, {9, 1});
    rule.steps = 5; // shorter than its warm-up
    CHECK(&rule, {0, 0.1}, {4, 0.5}, {9, 1});
    assert_true(tr_lr_at(&rule, 11) == (kind == TR_LR_CONSTANT ? 1 : 0.5));
  }
}

static void runs_of_one_or_no_step_are_finite(void **state) {
  (void)state;
  for (int kind = TR_LR_COSINE; kind <= TR_LR_CONSTANT; kind++) {
    for (int64_t steps = 0; steps <= 1; steps++) {
      tr_lr rule = {.kind = (tr_lr_kind)kind, .lr = 1, .min_lr = 0.5, .steps = steps, .decay_steps = steps};
      double first = tr_lr_at(&rule, 0), second = tr_lr_at(&rule, 1);
      assert_true(first == 1 || (steps == 0 && kind == TR_LR_WSD && first == 0.5));
      assert_true(second == (kind == TR_LR_CONSTANT ? 1 : 0.5));
    }
  }
}

// A decay longer than what is left after warm-up starts where warm-up ends, without a jump.
static void wsd_decay_lengths_at_the_edges(void **state) {
  (void)state;
  tr_lr rule = rule_of(TR_LR_WSD);
  rule.decay_steps = 0;
  CHECK(&rule, {3, 1}, {4, 1}, {19, 1}, {20, 0.1});
  rule.decay_steps = 1;
  CHECK(&rule, {18, 1}, {19, 1}, {20, 0.1});
  rule.decay_steps = 100;
  CHECK(&rule, {3, 1}, {4, 1}, {12, 0.55}, {19, 0.15625}, {20, 0.1});
}

static void rates_rise_in_warm_up_and_never_rise_after(void **state) {
  (void)state;
  for (int kind = TR_LR_COSINE; kind <= TR_LR_CONSTANT; kind++) {
    tr_lr rule = {
        .kind = (tr_lr_kind)kind, .lr = 6e-4, .min_lr = 6e-5, .warmup = 37, .steps = 500, .decay_steps = 100};
    for (int64_t s = 1; s < 600; s++) {
      double before = tr_lr_at(&rule, s - 1), here = tr_lr_at(&rule, s);
      assert_true(s < rule.warmup ? here > before : here <= before);
      assert_true(here > 0 && here <= rule.lr && (s < rule.warmup || here >= rule.min_lr));
    }
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(cosine_goes_from_lr_to_min),
      cmocka_unit_test(linear_goes_from_lr_to_min),
      cmocka_unit_test(wsd_is_stable_and_then_decays),
      cmocka_unit_test(constant_stays_after_warm_up),
      cmocka_unit_test(no_warm_up_starts_at_lr),
      cmocka_unit_test(warm_up_as_long_as_the_run_never_decays_in_it),
      cmocka_unit_test(runs_of_one_or_no_step_are_finite),
      cmocka_unit_test(wsd_decay_lengths_at_the_edges),
      cmocka_unit_test(rates_rise_in_warm_up_and_never_rise_after),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
