// SPDX-License-Identifier: MIT
// tier: quick
// timeout: 120
// Attention and the fused output loss of tr_kernels_cpu() agree with the reference table: several sequences,
// grouped heads, keys in any order or none visible, keys split over two calls, dropout, ignored targets, and
// with the same bits for 1, 2 and 3 threads. kernel_conformance.h says what is checked in each case;
// test_cpu_kernels.c has the other kernels.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kernel/kernel_conformance.h"

static const tr_dtype TYPES[] = {TR_F32, TR_BF16};

#define COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))

// --- attention ---

// How many query and key rows each sequence has, and where they lie in the document.
typedef struct layout {
  const char *name;
  int nseq;
  int32_t nquery[4], nkey[4];
  int32_t query_first[4]; // position of the first query row; keys start at 0
  int shuffle;            // exchange keys, so that positions do not ascend
  int64_t window;
} layout;

enum { TILE = 96 }; // of queries and keys, in the CPU table

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
    {"window of a tile", 1, {200}, {200}, {0}, 0, TILE},
    {"window off the tiles", 2, {10, 200}, {10, 200}, {0, 0}, 0, 33},
    {"window in any order", 2, {31, 9}, {31, 20}, {0, 4}, 1, 5},
    {"window on long keys", 2, {7, 33}, {340, 70}, {333, 20}, 0, 40},
    {"window of one query", 1, {1}, {257}, {256}, 0, 30},
    {"window at the start", 1, {12}, {9}, {-5}, 0, 4},
    {"window beyond the keys", 2, {7, 1}, {9, 200}, {20, 250}, 0, 3}, // no query sees a key
    {"window larger than all", 1, {100}, {100}, {0}, 0, INT64_MAX},
};

static const struct { int head, head_kv, dim; } HEADS[] = {{1, 1, 1}, {3, 3, 5}, {4, 2, 16}, {6, 1, 33}, {2, 2, 64}};

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

static int32_t *starts(conform_bench *b, int nseq, const int32_t *length) {
  int32_t *start = bench_keep(b, exact_malloc((size_t)(nseq + 1) * sizeof *start));
  start[0] = 0;
  for (int n = 0; n < nseq; n++) start[n + 1] = start[n] + length[n];
  return start;
}

