// SPDX-License-Identifier: MIT
// tier: quick
// timeout: 300
// Proves that built programs pass the checks and give right results under any timing, and that the checks refuse
// every damaged program that could give a wrong one: damage of all kinds is made at random, and a rank of
// symbols is the judge.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "step/program_damage.h"
#include "step/symbolic_ranks.h"
#include "thin.h"

// A random model and plan, and its program.
typedef struct subject {
  int last_piece[SR_UNITS];
  tr_step_range range[SR_PIECES];
  int64_t start[SR_UNITS + 1];
  tr_step_model model;
  tr_step_options options;
  tr_program program;
} subject;

// Up to four ranges that are computed again, anywhere, also side by side and over the last piece; often none.
static void random_ranges(subject *s, uint64_t *random) {
  int n = 0, want = (int)sr_random(random, 5);
  for (int at = 0; n < want && at < s->model.npiece; n++) {
    int begin = at + (int)sr_random(random, 3), end = begin + 1 + (int)sr_random(random, 4);
    if (end > s->model.npiece) break;
    s->range[n] = (tr_step_range){begin, at = end};
  }
  s->options.nrecompute = n;
  s->options.recompute = s->range;
}

static void make_subject(subject *s, uint64_t seed) {
  uint64_t random = seed * 77 + 5;
  static const int64_t bucket[] = {0, 150, 1 << 30};
  *s = (subject){
      .model = {.npiece = 1 + (int)sr_random(&random, SR_PIECES), .nunit = 1 + (int)sr_random(&random, SR_UNITS)}};
  for (int u = 0; u < s->model.nunit; u++) {
    s->last_piece[u] = (int)sr_random(&random, (uint32_t)s->model.npiece);
    s->start[u + 1] = s->start[u] + 64 * (1 + sr_random(&random, 3));
  }
  s->model.unit_last_piece = s->last_piece;
  s->model.unit_start = s->start;
  s->options = (tr_step_options){.microbatches = 1 + (int)sr_random(&random, SR_MICRO),
                                 .dp = 1 + (int)sr_random(&random, 3),
                                 .split_backward = (int)sr_random(&random, 2),
                                 .grad_sync = sr_random(&random, 2) ? TR_SYNC_EVERY : TR_SYNC_LAST,
                                 .bucket_elements = bucket[sr_random(&random, 3)],
                                 .zero = (int)sr_random(&random, 2)};
  random_ranges(s, &random);
  assert_int_equal(tr_program_build(&s->model, &s->options, &s->program), TR_OK);
  assert_true(s->program.nop < SR_OPS - 2);
}

static tr_status check(const subject *s) { return tr_program_check(&s->program, &s->model, &s->options); }

// NULL when no timing tried gives a wrong result.
static const char *judge(const subject *s, int ntry) {
  for (int k = 0; k < ntry; k++) {
    const char *wrong = sr_run(&s->program, &s->model, &s->options, (uint64_t)k + 1, (uint32_t)k % 9);
    if (wrong) return wrong;
  }
  return NULL;
}

static void built_programs_are_right_under_any_timing(void **state) {
  (void)state;
  for (uint64_t seed = 0; seed < 400 / THIN; seed++) {
    subject s;
    make_subject(&s, seed);
    if (check(&s) < 0) fail_msg("seed %d: %s", (int)seed, tr_status_text());
    const char *wrong = judge(&s, 18);
    if (wrong) fail_msg("seed %d: %s", (int)seed, wrong);
    tr_program_destroy(&s.program);
  }
}

static void buckets_hold_each_unit_once_and_fill_up(void **state) {
  (void)state;
  for (uint64_t seed = 0; seed < 200; seed++) {
    subject s;
    int seen[SR_UNITS] = {0};
    make_subject(&s, seed);
    const tr_program *p = &s.program;
    for (int b = 0; b < p->nbucket; b++) {
      int lowest = s.model.npiece;
      for (int u = p->bucket[b].unit_begin; u < p->bucket[b].unit_end; u++) {
        seen[u]++;
        lowest = s.last_piece[u] < lowest ? s.last_piece[u] : lowest;
      }
      assert_int_equal(p->bucket[b].last_piece, lowest);
      if (b > 0) assert_true(p->bucket[b].last_piece <= p->bucket[b - 1].last_piece); // ready in this order
      if (s.options.bucket_elements == 0) assert_int_equal(p->bucket[b].unit_end - p->bucket[b].unit_begin, 1);
    }
    for (int u = 0; u < s.model.nunit; u++) assert_int_equal(seen[u], 1);
    tr_program_destroy(&s.program);
  }
}

