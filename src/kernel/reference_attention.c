// SPDX-License-Identifier: MIT
// Reference attention: one query row and head at a time against every key it sees.
//
// Forward. s[j] = scale q.k[j], p = softmax(s), out = sum of z[j] p[j] v[j], where z is the dropout factor. Over
// several calls the running maximum M, sum L and unnormalised output O are carried: a call that raises M by d first
// multiplies L and O by exp(-d) (Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018).
//
// Backward. With p[j] = exp(s[j] - lse) and delta = dout . out (the sum of p[j] dp[j]):
//   dp[j] = z[j] dout . v[j]      ds[j] = p[j] (dp[j] - delta)
//   dq = scale sum_j ds[j] k[j]   dk[j] = scale sum_i ds[i, j] q[i]   dv[j] = sum_i z p[i, j] dout[i]
// dq walks keys per query, dk and dv walk queries per key; scores are computed again each time. Since lse and
// out are those over all keys, any part of the keys can be handled in a call of its own.
//
// Letters: i query row, j key row, h query head, e feature of a head.
#include "kernel/reference_internal.h"

#include <math.h>

size_t tr__reference_attention_scratch(const tr_attention *p, int nthread) {
  (void)nthread;
  size_t nquery = (size_t)p->query_start[p->nseq], nkey = (size_t)p->key_start[p->nseq];
  size_t dim = tr_arena_rounded((size_t)p->dim * sizeof(double));
  size_t forward = tr_arena_rounded(nkey * sizeof(double)) + dim;
  size_t backward = tr_arena_rounded(nquery * (size_t)p->head * sizeof(double)) + 2 * dim;
  return forward > backward ? forward : backward;
}

// The key/value head that query head h uses.
static int kv_head(const tr_attention *p, int h) { return h / (p->head / p->head_kv); }

static int sees(const tr_attention *p, int64_t i, int64_t j) {
  int64_t behind = (int64_t)p->query_pos[i] - p->key_pos[j];
  return behind >= 0 && (p->window == 0 || behind < p->window);
}

static double score(const tr_attention *p, const void *q, const void *k, int64_t i, int64_t j, int h) {
  return (double)p->scale * tr__dot(p->type, p->dim, tr__at(p->type, q, i * p->ld_q + h * p->dim), 1,
                                    tr__at(p->type, k, j * p->ld_k + kv_head(p, h) * p->dim), 1);
}

static double dropout_factor(const tr_attention *p, int64_t i, int64_t j, int h) {
  return tr__dropout_factor(&p->dropout, i, h * p->dropout_stride + p->key_pos[j]);
}

static tr_status check(const tr_attention *p) {
  if (p->head < 1 || p->head_kv < 1 || p->head % p->head_kv != 0) {
    return tr_error(TR_ERR_USAGE,
                    "attention with %d query heads and %d key/value heads; the second must divide the first", p->head,
                    p->head_kv);
  }
  if (p->window < 0)
    return tr_error(TR_ERR_USAGE, "attention with a window of %lld keys; 0 (all) or more would work",
                    (long long)p->window);
  return TR_OK;
}

// --- forward ---

typedef struct forward {
  const tr_attention *p;
  const void *q, *k, *v;
  const tr_attention_running *running; // NULL when there is nothing to carry
  void *out, *lse;
  double *score; // [nkey]
  double *sum;   // [dim]
} forward;

// The state of one query row and head between calls.
typedef struct softmax_state {
  double max, sum;
} softmax_state;

static softmax_state state_load(const forward *f, int64_t row) {
  const tr_attention *p = f->p;
  tr_dtype wide = tr_wide(p->type);
  int carried = f->running && !p->first;
  for (int e = 0; e < p->dim; e++) f->sum[e] = carried ? tr__get(wide, f->running->out, row * p->dim + e) : 0;
  if (!carried) return (softmax_state){-INFINITY, 0};
  return (softmax_state){tr__get(wide, f->running->max, row), tr__get(wide, f->running->sum, row)};
}

static void state_store(const forward *f, int64_t row, softmax_state s) {
  const tr_attention *p = f->p;
  tr_dtype wide = tr_wide(p->type);
  tr__put(wide, f->running->max, row, s.max);
  tr__put(wide, f->running->sum, row, s.sum);
  for (int e = 0; e < p->dim; e++) tr__put(wide, f->running->out, row * p->dim + e, f->sum[e]);
}

