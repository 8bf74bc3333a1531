// SPDX-License-Identifier: MIT
// The Llama family from pieces. Per layer: norm, q/k/v, rotary positions, attention, projection, residual, norm,
// gate/up, SwiGLU, projection, residual. One unit for the embedding, one per layer, one for the final norm (and the
// head, when it is not tied).
#include "trireme/model/llama.h"
#include "model/config_internal.h"
#include "model/llama_internal.h"
#include "model/piece_internal.h"
#include <stdio.h>

void tr_llama_config_init(tr_llama_config *config) {
  *config = (tr_llama_config){.family = TR_LLAMA,
                              .layers = 32,
                              .width = 4096,
                              .heads = 32,
                              .ffn = 11008,
                              .vocab = 32000,
                              .positions = 4096,
                              .eps = 1e-5,
                              .init_std = 0.02,
                              .rope = {.kind = TR_ROPE_DEFAULT, .theta = 10000, .factor = 1}};
}

const char *tr__llama_family_name(int family) {
  static const char *const name[TR__LLAMA_FAMILIES] = {"llama", "mistral", "qwen2", "qwen3"};
  return name[family];
}

const char *tr__rope_kind_name(int kind) {
  static const char *const name[TR__ROPE_KINDS] = {"default", "linear", "dynamic", "llama3"};
  return name[kind];
}

static tr_status check_heads(const tr_llama_config *c) {
  TR_TRY(tr__config_range("heads", (double)c->heads, 1, 1 << 16));
  TR_TRY(tr__config_range("heads_kv", (double)c->heads_kv, 0, (double)c->heads));
  TR_TRY(tr__config_range("head_dim", (double)c->head_dim, 0, 1 << 16));
  TR_TRY(tr__config_divides("heads_kv", tr__llama_heads_kv(c), "heads", c->heads));
  if (!c->head_dim) TR_TRY(tr__config_divides("heads", c->heads, "width", c->width));
  if (tr__llama_head_dim(c) >= 2 && tr__llama_head_dim(c) % 2 == 0) return TR_OK;
  return tr_error(TR_ERR_CONFIG, "model.head_dim is %lld; rotary positions turn pairs, so it must be even",
                  (long long)tr__llama_head_dim(c));
}

static tr_status check_rope(const tr_llama_config *c) {
  const tr_rope_config *rope = &c->rope;
  TR_TRY(tr__config_range("rope.theta", rope->theta, 1, 1e15));
  if (rope->kind == TR_ROPE_DEFAULT) return TR_OK;
  TR_TRY(tr__config_range("rope.factor", rope->factor, 1, 1e6));
  if (rope->kind == TR_ROPE_DYNAMIC && rope->original_positions && rope->original_positions != c->positions)
    return tr_error(TR_ERR_CONFIG,
                    "model.rope.original_positions is %lld; dynamic positions stretch from model.positions, %lld",
                    (long long)rope->original_positions, (long long)c->positions);
  if (rope->kind != TR_ROPE_LLAMA3) return TR_OK;
  TR_TRY(tr__config_range("rope.original_positions", (double)rope->original_positions, 1, (double)c->positions));
  TR_TRY(tr__config_range("rope.low_freq_factor", rope->low_freq_factor, 1e-6, 1e6));
  if (rope->high_freq_factor > rope->low_freq_factor && rope->high_freq_factor <= 1e9) return TR_OK;
  return tr_error(TR_ERR_CONFIG, "model.rope.high_freq_factor is %.15g; it must be above low_freq_factor, %.15g",
                  rope->high_freq_factor, rope->low_freq_factor);
}

// What a family's config.json can say. A model that cannot be written down must fail before it is trained.
static tr_status check_family(const tr_llama_config *c) {
  int windowed = c->window > 0;
  const char *wrong = NULL;
  if (!!c->head_norm != (c->family == TR_QWEN3))
    wrong = "model.head_norm: qwen3 has norms of heads, and no other does";
  else if (windowed && c->family == TR_LLAMA)
    wrong = "model.window: mistral, qwen2 and qwen3 have one";
  else if (windowed && c->family == TR_MISTRAL && c->window_layer > 0)
    wrong = "model.window_layer: its layers all have the window";
  else if (c->family == TR_MISTRAL && c->qkv_bias)
    wrong = "model.qkv_bias: it has no biases";
  else if (c->family == TR_QWEN2 ? !c->qkv_bias || c->out_bias : !!c->qkv_bias != !!c->out_bias)
    wrong = "model.qkv_bias and out_bias: qwen2 has the first only, the others both or none";
  else if (c->mlp_bias && c->family != TR_LLAMA)
    wrong = "model.mlp_bias: only llama can have them";
  return wrong ? tr_error(TR_ERR_CONFIG, "%s models cannot have this %s", tr__llama_family_name(c->family), wrong)
               : TR_OK;
}

