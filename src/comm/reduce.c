// SPDX-License-Identifier: MIT
// Sums over ranks: P sources at once, block by block, each byte read once.
//
// The order is one aligned binary tree over the source index, (0+1)+(2+3)..., whatever P is: sources are
// pushed on a stack of blocks and the two topmost are joined whenever they cover trees of equal height (a
// binary counter), the rest is joined from the top at the end. P = 7: ((0+1)+(2+3)) + ((4+5)+6). Narrow
// floating types are widened to f32 when read and rounded once when stored; f64 is added as f64; integers as
// 64-bit words, which wraps like the narrow type. Bytes: P * n read, ndst * n written; the stack (9 blocks)
// stays in the first-level cache.
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

int tr__reduce_supported(tr_dtype type, tr_reduce_op op) {
  if ((unsigned)type >= TR_DTYPE_COUNT || (unsigned)op > TR_AVERAGE) return 0;
  int integer = type == TR_I32 || type == TR_I64 || type == TR_U8;
  return !(integer && op == TR_AVERAGE);
}

// Number of joins after source i has been pushed: trailing zero bits of i + 1.
static int joins_after(int i) { return __builtin_ctz((unsigned)i + 1u); }

// Everything below is inlined twice into tr__reduce: with n = BLOCK, where the compiler sees constant counts
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

INLINE void widen_bf16(float *restrict out, const char *src, int n) {
  uint16_t raw[BLOCK];
  memcpy(raw, src, (size_t)n * sizeof *raw);
  for (int i = 0; i < n; i++) out[i] = tr_bf16_to_f32(raw[i]);
}

INLINE void narrow_bf16(char *out, const float *src, int n) {
  uint16_t raw[BLOCK];
  for (int i = 0; i < n; i++) raw[i] = tr_f32_to_bf16(src[i]);
  memcpy(out, raw, (size_t)n * sizeof *raw);
}

INLINE void load_f32(tr_dtype type, float *out, const char *src, int n) {
  if (type == TR_F32)
    memcpy(out, src, (size_t)n * sizeof *out);
  else if (type == TR_BF16)
    widen_bf16(out, src, n);
  else
    for (int i = 0; i < n; i++) out[i] = tr_load(type, src, (size_t)i);
}

INLINE void load_int(tr_dtype type, int64_t *out, const char *src, int n) {
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

// One block of each class: sum the sources' elements into `out`, BLOCK * 8 bytes.
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
  if (to == TR_F32)
    memcpy(out, s.v[0], (size_t)n * sizeof(float));
  else if (to == TR_BF16)
    narrow_bf16(out, s.v[0], n);
  else
    for (int i = 0; i < n; i++) tr_store(to, out, (size_t)i, s.v[0][i]);
}

INLINE void block_f64(tr_dtype type, tr_reduce_op op, int nsrc, const char *const *src, size_t offset, int n,
                      char *out) {
  (void)type;
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
    block_f64(type, op, nsrc, src, offset, n, out);
  else
    block_f32(type, to, op, nsrc, src, offset, n, out);
}

// The commonest case, two ranks that add f32, without the copy into the stack; whole blocks only.
static void pair_f32(const char *const *src, size_t offset, float *restrict out) {
  const float *a = (const float *)(const void *)(src[0] + offset),
              *b = (const float *)(const void *)(src[1] + offset);
  for (int i = 0; i < BLOCK; i++) out[i] = a[i] + b[i];
}

static int aligned_f32(const char *const *src) { return (((uintptr_t)src[0] | (uintptr_t)src[1]) & 3u) == 0; }

// The cores here have far fewer misses in flight than the memory could serve: ask for what comes AHEAD bytes later.
INLINE void fetch_ahead(int nsrc, const char *const *src, size_t offset, size_t nbyte) {
  enum { AHEAD = 4096, LINE = 64 };
  for (int i = 0; i < nsrc; i++)
    for (size_t at = 0; at < nbyte; at += LINE) __builtin_prefetch(src[i] + offset + AHEAD + at);
}

void tr__reduce(tr_dtype type, tr_dtype dst_type, tr_reduce_op op, int nsrc, const char *const *src, int ndst,
                char *const *dst, size_t n) {
  const size_t width = tr_dtype_size(type), dst_width = tr_dtype_size(dst_type);
  int pair = nsrc == 2 && type == TR_F32 && op == TR_SUM && aligned_f32(src);
  _Alignas(64) char out[BLOCK * 8];
  for (size_t at = 0; at < n; at += BLOCK) {
    int count = (int)(n - at < BLOCK ? n - at : BLOCK);
    size_t offset = at * width;
    fetch_ahead(nsrc, src, offset, (size_t)count * width);
    if (pair && count == BLOCK)
      pair_f32(src, offset, (float *)(void *)out);
    else if (count == BLOCK)
      block(type, dst_type, op, nsrc, src, offset, BLOCK, out);
    else
      block(type, dst_type, op, nsrc, src, offset, count, out);
    for (int j = 0; j < ndst; j++) memcpy(dst[j] + at * dst_width, out, (size_t)count * dst_width);
  }
}
