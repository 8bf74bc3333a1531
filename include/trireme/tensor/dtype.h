// SPDX-License-Identifier: MIT
// Element types and conversions between them.
//
// Conversions to narrower types round to nearest, ties to even; NaN stays NaN (quiet). fp8 follows the OCP 8-bit
// floating point specification: e4m3 has no infinity and saturates at 448, e5m2 overflows to infinity.
#ifndef TRIREME_TENSOR_DTYPE_H
#define TRIREME_TENSOR_DTYPE_H

#include "trireme/base/status.h"
#include <stddef.h>
#include <stdint.h>
#include <string.h>

//      name        bytes text   safetensors
#define TR_DTYPE_TABLE(X)                                                                                            \
  X(TR_F32, 4, "f32", "F32")                                                                                         \
  X(TR_BF16, 2, "bf16", "BF16")                                                                                      \
  X(TR_F16, 2, "f16", "F16")                                                                                         \
  X(TR_F8E4M3, 1, "f8e4m3", "F8_E4M3")                                                                               \
  X(TR_F8E5M2, 1, "f8e5m2", "F8_E5M2")                                                                               \
  X(TR_F64, 8, "f64", "F64")                                                                                         \
  X(TR_I32, 4, "i32", "I32")                                                                                         \
  X(TR_I64, 8, "i64", "I64")                                                                                         \
  X(TR_U8, 1, "u8", "U8")

typedef enum tr_dtype {
#define X(name, nbyte, text, st) name,
  TR_DTYPE_TABLE(X)
#undef X
      TR_DTYPE_COUNT
} tr_dtype;

typedef uint16_t tr_bf16; // the upper half of an f32
typedef uint16_t tr_f16;

size_t tr_dtype_size(tr_dtype type);                       // bytes of one element
const char *tr_dtype_name(tr_dtype type);                  // "bf16"
const char *tr_dtype_safetensors(tr_dtype type);           // "BF16"
tr_status tr_dtype_parse(const char *text, tr_dtype *out); // either spelling

static inline float tr_bf16_to_f32(tr_bf16 value) {
  uint32_t bits = (uint32_t)value << 16;
  float out;
  memcpy(&out, &bits, sizeof out);
  return out;
}
static inline tr_bf16 tr_f32_to_bf16(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return (tr_bf16)((bits >> 16) | 0x40u);
  return (tr_bf16)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}
float tr_f16_to_f32(tr_f16 value);
tr_f16 tr_f32_to_f16(float value);
float tr_f8_to_f32(tr_dtype type, uint8_t value);
uint8_t tr_f32_to_f8(tr_dtype type, float value);

// Element i of an array of any floating type as f32, and back (reference code; integers convert by value).
float tr_load(tr_dtype type, const void *data, size_t i);
void tr_store(tr_dtype type, void *data, size_t i, float value);
// n elements from one type to another; the ranges must not overlap unless the types are equal and src == dst.
void tr_convert(tr_dtype from, const void *src, tr_dtype to, void *dst, size_t n);

#endif
