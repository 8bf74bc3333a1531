// SPDX-License-Identifier: MIT
// One task of a bf16 product on AMX. Included by simd_amx.c and by its test, after the tile verbs:
//   amx_begin() amx_end()      all eight tiles are 16 rows of 64 bytes; give them back
//   amx_zero(t)                tile t = 0
//   amx_load(t, from, step)    16 rows, `step` bytes apart
//   amx_store(t, to, step)
//   amx_dot(c, a, b)           tile c += A B: 16 x 16 f32 += (16 x 32 bf16) (32 x 16 bf16)
//
// The micro-kernel holds 32 x 32 of C in tiles 0 to 3 and takes 32 k per step: four loads feed four products. C of the
// task is f32 in scratch, a 4 KiB piece per 32 x 32, so k comes in chunks whose panels of A and B stay in the first-level
// cache. Sums therefore run over k in ascending order whatever the blocking, and bits depend on k alone.
//
// Two things ride along in the steps, where they cost nothing: the panels that come next, and the memory that this piece
// will be written to, are fetched into the second-level cache (into the first they would evict what is in use), and the
// piece finished before goes to memory, with bias and sum, four rows at a time.
#ifndef TRIREME_KERNEL_AMX_BODY_H
#define TRIREME_KERNEL_AMX_BODY_H

#include "kernel/amx_pack.h"

enum { PIECE = SIDE * SIDE, LINE = 64, WAYS_APART = 1024 };

typedef struct
    region { // memory to fetch: rows of lines, the first from its line `line` on, `rate` lines in each step
  const char *at;
  int64_t step, rows, lines, line, rate;
} region;
enum { NEXT_A, NEXT_B, OUT, REGIONS };

typedef struct panels { // SIDE rows of A or columns of B at a time, over one chunk
  const tr_bf16 *at;
  int64_t next, step, half; // elements: to the next panel, to the next SIDE of k, to the second tile
  int64_t row;              // bytes between rows of a tile
} panels;

typedef struct work { // one task on its way
  const tr_gemm *g;
  const tr_simd *simd;
  const tr_amx_block *t;
  float *c;          // [height / SIDE][columns / SIDE] pieces
  tr_bf16 *a;        // a packed chunk of A
  const float *done; // a finished piece, of which rows done_row .. done_end - 1 of C are still to be written
  int64_t done_row, done_end, done_col;
  region ahead[REGIONS];
} work;

// --- what rides along ---

static void fetch(region *ahead) {
  region r = *ahead;
  if (r.rows == 0) return;
  for (int64_t n = r.rate; n > 0 && r.rows > 0; n--) {
    __builtin_prefetch(r.at + r.line * LINE, 0, 2);
    if (++r.line < r.lines) continue;
    r.line = 0, r.at += r.step, r.rows--;
  }
  *ahead = r;
}

// Rows of `width` elements of `size` bytes, `step` elements apart, in the given number of steps.
static region region_over(const void *at, int64_t step, int64_t rows, int64_t width, int64_t size, int64_t steps) {
  region r = {.at = at, .step = step * size, .rows = rows, .lines = tr__ceil_div(width * size, LINE)};
  r.rate = steps > 0 ? tr__ceil_div(rows * r.lines, steps) : 0;
  return r;
}

static void write_rows(work *w, int64_t rows) {
  const int64_t last = tr__min(w->done_row + rows, w->done_end);
  if (w->done_row >= last) return;
  rows = last - w->done_row;
  w->simd->gemm_store(w->g, w->done, SIDE, w->done_row, rows, w->done_col, tr__min(w->done_col + SIDE, w->t->j1));
  w->done += rows * SIDE;
  w->done_row = last;
}

// --- the micro-kernel ---

