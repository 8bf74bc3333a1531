// SPDX-License-Identifier: MIT
// Attention, forward, for a few blocks of query rows of one head. Included by simd_body.h only; simd_attention_backward.h
// is the other direction and takes from here what queries see of keys.
//
// Blocks of T = TR_ATTENTION_TILE queries meet tiles of T keys (Dao, Fu, Ermon, Rudra, Re, "FlashAttention", 2022), all
// in f32 scratch:
//   S = K Q^T [key][query]     P = exp(S - max), online     O = O shrink + P^T V
// Scores lie with queries side by side in a vector: row maxima, sums, masks and dropout need no step across lanes, and
// both products read P and K as they are. Q is scaled when loaded. A tile of keys is copied when it is first wanted and
// serves all queries of its sequence that the same worker meets.
//
// What no query of a block sees is not worked on: tiles, panels of keys for a pair of columns, and keys for a panel of
// queries. The exact bounds take positions that ascend by one, as they do within a sequence; others cost whole tiles.
#ifndef TRIREME_KERNEL_SIMD_ATTENTION_H
#define TRIREME_KERNEL_SIMD_ATTENTION_H

#include "kernel/simd_tile.h"

// A block of queries. Entries behind the last one see nothing.
typedef struct query_block {
  const tr_attention *p;
  int64_t row;                                         // first
  int n, run;                                          // run: positions ascend by one
  int32_t first[T], last[T];                           // positions that each sees
  uint32_t sample_low[T], sample_high[T], position[T]; // for dropout
} query_block;

typedef struct key_tile {
  const int32_t *pos;
  int n, run;
  int32_t least, most;
} key_tile;

typedef struct bounds {
  int lo, hi;
} bounds;

// The first position that a query at `position` sees.
static int32_t first_seen(const tr_attention *p, int32_t position) {
  const int64_t before = (int64_t)position - INT32_MIN; // positions there are
  return p->window == 0 || p->window > before ? INT32_MIN : (int32_t)(position - p->window + 1);
}

static int ascends(const int32_t *pos, int n) {
  int run = 1;
  for (int i = 1; i < n; i++) run &= pos[i] == (int32_t)((uint32_t)pos[0] + (uint32_t)i);
  return run;
}

static void block_open(query_block *b, const tr_attention *p, int64_t q0, int64_t q1) {
  b->p = p, b->row = q0, b->n = (int)(q1 - q0), b->run = ascends(p->query_pos + q0, b->n);
  for (int i = 0; i < T; i++) {
    b->first[i] = i < b->n ? first_seen(p, p->query_pos[q0 + i]) : INT32_MAX;
    b->last[i] = i < b->n ? p->query_pos[q0 + i] : INT32_MIN;
  }
  if (p->dropout.p <= 0.0f) return;
  for (int i = 0; i < T; i++) {
    const int64_t row = q0 + (i < b->n ? i : 0);
    b->sample_low[i] = (uint32_t)p->dropout.sample[row];
    b->sample_high[i] = (uint32_t)((uint64_t)p->dropout.sample[row] >> 32);
    b->position[i] = (uint32_t)p->dropout.position[row];
  }
}

static key_tile key_tile_of(const tr_attention *p, int64_t k0, int64_t k1) {
  key_tile k = {.pos = p->key_pos + k0, .n = (int)(k1 - k0), .least = INT32_MAX, .most = INT32_MIN};
  k.run = ascends(k.pos, k.n);
  for (int j = 0; j < k.n; j++) {
    k.least = k.pos[j] < k.least ? k.pos[j] : k.least;
    k.most = k.pos[j] > k.most ? k.pos[j] : k.most;
  }
  return k;
}

static int clamped(int64_t x, int n) { return x < 0 ? 0 : x > n ? n : (int)x; }

