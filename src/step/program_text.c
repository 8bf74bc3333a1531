// SPDX-License-Identifier: MIT
// Programs as text: the full list for people who look for what happens when, and PyTorch's tokens
// for the upper level.
#include "trireme/step/program.h"

static void print_what(const tr_program *program, const tr_op *op, tr_text *out) {
  static const char *const role[] = {"", "gradients", "valid tokens", "loss", "squares", "weights", "packed weights"};
  switch ((tr_op_kind)op->kind) {
  case TR_OP_REDUCE:
    tr_text_append(out, "%s", role[op->role]);
    if (op->role == TR_ROLE_GRADIENT)
      tr_text_append(out, " bucket %d of %d, units %d..%d", op->bucket, program->nbucket, op->unit_begin,
                     op->unit_end - 1);
    break;
  case TR_OP_GATHER: tr_text_append(out, "%s", role[op->role]); break;
  case TR_OP_UPDATE:
  case TR_OP_PUBLISH: tr_text_append(out, "unit %d", op->unit_begin); break;
  case TR_OP_NORM: break;
  default:
    tr_text_append(out, "stage %d micro-batch %d pieces ", op->stage, op->microbatch);
    if (op->kind == TR_OP_F || op->kind == TR_OP_R)
      tr_text_append(out, "%u..%u", op->piece_begin, op->piece_end - 1);
    else
      tr_text_append(out, "%u..%u", op->piece_end - 1, op->piece_begin);
    if (op->first && op->kind != TR_OP_F) tr_text_append(out, " overwrites gradients");
  }
}

void tr_program_print(const tr_program *program, tr_text *out) {
  for (uint32_t i = 0; i < program->nop; i++) {
    const tr_op *op = &program->op[i];
    tr_text_append(out, "%4u %-7s %-7s ", i, op->lane == TR_LANE_COMM ? "comm" : "compute",
                   tr_op_name((tr_op_kind)op->kind));
    print_what(program, op, out);
    for (uint32_t e = op->edge_begin; e < op->edge_end; e++) {
      const tr_edge *edge = &program->edge[e];
      tr_text_append(out, "%s%u", e == op->edge_begin ? "  after " : ", ", edge->op);
      if (edge->step_offset) tr_text_append(out, " of step %d", edge->step_offset);
    }
    tr_text_append(out, "\n");
  }
}

// A pass that was cut in pieces prints once, at its first part. Recomputation is not of that level.
void tr_program_tokens(const tr_program *program, tr_text *out) {
  const char *comma = "";
  int last_kind = -1, last_microbatch = -1;
  for (uint32_t i = 0; i < program->nop; i++) {
    const tr_op *op = &program->op[i];
    if (op->kind >= TR_OP_R) continue;
    if (op->kind == last_kind && op->microbatch == last_microbatch) continue;
    tr_text_append(out, "%s%d%s%d", comma, op->stage, tr_op_name((tr_op_kind)op->kind), op->microbatch);
    comma = ",";
    last_kind = op->kind;
    last_microbatch = op->microbatch;
  }
}
