// SPDX-License-Identifier: MIT
// Attention, backward, for a chunk of keys and a chunk of queries. Included by simd_body.h only.
//
// Per block of queries and tile of keys, scores again with queries side by side (see simd_attention.h):
//   S = K Q^T   dP = V dO^T   P = exp(S - lse)   dS = P (dP - delta)   delta = dO . O
//   dV += P dO   dK += dS Q   dQ += dS^T K
// With dropout factors z: P z in place of P for dV, z dP in place of dP. The sums are those of all tiles of a sequence and
// are kept by the caller; a chunk adds its share. Chunks that share neither queries nor keys may run at the same time.
#ifndef TRIREME_KERNEL_SIMD_ATTENTION_BACKWARD_H
#define TRIREME_KERNEL_SIMD_ATTENTION_BACKWARD_H

#include "kernel/simd_attention.h"

enum { CHUNK = TR_ATTENTION_CHUNK * T };

typedef struct backward_state { // one task's scratch
  float *kpanels, *vpanels, *k; // the chunk's keys: a tile after the other
  float *qt, *q, *dot, *dout;   // the block's queries: [dim, T] and [T, D], twice
  float *s, *dp;                // [T, T]
  float *lse, *delta;           // [T]
} backward_state;

static void backward_layout(int64_t dim, float *at, backward_state *f) {
  const int64_t d = padded_dim(dim), panels = TR_ATTENTION_CHUNK * (T * dim + TR_ATTENTION_LINE);
  f->kpanels = at, at += panels;
  f->vpanels = at, at += panels;
  f->k = at, at += CHUNK * d;
  f->qt = at, at += T * d;
  f->q = at, at += T * d;
  f->dot = at, at += T * d;
  f->dout = at, at += T * d;
  f->s = at, at += T * T;
  f->dp = at, at += T * T;
  f->lse = at, at += T;
  f->delta = at;
}

// Rows of a sequence that its chunk number `chunk` holds.
static void chunk_rows(const int32_t *start, int seq, int64_t chunk, int64_t *r0, int64_t *r1) {
  *r0 = tr__min(start[seq] + chunk * CHUNK, start[seq + 1]);
  *r1 = tr__min(*r0 + CHUNK, start[seq + 1]);
}

static void backward_keys(const tr_attention_chunk *c, int64_t k0, int64_t k1, const backward_state *f) {
  const tr_attention *p = c->p;
  const int64_t dim = p->dim, d = padded_dim(dim);
  for (int64_t j = 0; k0 + j * T < k1; j++) {
    const int64_t first = k0 + j * T, end = tr__min(first + T, k1), at = j * (T * dim + TR_ATTENTION_LINE);
    float *k = f->k + j * T * d, *v = f->q; // no query is there yet
    load_rows(p->type, rows_of(c->g->k, p->ld_k, c->head_kv, dim, first, end), k);
    load_rows(p->type, rows_of(c->g->v, p->ld_v, c->head_kv, dim, first, end), v);
    panels_of(k, dim, end - first, f->kpanels + at);
    panels_of(v, dim, end - first, f->vpanels + at);
  }
}

static void backward_queries(const tr_attention_chunk *c, const query_block *b, int head, const backward_state *f) {
  const tr_attention *p = c->p;
  const int64_t dim = p->dim, d = padded_dim(dim);
  head_rows q = rows_of(c->g->q, p->ld_q, head, dim, b->row, b->row + b->n);
  const head_rows dout = rows_of(c->g->dout, p->ld_out, head, dim, b->row, b->row + b->n);
  q.scale = p->scale;
  load_rows(p->type, q, f->q);
  load_rows(p->type, dout, f->dout);
  transposed_of(f->q, dim, b->n, f->qt);
  transposed_of(f->dout, dim, b->n, f->dot);
  for (int i = 0; i < b->n; i++) {
    const int64_t row = b->row + i;
    fetch_row(p->type, c->g->out, (row + ROWS_AHEAD) * p->ld_out + head * dim, dim, 0);
    f->delta[i] = mixed_dot(p->type, dim, f->dout + i * d, c->g->out, row * p->ld_out + head * dim);
    f->lse[i] = ((const float *)c->g->lse)[row * p->head + head];
  }
  for (int i = b->n; i < T; i++) f->delta[i] = f->lse[i] = 0.0f;
}

