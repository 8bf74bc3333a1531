// SPDX-License-Identifier: MIT
// Element types: names, sizes and conversions.
//
// All formats narrower than bf16's are described by a few numbers (struct narrow) and share one decoder and
// one encoder, both in integer arithmetic, so results do not depend on the processor's rounding mode.
// Conversions between arbitrary types go through double, which holds every value of every type except large
// i64; a double is first rounded to odd in f32, so that the second rounding cannot disagree with a single one
// (Boldo and Melquiond, "Emulation of FMA and correctly rounded sums", 2008). Not for inner loops: the pairs
// that matter for speed have a plain loop in tr_convert, everything else is written for being right.
#include "trireme/tensor/dtype.h"

#include <math.h>

static const struct {
  size_t nbyte;
  const char *text, *safetensors;
} dtype_table[TR_DTYPE_COUNT] = {
#define X(name, nbyte, text, st) {nbyte, text, st},
    TR_DTYPE_TABLE(X)
#undef X
};

static int dtype_known(tr_dtype type) { return (unsigned)type < (unsigned)TR_DTYPE_COUNT; }

size_t tr_dtype_size(tr_dtype type) { return dtype_known(type) ? dtype_table[type].nbyte : 0; }

const char *tr_dtype_name(tr_dtype type) { return dtype_known(type) ? dtype_table[type].text : "unknown"; }

const char *tr_dtype_safetensors(tr_dtype type) {
  return dtype_known(type) ? dtype_table[type].safetensors : "unknown";
}

tr_status tr_dtype_parse(const char *text, tr_dtype *out) {
  for (int type = 0; type < TR_DTYPE_COUNT; type++) {
    if (strcmp(text, dtype_table[type].text) == 0 || strcmp(text, dtype_table[type].safetensors) == 0) {
      *out = (tr_dtype)type;
      return TR_OK;
    }
  }
  return tr_error(TR_ERR_CONFIG,
                  "element type '%.40s' is not known; use f32, bf16, f16, f8e4m3, f8e5m2, f64, i32, i64 or u8", text);
}

// A float format with a sign, `ebits` of exponent and `mbits` of mantissa. Codes below are without the sign.
typedef struct narrow {
  int ebits, mbits, bias;
  uint32_t largest;  // code of the largest finite value
  uint32_t overflow; // code of what lies beyond: infinity, or `largest` where there is none
  uint32_t quiet;    // code of the default NaN
} narrow;

static const narrow narrow_f16 = {5, 10, 15, 0x7bff, 0x7c00, 0x7e00};
static const narrow narrow_e5m2 = {5, 2, 15, 0x7b, 0x7c, 0x7e};
static const narrow narrow_e4m3 = {4, 3, 7, 0x7e, 0x7e, 0x7f};

static float float_of_bits(uint32_t bits) {
  float out;
  memcpy(&out, &bits, sizeof out);
  return out;
}

