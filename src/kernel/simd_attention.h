// SPDX-License-Identifier: MIT
// Attention, one task at a time: a block of query rows of one head forward, one key/value head of a sequence
// backward. Included by simd_body.h only.
//
// Tiles of T = TR_ATTENTION_TILE query rows by T key rows, all in f32 scratch, with D = dim rounded up to the
// micro-kernel's width (Dao, Fu, Ermon, Rudra, Re, "FlashAttention", 2022):
//   forward   S = Q K^T   online softmax -> P   O = O shrink + P V
//   backward  S = Q K^T   dP = dO V^T   P = exp(S - lse)   dS = P (dP - delta)
//             dV += P^T dO   dK += dS^T Q   dQ += dS K
// Q is scaled when loaded, so S needs no scaling and dK comes out right. Tiles in which no key is visible, be it later
// than the queries or before their window, are skipped. Backward keeps dK and dV of the whole sequence and dQ of one head in scratch: no two tasks write
// the same output.
#ifndef TRIREME_KERNEL_SIMD_ATTENTION_H
#define TRIREME_KERNEL_SIMD_ATTENTION_H

#include "kernel/simd_gemm.h"

enum { T = TR_ATTENTION_TILE };

// C[m, n] (+)= A B on f32 scratch; m and n are rounded up to the micro-kernel, which all scratch is padded for.
static void tile_product(int64_t m, int64_t n, int64_t k, const float *a, int64_t a_row, int64_t a_col,
                         const float *b, int64_t ldb, float *c, int64_t ldc, int add_c) {
  for (int64_t j = 0; j < n; j += TR_NR)
    for (int64_t i = 0; i < m; i += TR_MR)
      micro_product(k, a + i * a_row, a_row, a_col, b + j, ldb, c + i * ldc + j, ldc, add_c);
}

static int64_t padded_dim(int dim) { return tr__ceil_div(dim, TR_GEMM_PANEL) * TR_GEMM_PANEL; }
static int64_t padded_rows(int64_t n) { return tr__ceil_div(n, T) * T; }

// Rows r0 .. r1 - 1 of one head (starting at column `col` of an array with leading dimension ld) into dense
// f32 rows of D floats, zero-padded to `rows` rows.
static void load_rows(tr_dtype type, const void *src, int64_t ld, int64_t col, int64_t r0, int64_t r1, int64_t dim,
                      float scale, int64_t rows, float *dst) {
  const int64_t d = padded_dim((int)dim);
  for (int64_t r = 0; r < rows; r++)
    for (int64_t e = 0; e < d; e += TR_VL) {
      const int inside = r0 + r < r1 && e < dim;
      vf v = inside ? load(type, src, (r0 + r) * ld + col + e, dim - e) * scale : (vf){0};
      store_f32(dst + r * d + e, v, TR_VL);
    }
}

// The same rows transposed: dst[e * T + r], for a tile of T rows.
static void load_transposed(tr_dtype type, const void *src, int64_t ld, int64_t col, int64_t r0, int64_t r1,
                            int64_t dim, float *dst) {
  pack_panels(type, tr__elem(type, src, r0 * ld + col), ld, 1, r1 - r0, dim, T, dst);
}

static void store_rows(tr_dtype type, void *dst, int64_t ld, int64_t col, int64_t r0, int64_t r1, int64_t dim,
                       float scale, const float *src, int add_out) {
  const int64_t d = padded_dim((int)dim);
  for (int64_t r = r0; r < r1; r++)
    for (int64_t e = 0; e < dim; e += TR_VL) {
      const int64_t at = r * ld + col + e;
      vf v = load_f32(src + (r - r0) * d + e, TR_VL) * scale;
      if (add_out) v += load(type, dst, at, dim - e);
      store(type, dst, at, v, dim - e);
    }
}

typedef enum view { SEES_NONE, SEES_SOME, SEES_ALL } view;