// A column of S and dP becomes P (with dropout) and dS.
INLINE void gradient_column(const query_block *b, const key_tile *k, int head, bounds seen, int whole, int drop,
                            int c, const backward_state *f) {
  float *s = f->s + c * TR_VL, *dp = f->dp + c * TR_VL;
  const vf lse = load_f32(f->lse + c * TR_VL, TR_VL), delta = load_f32(f->delta + c * TR_VL, TR_VL);
  column_dropout factors = column_dropout_of(b, head, c);
  for (int j = seen.lo; j < seen.hi; j++) {
    vf e = exp_f32(load_f32(s + j * T, TR_VL) - lse), z = splat(1.0f);
    if (!whole) e = (vf)((vi)e & visible(b, c, k->pos[j]));
    if (drop) z = column_factor(&factors, k->pos[j]);
    store_f32(dp + j * T, e * (z * load_f32(dp + j * T, TR_VL) - delta), TR_VL);
    store_f32(s + j * T, e * z, TR_VL);
  }
  zero_column(f->s, 0, seen.lo, c), zero_column(f->s, seen.hi, k->n, c);
  zero_column(f->dp, 0, seen.lo, c), zero_column(f->dp, seen.hi, k->n, c);
}

static void gradient_of(const query_block *b, const key_tile *k, int head, bounds seen, int whole, int c,
                        const backward_state *f) {
  if (b->p->dropout.p > 0.0f) {
    gradient_column(b, k, head, seen, whole, 1, c, f);
  } else if (whole) {
    gradient_column(b, k, head, seen, 1, 0, c, f);
  } else {
    gradient_column(b, k, head, seen, 0, 0, c, f);
  }
}

// The queries that see any of keys j0 .. j1 - 1 of a tile, as far as that is known.
static bounds seeing(const query_block *b, const key_tile *k, int j0, int j1) {
  if (!b->run || !k->run) return (bounds){0, b->n};
  const int64_t lo = (int64_t)k->least + j0 - b->last[0]; // from its own position on
  int64_t hi = b->n;
  while (hi > 0 && (int64_t)b->first[hi - 1] > (int64_t)k->least + tr__min(j1, k->n) - 1) hi--;
  return (bounds){clamped(lo, b->n), (int)hi};
}

static void backward_tile(const query_block *b, int head, const key_tile *k, int64_t j, const backward_state *f,
                          float *dq, float *dk, float *dv) {
  const int64_t dim = b->p->dim, d = padded_dim(dim), at = j * (T * dim + TR_ATTENTION_LINE);
  int whole;
  for (int c = 0; c * TR_VL < b->n; c += 2) {
    const int wide = (c + 1) * TR_VL < b->n;
    const bounds seen = seen_by(b, k, c * TR_VL, (c + 2) * TR_VL, &whole);
    score_columns(dim, seen, c, f->kpanels + at, f->qt, f->s, wide);
    score_columns(dim, seen, c, f->vpanels + at, f->dot, f->dp, wide);
    gradient_of(b, k, head, seen, whole, c, f);
    if (wide) gradient_of(b, k, head, seen, whole, c + 1, f);
  }
  for (int i = 0; i < k->n; i += PANEL) {
    const bounds r = seeing(b, k, i, i + PANEL);
    if (r.lo >= r.hi) continue;
    add_product(d, r.hi - r.lo, f->s + i * T + r.lo, f->dout + r.lo * d, dv + i * d);
    add_product(d, r.hi - r.lo, f->dp + i * T + r.lo, f->q + r.lo * d, dk + i * d);
  }
  for (int i = 0; i < b->n; i += PANEL) {
    const bounds seen = seen_by(b, k, i, i + PANEL, &whole);
    add_product_transposed(d, seen.hi - seen.lo, f->dp + seen.lo * T + i, f->k + (j * T + seen.lo) * d, dq + i * d);
  }
}

