// SPDX-License-Identifier: MIT
// Programs of one rank alone: each micro-batch forward, then backward.
#include "step/lower_internal.h"
#include <stdlib.h>

static const char *const op_name[TR_OP_KIND_COUNT] = {
#define X(name, text, what) text,
    TR_OP_TABLE(X)
#undef X
};

const char *tr_op_name(tr_op_kind kind) { return op_name[kind]; }

_Static_assert(sizeof(tr_op) <= 128, "an operation record takes at most two cache lines");

tr_status tr__lower_check_options(const tr_step_model *model, const tr_step_options *options) {
  if (model->nunit > UINT16_MAX)
    return tr_error(TR_ERR_PLAN, "a model of %d units is too long: at most %d", model->nunit, UINT16_MAX);
  if (options->zero < 0 || options->zero > 1)
    return tr_error(TR_ERR_PLAN, "ZeRO stage %d is not known: 0 or 1", options->zero);
  if (options->dp < 1) return tr_error(TR_ERR_PLAN, "gradients are summed over at least 1 rank, not %d", options->dp);
  for (int i = 0; i < model->nunit; i++)
    if (model->unit_last_piece[i] < 0 || model->unit_last_piece[i] >= model->npiece)
      return tr_error(TR_ERR_PLAN, "unit %d ends at piece %d of %d", i, model->unit_last_piece[i], model->npiece);
  for (int r = 0, low = 0; r < options->nrecompute; low = options->recompute[r++].end)
    if (options->recompute[r].begin < low || options->recompute[r].end <= options->recompute[r].begin ||
        options->recompute[r].end > model->npiece)
      return tr_error(TR_ERR_PLAN, "recomputation %d covers pieces %d to %d of %d, which must ascend", r,
                      options->recompute[r].begin, options->recompute[r].end - 1, model->npiece);
  return TR_OK;
}

// One chunk of all pieces, and nobody beside it.
static tr_status one_chunk(const tr_step_model *model, int microbatches, tr_program *out) {
  *out = (tr_program){.microbatches = microbatches, .p = 1};
  out->chunk = malloc(sizeof *out->chunk);
  if (!out->chunk) return tr_error(TR_ERR_MEMORY, "no memory for the step program");
  *out->chunk = (tr_chunk){
      .piece_end = (uint32_t)model->npiece, .ring_in = -1, .ring_out = -1, .ring_din = -1, .ring_dout = -1};
  out->nchunk = 1;
  return TR_OK;
}

// The passes of each micro-batch in turn, those of `kinds`.
static tr_status list_passes(tr__lowering *low, const char *kinds) {
  static const uint8_t kind_of[] = {['F'] = TR_OP_F, ['B'] = TR_OP_B, ['I'] = TR_OP_I, ['W'] = TR_OP_W};
  const int microbatches = low->program->microbatches;
  low->half = malloc(sizeof *low->half * 3 * (size_t)microbatches);
  if (!low->half) return tr_error(TR_ERR_MEMORY, "no memory for the step program");
  for (int mb = 0; mb < microbatches; mb++)
    for (const char *k = kinds; *k; k++) {
      low->half[low->nhalf] = tr__half_new(kind_of[(unsigned char)*k], 0, mb, low->nhalf);
      low->nhalf++;
    }
  return TR_OK;
}

static tr_status lower_training(tr__lowering *low) {
  TR_TRY(list_passes(low, low->options->split_backward ? "FIW" : "FB"));
  low->split = low->options->split_backward;
  TR_TRY(tr__lower_flags(low));
  TR_TRY(tr__lower_slots(low));
  return tr__lower_training(low);
}

tr_status tr_program_build(const tr_step_model *model, const tr_step_options *options, tr_program *out) {
  TR_TRY(tr__lower_check_options(model, options));
  if (options->microbatches < 1 || options->microbatches > TR_STEP_MICROBATCHES)
    return tr_error(TR_ERR_PLAN, "a step has 1 to %d micro-batches per rank, not %d", TR_STEP_MICROBATCHES,
                    options->microbatches);
  tr_program program;
  tr__lowering low = {.program = &program, .model = model, .options = options};
  TR_TRY(one_chunk(model, options->microbatches, &program));
  return tr__lower_finish(&low, lower_training(&low), out);
}

void tr_program_destroy(tr_program *program) {
  free(program->op);
  free(program->edge);
  free(program->bucket);
  free(program->chunk);
  free(program->ring);
  *program = (tr_program){0};
}
