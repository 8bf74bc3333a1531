// SPDX-License-Identifier: MIT
// tier: quick
// timeout: 30
// Proves that what a model's parts are said to keep for a backward pass is what a run takes for it.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "run/run_harness.h"
#include "trireme/plan/stage_parts.h"

static void parts_keep_what_a_run_keeps(void **state) {
  (void)state;
  static const tr_dtype type[] = {TR_F32, TR_BF16};
  for (int k = 0; k < 2; k++) {
    rh_case c = rh_default();
    rh_rank r;
    tr_run_memory need;
    tr_schedule s;
    tr_stage_parts parts;
    double kept = 0;
    c.type = type[k];
    assert_true(rh_works(rh_open(&c, NULL, &r)));
    tr_run_options o = r.options;
    assert_int_equal(tr_run_memory_predict(&o, 1, 1, 1, &need), TR_OK);
    assert_int_equal(tr_schedule_build(&(tr_schedule_spec){.name = "naive", .p = 1, .m = 1}, &s), TR_OK);
    const tr_stage_parts_options options = {.sequence = o.rows, .micro = 1, .type = c.type, .schedule = &s};
    assert_int_equal(tr_stage_parts_make(o.model, &options, &parts), TR_OK);
    for (int i = 0; i < parts.n; i++) kept += parts.part[i].activations;
    assert_true(kept == (double)need.activations); // areas of this model need no rounding
    tr_stage_parts_destroy(&parts);
    tr_schedule_destroy(&s);
    rh_close(&r);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(parts_keep_what_a_run_keeps)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
