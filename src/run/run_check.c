// SPDX-License-Identifier: MIT
// Which options make a run: settings that can be, and a program that is one of this part of the model on this rank of the
// pipeline. What the operations of a program promise each other is for the checks of the step module.
#include "run/run_internal.h"

static int has_op(const tr_program *program, tr_op_kind kind, int role) {
  for (uint32_t i = 0; i < program->nop; i++)
    if (program->op[i].kind == kind && (role < 0 || program->op[i].role == role)) return 1;
  return 0;
}

tr_status tr__run_check_chunks(const tr_run_options *o) {
  tr_chunk only;
  const tr_chunk *chunk;
  int n = tr__run_chunks(o, &only, &chunk), nrange = tr_model_ranges(o->model), begin, end;
  if (n != nrange)
    return tr_error(TR_ERR_PLAN, "the program is one of %d stages, the rank's part of model '%s' has %d", n,
                    tr_model_name(o->model), nrange);
  for (int c = 0; c < n; c++) {
    tr_model_boundary boundary;
    tr_model_range(o->model, c, &begin, &end, &boundary);
    if ((int)chunk[c].piece_begin != begin || (int)chunk[c].piece_end != end)
      return tr_error(TR_ERR_PLAN, "stage %d of the program has pieces %u to %u of the rank's part, not %d to %d",
                      chunk[c].stage, chunk[c].piece_begin, chunk[c].piece_end - 1, begin, end - 1);
    if ((boundary.in >= 0) != (chunk[c].ring_in >= 0) || (boundary.out >= 0) != (chunk[c].ring_out >= 0))
      return tr_error(TR_ERR_PLAN, "stage %d of the program has no place for what enters or leaves it",
                      chunk[c].stage);
  }
  return TR_OK;
}

static tr_status check_types(const tr_run_options *o, int ngrad) {
  if (o->grad_wire != TR_F32 && o->grad_wire != TR_BF16)
    return tr_error(TR_ERR_PLAN, "gradients cannot travel as %s: f32 or bf16", tr_dtype_name(o->grad_wire));
  if (o->stage_wire != TR_F32 && o->stage_wire != TR_BF16)
    return tr_error(TR_ERR_PLAN, "activations cannot travel as %s: f32 or bf16", tr_dtype_name(o->stage_wire));
  if (tr__run_wire_type(o, ngrad) == TR_BF16 && (!o->zero || tr_wide(o->type) != TR_F32))
    return tr_error(TR_ERR_PLAN, "gradients travel as bf16 only with zero 1 and f32 sums");
  return TR_OK;
}

static tr_status check_pipeline(const tr_run *run) {
  const tr_run_options *o = &run->options;
  const tr_program *program = o->program;
  int p = program && program->p > 1 ? program->p : 1, rank = p > 1 ? program->rank : 0;
  if (run->pp != p || run->pp_rank != rank)
    return tr_error(TR_ERR_PLAN, "the program is of rank %d of %d in a pipeline, this is rank %d of %d", rank, p,
                    run->pp_rank, run->pp);
  if (p == 1) return TR_OK;
  if (o->grad_sync == TR_SYNC_EVERY)
    return tr_error(TR_ERR_PLAN, "in a pipeline, gradients are summed after the last micro-batch (grad_sync last)");
  if (!has_op(program, TR_OP_REDUCE, TR_ROLE_SQUARES))
    return tr_error(TR_ERR_PLAN, "the program of a pipeline must sum squares over its ranks");
  return TR_OK;
}

// Pieces in the communication lane.
static tr_status check_exchanges(const tr_run_options *o) {
  for (uint32_t i = 0; o->program && i < o->program->nop; i++) {
    const tr_op *op = &o->program->op[i];
    if (tr_op_queue(op) != TR_QUEUE_EXCHANGES) continue;
    const tr_piece *piece = tr_model_piece(o->model, (int)op->piece_begin);
    if (!piece->ops->exchanges || op->piece_end != op->piece_begin + 1)
      return tr_error(TR_ERR_PLAN, "the program has piece '%s' in the communication lane, which exchanges nothing",
                      piece->name);
  }
  return TR_OK;
}

tr_status tr__run_check(const tr_run *run) {
  const tr_run_options *o = &run->options;
  TR_TRY(check_types(o, run->ngrad));
  TR_TRY(tr__run_check_chunks(o));
  TR_TRY(check_pipeline(run));
  if (run->dp > run->ngrad)
    return tr_error(TR_ERR_PLAN, "gradients are summed over %d ranks, fewer than the %d with other data", run->ngrad,
                    run->dp);
  if (!o->program) return TR_OK;
  if (has_op(o->program, TR_OP_R, -1) && o->recompute == TR_RECOMPUTE_NONE)
    return tr_error(TR_ERR_PLAN, "the program computes values again, but the run keeps them all (recompute none)");
  TR_TRY(check_exchanges(o));
  if (has_op(o->program, TR_OP_REDUCE, TR_ROLE_TIED) != (o->tied != NULL))
    return tr_error(TR_ERR_PLAN, "the program %s a parameter that is shared with another stage, the options %s",
                    o->tied ? "knows of no" : "has", o->tied ? "do" : "name no group for it");
  return TR_OK;
}
