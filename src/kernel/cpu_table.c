// SPDX-License-Identifier: MIT
// The fast CPU table: which instruction set, and how each operation is cut into tasks for the pool.
//
// Three ways of cutting, all by sizes only: rows (about TR_FLAT elements per task), flat ranges of TR_FLAT
// elements, and strips of TR_STRIP columns where several rows add to one place (so no two tasks write the
// same element and the order of a sum is the order of the rows). Products, attention and the head are in
// files of their own.
#include "kernel/cpu_amx_internal.h"
#include "kernel/cpu_dnnl_internal.h"
#include "kernel/cpu_table_internal.h"
#include "trireme/base/cpu.h"

#include <stdlib.h>
#include <string.h>

enum { NORM_PARTS = 32 };

const tr_simd *tr__simd_best(void) {
  switch (tr_cpu_isa()) {
  case TR_ISA_AMX:
  case TR_ISA_AVX512: return &tr__simd_avx512;
  case TR_ISA_AVX2: return &tr__simd_avx2;
  default: return &tr__simd_base;
  }
}

static tr_status cpu_open(tr_compute *c) {
  tr_backend *b = calloc(1, sizeof *b);
  if (!b) return tr_error(TR_ERR_MEMORY, "no memory for the state of the CPU kernels; free some memory");
  b->simd = tr__simd_best();
  if (tr__amx_wanted()) b->amx = &tr__amx;
  if (tr__dnnl_wanted()) {
    tr_status status = tr__dnnl_open(c->pool, &b->dnnl);
    if (status < 0) {
      free(b);
      return status;
    }
  }
  c->backend = b;
  return TR_OK;
}

static void cpu_close(tr_compute *c) {
  tr_backend *b = c->backend;
  if (b) tr__dnnl_close(b->dnnl);
  free(b);
  c->backend = NULL;
}

// Rows per task: about TR_FLAT elements.
static int64_t rows_per_task(int64_t width) { return width >= TR_FLAT ? 1 : TR_FLAT / (width > 0 ? width : 1); }

static int row_tasks(int64_t rows, int64_t width) {
  return width > 0 ? (int)tr__ceil_div(rows, rows_per_task(width)) : 0;
}

// --- layer norm ---

typedef struct norm_job {
  const tr_simd *simd;
  tr_norm norm;
  int64_t rows, per_task;
  float *parts; // [ntask][2][width]
} norm_job;

static void norm_forward_task(void *context, int task, int worker) {
  const norm_job *j = context;
  (void)worker;
  j->simd->norm_forward(&j->norm, task * j->per_task, tr__min(j->rows, (task + 1) * j->per_task));
}

static void norm_forward(const tr_compute *c, int64_t rows, int64_t width, tr_dtype type, float eps, const void *x,
                         const void *gamma, const void *beta, void *y, void *mean, void *rstd) {
  norm_job job = {.simd = tr__simd(c), .rows = rows, .per_task = rows_per_task(width)};
  job.norm = (tr_norm){.width = width,
                       .type = type,
                       .eps = eps,
                       .x = x,
                       .gamma = gamma,
                       .beta = beta,
                       .y = y,
                       .mean = mean,
                       .rstd = rstd};
  tr_pool_run(c->pool, row_tasks(rows, width), norm_forward_task, &job);
}

static int64_t norm_rows_per_part(int64_t rows) {
  int64_t per = tr__ceil_div(rows, NORM_PARTS);
  return per < 16 ? 16 : per;
}

static void norm_backward_task(void *context, int task, int worker) {
  const norm_job *j = context;
  const int64_t n = j->norm.width;
  float *part = j->parts + task * 2 * n;
  (void)worker;
  memset(part, 0, (size_t)(2 * n) * sizeof *part);
  j->simd->norm_backward(&j->norm, task * j->per_task, tr__min(j->rows, (task + 1) * j->per_task), part, part + n);
}

