// SPDX-License-Identifier: MIT
// The time of a step program (runtime.h): each operation at the price of its pieces or of its state, through the simulator where ranks
// wait for each other.
//
// On one host sums over ranks are the ranks' own work, done between pieces, so they add to the step ("step"); nothing hides them. Pieces
// that exchange take what their values take over the host's links: in a pair beside the other pass, elsewhere waited for.
#include "plan/plan_internal.h"
#include "plan/runtime_internal.h"
#include "trireme/plan/runtime.h"
#include "trireme/sim/sim.h"
#include <math.h>
#include <stdlib.h>

// Of one place in the pipeline.
typedef struct place {
  double *piece[TR_KERNEL_PASSES]; // [pieces] seconds
  double *exchange;                // [pieces] seconds of one exchange; 0: the piece computes
  tr_value_plan values;            // of which it needs what runs again
  double term[TR_TERM_COUNT];      // of its compute lane
} place;

typedef struct timing {
  const tr_runtime_plan *p;
  const tr_kernel_rates *rates;
  const tr_cluster *cluster;
  place *place;            // [pp]
  int messages, exchanges; // they take time
  int exchanging;          // there are such
} timing;

// ---- prices

static tr_status price(const timing *t, const char *kind, tr_kernel_pass pass, const tr_kernel_work *work,
                       double *out) {
  const tr_runtime_plan *p = t->p;
  *out = tr_kernel_rates_seconds(t->rates, kind, pass, p->type, p->ranks, p->threads, work);
  if (*out >= 0) return TR_OK;
  return tr_error(TR_ERR_PLAN,
                  "kernels of kind '%.40s' (%s, %s, %d rank%s x %d thread%s) were not measured on this machine; "
                  "trireme bench step --write does, with one thread per rank and with all cores for one rank",
                  kind, tr_kernel_pass_name(pass), tr_dtype_name(p->type), p->ranks, p->ranks == 1 ? "" : "s",
                  p->threads, p->threads == 1 ? "" : "s");
}

// Every rank gives away what the others are to have of its rows, as if dealt out evenly.
static double exchange_seconds(const timing *t, const tr_piece *piece, const tr_model *model) {
  const tr_runtime_plan *p = t->p;
  const double width = (double)tr_model_value(model, piece->out[0].value)->width;
  const tr__links host = {.ranks = p->dp, .near = p->dp, .ring_slow = 1, .swap_slow = 1};
  return tr__gather(t->cluster, host, (double)p->rows * width * (double)tr_dtype_size(p->type)).seconds;
}

static tr_status price_pieces(timing *t, const tr_runtime_part *part, place *out) {
  const size_t n = (size_t)tr_model_pieces(part->model);
  out->exchange = calloc(n + 1, sizeof *out->exchange);
  if (!out->exchange) return tr_error(TR_ERR_MEMORY, "no memory for the times of %zu pieces", n);
  for (int pass = 0; pass < TR_KERNEL_PASSES; pass++) {
    out->piece[pass] = calloc(n + 1, sizeof *out->piece[pass]);
    if (!out->piece[pass]) return tr_error(TR_ERR_MEMORY, "no memory for the times of %zu pieces", n);
    for (int i = 0; i < (int)n; i++) {
      const tr_piece *piece = tr_model_piece(part->model, i);
      if (piece->ops->exchanges) {
        out->exchange[i] = exchange_seconds(t, piece, part->model);
        t->exchanging = 1;
        continue;
      }
      const tr_kernel_work work = tr_piece_work(part->model, i, t->p->type, t->p->rows, t->p->sequence);
      TR_TRY(price(t, piece->ops->kind ? piece->ops->kind : piece->name, (tr_kernel_pass)pass, &work,
                   &out->piece[pass][i]));
    }
  }
  const tr_value_options options = {
      .type = t->p->type, .rows = t->p->rows, .whole = 1, .recompute = (int)t->p->recompute};
  return tr_value_plan_make(part->model, &options, &out->values);
}

