// SPDX-License-Identifier: MIT
// Pieces of one or two kernel calls: embedding, LayerNorm, RMSNorm, GELU, SwiGLU, residual. What is worth reading is
// which values backward needs (the `use` of a port) and where a gradient may share memory.
#include "model/piece_internal.h"
#include <string.h>

static const tr_placement sharded = {TR_SHARD, 1};

tr_dropout tr__piece_dropout(const tr_piece_call *call, double p) {
  if (!call->training || p <= 0) return (tr_dropout){0};
  // Every site draws from its own stream: the piece's number is part of the purpose.
  uint32_t purpose = TR_RNG_DROPOUT | (uint32_t)call->piece->index << 8;
  return (tr_dropout){.p = (float)p,
                      .key = tr_rng_key_make(call->seed, purpose, (uint64_t)call->step),
                      .sample = call->input->sample,
                      .position = call->input->position};
}

// ---- embedding

typedef struct {
  double dropout;
  int64_t width, vocab, positions;
} embedding_config;

static tr_status embedding_forward(const tr_piece_call *c) {
  const embedding_config *config = c->piece->config;
  tr_dropout dropout = tr__piece_dropout(c, config->dropout);
  c->compute->kernels->embedding_forward(c->compute, c->input->rows, config->width, c->type, c->input->token,
                                         c->input->position, c->param[0], c->piece->nparam > 1 ? c->param[1] : NULL,
                                         &dropout, c->out[0]);
  return TR_OK;
}

static tr_status embedding_backward(const tr_piece_call *c) {
  const embedding_config *config = c->piece->config;
  tr_dropout dropout = tr__piece_dropout(c, config->dropout);
  int has_wpe = c->piece->nparam > 1;
  c->compute->kernels->embedding_backward(c->compute, c->input->rows, config->width, c->type, c->input->token,
                                          c->input->position, &dropout, c->dout[0], c->dparam[0], config->vocab,
                                          c->add_param[0], has_wpe ? c->dparam[1] : NULL, config->positions,
                                          has_wpe ? c->add_param[1] : 0);
  return TR_OK;
}

static const tr_piece_ops embedding_ops = {
    .kind = "embedding", .forward = embedding_forward, .backward_weight = embedding_backward};

int tr_piece_embedding(tr_model *model, const char *name, int wte, int wpe, double dropout, int y) {
  if (!tr__piece_has_param(model, name, wte, 2) || (wpe >= 0 && !tr__piece_has_param(model, name, wpe, 2))) return -1;
  const tr_shape *shape = &tr_model_param(model, wte)->shape;
  if (!tr__piece_has_width(model, name, y, shape->dim[1])) return -1;
  if (wpe >= 0 && tr_model_param(model, wpe)->shape.dim[1] != shape->dim[1])
    return tr__model_fail(model, "piece", name, "adds embeddings of different widths");
  if (!(dropout >= 0 && dropout < 1)) return tr__model_fail(model, "piece", name, "needs a dropout in [0, 1)");
  embedding_config config = {dropout, shape->dim[1], shape->dim[0],
                             wpe < 0 ? 0 : tr_model_param(model, wpe)->shape.dim[0]};
  tr_piece piece = {.name = name,
                    .ops = &embedding_ops,
                    .nout = 1,
                    .out = {{.value = y, .use = TR_USE_DW}},
                    .nparam = wpe < 0 ? 1 : 2,
                    .param = {wte, wpe < 0 ? 0 : wpe},
                    .config = &config,
                    .config_nbyte = sizeof config};
  return tr_model_add_piece(model, &piece);
}

// ---- LayerNorm

typedef struct {
  double eps;
  int64_t width;
} layernorm_config;

static tr_status layernorm_forward(const tr_piece_call *c) {
  const layernorm_config *config = c->piece->config;
  c->compute->kernels->layernorm_forward(c->compute, c->input->rows, config->width, c->type, (float)config->eps,
                                         c->in[0], c->param[0], c->param[1], c->out[0], c->out[1], c->out[2]);
  return TR_OK;
}

// Gives the vector gradients here too: they cost one more read of what is in the cache anyway.
static tr_status layernorm_backward(const tr_piece_call *c) {
  const layernorm_config *config = c->piece->config;
  int add = c->add_param[0] || c->add_param[1];
  for (int k = 0; add && k < 2; k++) // one of the two is shared with another piece and the other is not
    if (!c->add_param[k]) memset(c->dparam[k], 0, (size_t)config->width * tr_dtype_size(tr_wide(c->type)));
  c->compute->kernels->layernorm_backward(c->compute, c->input->rows, config->width, c->type, c->dout[0], c->in[0],
                                          c->param[0], c->out[1], c->out[2], c->din[0], c->add_in[0], c->dparam[0],
                                          c->dparam[1], add);
  return TR_OK;
}

static size_t layernorm_scratch(const tr_piece *piece, const tr_kernels *kernels, tr_dtype type, int64_t rows,
                                int nthread) {
  (void)nthread;
  return kernels->layernorm_backward_scratch(rows, ((const layernorm_config *)piece->config)->width, type);
}