// The most that any number of rows up to this one takes: 513 rows are fewer parts than 510.
static size_t norm_parts_bytes(int64_t rows, int64_t floats) {
  return tr_arena_rounded((size_t)(tr__min(tr__ceil_div(rows, 16), NORM_PARTS) * floats) * sizeof(float));
}

static size_t norm_backward_scratch(int64_t rows, int64_t width, tr_dtype type) {
  (void)type;
  return norm_parts_bytes(rows, 2 * width);
}

static void norm_backward(const tr_compute *c, int64_t rows, int64_t width, tr_dtype type, const void *dy,
                          const void *x, const void *gamma, const void *mean, const void *rstd, void *dx, int add_dx,
                          void *dgamma, void *dbeta, int add) {
  const tr_simd *simd = tr__simd(c);
  const size_t mark = tr_arena_mark(c->scratch);
  norm_job job = {.simd = simd, .rows = rows, .per_task = norm_rows_per_part(rows)};
  job.norm = (tr_norm){.width = width, .type = type, .x = x, .gamma = gamma, .dy = dy, .dx = dx, .add_dx = add_dx};
  job.norm.mean = (float *)(uintptr_t)mean; // read only in this direction
  job.norm.rstd = (float *)(uintptr_t)rstd;
  job.parts = tr_arena_alloc(c->scratch, norm_backward_scratch(rows, width, type));
  if (!job.parts) return; // the sentence is recorded; scratch smaller than *_scratch says is the caller's fault
  const int parts = width > 0 ? (int)tr__ceil_div(rows, job.per_task) : 0;
  tr_pool_run(c->pool, parts, norm_backward_task, &job);
  if (!add) {
    memset(dgamma, 0, (size_t)width * sizeof(float));
    memset(dbeta, 0, (size_t)width * sizeof(float));
  }
  for (int t = 0; t < parts; t++) {
    simd->add((size_t)width, TR_F32, job.parts + 2 * t * width, dgamma);
    simd->add((size_t)width, TR_F32, job.parts + (2 * t + 1) * width, dbeta);
  }
  tr_arena_reset(c->scratch, mark);
}

// --- RMSNorm ---

typedef struct rms_job {
  const tr_simd *simd;
  tr_rms norm;
  int64_t per_task;
  float *parts; // [ntask][width]
} rms_job;

static void rms_forward_task(void *context, int task, int worker) {
  const rms_job *j = context;
  (void)worker;
  j->simd->rms_forward(&j->norm, task * j->per_task, tr__min(j->norm.p->rows, (task + 1) * j->per_task));
}

static void rmsnorm_forward(const tr_compute *c, const tr_rmsnorm *p, const void *x, const void *gamma, void *y,
                            void *rstd) {
  const int64_t n = p->count * p->width;
  rms_job job = {.simd = tr__simd(c), .per_task = rows_per_task(n)};
  job.norm = (tr_rms){.p = p, .x = x, .gamma = gamma, .y = y, .rstd = rstd};
  tr_pool_run(c->pool, row_tasks(p->rows, n), rms_forward_task, &job);
}

static void rms_backward_task(void *context, int task, int worker) {
  const rms_job *j = context;
  const tr_rmsnorm *p = j->norm.p;
  float *part = j->parts + task * p->width;
  (void)worker;
  memset(part, 0, (size_t)p->width * sizeof *part);
  j->simd->rms_backward(&j->norm, task * j->per_task, tr__min(p->rows, (task + 1) * j->per_task), part);
}

static size_t rmsnorm_backward_scratch(const tr_rmsnorm *p) { return norm_parts_bytes(p->rows, p->width); }