// What query rows q0 .. q1 - 1 see of key rows k0 .. k1 - 1.
static view tile_view(const tr_attention *p, int64_t q0, int64_t q1, int64_t k0, int64_t k1) {
  int32_t qmin = INT32_MAX, qmax = INT32_MIN, kmin = INT32_MAX, kmax = INT32_MIN;
  const int64_t window = p->window ? p->window : INT64_MAX;
  for (int64_t i = q0; i < q1; i++) {
    qmin = p->query_pos[i] < qmin ? p->query_pos[i] : qmin;
    qmax = p->query_pos[i] > qmax ? p->query_pos[i] : qmax;
  }
  for (int64_t j = k0; j < k1; j++) {
    kmin = p->key_pos[j] < kmin ? p->key_pos[j] : kmin;
    kmax = p->key_pos[j] > kmax ? p->key_pos[j] : kmax;
  }
  if (kmin > qmax || (int64_t)qmin - kmax >= window) return SEES_NONE;
  return kmax <= qmin && (int64_t)qmax - kmin < window ? SEES_ALL : SEES_SOME;
}

// The first position that a query at `position` sees.
static int32_t first_seen(const tr_attention *p, int32_t position) {
  const int64_t before = (int64_t)position - INT32_MIN; // positions there are
  return p->window == 0 || p->window > before ? INT32_MIN : (int32_t)(position - p->window + 1);
}

// Lanes j .. of the key rows that the query row sees.
INLINE vi visible(const tr_attention *p, int64_t query, int64_t key, int64_t left) {
  const int32_t last = p->query_pos[query], first = first_seen(p, last);
  vi position = {0};
  if (left >= TR_VL) {
    memcpy(&position, p->key_pos + key, sizeof position);
    return (position <= last) & (position >= first);
  }
  memcpy(&position, p->key_pos + key, (size_t)left * sizeof(int32_t));
  return (position <= last) & (position >= first) & first_lanes(left);
}

// Dropout factors of one query row over n <= T key rows: one Philox run where key positions are consecutive.
static void probability_factors(const tr_attention *p, int64_t query, int head, int64_t key, int n, float *factor) {
  float space[MASK_SPACE];
  const int64_t base = head * p->dropout_stride;
  int run = 1;
  for (int j = 1; j < n; j++) run &= p->key_pos[key + j] == p->key_pos[key] + j;
  if (run) {
    memcpy(factor, keep_factors(&p->dropout, query, (uint32_t)(base + p->key_pos[key]), n, space),
           (size_t)n * sizeof *factor);
    return;
  }
  for (int j = 0; j < n; j++)
    factor[j] = *keep_factors(&p->dropout, query, (uint32_t)(base + p->key_pos[key + j]), 1, space);
}

// --- forward ---

typedef struct forward_state { // one task's scratch
  float *q, *o, *s, *kt, *v;   // [T, D], [T, D], [T, T], [dim, T], [T, D]
  float max[T], sum[T];
} forward_state;

// One row of scores becomes probabilities relative to the running maximum; returns what the earlier state shrinks by.
static float softmax_row(const tr_attention *p, view sees, int64_t query, int64_t k0, int64_t n, float *s, float *max,
                         float *sum) {
  const vf none = splat(-__builtin_inff());
  vf top = splat(*max);
  for (int64_t j = 0; j < n; j += TR_VL) {
    vf v = load_f32(s + j, TR_VL);
    if (sees == SEES_SOME || n - j < TR_VL) v = select_f32(visible(p, query, k0 + j, n - j), v, none);
    top = select_f32(top > v, top, v); // NaN scores survive
    store_f32(s + j, v, TR_VL);
  }
  float m = max_lanes(top);
  if (!(m > -__builtin_inff()) && m == m) { // nothing visible so far
    memset(s, 0, (size_t)T * sizeof *s);
    return 1.0f;
  }
  vf total = {0};
  for (int64_t j = 0; j < n; j += TR_VL) {
    vf e = exp_f32(load_f32(s + j, TR_VL) - m);
    store_f32(s + j, e, TR_VL);
    total += e;
  }
  const float shrink = *max == m ? 1.0f : exp_f32(splat(*max - m))[0];
  *sum = *sum * shrink + sum_lanes(total);
  *max = m;
  return shrink;
}

static void drop_row(const tr_attention *p, int64_t query, int head, int64_t k0, int64_t n, float *s) {
  float factor[MASK_MAX];
  probability_factors(p, query, head, k0, (int)n, factor);
  for (int64_t j = 0; j < n; j += TR_VL)
    store_f32(s + j, load_f32(s + j, TR_VL) * load_f32(factor + j, n - j), TR_VL);
}

