// SPDX-License-Identifier: MIT
// tier: quick
// timeout: 60
// How often to save: the formulas of Young and Daly by hand, and against the least of all losses.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "trireme/plan/law_reliability.h"
#include <math.h>

static void assert_near(double got, double want, double relative) {
  if (!(fabs(got - want) <= relative * fabs(want))) fail_msg("%.17g is not %.17g", got, want);
}

static void intervals_follow_their_formulas(void **state) {
  (void)state;
  assert_near(tr_law_saving_young(300, 86400), 7200, 1e-15); // sqrt(51840000)
  assert_near(tr_law_saving_young(2, 100), 20, 1e-15);
  // 20 (1 + 0.1/3 + 0.01/9) - 2
  assert_near(tr_law_saving_daly(2, 100), 18 + 20 * (0.1 / 3 + 0.01 / 9), 1e-14);
  assert_near(tr_law_saving_daly(50, 100), 100 * (1 + 0.5 / 3 + 0.25 / 9) - 50, 1e-14);
  assert_near(tr_law_saving_daly(200, 100), 100, 0);
  assert_near(tr_law_saving_daly(5000, 100), 100, 0);
}

static void the_higher_order_interval_loses_the_least(void **state) {
  (void)state;
  static const double ratios[] = {1e-6, 1e-4, 1e-3, 1e-2, 0.1, 0.5, 1, 1.5, 1.9};
  for (size_t r = 0; r < sizeof ratios / sizeof ratios[0]; r++) {
    double mtbf = 3600, cost = ratios[r] * mtbf, least = 1;
    for (double t = mtbf * 1e-5; t < 20 * mtbf; t *= 1.01) {
      double loss = tr_law_saving_loss(t, cost, mtbf, 60);
      assert_true(loss > 0 && loss < 1);
      least = fmin(least, loss);
    }
    double daly = tr_law_saving_loss(tr_law_saving_daly(cost, mtbf), cost, mtbf, 60);
    assert_near(daly, least, 0.01);
    assert_true(tr_law_saving_loss(tr_law_saving_young(cost, mtbf), cost, mtbf, 60) >= least * (1 - 1e-4));
  }
  // Rare failures: what is lost is the saving alone.
  assert_near(tr_law_saving_loss(99, 1, 1e12, 0), 0.01, 1e-6);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(intervals_follow_their_formulas),
      cmocka_unit_test(the_higher_order_interval_loses_the_least),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
