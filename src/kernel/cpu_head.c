// SPDX-License-Identifier: MIT
// Output projection and cross-entropy of the fast CPU table, fused by tiles of rows:
//   for each tile of ROWS rows:  logits = x W^T (f32, in scratch)   row softmax, loss, gradient G in place
//                                dx = G W                           dw (+)= G^T x
// The vocabulary goes through the products in blocks of VOCAB columns, so the packed weights stay in the
// caches. Tiles run in ascending order: the order of every sum depends on sizes only. On AMX the gradient
// tile is rounded to bf16, which its tiles take; elsewhere it stays f32. (The idea of computing the
// gradient within the forward pass, tile by tile: Hsu et al., "Liger Kernel", 2024.)
#include "kernel/cpu_table_internal.h"

#include <inttypes.h>
#include <string.h>

enum { ROWS = 256, VOCAB = 3072 }; // VOCAB: a multiple of every panel's width

typedef struct head_job {
  const tr_compute *c;
  const tr_head_loss *p;
  int64_t rows, row0; // of this tile
  int64_t ld;         // of logits and gradient
  float *logits;      // [ROWS, ld]
  void *gradient;     // the same memory, or bf16 [ROWS, ld]
  tr_dtype gradient_type;
  float *dx; // [ROWS, width]
  int want_gradient;
} head_job;

static int64_t head_ld(const tr_head_loss *p) { return tr__ceil_div(p->vocab, 32) * 32; }

static size_t head_products_scratch(const tr_head_loss *p, int64_t rows, int nthread) {
  const int64_t vocab = tr__min(VOCAB, p->vocab);
  const size_t forward = tr__gemm_scratch(rows, vocab, p->width, nthread);
  const size_t for_x = tr__gemm_scratch(rows, p->width, vocab, nthread);
  const size_t for_w = tr__gemm_scratch(vocab, p->width, rows, nthread);
  const size_t larger = forward > for_x ? forward : for_x;
  return larger > for_w ? larger : for_w;
}

// Smaller shapes (the last tile, the last block) may take the thin path, whose scratch is smaller than that
// of any packed product but may exceed that of a thin full-size one only where the full size is thin too;
// hence the small terms.
size_t tr__cpu_head_loss_scratch(const tr_head_loss *p, int nthread) {
  const int64_t rows = tr__min(ROWS, p->rows), longest = p->width > VOCAB ? p->width : VOCAB;
  const size_t tile = tr_arena_rounded((size_t)(rows * head_ld(p)) * sizeof(float));
  const size_t narrow = p->type == TR_BF16 ? tr_arena_rounded((size_t)(rows * head_ld(p)) * sizeof(tr_bf16)) : 0;
  const size_t dx = tr_arena_rounded((size_t)(rows * p->width) * sizeof(float));
  const size_t thin = tr_arena_rounded((size_t)(TR_GEMM_THIN * (longest > ROWS ? longest : ROWS)) * sizeof(float));
  return tile + narrow + dx + head_products_scratch(p, rows, nthread) + thin;
}

static void softmax_task(void *context, int task, int worker) {
  const head_job *j = context;
  const tr_head_loss *p = j->p;
  const int64_t r = j->row0 + task, target = p->target[r];
  float *logits = j->logits + task * j->ld;
  float *loss = (float *)p->loss + r;
  (void)worker;
  if (target < 0) {
    *loss = 0.0f;
    memset(logits, 0, (size_t)p->vocab * sizeof *logits);
  } else {
    *loss = tr__simd(j->c)->cross_entropy(p->vocab, logits, target, j->want_gradient, (float)p->scale);
  }
  if (j->want_gradient && j->gradient_type == TR_BF16)
    tr__simd(j->c)->convert((size_t)p->vocab, TR_F32, logits, TR_BF16, (tr_bf16 *)j->gradient + task * j->ld);
}

static tr_status tile_logits(const head_job *j) {
  const tr_head_loss *p = j->p;
  for (int64_t v = 0; v < p->vocab; v += VOCAB) {
    tr_gemm g = {.m = j->rows,
                 .n = tr__min(VOCAB, p->vocab - v),
                 .k = p->width,
                 .type_a = p->type,
                 .type_b = p->type,
                 .type_c = TR_F32};
    g.a = tr__elem(p->type, p->x, j->row0 * p->width), g.a_row = p->width, g.a_col = 1;
    g.b = tr__elem(p->type, p->w, v * p->width), g.b_row = 1, g.b_col = p->width;
    g.c = j->logits + v, g.ldc = j->ld;
    if (p->packed[TR_PACK_FORWARD]) tr__gemm_from_packed(j->c, &g, p->packed[TR_PACK_FORWARD], p->width, v, 0);
    TR_TRY(tr__gemm(j->c, &g));
  }
  return TR_OK;
}

