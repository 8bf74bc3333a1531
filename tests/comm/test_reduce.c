// SPDX-License-Identifier: MIT
// tier: quick
// timeout: 60
// Sums over sources: every instruction set has the bits of the naive tree, for all types, operations and numbers of sources,
// in place and to several destinations; narrow floats are read and rounded as the tensor module does it.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "comm/comm_internal.h"
#include "trireme/base/cpu.h"
#include <math.h>
#include <string.h>

enum { SOURCES = 9, MOST = 700 };

typedef void (*reducer)(tr_dtype type, tr_dtype dst_type, tr_reduce_op op, int nsrc, const char *const *src, int ndst,
                        char *const *dst, size_t n);

static int reducers(reducer out[3]) {
  out[0] = tr__reduce_base;
  out[1] = tr__reduce_avx2;
  out[2] = tr__reduce_avx512;
  return tr_cpu_isa() >= TR_ISA_AVX512 ? 3 : tr_cpu_isa() == TR_ISA_AVX2 ? 2 : 1;
}

static uint64_t state = 88172645463325252u;
static uint64_t next(void) {
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return state;
}

static int is_integer(tr_dtype type) { return type == TR_I32 || type == TR_I64 || type == TR_U8; }

static void fill(tr_dtype type, char *data, size_t n) {
  size_t width = tr_dtype_size(type);
  for (size_t i = 0; i < n; i++) {
    uint64_t bits = next();
    double value = ldexp((double)(int64_t)bits, (int)(bits % 12) - 66);
    if (type == TR_F64)
      memcpy(data + i * width, &value, width);
    else if (is_integer(type))
      memcpy(data + i * width, &bits, width);
    else
      tr_store(type, data, i, (float)value);
  }
}

static int half_of(int n) {
  int h = 1;
  while (2 * h < n) h *= 2;
  return h;
}

static float naive_f32(tr_dtype type, tr_reduce_op op, int nsrc, const char *const *src, size_t i) {
  if (nsrc == 1) return tr_load(type, src[0], i);
  int h = half_of(nsrc);
  float a = naive_f32(type, op, h, src, i), b = naive_f32(type, op, nsrc - h, src + h, i);
  return op == TR_MAX ? (a > b ? a : b) : a + b;
}
static double naive_f64(tr_reduce_op op, int nsrc, const char *const *src, size_t i) {
  double v;
  memcpy(&v, src[0] + 8 * i, sizeof v);
  if (nsrc == 1) return v;
  int h = half_of(nsrc);
  double a = naive_f64(op, h, src, i), b = naive_f64(op, nsrc - h, src + h, i);
  return op == TR_MAX ? (a > b ? a : b) : a + b;
}
static int64_t load_integer(tr_dtype type, const char *src, size_t i) {
  int32_t w;
  int64_t l;
  memcpy(&w, src + 4 * (type == TR_I32) * i, 4);
  if (type == TR_I64) memcpy(&l, src + 8 * i, 8);
  return type == TR_I64 ? l : type == TR_I32 ? w : (uint8_t)src[i];
}
static int64_t naive_integer(tr_dtype type, tr_reduce_op op, int nsrc, const char *const *src, size_t i) {
  int64_t all = load_integer(type, src[0], i);
  for (int s = 1; s < nsrc; s++) {
    int64_t v = load_integer(type, src[s], i);
    all = op == TR_MAX ? (v > all ? v : all) : (int64_t)((uint64_t)all + (uint64_t)v);
  }
  return all;
}

static void naive(tr_dtype type, tr_dtype to, tr_reduce_op op, int nsrc, const char *const *src, char *out,
                  size_t n) {
  for (size_t i = 0; i < n; i++) {
    if (is_integer(type)) {
      int64_t v = naive_integer(type, op, nsrc, src, i);
      memcpy(out + i * tr_dtype_size(type), &v, tr_dtype_size(type));
    } else if (type == TR_F64) {
      double v = naive_f64(op, nsrc, src, i);
      if (op == TR_AVERAGE) v /= nsrc;
      memcpy(out + 8 * i, &v, sizeof v);
    } else {
      float v = naive_f32(type, op, nsrc, src, i);
      tr_store(to, out, i, op == TR_AVERAGE ? v / (float)nsrc : v);
    }
  }
}

static char source[SOURCES][MOST * 8 + 8], expected[MOST * 8], result[3][MOST * 8 + 8];

static void compare(reducer reduce, tr_dtype type, tr_dtype to, tr_reduce_op op, int nsrc, size_t n, int odd) {
  const char *src[SOURCES];
  for (int s = 0; s < nsrc; s++) src[s] = source[s] + odd;
  naive(type, to, op, nsrc, src, expected, n);
  size_t nbyte = n * tr_dtype_size(to);
  for (int ndst = 1; ndst <= 3; ndst++) {
    char *dst[3] = {result[0] + odd, result[1] + odd, result[2] + odd};
    memset(result, 0x55, sizeof result);
    reduce(type, to, op, nsrc, src, ndst, dst, n);
    for (int j = 0; j < ndst; j++) {
      if (memcmp(dst[j], expected, nbyte) != 0)
        print_error("%zu %s of %d sources, operation %d, destination %d\n", n, tr_dtype_name(type), nsrc, (int)op, j);
      assert_memory_equal(dst[j], expected, nbyte);
      assert_int_equal(dst[j][nbyte], 0x55);
    }
  }
}

