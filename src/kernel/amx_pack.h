// SPDX-License-Identifier: MIT
// Operands of AMX products in tile order. Included by amx_body.h only.
//
// A tile is 16 rows of 64 bytes. tdpbf16ps wants A as 16 rows of 32 consecutive k, and B as 16 rows of pairs of k, each
// row with 16 columns (the "VNNI" order):
//   A tile  row i: a(i,0) a(i,1) | a(i,2) a(i,3) | ... 16 pairs     B tile  row q: b(2q,0) b(2q+1,0) | b(2q,1) b(2q+1,1) | ...
// As matrices of 16 x 16 pairs, one is [vector][pair] and the other [pair][vector], a vector being a row of A or a column
// of B. In memory, an operand has either the k of one vector side by side, or the vectors of one k. So every one of
// the four cases is a load in the memory's order, and a transpose where that is not the tile's:
//                        k side by side (x, W of x W^T)     vectors side by side (W of dy W, both of dy^T x)
//   A [vector][pair]     copy                               interleave, transpose
//   B [pair][vector]     transpose                          interleave
//
// A panel is 32 vectors over all k: for each 32 k two tiles, 16 vectors each; edges are padded with zeros.
//   | tile k 0..31, vectors 0..15 | k 0..31, vectors 16..31 | k 32..63, vectors 0..15 | ...
#ifndef TRIREME_KERNEL_AMX_PACK_H
#define TRIREME_KERNEL_AMX_PACK_H

#include "kernel/cpu_amx_internal.h"
#include <string.h>

enum {
  SIDE = TR_AMX_SIDE, // vectors of a panel, and k per step of it
  HALF = SIDE / 2,    // vectors of a tile
  TILE = HALF * SIDE, // elements of a tile
  STEP = 2 * TILE,    // elements of a panel per SIDE of k
  ROW = SIDE * 2      // bytes of a row of a tile
};

typedef uint32_t pairs __attribute__((vector_size(ROW))); // 16 pairs of bf16
typedef uint16_t halves __attribute__((vector_size(ROW / 2)));

#define LANES(X, d)                                                                                                  \
  X(0, d), X(1, d), X(2, d), X(3, d), X(4, d), X(5, d), X(6, d), X(7, d), X(8, d), X(9, d), X(10, d), X(11, d),      \
      X(12, d), X(13, d), X(14, d), X(15, d)
#define ZIP(i, d) (i), 16 + (i) // one of the first, one of the second

// Exchange blocks of d x d pairs across the diagonal of every 2d x 2d block; for d = 1, 2, 4, 8 that transposes x.
#define LOW(i, d)  ((i) & (d) ? 16 + (i) - (d) : (i))
#define HIGH(i, d) ((i) & (d) ? 16 + (i) : (i) + (d))
#define EXCHANGE(x, d)                                                                                               \
  do {                                                                                                               \
    _Pragma("GCC unroll 16") for (int r = 0; r < HALF; r++) {                                                        \
      if (r & (d)) continue;                                                                                         \
      const pairs upper = (x)[r], lower = (x)[r + (d)];                                                              \
      (x)[r] = __builtin_shufflevector(upper, lower, LANES(LOW, d));                                                 \
      (x)[r + (d)] = __builtin_shufflevector(upper, lower, LANES(HIGH, d));                                          \
    }                                                                                                                \
  } while (0)

// Vectors v0 .. and k p0 .. of an operand as one tile; `nv` and `np` of them exist, at most HALF and SIDE.
static void pack_tile(tr_amx_operand o, int pairs_first, int64_t v0, int64_t nv, int64_t p0, int64_t np,
                      tr_bf16 *tile) {
  tr_bf16 edge[TILE];
  const tr_bf16 *at = o.at + v0 * o.step_v + p0 * o.step_k;
  if (nv < HALF || np < SIDE) { // what exists, in the same order, among zeros
    const tr_amx_operand padded = {edge, o.step_k == 1 ? SIDE : 1, o.step_k == 1 ? 1 : HALF};
    memset(edge, 0, sizeof edge);
    for (int64_t v = 0; v < nv; v++)
      for (int64_t p = 0; p < np; p++) edge[v * padded.step_v + p * padded.step_k] = at[v * o.step_v + p * o.step_k];
    o = padded, at = edge;
  }
  pairs x[HALF];
  if (o.step_k == 1) {
    for (int v = 0; v < HALF; v++) memcpy(&x[v], at + v * o.step_v, ROW);
  } else {
    for (int q = 0; q < HALF; q++) {
      halves even, odd;
      memcpy(&even, at + 2 * q * o.step_k, sizeof even);
      memcpy(&odd, at + (2 * q + 1) * o.step_k, sizeof odd);
      x[q] = (pairs)__builtin_shufflevector(even, odd, LANES(ZIP, 0));
    }
  }
  if ((o.step_k == 1) == pairs_first) {
    EXCHANGE(x, 1);
    EXCHANGE(x, 2);
    EXCHANGE(x, 4);
    EXCHANGE(x, 8);
  }
  memcpy(tile, x, sizeof x);
}

// Both tiles of one step of a panel.
static void pack_step(tr_amx_operand o, int pairs_first, int64_t v0, int64_t nv, int64_t p0, int64_t np,
                      tr_bf16 *step) {
  np = tr__min(np, SIDE);
  for (int half = 0; half < 2; half++, v0 += HALF, nv -= HALF)
    pack_tile(o, pairs_first, v0, nv < 0 ? 0 : tr__min(nv, HALF), p0, np, step + half * TILE);
}

#endif
