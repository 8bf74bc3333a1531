// SPDX-License-Identifier: MIT
// Comparing any table of kernels with the reference table.
//
// A case is a function that calls one kernel, the outputs it writes, and how close they must be. conform()
// runs it through the reference, then through the table under test with 1, 2 and 3 threads, and checks that
//   - every element is within tolerance x (largest element of the reference output) of the reference,
//   - 1, 2 and 3 threads give the same bits,
//   - nothing outside the output was written: not behind its end, not between the end of a row and the next one,
//   - the kernel took no more scratch than its *_scratch function says, and gave it back.
// Outputs that are overwritten start as NaN, so a hole shows; outputs that are added to start as random
// numbers. Inputs are allocated to the byte, so that a sanitizer build finds reads past the end.
//
// Not a test itself: a test of a table includes it, sets up a bench, and describes its cases (test_cpu_kernels.c).
#ifndef TRIREME_TESTS_KERNEL_CONFORMANCE_H
#define TRIREME_TESTS_KERNEL_CONFORMANCE_H

#include "trireme/base/arena.h"
#include "trireme/base/philox.h"
#include "trireme/base/pool.h"
#include "trireme/kernel/kernel.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CONFORM_OUT = 6, CONFORM_KEPT = 64, CONFORM_TABLE = 3, CONFORM_GUARD = 64, CONFORM_SCRATCH = 64 << 20 };

static const double TOLERANCE_F32 = 2e-5;
static const double TOLERANCE_BF16 = 0x1p-7;

static inline double tolerance_of(tr_dtype type) { return type == TR_BF16 ? TOLERANCE_BF16 : TOLERANCE_F32; }

// In double: cmocka's own comparison of floats rounds both sides to f32 first.
static inline void expect_near(double got, double expected, double allowed) {
  if (!(fabs(got - expected) <= allowed))
    fail_msg("%.17g, expected %.17g (allowed difference %.3g)", got, expected, allowed);
}

// What an output holds before the kernel runs.
typedef enum conform_fill { FILL_NAN, FILL_RANDOM, FILL_POSITIVE } conform_fill;

typedef struct conform_out {
  tr_dtype type;
  int64_t n;
  double tolerance; // relative to the largest element of the reference's result; 0: the same bits
  conform_fill fill;
  double least; // a scale below which "largest" does not fall: for results that may cancel to nothing
} conform_out;

typedef void (*conform_run)(const tr_compute *c, const void *context, void *const *out);
typedef size_t (*conform_scratch)(const tr_kernels *kernels, const void *context, int nthread);

typedef struct conform_case {
  char label[200];
  conform_run run;
  conform_scratch scratch; // NULL: the kernel may use none
  const void *context;
  int nout;
  conform_out out[CONFORM_OUT];
} conform_case;

typedef struct conform_bench {
  tr_arena scratch;
  tr_pool *pool[CONFORM_TABLE]; // 1, 2 and 3 threads
  tr_compute reference, table[CONFORM_TABLE];
  void *kept[CONFORM_KEPT]; // inputs of the present case
  int nkept;
} conform_bench;

static inline void bench_open(conform_bench *b, const tr_kernels *kernels) {
  *b = (conform_bench){.nkept = 0};
  assert_int_equal(tr_arena_create(&b->scratch, "conformance", CONFORM_SCRATCH), TR_OK);
  assert_int_equal(tr_compute_open(tr_kernels_reference(), NULL, &b->scratch, &b->reference), TR_OK);
  for (int t = 0; t < CONFORM_TABLE; t++) {
    assert_int_equal(tr_pool_create(t + 1, 0, NULL, NULL, &b->pool[t]), TR_OK);
    assert_int_equal(tr_compute_open(kernels, b->pool[t], &b->scratch, &b->table[t]), TR_OK);
  }
}

