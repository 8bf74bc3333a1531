// SPDX-License-Identifier: MIT
// tier: quick
// timeout: 60
//
// tr_permute is a bijection of 0 .. n - 1 for every n tried, depends on seed and epoch, and mixes: no element
// is stuck, neighbours do not stay neighbours.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "trireme/data/data.h"
#include <stdlib.h>

static void assert_bijection(uint64_t seed, uint64_t epoch, uint64_t n) {
  unsigned char *seen = calloc(n, 1);
  assert_non_null(seen);
  for (uint64_t i = 0; i < n; i++) {
    uint64_t to = tr_permute(seed, epoch, n, i);
    assert_true(to < n);
    assert_int_equal(seen[to], 0);
    seen[to] = 1;
  }
  free(seen);
}

static void every_size_up_to_300_is_a_bijection(void **state) {
  (void)state;
  for (uint64_t n = 1; n <= 300; n++) {
    assert_bijection(1, 0, n);
    assert_bijection(0xFFFFFFFFFFFFFFFFu, n, n);
  }
}

static void sizes_around_powers_of_two_are_bijections(void **state) {
  (void)state;
  const uint64_t sizes[] = {1023, 1024, 1025, 4095, 4096, 4097, 65535, 65536, 65537, 100003, 262145};
  for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) assert_bijection(42, 3, sizes[i]);
}

static int order_u64(const void *a, const void *b) {
  uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
  return (x > y) - (x < y);
}

// Too many elements to mark all: 20000 of them spread over the range, ends included, must stay in it and apart.
static void huge_sizes_stay_in_range_without_collisions(void **state) {
  (void)state;
  enum { TRIED = 20000 };
  const uint64_t sizes[] = {((uint64_t)1 << 32) + 7, ((uint64_t)1 << 32) - 1, (uint64_t)1 << 32,
                            ((uint64_t)1 << 62) + 1, UINT64_MAX};
  uint64_t *to = calloc(TRIED, sizeof *to);
  assert_non_null(to);
  for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
    uint64_t n = sizes[s], stride = n / TRIED, above = 0;
    for (uint64_t i = 0; i < TRIED; i++) {
      to[i] = tr_permute(9, 1, n, i == TRIED - 1 ? n - 1 : i * stride);
      assert_true(to[i] < n);
      above += to[i] > n / 2;
    }
    qsort(to, TRIED, sizeof *to, order_u64);
    for (int i = 1; i < TRIED; i++) assert_true(to[i - 1] != to[i]);
    assert_in_range(above, TRIED / 2 - 500, TRIED / 2 + 500); // seven standard deviations
  }
  free(to);
}

static int same_places(uint64_t seed_a, uint64_t epoch_a, uint64_t seed_b, uint64_t epoch_b, uint64_t n) {
  int same = 0;
  for (uint64_t i = 0; i < n; i++) same += tr_permute(seed_a, epoch_a, n, i) == tr_permute(seed_b, epoch_b, n, i);
  return same;
}

// Two unrelated permutations agree in about one place.
static void seeds_and_epochs_give_unrelated_orders(void **state) {
  (void)state;
  assert_int_equal(same_places(1, 0, 1, 0, 1000), 1000);
  assert_in_range(same_places(1, 0, 1, 1, 1000), 0, 12);
  assert_in_range(same_places(1, 0, 2, 0, 1000), 0, 12);
  assert_in_range(same_places(1, 1, 2, 0, 1000), 0, 12);
  // The high half of the seed counts.
  assert_in_range(same_places(1, 0, (uint64_t)1 << 32 | 1, 0, 1000), 0, 12);
}

static void order_is_mixed(void **state) {
  (void)state;
  const uint64_t n = 1000;
  int kept = 0, rising = 0;
  for (uint64_t i = 0; i < n; i++) {
    uint64_t here = tr_permute(5, 0, n, i);
    kept += here == i;
    if (i + 1 < n) rising += tr_permute(5, 0, n, i + 1) == here + 1;
  }
  assert_in_range(kept, 0, 12);
  assert_in_range(rising, 0, 12);
}

// Every order of three elements turns up about equally often over many keys: small ranges are mixed too.
static void all_orders_of_three_are_about_equally_likely(void **state) {
  (void)state;
  int count[3][3] = {{0}};
  for (uint64_t seed = 0; seed < 6000; seed++) count[tr_permute(seed, 0, 3, 0)][tr_permute(seed, 0, 3, 1)]++;
  for (int a = 0; a < 3; a++) {
    for (int b = 0; b < 3; b++) {
      if (a == b) {
        assert_int_equal(count[a][b], 0);
      } else {
        assert_in_range(count[a][b], 800, 1200);
      }
    }
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_size_up_to_300_is_a_bijection),
      cmocka_unit_test(sizes_around_powers_of_two_are_bijections),
      cmocka_unit_test(huge_sizes_stay_in_range_without_collisions),
      cmocka_unit_test(seeds_and_epochs_give_unrelated_orders),
      cmocka_unit_test(order_is_mixed),
      cmocka_unit_test(all_orders_of_three_are_about_equally_likely),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
