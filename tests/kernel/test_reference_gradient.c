// SPDX-License-Identifier: MIT
// tier: quick
// timeout: 60
// Every backward kernel of the reference table is the derivative of its forward kernel: in f64, each element
// of each gradient is compared with a central difference of L = sum of weight[i] * output[i]. Odd sizes, no
// rows, gradients overwritten and added to, dropout, ignored targets, several sequences, grouped heads, keys
// split over two calls, windows, rows that lie apart.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kernel/kernel_conformance.h"

static const int64_t SIZES[] = {0, 1, 3, 5, 7, 17};

#define COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))

static int setup(void **state) {
  static conform_bench bench;
  bench_open(&bench, tr_kernels_reference());
  *state = &bench;
  return 0;
}

static int teardown(void **state) {
  bench_close(*state);
  return 0;
}

// --- central differences ---

static double *randoms(conform_bench *b, int64_t n, uint64_t seed) { return random_input(b, TR_F64, n, seed, 1, 0); }

// A gradient array with the copy of what it held before: NaN where it will be overwritten.
typedef struct gradient {
  double *value, *before;
  int64_t n;
  int add;
} gradient;

static gradient gradient_new(conform_bench *b, int64_t n, int add) {
  gradient g = {randoms(b, n, 77), randoms(b, n, 77), n, add};
  for (int64_t i = 0; !add && i < n; i++) g.value[i] = NAN;
  return g;
}

typedef double (*loss_function)(conform_bench *b, const void *context);

static double weighted_sum(int64_t n, const double *weight, const double *value) {
  double sum = 0;
  for (int64_t i = 0; i < n; i++) sum += weight[i] * value[i];
  return sum;
}

// `x` is one of the inputs that `loss` reads. The scale an error is measured by is the element itself, but no
// less than a thousandth of the largest one: differences have no more digits than that.
static void check_gradient(conform_bench *b, const char *what, loss_function loss, const void *context, double *x,
                           gradient g) {
  const double h = 1e-5;
  double largest = 1;
  for (int64_t i = 0; i < g.n; i++) {
    if (g.add) g.value[i] -= g.before[i];
    if (fabs(g.value[i]) > largest) largest = fabs(g.value[i]);
  }
  for (int64_t i = 0; i < g.n; i++) {
    double kept = x[i];
    x[i] = kept + h;
    double up = loss(b, context);
    x[i] = kept - h;
    double down = loss(b, context);
    x[i] = kept;
    double expected = (up - down) / (2 * h);
    double scale = fmax(fabs(expected), 1e-3 * largest);
    if (!(fabs(g.value[i] - expected) <= 1e-6 * scale))
      fail_msg("%s[%lld of %lld] is %.12g, differences give %.12g", what, (long long)i, (long long)g.n, g.value[i],
               expected);
  }
}

// Columns between the end of a row and the next one belong to nobody: make the check pass over them.
static void clear_padding(gradient g, int64_t rows, int64_t ld, int64_t width) {
  for (int64_t r = 0; r < rows; r++) {
    for (int64_t j = width; j < ld; j++) {
      int64_t i = r * ld + j;
      if (g.add) assert_true(g.value[i] == g.before[i]);
      if (!g.add) assert_true(isnan(g.value[i]));
      g.value[i] = g.add ? g.before[i] : 0;
    }
  }
}

// --- matmul and column sum ---

typedef struct product {
  int64_t m, n, k;
  double *a, *b, *bias, *c, *weight;
} product;

static double product_loss(conform_bench *b, const void *context) {
  const product *t = context;
  tr_matmul p = {.m = t->m, .n = t->n, .k = t->k, .lda = t->k, .ldb = t->n, .ldc = t->n};
  p.type = p.type_c = TR_F64;
  assert_int_equal(b->reference.kernels->matmul(&b->reference, &p, t->a, t->b, t->bias, t->c), TR_OK);
  return weighted_sum(t->m * t->n, t->weight, t->c);
}

