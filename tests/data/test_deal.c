// SPDX-License-Identifier: MIT
// tier: quick
// timeout: 60
//
// tr_deal gives every global index of every step to exactly one (rank, micro-batch), for every layout, uneven batches
// and ends of data included, and the stream put together over ranks is the same for every number of ranks.
// tr_deal_balanced gives each sample to one bin, within the room of the bins, and evenly.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "data/token_files.h"

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

enum { SAMPLES = 1024, BINS = 64 };

// Deal and check that no bin has more than `most`; returns the tokens of the fullest bin.
static int64_t deal_balanced(const int64_t *length, int n, int nbin, int most, int *bin) {
  int64_t work[SAMPLES + BINS], fill[BINS] = {0}, fullest = 0;
  int count[BINS] = {0};
  tr_deal_balanced(length, n, nbin, most, bin, work);
  for (int i = 0; i < n; i++) {
    assert_in_range(bin[i], 0, nbin - 1);
    count[bin[i]]++;
    fill[bin[i]] += length[i];
    if (fill[bin[i]] > fullest) fullest = fill[bin[i]];
  }
  for (int b = 0; b < nbin; b++) assert_in_range(count[b], 0, most);
  return fullest;
}

static void balanced_bins_are_within_a_third_of_the_best(void **state) {
  (void)state;
  uint64_t random = 5;
  for (int round = 0; round < 300; round++) {
    int64_t length[SAMPLES], total = 0, longest = 0;
    int nbin = 1 + (int)(next_random(&random) % BINS), n = nbin * (4 + (int)(next_random(&random) % 12)),
        bin[SAMPLES];
    int64_t most = 1 + (int64_t)(next_random(&random) % 5000);
    for (int i = 0; i < n; i++) {
      length[i] = 1 + (int64_t)(next_random(&random) % (uint64_t)most);
      if (round % 3 == 0) length[i] = length[i] * length[i] / most + 1; // more short ones
      total += length[i];
      if (length[i] > longest) longest = length[i];
    }
    double best = (double)total / nbin > (double)longest ? (double)total / nbin : (double)longest;
    assert_true((double)deal_balanced(length, n, nbin, n, bin) <= best * 4 / 3);
  }
}

static void balanced_bins_have_room_for_all(void **state) {
  (void)state;
  uint64_t random = 6;
  for (int nbin = 1; nbin <= BINS; nbin = nbin * 3 / 2 + 1) {
    for (int most = 1; most <= 16; most *= 2) {
      for (int n = 0; n <= nbin * most; n += 1 + n / 5) {
        int64_t length[SAMPLES];
        int bin[SAMPLES];
        for (int i = 0; i < n; i++) length[i] = (int64_t)(next_random(&random) % 100);
        if (n > 2) length[0] = length[1] = INT32_MAX / 16; // as long as rows can be
        deal_balanced(length, n, nbin, most, bin);
      }
      int64_t length[SAMPLES];
      int bin[SAMPLES];
      for (int i = 0; i < nbin * most; i++) length[i] = i;
      deal_balanced(length, nbin * most, nbin, most, bin); // just full
    }
  }
}

static void balanced_dealing_breaks_ties_by_number(void **state) {
  (void)state;
  const int64_t length[] = {5, 9, 5, 9, 1, 5, 0};
  // In the order 1 3 0 2 5 4 6; tokens in bins then: 9 9 10, with sample 5 14 9 10, with sample 4 14 10 10.
  const int by_hand[] = {2, 0, 2, 1, 1, 0, 1};
  int bin[7];
  deal_balanced(length, 7, 3, 7, bin);
  assert_memory_equal(bin, by_hand, sizeof by_hand);
}

// 1001 samples on 8 ranks with 3 micro-batches of 42 each: every one once, as the ledger sees it.
static void thousand_and_one_balanced_samples_are_each_used_once(void **state) {
  (void)state;
  enum { N = 1001, RANKS = 8, ACCUMULATION = 3, MICRO = 42, STEPS = 4 };
  tr_ledger ledger = {0};
  uint64_t random = 8;
  for (int64_t step = 0; step < STEPS; step++) {
    int64_t length[N];
    int bin[N];
    tr_tally tally = {0};
    for (int i = 0; i < N; i++) length[i] = 1 + (int64_t)(next_random(&random) % 512);
    deal_balanced(length, N, RANKS * ACCUMULATION, MICRO, bin);
    for (int b = 0; b < RANKS * ACCUMULATION; b++) {
      for (int i = 0; i < N; i++) {
        if (bin[i] == b) tr_tally_add(&tally, step * N + i);
      }
    }
    assert_int_equal(tr_ledger_add(&ledger, step * N, (step + 1) * N, step + 1, RANKS, tally), TR_OK);
  }
  tr_ledger_free(&ledger);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_index_is_dealt_exactly_once),
      cmocka_unit_test(thousand_and_one_samples_on_eight_ranks),
      cmocka_unit_test(uneven_batches_do_not_reach_into_the_next_step),
      cmocka_unit_test(ranks_beyond_the_data_get_nothing),
      cmocka_unit_test(stream_is_the_same_for_every_number_of_ranks),
      cmocka_unit_test(indices_beyond_32_bits_work),
      cmocka_unit_test(balanced_bins_are_within_a_third_of_the_best),
      cmocka_unit_test(balanced_bins_have_room_for_all),
      cmocka_unit_test(balanced_dealing_breaks_ties_by_number),
      cmocka_unit_test(thousand_and_one_balanced_samples_are_each_used_once),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