static void rmsnorm_backward(const tr_compute *c, const tr_rmsnorm *p, const void *dy, const void *x,
                             const void *gamma, const void *rstd, void *dx, int add_dx, void *dgamma, int add) {
  const tr_simd *simd = tr__simd(c);
  const size_t mark = tr_arena_mark(c->scratch);
  rms_job job = {.simd = simd, .per_task = norm_rows_per_part(p->rows)};
  job.norm = (tr_rms){.p = p, .x = x, .gamma = gamma, .dy = dy, .dx = dx, .add_dx = add_dx};
  job.norm.rstd = (float *)(uintptr_t)rstd; // read only in this direction
  job.parts = tr_arena_alloc(c->scratch, rmsnorm_backward_scratch(p));
  if (!job.parts) return; // as in norm_backward
  const int parts = p->width > 0 ? (int)tr__ceil_div(p->rows, job.per_task) : 0;
  tr_pool_run(c->pool, parts, rms_backward_task, &job);
  if (!add) memset(dgamma, 0, (size_t)p->width * sizeof(float));
  for (int t = 0; t < parts; t++) simd->add((size_t)p->width, TR_F32, job.parts + t * p->width, dgamma);
  tr_arena_reset(c->scratch, mark);
}

// --- flat operations ---

typedef struct flat_job {
  const tr_simd *simd;
  size_t n;
  tr_dtype type, to;
  const void *x, *dy;
  void *y;
  const tr_adamw *adamw;
  const tr_sgd *sgd;
  float *w, *m, *v;
  const float *g;
  double *sums;
  size_t per_sum;
} flat_job;

static void flat_run(const tr_compute *c, flat_job *job, tr_pool_task fn) {
  job->simd = tr__simd(c);
  tr_pool_run(c->pool, (int)((job->n + TR_FLAT - 1) / TR_FLAT), fn, job);
}

static size_t flat_count(const flat_job *j, int task) {
  const size_t left = j->n - (size_t)task * TR_FLAT;
  return left < TR_FLAT ? left : TR_FLAT;
}

static void gelu_forward_task(void *context, int task, int worker) {
  const flat_job *j = context;
  const int64_t at = (int64_t)task * TR_FLAT;
  (void)worker;
  j->simd->gelu_forward(flat_count(j, task), j->type, tr__elem(j->type, j->x, at), tr__elem_mut(j->type, j->y, at));
}

static void gelu_forward(const tr_compute *c, size_t n, tr_dtype type, const void *x, void *y) {
  flat_run(c, &(flat_job){.n = n, .type = type, .x = x, .y = y}, gelu_forward_task);
}

static void gelu_backward_task(void *context, int task, int worker) {
  const flat_job *j = context;
  const int64_t at = (int64_t)task * TR_FLAT;
  (void)worker;
  j->simd->gelu_backward(flat_count(j, task), j->type, tr__elem(j->type, j->x, at), tr__elem(j->type, j->dy, at),
                         tr__elem_mut(j->type, j->y, at));
}

static void gelu_backward(const tr_compute *c, size_t n, tr_dtype type, const void *x, const void *dy, void *dx) {
  flat_run(c, &(flat_job){.n = n, .type = type, .x = x, .dy = dy, .y = dx}, gelu_backward_task);
}

static void add_task(void *context, int task, int worker) {
  const flat_job *j = context;
  const int64_t at = (int64_t)task * TR_FLAT;
  (void)worker;
  j->simd->add(flat_count(j, task), j->type, tr__elem(j->type, j->x, at), tr__elem_mut(j->type, j->y, at));
}

static void add(const tr_compute *c, size_t n, tr_dtype type, const void *x, void *y) {
  flat_run(c, &(flat_job){.n = n, .type = type, .x = x, .y = y}, add_task);
}

static void convert_task(void *context, int task, int worker) {
  const flat_job *j = context;
  const size_t at = (size_t)task * TR_FLAT, n = flat_count(j, task);
  const void *x = (const char *)j->x + at * tr_dtype_size(j->type);
  void *y = (char *)j->y + at * tr_dtype_size(j->to);
  const int fast = (j->type == TR_F32 || j->type == TR_BF16) && (j->to == TR_F32 || j->to == TR_BF16);
  (void)worker;
  if (fast) {
    j->simd->convert(n, j->type, x, j->to, y);
  } else {
    tr_convert(j->type, x, j->to, y, n);
  }
}

