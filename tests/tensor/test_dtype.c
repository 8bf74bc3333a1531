// SPDX-License-Identifier: MIT
// tier: quick
// timeout: 60
// Conversions between element types are exact where they can be and rounded once, to nearest with ties to
// even, where they cannot: every code of every narrow type survives the way to f32 and back, and every value
// half-way between two neighbours, and just beside it, lands where the format's definition says. NaN,
// infinity, saturation, integers.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "trireme/tensor/dtype.h"
#include <math.h>

// The definition of each format, written independently of the code under test.
typedef struct format {
  tr_dtype type;
  int nbit, mbits, bias;
  unsigned infinity; // code of +infinity; 0: the format has none
  unsigned largest;  // code of the largest finite value
} format;

static const format FORMATS[] = {
    {TR_BF16, 16, 7, 127, 0x7f80, 0x7f7f},
    {TR_F16, 16, 10, 15, 0x7c00, 0x7bff},
    {TR_F8E4M3, 8, 3, 7, 0, 0x7e},
    {TR_F8E5M2, 8, 2, 15, 0x7c, 0x7b},
};
enum { NFORMAT = 4 };

static unsigned sign_bit(const format *f) { return 1u << (f->nbit - 1); }

static double value_of(const format *f, unsigned code) {
  unsigned magnitude = code & (sign_bit(f) - 1);
  int exponent = (int)(magnitude >> f->mbits);
  double mantissa = (double)(magnitude & ((1u << f->mbits) - 1));
  double one = (double)(1u << f->mbits);
  double value = exponent ? ldexp(1 + mantissa / one, exponent - f->bias) : ldexp(mantissa / one, 1 - f->bias);
  if (f->infinity && magnitude == f->infinity) value = INFINITY;
  if (magnitude > f->largest && magnitude != f->infinity) value = NAN;
  return code & sign_bit(f) ? -value : value;
}

static float decode(const format *f, unsigned code) {
  if (f->type == TR_BF16) return tr_bf16_to_f32((tr_bf16)code);
  if (f->type == TR_F16) return tr_f16_to_f32((tr_f16)code);
  return tr_f8_to_f32(f->type, (uint8_t)code);
}

static unsigned encode(const format *f, float value) {
  if (f->type == TR_BF16) return tr_f32_to_bf16(value);
  if (f->type == TR_F16) return tr_f32_to_f16(value);
  return tr_f32_to_f8(f->type, value);
}

static void expect_code(const format *f, float value, unsigned expected) {
  unsigned got = encode(f, value);
  if (got != expected)
    fail_msg("%s of %a is 0x%x, expected 0x%x", tr_dtype_name(f->type), (double)value, got, expected);
}

static void every_code_has_the_value_of_its_definition(void **state) {
  (void)state;
  for (int i = 0; i < NFORMAT; i++) {
    const format *f = &FORMATS[i];
    for (unsigned code = 0; code < 2 * sign_bit(f); code++) {
      double expected = value_of(f, code), got = (double)decode(f, code);
      if (isnan(expected) ? !isnan(got) : got != expected || signbit(got) != signbit(expected))
        fail_msg("%s 0x%x is %a, expected %a", tr_dtype_name(f->type), code, got, expected);
    }
  }
}

static void every_code_survives_the_round_trip(void **state) {
  (void)state;
  for (int i = 0; i < NFORMAT; i++) {
    const format *f = &FORMATS[i];
    for (unsigned code = 0; code < 2 * sign_bit(f); code++) {
      // A NaN stays a NaN of the same sign; infinity has no code in e4m3.
      unsigned back = encode(f, decode(f, code));
      if (!isnan(value_of(f, code))) {
        assert_int_equal(back, code);
      } else {
        assert_true(isnan(decode(f, back)));
        assert_int_equal(back & sign_bit(f), code & sign_bit(f));
      }
    }
  }
}

// Between neighbours `code` and `code + 1`: the middle goes to the even one, its f32 neighbours to the nearer one.
static void check_between(const format *f, unsigned code, unsigned sign) {
  double low = value_of(f, code), high = value_of(f, code + 1);
  float middle = (float)((low + high) / 2);
  if ((double)middle != (low + high) / 2) return; // only at the bottom of bf16, where f32 has no value in between
  float side = sign ? -1.0f : 1.0f;
  expect_code(f, side * middle, sign | (code & 1 ? code + 1 : code));
  expect_code(f, side * nextafterf(middle, 0), sign | code);
  expect_code(f, side * nextafterf(middle, INFINITY), sign | (code + 1));
}

static void halves_go_to_even_and_everything_else_to_the_nearest(void **state) {
  (void)state;
  for (int i = 0; i < NFORMAT; i++) {
    for (unsigned code = 0; code < FORMATS[i].largest; code++) {
      check_between(&FORMATS[i], code, 0);
      check_between(&FORMATS[i], code, sign_bit(&FORMATS[i]));
    }
  }
}