static void check_product(conform_bench *b, int64_t m, int64_t n, int64_t k, int add) {
  const tr_kernels *kernels = b->reference.kernels;
  product t = {m,
               n,
               k,
               randoms(b, m * k, 1),
               randoms(b, k * n, 2),
               randoms(b, n, 3),
               randoms(b, m * n, 4),
               randoms(b, m * n, 5)};
  gradient da = gradient_new(b, m * k, add), db = gradient_new(b, k * n, add), dbias = gradient_new(b, n, add);
  tr_matmul pa = {
      .m = m, .n = k, .k = n, .trans_b = 1, .lda = n, .ldb = n, .ldc = k, .type = TR_F64, .type_c = TR_F64};
  tr_matmul pb = {
      .m = k, .n = n, .k = m, .trans_a = 1, .lda = k, .ldb = n, .ldc = n, .type = TR_F64, .type_c = TR_F64};
  pa.add = pb.add = add;
  assert_int_equal(kernels->matmul(&b->reference, &pa, t.weight, t.b, NULL, da.value), TR_OK);
  assert_int_equal(kernels->matmul(&b->reference, &pb, t.a, t.weight, NULL, db.value), TR_OK);
  kernels->column_sum(&b->reference, m, n, TR_F64, t.weight, dbias.value, add);
  check_gradient(b, "matmul da", product_loss, &t, t.a, da);
  check_gradient(b, "matmul db", product_loss, &t, t.b, db);
  check_gradient(b, "matmul dbias", product_loss, &t, t.bias, dbias);
  bench_release(b);
}

static void matmul_with_transposes_gives_its_own_gradients(void **state) {
  static const int64_t sizes[] = {0, 1, 3, 7};
  for (int m = 0; m < COUNT(sizes); m++) {
    for (int n = 0; n < COUNT(sizes); n++) {
      for (int k = 0; k < COUNT(sizes); k++) check_product(*state, sizes[m], sizes[n], sizes[k], (m + n + k) % 2);
    }
  }
}

// --- layer normalisation ---

typedef struct norm {
  int64_t rows, width;
  double *x, *gamma, *beta, *y, *mean, *rstd, *weight;
} norm;

static double norm_loss(conform_bench *b, const void *context) {
  const norm *t = context;
  b->reference.kernels->layernorm_forward(&b->reference, t->rows, t->width, TR_F64, 1e-5f, t->x, t->gamma, t->beta,
                                          t->y, t->mean, t->rstd);
  return weighted_sum(t->rows * t->width, t->weight, t->y);
}

static void check_norm(conform_bench *b, int64_t rows, int64_t width, int add_dx, int add) {
  int64_t n = rows * width;
  norm t = {rows,
            width,
            randoms(b, n, 1),
            randoms(b, width, 2),
            randoms(b, width, 3),
            randoms(b, n, 4),
            randoms(b, rows, 5),
            randoms(b, rows, 6),
            randoms(b, n, 7)};
  gradient dx = gradient_new(b, n, add_dx), dgamma = gradient_new(b, width, add), dbeta = gradient_new(b, width, add);
  norm_loss(b, &t);
  b->reference.kernels->layernorm_backward(&b->reference, rows, width, TR_F64, t.weight, t.x, t.gamma, t.mean, t.rstd,
                                           dx.value, add_dx, dgamma.value, dbeta.value, add);
  check_gradient(b, "layernorm dx", norm_loss, &t, t.x, dx);
  check_gradient(b, "layernorm dgamma", norm_loss, &t, t.gamma, dgamma);
  check_gradient(b, "layernorm dbeta", norm_loss, &t, t.beta, dbeta);
  bench_release(b);
}

static void layernorm_backward_is_the_derivative(void **state) {
  for (int r = 0; r < COUNT(SIZES); r++) {
    for (int w = 1; w < COUNT(SIZES); w++) {
      for (int option = 0; option < 4; option++) check_norm(*state, SIZES[r], SIZES[w], option & 1, option >> 1);
    }
  }
}

// --- RMSNorm ---

typedef struct rms {
  tr_rmsnorm p;
  double *x, *gamma, *y, *rstd, *weight;
} rms;

static double rms_loss(conform_bench *b, const void *context) {
  const rms *t = context;
  b->reference.kernels->rmsnorm_forward(&b->reference, &t->p, t->x, t->gamma, t->y, t->rstd);
  return weighted_sum(t->p.rows * t->p.ld_y, t->weight, t->y);
}

