// SPDX-License-Identifier: MIT
// Packed weights of the fast CPU table: the panels that a product would otherwise make of B in every call, made once
// per update (simd_pack.h has their order). They keep the weight's type. A part is a run of whole panels.
//
// bf16 on AMX has an order of its own (amx_pack.h); oneDNN takes weights as they are.
#include "kernel/cpu_amx_internal.h"
#include "trireme/base/cpu.h"

enum { PACK_COLS = 64 }; // columns per task

// The weight as B of a product, where FORWARD reads it transposed.
static tr_gemm weight_as_b(tr_dtype type, int64_t rows, int64_t cols, tr_pack use) {
  if (use == TR_PACK_FORWARD) return (tr_gemm){.n = rows, .k = cols, .type_b = type, .b_row = 1, .b_col = cols};
  return (tr_gemm){.n = cols, .k = rows, .type_b = type, .b_row = cols, .b_col = 1};
}

size_t tr__cpu_pack_size(tr_dtype type, int64_t rows, int64_t cols, tr_pack use) {
  const tr_gemm g = weight_as_b(type, rows, cols, use);
  const int64_t nr = tr__simd_best()->nr;
  if (type == TR_BF16 && tr_cpu_isa() == TR_ISA_AMX) return tr__amx_wanted() ? tr__amx_pack_size(rows, cols) : 0;
  if (type != TR_F32 && type != TR_BF16) return 0;
  return (size_t)(tr__ceil_div(g.n, nr) * nr * g.k) * tr_dtype_size(type);
}

typedef struct pack_job {
  const tr_gemm *g;
  const tr_simd *simd;
  int64_t first, last; // columns
  tr_dtype to;
  void *packed; // of column `first`
} pack_job;

static void pack_task(void *context, int task, int worker) {
  const pack_job *j = context;
  const int64_t first = j->first + (int64_t)task * PACK_COLS;
  (void)worker;
  j->simd->gemm_pack_b(j->g, first, tr__min(j->last, first + PACK_COLS), j->to,
                       tr__elem_mut(j->to, j->packed, (first - j->first) * j->g->k));
}

void tr__gemm_pack(const tr_compute *c, const tr_gemm *g, int64_t first, int64_t last, tr_dtype to, void *packed) {
  pack_job job = {.g = g, .simd = tr__simd(c), .first = first, .last = last, .to = to, .packed = packed};
  if (first < last) tr_pool_run(c->pool, (int)tr__ceil_div(last - first, PACK_COLS), pack_task, &job);
}

static int for_tiles(const tr_compute *c, tr_dtype type) { return type == TR_BF16 && tr__backend(c)->amx; }

void tr__gemm_from_packed(const tr_compute *c, tr_gemm *g, const void *packed, int64_t k, int64_t j, int64_t p) {
  const int64_t nr = tr__simd(c)->nr;
  const int tiles = for_tiles(c, g->type_b);
  g->packed_step = tiles ? tr__amx_panel(k) : k * nr;
  g->packed =
      tr__elem(g->type_b, packed, tiles ? tr__amx_packed_at(g->packed_step, j, p) : j / nr * g->packed_step + p * nr);
}

void tr__cpu_pack(const tr_compute *c, tr_dtype type, int64_t rows, int64_t cols, tr_pack use, const void *w,
                  int part, int parts, void *packed) {
  if (for_tiles(c, type)) {
    tr__amx_pack(c, rows, cols, use, w, part, parts, packed);
    return;
  }
  tr_gemm g = weight_as_b(type, rows, cols, use);
  g.b = w;
  const int64_t nr = tr__simd(c)->nr, panels = tr__ceil_div(g.n, nr);
  const int64_t first = panels * part / parts * nr, last = tr__min(g.n, panels * (part + 1) / parts * nr);
  tr__gemm_pack(c, &g, first, last, type, tr__elem_mut(type, packed, first * g.k));
}