static void beyond_the_largest_value_is_infinity_or_the_largest_value(void **state) {
  (void)state;
  for (int i = 0; i < NFORMAT; i++) {
    const format *f = &FORMATS[i];
    double largest = value_of(f, f->largest), step = largest - value_of(f, f->largest - 1);
    unsigned beyond = f->infinity ? f->infinity : f->largest;
    float limit = (float)(largest + step / 2); // the first value that rounds beyond
    expect_code(f, nextafterf(limit, 0), f->largest);
    expect_code(f, limit, beyond);
    expect_code(f, -limit, beyond | sign_bit(f));
    expect_code(f, INFINITY, beyond);
    expect_code(f, -INFINITY, beyond | sign_bit(f));
  }
  expect_code(&FORMATS[2], 448, 0x7e);
  expect_code(&FORMATS[2], 1e30f, 0x7e);
  expect_code(&FORMATS[3], 57344, 0x7b);
  expect_code(&FORMATS[1], 65504, 0x7bff);
}

static void what_is_too_small_becomes_zero_with_its_sign(void **state) {
  (void)state;
  for (int i = 1; i < NFORMAT; i++) {
    const format *f = &FORMATS[i];
    float half = (float)(value_of(f, 1) / 2);
    expect_code(f, half, 0);
    expect_code(f, nextafterf(half, 1), 1);
    expect_code(f, -half, sign_bit(f));
    expect_code(f, -0x1p-149f, sign_bit(f));
    expect_code(f, 0x1p-127f, 0);
  }
}

// All NaNs of f32 that differ in sign, in the upper bits of the payload, or in the lowest bit alone.
static void nan_stays_nan(void **state) {
  (void)state;
  for (uint32_t payload = 0; payload < 0x400; payload++) {
    uint32_t bits = 0x7f800000u | (payload >> 1 << 14) | (payload & 1) | (payload == 0);
    for (uint32_t sign = 0; sign < 2; sign++) {
      uint32_t code = bits | sign << 31;
      float value;
      memcpy(&value, &code, sizeof value);
      for (int i = 0; i < NFORMAT; i++) {
        unsigned narrow = encode(&FORMATS[i], value);
        assert_true(isnan(decode(&FORMATS[i], narrow)));
        assert_int_equal(narrow >> (FORMATS[i].nbit - 1), sign);
      }
    }
  }
}

// --- names ---

static void names_of_both_spellings_are_parsed(void **state) {
  (void)state;
  static const size_t sizes[TR_DTYPE_COUNT] = {4, 2, 2, 1, 1, 8, 4, 8, 1};
  for (int type = 0; type < TR_DTYPE_COUNT; type++) {
    tr_dtype out = TR_DTYPE_COUNT;
    assert_int_equal(tr_dtype_parse(tr_dtype_name((tr_dtype)type), &out), TR_OK);
    assert_int_equal(out, type);
    out = TR_DTYPE_COUNT;
    assert_int_equal(tr_dtype_parse(tr_dtype_safetensors((tr_dtype)type), &out), TR_OK);
    assert_int_equal(out, type);
    assert_int_equal(tr_dtype_size((tr_dtype)type), sizes[type]);
  }
  assert_string_equal(tr_dtype_safetensors(TR_F8E4M3), "F8_E4M3");
  tr_dtype out = TR_I64;
  assert_int_equal(tr_dtype_parse("float", &out), TR_ERR_CONFIG);
  assert_non_null(strstr(tr_status_text(), "'float'"));
  assert_int_equal(out, TR_I64);
}

// --- generic conversion ---

static double generic(tr_dtype from, const void *src, tr_dtype to) {
  union {
    double f64;
    int64_t i64;
    unsigned char byte[8];
  } dst;
  memset(&dst, 0, sizeof dst);
  tr_convert(from, src, to, &dst, 1);
  if (to == TR_F64) return dst.f64;
  if (to == TR_I64) return (double)dst.i64;
  return (double)tr_load(to, &dst, 0);
}

static void small_integers_survive_any_pair_of_types(void **state) {
  (void)state;
  for (int from = 0; from < TR_DTYPE_COUNT; from++) {
    for (int to = 0; to < TR_DTYPE_COUNT; to++) {
      for (int value = 0; value <= 4; value++) {
        double cell = 0;
        tr_store((tr_dtype)from, &cell, 0, (float)value);
        assert_true(generic((tr_dtype)from, &cell, (tr_dtype)to) == value);
      }
    }
  }
}

