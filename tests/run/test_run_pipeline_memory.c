// SPDX-License-Identifier: MIT
// tier: quick
// timeout: 120
// Proves that a rank of a pipeline takes exactly the memory that was predicted; that as many micro-batches are alive at once as
// the schedule says, and have as many slots; and that evaluation through a pipeline gives each sequence the loss that one rank
// gives it, on all ranks, for any number of inputs, between steps.
#include "run/pipeline_cases.h"
#include "run/run_internal.h"

static void launch(const ph_case *c, tr_status (*main)(tr_comm *, void *)) {
  tr_launch_options options;
  ph_launch_options(c, &options);
  assert_true(rh_works(tr_launch(&options, main, (void *)(uintptr_t)c, NULL)));
}

// ---- memory

static void check_sums(const ph_rank *r, const tr_run_memory *need) {
  size_t rings = 0, width = tr_dtype_size(r->options.type);
  for (int i = 0; i < r->program.nring; i++) // of one width in these models
    rings += (size_t)r->program.ring[i].slots * (size_t)r->options.rows * 12 * width;
  assert_true(need->rings >= rings);
  if (r->c->stage_wire == TR_F32) assert_true(need->rings <= rings + 2 * TR_ARENA_ALIGN * 64);
  assert_true(r->c->p > 1 || r->program.nchunk > 1 || need->rings == 0);
}

static tr_status predicted_main(tr_comm *comm, void *user) {
  const ph_case *c = user;
  ph_rank r;
  tr_run_memory need;
  tr_step_result done;
  size_t before = tr_arena_mark(tr_comm_arena(comm));
  TR_TRY(ph_open(c, comm, &r));
  TR_TRY(tr_run_memory_predict(&r.options, c->run.nthread, r.step.dp, r.step.dp, &need));
  assert_int_equal(r.run->memory.used, need.private_total);
  int index, count;
  tr_run_sharers(r.run, &index, &count);
  assert_int_equal(tr_comm_arena(comm)->used - before, need.shared_total + (index == 0 ? need.host_total : 0));
  assert_int_equal(need.host_total > 0, c->run.zero && r.step.dp > 1);
  check_sums(&r, &need);
  rh_deal(&c->run, 0, r.dp_rank, r.rows, r.input);
  TR_TRY(tr_run_step(r.run, 0, c->run.lr, r.input, &done));
  assert_int_equal(r.run->scratch.used, 0);
  ph_close(&r);
  assert_int_equal(tr_arena_mark(tr_comm_arena(comm)), before);
  return TR_OK;
}

static void ranks_take_what_was_predicted(void **state) {
  (void)state;
  for (int i = 0; pl_schedule[i].name; i++)
    for (int k = 0; k < 4; k++) {
      ph_case c = ph_default(pl_schedule[i].name, 2, 1 + k % 2, 0);
      if (!pl_numbers(&pl_schedule[i], 2, 0, &c)) continue;
      c.run.type = k == 3 ? TR_BF16 : TR_F32;
      c.run.zero = k % 2;
      c.run.recompute = (tr_recompute)(k % 3);
      c.run.optim.kind = TR_OPTIM_ADAMW;
      c.stage_wire = k == 2 ? TR_BF16 : TR_F32;
      c.cut = (ph_cut)(k % 3);
      launch(&c, predicted_main);
    }
}

// ---- what is alive

typedef struct alive {
  const ph_rank *rank;
  int now[4][2], peak[4][2]; // [chunks] of F-I, F-W
} alive;

static void count(alive *a, const tr_op *op, int class, int by) {
  int *now = &a->now[op->chunk][class], *peak = &a->peak[op->chunk][class];
  *now += by;
  if (*now > *peak) *peak = *now;
}

static void begins(void *user, int64_t step, uint32_t index, const tr_op *op) {
  alive *a = user;
  (void)step;
  (void)index;
  if (op->kind != TR_OP_F || op->piece_begin > a->rank->program.chunk[op->chunk].piece_begin) return;
  count(a, op, 0, 1);
  count(a, op, 1, 1);
}

static void ends(void *user, int64_t step, uint32_t index, const tr_op *op) {
  alive *a = user;
  (void)step;
  (void)index;
  if (op->kind != TR_OP_B && op->kind != TR_OP_I && op->kind != TR_OP_W) return;
  if (op->piece_begin > a->rank->program.chunk[op->chunk].piece_begin) return;
  if (op->kind != TR_OP_W) count(a, op, 0, -1);
  if (op->kind != TR_OP_I) count(a, op, 1, -1);
}

