// SPDX-License-Identifier: MIT
// tier: quick
// Programs of pipelines as people see them: what a rank's list says, how the halves of a pair alternate, and what is said where
// a plan or a program cannot be right.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "step/pipeline_case.h"
#include "step/program_damage.h"
#include "step/schedule_cases.h"

// A part of one unit per chunk, of `npiece` pieces each.
static void make_part(pc_part *part, int nchunk, int npiece) {
  *part = (pc_part){.options = {.dp = 2}};
  for (int c = 0; c < nchunk; c++) {
    part->chunk_piece[2 * c] = c * npiece;
    part->chunk_piece[2 * c + 1] = (c + 1) * npiece;
    part->last_piece[c] = c * npiece;
    part->start[c + 1] = part->start[c] + 64;
  }
  part->model = (tr_step_model){
      .npiece = nchunk * npiece, .nunit = nchunk, .unit_last_piece = part->last_piece, .unit_start = part->start};
}

static tr_status build(const tr_schedule *s, int rank, const pc_part *part, tr_program *out) {
  return tr_program_build_pipeline(s, rank, &part->model, part->chunk_piece, &part->options, out);
}

static void expect_text(const tr_program *program, const char *want) {
  tr_text text = {0};
  tr_program_print(program, &text);
  assert_string_equal(text.data, want);
  tr_text_free(&text);
}

static void a_rank_of_1f1b(void **state) {
  (void)state;
  tr_schedule s;
  pc_part part;
  tr_program program;
  sc_build("1f1b", 2, 3, 0, &s);
  make_part(&part, 1, 2);
  assert_int_equal(build(&s, 1, &part, &program), TR_OK);
  expect_text(&program, "   0 comm    REDUCE  valid tokens\n"
                        "   1 comm    RECV    activation behind stage 0 micro-batch 0 from rank 0 slot 0\n"
                        "   2 compute F       stage 1 micro-batch 0 pieces 0..1  after 1, 0, 18 of step -1\n"
                        "   3 comm    RECV    activation behind stage 0 micro-batch 1 from rank 0 slot 1\n"
                        "   4 compute B       stage 1 micro-batch 0 pieces 1..0 overwrites gradients\n"
                        "   5 comm    SEND    gradient behind stage 0 micro-batch 0 to rank 0 slot 0  after 4\n"
                        "   6 compute F       stage 1 micro-batch 1 pieces 0..1  after 3\n"
                        "   7 comm    RECV    activation behind stage 0 micro-batch 2 from rank 0 slot 0  after 4\n"
                        "   8 compute B       stage 1 micro-batch 1 pieces 1..0\n"
                        "   9 comm    SEND    gradient behind stage 0 micro-batch 1 to rank 0 slot 1  after 8\n"
                        "  10 compute F       stage 1 micro-batch 2 pieces 0..1  after 7\n"
                        "  11 compute B       stage 1 micro-batch 2 pieces 1..0  after 5\n"
                        "  12 comm    SEND    gradient behind stage 0 micro-batch 2 to rank 0 slot 0  after 11\n"
                        "  13 comm    REDUCE  gradients bucket 0 of 1, units 0..0  after 11\n"
                        "  14 comm    REDUCE  loss  after 11\n"
                        "  15 comm    REDUCE  squares  after 13\n"
                        "  16 compute NORM      after 14, 15\n"
                        "  17 compute UPDATE  unit 0  after 16\n"
                        "  18 compute PUBLISH unit 0  after 17\n");
  tr_program_destroy(&program);
  tr_schedule_destroy(&s);
}

// ---- pairs

// Compute operations from the first of the pair to its last, with what travels below them.
static void append_pair(const tr_program *p, tr_text *out) {
  for (uint32_t i = 0; i < p->nop; i++)
    if (p->op[i].pair)
      tr_text_append(out, "%s%s%u ", p->op[i].lane == TR_LANE_COMM ? "~" : "", tr_op_name((tr_op_kind)p->op[i].kind),
                     p->op[i].piece_begin);
}

