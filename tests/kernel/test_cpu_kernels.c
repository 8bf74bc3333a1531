// SPDX-License-Identifier: MIT
// tier: quick
// timeout: 120
// Every kernel of tr_kernels_cpu() agrees with the reference table: f32 and bf16, awkward sizes, added or
// overwritten, in place where that is allowed, and with the same bits for 1, 2 and 3 threads.
// kernel_conformance.h says what is checked in each case; here are the cases of the row-wise and element-wise
// kernels and of matmul. Attention and the fused loss are in test_cpu_fused.c.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kernel/kernel_conformance.h"

static const tr_dtype TYPES[] = {TR_F32, TR_BF16};
static const int64_t COUNTS[] = {0, 1, 3, 5, 17, 31, 33, 64, 100, 257, 5000, 70001};
static const int64_t ROWS[] = {0, 1, 3, 17, 64, 257};
static const int64_t WIDTHS[] = {1, 3, 5, 17, 31, 33, 64, 100, 257};

#define COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))

// --- matmul ---

typedef struct matmul_case {
  tr_matmul p;
  const void *a, *b, *bias;
} matmul_case;

static void run_matmul(const tr_compute *c, const void *context, void *const *out) {
  const matmul_case *m = context;
  assert_int_equal(c->kernels->matmul(c, &m->p, m->a, m->b, m->bias, out[0]), TR_OK);
}

static size_t scratch_matmul(const tr_kernels *kernels, const void *context, int nthread) {
  return kernels->matmul_scratch(&((const matmul_case *)context)->p, nthread);
}

// Elements of a matrix of `rows` rows that lie `ld` apart, the last one `width` long.
static int64_t extent(int64_t rows, int64_t width, int64_t ld) {
  return rows == 0 || width == 0 ? 0 : (rows - 1) * ld + width;
}

static void check_matmul(conform_bench *b, tr_matmul p, int pad, int with_bias) {
  int64_t a_rows = p.trans_a ? p.k : p.m, a_width = p.trans_a ? p.m : p.k;
  int64_t b_rows = p.trans_b ? p.n : p.k, b_width = p.trans_b ? p.k : p.n;
  p.lda = a_width + pad;
  p.ldb = b_width + 2 * pad;
  p.ldc = p.n + pad;
  if (p.lda == 0) p.lda = 1;
  if (p.ldb == 0) p.ldb = 1;
  if (p.ldc == 0) p.ldc = 1;
  matmul_case m = {.p = p};
  m.a = random_input(b, p.type, extent(a_rows, a_width, p.lda), 1, 1, 0);
  m.b = random_input(b, p.type, extent(b_rows, b_width, p.ldb), 2, 1, 0);
  m.bias = with_bias ? random_input(b, p.type, p.n, 3, 1, 0) : NULL;
  conform_case t = {.run = run_matmul, .scratch = scratch_matmul, .context = &m, .nout = 1};
  t.out[0] =
      (conform_out){p.type_c, extent(p.m, p.n, p.ldc), tolerance_of(p.type_c), p.add ? FILL_RANDOM : FILL_NAN, 1};
  snprintf(t.label, sizeof t.label, "matmul m %d n %d k %d trans %d%d pad %d %s to %s add %d bias %d", (int)p.m,
           (int)p.n, (int)p.k, p.trans_a, p.trans_b, pad, tr_dtype_name(p.type), tr_dtype_name(p.type_c), p.add,
           with_bias);
  conform(b, &t);
}

static const struct {
  tr_dtype type, type_c;
} MATMUL_TYPES[] = {{TR_F32, TR_F32}, {TR_BF16, TR_BF16}, {TR_BF16, TR_F32}};

