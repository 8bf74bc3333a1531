// SPDX-License-Identifier: MIT
// tier: full
// timeout: 600
// Proves on eight ranks, and on sixteen with two of each stage, what test_run_pipeline.c proves on fewer.
#include "run/pipeline_cases.h"

static void every_schedule(int dp) {
  for (int i = 0; pl_schedule[i].name; i++)
    for (int k = 0; k < 3; k++) {
      ph_case c = ph_default(pl_schedule[i].name, 8, dp, 0);
      if (!pl_numbers(&pl_schedule[i], 8, k, &c)) continue;
      c.run.tied = (i + k) % 3 == 0;
      c.run.steps = 2;
      c.cut = (ph_cut)k;
      c.run.zero = k == 1;
      pl_check(&c);
    }
}

static void eight_ranks_run_every_schedule(void **state) {
  (void)state;
  every_schedule(1);
}

static void sixteen_ranks_run_every_schedule(void **state) {
  (void)state;
  every_schedule(2);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(eight_ranks_run_every_schedule),
      cmocka_unit_test(sixteen_ranks_run_every_schedule),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
