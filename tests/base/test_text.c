// SPDX-License-Identifier: MIT
// tier: quick
// timeout: 60
// Counts, real numbers and durations are read exactly or refused with a reason; formats round as people
// expect; the closest word is found; the growing string grows.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "trireme/base/text.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

#define COUNT(table) (sizeof(table) / sizeof *(table))

typedef struct count_row {
  const char *text;
  int64_t value;
} count_row;

typedef struct bad_row {
  const char *text, *message;
  tr_status status;
} bad_row;

typedef struct real_row {
  const char *text;
  double value;
} real_row;

static void counts_with_units_are_exact(void **state) {
  static const count_row good[] = {{"64", 64},
                                   {"0", 0},
                                   {"-0", 0},
                                   {"+7", 7},
                                   {"-1", -1},
                                   {"1e6", 1000000},
                                   {"1E3", 1000},
                                   {"512M", 512000000},
                                   {"25MB", 25000000},
                                   {"2GiB", INT64_C(2) << 30},
                                   {"2Gi", INT64_C(2) << 30},
                                   {"1.5k", 1500},
                                   {"1.5K", 1500},
                                   {"0.5KiB", 512},
                                   {"1.1G", 1100000000},
                                   {"1.1e9", 1100000000},
                                   {"1200e-2", 12},
                                   {"3.000", 3},
                                   {"1.0000000000000000000000000000", 1},
                                   {"10B", 10},
                                   {"3T", INT64_C(3000000000000)},
                                   {"2TiB", INT64_C(2) << 40},
                                   {" 5\t", 5},
                                   {"5 MB", 5000000},
                                   {"0e99999999999", 0},
                                   {"9223372036854775807", INT64_MAX},
                                   {"-9223372036854775808", INT64_MIN}};
  (void)state;
  for (size_t i = 0; i < COUNT(good); i++) {
    int64_t value = 99;
    if (tr_parse_count(good[i].text, &value) != TR_OK) fail_msg("%s: %s", good[i].text, tr_status_text());
    if (value != good[i].value) fail_msg("%s read as %lld", good[i].text, (long long)value);
  }
}

static void bad_counts_are_refused_with_the_reason(void **state) {
  static const bad_row bad[] = {
      {"0.3", "\"0.3\" is not a whole number: it has a fraction", TR_ERR_CONFIG},
      {"1e-1", "it has a fraction", TR_ERR_CONFIG},
      {"0.3Ki", "it has a fraction", TR_ERR_CONFIG},
      {"0.10000000000000000000000000001", "it has a fraction", TR_ERR_CONFIG},
      {"1e30", "\"1e30\" is not a whole number: it does not fit 64 bits", TR_ERR_CONFIG},
      {"1e99999999999999999999", "it does not fit 64 bits", TR_ERR_CONFIG},
      {"9223372036854775808", "it does not fit 64 bits", TR_ERR_CONFIG},
      {"-9223372036854775809", "it does not fit 64 bits", TR_ERR_CONFIG},
      {"99999999999999999999999999999999999999999999", "it does not fit 64 bits", TR_ERR_CONFIG},
      {"18446744073709551616", "it does not fit 64 bits", TR_ERR_CONFIG},
      {"9999999999999TiB", "it does not fit 64 bits", TR_ERR_CONFIG},
      {"12x", "\"12x\" is not a whole number: the units are k, M, G, T, Ki, Mi, Gi, Ti", TR_ERR_CONFIG},
      {"12m", "the units are", TR_ERR_CONFIG},
      {"12BB", "the units are", TR_ERR_CONFIG},
      {"12MiBB", "the units are", TR_ERR_CONFIG},
      {"12MM", "the units are", TR_ERR_CONFIG},
      {"2e", "the units are", TR_ERR_CONFIG},
      {"0x10", "the units are", TR_ERR_CONFIG},
      {"", "\"\" is not a whole number: it is empty", TR_ERR_CONFIG},
      {"   ", "it is empty", TR_ERR_CONFIG},
      {" 5 5", "\"5 5\" is not a whole number: the units are", TR_ERR_CONFIG},
      {"- 5", "write one like 64, 1e6, 512M or 2GiB", TR_ERR_CONFIG},
      {"five", "write one like 64, 1e6, 512M or 2GiB", TR_ERR_CONFIG},
      {".", "write one like", TR_ERR_CONFIG},
      {"nan", "write one like", TR_ERR_CONFIG},
  };
  (void)state;
  for (size_t i = 0; i < COUNT(bad); i++) {
    int64_t value = 99;
    assert_int_equal(tr_parse_count(bad[i].text, &value), bad[i].status);
    if (!strstr(tr_status_text(), bad[i].message)) fail_msg("%s: %s", bad[i].text, tr_status_text());
    assert_int_equal(value, 99);
  }
}