static void matmul_agrees_for_all_small_shapes(void **state) {
  static const int64_t sizes[] = {0, 1, 3, 17, 33, 64};
  unsigned turn = 0; // walks through the other options, so that each meets many shapes
  for (int m = 0; m < COUNT(sizes); m++) {
    for (int n = 0; n < COUNT(sizes); n++) {
      for (int k = 0; k < COUNT(sizes); k++) {
        for (int type = 0; type < 3; type++, turn += 7) {
          tr_matmul p = {.m = sizes[m], .n = sizes[n], .k = sizes[k], .trans_a = turn & 1, .trans_b = turn >> 1 & 1};
          p.add = turn >> 2 & 1;
          p.type = MATMUL_TYPES[type].type;
          p.type_c = MATMUL_TYPES[type].type_c;
          check_matmul(*state, p, turn % 5 == 0 ? 3 : 0, turn % 3 == 0);
        }
      }
    }
  }
}

static void matmul_agrees_for_every_option(void **state) {
  static const int64_t shapes[][3] = {{5, 31, 100}, {100, 257, 33}, {257, 64, 129}, {1, 300, 64}};
  for (int s = 0; s < COUNT(shapes); s++) {
    for (int option = 0; option < 3 * 32; option++) {
      tr_matmul p = {.m = shapes[s][0], .n = shapes[s][1], .k = shapes[s][2]};
      p.trans_a = option & 1;
      p.trans_b = option >> 1 & 1;
      p.add = option >> 2 & 1;
      p.type = MATMUL_TYPES[option / 32].type;
      p.type_c = MATMUL_TYPES[option / 32].type_c;
      check_matmul(*state, p, option >> 3 & 1 ? 5 : 0, option >> 4 & 1);
    }
  }
}

// --- layer normalisation ---

typedef struct norm_case {
  int64_t rows, width;
  tr_dtype type;
  const void *x, *dy, *gamma, *beta;
  void *mean, *rstd;
  int add_dx, add, no_statistics;
} norm_case;

static void run_norm_forward(const tr_compute *c, const void *context, void *const *out) {
  const norm_case *n = context;
  c->kernels->layernorm_forward(c, n->rows, n->width, n->type, 1e-5f, n->x, n->gamma, n->beta, out[0],
                                n->no_statistics ? NULL : out[1], n->no_statistics ? NULL : out[2]);
}

static void run_norm_backward(const tr_compute *c, const void *context, void *const *out) {
  const norm_case *n = context;
  c->kernels->layernorm_backward(c, n->rows, n->width, n->type, n->dy, n->x, n->gamma, n->mean, n->rstd, out[0],
                                 n->add_dx, out[1], out[2], n->add);
}

static size_t scratch_norm_backward(const tr_kernels *kernels, const void *context, int nthread) {
  const norm_case *n = context;
  (void)nthread;
  return kernels->layernorm_backward_scratch(n->rows, n->width, n->type);
}

static norm_case norm_inputs(conform_bench *b, int64_t rows, int64_t width, tr_dtype type) {
  norm_case n = {.rows = rows, .width = width, .type = type};
  n.x = random_input(b, type, rows * width, 1, 2, 1);
  n.dy = random_input(b, type, rows * width, 2, 1, 0);
  n.gamma = random_input(b, type, width, 3, 0.3f, 1);
  n.beta = random_input(b, type, width, 4, 1, 0);
  n.mean = random_input(b, TR_F32, rows, 5, 1, 0);
  n.rstd = random_input(b, TR_F32, rows, 6, 1, 0);
  void *y = bench_keep(b, exact_malloc((size_t)(rows * width) * tr_dtype_size(type)));
  tr_kernels_reference()->layernorm_forward(&b->reference, rows, width, type, 1e-5f, n.x, n.gamma, n.beta, y, n.mean,
                                            n.rstd);
  return n;
}

