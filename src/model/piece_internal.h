// SPDX-License-Identifier: MIT
// Shared by the library's own pieces: the dropout stream of a piece in a call.
#ifndef TRIREME_MODEL_PIECE_INTERNAL_H
#define TRIREME_MODEL_PIECE_INTERNAL_H

#include "trireme/model/piece.h"

// Dropout with probability p for this call: off unless training. Keyed by (seed, piece, step), so that no two pieces
// and no two steps share masks.
tr_dropout tr__piece_dropout(const tr_piece_call *call, double p);

#endif
