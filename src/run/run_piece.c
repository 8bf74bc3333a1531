// SPDX-License-Identifier: MIT
// Calling pieces: symbolic slots become pointers here, per call, and nothing else happens.
#include "run/run_internal.h"

static char *slot_base(const tr_run *run, const tr_op *op, tr__class where) {
  int copy = where == TR__FI ? op->slot_fi : where == TR__FW ? op->slot_fw : where == TR__IW ? op->slot_iw : 0;
  return run->slot[where] + (size_t)(copy < 0 ? 0 : copy) * run->plan.size[where];
}

void *tr__run_resolve(const tr_run *run, const tr_op *op, const tr__place *place) {
  return place->where == TR__NONE ? NULL : slot_base(run, op, place->where) + place->offset;
}

static void bind_call(const tr_run *run, int index, const tr_model_input *input, const tr_op *op,
                      tr_piece_call *call) {
  const tr_piece *piece = tr_model_piece(run->options.model, index);
  *call = (tr_piece_call){.piece = piece,
                          .compute = &run->compute,
                          .input = input,
                          .type = run->options.type,
                          .scale = run->scale,
                          .seed = run->options.seed,
                          .step = run->step};
  for (int k = 0; k < piece->nin; k++) call->in[k] = tr__run_resolve(run, op, &run->plan.value[piece->in[k].value]);
  for (int k = 0; k < piece->nout; k++)
    call->out[k] = tr__run_resolve(run, op, &run->plan.value[piece->out[k].value]);
  const tr_layout *layout = run->options.layout;
  for (int k = 0; k < piece->nparam; k++)
    call->param[k] =
        (char *)run->weights + (size_t)layout->param_offset[piece->param[k]] * tr_dtype_size(run->options.type);
  for (int k = 0; run->packed && k < piece->nparam; k++)
    for (int use = 0; use < TR_PACKS; use++) {
      size_t at = run->packed_at[piece->param[k] * TR_PACKS + use];
      if (at != SIZE_MAX) call->packed[k][use] = run->packed + at;
    }
}

static void tell_begin(const tr_run *run, int piece, const tr_op *op, const tr_model_input *input) {
  for (int i = 0; i < run->options.nobserver; i++) {
    const tr_run_observer *o = &run->options.observer[i];
    if (o->piece_begin) o->piece_begin(o->user, piece, op, input);
  }
}

static void tell_end(const tr_run *run, int piece, const tr_op *op, const tr_model_input *input) {
  for (int i = 0; i < run->options.nobserver; i++) {
    const tr_run_observer *o = &run->options.observer[i];
    if (o->piece_end) o->piece_end(o->user, piece, op, input);
  }
}

tr_status tr__run_piece_forward(tr_run *run, int index, const tr_model_input *input, const tr_op *op, int training) {
  tr_piece_call call;
  bind_call(run, index, input, op, &call);
  call.training = training;
  tell_begin(run, index, op, input);
  tr_status status = call.piece->ops->forward(&call);
  tell_end(run, index, op, input);
  return status;
}

static void bind_gradients(const tr_run *run, int index, const tr_op *op, tr_piece_call *call) {
  const tr_piece *piece = call->piece;
  const tr_layout *layout = run->options.layout;
  for (int k = 0; k < piece->nin; k++) {
    call->din[k] = tr__run_resolve(run, op, &run->plan.grad[piece->in[k].value]);
    call->add_in[k] = !run->grad_first[index * TR_PIECE_PORTS + k];
  }
  for (int k = 0; k < piece->nout; k++)
    call->dout[k] = tr__run_resolve(run, op, &run->plan.grad[piece->out[k].value]);
  for (int k = 0; k < piece->nparam; k++) {
    call->dparam[k] = (char *)run->partial + (size_t)layout->param_offset[piece->param[k]] * tr_dtype_size(run->wide);
    call->add_param[k] = !op->first || !run->param_first[index * TR_PIECE_PARAMS + k];
  }
}

tr_status tr__run_piece_backward(tr_run *run, int index, const tr_model_input *input, const tr_op *op) {
  tr_piece_call call;
  bind_call(run, index, input, op, &call);
  bind_gradients(run, index, op, &call);
  call.training = 1;
  const tr_piece_ops *ops = call.piece->ops;
  tell_begin(run, index, op, input);
  if (op->kind != TR_OP_W && ops->backward_input) TR_TRY(ops->backward_input(&call));
  if (op->kind != TR_OP_I && ops->backward_weight) TR_TRY(ops->backward_weight(&call));
  tell_end(run, index, op, input);
  return TR_OK;
}
