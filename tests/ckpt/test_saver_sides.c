// SPDX-License-Identifier: MIT
// tier: quick
// Proves that writers of which each has only a side of the tensors (the stages of a pipeline), whose others are no memory at
// all, make the folder that one writer makes, byte for byte; and that tensors which no writer has are refused.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "ckpt/saver_state.h"

// Tensors by file: byte, w | none, b | m.big, m.w, m.b. Sides interleave in a file, as stages do that go round the ranks.
static void writers_that_have_only_a_side_make_the_same_folder(void **unused) {
  (void)unused;
  static const struct {
    int nwriter, side[MOST_WRITERS], held[NTENSOR];
  } rows[] = {{2, {0, 1}, {0, 1, 0, 1, 0, 1, 0}},
              {2, {1, 0}, {0, 1, 1, 0, 1, 0, 1}},
              {4, {0, 1, 0, 1}, {1, 0, 1, 0, 1, 0, 1}},
              {5, {0, 1, 2, 2, 0}, {2, 0, 1, 0, 2, 1, 2}},
              {3, {0, 1, 2}, {0, 0, 0, 0, 0, 0, 0}}};
  scratch first = scratch_make_fast(), reference = scratch_path(&first, "step-00000007");
  save_by(1, 0, &first, 1);
  for (size_t i = 0; i < 2 * sizeof rows / sizeof rows[0]; i++) {
    const int nwriter = rows[i / 2].nwriter, *side = rows[i / 2].side;
    scratch folder = scratch_make_fast(), step = scratch_path(&folder, "step-00000007");
    save_by_sides(nwriter, side, rows[i / 2].held, (int)i % 2, &folder, 1);
    if (tr_ckpt_verify(step.path) != TR_OK) fail_msg("%s", tr_status_text());
    assert_same_folder(&reference, &step);
    scratch_remove(&folder);
  }
  scratch_remove(&first);
}

static void sides_without_writers_are_refused(void **unused) {
  (void)unused;
  static const struct {
    int side[2], held[NTENSOR];
    const char *fragment;
  } rows[] = {{{0, 0}, {0, 0, 0, 0, 0, 0, 1}, "no writer has"},
              {{1, 1}, {1, 0, 1, 1, 1, 1, 1}, "of side 0"},
              {{0, 2}, {0, 0, 0, 0, 0, 0, 0}, "writer 1 is of side 2"},
              {{0, -1}, {0, 0, 0, 0, 0, 0, 0}, "writer 1 is of side -1"}};
  scratch folder = scratch_make_fast();
  state *s = make_state(5);
  tr_saver *saver = NULL;
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    tr_saver_options options = options_of(s, &folder, 0, 2, 1);
    options.side = rows[i].side;
    options.held = rows[i].held;
    assert_int_equal(tr_saver_create(&options, &saver), TR_ERR_USAGE);
    if (!strstr(tr_status_text(), rows[i].fragment)) fail_msg("'%s': %s", rows[i].fragment, tr_status_text());
    size_t each[2] = {1, 1};
    tr_saver_bytes(&options, each);
    assert_int_equal(each[0] + each[1], 0);
  }
  tr_saver_options options = options_of(s, &folder, 0, 2, 1);
  options.side = rows[0].side;
  assert_int_equal(tr_saver_create(&options, &saver), TR_ERR_USAGE);
  free(s);
  scratch_remove(&folder);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(writers_that_have_only_a_side_make_the_same_folder),
      cmocka_unit_test(sides_without_writers_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