// A query that saw no key gives zeros, and the logarithm of an empty sum.
static void write_result(const forward *f, int64_t i, int h, softmax_state s) {
  const tr_attention *p = f->p;
  tr__put(tr_wide(p->type), f->lse, i * p->head + h, s.sum > 0 ? s.max + log(s.sum) : -INFINITY);
  for (int e = 0; e < p->dim; e++)
    tr__put(p->type, f->out, i * p->ld_out + h * p->dim + e, s.sum > 0 ? f->sum[e] / s.sum : 0);
}

static void forward_row(const forward *f, int64_t i, int h, int64_t key_first, int64_t key_last) {
  const tr_attention *p = f->p;
  softmax_state s = state_load(f, i * p->head + h);
  double max = s.max;
  for (int64_t j = key_first; j < key_last; j++) {
    f->score[j] = sees(p, i, j) ? score(p, f->q, f->k, i, j, h) : -INFINITY;
    max = fmax(max, f->score[j]);
  }
  if (max > -INFINITY) {
    double shrink = exp(s.max - max);
    s = (softmax_state){max, s.sum * shrink};
    for (int e = 0; e < p->dim; e++) f->sum[e] *= shrink;
  }
  for (int64_t j = key_first; j < key_last; j++) {
    if (!sees(p, i, j)) continue;
    double weight = exp(f->score[j] - max), kept = weight * dropout_factor(p, i, j, h);
    int64_t value = j * p->ld_v + kv_head(p, h) * p->dim;
    s.sum += weight;
    for (int e = 0; e < p->dim; e++) f->sum[e] += kept * tr__get(p->type, f->v, value + e);
  }
  if (f->running) state_store(f, i * p->head + h, s);
  if (p->last) write_result(f, i, h, s);
}

tr_status tr__reference_attention_forward(const tr_compute *c, const tr_attention *p, const void *q, const void *k,
                                          const void *v, const tr_attention_running *running, void *out, void *lse) {
  TR_TRY(check(p));
  forward f = {.p = p, .q = q, .k = k, .v = v, .out = out, .lse = lse};
  f.running = running && running->max ? running : NULL;
  if (!f.running && !(p->first && p->last)) {
    return tr_error(TR_ERR_USAGE, "attention over keys of several calls (first %d, last %d) needs the running state",
                    p->first, p->last);
  }
  size_t mark = tr_arena_mark(c->scratch);
  tr_status status = TR_ERR_MEMORY;
  f.score = tr_arena_alloc(c->scratch, (size_t)p->key_start[p->nseq] * sizeof(double));
  f.sum = tr_arena_alloc(c->scratch, (size_t)p->dim * sizeof(double));
  if (!f.score || !f.sum) goto reset;
  for (int n = 0; n < p->nseq; n++) {
    for (int64_t i = p->query_start[n]; i < p->query_start[n + 1]; i++) {
      for (int h = 0; h < p->head; h++) forward_row(&f, i, h, p->key_start[n], p->key_start[n + 1]);
    }
  }
  status = TR_OK;
reset:
  tr_arena_reset(c->scratch, mark);
  return status;
}

// --- backward ---

typedef struct backward {
  const tr_attention *p;
  const tr_attention_grad *g;
  double *delta;  // [nquery, head]
  double *sum[2]; // [dim] each
} backward;

// One query, head and visible key: the score's gradient, and the probability as the values see it.
typedef struct pair_gradient {
  double ds, kept;
} pair_gradient;

static pair_gradient pair(const backward *b, int64_t i, int64_t j, int h) {
  const tr_attention *p = b->p;
  const tr_attention_grad *g = b->g;
  double lse = tr__get(tr_wide(p->type), g->lse, i * p->head + h);
  double probability = exp(score(p, g->q, g->k, i, j, h) - lse), z = dropout_factor(p, i, j, h);
  double dp = z * tr__dot(p->type, p->dim, tr__at(p->type, g->dout, i * p->ld_out + h * p->dim), 1,
                          tr__at(p->type, g->v, j * p->ld_v + kv_head(p, h) * p->dim), 1);
  return (pair_gradient){probability * (dp - b->delta[i * p->head + h]), z * probability};
}

