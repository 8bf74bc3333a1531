// SPDX-License-Identifier: MIT
// tier: quick
// timeout: 300
// Proves that what is lowered from a schedule passes the checks for channels that hold nothing, something and anything, comes
// out right under any timing, keeps to the schedule's order, and takes no more slots than it must.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "step/pipeline_case.h"
#include "step/schedule_cases.h"

static void name_schedule(const tr_schedule *s, const char *what) {
  fail_msg("%s, p %d, m %d, v %d: %s", s->name, s->p, s->m, s->v, what);
}

// ---- without a model

static void check_slots(const tr_schedule *s, const tr_program *program) {
  int *peak_w = malloc(sizeof(int) * (size_t)(s->p * s->v)), *peak_i = malloc(sizeof(int) * (size_t)(s->p * s->v));
  tr_schedule_peaks(s, TR_HOLD_UNTIL_W, NULL, peak_w);
  tr_schedule_peaks(s, TR_HOLD_UNTIL_I, NULL, peak_i);
  for (int r = 0; r < s->p; r++)
    for (int c = 0; c < program[r].nchunk; c++) {
      assert_int_equal(program[r].chunk[c].slots_fw, peak_w[r * s->v + c]);
      assert_int_equal(program[r].chunk[c].slots_fi, peak_i[r * s->v + c]);
    }
  free(peak_w);
  free(peak_i);
}

static void check_tokens(const tr_schedule *s, const tr_program *program) {
  tr_text want = {0}, got = {0};
  tr_schedule_print(s, 0, &want);
  for (int r = 0; r < s->p; r++) {
    tr_program_tokens(&program[r], &got);
    tr_text_append(&got, "\n");
  }
  assert_string_equal(got.data, want.data);
  tr_text_free(&want);
  tr_text_free(&got);
}

static const char *run_whole(const tr_schedule *s, const tr_program *program, uint64_t seed) {
  static sr_job job;
  job.p = s->p;
  job.capacity = (int)seed % 3;
  for (int r = 0; r < s->p; r++) sr_set_rank(&job.rank[r], &program[r], NULL, NULL);
  return sr_run_job(&job, seed, 1 + (uint32_t)seed % 8);
}

static uint64_t nth;

static void try_whole(const tr_schedule *s) {
  tr_program program[SR_RANKS], alone;
  const tr_program *pointer[SR_RANKS];
  tr_text text = {0}, other = {0};
  if (tr_program_build_ranks(s, program) < 0) name_schedule(s, tr_status_text());
  for (int r = 0; r < s->p; r++) pointer[r] = &program[r];
  for (int capacity = -1; capacity < 2; capacity++)
    if (tr_program_check_pipeline(pointer, s->p, capacity) < 0) name_schedule(s, tr_status_text());
  check_slots(s, program);
  check_tokens(s, program);
  const char *wrong = run_whole(s, program, ++nth);
  if (wrong) name_schedule(s, wrong);
  int rank = (int)(nth % (uint64_t)s->p);
  assert_int_equal(tr_program_build_pipeline(s, rank, NULL, NULL, NULL, &alone), TR_OK);
  tr_program_print(&alone, &text);
  tr_program_print(&program[rank], &other);
  assert_string_equal(text.data, other.data);
  tr_text_free(&text);
  tr_text_free(&other);
  tr_program_destroy(&alone);
  for (int r = 0; r < s->p; r++) tr_program_destroy(&program[r]);
}

static void every_schedule_is_lowered_whole(void **state) {
  (void)state;
  assert_in_range(sc_each(try_whole), 3000, 6000);
}

// ---- with a model

static void check_case(const tr_schedule *s, const pc_case *c, int ntry) {
  for (int capacity = -1; capacity < 2; capacity++)
    if (pc_check(c, capacity) < 0) name_schedule(s, tr_status_text());
  const char *wrong = pc_judge(c, ntry, ++nth, NULL);
  if (wrong) name_schedule(s, wrong);
  check_slots(s, c->program);
  check_tokens(s, c->program);
}