static const tr_piece_ops layernorm_ops = {.kind = "layernorm",
                                           .cheap = 1,
                                           .forward = layernorm_forward,
                                           .backward_input = layernorm_backward,
                                           .scratch = layernorm_scratch};

int tr_piece_layernorm(tr_model *model, const char *name, int gamma, int beta, double eps, int x, int y, int mean,
                       int rstd) {
  if (!tr__piece_has_param(model, name, gamma, 1) || !tr__piece_has_param(model, name, beta, 1)) return -1;
  int64_t width = tr_model_param(model, gamma)->shape.dim[0];
  if (tr_model_param(model, beta)->shape.dim[0] != width)
    return tr__model_fail(model, "piece", name, "has a scale and a shift of different sizes");
  if (!tr__piece_has_width(model, name, x, width) || !tr__piece_has_width(model, name, y, width) ||
      !tr__piece_has_width(model, name, mean, 1) || !tr__piece_has_width(model, name, rstd, 1))
    return -1;
  layernorm_config config = {eps, tr_model_param(model, gamma)->shape.dim[0]};
  tr_piece piece = {.name = name,
                    .ops = &layernorm_ops,
                    .nin = 1,
                    .in = {{.value = x, .use = TR_USE_I}},
                    .nout = 3,
                    .out = {{.value = y}, {.value = mean, .use = TR_USE_I}, {.value = rstd, .use = TR_USE_I}},
                    .nparam = 2,
                    .param = {gamma, beta},
                    .config = &config,
                    .config_nbyte = sizeof config};
  return tr_model_add_piece(model, &piece);
}

// ---- RMSNorm

typedef struct {
  double eps;
  int64_t width;
} rmsnorm_config;

static tr_rmsnorm rmsnorm_shape(const tr_piece *piece, tr_dtype type, int64_t rows) {
  const rmsnorm_config *config = piece->config;
  return (tr_rmsnorm){.rows = rows,
                      .count = 1,
                      .width = config->width,
                      .ld_x = config->width,
                      .ld_y = config->width,
                      .type = type,
                      .eps = (float)config->eps};
}

static tr_status rmsnorm_forward(const tr_piece_call *c) {
  tr_rmsnorm p = rmsnorm_shape(c->piece, c->type, c->input->rows);
  c->compute->kernels->rmsnorm_forward(c->compute, &p, c->in[0], c->param[0], c->out[0], c->out[1]);
  return TR_OK;
}

static tr_status rmsnorm_backward(const tr_piece_call *c) {
  tr_rmsnorm p = rmsnorm_shape(c->piece, c->type, c->input->rows);
  c->compute->kernels->rmsnorm_backward(c->compute, &p, c->dout[0], c->in[0], c->param[0], c->out[1], c->din[0],
                                        c->add_in[0], c->dparam[0], c->add_param[0]);
  return TR_OK;
}

static size_t rmsnorm_scratch(const tr_piece *piece, const tr_kernels *kernels, tr_dtype type, int64_t rows,
                              int nthread) {
  (void)nthread;
  tr_rmsnorm p = rmsnorm_shape(piece, type, rows);
  return kernels->rmsnorm_backward_scratch(&p);
}

static const tr_piece_ops rmsnorm_ops = {.kind = "rmsnorm",
                                         .cheap = 1,
                                         .forward = rmsnorm_forward,
                                         .backward_input = rmsnorm_backward,
                                         .scratch = rmsnorm_scratch};

int tr_piece_rmsnorm(tr_model *model, const char *name, int gamma, double eps, int x, int y, int rstd) {
  if (!tr__piece_has_param(model, name, gamma, 1)) return -1;
  rmsnorm_config config = {eps, tr_model_param(model, gamma)->shape.dim[0]};
  if (!tr__piece_has_width(model, name, x, config.width) || !tr__piece_has_width(model, name, y, config.width) ||
      !tr__piece_has_width(model, name, rstd, 1))
    return -1;
  tr_piece piece = {.name = name,
                    .ops = &rmsnorm_ops,
                    .nin = 1,
                    .in = {{.value = x, .use = TR_USE_I}},
                    .nout = 2,
                    .out = {{.value = y}, {.value = rstd, .use = TR_USE_I}},
                    .nparam = 1,
                    .param = {gamma},
                    .config = &config,
                    .config_nbyte = sizeof config};
  return tr_model_add_piece(model, &piece);
}

// ---- GELU

static tr_status gelu_forward(const tr_piece_call *c) {
  size_t n = (size_t)(c->input->rows * *(const int64_t *)c->piece->config);
  c->compute->kernels->gelu_forward(c->compute, n, c->type, c->in[0], c->out[0]);
  return TR_OK;
}

static tr_status gelu_backward(const tr_piece_call *c) {
  size_t n = (size_t)(c->input->rows * *(const int64_t *)c->piece->config);
  c->compute->kernels->gelu_backward(c->compute, n, c->type, c->in[0], c->dout[0], c->din[0]);
  return TR_OK;
}