// Layers of attention 0, dispatch 1, MLP 2, combine 3, sum 4; of the other stage the same from 5 on.
static void make_layers(pc_part *part) {
  static const int comm[] = {1, 3, 6, 8};
  make_part(part, 2, 5);
  for (int i = 0; i < 4; i++) part->comm_piece[i] = comm[i];
  part->model.comm_piece = part->comm_piece;
  part->model.ncomm = 4;
}

static void halves_of_a_pair_take_turns_where_pieces_communicate(void **state) {
  (void)state;
  tr_schedule s;
  pc_part part;
  tr_program program;
  tr_text text = {0}, tokens = {0};
  sc_build("dualpipe", 2, 4, 0, &s);
  make_layers(&part);
  assert_int_equal(build(&s, 0, &part, &program), TR_OK);
  assert_int_equal(tr_program_check(&program, &part.model, &part.options), TR_OK);
  append_pair(&program, &text);
  assert_string_equal(text.data, "B4 ~B3 F5 ~F6 B2 ~B1 F7 ~F8 B0 F9 ");
  tr_program_tokens(&program, &tokens);
  assert_string_equal(tokens.data, "0F0,1F2,0F1,1B2,(1F3;0B0)OVERLAP_F_B,1B3,0I1,0W1");
  tr_text_free(&text);
  tr_text_free(&tokens);
  tr_program_destroy(&program);
  tr_schedule_destroy(&s);
}

// What travels is waited for by the next part of its own half, so the other half computes meanwhile.
static void a_part_waits_for_its_own_half_only(void **state) {
  (void)state;
  tr_schedule s;
  pc_part part;
  tr_program p;
  uint32_t last[2] = {UINT32_MAX, UINT32_MAX};
  sc_build("dualpipe", 2, 4, 0, &s);
  make_layers(&part);
  assert_int_equal(build(&s, 0, &part, &p), TR_OK);
  for (uint32_t i = 0; i < p.nop; i++) {
    if (!p.op[i].pair) continue;
    int side = p.op[i].kind == TR_OP_F;
    if (last[side] != UINT32_MAX) {
      assert_int_equal(p.op[i].edge_end - p.op[i].edge_begin, 1);
      assert_int_equal(p.edge[p.op[i].edge_begin].op, last[side]);
    }
    last[side] = i;
  }
  tr_program_destroy(&p);
  tr_schedule_destroy(&s);
}

// There is one recompute area, and it is the forward half's.
static void a_pair_that_computes_again_does_not_take_turns(void **state) {
  (void)state;
  tr_schedule s;
  pc_part part;
  tr_program program;
  tr_text text = {0};
  sc_build("dualpipe", 2, 4, 0, &s);
  make_layers(&part);
  part.range[0] = (tr_step_range){1, 3};
  part.options.nrecompute = 1;
  part.options.recompute = part.range;
  assert_int_equal(build(&s, 0, &part, &program), TR_OK);
  append_pair(&program, &text);
  assert_string_equal(text.data, "F5 B3 B0 ");
  tr_text_free(&text);
  tr_program_destroy(&program);
  tr_schedule_destroy(&s);
}

// ---- what cannot be right

static void refuse(const char *name, int p, int m, int rank, pc_part *part, const char *why) {
  tr_schedule s;
  tr_program program;
  sc_build(name, p, m, 0, &s);
  assert_int_equal(build(&s, rank, part, &program), TR_ERR_PLAN);
  assert_string_equal(tr_status_text(), why);
  tr_schedule_destroy(&s);
}

