// SPDX-License-Identifier: MIT
// tier: quick
// Proves that no share of the peak is above 1: a run that is faster than what was measured, since the machine was busy then, is the
// limit itself from then on.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "train/train_internal.h"

static void a_faster_run_is_the_limit(void **unused) {
  (void)unused;
  tr__limits limits = {.flops = 100};
  assert_true(tr__limits_share(&limits, 50) == 0.5 && limits.flops == 100);
  assert_true(tr__limits_share(&limits, 160) == 1 && limits.flops == 160);
  assert_true(tr__limits_share(&limits, 40) == 0.25 && limits.flops == 160);
}

static void what_was_not_measured_has_no_share(void **unused) {
  (void)unused;
  tr__limits limits = {.flops = 0};
  assert_true(tr__limits_share(&limits, 50) == 0 && limits.flops == 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_faster_run_is_the_limit),
      cmocka_unit_test(what_was_not_measured_has_no_share),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
