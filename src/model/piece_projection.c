// SPDX-License-Identifier: MIT
// Matrix products as pieces: y = x W^T + b, and several such products of one input side by side.
//
// The products of a projection write column ranges of one output, so that what reads it (attention, SwiGLU) sees one
// row per token; going back, each weight reads its own columns of the gradient. A linear piece is a projection of
// one. Parameters are the weights in order, then the biases that are there.
#include "model/piece_internal.h"
#include <string.h>

enum { PRODUCTS = 3 };

typedef struct {
  int n, bias[PRODUCTS]; // number of the bias among the piece's parameters, -1: none
  int64_t nin, width, first[PRODUCTS], nout[PRODUCTS];
} projection_config;

static tr_matmul forward_shape(const projection_config *p, int i, tr_dtype type, int64_t rows) {
  return (tr_matmul){.m = rows,
                     .n = p->nout[i],
                     .k = p->nin,
                     .trans_b = 1,
                     .lda = p->nin,
                     .ldb = p->nin,
                     .ldc = p->width,
                     .type = type,
                     .type_c = type};
}
static tr_matmul input_shape(const projection_config *p, int i, tr_dtype type, int64_t rows, int add) {
  return (tr_matmul){.m = rows,
                     .n = p->nin,
                     .k = p->nout[i],
                     .lda = p->width,
                     .ldb = p->nin,
                     .ldc = p->nin,
                     .type = type,
                     .type_c = type,
                     .add = add};
}
static tr_matmul weight_shape(const projection_config *p, int i, tr_dtype type, int64_t rows, int add) {
  return (tr_matmul){.m = p->nout[i],
                     .n = p->nin,
                     .k = rows,
                     .trans_a = 1,
                     .lda = p->width,
                     .ldb = p->nin,
                     .ldc = p->nin,
                     .type = type,
                     .type_c = tr_wide(type),
                     .add = add};
}

// The packed form of a weight where it is there, and the product told of it.
static const void *weight_for(const tr_piece_call *c, int i, tr_pack use, tr_matmul *shape) {
  shape->b_packed = c->packed[i][use] != NULL;
  return shape->b_packed ? c->packed[i][use] : c->param[i];
}

static tr_status projection_forward(const tr_piece_call *c) {
  const projection_config *p = c->piece->config;
  for (int i = 0; i < p->n; i++) {
    tr_matmul shape = forward_shape(p, i, c->type, c->input->rows);
    const void *bias = p->bias[i] < 0 ? NULL : c->param[p->bias[i]];
    const void *weight = weight_for(c, i, TR_PACK_FORWARD, &shape);
    TR_TRY(c->compute->kernels->matmul(c->compute, &shape, c->in[0], weight, bias,
                                       tr__element(c->out[0], p->first[i], c->type)));
  }
  return TR_OK;
}

static tr_status projection_backward_input(const tr_piece_call *c) {
  const projection_config *p = c->piece->config;
  for (int i = 0; i < p->n; i++) {
    tr_matmul shape = input_shape(p, i, c->type, c->input->rows, c->add_in[0] || i > 0);
    const void *weight = weight_for(c, i, TR_PACK_BACKWARD, &shape);
    TR_TRY(c->compute->kernels->matmul(c->compute, &shape, tr__element(c->dout[0], p->first[i], c->type), weight, NULL,
                                       c->din[0]));
  }
  return TR_OK;
}

// Sums of all columns at once, then each bias takes its own: the gradient is read in one pass.
static tr_status bias_gradients(const tr_piece_call *c) {
  const projection_config *p = c->piece->config;
  const tr_kernels *kernels = c->compute->kernels;
  tr_dtype wide = tr_wide(c->type);
  size_t mark = tr_arena_mark(c->compute->scratch);
  void *sums = tr_arena_alloc(c->compute->scratch, (size_t)p->width * tr_dtype_size(wide));
  if (!sums) return TR_ERR_MEMORY;
  kernels->column_sum(c->compute, c->input->rows, p->width, c->type, c->dout[0], sums, 0);
  for (int i = 0; i < p->n; i++) {
    if (p->bias[i] < 0) continue;
    const void *own = tr__element(sums, p->first[i], wide);
    if (c->add_param[p->bias[i]])
      kernels->add(c->compute, (size_t)p->nout[i], wide, own, c->dparam[p->bias[i]]);
    else
      memcpy(c->dparam[p->bias[i]], own, (size_t)p->nout[i] * tr_dtype_size(wide));
  }
  tr_arena_reset(c->compute->scratch, mark);
  return TR_OK;
}