// ---- operations

// Halves of a backward pass that is split: as much for weights as for inputs, where a piece has a function of its own for each.
static double backward_share(const tr_piece *piece, int kind) {
  if (kind == TR_OP_B) return 1;
  if (!piece->ops->backward_weight) return kind == TR_OP_I;
  if (!piece->ops->backward_input) return kind == TR_OP_W;
  return 0.5;
}

static double pass_seconds(const timing *t, int rank, const tr_op *op) {
  const place *l = &t->place[rank];
  const tr_model *model = t->p->part[rank].model;
  double sum = 0;
  for (uint32_t i = op->piece_begin; i < op->piece_end; i++) {
    if (op->kind == TR_OP_F || (op->kind == TR_OP_R && l->values.again[i]))
      sum += l->piece[TR_KERNEL_FORWARD][i];
    else if (op->kind != TR_OP_R)
      sum += backward_share(tr_model_piece(model, (int)i), op->kind) * l->piece[TR_KERNEL_BACKWARD][i];
  }
  return sum;
}

// Of the pieces in an operation that exchange; weights' gradients need none.
static double exchanged_seconds(const timing *t, int rank, const tr_op *op) {
  const place *l = &t->place[rank];
  double sum = 0;
  if (!t->exchanges || op->kind > TR_OP_R || op->kind == TR_OP_W) return 0;
  for (uint32_t i = op->piece_begin; i < op->piece_end; i++)
    if (op->kind != TR_OP_R || l->values.again[i]) sum += l->exchange[i];
  return sum;
}

// Elements of the units that the first of those who share them updates: with owned parts, its part of each bucket.
static double updated(const tr_runtime_plan *p, const tr_runtime_part *part, const tr_op *op) {
  const int64_t begin = part->layout->unit_start[op->unit_begin], end = part->layout->unit_start[op->unit_end];
  int64_t sum = 0;
  if (!(p->zero && p->share > 1)) return (double)(end - begin);
  for (int b = 0; b < part->program->nbucket; b++) {
    const tr_bucket *bucket = &part->program->bucket[b];
    int64_t first, count;
    tr_layout_own(part->layout, bucket->unit_begin, bucket->unit_end, p->share, 0, &first, &count);
    const int64_t from = first > begin ? first : begin, to = first + count < end ? first + count : end;
    sum += to > from ? to - from : 0;
  }
  return (double)sum;
}

static double packed(const tr_runtime_plan *p, const tr_runtime_part *part, const tr_op *op) {
  size_t sum = 0;
  for (int i = 0; i < tr_model_params(part->model); i++) {
    const int unit = tr_model_param(part->model, i)->unit;
    if (unit >= op->unit_begin && unit < op->unit_end) sum += tr__runtime_packed_bytes(p, part->model, i);
  }
  return (double)(sum / tr_dtype_size(p->type)) / (p->zero && p->share > 1 ? p->share : 1);
}

tr_kernel_work tr_runtime_state_work(const tr_runtime_plan *p, int rank, const tr_op *op, const char **kind) {
  const tr_runtime_part *part = &p->part[rank];
  const int shares = p->zero && p->share > 1;
  *kind = op->kind == TR_OP_UPDATE    ? "update"
          : op->kind == TR_OP_PUBLISH ? "pack"
          : op->kind == TR_OP_NORM    ? "norm"
                                      : NULL;
  switch ((tr_op_kind)op->kind) {
  case TR_OP_UPDATE: return (tr_kernel_work){.out = updated(p, part, op)};
  case TR_OP_PUBLISH: return (tr_kernel_work){.out = packed(p, part, op)};
  case TR_OP_NORM: // with owned parts the squares were summed with the gradients
    return (tr_kernel_work){.out = shares || p->pp > 1 ? 0 : (double)part->layout->total};
  default: return (tr_kernel_work){0};
  }
}

