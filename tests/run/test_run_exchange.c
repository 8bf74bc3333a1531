// SPDX-License-Identifier: MIT
// tier: full
// timeout: 240
// Proves that pieces which exchange with other ranks do so beside the other half of an overlapped pair (X), and that this changes no
// bit: neither against F, then B, nor against ranks that exchange nothing, whatever sleeps, as threads and as processes. That the
// halves have temporaries of their own, as was predicted, also where only one of them exchanges; that who is late in an exchange is
// named; and that a program which exchanges what does not is refused.
#include "run/exchange_model.h"
#include "run/pipeline_cases.h"
#include "thread_sanitizer.h"
#include <stdatomic.h>
#include <unistd.h>

enum { ROWS = 2 * RH_POSITIONS };

static tr_status exchanging(tr_model **out) {
  const ex_config c = {
      .layers = 6, .width = 12, .hidden = 20, .vocab = RH_VOCAB, .positions = RH_POSITIONS, .rows = ROWS};
  return ex_model(&c, out);
}

static ph_case case_of(const char *schedule, int p, int m) {
  ph_case c = ph_default(schedule, p, 2, m);
  c.exchange = 1;
  c.run.model = exchanging;
  c.run.full = 1;
  c.run.sequences = 2 * 2 * m;
  c.run.tied = 0;
  c.run.steps = 3;
  return c;
}

static const struct {
  const char *name;
  int p, m;
} plan[] = {{"dualpipev", 1, 4}, {"dualpipev", 2, 6}, {"dualpipev", 3, 7},
            {"dualpipe", 2, 6},  {"dualpipe", 4, 8},  {"1f1b", 3, 5}};
enum { PLANS = sizeof plan / sizeof *plan, PAIRED = PLANS - 1 };

static ph_case plan_of(int i) {
  ph_case c = case_of(plan[i].name, plan[i].p, plan[i].m);
  c.cut = (ph_cut)(i % 3);
  return c;
}

// ---- bits

static void swaps_change_no_bit(void **state) {
  (void)state;
  for (int i = 0; i < PLANS; i++) {
    ph_case c = plan_of(i);
    pl_check(&c);
    c.run.zero = 1;
    c.run.optim.kind = TR_OPTIM_ADAMW;
    c.run.clip = 0.5;
    pl_check(&c);
  }
}

static void two_lanes_give_the_bits_of_one(void **state) {
  (void)state;
  for (int i = 0; i < PAIRED; i++)
    for (int mode = 0; mode < 2; mode++) {
      ph_case two = plan_of(i), one;
      two.run.mode = mode && !THREAD_SANITIZER ? TR_LAUNCH_PROCESSES : TR_LAUNCH_THREADS;
      two.run.type = i % 2 ? TR_BF16 : TR_F32;
      one = two;
      one.one_lane = 1;
      one.run.mode = TR_LAUNCH_THREADS;
      pl_same_run(&two, &one);
      two.sleeps = 1;
      pl_same_run(&two, &one);
    }
}

// ---- what is beside what

static _Atomic int exchanges, beside;
static _Thread_local int open_exchanges;

static void count_begin(void *user, int64_t step, uint32_t index, const tr_op *op) {
  (void)user;
  (void)step;
  (void)index;
  if (tr_op_queue(op) == TR_QUEUE_EXCHANGES) {
    exchanges++;
    open_exchanges++;
  }
  if (op->lane == TR_LANE_COMPUTE && op->pair && open_exchanges) beside++;
}

static void count_end(void *user, int64_t step, uint32_t index, const tr_op *op) {
  (void)user;
  (void)step;
  (void)index;
  open_exchanges -= tr_op_queue(op) == TR_QUEUE_EXCHANGES;
}

static void count_beside(tr_comm *comm, tr_run_observer *out) {
  (void)comm;
  *out = (tr_run_observer){.op_begin = count_begin, .op_end = count_end};
}

// Ranks never are at the same place at the same time for long: some parts must run while something is on its way.
static void halves_compute_while_the_other_exchanges(void **state) {
  (void)state;
  ph_case c = plan_of(0);
  c.observe = count_beside;
  c.sleeps = 1;
  c.run.steps = 10;
  ph_free(ph_run(&c));
  assert_true(exchanges > 0 && beside > 0);
  exchanges = 0;
  c.one_lane = 1;
  ph_free(ph_run(&c));
  assert_int_equal(exchanges, 0);
}

// ---- memory

typedef struct room {
  ph_case c;
  size_t temporaries[2]; // one lane, two
} room;

