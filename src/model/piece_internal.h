// SPDX-License-Identifier: MIT
// Shared by the library's own pieces: addresses of elements, the dropout stream of a call, checks of adders.
#ifndef TRIREME_MODEL_PIECE_INTERNAL_H
#define TRIREME_MODEL_PIECE_INTERNAL_H

#include "trireme/model/piece.h"

// Address of an element. Pieces get plain pointers in both directions, so constness is the caller's matter.
static inline void *tr__element(const void *base, int64_t element, tr_dtype type) {
  return (char *)(uintptr_t)base + (size_t)element * tr_dtype_size(type);
}

// Dropout with probability p for this call: off unless training. Keyed by (seed, piece, step), so that no two pieces
// and no two steps share masks.
tr_dropout tr__piece_dropout(const tr_piece_call *call, double p);

// Remember a failure of building for tr_model_finish; returns -1, what a failed adder returns.
int tr__model_fail(tr_model *model, const char *what, const char *name, const char *why);
// What adders check: the parameter exists and has this many dimensions; the value exists and has this width.
int tr__piece_has_param(tr_model *model, const char *piece, int param, int ndim);
int tr__piece_has_width(tr_model *model, const char *piece, int value, int64_t width);
// The end of a language model: the loss of y through the token embedding `tied`, or through a matrix of its own
// (lm_head.weight, in this unit) when tied is -1.
void tr__piece_output_head(tr_model *model, int unit, int tied, int64_t vocab, int64_t width, double init_std, int y);

#endif
