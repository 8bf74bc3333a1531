// SPDX-License-Identifier: MIT
// Calling pieces: symbolic slots become pointers here, per call, and nothing else happens.
#include "run/run_internal.h"
#include "trireme/base/clock.h"
#include <string.h>

// The slot of the lifetime class, ring or area that holds what `where` says, for the micro-batch of `op`.
static char *slot_base(const tr_run *run, const tr_op *op, tr_place_class where) {
  const tr_chunk *chunk = &run->chunk[op->chunk];
  const struct {
    int ring, slot;
  } ring[] = {{chunk->ring_in, op->slot_in},
              {chunk->ring_out, op->slot_out},
              {chunk->ring_din, op->slot_din},
              {chunk->ring_dout, op->slot_dout}};
  if (where == TR_PLACE_TEMPORARY) return run->area[where] + (op->pair && op->kind == TR_OP_F ? run->beside : 0);
  if (where == TR_PLACE_RECOMPUTE) return run->area[where];
  if (where >= TR_PLACE_RING_IN)
    return tr__ring_values(run, ring[where - TR_PLACE_RING_IN].ring, ring[where - TR_PLACE_RING_IN].slot);
  int copy = where == TR_PLACE_FI ? op->slot_fi : where == TR_PLACE_FW ? op->slot_fw : op->slot_iw;
  return run->bound[op->chunk].slot[where] + (size_t)(copy < 0 ? 0 : copy) * run->plan.size[op->chunk][where];
}

// Pieces are told of all their values, also of those that this operation does not touch and has no slot for.
static int has_slot(const tr_op *op, tr_place_class where) {
  switch (where) {
  case TR_PLACE_NONE: return 0;
  case TR_PLACE_RING_IN: return op->slot_in >= 0;
  case TR_PLACE_RING_OUT: return op->slot_out >= 0;
  case TR_PLACE_RING_DIN: return op->slot_din >= 0;
  case TR_PLACE_RING_DOUT: return op->slot_dout >= 0;
  default: return 1;
  }
}

void *tr__run_resolve(const tr_run *run, const tr_op *op, const tr_place *place) {
  return has_slot(op, place->where) ? slot_base(run, op, place->where) + place->offset : NULL;
}

// What leaves the chunk is in its ring, unless a piece reads it in its backward pass: then in a slot of its own, too.
void tr__run_hand_over(tr_run *run, const tr_op *op, int64_t rows) {
  const tr_chunk *chunk = &run->chunk[op->chunk];
  int begin, end;
  tr_model_boundary boundary;
  tr_model_range(run->options.model, op->chunk, &begin, &end, &boundary);
  if (boundary.out < 0 || op->piece_end < chunk->piece_end) return;
  const tr_place *place = &run->plan.value[boundary.out];
  if (place->where == TR_PLACE_RING_OUT) return;
  memcpy(tr__ring_values(run, chunk->ring_out, op->slot_out), tr__run_resolve(run, op, place),
         (size_t)(rows * tr_model_value(run->options.model, boundary.out)->width) * tr_dtype_size(run->options.type));
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
                          .step = run->step,
                          .peers = run->options.peers};
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

// A piece that exchanges is waited for here; in a pair it is an operation of the communication lane instead.
static tr_status call_piece(tr_run *run, tr_status (*function)(const tr_piece_call *), const tr_piece_call *call) {
  if (!call->piece->ops->exchanges) return function(call);
  int64_t begin = tr_clock_ns();
  tr_status status = function(call);
  run->result.comm_wait_ns += tr_clock_ns() - begin;
  return status;
}

tr_status tr__run_piece_forward(tr_run *run, int index, const tr_model_input *input, const tr_op *op, int training) {
  tr_piece_call call;
  bind_call(run, index, input, op, &call);
  call.training = training;
  tell_begin(run, index, op, input);
  tr_status status = call_piece(run, call.piece->ops->forward, &call);
  tell_end(run, index, op, input);
  return status;
}

// Whether this call is the step's first contribution to the gradient of parameter k, and overwrites it.
static int contributes_first(tr_run *run, int index, int k, const tr_op *op) {
  const tr_piece *piece = tr_model_piece(run->options.model, index);
  unsigned char *touched = &run->touched[piece->param[k]];
  int first = op->first && run->param_first[index * TR_PIECE_PARAMS + k];
  if (!*touched) return first;
  if (*touched == TR__TOUCHED) first = 0;
  if (op->kind != (piece->ops->backward_weight ? TR_OP_I : TR_OP_W)) *touched = TR__TOUCHED;
  return first;
}

static void bind_gradients(tr_run *run, int index, const tr_op *op, tr_piece_call *call) {
  const tr_piece *piece = call->piece;
  const tr_layout *layout = run->options.layout;
  const tr_place *grad = run->plan.grad[op->kind != TR_OP_B];
  for (int k = 0; k < piece->nin; k++) {
    call->din[k] = tr__run_resolve(run, op, &grad[piece->in[k].value]);
    call->add_in[k] = !run->grad_first[index * TR_PIECE_PORTS + k];
  }
  for (int k = 0; k < piece->nout; k++) call->dout[k] = tr__run_resolve(run, op, &grad[piece->out[k].value]);
  for (int k = 0; k < piece->nparam; k++) {
    call->dparam[k] = (char *)run->partial + (size_t)layout->param_offset[piece->param[k]] * tr_dtype_size(run->wide);
    call->add_param[k] = !contributes_first(run, index, k, op);
  }
}

tr_status tr__run_piece_backward(tr_run *run, int index, const tr_model_input *input, const tr_op *op) {
  tr_piece_call call;
  bind_call(run, index, input, op, &call);
  bind_gradients(run, index, op, &call);
  call.training = 1;
  const tr_piece_ops *ops = call.piece->ops;
  tell_begin(run, index, op, input);
  if (op->kind != TR_OP_W && ops->backward_input) TR_TRY(call_piece(run, ops->backward_input, &call));
  if (op->kind != TR_OP_I && ops->backward_weight) TR_TRY(ops->backward_weight(&call));
  tell_end(run, index, op, input);
  return TR_OK;
}

tr_status tr__run_exchange_start(tr_run *run, const tr_op *op, tr_request **request) {
  tr_piece_call call;
  const int index = (int)op->piece_begin;
  bind_call(run, index, &run->input[op->microbatch], op, &call);
  if (op->kind != TR_OP_F) bind_gradients(run, index, op, &call);
  call.training = 1;
  call.request = request;
  return op->kind == TR_OP_F ? call.piece->ops->forward(&call) : call.piece->ops->backward_input(&call);
}
