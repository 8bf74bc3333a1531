// SPDX-License-Identifier: MIT
// NORM, UPDATE and PUBLISH. Every rank holds the same summed gradients, so the norm, the clip factor and the decision
// to skip are computed by each and are the same bits.
#include "run/run_internal.h"
#include <math.h>

static void run_norm(tr_run *run) {
  const tr_kernels *kernels = run->compute.kernels;
  size_t n = (size_t)run->options.layout->total;
  double squares = 0;
  if (run->wide == TR_F32) {
    const tr_layout *layout = run->options.layout;
    for (int u = 0; u < layout->nunit; u++) {
      const int64_t first = layout->unit_start[u], count = layout->unit_start[u + 1] - first;
      kernels->sum_squares(&run->compute, (size_t)count, TR_LAYOUT_BLOCK, (const float *)run->gradients + first,
                           run->squares + tr_layout_blocks(layout, u));
    }
    for (int64_t b = 0; b < tr_layout_blocks(layout, layout->nunit); b++) squares += run->squares[b];
  } else {
    const double *g = run->gradients;
    for (size_t i = 0; i < n; i++) squares += g[i] * g[i];
  }
  run->result.norm = sqrt(squares);
  run->result.skipped = !isfinite(squares) || !isfinite(run->result.loss) || run->result.tokens == 0;
  run->result.clip = run->result.skipped ? 0 : tr_clip_factor(run->result.norm, run->options.clip);
}

static void run_update(tr_run *run, const tr_op *op) {
  const tr_run_options *o = &run->options;
  if (run->result.skipped || run->wide != TR_F32) return; // f64 runs are for checking gradients
  const int64_t *start = o->layout->unit_start;
  int64_t first = start[op->unit_begin], count = start[op->unit_end] - first;
  size_t nsegment = tr_layout_segments(o->layout, o->model, first, count, run->segment, (size_t)o->layout->nparam);
  float *state[TR_OPTIM_MAX_STATE] = {0};
  for (int i = 0; i < TR_OPTIM_MAX_STATE; i++)
    if (run->state[i]) state[i] = run->state[i] + first;
  tr_optim_update(&run->compute, &o->optim, run->updates + 1, run->lr, run->result.clip, run->segment, nsegment,
                  (float *)run->master + first, (const float *)run->gradients + first, state, run->options.type,
                  run->master == run->weights ? NULL : (char *)run->weights + (size_t)first * tr_dtype_size(run->options.type));
}

static void run_publish(tr_run *run, const tr_op *op) {
  if (run->master == run->weights || run->result.skipped) return;
  const int64_t *start = run->options.layout->unit_start;
  size_t first = (size_t)start[op->unit_begin], count = (size_t)start[op->unit_end] - first;
  run->compute.kernels->convert(&run->compute, count, run->wide, (float *)run->master + first, run->options.type,
                                (char *)run->weights + first * tr_dtype_size(run->options.type));
}

tr_status tr__run_state_op(tr_run *run, const tr_op *op) {
  if (op->kind == TR_OP_NORM)
    run_norm(run);
  else if (op->kind == TR_OP_UPDATE)
    run_update(run, op);
  else
    run_publish(run, op);
  return TR_OK;
}
