// SPDX-License-Identifier: MIT
// tier: full
// timeout: 900
// The whole conformance suite over every algorithm, each demanded through TRIREME_COMM, with whole messages and many strands. Each
// number of ranks has one of the two; test_comm_algorithm.c has a choice of the suite on all of them.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "comm/demand.h"

static const int whole[] = {2, 5, 8, 0}, stranded[] = {3, 4, 6, 7, 0}, powers[] = {2, 4, 8, 0},
                 pairs[] = {4, 6, 8, 0}, fours[] = {8, 0}, short_last[] = {3, 5, 7, 0};

static const struct {
  const char *demand;
  const int *sizes; // NULL: any would work
} demands[] = {
    {"direct", NULL},
    {"allreduce=doubling,barrier=doubling", NULL},
    {"tree", NULL},
    {"star", NULL},
    {"chain", NULL},
    {"bruck", NULL},
    {"halving", powers},
    {"doubling", powers},
    {"hierarchical/2", pairs},
    {"hierarchical/4", fours},
    {"leaders/2", short_last},
    {"leaders/4", short_last + 1},
};
enum { DEMANDS = sizeof demands / sizeof *demands };

static void whole_messages_conform(void **state) {
  (void)state;
  for (int i = 0; i < DEMANDS; i++)
    over(demands[i].sizes ? demands[i].sizes : whole,
         (trial){.demand = demands[i].demand, .large = 12007, .whole = 1});
}

static void many_strands_conform(void **state) {
  (void)state;
  for (int i = 0; i < DEMANDS; i++) {
    const int *sizes =
        demands[i].sizes == pairs ? powers + 1 : demands[i].sizes; // halves of the ranks are groups too
    over(sizes ? sizes : stranded,
         (trial){.demand = demands[i].demand, .large = 12007, .wire = 3000, .requests = 1, .delays = i % 2});
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(whole_messages_conform),
      cmocka_unit_test(many_strands_conform),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
