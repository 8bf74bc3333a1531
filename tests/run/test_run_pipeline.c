// SPDX-License-Identifier: MIT
// tier: full
// timeout: 300
// Proves that pipelines are the one-rank run: losses, gradients, norms and weights of every schedule, with even and uneven
// stages, fewer micro-batches than ranks, and several ranks with other data; bit for bit where no parameter is shared and
// weight gradients are added in ascending order.
#include "run/pipeline_cases.h"

// Untied, so that bits are equal: to one rank with the same micro-batches, or to as many ranks with other data as there are.
static void every_schedule(int p, int dp) {
  for (int i = 0; pl_schedule[i].name; i++)
    for (int k = 0; k < 3; k++) {
      ph_case c = ph_default(pl_schedule[i].name, p, dp, 0);
      if (!pl_numbers(&pl_schedule[i], p, k, &c)) continue;
      c.run.tied = 0;
      c.run.steps = 2;
      c.cut = (ph_cut)k;
      pl_check(&c);
    }
}

static void one_rank_runs_every_schedule(void **state) {
  (void)state;
  every_schedule(1, 1);
  every_schedule(1, 2);
}

static void two_ranks_run_every_schedule(void **state) {
  (void)state;
  every_schedule(2, 1);
  every_schedule(2, 2);
}

static void three_ranks_run_every_schedule(void **state) {
  (void)state;
  every_schedule(3, 1);
  every_schedule(3, 2);
}

static void four_ranks_run_every_schedule(void **state) {
  (void)state;
  every_schedule(4, 1);
  every_schedule(4, 2);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(one_rank_runs_every_schedule),
      cmocka_unit_test(two_ranks_run_every_schedule),
      cmocka_unit_test(three_ranks_run_every_schedule),
      cmocka_unit_test(four_ranks_run_every_schedule),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