static inline void bench_close(conform_bench *b) {
  for (int t = 0; t < CONFORM_TABLE; t++) {
    tr_compute_close(&b->table[t]);
    tr_pool_destroy(b->pool[t]);
  }
  tr_compute_close(&b->reference);
  tr_arena_destroy(&b->scratch);
}

static inline void *bench_keep(conform_bench *b, void *memory) {
  assert_non_null(memory);
  assert_true(b->nkept < CONFORM_KEPT);
  return b->kept[b->nkept++] = memory;
}

static inline void bench_release(conform_bench *b) {
  while (b->nkept > 0) free(b->kept[--b->nkept]);
}

static inline void *exact_malloc(size_t nbyte) { return nbyte ? malloc(nbyte) : malloc(1); }

// n numbers of unit variance, uniform in +-sqrt(3), times `scale` plus `offset`; the seed alone decides which.
static inline void random_fill(tr_dtype type, void *data, int64_t n, uint64_t seed, float scale, float offset) {
  float *wide = exact_malloc((size_t)n * sizeof *wide);
  assert_non_null(wide);
  tr_rng_uniform_fill(tr_rng_key_make(seed, TR_RNG_TEST, 0), 0, (size_t)n, wide);
  for (int64_t i = 0; i < n; i++) wide[i] = (wide[i] - 0.5f) * 3.46410162f * scale + offset;
  tr_convert(TR_F32, wide, type, data, (size_t)n);
  free(wide);
}

static inline void *random_input(conform_bench *b, tr_dtype type, int64_t n, uint64_t seed, float scale,
                                 float offset) {
  void *data = bench_keep(b, exact_malloc((size_t)n * tr_dtype_size(type)));
  random_fill(type, data, n, seed, scale, offset);
  return data;
}

// n integers in [low, high).
static inline int32_t *random_index(conform_bench *b, int64_t n, uint64_t seed, int32_t low, int32_t high) {
  int32_t *data = bench_keep(b, exact_malloc((size_t)n * sizeof *data));
  tr_rng_key key = tr_rng_key_make(seed, TR_RNG_TEST, 1);
  for (int64_t i = 0; i < n; i++)
    data[i] = low + (int32_t)(tr_rng_u32(key, (uint64_t)i, 0, 0) % (uint32_t)(high - low));
  return data;
}

// Dropout whose rows belong to different samples, some of them beyond 32 bits.
static inline tr_dropout random_dropout(conform_bench *b, int64_t rows, float p, uint64_t seed) {
  tr_dropout dropout = {.p = p};
  if (p <= 0) return dropout;
  int64_t *sample = bench_keep(b, exact_malloc((size_t)rows * sizeof *sample));
  int32_t *position = random_index(b, rows, seed, 0, 1024);
  for (int64_t r = 0; r < rows; r++) sample[r] = r / 3 + (r % 2 ? (INT64_C(5) << 32) : 0);
  dropout.key = tr_rng_key_make(seed, TR_RNG_DROPOUT, 7);
  dropout.sample = sample;
  dropout.position = position;
  return dropout;
}

static inline unsigned char *out_new(const conform_out *o, uint64_t seed) {
  size_t nbyte = (size_t)o->n * tr_dtype_size(o->type);
  unsigned char *data = malloc(nbyte + CONFORM_GUARD);
  assert_non_null(data);
  memset(data, 0xff, nbyte); // a NaN in every float type
  memset(data + nbyte, 0xa5, CONFORM_GUARD);
  if (o->fill == FILL_NAN) return data;
  random_fill(o->type, data, o->n, seed, 1, 0);
  for (int64_t i = 0; o->fill == FILL_POSITIVE && i < o->n; i++)
    tr_store(o->type, data, (size_t)i, fabsf(tr_load(o->type, data, (size_t)i)));
  return data;
}

static inline double element(tr_dtype type, const void *data, int64_t i) {
  return type == TR_F64 ? ((const double *)data)[i] : (double)tr_load(type, data, (size_t)i);
}

