// SPDX-License-Identifier: MIT
// Static proof that a backward pass finds the values that were not kept for it. There is one recompute area. Passes run in
// list order, so one walk follows what the area holds: the values of one range of pieces of one micro-batch, as far as
// the forward pass has come, or all of them after an R. A backward pass of pieces in a range must find that range
// complete, of its own micro-batch. An R that no backward pass reads before the area is filled again is refused too: it
// would cost time and say that the program was built from something else.
#include "step/check_internal.h"

typedef struct area {
  const tr_program *program;
  const tr_step_options *options;
  int range, microbatch; // whose values; range -1: nobody's
  int filled;            // pieces below this one have written theirs
  uint32_t by;           // operation that began to fill it
  int used;              // a backward pass has read it
} area;

static tr_status area_leave(const area *a) {
  if (a->range < 0 || a->used || a->program->op[a->by].kind != TR_OP_R) return TR_OK;
  return tr__step_broken(a->program, a->by, "computes again what no backward pass reads");
}

static int area_holds(const area *a, uint32_t i, int range) {
  return a->range == range && a->microbatch == a->program->op[i].microbatch;
}

// Pieces [begin, end) of a range write.
static tr_status area_fill(area *a, uint32_t i, int range, int begin, int end) {
  if (begin == a->options->recompute[range].begin) {
    TR_TRY(area_leave(a));
    a->range = range;
    a->microbatch = a->program->op[i].microbatch;
    a->by = i;
    a->used = 0;
  } else if (!area_holds(a, i, range) || a->filled != begin) {
    return tr__step_broken(a->program, i, "goes on from values that were overwritten in the recompute area");
  }
  a->filled = end;
  return TR_OK;
}

static tr_status area_read(area *a, uint32_t i, int range) {
  if (!area_holds(a, i, range) || a->filled < a->options->recompute[range].end)
    return tr__step_broken(a->program, i, "reads values that are not in the recompute area");
  a->used = 1;
  return TR_OK;
}

static tr_status check_recomputation(area *a, uint32_t i) {
  const tr_op *op = &a->program->op[i];
  for (int r = 0; r < a->options->nrecompute; r++) {
    const tr_step_range *range = &a->options->recompute[r];
    if ((int)op->piece_begin != range->begin || (int)op->piece_end != range->end) continue;
    if (area_holds(a, i, r) && a->filled == range->end)
      return tr__step_broken(a->program, i, "computes again what is still in the recompute area");
    return area_fill(a, i, r, range->begin, range->end);
  }
  return tr__step_broken(a->program, i, "does not cover the pieces of a range that is computed again");
}

static tr_status check_pass(area *a, uint32_t i) {
  const tr_op *op = &a->program->op[i];
  for (int r = 0; r < a->options->nrecompute; r++) {
    int begin = a->options->recompute[r].begin, end = a->options->recompute[r].end;
    if (begin < (int)op->piece_begin) begin = (int)op->piece_begin;
    if (end > (int)op->piece_end) end = (int)op->piece_end;
    if (begin >= end) continue;
    if (op->kind == TR_OP_F)
      TR_TRY(area_fill(a, i, r, begin, end));
    else
      TR_TRY(area_read(a, i, r));
  }
  return TR_OK;
}

tr_status tr__step_check_recompute(const tr_program *program, const tr_step_options *options) {
  area a = {.program = program, .options = options, .range = -1};
  for (uint32_t i = 0; i < program->nop; i++) {
    if (program->op[i].kind == TR_OP_R) TR_TRY(check_recomputation(&a, i));
    if (program->op[i].kind <= TR_OP_W) TR_TRY(check_pass(&a, i));
  }
  return area_leave(&a);
}
