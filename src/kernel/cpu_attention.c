// SPDX-License-Identifier: MIT
// Attention of the fast CPU table: how it is cut into tasks, the scratch and the checks. The arithmetic of a task is in
// simd_attention.h and simd_attention_backward.h.
//
// Forward, a task is a group of query blocks of one sequence and head. The groups of a head follow each other, so a
// worker uses the keys and values that it has copied again.
//
// Backward, sequences are cut into chunks. A key/value head of a sequence with n chunks takes n phases; in phase t chunk
// j of the keys meets chunk (j + t) mod n of the queries:
//
//               queries 0   1   2   3        Within a phase no two tasks add to the same sums, and a sum gets its
//     keys 0            0   1   2   3        parts phase by phase: its bits depend on sizes only. Causal masks leave
//          1            .   0   1   2        the lower half empty; only tasks with something to do are handed out.
//          2            .   .   0   1
//          3            .   .   .   0        The sums (f32) are those of a wave: as many key/value heads, one after the
//                                            other, as give every thread enough tasks. So scratch grows with the longest
// sequence and the number of threads, not with their product.
#include "kernel/cpu_amx_internal.h"

enum { T = TR_ATTENTION_TILE, CHUNK = TR_ATTENTION_CHUNK * T, GROUP = TR_ATTENTION_GROUP * T, TASKS_PER_THREAD = 8 };

static int64_t rounded(int64_t n, int64_t unit) { return tr__ceil_div(n, unit) * unit; }
static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }
static int64_t row_floats(const tr_attention *p) { return rounded(p->dim, TR_ATTENTION_LINE); }

