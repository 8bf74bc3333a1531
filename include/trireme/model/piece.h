// SPDX-License-Identifier: MIT
// The kinds of pieces that come with the library. Each adder appends one piece to a model under construction and
// returns its number (or -1, reported by tr_model_finish); values and parameters are numbers from
// tr_model_add_value and _add_param.
#ifndef TRIREME_MODEL_PIECE_H
#define TRIREME_MODEL_PIECE_H

#include "trireme/model/model.h"

typedef struct tr_attention_config {
  int64_t heads, heads_kv, dim;
  double dropout;
  int64_t positions;
  int64_t window; // keys that a query sees, itself included; 0: all
} tr_attention_config;

// Frequencies of rotary positions: theta^(-2i/dim), rescaled as Hugging Face's rope_scaling says. `positions` is the
// length that a model was trained on before it was stretched.
typedef enum tr_rope_kind { TR_ROPE_DEFAULT, TR_ROPE_LINEAR, TR_ROPE_DYNAMIC, TR_ROPE_LLAMA3 } tr_rope_kind;
typedef struct tr_rope_config {
  tr_rope_kind kind;
  double theta, factor;
  double low_freq_factor, high_freq_factor; // TR_ROPE_LLAMA3
  int64_t original_positions;               // TR_ROPE_LLAMA3, TR_ROPE_DYNAMIC
} tr_rope_config;
// frequency[dim / 2] for sequences of `length` tokens (TR_ROPE_DYNAMIC depends on it; the others do not).
void tr_rope_frequencies(const tr_rope_config *config, int64_t dim, int64_t length, double *frequency);

typedef struct tr_rotary_config {
  int64_t heads, heads_kv, dim;
  tr_rope_config rope;
  double eps; // of the norms of heads
} tr_rotary_config;

// y = dropout(wte[token] + wpe[position]); wpe -1: none.
int tr_piece_embedding(tr_model *model, const char *name, int wte, int wpe, double dropout, int y);
// y = LayerNorm(x); mean and rstd are states of width 1.
int tr_piece_layernorm(tr_model *model, const char *name, int gamma, int beta, double eps, int x, int y, int mean,
                       int rstd);
// y = x W^T + b; W [out, in]; b -1: none. tp says how the product splits along that axis: 0 not at all, 1 by columns
// (y sharded by features), 2 by rows (x sharded by features, y a partial sum).
int tr_piece_linear(tr_model *model, const char *name, int weight, int bias, int x, int y, int tp);
// y = RMSNorm(x); rstd is a state of width 1.
int tr_piece_rmsnorm(tr_model *model, const char *name, int gamma, double eps, int x, int y, int rstd);
// n products of one input side by side: y = [x W0^T + b0 | x W1^T + b1 | ...], n <= 3; bias NULL or bias[i] -1: none.
// Separate weights, so that each can be split by its own rows (heads), and files keep their tensors.
int tr_piece_projection(tr_model *model, const char *name, int n, const int *weight, const int *bias, int x, int y,
                        int tp);
// Rows [q heads | k heads | v heads] with the q and k heads turned by position, after an RMSNorm of each head where
// gammas are given (norm_q and norm_k -1: none; both or neither). rstd: a state of width heads + heads_kv, -1 without norms.
int tr_piece_rotary(tr_model *model, const char *name, const tr_rotary_config *config, int norm_q, int norm_k, int x,
                    int y, int rstd);
// y = silu(gate) * up of rows [gate | up].
int tr_piece_swiglu(tr_model *model, const char *name, int x, int y);
int tr_piece_gelu(tr_model *model, const char *name, int x, int y);
// Causal self-attention. qkv holds query, key and value heads side by side; lse is a state of width heads.
int tr_piece_attention(tr_model *model, const char *name, const tr_attention_config *config, int qkv, int out,
                       int lse);
// out = x + dropout(y).
int tr_piece_residual(tr_model *model, const char *name, double dropout, int x, int y, int out);
// loss = cross-entropy of x W^T against the targets; W [vocab, width]. Always the last piece.
int tr_piece_head_loss(tr_model *model, const char *name, int weight, int x, int loss);

#endif