// One piece of C (+)= the panels' product over `depth` k.
static void piece_product(work *w, const panels *a, int64_t ai, const panels *b, int64_t bj, int64_t depth, int add,
                          float *c, int64_t ldc) {
  const tr_bf16 *at = a->at + ai * a->next, *bt = b->at + bj * b->next;
  float *right = c + HALF, *low = c + HALF * ldc, *low_right = low + HALF;
  const int64_t c_row = ldc * (int64_t)sizeof *c;
  if (add) {
    amx_load(0, c, c_row);
    amx_load(1, right, c_row);
    amx_load(2, low, c_row);
    amx_load(3, low_right, c_row);
  } else {
    amx_zero(0);
    amx_zero(1);
    amx_zero(2);
    amx_zero(3);
  }
  for (int64_t p = 0; p < depth; p += SIDE, at += a->step, bt += b->step) {
    amx_load(4, at, a->row);
    amx_load(6, bt, b->row);
    amx_load(7, bt + b->half, b->row);
    amx_dot(0, 4, 6);
    amx_dot(1, 4, 7);
    amx_load(5, at + a->half, a->row);
    amx_dot(2, 5, 6);
    amx_dot(3, 5, 7);
    for (int r = 0; r < REGIONS; r++) fetch(&w->ahead[r]);
    write_rows(w, 4);
  }
  write_rows(w, SIDE); // the piece before may have been in this one's place
  amx_store(0, c, c_row);
  amx_store(1, right, c_row);
  amx_store(2, low, c_row);
  amx_store(3, low_right, c_row);
}

// --- one chunk of k ---

// Rows i .. i + rows - 1 and k p .. p + depth - 1 of A: as they lie in memory where tiles can be loaded from there (whole,
// from whole lines, rows not all in the same few sets of the first-level cache), else packed.
static panels chunk_a(const work *w, int64_t i, int64_t rows, int64_t p, int64_t depth) {
  const tr_gemm *g = w->g;
  const tr_bf16 *at = (const tr_bf16 *)g->a + i * g->a_row + p * g->a_col;
  const tr_amx_operand a = {TR_BF16, at, g->a_row, g->a_col};
  const int64_t row = a.step_v * (int64_t)sizeof *at;
  if (a.step_k == 1 && rows % SIDE == 0 && depth % SIDE == 0 && (uintptr_t)at % LINE == 0 && row % LINE == 0 &&
      row % WAYS_APART != 0)
    return (panels){at, SIDE * a.step_v, SIDE, HALF * a.step_v, row};
  for (int64_t v = 0; v < rows; v += SIDE)
    for (int64_t q = 0; q < depth; q += SIDE)
      pack_step(a, 0, v, rows - v, q, depth - q, w->a + v * TR_AMX_DEPTH + q * SIDE);
  return (panels){w->a, SIDE * TR_AMX_DEPTH, STEP, TILE, ROW};
}

// Over the coming `steps`: A of rows i .. and k p .., as it lies in memory, and its B, if that is not near anyway.
static void fetch_panels(work *w, int64_t i, int64_t p, int64_t steps) {
  const tr_gemm *g = w->g;
  const tr_amx_block *t = w->t;
  const int64_t rows = tr__min(t->height, g->m - i), depth = tr__min(TR_AMX_DEPTH, g->k - p), size = sizeof(tr_bf16);
  const tr_bf16 *a = (const tr_bf16 *)g->a + i * g->a_row + p * g->a_col;
  w->ahead[NEXT_A] = g->a_col == 1 ? region_over(a, g->a_row, rows, depth, size, steps)
                                   : region_over(a, g->a_col, depth, rows, size, steps);
  const int64_t wide = t->stream_b ? tr__ceil_div(t->j1 - t->j0, SIDE) : 0;
  w->ahead[NEXT_B] = region_over(t->b + p * SIDE, t->panel, wide, tr__amx_padded(depth) * SIDE, size, steps);
}

// The piece now made is written during the next one.
static void fetch_out(work *w, int64_t i, int64_t j, int64_t steps) {
  const tr_gemm *g = w->g;
  const int64_t rows = tr__min(SIDE, w->t->i1 - i), width = tr__min(SIDE, w->t->j1 - j), at = i * g->ldc + j;
  const int64_t size = g->type_c == TR_BF16 ? sizeof(tr_bf16) : sizeof(float);
  w->ahead[OUT] = region_over(tr__elem(g->type_c, g->c, at), g->ldc, rows, width, size, steps);
}

