// SPDX-License-Identifier: MIT
// Cases of attention for tests of a table: sequences, heads and options, each direction compared with the reference.
//
// Not a test itself: test_cpu_fused.c runs them on the processor's vectors, test_amx_attention.c on emulated tiles.
#ifndef TRIREME_TESTS_ATTENTION_CASES_H
#define TRIREME_TESTS_ATTENTION_CASES_H

#include "kernel/kernel_conformance.h"

#define COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))

// How many query and key rows each sequence has, and where they lie in the document.
typedef struct layout {
  const char *name;
  int nseq;
  int32_t nquery[4], nkey[4];
  int32_t query_first[4]; // position of the first query row; keys start at 0
  int shuffle;            // exchange keys, so that positions do not ascend
  int64_t window;
} layout;

enum { ATTENTION_TILE = 96 }; // of queries and keys, in the CPU table

static const layout LAYOUTS[] = {
    {"none", 0, {0}, {0}, {0}, 0, 0},
    {"one row", 1, {1}, {1}, {0}, 0, 0},
    {"no query", 2, {0, 3}, {4, 3}, {0, 0}, 0, 0},
    {"no key", 2, {3, 2}, {0, 2}, {0, 0}, 0, 0},
    {"three", 3, {5, 1, 17}, {5, 1, 17}, {0, 0, 0}, 0, 0},
    {"long", 1, {100}, {100}, {0}, 0, 0},
    {"two long", 2, {64, 65}, {64, 65}, {0, 0}, 0, 0},
    {"late queries", 2, {7, 33}, {40, 70}, {33, 20}, 0, 0},
    {"early queries", 1, {12}, {9}, {-5}, 0, 0}, // the first five see nothing
    {"any order", 2, {31, 9}, {31, 20}, {0, 4}, 1, 0},
    {"many keys", 1, {3}, {257}, {254}, 0, 0},
    {"window of one", 3, {5, 1, 17}, {5, 1, 17}, {0, 0, 0}, 0, 1},
    {"window of three", 2, {64, 65}, {64, 65}, {0, 0}, 0, 3},
    {"window of a tile", 1, {200}, {200}, {0}, 0, ATTENTION_TILE},
    {"window off the tiles", 2, {10, 200}, {10, 200}, {0, 0}, 0, 33},
    {"window in any order", 2, {31, 9}, {31, 20}, {0, 4}, 1, 5},
    {"window on long keys", 2, {7, 33}, {340, 70}, {333, 20}, 0, 40},
    {"window of one query", 1, {1}, {257}, {256}, 0, 30},
    {"window at the start", 1, {12}, {9}, {-5}, 0, 4},
    {"window beyond the keys", 2, {7, 1}, {9, 200}, {20, 250}, 0, 3}, // no query sees a key
    {"window larger than all", 1, {100}, {100}, {0}, 0, INT64_MAX},
};

static const struct {
  int head, head_kv, dim;
} HEADS[] = {{1, 1, 1}, {3, 3, 5}, {4, 2, 16}, {6, 1, 33}, {2, 2, 64}, {3, 1, 96}, {1, 1, 80}, {2, 1, 128}};

typedef struct attention_case {
  tr_attention p, part[2]; // over all keys, and over the keys split in two
  const void *q, *k, *v;
  const void *k_part[2], *v_part[2];
  void *running[3];
  const void *dout;
  void *out, *lse;
  tr_dtype grad_type;
  int add, split;
  int64_t nquery, nkey;
} attention_case;

static inline int32_t *starts(conform_bench *b, int nseq, const int32_t *length) {
  int32_t *start = bench_keep(b, exact_malloc((size_t)(nseq + 1) * sizeof *start));
  start[0] = 0;
  for (int n = 0; n < nseq; n++) start[n + 1] = start[n] + length[n];
  return start;
}

static inline int32_t *positions(conform_bench *b, int nseq, const int32_t *start, const int32_t *first,
                                 int shuffle) {
  int32_t *pos = bench_keep(b, exact_malloc((size_t)start[nseq] * sizeof *pos));
  for (int n = 0; n < nseq; n++) {
    int32_t length = start[n + 1] - start[n];
    for (int32_t i = 0; i < length; i++) {
      // 7 has no common factor with the lengths that are shuffled.
      pos[start[n] + i] = (first ? first[n] : 0) + (shuffle ? i * 7 % length : i);
    }
  }
  return pos;
}