static int32_t *positions(conform_bench *b, int nseq, const int32_t *start, const int32_t *first, int shuffle) {
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

static void attention_rows(conform_bench *b, attention_case *a, const layout *l) {
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
static void split_rows(conform_bench *b, attention_case *a, const void *rows, int64_t nbyte, const void *part[2]) {
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

static void attention_split(conform_bench *b, attention_case *a, const layout *l) {
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
static void attention_inputs(conform_bench *b, attention_case *a, const layout *l, int heads, tr_dtype type,
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

static void run_attention_forward(const tr_compute *c, const void *context, void *const *out) {
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
static void run_attention_backward(const tr_compute *c, const void *context, void *const *out) {
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

static size_t scratch_attention(const tr_kernels *kernels, const void *context, int nthread) {
  const attention_case *a = context;
  if (!a->split) return kernels->attention_scratch(&a->p, nthread);
  size_t first = kernels->attention_scratch(&a->part[0], nthread);
  size_t second = kernels->attention_scratch(&a->part[1], nthread);
  return first > second ? first : second;
}

static void attention_label(char label[200], const char *direction, const attention_case *a, const layout *l,
                            int option) {
  snprintf(label, 200, "attention %s '%s' head %d/%d dim %d %s dropout %d padded %d split %d option %d", direction,
           l->name, a->p.head, a->p.head_kv, a->p.dim, tr_dtype_name(a->p.type), option & 1, option >> 1 & 1,
           a->split, option);
}

static void check_attention_forward(conform_bench *b, const layout *l, int heads, tr_dtype type, int option) {
  attention_case a;
  attention_inputs(b, &a, l, heads, type, option);
  conform_case t = {.run = run_attention_forward, .scratch = scratch_attention, .context = &a, .nout = 2};
  t.out[0] = (conform_out){type, a.nquery * a.p.ld_out, tolerance_of(type), FILL_NAN, 0};
  t.out[1] = (conform_out){TR_F32, a.nquery * a.p.head, TOLERANCE_F32, FILL_NAN, 1};
  attention_label(t.label, "forward", &a, l, option);
  conform(b, &t);
}

// Option bits from 3 on: 3 add, 4 gradients in the wide type.
static void check_attention_backward(conform_bench *b, const layout *l, int heads, tr_dtype type, int option) {
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

static void attention_forward_agrees(void **state) {
  int turn = 0; // walks through the options with a step that has no common factor with their number
  for (int type = 0; type < COUNT(TYPES); type++) {
    for (int l = 0; l < COUNT(LAYOUTS); l++) {
      for (int h = 0; h < COUNT(HEADS); h++) {
        for (int i = 0; i < (LAYOUTS[l].window ? 1 : 5); i++, turn += 3)
          check_attention_forward(*state, &LAYOUTS[l], h, TYPES[type], turn % 8);
      }
    }
  }
}

static void attention_backward_agrees(void **state) {
  int turn = 0;
  for (int type = 0; type < COUNT(TYPES); type++) {
    for (int l = 0; l < COUNT(LAYOUTS); l++) {
      for (int h = 0; h < COUNT(HEADS); h++) {
        for (int i = 0; i < (LAYOUTS[l].window ? 1 : 5); i++, turn += 13)
          check_attention_backward(*state, &LAYOUTS[l], h, TYPES[type], turn % 32);
      }
    }
  }
}

// Large scores: exponentials overflow unless the maximum is taken out first.
static void attention_survives_large_scores(void **state) {
  conform_bench *b = *state;
  attention_case a;
  attention_inputs(b, &a, &LAYOUTS[5], 4, TR_F32, 0);
  a.p.scale = 40;
  conform_case t = {.run = run_attention_forward, .scratch = scratch_attention, .context = &a, .nout = 2};
  t.out[0] = (conform_out){TR_F32, a.nquery * a.p.ld_out, 1e-3, FILL_NAN, 0};
  t.out[1] = (conform_out){TR_F32, a.nquery * a.p.head, TOLERANCE_F32, FILL_NAN, 1};
  snprintf(t.label, sizeof t.label, "attention with scores of some hundreds");
  conform(b, &t);
}

static const layout LONG = {"long", 2, {300, 20}, {300, 150}, {0, 130}, 0, 0};

// Both directions on the CPU table, into new arrays: out, lse, dq, dk, dv.
static void attention_both(conform_bench *b, attention_case *a, void *out[5]) {
  const tr_attention *p = &a->p;
  const int64_t n[] = {a->nquery * p->ld_out, a->nquery * p->head, a->nquery * p->ld_q, a->nkey * p->ld_k,
                       a->nkey * p->ld_v};
  for (int i = 0; i < 5; i++) out[i] = random_input(b, i == 1 ? TR_F32 : p->type, n[i], 20, 0, 0);
  const tr_compute *c = &b->table[1];
  assert_int_equal(c->kernels->attention_forward(c, p, a->q, a->k, a->v, NULL, out[0], out[1]), TR_OK);
  tr_attention_grad g = {a->q, a->k, a->v, out[0], out[1], a->dout, out[2], out[3], out[4], p->type, 0};
  assert_int_equal(c->kernels->attention_backward(c, p, &g), TR_OK);
}

static void attention_with_a_window_of_the_whole_document_has_the_bits_of_no_window(void **state) {
  conform_bench *b = *state;
  static const int64_t windows[] = {300, 301, INT32_MAX, INT64_MAX};
  for (int type = 0; type < COUNT(TYPES); type++) {
    attention_case a;
    attention_inputs(b, &a, &LONG, 2, TYPES[type], 1);
    void *all[5], *windowed[5];
    attention_both(b, &a, all);
    const size_t size = tr_dtype_size(TYPES[type]);
    for (int w = 0; w < COUNT(windows); w++) {
      a.p.window = windows[w];
      attention_both(b, &a, windowed);
      assert_memory_equal(all[0], windowed[0], (size_t)(a.nquery * a.p.ld_out) * size);
      assert_memory_equal(all[1], windowed[1], (size_t)(a.nquery * a.p.head) * sizeof(float));
      assert_memory_equal(all[2], windowed[2], (size_t)(a.nquery * a.p.ld_q) * size);
      assert_memory_equal(all[3], windowed[3], (size_t)(a.nkey * a.p.ld_k) * size);
      assert_memory_equal(all[4], windowed[4], (size_t)(a.nkey * a.p.ld_v) * size);
    }
    a.p.window = 299; // one key of one query less
    attention_both(b, &a, windowed);
    assert_memory_not_equal(all[1], windowed[1], (size_t)(a.nquery * a.p.head) * sizeof(float));
    bench_release(b);
  }
}

static void expect_finite(tr_dtype type, const void *data, int64_t first, int64_t last) {
  for (int64_t i = first; i < last; i++) assert_true(isfinite(element(type, data, i)));
}

// Rows that hold no numbers would spoil every sum they enter, were it with weight 0: tiles before all windows are
// not worked on. For 1, 2 and many queries (which take different paths) at the end of a cache.
static void attention_skips_tiles_of_keys_before_the_window(void **state) {
  conform_bench *b = *state;
  static const int32_t queries[] = {1, 2, 5, 2 * TILE};
  for (int type = 0; type < COUNT(TYPES); type++) {
    for (int i = 0; i < COUNT(queries); i++) {
      const int32_t nkey = 5 * TILE, seen = queries[i] + 30;
      const layout l = {"cache", 1, {queries[i]}, {nkey}, {nkey - queries[i]}, 0, 30};
      attention_case a;
      attention_inputs(b, &a, &l, 2, TYPES[type], 0);
      const int64_t skipped = (nkey - seen) / TILE * TILE;
      assert_true(skipped >= 2 * TILE);
      memset((void *)(uintptr_t)a.k, 0xff, (size_t)(skipped * a.p.ld_k) * tr_dtype_size(TYPES[type]));
      memset((void *)(uintptr_t)a.v, 0xff, (size_t)(skipped * a.p.ld_v) * tr_dtype_size(TYPES[type]));
      void *out[5];
      attention_both(b, &a, out);
      expect_finite(TYPES[type], out[0], 0, a.nquery * a.p.ld_out);
      expect_finite(TYPES[type], out[2], 0, a.nquery * a.p.ld_q);
      expect_finite(TYPES[type], out[3], 0, a.nkey * a.p.ld_k);
      for (int64_t j = 0; j < skipped * a.p.ld_k; j++) {
        assert_true(element(TYPES[type], out[3], j) == 0);
        assert_true(element(TYPES[type], out[4], j) == 0);
      }
      bench_release(b);
    }
  }
}

static void attention_refuses_a_negative_window(void **state) {
  conform_bench *b = *state;
  attention_case a;
  attention_inputs(b, &a, &LAYOUTS[1], 0, TR_F32, 0);
  a.p.window = -1;
  const tr_compute *computes[] = {&b->reference, &b->table[0]};
  for (int i = 0; i < 2; i++) {
    const tr_compute *c = computes[i];
    const tr_attention_grad g = {.grad_type = TR_F32};
    assert_int_equal(c->kernels->attention_forward(c, &a.p, a.q, a.k, a.v, NULL, NULL, NULL), TR_ERR_USAGE);
    assert_non_null(strstr(tr_status_text(), "window of -1"));
    assert_int_equal(c->kernels->attention_backward(c, &a.p, &g), TR_ERR_USAGE);
  }
  bench_release(b);
}

// --- output projection and loss ---

typedef struct head_case {
  tr_head_loss p;
  int no_dx, no_dw;
} head_case;

static tr_head_loss head_with_outputs(const head_case *h, void *const *out) {
  tr_head_loss p = h->p;
  p.loss = out[0];
  p.dx = h->no_dx ? NULL : out[1];
  p.dw = h->no_dw ? NULL : out[2];
  return p;
}

static void run_head(const tr_compute *c, const void *context, void *const *out) {
  tr_head_loss p = head_with_outputs(context, out);
  assert_int_equal(c->kernels->head_loss(c, &p), TR_OK);
}

static size_t scratch_head(const tr_kernels *kernels, const void *context, int nthread) {
  char present; // only whether an output is wanted counts here
  void *const out[] = {&present, &present, &present};
  tr_head_loss p = head_with_outputs(context, out);
  return kernels->head_loss_scratch(&p, nthread);
}

// Options: 0 everything, 1 added to dw, 2 no weight gradient, 3 loss only, 4 every target ignored.
static void check_head(conform_bench *b, int64_t rows, int64_t width, int64_t vocab, tr_dtype type, int option) {
  head_case h = {.no_dx = option == 3, .no_dw = option == 2 || option == 3};
  h.p = (tr_head_loss){.rows = rows, .width = width, .vocab = vocab, .type = type, .add = option == 1};
  h.p.scale = 1 / (double)(rows + 1);
  h.p.x = random_input(b, type, rows * width, 1, 1, 0);
  h.p.w = random_input(b, type, vocab * width, 2, 0.5f, 0);
  int32_t *target = random_index(b, rows, 3, 0, (int32_t)vocab);
  for (int64_t r = 0; r < rows; r++)
    if (option == 4 || r % 5 == 2) target[r] = r % 2 ? -1 : -100;
  h.p.target = target;
  conform_case t = {.run = run_head, .scratch = scratch_head, .context = &h, .nout = 3};
  t.out[0] = (conform_out){TR_F32, rows, TOLERANCE_F32, FILL_NAN, 1};
  t.out[1] = (conform_out){type, rows * width, tolerance_of(type), FILL_NAN, h.p.scale};
  // The gradient of the logits may be rounded to the operands' type before it meets x.
  t.out[2] = (conform_out){TR_F32, vocab * width, tolerance_of(type), h.p.add ? FILL_RANDOM : FILL_NAN, h.p.scale};
  snprintf(t.label, sizeof t.label, "head_loss rows %d width %d vocab %d %s option %d", (int)rows, (int)width,
           (int)vocab, tr_dtype_name(type), option);
  conform(b, &t);
}

static void head_loss_agrees(void **state) {
  static const int64_t rows[] = {0, 1, 5, 33, 100}, widths[] = {1, 3, 17, 64}, vocabs[] = {1, 5, 33, 257};
  int turn = 0;
  for (int type = 0; type < COUNT(TYPES); type++) {
    for (int r = 0; r < COUNT(rows); r++) {
      for (int w = 0; w < COUNT(widths); w++) {
        for (int v = 0; v < COUNT(vocabs); v++) {
          for (int i = 0; i < 3; i++, turn += 2)
            check_head(*state, rows[r], widths[w], vocabs[v], TYPES[type], turn % 5);
        }
      }
    }
  }
}

static void head_loss_agrees_over_many_tiles(void **state) {
  for (int type = 0; type < COUNT(TYPES); type++) {
    check_head(*state, 300, 65, 1111, TYPES[type], 0);
    check_head(*state, 7, 33, 9001, TYPES[type], 1);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(attention_forward_agrees),
      cmocka_unit_test(attention_backward_agrees),
      cmocka_unit_test(attention_survives_large_scores),
      cmocka_unit_test(attention_with_a_window_of_the_whole_document_has_the_bits_of_no_window),
      cmocka_unit_test(attention_skips_tiles_of_keys_before_the_window),
      cmocka_unit_test(attention_refuses_a_negative_window),
      cmocka_unit_test(head_loss_agrees),
      cmocka_unit_test(head_loss_agrees_over_many_tiles),
  };
  return cmocka_run_group_tests(tests, conform_setup, conform_teardown);
}
