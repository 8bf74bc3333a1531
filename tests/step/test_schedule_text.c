// SPDX-License-Identifier: MIT
// tier: quick
// timeout: 60
// Proves that schedules come back from their own text, with and without the first line; that files of other programs are read
// as they are meant; and that text which is no schedule is refused with file, line and token.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "step/schedule_cases.h"
#include "trireme/base/file.h"
#include <unistd.h>

static int same_lists(const tr_schedule *a, const tr_schedule *b) {
  if (a->p != b->p || a->S != b->S || a->m != b->m) return 0;
  if (memcmp(a->begin, b->begin, sizeof *a->begin * ((size_t)a->p + 1))) return 0;
  for (uint32_t i = 0; i < a->begin[a->p]; i++) {
    const tr_pass *x = &a->pass[i], *y = &b->pass[i];
    if (x->kind != y->kind || x->stage != y->stage || x->microbatch != y->microbatch) return 0;
    if (x->back_stage != y->back_stage || x->back_microbatch != y->back_microbatch) return 0;
  }
  return 1;
}

static void parse_back(const tr_schedule *s, int header) {
  tr_text text = {0};
  tr_schedule again;
  tr_schedule_print(s, header, &text);
  if (tr_schedule_parse("file", text.data, &again) != TR_OK) fail_msg("%s\n%s", text.data, tr_status_text());
  if (!same_lists(s, &again)) fail_msg("%s came back otherwise:\n%s", s->name, text.data);
  if (header) {
    assert_string_equal(again.name, s->name);
    assert_true(again.map == s->map && again.v == s->v);
  } else {
    assert_string_equal(again.name, "file");
    for (int stage = 0; stage < s->S; stage++)
      for (int i = 0; i < s->m; i++)
        assert_int_equal(tr_schedule_rank(&again, stage, i), tr_schedule_rank(s, stage, i));
  }
  tr_schedule_destroy(&again);
  tr_text_free(&text);
}

static void both_ways(const tr_schedule *s) {
  parse_back(s, 1);
  parse_back(s, 0);
}

static void text_comes_back(void **state) {
  (void)state;
  assert_true(sc_each(both_ways) > 1500);
}

static void the_first_line_says_what_tokens_cannot(void **state) {
  (void)state;
  tr_text text = {0};
  tr_schedule s;
  sc_build("zb_h1", 2, 1, 0, &s);
  tr_schedule_print(&s, 1, &text);
  assert_string_equal(text.data, "# trireme schedule 1, name zb_h1, p 2, S 2, m 1, map linear, B full\n"
                                 "0F0,0I0,0W0\n1F0,1I0,1W0\n");
  tr_text_free(&text);
  tr_schedule_destroy(&s);
}

// ---- what other programs write

static void expect_tokens(const char *text, const char *tokens) {
  tr_schedule s;
  tr_text made = {0};
  if (tr_schedule_parse("a/b.c.csv", text, &s) != TR_OK) fail_msg("%s\n%s", text, tr_status_text());
  tr_schedule_print(&s, 0, &made);
  assert_string_equal(made.data, tokens);
  assert_string_equal(s.name, "b");
  tr_text_free(&made);
  tr_schedule_destroy(&s);
}

static void texts_of_other_programs_are_read(void **state) {
  (void)state;
  expect_tokens("0F0,,0B0", "0F0,0B0\n"); // an idle slot, no line end
  expect_tokens("0F0,0F1,0B0,0B1\r\n1F0,1B0 ,,1F1, 1B1,\r\n\r\n", "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n");
  expect_tokens("# written by hand\n\n0F0,0R0,0I0,0R0,0W0\n", "0F0,0R0,0I0,0R0,0W0\n");
  expect_tokens("# trireme schedule 1, p 1, S 1, m 2, map linear, B input\n0F0,0F1,0B0,0BW1,0W0\n",
                "0F0,0F1,0I0,0B1,0W0\n");
  expect_tokens("0F0,1F0,1B0,(0F1;0B0)OVERLAP_F_B,1F1,1B1,0B1\n", "0F0,1F0,1B0,(0F1;0B0)OVERLAP_F_B,1F1,1B1,0B1\n");
}

typedef struct refusal {
  const char *text, *says;
} refusal;

static void try_rows(const refusal *row, size_t n) {
  for (size_t i = 0; i < n; i++) {
    tr_schedule s;
    tr_status status = tr_schedule_parse("x.csv", row[i].text, &s);
    if (status == TR_OK ? row[i].says != NULL : !row[i].says || !strstr(tr_status_text(), row[i].says))
      fail_msg("%s\nis %s", row[i].text, status == TR_OK ? "taken" : tr_status_text());
    if (status == TR_OK) tr_schedule_destroy(&s);
  }
}