static inline void attention_rows(conform_bench *b, attention_case *a, const layout *l) {
  tr_attention *p = &a->p;
  p->nseq = l->nseq;
  p->window = l->window;
  p->query_start = starts(b, l->nseq, l->nquery);
  p->key_start = starts(b, l->nseq, l->nkey);
  p->query_pos = positions(b, l->nseq, p->query_start, l->query_first, 0);
  p->key_pos = positions(b, l->nseq, p->key_start, NULL, l->shuffle);
  a->nquery = p->query_start[l->nseq];
  a->nkey = p->key_start[l->nseq];
}

// The two halves of an array of key rows: within each sequence the first third of the keys, and the others.
static inline void split_rows(conform_bench *b, attention_case *a, const void *rows, int64_t nbyte,
                              const void *part[2]) {
  for (int half = 0; half < 2; half++) {
    const int32_t *start = a->part[half].key_start;
    char *to = bench_keep(b, exact_malloc((size_t)(start[a->p.nseq] * nbyte)));
    for (int n = 0; n < a->p.nseq; n++) {
      int64_t skip = half ? a->part[0].key_start[n + 1] - a->part[0].key_start[n] : 0;
      memcpy(to + start[n] * nbyte, (const char *)rows + (a->p.key_start[n] + skip) * nbyte,
             (size_t)((start[n + 1] - start[n]) * nbyte));
    }
    part[half] = to;
  }
}

static inline void attention_split(conform_bench *b, attention_case *a, const layout *l) {
  int32_t length[2][4];
  for (int n = 0; n < l->nseq; n++) {
    length[0][n] = l->nkey[n] / 3;
    length[1][n] = l->nkey[n] - length[0][n];
  }
  const void *pos[2];
  for (int half = 0; half < 2; half++) {
    a->part[half] = a->p;
    a->part[half].first = half == 0;
    a->part[half].last = half == 1;
    a->part[half].key_start = starts(b, l->nseq, length[half]);
  }
  split_rows(b, a, a->p.key_pos, sizeof(int32_t), pos);
  for (int half = 0; half < 2; half++) a->part[half].key_pos = pos[half];
  int64_t size = (int64_t)tr_dtype_size(a->p.type);
  split_rows(b, a, a->k, a->p.ld_k * size, a->k_part);
  split_rows(b, a, a->v, a->p.ld_v * size, a->v_part);
  int64_t state = a->nquery * a->p.head;
  a->running[0] = random_input(b, TR_F32, state, 6, 1, 0);
  a->running[1] = random_input(b, TR_F32, state, 7, 1, 0);
  a->running[2] = random_input(b, TR_F32, state * a->p.dim, 8, 1, 0);
}

// Everything that both directions need. `option` bits: 0 dropout, 1 padded rows, 2 keys split over two calls.
static inline void attention_inputs(conform_bench *b, attention_case *a, const layout *l, int heads, tr_dtype type,
                                    int option) {
  int dim = HEADS[heads].dim, pad = option & 2 ? 3 : 0;
  *a = (attention_case){.split = option >> 2 & 1};
  a->p = (tr_attention){.head = HEADS[heads].head, .head_kv = HEADS[heads].head_kv, .dim = dim, .type = type};
  a->p.first = a->p.last = 1;
  a->p.scale = 1 / sqrtf((float)dim);
  attention_rows(b, a, l);
  a->p.ld_q = a->p.ld_out = a->p.head * dim + pad;
  a->p.ld_k = a->p.head_kv * dim + 2 * pad;
  a->p.ld_v = a->p.head_kv * dim + pad;
  a->q = random_input(b, type, a->nquery * a->p.ld_q, 1, 1, 0);
  a->k = random_input(b, type, a->nkey * a->p.ld_k, 2, 1, 0);
  a->v = random_input(b, type, a->nkey * a->p.ld_v, 3, 1, 0);
  a->dout = random_input(b, type, a->nquery * a->p.ld_out, 4, 1, 0);
  a->p.dropout = random_dropout(b, a->nquery, option & 1 ? 0.25f : 0, 11);
  a->p.dropout_stride = 400;
  if (a->split) attention_split(b, a, l);
}

static inline void run_attention_forward(const tr_compute *c, const void *context, void *const *out) {
  const attention_case *a = context;
  const tr_kernels *k = c->kernels;
  if (!a->split) {
    assert_int_equal(k->attention_forward(c, &a->p, a->q, a->k, a->v, NULL, out[0], out[1]), TR_OK);
    return;
  }
  tr_attention_running running = {a->running[0], a->running[1], a->running[2]};
  for (int half = 0; half < 2; half++) {
    assert_int_equal(
        k->attention_forward(c, &a->part[half], a->q, a->k_part[half], a->v_part[half], &running, out[0], out[1]),
        TR_OK);
  }
}