static void every_instruction_set_has_the_bits_of_the_tree(void **state_of) {
  (void)state_of;
  static const tr_dtype types[] = {TR_F32, TR_BF16, TR_F16, TR_F64, TR_I32, TR_I64, TR_U8, TR_F8E5M2};
  static const size_t sizes[] = {0, 1, 2, 17, 255, 256, 257, 699};
  reducer reduce[3];
  int n = reducers(reduce);
  for (size_t t = 0; t < sizeof types / sizeof *types; t++)
    for (int nsrc = 1; nsrc <= SOURCES; nsrc++)
      for (int op = TR_SUM; op <= TR_AVERAGE; op++) {
        if (!tr__reduce_supported(types[t], (tr_reduce_op)op)) continue;
        for (int s = 0; s < nsrc; s++) fill(types[t], source[s] + (nsrc & 1) * 4, MOST);
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
          for (int i = 0; i < n; i++) {
            compare(reduce[i], types[t], types[t], (tr_reduce_op)op, nsrc, sizes[s], (nsrc & 1) * 4);
            if (types[t] == TR_BF16 || types[t] == TR_F16)
              compare(reduce[i], types[t], TR_F32, (tr_reduce_op)op, nsrc, sizes[s], (nsrc & 1) * 4);
          }
      }
}

static void results_may_replace_sources(void **state_of) {
  (void)state_of;
  reducer reduce[3];
  for (int i = 0, n = reducers(reduce); i < n; i++)
    for (int nsrc = 2; nsrc <= 4; nsrc++) {
      const char *src[4];
      char *dst[4];
      for (int s = 0; s < nsrc; s++) {
        fill(TR_F32, source[s], MOST);
        src[s] = dst[s] = source[s];
      }
      naive(TR_F32, TR_F32, TR_SUM, nsrc, src, expected, MOST);
      reduce[i](TR_F32, TR_F32, TR_SUM, nsrc, src, nsrc, dst, MOST);
      for (int s = 0; s < nsrc; s++) assert_memory_equal(source[s], expected, MOST * 4);
    }
}

// All codes, through f32 and back.
static void half_floats_are_converted_as_elsewhere(void **state_of) {
  (void)state_of;
  static uint16_t codes[65536], back[65536];
  static float wide[65536];
  reducer reduce[3];
  for (int i = 0; i < 65536; i++) codes[i] = (uint16_t)i;
  const char *src[1] = {(const char *)codes};
  for (int i = 0, n = reducers(reduce); i < n; i++) {
    char *dst[1] = {(char *)wide};
    reduce[i](TR_F16, TR_F32, TR_SUM, 1, src, 1, dst, 65536);
    dst[0] = (char *)back;
    reduce[i](TR_F16, TR_F16, TR_SUM, 1, src, 1, dst, 65536);
    for (int c = 0; c < 65536; c++) {
      float want = tr_f16_to_f32((uint16_t)c);
      assert_memory_equal(&wide[c], &want, sizeof want);
      assert_int_equal(back[c], tr_f32_to_f16(want));
    }
  }
}

// Averages of two halves lie between two codes, in the middle or not: half-way cases, overflow and subnormals.
static void sums_of_half_floats_are_rounded_once(void **state_of) {
  (void)state_of;
  enum { N = 4096 };
  static uint16_t a[N], b[N], got[N];
  reducer reduce[3];
  for (int i = 0, n = reducers(reduce); i < n; i++)
    for (int round = 0; round < 64; round++) {
      for (int k = 0; k < N; k++) {
        a[k] = (uint16_t)(round * 1024 + k / 4);
        b[k] = (uint16_t)next();
      }
      const char *src[2] = {(const char *)a, (const char *)b};
      char *dst[1] = {(char *)got};
      reduce[i](TR_F16, TR_F16, TR_AVERAGE, 2, src, 1, dst, N);
      for (int k = 0; k < N; k++) {
        float sum = (tr_f16_to_f32(a[k]) + tr_f16_to_f32(b[k])) / 2.0f;
        if (isnan(sum))
          assert_true(isnan(tr_f16_to_f32(got[k])));
        else
          assert_int_equal(got[k], tr_f32_to_f16(sum));
      }
    }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_instruction_set_has_the_bits_of_the_tree),
      cmocka_unit_test(results_may_replace_sources),
      cmocka_unit_test(half_floats_are_converted_as_elsewhere),
      cmocka_unit_test(sums_of_half_floats_are_rounded_once),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