static void convert(const tr_compute *c, size_t n, tr_dtype from, const void *x, tr_dtype to, void *y) {
  flat_run(c, &(flat_job){.n = n, .type = from, .to = to, .x = x, .y = y}, convert_task);
}

static void *working_at(const flat_job *j, size_t at) { return j->y ? tr__elem_mut(j->to, j->y, (int64_t)at) : NULL; }

static void adamw_task(void *context, int task, int worker) {
  const flat_job *j = context;
  const size_t at = (size_t)task * TR_FLAT;
  (void)worker;
  j->simd->adamw(flat_count(j, task), j->adamw, j->w + at, j->g + at, j->m + at, j->v + at, j->to, working_at(j, at));
}

static void adamw(const tr_compute *c, size_t n, const tr_adamw *p, float *w, const float *g, float *m, float *v,
                  tr_dtype type, void *working) {
  flat_run(c, &(flat_job){.n = n, .adamw = p, .w = w, .g = g, .m = m, .v = v, .to = type, .y = working}, adamw_task);
}

static void sgd_task(void *context, int task, int worker) {
  const flat_job *j = context;
  const size_t at = (size_t)task * TR_FLAT;
  (void)worker;
  j->simd->sgd(flat_count(j, task), j->sgd, j->w + at, j->g + at, j->m ? j->m + at : NULL, j->to, working_at(j, at));
}

static void sgd(const tr_compute *c, size_t n, const tr_sgd *p, float *w, const float *g, float *momentum,
                tr_dtype type, void *working) {
  flat_run(c, &(flat_job){.n = n, .sgd = p, .w = w, .g = g, .m = momentum, .to = type, .y = working}, sgd_task);
}

static void sum_squares_task(void *context, int task, int worker) {
  const flat_job *j = context;
  const size_t first = (size_t)task * j->per_sum, left = j->n - first;
  (void)worker;
  j->sums[task] = j->simd->sum_squares(left < j->per_sum ? left : j->per_sum, (const float *)j->x + first);
}

static void sum_squares(const tr_compute *c, size_t n, size_t block, const float *x, double *out) {
  flat_job job = {.simd = tr__simd(c), .n = n, .x = x, .sums = out, .per_sum = block};
  tr_pool_run(c->pool, (int)((n + block - 1) / block), sum_squares_task, &job);
}

// --- rows: SwiGLU, rotary positions, embedding, residual, column sums ---

typedef struct row_job {
  const tr_simd *simd;
  int64_t rows, width, per_task;
  tr_dtype type;
  tr_embed embed;
  const tr_rope *rope;
  const void *x, *y;
  const tr_dropout *dropout;
  void *out;
  int add;
} row_job;

// Rows of x are twice as wide as those of y and dy.
static void swiglu_forward_task(void *context, int task, int worker) {
  const row_job *j = context;
  const int64_t first = task * j->per_task, rows = tr__min(j->rows - first, j->per_task);
  (void)worker;
  j->simd->swiglu_forward(rows, j->width, j->type, tr__elem(j->type, j->x, 2 * first * j->width),
                          tr__elem_mut(j->type, j->out, first * j->width));
}

static void swiglu_forward(const tr_compute *c, int64_t rows, int64_t width, tr_dtype type, const void *x, void *y) {
  row_job job = {.simd = tr__simd(c), .rows = rows, .width = width, .per_task = rows_per_task(width)};
  job.type = type, job.x = x, job.out = y;
  tr_pool_run(c->pool, row_tasks(rows, width), swiglu_forward_task, &job);
}

static void swiglu_backward_task(void *context, int task, int worker) {
  const row_job *j = context;
  const int64_t first = task * j->per_task, rows = tr__min(j->rows - first, j->per_task);
  (void)worker;
  j->simd->swiglu_backward(rows, j->width, j->type, tr__elem(j->type, j->x, 2 * first * j->width),
                           tr__elem(j->type, j->y, first * j->width),
                           tr__elem_mut(j->type, j->out, 2 * first * j->width));
}

