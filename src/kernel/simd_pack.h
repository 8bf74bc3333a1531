// SPDX-License-Identifier: MIT
// Operands of products in the order in which the micro-kernel reads them. Included by simd_body.h only.
//
// Panels of H columns of B, each k-major, edges padded with zeros (Goto and van de Geijn, "Anatomy of high-performance
// matrix multiplication", 2008); A, when it is stored transposed, likewise in panels of rows:
//   b[0..H)(k=0) b[0..H)(k=1) ... b[0..H)(k=K-1) | b[H..2H)(k=0) ...
// B keeps its type, so that bf16 weights stay two bytes wide; A is widened to f32.
#ifndef TRIREME_KERNEL_SIMD_PACK_H
#define TRIREME_KERNEL_SIMD_PACK_H

#include "kernel/simd_vector.h"

enum { CHUNK = 32 }; // k at a time when rows are transposed: what is written stays in the first-level cache

typedef float vf4 __attribute__((vector_size(16)));
typedef uint32_t vu4 __attribute__((vector_size(16)));
typedef uint16_t vh4 __attribute__((vector_size(8)));

// A number that came from `to` or a narrower type: no rounding, every bit survives, those of a NaN too.
INLINE void store_exact(tr_dtype to, void *dst, int64_t at, vf v, int64_t n) {
  if (to == TR_BF16) {
    const vh h = TR_NARROW((vu)v >> 16);
    memcpy((tr_bf16 *)dst + at, &h, (size_t)(n < TR_VL ? n : TR_VL) * sizeof(tr_bf16));
  } else {
    store_f32((float *)dst + at, v, n);
  }
}

// One panel whose elements lie next to each other across it. Away from the matrix's end whole vectors are copied even
// where the panel is narrower: what runs over lands where the next step, or the next panel, is written afterwards.
INLINE void pack_contiguous(tr_dtype type, const void *src, int64_t col, int64_t i0, int64_t rows, int64_t k,
                            int height, tr_dtype to, void *dst) {
  const int64_t take = tr__min(height, rows - i0);
  const int whole = i0 + height + TR_VL <= rows;
  for (int64_t p = 0; p < k; p++)
    for (int64_t i = 0; i < height; i += TR_VL) {
      const int64_t left = whole ? TR_VL : take - i;
      vf v = left > 0 ? load(type, src, p * col + i0 + i, left) : (vf){0};
      store_exact(to, dst, p * height + i, v, whole ? TR_VL : height - i);
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

// Four rows, each contiguous, transposed into a panel: 4 x 4 at a time. Four, because rows of a power-of-two
// pitch fall into the same cache set, and more of them would push each other out.
INLINE void pack_four_rows(tr_dtype type, const void *src, int64_t at, int64_t row, int64_t k, int height,
                           tr_dtype to, void *dst, int64_t first) {
  int64_t p = 0;
  for (; p + 4 <= k; p += 4, first += 4 * height) {
    const vf4 a = load_four(type, src, at + p), b = load_four(type, src, at + row + p);
    const vf4 c = load_four(type, src, at + 2 * row + p), d = load_four(type, src, at + 3 * row + p);
    const vf4 ab_low = __builtin_shufflevector(a, b, 0, 4, 1, 5), ab_high = __builtin_shufflevector(a, b, 2, 6, 3, 7);
    const vf4 cd_low = __builtin_shufflevector(c, d, 0, 4, 1, 5), cd_high = __builtin_shufflevector(c, d, 2, 6, 3, 7);
    store_four(to, dst, first, __builtin_shufflevector(ab_low, cd_low, 0, 1, 4, 5));
    store_four(to, dst, first + height, __builtin_shufflevector(ab_low, cd_low, 2, 3, 6, 7));
    store_four(to, dst, first + 2 * height, __builtin_shufflevector(ab_high, cd_high, 0, 1, 4, 5));
    store_four(to, dst, first + 3 * height, __builtin_shufflevector(ab_high, cd_high, 2, 3, 6, 7));
  }
  for (; p < k; p++, first += height)
    for (int i = 0; i < 4; i++) copy_one(type, src, at + i * row + p, to, dst, first + i);
}

// Panels of `height` rows of type `to` (the source's type or f32) from a matrix whose element (i, p) is
// src[i * row + p * col]; rows past `rows` are zeros.
INLINE void pack_panels_as(tr_dtype type, const void *src, int64_t row, int64_t col, int64_t rows, int64_t k,
                           int height, tr_dtype to, void *out) {
  for (int64_t i0 = 0; i0 < rows; i0 += height) {
    void *dst = tr__elem_mut(to, out, i0 * k);
    const int64_t take = tr__min(height, rows - i0);
    if (row == 1) { // contiguous across the panel: whole vectors
      pack_contiguous(type, src, col, i0, rows, k, height, to, dst);
      continue;
    }
    if (take < height) memset(dst, 0, (size_t)(height * k) * (to == TR_BF16 ? sizeof(tr_bf16) : sizeof(float)));
    for (int64_t p = 0; p < k; p += CHUNK) {
      const int64_t n = tr__min(CHUNK, k - p);
      int64_t i = 0;
      for (; i + 4 <= take; i += 4)
        pack_four_rows(type, src, (i0 + i) * row + p, row, n, height, to, dst, p * height + i);
      for (; i < take; i++)
        for (int64_t q = p; q < p + n; q++) copy_one(type, src, (i0 + i) * row + q * col, to, dst, q * height + i);
    }
  }
}

INLINE void pack_panels(tr_dtype type, const void *src, int64_t row, int64_t col, int64_t rows, int64_t k, int height,
                        float *dst) {
  pack_panels_as(type, src, row, col, rows, k, height, TR_F32, dst);
}

#endif