static void plans_that_make_no_program_are_refused(void **state) {
  (void)state;
  pc_part part;
  make_part(&part, 1, 2);
  refuse("1f1b", 2, 4, 2, &part, "rank 2 is not of a pipeline of 2 ranks");
  part.options.grad_sync = TR_SYNC_EVERY;
  refuse("1f1b", 2, 4, 0, &part,
         "gradients of a pipeline cannot be summed after every micro-batch, several of which are under way: "
         "comm.grad_sync=last would work");
  make_part(&part, 1, 2);
  part.chunk_piece[1] = 3;
  refuse("1f1b", 2, 4, 0, &part, "stage 0 on rank 0 has pieces 0 to 2 of 2: chunks ascend and hold pieces");
  make_part(&part, 2, 2);
  part.range[0] = (tr_step_range){1, 3};
  part.options.nrecompute = 1;
  part.options.recompute = part.range;
  refuse("zbv", 2, 4, 0, &part, "recomputation 0 covers pieces 1 to 2, which are not of one stage");
}

static void refuse_list(const char *list, pc_part *part, const char *why) {
  tr_schedule s;
  tr_program program;
  if (tr_schedule_parse("custom", list, &s) < 0) fail_msg("%s", tr_status_text());
  assert_int_equal(build(&s, 0, part, &program), TR_ERR_PLAN);
  assert_string_equal(tr_status_text(), why);
  tr_schedule_destroy(&s);
}

static void orders_for_which_no_flag_is_right_are_refused(void **state) {
  (void)state;
  static const int chunk_piece[] = {0, 2}; // a unit of both chunks
  pc_part part;
  make_part(&part, 1, 2);
  refuse_list("0F0,0F1,0I0,0B1,0W0\n", &part,
              "stage 0: B of micro-batch 1 comes between I and W of the first one, so it would both begin and add to "
              "gradients; an earlier W, or I and W in its place would work");
  make_part(&part, 2, 2);
  part.model.nunit = 1;
  part.model.unit_chunk_piece = chunk_piece;
  refuse_list("# trireme schedule 1, name custom, p 1, S 2, m 1, map loop, B full\n0F0,1F0,1I0,0I0,0W0,1W0\n", &part,
              "stages 0 and 1 on rank 0 share unit 0: the first backward pass of stage 1 must come before that of "
              "stage 0");
}

// ---- what the checks say

static void build_both(const char *name, int m, tr_schedule *s, tr_program program[2]) {
  sc_build(name, 2, m, 0, s);
  assert_int_equal(tr_program_build_ranks(s, program), TR_OK);
}

static void refuse_pair(const tr_schedule *s, tr_program program[2], const char *why) {
  const tr_program *pointer[] = {&program[0], &program[1]};
  assert_int_equal(tr_program_check_pipeline(pointer, s->p, 0), TR_ERR_PLAN);
  assert_string_equal(tr_status_text(), why);
}

static void free_both(tr_schedule *s, tr_program program[2]) {
  for (int r = 0; r < 2; r++) tr_program_destroy(&program[r]);
  tr_schedule_destroy(s);
}

// Both ranks' first operations wait for what only comes later.
static void a_deadlock_names_every_rank_and_what_it_waits_for(void **state) {
  (void)state;
  tr_schedule s;
  tr_program program[2];
  build_both("gpipe", 2, &s, program);
  tr_program *p = &program[1]; // RECV 0 waits for the B that needs its own message
  for (uint32_t i = 0; i < p->nop; i++)
    if (p->op[i].kind == TR_OP_SEND && p->op[i].microbatch == 0) {
      p->op[0].edge_begin = p->op[i].edge_begin;
      p->op[0].edge_end = p->op[i].edge_end;
    }
  refuse_pair(
      &s, program,
      "step program: deadlock with channels that hold 0 messages"
      "; rank 0 at operation 5 (B of stage 0, micro-batch 0) waits for 4 (RECV of stage 0, micro-batch 0, rank 1)"
      "; rank 1 at operation 1 (F of stage 1, micro-batch 0) waits for 0 (RECV of stage 0, micro-batch 0, rank 0)");
  free_both(&s, program);
}