static void check_norm(conform_bench *b, int64_t rows, int64_t width, tr_dtype type, int option) {
  norm_case n = norm_inputs(b, rows, width, type);
  n.no_statistics = option == 3;
  conform_case t = {.run = run_norm_forward, .context = &n, .nout = 3};
  t.out[0] = (conform_out){type, rows * width, tolerance_of(type), FILL_NAN, 1};
  t.out[1] = (conform_out){TR_F32, rows, TOLERANCE_F32, FILL_NAN, 0};
  t.out[2] = (conform_out){TR_F32, rows, TOLERANCE_F32, FILL_NAN, 0};
  snprintf(t.label, sizeof t.label, "layernorm_forward rows %d width %d %s option %d", (int)rows, (int)width,
           tr_dtype_name(type), option);
  conform(b, &t);

  n = norm_inputs(b, rows, width, type);
  n.add_dx = option & 1;
  n.add = option >> 1 & 1;
  // One number per row: rstd is large and everything it multiplies cancels.
  double least = width == 1 ? 300 : 1;
  t = (conform_case){.run = run_norm_backward, .scratch = scratch_norm_backward, .context = &n, .nout = 3};
  t.out[0] = (conform_out){type, rows * width, tolerance_of(type), n.add_dx ? FILL_RANDOM : FILL_NAN, least};
  t.out[1] = (conform_out){TR_F32, width, TOLERANCE_F32, n.add ? FILL_RANDOM : FILL_NAN, least};
  t.out[2] = (conform_out){TR_F32, width, TOLERANCE_F32, n.add ? FILL_RANDOM : FILL_NAN, 1};
  snprintf(t.label, sizeof t.label, "layernorm_backward rows %d width %d %s add_dx %d add %d", (int)rows, (int)width,
           tr_dtype_name(type), n.add_dx, n.add);
  conform(b, &t);
}

static void layernorm_agrees(void **state) {
  for (int type = 0; type < COUNT(TYPES); type++) {
    for (int r = 0; r < COUNT(ROWS); r++) {
      for (int w = 0; w < COUNT(WIDTHS); w++) {
        for (int option = 0; option < 4; option++) check_norm(*state, ROWS[r], WIDTHS[w], TYPES[type], option);
      }
    }
  }
  check_norm(*state, 600, 768, TR_F32, 0);
  check_norm(*state, 600, 768, TR_BF16, 3);
}

// --- element by element ---

typedef struct flat_case {
  size_t n;
  tr_dtype type, to;
  const void *x, *dy;
  int in_place;
} flat_case;

static void run_gelu_forward(const tr_compute *c, const void *context, void *const *out) {
  const flat_case *f = context;
  c->kernels->gelu_forward(c, f->n, f->type, f->in_place ? out[0] : f->x, out[0]);
}

static void run_gelu_backward(const tr_compute *c, const void *context, void *const *out) {
  const flat_case *f = context;
  c->kernels->gelu_backward(c, f->n, f->type, f->x, f->in_place ? out[0] : f->dy, out[0]);
}

static void run_add(const tr_compute *c, const void *context, void *const *out) {
  const flat_case *f = context;
  c->kernels->add(c, f->n, f->type, f->x, out[0]);
}

static void run_convert(const tr_compute *c, const void *context, void *const *out) {
  const flat_case *f = context;
  c->kernels->convert(c, f->n, f->type, f->x, f->to, out[0]);
}

static void run_sum_squares(const tr_compute *c, const void *context, void *const *out) {
  const flat_case *f = context;
  c->kernels->sum_squares(c, f->n, f->n ? f->n : 1, f->x, out[0]);
}

static void check_flat(conform_bench *b, const char *name, conform_run run, tr_dtype type, int64_t n, int in_place,
                       conform_fill fill) {
  flat_case f = {.n = (size_t)n, .type = type, .in_place = in_place};
  f.x = random_input(b, type, n, 1, 3, 0);
  f.dy = random_input(b, type, n, 2, 1, 0);
  conform_case t = {.run = run, .context = &f, .nout = 1};
  t.out[0] = (conform_out){type, n, tolerance_of(type), fill, 0};
  snprintf(t.label, sizeof t.label, "%s n %d %s in place %d", name, (int)n, tr_dtype_name(type), in_place);
  conform(b, &t);
}