// The keys that any of queries i0 .. i1 - 1 sees, as far as that is known; *whole: each of them sees the whole tile.
static bounds seen_by(const query_block *b, const key_tile *k, int i0, int i1, int *whole) {
  int32_t first = INT32_MAX, last = INT32_MIN, latest = INT32_MIN, earliest = INT32_MAX;
  for (int i = i0; i < i1 && i < b->n; i++) {
    first = b->first[i] < first ? b->first[i] : first;
    last = b->last[i] > last ? b->last[i] : last;
    latest = b->first[i] > latest ? b->first[i] : latest;
    earliest = b->last[i] < earliest ? b->last[i] : earliest;
  }
  *whole = latest <= k->least && earliest >= k->most;
  if (last < k->least || first > k->most) return (bounds){0, 0};
  if (!k->run) return (bounds){0, k->n};
  return (bounds){clamped((int64_t)first - k->least, k->n), clamped((int64_t)last - k->least + 1, k->n)};
}

// Lanes of column c that see a key at `position`.
INLINE vi visible(const query_block *b, int c, int32_t position) {
  vi first, last;
  memcpy(&first, b->first + c * TR_VL, sizeof first);
  memcpy(&last, b->last + c * TR_VL, sizeof last);
  return (position <= last) & (position >= first);
}

// Dropout of one column: the words of four neighbouring features, drawn when the first of them is wanted.
typedef struct column_dropout {
  keep_rule keep;
  tr_rng_key key;
  vu counter[4];
  int64_t base, block; // of the words
  vu word[4];
} column_dropout;

static column_dropout column_dropout_of(const query_block *b, int head, int c) {
  column_dropout d = {.base = head * b->p->dropout_stride, .block = -1};
  if (b->p->dropout.p <= 0.0f) return d;
  d.keep = keep_of(&b->p->dropout);
  d.key = b->p->dropout.key;
  memcpy(&d.counter[0], b->sample_low + c * TR_VL, sizeof d.counter[0]);
  memcpy(&d.counter[1], b->sample_high + c * TR_VL, sizeof d.counter[1]);
  memcpy(&d.counter[2], b->position + c * TR_VL, sizeof d.counter[2]);
  return d;
}

INLINE vf column_factor(column_dropout *d, int32_t position) {
  const uint32_t feature = (uint32_t)(d->base + position);
  if (d->block != feature / 4) {
    d->block = feature / 4;
    d->counter[3] = (vu){0} + feature / 4;
    random_words(d->key, d->counter, d->word);
  }
  return keep_lanes(d->keep, d->word[feature % 4]);
}

// S of a pair of columns (or of one), as far as `seen` goes; whole panels.
static void score_columns(int64_t dim, bounds seen, int c, const float *panels, const float *transposed, float *s,
                          int wide) {
  for (int j = seen.lo / PANEL * PANEL; j < seen.hi; j += PANEL)
    column_product(dim, panels + j * dim, transposed + c * TR_VL, s + j * T + c * TR_VL, wide);
}

static void zero_column(float *s, int j0, int j1, int c) {
  for (int j = j0; j < j1; j++) store_f32(s + j * T + c * TR_VL, (vf){0}, TR_VL);
}

// --- forward ---

typedef struct forward_state { // one task's scratch
  float *panels, *v;           // the copied keys and values: a tile after the other
  float *q, *o, *s;            // [dim, T], [T, D], [T, T]
  float *rows;                 // [T, D]
  float *max, *sum;            // [T]
} forward_state;

// Largest score of a column of S; what is not visible becomes -infinity.
INLINE vf column_top(const query_block *b, const key_tile *k, bounds seen, int whole, int c, float *s, vf top) {
  const vf none = splat(-__builtin_inff());
  vf other = none;
  int j = seen.lo;
  if (whole) {
    for (; j + 2 <= seen.hi; j += 2) {
      top = max_f32(top, load_f32(s + j * T, TR_VL));
      other = max_f32(other, load_f32(s + (j + 1) * T, TR_VL));
    }
  }
  for (; j < seen.hi; j++) {
    const vf v = select_f32(visible(b, c, k->pos[j]), load_f32(s + j * T, TR_VL), none);
    store_f32(s + j * T, v, TR_VL);
    top = max_f32(top, v);
  }
  return max_f32(other, top);
}

