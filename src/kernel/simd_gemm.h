// SPDX-License-Identifier: MIT
// Matrix products: a register-blocked micro-kernel, one tile of C, and matrix-vector products. Included by simd_body.h
// only; simd_pack.h has the order of packed operands.
//
// A tile of C is made block by block of k (TR_DEPTH long), and in each block panel by panel of B:
//   A block   f32 in scratch, near the core for all panels: rows at a fixed pitch, columns if A is stored transposed
//   B panel   f32, read from the second-level cache while the next one is fetched; one of bf16 is widened by its first
//             micro-kernel on the way, into scratch for the others
//   C         TR_MR by TR_NR at a time: partial sums in scratch until the last block, then bias, sum, store
// The sum over k of one element is taken in ascending order within blocks of TR_DEPTH, and block by block: the bits
// depend neither on the tile nor on the operands' layout.
#ifndef TRIREME_KERNEL_SIMD_GEMM_H
#define TRIREME_KERNEL_SIMD_GEMM_H

#include "kernel/simd_flat.h"
#include "kernel/simd_pack.h"

enum {
  EDGE_ROWS = 4, // micro-kernel for the last rows: few enough to waste little
  A_PITCH =
      TR_DEPTH + 16 // floats between rows of an A block: an odd number of lines, so that cache sets do not collide
};

// The micro-kernel's rows, written out: accumulators must be named variables, since GCC 12 keeps an array of
// vectors in memory. Conditions on `rows` are constant and vanish.
#define EACH_ROW(X)    X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11)
#define ROW_DECLARE(i) vf left##i = {0}, right##i = {0};
#define ROW_ADD(i)                                                                                                   \
  if (i < rows) {                                                                                                    \
    const vf x = splat(at[i * a_row]);                                                                               \
    left##i += x * b_left;                                                                                           \
    right##i += x * b_right;                                                                                         \
  }