// ---- damage

// Damages programs at random. Whatever the checks accept must be right under every timing. Returns
// how many of n they refused.
static int try_damage(damage hurt, int n, int ntry) {
  int refused = 0;
  for (int k = 0; k < n / THIN; k++) {
    subject s;
    uint64_t random = (uint64_t)k * 31 + 7;
    make_subject(&s, (uint64_t)k % 97);
    hurt(&s.program, &random);
    tr_status_clear();
    tr_status status = check(&s);
    if (status < 0) {
      assert_int_equal(status, TR_ERR_PLAN);
      assert_non_null(strstr(tr_status_text(), "step program: "));
      refused++;
    } else {
      const char *wrong = judge(&s, ntry);
      if (wrong) fail_msg("damage %d was accepted but is wrong: %s", k, wrong);
    }
    tr_program_destroy(&s.program);
  }
  return refused * THIN;
}

static void a_missing_or_repeated_operation_is_always_refused(void **state) {
  (void)state;
  assert_int_equal(try_damage(drop_op, 2000, 0), 2000);
  assert_int_equal(try_damage(repeat_op, 2000, 0), 2000);
}

static void an_operation_in_the_wrong_lane_is_always_refused(void **state) {
  (void)state;
  assert_int_equal(try_damage(change_lane, 1000, 0), 1000);
}

// Some orders, edges and fields do not matter; those that do are all found.
static void orders_that_matter_are_refused(void **state) {
  (void)state;
  assert_in_range(try_damage(swap_ops, 4000, 36), 2000, 3900);
  assert_in_range(try_damage(move_op, 4000, 36), 1500, 3900);
}

static void edges_that_matter_are_refused(void **state) {
  (void)state;
  assert_in_range(try_damage(drop_edge, 3000, 72), 800, 2700);
  assert_in_range(try_damage(turn_edge, 3000, 72), 800, 2700);
}

static void flags_and_fields_that_matter_are_refused(void **state) {
  (void)state;
  assert_in_range(try_damage(flip_flag, 3000, 18), 1000, 2900);
  assert_in_range(try_damage(change_field, 6000, 36), 2000, 5000);
}

static void damage_that_hides_behind_a_second_order_is_refused(void **state) {
  (void)state;
  assert_in_range(try_damage(drop_edges_and_move, 20000, 36), 10000, 19900);
}

static void the_message_names_operation_and_rule(void **state) {
  (void)state;
  subject s = {.last_piece = {0, 2}, .start = {0, 64, 128}};
  s.model = (tr_step_model){.npiece = 3, .nunit = 2, .unit_last_piece = s.last_piece, .unit_start = s.start};
  s.options = (tr_step_options){.microbatches = 2, .dp = 2};
  assert_int_equal(tr_program_build(&s.model, &s.options, &s.program), TR_OK);
  s.program.op[4].first = 1; // the second micro-batch would overwrite the first one's gradients
  assert_int_equal(check(&s), TR_ERR_PLAN);
  assert_string_equal(tr_status_text(),
                      "step program: operation 4 (B, micro-batch 1) is wrong about being the first contribution");
  tr_program_destroy(&s.program);
}

static void a_cycle_is_a_deadlock(void **state) {
  (void)state;
  subject s;
  make_subject(&s, 3);
  for (uint32_t i = 0; i < s.program.nop; i++)
    if (s.program.op[i].kind == TR_OP_REDUCE && s.program.op[i].role == TR_ROLE_GRADIENT)
      s.program.edge[s.program.op[i].edge_begin].op = s.program.nop - 1; // waits for the last PUBLISH
  assert_int_equal(check(&s), TR_ERR_PLAN);
  assert_non_null(strstr(tr_status_text(), "deadlock"));
  tr_program_destroy(&s.program);
}

// ---- text

