// SPDX-License-Identifier: MIT
// tier: quick
// timeout: 300
#include "run/pipeline_harness.h"

static void one(void **state) {
  (void)state;
  ph_case c = ph_default("1f1b", 2, 1, 4);
  c.run.tied = 0;
  ph_result *got = ph_run(&c);
  rh_case y = c.run;
  y.nrank = 1;
  rh_result *want = rh_run(&y);
  printf("%.17g %.17g %.17g %.17g\n", got->loss[0], want->loss[0], got->norm[0], want->norm[0]);
  int64_t bad = 0;
  for (int64_t i = 0; i < got->total; i++) bad += got->gradient[i] != want->gradient[i];
  printf("gradients that differ %lld of %lld\n", (long long)bad, (long long)got->total);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(one)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
