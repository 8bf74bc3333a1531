// SPDX-License-Identifier: MIT
// Values of the conformance suite: what each rank contributes, what must come out, buffers in and outside the arena.
//
// Every element is a function of (rank, index, salt), so a result is checked without having the others' data, and values
// are such that sums depend on the order of adding. A check that fails returns TR_ERR_VERIFY with a sentence, which stops
// the job and reaches the test through tr_launch. Ranks make no cmocka assertions: they may be other processes.
#ifndef TRIREME_TESTS_COMM_CONFORM_VALUES_H
#define TRIREME_TESTS_COMM_CONFORM_VALUES_H

#include "trireme/comm/comm.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CF_RANKS = 256 };

static inline uint32_t cf_mix(uint32_t x) {
  x ^= x >> 16;
  x *= 0x7feb352du;
  x ^= x >> 15;
  x *= 0x846ca68bu;
  return x ^ (x >> 16);
}

static inline int cf_is_integer(tr_dtype type) { return type == TR_I32 || type == TR_I64 || type == TR_U8; }

static inline uint32_t cf_hash(int rank, size_t i, uint32_t salt) {
  return cf_mix((uint32_t)i * 977u + (uint32_t)rank * 131071u + salt * 7919u);
}
static inline float cf_float(uint32_t h) { return ((float)(h >> 9) / 8388608.0f - 0.5f) * (float)(1 << (h & 7)); }

// Element i of what `rank` contributes in round `salt`.
static inline void cf_element(tr_dtype type, int rank, size_t i, uint32_t salt, void *out) {
  uint32_t h = cf_hash(rank, i, salt);
  float f = cf_float(h);
  double d = (double)f * 1.000000119;
  int32_t w = (int32_t)h;
  int64_t l = (int64_t)(((uint64_t)h << 29) ^ h);
  uint8_t b = (uint8_t)h;
  switch (type) {
  case TR_F64: memcpy(out, &d, sizeof d); break;
  case TR_I32: memcpy(out, &w, sizeof w); break;
  case TR_I64: memcpy(out, &l, sizeof l); break;
  case TR_U8: memcpy(out, &b, sizeof b); break;
  default: tr_store(type, out, 0, f);
  }
}

// What a call with another type costs per element is most of the suite's time under a sanitizer, so the commonest has its own loop.
static inline void cf_fill(tr_dtype type, void *data, size_t n, int rank, size_t first, uint32_t salt) {
  size_t width = tr_dtype_size(type);
  if (type == TR_F32)
    for (size_t i = 0; i < n; i++) {
      float f = cf_float(cf_hash(rank, first + i, salt));
      memcpy((char *)data + i * sizeof f, &f, sizeof f);
    }
  else
    for (size_t i = 0; i < n; i++) cf_element(type, rank, first + i, salt, (char *)data + i * width);
}

// ---- expected sums

static inline int cf_half(int n) {
  int h = 1;
  while (2 * h < n) h *= 2;
  return h;
}
static inline float cf_tree_f32(const float *v, int n, tr_reduce_op op) {
  if (n == 1) return v[0];
  float a = cf_tree_f32(v, cf_half(n), op), b = cf_tree_f32(v + cf_half(n), n - cf_half(n), op);
  return op == TR_MAX ? (a > b ? a : b) : a + b;
}
static inline double cf_tree_f64(const double *v, int n, tr_reduce_op op) {
  if (n == 1) return v[0];
  double a = cf_tree_f64(v, cf_half(n), op), b = cf_tree_f64(v + cf_half(n), n - cf_half(n), op);
  return op == TR_MAX ? (a > b ? a : b) : a + b;
}
static inline int64_t cf_all_int(const int64_t *v, int n, tr_reduce_op op) {
  int64_t r = v[0];
  for (int i = 1; i < n; i++) r = op == TR_MAX ? (v[i] > r ? v[i] : r) : (int64_t)((uint64_t)r + (uint64_t)v[i]);
  return r;
}

static inline void cf_expect_int(tr_dtype type, const tr_group *g, size_t i, uint32_t salt, tr_reduce_op op,
                                 void *out) {
  int64_t v[CF_RANKS];
  for (int r = 0; r < tr_group_size(g); r++) {
    int32_t w = 0;
    uint8_t b = 0;
    if (type == TR_I64) cf_element(type, tr_group_member(g, r), i, salt, &v[r]);
    if (type == TR_I32) cf_element(type, tr_group_member(g, r), i, salt, &w), v[r] = w;
    if (type == TR_U8) cf_element(type, tr_group_member(g, r), i, salt, &b), v[r] = b;
  }
  int64_t all = cf_all_int(v, tr_group_size(g), op);
  memcpy(out, &all, tr_dtype_size(type)); // little-endian: the low bytes
}

