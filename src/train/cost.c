// SPDX-License-Identifier: MIT
// What a step's work has to compute and to move, from ports, parameters and layout alone: the least that any kernel could
// do with each operand read or written once. A profile holds measured times against it.
#include "train/timing_internal.h"
#include <string.h>

const char *tr__pass_name(tr__pass pass) {
  static const char *const name[TR__PASSES] = {"forward", "backward", "backward inputs", "backward weights",
                                               "recompute"};
  return name[pass];
}

tr__pass tr__pass_of(const tr_op *op) {
  switch ((tr_op_kind)op->kind) {
  case TR_OP_B: return TR__PASS_BACKWARD;
  case TR_OP_I: return TR__PASS_INPUTS;
  case TR_OP_W: return TR__PASS_WEIGHTS;
  case TR_OP_R: return TR__PASS_RECOMPUTE;
  default: return TR__PASS_FORWARD;
  }
}

const char *tr__role_name(int role) {
  static const char *const name[] = {[TR_ROLE_NONE] = "",
                                     [TR_ROLE_GRADIENT] = "gradients",
                                     [TR_ROLE_COUNT] = "valid tokens",
                                     [TR_ROLE_LOSS] = "loss",
                                     [TR_ROLE_SQUARES] = "squares",
                                     [TR_ROLE_WEIGHTS] = "weights",
                                     [TR_ROLE_PACKED] = "packed weights",
                                     [TR_ROLE_TIED] = "tied gradients",
                                     [TR_ROLE_ACTIVATION] = "activation",
                                     [TR_ROLE_DERIVATIVE] = "derivative"};
  return name[role];
}

// ---- pieces

static int is_forward(tr__pass pass) { return pass == TR__PASS_FORWARD || pass == TR__PASS_RECOMPUTE; }
static int has_inputs(tr__pass pass) { return pass == TR__PASS_BACKWARD || pass == TR__PASS_INPUTS; }
static int has_weights(tr__pass pass) { return pass == TR__PASS_BACKWARD || pass == TR__PASS_WEIGHTS; }

// FLOPs of the pass as a multiple of those of the forward pass.
static double factor(const tr_train_plan *plan, const tr_piece *piece, tr__pass pass) {
  int last = piece->index == tr_model_pieces(plan->model) - 1;
  if (is_forward(pass)) return last ? 0 : 1;
  double both = last ? 3 : piece->ops->kind && strcmp(piece->ops->kind, "attention") == 0 ? 2.5 : 2;
  if (!piece->ops->backward_weight) return has_inputs(pass) ? both : 0;
  return pass == TR__PASS_BACKWARD ? both : both / 2;
}

static double forward_flops(const tr_piece *piece, const tr_model_input *input) {
  double sum = 0;
  if (!piece->ops->flops) return 0;
  for (int q = 0; q < input->nseq; q++) {
    int64_t n = input->start[q + 1] - input->start[q];
    if (n > 0) sum += (double)n * piece->ops->flops(piece, n);
  }
  return sum;
}

static double port_bytes(const tr_train_plan *plan, const tr_model *model, const tr_port *port, int64_t rows) {
  const tr_value *value = tr_model_value(model, port->value);
  tr_dtype type = tr__train_type(plan->config);
  if (value->kind == TR_VALUE_STATE) type = tr_wide(type);
  return (double)rows * (double)value->width * (double)tr_dtype_size(type);
}

// A piece that reads no value looks rows up in its parameters; every other one reads them whole.
static double param_bytes(const tr_model *model, const tr_piece *piece, int k, int64_t rows, tr_dtype type) {
  const tr_shape *shape = &tr_model_param(model, piece->param[k])->shape;
  int64_t count = tr_shape_count(shape), touched = rows * shape->dim[shape->ndim - 1];
  if (piece->nin == 0 && touched < count) count = touched;
  return (double)count * (double)tr_dtype_size(type);
}