static void gelu_agrees(void **state) {
  for (int type = 0; type < COUNT(TYPES); type++) {
    for (int i = 0; i < COUNT(COUNTS); i++) {
      check_flat(*state, "gelu_forward", run_gelu_forward, TYPES[type], COUNTS[i], 0, FILL_NAN);
      check_flat(*state, "gelu_forward", run_gelu_forward, TYPES[type], COUNTS[i], 1, FILL_RANDOM);
      check_flat(*state, "gelu_backward", run_gelu_backward, TYPES[type], COUNTS[i], 0, FILL_NAN);
      check_flat(*state, "gelu_backward", run_gelu_backward, TYPES[type], COUNTS[i], 1, FILL_RANDOM);
    }
  }
}

// Far from zero the tanh form is x or 0; a wrong approximation of tanh or exp overflows here.
static void gelu_agrees_for_large_arguments(void **state) {
  conform_bench *b = *state;
  static const float ends[] = {-1e30f, -1e4f, -90, -12, -6, -1e-30f, 0, 1e-30f, 6, 12, 90, 1e4f, 1e30f};
  for (int type = 0; type < COUNT(TYPES); type++) {
    for (int backward = 0; backward < 2; backward++) {
      for (int i = 0; i < COUNT(ends); i++) {
        flat_case f = {.n = 1, .type = TYPES[type]};
        f.x = random_input(b, TYPES[type], 1, 1, 0, ends[i]);
        f.dy = random_input(b, TYPES[type], 1, 2, 0, 1);
        conform_case t = {.run = backward ? run_gelu_backward : run_gelu_forward, .context = &f, .nout = 1};
        t.out[0] = (conform_out){TYPES[type], 1, tolerance_of(TYPES[type]), FILL_NAN, fabsf(ends[i]) < 1 ? 0 : 1};
        snprintf(t.label, sizeof t.label, "gelu %s of %g", backward ? "slope" : "value", (double)ends[i]);
        conform(b, &t);
      }
    }
  }
}

static void add_agrees(void **state) {
  for (int type = 0; type < COUNT(TYPES); type++) {
    for (int i = 0; i < COUNT(COUNTS); i++)
      check_flat(*state, "add", run_add, TYPES[type], COUNTS[i], 0, FILL_RANDOM);
  }
}

static void convert_gives_the_same_bits(void **state) {
  static const tr_dtype types[] = {TR_F32, TR_BF16, TR_F16, TR_F8E4M3, TR_F8E5M2, TR_F64};
  conform_bench *b = *state;
  for (int from = 0; from < COUNT(types); from++) {
    for (int to = 0; to < COUNT(types); to++) {
      for (int i = 0; i < COUNT(COUNTS); i++) {
        flat_case f = {.n = (size_t)COUNTS[i], .type = types[from], .to = types[to]};
        f.x = random_input(b, types[from], COUNTS[i], 1, 3, 0);
        conform_case t = {.run = run_convert, .context = &f, .nout = 1};
        t.out[0] = (conform_out){types[to], COUNTS[i], 0, FILL_NAN, 0};
        snprintf(t.label, sizeof t.label, "convert n %d %s to %s", (int)COUNTS[i], tr_dtype_name(types[from]),
                 tr_dtype_name(types[to]));
        conform(b, &t);
      }
    }
  }
}

static void run_bits_to_bf16(const tr_compute *c, const void *context, void *const *out) {
  const flat_case *f = context;
  c->kernels->convert(c, f->n, TR_F32, f->x, TR_BF16, out[0]);
}

