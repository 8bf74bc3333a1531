// SPDX-License-Identifier: MIT
// B of a product in the order in which the micro-kernel reads it: panels of TR_NR columns, each k-major, edges padded
// with zeros (Goto and van de Geijn, "Anatomy of high-performance matrix multiplication", 2008). Included by
// simd_body.h only.
//   b[0..NR)(k=0) b[0..NR)(k=1) ... b[0..NR)(k=K-1) | b[NR..2NR)(k=0) ...
// Packed weights keep their type, so that bf16 stays two bytes wide; otherwise the panels are f32.
#ifndef TRIREME_KERNEL_SIMD_PACK_H
#define TRIREME_KERNEL_SIMD_PACK_H

#include "kernel/simd_vector.h"

enum {
  TR_NR = 2 * TR_VL,
  PACK_CHUNK = 32 // k at a time when columns lie as rows: what is written stays in the first-level cache
};

typedef float vf4 __attribute__((vector_size(16)));
typedef uint32_t vu4 __attribute__((vector_size(16)));
typedef uint16_t vh4 __attribute__((vector_size(8)));

INLINE size_t size_of(tr_dtype type) { return type == TR_BF16 ? sizeof(tr_bf16) : sizeof(float); }

// A panel whose columns lie side by side in memory, `take` of them.
INLINE void pack_side_by_side(tr_dtype type, const void *src, int64_t col, int64_t take, int64_t k, tr_dtype to,
                              void *dst) {
  for (int64_t p = 0; p < k; p++) {
    const void *from = tr__elem(type, src, p * col);
    void *row = tr__elem_mut(to, dst, p * TR_NR);
    if (type == to && take == TR_NR) {
      memcpy(row, from, TR_NR * size_of(to));
    } else if (type == to) {
      memset(row, 0, TR_NR * size_of(to));
      memcpy(row, from, (size_t)take * size_of(to));
    } else {
      for (int64_t i = 0; i < TR_NR; i += TR_VL)
        store_f32((float *)row + i, i < take ? load(type, from, i, take - i) : (vf){0}, TR_VL);
    }
  }
}

INLINE vf4 load_four(tr_dtype type, const void *src, int64_t at) {
  if (type == TR_BF16) {
    vh4 h;
    memcpy(&h, (const tr_bf16 *)src + at, sizeof h);
    return (vf4)(__builtin_convertvector(h, vu4) << 16);
  }
  vf4 v;
  memcpy(&v, (const float *)src + at, sizeof v);
  return v;
}

INLINE void store_four(tr_dtype to, void *dst, int64_t at, vf4 v) {
  if (to == TR_BF16) {
    const vh4 h = __builtin_convertvector((vu4)v >> 16, vh4);
    memcpy((tr_bf16 *)dst + at, &h, sizeof h);
  } else {
    memcpy((float *)dst + at, &v, sizeof v);
  }
}

INLINE void copy_one(tr_dtype type, const void *src, int64_t from, tr_dtype to, void *dst, int64_t at) {
  if (to == TR_BF16) {
    ((tr_bf16 *)dst)[at] = ((const tr_bf16 *)src)[from];
  } else {
    ((float *)dst)[at] = load_one(type, src, from);
  }
}

// Four columns, each contiguous, transposed into a panel: 4 x 4 at a time. Four, because rows of a power-of-two
// pitch fall into the same cache set, and more of them would push each other out.
INLINE void pack_four_rows(tr_dtype type, const void *src, int64_t at, int64_t row, int64_t k, tr_dtype to, void *dst,
                           int64_t first) {
  int64_t p = 0;
  for (; p + 4 <= k; p += 4, first += 4 * TR_NR) {
    const vf4 a = load_four(type, src, at + p), b = load_four(type, src, at + row + p);
    const vf4 c = load_four(type, src, at + 2 * row + p), d = load_four(type, src, at + 3 * row + p);
    const vf4 ab_low = __builtin_shufflevector(a, b, 0, 4, 1, 5), ab_high = __builtin_shufflevector(a, b, 2, 6, 3, 7);
    const vf4 cd_low = __builtin_shufflevector(c, d, 0, 4, 1, 5), cd_high = __builtin_shufflevector(c, d, 2, 6, 3, 7);
    store_four(to, dst, first, __builtin_shufflevector(ab_low, cd_low, 0, 1, 4, 5));
    store_four(to, dst, first + TR_NR, __builtin_shufflevector(ab_low, cd_low, 2, 3, 6, 7));
    store_four(to, dst, first + 2 * TR_NR, __builtin_shufflevector(ab_high, cd_high, 0, 1, 4, 5));
    store_four(to, dst, first + 3 * TR_NR, __builtin_shufflevector(ab_high, cd_high, 2, 3, 6, 7));
  }
  for (; p < k; p++, first += TR_NR)
    for (int i = 0; i < 4; i++) copy_one(type, src, at + i * row + p, to, dst, first + i);
}

// Panels of type `to` (the source's or f32) from `n` columns; element p of column i is src[i * row + p * col].
INLINE void pack_panels(tr_dtype type, const void *src, int64_t row, int64_t col, int64_t n, int64_t k, tr_dtype to,
                        void *out) {
  for (int64_t i0 = 0; i0 < n; i0 += TR_NR) {
    void *dst = tr__elem_mut(to, out, i0 * k);
    const int64_t take = tr__min(TR_NR, n - i0);
    if (row == 1) {
      pack_side_by_side(type, tr__elem(type, src, i0), col, take, k, to, dst);
      continue;
    }
    if (take < TR_NR) memset(dst, 0, (size_t)(TR_NR * k) * size_of(to));
    for (int64_t p = 0; p < k; p += PACK_CHUNK) {
      const int64_t depth = tr__min(PACK_CHUNK, k - p);
      int64_t i = 0;
      for (; i + 4 <= take; i += 4) pack_four_rows(type, src, (i0 + i) * row + p, row, depth, to, dst, p * TR_NR + i);
      for (; i < take; i++)
        for (int64_t q = p; q < p + depth; q++) copy_one(type, src, (i0 + i) * row + q, to, dst, q * TR_NR + i);
    }
  }
}

#endif
