// SPDX-License-Identifier: MIT
// tier: quick
// Programs that are lowered with a model: cut into pieces, with rings of few slots, sums and updates, they take as long as
// their schedule; what all ranks reach together starts when the last is there; sums of gradients stand beside passes; what the
// halves of a pair exchange stands beside the other half.
#include "sim/sim_case.h"

enum { PIECES = 3, MOST_CHUNKS = 4, MOST_RANKS = 8, PIECE_TICKS = 5 };

// A rank's part: chunks of PIECES pieces, a unit each, complete at its first piece. The first and the last stage share a unit.
typedef struct part {
  int unit_last_piece[MOST_CHUNKS], chunk_piece[2 * MOST_CHUNKS], tied[1];
  int64_t unit_start[MOST_CHUNKS + 1];
  tr_step_model model;
  tr_program program;
} part;

static void make_part(const tr_schedule *s, int rank, int dp, int ties, part *out) {
  int stage[MOST_CHUNKS];
  const int n = tr_schedule_stages(s, rank, stage);
  for (int c = 0; c < n; c++) {
    out->unit_last_piece[c] = PIECES * c;
    out->chunk_piece[2 * c] = PIECES * c;
    out->chunk_piece[2 * c + 1] = PIECES * (c + 1);
    out->unit_start[c + 1] = 64 * (c + 1);
    if (ties && (stage[c] == 0 || stage[c] == s->S - 1)) out->tied[out->model.ntied++] = c;
  }
  out->model.npiece = PIECES * n;
  out->model.nunit = n;
  out->model.unit_last_piece = out->unit_last_piece;
  out->model.unit_start = out->unit_start;
  out->model.tied = out->tied;
  const tr_step_options options = {.dp = dp};
  if (tr_program_build_pipeline(s, rank, &out->model, out->chunk_piece, &options, &out->program) < 0)
    fail_msg("%s rank %d: %s", s->name, rank, tr_status_text());
}

typedef struct job {
  tr_schedule schedule;
  part part[MOST_RANKS];
  const tr_program *program[MOST_RANKS];
  int64_t reduce, update;
  int64_t waits, slower; // ticks that a sum takes rank 0 besides, of waiting; times that a piece takes rank 1
  tr_sim_result result;
} job;

static int64_t cost(void *user, int rank, uint32_t index, const tr_op *op) {
  const job *j = user;
  const int64_t piece = rank == 1 && j->slower ? j->slower * PIECE_TICKS : PIECE_TICKS;
  (void)index;
  switch ((tr_op_kind)op->kind) {
  case TR_OP_F:
  case TR_OP_I:
  case TR_OP_W: return piece * (op->piece_end - op->piece_begin);
  case TR_OP_B: return 2 * piece * (op->piece_end - op->piece_begin);
  case TR_OP_REDUCE:
    if (op->role == TR_ROLE_SQUARES) return j->reduce * (rank + 1);
    if (op->role == TR_ROLE_GRADIENT && rank == 0) return j->reduce + j->waits;
    return op->role == TR_ROLE_GRADIENT || op->role == TR_ROLE_TIED ? j->reduce : 0;
  case TR_OP_UPDATE: return j->update * (rank + 1);
  default: return 0;
  }
}

// Of a job with nothing in it but costs.
static void run_costs(const tr_schedule_spec *spec, int dp, int ties, job *j) {
  if (tr_schedule_build(spec, &j->schedule) < 0) fail_msg("%s", tr_status_text());
  for (int r = 0; r < spec->p; r++) {
    make_part(&j->schedule, r, dp, ties, &j->part[r]);
    j->program[r] = &j->part[r].program;
  }
  const tr_sim_costs costs = {.op = cost, .user = j, .latency = 2};
  if (tr_sim_run(j->program, spec->p, &costs, &j->result) < 0) fail_msg("%s: %s", spec->name, tr_status_text());
}

static void run(const tr_schedule_spec *spec, int dp, int ties, int64_t reduce, int64_t update, job *j) {
  *j = (job){.reduce = reduce, .update = update};
  run_costs(spec, dp, ties, j);
}