static void forward_softmax(const tr_attention *p, view sees, int head, int64_t q0, int64_t q1, int64_t k0,
                            int64_t k1, forward_state *f) {
  const int64_t d = padded_dim(p->dim);
  for (int64_t i = q0; i < q1; i++) {
    float *s = f->s + (i - q0) * T, *o = f->o + (i - q0) * d;
    const float shrink = softmax_row(p, sees, i, k0, k1 - k0, s, &f->max[i - q0], &f->sum[i - q0]);
    if (shrink != 1.0f)
      for (int64_t e = 0; e < d; e += TR_VL) store_f32(o + e, load_f32(o + e, TR_VL) * shrink, TR_VL);
    if (p->dropout.p > 0.0f) drop_row(p, i, head, k0, k1 - k0, s);
  }
}

static void forward_begin(const tr_attention_call *call, int head, int64_t q0, int64_t q1, forward_state *f) {
  const tr_attention *p = call->p;
  const int64_t d = padded_dim(p->dim);
  const int carried = call->running.max && !p->first;
  load_rows(p->type, call->q, p->ld_q, (int64_t)head * p->dim, q0, q1, p->dim, p->scale, T, f->q);
  for (int64_t i = 0; i < T; i++) {
    const int64_t row = (q0 + i) * p->head + head;
    const int take = carried && q0 + i < q1;
    f->max[i] = take ? ((const float *)call->running.max)[row] : -__builtin_inff();
    f->sum[i] = take ? ((const float *)call->running.sum)[row] : 0.0f;
    memset(f->o + i * d, 0, (size_t)d * sizeof *f->o);
    if (take) memcpy(f->o + i * d, (const float *)call->running.out + row * p->dim, (size_t)p->dim * sizeof *f->o);
  }
}

static void forward_end(const tr_attention_call *call, int head, int64_t q0, int64_t q1, const forward_state *f) {
  const tr_attention *p = call->p;
  const int64_t d = padded_dim(p->dim);
  for (int64_t i = q0; i < q1; i++) {
    const int64_t row = i * p->head + head;
    const float max = f->max[i - q0], sum = f->sum[i - q0], *o = f->o + (i - q0) * d;
    if (call->running.max) {
      ((float *)call->running.max)[row] = max;
      ((float *)call->running.sum)[row] = sum;
      memcpy((float *)call->running.out + row * p->dim, o, (size_t)p->dim * sizeof *o);
    }
    if (!p->last) continue;
    const int empty = sum == 0.0f; // saw no key: zeros, and the logarithm of an empty sum
    call->lse[row] = empty ? -__builtin_inff() : max + log_f32(sum);
    store_rows(p->type, call->out, p->ld_out, (int64_t)head * p->dim, i, i + 1, p->dim, empty ? 0.0f : 1.0f / sum, o,
               0);
  }
}

// Few query rows (generation): no tile is packed, each key is read once.
static void forward_thin(const tr_attention_call *call, int head, int64_t q0, int64_t q1, int64_t k0, int64_t k1,
                         view sees, forward_state *f) {
  const tr_attention *p = call->p;
  const int64_t d = padded_dim(p->dim), col = (int64_t)(head / (p->head / p->head_kv)) * p->dim;
  for (int64_t i = q0; i < q1; i++)
    for (int64_t j = k0; j < k1; j++)
      f->s[(i - q0) * T + (j - k0)] = dot_row(p->dim, f->q + (i - q0) * d, p->type, call->k, j * p->ld_k + col);
  forward_softmax(p, sees, head, q0, q1, k0, k1, f);
  for (int64_t i = q0; i < q1; i++)
    for (int64_t e = 0; e < p->dim; e += TR_VL) {
      float *o = f->o + (i - q0) * d + e;
      const float *s = f->s + (i - q0) * T;
      vf sum = load_f32(o, TR_VL);
      for (int64_t j = k0; j < k1; j++)
        if (s[j - k0] != 0.0f) sum += s[j - k0] * load(p->type, call->v, j * p->ld_v + col + e, p->dim - e);
      store_f32(o, sum, TR_VL);
    }
}

