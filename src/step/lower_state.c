// SPDX-License-Identifier: MIT
// What follows the passes of a training step: the loss, the norm, the update, new weights.
#include "step/lower_internal.h"

// The loss is complete when the last backward pass is; it travels beside the gradients.
static uint32_t append_loss(tr__lowering *low) {
  const tr_program *p = low->program;
  uint32_t last = p->nop;
  while (last > 0 && p->op[last - 1].lane != TR_LANE_COMPUTE) last--;
  tr_op loss = tr__op_new(TR_OP_REDUCE, TR_LANE_COMM);
  loss.role = TR_ROLE_LOSS;
  uint32_t index = tr__lower_append(low, loss);
  tr__lower_edge(low, index, last - 1, 0);
  return index;
}

static uint32_t append_units(tr__lowering *low, tr_op_kind kind, tr_lane lane, int unit_begin, int unit_end) {
  tr_op op = tr__op_new(kind, lane);
  op.unit_begin = (uint16_t)unit_begin;
  op.unit_end = (uint16_t)unit_end;
  return tr__lower_append(low, op);
}

// Everything that every rank did `after` an operation is known to all, once this has ended.
static uint32_t append_gather(tr__lowering *low, tr_op_role role, uint32_t after) {
  uint32_t gather = append_units(low, TR_OP_GATHER, TR_LANE_COMM, 0, low->model->nunit);
  if (!low->failed) low->program->op[gather].role = (uint8_t)role;
  tr__lower_edge(low, gather, after, 0);
  return gather;
}

// NORM waits for every reduction; where other ranks have other parts of the gradients, for the sums of squares of all.
static uint32_t lower_norm(tr__lowering *low) {
  const tr_program *p = low->program;
  int gathers = low->options->zero || p->p > 1;
  uint32_t loss = append_loss(low), squares = loss;
  if (gathers) {
    tr_op op = tr__op_new(TR_OP_REDUCE, TR_LANE_COMM);
    op.role = TR_ROLE_SQUARES;
    squares = tr__lower_append(low, op);
  }
  uint32_t norm = tr__lower_append(low, tr__op_new(TR_OP_NORM, TR_LANE_COMPUTE)), reader = gathers ? squares : norm;
  for (uint32_t i = 0; i < loss && !low->failed; i++)
    if (p->op[i].kind == TR_OP_REDUCE && p->op[i].role != TR_ROLE_COUNT) tr__lower_edge(low, reader, i, 0);
  tr__lower_edge(low, norm, loss, 0);
  if (gathers) tr__lower_edge(low, norm, squares, 0);
  return norm;
}

// Updates wait for NORM, and the first forward of the next step for what was published.
static void lower_state(tr__lowering *low, uint32_t first_pass) {
  const int nunit = low->model->nunit;
  uint32_t norm = lower_norm(low), update = norm, publish = norm;
  for (int unit = 0; unit < nunit; unit++) {
    update = append_units(low, TR_OP_UPDATE, TR_LANE_COMPUTE, unit, unit + 1);
    tr__lower_edge(low, update, norm, 0);
  }
  uint32_t whole = low->options->zero ? append_gather(low, TR_ROLE_WEIGHTS, update) : update;
  for (int unit = 0; unit < nunit; unit++) {
    publish = append_units(low, TR_OP_PUBLISH, TR_LANE_COMPUTE, unit, unit + 1);
    tr__lower_edge(low, publish, whole, 0);
  }
  tr__lower_edge(low, first_pass, low->options->zero ? append_gather(low, TR_ROLE_PACKED, publish) : publish, -1);
}

tr_status tr__lower_training(tr__lowering *low) {
  TR_TRY(tr__lower_buckets(low));
  tr_op count = tr__op_new(TR_OP_REDUCE, TR_LANE_COMM);
  count.role = TR_ROLE_COUNT;
  uint32_t count_op = tr__lower_append(low, count), first_pass = 0;
  TR_TRY(tr__lower_passes(low, count_op, &first_pass));
  lower_state(low, first_pass);
  return TR_OK;
}
