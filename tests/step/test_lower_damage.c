// SPDX-License-Identifier: MIT
// tier: quick
// timeout: 300
// Proves that the checks refuse every damaged program of a pipeline that could give a wrong result or wait for ever: damage of
// all kinds is made at random to one rank, and ranks of symbols are the judge.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "step/pipeline_case.h"
#include "step/program_damage.h"
#include "thin.h"

static void draw_small(uint64_t *random, tr_schedule *s, pc_wish *wish) {
  for (;;) {
    pc_draw_schedule(random, s);
    if (s->p <= 4 && s->m <= 8 && s->p * s->v > 1) break;
    tr_schedule_destroy(s);
  }
  *wish = pc_draw(random);
}

// Pairs of passes whose parts alternate, some of them in the communication lane.
static void draw_pairs(uint64_t *random, tr_schedule *s, pc_wish *wish) {
  static const char *const name[] = {"dualpipe", "dualpipev"};
  tr_schedule_spec spec = {
      .name = name[sr_random(random, 2)], .p = 2, .m = 4 + 2 * (int)sr_random(random, 2), .v = 2};
  if (tr_schedule_build(&spec, s) < 0) fail_msg("%s", tr_status_text());
  *wish = pc_draw(random);
  wish->comm = 1;
  wish->recompute = 0;
}

static void (*draw)(uint64_t *random, tr_schedule *s, pc_wish *wish) = draw_small;

// Damages programs at random. Whatever the checks accept must be right under every timing. Returns how many they refused.
static int try_damage(damage hurt, int n, int ntry) {
  static pc_case c;
  int refused = 0;
  for (int k = 0; k < n / THIN; k++) {
    uint64_t random = (uint64_t)k % 401 * 131 + 3, blow = (uint64_t)k * 31 + 7;
    tr_schedule s;
    pc_wish wish;
    draw(&random, &s, &wish);
    if (pc_build(&c, &s, &wish, &random) < 0) fail_msg("%s", tr_status_text());
    hurt(&c.program[sr_random(&blow, (uint32_t)s.p)], &blow);
    tr_status_clear();
    tr_status status = pc_check(&c, 0);
    if (status < 0) {
      assert_int_equal(status, TR_ERR_PLAN);
      assert_non_null(strstr(tr_status_text(), "step program: "));
      refused++;
    } else {
      const char *wrong = pc_judge(&c, ntry, (uint64_t)k, NULL);
      if (wrong) fail_msg("damage %d of %s was accepted but is wrong: %s", k, s.name, wrong);
    }
    pc_free_programs(&c);
    tr_schedule_destroy(&s);
  }
  return refused * THIN;
}

static void a_missing_or_repeated_operation_is_always_refused(void **state) {
  (void)state;
  assert_int_equal(try_damage(drop_op, 800, 0), 800);
  assert_int_equal(try_damage(repeat_op, 800, 0), 800);
}

static void an_operation_in_the_wrong_lane_is_always_refused(void **state) {
  (void)state;
  assert_in_range(try_damage(change_lane, 500, 8), 480, 500); // a pair's communicating piece may compute as well
}

static void orders_that_matter_are_refused(void **state) {
  (void)state;
  assert_in_range(try_damage(swap_ops, 1500, 8), 1000, 1480);
  assert_in_range(try_damage(move_op, 1500, 8), 700, 1400);
}

static void edges_that_matter_are_refused(void **state) {
  (void)state;
  assert_in_range(try_damage(drop_edge, 1500, 16), 500, 1450);
  assert_in_range(try_damage(turn_edge, 1500, 16), 500, 1450);
}

static void flags_and_fields_that_matter_are_refused(void **state) {
  (void)state;
  assert_in_range(try_damage(flip_flag, 1000, 8), 200, 950);
  assert_in_range(try_damage(change_field, 3000, 8), 1200, 2700);
}

static void damage_that_hides_behind_a_second_order_is_refused(void **state) {
  (void)state;
  assert_in_range(try_damage(drop_edges_and_move, 3000, 8), 1800, 2990);
}

// Two messages of one channel change places, slots and all.
static void swap_messages(tr_program *p, uint64_t *random) {
  uint32_t n = 0, at[PD_OPS];
  if (p->nring == 0) return;
  uint32_t ring = sr_random(random, (uint32_t)p->nring);
  for (uint32_t i = 0; i < p->nop; i++)
    if (sr_is_message(&p->op[i]) && p->op[i].ring == (int32_t)ring) at[n++] = i;
  if (n < 2) return;
  tr_op *a = &p->op[at[sr_random(random, n)]], *b = &p->op[at[sr_random(random, n)]];
  int32_t mb = a->microbatch;
  int16_t slot = a->slot_in;
  a->microbatch = b->microbatch, a->slot_in = b->slot_in;
  b->microbatch = mb, b->slot_in = slot;
}

static void swapped_messages_are_refused(void **state) {
  (void)state;
  assert_in_range(try_damage(swap_messages, 1500, 8), 600, 1400);
}

// Any slot of a ring but the right one.
static void change_slot(tr_program *p, uint64_t *random) {
  for (int k = 0; k < 200; k++) {
    tr_op *op = &p->op[sr_random(random, p->nop)];
    int16_t *slot[] = {&op->slot_in, &op->slot_out, &op->slot_din, &op->slot_dout};
    int16_t *one = slot[sr_random(random, 4)];
    if (*one < 0) continue;
    *one = (int16_t)((*one + 1 + sr_random(random, 3)) % 4);
    return;
  }
}

static void wrong_slots_are_always_refused(void **state) {
  (void)state;
  assert_int_equal(try_damage(change_slot, 1500, 0), 1500);
}

static void damage_to_pairs_is_refused(void **state) {
  (void)state;
  draw = draw_pairs;
  assert_int_equal(try_damage(drop_op, 300, 0), 300);
  assert_in_range(try_damage(change_lane, 500, 16), 440, 499);
  assert_in_range(try_damage(drop_edge, 1000, 32), 400, 950);
  assert_in_range(try_damage(turn_edge, 1000, 32), 400, 990);
  assert_in_range(try_damage(drop_edges_and_move, 1000, 16), 600, 990);
  draw = draw_small;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_missing_or_repeated_operation_is_always_refused),
      cmocka_unit_test(an_operation_in_the_wrong_lane_is_always_refused),
      cmocka_unit_test(orders_that_matter_are_refused),
      cmocka_unit_test(edges_that_matter_are_refused),
      cmocka_unit_test(flags_and_fields_that_matter_are_refused),
      cmocka_unit_test(damage_that_hides_behind_a_second_order_is_refused),
      cmocka_unit_test(swapped_messages_are_refused),
      cmocka_unit_test(wrong_slots_are_always_refused),
      cmocka_unit_test(damage_to_pairs_is_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
