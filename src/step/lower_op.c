// SPDX-License-Identifier: MIT
// Appending operations and edges to a program that is being built, and finishing it.
#include "step/lower_internal.h"
#include <stdlib.h>

enum { MOST_OPERATIONS = 1 << 16, MOST_PAIRS = 1 << 28 }; // of an operation and a collective: the check compares them

tr_op tr__op_new(tr_op_kind kind, tr_lane lane) {
  return (tr_op){.kind = (uint8_t)kind,
                 .lane = (uint8_t)lane,
                 .microbatch = -1,
                 .peer = -1,
                 .slot_in = -1,
                 .slot_out = -1,
                 .slot_din = -1,
                 .slot_dout = -1,
                 .slot_fi = -1,
                 .slot_fw = -1,
                 .slot_iw = -1};
}

uint32_t tr__lower_append(tr__lowering *low, tr_op op) {
  tr_program *p = low->program;
  if (p->nop == p->op_capacity) {
    uint32_t capacity = p->op_capacity ? 2 * p->op_capacity : 64;
    tr_op *grown = realloc(p->op, capacity * sizeof *grown);
    if (!grown) {
      low->failed = 1;
      return 0;
    }
    p->op = grown;
    p->op_capacity = capacity;
  }
  p->op[p->nop] = op;
  if (op.lane == TR_LANE_COMPUTE) {
    for (; low->njoin > 0; low->njoin--) tr__lower_edge(low, p->nop, low->join[low->njoin - 1], 0);
    low->computed = p->nop;
  }
  return p->nop++;
}

void tr__lower_edge(tr__lowering *low, uint32_t op, uint32_t before, int step_offset) {
  if (low->failed) return;
  if (low->nedge == low->edge_capacity) {
    uint32_t capacity = low->edge_capacity ? 2 * low->edge_capacity : 64;
    tr__edge *grown = realloc(low->edge, capacity * sizeof *grown);
    if (!grown) {
      low->failed = 1;
      return;
    }
    low->edge = grown;
    low->edge_capacity = capacity;
  }
  low->edge[low->nedge++] = (tr__edge){op, {before, step_offset}};
}

// Edges of one operation side by side, in the order in which they were added.
static void sort_edges(tr__lowering *low) {
  tr_program *p = low->program;
  p->edge = malloc(sizeof *p->edge * (low->nedge + 1));
  if (!p->edge) {
    low->failed = 1;
    return;
  }
  for (uint32_t e = 0; e < low->nedge; e++) p->op[low->edge[e].op].edge_end++;
  for (uint32_t i = 0, at = 0; i < p->nop; i++) {
    uint32_t count = p->op[i].edge_end;
    p->op[i].edge_begin = p->op[i].edge_end = at;
    at += count;
  }
  for (uint32_t e = 0; e < low->nedge; e++) p->edge[p->op[low->edge[e].op].edge_end++] = low->edge[e].edge;
  p->nedge = low->nedge;
}

// Programs with a model are checked operation by operation.
static tr_status check_length(const tr__lowering *low) {
  uint32_t nop = low->program->nop, ncomm = 0;
  for (uint32_t i = 0; i < nop; i++)
    ncomm += low->program->op[i].lane == TR_LANE_COMM && low->program->op[i].role < TR_ROLE_ACTIVATION;
  if (!low->model || (nop <= MOST_OPERATIONS && (uint64_t)nop * ncomm <= MOST_PAIRS)) return TR_OK;
  return tr_error(TR_ERR_PLAN,
                  "a step program of %u operations, %u of them sums, is too long to be checked: fewer "
                  "micro-batches, comm.grad_sync=last%s or a larger comm.bucket would work",
                  nop, ncomm, low->options->nrecompute ? ", memory.recompute=none" : "");
}

static void free_scratch(tr__lowering *low) {
  free(low->edge);
  free(low->half);
  free(low->ready);
  free(low->recv[0]);
  free(low->slot_base);
  free(low->user);
}

tr_status tr__lower_finish(tr__lowering *low, tr_status status, tr_program *out) {
  if (status == TR_OK && !low->failed) status = check_length(low);
  if (status == TR_OK && !low->failed) sort_edges(low);
  free_scratch(low);
  if (low->failed) status = tr_error(TR_ERR_MEMORY, "no memory for the step program");
  if (status < 0)
    tr_program_destroy(low->program);
  else
    *out = *low->program;
  return status;
}
