// SPDX-License-Identifier: MIT
// Sums over ranks: P sources at once, block by block, each byte read once. Included by reduce_<isa>.c, which define
// REDUCE, the name of the function, and LANES, the floats of a vector; loops over whole blocks are the compiler's to
// vectorise with that file's flags (cmake/isa.cmake). Bits do not depend on them: nothing is contracted or reordered.
//
// The order is one aligned binary tree over the source index, (0+1)+(2+3)..., whatever P is: pairs of sources are
// pushed on a stack of blocks and the two topmost are joined whenever they cover trees of equal height (a binary
// counter), the rest is joined from the top at the end. P = 7: ((0+1)+(2+3)) + ((4+5)+6). Narrow floating types are
// widened to f32 when read and rounded once when stored; f64 is added as f64; integers as 64-bit words, which wraps
// like the narrow type. Bytes: P * n read, ndst * n written; the stack stays in the first-level cache.
#include "comm_internal.h"
#include <string.h>

enum { BLOCK = 256, LEVELS = 10 }; // 2^9 > TR__RANKS

typedef struct stack_f32 {
  float v[LEVELS][BLOCK];
} stack_f32;
typedef struct stack_f64 {
  double v[LEVELS][BLOCK];
} stack_f64;
typedef struct stack_int {
  int64_t v[LEVELS][BLOCK];
} stack_int;

// Number of joins after source i has been pushed: trailing zero bits of i + 1.
static int joins_after(int i) { return __builtin_ctz((unsigned)i + 1u); }

// Everything below is inlined twice into the function at the end: with n = BLOCK, where the compiler sees constant counts
// and uses vectors, and with the n of the last, short block.
#define INLINE static inline __attribute__((always_inline))

INLINE void join_f32(float *restrict a, const float *restrict b, tr_reduce_op op, int n) {
  if (op == TR_MAX)
    for (int i = 0; i < n; i++) a[i] = a[i] > b[i] || a[i] != a[i] ? a[i] : b[i];
  else
    for (int i = 0; i < n; i++) a[i] += b[i];
}

INLINE void join_f64(double *restrict a, const double *restrict b, tr_reduce_op op, int n) {
  if (op == TR_MAX)
    for (int i = 0; i < n; i++) a[i] = a[i] > b[i] || a[i] != a[i] ? a[i] : b[i];
  else
    for (int i = 0; i < n; i++) a[i] += b[i];
}

INLINE void join_int(int64_t *restrict a, const int64_t *restrict b, tr_reduce_op op, int n) {
  if (op == TR_MAX)
    for (int i = 0; i < n; i++) a[i] = a[i] > b[i] ? a[i] : b[i];
  else
    for (int i = 0; i < n; i++) a[i] = (int64_t)((uint64_t)a[i] + (uint64_t)b[i]);
}

// ---- narrow floats, without branches: the bits of tr_f16_to_f32 and tr_f32_to_f16