static void check_rms(conform_bench *b, int64_t rows, int64_t count, int64_t width, int option) {
  int64_t ld_x = count * width + (option & 4 ? 3 : 0), ld_y = count * width + (option & 4 ? 1 : 0);
  rms t = {{rows, count, width, ld_x, ld_y, TR_F64, 1e-2f},
           randoms(b, rows * ld_x, 1),
           randoms(b, width, 2),
           randoms(b, rows * ld_y, 3),
           randoms(b, rows * count, 4),
           randoms(b, rows * ld_y, 5)};
  gradient dx = gradient_new(b, rows * ld_x, option & 1), dgamma = gradient_new(b, width, option >> 1 & 1);
  rms_loss(b, &t);
  b->reference.kernels->rmsnorm_backward(&b->reference, &t.p, t.weight, t.x, t.gamma, t.rstd, dx.value, dx.add,
                                         dgamma.value, dgamma.add);
  clear_padding(dx, rows, ld_x, count * width);
  check_gradient(b, "rmsnorm dx", rms_loss, &t, t.x, dx);
  check_gradient(b, "rmsnorm dgamma", rms_loss, &t, t.gamma, dgamma);
  bench_release(b);
}

static void rmsnorm_backward_is_the_derivative(void **state) {
  for (int r = 0; r < COUNT(SIZES); r++) {
    for (int w = 1; w < COUNT(SIZES); w++) {
      for (int option = 0; option < 8; option++) check_rms(*state, SIZES[r], 1 + option % 3, SIZES[w], option);
    }
  }
}

// --- rotary positions ---

typedef struct rotary {
  tr_rope p;
  double *x, *y, *weight;
} rotary;

static double rope_loss(conform_bench *b, const void *context) {
  const rotary *t = context;
  int64_t n = t->p.rows * t->p.ld;
  memcpy(t->y, t->x, (size_t)n * sizeof *t->y);
  b->reference.kernels->rope(&b->reference, &t->p, t->y);
  return weighted_sum(n, t->weight, t->y);
}

// The turn back, with its scale, is the transpose. Padding is left as it is, and so is its gradient.
static void check_rope(conform_bench *b, int64_t rows, int64_t count, int64_t half, int option) {
  tr_rope p = {.rows = rows, .count = count, .dim = 2 * half, .ld = 2 * count * half + (option & 1 ? 3 : 0)};
  p.type = TR_F64, p.scale = option & 2 ? 1.7 : 1, p.inverse = option >> 2 & 1;
  p.position = random_index(b, rows, 1, -3, 5000);
  p.frequency = randoms(b, half, 2);
  int64_t n = rows * p.ld;
  rotary t = {p, randoms(b, n, 3), randoms(b, n, 4), randoms(b, n, 5)};
  gradient dx = gradient_new(b, n, 0);
  memcpy(dx.value, t.weight, (size_t)n * sizeof *t.weight);
  p.inverse = !p.inverse;
  b->reference.kernels->rope(&b->reference, &p, dx.value);
  check_gradient(b, "rope dx", rope_loss, &t, t.x, dx);
  bench_release(b);
}

static void rope_turned_back_is_the_derivative(void **state) {
  for (int r = 0; r < COUNT(SIZES); r++) {
    for (int h = 0; h < 4; h++) {
      for (int option = 0; option < 8; option++) check_rope(*state, SIZES[r], 1 + option % 3, SIZES[h], option);
    }
  }
}

// --- SwiGLU ---

typedef struct gated {
  int64_t rows, width;
  double *x, *y, *weight;
} gated;

static double swiglu_loss(conform_bench *b, const void *context) {
  const gated *t = context;
  b->reference.kernels->swiglu_forward(&b->reference, t->rows, t->width, TR_F64, t->x, t->y);
  return weighted_sum(t->rows * t->width, t->weight, t->y);
}

static void swiglu_backward_is_the_derivative(void **state) {
  conform_bench *b = *state;
  for (int r = 0; r < COUNT(SIZES); r++) {
    for (int w = 0; w < COUNT(SIZES); w++) {
      int64_t rows = SIZES[r], width = SIZES[w], n = rows * width;
      gated t = {rows, width, random_input(b, TR_F64, 2 * n, 1, 3, 0), randoms(b, n, 2), randoms(b, n, 3)};
      gradient dx = gradient_new(b, 2 * n, 0);
      b->reference.kernels->swiglu_backward(&b->reference, rows, width, TR_F64, t.x, t.weight, dx.value);
      check_gradient(b, "swiglu dx", swiglu_loss, &t, t.x, dx);
      bench_release(b);
    }
  }
}