INLINE vf column_exp(bounds seen, float *s, vf top) {
  vf sum = {0}, other = {0};
  int j = seen.lo;
  for (; j + 2 <= seen.hi; j += 2) {
    const vf e = exp_f32(load_f32(s + j * T, TR_VL) - top), f = exp_f32(load_f32(s + (j + 1) * T, TR_VL) - top);
    store_f32(s + j * T, e, TR_VL);
    store_f32(s + (j + 1) * T, f, TR_VL);
    sum += e, other += f;
  }
  if (j < seen.hi) {
    const vf e = exp_f32(load_f32(s + j * T, TR_VL) - top);
    store_f32(s + j * T, e, TR_VL);
    sum += e;
  }
  return sum + other;
}

// O of a column's queries shrinks as their maxima grow.
static void shrink_rows(const query_block *b, int c, vf shrink, float *o) {
  const int64_t d = padded_dim(b->p->dim);
  float factor[TR_VL];
  memcpy(factor, &shrink, sizeof factor);
  for (int i = c * TR_VL; i < (c + 1) * TR_VL && i < b->n; i++) {
    const float by = factor[i - c * TR_VL];
    if (by == 1.0f) continue;
    for (int64_t e = 0; e < d; e += TR_VL) store_f32(o + i * d + e, load_f32(o + i * d + e, TR_VL) * by, TR_VL);
  }
}

// A column of scores becomes probabilities relative to the running maximum.
static void softmax_column(const query_block *b, const key_tile *k, int head, bounds seen, int whole, int c,
                           forward_state *f) {
  float *s = f->s + c * TR_VL;
  const vf none = splat(-__builtin_inff()), before = load_f32(f->max + c * TR_VL, TR_VL);
  const vf max = column_top(b, k, seen, whole, c, s, before), top = select_f32(max == none, (vf){0}, max);
  const vf shrink = select_f32(max == before, splat(1.0f), exp_f32(before - top));
  const vf sum = column_exp(seen, s, top);
  store_f32(f->sum + c * TR_VL, load_f32(f->sum + c * TR_VL, TR_VL) * shrink + sum, TR_VL);
  store_f32(f->max + c * TR_VL, max, TR_VL);
  shrink_rows(b, c, shrink, f->o);
  zero_column(f->s, 0, seen.lo, c);
  zero_column(f->s, seen.hi, k->n, c);
  if (b->p->dropout.p <= 0.0f) return;
  column_dropout drop = column_dropout_of(b, head, c);
  for (int j = seen.lo; j < seen.hi; j++)
    store_f32(s + j * T, load_f32(s + j * T, TR_VL) * column_factor(&drop, k->pos[j]), TR_VL);
}

// Of one or two queries (generation) no tile is made: each key is read once.
INLINE int is_thin(const query_block *b) { return b->n <= 2; }

static void forward_begin(const tr_attention_call *call, const query_block *b, int head, forward_state *f) {
  const tr_attention *p = b->p;
  const int64_t d = padded_dim(p->dim);
  const int carried = call->running.max && !p->first;
  head_rows rows = rows_of(call->q, p->ld_q, head, p->dim, b->row, b->row + b->n);
  rows.scale = p->scale;
  load_rows(p->type, rows, is_thin(b) ? f->q : f->rows);
  if (!is_thin(b)) transposed_of(f->rows, p->dim, b->n, f->q);
  memset(f->o, 0, (size_t)(tr__ceil_div(b->n, PANEL) * PANEL * d) * sizeof *f->o);
  for (int i = 0; i < T; i++) {
    const int64_t row = (b->row + i) * p->head + head;
    const int take = carried && i < b->n;
    f->max[i] = take ? ((const float *)call->running.max)[row] : -__builtin_inff();
    f->sum[i] = take ? ((const float *)call->running.sum)[row] : 0.0f;
    if (take) memcpy(f->o + i * d, (const float *)call->running.out + row * p->dim, (size_t)p->dim * sizeof *f->o);
  }
}