// Ties to even, numbers that round up to infinity, denormals, and NaN of every kind, at every place in a vector: the
// same bits, not only the same values.
static void convert_of_special_numbers_gives_the_same_bits(void **state) {
  conform_bench *b = *state;
  static const uint32_t special[] = {0,          0x80000000, 0x3f808000, 0x3f818000, 0x3f808001,
                                     0x3f817fff, 0x7f7fffff, 0xff7f8000, 0x7f800000, 0xff800000,
                                     0x7f800001, 0x7fffffff, 0xffffffff, 0x7fc00000, 0x7fff8000,
                                     0xff80ffff, 1,          0x00008000, 0x80018000, 0x007fffff};
  enum { N = 37 * COUNT(special) };
  uint32_t *x = bench_keep(b, exact_malloc(N * sizeof *x));
  for (int i = 0; i < N; i++) x[i] = special[i % COUNT(special)];
  flat_case f = {.n = N, .x = x};
  tr_bf16 *expected = bench_keep(b, exact_malloc(N * sizeof *expected));
  tr_bf16 *got = bench_keep(b, exact_malloc(N * sizeof *got));
  void *const want[] = {expected}, *const have[] = {got};
  run_bits_to_bf16(&b->reference, &f, want);
  run_bits_to_bf16(&b->table[0], &f, have);
  assert_memory_equal(expected, got, N * sizeof *got);
  bench_release(b);
}

static void sum_squares_agrees(void **state) {
  conform_bench *b = *state;
  for (int i = 0; i < COUNT(COUNTS); i++) {
    flat_case f = {.n = (size_t)COUNTS[i]};
    f.x = random_input(b, TR_F32, COUNTS[i], 1, 3, 0);
    conform_case t = {.run = run_sum_squares, .context = &f, .nout = 1};
    t.out[0] = (conform_out){TR_F64, 1, 1e-12, FILL_NAN, 0};
    snprintf(t.label, sizeof t.label, "sum_squares n %d", (int)COUNTS[i]);
    conform(b, &t);
  }
}

// --- rows with dropout ---

typedef struct row_case {
  int64_t rows, width, vocab, npos;
  tr_dtype type;
  const int32_t *token, *position;
  const void *x, *y, *wte, *wpe;
  tr_dropout dropout;
  int in_place, add_wte, add_wpe;
} row_case;

static void run_residual(const tr_compute *c, const void *context, void *const *out) {
  const row_case *r = context;
  c->kernels->residual_forward(c, r->rows, r->width, r->type, r->in_place ? out[0] : r->x, r->y, &r->dropout, out[0]);
}

static void run_dropout_backward(const tr_compute *c, const void *context, void *const *out) {
  const row_case *r = context;
  c->kernels->dropout_backward(c, r->rows, r->width, r->type, &r->dropout, r->in_place ? out[0] : r->x, out[0]);
}

static void run_embedding_forward(const tr_compute *c, const void *context, void *const *out) {
  const row_case *r = context;
  c->kernels->embedding_forward(c, r->rows, r->width, r->type, r->token, r->position, r->wte, r->wpe, &r->dropout,
                                out[0]);
}

static void run_embedding_backward(const tr_compute *c, const void *context, void *const *out) {
  const row_case *r = context;
  c->kernels->embedding_backward(c, r->rows, r->width, r->type, r->token, r->position, &r->dropout, r->x, out[0],
                                 r->vocab, r->add_wte, r->wpe ? out[1] : NULL, r->npos, r->add_wpe);
}

static void run_column_sum(const tr_compute *c, const void *context, void *const *out) {
  const row_case *r = context;
  c->kernels->column_sum(c, r->rows, r->width, r->type, r->x, out[0], r->add_wte);
}

static size_t scratch_column_sum(const tr_kernels *kernels, const void *context, int nthread) {
  const row_case *r = context;
  (void)nthread;
  return kernels->column_sum_scratch(r->rows, r->width, r->type);
}

static row_case row_inputs(conform_bench *b, int64_t rows, int64_t width, tr_dtype type, float p) {
  row_case r = {.rows = rows, .width = width, .type = type, .vocab = 23, .npos = 40};
  r.x = random_input(b, type, rows * width, 1, 1, 0);
  r.y = random_input(b, type, rows * width, 2, 1, 0);
  r.wte = random_input(b, type, r.vocab * width, 3, 1, 0);
  r.wpe = random_input(b, type, r.npos * width, 4, 1, 0);
  r.token = random_index(b, rows, 5, 0, (int32_t)r.vocab);
  r.position = random_index(b, rows, 6, 0, (int32_t)r.npos);
  r.dropout = random_dropout(b, rows, p, 9);
  return r;
}

