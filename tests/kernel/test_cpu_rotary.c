// SPDX-License-Identifier: MIT
// tier: quick
// timeout: 120
// RMSNorm, rotary positions and SwiGLU of tr_kernels_cpu() agree with the reference table: awkward sizes, several
// vectors in a row, rows that lie apart, in place where that is allowed, added or overwritten, large angles and
// arguments, and with the same bits for 1, 2 and 3 threads. kernel_conformance.h says what is checked in each case.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kernel/kernel_conformance.h"

static const tr_dtype TYPES[] = {TR_F32, TR_BF16};
static const int64_t ROWS[] = {0, 1, 3, 5};
static const int64_t WIDTHS[] = {1, 7, 8, 64, 80, 100, 128, 768};
static const double TIGHT = 2e-6; // relative to the largest element, in f32

#define COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))

static double tight(tr_dtype type) { return type == TR_BF16 ? TOLERANCE_BF16 : TIGHT; }

// Elements of an array of `rows` rows that lie `ld` apart, the last one `width` long.
static int64_t extent(int64_t rows, int64_t width, int64_t ld) { return rows == 0 ? 0 : (rows - 1) * ld + width; }

// --- RMSNorm ---

typedef struct rms_case {
  tr_rmsnorm p;
  const void *x, *dy, *gamma;
  void *rstd;
  int in_place, no_rstd, add_dx, add;
} rms_case;

static void run_rms_forward(const tr_compute *c, const void *context, void *const *out) {
  const rms_case *n = context;
  c->kernels->rmsnorm_forward(c, &n->p, n->in_place ? out[0] : n->x, n->gamma, out[0], n->no_rstd ? NULL : out[1]);
}

static void run_rms_backward(const tr_compute *c, const void *context, void *const *out) {
  const rms_case *n = context;
  c->kernels->rmsnorm_backward(c, &n->p, n->in_place ? out[0] : n->dy, n->x, n->gamma, n->rstd, out[0], n->add_dx,
                               out[1], n->add);
}

static size_t scratch_rms_backward(const tr_kernels *kernels, const void *context, int nthread) {
  (void)nthread;
  return kernels->rmsnorm_backward_scratch(&((const rms_case *)context)->p);
}

static rms_case rms_inputs(conform_bench *b, tr_rmsnorm p) {
  int64_t size = p.count * p.width, nx = extent(p.rows, size, p.ld_x), ny = extent(p.rows, size, p.ld_y);
  rms_case n = {.p = p};
  n.x = random_input(b, p.type, nx, 1, 2, 1);
  n.dy = random_input(b, p.type, ny, 2, 1, 0);
  n.gamma = random_input(b, p.type, p.width, 3, 0.3f, 1);
  n.rstd = random_input(b, TR_F32, p.rows * p.count, 4, 1, 0);
  void *y = random_input(b, p.type, ny, 5, 1, 0);
  tr_kernels_reference()->rmsnorm_forward(&b->reference, &p, n.x, n.gamma, y, n.rstd);
  return n;
}

// Option bits: forward 0 in place, 1 no rstd; backward 0 in place, 1 add to dx (not both), 2 add to dgamma.
static void check_rms_forward(conform_bench *b, tr_rmsnorm p, int option) {
  rms_case n = rms_inputs(b, p);
  n.in_place = option & 1 && p.ld_x == p.ld_y;
  n.no_rstd = option >> 1 & 1;
  conform_case t = {.run = run_rms_forward, .context = &n, .nout = 2};
  t.out[0] = (conform_out){p.type, extent(p.rows, p.count * p.width, p.ld_y), tight(p.type),
                           n.in_place ? FILL_RANDOM : FILL_NAN, 0};
  t.out[1] = (conform_out){TR_F32, p.rows * p.count, TIGHT, FILL_NAN, 0};
  snprintf(t.label, sizeof t.label, "rmsnorm_forward rows %d count %d width %d ld %d %d %s option %d", (int)p.rows,
           (int)p.count, (int)p.width, (int)p.ld_x, (int)p.ld_y, tr_dtype_name(p.type), option);
  conform(b, &t);
}

static void check_rms_backward(conform_bench *b, tr_rmsnorm p, int option) {
  rms_case n = rms_inputs(b, p);
  n.in_place = option & 1 && p.ld_x == p.ld_y;
  n.add_dx = !n.in_place && option >> 1 & 1;
  n.add = option >> 2 & 1;
  // One number per vector: rstd may be large and everything it multiplies cancels.
  double least = p.width == 1 ? 300 : 1;
  conform_case t = {.run = run_rms_backward, .scratch = scratch_rms_backward, .context = &n, .nout = 2};
  t.out[0] = (conform_out){p.type, extent(p.rows, p.count * p.width, p.ld_x), tight(p.type),
                           n.in_place || n.add_dx ? FILL_RANDOM : FILL_NAN, least};
  t.out[1] = (conform_out){TR_F32, p.width, TIGHT, n.add ? FILL_RANDOM : FILL_NAN, 1};
  snprintf(t.label, sizeof t.label, "rmsnorm_backward rows %d count %d width %d ld %d %d %s option %d", (int)p.rows,
           (int)p.count, (int)p.width, (int)p.ld_x, (int)p.ld_y, tr_dtype_name(p.type), option);
  conform(b, &t);
}