static void lists_that_are_no_schedules_are_refused(void **state) {
  (void)state;
  static const refusal row[] = {
      {"", "x.csv: no rank's list is in it"},
      {"\n# nothing\n\n", "no rank's list is in it"},
      {"0F0,0B0\n1F0,1Q0\n", "x.csv, line 2, token \"1Q0\": known are F, B, I, W and R"},
      {"0F0,0B0\n1F0,1BW0\n", "x.csv, line 2, token \"1BW0\": BW is a whole backward pass only"},
      {"0F0,0I0,0W0,0BW1", "token \"0BW1\": BW is"},
      {"0F0,0SEND_F0,0B0", "token \"0SEND_F0\": communication follows from the passes"},
      {"0F0,0UNSHARD,0B0", "token \"0UNSHARD\": known are"},
      {"F0,0B0", "token \"F0\": begins with a stage"},
      {"65535F0,0B0", "token \"65535F0\": begins with a stage, a number below 65535"},
      {"99999999999999999999F0", "begins with a stage"},
      {"0F4096,0B0", "token \"0F4096\": ends in a micro-batch, a number below 4096"},
      {"0F,0B0", "token \"0F\": ends in a micro-batch"},
      {"0F-1,0B0", "token \"0F-1\": ends in a micro-batch"},
      {"0F0x,0B0", "token \"0F0x\": goes on behind its micro-batch"},
      {"0F0 0B0", "token \"0F0 0B0\": goes on"},
      {"(0F1,0B0)OVERLAP_F_B", "token \"(0F1\": an overlapped pair is written (1F2;0B1)OVERLAP_F_B"},
      {"(0F1;0B0)", "an overlapped pair is a forward and a whole backward pass"},
      {"(0F1;0B0)OVERLAP_F_BX", "an overlapped pair is a forward"},
      {"(0B1;0F0)OVERLAP_F_B", "an overlapped pair is a forward"},
      {"(0F1;0I0)OVERLAP_F_B", "an overlapped pair is a forward"},
      {"(0F0;0B0)OVERLAP_F_B", "goes forward and backward at once with one micro-batch"},
      {"0F0,0F0,0B0", "x.csv, line 1: schedule x: rank 0, pass 1 (0F0) is there twice"},
      {"0F0,0B0,0B0", "pass 2 (0B0) is a second backward pass"},
      {"0F0,0I0,0B0", "pass 2 (0B0) is a second backward pass"},
      {"0F0,0I0,0W0,0W0", "pass 3 (0W0) is there twice"},
      {"0F0,0W0,0I0", "pass 1 (0W0) comes before its I"},
      {"0F0,0B0,0W0", "pass 2 (0W0) comes after a B"},
      {"0B0,0F0", "pass 0 (0B0) comes before its F"},
      {"0F0,0I0", "x.csv, line 1: schedule x: rank 0 has no W of stage 0, micro-batch 0"},
      {"0F0,0R0,0R0,0B0", "pass 2 (0R0) is there twice"},
      {"0F0,0B0,0R0", "pass 2 (0R0) comes after all that would use it"},
      {"0F0,0B0,0F2,0B2", "rank 0 has no F of stage 0, micro-batch 1"},
      {"0F0,0B0\n\n1F0", "x.csv, line 3: schedule x: rank 1 has no backward pass of stage 1, micro-batch 0"},
      {"0F0,0B0,0F1,0B1\n1F0,1B0,1F1,1B1,0F2,0B2",
       "x.csv, line 2: schedule x: rank 1, pass 4 (0F2) is of a stage that "
       "lives on rank 0 (map linear)"},
      {"0F0,0B0\n1F0,1B0,2F0,2B0", "S 3 stages on p 2 ranks"},
      {"0F0,0B0\n0F1,0B1\n", "S 1 stage on p 2 ranks"},
      {"60000F4000", "need more than 16777216 passes"},
      {"60000F1", "rank 0 has no F of stage 0"},
      {"0F0,0F1,0B1,0B0\n1F1,1F0,1B0,1B1\n", NULL}, // strange, but it runs
      {"0F0,0B0,0F1,0B1\n1F1,1B1,1F0,1B0\n",
       "x.csv, line 1: schedule x cannot run to its end, no rank can go on: rank 0 at "
       "0B0 lacks the gradient of stage 1, micro-batch 0"},
  };
  try_rows(row, sizeof row / sizeof *row);
}

