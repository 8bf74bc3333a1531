// SPDX-License-Identifier: MIT
// Matrix products of the fast CPU table.
//
// Three paths, chosen by shape and processor, never by the number of threads:
//   thin    fewer than TR_GEMM_THIN rows (generation): matrix-vector products, B is read once, nothing is packed
//   packed  B is packed once by all workers (widened to f32 on the way), then each task computes one tile of C with
//           the register-blocked micro-kernel; columns are taken in slabs so that a packed slab stays near the caches
//   tiles   bf16 on AMX: own kernels (cpu_amx.c)
//   oneDNN  bf16 on AMX where its table of shapes says so: each task is one oneDNN call on a block of C
// Measured on an AVX2 machine the packed path is on a par with oneDNN's sgemm and matmul, takes bf16 without a
// converted copy, and has no primitives to create; so f32 always takes it.
#include "kernel/cpu_amx_internal.h"
#include "kernel/cpu_dnnl_internal.h"

enum { SLAB_BYTES = 16 << 20, PACK_COLS = 64 };

typedef struct gemm_job {
  const tr_gemm *g;
  const tr_simd *simd;
  float *packed;  // B, columns slab0 .. slab1
  float *scratch; // per worker
  int64_t slab0, slab1;
  int64_t tile_cols; // tasks per row block
} gemm_job;

static size_t worker_floats(void) {
  return (size_t)TR_GEMM_ROWS * TR_GEMM_COLS + (size_t)TR_GEMM_ROWS * TR_GEMM_DEPTH;
}

// Columns per slab: whole tiles, at least one.
static int64_t slab_columns(int64_t n, int64_t k) {
  const int64_t fit = SLAB_BYTES / (int64_t)sizeof(float) / (k > 0 ? k : 1) / TR_GEMM_COLS * TR_GEMM_COLS;
  const int64_t slab = fit < TR_GEMM_COLS ? TR_GEMM_COLS : fit;
  return tr__min(slab, tr__ceil_div(n, TR_GEMM_PANEL) * TR_GEMM_PANEL);
}

// A bound that grows with every argument, so that what is enough for a full batch is enough for a short one: the slab's own
// size does not (a smaller k can make a slab of more floats).
static int64_t slab_floats(int64_t n, int64_t k) {
  const int64_t whole = tr__ceil_div(n, TR_GEMM_PANEL) * TR_GEMM_PANEL * k, tile = TR_GEMM_COLS * k;
  const int64_t most = SLAB_BYTES / (int64_t)sizeof(float);
  return tr__min(whole, most > tile ? most : tile);
}

size_t tr__gemm_scratch(int64_t m, int64_t n, int64_t k, int nthread) {
  const size_t tiles = tr__amx_wanted() ? tr__amx_gemm_scratch(m, n, k, nthread) : 0;
  size_t vectors = tr_arena_rounded((size_t)(m * k) * sizeof(float));
  if (m >= TR_GEMM_THIN)
    vectors = tr_arena_rounded((size_t)slab_floats(n, k) * sizeof(float)) +
              tr_arena_rounded((size_t)nthread * worker_floats() * sizeof(float));
  return tiles > vectors ? tiles : vectors;
}

static void pack_task(void *context, int task, int worker) {
  const gemm_job *j = context;
  const int64_t first = j->slab0 + (int64_t)task * PACK_COLS;
  (void)worker;
  j->simd->gemm_pack_b(j->g, first, tr__min(j->slab1, first + PACK_COLS), j->packed + (first - j->slab0) * j->g->k);
}

static void tile_task(void *context, int task, int worker) {
  const gemm_job *j = context;
  const tr_gemm *g = j->g;
  const int64_t i0 = task / j->tile_cols * TR_GEMM_ROWS, j0 = j->slab0 + task % j->tile_cols * TR_GEMM_COLS;
  j->simd->gemm_tile(g, i0, tr__min(g->m, i0 + TR_GEMM_ROWS), j0, tr__min(j->slab1, j0 + TR_GEMM_COLS),
                     j->packed + (j0 - j->slab0) * g->k, j->scratch + (size_t)worker * worker_floats());
}

static tr_status gemm_packed(const tr_compute *c, const tr_gemm *g) {
  const size_t mark = tr_arena_mark(c->scratch);
  const int64_t slab = slab_columns(g->n, g->k);
  gemm_job job = {.g = g, .simd = tr__simd(c)};
  job.packed = tr_arena_alloc(c->scratch, (size_t)(slab * g->k) * sizeof(float));
  job.scratch = tr_arena_alloc(c->scratch, (size_t)tr_pool_nthread(c->pool) * worker_floats() * sizeof(float));
  tr_status status = job.packed && job.scratch ? TR_OK : TR_ERR_MEMORY;
  for (job.slab0 = 0; status == TR_OK && job.slab0 < g->n; job.slab0 = job.slab1) {
    job.slab1 = tr__min(g->n, job.slab0 + slab);
    job.tile_cols = tr__ceil_div(job.slab1 - job.slab0, TR_GEMM_COLS);
    tr_pool_run(c->pool, (int)tr__ceil_div(job.slab1 - job.slab0, PACK_COLS), pack_task, &job);
    tr_pool_run(c->pool, (int)(tr__ceil_div(g->m, TR_GEMM_ROWS) * job.tile_cols), tile_task, &job);
  }
  tr_arena_reset(c->scratch, mark);
  return status;
}

