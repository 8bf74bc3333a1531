// SPDX-License-Identifier: MIT
// The output head and the loss as one piece. While training, its forward pass does nothing: the backward pass
// computes loss, input gradient and weight gradient together, tile by tile, so logits are computed once and
// never stored whole. The valid tokens of the step are known before the first forward pass, so gradients are
// written in their final scale.
#include "model/piece_internal.h"
#include <string.h>

typedef struct {
  int64_t width, vocab;
} head_config;

static tr_head_loss head_shape(const head_config *config, tr_dtype type, int64_t rows) {
  return (tr_head_loss){.rows = rows, .width = config->width, .vocab = config->vocab, .type = type};
}

static tr_status head_logits(const tr_piece_call *c) {
  const head_config *config = c->piece->config;
  int64_t last = c->input->rows - 1;
  const char *x = (const char *)c->in[0] + (size_t)(last * config->width) * tr_dtype_size(c->type);
  tr_matmul shape = {.m = 1,
                     .n = config->vocab,
                     .k = config->width,
                     .trans_b = 1,
                     .lda = config->width,
                     .ldb = config->width,
                     .ldc = config->vocab,
                     .type = c->type,
                     .type_c = tr_wide(c->type)};
  return c->compute->kernels->matmul(c->compute, &shape, x, c->param[0], NULL, c->logits);
}

static tr_status head_forward(const tr_piece_call *c) {
  if (c->logits) return head_logits(c);
  if (c->training) return TR_OK;
  tr_head_loss p = head_shape(c->piece->config, c->type, c->input->rows);
  p.x = c->in[0];
  p.w = c->param[0];
  memcpy(p.packed, c->packed[0], sizeof p.packed);
  p.target = c->input->target;
  p.loss = c->out[0];
  return c->compute->kernels->head_loss(c->compute, &p);
}

static tr_status head_backward(const tr_piece_call *c) {
  tr_head_loss p = head_shape(c->piece->config, c->type, c->input->rows);
  p.scale = c->scale;
  p.x = c->in[0];
  p.w = c->param[0];
  memcpy(p.packed, c->packed[0], sizeof p.packed);
  p.target = c->input->target;
  p.loss = c->out[0];
  p.dx = c->din[0];
  p.dw = c->dparam[0];
  p.add = c->add_param[0];
  return c->compute->kernels->head_loss(c->compute, &p);
}

static size_t head_scratch(const tr_piece *piece, const tr_kernels *kernels, tr_dtype type, int64_t rows,
                           int nthread) {
  tr_head_loss p = head_shape(piece->config, type, rows);
  tr_matmul one = {.m = 1,
                   .n = p.vocab,
                   .k = p.width,
                   .trans_b = 1,
                   .lda = p.width,
                   .ldb = p.width,
                   .ldc = p.vocab,
                   .type = type,
                   .type_c = tr_wide(type)};
  size_t loss = kernels->head_loss_scratch(&p, nthread), logits = kernels->matmul_scratch(&one, nthread);
  return loss > logits ? loss : logits;
}

static double head_flops(const tr_piece *piece, int64_t sequence) {
  (void)sequence;
  const head_config *config = piece->config;
  return 2.0 * (double)config->width * (double)config->vocab;
}

static const tr_piece_ops head_ops = {.kind = "head_loss",
                                      .forward = head_forward,
                                      .backward_input = head_backward,
                                      .scratch = head_scratch,
                                      .flops = head_flops};

int tr_piece_head_loss(tr_model *model, const char *name, int weight, int x, int loss) {
  if (!tr__piece_has_param(model, name, weight, 2)) return -1;
  const tr_shape *shape = &tr_model_param(model, weight)->shape;
  if (!tr__piece_has_width(model, name, x, shape->dim[1]) || !tr__piece_has_width(model, name, loss, 1)) return -1;
  head_config config = {shape->dim[1], shape->dim[0]};
  tr_piece piece = {.name = name,
                    .ops = &head_ops,
                    .nin = 1,
                    .in = {{.value = x, .use = TR_USE_I}},
                    .nout = 1,
                    .out = {{.value = loss, .use = TR_USE_I}},
                    .nparam = 1,
                    .param = {weight},
                    .pack = {1 << TR_PACK_FORWARD | 1 << TR_PACK_BACKWARD},
                    .config = &config,
                    .config_nbyte = sizeof config};
  return tr_model_add_piece(model, &piece);
}

void tr__piece_output_head(tr_model *model, int unit, int tied, int64_t vocab, int64_t width, double init_std,
                           int y) {
  const tr_param own = {.name = "lm_head.weight",
                        .role = TR_ROLE_MATRIX,
                        .init = TR_INIT_NORMAL,
                        .std = init_std,
                        .shape = {.ndim = 2, .dim = {vocab, width}}};
  int weight = tied >= 0 ? tied : tr_model_add_param(model, unit, &own);
  tr_piece_head_loss(model, "head", weight, y, tr_model_add_value(model, "loss", TR_VALUE_STATE, 1));
}
