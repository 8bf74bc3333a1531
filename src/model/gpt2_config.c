// SPDX-License-Identifier: MIT
// GPT-2's config.json in Hugging Face form, both ways. Unknown fields that change the mathematics are refused by
// name; fields that only concern other programs are ignored.
#include "model/config_internal.h"
#include "trireme/base/json.h"
#include "trireme/model/gpt2.h"
#include <string.h>

static tr_status check_activation(const json_t *json, const char *name) {
  const char *activation = "gelu_new";
  TR_TRY(tr_json_get_string(json, name, "activation_function", 0, &activation));
  if (strcmp(activation, "gelu_new") == 0 || strcmp(activation, "gelu_pytorch_tanh") == 0) return TR_OK;
  return tr_error(TR_ERR_CKPT, "%s: activation_function '%s' is not known; gelu_new is", name, activation);
}

static tr_status check_fields(const json_t *json, const char *name) {
  // clang-format off
  static const char *const known[] = {
      "n_layer", "n_embd", "n_head", "n_inner", "n_positions", "vocab_size", "layer_norm_epsilon", "initializer_range",
      "embd_pdrop", "resid_pdrop", "attn_pdrop", "tie_word_embeddings", "activation_function", "scale_attn_weights",
      "scale_attn_by_inverse_layer_idx",
      "n_ctx",                   // n_positions again, from before it had that name
      "reorder_and_upcast_attn", // another order of the same sums
      NULL};
  // clang-format on
  TR_TRY(tr__config_fields(json, name, known));
  TR_TRY(tr__config_fixed(json, name, "scale_attn_weights", 1));
  return tr__config_fixed(json, name, "scale_attn_by_inverse_layer_idx", 0);
}

tr_status tr_gpt2_config_from_json(const json_t *json, const char *name, tr_gpt2_config *out) {
  const char *type = "";
  TR_TRY(tr_json_get_string(json, name, "model_type", 1, &type));
  if (strcmp(type, "gpt2") != 0)
    return tr_error(TR_ERR_CKPT, "%s: model_type '%s' is not supported; gpt2 is", name, type);
  TR_TRY(check_activation(json, name));
  TR_TRY(check_fields(json, name));
  tr_gpt2_config c;
  tr_gpt2_config_init(&c);
  TR_TRY(tr_json_get_int(json, name, "n_layer", 1, &c.layers));
  TR_TRY(tr_json_get_int(json, name, "n_embd", 1, &c.width));
  TR_TRY(tr_json_get_int(json, name, "n_head", 1, &c.heads));
  TR_TRY(tr_json_get_int(json, name, "n_inner", 0, &c.ffn));
  TR_TRY(tr_json_get_int(json, name, "n_positions", 1, &c.positions));
  TR_TRY(tr_json_get_int(json, name, "vocab_size", 1, &c.vocab));
  TR_TRY(tr_json_get_real(json, name, "layer_norm_epsilon", 0, &c.eps));
  TR_TRY(tr_json_get_real(json, name, "initializer_range", 0, &c.init_std));
  TR_TRY(tr_json_get_real(json, name, "embd_pdrop", 0, &c.dropout_embedding));
  TR_TRY(tr_json_get_real(json, name, "resid_pdrop", 0, &c.dropout_residual));
  TR_TRY(tr_json_get_real(json, name, "attn_pdrop", 0, &c.dropout_attention));
  TR_TRY(tr_json_get_bool(json, name, "tie_word_embeddings", 0, &c.tied));
  if (tr_gpt2_config_check(&c) < 0) {
    tr_error_prefix("%s", name);
    return TR_ERR_CKPT;
  }
  *out = c;
  return TR_OK;
}

tr_status tr_gpt2_config_to_json(const tr_gpt2_config *c, const char *dtype, char **text) {
  json_t *json = json_pack("{s:[s], s:s, s:I, s:I, s:I, s:o, s:I, s:I, s:f, s:f, s:f, s:f, s:f, s:s, s:b, s:s}",
                           "architectures", "GPT2LMHeadModel", "model_type", "gpt2", "n_layer", (json_int_t)c->layers,
                           "n_embd", (json_int_t)c->width, "n_head", (json_int_t)c->heads, "n_inner",
                           c->ffn ? json_integer((json_int_t)c->ffn) : json_null(), "n_positions",
                           (json_int_t)c->positions, "vocab_size", (json_int_t)c->vocab, "layer_norm_epsilon", c->eps,
                           "initializer_range", c->init_std, "embd_pdrop", c->dropout_embedding, "resid_pdrop",
                           c->dropout_residual, "attn_pdrop", c->dropout_attention, "activation_function", "gelu_new",
                           "tie_word_embeddings", c->tied, "torch_dtype", dtype);
  *text = json ? json_dumps(json, JSON_INDENT(2)) : NULL;
  json_decref(json);
  return *text ? TR_OK : tr_error(TR_ERR_MEMORY, "no memory for config.json");
}
