// SPDX-License-Identifier: MIT
// tier: quick
// timeout: 60
// Proves that the failure record belongs to its thread, survives its own text as an argument, cuts rather
// than overflows, and that codes, names and exit codes agree with the table in the header.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "trireme/base/status.h"

#include <pthread.h>
#include <string.h>

static void error_returns_its_code_and_keeps_the_sentence(void **state) {
  (void)state;
  assert_int_equal(tr_error(TR_ERR_CONFIG, "field %s: %d", "dp", 3), TR_ERR_CONFIG);
  assert_string_equal(tr_status_text(), "field dp: 3");
  tr_status_clear();
  assert_string_equal(tr_status_text(), "");
}

static void prefix_goes_before_the_sentence(void **state) {
  (void)state;
  tr_error(TR_ERR_IO, "no such file");
  tr_error_prefix("rank %d", 4);
  assert_string_equal(tr_status_text(), "rank 4: no such file");
}

static void the_recorded_text_may_be_an_argument(void **state) {
  (void)state;
  tr_error(TR_ERR_IO, "inner");
  tr_error(TR_ERR_CKPT, "outer (%s)", tr_status_text());
  assert_string_equal(tr_status_text(), "outer (inner)");
  tr_error_prefix("%s", tr_status_text());
  assert_string_equal(tr_status_text(), "outer (inner): outer (inner)");
}

static void long_sentences_are_cut_at_the_end(void **state) {
  (void)state;
  char big[10000];
  memset(big, 'x', sizeof big - 1);
  big[sizeof big - 1] = '\0';
  tr_error(TR_ERR_DATA, "%s", big);
  size_t n = strlen(tr_status_text());
  assert_true(n > 500 && n < sizeof big);
  tr_error_prefix("head");
  assert_true(strncmp(tr_status_text(), "head: xxx", 9) == 0);
  assert_int_equal(strlen(tr_status_text()), n);
  tr_error_prefix("%s", big);
  assert_int_equal(strlen(tr_status_text()), n);
}

static void *other_thread(void *found) {
  strcpy(found, tr_status_text());
  tr_error(TR_ERR_NAN, "of the other");
  return NULL;
}

static void every_thread_has_its_own_record(void **state) {
  (void)state;
  char found[4096] = "?";
  pthread_t thread;
  tr_error(TR_ERR_IO, "of the first");
  assert_int_equal(pthread_create(&thread, NULL, other_thread, found), 0);
  pthread_join(thread, NULL);
  assert_string_equal(found, "");
  assert_string_equal(tr_status_text(), "of the first");
}

static void names_meanings_and_exit_codes_follow_the_table(void **state) {
  (void)state;
  assert_string_equal(tr_status_name(TR_ERR_CONFIG), "TR_ERR_CONFIG");
  assert_string_equal(tr_status_meaning(TR_ERR_PEER), "peer lost");
  static const struct {
    tr_status code;
    int exit_code;
  } want[] = {{TR_OK, 0},          {TR_PENDING, 0},  {TR_ERR_INTERNAL, 1}, {TR_ERR_USAGE, 2},  {TR_ERR_CONFIG, 3},
              {TR_ERR_PLAN, 3},    {TR_ERR_DATA, 4}, {TR_ERR_CKPT, 4},     {TR_ERR_MEMORY, 5}, {TR_ERR_PEER, 6},
              {TR_ERR_TIMEOUT, 7}, {TR_ERR_NAN, 8},  {TR_ERR_VERIFY, 9},   {TR_ERR_IO, 10}};
  for (size_t i = 0; i < sizeof want / sizeof want[0]; i++) {
    assert_int_equal(tr_status_exit_code(want[i].code), want[i].exit_code);
  }
  assert_int_equal(tr_status_exit_code((tr_status)-999), 1);
  assert_string_equal(tr_status_name((tr_status)-999), "unknown status");
}

static int nevaluated;

static tr_status count_and_return(tr_status status) {
  nevaluated++;
  return status;
}

static tr_status tried(tr_status first) {
  TR_TRY(count_and_return(first));
  return TR_ERR_VERIFY;
}

static void try_returns_failures_only_and_evaluates_once(void **state) {
  (void)state;
  nevaluated = 0;
  assert_int_equal(tried(TR_ERR_IO), TR_ERR_IO);
  assert_int_equal(nevaluated, 1);
  assert_int_equal(tried(TR_PENDING), TR_ERR_VERIFY);
  assert_int_equal(tried(TR_OK), TR_ERR_VERIFY);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(error_returns_its_code_and_keeps_the_sentence),
      cmocka_unit_test(prefix_goes_before_the_sentence),
      cmocka_unit_test(the_recorded_text_may_be_an_argument),
      cmocka_unit_test(long_sentences_are_cut_at_the_end),
      cmocka_unit_test(every_thread_has_its_own_record),
      cmocka_unit_test(names_meanings_and_exit_codes_follow_the_table),
      cmocka_unit_test(try_returns_failures_only_and_evaluates_once),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