// --- GELU ---

typedef struct flat {
  int64_t n;
  double *x, *y, *weight;
} flat;

static double gelu_loss(conform_bench *b, const void *context) {
  const flat *t = context;
  b->reference.kernels->gelu_forward(&b->reference, (size_t)t->n, TR_F64, t->x, t->y);
  return weighted_sum(t->n, t->weight, t->y);
}

static void gelu_backward_is_the_derivative(void **state) {
  conform_bench *b = *state;
  for (int s = 0; s < COUNT(SIZES); s++) {
    int64_t n = SIZES[s];
    flat t = {n, random_input(b, TR_F64, n, 1, 3, 0), randoms(b, n, 2), randoms(b, n, 3)};
    gradient dx = gradient_new(b, n, 0);
    b->reference.kernels->gelu_backward(&b->reference, (size_t)n, TR_F64, t.x, t.weight, dx.value);
    check_gradient(b, "gelu dx", gelu_loss, &t, t.x, dx);
    bench_release(b);
  }
}

// --- embedding, residual, dropout ---

typedef struct table {
  int64_t rows, width, vocab, npos;
  const int32_t *token, *position;
  tr_dropout dropout;
  double *wte, *wpe, *x, *y, *weight;
} table;

static double embedding_loss(conform_bench *b, const void *context) {
  const table *t = context;
  b->reference.kernels->embedding_forward(&b->reference, t->rows, t->width, TR_F64, t->token, t->position, t->wte,
                                          t->wpe, &t->dropout, t->y);
  return weighted_sum(t->rows * t->width, t->weight, t->y);
}

static double residual_loss(conform_bench *b, const void *context) {
  const table *t = context;
  double *out = malloc((size_t)(t->rows * t->width + 1) * sizeof *out);
  assert_non_null(out);
  b->reference.kernels->residual_forward(&b->reference, t->rows, t->width, TR_F64, t->x, t->y, &t->dropout, out);
  double loss = weighted_sum(t->rows * t->width, t->weight, out);
  free(out);
  return loss;
}

static table table_new(conform_bench *b, int64_t rows, int64_t width, float p) {
  table t = {.rows = rows, .width = width, .vocab = 6, .npos = 9};
  t.token = random_index(b, rows, 1, 0, (int32_t)t.vocab);
  t.position = random_index(b, rows, 2, 0, (int32_t)t.npos);
  t.dropout = random_dropout(b, rows, p, 3);
  t.wte = randoms(b, t.vocab * width, 4);
  t.wpe = randoms(b, t.npos * width, 5);
  t.x = randoms(b, rows * width, 6);
  t.y = randoms(b, rows * width, 7);
  t.weight = randoms(b, rows * width, 8);
  return t;
}

static void check_embedding(conform_bench *b, int64_t rows, int64_t width, int option) {
  table t = table_new(b, rows, width, option & 1 ? 0.4f : 0);
  gradient dwte = gradient_new(b, t.vocab * width, option >> 1 & 1);
  gradient dwpe = gradient_new(b, t.npos * width, option >> 2 & 1);
  b->reference.kernels->embedding_backward(&b->reference, rows, width, TR_F64, t.token, t.position, &t.dropout,
                                           t.weight, dwte.value, t.vocab, dwte.add, dwpe.value, t.npos, dwpe.add);
  check_gradient(b, "embedding dwte", embedding_loss, &t, t.wte, dwte);
  check_gradient(b, "embedding dwpe", embedding_loss, &t, t.wpe, dwpe);
  bench_release(b);
}