static void finish(job *j) {
  for (int r = 0; r < j->schedule.p; r++) tr_program_destroy(&j->part[r].program);
  tr_sim_result_destroy(&j->result);
  tr_schedule_destroy(&j->schedule);
}

// The same without a model.
static void schedule_alone(const tr_schedule *s, tr_sim_result *out) {
  static const int64_t row[1][TR_OP_KIND_COUNT] = {{[TR_OP_F] = PIECES * PIECE_TICKS,
                                                    [TR_OP_B] = -1,
                                                    [TR_OP_I] = PIECES * PIECE_TICKS,
                                                    [TR_OP_W] = PIECES * PIECE_TICKS,
                                                    [TR_OP_X] = -1}};
  const tr_sim_costs costs = {.nstage = 1, .stage = row, .latency = 2};
  assert_int_equal(tr_sim_schedule(s, &costs, out), TR_OK);
}

static const tr_schedule_spec every[] = {
    {"gpipe", 4, 6, 0, 0},       {"1f1b", 4, 8, 0, 0},  {"1f1b", 4, 2, 0, 0},      {"1f1b_eager", 4, 8, 0, 0},
    {"interleaved", 4, 8, 2, 0}, {"zb_h1", 4, 8, 0, 0}, {"zb_h2", 4, 8, 0, 0},     {"interleaved_zb", 3, 6, 2, 0},
    {"zbv", 4, 8, 0, 0},         {"1f1b", 1, 3, 0, 0},  {"looped_bfs", 2, 3, 3, 0}};
enum { EVERY = sizeof every / sizeof *every };

static void programs_take_as_long_as_their_schedule(void **state) {
  (void)state;
  static job j;
  for (int k = 0; k < EVERY; k++)
    for (int dp = 1; dp <= 2; dp++) {
      tr_sim_result alone;
      run(&every[k], dp, 0, 0, 0, &j);
      schedule_alone(&j.schedule, &alone);
      if (j.result.makespan != alone.makespan)
        fail_msg("%s dp %d: %d, not %d", every[k].name, dp, (int)j.result.makespan, (int)alone.makespan);
      assert_int_equal(j.result.messages, alone.messages);
      for (int r = 0; r < every[k].p; r++) {
        assert_int_equal(j.result.rank[r].busy, alone.rank[r].busy);
        assert_int_equal(j.result.rank[r].peak_w, alone.rank[r].peak_w);
        assert_int_equal(j.result.rank[r].peak_i, alone.rank[r].peak_i);
      }
      tr_sim_result_destroy(&alone);
      finish(&j);
    }
}

// Of map both, and in general with overlapped pairs: the two halves follow each other, so a result may come sooner.
static void pairs_are_no_slower_than_whole_ones(void **state) {
  (void)state;
  static const tr_schedule_spec spec[] = {{"dualpipe", 4, 8, 0, 0}, {"dualpipev", 4, 8, 0, 0}};
  static job j;
  for (int k = 0; k < 2; k++) {
    tr_sim_result alone;
    run(&spec[k], 2, 0, 0, 0, &j);
    schedule_alone(&j.schedule, &alone);
    assert_true(j.result.makespan <= alone.makespan && j.result.makespan > alone.makespan * 4 / 5);
    for (int r = 0; r < 4; r++) assert_int_equal(j.result.rank[r].busy, alone.rank[r].busy);
    tr_sim_result_destroy(&alone);
    finish(&j);
  }
}

static int64_t time_of(const job *j, int rank, tr_op_kind kind, tr_op_role role, int end) {
  const tr_program *program = j->program[rank];
  for (uint32_t i = 0; i < program->nop; i++)
    if (program->op[i].kind == kind && program->op[i].role == role)
      return end ? j->result.event[rank][i].end : j->result.event[rank][i].begin;
  fail_msg("rank %d has no such operation", rank);
  return -1;
}

