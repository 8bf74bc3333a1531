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
} tr_attention_config;

// y = dropout(wte[token] + wpe[position]); wpe -1: none.
int tr_piece_embedding(tr_model *model, const char *name, int wte, int wpe, double dropout, int y);
// y = LayerNorm(x); mean and rstd are states of width 1.
int tr_piece_layernorm(tr_model *model, const char *name, int gamma, int beta, double eps, int x, int y, int mean,
                       int rstd);
// y = x W^T + b; W [out, in]; b -1: none. tp says how the product splits along that axis: 0 not at all, 1 by columns
// (y sharded by features), 2 by rows (x sharded by features, y a partial sum).
int tr_piece_linear(tr_model *model, const char *name, int weight, int bias, int x, int y, int tp);
int tr_piece_gelu(tr_model *model, const char *name, int x, int y);
// Causal self-attention. qkv holds query, key and value heads side by side; lse is a state of width heads.
int tr_piece_attention(tr_model *model, const char *name, const tr_attention_config *config, int qkv, int out,
                       int lse);
// out = x + dropout(y).
int tr_piece_residual(tr_model *model, const char *name, double dropout, int x, int y, int out);
// loss = cross-entropy of x W^T against the targets; W [vocab, width]. Always the last piece.
int tr_piece_head_loss(tr_model *model, const char *name, int weight, int x, int loss);

#endif
