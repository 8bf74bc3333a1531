// SPDX-License-Identifier: MIT
// GPT-2 (Radford et al., "Language models are unsupervised multitask learners") built from pieces: learned
// positions, pre-LayerNorm, causal attention, GELU (tanh form), tied output head, dropout. Names and config.json
// follow Hugging Face's GPT2LMHeadModel.
#ifndef TRIREME_MODEL_GPT2_H
#define TRIREME_MODEL_GPT2_H

#include "trireme/model/model.h"
#include <jansson.h>

typedef struct tr_gpt2_config {
  int64_t layers, width, heads, ffn, vocab, positions;
  double eps;      // LayerNorm
  double init_std; // 0.02; residual projections get std / sqrt(2 layers)
  double dropout_embedding, dropout_residual, dropout_attention;
  int tied; // output head shares the token embedding
} tr_gpt2_config;

void tr_gpt2_config_init(tr_gpt2_config *config); // the 124M model; ffn 0: 4 x width
// TR_ERR_CONFIG naming the field, its value and what would work (heads must divide width, ...).
tr_status tr_gpt2_config_check(const tr_gpt2_config *config);
// Build the model, finished; the caller destroys it with tr_model_destroy. Errors as tr_gpt2_config_check.
tr_status tr_gpt2_create(const tr_gpt2_config *config, tr_model **out);

// config.json in Hugging Face form. Reading refuses other architectures and unknown activation functions by name
// (TR_ERR_CKPT); `name` is the file, for messages. The caller frees the text written.
tr_status tr_gpt2_config_from_json(const json_t *json, const char *name, tr_gpt2_config *out);
tr_status tr_gpt2_config_to_json(const tr_gpt2_config *config, const char *dtype, char **text);

#endif