static void real_numbers_are_read_by_a_plain_grammar(void **state) {
  static const real_row good[] = {{"0.25", 0.25}, {"1e-4", 1e-4}, {" -3 ", -3},
                                  {".5", 0.5},    {"5.", 5},      {"+1E2", 100}};
  static const bad_row bad[] = {{"", "\"\" is not a number: write one like 3, 0.25 or 1e-4", TR_ERR_CONFIG},
                                {"0,5", "\"0,5\" is not a number", TR_ERR_CONFIG},
                                {"nan", "\"nan\" is not a number", TR_ERR_CONFIG},
                                {"inf", "\"inf\" is not a number", TR_ERR_CONFIG},
                                {"0x1p3", "\"0x1p3\" is not a number", TR_ERR_CONFIG},
                                {"1 2", "\"1 2\" is not a number", TR_ERR_CONFIG},
                                {"1e", "\"1e\" is not a number", TR_ERR_CONFIG},
                                {"1e400", "\"1e400\" is not a number: it is too large", TR_ERR_CONFIG}};
  (void)state;
  double value = 0;
  for (size_t i = 0; i < COUNT(good); i++) {
    assert_int_equal(tr_parse_real(good[i].text, &value), TR_OK);
    if (value != good[i].value) fail_msg("%s read as %g", good[i].text, value);
  }
  for (size_t i = 0; i < COUNT(bad); i++) {
    assert_int_equal(tr_parse_real(bad[i].text, &value), bad[i].status);
    if (!strstr(tr_status_text(), bad[i].message)) fail_msg("%s: %s", bad[i].text, tr_status_text());
  }
}

static void durations_carry_units(void **state) {
  static const real_row good[] = {{"30", 30},    {"30s", 30},     {"5min", 300}, {"2h", 7200},    {"250ms", 0.25},
                                  {"1d", 86400}, {"1.5 h", 5400}, {"0", 0},      {"20us", 20e-6}, {"1e3ms", 1}};
  static const bad_row bad[] = {
      {"", "\"\" is not a duration: write one like 30, 30s, 250ms, 5min, 2h or 1d", TR_ERR_CONFIG},
      {"5m", "\"5m\" is not a duration", TR_ERR_CONFIG},
      {"min", "\"min\" is not a duration", TR_ERR_CONFIG},
      {"5 5", "\"5 5\" is not a duration", TR_ERR_CONFIG},
      {"-1s", "\"-1s\" is not a duration: it is negative", TR_ERR_CONFIG},
      {"1e308d", "\"1e308d\" is not a duration: it is too long", TR_ERR_CONFIG}};
  (void)state;
  double value = 0;
  for (size_t i = 0; i < COUNT(good); i++) {
    if (tr_parse_duration(good[i].text, &value) != TR_OK) fail_msg("%s: %s", good[i].text, tr_status_text());
    if (fabs(value - good[i].value) > 1e-12 * good[i].value) fail_msg("%s read as %g", good[i].text, value);
  }
  for (size_t i = 0; i < COUNT(bad); i++) {
    assert_int_equal(tr_parse_duration(bad[i].text, &value), bad[i].status);
    if (!strstr(tr_status_text(), bad[i].message)) fail_msg("%s: %s", bad[i].text, tr_status_text());
  }
}

typedef struct format_row {
  double value;
  const char *text;
} format_row;

static void check_format(void (*format)(char *, size_t, double), const format_row *row, size_t n) {
  for (size_t i = 0; i < n; i++) {
    char out[40];
    format(out, sizeof out, row[i].value);
    assert_string_equal(out, row[i].text);
  }
}

static void formats_round_without_reaching_the_next_unit(void **state) {
  static const format_row bytes[] = {{0, "0 B"},           {512, "512 B"},
                                     {1024, "1.0 KiB"},    {1.5 * (1 << 30), "1.5 GiB"},
                                     {1048575, "1.0 MiB"}, {200.0 * (1 << 20), "200 MiB"},
                                     {-2048, "-2.0 KiB"}};
  static const format_row counts[] = {{7, "7"},        {999, "999"},   {1000, "1k"},
                                      {124e6, "124M"}, {999999, "1M"}, {1.2345e9, "1.23B"}};
  static const format_row durations[] = {{0, "0 s"},
                                         {3.4, "3.4 s"},
                                         {0.25, "250 ms"},
                                         {12e-6, "12.0 us"},
                                         {5e-9, "5.0 ns"},
                                         {59.96, "1 min 00 s"},
                                         {307, "5 min 07 s"},
                                         {3599.6, "1 h 00 min"},
                                         {3720, "1 h 02 min"},
                                         {86399, "1 d 00 h"},
                                         {2 * 86400 + 3 * 3600, "2 d 03 h"},
                                         {-3.4, "-3.4 s"},
                                         {INFINITY, "inf s"}};
  (void)state;
  check_format(tr_format_bytes, bytes, COUNT(bytes));
  check_format(tr_format_count, counts, COUNT(counts));
  check_format(tr_format_duration, durations, COUNT(durations));
}

static void one_of_what_is_counted_is_singular(void **state) {
  (void)state;
  assert_string_equal(tr_text_plural(1, "s"), "");
  assert_string_equal(tr_text_plural(0, "s"), "s");
  assert_string_equal(tr_text_plural(2, "es"), "es");
  assert_string_equal(tr_text_plural(-1, "s"), "s");
}