static void check_residual(conform_bench *b, int64_t rows, int64_t width, float p) {
  table t = table_new(b, rows, width, p);
  gradient dy = gradient_new(b, rows * width, 0), dx = gradient_new(b, rows * width, 0);
  b->reference.kernels->dropout_backward(&b->reference, rows, width, TR_F64, &t.dropout, t.weight, dy.value);
  for (int64_t i = 0; i < rows * width; i++) dx.value[i] = t.weight[i]; // dx is dout itself
  check_gradient(b, "residual dy", residual_loss, &t, t.y, dy);
  check_gradient(b, "residual dx", residual_loss, &t, t.x, dx);
  bench_release(b);
}

static void embedding_backward_is_the_derivative(void **state) {
  for (int r = 0; r < COUNT(SIZES); r++) {
    for (int w = 0; w < COUNT(SIZES); w++) {
      for (int option = 0; option < 8; option++) check_embedding(*state, SIZES[r], SIZES[w], option);
    }
  }
  check_embedding(*state, 5, 67, 1); // more columns than are summed at a time
}

static void dropout_backward_is_the_derivative(void **state) {
  for (int r = 0; r < COUNT(SIZES); r++) {
    for (int w = 0; w < COUNT(SIZES); w++) {
      check_residual(*state, SIZES[r], SIZES[w], 0);
      check_residual(*state, SIZES[r], SIZES[w], 0.4f);
    }
  }
}

// --- attention ---

typedef struct layout {
  int nseq, query[4], key[4], query_first;
} layout;

static const layout LAYOUTS[] = {
    {0, {0}, {0}, 0},
    {1, {1}, {1}, 0},
    {1, {5}, {5}, 0},
    {3, {3, 1, 7}, {3, 1, 7}, 0},
    {2, {3, 2}, {7, 5}, 3},
    {3, {2, 0, 4}, {0, 3, 3}, -2}, // queries that see nothing, a sequence without queries, one without keys
};

static const struct { int head, head_kv, dim; } HEADS[] = {{1, 1, 1}, {3, 3, 5}, {4, 2, 3}, {3, 1, 7}};

typedef struct attention {
  tr_attention p;
  const int32_t *key_pos[2]; // for keys split over two calls: those not of this call lie beyond every query
  int split;
  int64_t nquery, nkey;
  double *q, *k, *v, *out, *lse, *weight;
  double *max, *sum, *unnormalised;
} attention;

static int32_t *starts(conform_bench *b, int nseq, const int *length) {
  int32_t *start = bench_keep(b, exact_malloc((size_t)(nseq + 1) * sizeof *start));
  start[0] = 0;
  for (int n = 0; n < nseq; n++) start[n + 1] = start[n] + length[n];
  return start;
}

static int32_t *positions(conform_bench *b, int nseq, const int32_t *start, int first) {
  int32_t *pos = bench_keep(b, exact_malloc((size_t)start[nseq] * sizeof *pos));
  for (int n = 0; n < nseq; n++)
    for (int32_t i = start[n]; i < start[n + 1]; i++) pos[i] = first + i - start[n];
  return pos;
}

static attention attention_new(conform_bench *b, const layout *l, int heads, float dropout, int pad) {
  attention t = {.nquery = 0};
  tr_attention *p = &t.p;
  *p = (tr_attention){.nseq = l->nseq, .type = TR_F64, .scale = 0.6f, .first = 1, .last = 1, .dropout_stride = 50};
  p->head = HEADS[heads].head, p->head_kv = HEADS[heads].head_kv, p->dim = HEADS[heads].dim;
  p->query_start = starts(b, l->nseq, l->query);
  p->key_start = starts(b, l->nseq, l->key);
  p->query_pos = positions(b, l->nseq, p->query_start, l->query_first);
  p->key_pos = positions(b, l->nseq, p->key_start, 0);
  t.nquery = p->query_start[l->nseq], t.nkey = p->key_start[l->nseq];
  p->dropout = random_dropout(b, t.nquery, dropout, 5);
  p->ld_q = p->head * p->dim + pad, p->ld_out = p->head * p->dim;
  p->ld_k = p->head_kv * p->dim + pad, p->ld_v = p->head_kv * p->dim + 2 * pad;
  t.q = randoms(b, t.nquery * p->ld_q, 1);
  t.k = randoms(b, t.nkey * p->ld_k, 2);
  t.v = randoms(b, t.nkey * p->ld_v, 3);
  t.out = randoms(b, t.nquery * p->ld_out, 4);
  t.weight = randoms(b, t.nquery * p->ld_out, 5);
  t.lse = randoms(b, t.nquery * p->head, 6);
  t.max = randoms(b, t.nquery * p->head, 7);
  t.sum = randoms(b, t.nquery * p->head, 8);
  t.unnormalised = randoms(b, t.nquery * p->ld_out, 9);
  for (int call = 0; call < 2; call++) {
    int32_t *pos = positions(b, l->nseq, p->key_start, 0);
    for (int64_t j = 0; j < t.nkey; j++)
      if (j % 3 == 0 ? call == 0 : call == 1) pos[j] = INT32_MAX;
    t.key_pos[call] = pos;
  }
  return t;
}