static void swiglu_backward(const tr_compute *c, int64_t rows, int64_t width, tr_dtype type, const void *x,
                            const void *dy, void *dx) {
  row_job job = {.simd = tr__simd(c), .rows = rows, .width = width, .per_task = rows_per_task(width)};
  job.type = type, job.x = x, job.y = dy, job.out = dx;
  tr_pool_run(c->pool, row_tasks(rows, width), swiglu_backward_task, &job);
}

static void rope_task(void *context, int task, int worker) {
  const row_job *j = context;
  (void)worker;
  j->simd->rope(j->rope, j->out, task * j->per_task, tr__min(j->rows, (task + 1) * j->per_task));
}

static void rope(const tr_compute *c, const tr_rope *p, void *x) {
  const int64_t n = p->count * p->dim;
  row_job job = {.simd = tr__simd(c), .rows = p->rows, .per_task = rows_per_task(n), .rope = p, .out = x};
  tr_pool_run(c->pool, row_tasks(p->rows, n), rope_task, &job);
}

static void embed_forward_task(void *context, int task, int worker) {
  const row_job *j = context;
  (void)worker;
  j->simd->embed_forward(&j->embed, task * j->per_task, tr__min(j->rows, (task + 1) * j->per_task));
}

static void embed_forward(const tr_compute *c, int64_t rows, int64_t width, tr_dtype type, const int32_t *token,
                          const int32_t *position, const void *wte, const void *wpe, const tr_dropout *dropout,
                          void *y) {
  row_job job = {.simd = tr__simd(c), .rows = rows, .per_task = rows_per_task(width)};
  job.embed = (tr_embed){.rows = rows,
                         .width = width,
                         .type = type,
                         .token = token,
                         .position = position,
                         .wte = wte,
                         .wpe = wpe,
                         .dropout = dropout,
                         .y = y};
  tr_pool_run(c->pool, row_tasks(rows, width), embed_forward_task, &job);
}

static void zero_task(void *context, int task, int worker) {
  const flat_job *j = context;
  (void)worker;
  memset(j->w + (size_t)task * TR_FLAT, 0, flat_count(j, task) * sizeof *j->w);
}

static void embed_backward_task(void *context, int task, int worker) {
  const row_job *j = context;
  (void)worker;
  j->simd->embed_backward(&j->embed, (int64_t)task * TR_STRIP, tr__min(j->width, ((int64_t)task + 1) * TR_STRIP));
}

static void embed_backward(const tr_compute *c, int64_t rows, int64_t width, tr_dtype type, const int32_t *token,
                           const int32_t *position, const tr_dropout *dropout, const void *dy, void *dwte,
                           int64_t vocab, int add_wte, void *dwpe, int64_t npos, int add_wpe) {
  if (dwte && !add_wte) flat_run(c, &(flat_job){.n = (size_t)(vocab * width), .w = dwte}, zero_task);
  if (dwpe && !add_wpe) flat_run(c, &(flat_job){.n = (size_t)(npos * width), .w = dwpe}, zero_task);
  row_job job = {.simd = tr__simd(c), .rows = rows, .width = width};
  job.embed = (tr_embed){.rows = rows,
                         .width = width,
                         .type = type,
                         .token = token,
                         .position = position,
                         .dropout = dropout,
                         .dy = dy,
                         .dwte = dwte,
                         .dwpe = dwpe};
  tr_pool_run(c->pool, (int)tr__ceil_div(width, TR_STRIP), embed_backward_task, &job);
}

static void residual_task(void *context, int task, int worker) {
  const row_job *j = context;
  const int64_t last = tr__min(j->rows, (task + 1) * j->per_task);
  (void)worker;
  for (int64_t r = task * j->per_task; r < last; r++) {
    const int64_t at = r * j->width;
    const void *x = j->x ? tr__elem(j->type, j->x, at) : NULL;
    j->simd->residual(r, j->width, j->type, x, tr__elem(j->type, j->y, at), j->dropout,
                      tr__elem_mut(j->type, j->out, at));
  }
}