#define ROW_STORE(i)                                                                                                 \
  if (i < rows) {                                                                                                    \
    float *to = c + i * TR_NR;                                                                                       \
    store_f32(to, add_c ? load_f32(to, TR_VL) + left##i : left##i, TR_VL);                                           \
    to += TR_VL;                                                                                                     \
    store_f32(to, add_c ? load_f32(to, TR_VL) + right##i : right##i, TR_VL);                                         \
  }

// Rows of a panel of B for a micro-kernel. f32: as they are. bf16: widened, and written to `wide` as well. Meanwhile
// memory from `next` on is fetched, `step` bytes per row.
typedef struct b_rows {
  tr_dtype type;
  const void *at;
  float *wide;
  const char *next;
  int64_t step;
} b_rows;

// C[rows, TR_NR] (+)= A B; A(i, p) = a[i * a_row + p * a_col]. Inlined with constant rows, type and strides.
INLINE void micro_kernel(int rows, int64_t k, const float *a, int64_t a_row, int64_t a_col, b_rows b, float *c,
                         int add_c) {
  EACH_ROW(ROW_DECLARE)
  for (int64_t p = 0; p < k; p++) {
    const float *at = a + p * a_col;
    __builtin_prefetch(b.next + p * b.step, 0, 2);
    const vf b_left = load(b.type, b.at, p * TR_NR, TR_VL), b_right = load(b.type, b.at, p * TR_NR + TR_VL, TR_VL);
    if (b.type == TR_BF16) {
      store_f32(b.wide + p * TR_NR, b_left, TR_VL);
      store_f32(b.wide + p * TR_NR + TR_VL, b_right, TR_VL);
    }
    EACH_ROW(ROW_ADD)
  }
  EACH_ROW(ROW_STORE)
}

// Columns j0 .. j1 - 1 of B as panels of type `to`; `packed` is where column j0's panel starts.
static void gemm_pack_b(const tr_gemm *g, int64_t j0, int64_t j1, tr_dtype to, void *packed) {
  const void *b = tr__elem(g->type_b, g->b, j0 * g->b_col);
  if (to == TR_BF16) {
    pack_panels(TR_BF16, b, g->b_col, g->b_row, j1 - j0, g->k, TR_BF16, packed);
  } else if (g->type_b == TR_BF16) {
    pack_panels(TR_BF16, b, g->b_col, g->b_row, j1 - j0, g->k, TR_F32, packed);
  } else {
    pack_panels(TR_F32, b, g->b_col, g->b_row, j1 - j0, g->k, TR_F32, packed);
  }
}

// Rows of A B for C, `rows` by `cols` from (i, j) on, rows `ld` apart in `from`.
typedef struct block_part {
  const float *from;
  int64_t ld, i, rows, j, cols;
} block_part;

INLINE void store_block(const tr_gemm *g, tr_dtype type, int add, block_part b, int whole) {
  void *c = g->c; // locals: the compiler knows that no store changes them
  const int64_t ldc = g->ldc;
  for (int64_t j = 0; j < b.cols; j += TR_VL) {
    const int64_t left = whole ? TR_VL : b.cols - j;
    const vf bias = g->bias ? load(g->type_bias, g->bias, b.j + j, left) : (vf){0};
    for (int64_t i = 0; i < b.rows; i++) {
      const int64_t at = (b.i + i) * ldc + b.j + j;
      vf v = load_f32(b.from + i * b.ld + j, TR_VL) + bias;
      if (add) v += load(type, c, at, left);
      store(type, c, at, v, left);
    }
  }
}

INLINE void store_whole(const tr_gemm *g, tr_dtype type, block_part b) {
  if (g->add) {
    store_block(g, type, 1, b, 1);
  } else {
    store_block(g, type, 0, b, 1);
  }
}

// Rows i0 .. i0 + rows - 1, columns j0 .. j1 - 1 of A B, finished. Whole vectors get loops without conditions.
static void block_store(const tr_gemm *g, const float *from, int64_t ld, int64_t i0, int64_t rows, int64_t j0,
                        int64_t j1) {
  const block_part b = {.from = from, .ld = ld, .i = i0, .rows = rows, .j = j0, .cols = j1 - j0};
  if (b.cols % TR_VL != 0) {
    store_block(g, g->type_c, g->add, b, 0);
  } else if (g->type_c == TR_BF16) {
    store_whole(g, TR_BF16, b);
  } else {
    store_whole(g, TR_F32, b);
  }
}

// Where one tile stands: rows i0 .. i1 - 1, columns j0 .. j1 - 1 of C, and k from p0 on.
typedef struct gemm_tile_state {
  const tr_gemm *g;
  int64_t i0, i1, j0, j1, p0, depth;
  tr_panels b; // from column j0 on
  float *sums, *block, *wide;
} gemm_tile_state;

// One row of a block of A, `n` long.
INLINE void widen_row(tr_dtype type, const void *src, int64_t at, int64_t n, float *dst) {
  int64_t p = 0;
  for (; p + TR_VL <= n; p += TR_VL) store_f32(dst + p, load(type, src, at + p, TR_VL), TR_VL);
  if (p < n) store_f32(dst + p, load(type, src, at + p, n - p), TR_VL);
}

INLINE void pack_block(const gemm_tile_state *t, tr_dtype type) {
  const tr_gemm *g = t->g;
  const int64_t rows = t->i1 - t->i0, first = t->i0 * g->a_row + t->p0 * g->a_col;
  const int64_t last = tr__ceil_div(rows, EDGE_ROWS) * EDGE_ROWS; // the micro-kernels' rows, never stored
  if (g->a_col == 1) {
    for (int64_t i = 0; i < rows; i++) widen_row(type, g->a, first + i * g->a_row, t->depth, t->block + i * A_PITCH);
    memset(t->block + rows * A_PITCH, 0, (size_t)((last - rows) * A_PITCH) * sizeof *t->block);
    return;
  }
  for (int64_t p = 0; p < t->depth; p++) {
    float *to = t->block + p * TR_GEMM_ROWS;
    widen_row(type, g->a, first + p * g->a_col, rows, to);
    for (int64_t i = rows; i < last; i++) to[i] = 0.0f;
  }
}

// The block of A, widened, as it lies: rows at a fixed pitch, or columns where A is stored transposed.
static void tile_pack_a(const gemm_tile_state *t) {
  if (t->g->type_a == TR_BF16) {
    pack_block(t, TR_BF16);
  } else {
    pack_block(t, TR_F32);
  }
}

// Bring the lines of C that a micro-kernel will come to towards the core.
INLINE void fetch_c(const tr_gemm *g, int64_t i, int64_t rows, int64_t j) {
  for (int64_t r = 0; r < rows; r++)
    for (int64_t e = 0; e < TR_NR; e += 64 / (int64_t)size_of(g->type_c))
      __builtin_prefetch(tr__elem(g->type_c, g->c, (i + r) * g->ldc + j + e), 1, 3);
}

// The panel of B after this one in the order in which the tile reads them; at its end, the next tile's.
static const char *panel_after(const gemm_tile_state *t, int64_t j) {
  const int64_t panel = (j - t->j0) / TR_NR + 1, wrapped = t->j1 - j <= TR_NR && t->p0 + t->depth < t->g->k;
  return tr__elem(t->b.type, t->b.at, wrapped ? (t->p0 + t->depth) * TR_NR : panel * t->b.step + t->p0 * TR_NR);
}

INLINE void micro_rows(const gemm_tile_state *t, int rows, int64_t i, int64_t j, b_rows b) {
  const int single = t->g->k <= TR_DEPTH, last = t->p0 + t->depth >= t->g->k;
  float *c = single ? t->sums : t->sums + ((j - t->j0) / TR_NR * TR_GEMM_ROWS + i) * TR_NR;
  const int64_t there = tr__min(rows, t->i1 - t->i0 - i);
  if (last) fetch_c(t->g, t->i0 + i, there, j);
  if (t->g->a_col == 1) {
    micro_kernel(rows, t->depth, t->block + i * A_PITCH, A_PITCH, 1, b, c, t->p0 > 0);
  } else {
    micro_kernel(rows, t->depth, t->block + i, 1, TR_GEMM_ROWS, b, c, t->p0 > 0);
  }
  if (last) block_store(t->g, c, TR_NR, t->i0 + i, there, j, tr__min(t->j1, j + TR_NR));
}

// As many rows as fit one micro-kernel from row i of the tile on; returns how many.
INLINE int64_t micro_step(const gemm_tile_state *t, int64_t i, int64_t j, b_rows b) {
  if (t->i1 - t->i0 - i > TR_MR - EDGE_ROWS) {
    micro_rows(t, TR_MR, i, j, b);
    return TR_MR;
  }
  micro_rows(t, EDGE_ROWS, i, j, b);
  return EDGE_ROWS;
}

static void tile_panel(const gemm_tile_state *t, int64_t j) {
  const int64_t rows = t->i1 - t->i0, nstep = tr__ceil_div(rows, TR_MR);
  const int64_t share = TR_NR * (int64_t)size_of(t->b.type) / nstep;
  const void *at = tr__elem(t->b.type, t->b.at, (j - t->j0) / TR_NR * t->b.step + t->p0 * TR_NR);
  b_rows b = {.type = TR_F32, .at = at, .next = panel_after(t, j), .step = share};
  int64_t i = 0;
  if (t->b.type == TR_BF16) {
    b_rows narrow = b;
    narrow.type = TR_BF16, narrow.wide = t->wide;
    i = micro_step(t, 0, j, narrow);
    b.at = t->wide;
    b.next += share * t->depth;
  }
  for (; i < rows; b.next += share * t->depth) i += micro_step(t, i, j, b);
}

// One tile of C, at most TR_GEMM_ROWS by TR_COLS. `b` is B from column j0 on. A block that has all
// of k stays for the next tile of the same rows.
static void gemm_tile(const tr_gemm *g, int64_t i0, int64_t i1, int64_t j0, int64_t j1, tr_panels b,
                      tr_gemm_space *space) {
  const int64_t nblock = tr__ceil_div(g->k, TR_DEPTH), deep = nblock ? tr__ceil_div(g->k, nblock * 16) * 16 : 0;
  gemm_tile_state t = {.g = g, .i0 = i0, .i1 = i1, .j0 = j0, .j1 = j1, .b = b};
  t.sums = space->at, t.block = t.sums + TR_GEMM_ROWS * TR_COLS, t.wide = t.block + TR_GEMM_ROWS * A_PITCH;
  do {
    t.depth = tr__min(deep, g->k - t.p0);
    if (nblock > 1 || space->held != i0) tile_pack_a(&t);
    for (int64_t j = j0; j < j1; j += TR_NR) tile_panel(&t, j);
    t.p0 += t.depth;
  } while (t.p0 < g->k);
  space->held = i0;
}

enum { GEMM_FLOATS = TR_GEMM_ROWS * TR_COLS + TR_GEMM_ROWS * A_PITCH + TR_NR * TR_DEPTH };

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

// TR_VL such sums at once for columns that are packed, so b(p, lane) = b[at + p * TR_NR + lane]: sum p % (4 TR_VL) here
// is what that lane of the four vectors is there, and they are added in the same order.
static vf dot_panel(int64_t k, const float *a, tr_dtype type, const void *b, int64_t at) {
  vf sum[4 * TR_VL];
  const int64_t whole = k / (4 * TR_VL) * (4 * TR_VL);
  for (int s = 0; s < 4 * TR_VL; s++) sum[s] = (vf){0};
  for (int64_t p = 0; p < k; p++) {
    const int64_t s = p < whole ? p % (4 * TR_VL) : (p - whole) % TR_VL;
    sum[s] += splat(a[p]) * load(type, b, at + p * TR_NR, TR_VL);
  }
  for (int s = 0; s < TR_VL; s++) sum[s] = (sum[s] + sum[s + TR_VL]) + (sum[s + 2 * TR_VL] + sum[s + 3 * TR_VL]);
  for (int w = TR_VL / 2; w > 0; w /= 2)
    for (int s = 0; s < w; s++) sum[s] += sum[s + w];
  return sum[0];
}

// Where a vector of row p of B lies from column j on, packed or not.
INLINE vf thin_b(const tr_gemm *g, int64_t p, int64_t j, int64_t left) {
  if (!g->packed) return load(g->type_b, g->b, p * g->b_row + j, left);
  return load(g->type_b, g->packed, j / TR_NR * g->packed_step + p * TR_NR + j % TR_NR, TR_VL);
}

static void thin_dots(const tr_gemm *g, const float *a, int64_t j0, int64_t j1, float row[][TR_GEMM_THIN_COLS]) {
  for (int64_t i = 0; i < g->m; i++) {
    for (int64_t j = j0; !g->packed && j < j1; j++)
      row[i][j - j0] = dot_row(g->k, a + i * g->k, g->type_b, g->b, j * g->b_col);
    for (int64_t j = j0; g->packed && j < j1; j += TR_VL)
      store_f32(&row[i][j - j0],
                dot_panel(g->k, a + i * g->k, g->type_b, g->packed, j / TR_NR * g->packed_step + j % TR_NR), TR_VL);
  }
}

// Columns j0 .. j1 - 1 (at most TR_GEMM_THIN_COLS) of a product with few rows; `a` is A as dense f32 rows.
static void gemm_thin(const tr_gemm *g, const float *a, int64_t j0, int64_t j1) {
  float row[TR_GEMM_THIN][TR_GEMM_THIN_COLS];
  memset(row, 0, sizeof row);
  if (g->b_row == 1) { // each column of B is contiguous: dot products
    thin_dots(g, a, j0, j1, row);
  } else {
    for (int64_t p = 0; p < g->k; p++)
      for (int64_t i = 0; i < g->m; i++) {
        const vf x = splat(a[i * g->k + p]);
        for (int64_t j = j0; j < j1; j += TR_VL) {
          float *at = &row[i][j - j0];
          store_f32(at, load_f32(at, TR_VL) + x * thin_b(g, p, j, j1 - j), TR_VL);
        }
      }
  }
  block_store(g, row[0], TR_GEMM_THIN_COLS, 0, g->m, j0, j1);
}

#endif