INLINE float float_of(uint32_t bits) {
  float out;
  memcpy(&out, &bits, sizeof out);
  return out;
}
INLINE uint32_t bits_of(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

// A subnormal's mantissa is put below a leading one, which is then subtracted: exact.
INLINE float f16_to_f32(uint16_t value) {
  uint32_t magnitude = value & 0x7fffu, sign = (uint32_t)(value & 0x8000u) << 16, moved = magnitude << 13;
  uint32_t small = bits_of(float_of(moved + 0x38800000u) - float_of(0x38800000u)), normal = moved + 0x38000000u;
  uint32_t special = moved | 0x7f800000u | (magnitude > 0x7c00u ? 0x400000u : 0u);
  return float_of(sign | (magnitude < 0x400u ? small : magnitude < 0x7c00u ? normal : special));
}

// Adding a half makes the last bit of the sum worth as much as that of a subnormal, so the addition rounds.
INLINE uint16_t f32_to_f16(float value) {
  uint32_t bits = bits_of(value), magnitude = bits & 0x7fffffffu, sign = bits >> 16 & 0x8000u;
  uint32_t small = bits_of(float_of(magnitude) + 0.5f) - 0x3f000000u;
  uint32_t normal = (magnitude - 0x38000000u + 0xfffu + (magnitude >> 13 & 1u)) >> 13;
  uint32_t code = magnitude < 0x38800000u ? small : magnitude < 0x477ff000u ? normal : 0x7c00u;
  uint32_t nan = 0x7e00u | (magnitude >> 13 & 0x3ffu);
  return (uint16_t)(sign | (magnitude > 0x7f800000u ? nan : code));
}

INLINE void load_f32(tr_dtype type, float *restrict out, const char *src, int n) {
  uint16_t raw[BLOCK];
  if (type == TR_BF16 || type == TR_F16) memcpy(raw, src, (size_t)n * sizeof *raw);
  if (type == TR_F32)
    memcpy(out, src, (size_t)n * sizeof *out);
  else if (type == TR_BF16)
    for (int i = 0; i < n; i++) out[i] = tr_bf16_to_f32(raw[i]);
  else if (type == TR_F16)
    for (int i = 0; i < n; i++) out[i] = f16_to_f32(raw[i]);
  else
    for (int i = 0; i < n; i++) out[i] = tr_load(type, src, (size_t)i);
}

INLINE void store_f32(tr_dtype type, char *out, const float *restrict v, int n) {
  uint16_t raw[BLOCK];
  if (type == TR_F32)
    memcpy(out, v, (size_t)n * sizeof *v);
  else if (type == TR_BF16)
    for (int i = 0; i < n; i++) raw[i] = tr_f32_to_bf16(v[i]);
  else if (type == TR_F16)
    for (int i = 0; i < n; i++) raw[i] = f32_to_f16(v[i]);
  else
    for (int i = 0; i < n; i++) tr_store(type, out, (size_t)i, v[i]);
  if (type == TR_BF16 || type == TR_F16) memcpy(out, raw, (size_t)n * sizeof *raw);
}

INLINE void load_int(tr_dtype type, int64_t *restrict out, const char *src, int n) {
  if (type == TR_I64) memcpy(out, src, (size_t)n * sizeof *out);
  if (type == TR_U8)
    for (int i = 0; i < n; i++) out[i] = (unsigned char)src[i];
  if (type == TR_I32)
    for (int i = 0; i < n; i++) {
      int32_t v;
      memcpy(&v, src + (size_t)i * sizeof v, sizeof v);
      out[i] = v;
    }
}

INLINE void store_int(tr_dtype type, char *out, const int64_t *v, int n) {
  if (type == TR_I64) memcpy(out, v, (size_t)n * sizeof *v);
  if (type == TR_U8)
    for (int i = 0; i < n; i++) out[i] = (char)(unsigned char)v[i];
  if (type == TR_I32)
    for (int i = 0; i < n; i++) {
      uint32_t w = (uint32_t)v[i];
      memcpy(out + (size_t)i * sizeof w, &w, sizeof w);
    }
}

// ---- one block of each class: the sources' elements, summed, in `out`

INLINE void block_f32(tr_dtype type, tr_dtype to, tr_reduce_op op, int nsrc, const char *const *src, size_t offset,
                      int n, char *out) {
  stack_f32 s;
  int depth = 0;
  for (int i = 0; i < nsrc; i++) {
    load_f32(type, s.v[depth++], src[i] + offset, n);
    for (int k = joins_after(i); k > 0; k--, depth--) join_f32(s.v[depth - 2], s.v[depth - 1], op, n);
  }
  for (; depth > 1; depth--) join_f32(s.v[depth - 2], s.v[depth - 1], op, n);
  if (op == TR_AVERAGE)
    for (int i = 0; i < n; i++) s.v[0][i] /= (float)nsrc;
  store_f32(to, out, s.v[0], n);
}

INLINE void block_f64(tr_reduce_op op, int nsrc, const char *const *src, size_t offset, int n, char *out) {
  stack_f64 s;
  int depth = 0;
  for (int i = 0; i < nsrc; i++) {
    memcpy(s.v[depth++], src[i] + offset, (size_t)n * sizeof(double));
    for (int k = joins_after(i); k > 0; k--, depth--) join_f64(s.v[depth - 2], s.v[depth - 1], op, n);
  }
  for (; depth > 1; depth--) join_f64(s.v[depth - 2], s.v[depth - 1], op, n);
  if (op == TR_AVERAGE)
    for (int i = 0; i < n; i++) s.v[0][i] /= nsrc;
  memcpy(out, s.v[0], (size_t)n * sizeof(double));
}

INLINE void block_int(tr_dtype type, tr_reduce_op op, int nsrc, const char *const *src, size_t offset, int n,
                      char *out) {
  stack_int s;
  int depth = 0;
  for (int i = 0; i < nsrc; i++) {
    load_int(type, s.v[depth++], src[i] + offset, n);
    for (int k = joins_after(i); k > 0; k--, depth--) join_int(s.v[depth - 2], s.v[depth - 1], op, n);
  }
  for (; depth > 1; depth--) join_int(s.v[depth - 2], s.v[depth - 1], op, n);
  store_int(type, out, s.v[0], n);
}

INLINE void block(tr_dtype type, tr_dtype to, tr_reduce_op op, int nsrc, const char *const *src, size_t offset, int n,
                  char *out) {
  if (type == TR_I32 || type == TR_I64 || type == TR_U8)
    block_int(type, op, nsrc, src, offset, n, out);
  else if (type == TR_F64)
    block_f64(op, nsrc, src, offset, n, out);
  else if (type == TR_F32 && to == TR_F32)
    block_f32(TR_F32, TR_F32, op, nsrc, src, offset, n, out);
  else if (type == TR_BF16)
    block_f32(TR_BF16, to, op, nsrc, src, offset, n, out);
  else if (type == TR_F16)
    block_f32(TR_F16, to, op, nsrc, src, offset, n, out);
  else
    block_f32(type, to, op, nsrc, src, offset, n, out);
}

// The cores here have far fewer misses in flight than the memory could serve: ask for what comes AHEAD bytes later, not
// beyond the end, where others may be at work.
enum { AHEAD = 4096, LINE = 64 };

INLINE void fetch_ahead(int nsrc, const char *const *src, size_t offset, size_t nbyte, size_t end) {
  if (offset + AHEAD + nbyte > end) return;
  for (int i = 0; i < nsrc; i++)
    for (size_t at = 0; at < nbyte; at += LINE) __builtin_prefetch(src[i] + offset + AHEAD + at);
}

// ---- the commonest case, two ranks that add f32: from the sources to the destinations, any of which may be equal

typedef float lanes __attribute__((vector_size(4 * LANES), aligned(1), may_alias));

INLINE void pair_vector(const char *const *src, int ndst, char *const *dst, size_t at) {
  lanes sum = *(const lanes *)(const void *)(src[0] + at) + *(const lanes *)(const void *)(src[1] + at);
  for (int j = 0; j < ndst; j++) *(lanes *)(void *)(dst[j] + at) = sum;
}

INLINE void pair_one(const char *const *src, int ndst, char *const *dst, size_t at) {
  float a, b;
  memcpy(&a, src[0] + at, sizeof a);
  memcpy(&b, src[1] + at, sizeof b);
  a += b;
  for (int j = 0; j < ndst; j++) memcpy(dst[j] + at, &a, sizeof a);
}

// A line that is only written is asked for as such; one that is read first comes faster when it is not (measured).
INLINE void pair_fetch(const char *const *src, int ndst, char *const *dst, int in_place, size_t at) {
  for (int i = 0; i < 2; i++) __builtin_prefetch(src[i] + at);
  for (int j = 0; j < ndst && !in_place; j++) __builtin_prefetch(dst[j] + at, 1);
}

INLINE void pair(const char *const *sources, int ndst, char *const *destinations, int in_place, size_t n) {
  enum { PAIR_AHEAD = 2048 };
  const char *const src[2] = {sources[0], sources[1]};
  char *const dst[2] = {destinations[0], destinations[ndst - 1]};
  size_t nbyte = n * sizeof(float), at = 0;
  for (size_t i = 0; i < nbyte && i < PAIR_AHEAD; i += LINE) pair_fetch(src, ndst, dst, in_place, i);
  for (; nbyte - at >= LINE; at += LINE) {
    if (at + PAIR_AHEAD < nbyte) pair_fetch(src, ndst, dst, in_place, at + PAIR_AHEAD);
    for (size_t i = 0; i < LINE; i += sizeof(lanes)) pair_vector(src, ndst, dst, at + i);
  }
  for (; nbyte - at >= sizeof(lanes); at += sizeof(lanes)) pair_vector(src, ndst, dst, at);
  for (; at < nbyte; at += sizeof(float)) pair_one(src, ndst, dst, at);
}

INLINE int is_pair(tr_dtype type, tr_reduce_op op, int nsrc, int ndst) {
  return nsrc == 2 && type == TR_F32 && op == TR_SUM && ndst <= 2;
}

static void sum_pair(const char *const *src, int ndst, char *const *dst, size_t n) {
  if (ndst == 1)
    pair(src, 1, dst, 0, n);
  else if (dst[0] == src[0] && dst[1] == src[1])
    pair(src, 2, dst, 1, n);
  else
    pair(src, 2, dst, 0, n);
}

void REDUCE(tr_dtype type, tr_dtype dst_type, tr_reduce_op op, int nsrc, const char *const *src, int ndst,
            char *const *dst, size_t n) {
  const size_t width = tr_dtype_size(type), dst_width = tr_dtype_size(dst_type);
  if (is_pair(type, op, nsrc, ndst)) {
    sum_pair(src, ndst, dst, n);
    return;
  }
  _Alignas(64) char out[BLOCK * 8];
  for (size_t at = 0; at < n; at += BLOCK) {
    int count = (int)(n - at < BLOCK ? n - at : BLOCK);
    size_t offset = at * width;
    fetch_ahead(nsrc, src, offset, (size_t)count * width, n * width);
    if (count == BLOCK)
      block(type, dst_type, op, nsrc, src, offset, BLOCK, out);
    else
      block(type, dst_type, op, nsrc, src, offset, count, out);
    for (int j = 0; j < ndst; j++) memcpy(dst[j] + at * dst_width, out, (size_t)count * dst_width);
  }
}

// Lines to be written are asked for as in `pair`: taking one over from another core is what takes time.
void COPY(char *dst, const char *src, size_t nbyte) {
  enum { COPY_AHEAD = 2048 };
  size_t at = 0;
  for (size_t i = 0; i < nbyte && i < COPY_AHEAD; i += LINE) {
    __builtin_prefetch(src + i);
    __builtin_prefetch(dst + i, 1);
  }
  for (; nbyte - at >= LINE; at += LINE) {
    if (at + COPY_AHEAD < nbyte) {
      __builtin_prefetch(src + at + COPY_AHEAD);
      __builtin_prefetch(dst + at + COPY_AHEAD, 1);
    }
    for (size_t i = 0; i < LINE; i += sizeof(lanes))
      *(lanes *)(void *)(dst + at + i) = *(const lanes *)(const void *)(src + at + i);
  }
  memcpy(dst + at, src + at, nbyte - at);
}
