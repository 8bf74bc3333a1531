// SPDX-License-Identifier: MIT
// Matrix products by oneDNN, one single-threaded call per block of C.
//
// A product has at most four block shapes (inner, right edge, bottom edge, corner). Their primitives are
// found in, or added to, a small cache by the calling thread; then the workers only execute. A primitive
// asked for user scratchpads may run in several threads at once; each worker has a scratchpad that the caller
// grows beforehand. oneDNN's OpenMP is told to use one thread per worker through dlsym, so this library
// itself needs no OpenMP.
#include "kernel/cpu_dnnl_internal.h"
#include "kernel/dnnl_compat_internal.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK_ROWS = 256, BLOCK_COLS = 1024, CACHE_SIZE = 128, SCRATCH_ALIGN = 4096 };

typedef struct shape_key { // all members int64_t: no padding, compared as bytes
  int64_t m, n, k, a_row, a_col, b_row, b_col, ldc, type_a, type_b, type_c, type_bias, add;
} shape_key;

typedef struct cache_entry {
  shape_key key;
  tr_dnnl_matrices desc;
  dnnl_primitive_desc_t primitive_desc; // owns the scratchpad's descriptor
  dnnl_primitive_t primitive;
} cache_entry;

struct tr_dnnl {
  dnnl_engine_t engine;
  int nthread, ncache;
  dnnl_stream_t *stream; // one per worker
  void **scratchpad;     // one per worker
  size_t scratchpad_size;
  cache_entry cache[CACHE_SIZE];
};

static dnnl_data_type_t dnnl_type(tr_dtype type) { return type == TR_BF16 ? dnnl_bf16 : dnnl_f32; }

static void worker_task(void *context, int task, int worker) {
  (void)context, (void)task, (void)worker;
  void *symbol = dlsym(RTLD_DEFAULT, "omp_set_num_threads");
  void (*set_threads)(int) = NULL;
  memcpy(&set_threads, &symbol, sizeof set_threads); // ISO C has no cast from object to function pointers
  if (set_threads) set_threads(1);
}

tr_status tr__dnnl_open(tr_pool *pool, tr_dnnl **out) {
  const int nthread = tr_pool_nthread(pool);
  tr_dnnl *d = calloc(1, sizeof *d);
  if (!d) goto memory;
  d->nthread = nthread;
  d->stream = calloc((size_t)nthread, sizeof(dnnl_stream_t));
  d->scratchpad = calloc((size_t)nthread, sizeof(void *));
  if (!d->stream || !d->scratchpad) goto memory;
  tr_pool_run(pool, nthread, worker_task, NULL);
  dnnl_status_t status = dnnl_engine_create(&d->engine, dnnl_cpu, 0);
  for (int w = 0; w < nthread && status == dnnl_success; w++)
    status = dnnl_stream_create(&d->stream[w], d->engine, dnnl_stream_default_flags);
  if (status != dnnl_success) {
    tr__dnnl_close(d);
    return tr_error(TR_ERR_INTERNAL, "oneDNN gave no CPU engine (its status %d); TRIREME_ISA=avx512 does without it",
                    (int)status);
  }
  *out = d;
  return TR_OK;
memory:
  tr__dnnl_close(d);
  return tr_error(TR_ERR_MEMORY, "no memory for the oneDNN state of %d threads; use fewer threads", nthread);
}

static void entry_free(cache_entry *e) {
  if (e->primitive) dnnl_primitive_destroy(e->primitive);
  if (e->primitive_desc) dnnl_primitive_desc_destroy(e->primitive_desc);
  tr__dnnl_desc_free(&e->desc.a);
  tr__dnnl_desc_free(&e->desc.b);
  tr__dnnl_desc_free(&e->desc.c);
  tr__dnnl_desc_free(&e->desc.bias);
  memset(e, 0, sizeof *e);
}

void tr__dnnl_close(tr_dnnl *d) {
  if (!d) return;
  for (int i = 0; i < d->ncache; i++) entry_free(&d->cache[i]);
  for (int w = 0; w < d->nthread; w++) {
    if (d->stream && d->stream[w]) dnnl_stream_destroy(d->stream[w]);
    if (d->scratchpad) free(d->scratchpad[w]);
  }
  if (d->engine) dnnl_engine_destroy(d->engine);
  free(d->stream);
  free(d->scratchpad);
  free(d);
}

