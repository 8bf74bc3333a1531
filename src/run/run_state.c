// SPDX-License-Identifier: MIT
// NORM, UPDATE and PUBLISH. Every rank sees the same sums of squares, so the norm, the clip factor and the decision to skip
// are computed by each and are the same bits. Where ranks share the state, each updates and packs its own part of it.
#include "run/run_internal.h"
#include <math.h>

static void run_norm(tr_run *run) {
  if (run->pp == 1) tr__norm_own(run); // else they have been told to all
  double squares = tr__norm_of_all(run);
  run->result.norm = sqrt(squares);
  run->result.skipped = !isfinite(squares) || !isfinite(run->result.loss) || run->result.tokens == 0;
  run->result.clip = run->result.skipped ? 0 : tr_clip_factor(run->result.norm, run->options.clip);
}

static void run_update(tr_run *run, int unit) {
  const tr_run_options *o = &run->options;
  if (run->result.skipped || run->wide != TR_F32) return; // f64 runs are for checking gradients
  int64_t first, count;
  tr__share_of_unit(run, unit, &first, &count);
  size_t nsegment = tr_layout_segments(o->layout, o->model, first, count, run->segment, (size_t)o->layout->nparam);
  float *state[TR_OPTIM_MAX_STATE] = {0};
  for (int i = 0; i < TR_OPTIM_MAX_STATE; i++)
    if (run->state[i]) state[i] = run->state[i] + first;
  char *working = run->master == run->weights ? NULL : (char *)run->weights + (size_t)first * tr_dtype_size(o->type);
  tr_optim_update(&run->compute, &o->optim, run->updates + 1, run->lr, run->result.clip, run->segment, nsegment,
                  (float *)run->master + first, (const float *)run->gradients + first, state, o->type, working);
}

void tr__run_pack(tr_run *run, int unit) {
  const tr_run_options *o = &run->options;
  int part, parts;
  tr_run_sharers(run, &part, &parts);
  for (int i = 0; run->packed && i < tr_model_params(o->model); i++) {
    const tr_param *p = tr_model_param(o->model, i);
    for (int use = 0; p->unit == unit && use < TR_PACKS; use++) {
      size_t at = run->packed_at[i * TR_PACKS + use];
      if (at == SIZE_MAX) continue;
      const char *w = (char *)run->weights + (size_t)o->layout->param_offset[i] * tr_dtype_size(o->type);
      o->kernels->pack(&run->compute, o->type, p->shape.dim[0], p->shape.dim[1], (tr_pack)use, w, part, parts,
                       run->packed + at);
    }
  }
}

tr_status tr__run_state_op(tr_run *run, const tr_op *op) {
  if (op->kind == TR_OP_NORM)
    run_norm(run);
  else if (op->kind == TR_OP_UPDATE)
    run_update(run, op->unit_begin);
  else if (!run->result.skipped)
    tr__run_pack(run, op->unit_begin);
  return TR_OK;
}