// The part of the keys that one of the two calls handles.
static tr_attention part_of(const attention *t, int call) {
  tr_attention p = t->p;
  p.key_pos = t->key_pos[call];
  p.first = call == 0;
  p.last = call == 1;
  return p;
}

static double attention_loss(conform_bench *b, const void *context) {
  const attention *t = context;
  const tr_kernels *kernels = b->reference.kernels;
  if (t->split) {
    tr_attention_running running = {t->max, t->sum, t->unnormalised};
    for (int call = 0; call < 2; call++) {
      tr_attention p = part_of(t, call);
      assert_int_equal(kernels->attention_forward(&b->reference, &p, t->q, t->k, t->v, &running, t->out, t->lse),
                       TR_OK);
    }
  } else {
    assert_int_equal(kernels->attention_forward(&b->reference, &t->p, t->q, t->k, t->v, NULL, t->out, t->lse), TR_OK);
  }
  return weighted_sum(t->nquery * t->p.ld_out, t->weight, t->out);
}

static void attention_gradient(conform_bench *b, const attention *t, tr_attention_grad g) {
  const tr_kernels *kernels = b->reference.kernels;
  for (int call = 0; t->split && call < 2; call++) {
    tr_attention p = part_of(t, call);
    assert_int_equal(kernels->attention_backward(&b->reference, &p, &g), TR_OK);
    g.add = 1;
  }
  if (!t->split) assert_int_equal(kernels->attention_backward(&b->reference, &t->p, &g), TR_OK);
}

static void check_attention(conform_bench *b, const layout *l, int heads, int64_t window, float dropout, int split,
                            int add, int pad) {
  attention t = attention_new(b, l, heads, dropout, pad);
  t.p.window = window;
  t.split = split;
  int64_t kv_width = t.p.head_kv * t.p.dim;
  gradient dq = gradient_new(b, t.nquery * t.p.ld_q, add), dk = gradient_new(b, t.nkey * t.p.ld_k, add);
  gradient dv = gradient_new(b, t.nkey * t.p.ld_v, add);
  attention_loss(b, &t);
  attention_gradient(
      b, &t, (tr_attention_grad){t.q, t.k, t.v, t.out, t.lse, t.weight, dq.value, dk.value, dv.value, TR_F64, add});
  clear_padding(dq, t.nquery, t.p.ld_q, t.p.head * t.p.dim);
  clear_padding(dk, t.nkey, t.p.ld_k, kv_width);
  clear_padding(dv, t.nkey, t.p.ld_v, kv_width);
  check_gradient(b, "attention dq", attention_loss, &t, t.q, dq);
  check_gradient(b, "attention dk", attention_loss, &t, t.k, dk);
  check_gradient(b, "attention dv", attention_loss, &t, t.v, dv);
  bench_release(b);
}

static void attention_backward_is_the_derivative(void **state) {
  int turn = 0;
  for (int l = 0; l < COUNT(LAYOUTS); l++) {
    for (int h = 0; h < COUNT(HEADS); h++) {
      for (int option = 0; option < 4; option++, turn++)
        check_attention(*state, &LAYOUTS[l], h, 0, option & 1 ? 0.3f : 0, option >> 1, turn % 2, turn % 3);
    }
  }
}

static void attention_backward_with_a_window_is_the_derivative(void **state) {
  static const int64_t windows[] = {1, 2, 3, 100};
  int turn = 0;
  for (int l = 0; l < COUNT(LAYOUTS); l++) {
    for (int w = 0; w < COUNT(windows); w++) {
      for (int option = 0; option < 4; option++, turn++)
        check_attention(*state, &LAYOUTS[l], turn % 4, windows[w], option & 1 ? 0.3f : 0, option >> 1, turn % 2,
                        turn % 3);
    }
  }
}