// The four descriptors; strides say what is transposed.
static dnnl_status_t describe(const shape_key *k, tr_dnnl_matrices *out) {
  const dnnl_dims_t dims_a = {k->m, k->k}, dims_b = {k->k, k->n}, dims_c = {k->m, k->n}, dims_bias = {1, k->n};
  const dnnl_dims_t steps_a = {k->a_row, k->a_col}, steps_b = {k->b_row, k->b_col}, steps_c = {k->ldc, 1},
                    steps_bias = {k->n, 1};
  out->has_bias = k->type_bias >= 0;
  dnnl_status_t status = tr__dnnl_desc_make(&out->a, 2, dims_a, dnnl_type((tr_dtype)k->type_a), steps_a);
  if (status == dnnl_success)
    status = tr__dnnl_desc_make(&out->b, 2, dims_b, dnnl_type((tr_dtype)k->type_b), steps_b);
  if (status == dnnl_success)
    status = tr__dnnl_desc_make(&out->c, 2, dims_c, dnnl_type((tr_dtype)k->type_c), steps_c);
  if (status == dnnl_success && out->has_bias)
    status = tr__dnnl_desc_make(&out->bias, 2, dims_bias, dnnl_type((tr_dtype)k->type_bias), steps_bias);
  return status;
}

static dnnl_status_t entry_make(const tr_dnnl *d, const shape_key *key, cache_entry *e) {
  dnnl_primitive_attr_t attr = NULL;
  dnnl_post_ops_t ops = NULL;
  e->key = *key;
  dnnl_status_t status = describe(key, &e->desc);
  if (status == dnnl_success) status = dnnl_primitive_attr_create(&attr);
  if (status == dnnl_success) status = dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user);
  if (status == dnnl_success && key->add) {
    status = dnnl_post_ops_create(&ops);
    if (status == dnnl_success) status = tr__dnnl_append_sum(ops);
    if (status == dnnl_success) status = dnnl_primitive_attr_set_post_ops(attr, ops);
  }
  if (status == dnnl_success) status = tr__dnnl_matmul_desc(&e->primitive_desc, &e->desc, attr, d->engine);
  if (status == dnnl_success) status = dnnl_primitive_create(&e->primitive, e->primitive_desc);
  if (ops) dnnl_post_ops_destroy(ops);
  if (attr) dnnl_primitive_attr_destroy(attr);
  return status;
}

// Every worker's scratchpad at least as large as this primitive asks.
static int scratchpads_grow(tr_dnnl *d, const cache_entry *e) {
  const size_t want =
      dnnl_memory_desc_get_size(dnnl_primitive_desc_query_md(e->primitive_desc, dnnl_query_scratchpad_md, 0));
  if (want <= d->scratchpad_size) return 1;
  const size_t size = (want + SCRATCH_ALIGN - 1) / SCRATCH_ALIGN * SCRATCH_ALIGN;
  for (int w = 0; w < d->nthread; w++) {
    void *larger = aligned_alloc(SCRATCH_ALIGN, size);
    if (!larger) return 0; // those made before are larger than they need be, and none is lost
    free(d->scratchpad[w]);
    d->scratchpad[w] = larger;
  }
  d->scratchpad_size = size;
  return 1;
}

// The cached primitive of this shape, made if needed; NULL when oneDNN has none.
static const cache_entry *entry_find(tr_dnnl *d, const shape_key *key) {
  for (int i = 0; i < d->ncache; i++)
    if (!memcmp(&d->cache[i].key, key, sizeof *key)) return &d->cache[i];
  cache_entry *e = &d->cache[d->ncache];
  if (entry_make(d, key, e) != dnnl_success || !scratchpads_grow(d, e)) {
    entry_free(e);
    return NULL;
  }
  d->ncache++;
  return e;
}

typedef struct dnnl_job {
  tr_dnnl *dnnl;
  const tr_gemm *g;
  const cache_entry *entry[2][2]; // [last row block][last column block]
  int64_t nrow, ncol;             // blocks
  int failed;                     // set by any worker, read after all are done
} dnnl_job;

static dnnl_status_t attach(const dnnl_job *j, dnnl_exec_arg_t *arg, int which, tr_dnnl_desc desc, const void *data) {
  arg->arg = which;
  return dnnl_memory_create(&arg->memory, desc, j->dnnl->engine, (void *)(uintptr_t)data);
}

