// SPDX-License-Identifier: MIT
// bf16 products on AMX: which ones, how C is cut into tasks, and packed weights. One task's arithmetic is in amx_body.h.
//
// B is always multiplied in packed form: a weight packed once per update, or a copy that all workers make in scratch, some
// columns at a time. So both give the same bits. A is packed by the task that needs it, and only where its tiles cannot be
// loaded from where it lies.
//
// Two ways through memory. What counts is the traffic between the second-level cache (2 MiB, 45 bytes per cycle) and the
// third (10 per cycle: a product fed from there must do over 110 operations per byte to keep the tiles busy):
//   shallow  512 columns of B over all k (at most 1 MiB) stay in the second level, while A passes in panels of 32 rows.
//            Tasks run down the rows first, so one worker meets the same columns again and again.
//   deep     192 x 768 of C in f32 (576 KiB) stay there, while A and B pass in chunks of 256 k: 154 operations per byte.
//            So many columns, because A^T is transposed again for every block of them.
#include "kernel/cpu_amx_internal.h"
#include "trireme/base/cpu.h"

#include <stdlib.h>
#include <string.h>

enum {
  SLAB_BYTES = 16 << 20,
  HEIGHT_MOST = 192,
  COLS_MOST = 768,
  TASKS_LEAST = 8 // with fewer, the columns of a task are cut in three, for the sake of more threads
};

// The first row that fits decides. The figures are TFLOP/s of one core for GPT-2 124M, 4096 tokens: a prototype of these
// loops against oneDNN 2.6.3 with plain operands (its best with packed ones in brackets).
typedef struct shape_class {
  int trans_a;
  int64_t k_most;
  int tiles;                       // 0: oneDNN, unless B is packed
  int64_t height, task_rows, cols; // rows of C in scratch; rows and columns of a task
} shape_class;
static const shape_class SHAPES[] = {
    // forward and dgrad fcproj: 1.58 : 1.07 [1.32], 1.62 : 1.22 [1.53], 1.59 : 1.04 [1.13], 1.61 : 0.82 [1.09]
    {.trans_a = 0, .k_most = 1024, .tiles = 1, .height = 32, .task_rows = 128, .cols = 512},
    // forward fcproj 1.51 : 0.84 [0.84]; dgrad 1.54 : 1.05 [1.05], 1.49 : 0.66 [0.86]; dgrad of the head 1.24 : 0.38
    {.trans_a = 0,
     .k_most = INT64_MAX,
     .tiles = 1,
     .height = HEIGHT_MOST,
     .task_rows = HEIGHT_MOST,
     .cols = COLS_MOST},
    // weight gradients, without their packing, a fifth of the time: 1.46 : 0.61 [0.88], 1.17 : 0.54 [0.86], head 1.01 : 0.46
    {.trans_a = 1,
     .k_most = INT64_MAX,
     .tiles = 1,
     .height = HEIGHT_MOST,
     .task_rows = HEIGHT_MOST,
     .cols = COLS_MOST},
};

static const shape_class *class_of(const tr_gemm *g) {
  const shape_class *s = SHAPES;
  while (s->trans_a != (g->a_col != 1) || g->k > s->k_most) s++;
  return s;
}

static int asked_for(const char *way) {
  const char *text = getenv("TRIREME_GEMM");
  return text && strcmp(text, way) == 0;
}

int tr__amx_wanted(void) { return tr_cpu_isa() == TR_ISA_AMX && !asked_for("onednn"); }

int tr__dnnl_wanted(void) {
  int some = asked_for("onednn");
  for (size_t s = 0; s < sizeof SHAPES / sizeof SHAPES[0]; s++) some |= !SHAPES[s].tiles;
  return tr_cpu_isa() == TR_ISA_AMX && some && !asked_for("tiles");
}

int tr__amx_takes(const tr_backend *b, const tr_gemm *g) {
  if (!b->amx || g->type_a != TR_BF16 || g->type_b != TR_BF16) return 0;
  return g->packed || !b->dnnl || class_of(g)->tiles;
}

// --- the product ---

typedef struct amx_job {
  const tr_gemm *g;
  const tr_amx *amx;
  const tr_simd *simd;
  tr_amx_operand b;     // of the slab's first column, if it is to be packed
  tr_bf16 *packed;      // the slab, packed
  tr_amx_block shape;   // what all tasks of the slab share
  int64_t slab0, slab1; // its columns
  int64_t rows, cols;   // of one task
  char *scratch;        // per worker
  size_t per_worker;
} amx_job;