static tr_status projection_backward_weight(const tr_piece_call *c) {
  const projection_config *p = c->piece->config;
  for (int i = 0; i < p->n; i++) {
    tr_matmul shape = weight_shape(p, i, c->type, c->input->rows, c->add_param[i]);
    TR_TRY(c->compute->kernels->matmul(c->compute, &shape, tr__element(c->dout[0], p->first[i], c->type), c->in[0],
                                       NULL, c->dparam[i]));
  }
  return c->piece->nparam > p->n ? bias_gradients(c) : TR_OK;
}

static size_t larger(size_t a, size_t b) { return a > b ? a : b; }

static size_t projection_scratch(const tr_piece *piece, const tr_kernels *kernels, tr_dtype type, int64_t rows,
                                 int nthread) {
  const projection_config *p = piece->config;
  size_t need = tr_arena_rounded((size_t)p->width * tr_dtype_size(tr_wide(type))) +
                kernels->column_sum_scratch(rows, p->width, type);
  if (piece->nparam == p->n) need = 0;
  for (int i = 0; i < p->n; i++) {
    tr_matmul forward = forward_shape(p, i, type, rows), input = input_shape(p, i, type, rows, 1),
              weight = weight_shape(p, i, type, rows, 1);
    need = larger(need, kernels->matmul_scratch(&forward, nthread));
    need = larger(need, kernels->matmul_scratch(&input, nthread));
    need = larger(need, kernels->matmul_scratch(&weight, nthread));
  }
  return need;
}

static double projection_flops(const tr_piece *piece, int64_t sequence) {
  (void)sequence;
  const projection_config *p = piece->config;
  return 2.0 * (double)p->nin * (double)p->width;
}

static const tr_piece_ops projection_ops = {.kind = "projection",
                                            .forward = projection_forward,
                                            .backward_input = projection_backward_input,
                                            .backward_weight = projection_backward_weight,
                                            .scratch = projection_scratch,
                                            .flops = projection_flops};

// Sizes and parameters of product i, appended to the piece under construction; 0 when something does not fit.
static int add_product(tr_model *model, const char *name, int weight, projection_config *config) {
  if (!tr__piece_has_param(model, name, weight, 2)) return 0;
  const tr_shape *shape = &tr_model_param(model, weight)->shape;
  int i = config->n++;
  config->nout[i] = shape->dim[0];
  config->first[i] = config->width;
  config->width += shape->dim[0];
  if (i == 0) config->nin = shape->dim[1];
  if (config->nin == shape->dim[1]) return 1;
  tr__model_fail(model, "piece", name, "has weights with inputs of different widths");
  return 0;
}

static int add_bias(tr_model *model, int i, int bias, projection_config *config, tr_piece *piece) {
  config->bias[i] = -1;
  if (bias < 0) return 1;
  if (!tr__piece_has_param(model, piece->name, bias, 1)) return 0;
  if (tr_model_param(model, bias)->shape.dim[0] != config->nout[i]) {
    tr__model_fail(model, "piece", piece->name, "has a bias that does not fit its weight");
    return 0;
  }
  config->bias[i] = piece->nparam;
  piece->param[piece->nparam++] = bias;
  return 1;
}

int tr_piece_projection(tr_model *model, const char *name, int n, const int *weight, const int *bias, int x, int y,
                        int tp) {
  projection_config config = {0};
  tr_piece piece = {.name = name,
                    .ops = &projection_ops,
                    .nin = 1,
                    .in = {{.value = x, .use = TR_USE_W}},
                    .nout = 1,
                    .out = {{.value = y, .use = TR_USE_DW}},
                    .nparam = n,
                    .config = &config,
                    .config_nbyte = sizeof config};
  if (n < 1 || n > PRODUCTS) return tr__model_fail(model, "piece", name, "needs one to three products");
  for (int i = 0; i < n; i++) {
    if (!add_product(model, name, weight[i], &config)) return -1;
    piece.param[i] = weight[i];
    piece.pack[i] = 1 << TR_PACK_FORWARD | 1 << TR_PACK_BACKWARD;
  }
  if (!tr__piece_has_width(model, name, x, config.nin) || !tr__piece_has_width(model, name, y, config.width))
    return -1;
  for (int i = 0; i < n; i++)
    if (!add_bias(model, i, bias ? bias[i] : -1, &config, &piece)) return -1;
  const tr_placement sharded = {TR_SHARD, 1}, partial = {TR_PARTIAL, 0};
  if (tp == 1) piece.out[0].tp = sharded;
  if (tp == 2) piece.in[0].tp = sharded, piece.out[0].tp = partial;
  return tr_model_add_piece(model, &piece);
}

int tr_piece_linear(tr_model *model, const char *name, int weight, int bias, int x, int y, int tp) {
  return tr_piece_projection(model, name, 1, &weight, &bias, x, y, tp);
}