static void first_lines_that_make_no_sense_are_refused(void **state) {
  (void)state;
  static const refusal row[] = {
      {"# trireme schedule 2, p 1, S 1, m 1, map linear\n0F0,0B0",
       "x.csv, line 1, token \"2\": this reads version 1"},
      {"# trireme schedule 1, p 1, S 1, m 1\n0F0,0B0", "gives p, S, m and map"},
      {"# trireme schedule 1, p 1, S 1, map linear\n0F0,0B0", "gives p, S, m and map"},
      {"# trireme schedule 1, p 1, p 1, S 1, m 1, map linear\n0F0,0B0", "token \" p 1\": known are: name NAME, p N"},
      {"# trireme schedule 1, p 1, S 1, m 1, map ring\n0F0,0B0", "token \" map ring\": known are"},
      {"# trireme schedule 1, p 1, S 1, m 1, map linear, B half\n0F0,0B0", "token \" B half\": known are"},
      {"# trireme schedule 1, p 1, S 1, m 1, map linear, q 4\n0F0,0B0", "token \" q 4\": known are"},
      {"# trireme schedule 1, p 1, S 1, m 1, map linear, name a b\n0F0,0B0", "token \" name a b\": known are"},
      {"# trireme schedule 1, p 1, S 1, m 1, map linear, name a/b\n0F0,0B0", "token \" name a/b\": known are"},
      {"# trireme schedule 1, p 1, S 1, m 1, map linear, name abcdefghijklmnopqrstuvwxyzabcdef\n0F0,0B0",
       "known are"},
      {"# trireme schedule 1, p 999999, S 1, m 1, map linear\n0F0,0B0", "token \" p 999999\": known are"},
      {"# trireme schedule 1, p -1, S 1, m 1, map linear\n0F0,0B0", "token \" p -1\": known are"},
      {"# trireme schedule 1, p 2, S 2, m 1, map linear\n0F0,0B0", "says p 2, but it has the list of 1 rank"},
      {"# trireme schedule 1, p 1, S 2, m 1, map linear\n0F0,0B0", "S 2 stages on p 1 rank"},
      {"# trireme schedule 1, p 1, S 0, m 1, map loop\n0F0,0B0", "S 0 stages on p 1 rank"},
      {"# trireme schedule 1, p 1, S 1, m 0, map linear\n0F0,0B0", "m 0 micro-batches"},
      {"# trireme schedule 1, p 1, S 1, m 2, map linear\n0F0,0B0", "no F of stage 0, micro-batch 1"},
      {"# trireme schedule 1, p 1, S 1, m 1, map linear\n0F0,0B0,0F1,0B1", "is of a micro-batch that does not exist"},
      {"# trireme schedule 1, p 1, S 1, m 1, map linear\n0F0,1F0,1B0,0B0", "is of a stage that does not exist"},
      {"# trireme schedule 1, p 2, S 2, m 2, map linear\n0F0,0B0,1F1,1B1\n1F0,1B0,0F1,0B1",
       "lives on rank 1 (map linear)"},
      {"# trireme schedule 1, p 2, S 2, m 2, map both\n0F0,0B0,1F1,1B1\n1F0,1B0,0F1,0B1", NULL},
      {"0F0,0B0,1F1,1B1\n1F0,1B0,0F1,0B1", NULL}, // the same without a first line
  };
  try_rows(row, sizeof row / sizeof *row);
}

static void files_are_read_and_named(void **state) {
  (void)state;
  char path[] = "schedule-XXXXXX";
  int fd = mkstemp(path);
  assert_true(fd >= 0);
  tr_schedule s;
  static const char good[] = "0F0,0B0\n", zero[] = "0F0\0,0B0\n";
  assert_int_equal(tr_file_write_all(fd, good, sizeof good - 1, path), TR_OK);
  assert_int_equal(tr_schedule_read(path, &s), TR_OK);
  assert_int_equal(s.begin[1], 2);
  tr_schedule_destroy(&s);
  assert_int_equal(tr_file_write_atomic(path, zero, sizeof zero - 1), TR_OK);
  assert_int_equal(tr_schedule_read(path, &s), TR_ERR_PLAN);
  assert_non_null(strstr(tr_status_text(), "a zero byte at 3"));
  close(fd);
  unlink(path);
  assert_int_equal(tr_schedule_read(path, &s), TR_ERR_IO);
  assert_non_null(strstr(tr_status_text(), path));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(text_comes_back),
      cmocka_unit_test(the_first_line_says_what_tokens_cannot),
      cmocka_unit_test(texts_of_other_programs_are_read),
      cmocka_unit_test(lists_that_are_no_schedules_are_refused),
      cmocka_unit_test(first_lines_that_make_no_sense_are_refused),
      cmocka_unit_test(files_are_read_and_named),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
