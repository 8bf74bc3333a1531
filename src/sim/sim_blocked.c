// SPDX-License-Identifier: MIT
// Why a simulation stopped before its end: the operation at which each rank is blocked, and which of the things that it waits
// for is missing. Of a pipeline with many ranks the first few are named.
#include "sim/sim_internal.h"

enum { MOST_RANKS = 8 };

static int is_blocked(const tr__sim_graph *g, uint32_t i) { return g->node[i].state != TR__SIM_ENDED; }

// The first blocked operation of a rank's lane; TR__SIM_NONE if there is none.
static uint32_t head_of(const tr__sim_graph *g, int rank, tr_lane lane) {
  for (uint32_t i = g->base[rank]; i < g->base[rank + 1]; i++)
    if (tr__sim_op(g, i)->lane == lane && is_blocked(g, i)) return i;
  return TR__SIM_NONE;
}

static void name_op(const tr__sim_graph *g, uint32_t i, tr_text *out) {
  const tr_op *op = tr__sim_op(g, i);
  tr_text_append(out, "operation %u, %s of stage %d", i - g->base[g->node[i].rank], tr_op_name((tr_op_kind)op->kind),
                 op->stage);
  if (op->microbatch >= 0) tr_text_append(out, " and micro-batch %d", op->microbatch);
}

static void name_message(const tr__sim_graph *g, uint32_t i, tr_text *out) {
  const tr_op *op = tr__sim_op(g, i);
  const tr_ring *ring = &g->program[g->node[i].rank]->ring[op->ring];
  tr_text_append(out, "%s behind stage %d of micro-batch %d %s rank %d",
                 ring->role == TR_ROLE_ACTIVATION ? "the activations" : "the derivatives", ring->stage,
                 op->microbatch, op->kind == TR_OP_RECV ? "from" : "to go to", ring->peer);
}

// What a blocked operation lacks: the first of its edges that has not ended, or else its partner, or what is before it.
static void name_missing(const tr__sim_graph *g, uint32_t i, tr_text *out) {
  const int rank = g->node[i].rank;
  const tr_op *op = tr__sim_op(g, i);
  for (uint32_t e = op->edge_begin; e < op->edge_end; e++) {
    const tr_edge *edge = &g->program[rank]->edge[e];
    const uint32_t before = g->base[rank] + edge->op;
    if (edge->step_offset != 0 || !is_blocked(g, before)) continue;
    if (tr__sim_is_message(tr__sim_op(g, before)))
      name_message(g, before, out);
    else
      name_op(g, before, out);
    return;
  }
  if (tr__sim_is_message(op))
    name_message(g, i, out);
  else
    tr_text_append(out, g->node[i].state == TR__SIM_CAME ? "other ranks" : "those before it");
}

tr_status tr__sim_blocked(const tr__sim_graph *g) {
  tr_text text = {0};
  int blocked = 0;
  for (int r = 0; r < g->p; r++) {
    uint32_t head = head_of(g, r, TR_LANE_COMPUTE);
    if (head == TR__SIM_NONE || g->costs->one_stream) {
      const uint32_t comm = head_of(g, r, TR_LANE_COMM);
      if (comm != TR__SIM_NONE) head = comm;
    }
    if (head == TR__SIM_NONE || ++blocked > MOST_RANKS) continue;
    tr_text_append(&text, "%s rank %d at ", blocked > 1 ? ";" : "", r);
    name_op(g, head, &text);
    tr_text_append(&text, ", for ");
    name_missing(g, head, &text);
  }
  if (blocked > MOST_RANKS) tr_text_append(&text, "; and %d more", blocked - MOST_RANKS);
  tr_status status =
      tr_error(TR_ERR_PLAN, "the programs wait for each other for ever:%s", text.data ? text.data : " no memory");
  tr_text_free(&text);
  return status;
}
