// SPDX-License-Identifier: MIT
// tier: quick
// timeout: 60
// Proves the generator against Random123's known answers, the counter layout, independence of splits, and
// moments and tails of the derived numbers; normal numbers also against the C library's mathematics.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "trireme/base/philox.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void known_answers_of_random123_hold(void **state) {
  (void)state;
  static const struct {
    uint32_t key[2], counter[4], want[4];
  } row[] = {
      {{0, 0}, {0, 0, 0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
      {{0xffffffff, 0xffffffff},
       {0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
       {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
      {{0xa4093822, 0x299f31d0},
       {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
       {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
  };
  for (size_t i = 0; i < sizeof row / sizeof row[0]; i++) {
    uint32_t out[4];
    tr_philox4x32(row[i].key, row[i].counter, out);
    assert_memory_equal(out, row[i].want, sizeof out);
  }
}

static void coordinates_map_to_counter_words_and_lane(void **state) {
  (void)state;
  tr_rng_key key = {{0xa4093822, 0x299f31d0}};
  const uint32_t want[4] = {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1};
  uint64_t sample = 0x85a308d3243f6a88u;
  uint32_t position = 0x13198a2e, feature = 0x03707344u * 4, out[4]; // the product fits 32 bits
  for (uint32_t lane = 0; lane < 4; lane++) {
    assert_int_equal(tr_rng_u32(key, sample, position, feature + lane), want[lane]);
    float uniform = tr_rng_uniform(key, sample, position, feature + lane);
    assert_true(uniform == (float)(want[lane] >> 8) / 16777216.0f);
  }
  tr_rng_u32x4(key, sample, position, feature, out);
  assert_memory_equal(out, want, sizeof out);
}

static void keys_differ_in_every_part(void **state) {
  (void)state;
  tr_rng_key base = tr_rng_key_make(1234, TR_RNG_WEIGHTS, 5);
  const tr_rng_key other[] = {
      tr_rng_key_make(1235, TR_RNG_WEIGHTS, 5), tr_rng_key_make(1234, TR_RNG_SHUFFLE, 5),
      tr_rng_key_make(1234, TR_RNG_WEIGHTS, 6), tr_rng_key_make(1234 + (1ull << 40), TR_RNG_WEIGHTS, 5),
      tr_rng_key_make(1233, TR_RNG_SHUFFLE, 5), tr_rng_key_make(1234, TR_RNG_WEIGHTS, 5 + (1ull << 40)),
      tr_rng_key_make(5, TR_RNG_WEIGHTS, 1234), tr_rng_key_make(1234, 5, TR_RNG_WEIGHTS),
  };
  tr_rng_key again = tr_rng_key_make(1234, TR_RNG_WEIGHTS, 5);
  assert_memory_equal(&base, &again, sizeof base);
  for (size_t i = 0; i < sizeof other / sizeof other[0]; i++) {
    assert_memory_not_equal(&base, &other[i], sizeof base);
  }
}

enum { N = 1 << 18 };

typedef void (*filler)(tr_rng_key key, uint64_t first, size_t n, float *out);

static void check_splits(filler fill, uint64_t origin) {
  enum { NSMALL = 67 };
  float whole[NSMALL], part[NSMALL];
  tr_rng_key key = tr_rng_key_make(7, TR_RNG_TEST, 0);
  fill(key, origin, NSMALL, whole);
  for (size_t cut = 0; cut <= NSMALL; cut++) {
    memset(part, 0, sizeof part);
    fill(key, origin, cut, part);
    fill(key, origin + cut, NSMALL - cut, part + cut);
    assert_memory_equal(whole, part, sizeof whole);
  }
  for (size_t i = 0; i < NSMALL; i++) {
    fill(key, origin + i, 1, part);
    assert_memory_equal(whole + i, part, sizeof part[0]);
  }
}

static void any_split_gives_the_same_numbers(void **state) {
  (void)state;
  const uint64_t origin[] = {0, 1, 2, 3, (1ull << 34) - 30, (1ull << 62) + 3};
  for (size_t i = 0; i < sizeof origin / sizeof origin[0]; i++) {
    check_splits(tr_rng_normal_fill, origin[i]);
    check_splits(tr_rng_uniform_fill, origin[i]);
  }
}

// Means of powers against their expectation, within 6 standard errors (given the variance of each power).
static void check_moment(const float *x, int power, double want, double variance) {
  double sum = 0;
  for (size_t i = 0; i < N; i++) sum += pow(x[i], power);
  assert_true(fabs(sum / N - want) < 6 * sqrt(variance / N));
}

static void normal_numbers_have_normal_moments_and_tails(void **state) {
  (void)state;
  float *x = malloc(N * sizeof *x);
  assert_non_null(x);
  tr_rng_normal_fill(tr_rng_key_make(42, TR_RNG_TEST, 1), 0, N, x);
  check_moment(x, 1, 0, 1);
  check_moment(x, 2, 1, 2);
  check_moment(x, 3, 0, 15);
  check_moment(x, 4, 3, 96);
  double neighbours = 0, beyond = 0;
  for (size_t i = 0; i < N; i++) {
    assert_true(isfinite(x[i]) && fabsf(x[i]) < 6.8f);
    neighbours += (double)x[i] * x[(i + 1) % N];
    beyond += fabsf(x[i]) > 1.959964f;
  }
  assert_true(fabs(neighbours / N) < 6 / sqrt(N));
  assert_true(fabs(beyond / N - 0.05) < 6 * sqrt(0.05 * 0.95 / N));
  free(x);
}

static void uniform_numbers_are_uniform_below_one(void **state) {
  (void)state;
  float *x = malloc(N * sizeof *x);
  assert_non_null(x);
  tr_rng_uniform_fill(tr_rng_key_make(42, TR_RNG_TEST, 2), 0, N, x);
  int bin[16] = {0};
  for (size_t i = 0; i < N; i++) {
    assert_true(x[i] >= 0.0f && x[i] < 1.0f);
    bin[(int)(x[i] * 16)]++;
  }
  double chi2 = 0, want = N / 16.0;
  for (int i = 0; i < 16; i++) chi2 += (bin[i] - want) * (bin[i] - want) / want;
  assert_true(chi2 < 50); // 15 degrees of freedom: mean 15, probability of more about 1e-5
  check_moment(x, 1, 0.5, 1.0 / 12);
  free(x);
}

// The mapping from words to numbers, with the C library's log, sin and cos: a wrong quadrant or series shows here.
static void normal_numbers_agree_with_the_c_library(void **state) {
  (void)state;
  enum { NCHECK = 40000 };
  float *x = malloc(NCHECK * sizeof *x);
  assert_non_null(x);
  tr_rng_key key = tr_rng_key_make(3, TR_RNG_TEST, 9);
  const double pi = acos(-1.0);
  tr_rng_normal_fill(key, 0, NCHECK, x);
  for (uint32_t i = 0; i < NCHECK; i += 2) {
    double u = (tr_rng_u32(key, i / 4, 0, i % 4) + 0.5) / 4294967296.0;
    double angle = 2 * pi * (tr_rng_u32(key, i / 4, 0, i % 4 + 1) / 4294967296.0);
    double radius = sqrt(-2 * log(u));
    // Half a unit of float, plus 1e-12 for the double arithmetic of both sides.
    assert_true(fabs(x[i] - radius * cos(angle)) <= fabs(x[i]) * 0x1p-24 + 1e-12);
    assert_true(fabs(x[i + 1] - radius * sin(angle)) <= fabs(x[i + 1]) * 0x1p-24 + 1e-12);
  }
  free(x);
}

static void bits_of_normal_numbers_are_pinned(void **state) {
  (void)state;
  float x[1000];
  tr_rng_normal_fill(tr_rng_key_make(1, TR_RNG_WEIGHTS, 2), 5, 1000, x);
  uint64_t hash = 14695981039346656037u; // FNV-1a over the words
  for (size_t i = 0; i < 1000; i++) {
    uint32_t bits;
    memcpy(&bits, &x[i], sizeof bits);
    hash = (hash ^ bits) * 1099511628211u;
  }
  assert_true(hash == 0x2C6A59955F01EDE7u);
}

static void names_hash_to_xxh64(void **state) {
  (void)state;
  assert_true(tr_hash_string("") == 0xEF46DB3751D8E999u); // published answers of XXH64 with seed 0
  assert_true(tr_hash_string("a") == 0xD24EC4F1A98C6E5Bu);
  assert_true(tr_hash_string("abc") == 0x44BC2CF5AD770999u);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(known_answers_of_random123_hold),
      cmocka_unit_test(coordinates_map_to_counter_words_and_lane),
      cmocka_unit_test(keys_differ_in_every_part),
      cmocka_unit_test(any_split_gives_the_same_numbers),
      cmocka_unit_test(normal_numbers_have_normal_moments_and_tails),
      cmocka_unit_test(uniform_numbers_are_uniform_below_one),
      cmocka_unit_test(normal_numbers_agree_with_the_c_library),
      cmocka_unit_test(bits_of_normal_numbers_are_pinned),
      cmocka_unit_test(names_hash_to_xxh64),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