// Element i of the sum or maximum over the group, before it is rounded to a narrow type.
static inline float cf_expect_wide(tr_dtype type, const tr_group *g, size_t i, uint32_t salt, tr_reduce_op op) {
  float v[CF_RANKS];
  int n = tr_group_size(g);
  for (int r = 0; r < n; r++) {
    char raw[8];
    cf_element(type, tr_group_member(g, r), i, salt, raw);
    v[r] = tr_load(type, raw, 0);
  }
  float all = cf_tree_f32(v, n, op);
  return op == TR_AVERAGE ? all / (float)n : all;
}

// Element i of the reduction over the group.
static inline void cf_expect(tr_dtype type, const tr_group *g, size_t i, uint32_t salt, tr_reduce_op op, void *out) {
  int n = tr_group_size(g);
  if (cf_is_integer(type)) {
    cf_expect_int(type, g, i, salt, op, out);
  } else if (type == TR_F64) {
    double v[CF_RANKS];
    for (int r = 0; r < n; r++) cf_element(type, tr_group_member(g, r), i, salt, &v[r]);
    double all = cf_tree_f64(v, n, op);
    if (op == TR_AVERAGE) all /= n;
    memcpy(out, &all, sizeof all);
  } else {
    tr_store(type, out, 0, cf_expect_wide(type, g, i, salt, op));
  }
}

// ---- checks

static inline tr_status cf_wrong(const tr_group *g, const char *what, tr_dtype type, size_t n, size_t i) {
  return tr_error(TR_ERR_VERIFY, "%s of %zu %s in group '%s' of %d: element %zu is wrong", what, n,
                  tr_dtype_name(type), tr_group_name(g), tr_group_size(g), i);
}

// Large results are sampled: the first hundred elements, every 61st, and the last hundred.
static inline size_t cf_next(size_t i, size_t n) { return i > 100 && i + 100 < n ? i + 61 : i + 1; }

static inline tr_status cf_check_sum(const tr_group *g, const char *what, tr_dtype type, const void *data, size_t n,
                                     size_t first, uint32_t salt, tr_reduce_op op) {
  size_t width = tr_dtype_size(type);
  for (size_t i = 0; i < n; i = cf_next(i, n)) {
    char expected[8];
    cf_expect(type, g, first + i, salt, op, expected);
    if (memcmp(expected, (const char *)data + i * width, width) != 0) return cf_wrong(g, what, type, n, i);
  }
  return TR_OK;
}

// Elements [first, first + n) of what `rank` contributes.
static inline tr_status cf_check_copy(const tr_group *g, const char *what, tr_dtype type, const void *data, size_t n,
                                      int rank, size_t first, uint32_t salt) {
  size_t width = tr_dtype_size(type);
  for (size_t i = 0; i < n; i = cf_next(i, n)) {
    char expected[8];
    cf_element(type, rank, first + i, salt, expected);
    if (memcmp(expected, (const char *)data + i * width, width) != 0) return cf_wrong(g, what, type, n, i);
  }
  return TR_OK;
}

// Nothing has written to `nbyte` bytes that were all set to 0x55.
static inline tr_status cf_check_untouched(const tr_group *g, const char *what, const char *data, size_t nbyte) {
  for (size_t i = 0; i < nbyte; i = cf_next(i, nbyte))
    if (data[i] != 0x55) return cf_wrong(g, what, TR_U8, nbyte, i);
  return TR_OK;
}

// ---- buffers

// In the arena, starting at another offset on every rank, or private.
typedef struct cf_buffer {
  char *data;
  int owned;
} cf_buffer;

static inline cf_buffer cf_take(tr_comm *comm, size_t nbyte, int in_arena) {
  if (!in_arena) return (cf_buffer){malloc(nbyte + 1), 1};
  tr_arena_alloc(tr_comm_arena(comm), (size_t)(tr_comm_rank(comm) * 4096 + 128));
  return (cf_buffer){tr_arena_alloc(tr_comm_arena(comm), nbyte), 0};
}
static inline void cf_drop(cf_buffer b) {
  if (b.owned) free(b.data);
}

#endif
