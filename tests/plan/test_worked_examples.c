// SPDX-License-Identifier: MIT
// tier: quick
// timeout: 30
//
// Every planning row of the worked examples on record is computed by the general laws to the precision that is on record, no id
// of the list is without a row, and a wrong answer, a wrong id and a missing row are noticed.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "plan/worked_memory.h"
#include "plan/worked_scaling.h"

static const struct {
  const char *name;
  void (*check)(example_count *count);
} sections[] = {{"states", memory_of_states},
                {"activations", memory_of_activations},
                {"rings", communication_of_rings},
                {"a small job", communication_of_a_small_job},
                {"175B", communication_of_175b},
                {"meshes", meshes},
                {"pipelines", pipelines},
                {"runs by workers", runs_by_workers},
                {"scaling", scaling},
                {"reliability", reliability},
                {"alignment", alignment}};

static void every_example_comes_out(void **state) {
  (void)state;
  example_count count = {0};
  for (size_t i = 0; i < sizeof sections / sizeof *sections; i++) {
    int before = count.wrong;
    sections[i].check(&count);
    if (count.wrong > before) printf("%d wrong in the section '%s'\n", count.wrong - before, sections[i].name);
  }
  for (size_t i = 0; i < EXAMPLE_IDS; i++) {
    if (count.rows[i]) continue;
    printf("%s has no row\n", example_ids[i]);
    count.wrong++;
  }
  assert_int_equal(count.wrong, 0);
}

static void wrong_answers_and_ids_are_noticed(void **state) {
  (void)state;
  example_count count = {0};
  const example rows[] = {ROW("mem-adam", tr_law_roles_sum(tr_law_roles_mixed_adam()), 15.9, 0.05),
                          ROW("mem-adm", tr_law_roles_sum(tr_law_roles_mixed_adam()), 16, 0),
                          ROW("mem-adam", (double)NAN, 16, 1)};
  CHECK_EXAMPLES(rows, &count);
  assert_int_equal(count.wrong, 3);
  assert_int_equal(count.rows[0], 2);
  assert_int_equal(count.rows[1], 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(every_example_comes_out),
                                     cmocka_unit_test(wrong_answers_and_ids_are_noticed)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
