// SPDX-License-Identifier: MIT
// How much of the time that exchanges between two hosts take is left in a step whose passes overlap (X), against one in which they
// follow each other. Two ranks, one per host; each has the whole model of exchange_model.h, in the two stages of schedule
// dualpipev, and swaps rows with the other around its products.
//
//   exchange_overlap BYTES_PER_SECOND rest|spin STEPS     started by mpirun (hosts.sh); the rate of the link, from which work gets
//                                                         its length: half as long again as what an exchange takes. It rests, as
//                                                         if something else computed, or keeps the processor busy
//
// Four ways: the halves of pairs beside each other or not, with the link or with copies in its place, which is what the rest takes.
// What a way's pairs take is measured from the first operation of a row of pairs to the start of what follows; the fastest of STEPS
// steps counts. Prints `NAME VALUE` lines: times in seconds, and what the simulator says from what single operations took; and,
// which no clock has a say in, how many exchanges there were and how many of them were on their way when an operation of a pair began.
#include "run/exchange_model.h"
#include "run/pipeline_harness.h"
#include "trireme/sim/sim.h"

enum { SEQUENCES = 60, ROWS = SEQUENCES * RH_POSITIONS, WIDTH = 32, LAYERS = 2, MICRO = 12 };
static const double longer = 1.5; // work than an exchange
static int steps;                 // that are measured

static ex_config model_config = {.layers = LAYERS, .width = WIDTH, .hidden = WIDTH, .vocab = RH_VOCAB, .rows = ROWS};

static tr_status make_model(tr_model **out) { return ex_model(&model_config, out); }

// ---- what is measured

typedef struct way {
  const char *name;
  int two_lanes, exchange;
  double step, pairs; // seconds, the fastest
  int64_t exchanges, covered;
} way;

typedef struct meter {
  int64_t begin, pairs; // of the row of pairs under way, 0: none; ns so far in this step
  int64_t *op;          // [ops] fastest, compute operations only
  int64_t op_begin, piece_begin, exchanged, nexchange;
  int64_t *before, pair_ops, exchanges, covered; // [ops] operations of pairs that had begun when an exchange did
  const tr_model *model;
} meter;

static void op_begin(void *user, int64_t step, uint32_t index, const tr_op *op) {
  meter *m = user;
  (void)step;
  if (tr_op_queue(op) == TR_QUEUE_EXCHANGES) m->before[index] = m->pair_ops;
  if (op->lane != TR_LANE_COMPUTE) return;
  m->op_begin = tr_clock_ns();
  m->pair_ops += op->pair;
  if (op->pair && !m->begin) m->begin = m->op_begin;
  if (op->pair || !m->begin) return;
  m->pairs += m->op_begin - m->begin;
  m->begin = 0;
}

static void op_end(void *user, int64_t step, uint32_t index, const tr_op *op) {
  meter *m = user;
  (void)step;
  int64_t took = tr_clock_ns() - m->op_begin;
  if (tr_op_queue(op) == TR_QUEUE_EXCHANGES) m->exchanges++, m->covered += m->pair_ops > m->before[index];
  if (op->lane != TR_LANE_COMPUTE) return;
  if (!m->op[index] || took < m->op[index]) m->op[index] = took;
}

// Exchanges that are waited for, one after the other.
static void piece_begin(void *user, int piece, const tr_op *op, const tr_model_input *input) {
  meter *m = user;
  (void)piece;
  (void)op;
  (void)input;
  m->piece_begin = tr_clock_ns();
}

static void piece_end(void *user, int piece, const tr_op *op, const tr_model_input *input) {
  meter *m = user;
  (void)op;
  (void)input;
  if (!tr_model_piece(m->model, piece)->ops->exchanges) return;
  m->exchanged += tr_clock_ns() - m->piece_begin;
  m->nexchange++;
}

static void fastest(double *least, double seconds) {
  if (*least == 0 || seconds < *least) *least = seconds;
}

static tr_status measure_steps(ph_rank *r, meter *m, way *w) {
  for (int step = 0; step <= steps; step++) {
    tr_step_result done;
    rh_deal(&r->c->run, step, r->dp_rank, r->rows, r->input);
    TR_TRY(tr_group_barrier(tr_comm_world(r->comm)));
    m->pairs = 0;
    int64_t begin = tr_clock_ns();
    TR_TRY(tr_run_step(r->run, step, r->c->run.lr, r->input, &done));
    if (step == 0) continue; // memory and connections are new
    fastest(&w->step, (double)(tr_clock_ns() - begin) * 1e-9);
    fastest(&w->pairs, (double)m->pairs * 1e-9);
  }
  w->exchanges = m->exchanges;
  w->covered = m->covered;
  return TR_OK;
}

// ---- what the simulator says of the same program

typedef struct costs {
  const tr_model *model;
  const int64_t *op; // [ops] of compute operations, exchanges among them being copies
  int64_t exchange;
} costs;

static int64_t cost_of(void *user, int rank, uint32_t index, const tr_op *op) {
  const costs *c = user;
  int64_t sum = op->lane == TR_LANE_COMPUTE ? c->op[index] : 0;
  (void)rank;
  for (uint32_t i = op->piece_begin; op->kind <= TR_OP_B && i < op->piece_end; i++)
    if (tr_model_piece(c->model, (int)i)->ops->exchanges) sum += c->exchange;
  return sum;
}