static void the_text_form_is_stable(void **state) {
  (void)state;
  static const int last_piece[] = {0, 2};
  static const int64_t start[] = {0, 64, 128};
  tr_step_model model = {.npiece = 3, .nunit = 2, .unit_last_piece = last_piece, .unit_start = start};
  tr_step_options options = {.microbatches = 2, .dp = 2};
  tr_program program;
  tr_text text = {0}, tokens = {0};
  assert_int_equal(tr_program_build(&model, &options, &program), TR_OK);
  tr_program_print(&program, &text);
  assert_string_equal(text.data, "   0 comm    REDUCE  valid tokens\n"
                                 "   1 compute F       stage 0 micro-batch 0 pieces 0..2  after 0, 13 of step -1\n"
                                 "   2 compute B       stage 0 micro-batch 0 pieces 2..0 overwrites gradients\n"
                                 "   3 compute F       stage 0 micro-batch 1 pieces 0..2\n"
                                 "   4 compute B       stage 0 micro-batch 1 pieces 2..2\n"
                                 "   5 comm    REDUCE  gradients bucket 0 of 2, units 1..1  after 4\n"
                                 "   6 compute B       stage 0 micro-batch 1 pieces 1..0\n"
                                 "   7 comm    REDUCE  gradients bucket 1 of 2, units 0..0  after 6\n"
                                 "   8 comm    REDUCE  loss  after 6\n"
                                 "   9 compute NORM      after 5, 7, 8\n"
                                 "  10 compute UPDATE  unit 0  after 9\n"
                                 "  11 compute UPDATE  unit 1  after 9\n"
                                 "  12 compute PUBLISH unit 0  after 11\n"
                                 "  13 compute PUBLISH unit 1  after 11\n");
  tr_program_tokens(&program, &tokens);
  assert_string_equal(tokens.data, "0F0,0B0,0F1,0B1");
  tr_text_free(&text);
  tr_text_free(&tokens);
  tr_program_destroy(&program);
}

static void with_owned_parts_squares_and_weights_are_gathered(void **state) {
  (void)state;
  static const int last_piece[] = {0, 2};
  static const int64_t start[] = {0, 64, 128};
  tr_step_model model = {.npiece = 3, .nunit = 2, .unit_last_piece = last_piece, .unit_start = start};
  tr_step_options options = {.microbatches = 1, .dp = 2, .bucket_elements = 1 << 30, .zero = 1};
  tr_program program;
  tr_text text = {0};
  assert_int_equal(tr_program_build(&model, &options, &program), TR_OK);
  tr_program_print(&program, &text);
  assert_string_equal(text.data, "   0 comm    REDUCE  valid tokens\n"
                                 "   1 compute F       stage 0 micro-batch 0 pieces 0..2  after 0, 12 of step -1\n"
                                 "   2 compute B       stage 0 micro-batch 0 pieces 2..0 overwrites gradients\n"
                                 "   3 comm    REDUCE  gradients bucket 0 of 1, units 0..1  after 2\n"
                                 "   4 comm    REDUCE  loss  after 2\n"
                                 "   5 comm    REDUCE  squares  after 3\n"
                                 "   6 compute NORM      after 4, 5\n"
                                 "   7 compute UPDATE  unit 0  after 6\n"
                                 "   8 compute UPDATE  unit 1  after 6\n"
                                 "   9 comm    GATHER  weights  after 8\n"
                                 "  10 compute PUBLISH unit 0  after 9\n"
                                 "  11 compute PUBLISH unit 1  after 9\n"
                                 "  12 comm    GATHER  packed weights  after 11\n");
  options.zero = 2;
  tr_program refused;
  assert_int_equal(tr_program_build(&model, &options, &refused), TR_ERR_PLAN);
  tr_text_free(&text);
  tr_program_destroy(&program);
}

static void split_passes_print_as_i_and_w(void **state) {
  (void)state;
  static const int last_piece[] = {0, 2};
  static const int64_t start[] = {0, 64, 128};
  tr_step_model model = {.npiece = 3, .nunit = 2, .unit_last_piece = last_piece, .unit_start = start};
  tr_step_options options = {.microbatches = 2, .dp = 2, .split_backward = 1, .grad_sync = TR_SYNC_EVERY};
  tr_program program;
  tr_text tokens = {0};
  assert_int_equal(tr_program_build(&model, &options, &program), TR_OK);
  tr_program_tokens(&program, &tokens);
  assert_string_equal(tokens.data, "0F0,0I0,0W0,0F1,0I1,0W1");
  tr_text_free(&tokens);
  tr_program_destroy(&program);
}

// Two layers of two pieces are computed again, an embedding and a head are not.
static void recompute_subject(subject *s, int split) {
  *s = (subject){.last_piece = {0, 1, 3, 5}, .start = {0, 64, 128, 192, 256}, .range = {{1, 3}, {3, 5}}};
  s->model = (tr_step_model){.npiece = 6, .nunit = 4, .unit_last_piece = s->last_piece, .unit_start = s->start};
  s->options = (tr_step_options){.microbatches = 1,
                                 .dp = 2,
                                 .split_backward = split,
                                 .bucket_elements = 1 << 30,
                                 .nrecompute = 2,
                                 .recompute = s->range};
  assert_int_equal(tr_program_build(&s->model, &s->options, &s->program), TR_OK);
  assert_int_equal(check(s), TR_OK);
}

