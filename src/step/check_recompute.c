// SPDX-License-Identifier: MIT
// Static proof that a backward pass finds the values that were not kept for it. There is one recompute area. Passes run in
// list order, so one walk follows whose values the area holds: those of one range of pieces of one micro-batch, put there
// by the forward pass or by an R. A backward pass of pieces in a range must find its own.
//
// An R whose values no backward pass reads before others take their place is refused too. So an R stands after the forward
// pass of its micro-batch, which would take its place, and none is repeated.
#include "step/check_internal.h"

typedef struct area {
  const tr_program *program;
  const tr_step_options *options;
  int range, microbatch; // whose values; range -1: nobody's
  uint32_t by;           // operation that put the first of them there
  int used;              // a backward pass has read them
} area;

static tr_status area_leave(const area *a) {
  if (a->range < 0 || a->used || a->program->op[a->by].kind != TR_OP_R) return TR_OK;
  return tr__step_broken(a->program, a->by, "computes again what no backward pass reads");
}

static int area_holds(const area *a, uint32_t i, int range) {
  return a->range == range && a->microbatch == a->program->op[i].microbatch;
}

static tr_status area_fill(area *a, uint32_t i, int range) {
  TR_TRY(area_leave(a));
  a->range = range;
  a->microbatch = a->program->op[i].microbatch;
  a->by = i;
  a->used = 0;
  return TR_OK;
}

static tr_status check_recomputation(area *a, uint32_t i) {
  const tr_op *op = &a->program->op[i];
  int r = a->options->nrecompute;
  while (r-- > 0)
    if ((int)op->piece_begin == a->options->recompute[r].begin && (int)op->piece_end == a->options->recompute[r].end)
      break;
  if (r < 0) return tr__step_broken(a->program, i, "does not cover the pieces of a range that is computed again");
  if (area_holds(a, i, r))
    return tr__step_broken(a->program, i, "computes again what is still in the recompute area");
  return area_fill(a, i, r);
}

// A pass over pieces of a range: backward, or a forward pass that comes to the middle of it, goes on from what is there.
static tr_status check_pass_over(area *a, uint32_t i, int range) {
  const tr_op *op = &a->program->op[i];
  if (op->kind == TR_OP_F && (int)op->piece_begin <= a->options->recompute[range].begin)
    return area_fill(a, i, range);
  if (!area_holds(a, i, range))
    return tr__step_broken(a->program, i, "needs values that the recompute area has lost");
  a->used |= op->kind != TR_OP_F;
  return TR_OK;
}

static tr_status check_ranges(area *a, uint32_t i) {
  const tr_op *op = &a->program->op[i];
  for (int r = 0; r < a->options->nrecompute; r++) {
    const tr_step_range *range = &a->options->recompute[r];
    if ((int)op->piece_begin < range->end && range->begin < (int)op->piece_end) TR_TRY(check_pass_over(a, i, r));
  }
  return TR_OK;
}

tr_status tr__step_check_recompute(const tr_program *program, const tr_step_options *options) {
  area a = {.program = program, .options = options, .range = -1};
  for (uint32_t i = 0; i < program->nop; i++) {
    if (program->op[i].kind == TR_OP_R) TR_TRY(check_recomputation(&a, i));
    if (program->op[i].kind <= TR_OP_W) TR_TRY(check_ranges(&a, i));
  }
  return area_leave(&a);
}