// A query that saw no key: zeros, and the logarithm of an empty sum.
static void forward_result(const tr_attention_call *call, const query_block *b, int head, const forward_state *f) {
  const tr_attention *p = b->p;
  const int64_t d = padded_dim(p->dim), at = b->row * p->ld_out + (int64_t)head * p->dim;
  for (int i = 0; i < b->n && i < ROWS_AHEAD; i++) fetch_row(p->type, call->out, at + i * p->ld_out, p->dim, 1);
  for (int i = 0; i < b->n; i += TR_VL) {
    const vf sum = load_f32(f->sum + i, TR_VL), lse = load_f32(f->max + i, TR_VL) + log_lanes(sum),
             share = 1.0f / sum;
    for (int lane = 0; lane < TR_VL && i + lane < b->n; lane++) {
      const int empty = sum[lane] == 0.0f;
      call->lse[(b->row + i + lane) * p->head + head] = empty ? -__builtin_inff() : lse[lane];
      store_rows(p->type, 1, p->dim, empty ? 0.0f : share[lane], f->o + (i + lane) * d, call->out,
                 at + (i + lane) * p->ld_out, p->ld_out, 0);
    }
  }
}

static void forward_end(const tr_attention_call *call, const query_block *b, int head, const forward_state *f) {
  const tr_attention *p = b->p;
  const int64_t d = padded_dim(p->dim);
  if (p->last) forward_result(call, b, head, f);
  if (!call->running.max) return;
  for (int i = 0; i < b->n; i++) {
    const int64_t row = (b->row + i) * p->head + head;
    ((float *)call->running.max)[row] = f->max[i];
    ((float *)call->running.sum)[row] = f->sum[i];
    memcpy((float *)call->running.out + row * p->dim, f->o + i * d, (size_t)p->dim * sizeof *f->o);
  }
}

static void forward_thin(const tr_attention_call *call, const query_block *b, int head, int64_t k0, const key_tile *k,
                         forward_state *f) {
  const tr_attention *p = b->p;
  const int64_t d = padded_dim(p->dim), col = (int64_t)(head / (p->head / p->head_kv)) * p->dim;
  int whole;
  const bounds seen = seen_by(b, k, 0, b->n, &whole);
  for (int j = seen.lo; j < seen.hi; j++) {
    store_f32(f->s + j * T, (vf){0}, TR_VL);
    for (int i = 0; i < b->n; i++)
      f->s[j * T + i] = mixed_dot(p->type, p->dim, f->q + i * d, call->k, (k0 + j) * p->ld_k + col);
  }
  softmax_column(b, k, head, seen, whole, 0, f);
  for (int i = 0; i < b->n; i++)
    for (int j = seen.lo; j < seen.hi; j++)
      if (f->s[j * T + i] != 0.0f)
        add_scaled(p->type, p->dim, f->s[j * T + i], call->v, (k0 + j) * p->ld_v + col, f->o + i * d);
}

static void forward_tile(const query_block *b, int head, const key_tile *k, const float *panels, const float *v,
                         forward_state *f) {
  const int64_t dim = b->p->dim, d = padded_dim(dim);
  int whole;
  for (int c = 0; c * TR_VL < b->n; c += 2) {
    const int wide = (c + 1) * TR_VL < b->n;
    const bounds seen = seen_by(b, k, c * TR_VL, (c + 2) * TR_VL, &whole);
    score_columns(dim, seen, c, panels, f->q, f->s, wide);
    softmax_column(b, k, head, seen, whole, c, f);
    if (wide) softmax_column(b, k, head, seen, whole, c + 1, f);
  }
  for (int i = 0; i < b->n; i += PANEL) {
    const bounds seen = seen_by(b, k, i, i + PANEL, &whole);
    add_product_transposed(d, seen.hi - seen.lo, f->s + seen.lo * T + i, v + seen.lo * d, f->o + i * d);
  }
}

