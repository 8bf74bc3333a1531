// SPDX-License-Identifier: MIT
// GPT-2 from pieces. Per layer: norm, qkv, attention, projection, residual, norm, fc, GELU, projection, residual. One
// unit for the embeddings, one per layer, one for the final norm (and the head, when it is not tied).
#include "trireme/model/gpt2.h"
#include "model/config_internal.h"
#include "model/piece_internal.h"
#include "trireme/model/piece.h"
#include <math.h>
#include <stdio.h>

void tr_gpt2_config_init(tr_gpt2_config *config) {
  *config = (tr_gpt2_config){.layers = 12,
                             .width = 768,
                             .heads = 12,
                             .vocab = 50257,
                             .positions = 1024,
                             .eps = 1e-5,
                             .init_std = 0.02,
                             .tied = 1};
}

tr_status tr_gpt2_config_check(const tr_gpt2_config *config) {
  TR_TRY(tr__config_range("layers", (double)config->layers, 1, 1000));
  TR_TRY(tr__config_range("width", (double)config->width, 1, 1 << 20));
  TR_TRY(tr__config_range("heads", (double)config->heads, 1, (double)config->width));
  TR_TRY(tr__config_range("ffn", (double)config->ffn, 0, 1 << 22));
  TR_TRY(tr__config_range("vocab", (double)config->vocab, 1, 1 << 24));
  TR_TRY(tr__config_range("positions", (double)config->positions, 1, 1 << 24));
  TR_TRY(tr__config_range("eps", config->eps, 1e-12, 1));
  TR_TRY(tr__config_range("init_std", config->init_std, 0, 10));
  TR_TRY(tr__config_range("dropout_embedding", config->dropout_embedding, 0, 0.99));
  TR_TRY(tr__config_range("dropout_residual", config->dropout_residual, 0, 0.99));
  TR_TRY(tr__config_range("dropout_attention", config->dropout_attention, 0, 0.99));
  return tr__config_divides("heads", config->heads, "width", config->width);
}

// What building one layer needs to know.
typedef struct builder {
  tr_model *model;
  const tr_gpt2_config *config;
  int64_t ffn;
  int unit;
  const char *layer; // "h.3"
} builder;

static int param(builder *b, const char *suffix, tr_param_role role, int64_t rows, int64_t columns, tr_init_kind init,
                 double std, int transposed) {
  char name[128];
  snprintf(name, sizeof name, "transformer.%s%s%s", b->layer, *b->layer ? "." : "", suffix);
  tr_param p = {.name = name,
                .role = role,
                .init = init,
                .std = std,
                .transposed = transposed,
                .shape = {.ndim = columns ? 2 : 1, .dim = {rows, columns}}};
  return tr_model_add_param(b->model, b->unit, &p);
}

static int value(builder *b, const char *suffix, tr_value_kind kind, int64_t width) {
  char name[128];
  snprintf(name, sizeof name, "%s%s%s", b->layer, *b->layer ? "." : "", suffix);
  return tr_model_add_value(b->model, name, kind, width);
}

static const char *piece_name(const builder *b, const char *suffix, char *out, size_t nbyte) {
  snprintf(out, nbyte, "%s%s%s", b->layer, *b->layer ? "." : "", suffix);
  return out;
}

static int norm(builder *b, const char *suffix, int x) {
  char text[64], name[128];
  int64_t width = b->config->width;
  snprintf(text, sizeof text, "%s.weight", suffix);
  int gamma = param(b, text, TR_ROLE_NORM, width, 0, TR_INIT_ONES, 0, 0);
  snprintf(text, sizeof text, "%s.bias", suffix);
  int beta = param(b, text, TR_ROLE_NORM, width, 0, TR_INIT_ZEROS, 0, 0);
  int y = value(b, suffix, TR_VALUE_ACTIVATION, width);
  snprintf(text, sizeof text, "%s.mean", suffix);
  int mean = value(b, text, TR_VALUE_STATE, 1);
  snprintf(text, sizeof text, "%s.rstd", suffix);
  int rstd = value(b, text, TR_VALUE_STATE, 1);
  tr_piece_layernorm(b->model, piece_name(b, suffix, name, sizeof name), gamma, beta, b->config->eps, x, y, mean,
                     rstd);
  return y;
}