static void check_rows(conform_bench *b, const char *name, conform_run run, int64_t rows, int64_t width,
                       tr_dtype type, int option) {
  float p = option & 1 ? 0.3f : 0;
  row_case r = row_inputs(b, rows, width, type, p);
  r.in_place = option >> 1 & 1;
  if (run == run_embedding_forward && r.in_place) r.wpe = NULL; // the second option means this here
  conform_fill fill = r.in_place && r.wpe ? FILL_RANDOM : FILL_NAN;
  conform_case t = {.run = run, .context = &r, .nout = 1};
  t.out[0] = (conform_out){type, rows * width, tolerance_of(type), fill, 0};
  snprintf(t.label, sizeof t.label, "%s rows %d width %d %s dropout %g option %d", name, (int)rows, (int)width,
           tr_dtype_name(type), (double)p, option);
  conform(b, &t);
}

static void check_scatter(conform_bench *b, int64_t rows, int64_t width, tr_dtype type, int option) {
  row_case r = row_inputs(b, rows, width, type, option & 1 ? 0.3f : 0);
  r.add_wte = option >> 1 & 1;
  r.add_wpe = option >> 2 & 1;
  if (option == 0) r.wpe = NULL;
  conform_case t = {.run = run_embedding_backward, .context = &r, .nout = 2};
  t.out[0] = (conform_out){TR_F32, r.vocab * width, TOLERANCE_F32, r.add_wte ? FILL_RANDOM : FILL_NAN, 0};
  t.out[1] = (conform_out){TR_F32, r.npos * width, TOLERANCE_F32, r.add_wpe ? FILL_RANDOM : FILL_NAN, 0};
  snprintf(t.label, sizeof t.label, "embedding_backward rows %d width %d %s option %d", (int)rows, (int)width,
           tr_dtype_name(type), option);
  conform(b, &t);
}

static void check_column_sum(conform_bench *b, int64_t rows, int64_t width, tr_dtype type, int option) {
  row_case r = row_inputs(b, rows, width, type, 0);
  r.add_wte = option & 1;
  conform_case t = {.run = run_column_sum, .scratch = scratch_column_sum, .context = &r, .nout = 1};
  t.out[0] = (conform_out){TR_F32, width, TOLERANCE_F32, r.add_wte ? FILL_RANDOM : FILL_NAN, 1};
  snprintf(t.label, sizeof t.label, "column_sum rows %d width %d %s add %d", (int)rows, (int)width,
           tr_dtype_name(type), r.add_wte);
  conform(b, &t);
}

typedef void (*row_check)(conform_bench *b, int64_t rows, int64_t width, tr_dtype type, int option);

static void for_all_rows(conform_bench *b, row_check check, int noption) {
  for (int type = 0; type < COUNT(TYPES); type++) {
    for (int r = 0; r < COUNT(ROWS); r++) {
      for (int w = 0; w < COUNT(WIDTHS); w++) {
        for (int option = 0; option < noption; option++) check(b, ROWS[r], WIDTHS[w], TYPES[type], option);
      }
    }
  }
}

static void check_residual(conform_bench *b, int64_t rows, int64_t width, tr_dtype type, int option) {
  check_rows(b, "residual_forward", run_residual, rows, width, type, option);
}

static void check_dropout(conform_bench *b, int64_t rows, int64_t width, tr_dtype type, int option) {
  check_rows(b, "dropout_backward", run_dropout_backward, rows, width, type, option);
}

static void check_embedding(conform_bench *b, int64_t rows, int64_t width, tr_dtype type, int option) {
  check_rows(b, "embedding_forward", run_embedding_forward, rows, width, type, option);
}