// Forward values and all gradients, and each query that saw no key in either call, or in the first one only.
static void attention_over_split_keys_equals_one_call(void **state) {
  conform_bench *b = *state;
  for (int l = 0; l < COUNT(LAYOUTS); l++) {
    attention one = attention_new(b, &LAYOUTS[l], 2, 0.3f, 0), two = attention_new(b, &LAYOUTS[l], 2, 0.3f, 0);
    two.split = 1;
    expect_near(attention_loss(b, &one), attention_loss(b, &two), 1e-12);
    for (int64_t i = 0; i < one.nquery * one.p.ld_out; i++) expect_near(one.out[i], two.out[i], 1e-12);
    for (int64_t i = 0; i < one.nquery * one.p.head; i++)
      assert_true(one.lse[i] == two.lse[i] || fabs(one.lse[i] - two.lse[i]) < 1e-12);
    bench_release(b);
  }
}

// --- output projection and loss ---

typedef struct head {
  tr_head_loss p;
  double *x, *w;
} head;

// What the gradients are the derivative of: scale times the sum of losses.
static double head_sum(conform_bench *b, const void *context) {
  const head *t = context;
  tr_head_loss p = t->p;
  p.dx = p.dw = NULL;
  assert_int_equal(b->reference.kernels->head_loss(&b->reference, &p), TR_OK);
  double sum = 0;
  for (int64_t r = 0; r < p.rows; r++) sum += ((const double *)p.loss)[r];
  return p.scale * sum;
}

static void check_head(conform_bench *b, int64_t rows, int64_t width, int64_t vocab, int add) {
  head t = {.x = randoms(b, rows * width, 1), .w = randoms(b, vocab * width, 2)};
  int32_t *target = random_index(b, rows, 3, 0, (int32_t)vocab);
  for (int64_t r = 2; r < rows; r += 3) target[r] = -1;
  gradient dx = gradient_new(b, rows * width, 0), dw = gradient_new(b, vocab * width, add);
  t.p = (tr_head_loss){.rows = rows, .width = width, .vocab = vocab, .type = TR_F64, .scale = 0.7, .add = add};
  t.p.x = t.x, t.p.w = t.w, t.p.target = target, t.p.loss = randoms(b, rows, 4);
  t.p.dx = dx.value, t.p.dw = dw.value;
  assert_int_equal(b->reference.kernels->head_loss(&b->reference, &t.p), TR_OK);
  for (int64_t r = 2; r < rows; r += 3) assert_true(((const double *)t.p.loss)[r] == 0);
  check_gradient(b, "head_loss dx", head_sum, &t, t.x, dx);
  check_gradient(b, "head_loss dw", head_sum, &t, t.w, dw);
  bench_release(b);
}

static void head_loss_gives_its_own_derivative(void **state) {
  for (int r = 0; r < COUNT(SIZES); r++) {
    for (int w = 1; w < COUNT(SIZES); w++) {
      for (int v = 1; v < 5; v++) check_head(*state, SIZES[r], SIZES[w], SIZES[v], (r + w + v) % 2);
    }
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(matmul_with_transposes_gives_its_own_gradients),
      cmocka_unit_test(layernorm_backward_is_the_derivative),
      cmocka_unit_test(rmsnorm_backward_is_the_derivative),
      cmocka_unit_test(rope_turned_back_is_the_derivative),
      cmocka_unit_test(swiglu_backward_is_the_derivative),
      cmocka_unit_test(gelu_backward_is_the_derivative),
      cmocka_unit_test(embedding_backward_is_the_derivative),
      cmocka_unit_test(dropout_backward_is_the_derivative),
      cmocka_unit_test(attention_backward_is_the_derivative),
      cmocka_unit_test(attention_backward_with_a_window_is_the_derivative),
      cmocka_unit_test(attention_over_split_keys_equals_one_call),
      cmocka_unit_test(head_loss_gives_its_own_derivative),
  };
  return cmocka_run_group_tests(tests, setup, teardown);
}
