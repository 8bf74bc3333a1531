// SPDX-License-Identifier: MIT
// tier: quick
// timeout: 240
// Every algorithm, demanded through TRIREME_COMM, over ranks that are threads: operations whose sums must have the contract's
// bits; sums in any order within rounding; what went over the transport against what is claimed.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "comm/demand.h"

static const int any_size[] = {1, 2, 3, 4, 5, 6, 7, 8, 0}, powers[] = {2, 4, 8, 0};

static void ordered_algorithms_conform(void **state) {
  (void)state;
  static const char *const any[] = {"direct", "", "tree", "star", "chain", "bruck"};
  for (size_t i = 0; i < sizeof any / sizeof *any; i++) {
    const char *demand = i == 1 ? "allreduce=doubling,barrier=doubling" : any[i];
    over(any_size, (trial){.demand = demand, .large = 5011});
  }
  over(powers, (trial){.demand = "halving", .large = 5011});
  over(powers, (trial){.demand = "doubling", .large = 5011});
}

static void hierarchical_algorithms_conform(void **state) {
  (void)state;
  static const int twos[] = {4, 6, 8, 0}, short_last[] = {3, 5, 7, 8, 0}, eight[] = {8, 0}, seven[] = {7, 0};
  over(twos, (trial){.demand = "hierarchical/2", .large = 5011});
  over(eight, (trial){.demand = "hierarchical/4", .large = 5011});
  over(short_last, (trial){.demand = "leaders/2", .large = 5011});
  over(seven, (trial){.demand = "leaders/4", .large = 5011});
}

// Pieces so short that the same messages are cut into many strands; and many requests at once.
static void strands_conform(void **state) {
  (void)state;
  static const int some[] = {4, 8, 0};
  static const char *const demands[] = {"direct", "doubling",       "halving",   "tree",
                                        "chain",  "hierarchical/2", "leaders/2", "bruck"};
  for (size_t i = 0; i < sizeof demands / sizeof *demands; i++)
    over(some, (trial){.demand = demands[i], .large = 5011, .wire = 1000});
}

static void requests_in_any_order_conform(void **state) {
  (void)state;
  static const int eight[] = {8, 0};
  over(eight, (trial){.demand = "direct", .large = 20011, .wire = 4000, .requests = 1});
  over(eight, (trial){.demand = "tree", .large = 20011, .wire = 4000, .requests = 1, .delays = 1});
  over(eight, (trial){.demand = "halving,alltoall=bruck,broadcast=chain", .large = 20011, .requests = 1});
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(ordered_algorithms_conform),
      cmocka_unit_test(hierarchical_algorithms_conform),
      cmocka_unit_test(strands_conform),
      cmocka_unit_test(requests_in_any_order_conform),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
