// SPDX-License-Identifier: MIT
// Attention of the fast CPU table: tasks over (sequence, head, block of queries) forward and (sequence,
// key/value head) backward. The arithmetic of one task is in simd_attention.h; here are the grid, the scratch
// and the checks.
#include "kernel/cpu_table_internal.h"

enum { T = TR_ATTENTION_TILE };

static int64_t padded(int64_t n, int64_t unit) { return tr__ceil_div(n, unit) * unit; }

size_t tr__attention_forward_floats(int dim) { return (size_t)(T * T + 4 * T * padded(dim, TR_GEMM_PANEL)); }

size_t tr__attention_backward_floats(int dim, int64_t nquery, int64_t nkey) {
  const int64_t d = padded(dim, TR_GEMM_PANEL), rows = padded(nquery, T), keys = padded(nkey, T);
  return (size_t)(rows * (3 * d + 2) + 2 * keys * d + 3 * T * d + 2 * T * T);
}

static size_t backward_worker_floats(const tr_attention *p) {
  int64_t nquery = 0, nkey = 0;
  for (int s = 0; s < p->nseq; s++) {
    const int64_t queries = p->query_start[s + 1] - p->query_start[s], keys = p->key_start[s + 1] - p->key_start[s];
    nquery = queries > nquery ? queries : nquery;
    nkey = keys > nkey ? keys : nkey;
  }
  return (size_t)padded((int64_t)tr__attention_backward_floats(p->dim, nquery, nkey), 32);
}

static size_t forward_worker_floats(const tr_attention *p) {
  return (size_t)padded((int64_t)tr__attention_forward_floats(p->dim), 32);
}

size_t tr__cpu_attention_scratch(const tr_attention *p, int nthread) {
  const size_t forward = forward_worker_floats(p), backward = backward_worker_floats(p);
  const size_t blocks = tr_arena_rounded((size_t)(p->nseq + 1) * sizeof(int64_t));
  return blocks + tr_arena_rounded((size_t)nthread * (forward > backward ? forward : backward) * sizeof(float));
}

static tr_status check(const tr_attention *p) {
  if (p->head < 1 || p->head_kv < 1 || p->head % p->head_kv != 0)
    return tr_error(TR_ERR_USAGE,
                    "attention with %d query heads and %d key/value heads; the second must divide the first", p->head,
                    p->head_kv);
  if (p->type != TR_F32 && p->type != TR_BF16)
    return tr_error(TR_ERR_USAGE, "attention of %s; the CPU table takes f32 and bf16", tr_dtype_name(p->type));
  if (p->window < 0)
    return tr_error(TR_ERR_USAGE, "attention with a window of %lld keys; 0 (all) or more would work",
                    (long long)p->window);
  return TR_OK;
}

typedef struct forward_job {
  const tr_simd *simd;
  tr_attention_call call;
  int64_t *block; // [nseq + 1] first query block of each sequence
  float *scratch;
  size_t per_worker;
} forward_job;

// Task = (sequence, query block, head), heads fastest.
static void forward_task(void *context, int task, int worker) {
  const forward_job *j = context;
  const tr_attention *p = j->call.p;
  const int64_t block = task / p->head;
  int seq = 0;
  while (block >= j->block[seq + 1]) seq++;
  const int64_t q0 = p->query_start[seq] + (block - j->block[seq]) * T;
  j->simd->attention_forward(&j->call, seq, task % p->head, q0, tr__min(q0 + T, p->query_start[seq + 1]),
                             j->scratch + (size_t)worker * j->per_worker);
}

tr_status tr__cpu_attention_forward(const tr_compute *c, const tr_attention *p, const void *q, const void *k,
                                    const void *v, const tr_attention_running *running, void *out, void *lse) {
  TR_TRY(check(p));
  const int carried = running && running->max;
  if (!carried && !(p->first && p->last))
    return tr_error(TR_ERR_USAGE, "attention over keys of several calls (first %d, last %d) needs the running state",
                    p->first, p->last);
  const size_t mark = tr_arena_mark(c->scratch);
  forward_job job = {.simd = tr__simd(c), .per_worker = forward_worker_floats(p)};
  job.call = (tr_attention_call){.p = p, .q = q, .k = k, .v = v, .out = out, .lse = lse};
  if (carried) job.call.running = *running;
  tr_status status = TR_ERR_MEMORY;
  job.block = tr_arena_alloc(c->scratch, (size_t)(p->nseq + 1) * sizeof *job.block);
  job.scratch = tr_arena_alloc(c->scratch, (size_t)tr_pool_nthread(c->pool) * job.per_worker * sizeof(float));
  if (!job.block || !job.scratch) goto reset;
  job.block[0] = 0;
  for (int s = 0; s < p->nseq; s++)
    job.block[s + 1] = job.block[s] + tr__ceil_div(p->query_start[s + 1] - p->query_start[s], T);
  tr_pool_run(c->pool, (int)(job.block[p->nseq] * p->head), forward_task, &job);
  status = TR_OK;
reset:
  tr_arena_reset(c->scratch, mark);
  return status;
}

typedef struct backward_job {
  const tr_simd *simd;
  const tr_attention *p;
  const tr_attention_grad *g;
  float *scratch;
  size_t per_worker;
} backward_job;

static void backward_task(void *context, int task, int worker) {
  const backward_job *j = context;
  j->simd->attention_backward(j->p, j->g, task / j->p->head_kv, task % j->p->head_kv,
                              j->scratch + (size_t)worker * j->per_worker);
}

tr_status tr__cpu_attention_backward(const tr_compute *c, const tr_attention *p, const tr_attention_grad *g) {
  TR_TRY(check(p));
  if (g->grad_type != TR_F32 && g->grad_type != p->type)
    return tr_error(TR_ERR_USAGE, "attention of %s cannot write gradients of %s; f32 or %s would work",
                    tr_dtype_name(p->type), tr_dtype_name(g->grad_type), tr_dtype_name(p->type));
  const size_t mark = tr_arena_mark(c->scratch);
  backward_job job = {.simd = tr__simd(c), .p = p, .g = g, .per_worker = backward_worker_floats(p)};
  job.scratch = tr_arena_alloc(c->scratch, (size_t)tr_pool_nthread(c->pool) * job.per_worker * sizeof(float));
  if (!job.scratch) return TR_ERR_MEMORY;
  tr_pool_run(c->pool, p->nseq * p->head_kv, backward_task, &job);
  tr_arena_reset(c->scratch, mark);
  return TR_OK;
}