static void closest_word_is_found_within_a_third_of_the_length(void **state) {
  static const char *const names[] = {"optim.lr", "optim.beta1", "optim.beta2", "weight_decay", "dp"};
  static const struct {
    const char *word, *closest;
  } row[] = {{"optim.lt", "optim.lr"},
             {"optm.lr", "optim.lr"},
             {"optim.beta3", "optim.beta1"},
             {"weigth-decay", "weight_decay"},
             {"WEIGHT_DECAY", "weight_decay"},
             {"pd", "dp"},
             {"d", "dp"},
             {"x", NULL},
             {"", NULL},
             {"momentum", NULL}};
  (void)state;
  for (size_t i = 0; i < COUNT(row); i++) {
    const char *found = tr_text_closest(row[i].word, names, COUNT(names));
    if (row[i].closest)
      assert_non_null(found);
    else
      assert_null(found);
    if (found) assert_string_equal(found, row[i].closest);
  }
  char endless[4096];
  memset(endless, 'a', sizeof endless - 1);
  endless[sizeof endless - 1] = '\0';
  assert_null(tr_text_closest(endless, names, COUNT(names)));
}

static void text_grows_and_stays_terminated(void **state) {
  (void)state;
  tr_text text = {0};
  for (int i = 0; i < 1000; i++) tr_text_append(&text, "%d,", i % 10);
  tr_text_append_bytes(&text, "a\0b", 3);
  tr_text_append_bytes(&text, NULL, 0);
  assert_int_equal(text.failed, 0);
  assert_int_equal(text.size, 2003);
  assert_memory_equal(text.data + 1996, "8,9,a\0b", 8);
  tr_text_free(&text);
  assert_null(text.data);
  tr_text_append_bytes(&text, NULL, SIZE_MAX / 2);
  assert_true(text.failed);
  tr_text_append(&text, "after a failure nothing is added");
  assert_int_equal(text.size, 0);
  tr_text_free(&text);
}

static void check_wrap(const char *text, int at, int indent, const char *expected) {
  tr_text out = {0};
  tr_text_wrap(&out, text, at, indent);
  assert_string_equal(out.data, expected);
  tr_text_free(&out);
}

static void lines_are_wrapped_at_blanks_and_commas(void **state) {
  (void)state;
  enum { N = TR_TEXT_COLUMNS };
  char word[3 * N], text[4 * N], expected[4 * N];
  check_wrap("a  b c", 0, 2, "a  b c");
  check_wrap("one\ntwo\n", 0, 2, "one\ntwo\n");
  check_wrap("ab cd", N - 2, 4, "ab\n    cd");
  check_wrap("ab cd", N - 5, 4, "ab cd");
  check_wrap("ab cd", N - 1, 4, "\n    ab cd");
  memset(word, 'x', sizeof word);
  snprintf(text, sizeof text, "%.*s y %.*s", N - 2, word, N + 1, word); // the last fits nowhere
  snprintf(expected, sizeof expected, "%.*s y\n  %.*s", N - 2, word, N + 1, word);
  check_wrap(text, 0, 2, expected);
  for (int i = 1; i < (int)sizeof word; i += 2) word[i] = ',';
  snprintf(text, sizeof text, "list %.*s end", N + 20, word);
  snprintf(expected, sizeof expected, "list %.*s\n   %.*s end", (N - 5) / 2 * 2, word, N + 20 - (N - 5) / 2 * 2,
           word);
  check_wrap(text, 0, 3, expected);
}

static void ends_are_compared_whole(void **state) {
  (void)state;
  assert_true(tr_text_ends_in("a.bin", ".bin"));
  assert_true(tr_text_ends_in(".bin", ".bin"));
  assert_true(tr_text_ends_in("", ""));
  assert_false(tr_text_ends_in("bin", ".bin"));
  assert_false(tr_text_ends_in("a.bin.gz", ".bin"));
}

static void text_that_fits_can_grow_again(void **state) {
  (void)state;
  tr_text text = {0};
  tr_text_fit(&text); // nothing
  assert_null(text.data);
  for (int i = 0; i < 1000; i++) tr_text_append(&text, "%d,", i % 10);
  assert_true(text.capacity > text.size + 1);
  tr_text_fit(&text);
  assert_int_equal(text.capacity, 2001);
  tr_text_append(&text, "end");
  assert_int_equal(text.size, 2003);
  assert_string_equal(text.data + 1996, "8,9,end");
  assert_false(text.failed);
  tr_text_free(&text);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(ends_are_compared_whole),
      cmocka_unit_test(lines_are_wrapped_at_blanks_and_commas),
      cmocka_unit_test(counts_with_units_are_exact),
      cmocka_unit_test(bad_counts_are_refused_with_the_reason),
      cmocka_unit_test(real_numbers_are_read_by_a_plain_grammar),
      cmocka_unit_test(durations_carry_units),
      cmocka_unit_test(formats_round_without_reaching_the_next_unit),
      cmocka_unit_test(one_of_what_is_counted_is_singular),
      cmocka_unit_test(closest_word_is_found_within_a_third_of_the_length),
      cmocka_unit_test(text_grows_and_stays_terminated),
      cmocka_unit_test(text_that_fits_can_grow_again),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
