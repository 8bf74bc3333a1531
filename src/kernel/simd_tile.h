// SPDX-License-Identifier: MIT
// What attention is made of: rows of a head copied into f32 tiles, plain or transposed, and products of such tiles.
// Included by simd_attention.h only.
//
// One micro-kernel does all products: PANEL rows of C by two vectors, accumulators in registers,
//   C[i, :] (+)= sum over p of A(i, p) B[p, :]        A(i, p) = a[i * a_row + p * a_col]
// With constant strides of A the compiler needs one pointer for it. Operands therefore come in three shapes:
//   rows        [row][D]             D = dim rounded up to a cache line
//   transposed  [dim][T]             a tile of T rows
//   panels      [row / PANEL][dim][PANEL]
#ifndef TRIREME_KERNEL_SIMD_TILE_H
#define TRIREME_KERNEL_SIMD_TILE_H

#include "kernel/simd_vector.h"

enum {
  T = TR_ATTENTION_TILE,
  PANEL = TR_VL == 16  ? 12
          : TR_VL == 8 ? 6
                       : 4, // rows of C in registers; divides T
  COLUMNS = T / TR_VL       // vectors in a row of a transposed tile
};

// The rows of C, written out: accumulators must be named variables, since GCC 12 keeps an array of vectors in memory.
// Rows from PANEL on are constant conditions that vanish.
#define TILE_EACH(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11)
#define TILE_ZERO(i) vf left##i = {0}, right##i = {0};
#define TILE_ADD(i)                                                                                                  \
  if (i < PANEL) {                                                                                                   \
    const vf x = splat(at[i * a_row]);                                                                               \
    left##i += x * b_left;                                                                                           \
    if (wide) right##i += x * b_right;                                                                               \
  }
