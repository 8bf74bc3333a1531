// SPDX-License-Identifier: MIT
// config.json of the Llama family in Hugging Face form, both ways.
//
// Reading is strict: a setting that this implementation lacks is refused by name, and so is a field that nobody here
// knows. Fields that are absent have the values that transformers gives them; where those differ between its versions
// or would surprise (Mistral's window), they must be there.
#include "model/config_internal.h"
#include "model/llama_internal.h"
#include "trireme/base/json.h"
#include <string.h>

static int has_value(const json_t *json, const char *key) {
  const json_t *value = json_object_get(json, key);
  return value && !json_is_null(value);
}

static tr_status read_family(const json_t *json, const char *name, tr_llama_config *c) {
  const char *type = "";
  TR_TRY(tr_json_get_string(json, name, "model_type", 1, &type));
  for (int i = 0; i < TR__LLAMA_FAMILIES; i++) {
    if (strcmp(type, tr__llama_family_name(i)) != 0) continue;
    c->family = (tr_llama_family)i;
    return TR_OK;
  }
  return tr_error(TR_ERR_CKPT, "%s: model_type '%s' is not supported; llama, mistral, qwen2 and qwen3 are", name,
                  type);
}

static tr_status check_fields(const json_t *json, const char *name, tr_llama_family family) {
  // clang-format off
  static const char *const known[] = {
      "num_hidden_layers", "hidden_size", "num_attention_heads", "num_key_value_heads", "head_dim",
      "intermediate_size", "vocab_size", "max_position_embeddings", "rms_norm_eps", "initializer_range", "rope_theta",
      "rope_scaling", "rope_parameters", "hidden_act", "attention_dropout", "tie_word_embeddings",
      "pretraining_tp", // how a product was cut where the model was made; 1 always gives the same numbers
      NULL, NULL, NULL, NULL, NULL}; // room for those of a family
  static const char *const own[TR__LLAMA_FAMILIES][5] = {
      {"attention_bias", "mlp_bias"},
      {"sliding_window"},
      {"use_sliding_window", "sliding_window", "max_window_layers", "layer_types"},
      {"use_sliding_window", "sliding_window", "max_window_layers", "layer_types", "attention_bias"}};
  // clang-format on
  const char *all[sizeof known / sizeof *known + 1] = {0};
  memcpy(all, known, sizeof known);
  for (size_t i = 0, n = sizeof known / sizeof *known - 5; i < 5; i++) all[n + i] = own[family][i];
  int64_t cut = 1;
  TR_TRY(tr__config_fields(json, name, all));
  TR_TRY(tr_json_get_int(json, name, "pretraining_tp", 0, &cut));
  if (cut == 1) return TR_OK;
  return tr_error(TR_ERR_CKPT, "%s: pretraining_tp is %lld; only 1 is supported", name, (long long)cut);
}

static tr_status check_activation(const json_t *json, const char *name) {
  const char *activation = "silu";
  TR_TRY(tr_json_get_string(json, name, "hidden_act", 0, &activation));
  if (strcmp(activation, "silu") == 0) return TR_OK;
  return tr_error(TR_ERR_CKPT, "%s: hidden_act '%s' is not supported; silu is", name, activation);
}

// What must be there when the kind of rope is this one.
static tr_status read_rope_numbers(const json_t *rope, const char *name, tr_rope_config *out) {
  if (out->kind == TR_ROPE_DEFAULT) return TR_OK;
  int llama3 = out->kind == TR_ROPE_LLAMA3;
  TR_TRY(tr_json_get_real(rope, name, "factor", 1, &out->factor));
  TR_TRY(tr_json_get_real(rope, name, "low_freq_factor", llama3, &out->low_freq_factor));
  TR_TRY(tr_json_get_real(rope, name, "high_freq_factor", llama3, &out->high_freq_factor));
  return tr_json_get_int(rope, name, "original_max_position_embeddings", llama3, &out->original_positions);
}

static tr_status read_rope_object(const json_t *rope, const char *name, const char *key, tr_rope_config *out) {
  static const char *const known[] = {"rope_type",
                                      "type",
                                      "rope_theta",
                                      "factor",
                                      "low_freq_factor",
                                      "high_freq_factor",
                                      "original_max_position_embeddings"};
  const char *kind = "default", *field;
  json_t *value;
  if (!json_is_object(rope)) return tr_error(TR_ERR_CKPT, "%s: %s must be an object or null", name, key);
  json_object_foreach((json_t *)(uintptr_t)rope, field, value) {
    int is_known = 0;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) is_known |= strcmp(field, known[i]) == 0;
    if (!is_known && !json_is_null(value))
      return tr_error(TR_ERR_CKPT, "%s: field '%.60s' of %s is not known and might change what the model computes",
                      name, field, key);
  }
  TR_TRY(tr_json_get_string(rope, name, "type", 0, &kind));
  TR_TRY(tr_json_get_string(rope, name, "rope_type", 0, &kind));
  TR_TRY(tr_json_get_real(rope, name, "rope_theta", 0, &out->theta));
  for (int i = 0; i < TR__ROPE_KINDS; i++) {
    if (strcmp(kind, tr__rope_kind_name(i)) != 0) continue;
    out->kind = (tr_rope_kind)i;
    return read_rope_numbers(rope, name, out);
  }
  return tr_error(TR_ERR_CKPT, "%s: %s of type '%.60s' is not supported; default, linear, dynamic and llama3 are",
                  name, key, kind);
}

