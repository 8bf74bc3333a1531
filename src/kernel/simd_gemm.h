// SPDX-License-Identifier: MIT
// Matrix products: a register-blocked micro-kernel, the packing it wants, one tile of C, and matrix-vector
// products. Included by simd_body.h only.
//
// Layout after packing (Goto and van de Geijn, "Anatomy of high-performance matrix multiplication", 2008): A
// in panels of TR_MR rows, B in panels of TR_NR columns, each panel k-major, f32 whatever the source type,
// edges padded with zeros:
//   A panel: a[0..MR)(k=0) a[0..MR)(k=1) ...      B panel: b[0..NR)(k=0) b[0..NR)(k=1) ...
// The sum over k of one element runs in ascending order, whole blocks of TR_GEMM_DEPTH at a time.
#ifndef TRIREME_KERNEL_SIMD_GEMM_H
#define TRIREME_KERNEL_SIMD_GEMM_H

#include "kernel/simd_flat.h"

enum { TR_NR = 2 * TR_VL };

// The micro-kernel's rows, written out: accumulators must be named variables, since GCC 12 keeps an array of
// vectors in memory. Rows from TR_MR on are constant conditions that vanish.
#define EACH_ROW(X)    X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11)
#define ROW_DECLARE(i) vf left##i = {0}, right##i = {0};
#define ROW_ADD(i)                                                                                                   \
  if (i < TR_MR) {                                                                                                   \
    const vf x = splat(at[i * a_row]);                                                                               \
    left##i += x * b_left;                                                                                           \
    right##i += x * b_right;                                                                                         \
  }