static inline double largest_of(const conform_out *o, const void *data) {
  double largest = o->least;
  for (int64_t i = 0; i < o->n; i++) {
    double value = fabs(element(o->type, data, i));
    if (isfinite(value) && value > largest) largest = value;
  }
  return largest;
}

static inline void check_guard(const conform_case *t, int k, const unsigned char *data) {
  const unsigned char *guard = data + (size_t)t->out[k].n * tr_dtype_size(t->out[k].type);
  for (int i = 0; i < CONFORM_GUARD; i++)
    if (guard[i] != 0xa5) fail_msg("%s: output %d is written %d bytes past its end", t->label, k, i);
}

static inline void check_close(const conform_case *t, int k, const void *expected, const void *got) {
  const conform_out *o = &t->out[k];
  double allowed = o->tolerance * largest_of(o, expected);
  for (int64_t i = 0; i < o->n; i++) {
    double a = element(o->type, expected, i), b = element(o->type, got, i);
    if (a == b || (isnan(a) && isnan(b))) continue;
    if (!(fabs(a - b) <= allowed)) {
      fail_msg("%s: output %d, element %lld of %lld is %.9g, the reference has %.9g (allowed difference %.3g)",
               t->label, k, (long long)i, (long long)o->n, b, a, allowed);
    }
  }
}

static inline void check_same_bits(const conform_case *t, int k, const void *one, const void *many, int nthread) {
  size_t size = tr_dtype_size(t->out[k].type);
  for (int64_t i = 0; i < t->out[k].n; i++) {
    size_t at = (size_t)i * size;
    if (memcmp((const char *)one + at, (const char *)many + at, size) != 0)
      fail_msg("%s: output %d, element %lld differs between 1 thread and %d", t->label, k, (long long)i, nthread);
  }
}

// Run once, with exactly the scratch that the table asks for.
static inline void conform_call(conform_bench *b, const conform_case *t, const tr_compute *c, int nthread,
                                unsigned char **out) {
  size_t size = b->scratch.size;
  size_t need = t->scratch ? t->scratch(c->kernels, t->context, nthread) : 0;
  assert_true(need <= size);
  for (int k = 0; k < t->nout; k++) out[k] = out_new(&t->out[k], 1000 + (uint64_t)k);
  b->scratch.size = need;
  t->run(c, t->context, (void *const *)out);
  b->scratch.size = size;
  if (b->scratch.used != 0)
    fail_msg("%s: %zu bytes of scratch are still in use after the call", t->label, b->scratch.used);
  for (int k = 0; k < t->nout; k++) check_guard(t, k, out[k]);
}

static inline void out_free(const conform_case *t, unsigned char **out) {
  for (int k = 0; k < t->nout; k++) free(out[k]);
}

// Run the case everywhere and compare. Ends by releasing the case's inputs.
static inline void conform(conform_bench *b, const conform_case *t) {
  unsigned char *expected[CONFORM_OUT], *one[CONFORM_OUT], *many[CONFORM_OUT];
  conform_call(b, t, &b->reference, 1, expected);
  conform_call(b, t, &b->table[0], 1, one);
  for (int k = 0; k < t->nout; k++) check_close(t, k, expected[k], one[k]);
  for (int n = 1; n < CONFORM_TABLE; n++) {
    conform_call(b, t, &b->table[n], n + 1, many);
    for (int k = 0; k < t->nout; k++) check_same_bits(t, k, one[k], many[k], n + 1);
    out_free(t, many);
  }
  out_free(t, expected);
  out_free(t, one);
  bench_release(b);
}

// Fixture of a group of tests of the fast table: *state is its bench.
static inline int conform_setup(void **state) {
  static conform_bench bench;
  bench_open(&bench, tr_kernels_cpu());
  *state = &bench;
  return 0;
}

static inline int conform_teardown(void **state) {
  bench_close(*state);
  return 0;
}

#endif