// A rank's program from the walk for all is what it is alone, rings and slots included.
static void check_walk(const tr_schedule *s, const pc_case *c) {
  const int rank = (int)(nth % (uint64_t)s->p);
  const pc_part *part = &c->part[rank];
  const tr_program *want = &c->program[rank];
  tr_text text = {0}, other = {0};
  tr_program program;
  tr_walk *walk;
  assert_int_equal(tr_walk_create(s, &walk), TR_OK);
  assert_int_equal(tr_program_build_rank(walk, s->p, NULL, NULL, NULL, &program), TR_ERR_PLAN);
  for (int twice = 0; twice < 2; twice++) {
    assert_int_equal(tr_program_build_rank(walk, rank, &part->model, part->chunk_piece, &part->options, &program),
                     TR_OK);
    assert_int_equal(program.nring, want->nring);
    for (int r = 0; r < want->nring; r++) assert_int_equal(program.ring[r].slots, want->ring[r].slots);
    assert_int_equal(program.nop, want->nop);
    assert_memory_equal(program.op, want->op, want->nop * sizeof *want->op);
    tr_program_print(&program, &text);
    tr_program_print(want, &other);
    assert_string_equal(text.data, other.data);
    tr_program_destroy(&program);
  }
  tr_text_free(&text);
  tr_text_free(&other);
  tr_walk_destroy(walk);
}

static void try_random_model(const tr_schedule *s) {
  static pc_case c;
  uint64_t random = ++nth;
  pc_wish wish = pc_draw(&random);
  if (s->m > 2 * s->p + 1) return;
  if (pc_build(&c, s, &wish, &random) < 0) name_schedule(s, tr_status_text());
  check_walk(s, &c);
  check_case(s, &c, 2);
  pc_free_programs(&c);
}

static void every_schedule_is_lowered_to_pieces(void **state) {
  (void)state;
  sc_each(try_random_model);
}

static void random_pipelines_are_right_under_any_timing(void **state) {
  (void)state;
  static pc_case c;
  for (uint64_t seed = 1; seed <= 150 / THIN; seed++) {
    uint64_t random = seed;
    tr_schedule s;
    pc_draw_schedule(&random, &s);
    pc_wish wish = pc_draw(&random);
    if (pc_build(&c, &s, &wish, &random) < 0) name_schedule(&s, tr_status_text());
    check_case(&s, &c, 12);
    pc_free_programs(&c);
    tr_schedule_destroy(&s);
  }
}

// ---- rings

static const pc_wish plain = {.most_pieces = 1, .dp = 2};

static void build_plain(const char *name, int p, int m, int v, pc_case *c) {
  uint64_t random = 1;
  tr_schedule s;
  sc_build(name, p, m, v, &s);
  assert_int_equal(pc_build(c, &s, &plain, &random), TR_OK);
}

static void free_plain(pc_case *c) {
  pc_free_programs(c);
  tr_schedule_destroy(&c->schedule);
}

static int ring_slots(const tr_program *p, int stage, int role) {
  for (int k = 0; k < p->nring; k++)
    if (p->ring[k].stage == stage && p->ring[k].role == role) return p->ring[k].slots;
  return 0;
}

static void bound_rings(const tr_schedule *s) {
  static pc_case c;
  uint64_t random = 1;
  assert_int_equal(pc_build(&c, s, &plain, &random), TR_OK);
  for (int r = 0; r < s->p; r++)
    for (int k = 0; k < c.program[r].nring; k++) {
      const tr_ring *ring = &c.program[r].ring[k];
      int leaves = 0;
      for (int n = 0; n < c.program[r].nchunk; n++)
        leaves |= c.program[r].chunk[n].ring_out == k || c.program[r].chunk[n].ring_dout == k;
      assert_in_range(ring->slots, 1, s->m);
      if (leaves && ring->peer >= 0) assert_in_range(ring->slots, 1, 2);
    }
  pc_free_programs(&c);
}

static void rings_have_at_most_a_slot_per_micro_batch(void **state) {
  (void)state;
  sc_each(bound_rings);
}

// One more than the micro-batches that are alive: what the stage before can be ahead. Gradients come without limit at the end
// only, and need two beside the one that is read.
static void rings_of_1f1b(void **state) {
  (void)state;
  static pc_case c;
  for (int p = 2; p <= 8; p++) {
    const int m = 3 * p;
    build_plain("1f1b", p, m, 0, &c);
    for (int r = 1; r < p; r++) {
      assert_int_equal(ring_slots(&c.program[r], r - 1, TR_ROLE_ACTIVATION), p - r + 1);
      assert_int_equal(ring_slots(&c.program[r - 1], r - 1, TR_ROLE_DERIVATIVE), p - r < 2 ? 2 : 3);
    }
    free_plain(&c);
  }
}

// A rank that is late holds three gradients, not all.
static void rings_of_gpipe_for_gradients_are_short(void **state) {
  (void)state;
  static pc_case c;
  build_plain("gpipe", 4, 12, 0, &c);
  for (int r = 0; r < 3; r++) {
    assert_int_equal(ring_slots(&c.program[r], r, TR_ROLE_DERIVATIVE), 3);
    assert_int_equal(ring_slots(&c.program[r + 1], r, TR_ROLE_ACTIVATION), 12);
  }
  free_plain(&c);
}