static tr_status room_main(tr_comm *comm, void *user) {
  room *m = user;
  ph_rank r;
  tr_run_memory need;
  size_t before = tr_arena_mark(tr_comm_arena(comm));
  TR_TRY(ph_open(&m->c, comm, &r));
  TR_TRY(tr_run_memory_predict(&r.options, 1, r.step.dp, r.step.dp, &need));
  assert_int_equal(tr_comm_arena(comm)->used - before, need.shared_total);
  if (r.pp_rank == 0 && r.dp_rank == 0) m->temporaries[!m->c.one_lane] = need.temporaries;
  ph_close(&r);
  return TR_OK;
}

static void check_room(const ph_case *c) {
  room m = {.c = *c};
  for (int one = 0; one < 2; one++) {
    tr_launch_options launch;
    m.c.one_lane = one;
    ph_launch_options(&m.c, &launch);
    assert_true(rh_works(tr_launch(&launch, room_main, &m, NULL)));
  }
  assert_true(m.temporaries[0] > 0);
  assert_int_equal(m.temporaries[1], 2 * m.temporaries[0]);
}

// The only pair is a forward pass of the embedding beside a backward pass of all layers.
static ph_case one_sided(void) {
  ph_case c = case_of("one_sided", 1, 2);
  c.tokens = "# trireme schedule 1, name one_sided, p 1, S 2, m 2, map loop, B full\n"
             "0F0,1F0,(0F1;1B0)OVERLAP_F_B,0B0,1F1,1B1,0B1\n";
  c.v = 2;
  c.cut = PH_HEAVY_END;
  return c;
}

static void halves_have_temporaries_of_their_own(void **state) {
  (void)state;
  for (int i = 0; i < PAIRED; i++) {
    ph_case c = plan_of(i);
    check_room(&c);
  }
  ph_case c = one_sided(), one = c;
  check_room(&c);
  one.one_lane = 1;
  pl_same_run(&c, &one);
  c.sleeps = 1;
  pl_same_run(&c, &one);
}

// ---- errors

typedef struct late {
  ph_case c;
  int culprit;
} late;

static void hang(void *user, int64_t step, uint32_t index, const tr_op *op) {
  (void)user;
  (void)index;
  while (step == 1 && tr_op_queue(op) == TR_QUEUE_EXCHANGES) pause();
}

static tr_status late_main(tr_comm *comm, void *user) {
  const late *l = user;
  ph_rank r;
  tr_step_result done;
  TR_TRY(ph_open(&l->c, comm, &r));
  tr_run_destroy(r.run);
  if (tr_comm_rank(comm) == l->culprit)
    r.options.observer[r.options.nobserver++] = (tr_run_observer){.op_begin = hang};
  TR_TRY(tr_run_create(&r.options, &r.run));
  tr_status status = tr_run_init_weights(r.run, 5);
  for (int step = 0; step < 3 && status == TR_OK; step++) {
    rh_deal(&l->c.run, step, r.dp_rank, r.rows, r.input);
    status = tr_run_step(r.run, step, l->c.run.lr, r.input, &done);
  }
  ph_close(&r);
  return status;
}

static void who_is_late_in_an_exchange_is_named(void **state) {
  (void)state;
  if (THREAD_SANITIZER) skip(); // which has a thread, so that ranks cannot be forked
  late l = {.c = case_of("dualpipe", 2, 6), .culprit = 1};
  tr_launch_options launch;
  tr_launch_report report;
  l.c.run.mode = TR_LAUNCH_PROCESSES;
  ph_launch_options(&l.c, &launch);
  launch.deadline = 2;
  assert_int_equal(tr_launch(&launch, late_main, &l, &report), TR_ERR_TIMEOUT);
  assert_int_equal(report.culprit, l.culprit);
}

static tr_status refused_main(tr_comm *comm, void *user) {
  const ph_case *c = user;
  ph_rank r;
  tr_run *run;
  TR_TRY(ph_open(c, comm, &r));
  for (uint32_t i = 0; i < r.program.nop; i++)
    if (tr_op_queue(&r.program.op[i]) == TR_QUEUE_EXCHANGES)
      r.program.op[i].piece_begin--, r.program.op[i].piece_end--;
  assert_int_equal(tr_run_create(&r.options, &run), TR_ERR_PLAN);
  assert_non_null(strstr(tr_status_text(), "which exchanges nothing"));
  ph_close(&r);
  return TR_OK;
}

static void what_exchanges_nothing_is_no_exchange(void **state) {
  (void)state;
  ph_case c = plan_of(0);
  tr_launch_options launch;
  ph_launch_options(&c, &launch);
  assert_true(rh_works(tr_launch(&launch, refused_main, &c, NULL)));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(swaps_change_no_bit),
      cmocka_unit_test(two_lanes_give_the_bits_of_one),
      cmocka_unit_test(halves_compute_while_the_other_exchanges),
      cmocka_unit_test(halves_have_temporaries_of_their_own),
      cmocka_unit_test(who_is_late_in_an_exchange_is_named),
      cmocka_unit_test(what_exchanges_nothing_is_no_exchange),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
