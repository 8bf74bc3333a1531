// SPDX-License-Identifier: MIT
// Generating text: the model's pieces run forward on new tokens only, attention over a cache of keys and values.
#ifndef TRIREME_RUN_DECODE_H
#define TRIREME_RUN_DECODE_H

#include "trireme/kernel/kernel.h"
#include "trireme/model/model.h"
#include "trireme/shard/layout.h"

typedef struct tr_decoder tr_decoder;

// `weights` in the layout's order, of `type`; kept, not owned. `capacity`: most tokens of prompt and answer together,
// at most the model's positions. f32 and bf16. TR_ERR_CONFIG for what cannot be generated with; TR_ERR_MEMORY.
tr_status tr_decoder_create(const tr_model *model, const tr_layout *layout, const void *weights, tr_dtype type,
                            const tr_kernels *kernels, tr_pool *pool, int64_t capacity, tr_decoder **out);
void tr_decoder_destroy(tr_decoder *decoder);         // NULL allowed
void tr_decoder_reset(tr_decoder *decoder);           // forget the sequence
int64_t tr_decoder_length(const tr_decoder *decoder); // tokens so far

// Append n >= 1 tokens; *logits (owned by the decoder, f32, [vocab]) are those after the last one.
// TR_ERR_DATA when the capacity would be exceeded or a token is outside the vocabulary.
tr_status tr_decoder_append(tr_decoder *decoder, const int32_t *token, int64_t n, const float **logits);

// Draw a token: temperature 0 takes the largest logit; top_k 0 and top_p 1 keep all. The draw number (position)
// and the seed decide, nothing else. `work` has room for vocab pairs.
typedef struct tr_sampling {
  double temperature;
  int64_t top_k;
  double top_p;
  uint64_t seed;
} tr_sampling;
typedef struct tr_candidate {
  float logit;
  int32_t token;
} tr_candidate;
int32_t tr_sample_token(const tr_sampling *sampling, const float *logits, int64_t vocab, int64_t draw,
                        tr_candidate *work);

#endif