// n cut into equal parts of at most `most`, in whole panels.
static int64_t even_part(int64_t n, int64_t most) {
  const int64_t parts = n > most ? tr__ceil_div(n, most) : 1;
  return tr__amx_padded(tr__ceil_div(n, parts));
}

static size_t worker_bytes(int64_t m, int64_t n) {
  const int64_t height = tr__amx_padded(tr__min(m, HEIGHT_MOST)), cols = tr__amx_padded(tr__min(n, COLS_MOST));
  return (size_t)height * ((size_t)cols * sizeof(float) + TR_AMX_DEPTH * sizeof(tr_bf16));
}

// Columns of B packed at a time: whole tasks.
static int64_t slab_columns(int64_t n, int64_t k, int64_t cols) {
  const int64_t fit = SLAB_BYTES / (int64_t)sizeof(tr_bf16) / tr__amx_padded(k > 0 ? k : 1) / cols * cols;
  return tr__amx_padded(tr__min(n, fit < cols ? cols : fit));
}

size_t tr__amx_gemm_scratch(int64_t m, int64_t n, int64_t k, int nthread) {
  const size_t column = (size_t)tr__amx_padded(k) * sizeof(tr_bf16);
  const size_t whole = (size_t)tr__amx_padded(n) * column, task = COLS_MOST * column;
  const size_t most = task > SLAB_BYTES ? task : SLAB_BYTES;
  const size_t few_rows = (size_t)(tr__min(m, TR_GEMM_THIN) * k) * sizeof(float);
  return tr_arena_rounded(whole < most ? whole : most) + tr_arena_rounded(few_rows) +
         tr_arena_rounded((size_t)nthread * worker_bytes(m, n));
}

static void pack_task(void *context, int task, int worker) {
  const amx_job *j = context;
  (void)worker;
  j->amx->pack_group(j->b, j->slab1 - j->slab0, j->g->k, task, j->shape.panel, j->packed);
}

static void block_task(void *context, int task, int worker) {
  const amx_job *j = context;
  const tr_gemm *g = j->g;
  const int64_t down = tr__ceil_div(g->m, j->rows);
  tr_amx_block t = j->shape;
  t.i0 = task % down * j->rows, t.i1 = tr__min(g->m, t.i0 + j->rows);
  t.j0 = j->slab0 + task / down * j->cols, t.j1 = tr__min(j->slab1, t.j0 + j->cols);
  t.b += tr__amx_packed_at(t.panel, t.j0 - j->slab0, 0);
  j->amx->block(g, j->simd, &t, j->scratch + (size_t)worker * j->per_worker);
}

static int64_t groups_of(tr_amx_operand b, int64_t n, int64_t k) {
  return tr__ceil_div(b.step_k == 1 ? n : k, TR_AMX_SIDE);
}

static void run_slab(const tr_compute *c, amx_job *j, const shape_class *s) {
  const tr_gemm *g = j->g;
  const int64_t n = j->slab1 - j->slab0;
  j->shape.b = g->packed;
  if (!g->packed) {
    j->b = (tr_amx_operand){TR_BF16, (const tr_bf16 *)g->b + j->slab0 * g->b_col, g->b_col, g->b_row};
    tr_pool_run(c->pool, (int)groups_of(j->b, n, g->k), pack_task, j);
    j->shape.b = j->packed;
  }
  const int64_t down = tr__ceil_div(g->m, j->rows);
  j->cols = even_part(n, s->cols);
  if (down * tr__ceil_div(n, j->cols) < TASKS_LEAST) j->cols = even_part(n, s->cols / 3);
  tr_pool_run(c->pool, (int)(down * tr__ceil_div(n, j->cols)), block_task, j);
}

tr_status tr__amx_gemm(const tr_compute *c, const tr_gemm *g) {
  if (g->m <= 0 || g->n <= 0) return TR_OK;
  const size_t mark = tr_arena_mark(c->scratch);
  const shape_class *s = class_of(g);
  const int64_t slab = g->packed ? g->n : slab_columns(g->n, g->k, s->cols);
  amx_job job = {.g = g, .amx = tr__backend(c)->amx, .simd = tr__simd(c), .per_worker = worker_bytes(g->m, g->n)};
  job.rows = even_part(g->m, s->task_rows);
  job.shape.height = tr__min(s->height, job.rows);
  job.shape.stream_b = s->height > TR_AMX_SIDE;
  job.shape.panel = g->packed ? g->packed_step : tr__amx_panel(g->k);
  const int64_t packed = g->packed ? 0 : slab / TR_AMX_SIDE * job.shape.panel;
  job.packed = tr_arena_alloc(c->scratch, (size_t)packed * sizeof(tr_bf16));
  job.scratch = tr_arena_alloc(c->scratch, (size_t)tr_pool_nthread(c->pool) * job.per_worker);
  const tr_status status = job.packed && job.scratch ? TR_OK : TR_ERR_MEMORY;
  for (job.slab0 = 0; status == TR_OK && job.slab0 < g->n; job.slab0 = job.slab1) {
    job.slab1 = tr__min(g->n, job.slab0 + slab);
    run_slab(c, &job, s);
  }
  tr_arena_reset(c->scratch, mark);
  return status;
}