// One block against the tiles of a chunk of keys that it sees.
static void forward_chunk(const tr_attention_call *call, const query_block *b, int head, int64_t k0, int64_t k1,
                          tr_attention_copied *copied, forward_state *f) {
  const tr_attention *p = call->p;
  const int64_t dim = p->dim, d = padded_dim(dim);
  const int head_kv = head / (p->head / p->head_kv);
  for (int tile = 0; k0 + tile * T < k1; tile++) {
    const int64_t first = k0 + tile * T, end = tr__min(first + T, k1);
    const key_tile k = key_tile_of(p, first, end);
    int whole;
    const bounds seen = seen_by(b, &k, 0, b->n, &whole);
    if (seen.lo >= seen.hi) continue;
    if (is_thin(b)) {
      forward_thin(call, b, head, first, &k, f);
      continue;
    }
    float *panels = f->panels + tile * (T * dim + TR_ATTENTION_LINE), *v = f->v + tile * T * d;
    if (!(copied->tiles >> tile & 1)) {
      copied->tiles |= 1u << tile;
      load_rows(p->type, rows_of(call->k, p->ld_k, head_kv, dim, first, end), f->rows);
      panels_of(f->rows, dim, end - first, panels);
      load_rows(p->type, rows_of(call->v, p->ld_v, head_kv, dim, first, end), v);
    }
    forward_tile(b, head, &k, panels, v, f);
  }
}

static float *forward_layout(int64_t dim, float *at, forward_state *f) {
  const int64_t d = padded_dim(dim);
  f->q = at, at += T * d;
  f->o = at, at += T * d;
  f->max = at, at += T;
  f->sum = at, at += T;
  return at;
}

// Queries q0 .. q1 - 1, at most TR_ATTENTION_GROUP blocks. Chunks of keys are the outer loop, so that a copy serves all.
static void attention_forward(const tr_attention_call *call, int seq, int head, int64_t q0, int64_t q1,
                              tr_attention_copied *copied, float *scratch) {
  const tr_attention *p = call->p;
  const int64_t dim = p->dim, d = padded_dim(dim);
  const int blocks = (int)tr__ceil_div(q1 - q0, T), head_kv = head / (p->head / p->head_kv);
  query_block b[TR_ATTENTION_GROUP];
  forward_state f[TR_ATTENTION_GROUP];
  float *s = scratch, *panels = s + T * T, *v = panels + TR_ATTENTION_KEYS * (T * dim + TR_ATTENTION_LINE),
        *rows = v + TR_ATTENTION_KEYS * T * d, *at = rows + T * d;
  for (int i = 0; i < blocks; i++) {
    f[i] = (forward_state){.s = s, .panels = panels, .v = v, .rows = rows};
    at = forward_layout(dim, at, &f[i]);
    block_open(&b[i], p, q0 + i * T, tr__min(q0 + (i + 1) * T, q1));
    forward_begin(call, &b[i], head, &f[i]);
  }
  const int64_t end = p->key_start[seq + 1];
  for (int64_t k0 = p->key_start[seq]; k0 < end; k0 += TR_ATTENTION_KEYS * T) {
    if (copied->first_key != k0 || copied->head_kv != head_kv)
      *copied = (tr_attention_copied){.first_key = k0, .head_kv = head_kv};
    for (int i = 0; i < blocks; i++)
      forward_chunk(call, &b[i], head, k0, tr__min(k0 + TR_ATTENTION_KEYS * T, end), copied, &f[i]);
  }
  for (int i = 0; i < blocks; i++) forward_end(call, &b[i], head, &f[i]);
}

#endif