static int64_t rounded_rows(int64_t n) { return tr__ceil_div(n, T) * T; }

static void attention_backward(const tr_attention_chunk *c, float *scratch) {
  const tr_attention *p = c->p;
  const int64_t d = padded_dim(p->dim);
  const int64_t rows = rounded_rows(p->query_start[c->seq + 1] - p->query_start[c->seq]);
  const int share = p->head / p->head_kv;
  int64_t q0, q1, k0, k1;
  backward_state f;
  key_tile k[TR_ATTENTION_CHUNK];
  chunk_rows(p->query_start, c->seq, c->query, &q0, &q1);
  chunk_rows(p->key_start, c->seq, c->key, &k0, &k1);
  backward_layout(p->dim, scratch, &f);
  backward_keys(c, k0, k1, &f);
  for (int64_t j = 0; k0 + j * T < k1; j++) k[j] = key_tile_of(p, k0 + j * T, tr__min(k0 + (j + 1) * T, k1));
  for (int s = 0; s < share; s++)
    for (int64_t i = 0; q0 + i * T < q1; i++) {
      const int head = c->head_kv * share + s;
      float *dq = c->dq + (s * rows + c->query * CHUNK + i * T) * d;
      query_block b;
      block_open(&b, p, q0 + i * T, tr__min(q0 + (i + 1) * T, q1));
      int loaded = 0, whole;
      for (int64_t j = 0; k0 + j * T < k1; j++) {
        const bounds seen = seen_by(&b, &k[j], 0, b.n, &whole);
        const int64_t at = (c->key * CHUNK + j * T) * d;
        if (seen.lo >= seen.hi) continue;
        if (!loaded++) backward_queries(c, &b, head, &f);
        backward_tile(&b, head, &k[j], j, &f, dq, c->dk + at, c->dv + at);
      }
    }
}

static void attention_clear(const tr_attention_chunk *c) {
  const tr_attention *p = c->p;
  const int64_t d = padded_dim(p->dim);
  const int64_t rows = rounded_rows(p->query_start[c->seq + 1] - p->query_start[c->seq]);
  int64_t q0, q1, k0, k1;
  chunk_rows(p->query_start, c->seq, c->query, &q0, &q1);
  chunk_rows(p->key_start, c->seq, c->key, &k0, &k1);
  for (int s = 0; s < p->head / p->head_kv; s++)
    memset(c->dq + (s * rows + c->query * CHUNK) * d, 0, (size_t)(rounded_rows(q1 - q0) * d) * sizeof(float));
  memset(c->dk + c->key * CHUNK * d, 0, (size_t)(rounded_rows(k1 - k0) * d) * sizeof(float));
  memset(c->dv + c->key * CHUNK * d, 0, (size_t)(rounded_rows(k1 - k0) * d) * sizeof(float));
}

static void attention_store(const tr_attention_chunk *c) {
  const tr_attention *p = c->p;
  const tr_attention_grad *g = c->g;
  const int64_t dim = p->dim, d = padded_dim(dim), col = c->head_kv * dim;
  const int64_t rows = rounded_rows(p->query_start[c->seq + 1] - p->query_start[c->seq]);
  const int share = p->head / p->head_kv;
  int64_t q0, q1, k0, k1;
  chunk_rows(p->query_start, c->seq, c->query, &q0, &q1);
  chunk_rows(p->key_start, c->seq, c->key, &k0, &k1);
  for (int s = 0; s < share; s++)
    store_rows(g->grad_type, q1 - q0, dim, p->scale, c->dq + (s * rows + c->query * CHUNK) * d, g->dq,
               q0 * p->ld_q + col * share + s * dim, p->ld_q, g->add);
  store_rows(g->grad_type, k1 - k0, dim, 1.0f, c->dk + c->key * CHUNK * d, g->dk, k0 * p->ld_k + col, p->ld_k,
             g->add);
  store_rows(g->grad_type, k1 - k0, dim, 1.0f, c->dv + c->key * CHUNK * d, g->dv, k0 * p->ld_v + col, p->ld_v,
             g->add);
}

#endif