static void residual_forward(const tr_compute *c, int64_t rows, int64_t width, tr_dtype type, const void *x,
                             const void *y, const tr_dropout *dropout, void *out) {
  row_job job = {.simd = tr__simd(c), .rows = rows, .width = width, .per_task = rows_per_task(width)};
  job.type = type, job.x = x, job.y = y, job.dropout = dropout, job.out = out;
  tr_pool_run(c->pool, row_tasks(rows, width), residual_task, &job);
}

static void dropout_backward(const tr_compute *c, int64_t rows, int64_t width, tr_dtype type,
                             const tr_dropout *dropout, const void *dout, void *dy) {
  residual_forward(c, rows, width, type, NULL, dout, dropout, dy);
}

static void column_sum_task(void *context, int task, int worker) {
  const row_job *j = context;
  const int64_t first = (int64_t)task * TR_STRIP;
  (void)worker;
  j->simd->column_sum(j->rows, j->width, j->type, j->y, first, tr__min(j->width, first + TR_STRIP), j->out, j->add);
}

static void column_sum(const tr_compute *c, int64_t rows, int64_t width, tr_dtype type, const void *dy, void *out,
                       int add_out) {
  row_job job = {
      .simd = tr__simd(c), .rows = rows, .width = width, .type = type, .y = dy, .out = out, .add = add_out};
  tr_pool_run(c->pool, (int)tr__ceil_div(width, TR_STRIP), column_sum_task, &job);
}

static size_t column_sum_scratch(int64_t rows, int64_t width, tr_dtype type) {
  (void)rows, (void)width, (void)type;
  return 0; // strips of columns need none
}

#define TR_CPU_TABLE(text)                                                                                           \
  {                                                                                                                  \
    .name = (text), .open = cpu_open, .close = cpu_close, .matmul = tr__cpu_matmul,                                  \
    .matmul_scratch = tr__cpu_matmul_scratch, .pack_size = tr__cpu_pack_size, .pack = tr__cpu_pack,                  \
    .layernorm_forward = norm_forward, .layernorm_backward = norm_backward,                                          \
    .layernorm_backward_scratch = norm_backward_scratch, .rmsnorm_forward = rmsnorm_forward,                         \
    .rmsnorm_backward = rmsnorm_backward, .rmsnorm_backward_scratch = rmsnorm_backward_scratch, .rope = rope,        \
    .swiglu_forward = swiglu_forward, .swiglu_backward = swiglu_backward, .gelu_forward = gelu_forward,              \
    .gelu_backward = gelu_backward, .embedding_forward = embed_forward, .embedding_backward = embed_backward,        \
    .residual_forward = residual_forward, .dropout_backward = dropout_backward,                                      \
    .attention_forward = tr__cpu_attention_forward, .attention_backward = tr__cpu_attention_backward,                \
    .attention_scratch = tr__cpu_attention_scratch, .head_loss = tr__cpu_head_loss,                                  \
    .head_loss_scratch = tr__cpu_head_loss_scratch, .column_sum = column_sum,                                        \
    .column_sum_scratch = column_sum_scratch, .adamw = adamw, .sgd = sgd, .sum_squares = sum_squares, .add = add,    \
    .convert = convert,                                                                                              \
  }

const tr_kernels *tr_kernels_cpu(void) {
  static const tr_kernels table[] = {[TR_ISA_BASE] = TR_CPU_TABLE("cpu-base"),
                                     [TR_ISA_AVX2] = TR_CPU_TABLE("cpu-avx2"),
                                     [TR_ISA_AVX512] = TR_CPU_TABLE("cpu-avx512"),
                                     [TR_ISA_AMX] = TR_CPU_TABLE("cpu-amx")};
  return &table[tr_cpu_isa()];
}