static void query_gradient(const backward *b, int64_t i, int h, int64_t key_first, int64_t key_last) {
  const tr_attention *p = b->p;
  double *dq = b->sum[0];
  for (int e = 0; e < p->dim; e++) dq[e] = 0;
  for (int64_t j = key_first; j < key_last; j++) {
    if (!sees(p, i, j)) continue;
    double ds = (double)p->scale * pair(b, i, j, h).ds;
    int64_t key = j * p->ld_k + kv_head(p, h) * p->dim;
    for (int e = 0; e < p->dim; e++) dq[e] += ds * tr__get(p->type, b->g->k, key + e);
  }
  for (int e = 0; e < p->dim; e++)
    tr__put_add(b->g->grad_type, b->g->dq, i * p->ld_q + h * p->dim + e, dq[e], b->g->add);
}

// What query row i contributes to key row j through the head h.
static void key_contribution(const backward *b, int64_t i, int64_t j, int h) {
  const tr_attention *p = b->p;
  pair_gradient t = pair(b, i, j, h);
  for (int e = 0; e < p->dim; e++) {
    b->sum[0][e] += (double)p->scale * t.ds * tr__get(p->type, b->g->q, i * p->ld_q + h * p->dim + e);
    b->sum[1][e] += t.kept * tr__get(p->type, b->g->dout, i * p->ld_out + h * p->dim + e);
  }
}

static void key_gradient(const backward *b, int64_t j, int head_kv, int64_t query_first, int64_t query_last) {
  const tr_attention *p = b->p;
  int share = p->head / p->head_kv;
  for (int e = 0; e < p->dim; e++) b->sum[0][e] = b->sum[1][e] = 0;
  for (int64_t i = query_first; i < query_last; i++) {
    if (!sees(p, i, j)) continue;
    for (int h = head_kv * share; h < (head_kv + 1) * share; h++) key_contribution(b, i, j, h);
  }
  for (int e = 0; e < p->dim; e++) {
    tr__put_add(b->g->grad_type, b->g->dk, j * p->ld_k + head_kv * p->dim + e, b->sum[0][e], b->g->add);
    tr__put_add(b->g->grad_type, b->g->dv, j * p->ld_v + head_kv * p->dim + e, b->sum[1][e], b->g->add);
  }
}

static void backward_sequence(const backward *b, int n) {
  const tr_attention *p = b->p;
  int64_t query_first = p->query_start[n], query_last = p->query_start[n + 1];
  int64_t key_first = p->key_start[n], key_last = p->key_start[n + 1];
  for (int64_t i = query_first; i < query_last; i++) {
    for (int h = 0; h < p->head; h++) {
      int64_t at = i * p->ld_out + h * p->dim;
      b->delta[i * p->head + h] =
          tr__dot(p->type, p->dim, tr__at(p->type, b->g->dout, at), 1, tr__at(p->type, b->g->out, at), 1);
      query_gradient(b, i, h, key_first, key_last);
    }
  }
  for (int64_t j = key_first; j < key_last; j++) {
    for (int h = 0; h < p->head_kv; h++) key_gradient(b, j, h, query_first, query_last);
  }
}

tr_status tr__reference_attention_backward(const tr_compute *c, const tr_attention *p, const tr_attention_grad *g) {
  TR_TRY(check(p));
  size_t mark = tr_arena_mark(c->scratch), dim = (size_t)p->dim * sizeof(double);
  tr_status status = TR_ERR_MEMORY;
  backward b = {.p = p, .g = g};
  b.delta = tr_arena_alloc(c->scratch, (size_t)p->query_start[p->nseq] * (size_t)p->head * sizeof(double));
  b.sum[0] = tr_arena_alloc(c->scratch, dim);
  b.sum[1] = tr_arena_alloc(c->scratch, dim);
  if (!b.delta || !b.sum[0] || !b.sum[1]) goto reset;
  for (int n = 0; n < p->nseq; n++) backward_sequence(&b, n);
  status = TR_OK;
reset:
  tr_arena_reset(c->scratch, mark);
  return status;
}