static void channels_that_differ_are_named(void **state) {
  (void)state;
  tr_schedule s;
  tr_program program[2];
  const tr_program *turned[] = {&program[1], &program[0]};
  build_both("1f1b", 3, &s, program);
  assert_int_equal(tr_program_check_pipeline(turned, 2, 0), TR_ERR_PLAN);
  assert_string_equal(tr_status_text(), "step program: rank 1 of 2 stands in the place of rank 0 of 2");
  tr_op *p = program[0].op; // F 0, SEND 0, F 1, SEND 1: the messages change places
  uint32_t order[PD_OPS];
  for (uint32_t i = 0; i < program[0].nop; i++) order[i] = i;
  order[0] = 2, order[1] = 3, order[2] = 0, order[3] = 1;
  assert_int_equal(p[1].kind, TR_OP_SEND);
  assert_int_equal(p[3].kind, TR_OP_SEND);
  reorder(&program[0], order, program[0].nop);
  refuse_pair(&s, program,
              "step program: rank 0, operation 1 sends micro-batch 1 of stage 0, where rank 1, operation 0 receives "
              "micro-batch 0 of stage 0");
  free_both(&s, program);
}

static void a_slot_that_is_still_read_is_named(void **state) {
  (void)state;
  tr_schedule s;
  tr_program program;
  pc_part part;
  sc_build("1f1b", 2, 3, 0, &s);
  make_part(&part, 1, 2);
  assert_int_equal(build(&s, 1, &part, &program), TR_OK);
  program.op[7].edge_end = program.op[7].edge_begin; // see a_rank_of_1f1b
  assert_int_equal(tr_program_check(&program, &part.model, &part.options), TR_ERR_PLAN);
  assert_string_equal(tr_status_text(), "step program: rank 1, operation 7 (RECV, stage 0, micro-batch 2) overwrites "
                                        "what this rank still reads");
  tr_program_destroy(&program);
  tr_schedule_destroy(&s);
}

// A unit that the first and the last stage share has a sum of its own, over both.
static void a_tied_unit_is_summed_over_both_ranks(void **state) {
  (void)state;
  tr_schedule s;
  tr_program program;
  pc_part part;
  tr_text text = {0};
  sc_build("1f1b", 2, 2, 0, &s);
  make_part(&part, 1, 3);
  part.model.nunit = 2;
  part.last_piece[1] = 2;
  part.start[2] = 128;
  part.tied[0] = 1;
  part.model.tied = part.tied;
  part.model.ntied = 1;
  part.options.bucket_elements = 1 << 20;
  assert_int_equal(build(&s, 1, &part, &program), TR_OK);
  assert_int_equal(tr_program_check(&program, &part.model, &part.options), TR_OK);
  tr_program_print(&program, &text);
  assert_non_null(strstr(text.data, "   7 compute B       stage 1 micro-batch 1 pieces 2..2\n"
                                    "   8 comm    REDUCE  tied gradients bucket 0 of 2, units 1..1  after 7\n"
                                    "   9 compute B       stage 1 micro-batch 1 pieces 1..0\n"));
  tr_text_free(&text);
  tr_program_destroy(&program);
  tr_schedule_destroy(&s);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_rank_of_1f1b),
      cmocka_unit_test(halves_of_a_pair_take_turns_where_pieces_communicate),
      cmocka_unit_test(a_part_waits_for_its_own_half_only),
      cmocka_unit_test(a_pair_that_computes_again_does_not_take_turns),
      cmocka_unit_test(plans_that_make_no_program_are_refused),
      cmocka_unit_test(orders_for_which_no_flag_is_right_are_refused),
      cmocka_unit_test(a_deadlock_names_every_rank_and_what_it_waits_for),
      cmocka_unit_test(channels_that_differ_are_named),
      cmocka_unit_test(a_slot_that_is_still_read_is_named),
      cmocka_unit_test(a_tied_unit_is_summed_over_both_ranks),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
