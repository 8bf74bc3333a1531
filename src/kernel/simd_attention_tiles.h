// SPDX-License-Identifier: MIT
// Attention's products on AMX tiles, for bf16 and heads of whole steps (dim % 32 == 0). Included by simd_attention.h only.
//
// Operands are rounded to bf16 and packed into the scratch that the vectors' copies would take (amx_pack.h says how):
//   forward   S = K Q^T    K, Q over features          O += P^T V    P by query, V: both over keys
//   backward  S, dP        K, V, Q, dO over features   dV += P dO    dK += dS Q    over queries    dQ += dS^T K    over keys
// Products have f32 accumulators, and everything between them is that of the vectors. Q is scaled by a power of two only,
// which is exact; what remains of the scale is applied to S, and to dS before dK.
#ifndef TRIREME_KERNEL_SIMD_ATTENTION_TILES_H
#define TRIREME_KERNEL_SIMD_ATTENTION_TILES_H

#include "kernel/cpu_amx_internal.h"
#include "kernel/simd_tile.h"

enum { SIDE = TR_AMX_SIDE, TILE_PANEL = T * SIDE }; // elements of a panel over the rows of a tile

// Scratch that holds a packed operand in place of floats.
static tr_bf16 *as_packed(const float *scratch) { return (tr_bf16 *)(uintptr_t)scratch; }

// The power of two in `scale`, and the rest of it, in [1, 2); 0 is 0 times 1.
static float exact_scale(float scale, float *rest) {
  uint32_t bits;
  memcpy(&bits, &scale, sizeof bits);
  bits &= 0xff800000u;
  float power;
  memcpy(&power, &bits, sizeof power);
  *rest = power == 0.0f ? 1.0f : scale / power;
  return power;
}

static void scale_rows(float *s, int64_t rows, int64_t n, float by) {
  for (int64_t j = 0; by != 1.0f && j < rows; j++)
    for (int64_t i = 0; i < n; i += TR_VL) store_f32(s + j * T + i, load_f32(s + j * T + i, TR_VL) * by, TR_VL);
}

// Rows of D floats: each a vector over its features; or each feature a vector over the rows, for B.
static void pack_rows(const tr_amx *amx, const float *rows, int64_t dim, int64_t n, int pairs_first, tr_bf16 *to) {
  amx->pack((tr_amx_operand){TR_F32, rows, padded_dim(dim), 1}, pairs_first, n, dim, dim * SIDE, to);
}
static void pack_features(const tr_amx *amx, const float *rows, int64_t dim, int64_t n, tr_bf16 *to) {
  amx->pack((tr_amx_operand){TR_F32, rows, 1, padded_dim(dim)}, 1, dim, n, TILE_PANEL, to);
}

// Scores [key][query] as A: keys are its rows, or queries.
static void pack_by_key(const tr_amx *amx, const float *s, int64_t nkey, int64_t nquery, tr_bf16 *to) {
  amx->pack((tr_amx_operand){TR_F32, s, T, 1}, 0, nkey, nquery, TILE_PANEL, to);
}
static void pack_by_query(const tr_amx *amx, const float *s, int64_t nkey, int64_t nquery, tr_bf16 *to) {
  amx->pack((tr_amx_operand){TR_F32, s, 1, T}, 0, nquery, nkey, TILE_PANEL, to);
}

// S of a panel of queries from number i on, and keys lo .. hi - 1; both packed over features.
static void tile_scores(const tr_amx *amx, int64_t dim, int lo, int hi, int i, const tr_bf16 *keys,
                        const tr_bf16 *queries, float rest, float *s) {
  const int64_t first = lo / SIDE * SIDE;
  tr_amx_product p = {
      .a = keys + first * dim, .b = queries + i * dim, .m = hi - first, .n = SIDE, .k = dim, .ldc = T};
  p.a_panel = p.b_panel = dim * SIDE;
  p.c = s + first * T + i;
  if (first >= hi) return;
  amx->product(&p);
  scale_rows(p.c, p.m, SIDE, rest);
}

// A panel of rows of C from number i on, [SIDE, D] += scores times features, over keys or queries lo .. hi - 1.
static void tile_sums(const tr_amx *amx, int64_t dim, int lo, int hi, int i, const tr_bf16 *scores,
                      const tr_bf16 *features, float *c) {
  const int64_t first = lo / SIDE * SIDE;
  tr_amx_product p = {.a = scores + i * T + first * SIDE, .b = features + first * SIDE, .m = SIDE, .n = dim};
  p.a_panel = p.b_panel = TILE_PANEL;
  p.k = hi - first, p.c = c + i * dim, p.ldc = dim, p.add = 1;
  if (first < hi) amx->product(&p);
}

#endif