tr_status tr_llama_config_check(const tr_llama_config *config) {
  TR_TRY(tr__config_range("layers", (double)config->layers, 1, 1000));
  TR_TRY(tr__config_range("width", (double)config->width, 1, 1 << 20));
  TR_TRY(check_heads(config));
  TR_TRY(tr__config_range("ffn", (double)config->ffn, 1, 1 << 22));
  TR_TRY(tr__config_range("vocab", (double)config->vocab, 1, 1 << 24));
  TR_TRY(tr__config_range("positions", (double)config->positions, 1, 1 << 24));
  TR_TRY(tr__config_range("eps", config->eps, 1e-12, 1));
  TR_TRY(tr__config_range("init_std", config->init_std, 0, 10));
  TR_TRY(tr__config_range("dropout_attention", config->dropout_attention, 0, 0.99));
  TR_TRY(tr__config_range("window", (double)config->window, 0, 1 << 24));
  TR_TRY(tr__config_range("window_layer", (double)config->window_layer, 0, (double)config->layers));
  TR_TRY(check_rope(config));
  return check_family(config);
}

// Linear and dynamic scaling stretch a model beyond the positions it was trained on; llama3's positions are
// the stretched ones already.
static int64_t longest_sequence(const tr_llama_config *c) {
  int stretched = c->rope.kind == TR_ROPE_LINEAR || c->rope.kind == TR_ROPE_DYNAMIC;
  double longest = stretched ? (double)c->positions * c->rope.factor : (double)c->positions;
  return longest < 1 << 30 ? (int64_t)longest : 1 << 30;
}

// What building one layer needs to know.
typedef struct builder {
  tr_model *model;
  const tr_llama_config *config;
  int64_t heads_kv, head_dim, longest;
  int unit;
  const char *layer; // "layers.3"
} builder;

static const char *inside(const builder *b, const char *suffix, char *out, size_t nbyte) {
  snprintf(out, nbyte, "%s%s%s", b->layer, *b->layer ? "." : "", suffix);
  return out;
}

static int value(builder *b, const char *suffix, tr_value_kind kind, int64_t width) {
  char name[128];
  return tr_model_add_value(b->model, inside(b, suffix, name, sizeof name), kind, width);
}

// A parameter "model.layers.3.SUFFIX.WHAT".
static int param(builder *b, const char *suffix, const char *what, tr_param param) {
  char name[160], layer[128];
  snprintf(name, sizeof name, "model.%s.%s", inside(b, suffix, layer, sizeof layer), what);
  param.name = name;
  return tr_model_add_param(b->model, b->unit, &param);
}

static int matrix(builder *b, const char *suffix, int64_t rows, int64_t columns) {
  return param(b, suffix, "weight",
               (tr_param){.role = TR_ROLE_MATRIX,
                          .init = TR_INIT_NORMAL,
                          .std = b->config->init_std,
                          .shape = {.ndim = 2, .dim = {rows, columns}}});
}

static int bias(builder *b, int wanted, const char *suffix, int64_t rows) {
  if (!wanted) return -1;
  return param(b, suffix, "bias", (tr_param){.role = TR_ROLE_BIAS, .shape = {.ndim = 1, .dim = {rows}}});
}

static int scale(builder *b, const char *suffix, int64_t width) {
  return param(b, suffix, "weight",
               (tr_param){.role = TR_ROLE_NORM, .init = TR_INIT_ONES, .shape = {.ndim = 1, .dim = {width}}});
}

static int norm(builder *b, const char *suffix, int x) {
  char text[64], name[128];
  int gamma = scale(b, suffix, b->config->width);
  int y = value(b, suffix, TR_VALUE_ACTIVATION, b->config->width);
  snprintf(text, sizeof text, "%s.rstd", suffix);
  int rstd = value(b, text, TR_VALUE_STATE, 1);
  tr_piece_rmsnorm(b->model, inside(b, suffix, name, sizeof name), gamma, b->config->eps, x, y, rstd);
  return y;
}

// The projection back to the stream, and the sum with it.
static int back(builder *b, const char *suffix, const char *sum, int biased, int stream, int x, int64_t nin) {
  char name[128];
  int64_t width = b->config->width;
  int weight = matrix(b, suffix, width, nin);
  int shift = bias(b, biased, suffix, width);
  int y = value(b, suffix, TR_VALUE_ACTIVATION, width), out = value(b, sum, TR_VALUE_ACTIVATION, width);
  tr_piece_linear(b->model, inside(b, suffix, name, sizeof name), weight, shift, x, y, 2);
  tr_piece_residual(b->model, inside(b, sum, name, sizeof name), 0, stream, y, out);
  return out;
}