static void forward_tile(const tr_attention_call *call, int head, int64_t q0, int64_t q1, int64_t k0, int64_t k1,
                         view sees, forward_state *f) {
  const tr_attention *p = call->p;
  const int64_t d = padded_dim(p->dim), col = (int64_t)(head / (p->head / p->head_kv)) * p->dim;
  load_transposed(p->type, call->k, p->ld_k, col, k0, k1, p->dim, f->kt);
  load_rows(p->type, call->v, p->ld_v, col, k0, k1, p->dim, 1.0f, k1 - k0, f->v);
  tile_product(q1 - q0, k1 - k0, p->dim, f->q, d, 1, f->kt, T, f->s, T, 0);
  forward_softmax(p, sees, head, q0, q1, k0, k1, f);
  tile_product(q1 - q0, p->dim, k1 - k0, f->s, T, 1, f->v, d, f->o, d, 1);
}

static void attention_forward(const tr_attention_call *call, int seq, int head, int64_t q0, int64_t q1,
                              float *scratch) {
  const tr_attention *p = call->p;
  const int64_t d = padded_dim(p->dim);
  forward_state f = {.q = scratch};
  f.o = f.q + T * d;
  f.s = f.o + T * d;
  f.kt = f.s + T * T;
  f.v = f.kt + T * d;
  forward_begin(call, head, q0, q1, &f);
  memset(f.s, 0, sizeof(float) * T * T);
  for (int64_t k0 = p->key_start[seq]; k0 < p->key_start[seq + 1]; k0 += T) {
    const int64_t k1 = tr__min(k0 + T, p->key_start[seq + 1]);
    const view sees = tile_view(p, q0, q1, k0, k1);
    if (sees == SEES_NONE) continue;
    if (q1 - q0 <= 2) {
      forward_thin(call, head, q0, q1, k0, k1, sees, &f);
    } else {
      forward_tile(call, head, q0, q1, k0, k1, sees, &f);
    }
  }
  forward_end(call, head, q0, q1, &f);
}

// --- backward ---

typedef struct backward_state { // one task's scratch; rows are padded to whole tiles
  float *q, *dout, *dq;         // [nquery, D] of the current query head
  float *dk, *dv;               // [nkey, D]
  float *delta, *lse;           // [nquery]
  float *kt, *vt, *k;           // [dim, T], [dim, T], [T, D]
  float *s, *dp;                // [T, T] each
} backward_state;

static void backward_layout(const tr_attention *p, int64_t nquery, int64_t nkey, float *scratch, backward_state *b) {
  const int64_t d = padded_dim(p->dim), rows = padded_rows(nquery), keys = padded_rows(nkey);
  float *at = scratch;
  b->q = at, at += rows * d;
  b->dout = at, at += rows * d;
  b->dq = at, at += rows * d;
  b->dk = at, at += keys * d;
  b->dv = at, at += keys * d;
  b->delta = at, at += rows;
  b->lse = at, at += rows;
  b->kt = at, at += T * d;
  b->vt = at, at += T * d;
  b->k = at, at += T * d;
  b->s = at, at += T * T;
  b->dp = at;
}

static void backward_begin_head(const tr_attention *p, const tr_attention_grad *g, int head, int64_t q0, int64_t q1,
                                backward_state *b) {
  const int64_t d = padded_dim(p->dim), rows = padded_rows(q1 - q0), col = (int64_t)head * p->dim;
  load_rows(p->type, g->q, p->ld_q, col, q0, q1, p->dim, p->scale, rows, b->q);
  load_rows(p->type, g->dout, p->ld_out, col, q0, q1, p->dim, 1.0f, rows, b->dout);
  memset(b->dq, 0, (size_t)(rows * d) * sizeof(float));
  for (int64_t i = q0; i < q1; i++) {
    b->delta[i - q0] = dot_row(p->dim, b->dout + (i - q0) * d, p->type, g->out, i * p->ld_out + col);
    b->lse[i - q0] = ((const float *)g->lse)[i * p->head + head];
  }
}

// S and dP of one tile become P (with dropout) and dS; whatever lies outside the visible part becomes 0.
static void backward_softmax(const tr_attention *p, view sees, int head, int64_t first, int64_t q0, int64_t q1,
                             int64_t k0, int64_t k1, backward_state *b) {
  const int64_t n = k1 - k0;
  float factor[MASK_MAX];
  for (int64_t i = q0; i < q1; i++) {
    float *s = b->s + (i - q0) * T, *dp = b->dp + (i - q0) * T;
    const float lse = b->lse[i - first], delta = b->delta[i - first];
    if (p->dropout.p > 0.0f) probability_factors(p, i, head, k0, (int)n, factor);
    for (int64_t j = 0; j < n; j += TR_VL) {
      vf e = exp_f32(load_f32(s + j, TR_VL) - lse), z = splat(1.0f);
      if (sees == SEES_SOME || n - j < TR_VL) e = (vf)((vi)e & visible(p, i, k0 + j, n - j));
      if (p->dropout.p > 0.0f) z = load_f32(factor + j, n - j);
      store_f32(dp + j, e * (z * load_f32(dp + j, TR_VL) - delta), TR_VL);
      store_f32(s + j, e * z, TR_VL);
    }
  }
}