static void check_rms(conform_bench *b, int64_t rows, int64_t count, int64_t width, tr_dtype type) {
  tr_rmsnorm p = {.rows = rows, .count = count, .width = width, .type = type, .eps = 1e-5f};
  for (int pad = 0; pad < 3; pad++) {
    p.ld_x = count * width + (pad > 0 ? 5 : 0);
    p.ld_y = count * width + (pad > 0 ? 5 : 0) + (pad > 1 ? 2 : 0);
    for (int option = 0; option < 4; option++) check_rms_forward(b, p, option);
    for (int option = 0; option < 8; option++) check_rms_backward(b, p, option);
  }
}

static void rmsnorm_agrees(void **state) {
  for (int type = 0; type < COUNT(TYPES); type++) {
    for (int r = 0; r < COUNT(ROWS); r++) {
      for (int w = 0; w < COUNT(WIDTHS); w++) {
        check_rms(*state, ROWS[r], 1, WIDTHS[w], TYPES[type]);
        check_rms(*state, ROWS[r], 3, WIDTHS[w], TYPES[type]);
      }
    }
  }
}

static void rmsnorm_agrees_over_many_tasks(void **state) {
  for (int type = 0; type < COUNT(TYPES); type++) {
    tr_rmsnorm layer = {600, 1, 768, 768, 768, TYPES[type], 1e-5f};
    tr_rmsnorm heads = {257, 4, 64, 300, 257, TYPES[type], 1e-5f};
    check_rms_forward(*state, layer, 0);
    check_rms_forward(*state, heads, 0);
    check_rms_backward(*state, layer, 2);
    check_rms_backward(*state, heads, 4);
  }
}

// --- rotary positions ---

typedef struct rope_case {
  tr_rope p;
} rope_case;

static void run_rope(const tr_compute *c, const void *context, void *const *out) {
  c->kernels->rope(c, &((const rope_case *)context)->p, out[0]);
}

static const double *frequencies(conform_bench *b, int64_t dim, double base) {
  double *frequency = bench_keep(b, exact_malloc((size_t)(dim / 2) * sizeof *frequency));
  for (int64_t i = 0; i < dim / 2; i++) frequency[i] = pow(base, -2.0 * (double)i / (double)dim);
  return frequency;
}

static void check_rope(conform_bench *b, int64_t rows, int64_t count, int64_t dim, tr_dtype type, int32_t positions,
                       int option) {
  rope_case r = {{.rows = rows, .count = count, .dim = dim, .type = type}};
  r.p.ld = count * dim + (option & 1 ? 5 : 0);
  r.p.inverse = option >> 1 & 1;
  r.p.scale = option >> 2 & 1 ? 1.3 : 1;
  r.p.position = random_index(b, rows, 3, -2, positions);
  r.p.frequency = frequencies(b, dim, 10000);
  conform_case t = {.run = run_rope, .context = &r, .nout = 1};
  double tolerance = type == TR_BF16 ? TOLERANCE_BF16 : 2e-7;
  t.out[0] = (conform_out){type, extent(rows, count * dim, r.p.ld), tolerance, FILL_RANDOM, 0};
  snprintf(t.label, sizeof t.label, "rope rows %d count %d dim %d %s positions %d option %d", (int)rows, (int)count,
           (int)dim, tr_dtype_name(type), (int)positions, option);
  conform(b, &t);
}

static void rope_agrees(void **state) {
  static const int64_t dims[] = {2, 8, 14, 64, 80, 100, 128, 768};
  for (int type = 0; type < COUNT(TYPES); type++) {
    for (int r = 0; r < COUNT(ROWS); r++) {
      for (int d = 0; d < COUNT(dims); d++) {
        for (int option = 0; option < 8; option++) {
          check_rope(*state, ROWS[r], 1, dims[d], TYPES[type], 2048, option);
          check_rope(*state, ROWS[r], 3, dims[d], TYPES[type], 300000, option);
        }
      }
    }
  }
  check_rope(*state, 600, 12, 64, TR_F32, 131072, 0);
  check_rope(*state, 600, 12, 64, TR_BF16, 131072, 1);
}