static double forward_bytes(const tr_train_plan *plan, const tr_model *model, const tr_piece *piece, int64_t rows) {
  double sum = 0;
  for (int k = 0; k < piece->nin; k++) sum += port_bytes(plan, model, &piece->in[k], rows);
  for (int k = 0; k < piece->nout; k++) sum += port_bytes(plan, model, &piece->out[k], rows);
  for (int k = 0; k < piece->nparam; k++) sum += param_bytes(model, piece, k, rows, tr__train_type(plan->config));
  return sum;
}

static int is_activation(const tr_model *model, const tr_port *port) {
  return tr_model_value(model, port->value)->kind == TR_VALUE_ACTIVATION;
}

// Gradients that share memory with another one move nothing.
static double backward_bytes(const tr_train_plan *plan, const tr_model *model, const tr_piece *piece, tr__pass pass,
                             int64_t rows) {
  const unsigned used = (has_inputs(pass) ? TR_USE_I : 0) | (has_weights(pass) ? TR_USE_W : 0);
  const int gives_weights = piece->nparam > 0 && (piece->ops->backward_weight ? has_weights(pass) : has_inputs(pass));
  const tr_dtype type = tr__train_type(plan->config);
  int computes = gives_weights;
  double sum = 0;
  for (int k = 0; k < piece->nin; k++) {
    const tr_port *port = &piece->in[k];
    if (port->use & used) sum += port_bytes(plan, model, port, rows);
    if (!has_inputs(pass) || !is_activation(model, port) || port->use & TR_ALIAS_GRAD) continue;
    sum += port_bytes(plan, model, port, rows);
    computes = 1;
  }
  for (int k = 0; k < piece->nout; k++) {
    if (piece->out[k].use & used) sum += port_bytes(plan, model, &piece->out[k], rows);
    if (computes && is_activation(model, &piece->out[k])) sum += port_bytes(plan, model, &piece->out[k], rows);
  }
  for (int k = 0; k < piece->nparam; k++) {
    if (has_inputs(pass) && piece->nin > 0) sum += param_bytes(model, piece, k, rows, type);
    if (gives_weights) sum += param_bytes(model, piece, k, rows, tr_wide(type));
  }
  return sum;
}

tr__cost tr__piece_cost(const tr_train_plan *plan, const tr_model *model, int piece, tr__pass pass,
                        const tr_model_input *input) {
  const tr_piece *p = tr_model_piece(model, piece);
  int last = p->index == tr_model_pieces(plan->model) - 1;
  tr__cost cost = {.flops = factor(plan, p, pass) * forward_flops(p, input)};
  if (!is_forward(pass))
    cost.bytes = backward_bytes(plan, model, p, pass, input->rows);
  else if (!last)
    cost.bytes = forward_bytes(plan, model, p, input->rows);
  return cost;
}

// ---- operations

double tr__op_flops(const tr_train_plan *plan, const tr_model *model, const tr_op *op) {
  const int64_t sequence = plan->config->data.sequence;
  const double rows = (double)plan->micro * (double)sequence;
  double sum = 0;
  if (op->kind > TR_OP_R) return 0;
  for (uint32_t i = op->piece_begin; i < op->piece_end; i++) {
    const tr_piece *piece = tr_model_piece(model, (int)i);
    if (piece->ops->flops) sum += rows * factor(plan, piece, tr__pass_of(op)) * piece->ops->flops(piece, sequence);
  }
  return sum;
}

// The elements of units [unit_begin, unit_end) that `rank` updates: with owned parts, those of its part of their bucket.
static int64_t updated(const tr_train_plan *plan, int rank, const tr_op *op) {
  const tr_train_part *part = tr_train_part_of(plan, rank);
  const tr_layout *layout = &part->layout;
  const int64_t begin = layout->unit_start[op->unit_begin], end = layout->unit_start[op->unit_end];
  if (!plan->step.zero) return end - begin;
  int64_t sum = 0, first, count;
  for (int b = 0; b < part->program.nbucket; b++) {
    const tr_bucket *bucket = &part->program.bucket[b];
    tr_layout_own(layout, bucket->unit_begin, bucket->unit_end, plan->step.dp, tr_train_gradient_place(plan, rank),
                  &first, &count);
    int64_t from = first > begin ? first : begin, to = first + count < end ? first + count : end;
    sum += to > from ? to - from : 0;
  }
  return sum;
}