static tr_status tile_dx(const head_job *j) {
  const tr_head_loss *p = j->p;
  for (int64_t v = 0; v < p->vocab; v += VOCAB) {
    tr_gemm g = {.m = j->rows,
                 .n = p->width,
                 .k = tr__min(VOCAB, p->vocab - v),
                 .type_a = j->gradient_type,
                 .type_b = p->type,
                 .type_c = TR_F32};
    g.a = tr__elem(j->gradient_type, j->gradient, v), g.a_row = j->ld, g.a_col = 1;
    g.b = tr__elem(p->type, p->w, v * p->width), g.b_row = p->width, g.b_col = 1;
    g.c = j->dx, g.ldc = p->width, g.add = v > 0;
    if (p->packed[TR_PACK_BACKWARD]) tr__gemm_from_packed(j->c, &g, p->packed[TR_PACK_BACKWARD], p->vocab, 0, v);
    TR_TRY(tr__gemm(j->c, &g));
  }
  tr__simd(j->c)->convert((size_t)(j->rows * p->width), TR_F32, j->dx, p->type,
                          tr__elem_mut(p->type, p->dx, j->row0 * p->width));
  return TR_OK;
}

static tr_status tile_dw(const head_job *j) {
  const tr_head_loss *p = j->p;
  for (int64_t v = 0; v < p->vocab; v += VOCAB) {
    tr_gemm g = {.m = tr__min(VOCAB, p->vocab - v),
                 .n = p->width,
                 .k = j->rows,
                 .type_a = j->gradient_type,
                 .type_b = p->type,
                 .type_c = TR_F32};
    g.a = tr__elem(j->gradient_type, j->gradient, v), g.a_row = 1, g.a_col = j->ld;
    g.b = tr__elem(p->type, p->x, j->row0 * p->width), g.b_row = p->width, g.b_col = 1;
    g.c = (float *)p->dw + v * p->width, g.ldc = p->width, g.add = j->row0 > 0 || p->add;
    TR_TRY(tr__gemm(j->c, &g));
  }
  return TR_OK;
}

static tr_status head_tile(const head_job *j) {
  TR_TRY(tile_logits(j));
  tr_pool_run(j->c->pool, (int)j->rows, softmax_task, (void *)(uintptr_t)j);
  if (j->p->dx) TR_TRY(tile_dx(j));
  if (j->p->dw) TR_TRY(tile_dw(j));
  return TR_OK;
}

static tr_status check(const tr_head_loss *p) {
  if (p->type != TR_F32 && p->type != TR_BF16)
    return tr_error(TR_ERR_USAGE, "head loss of %s; the CPU table takes f32 and bf16", tr_dtype_name(p->type));
  for (int64_t r = 0; r < p->rows; r++)
    if (p->target[r] >= p->vocab)
      return tr_error(TR_ERR_DATA, "target %" PRId32 " of row %" PRId64 " is not below the vocabulary size %" PRId64,
                      p->target[r], r, p->vocab);
  return TR_OK;
}

static tr_status head_allocate(head_job *j) {
  const tr_head_loss *p = j->p;
  const size_t rows = (size_t)tr__min(ROWS, p->rows);
  j->logits = tr_arena_alloc(j->c->scratch, rows * (size_t)j->ld * sizeof(float));
  j->dx = tr_arena_alloc(j->c->scratch, rows * (size_t)p->width * sizeof(float));
  if (!j->logits || !j->dx) return TR_ERR_MEMORY;
  j->gradient = j->logits;
  j->gradient_type = TR_F32;
  if (p->type == TR_BF16 && (tr__backend(j->c)->dnnl || tr__backend(j->c)->amx)) {
    j->gradient = tr_arena_alloc(j->c->scratch, rows * (size_t)j->ld * sizeof(tr_bf16));
    if (!j->gradient) return TR_ERR_MEMORY;
    j->gradient_type = TR_BF16;
  }
  return TR_OK;
}

tr_status tr__cpu_head_loss(const tr_compute *c, const tr_head_loss *p) {
  TR_TRY(check(p));
  const size_t mark = tr_arena_mark(c->scratch);
  head_job job = {.c = c, .p = p, .ld = head_ld(p), .want_gradient = p->dx || p->dw};
  tr_status status = head_allocate(&job);
  for (job.row0 = 0; status == TR_OK && job.row0 < p->rows; job.row0 += ROWS) {
    job.rows = tr__min(ROWS, p->rows - job.row0);
    status = head_tile(&job);
  }
  if (status == TR_OK && p->rows == 0 && p->dw && !p->add)
    memset(p->dw, 0, (size_t)(p->vocab * p->width) * sizeof(float));
  tr_arena_reset(c->scratch, mark);
  return status;
}