static double op_seconds(const timing *t, int rank, const tr_op *op) {
  const char *kind;
  double seconds = 0;
  const double exchanged = exchanged_seconds(t, rank, op);
  if (op->lane != TR_LANE_COMPUTE) return exchanged;
  if (op->kind <= TR_OP_R) return pass_seconds(t, rank, op) + exchanged;
  const tr_kernel_work work = tr_runtime_state_work(t->p, rank, op, &kind);
  if (kind && price(t, kind, TR_KERNEL_FORWARD, &work, &seconds) < 0) return 0; // seen by add_terms before
  return seconds;
}

// ---- the program

static int term_of(const tr_op *op) {
  return op->kind == TR_OP_R ? TR_TERM_RECOMPUTE : op->kind < TR_OP_R ? TR_TERM_COMPUTE : TR_TERM_OPTIMIZER;
}

static tr_status add_terms(timing *t, int rank) {
  const tr_program *program = t->p->part[rank].program;
  double seconds;
  static const char *const state[] = {"update", "pack", "norm"};
  const tr_kernel_work none = {0};
  for (size_t i = 0; i < sizeof state / sizeof *state; i++)
    TR_TRY(price(t, state[i], TR_KERNEL_FORWARD, &none, &seconds));
  for (uint32_t i = 0; i < program->nop; i++)
    if (program->op[i].lane == TR_LANE_COMPUTE)
      t->place[rank].term[term_of(&program->op[i])] += op_seconds(t, rank, &program->op[i]);
  return TR_OK;
}

static double pass_flops(const tr_runtime_plan *p, const tr_model *model, const tr_op *op) {
  double sum = 0;
  for (uint32_t i = op->piece_begin; i < op->piece_end; i++)
    sum += tr_piece_work(model, (int)i, p->type, p->rows, p->sequence).flops;
  return sum;
}

// Besides: walking the program, and summing gradients over ranks; those of a few million parameters are still in a cache. The longer ranks
// compute, the longer one waits for the slowest of those that it sums with.
tr_kernel_work tr_runtime_step_work(const tr_runtime_plan *p, int rank) {
  static const double near_elements = 4 << 20;
  const tr_runtime_part *part = &p->part[rank];
  const tr_program *program = part->program;
  tr_kernel_work w = {.in = program->nop};
  for (uint32_t i = 0; i < program->nop; i++) {
    const tr_op *op = &program->op[i];
    const int sums = (op->role == TR_ROLE_GRADIENT && p->dp > 1) || op->role == TR_ROLE_TIED;
    if (op->kind <= TR_OP_R) w.in += op->piece_end - op->piece_begin;
    if (op->kind <= TR_OP_R && p->dp > 1) w.flops += pass_flops(p, part->model, op);
    if (op->kind == TR_OP_REDUCE && sums)
      w.out += (double)(part->layout->unit_start[op->unit_end] - part->layout->unit_start[op->unit_begin]);
  }
  w.far = fmax(w.out - near_elements, 0);
  return w;
}

static int64_t op_ticks(void *user, int rank, uint32_t index, const tr_op *op) {
  (void)index;
  return llround(1e9 * op_seconds(user, rank, op));
}

static int64_t link_ticks(void *user, int from, int to, int64_t *occupancy) {
  const timing *t = user;
  const tr_runtime_part *part = &t->p->part[0];
  const int width = part->program->nchunk
                        ? (int)tr_model_value(part->model, tr_model_piece(part->model, 0)->out[0].value)->width
                        : 0;
  (void)from, (void)to;
  if (!t->messages) return *occupancy = 0;
  const double bytes = (double)(t->p->rows * width) * (double)tr_dtype_size(t->p->type);
  const tr__links host = {.ranks = 2, .near = 2, .ring_slow = 1, .swap_slow = 1};
  const tr__call one = tr__send(t->cluster, host, bytes);
  *occupancy = llround(1e9 * (one.seconds - one.latency));
  return llround(1e9 * one.latency);
}

