// SPDX-License-Identifier: MIT
// tier: quick
// timeout: 60
// oneDNN's path gives the products of the packed path, for transposes, bias, accumulation, padded rows and
// block edges. Only AMX processors take it by themselves; here it is called directly, in f32, which every
// processor has, and in bf16 where oneDNN can.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kernel/cpu_dnnl_internal.h"
#include <math.h>
#include <stdlib.h>

enum { M = 300, N = 1100, K = 40, SCRATCH = 64 << 20 };

typedef struct fixture {
  tr_pool *pool;
  tr_arena scratch;
  tr_compute compute;
  tr_dnnl *dnnl;
} fixture;

static int set_up(void **state) {
  fixture *f = calloc(1, sizeof *f);
  *state = f;
  if (tr_pool_create(2, 0, NULL, NULL, &f->pool) < 0 || tr_arena_create(&f->scratch, "scratch", SCRATCH) < 0)
    return -1;
  if (tr_compute_open(tr_kernels_cpu(), f->pool, &f->scratch, &f->compute) < 0) return -1;
  return tr__dnnl_open(f->pool, &f->dnnl) < 0 ? -1 : 0;
}

static int tear_down(void **state) {
  fixture *f = *state;
  tr__dnnl_close(f->dnnl);
  tr_compute_close(&f->compute);
  tr_arena_destroy(&f->scratch);
  tr_pool_destroy(f->pool);
  free(f);
  return 0;
}

static void *numbers(tr_dtype type, size_t n, uint32_t seed) {
  char *out = malloc(n * tr_dtype_size(type));
  assert_non_null(out);
  for (size_t i = 0; i < n; i++) {
    seed = seed * 1664525u + 1013904223u;
    tr_store(type, out, i, (float)(int32_t)seed * 0x1p-31f);
  }
  return out;
}

static void compare(tr_dtype type, const void *got, const void *want, size_t n) {
  const float allowed = type == TR_BF16 ? 0.06f : 2e-5f;
  for (size_t i = 0; i < n; i++) {
    const float a = tr_load(type, got, i), b = tr_load(type, want, i);
    if (!(fabsf(a - b) <= allowed)) fail_msg("element %zu is %g, the packed path has %g", i, (double)a, (double)b);
  }
}

// One product by both paths; returns 0 when oneDNN has nothing for it.
static int check_product(fixture *f, tr_dtype type, int64_t m, int64_t n, int option) {
  const int64_t ld = (m > n ? m : n) + K + 4; // rows of every operand are padded
  const int trans_a = option & 1, trans_b = option & 2;
  tr_gemm g = {.m = m, .n = n, .k = K, .type_a = type, .type_b = type, .type_c = type, .type_bias = type, .ldc = ld};
  g.a_row = trans_a ? 1 : ld, g.a_col = trans_a ? ld : 1;
  g.b_row = trans_b ? 1 : ld, g.b_col = trans_b ? ld : 1;
  g.add = (option & 4) != 0;
  const size_t size = (size_t)(ld * ld);
  void *a = numbers(type, size, 1), *b = numbers(type, size, 2), *bias = numbers(type, (size_t)ld, 3);
  void *got = numbers(type, size, 4), *want = numbers(type, size, 4);
  g.a = a, g.b = b, g.bias = option & 8 ? bias : NULL;
  g.c = want;
  assert_int_equal(tr__gemm(&f->compute, &g), TR_OK);
  g.c = got;
  const tr_status status = tr__dnnl_gemm(f->dnnl, f->pool, &g);
  if (status != TR_PENDING) {
    assert_int_equal(status, TR_OK);
    compare(type, got, want, size);
  }
  free(a);
  free(b);
  free(bias);
  free(got);
  free(want);
  return status == TR_OK;
}

static void f32_products_agree_with_the_packed_path(void **state) {
  for (int option = 0; option < 16; option++) assert_true(check_product(*state, TR_F32, M, N, option));
}

static void single_blocks_and_edges_agree(void **state) {
  assert_true(check_product(*state, TR_F32, 8, 9, 0));
  assert_true(check_product(*state, TR_F32, 256, 1024, 2));
  assert_true(check_product(*state, TR_F32, 257, 1025, 5));
}

static void a_full_cache_starts_again(void **state) {
  for (int64_t n = 20; n < 170; n++) assert_true(check_product(*state, TR_F32, 9, n, 0));
  assert_true(check_product(*state, TR_F32, 9, 20, 0));
}

static void bf16_products_agree_where_supported(void **state) {
  for (int option = 0; option < 16; option++)
    if (!check_product(*state, TR_BF16, M, N, option)) skip();
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(f32_products_agree_with_the_packed_path),
      cmocka_unit_test(single_blocks_and_edges_agree),
      cmocka_unit_test(a_full_cache_starts_again),
      cmocka_unit_test(bf16_products_agree_where_supported),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