static dnnl_status_t block_run(const dnnl_job *j, const cache_entry *e, int worker, int64_t i0, int64_t j0) {
  const tr_gemm *g = j->g;
  dnnl_exec_arg_t arg[5] = {{0}};
  int narg = 4;
  dnnl_stream_t stream = j->dnnl->stream[worker];
  dnnl_status_t status =
      attach(j, &arg[0], DNNL_ARG_SRC, tr__dnnl_borrow(&e->desc.a), tr__elem(g->type_a, g->a, i0 * g->a_row));
  if (status == dnnl_success)
    status =
        attach(j, &arg[1], DNNL_ARG_WEIGHTS, tr__dnnl_borrow(&e->desc.b), tr__elem(g->type_b, g->b, j0 * g->b_col));
  if (status == dnnl_success)
    status =
        attach(j, &arg[2], DNNL_ARG_DST, tr__dnnl_borrow(&e->desc.c), tr__elem(g->type_c, g->c, i0 * g->ldc + j0));
  if (status == dnnl_success)
    status = attach(j, &arg[3], DNNL_ARG_SCRATCHPAD,
                    dnnl_primitive_desc_query_md(e->primitive_desc, dnnl_query_scratchpad_md, 0),
                    j->dnnl->scratchpad[worker]);
  if (status == dnnl_success && e->desc.has_bias)
    status =
        attach(j, &arg[narg++], DNNL_ARG_BIAS, tr__dnnl_borrow(&e->desc.bias), tr__elem(g->type_bias, g->bias, j0));
  if (status == dnnl_success) status = dnnl_primitive_execute(e->primitive, stream, narg, arg);
  if (status == dnnl_success) status = dnnl_stream_wait(stream);
  for (int i = 0; i < 5; i++)
    if (arg[i].memory) dnnl_memory_destroy(arg[i].memory);
  return status;
}

static void block_task(void *context, int task, int worker) {
  dnnl_job *j = context;
  const int64_t row = task / j->ncol, col = task % j->ncol;
  const cache_entry *e = j->entry[row == j->nrow - 1][col == j->ncol - 1];
  if (block_run(j, e, worker, row * BLOCK_ROWS, col * BLOCK_COLS) != dnnl_success)
    __atomic_store_n(&j->failed, 1, __ATOMIC_RELAXED);
}

static shape_key key_of(const tr_gemm *g, int64_t m, int64_t n) {
  return (shape_key){.m = m,
                     .n = n,
                     .k = g->k,
                     .a_row = g->a_row,
                     .a_col = g->a_col,
                     .b_row = g->b_row,
                     .b_col = g->b_col,
                     .ldc = g->ldc,
                     .type_a = g->type_a,
                     .type_b = g->type_b,
                     .type_c = g->type_c,
                     .type_bias = g->bias ? (int64_t)g->type_bias : -1,
                     .add = g->add};
}

tr_status tr__dnnl_gemm(tr_dnnl *d, tr_pool *pool, const tr_gemm *g) {
  dnnl_job job = {.dnnl = d, .g = g, .nrow = tr__ceil_div(g->m, BLOCK_ROWS), .ncol = tr__ceil_div(g->n, BLOCK_COLS)};
  if (d->ncache + 4 > CACHE_SIZE) { // full: start again, rather than remember which is oldest
    for (int i = 0; i < d->ncache; i++) entry_free(&d->cache[i]);
    d->ncache = 0;
  }
  for (int last_row = 0; last_row < 2; last_row++)
    for (int last_col = 0; last_col < 2; last_col++) {
      if ((!last_row && job.nrow == 1) || (!last_col && job.ncol == 1)) continue; // every block is a last one
      const int64_t m = last_row ? g->m - (job.nrow - 1) * BLOCK_ROWS : BLOCK_ROWS;
      const int64_t n = last_col ? g->n - (job.ncol - 1) * BLOCK_COLS : BLOCK_COLS;
      const shape_key key = key_of(g, m, n);
      job.entry[last_row][last_col] = entry_find(d, &key);
      if (!job.entry[last_row][last_col]) return TR_PENDING;
    }
  tr_pool_run(pool, (int)(job.nrow * job.ncol), block_task, &job);
  if (job.failed)
    return tr_error(TR_ERR_INTERNAL, "oneDNN failed on a product of %lld x %lld x %lld", (long long)g->m,
                    (long long)g->n, (long long)g->k);
  return TR_OK;
}