// Every quadrant and its borders, and angles so large that a sum of f32 could not hold their fraction of a turn.
static void rope_turns_a_unit_vector_by_any_angle(void **state) {
  conform_bench *b = *state;
  static const int32_t position[] = {0, 1, 2, 3, 4, 5, 6, -1, -7, 355, 999983, 10000019, -10000019};
  static const double frequency[] = {1, 0.7853981633974483, 1.5707963267948966, 3.141592653589793, 0.31, 1e-9, 0};
  enum { N = COUNT(position), HALF = COUNT(frequency) };
  float x[N][2 * HALF];
  for (int r = 0; r < N; r++)
    for (int i = 0; i < 2 * HALF; i++) x[r][i] = i < HALF;
  tr_rope p = {.rows = N, .count = 1, .dim = 2 * HALF, .ld = 2 * HALF, .type = TR_F32, .scale = 1};
  p.position = position, p.frequency = frequency;
  tr_kernels_cpu()->rope(&b->table[0], &p, x);
  for (int r = 0; r < N; r++) {
    for (int i = 0; i < HALF; i++) {
      float angle = (float)position[r] * (float)frequency[i];
      expect_near((double)x[r][i], cos((double)angle), 1e-7);
      expect_near((double)x[r][HALF + i], sin((double)angle), 1e-7);
    }
  }
}

// --- SwiGLU ---

typedef struct swiglu_case {
  int64_t rows, width;
  tr_dtype type;
  const void *x, *dy;
  int in_place;
} swiglu_case;

static void run_swiglu_forward(const tr_compute *c, const void *context, void *const *out) {
  const swiglu_case *s = context;
  c->kernels->swiglu_forward(c, s->rows, s->width, s->type, s->x, out[0]);
}

static void run_swiglu_backward(const tr_compute *c, const void *context, void *const *out) {
  const swiglu_case *s = context;
  c->kernels->swiglu_backward(c, s->rows, s->width, s->type, s->in_place ? out[0] : s->x, s->dy, out[0]);
}

static void check_swiglu(conform_bench *b, int64_t rows, int64_t width, tr_dtype type) {
  for (int turn = 0; turn < 3; turn++) { // forward, backward, backward in place
    swiglu_case s = {.rows = rows, .width = width, .type = type, .in_place = turn == 2};
    s.x = random_input(b, type, rows * 2 * width, 1, 3, 0);
    s.dy = random_input(b, type, rows * width, 2, 1, 0);
    conform_case t = {.run = turn ? run_swiglu_backward : run_swiglu_forward, .context = &s, .nout = 1};
    t.out[0] =
        (conform_out){type, rows * (turn ? 2 : 1) * width, tight(type), s.in_place ? FILL_RANDOM : FILL_NAN, 0};
    snprintf(t.label, sizeof t.label, "swiglu_%s rows %d width %d %s in place %d", turn ? "backward" : "forward",
             (int)rows, (int)width, tr_dtype_name(type), s.in_place);
    conform(b, &t);
  }
}

static void swiglu_agrees(void **state) {
  for (int type = 0; type < COUNT(TYPES); type++) {
    for (int r = 0; r < COUNT(ROWS); r++) {
      for (int w = 0; w < COUNT(WIDTHS); w++) check_swiglu(*state, ROWS[r], WIDTHS[w], TYPES[type]);
    }
    check_swiglu(*state, 150, 768, TYPES[type]);
    check_swiglu(*state, 2, 70001, TYPES[type]);
  }
}

// Far from zero the gate is open or shut; an exponential that overflows must not become infinity times 0.
static void swiglu_agrees_for_large_arguments(void **state) {
  conform_bench *b = *state;
  static const float gates[] = {-1e30f, -1e4f, -90, -88.5f, -30, -1e-30f, 0, 1e-30f, 30, 88.5f, 90, 1e4f, 1e30f};
  for (int type = 0; type < COUNT(TYPES); type++) {
    for (int backward = 0; backward < 2; backward++) {
      for (int i = 0; i < COUNT(gates); i++) {
        swiglu_case s = {.rows = 1, .width = 1, .type = TYPES[type]};
        void *x = random_input(b, TYPES[type], 2, 1, 0, gates[i]);
        tr_store(TYPES[type], x, 1, 1.5f);
        s.x = x;
        s.dy = random_input(b, TYPES[type], 1, 2, 0, 1);
        conform_case t = {.run = backward ? run_swiglu_backward : run_swiglu_forward, .context = &s, .nout = 1};
        t.out[0] = (conform_out){TYPES[type], backward ? 2 : 1, tight(TYPES[type]), FILL_NAN, 1e-6};
        snprintf(t.label, sizeof t.label, "swiglu %s of gate %g", backward ? "slope" : "value", (double)gates[i]);
        conform(b, &t);
      }
    }
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(rmsnorm_agrees), cmocka_unit_test(rmsnorm_agrees_over_many_tasks),
      cmocka_unit_test(rope_agrees),    cmocka_unit_test(rope_turns_a_unit_vector_by_any_angle),
      cmocka_unit_test(swiglu_agrees),  cmocka_unit_test(swiglu_agrees_for_large_arguments),
  };
  return cmocka_run_group_tests(tests, conform_setup, conform_teardown);
}