static void residual_agrees(void **state) {
  for_all_rows(*state, check_residual, 4);
  check_residual(*state, 5, 1111, TR_F32, 1); // several blocks of dropout factors
  check_residual(*state, 5, 1111, TR_BF16, 3);
}
static void dropout_backward_agrees(void **state) { for_all_rows(*state, check_dropout, 4); }
static void embedding_forward_agrees(void **state) { for_all_rows(*state, check_embedding, 4); }
static void embedding_backward_agrees(void **state) { for_all_rows(*state, check_scatter, 8); }
static void column_sum_agrees(void **state) { for_all_rows(*state, check_column_sum, 2); }

// --- updates ---

typedef struct update_case {
  size_t n;
  tr_adamw adamw;
  tr_sgd sgd;
  const float *g;
  tr_dtype type; // of the working weights, the last output
  int working;
} update_case;

static void run_adamw(const tr_compute *c, const void *context, void *const *out) {
  const update_case *u = context;
  c->kernels->adamw(c, u->n, &u->adamw, out[0], u->g, out[1], out[2], u->type, u->working ? out[3] : NULL);
}

static void run_sgd(const tr_compute *c, const void *context, void *const *out) {
  const update_case *u = context;
  c->kernels->sgd(c, u->n, &u->sgd, out[0], u->g, u->sgd.momentum > 0 ? out[1] : NULL, u->type,
                  u->working ? out[2] : NULL);
}

static void adamw_agrees(void **state) {
  conform_bench *b = *state;
  for (int i = 0; i < COUNT(COUNTS); i++) {
    update_case u = {.n = (size_t)COUNTS[i]};
    u.adamw = (tr_adamw){1e-2f, 0.9f, 0.95f, 1e-8f, 0.1f, 0.271f, 0.142625f, 0.37f};
    u.g = random_input(b, TR_F32, COUNTS[i], 5, 1, 0);
    conform_case t = {.run = run_adamw, .context = &u, .nout = 3};
    t.out[0] = (conform_out){TR_F32, COUNTS[i], 2e-6, FILL_RANDOM, 0};
    t.out[1] = (conform_out){TR_F32, COUNTS[i], 2e-6, FILL_RANDOM, 0};
    t.out[2] = (conform_out){TR_F32, COUNTS[i], 2e-6, FILL_POSITIVE, 0};
    snprintf(t.label, sizeof t.label, "adamw n %d", (int)COUNTS[i]);
    conform(b, &t);
  }
}

static void sgd_agrees(void **state) {
  conform_bench *b = *state;
  for (int i = 0; i < COUNT(COUNTS); i++) {
    for (int option = 0; option < 8; option++) {
      update_case u = {.n = (size_t)COUNTS[i]};
      u.sgd = (tr_sgd){0.1f, option & 1 ? 0.9f : 0, 0.01f, 0.5f, option >> 1 & 1, option >> 2 & 1};
      u.g = random_input(b, TR_F32, COUNTS[i], 5, 1, 0);
      conform_case t = {.run = run_sgd, .context = &u, .nout = 2};
      t.out[0] = (conform_out){TR_F32, COUNTS[i], 2e-6, FILL_RANDOM, 0};
      // On the first step the buffer's old contents must not matter, not even when they are no numbers.
      t.out[1] = (conform_out){TR_F32, COUNTS[i], 2e-6, u.sgd.first ? FILL_NAN : FILL_RANDOM, 0};
      snprintf(t.label, sizeof t.label, "sgd n %d option %d", (int)COUNTS[i], option);
      conform(b, &t);
    }
  }
}

