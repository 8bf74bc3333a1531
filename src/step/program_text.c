// SPDX-License-Identifier: MIT
// Programs as text: the full list for people who look for what happens when, and PyTorch's tokens
// for the upper level.
#include "trireme/step/program.h"

static void print_pieces(const tr_op *op, tr_text *out) {
  if (op->piece_end == 0) return;
  if (op->kind == TR_OP_F || op->kind == TR_OP_R)
    tr_text_append(out, " pieces %u..%u", op->piece_begin, op->piece_end - 1);
  else
    tr_text_append(out, " pieces %u..%u", op->piece_end - 1, op->piece_begin);
}

static void print_pass(const tr_op *op, tr_text *out) {
  tr_text_append(out, "stage %d micro-batch %d", op->stage, op->microbatch);
  if (op->kind == TR_OP_X) tr_text_append(out, " with stage %d micro-batch %d", op->back_stage, op->back_microbatch);
  print_pieces(op, out);
  if (op->first && op->kind != TR_OP_F) tr_text_append(out, " overwrites gradients");
}

static void print_sum(const tr_program *program, const tr_op *op, tr_text *out) {
  static const char *const role[] = {"",        "gradients", "valid tokens",   "loss",
                                     "squares", "weights",   "packed weights", "tied gradients"};
  tr_text_append(out, "%s", role[op->role]);
  if (op->role != TR_ROLE_GRADIENT && op->role != TR_ROLE_TIED) return;
  if (op->unit_end == 0)
    tr_text_append(out, " stage %d", op->stage);
  else
    tr_text_append(out, " bucket %d of %d, units %d..%d", op->bucket, program->nbucket, op->unit_begin,
                   op->unit_end - 1);
}

static void print_what(const tr_program *program, const tr_op *op, tr_text *out) {
  switch ((tr_op_kind)op->kind) {
  case TR_OP_REDUCE:
  case TR_OP_GATHER: print_sum(program, op, out); break;
  case TR_OP_UPDATE:
  case TR_OP_PUBLISH: tr_text_append(out, "unit %d", op->unit_begin); break;
  case TR_OP_NORM: break;
  case TR_OP_SEND:
  case TR_OP_RECV:
    tr_text_append(out, "%s behind stage %d micro-batch %d %s rank %d slot %d",
                   op->role == TR_ROLE_ACTIVATION ? "activation" : "gradient", op->stage, op->microbatch,
                   op->kind == TR_OP_SEND ? "to" : "from", op->peer, op->slot_in);
    break;
  default: print_pass(op, out);
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

static int same_pass(const tr_op *a, const tr_op *b) {
  if (a->pair || b->pair)
    return a->pair == b->pair && a->back_stage == b->back_stage && a->back_microbatch == b->back_microbatch;
  return a->kind == b->kind && a->stage == b->stage && a->microbatch == b->microbatch;
}

// The F of the pair that begins with operation i.
static const tr_op *forward_half(const tr_program *program, uint32_t i) {
  const tr_op *op = &program->op[i];
  for (; i < program->nop; i++)
    if (program->op[i].kind == TR_OP_F && same_pass(&program->op[i], op)) return &program->op[i];
  return op;
}

// A pass that was cut in pieces prints once, at its first part, a pair too. Recomputation is not of that level.
void tr_program_tokens(const tr_program *program, tr_text *out) {
  const char *comma = "";
  const tr_op *last = NULL;
  for (uint32_t i = 0; i < program->nop; i++) {
    const tr_op *op = &program->op[i];
    if (op->kind >= TR_OP_R || (last && same_pass(last, op))) continue;
    last = op;
    if (op->pair) op = forward_half(program, i);
    if (op->kind == TR_OP_X || op->pair)
      tr_text_append(out, "%s(%dF%d;%dB%d)OVERLAP_F_B", comma, op->stage, op->microbatch, op->back_stage,
                     op->back_microbatch);
    else
      tr_text_append(out, "%s%d%s%d", comma, op->stage, tr_op_name((tr_op_kind)op->kind), op->microbatch);
    comma = ",";
  }
}