static tr_status read_rope(const json_t *json, const char *name, tr_rope_config *out) {
  TR_TRY(tr_json_get_real(json, name, "rope_theta", 0, &out->theta));
  if (has_value(json, "rope_scaling") && has_value(json, "rope_parameters"))
    return tr_error(TR_ERR_CKPT, "%s has both rope_scaling and rope_parameters; one must go", name);
  const char *key = has_value(json, "rope_parameters") ? "rope_parameters" : "rope_scaling";
  return has_value(json, key) ? read_rope_object(json_object_get(json, key), name, key, out) : TR_OK;
}

// layer_types, one word per layer, can say more than "from this layer on"; that more is refused.
static tr_status read_layer_types(const json_t *types, const char *name, tr_llama_config *c) {
  if (!json_is_array(types) || json_array_size(types) != (size_t)c->layers)
    return tr_error(TR_ERR_CKPT, "%s: layer_types must be a list of %lld words, one per layer", name,
                    (long long)c->layers);
  c->window_layer = c->layers;
  for (int64_t i = 0; i < c->layers; i++) {
    const char *type = json_string_value(json_array_get(types, (size_t)i));
    int windowed = type && strcmp(type, "sliding_attention") == 0;
    if (!windowed && (!type || strcmp(type, "full_attention") != 0))
      return tr_error(TR_ERR_CKPT, "%s: layer_types[%lld] must be full_attention or sliding_attention", name,
                      (long long)i);
    if (windowed && c->window_layer == c->layers) c->window_layer = i;
    if (!windowed && i > c->window_layer)
      return tr_error(TR_ERR_CKPT,
                      "%s: layer_types has full_attention after sliding_attention (layer %lld); windows "
                      "from one layer on are supported",
                      name, (long long)i);
  }
  if (c->window_layer < c->layers && !c->window)
    return tr_error(TR_ERR_CKPT, "%s: layer_types has sliding_attention, but there is no sliding window", name);
  return TR_OK;
}

static tr_status read_window(const json_t *json, const char *name, tr_llama_config *c) {
  int use = c->family == TR_MISTRAL;
  if (use && !json_object_get(json, "sliding_window"))
    return tr_error(TR_ERR_CKPT, "%s: sliding_window is missing; give null for none (transformers would take 4096)",
                    name);
  TR_TRY(tr_json_get_bool(json, name, "use_sliding_window", 0, &use));
  if (use) {
    int windowed = c->family != TR_MISTRAL;
    TR_TRY(tr_json_get_int(json, name, "sliding_window", windowed, &c->window));
    TR_TRY(tr_json_get_int(json, name, "max_window_layers", windowed, &c->window_layer));
  }
  if (has_value(json, "layer_types")) TR_TRY(read_layer_types(json_object_get(json, "layer_types"), name, c));
  if (c->window_layer >= c->layers) c->window = 0;
  if (!c->window) c->window_layer = 0;
  return TR_OK;
}

static tr_status read_sizes(const json_t *json, const char *name, tr_llama_config *c) {
  TR_TRY(tr_json_get_int(json, name, "num_hidden_layers", 1, &c->layers));
  TR_TRY(tr_json_get_int(json, name, "hidden_size", 1, &c->width));
  TR_TRY(tr_json_get_int(json, name, "num_attention_heads", 1, &c->heads));
  TR_TRY(tr_json_get_int(json, name, "num_key_value_heads", c->family != TR_LLAMA, &c->heads_kv));
  TR_TRY(tr_json_get_int(json, name, "head_dim", c->family == TR_QWEN3, &c->head_dim));
  TR_TRY(tr_json_get_int(json, name, "intermediate_size", 1, &c->ffn));
  TR_TRY(tr_json_get_int(json, name, "vocab_size", 1, &c->vocab));
  return tr_json_get_int(json, name, "max_position_embeddings", 1, &c->positions);
}

