// SPDX-License-Identifier: MIT
// tier: quick
// timeout: 60
//
// tr_deal gives every global index of every step to exactly one (rank, micro-batch), for every layout, uneven batches
// and ends of data included, and the stream put together over ranks is the same for every number of ranks.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "trireme/data/data.h"
#include <string.h>

// Mark what (dp, micro, accumulation) is dealt of one step; returns how many samples that was.
static int64_t mark_step(unsigned char *seen, int64_t step, int64_t batch, int micro, int dp, int accumulation,
                         int64_t limit) {
  int64_t total = 0;
  for (int rank = 0; rank < dp; rank++) {
    for (int j = 0; j < accumulation; j++) {
      int64_t first = -1;
      int count = -1;
      tr_deal(step, batch, micro, dp, rank, j, limit, &first, &count);
      assert_in_range(count, 0, micro);
      for (int64_t g = first; g < first + count; g++) {
        assert_true(g >= step * batch && g < (step + 1) * batch);
        assert_int_equal(seen[g], 0);
        seen[g] = 1;
      }
      total += count;
    }
  }
  return total;
}

static void every_index_is_dealt_exactly_once(void **state) {
  (void)state;
  enum { STEPS = 5, ROOM = 8 * 5 * 4 * STEPS };
  for (int dp = 1; dp <= 8; dp = dp < 4 ? dp + 1 : dp * 2) {
    for (int micro = 1; micro <= 5; micro++) {
      for (int accumulation = 1; accumulation <= 4; accumulation++) {
        unsigned char seen[ROOM] = {0};
        int64_t batch = (int64_t)dp * micro * accumulation;
        for (int s = 0; s < STEPS; s++) {
          assert_int_equal(mark_step(seen, s, batch, micro, dp, accumulation, -1), batch);
        }
        for (int64_t g = 0; g < batch * STEPS; g++) assert_int_equal(seen[g], 1);
      }
    }
  }
}

// 1001 = 23 * 42 + 35: the last hand is short, whether the batch or the end of the data cuts it.
static void thousand_and_one_samples_on_eight_ranks(void **state) {
  (void)state;
  const struct { int64_t batch, limit; } cases[] = {{1001, -1}, {1008, 1001}, {1001, 1001}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    unsigned char seen[1008] = {0};
    assert_int_equal(mark_step(seen, 0, cases[i].batch, 42, 8, 3, cases[i].limit), 1001);
    for (int g = 0; g < 1001; g++) assert_int_equal(seen[g], 1);
    int64_t first;
    int count;
    tr_deal(0, cases[i].batch, 42, 8, 7, 2, cases[i].limit, &first, &count);
    assert_int_equal(first, 23 * 42);
    assert_int_equal(count, 35);
  }
}

static void uneven_batches_do_not_reach_into_the_next_step(void **state) {
  (void)state;
  enum { STEPS = 7 };
  unsigned char seen[1001 * STEPS] = {0};
  for (int s = 0; s < STEPS; s++) assert_int_equal(mark_step(seen, s, 1001, 42, 8, 3, -1), 1001);
  for (int g = 0; g < 1001 * STEPS; g++) assert_int_equal(seen[g], 1);
}

static void ranks_beyond_the_data_get_nothing(void **state) {
  (void)state;
  int64_t first;
  int count;
  tr_deal(0, 8, 1, 8, 5, 0, 5, &first, &count); // index 5 of data that ends at 5
  assert_int_equal(count, 0);
  tr_deal(0, 8, 1, 8, 4, 0, 5, &first, &count);
  assert_int_equal(first, 4);
  assert_int_equal(count, 1);
  tr_deal(1, 8, 1, 8, 0, 0, 5, &first, &count); // a whole step beyond
  assert_int_equal(count, 0);
  tr_deal(0, 8, 1, 8, 0, 0, 0, &first, &count); // no data at all
  assert_int_equal(count, 0);
}

// Read hands in the order (step, j, rank): the indices must rise by one, whatever dp is. Together with the
// permutation being a function of the index alone, this is one stream for all layouts.
static void stream_is_the_same_for_every_number_of_ranks(void **state) {
  (void)state;
  enum { BATCH = 24, STEPS = 4 };
  for (int dp = 1; dp <= 8; dp = dp < 4 ? dp + 1 : dp * 2) {
    for (int micro = 1; micro <= BATCH / dp; micro++) {
      if (BATCH % (dp * micro) != 0) continue;
      int64_t next = 0;
      for (int s = 0; s < STEPS; s++) {
        for (int hand = 0; hand < BATCH / micro; hand++) {
          int64_t first;
          int count;
          tr_deal(s, BATCH, micro, dp, hand % dp, hand / dp, -1, &first, &count);
          assert_int_equal(first, next);
          assert_int_equal(count, micro);
          next += count;
        }
      }
      assert_int_equal(next, BATCH * STEPS);
    }
  }
}

static void indices_beyond_32_bits_work(void **state) {
  (void)state;
  int64_t first;
  int count;
  tr_deal((int64_t)1 << 40, 1024, 4, 8, 3, 5, -1, &first, &count);
  assert_int_equal(first, ((int64_t)1 << 50) + (5 * 8 + 3) * 4);
  assert_int_equal(count, 4);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_index_is_dealt_exactly_once),
      cmocka_unit_test(thousand_and_one_samples_on_eight_ranks),
      cmocka_unit_test(uneven_batches_do_not_reach_into_the_next_step),
      cmocka_unit_test(ranks_beyond_the_data_get_nothing),
      cmocka_unit_test(stream_is_the_same_for_every_number_of_ranks),
      cmocka_unit_test(indices_beyond_32_bits_work),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