static void f64_is_rounded_once(void **state) {
  (void)state;
  // Just above the middle of two bf16 numbers: f32 cannot tell it from the middle, which would go down to even.
  double above = 1 + 0x1p-8 + 0x1p-40, middle = 1 + 0x1p-8, below = 1 + 3 * 0x1p-8 - 0x1p-40;
  assert_true(generic(TR_F64, &above, TR_BF16) == 1 + 0x1p-7);
  assert_true(generic(TR_F64, &middle, TR_BF16) == 1);
  assert_true(generic(TR_F64, &below, TR_BF16) == 1 + 0x1p-7);
  double f16_above = -(1 + 0x1p-11 + 0x1p-50), f8_above = 1 + 0x1p-4 + 0x1p-50;
  assert_true(generic(TR_F64, &f16_above, TR_F16) == -(1 + 0x1p-10));
  assert_true(generic(TR_F64, &f8_above, TR_F8E4M3) == 1 + 0x1p-3);
  double huge = 1e300, tiny = -1e-300, nothing = NAN;
  assert_true(isinf(generic(TR_F64, &huge, TR_F16)));
  assert_true(isinf(generic(TR_F64, &huge, TR_BF16)));
  assert_true(generic(TR_F64, &huge, TR_F8E4M3) == 448);
  assert_true(generic(TR_F64, &tiny, TR_BF16) == 0 && signbit(generic(TR_F64, &tiny, TR_BF16)));
  assert_true(isnan(generic(TR_F64, &nothing, TR_F8E4M3)));
}

static void integers_are_cut_towards_zero_and_held_in_range(void **state) {
  (void)state;
  const float value[] = {2.9f, -2.9f, 1e20f, -1e20f, NAN, 300};
  int32_t i32[6];
  int64_t i64[6];
  uint8_t u8[6];
  tr_convert(TR_F32, value, TR_I32, i32, 6);
  tr_convert(TR_F32, value, TR_I64, i64, 6);
  tr_convert(TR_F32, value, TR_U8, u8, 6);
  const int32_t i32_expected[] = {2, -2, INT32_MAX, INT32_MIN, 0, 300};
  const int64_t i64_expected[] = {2, -2, INT64_MAX, INT64_MIN, 0, 300};
  const uint8_t u8_expected[] = {2, 0, 255, 0, 0, 255};
  assert_memory_equal(i32, i32_expected, sizeof i32);
  assert_memory_equal(i64, i64_expected, sizeof i64);
  assert_memory_equal(u8, u8_expected, sizeof u8);
}

static void large_integers_keep_their_value_between_integer_types(void **state) {
  (void)state;
  const int64_t value[] = {INT64_C(0x7ffffffffffffff1), 123456789, -5};
  int64_t same[3];
  int32_t narrow[3];
  tr_convert(TR_I64, value, TR_I64, same, 3);
  assert_memory_equal(value, same, sizeof value);
  tr_convert(TR_I64, value, TR_I32, narrow, 3);
  assert_int_equal(narrow[0], INT32_MAX);
  assert_int_equal(narrow[1], 123456789);
  assert_int_equal(narrow[2], -5);
}

static void arrays_convert_like_their_elements(void **state) {
  (void)state;
  static const tr_dtype types[] = {TR_F32, TR_BF16, TR_F16, TR_F8E4M3, TR_F8E5M2};
  enum { N = 67 };
  float value[N];
  for (int i = 0; i < N; i++)
    value[i] = ldexpf(1 + (float)(i * 37 % 101) / 101, i % 23 - 11) * (i % 2 ? -1.0f : 1.0f);
  for (int from = 0; from < 5; from++) {
    for (int to = 0; to < 5; to++) {
      float src[N], dst[N + 1], expected[N + 1];
      memset(dst, 0x55, sizeof dst);
      memset(expected, 0x55, sizeof expected);
      for (size_t i = 0; i < N; i++) tr_store(types[from], src, i, value[i]);
      for (size_t i = 0; i < N; i++) tr_store(types[to], expected, i, tr_load(types[from], src, i));
      tr_convert(types[from], src, types[to], dst, N);
      assert_memory_equal(dst, expected, sizeof dst);
    }
  }
}

static void conversion_in_place_and_of_nothing_is_allowed(void **state) {
  (void)state;
  float value[2] = {1, 2};
  tr_convert(TR_F32, value, TR_F32, value, 2);
  assert_true(value[0] == 1 && value[1] == 2);
  tr_convert(TR_F32, NULL, TR_BF16, NULL, 0);
  tr_convert(TR_F64, NULL, TR_F64, NULL, 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_code_has_the_value_of_its_definition),
      cmocka_unit_test(every_code_survives_the_round_trip),
      cmocka_unit_test(halves_go_to_even_and_everything_else_to_the_nearest),
      cmocka_unit_test(beyond_the_largest_value_is_infinity_or_the_largest_value),
      cmocka_unit_test(what_is_too_small_becomes_zero_with_its_sign),
      cmocka_unit_test(nan_stays_nan),
      cmocka_unit_test(names_of_both_spellings_are_parsed),
      cmocka_unit_test(small_integers_survive_any_pair_of_types),
      cmocka_unit_test(f64_is_rounded_once),
      cmocka_unit_test(integers_are_cut_towards_zero_and_held_in_range),
      cmocka_unit_test(large_integers_keep_their_value_between_integer_types),
      cmocka_unit_test(arrays_convert_like_their_elements),
      cmocka_unit_test(conversion_in_place_and_of_nothing_is_allowed),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