#define ROW_STORE(i)                                                                                                 \
  if (i < TR_MR) {                                                                                                   \
    float *to = c + i * ldc;                                                                                         \
    store_f32(to, add_c ? load_f32(to, TR_VL) + left##i : left##i, TR_VL);                                           \
    to += TR_VL;                                                                                                     \
    store_f32(to, add_c ? load_f32(to, TR_VL) + right##i : right##i, TR_VL);                                         \
  }

// C[TR_MR, TR_NR] (+)= A B; A(i, p) = a[i * a_row + p * a_col], rows of B at steps of ldb. Inlined with
// constant strides where packed.
INLINE void micro_product(int64_t k, const float *a, int64_t a_row, int64_t a_col, const float *b, int64_t ldb,
                          float *c, int64_t ldc, int add_c) {
  EACH_ROW(ROW_DECLARE)
  for (int64_t p = 0; p < k; p++) {
    const float *at = a + p * a_col;
    const vf b_left = load_f32(b + p * ldb, TR_VL), b_right = load_f32(b + p * ldb + TR_VL, TR_VL);
    EACH_ROW(ROW_ADD)
  }
  EACH_ROW(ROW_STORE)
}

// One panel whose rows lie next to each other. Away from the matrix's end whole vectors are copied even where the
// panel is narrower: what runs over lands where the next step, or the next panel, is written afterwards.
INLINE void pack_contiguous(tr_dtype type, const void *src, int64_t col, int64_t i0, int64_t rows, int64_t k,
                            int height, float *dst) {
  const int64_t take = tr__min(height, rows - i0);
  const int whole = i0 + height + TR_VL <= rows;
  for (int64_t p = 0; p < k; p++)
    for (int64_t i = 0; i < height; i += TR_VL) {
      const int64_t left = whole ? TR_VL : take - i;
      vf v = left > 0 ? load(type, src, p * col + i0 + i, left) : (vf){0};
      store_f32(dst + p * height + i, v, whole ? TR_VL : height - i);
    }
}

typedef float vf4 __attribute__((vector_size(16)));
typedef uint32_t vu4 __attribute__((vector_size(16)));
typedef uint16_t vh4 __attribute__((vector_size(8)));

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

// Four rows, each contiguous, transposed into a panel: 4 x 4 at a time. Four, because rows of a power-of-two
// pitch fall into the same cache set, and more of them would push each other out.
INLINE void pack_four_rows(tr_dtype type, const void *src, int64_t at, int64_t row, int64_t k, int height,
                           float *dst) {
  int64_t p = 0;
  for (; p + 4 <= k; p += 4, dst += 4 * height) {
    const vf4 a = load_four(type, src, at + p), b = load_four(type, src, at + row + p);
    const vf4 c = load_four(type, src, at + 2 * row + p), d = load_four(type, src, at + 3 * row + p);
    const vf4 ab_low = __builtin_shufflevector(a, b, 0, 4, 1, 5), ab_high = __builtin_shufflevector(a, b, 2, 6, 3, 7);
    const vf4 cd_low = __builtin_shufflevector(c, d, 0, 4, 1, 5), cd_high = __builtin_shufflevector(c, d, 2, 6, 3, 7);
    const vf4 out[4] = {
        __builtin_shufflevector(ab_low, cd_low, 0, 1, 4, 5), __builtin_shufflevector(ab_low, cd_low, 2, 3, 6, 7),
        __builtin_shufflevector(ab_high, cd_high, 0, 1, 4, 5), __builtin_shufflevector(ab_high, cd_high, 2, 3, 6, 7)};
    memcpy(dst, &out[0], sizeof out[0]);
    memcpy(dst + height, &out[1], sizeof out[1]);
    memcpy(dst + 2 * height, &out[2], sizeof out[2]);
    memcpy(dst + 3 * height, &out[3], sizeof out[3]);
  }
  for (; p < k; p++, dst += height)
    for (int i = 0; i < 4; i++) dst[i] = load_one(type, src, at + i * row + p);
}

// Panels of `height` rows from a matrix whose element (i, p) is src[i * row + p * col]; rows past `rows` are zeros.
INLINE void pack_panels(tr_dtype type, const void *src, int64_t row, int64_t col, int64_t rows, int64_t k, int height,
                        float *dst) {
  for (int64_t i0 = 0; i0 < rows; i0 += height, dst += height * k) {
    const int64_t take = tr__min(height, rows - i0);
    if (row == 1) { // contiguous across the panel: whole vectors
      pack_contiguous(type, src, col, i0, rows, k, height, dst);
      continue;
    }
    if (take < height) memset(dst, 0, (size_t)(height * k) * sizeof *dst);
    int64_t i = 0;
    for (; i + 4 <= take; i += 4) pack_four_rows(type, src, (i0 + i) * row, row, k, height, dst + i);
    for (; i < take; i++)
      for (int64_t p = 0; p < k; p++) dst[p * height + i] = load_one(type, src, (i0 + i) * row + p);
  }
}

// Columns j0 .. j1 - 1 of B, packed; `packed` is where column j0's panel starts.
static void gemm_pack_b(const tr_gemm *g, int64_t j0, int64_t j1, float *packed) {
  const void *b = tr__elem(g->type_b, g->b, j0 * g->b_col);
  pack_panels(g->type_b, b, g->b_col, g->b_row, j1 - j0, g->k, TR_NR, packed);
}

// What the epilogue makes of v, elements `at` .. of C.
INLINE vf gemm_epilogue(const tr_gemm *g, vf v, int64_t at, int64_t left) {
  if (g->epilogue == TR_EPILOGUE_GELU) {
    if (g->aux) store(g->type_c, g->aux, at, v, left);
    v = gelu(g->type_c == TR_BF16 ? round_bf16(v) : v);
  } else if (g->epilogue == TR_EPILOGUE_GELU_BACKWARD) {
    v = v * gelu_derivative(load(g->type_c, g->aux, at, left));
  }
  return v;
}

// Rows i0 .. i0 + rows - 1, columns j0 .. j1 - 1 of A B, finished.
static void block_store(const tr_gemm *g, const float *from, int64_t ld, int64_t i0, int64_t rows, int64_t j0,
                        int64_t j1) {
  for (int64_t i = 0; i < rows; i++)
    for (int64_t j = j0; j < j1; j += TR_VL) {
      const int64_t left = j1 - j, at = (i0 + i) * g->ldc + j;
      vf v = load_f32(from + i * ld + (j - j0), TR_VL);
      if (g->bias) v += load(g->type_bias, g->bias, j, left);
      v = gemm_epilogue(g, v, at, left);
      if (g->add) v += load(g->type_c, g->c, at, left);
      store(g->type_c, g->c, at, v, left);
    }
}

// Bring this row panel's share of the next panel of B (n floats) towards the core.
INLINE void fetch_ahead(const float *next, int64_t i, int64_t n) {
  const int64_t share = n / (TR_GEMM_ROWS / TR_MR), first = i / TR_MR * share;
  for (int64_t f = first; f < first + share; f += 16) __builtin_prefetch(next + f, 0, 2);
}

// One tile of C, at most TR_GEMM_ROWS by TR_GEMM_COLS. `packed` is the packed B from column j0 on; scratch
// holds a block of A and the tile in f32.
static void gemm_tile(const tr_gemm *g, int64_t i0, int64_t i1, int64_t j0, int64_t j1, const float *packed,
                      float *scratch) {
  float *tile = scratch, *block = scratch + TR_GEMM_ROWS * TR_GEMM_COLS;
  const int64_t k = g->k;
  if (k == 0) memset(tile, 0, (size_t)TR_GEMM_ROWS * TR_GEMM_COLS * sizeof *tile);
  for (int64_t p0 = 0; p0 < k; p0 += TR_GEMM_DEPTH) {
    const int64_t depth = tr__min(TR_GEMM_DEPTH, k - p0);
    pack_panels(g->type_a, tr__elem(g->type_a, g->a, i0 * g->a_row + p0 * g->a_col), g->a_row, g->a_col, i1 - i0,
                depth, TR_MR, block);
    for (int64_t j = 0; j < j1 - j0; j += TR_NR)
      for (int64_t i = 0; i < i1 - i0; i += TR_MR) {
        fetch_ahead(packed + (j + TR_NR) * k + p0 * TR_NR, i, depth * TR_NR);
        micro_product(depth, block + i * depth, 1, TR_MR, packed + j * k + p0 * TR_NR, TR_NR,
                      tile + i * TR_GEMM_COLS + j, TR_GEMM_COLS, p0 > 0);
      }
  }
  block_store(g, tile, TR_GEMM_COLS, i0, i1 - i0, j0, j1);
}

// Sum of a[p] b[p], b of any type with step 1.
static float dot_row(int64_t k, const float *a, tr_dtype type, const void *b, int64_t at) {
  vf sum[4] = {{0}, {0}, {0}, {0}};
  int64_t p = 0;
  for (; p + 4 * TR_VL <= k; p += 4 * TR_VL)
    for (int v = 0; v < 4; v++)
      sum[v] += load_f32(a + p + v * TR_VL, TR_VL) * load(type, b, at + p + v * TR_VL, TR_VL);
  for (; p < k; p += TR_VL) sum[0] += load_f32(a + p, k - p) * load(type, b, at + p, k - p);
  return sum_lanes((sum[0] + sum[1]) + (sum[2] + sum[3]));
}

static void thin_store(const tr_gemm *g, int64_t i, int64_t j0, int64_t j1, const float *row) {
  for (int64_t j = j0; j < j1; j += TR_VL) {
    vf v = load_f32(row + (j - j0), j1 - j);
    if (g->bias) v += load(g->type_bias, g->bias, j, j1 - j);
    v = gemm_epilogue(g, v, i * g->ldc + j, j1 - j);
    if (g->add) v += load(g->type_c, g->c, i * g->ldc + j, j1 - j);
    store(g->type_c, g->c, i * g->ldc + j, v, j1 - j);
  }
}

// Columns j0 .. j1 - 1 (at most TR_GEMM_THIN_COLS) of a product with few rows; `a` is A as dense f32 rows.
static void gemm_thin(const tr_gemm *g, const float *a, int64_t j0, int64_t j1) {
  float row[TR_GEMM_THIN][TR_GEMM_THIN_COLS];
  memset(row, 0, sizeof row);
  if (g->b_row == 1) { // each column of B is contiguous: dot products
    for (int64_t j = j0; j < j1; j++)
      for (int64_t i = 0; i < g->m; i++) row[i][j - j0] = dot_row(g->k, a + i * g->k, g->type_b, g->b, j * g->b_col);
  } else {
    for (int64_t p = 0; p < g->k; p++)
      for (int64_t i = 0; i < g->m; i++) {
        const vf x = splat(a[i * g->k + p]);
        for (int64_t j = j0; j < j1; j += TR_VL) {
          float *at = &row[i][j - j0];
          store_f32(at, load_f32(at, TR_VL) + x * load(g->type_b, g->b, p * g->b_row + j, j1 - j), TR_VL);
        }
      }
  }
  for (int64_t i = 0; i < g->m; i++) thin_store(g, i, j0, j1, row[i]);
}

#endif
