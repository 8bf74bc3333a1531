// SPDX-License-Identifier: MIT
// tier: quick
// timeout: 60
//
// The ledger takes samples that were each used once, however they were dealt, and refuses lost, doubled and exchanged ones; as
// JSON it comes back the same, and gaps, overlaps and wrong digests in it are refused.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "data/token_files.h"

static void expected_tallies_are_those_of_samples_added_up(void **state) {
  (void)state;
  const int64_t firsts[] = {0, 1, 5, 1000000007, ((int64_t)1 << 32) - 3, ((int64_t)1 << 62) - 1, INT64_MAX - 1000};
  for (size_t i = 0; i < sizeof firsts / sizeof firsts[0]; i++) {
    tr_tally sum = {0};
    for (int64_t n = 0; n < 1000; n++) {
      tr_tally expected = tr_tally_expected(firsts[i], firsts[i] + n);
      assert_int_equal(sum.count, expected.count);
      assert_true(sum.digest == expected.digest);
      tr_tally_add(&sum, firsts[i] + n);
    }
  }
  tr_tally none = tr_tally_expected(5, 5);
  assert_int_equal(none.count, 0);
  assert_int_equal(none.digest, 0);
}

// Ranks take turns in any way: what counts is the set.
static void samples_dealt_to_ranks_are_accepted(void **state) {
  (void)state;
  enum { BATCH = 1001, RANKS = 8, MICRO = 42, ACCUMULATION = 3, STEPS = 5 };
  tr_ledger ledger = {0};
  for (int64_t step = 0; step < STEPS; step++) {
    tr_tally all = {0};
    for (int rank = RANKS - 1; rank >= 0; rank--) {
      tr_tally mine = {0};
      for (int j = 0; j < ACCUMULATION; j++) {
        int64_t first;
        int count;
        tr_deal(step, BATCH, MICRO, RANKS, rank, j, -1, &first, &count);
        for (int64_t g = first; g < first + count; g++) tr_tally_add(&mine, g);
      }
      all.count += mine.count;
      all.digest += mine.digest;
    }
    assert_int_equal(tr_ledger_add(&ledger, step * BATCH, (step + 1) * BATCH, step + 1, RANKS, all), TR_OK);
    assert_int_equal(tr_ledger_end(&ledger), (step + 1) * BATCH);
  }
  assert_int_equal(ledger.nspan, 1); // joined
  assert_int_equal(ledger.span[0].first, 0);
  assert_int_equal(ledger.span[0].end, STEPS * BATCH);
  assert_int_equal(ledger.span[0].step, STEPS);
  assert_int_equal(ledger.span[0].ranks, RANKS);
  assert_true(ledger.span[0].digest == tr_tally_expected(0, STEPS * BATCH).digest);
  tr_ledger_free(&ledger);
}

static void lost_doubled_and_exchanged_samples_are_refused(void **state) {
  (void)state;
  enum { N = 200 };
  tr_ledger ledger = {0};
  assert_int_equal(tr_ledger_add(&ledger, 0, N, 1, 2, tr_tally_expected(0, N)), TR_OK);
  for (int64_t a = N; a < 2 * N; a++) {
    tr_tally all = tr_tally_expected(N, 2 * N), one = {0}, tally = all;
    tr_tally_add(&one, a);
    tally.count--, tally.digest -= one.digest;
    assert_failed(tr_ledger_add(&ledger, N, 2 * N, 2, 2, tally), TR_ERR_VERIFY, "lost");
    assert_non_null(strstr(tr_status_text(), "samples 200 to 399"));
    tally = all, tr_tally_add(&tally, a);
    assert_failed(tr_ledger_add(&ledger, N, 2 * N, 2, 2, tally), TR_ERR_VERIFY, "doubled");
    for (int64_t b = 0; b < 3 * N; b++) { // b in the place of a
      if (b == a) continue;
      tally = all, tally.count--, tally.digest -= one.digest;
      tr_tally_add(&tally, b);
      assert_failed(tr_ledger_add(&ledger, N, 2 * N, 2, 2, tally), TR_ERR_VERIFY, "were not each used once");
    }
  }
  assert_int_equal(tr_ledger_end(&ledger), N); // nothing was taken
  tr_ledger_free(&ledger);
}

// Errors with more structure: a rank reads another rank's hand, a step is used twice, a shard is read from its middle on.
static void whole_runs_in_the_place_of_others_are_refused(void **state) {
  (void)state;
  enum { N = 1 << 16 };
  tr_ledger ledger = {0};
  for (int64_t length = 1; length < N; length *= 2) {
    for (int64_t shift = 1; shift < N; shift *= 2) {
      tr_tally tally = tr_tally_expected(0, N), out = tr_tally_expected(0, length),
               in = tr_tally_expected(shift, shift + length);
      tally.digest += in.digest - out.digest;
      assert_failed(tr_ledger_add(&ledger, 0, N, 1, 1, tally), TR_ERR_VERIFY, "not each used once");
      tally = tr_tally_expected(0, N); // two samples outwards, two inwards: their sum is the same
      tr_tally pair = {0}, other = {0};
      tr_tally_add(&pair, N / 2 - shift / 2), tr_tally_add(&pair, N / 2 + shift / 2);
      tr_tally_add(&other, N / 2 - shift / 2 - length), tr_tally_add(&other, N / 2 + shift / 2 + length);
      tally.digest += other.digest - pair.digest;
      assert_failed(tr_ledger_add(&ledger, 0, N, 1, 1, tally), TR_ERR_VERIFY, "not each used once");
    }
  }
  tr_ledger_free(&ledger);
}