static void chunk_product(work *w, int64_t i, int64_t p) {
  const tr_gemm *g = w->g;
  const tr_amx_block *t = w->t;
  const int64_t rows = tr__min(t->height, t->i1 - i), depth = tr__min(TR_AMX_DEPTH, g->k - p);
  const int64_t high = tr__ceil_div(rows, SIDE), wide = tr__ceil_div(t->j1 - t->j0, SIDE);
  const int64_t steps = tr__ceil_div(depth, SIDE);
  const int last = p + depth >= g->k;
  const panels a = chunk_a(w, i, rows, p, depth), b = {t->b + p * SIDE, t->panel, STEP, TILE, ROW};
  if (!last) fetch_panels(w, i, p + depth, high * wide * steps);
  if (last && i + rows < g->m) fetch_panels(w, i + rows, 0, high * wide * steps);
  for (int64_t v = 0; v < high; v++)
    for (int64_t u = 0; u < wide; u++) {
      const int64_t row = i + v * SIDE, col = t->j0 + u * SIDE;
      float *c = w->c + (v * wide + u) * PIECE;
      if (last) fetch_out(w, row, col, steps);
      piece_product(w, &a, v, &b, u, depth, p > 0, c, SIDE);
      if (last) w->done = c, w->done_row = row, w->done_end = tr__min(row + SIDE, t->i1), w->done_col = col;
    }
}

static void amx_block(const tr_gemm *g, const tr_simd *simd, const tr_amx_block *t, void *scratch) {
  work w = {.g = g, .simd = simd, .t = t, .c = scratch};
  w.a = (tr_bf16 *)(w.c + t->height * tr__amx_padded(t->j1 - t->j0));
  amx_begin();
  for (int64_t i = t->i0; i < t->i1; i += t->height) {
    int64_t p = 0;
    do { // once even without any k: bias, or zeros
      chunk_product(&w, i, p);
      p += TR_AMX_DEPTH;
    } while (p < g->k);
  }
  write_rows(&w, SIDE);
  amx_end();
}

// --- B ---

static void pack_group(tr_amx_operand b, int64_t n, int64_t k, int64_t group, int64_t panel, tr_bf16 *packed) {
  const int64_t at = group * SIDE;
  if (b.step_k == 1) {
    for (int64_t p = 0; p < k; p += SIDE)
      pack_step(b, 1, at, n - at, p, k - p, packed + tr__amx_packed_at(panel, at, p));
  } else {
    for (int64_t j = 0; j < n; j += SIDE)
      pack_step(b, 1, j, n - j, at, k - at, packed + tr__amx_packed_at(panel, j, at));
  }
}

// --- attention ---

static void pack_panels(tr_amx_operand o, int pairs_first, int64_t nv, int64_t nk, int64_t panel, tr_bf16 *packed) {
  for (int64_t v = 0; v < nv; v += SIDE)
    for (int64_t p = 0; p < nk; p += SIDE)
      pack_step(o, pairs_first, v, nv - v, p, nk - p, packed + tr__amx_packed_at(panel, v, p));
}

static void panels_product(const tr_amx_product *p) {
  const panels a = {p->a, p->a_panel, STEP, TILE, ROW}, b = {p->b, p->b_panel, STEP, TILE, ROW};
  work nothing_else = {.g = NULL};
  for (int64_t i = 0; i < p->m; i += SIDE)
    for (int64_t j = 0; j < p->n; j += SIDE)
      piece_product(&nothing_else, &a, i / SIDE, &b, j / SIDE, p->k, p->add, p->c + i * p->ldc + j, p->ldc);
}

static void tiles_begin(void) { amx_begin(); }
static void tiles_end(void) { amx_end(); }

const tr_amx TR_AMX_TABLE = {.pack_group = pack_group,
                             .block = amx_block,
                             .pack = pack_panels,
                             .begin = tiles_begin,
                             .product = panels_product,
                             .end = tiles_end};

#endif