#define TILE_STORE(i)                                                                                                \
  if (i < PANEL) {                                                                                                   \
    float *to = c + i * ldc;                                                                                         \
    store_f32(to, add_c ? load_f32(to, TR_VL) + left##i : left##i, TR_VL);                                           \
    to += TR_VL;                                                                                                     \
    if (wide) store_f32(to, add_c ? load_f32(to, TR_VL) + right##i : right##i, TR_VL);                               \
  }

INLINE void panel_product(int wide, int64_t k, const float *a, int64_t a_row, int64_t a_col, const float *b,
                          int64_t ldb, float *c, int64_t ldc, int add_c) {
  TILE_EACH(TILE_ZERO)
  for (int64_t p = 0; p < k; p++, b += ldb) {
    const float *at = a + p * a_col;
    const vf b_left = load_f32(b, TR_VL), b_right = wide ? load_f32(b + TR_VL, TR_VL) : (vf){0};
    TILE_EACH(TILE_ADD)
  }
  TILE_EACH(TILE_STORE)
}

// C[PANEL, d] += A B for rows of d floats; A's panel has its rows (k-major 0) or its columns next to each other.
INLINE void row_product(int64_t d, int64_t k, const float *a, int64_t a_row, int64_t a_col, const float *b,
                        float *c) {
  int64_t j = 0;
  for (; j + 2 * TR_VL <= d; j += 2 * TR_VL) panel_product(1, k, a, a_row, a_col, b + j, d, c + j, d, 1);
  for (; j < d; j += TR_VL) panel_product(0, k, a, a_row, a_col, b + j, d, c + j, d, 1);
}

// c[row, :] += the sum over p of a[row][p] b[p, :]; and with a transposed. Both for tiles a of row length T.
static void add_product(int64_t d, int64_t k, const float *a, const float *b, float *c) {
  row_product(d, k, a, T, 1, b, c);
}
static void add_product_transposed(int64_t d, int64_t k, const float *a, const float *b, float *c) {
  row_product(d, k, a, 1, T, b, c);
}

// The products of a panel with two columns (or one) of a transposed tile, into the same columns of c.
static void column_product(int64_t dim, const float *panel, const float *transposed, float *c, int wide) {
  if (wide) {
    panel_product(1, dim, panel, 1, PANEL, transposed, T, c, T, 0);
  } else {
    panel_product(0, dim, panel, 1, PANEL, transposed, T, c, T, 0);
  }
}

INLINE int64_t padded_dim(int64_t dim) { return tr__ceil_div(dim, TR_ATTENTION_LINE) * TR_ATTENTION_LINE; }

// Rows of one head: where they lie and how many there are.
typedef struct head_rows {
  const void *base;
  int64_t ld, first, count, dim; // element of the first row's first feature
  float scale;
} head_rows;

INLINE head_rows rows_of(const void *base, int64_t ld, int head, int64_t dim, int64_t row0, int64_t row1) {
  return (head_rows){base, ld, row0 * ld + head * dim, row1 - row0, dim, 1.0f};
}

// Rows lie pages apart, where no prefetcher of the processor follows: bring a row as far ahead as its latency asks for.
enum { ROWS_AHEAD = 8 };
INLINE void fetch_row(tr_dtype type, const void *base, int64_t at, int64_t dim, int write) {
  const char *from = tr__elem(type, base, at);
  const int64_t nbyte = dim * (type == TR_BF16 ? 2 : 4);
  for (int64_t i = 0; i < nbyte; i += 64) {
    if (write) {
      __builtin_prefetch(from + i, 1, 3);
    } else {
      __builtin_prefetch(from + i, 0, 3);
    }
  }
}

INLINE void rows_in(tr_dtype type, head_rows r, float *dst) {
  const int64_t d = padded_dim(r.dim);
  for (int64_t i = 0; i < r.count; i++) {
    fetch_row(type, r.base, r.first + (i + ROWS_AHEAD) * r.ld, r.dim, 0);
    for (int64_t e = 0; e < d; e += TR_VL) {
      const vf v = e < r.dim ? load(type, r.base, r.first + i * r.ld + e, r.dim - e) * r.scale : (vf){0};
      store_f32(dst + i * d + e, v, TR_VL);
    }
  }
}

static void load_rows(tr_dtype type, head_rows r, float *dst) {
  if (type == TR_BF16) {
    rows_in(TR_BF16, r, dst);
  } else {
    rows_in(TR_F32, r, dst);
  }
}

// TR_VL rows of a vector each become TR_VL columns: after each round, the vectors that belong together are half as far
// apart.
INLINE void transpose(vf v[TR_VL]) {
#pragma GCC unroll 4
  for (int round = 1; round < TR_VL; round *= 2) {
    vf w[TR_VL];
#pragma GCC unroll 8
    for (int i = 0; i < TR_VL / 2; i++) {
      w[2 * i] = interleave_low(v[i], v[i + TR_VL / 2]);
      w[2 * i + 1] = interleave_high(v[i], v[i + TR_VL / 2]);
    }
    memcpy(v, w, sizeof w);
  }
}

// `height` rows of D floats (at most TR_VL) as columns at dst, `width` floats apart; rows from `count` on are zeros. Whole
// vectors are written: what is not used of one lies where the next one is written, or behind the last.
INLINE void columns_of(const float *rows, int64_t dim, int64_t count, int height, int64_t width, float *dst) {
  const int64_t d = padded_dim(dim);
  for (int64_t e = 0; e < dim; e += TR_VL) {
    vf v[TR_VL];
    for (int i = 0; i < TR_VL; i++) v[i] = i < height && i < count ? load_f32(rows + i * d + e, TR_VL) : (vf){0};
    transpose(v);
    for (int f = 0; f < TR_VL && e + f < dim; f++) store_f32(dst + (e + f) * width, v[f], TR_VL);
  }
}

static void transposed_of(const float *rows, int64_t dim, int64_t count, float *dst) {
  for (int64_t i = 0; i < T; i += TR_VL) columns_of(rows + i * padded_dim(dim), dim, count - i, TR_VL, T, dst + i);
}

// dst has space for one more vector.
static void panels_of(const float *rows, int64_t dim, int64_t count, float *dst) {
  for (int64_t i = 0; i < count; i += PANEL)
    columns_of(rows + i * padded_dim(dim), dim, count - i, PANEL, PANEL, dst + i * dim);
}

INLINE void store_rows_in(tr_dtype type, int64_t n, int64_t dim, float scale, const float *src, void *dst, int64_t at,
                          int64_t ld, int add_out) {
  const int64_t d = padded_dim(dim);
  for (int64_t i = 0; i < n; i++) {
    fetch_row(type, dst, at + (i + ROWS_AHEAD) * ld, dim, 1);
    for (int64_t e = 0; e < dim; e += TR_VL) {
      const int64_t to = at + i * ld + e;
      vf v = load_f32(src + i * d + e, TR_VL) * scale;
      if (add_out) v += load(type, dst, to, dim - e);
      store(type, dst, to, v, dim - e);
    }
  }
}

// n rows of D floats, scaled, into (or added to) rows of one head that start at element `at`.
static void store_rows(tr_dtype type, int64_t n, int64_t dim, float scale, const float *src, void *dst, int64_t at,
                       int64_t ld, int add_out) {
  if (type == TR_BF16) {
    store_rows_in(TR_BF16, n, dim, scale, src, dst, at, ld, add_out);
  } else {
    store_rows_in(TR_F32, n, dim, scale, src, dst, at, ld, add_out);
  }
}

INLINE float dot_in(tr_dtype type, int64_t n, const float *a, const void *b, int64_t at) {
  vf sum = {0}, sum2 = {0};
  int64_t e = 0;
  for (; e + 2 * TR_VL <= n; e += 2 * TR_VL) {
    sum += load_f32(a + e, TR_VL) * load(type, b, at + e, TR_VL);
    sum2 += load_f32(a + e + TR_VL, TR_VL) * load(type, b, at + e + TR_VL, TR_VL);
  }
  for (; e < n; e += TR_VL) sum += load_f32(a + e, n - e) * load(type, b, at + e, n - e);
  return sum_lanes(sum + sum2);
}

// Of an f32 row and n elements of another type.
static float mixed_dot(tr_dtype type, int64_t n, const float *a, const void *b, int64_t at) {
  return type == TR_BF16 ? dot_in(TR_BF16, n, a, b, at) : dot_in(TR_F32, n, a, b, at);
}

INLINE void add_scaled_in(tr_dtype type, int64_t n, float x, const void *src, int64_t at, float *dst) {
  for (int64_t e = 0; e < n; e += TR_VL)
    store_f32(dst + e, load_f32(dst + e, TR_VL) + x * load(type, src, at + e, n - e), TR_VL);
}

// dst += x src for a row of D floats and n elements of another type.
static void add_scaled(tr_dtype type, int64_t n, float x, const void *src, int64_t at, float *dst) {
  if (type == TR_BF16) {
    add_scaled_in(TR_BF16, n, x, src, at, dst);
  } else {
    add_scaled_in(TR_F32, n, x, src, at, dst);
  }
}

#endif