static tr_status simulate(const ph_rank *r, costs *c, const char *name) {
  const tr_program *program = &r->program;
  const tr_sim_costs sim = {.op = cost_of, .user = c};
  tr_sim_result result;
  TR_TRY(tr_sim_run(&program, 1, &sim, &result));
  printf("%s.simulated %.6f\n", name, (double)result.makespan * 1e-9);
  tr_sim_result_destroy(&result);
  return TR_OK;
}

// ---- the ways

static tr_status open_way(const ph_case *c, tr_comm *comm, ph_rank *r, meter *m) {
  TR_TRY(ph_open(c, comm, r));
  tr_run_destroy(r->run);
  r->run = NULL;
  *m = (meter){.op = calloc(r->program.nop, sizeof *m->op),
               .before = calloc(r->program.nop, sizeof *m->before),
               .model = r->part};
  r->options.observer[r->options.nobserver++] = (tr_run_observer){
      .op_begin = op_begin, .op_end = op_end, .piece_begin = piece_begin, .piece_end = piece_end, .user = m};
  TR_TRY(tr_run_create(&r->options, &r->run));
  return tr_run_init_weights(r->run, 5);
}

// With copies first: they give the costs of operations.
static tr_status measure(const ph_case *c, tr_comm *comm, way *copies, way *linked, int64_t *exchange) {
  ph_case one = *c;
  ph_rank r;
  meter m, with;
  one.exchange = 0;
  TR_TRY(open_way(&one, comm, &r, &m));
  TR_TRY(measure_steps(&r, &m, copies));
  ph_close(&r);
  TR_TRY(open_way(c, comm, &r, &with));
  TR_TRY(measure_steps(&r, &with, linked));
  if (with.nexchange && c->one_lane) *exchange = with.exchanged / with.nexchange;
  costs k = {r.part, m.op, *exchange};
  if (tr_comm_rank(comm) == 0) TR_TRY(simulate(&r, &k, linked->name));
  ph_close(&r);
  free(m.op);
  free(m.before);
  free(with.op);
  free(with.before);
  return TR_OK;
}

static void say(const way *w) {
  printf("%s.step %.6f\n%s.pairs %.6f\n", w->name, w->step, w->name, w->pairs);
  printf("%s.exchanges %lld\n%s.covered %lld\n", w->name, (long long)w->exchanges, w->name, (long long)w->covered);
}

static tr_status rank_main(tr_comm *comm, void *user) {
  ph_case c = *(const ph_case *)user;
  way w[] = {{.name = "apart.copies"}, {.name = "apart"}, {.name = "beside.copies"}, {.name = "beside"}};
  int64_t exchange = 0;
  TR_TRY(tr_group_broadcast(tr_comm_world(comm), &model_config.amount, 1, TR_I64, 0, NULL)); // by one rank's clock
  c.one_lane = 1;
  TR_TRY(measure(&c, comm, &w[0], &w[1], &exchange));
  c.one_lane = 0;
  TR_TRY(measure(&c, comm, &w[2], &w[3], &exchange));
  if (tr_comm_rank(comm) != 0) return TR_OK;
  printf("exchange %.6f\n", (double)exchange * 1e-9);
  for (int i = 0; i < 4; i++) say(&w[i]);
  printf("exposed.step %.4f\n", (w[3].step - w[2].step) / (w[1].step - w[0].step));
  printf("exposed.pairs %.4f\n", (w[3].pairs - w[2].pairs) / (w[1].pairs - w[0].pairs));
  return TR_OK;
}

static int64_t loops_of(double seconds) {
  enum { TRY = 4000000, TRIES = 9 };
  int64_t least = INT64_MAX;
  for (int i = 0; i < TRIES; i++) {
    int64_t begin = tr_clock_ns();
    ex_spin(TRY);
    int64_t took = tr_clock_ns() - begin;
    if (took < least) least = took;
  }
  return (int64_t)(seconds * 1e9 / (double)least * TRY);
}

int main(int argc, char **argv) {
  const double rate = argc == 4 ? strtod(argv[1], NULL) : 0, seconds = longer * ROWS * WIDTH * sizeof(float) / rate;
  steps = argc == 4 ? atoi(argv[3]) : 0;
  if (!(rate > 0) || steps < 1) {
    fprintf(stderr, "usage: exchange_overlap BYTES_PER_SECOND rest|spin STEPS, started as two ranks\n");
    return 2;
  }
  ph_case c = ph_default("dualpipev", 1, 2, MICRO);
  tr_launch_options launch;
  model_config.positions = RH_POSITIONS;
  const int rests = strcmp(argv[2], "rest") == 0;
  model_config.spend = rests ? ex_rest : ex_spin;
  model_config.amount = rests ? (int64_t)(seconds * 1e9) : loops_of(seconds);
  c.exchange = 1;
  c.run.model = make_model;
  c.run.full = 1;
  c.run.sequences = 2 * MICRO * SEQUENCES;
  c.run.lr = 1e-3;
  c.run.kernels = tr_kernels_cpu();
  c.run.mode = TR_LAUNCH_PROCESSES;
  ph_launch_options(&c, &launch);
  launch.arena_nbyte = (size_t)64 << 20;
  if (tr_launch(&launch, rank_main, &c, NULL) == TR_OK) return 0;
  fprintf(stderr, "%s\n", tr_status_text());
  return 1;
}