static tr_status alive_main(tr_comm *comm, void *user) {
  const ph_case *c = user;
  ph_rank r;
  alive a = {.rank = &r};
  tr_step_result done;
  int peak[2][PH_STAGES];
  TR_TRY(ph_open(c, comm, &r));
  tr_run_destroy(r.run);
  r.options.observer[r.options.nobserver++] = (tr_run_observer){.op_begin = begins, .op_end = ends, .user = &a};
  TR_TRY(tr_run_create(&r.options, &r.run));
  TR_TRY(tr_run_init_weights(r.run, 5));
  for (int step = 0; step < 2; step++) {
    rh_deal(&c->run, step, r.dp_rank, r.rows, r.input);
    TR_TRY(tr_run_step(r.run, step, c->run.lr, r.input, &done));
  }
  tr_schedule_peaks(&r.schedule, TR_HOLD_UNTIL_I, NULL, peak[0]);
  tr_schedule_peaks(&r.schedule, TR_HOLD_UNTIL_W, NULL, peak[1]);
  for (int i = 0; i < r.program.nchunk; i++) {
    const int at = r.pp_rank * r.schedule.v + i;
    const int slots[] = {r.program.chunk[i].slots_fi, r.program.chunk[i].slots_fw};
    for (int class = 0; class < 2; class ++)
      if (a.peak[i][class] != peak[class][at] || slots[class] != peak[class][at])
        fail_msg("%s, rank %d, chunk %d: %d alive at once, %d slots, the schedule says %d", c->schedule, r.pp_rank, i,
                 a.peak[i][class], slots[class], peak[class][at]);
  }
  ph_close(&r);
  return TR_OK;
}

static void as_many_are_alive_as_the_schedule_says(void **state) {
  (void)state;
  for (int i = 0; pl_schedule[i].name; i++)
    for (int p = 2; p <= 4; p += 2) {
      ph_case c = ph_default(pl_schedule[i].name, p, 1, 0);
      if (pl_numbers(&pl_schedule[i], p, p == 4, &c)) launch(&c, alive_main);
    }
}

// ---- evaluation

enum { INPUTS = 7, SEQUENCES = INPUTS * 2 };

static void fill_inputs(const ph_case *c, rh_rows *rows, tr_model_input *input) {
  for (int i = 0; i < INPUTS; i++) {
    rh_fill(&c->run, 3, 2 * i, 2 * i + (i % 3 ? 2 : 1), &rows[i]); // some have one sequence only
    input[i] = rows[i].input;
  }
}

typedef struct evaluated {
  const ph_case *c;
  double (*loss)[SEQUENCES + 1]; // [ranks] and how many there are
} evaluated;

static tr_status evaluate_main(tr_comm *comm, void *user) {
  const evaluated *e = user;
  const ph_case *c = e->c;
  ph_rank r;
  tr_step_result done;
  double *loss = e->loss[tr_comm_rank(comm)], again[SEQUENCES];
  tr_model_input input[INPUTS];
  TR_TRY(ph_open(c, comm, &r));
  rh_rows *rows = calloc(INPUTS, sizeof *rows);
  fill_inputs(c, rows, input);
  for (int step = 0; step < 2; step++) {
    rh_deal(&c->run, step, r.dp_rank, r.rows, r.input);
    TR_TRY(tr_run_step(r.run, step, c->run.lr, r.input, &done));
    TR_TRY(tr_run_eval_all(r.run, input, INPUTS, loss));
  }
  int at = 0;
  for (int i = 0; i < INPUTS; i++) { // one by one
    TR_TRY(tr_run_eval(r.run, &input[i], again));
    for (int s = 0; s < input[i].nseq; s++) assert_true(again[s] == loss[at++]);
  }
  loss[SEQUENCES] = at;
  free(rows);
  ph_close(&r);
  return TR_OK;
}

static void one_rank_evaluates(const ph_case *c, double *loss) {
  rh_rank r;
  tr_step_result done;
  tr_model_input input[INPUTS];
  rh_rows *rows = calloc(INPUTS, sizeof *rows);
  assert_true(rh_works(rh_open(&c->run, NULL, &r)));
  fill_inputs(c, rows, input);
  for (int step = 0; step < 2; step++) {
    rh_deal(&c->run, step, 0, r.rows, r.input);
    assert_true(rh_works(tr_run_step(r.run, step, c->run.lr, r.input, &done)));
  }
  assert_true(rh_works(tr_run_eval_all(r.run, input, INPUTS, loss)));
  free(rows);
  rh_close(&r);
}

static void evaluation_gives_the_losses_of_one_rank(void **state) {
  (void)state;
  for (int i = 0; pl_schedule[i].name; i++)
    for (int p = 1; p <= 4; p++) {
      ph_case c = ph_default(pl_schedule[i].name, p, 1, 0);
      double want[SEQUENCES], got[RH_RANKS][SEQUENCES + 1];
      if (!pl_numbers(&pl_schedule[i], p, 0, &c)) continue;
      evaluated e = {&c, got};
      tr_launch_options options;
      c.run.tied = 0;
      c.run.dropout = 0.2; // evaluation has none
      ph_launch_options(&c, &options);
      assert_true(rh_works(tr_launch(&options, evaluate_main, &e, NULL)));
      one_rank_evaluates(&c, want);
      int n = (int)got[0][SEQUENCES];
      assert_true(n > INPUTS && n < SEQUENCES && want[0] > 0);
      for (int rank = 0; rank < p; rank++) {
        if (pl_schedule[i].ascends) assert_memory_equal(got[rank], want, (size_t)n * sizeof *want);
        assert_memory_equal(got[rank], got[0], (size_t)n * sizeof *want);
        for (int s = 0; s < n; s++) assert_true(fabs(got[rank][s] - want[s]) < 1e-4);
      }
    }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(ranks_take_what_was_predicted),
      cmocka_unit_test(as_many_are_alive_as_the_schedule_says),
      cmocka_unit_test(evaluation_gives_the_losses_of_one_rank),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