static void thin_task(void *context, int task, int worker) {
  const gemm_job *j = context;
  const int64_t first = (int64_t)task * TR_GEMM_THIN_COLS;
  (void)worker;
  j->simd->gemm_thin(j->g, j->packed, first, tr__min(j->g->n, first + TR_GEMM_THIN_COLS));
}

static tr_status gemm_thin(const tr_compute *c, const tr_gemm *g) {
  const size_t mark = tr_arena_mark(c->scratch);
  float *a = tr_arena_alloc(c->scratch, (size_t)(g->m * g->k) * sizeof *a); // A as dense f32 rows
  if (!a) return TR_ERR_MEMORY;
  gemm_job job = {.g = g, .simd = tr__simd(c), .packed = a};
  for (int64_t i = 0; i < g->m; i++) {
    float *row = a + i * g->k;
    if (g->a_col == 1) {
      job.simd->convert((size_t)g->k, g->type_a, tr__elem(g->type_a, g->a, i * g->a_row), TR_F32, row);
    } else {
      for (int64_t p = 0; p < g->k; p++) row[p] = tr_load(g->type_a, g->a, (size_t)(i * g->a_row + p * g->a_col));
    }
  }
  tr_pool_run(c->pool, (int)tr__ceil_div(g->n, TR_GEMM_THIN_COLS), thin_task, &job);
  tr_arena_reset(c->scratch, mark);
  return TR_OK;
}

tr_status tr__gemm(const tr_compute *c, const tr_gemm *g) {
  if (g->m <= 0 || g->n <= 0) return TR_OK;
  const tr_backend *b = tr__backend(c);
  const int tiles = tr__amx_takes(b, g);
  if (g->m < TR_GEMM_THIN) return tiles && g->packed ? tr__amx_unpacked_gemm(c, g) : gemm_thin(c, g);
  if (tiles) return tr__amx_gemm(c, g);
  if (b->dnnl && g->type_a == TR_BF16 && g->type_b == TR_BF16 && g->k > 0 && g->epilogue == TR_EPILOGUE_NONE) {
    const tr_status status = tr__dnnl_gemm(b->dnnl, c->pool, g);
    if (status != TR_PENDING) return status;
  }
  return gemm_packed(c, g);
}

size_t tr__cpu_matmul_scratch(const tr_matmul *p, int nthread) { return tr__gemm_scratch(p->m, p->n, p->k, nthread); }

tr_status tr__cpu_matmul(const tr_compute *c, const tr_matmul *p, const void *a, const void *b, const void *bias,
                         void *out) {
  if (p->type != TR_F32 && p->type != TR_BF16)
    return tr_error(TR_ERR_USAGE, "matmul of %s; the CPU table takes f32 and bf16", tr_dtype_name(p->type));
  if (p->type_c != p->type && p->type_c != TR_F32)
    return tr_error(TR_ERR_USAGE, "matmul of %s cannot write %s; type_c must be %s or f32", tr_dtype_name(p->type),
                    tr_dtype_name(p->type_c), tr_dtype_name(p->type));
  tr_gemm g = {.m = p->m,
               .n = p->n,
               .k = p->k,
               .type_a = p->type,
               .type_b = p->type,
               .type_c = p->type_c,
               .type_bias = p->type};
  g.a = a, g.b = b, g.bias = bias, g.c = out, g.ldc = p->ldc, g.add = p->add;
  g.a_row = p->trans_a ? 1 : p->lda, g.a_col = p->trans_a ? p->lda : 1;
  g.b_row = p->trans_b ? 1 : p->ldb, g.b_col = p->trans_b ? p->ldb : 1;
  g.epilogue = p->epilogue, g.aux = p->aux;
  if (p->b_packed) g.packed = b, g.packed_step = tr__amx_panel(p->k);
  return tr__gemm(c, &g);
}

size_t tr__cpu_pack_size(tr_dtype type, int64_t rows, int64_t cols, tr_pack use) {
  (void)use; // both take the same
  return type == TR_BF16 && tr__amx_wanted() ? tr__amx_pack_size(rows, cols) : 0;
}

void tr__cpu_pack(const tr_compute *c, tr_dtype type, int64_t rows, int64_t cols, tr_pack use, const void *w,
                  int part, int parts, void *packed) {
  (void)type; // those with a size
  tr__amx_pack(c, rows, cols, use, w, part, parts, packed);
}