// Tiles take bf16 and heads of whole steps.
static const tr_amx *tiles_for(const tr_compute *c, const tr_attention *p) {
  return p->type == TR_BF16 && p->dim % TR_AMX_SIDE == 0 ? tr__backend(c)->amx : NULL;
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

// --- forward ---

typedef struct forward_job {
  const tr_simd *simd;
  tr_attention_call call;
  int64_t *group; // [nseq + 1] first group of each sequence
  tr_attention_copied *copied;
  float *scratch;
  size_t per_worker;
} forward_job;

// A tile of scores, one that is packed, one of rows; copies of keys (panels) and of values; queries, output, two numbers per row of a block.
static size_t forward_worker_floats(const tr_attention *p) {
  const int64_t d = row_floats(p);
  return (size_t)(T * T + T * T / 2 + T * d + TR_ATTENTION_KEYS * (T * (p->dim + d) + TR_ATTENTION_LINE) +
                  TR_ATTENTION_GROUP * (2 * T * d + 2 * T));
}

// Rows may be cut into as many sequences as there are.
static size_t forward_scratch(const tr_attention *p, int nthread) {
  const int64_t sequences = larger(p->nseq, p->query_start[p->nseq]);
  return tr_arena_rounded((size_t)(sequences + 1) * sizeof(int64_t)) +
         tr_arena_rounded((size_t)nthread * sizeof(tr_attention_copied)) +
         tr_arena_rounded((size_t)nthread * forward_worker_floats(p) * sizeof(float));
}

// Task = (sequence, head, group of query blocks), groups fastest, from both ends in turn: late ones see more keys, and
// any run of tasks should take about as long as another.
static void forward_task(void *context, int task, int worker) {
  const forward_job *j = context;
  const tr_attention *p = j->call.p;
  int seq = 0;
  while (task >= j->group[seq + 1] * p->head) seq++;
  const int64_t groups = j->group[seq + 1] - j->group[seq], within = task - j->group[seq] * p->head;
  const int64_t turn = within % groups, group = turn % 2 ? groups - 1 - turn / 2 : turn / 2;
  const int64_t q0 = p->query_start[seq] + group * GROUP;
  j->simd->attention_forward(&j->call, seq, (int)(within / groups), q0, tr__min(q0 + GROUP, p->query_start[seq + 1]),
                             &j->copied[worker], j->scratch + (size_t)worker * j->per_worker);
}

tr_status tr__cpu_attention_forward(const tr_compute *c, const tr_attention *p, const void *q, const void *k,
                                    const void *v, const tr_attention_running *running, void *out, void *lse) {
  TR_TRY(check(p));
  const int carried = running && running->max, nthread = tr_pool_nthread(c->pool);
  if (!carried && !(p->first && p->last))
    return tr_error(TR_ERR_USAGE, "attention over keys of several calls (first %d, last %d) needs the running state",
                    p->first, p->last);
  const size_t mark = tr_arena_mark(c->scratch);
  forward_job job = {.simd = tr__simd(c), .per_worker = forward_worker_floats(p)};
  job.call = (tr_attention_call){.p = p, .amx = tiles_for(c, p), .q = q, .k = k, .v = v, .out = out, .lse = lse};
  if (carried) job.call.running = *running;
  tr_status status = TR_ERR_MEMORY;
  job.group = tr_arena_alloc(c->scratch, (size_t)(p->nseq + 1) * sizeof *job.group);
  job.copied = tr_arena_alloc(c->scratch, (size_t)nthread * sizeof *job.copied);
  job.scratch = tr_arena_alloc(c->scratch, (size_t)nthread * job.per_worker * sizeof(float));
  if (!job.group || !job.copied || !job.scratch) goto reset;
  job.group[0] = 0;
  for (int s = 0; s < p->nseq; s++)
    job.group[s + 1] = job.group[s] + tr__ceil_div(p->query_start[s + 1] - p->query_start[s], GROUP);
  for (int w = 0; w < nthread; w++) job.copied[w] = (tr_attention_copied){.first_key = -1};
  tr_pool_run(c->pool, (int)(job.group[p->nseq] * p->head), forward_task, &job);
  status = TR_OK;
reset:
  tr_arena_reset(c->scratch, mark);
  return status;
}

// --- backward ---

typedef struct part { // chunk number `chunk` of the queries, and of the keys, of one sequence and key/value head
  int seq, head_kv;
  int64_t chunk, chunks;
  float *dq, *dk, *dv;                  // of the whole sequence
  int32_t qleast, qmost, kleast, kmost; // positions
} part;

typedef struct backward_job {
  const tr_simd *simd;
  const tr_amx *amx;
  const tr_attention *p;
  const tr_attention_grad *g;
  part *part; // of the wave
  int *todo;  // parts whose keys have work in this phase
  int nthread, nseq_done, head_done, nparts, ntodo;
  int64_t phase;
  float *sums, *scratch;
  size_t per_worker;
} backward_job;

static int wave_parts(int nthread) { return nthread > 1 ? TASKS_PER_THREAD * nthread : 1; }

// Keys and values as panels and keys as rows; queries and output gradients both ways; two tiles of scores, one packed; per row.
static size_t backward_worker_floats(const tr_attention *p) {
  const int64_t d = row_floats(p);
  return (size_t)(TR_ATTENTION_CHUNK * (T * (2 * p->dim + d) + 2 * TR_ATTENTION_LINE) + 4 * T * d + 2 * T * T +
                  T * T / 2 + 2 * T);
}

static int64_t sum_floats(const tr_attention *p, int64_t nquery, int64_t nkey) {
  return (p->head / p->head_kv * rounded(nquery, T) + 2 * rounded(nkey, T)) * row_floats(p);
}

// The parts of a wave are fewer than wave_parts(), whole chunks at most, and then those of one more key/value head: no
// cut of the same number of rows into sequences takes more.
static int64_t most_parts(const tr_attention *p, int nthread) {
  const int64_t rows = larger(p->query_start[p->nseq], p->key_start[p->nseq]);
  return wave_parts(nthread) + tr__ceil_div(rows, CHUNK);
}
static size_t most_sum_floats(const tr_attention *p, int nthread) {
  const int64_t nquery = p->query_start[p->nseq], nkey = p->key_start[p->nseq];
  const int64_t few = p->head_kv * sum_floats(p, nquery * T, nkey * T); // every row a sequence of its own
  return (size_t)tr__min(few, (wave_parts(nthread) - 1) * sum_floats(p, CHUNK, CHUNK) + sum_floats(p, nquery, nkey));
}

static size_t backward_scratch(const tr_attention *p, int nthread) {
  const size_t parts = (size_t)most_parts(p, nthread);
  return tr_arena_rounded(parts * sizeof(part)) + tr_arena_rounded(parts * sizeof(int)) +
         tr_arena_rounded(most_sum_floats(p, nthread) * sizeof(float)) +
         tr_arena_rounded((size_t)nthread * backward_worker_floats(p) * sizeof(float));
}

static void positions(const int32_t *pos, const int32_t *start, int seq, int64_t chunk, int32_t *least,
                      int32_t *most) {
  const int64_t first = start[seq] + chunk * CHUNK, end = tr__min(first + CHUNK, start[seq + 1]);
  *least = INT32_MAX, *most = INT32_MIN;
  for (int64_t i = first; i < end; i++) {
    *least = pos[i] < *least ? pos[i] : *least;
    *most = pos[i] > *most ? pos[i] : *most;
  }
}

// Add the parts of one key/value head; returns where the next one's sums start.
static float *wave_add(backward_job *j, int seq, int head_kv, float *sums) {
  const tr_attention *p = j->p;
  const int64_t nquery = p->query_start[seq + 1] - p->query_start[seq],
                nkey = p->key_start[seq + 1] - p->key_start[seq];
  const int64_t chunks = tr__ceil_div(larger(nquery, nkey), CHUNK), d = row_floats(p);
  float *dk = sums + p->head / p->head_kv * rounded(nquery, T) * d, *dv = dk + rounded(nkey, T) * d;
  for (int64_t i = 0; i < chunks; i++) {
    part *x = &j->part[j->nparts++];
    *x = (part){.seq = seq, .head_kv = head_kv, .chunk = i, .chunks = chunks, .dq = sums, .dk = dk, .dv = dv};
    positions(p->query_pos, p->query_start, seq, i, &x->qleast, &x->qmost);
    positions(p->key_pos, p->key_start, seq, i, &x->kleast, &x->kmost);
  }
  return dv + rounded(nkey, T) * d;
}

// The next wave; 0 when there is none. *phases: the most that any of its parts takes.
static int wave_open(backward_job *j, int64_t *phases) {
  const tr_attention *p = j->p;
  float *sums = j->sums;
  j->nparts = 0;
  *phases = 0;
  while (j->nseq_done < p->nseq && j->nparts < wave_parts(j->nthread)) {
    const int before = j->nparts;
    sums = wave_add(j, j->nseq_done, j->head_done, sums);
    *phases = larger(*phases, j->nparts - before);
    if (++j->head_done == p->head_kv) j->head_done = 0, j->nseq_done++;
  }
  return j->nparts > 0;
}

static part *partner(const backward_job *j, part *x) { return x - x->chunk + (x->chunk + j->phase) % x->chunks; }

static int has_work(const backward_job *j, part *x) {
  if (j->phase >= x->chunks) return 0;
  const part *y = partner(j, x);
  const int64_t window = j->p->window ? j->p->window : INT64_MAX;
  return x->kleast <= y->qmost && (int64_t)y->qleast - x->kmost < window;
}

static tr_attention_chunk chunk_of(const backward_job *j, const part *x, int64_t query) {
  return (tr_attention_chunk){j->p, j->g, j->amx, x->seq, x->head_kv, query, x->chunk, x->dq, x->dk, x->dv};
}

static void backward_task(void *context, int task, int worker) {
  const backward_job *j = context;
  part *x = &j->part[j->todo[task]];
  const tr_attention_chunk c = chunk_of(j, x, partner(j, x)->chunk);
  if (j->phase == 0) j->simd->attention_clear(&c); // each sum belongs to one task of this phase
  if (has_work(j, x)) j->simd->attention_backward(&c, j->scratch + (size_t)worker * j->per_worker);
}

static void store_task(void *context, int task, int worker) {
  const backward_job *j = context;
  const tr_attention_chunk c = chunk_of(j, &j->part[task], j->part[task].chunk);
  (void)worker;
  j->simd->attention_store(&c);
}

static void wave_run(const tr_compute *c, backward_job *j, int64_t phases) {
  for (j->phase = 0; j->phase < phases; j->phase++) {
    j->ntodo = 0;
    for (int i = 0; i < j->nparts; i++)
      if (j->phase == 0 || has_work(j, &j->part[i])) j->todo[j->ntodo++] = i;
    tr_pool_run(c->pool, j->ntodo, backward_task, j);
  }
  tr_pool_run(c->pool, j->nparts, store_task, j);
}

tr_status tr__cpu_attention_backward(const tr_compute *c, const tr_attention *p, const tr_attention_grad *g) {
  TR_TRY(check(p));
  if (g->grad_type != TR_F32 && g->grad_type != p->type)
    return tr_error(TR_ERR_USAGE, "attention of %s cannot write gradients of %s; f32 or %s would work",
                    tr_dtype_name(p->type), tr_dtype_name(g->grad_type), tr_dtype_name(p->type));
  const size_t mark = tr_arena_mark(c->scratch);
  backward_job job = {
      .simd = tr__simd(c), .amx = tiles_for(c, p), .p = p, .g = g, .nthread = tr_pool_nthread(c->pool)};
  const size_t parts = (size_t)most_parts(p, job.nthread);
  tr_status status = TR_ERR_MEMORY;
  job.per_worker = backward_worker_floats(p);
  job.part = tr_arena_alloc(c->scratch, parts * sizeof *job.part);
  job.todo = tr_arena_alloc(c->scratch, parts * sizeof *job.todo);
  job.sums = tr_arena_alloc(c->scratch, most_sum_floats(p, job.nthread) * sizeof(float));
  job.scratch = tr_arena_alloc(c->scratch, (size_t)job.nthread * job.per_worker * sizeof(float));
  if (!job.part || !job.todo || !job.sums || !job.scratch) goto reset;
  for (int64_t phases; wave_open(&job, &phases);) wave_run(c, &job, phases);
  status = TR_OK;
reset:
  tr_arena_reset(c->scratch, mark);
  return status;
}

size_t tr__cpu_attention_scratch(const tr_attention *p, int nthread) {
  const size_t forward = forward_scratch(p, nthread), backward = backward_scratch(p, nthread);
  return forward > backward ? forward : backward;
}
