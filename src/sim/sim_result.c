// SPDX-License-Identifier: MIT
// What a simulation says: sums, shares, chunks alive, and the critical path, walked backward from the operation that ends last
// along what each one waited for longest.
#include "sim/sim_internal.h"
#include <stdlib.h>

// ---- chunks alive: the order of the compute lane alone decides

typedef struct alive {
  int w, i;
  tr_sim_rank *out;
} alive;

// A pass may be cut: a chunk lives from the part of F that has its first piece to the part of B, W or I that has it.
static int has_first_piece(const tr_program *program, const tr_op *op) {
  return op->piece_begin == (program->nchunk ? program->chunk[op->chunk].piece_begin : 0);
}

static void begin_chunk(alive *a) {
  if (++a->w > a->out->peak_w) a->out->peak_w = a->w;
  if (++a->i > a->out->peak_i) a->out->peak_i = a->i;
}

static void count_alive(const tr_program *program, tr_sim_rank *out) {
  alive a = {.out = out};
  for (uint32_t i = 0; i < program->nop; i++) {
    const tr_op *op = &program->op[i];
    if (op->kind > TR_OP_X || !has_first_piece(program, op)) continue;
    if (op->kind == TR_OP_F || op->kind == TR_OP_X) begin_chunk(&a);
    a.w -= op->kind == TR_OP_B || op->kind == TR_OP_W || op->kind == TR_OP_X;
    a.i -= op->kind == TR_OP_B || op->kind == TR_OP_I || op->kind == TR_OP_X;
  }
}

// ---- sums

static void sum_up(const tr__sim_graph *g, const tr_sim_event *event, tr_sim_result *out) {
  double work = 0;
  for (uint32_t i = 0; i < g->n; i++) {
    if (event[i].end > out->makespan) out->makespan = event[i].end;
    out->messages += tr__sim_op(g, i)->kind == TR_OP_SEND;
  }
  for (int r = 0; r < g->p; r++) {
    const tr_sim_rank *rank = &out->rank[r];
    const int64_t span = rank->last - rank->first, idle = span - rank->busy;
    const double share = span > 0 ? (double)idle / (double)span : 0;
    work += (double)rank->busy;
    if (idle > out->span_idle) out->span_idle = idle;
    if (share > out->span_bubble) out->span_bubble = share;
  }
  out->bubble = out->makespan > 0 ? 1 - work / ((double)g->p * (double)out->makespan) : 0;
}

// ---- the critical path

// The operation that ends last; of those that end together the first that computes.
static uint32_t last_operation(const tr__sim_graph *g, const tr_sim_event *event, int64_t makespan) {
  uint32_t last = TR__SIM_NONE;
  for (uint32_t i = 0; i < g->n; i++) {
    if (event[i].end != makespan) continue;
    if (tr__sim_op(g, i)->lane == TR_LANE_COMPUTE) return i;
    if (last == TR__SIM_NONE) last = i;
  }
  return last;
}

static tr_status find_path(const tr__sim_graph *g, const tr_sim_event *event, tr_sim_result *out) {
  const uint32_t last = last_operation(g, event, out->makespan);
  uint32_t n = 0;
  for (uint32_t i = last; i != TR__SIM_NONE; i = g->node[i].cause) n++;
  out->critical = malloc(sizeof *out->critical * 2 * ((size_t)n + 1));
  if (!out->critical) return tr_error(TR_ERR_MEMORY, "no memory for a critical path of %u operations", n);
  for (uint32_t i = last; i != TR__SIM_NONE; i = g->node[i].cause) {
    uint32_t *pair = &out->critical[2 * (size_t)out->ncritical++];
    pair[0] = (uint32_t)g->node[i].rank;
    pair[1] = i - g->base[g->node[i].rank];
  }
  return TR_OK;
}

tr_status tr__sim_summary(const tr__sim_graph *g, const tr_sim_event *event, tr_sim_result *out) {
  for (int r = 0; r < g->p; r++) count_alive(g->program[r], &out->rank[r]);
  sum_up(g, event, out);
  return find_path(g, event, out);
}

// ---- results

// The arrays of all ranks are in one block each, that of rank 0.
static tr_status make_result(const tr__sim_graph *g, tr_sim_result *out) {
  const size_t p = (size_t)g->p;
  *out = (tr_sim_result){.p = g->p};
  out->rank = calloc(p, sizeof *out->rank);
  out->event = calloc(p, sizeof *out->event);
  out->ring_parked = calloc(p, sizeof *out->ring_parked);
  if (!out->rank || !out->event || !out->ring_parked) return TR_ERR_MEMORY;
  out->event[0] = calloc((size_t)g->n + 1, sizeof *out->event[0]);
  out->ring_parked[0] = calloc((size_t)g->ring_base[g->p] + 1, sizeof *out->ring_parked[0]);
  if (!out->event[0] || !out->ring_parked[0]) return TR_ERR_MEMORY;
  for (size_t r = 1; r < p; r++) {
    out->event[r] = out->event[0] + g->base[r];
    out->ring_parked[r] = out->ring_parked[0] + g->ring_base[r];
  }
  return TR_OK;
}

static tr_status simulate(tr__sim_graph *g, tr_sim_result *out) {
  if (make_result(g, out) < 0) return tr_error(TR_ERR_MEMORY, "no memory for the events of %u operations", g->n);
  TR_TRY(tr__sim_events(g, out->event[0], out));
  return tr__sim_summary(g, out->event[0], out);
}

tr_status tr_sim_run(const tr_program *const *program, int p, const tr_sim_costs *costs, tr_sim_result *out) {
  tr__sim_graph graph;
  tr_sim_result result;
  TR_TRY(tr__sim_graph_build(program, p, costs, &graph));
  tr_status status = simulate(&graph, &result);
  tr__sim_graph_destroy(&graph);
  if (status < 0)
    tr_sim_result_destroy(&result);
  else
    *out = result;
  return status;
}

void tr_sim_result_destroy(tr_sim_result *result) {
  free(result->rank);
  free(result->event ? result->event[0] : NULL);
  free(result->event);
  free(result->ring_parked ? result->ring_parked[0] : NULL);
  free(result->ring_parked);
  free(result->critical);
  *result = (tr_sim_result){0};
}