static tr_status read_biases(const json_t *json, const char *name, tr_llama_config *c) {
  c->head_norm = c->family == TR_QWEN3;
  c->qkv_bias = c->family == TR_QWEN2;
  if (c->family == TR_QWEN2) return TR_OK;
  TR_TRY(tr_json_get_bool(json, name, "attention_bias", 0, &c->qkv_bias));
  c->out_bias = c->qkv_bias;
  return tr_json_get_bool(json, name, "mlp_bias", 0, &c->mlp_bias);
}

tr_status tr_llama_config_from_json(const json_t *json, const char *name, tr_llama_config *out) {
  tr_llama_config c;
  tr_llama_config_init(&c);
  c.eps = 1e-6;
  TR_TRY(read_family(json, name, &c));
  TR_TRY(check_fields(json, name, c.family));
  TR_TRY(check_activation(json, name));
  TR_TRY(read_sizes(json, name, &c));
  TR_TRY(tr_json_get_real(json, name, "rms_norm_eps", 0, &c.eps));
  TR_TRY(tr_json_get_real(json, name, "initializer_range", 0, &c.init_std));
  TR_TRY(tr_json_get_real(json, name, "attention_dropout", 0, &c.dropout_attention));
  TR_TRY(tr_json_get_bool(json, name, "tie_word_embeddings", 0, &c.tied));
  TR_TRY(read_rope(json, name, &c.rope));
  TR_TRY(read_biases(json, name, &c));
  TR_TRY(read_window(json, name, &c));
  if (tr_llama_config_check(&c) < 0) {
    tr_error_prefix("%s", name);
    return TR_ERR_CKPT;
  }
  *out = c;
  return TR_OK;
}

// ---- writing

static json_t *rope_to_json(const tr_rope_config *rope) {
  if (rope->kind == TR_ROPE_DEFAULT) return json_null();
  if (rope->kind != TR_ROPE_LLAMA3)
    return json_pack("{s:s, s:f}", "rope_type", tr__rope_kind_name(rope->kind), "factor", rope->factor);
  return json_pack("{s:s, s:f, s:f, s:f, s:I}", "rope_type", "llama3", "factor", rope->factor, "low_freq_factor",
                   rope->low_freq_factor, "high_freq_factor", rope->high_freq_factor,
                   "original_max_position_embeddings", (json_int_t)rope->original_positions);
}

static json_t *count_or_null(int64_t count) { return count ? json_integer((json_int_t)count) : json_null(); }

// The fields that only some families have.
static json_t *own_to_json(const tr_llama_config *c) {
  if (c->family == TR_LLAMA) return json_pack("{s:b, s:b}", "attention_bias", c->qkv_bias, "mlp_bias", c->mlp_bias);
  if (c->family == TR_MISTRAL) return json_pack("{s:o}", "sliding_window", count_or_null(c->window));
  json_t *json =
      json_pack("{s:b, s:o, s:I}", "use_sliding_window", c->window > 0, "sliding_window", count_or_null(c->window),
                "max_window_layers", (json_int_t)(c->window ? c->window_layer : c->layers));
  if (c->family == TR_QWEN3 && json) json_object_set_new(json, "attention_bias", json_boolean(c->qkv_bias));
  return json;
}

tr_status tr_llama_config_to_json(const tr_llama_config *c, const char *dtype, char **text) {
  static const char *const class_name[TR__LLAMA_FAMILIES] = {"LlamaForCausalLM", "MistralForCausalLM",
                                                             "Qwen2ForCausalLM", "Qwen3ForCausalLM"};
  TR_TRY(tr_llama_config_check(c));
  json_t *json = json_pack(
      "{s:[s], s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:f, s:o, s:s, s:f, s:b, s:s}", "architectures",
      class_name[c->family], "model_type", tr__llama_family_name(c->family), "num_hidden_layers",
      (json_int_t)c->layers, "hidden_size", (json_int_t)c->width, "num_attention_heads", (json_int_t)c->heads,
      "num_key_value_heads", (json_int_t)tr__llama_heads_kv(c), "head_dim", (json_int_t)tr__llama_head_dim(c),
      "intermediate_size", (json_int_t)c->ffn, "vocab_size", (json_int_t)c->vocab, "max_position_embeddings",
      (json_int_t)c->positions, "rms_norm_eps", c->eps, "initializer_range", c->init_std, "rope_theta", c->rope.theta,
      "rope_scaling", rope_to_json(&c->rope), "hidden_act", "silu", "attention_dropout", c->dropout_attention,
      "tie_word_embeddings", c->tied, "torch_dtype", dtype);
  json_t *own = own_to_json(c);
  int whole = json && own && json_object_update(json, own) == 0;
  *text = whole ? json_dumps(json, JSON_INDENT(2)) : NULL;
  json_decref(own);
  json_decref(json);
  return *text ? TR_OK : tr_error(TR_ERR_MEMORY, "no memory for config.json");
}