// The norm needs all ranks' squares: nobody updates before the last rank's last sum, and what the squares' sum takes rank 0, which
// says the least.
static void ranks_meet_before_the_norm(void **state) {
  (void)state;
  static job j;
  const int64_t pass = PIECES * PIECE_TICKS, passes = 3 * pass * (8 + 3) + 2 * (6 + 2 * (7 - 2));
  run(&(tr_schedule_spec){.name = "1f1b", .p = 4, .m = 8}, 2, 0, 7, 100, &j);
  for (int r = 0; r < 4; r++) {
    assert_int_equal(time_of(&j, r, TR_OP_NORM, TR_ROLE_NONE, 0), passes + 7 + 7);
    assert_int_equal(time_of(&j, r, TR_OP_UPDATE, TR_ROLE_NONE, 1), passes + 7 + 7 + 100 * (r + 1));
  }
  assert_int_equal(j.result.makespan, passes + 7 + 7 + 400);
  // The path to the end leads over rank 0's passes and its sum to rank 3's update.
  assert_int_equal(j.result.critical[0], 3);
  int crosses = 0;
  for (uint32_t k = 0; k < j.result.ncritical; k++)
    crosses |=
        j.result.critical[2 * k] == 0 && j.program[0]->op[j.result.critical[2 * k + 1]].role == TR_ROLE_GRADIENT;
  assert_true(crosses);
  finish(&j);
}

// The first stage's tied gradients are ready last; the last stage's sum waits for them.
static void first_and_last_stage_meet(void **state) {
  (void)state;
  static job j;
  run(&(tr_schedule_spec){.name = "1f1b", .p = 4, .m = 8}, 2, 1, 7, 0, &j);
  const int64_t end = time_of(&j, 0, TR_OP_REDUCE, TR_ROLE_TIED, 1);
  assert_int_equal(time_of(&j, 3, TR_OP_REDUCE, TR_ROLE_TIED, 1), end);
  assert_true(time_of(&j, 3, TR_OP_REDUCE, TR_ROLE_TIED, 0) < time_of(&j, 0, TR_OP_REDUCE, TR_ROLE_TIED, 0));
  assert_int_equal(time_of(&j, 0, TR_OP_REDUCE, TR_ROLE_TIED, 0) + 7, end);
  assert_int_equal(
      time_of(&j, 1, TR_OP_REDUCE, TR_ROLE_GRADIENT, 1) - time_of(&j, 1, TR_OP_REDUCE, TR_ROLE_GRADIENT, 0), 7);
  finish(&j);
}

// Both copies of a stage have to be there; what the one that comes first took, waiting included, delays nobody.
static void copies_of_a_stage_meet(void **state) {
  (void)state;
  static job j;
  j = (job){.reduce = 7, .waits = 1000, .slower = 2};
  run_costs(&(tr_schedule_spec){.name = "dualpipe", .p = 2, .m = 4}, 2, 0, &j);
  int64_t last = 0, met = 0;
  uint32_t k[2] = {0, 0};
  for (;; k[0]++, k[1]++) {
    const tr_op *op[2];
    for (int r = 0; r < 2; r++) {
      while (k[r] < j.program[r]->nop && j.program[r]->op[k[r]].role != TR_ROLE_GRADIENT) k[r]++;
      op[r] = &j.program[r]->op[k[r]];
    }
    if (k[0] == j.program[0]->nop || k[1] == j.program[1]->nop) break;
    const tr_sim_event *a = &j.result.event[0][k[0]], *b = &j.result.event[1][k[1]];
    assert_int_equal(op[0]->unit_begin, op[1]->unit_begin);
    assert_int_equal(a->end, b->end);
    assert_int_equal(a->end, (a->begin > b->begin ? a->begin : b->begin) + 7);
    last = a->end;
    met++;
  }
  assert_int_equal(met, 2);
  for (int r = 0; r < 2; r++) assert_int_equal(k[r], j.program[r]->nop);
  assert_true(j.result.rank[0].busy < j.result.rank[1].busy);
  assert_int_equal(time_of(&j, 0, TR_OP_NORM, TR_ROLE_NONE, 0), last + 7); // the squares' sum takes rank 0 as long
  finish(&j);
}