static uint32_t bits_of_float(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

static float narrow_decode(const narrow *f, uint32_t code) {
  uint32_t sign = (code >> (f->ebits + f->mbits)) << 31;
  uint32_t magnitude = code & ((1u << (f->ebits + f->mbits)) - 1);
  uint32_t exponent = magnitude >> f->mbits, mantissa = magnitude & ((1u << f->mbits) - 1);
  if (magnitude > f->largest) {
    if (magnitude == f->overflow) return float_of_bits(sign | 0x7f800000u);
    return float_of_bits(sign | 0x7fc00000u | mantissa << (23 - f->mbits));
  }
  if (exponent == 0) {
    float value = (float)mantissa * float_of_bits((uint32_t)(128 - f->bias - f->mbits) << 23);
    return float_of_bits(sign | bits_of_float(value));
  }
  return float_of_bits(sign | (exponent + 127u - (uint32_t)f->bias) << 23 | mantissa << (23 - f->mbits));
}

// A NaN keeps the upper part of its payload where the format has room for one.
static uint32_t narrow_nan(const narrow *f, uint32_t mantissa) {
  return f->quiet | ((mantissa >> (23 - f->mbits)) & ((1u << f->mbits) - 1));
}

static uint32_t narrow_encode(const narrow *f, float value) {
  uint32_t bits = bits_of_float(value), mantissa = bits & 0x7fffffu;
  uint32_t sign = (bits >> 31) << (f->ebits + f->mbits);
  int exponent = (int)(bits >> 23 & 0xff);
  if (exponent == 255) return sign | (mantissa ? narrow_nan(f, mantissa) : f->overflow);
  if (exponent == 0) return sign; // below 2^-126: less than half of any format's smallest value
  mantissa |= 0x800000u;
  int scaled = exponent - 127 + f->bias; // exponent field of the result when it is normal
  int shift = 23 - f->mbits + (scaled < 1 ? 1 - scaled : 0);
  if (shift > 25) return sign;
  uint32_t half = 1u << (shift - 1), odd = mantissa >> shift & 1u;
  uint32_t rounded = (mantissa + half - 1 + odd) >> shift;
  // The leading one of `rounded` counts as one exponent step, so a carry out of the mantissa lands where it should.
  uint32_t code = (scaled < 1 ? 0u : (uint32_t)(scaled - 1) << f->mbits) + rounded;
  return sign | (code > f->largest ? f->overflow : code);
}

float tr_f16_to_f32(tr_f16 value) { return narrow_decode(&narrow_f16, value); }

tr_f16 tr_f32_to_f16(float value) { return (tr_f16)narrow_encode(&narrow_f16, value); }

float tr_f8_to_f32(tr_dtype type, uint8_t value) {
  return narrow_decode(type == TR_F8E4M3 ? &narrow_e4m3 : &narrow_e5m2, value);
}

uint8_t tr_f32_to_f8(tr_dtype type, float value) {
  return (uint8_t)narrow_encode(type == TR_F8E4M3 ? &narrow_e4m3 : &narrow_e5m2, value);
}

static int is_integer(tr_dtype type) { return type == TR_I32 || type == TR_I64 || type == TR_U8; }

static int64_t load_integer(tr_dtype type, const void *data, size_t i) {
  switch (type) {
  case TR_I32: return ((const int32_t *)data)[i];
  case TR_I64: return ((const int64_t *)data)[i];
  default: return ((const uint8_t *)data)[i];
  }
}

static int64_t clamp(int64_t value, int64_t low, int64_t high) {
  return value < low ? low : value > high ? high : value;
}

// Values outside the type's range become its nearest end.
static void store_integer(tr_dtype type, void *data, size_t i, int64_t value) {
  switch (type) {
  case TR_I32: ((int32_t *)data)[i] = (int32_t)clamp(value, INT32_MIN, INT32_MAX); break;
  case TR_I64: ((int64_t *)data)[i] = value; break;
  default: ((uint8_t *)data)[i] = (uint8_t)clamp(value, 0, UINT8_MAX); break;
  }
}

// Towards zero as in C, but defined everywhere: NaN is 0 and what is too large becomes the nearest end.
static int64_t integer_of_double(double value) {
  if (isnan(value)) return 0;
  if (value >= 0x1p63) return INT64_MAX;
  if (value < -0x1p63) return INT64_MIN;
  return (int64_t)value;
}

static double load_double(tr_dtype type, const void *data, size_t i) {
  switch (type) {
  case TR_F32: return (double)((const float *)data)[i];
  case TR_BF16: return (double)tr_bf16_to_f32(((const tr_bf16 *)data)[i]);
  case TR_F16: return (double)tr_f16_to_f32(((const tr_f16 *)data)[i]);
  case TR_F8E4M3:
  case TR_F8E5M2: return (double)tr_f8_to_f32(type, ((const uint8_t *)data)[i]);
  case TR_F64: return ((const double *)data)[i];
  default: return (double)load_integer(type, data, i);
  }
}

// The value cut to f32, with the last bit set when something was cut off.
static float round_to_odd(double value) {
  float near = (float)value;
  if (isnan(value) || isinf(value) || (double)near == value) return near;
  if (isinf(near) || fabs((double)near) > fabs(value)) near = nextafterf(near, 0.0f);
  return float_of_bits(bits_of_float(near) | 1u);
}

static void store_double(tr_dtype type, void *data, size_t i, double value) {
  if (is_integer(type)) {
    store_integer(type, data, i, integer_of_double(value));
  } else if (type == TR_F64) {
    ((double *)data)[i] = value;
  } else {
    tr_store(type, data, i, type == TR_F32 ? (float)value : round_to_odd(value));
  }
}

float tr_load(tr_dtype type, const void *data, size_t i) { return (float)load_double(type, data, i); }

void tr_store(tr_dtype type, void *data, size_t i, float value) {
  switch (type) {
  case TR_F32: ((float *)data)[i] = value; break;
  case TR_BF16: ((tr_bf16 *)data)[i] = tr_f32_to_bf16(value); break;
  case TR_F16: ((tr_f16 *)data)[i] = tr_f32_to_f16(value); break;
  case TR_F8E4M3:
  case TR_F8E5M2: ((uint8_t *)data)[i] = tr_f32_to_f8(type, value); break;
  default: store_double(type, data, i, (double)value); break;
  }
}

static void convert_any(tr_dtype from, const void *src, tr_dtype to, void *dst, size_t n) {
  if (is_integer(from) && is_integer(to)) {
    for (size_t i = 0; i < n; i++) store_integer(to, dst, i, load_integer(from, src, i));
  } else {
    for (size_t i = 0; i < n; i++) store_double(to, dst, i, load_double(from, src, i));
  }
}

void tr_convert(tr_dtype from, const void *src, tr_dtype to, void *dst, size_t n) {
  if (n == 0) return;
  if (from == to) {
    if (src != dst) memmove(dst, src, n * tr_dtype_size(from));
  } else if (from == TR_F32 && to == TR_BF16) {
    const float *x = src;
    tr_bf16 *y = dst;
    for (size_t i = 0; i < n; i++) y[i] = tr_f32_to_bf16(x[i]);
  } else if (from == TR_BF16 && to == TR_F32) {
    const tr_bf16 *x = src;
    float *y = dst;
    for (size_t i = 0; i < n; i++) y[i] = tr_bf16_to_f32(x[i]);
  } else {
    convert_any(from, src, to, dst, n);
  }
}