// --- few rows ---

static void unpack_task(void *context, int task, int worker) {
  const amx_job *j = context;
  const tr_gemm *g = j->g;
  const int64_t j0 = (int64_t)task * TR_AMX_SIDE, j1 = tr__min(j->slab1 - j->slab0, j0 + TR_AMX_SIDE);
  const tr_bf16 *from = (const tr_bf16 *)g->packed + tr__amx_packed_at(g->packed_step, j->slab0 + j0, 0);
  (void)worker;
  for (int64_t p = 0; p < g->k; p++)
    for (int64_t v = 0; v < j1 - j0; v++)
      j->packed[p * j->b.step_k + (j0 + v) * j->b.step_v] = from[tr__amx_element(v, p)];
}

// A product too thin for tiles by a packed B: unpacked again, some columns at a time, so that the bits are those of the
// plain B, which is not packed for a few rows.
tr_status tr__amx_unpacked_gemm(const tr_compute *c, const tr_gemm *g) {
  const size_t mark = tr_arena_mark(c->scratch);
  const int64_t slab = slab_columns(g->n, g->k, COLS_MOST);
  amx_job job = {.g = g,
                 .b = g->b_row == 1 ? (tr_amx_operand){TR_BF16, NULL, g->k, 1}
                                    : (tr_amx_operand){TR_BF16, NULL, 1, slab}};
  job.packed = tr_arena_alloc(c->scratch, (size_t)(slab * g->k) * sizeof(tr_bf16));
  tr_status status = job.packed ? TR_OK : TR_ERR_MEMORY;
  for (job.slab0 = 0; status == TR_OK && job.slab0 < g->n; job.slab0 = job.slab1) {
    job.slab1 = tr__min(g->n, job.slab0 + slab);
    tr_pool_run(c->pool, (int)tr__ceil_div(job.slab1 - job.slab0, TR_AMX_SIDE), unpack_task, &job);
    tr_gemm part = *g;
    part.n = job.slab1 - job.slab0;
    part.packed = NULL, part.b = job.packed, part.b_row = job.b.step_k, part.b_col = job.b.step_v;
    part.c = tr__elem_mut(g->type_c, g->c, job.slab0);
    if (g->bias) part.bias = tr__elem(g->type_bias, g->bias, job.slab0);
    status = tr__gemm(c, &part);
  }
  tr_arena_reset(c->scratch, mark);
  return status;
}

// --- packed weights ---

size_t tr__amx_pack_size(int64_t rows, int64_t cols) {
  return (size_t)tr__amx_padded(rows) * (size_t)tr__amx_padded(cols) * sizeof(tr_bf16);
}

typedef struct pack_job {
  const tr_amx *amx;
  tr_amx_operand b;
  int64_t n, k, first; // first group of the part
  tr_bf16 *packed;
} pack_job;

static void weight_task(void *context, int task, int worker) {
  const pack_job *j = context;
  (void)worker;
  j->amx->pack_group(j->b, j->n, j->k, j->first + task, tr__amx_panel(j->k), j->packed);
}

// Groups are SIDE rows of w in both uses, so a part is a range of rows.
void tr__amx_pack(const tr_compute *c, int64_t rows, int64_t cols, tr_pack use, const tr_bf16 *w, int part, int parts,
                  tr_bf16 *packed) {
  pack_job job = {.amx = tr__backend(c)->amx, .packed = packed, .n = rows, .k = cols, .b = {TR_BF16, w, cols, 1}};
  if (use == TR_PACK_BACKWARD) job.n = cols, job.k = rows, job.b = (tr_amx_operand){TR_BF16, w, 1, cols};
  const int64_t groups = groups_of(job.b, job.n, job.k), last = groups * (part + 1) / parts;
  job.first = groups * part / parts;
  tr_pool_run(c->pool, (int)(last - job.first), weight_task, &job);
}