// What the last layer wrote is still there when its backward pass comes: head and last layer are one part.
static void values_are_computed_again_right_before_they_are_needed(void **state) {
  (void)state;
  subject s;
  tr_text text = {0}, tokens = {0};
  recompute_subject(&s, 0);
  tr_program_print(&s.program, &text);
  static const char want[] = "   2 compute B       stage 0 micro-batch 0 pieces 5..3 overwrites gradients\n"
                             "   3 compute R       stage 0 micro-batch 0 pieces 1..2\n"
                             "   4 compute B       stage 0 micro-batch 0 pieces 2..0 overwrites gradients\n"
                             "   5 comm    REDUCE  gradients bucket 0 of 1, units 0..3  after 4\n";
  assert_non_null(strstr(text.data, want));
  tr_program_tokens(&s.program, &tokens);
  assert_string_equal(tokens.data, "0F0,0B0");
  tr_text_free(&text);
  tr_text_free(&tokens);
  tr_program_destroy(&s.program);
}

static void a_split_pass_computes_again_for_inputs_and_for_weights(void **state) {
  (void)state;
  subject s;
  tr_text kinds = {0};
  recompute_subject(&s, 1);
  for (uint32_t i = 0; i < s.program.nop; i++)
    if (s.program.op[i].kind <= TR_OP_R) {
      tr_text_append(&kinds, "%s", tr_op_name((tr_op_kind)s.program.op[i].kind));
      if (s.program.op[i].kind == TR_OP_R) assert_int_equal(s.program.op[i].slot_fi, -1);
    }
  assert_string_equal(kinds.data, "FIRIWRWRW");
  tr_text_free(&kinds);
  tr_program_destroy(&s.program);
}

// The program whose operation `from` has been moved to stand before `to`.
static void expect_refusal(uint32_t from, uint32_t to, const char *rule) {
  subject s;
  uint32_t order[SR_OPS], n = 0;
  recompute_subject(&s, 0);
  for (uint32_t i = 0; i < s.program.nop; i++) {
    if (i == to) order[n++] = from;
    if (i != from) order[n++] = i;
  }
  reorder(&s.program, order, n);
  assert_int_equal(check(&s), TR_ERR_PLAN);
  assert_string_equal(tr_status_text(), rule);
  tr_program_destroy(&s.program);
}

static void values_that_are_not_there_are_noticed(void **state) {
  (void)state;
  expect_refusal(3, 1, "step program: operation 1 (R, micro-batch 0) computes again what no backward pass reads");
  expect_refusal(3, 2, "step program: operation 3 (B, micro-batch 0) needs values that the recompute area has lost");
  expect_refusal(3, 5, "step program: operation 3 (B, micro-batch 0) needs values that the recompute area has lost");
}

// Two forward passes, each with slots of its own, leave the second one's values.
static void the_values_of_another_micro_batch_do_not_do(void **state) {
  (void)state;
  subject s;
  uint32_t order[SR_OPS] = {0, 1, 5};
  recompute_subject(&s, 0);
  tr_program_destroy(&s.program);
  s.options.microbatches = 2;
  assert_int_equal(tr_program_build(&s.model, &s.options, &s.program), TR_OK);
  for (uint32_t i = 2; i < s.program.nop; i++) {
    tr_op *op = &s.program.op[i];
    if (op->kind <= TR_OP_R && op->microbatch == 1) op->slot_fi = op->slot_fw = 1;
    if (i != 5) order[i < 5 ? i + 1 : i] = i;
  }
  s.program.chunk[0].slots_fi = s.program.chunk[0].slots_fw = 2;
  assert_int_equal(check(&s), TR_OK);
  reorder(&s.program, order, s.program.nop);
  assert_int_equal(check(&s), TR_ERR_PLAN);
  assert_string_equal(tr_status_text(),
                      "step program: operation 3 (B, micro-batch 0) needs values that the recompute area has lost");
  tr_program_destroy(&s.program);
}

// Operation 1, the forward pass, in two parts that meet at piece `at`, with an R between them.
static void cut_forward(subject *s, uint32_t at) {
  uint32_t order[SR_OPS] = {0, 1, 3, 1}, n = 4;
  recompute_subject(s, 0);
  for (uint32_t i = 2; i < s->program.nop; i++) order[n++] = i;
  reorder(&s->program, order, n);
  s->program.op[1].piece_end = s->program.op[3].piece_begin = at;
}