// ---- pairs of passes whose middle piece exchanges

enum { MIDDLE = 1 };

typedef struct exchanging {
  part part;
  tr_schedule schedule;
  int comm_piece[2];
  int64_t exchange;
  int apart; // exchanges that no other pass stands beside
} exchanging;

static int64_t exchange_cost(void *user, int rank, uint32_t index, const tr_op *op) {
  exchanging *e = user;
  int64_t ticks = 0;
  (void)rank;
  (void)index;
  for (uint32_t i = op->piece_begin; op->kind <= TR_OP_W && i < op->piece_end; i++)
    ticks += i % PIECES != MIDDLE  ? PIECE_TICKS * (op->kind == TR_OP_B ? 2 : 1)
             : op->kind != TR_OP_W ? e->exchange
                                   : 0;
  return ticks;
}

static int64_t makespan_of(exchanging *e, int two_lanes, int64_t exchange) {
  const tr_step_options options = {.dp = 1};
  const tr_program *program = &e->part.program;
  tr_sim_costs costs = {.op = exchange_cost, .user = e};
  tr_sim_result result;
  e->exchange = exchange;
  e->part.model.comm_piece = e->comm_piece;
  e->part.model.ncomm = two_lanes ? 2 : 0;
  assert_int_equal(
      tr_program_build_pipeline(&e->schedule, 0, &e->part.model, e->part.chunk_piece, &options, &e->part.program),
      TR_OK);
  e->apart = 0;
  for (uint32_t i = 0; i < program->nop; i++)
    e->apart += program->op[i].lane == TR_LANE_COMPUTE && program->op[i].kind < TR_OP_W &&
                program->op[i].piece_end - program->op[i].piece_begin == PIECES;
  assert_int_equal(tr_sim_run(&program, 1, &costs, &result), TR_OK);
  const int64_t makespan = result.makespan;
  tr_sim_result_destroy(&result);
  tr_program_destroy(&e->part.program);
  return makespan;
}

// Of a pair, B starts; its exchange is beside the first piece of F, that of F beside the last of B.
static void exchanges_are_beside_the_other_half(void **state) {
  (void)state;
  static exchanging e = {.comm_piece = {MIDDLE, PIECES + MIDDLE}};
  enum { M = 8, PASSES = 2 * 2 * M, PAIRS = 2 * M - 3, HIDDEN = PIECE_TICKS - 1, SEEN = PIECE_TICKS + 3 };
  assert_int_equal(tr_schedule_build(&(tr_schedule_spec){.name = "dualpipev", .p = 1, .m = M}, &e.schedule), TR_OK);
  make_part(&e.schedule, 0, 1, 0, &e.part);
  tr_program_destroy(&e.part.program);
  const int64_t work = makespan_of(&e, 0, 0);
  assert_int_equal(makespan_of(&e, 0, HIDDEN), work + PASSES * HIDDEN);
  assert_int_equal(e.apart, PASSES);
  assert_int_equal(makespan_of(&e, 1, HIDDEN), work + (PASSES - 2 * PAIRS) * HIDDEN);
  assert_int_equal(e.apart, PASSES - 2 * PAIRS);
  // One after the other, 3 ticks longer than the piece beside the first: so much is seen of each pair.
  assert_int_equal(makespan_of(&e, 1, SEEN), work + (PASSES - 2 * PAIRS) * SEEN + PAIRS * 3);
  tr_schedule_destroy(&e.schedule);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(programs_take_as_long_as_their_schedule),
      cmocka_unit_test(pairs_are_no_slower_than_whole_ones),
      cmocka_unit_test(ranks_meet_before_the_norm),
      cmocka_unit_test(first_and_last_stage_meet),
      cmocka_unit_test(copies_of_a_stage_meet),
      cmocka_unit_test(exchanges_are_beside_the_other_half),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