static void backward_tile(const tr_attention *p, view sees, int head, int64_t first, int64_t q0, int64_t q1,
                          int64_t key_first, int64_t k0, int64_t k1, backward_state *b) {
  const int64_t d = padded_dim(p->dim), m = q1 - q0, n = k1 - k0, dim = p->dim;
  const float *q = b->q + (q0 - first) * d, *dout = b->dout + (q0 - first) * d;
  tile_product(m, n, dim, q, d, 1, b->kt, T, b->s, T, 0);
  tile_product(m, n, dim, dout, d, 1, b->vt, T, b->dp, T, 0);
  backward_softmax(p, sees, head, first, q0, q1, k0, k1, b);
  tile_product(n, dim, m, b->s, 1, T, dout, d, b->dv + (k0 - key_first) * d, d, 1);
  tile_product(n, dim, m, b->dp, 1, T, q, d, b->dk + (k0 - key_first) * d, d, 1);
  tile_product(m, dim, n, b->dp, T, 1, b->k, d, b->dq + (q0 - first) * d, d, 1);
}

static void backward_load_keys(const tr_attention *p, const tr_attention_grad *g, int64_t col, int64_t k0, int64_t k1,
                               backward_state *b) {
  load_transposed(p->type, g->k, p->ld_k, col, k0, k1, p->dim, b->kt);
  load_transposed(p->type, g->v, p->ld_v, col, k0, k1, p->dim, b->vt);
  load_rows(p->type, g->k, p->ld_k, col, k0, k1, p->dim, 1.0f, T, b->k);
}

static void backward_head(const tr_attention *p, const tr_attention_grad *g, int seq, int head, backward_state *b) {
  const int64_t q0 = p->query_start[seq], q1 = p->query_start[seq + 1], key0 = p->key_start[seq],
                key1 = p->key_start[seq + 1];
  const int64_t col = (int64_t)(head / (p->head / p->head_kv)) * p->dim;
  backward_begin_head(p, g, head, q0, q1, b);
  for (int64_t k0 = key0; k0 < key1; k0 += T) {
    const int64_t k1 = tr__min(k0 + T, key1);
    int loaded = 0;
    for (int64_t i0 = q0; i0 < q1; i0 += T) {
      const int64_t i1 = tr__min(i0 + T, q1);
      const view sees = tile_view(p, i0, i1, k0, k1);
      if (sees == SEES_NONE) continue;
      if (!loaded++) backward_load_keys(p, g, col, k0, k1, b);
      backward_tile(p, sees, head, q0, i0, i1, key0, k0, k1, b);
    }
  }
  store_rows(g->grad_type, g->dq, p->ld_q, (int64_t)head * p->dim, q0, q1, p->dim, p->scale, b->dq, g->add);
}

static void attention_backward(const tr_attention *p, const tr_attention_grad *g, int seq, int head_kv,
                               float *scratch) {
  const int64_t key0 = p->key_start[seq], key1 = p->key_start[seq + 1], col = (int64_t)head_kv * p->dim;
  const int share = p->head / p->head_kv;
  const size_t keys = (size_t)(padded_rows(key1 - key0) * padded_dim(p->dim)) * sizeof(float);
  backward_state b;
  backward_layout(p, p->query_start[seq + 1] - p->query_start[seq], key1 - key0, scratch, &b);
  memset(b.dk, 0, keys);
  memset(b.dv, 0, keys);
  memset(b.s, 0, sizeof(float) * 2 * T * T); // s and dp: padding must hold numbers
  for (int head = head_kv * share; head < (head_kv + 1) * share; head++) backward_head(p, g, seq, head, &b);
  store_rows(g->grad_type, g->dk, p->ld_k, col, key0, key1, p->dim, 1.0f, b.dk, g->add);
  store_rows(g->grad_type, g->dv, p->ld_v, col, key0, key1, p->dim, 1.0f, b.dv, g->add);
}

#endif