static void a_forward_pass_that_is_cut_within_a_range_keeps_its_values(void **state) {
  (void)state;
  subject s;
  cut_forward(&s, 4);
  assert_int_equal(check(&s), TR_ERR_PLAN);
  assert_string_equal(tr_status_text(),
                      "step program: operation 3 (F, micro-batch 0) needs values that the recompute area has lost");
  s.program.op[2] = s.program.op[3]; // the same without the R between
  for (uint32_t i = 3; i + 1 < s.program.nop; i++) s.program.op[i] = s.program.op[i + 1];
  s.program.nop--;
  for (uint32_t e = 0; e < s.program.nedge; e++) s.program.edge[e].op -= s.program.edge[e].op > 2;
  assert_int_equal(check(&s), TR_OK);
  tr_program_destroy(&s.program);
}

static void ranges_that_do_not_ascend_are_refused(void **state) {
  (void)state;
  static const tr_step_range wrong[][2] = {{{1, 3}, {2, 5}}, {{3, 5}, {1, 3}}, {{1, 1}, {3, 5}}, {{1, 3}, {3, 7}}};
  for (int k = 0; k < 4; k++) {
    subject s;
    recompute_subject(&s, 0);
    tr_program_destroy(&s.program);
    s.options.recompute = wrong[k];
    assert_int_equal(tr_program_build(&s.model, &s.options, &s.program), TR_ERR_PLAN);
  }
}

static void plans_without_micro_batches_are_refused(void **state) {
  (void)state;
  static const int last_piece[] = {0};
  static const int64_t start[] = {0, 64};
  tr_step_model model = {.npiece = 3, .nunit = 1, .unit_last_piece = last_piece, .unit_start = start};
  tr_step_options options = {.microbatches = 0, .dp = 1};
  tr_program program;
  assert_int_equal(tr_program_build(&model, &options, &program), TR_ERR_PLAN);
}

// 33 operations per micro-batch: a sum after each part of every backward pass is too much for a thousand.
static void programs_too_long_to_be_checked_are_refused(void **state) {
  (void)state;
  static int last_piece[16];
  static int64_t start[17];
  for (int u = 0; u < 16; u++) last_piece[u] = u, start[u + 1] = start[u] + 64;
  tr_step_model model = {.npiece = 16, .nunit = 16, .unit_last_piece = last_piece, .unit_start = start};
  tr_step_options options = {.microbatches = 1500, .dp = 2};
  tr_program program;
  assert_int_equal(tr_program_build(&model, &options, &program), TR_OK);
  assert_int_equal(tr_program_check(&program, &model, &options), TR_OK);
  tr_program_destroy(&program);
  options.grad_sync = TR_SYNC_EVERY;
  assert_int_equal(tr_program_build(&model, &options, &program), TR_ERR_PLAN);
  assert_non_null(strstr(tr_status_text(), "comm.grad_sync=last or a larger comm.bucket would work"));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(built_programs_are_right_under_any_timing),
      cmocka_unit_test(buckets_hold_each_unit_once_and_fill_up),
      cmocka_unit_test(a_missing_or_repeated_operation_is_always_refused),
      cmocka_unit_test(an_operation_in_the_wrong_lane_is_always_refused),
      cmocka_unit_test(orders_that_matter_are_refused),
      cmocka_unit_test(edges_that_matter_are_refused),
      cmocka_unit_test(flags_and_fields_that_matter_are_refused),
      cmocka_unit_test(damage_that_hides_behind_a_second_order_is_refused),
      cmocka_unit_test(the_message_names_operation_and_rule),
      cmocka_unit_test(a_cycle_is_a_deadlock),
      cmocka_unit_test(the_text_form_is_stable),
      cmocka_unit_test(with_owned_parts_squares_and_weights_are_gathered),
      cmocka_unit_test(split_passes_print_as_i_and_w),
      cmocka_unit_test(values_are_computed_again_right_before_they_are_needed),
      cmocka_unit_test(a_split_pass_computes_again_for_inputs_and_for_weights),
      cmocka_unit_test(values_that_are_not_there_are_noticed),
      cmocka_unit_test(the_values_of_another_micro_batch_do_not_do),
      cmocka_unit_test(a_forward_pass_that_is_cut_within_a_range_keeps_its_values),
      cmocka_unit_test(ranges_that_do_not_ascend_are_refused),
      cmocka_unit_test(plans_without_micro_batches_are_refused),
      cmocka_unit_test(programs_too_long_to_be_checked_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
