// SPDX-License-Identifier: MIT
// The Llama family from pieces: RMSNorm, rotary positions, grouped key and value heads, SwiGLU. One description covers
// Llama 1-3 (Touvron et al., "LLaMA"; Llama team, "The Llama 3 herd of models"), Mistral (sliding window), Qwen2
// (biases of q, k and v) and Qwen3 (norms of heads). Names and config.json follow Hugging Face's LlamaForCausalLM,
// MistralForCausalLM, Qwen2ForCausalLM and Qwen3ForCausalLM.
#ifndef TRIREME_MODEL_LLAMA_H
#define TRIREME_MODEL_LLAMA_H

#include "trireme/model/piece.h"
#include <jansson.h>

typedef enum tr_llama_family { TR_LLAMA, TR_MISTRAL, TR_QWEN2, TR_QWEN3 } tr_llama_family;

typedef struct tr_llama_config {
  tr_llama_family family; // decides names in config.json only; the mathematics is in the fields below
  int64_t layers, width, heads, heads_kv, head_dim, ffn, vocab, positions;
  double eps, init_std;
  tr_rope_config rope;
  int64_t window;       // 0: none
  int64_t window_layer; // layers from this one on have the window
  double dropout_attention;
  int tied; // output head shares the token embedding
  int qkv_bias, out_bias, mlp_bias;
  int head_norm; // RMSNorm of each q and k head
} tr_llama_config;

void tr_llama_config_init(tr_llama_config *config); // Llama 7B; heads_kv 0: heads; head_dim 0: width / heads
// TR_ERR_CONFIG naming the field, its value and what would work.
tr_status tr_llama_config_check(const tr_llama_config *config);
// Build the model, finished; the caller destroys it with tr_model_destroy. Errors as tr_llama_config_check.
tr_status tr_llama_create(const tr_llama_config *config, tr_model **out);

// config.json in Hugging Face form. Reading refuses other architectures, activations, rope types and fields that
// would change the mathematics by name (TR_ERR_CKPT); `name` is the file, for messages. The caller frees the text.
tr_status tr_llama_config_from_json(const json_t *json, const char *name, tr_llama_config *out);
tr_status tr_llama_config_to_json(const tr_llama_config *config, const char *dtype, char **text);

#endif