static const tr_piece_ops gelu_ops = {
    .kind = "gelu", .cheap = 1, .forward = gelu_forward, .backward_input = gelu_backward};

int tr_piece_gelu(tr_model *model, const char *name, int x, int y) {
  if (x < 0 || x >= tr_model_values(model))
    return tr__model_fail(model, "piece", name, "has a port on an unknown value");
  int64_t width = tr_model_value(model, x)->width;
  if (!tr__piece_has_width(model, name, y, width)) return -1;
  tr_piece piece = {.name = name,
                    .ops = &gelu_ops,
                    .nin = 1,
                    .in = {{.value = x, .use = TR_USE_I | TR_SET_GRAD, .tp = sharded}},
                    .nout = 1,
                    .out = {{.value = y, .tp = sharded}},
                    .config = &width,
                    .config_nbyte = sizeof width};
  return tr_model_add_piece(model, &piece);
}

// ---- SwiGLU

static tr_status swiglu_forward(const tr_piece_call *c) {
  c->compute->kernels->swiglu_forward(c->compute, c->input->rows, *(const int64_t *)c->piece->config, c->type,
                                      c->in[0], c->out[0]);
  return TR_OK;
}

static tr_status swiglu_backward(const tr_piece_call *c) {
  c->compute->kernels->swiglu_backward(c->compute, c->input->rows, *(const int64_t *)c->piece->config, c->type,
                                       c->in[0], c->dout[0], c->din[0]);
  return TR_OK;
}

static const tr_piece_ops swiglu_ops = {
    .kind = "swiglu", .cheap = 1, .forward = swiglu_forward, .backward_input = swiglu_backward};

int tr_piece_swiglu(tr_model *model, const char *name, int x, int y) {
  if (y < 0 || y >= tr_model_values(model))
    return tr__model_fail(model, "piece", name, "has a port on an unknown value");
  int64_t width = tr_model_value(model, y)->width;
  if (!tr__piece_has_width(model, name, x, 2 * width)) return -1;
  tr_piece piece = {.name = name,
                    .ops = &swiglu_ops,
                    .nin = 1,
                    .in = {{.value = x, .use = TR_USE_I | TR_SET_GRAD, .tp = sharded}},
                    .nout = 1,
                    .out = {{.value = y, .tp = sharded}},
                    .config = &width,
                    .config_nbyte = sizeof width};
  return tr_model_add_piece(model, &piece);
}

// ---- residual

typedef struct {
  double dropout;
  int64_t width;
} residual_config;

static tr_status residual_forward(const tr_piece_call *c) {
  const residual_config *config = c->piece->config;
  tr_dropout dropout = tr__piece_dropout(c, config->dropout);
  c->compute->kernels->residual_forward(c->compute, c->input->rows, config->width, c->type, c->in[0], c->in[1],
                                        &dropout, c->out[0]);
  return TR_OK;
}

// dx is dout: nothing to do where the two share memory. Nobody has written dy before, but dx may have a contribution.
static tr_status residual_backward(const tr_piece_call *c) {
  const residual_config *config = c->piece->config;
  tr_dropout dropout = tr__piece_dropout(c, config->dropout);
  size_t nbyte = (size_t)(c->input->rows * config->width) * tr_dtype_size(c->type);
  if (c->din[1] != c->dout[0])
    c->compute->kernels->dropout_backward(c->compute, c->input->rows, config->width, c->type, &dropout, c->dout[0],
                                          c->din[1]);
  if (c->add_in[0])
    c->compute->kernels->add(c->compute, (size_t)(c->input->rows * config->width), c->type, c->dout[0], c->din[0]);
  else if (c->din[0] != c->dout[0])
    memcpy(c->din[0], c->dout[0], nbyte);
  return TR_OK;
}

static const tr_piece_ops residual_ops = {
    .kind = "residual", .cheap = 1, .forward = residual_forward, .backward_input = residual_backward};

int tr_piece_residual(tr_model *model, const char *name, double dropout, int x, int y, int out) {
  if (out < 0 || out >= tr_model_values(model))
    return tr__model_fail(model, "piece", name, "has a port on an unknown value");
  if (!tr__piece_has_width(model, name, x, tr_model_value(model, out)->width) ||
      !tr__piece_has_width(model, name, y, tr_model_value(model, out)->width))
    return -1;
  if (!(dropout >= 0 && dropout < 1)) return tr__model_fail(model, "piece", name, "needs a dropout in [0, 1)");
  residual_config config = {dropout, tr_model_value(model, out)->width};
  tr_piece piece = {.name = name,
                    .ops = &residual_ops,
                    .nin = 2,
                    .in = {{.value = x, .use = TR_ALIAS_GRAD}, {.value = y, .use = TR_SET_GRAD}},
                    .nout = 1,
                    .out = {{.value = out}},
                    .config = &config,
                    .config_nbyte = sizeof config};
  if (dropout <= 0) piece.in[1].use |= TR_ALIAS_GRAD;
  return tr_model_add_piece(model, &piece);
}