// Queries, keys and values of the normed stream, turned by position.
static int turned_heads(builder *b, int x) {
  static const char *const part[] = {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"};
  char name[128];
  const tr_llama_config *c = b->config;
  const int64_t heads[] = {c->heads, b->heads_kv, b->heads_kv};
  int weight[3], shift[3], norm_q = -1, norm_k = -1, rstd = -1;
  for (int i = 0; i < 3; i++) {
    weight[i] = matrix(b, part[i], heads[i] * b->head_dim, c->width);
    shift[i] = bias(b, c->qkv_bias, part[i], heads[i] * b->head_dim);
  }
  int64_t row = (c->heads + 2 * b->heads_kv) * b->head_dim;
  int qkv = value(b, "self_attn.qkv", TR_VALUE_ACTIVATION, row);
  tr_piece_projection(b->model, inside(b, "self_attn.qkv", name, sizeof name), 3, weight, shift, x, qkv, 1);
  if (c->head_norm) {
    norm_q = scale(b, "self_attn.q_norm", b->head_dim);
    norm_k = scale(b, "self_attn.k_norm", b->head_dim);
    rstd = value(b, "self_attn.rstd", TR_VALUE_STATE, c->heads + b->heads_kv);
  }
  int turned = value(b, "self_attn.rotary", TR_VALUE_ACTIVATION, row);
  tr_rotary_config config = {c->heads, b->heads_kv, b->head_dim, c->rope, c->eps};
  if (!config.rope.original_positions) config.rope.original_positions = c->positions;
  tr_piece_rotary(b->model, inside(b, "self_attn.rotary", name, sizeof name), &config, norm_q, norm_k, qkv, turned,
                  rstd);
  return turned;
}

static int attention(builder *b, int64_t index, int qkv) {
  char name[128];
  const tr_llama_config *c = b->config;
  tr_attention_config config = {.heads = c->heads,
                                .heads_kv = b->heads_kv,
                                .dim = b->head_dim,
                                .dropout = c->dropout_attention,
                                .positions = b->longest,
                                .window = index >= c->window_layer ? c->window : 0};
  int out = value(b, "self_attn.out", TR_VALUE_ACTIVATION, c->heads * b->head_dim);
  int lse = value(b, "self_attn.lse", TR_VALUE_STATE, c->heads);
  tr_piece_attention(b->model, inside(b, "self_attn", name, sizeof name), &config, qkv, out, lse);
  return out;
}

static int gated(builder *b, int x) {
  static const char *const part[] = {"mlp.gate_proj", "mlp.up_proj"};
  char name[128];
  const tr_llama_config *c = b->config;
  int weight[2], shift[2];
  for (int i = 0; i < 2; i++) {
    weight[i] = matrix(b, part[i], c->ffn, c->width);
    shift[i] = bias(b, c->mlp_bias, part[i], c->ffn);
  }
  int both = value(b, "mlp.gate_up", TR_VALUE_ACTIVATION, 2 * c->ffn);
  tr_piece_projection(b->model, inside(b, "mlp.gate_up", name, sizeof name), 2, weight, shift, x, both, 1);
  int y = value(b, "mlp.swiglu", TR_VALUE_ACTIVATION, c->ffn);
  tr_piece_swiglu(b->model, inside(b, "mlp.swiglu", name, sizeof name), both, y);
  return y;
}

static int layer(builder *b, int64_t index, int x) {
  char layer_name[32];
  const tr_llama_config *c = b->config;
  snprintf(layer_name, sizeof layer_name, "layers.%lld", (long long)index);
  b->layer = layer_name;
  b->unit = tr_model_add_unit(b->model, layer_name);
  int heads = attention(b, index, turned_heads(b, norm(b, "input_layernorm", x)));
  int middle = back(b, "self_attn.o_proj", "self_attn.add", c->out_bias, x, heads, c->heads * b->head_dim);
  int hidden = gated(b, norm(b, "post_attention_layernorm", middle));
  int out = back(b, "mlp.down_proj", "mlp.add", c->mlp_bias, middle, hidden, c->ffn);
  b->layer = "";
  return out;
}

static void head(builder *b, int embedding, int x) {
  const tr_llama_config *c = b->config;
  b->unit = tr_model_add_unit(b->model, "norm");
  int y = norm(b, "norm", x);
  tr__piece_output_head(b->model, b->unit, c->tied ? embedding : -1, c->vocab, c->width, c->init_std, y);
}

tr_status tr_llama_create(const tr_llama_config *config, tr_model **out) {
  TR_TRY(tr_llama_config_check(config));
  tr_model *model;
  TR_TRY(tr_model_create("llama", &model));
  builder b = {.model = model,
               .config = config,
               .heads_kv = tr__llama_heads_kv(config),
               .head_dim = tr__llama_head_dim(config),
               .longest = longest_sequence(config),
               .layer = ""};
  tr_model_set_limits(model, config->vocab, b.longest);
  b.unit = tr_model_add_unit(model, "embedding");
  int embedding = param(&b, "embed_tokens", "weight",
                        (tr_param){.role = TR_ROLE_EMBEDDING,
                                   .init = TR_INIT_NORMAL,
                                   .std = config->init_std,
                                   .shape = {.ndim = 2, .dim = {config->vocab, config->width}}});
  int x = value(&b, "embedding", TR_VALUE_ACTIVATION, config->width);
  tr_piece_embedding(model, "embedding", embedding, -1, 0, x);
  for (int64_t i = 0; i < config->layers; i++) x = layer(&b, i, x);
  head(&b, embedding, x);
  tr_status status = tr_model_finish(model);
  if (status < 0) {
    tr_model_destroy(model);
    return status;
  }
  *out = model;
  return TR_OK;
}