static void gaps_and_overlaps_are_refused(void **state) {
  (void)state;
  tr_ledger ledger = {0};
  const int64_t cases[][2] = {{1, 5}, {-1, 5}, {9, 20}, {11, 20}, {0, 10}, {10, 9}};
  assert_failed(tr_ledger_add(&ledger, 1, 5, 1, 1, tr_tally_expected(1, 5)), TR_ERR_VERIFY, "do not follow");
  assert_int_equal(tr_ledger_add(&ledger, 0, 10, 1, 1, tr_tally_expected(0, 10)), TR_OK);
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    tr_tally tally = tr_tally_expected(cases[i][0], cases[i][1]);
    assert_failed(tr_ledger_add(&ledger, cases[i][0], cases[i][1], 2, 1, tally), TR_ERR_VERIFY, "which end at 10");
  }
  assert_int_equal(tr_ledger_add(&ledger, 10, 10, 2, 1, (tr_tally){0}), TR_OK); // a step without samples
  assert_int_equal(ledger.nspan, 1);
  tr_ledger_free(&ledger);
}

static void fill(tr_ledger *ledger) {
  const struct {
    int64_t end, step;
    int ranks;
  } steps[] = {{100, 1, 4}, {200, 2, 4}, {300, 3, 8}, {350, 4, 1}, {(int64_t)1 << 40, 5, 8}};
  for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
    int64_t first = tr_ledger_end(ledger);
    assert_int_equal(tr_ledger_add(ledger, first, steps[i].end, steps[i].step, steps[i].ranks,
                                   tr_tally_expected(first, steps[i].end)),
                     TR_OK);
  }
  assert_int_equal(ledger->nspan, 4); // the first two have the same ranks
}

static void a_ledger_comes_back_from_json(void **state) {
  (void)state;
  tr_ledger ledger = {0}, again = {0};
  json_t *json = NULL;
  fill(&ledger);
  assert_int_equal(tr_ledger_to_json(&ledger, &json), TR_OK);
  char *text = json_dumps(json, 0);
  json_decref(json);
  json = json_loads(text, 0, NULL);
  free(text);
  assert_int_equal(tr_ledger_from_json(json, "state.json", &again), TR_OK);
  assert_int_equal(again.nspan, ledger.nspan);
  for (size_t i = 0; i < ledger.nspan; i++) {
    const tr_ledger_span *a = &again.span[i], *b = &ledger.span[i];
    assert_true(a->first == b->first && a->end == b->end && a->step == b->step);
    assert_true(a->ranks == b->ranks && a->digest == b->digest);
  }
  json_decref(json);
  tr_ledger_free(&again);
  tr_ledger_free(&ledger);
  assert_int_equal(tr_ledger_to_json(&ledger, &json), TR_OK); // an empty one
  assert_int_equal(tr_ledger_from_json(json, "state.json", &again), TR_OK);
  assert_int_equal(tr_ledger_end(&again), 0);
  json_decref(json);
  tr_ledger_free(&again);
}

static void damaged_json_is_refused(void **state) {
  (void)state;
  const struct {
    int span;
    const char *key, *value, *words;
  } cases[] = {
      {0, "first", "1", "do not follow"},
      {1, "first", "201", "do not follow"}, // a gap
      {1, "first", "199", "do not follow"}, // an overlap
      {1, "end", "299", "wrong digest"},
      {1, "end", "200", "do not follow"},
      {3, "end", "9223372036854775807", "wrong digest"}, // not counted to
      {2, "digest", "\"0000000000000000\"", "wrong digest"},
      {2, "digest", "\"123\"", "does not have 16"},
      {2, "digest", "\"00000000000000000\"", "does not have 16"},
      {2, "digest", "\"zzzzzzzzzzzzzzzz\"", "does not have 16"},
      {2, "digest", "7", "digest"},
      {2, "end", "\"300\"", "end"},
      {2, "step", "-1", "step -1"},
      {2, "ranks", "0", "0 ranks"},
      {2, "ranks", "4294967297", "4294967297 ranks"},
      {2, "step", "null", "step"},
  };
  tr_ledger ledger = {0}, again = {0};
  fill(&ledger);
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    json_t *json = NULL, *value = json_loads(cases[i].value, JSON_DECODE_ANY, NULL);
    assert_non_null(value);
    assert_int_equal(tr_ledger_to_json(&ledger, &json), TR_OK);
    json_object_set_new(json_array_get(json, (size_t)cases[i].span), cases[i].key, value);
    assert_failed(tr_ledger_from_json(json, "state.json", &again), TR_ERR_CKPT, cases[i].words);
    assert_non_null(strstr(tr_status_text(), "state.json"));
    json_decref(json);
  }
  const char *const texts[] = {"{}", "7", "[7]", "[[]]", "[{}]"};
  for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
    json_t *json = json_loads(texts[i], JSON_DECODE_ANY, NULL);
    assert_failed(tr_ledger_from_json(json, "state.json", &again), TR_ERR_CKPT, "state.json");
    json_decref(json);
  }
  assert_null(again.span);
  tr_ledger_free(&ledger);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(expected_tallies_are_those_of_samples_added_up),
      cmocka_unit_test(samples_dealt_to_ranks_are_accepted),
      cmocka_unit_test(lost_doubled_and_exchanged_samples_are_refused),
      cmocka_unit_test(whole_runs_in_the_place_of_others_are_refused),
      cmocka_unit_test(gaps_and_overlaps_are_refused),
      cmocka_unit_test(a_ledger_comes_back_from_json),
      cmocka_unit_test(damaged_json_is_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