static tr_status makespan(timing *t, int messages, int exchanges, double *out) {
  const tr_runtime_plan *p = t->p;
  const tr_program **program = malloc((size_t)p->pp * sizeof *program);
  tr_sim_result result;
  if (!program) return tr_error(TR_ERR_MEMORY, "no memory to simulate a step");
  for (int r = 0; r < p->pp; r++) program[r] = p->part[r].program;
  t->messages = messages;
  t->exchanges = exchanges;
  const tr_sim_costs costs = {.op = op_ticks, .link = link_ticks, .user = t};
  tr_status status = tr_sim_run(program, p->pp, &costs, &result);
  free(program);
  if (status < 0) return status;
  *out = 1e-9 * (double)result.makespan;
  tr_sim_result_destroy(&result);
  return TR_OK;
}

static double busy_of(const place *l) {
  return l->term[TR_TERM_COMPUTE] + l->term[TR_TERM_RECOMPUTE] + l->term[TR_TERM_OPTIMIZER];
}

// The busiest place's work, and what the pipeline adds to it.
static tr_status put_terms(timing *t, double term[TR_TERM_COUNT]) {
  const tr_runtime_plan *p = t->p;
  int most = 0;
  double bare, plain, whole, rest;
  for (int r = 1; r < p->pp; r++)
    if (busy_of(&t->place[r]) > busy_of(&t->place[most])) most = r;
  for (int i = 0; i < TR_TERM_COUNT; i++) term[i] = t->place[most].term[i];
  const tr_kernel_work work = tr_runtime_step_work(p, most), sums = {.out = work.out, .far = work.far};
  const tr_kernel_work calls = {.in = work.in, .flops = work.flops};
  TR_TRY(price(t, "step", TR_KERNEL_FORWARD, &calls, &term[TR_TERM_FIXED]));
  TR_TRY(price(t, "step", TR_KERNEL_FORWARD, &sums, &term[TR_TERM_GRADS]));
  TR_TRY(price(t, "step", TR_KERNEL_FORWARD, &(tr_kernel_work){0}, &rest)); // the call, once
  term[TR_TERM_GRADS] -= rest;
  if (p->pp == 1 && !t->exchanging) return TR_OK;
  TR_TRY(makespan(t, 0, 0, &bare));
  plain = bare;
  if (t->exchanging) TR_TRY(makespan(t, 0, 1, &plain));
  TR_TRY(makespan(t, 1, 1, &whole));
  term[TR_TERM_BUBBLE] = fmax(bare - busy_of(&t->place[most]), 0);
  term[TR_TERM_EP] = fmax(plain - bare, 0);
  term[TR_TERM_PP] = fmax(whole - plain, 0);
  return TR_OK;
}

tr_status tr_runtime_time(const tr_runtime_plan *p, const tr_kernel_rates *rates, const tr_cluster *cluster,
                          double term[TR_TERM_COUNT], double *step) {
  timing t = {.p = p, .rates = rates, .cluster = cluster, .place = calloc((size_t)p->pp, sizeof *t.place)};
  if (!t.place) return tr_error(TR_ERR_MEMORY, "no memory for the times of %d ranks", p->pp);
  tr_status status = TR_OK;
  for (int r = 0; r < p->pp && status == TR_OK; r++) {
    status = price_pieces(&t, &p->part[r], &t.place[r]);
    if (status == TR_OK) status = add_terms(&t, r);
  }
  if (status == TR_OK) status = put_terms(&t, term);
  for (int r = 0; r < p->pp; r++) {
    for (int pass = 0; pass < TR_KERNEL_PASSES; pass++) free(t.place[r].piece[pass]);
    free(t.place[r].exchange);
    tr_value_plan_free(&t.place[r].values);
  }
  free(t.place);
  TR_TRY(status);
  *step = 0;
  for (int i = 0; i < TR_TERM_COUNT; i++) *step += term[i];
  return TR_OK;
}