// The working weights are the new weights in their type, bit by bit, and writing them changes nothing else.
static void working_weights_are_the_rounded_weights(void **state) {
  conform_bench *b = *state;
  for (int i = 0; i < COUNT(COUNTS); i++) {
    for (int option = 0; option < 6; option++) {
      const size_t n = (size_t)COUNTS[i];
      update_case u = {.n = n, .type = TYPES[option & 1], .working = 1};
      u.adamw = (tr_adamw){1e-2f, 0.9f, 0.95f, 1e-8f, 0.1f, 0.271f, 0.142625f, 0.37f};
      u.sgd = (tr_sgd){0.1f, option > 3 ? 0.9f : 0, 0.01f, 0.5f, 1, 0};
      u.g = random_input(b, TR_F32, COUNTS[i], 5, 1, 0);
      void *with[4], *without[3], *expected = random_input(b, u.type, COUNTS[i], 9, 0, 0);
      for (int k = 0; k < 3; k++) {
        with[k] = random_input(b, TR_F32, COUNTS[i], 1 + (uint64_t)k, 1, k == 2 ? 2 : 0);
        without[k] = random_input(b, TR_F32, COUNTS[i], 1 + (uint64_t)k, 1, k == 2 ? 2 : 0);
      }
      void *working = random_input(b, u.type, COUNTS[i], 8, 0, 0);
      with[3] = working;
      void *const sgd_with[] = {with[0], with[1], working};
      const conform_run run = option < 2 ? run_adamw : run_sgd;
      run(&b->table[1], &u, option < 2 ? with : sgd_with);
      u.working = 0;
      run(&b->table[1], &u, without);
      for (int k = 0; k < 3; k++) assert_memory_equal(with[k], without[k], n * sizeof(float));
      tr_convert(TR_F32, without[0], u.type, expected, n);
      assert_memory_equal(working, expected, n * tr_dtype_size(u.type));
      bench_release(b);
    }
  }
}

// Callers size scratch for a full batch and then run short ones: what is enough for a shape is enough for smaller ones.
static void scratch_grows_with_every_size(void **state) {
  (void)state;
  const tr_kernels *k = tr_kernels_cpu();
  const tr_rng_key key = tr_rng_key_make(7, TR_RNG_TEST, 0);
  for (uint32_t i = 0; i < 4000; i++) {
    uint32_t word[4];
    tr_rng_u32x4(key, 0, i, 0, word);
    const int64_t m = 1 + word[0] % 2048, n = 1 + word[1] % 60000, d = 1 + word[2] % 5000;
    const int64_t share = word[3] % 1000, m2 = 1 + m * share / 1001, n2 = 1 + n * (share * 7 % 1000) / 1001,
                  d2 = 1 + d * (share * 13 % 1000) / 1001;
    const tr_matmul most = {.m = m, .n = n, .k = d, .type = TR_F32},
                    less = {.m = m2, .n = n2, .k = d2, .type = TR_F32};
    assert_true(m < 8 || k->matmul_scratch(&less, 2) <= k->matmul_scratch(&most, 2));
    assert_true(k->layernorm_backward_scratch(m2, d2, TR_F32) <= k->layernorm_backward_scratch(m, d, TR_F32));
    const tr_head_loss full = {.rows = m, .width = d, .vocab = n, .type = TR_F32},
                       part = {.rows = m2, .width = d, .vocab = n};
    assert_true(k->head_loss_scratch(&part, 2) <= k->head_loss_scratch(&full, 2));
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(matmul_agrees_for_all_small_shapes),
      cmocka_unit_test(matmul_agrees_for_every_option),
      cmocka_unit_test(layernorm_agrees),
      cmocka_unit_test(gelu_agrees),
      cmocka_unit_test(gelu_agrees_for_large_arguments),
      cmocka_unit_test(add_agrees),
      cmocka_unit_test(convert_gives_the_same_bits),
      cmocka_unit_test(convert_of_special_numbers_gives_the_same_bits),
      cmocka_unit_test(sum_squares_agrees),
      cmocka_unit_test(residual_agrees),
      cmocka_unit_test(dropout_backward_agrees),
      cmocka_unit_test(embedding_forward_agrees),
      cmocka_unit_test(embedding_backward_agrees),
      cmocka_unit_test(column_sum_agrees),
      cmocka_unit_test(adamw_agrees),
      cmocka_unit_test(sgd_agrees),
      cmocka_unit_test(working_weights_are_the_rounded_weights),
      cmocka_unit_test(scratch_grows_with_every_size),
  };
  return cmocka_run_group_tests(tests, conform_setup, conform_teardown);
}
