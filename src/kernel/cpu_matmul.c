// SPDX-License-Identifier: MIT
// Matrix products of the fast CPU table.
//
// Four paths, chosen by shape and processor, never by the number of threads:
//   thin    fewer than TR_GEMM_THIN rows (generation): matrix-vector products, B is read once, nothing is packed
//   packed  B is packed by all workers, in slabs of columns so that a packed slab stays near the caches, unless it is a
//           weight that was packed before; then each task computes one tile of C with the register-blocked micro-kernel
//   tiles   bf16 on AMX: cpu_amx.c
//   oneDNN  bf16 on AMX where the table of shapes there says so: each task is one oneDNN call on a block of C
// Measured on an AVX2 machine the packed path is on a par with oneDNN's sgemm and matmul, takes bf16 without a
// converted copy, and has no primitives to create; so f32 always takes it.
#include "kernel/cpu_amx_internal.h"
#include "kernel/cpu_dnnl_internal.h"

enum { SLAB_BYTES = 16 << 20, WIDE_TASKS = 24 };

typedef struct gemm_job {
  const tr_gemm *g;
  const tr_simd *simd;
  tr_panels b;  // from column slab0 on
  char *spaces; // a tr_gemm_space per worker
  int64_t slab0, slab1, cols;
  int64_t tile_cols; // tasks per row block
} gemm_job;

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

static size_t space_bytes(const tr_simd *simd) {
  return tr_arena_rounded(sizeof(tr_gemm_space) + (size_t)simd->gemm_floats * sizeof(float));
}

static tr_gemm_space *space_of(const gemm_job *j, int worker) {
  return (tr_gemm_space *)(void *)(j->spaces + (size_t)worker * space_bytes(j->simd));
}

// For B as it is; one that is packed takes less.
size_t tr__gemm_scratch(int64_t m, int64_t n, int64_t k, int nthread) {
  const size_t tiles = tr__amx_wanted() ? tr__amx_gemm_scratch(m, n, k, nthread) : 0;
  size_t vectors = tr_arena_rounded((size_t)(m * k) * sizeof(float));
  if (m >= TR_GEMM_THIN)
    vectors =
        tr_arena_rounded((size_t)slab_floats(n, k) * sizeof(float)) + (size_t)nthread * space_bytes(tr__simd_best());
  return tiles > vectors ? tiles : vectors;
}

static void tile_task(void *context, int task, int worker) {
  const gemm_job *j = context;
  const tr_gemm *g = j->g;
  const int64_t i0 = task / j->tile_cols * TR_GEMM_ROWS, j0 = j->slab0 + task % j->tile_cols * j->cols;
  tr_panels b = j->b;
  b.at = tr__elem(b.type, b.at, (j0 - j->slab0) / j->simd->nr * b.step);
  j->simd->gemm_tile(g, i0, tr__min(g->m, i0 + TR_GEMM_ROWS), j0, tr__min(j->slab1, j0 + j->cols), b,
                     space_of(j, worker));
}

// Wide tiles read A less often; narrow ones where there would be too few tasks to share evenly.
static void run_tiles(const tr_compute *c, gemm_job *j) {
  const int64_t n = j->slab1 - j->slab0, row_blocks = tr__ceil_div(j->g->m, TR_GEMM_ROWS);
  const int wide = row_blocks * tr__ceil_div(n, j->simd->gemm_cols) >= WIDE_TASKS;
  j->cols = wide ? j->simd->gemm_cols : TR_GEMM_COLS;
  j->tile_cols = tr__ceil_div(n, j->cols);
  tr_pool_run(c->pool, (int)(row_blocks * j->tile_cols), tile_task, j);
}

// bf16 is widened when packed: once, not once per row block.
static void gemm_slabs(const tr_compute *c, gemm_job *j, float *memory) {
  const tr_gemm *g = j->g;
  const int64_t slab = slab_columns(g->n, g->k);
  j->b = (tr_panels){.type = TR_F32, .at = memory, .step = g->k * j->simd->nr};
  for (j->slab1 = 0; j->slab0 < g->n; j->slab0 = j->slab1) {
    j->slab1 = tr__min(g->n, j->slab0 + slab);
    tr__gemm_pack(c, g, j->slab0, j->slab1, TR_F32, memory);
    run_tiles(c, j);
  }
}

static tr_status gemm_packed(const tr_compute *c, const tr_gemm *g) {
  const size_t mark = tr_arena_mark(c->scratch), slab = (size_t)(slab_columns(g->n, g->k) * g->k);
  const int nthread = tr_pool_nthread(c->pool);
  gemm_job job = {.g = g, .simd = tr__simd(c), .slab1 = g->n};
  job.b = (tr_panels){.type = g->type_b, .at = g->packed, .step = g->packed_step};
  float *memory = g->packed ? NULL : tr_arena_alloc(c->scratch, slab * sizeof *memory);
  job.spaces = tr_arena_alloc(c->scratch, (size_t)nthread * space_bytes(job.simd));
  const tr_status status = job.spaces && (memory || g->packed) ? TR_OK : TR_ERR_MEMORY;
  if (status == TR_OK) {
    for (int w = 0; w < nthread; w++) space_of(&job, w)->held = -1;
    if (g->packed) {
      run_tiles(c, &job);
    } else {
      gemm_slabs(c, &job, memory);
    }
  }
  tr_arena_reset(c->scratch, mark);
  return status;
}

typedef struct thin_job {
  const tr_gemm *g;
  const tr_simd *simd;
  const float *a; // dense rows
} thin_job;

static void thin_task(void *context, int task, int worker) {
  const thin_job *j = context;
  const int64_t first = (int64_t)task * TR_GEMM_THIN_COLS;
  (void)worker;
  j->simd->gemm_thin(j->g, j->a, first, tr__min(j->g->n, first + TR_GEMM_THIN_COLS));
}

static tr_status gemm_thin(const tr_compute *c, const tr_gemm *g) {
  const size_t mark = tr_arena_mark(c->scratch);
  float *a = tr_arena_alloc(c->scratch, (size_t)(g->m * g->k) * sizeof *a);
  if (!a) return TR_ERR_MEMORY;
  thin_job job = {.g = g, .simd = tr__simd(c), .a = a};
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
  if (b->dnnl && !g->packed && g->type_a == TR_BF16 && g->type_b == TR_BF16 && g->k > 0) {
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
  if (p->b_packed) { // a whole weight
    g.b = NULL, g.b_row = p->trans_b ? 1 : p->n, g.b_col = p->trans_b ? p->k : 1;
    tr__gemm_from_packed(c, &g, b, p->k, 0, 0);
  }
  return tr__gemm(c, &g);
}