// Weights read and their packed forms written, each rank's part where ranks share them.
static double packing_bytes(const tr_train_plan *plan, int rank, const tr_op *op) {
  tr_run_options run;
  size_t sum = 0;
  tr_train_run_options(plan, rank, &run);
  for (int i = 0; i < tr_model_params(run.model); i++) {
    const tr_param *param = tr_model_param(run.model, i);
    if (param->unit < op->unit_begin || param->unit >= op->unit_end) continue;
    for (int use = 0; use < TR_PACKS; use++) {
      size_t packed = tr_run_packed_bytes(&run, i, (tr_pack)use);
      if (packed) sum += packed + (size_t)tr_shape_count(&param->shape) * tr_dtype_size(run.type);
    }
  }
  return (double)sum / (plan->step.zero ? plan->step.dp : 1);
}

// What a stage hands on: one activation of all rows, or its gradient.
static double message_bytes(const tr_train_plan *plan, int rank, const tr_op *op) {
  const tr_train_part *part = tr_train_part_of(plan, rank);
  const tr_model_boundary *boundary = &part->boundary[op->chunk];
  int leaves = (op->kind == TR_OP_SEND) == (op->role == TR_ROLE_ACTIVATION);
  const tr_value *value = tr_model_value(part->model, leaves ? boundary->out : boundary->in);
  return (double)plan->micro * (double)plan->config->data.sequence * (double)value->width *
         (double)tr_dtype_size(tr__stage_type(plan->config));
}

// All but gradients and messages is a number from each rank; what ranks share needs no copy.
static double comm_bytes(const tr_train_plan *plan, int rank, const tr_op *op) {
  const tr_train_config *c = plan->config;
  if (op->kind == TR_OP_SEND || op->kind == TR_OP_RECV) return message_bytes(plan, rank, op);
  const int64_t *start = tr_train_part_of(plan, rank)->layout.unit_start;
  if (op->role != TR_ROLE_GRADIENT && op->role != TR_ROLE_TIED) return (double)plan->step.dp * sizeof(double);
  tr_dtype wire = c->precision.grad_wire == TR_COMPUTE_BF16 ? TR_BF16 : tr_wide(tr__train_type(c));
  return (double)(start[op->unit_end] - start[op->unit_begin]) * (double)tr_dtype_size(wire);
}

// With owned parts the squares were summed with the gradients, by block; in a pipeline before ranks told each other theirs.
static double norm_bytes(const tr_train_plan *plan, const tr_layout *layout) {
  if (plan->schedule.p > 1) return 0;
  if (plan->step.zero) return (double)tr_layout_blocks(layout, layout->nunit) * sizeof(double);
  return (double)layout->total * sizeof(float);
}

double tr__op_bytes(const tr_train_plan *plan, int rank, const tr_op *op) {
  const tr_dtype type = tr__train_type(plan->config);
  if (op->lane == TR_LANE_COMM) return comm_bytes(plan, rank, op);
  switch ((tr_op_kind)op->kind) {
  case TR_OP_NORM: return norm_bytes(plan, &tr_train_part_of(plan, rank)->layout);
  case TR_OP_PUBLISH: return packing_bytes(plan, rank, op);
  case TR_OP_UPDATE: { // gradient read; weights and state read and written; the working copy written
    size_t each = sizeof(float) * (3 + 2 * (size_t)tr_optim_state_count(&plan->optim));
    return (double)updated(plan, rank, op) * (double)(each + (type != TR_F32 ? tr_dtype_size(type) : 0));
  }
  default: return 0;
  }
}