// With split keys, dq collects both halves; dk and dv of both halves lie one behind the other, so that the
// halves together are as large as the whole, and the first call's `add` must not disturb the second's part.
static inline void run_attention_backward(const tr_compute *c, const void *context, void *const *out) {
  const attention_case *a = context;
  tr_attention_grad g = {a->q, a->k, a->v, a->out, a->lse, a->dout, out[0], out[1], out[2], a->grad_type, a->add};
  if (!a->split) {
    assert_int_equal(c->kernels->attention_backward(c, &a->p, &g), TR_OK);
    return;
  }
  size_t size = tr_dtype_size(a->grad_type);
  size_t first = (size_t)a->part[0].key_start[a->p.nseq];
  for (int half = 0; half < 2; half++) {
    g.k = a->k_part[half];
    g.v = a->v_part[half];
    g.dk = (char *)out[1] + (half ? first * (size_t)a->p.ld_k * size : 0);
    g.dv = (char *)out[2] + (half ? first * (size_t)a->p.ld_v * size : 0);
    assert_int_equal(c->kernels->attention_backward(c, &a->part[half], &g), TR_OK);
  }
}

static inline size_t scratch_attention(const tr_kernels *kernels, const void *context, int nthread) {
  const attention_case *a = context;
  if (!a->split) return kernels->attention_scratch(&a->p, nthread);
  size_t first = kernels->attention_scratch(&a->part[0], nthread);
  size_t second = kernels->attention_scratch(&a->part[1], nthread);
  return first > second ? first : second;
}

static inline void attention_label(char label[200], const char *direction, const attention_case *a, const layout *l,
                                   int option) {
  snprintf(label, 200, "attention %s '%s' head %d/%d dim %d %s dropout %d padded %d split %d option %d", direction,
           l->name, a->p.head, a->p.head_kv, a->p.dim, tr_dtype_name(a->p.type), option & 1, option >> 1 & 1,
           a->split, option);
}

static inline void check_attention_forward(conform_bench *b, const layout *l, int heads, tr_dtype type, int option) {
  attention_case a;
  attention_inputs(b, &a, l, heads, type, option);
  conform_case t = {.run = run_attention_forward, .scratch = scratch_attention, .context = &a, .nout = 2};
  t.out[0] = (conform_out){type, a.nquery * a.p.ld_out, tolerance_of(type), FILL_NAN, 0};
  t.out[1] = (conform_out){TR_F32, a.nquery * a.p.head, TOLERANCE_F32, FILL_NAN, 1};
  attention_label(t.label, "forward", &a, l, option);
  conform(b, &t);
}

// Option bits from 3 on: 3 add, 4 gradients in the wide type.
static inline void check_attention_backward(conform_bench *b, const layout *l, int heads, tr_dtype type, int option) {
  attention_case a;
  attention_inputs(b, &a, l, heads, type, option);
  a.add = option >> 3 & 1;
  a.grad_type = option & 16 ? TR_F32 : type;
  a.out = random_input(b, type, a.nquery * a.p.ld_out, 5, 0, 0);
  a.lse = random_input(b, TR_F32, a.nquery * a.p.head, 6, 0, 0);
  b->scratch.used = 0;
  assert_int_equal(tr_kernels_reference()->attention_forward(&b->reference, &a.p, a.q, a.k, a.v, NULL, a.out, a.lse),
                   TR_OK);
  if (a.split) a.add = 1; // dq is the sum of two calls
  conform_fill fill = a.add ? FILL_RANDOM : FILL_NAN;
  conform_case t = {.run = run_attention_backward, .scratch = scratch_attention, .context = &a, .nout = 3};
  // The products behind the gradients may take bf16 operands, so wide gradients are only as close as those.
  t.out[0] = (conform_out){a.grad_type, a.nquery * a.p.ld_q, tolerance_of(type), fill, 1};
  t.out[1] = (conform_out){a.grad_type, a.nkey * a.p.ld_k, tolerance_of(type), fill, 1};
  t.out[2] = (conform_out){a.grad_type, a.nkey * a.p.ld_v, tolerance_of(type), fill, 1};
  attention_label(t.label, "backward", &a, l, option);
  conform(b, &t);
}

#endif