// Whatever passes take, a message finds its RECV under way or free to start.
static void no_message_waits_for_a_slot(void **state) {
  (void)state;
  static const char *const name[] = {"1f1b",  "1f1b_eager", "interleaved", "interleaved_zb",
                                     "zb_h1", "zb_h2",      "zbv",         "dualpipe"};
  static pc_case c;
  for (size_t k = 0; k < sizeof name / sizeof *name; k++)
    for (int p = 2; p <= 3; p++) {
      int late = 0;
      if (p == 3 && k > 1) break; // rings for gradients are short
      build_plain(name[k], p, 12, 0, &c);
      assert_null(pc_judge(&c, 24, 1, &late));
      if (late) name_schedule(&c.schedule, "a message is late");
      free_plain(&c);
    }
}

// ---- sums

static int contributes(const pc_case *c, int r, const tr_op *op, int unit) {
  int piece = c->part[r].model.unit_chunk_piece
                  ? c->part[r].model.unit_chunk_piece[op->chunk * c->part[r].model.nunit + unit]
                  : c->part[r].last_piece[unit];
  return (op->kind == TR_OP_B || op->kind == TR_OP_W) && piece >= (int)op->piece_begin && piece < (int)op->piece_end;
}

static void check_reduce(const pc_case *c, int r, uint32_t i) {
  const tr_program *p = &c->program[r];
  uint32_t last = 0, pass = i;
  for (uint32_t k = 0; k < p->nop; k++)
    for (int u = p->op[i].unit_begin; u < p->op[i].unit_end; u++)
      if (contributes(c, r, &p->op[k], u)) last = k;
  while (p->op[pass].kind == TR_OP_REDUCE || p->op[pass].kind == TR_OP_SEND) pass--;
  assert_int_equal(pass, last);
  assert_int_equal(p->edge[p->op[i].edge_begin].op, last);
}

// No later, and no earlier than the last weight gradient that is in it, whichever chunk that comes from.
static void a_sum_follows_its_last_gradient(void **state) {
  (void)state;
  static pc_case c;
  int ntied = 0;
  for (uint64_t seed = 1; seed <= 100; seed++) {
    uint64_t random = seed;
    tr_schedule s;
    pc_draw_schedule(&random, &s);
    pc_wish wish = {.most_pieces = 3, .tied = (int)seed % 2, .dp = 2, .bucket = 64 * (int)(seed % 3)};
    assert_int_equal(pc_build(&c, &s, &wish, &random), TR_OK);
    for (int r = 0; r < s.p; r++)
      for (uint32_t i = 0; i < c.program[r].nop; i++) {
        if (!sr_sums_gradients(&c.program[r].op[i])) continue;
        check_reduce(&c, r, i);
        ntied += c.program[r].op[i].role == TR_ROLE_TIED;
      }
    pc_free_programs(&c);
    tr_schedule_destroy(&s);
  }
  assert_true(ntied > 10);
}

static void weights_are_added_in_ascending_order(void **state) {
  (void)state;
  static const char *const name[] = {"gpipe", "1f1b",           "interleaved", "zb_h1",
                                     "zb_h2", "interleaved_zb", "zbv",         "dualpipev"};
  static pc_case c;
  for (size_t k = 0; k < sizeof name / sizeof *name; k++) {
    build_plain(name[k], 4, 8, 0, &c);
    assert_true(tr_schedule_ascends(&c.schedule));
    for (int r = 0; r < 4; r++) {
      int next[SR_CHUNKS] = {0};
      for (uint32_t i = 0; i < c.program[r].nop; i++) {
        const tr_op *op = &c.program[r].op[i];
        if (op->kind != TR_OP_B && op->kind != TR_OP_W) continue;
        assert_int_equal(op->first, op->microbatch == 0);
        assert_int_equal(op->last, op->microbatch == 7);
        assert_int_equal(op->microbatch, next[op->chunk]++);
      }
    }
    free_plain(&c);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_schedule_is_lowered_whole),
      cmocka_unit_test(every_schedule_is_lowered_to_pieces),
      cmocka_unit_test(random_pipelines_are_right_under_any_timing),
      cmocka_unit_test(rings_have_at_most_a_slot_per_micro_batch),
      cmocka_unit_test(rings_of_1f1b),
      cmocka_unit_test(rings_of_gpipe_for_gradients_are_short),
      cmocka_unit_test(no_message_waits_for_a_slot),
      cmocka_unit_test(a_sum_follows_its_last_gradient),
      cmocka_unit_test(weights_are_added_in_ascending_order),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
