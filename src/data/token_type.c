// SPDX-License-Identifier: MIT
// The types that tokens have in files, and widening them to i32.
//
// The loops have no branch, so that compilers vectorize them: instead of testing each token, they keep the largest, and
// a caller who finds it too large looks for its place again.
#include "data/corpus_internal.h"

// clang-format off
static const struct { const char *name; size_t size; } types[] = {
    [TR__TOKEN_U8] = {"u8", 1},   [TR__TOKEN_I8] = {"i8", 1},   [TR__TOKEN_I16] = {"i16", 2},
    [TR__TOKEN_I32] = {"i32", 4}, [TR__TOKEN_I64] = {"i64", 8}, [TR__TOKEN_F64] = {"f64", 0},
    [TR__TOKEN_F32] = {"f32", 0}, [TR__TOKEN_U16] = {"u16", 2}, [TR__TOKEN_U32] = {"u32", 4},
};
// clang-format on
enum { NTYPE = sizeof types / sizeof types[0], BLOCK = 256 };

size_t tr__token_size(tr__token_type type) { return types[type].size; }

const char *tr__token_type_name(int type) { return type < 1 || type >= NTYPE ? NULL : types[type].name; }

// `wide` is the type that the largest token is kept in: unsigned, so that negative ones come last. Blocks of fixed
// length are what makes gcc vectorize at -O2.
#define WIDEN(name, type, wide)                                                                                      \
  static uint64_t name(const unsigned char *bytes, int64_t count, int32_t *restrict out) {                           \
    const type *token = (const type *)(const void *)bytes;                                                           \
    wide most = 0;                                                                                                   \
    for (; count >= BLOCK; count -= BLOCK, token += BLOCK, out += BLOCK) {                                           \
      for (int i = 0; i < BLOCK; i++) {                                                                              \
        out[i] = (int32_t)token[i];                                                                                  \
        most = (wide)token[i] > most ? (wide)token[i] : most;                                                        \
      }                                                                                                              \
    }                                                                                                                \
    for (int64_t i = 0; i < count; i++) {                                                                            \
      out[i] = (int32_t)token[i];                                                                                    \
      most = (wide)token[i] > most ? (wide)token[i] : most;                                                          \
    }                                                                                                                \
    return most;                                                                                                     \
  }
WIDEN(widen_u8, uint8_t, uint32_t)
WIDEN(widen_i8, int8_t, uint32_t)
WIDEN(widen_i16, int16_t, uint32_t)
WIDEN(widen_i32, int32_t, uint32_t)
WIDEN(widen_i64, int64_t, uint64_t)
WIDEN(widen_u16, uint16_t, uint32_t)
WIDEN(widen_u32, uint32_t, uint32_t)

uint64_t tr__token_widen(tr__token_type type, const unsigned char *bytes, int64_t count, int32_t *out) {
  switch (type) {
  case TR__TOKEN_U8: return widen_u8(bytes, count, out);
  case TR__TOKEN_I8: return widen_i8(bytes, count, out);
  case TR__TOKEN_I16: return widen_i16(bytes, count, out);
  case TR__TOKEN_I32: return widen_i32(bytes, count, out);
  case TR__TOKEN_I64: return widen_i64(bytes, count, out);
  case TR__TOKEN_U16: return widen_u16(bytes, count, out);
  case TR__TOKEN_U32: return widen_u32(bytes, count, out);
  default: return UINT64_MAX; // floats are refused when a file is opened
  }
}