static int linear(builder *b, const char *suffix, int x, int64_t nin, int64_t nout, double std, int tp) {
  char text[64], name[128];
  snprintf(text, sizeof text, "%s.weight", suffix);
  int weight = param(b, text, TR_ROLE_MATRIX, nout, nin, TR_INIT_NORMAL, std, 1);
  snprintf(text, sizeof text, "%s.bias", suffix);
  int bias = param(b, text, TR_ROLE_BIAS, nout, 0, TR_INIT_ZEROS, 0, 0);
  int y = value(b, suffix, TR_VALUE_ACTIVATION, nout);
  tr_piece_linear(b->model, piece_name(b, suffix, name, sizeof name), weight, bias, x, y, tp);
  return y;
}

static int residual(builder *b, const char *suffix, int x, int y) {
  char name[128];
  int out = value(b, suffix, TR_VALUE_ACTIVATION, b->config->width);
  tr_piece_residual(b->model, piece_name(b, suffix, name, sizeof name), b->config->dropout_residual, x, y, out);
  return out;
}

static int attention(builder *b, int qkv) {
  char name[128];
  const tr_gpt2_config *c = b->config;
  tr_attention_config config = {.heads = c->heads,
                                .heads_kv = c->heads,
                                .dim = c->width / c->heads,
                                .dropout = c->dropout_attention,
                                .positions = c->positions};
  int out = value(b, "attn.out", TR_VALUE_ACTIVATION, c->width);
  int lse = value(b, "attn.lse", TR_VALUE_STATE, c->heads);
  tr_piece_attention(b->model, piece_name(b, "attn", name, sizeof name), &config, qkv, out, lse);
  return out;
}

static int layer(builder *b, int64_t index, int x) {
  char layer_name[32], name[128];
  const tr_gpt2_config *c = b->config;
  snprintf(layer_name, sizeof layer_name, "h.%lld", (long long)index);
  b->layer = layer_name;
  b->unit = tr_model_add_unit(b->model, layer_name);
  double std_out = c->init_std / sqrt(2.0 * (double)c->layers);
  int qkv = linear(b, "attn.c_attn", norm(b, "ln_1", x), c->width, 3 * c->width, c->init_std, 1);
  int projected = linear(b, "attn.c_proj", attention(b, qkv), c->width, c->width, std_out, 2);
  int middle = residual(b, "attn.add", x, projected);
  int hidden = linear(b, "mlp.c_fc", norm(b, "ln_2", middle), c->width, b->ffn, c->init_std, 1);
  int activated = value(b, "mlp.gelu", TR_VALUE_ACTIVATION, b->ffn);
  tr_piece_gelu(b->model, piece_name(b, "mlp.gelu", name, sizeof name), hidden, activated);
  int out = residual(b, "mlp.add", middle, linear(b, "mlp.c_proj", activated, b->ffn, c->width, std_out, 2));
  b->layer = "";
  return out;
}

static void head(builder *b, int wte, int x) {
  const tr_gpt2_config *c = b->config;
  b->unit = tr_model_add_unit(b->model, "ln_f");
  int y = norm(b, "ln_f", x);
  tr__piece_output_head(b->model, b->unit, c->tied ? wte : -1, c->vocab, c->width, c->init_std, y);
}

tr_status tr_gpt2_create(const tr_gpt2_config *config, tr_model **out) {
  TR_TRY(tr_gpt2_config_check(config));
  tr_model *model;
  TR_TRY(tr_model_create("gpt2", &model));
  tr_model_set_limits(model, config->vocab, config->positions);
  builder b = {.model = model, .config = config, .ffn = config->ffn ? config->ffn : 4 * config->width, .layer = ""};
  b.unit = tr_model_add_unit(model, "embedding");
  int wte =
      param(&b, "wte.weight", TR_ROLE_EMBEDDING, config->vocab, config->width, TR_INIT_NORMAL, config->init_std, 0);
  int wpe = param(&b, "wpe.weight", TR_ROLE_EMBEDDING, config->positions, config->width, TR_INIT_NORMAL,
                  config->init_std / 2, 0);
  int x = value(&b, "embedding", TR_VALUE_ACTIVATION, config->width);
  tr_piece_embedding(model, "embedding", wte, wpe, config->dropout_embedding, x);
  for (int64_t i = 0; i < config->layers; i++) x = layer(&b, i, x);
  head(&b, wte, x);
  tr_status status = tr_model_finish(model);
  if (status < 0) {
    tr_model_destroy(model);
    return status;
  }
  *out = model;
  return TR_OK;
}
