// SPDX-License-Identifier: MIT
// One call of each collective of the conformance suite, its result checked, and all of them over types and sizes.
//
// `a` and `b` are the two buffers of a case; each has room for one and a half times what all ranks contribute.
#ifndef TRIREME_TESTS_COMM_CONFORM_COLLECTIVES_H
#define TRIREME_TESTS_COMM_CONFORM_COLLECTIVES_H

#include "comm/conform_values.h"

static inline int cf_own(const tr_group *g) { return tr_group_member(g, tr_group_rank(g)); } // job rank

// ---- reductions

static inline tr_status cf_allreduce(tr_group *g, char *src, char *dst, size_t n, tr_dtype type, tr_reduce_op op,
                                     uint32_t salt) {
  cf_fill(type, src, n, cf_own(g), 0, salt);
  if (dst != src) memset(dst, 0x55, n * tr_dtype_size(type));
  TR_TRY(tr_group_allreduce(g, src, dst, n, type, op, NULL));
  TR_TRY(cf_check_sum(g, "all-reduce", type, dst, n, 0, salt, op));
  return dst == src ? TR_OK : cf_check_copy(g, "all-reduce's source", type, src, n, cf_own(g), 0, salt);
}

static inline tr_status cf_reduce(tr_group *g, char *src, char *dst, size_t n, tr_dtype type, tr_reduce_op op,
                                  int root, uint32_t salt) {
  int is_root = tr_group_rank(g) == root;
  cf_fill(type, src, n, cf_own(g), 0, salt);
  if (dst != src) memset(dst, 0x55, n * tr_dtype_size(type));
  TR_TRY(tr_group_reduce(g, src, is_root || salt % 2 ? dst : NULL, n, type, op, root, NULL));
  if (is_root) TR_TRY(cf_check_sum(g, "reduce", type, dst, n, 0, salt, op));
  if (!is_root && dst != src) TR_TRY(cf_check_untouched(g, "reduce", dst, n * tr_dtype_size(type)));
  if (is_root && dst == src) return TR_OK;
  return cf_check_copy(g, "reduce's source", type, src, n, cf_own(g), 0, salt);
}

static inline tr_status cf_reduce_scatter(tr_group *g, char *src, char *other, size_t n, tr_dtype type,
                                          tr_reduce_op op, uint32_t salt, int in_place) {
  size_t own = (size_t)tr_group_rank(g) * n;
  char *dst = in_place ? src + own * tr_dtype_size(type) : other;
  cf_fill(type, src, n * (size_t)tr_group_size(g), cf_own(g), 0, salt);
  TR_TRY(tr_group_reduce_scatter(g, src, dst, n, type, op, NULL));
  return cf_check_sum(g, "reduce-scatter", type, dst, n, own, salt, op);
}

// What a reduce-scatter-v has told of: parts must follow each other, end on whole grains, and be final.
typedef struct cf_parts {
  size_t grain, told, count, width;
  const char *dst;
  char *seen; // copy of each part when it was told of
  int wrong;
} cf_parts;

static inline void cf_part_done(void *user, size_t first, size_t count) {
  cf_parts *p = user;
  p->wrong |= first != p->told || count == 0 || ((first + count) % p->grain && first + count != p->count);
  memcpy(p->seen + first * p->width, p->dst + first * p->width, count * p->width);
  p->told = first + count;
}

// Parts that grow with the square of the rank: the first may be empty. They begin at `first`.
static inline void cf_uneven(const tr_group *g, size_t n, size_t first, size_t *start) {
  size_t size = (size_t)tr_group_size(g);
  for (size_t i = 0; i <= size; i++) start[i] = first + n * size * i * i / (size * size);
}

static inline tr_status cf_reduce_scatter_v(tr_group *g, char *src, char *other, size_t n, tr_dtype type,
                                            size_t grain, uint32_t salt, int in_place) {
  size_t start[CF_RANKS + 1], me = (size_t)tr_group_rank(g);
  cf_uneven(g, n, 0, start);
  int widens = !in_place && (type == TR_BF16 || type == TR_F16);
  tr_dtype to = widens ? TR_F32 : type;
  cf_parts p = {.grain = grain, .count = start[me + 1] - start[me], .width = tr_dtype_size(to)};
  char *dst = in_place ? src + start[me] * p.width : other;
  p.dst = dst;
  p.seen = calloc(p.count + 1, p.width);
  cf_fill(type, src, n * (size_t)tr_group_size(g), cf_own(g), 0, salt);
  tr_status status = tr_group_reduce_scatter_v(g, src, dst, start, type, to, TR_SUM, grain, cf_part_done, &p, NULL);
  if (status == TR_OK && (p.wrong || p.told != p.count || memcmp(p.seen, dst, p.count * p.width) != 0))
    status = tr_error(TR_ERR_VERIFY, "reduce-scatter-v tells of %zu of %zu elements, or too early", p.told, p.count);
  free(p.seen);
  TR_TRY(status);
  if (!widens) return cf_check_sum(g, "reduce-scatter-v", type, dst, p.count, start[me], salt, TR_SUM);
  for (size_t i = 0; i < p.count; i = cf_next(i, p.count)) {
    float want = cf_expect_wide(type, g, start[me] + i, salt, TR_SUM), got;
    memcpy(&got, dst + i * sizeof got, sizeof got);
    if (got != want) return cf_wrong(g, "wide reduce-scatter-v", type, p.count, i);
  }
  return TR_OK;
}

// ---- copies

static inline tr_status cf_allgather(tr_group *g, char *dst, char *other, size_t n, tr_dtype type, uint32_t salt,
                                     int in_place) {
  size_t block = n * tr_dtype_size(type);
  char *src = in_place ? dst + (size_t)tr_group_rank(g) * block : other;
  memset(dst, 0x55, block * (size_t)tr_group_size(g));
  cf_fill(type, src, n, cf_own(g), 0, salt);
  TR_TRY(tr_group_allgather(g, src, dst, n, type, NULL));
  for (int r = 0; r < tr_group_size(g); r++)
    TR_TRY(cf_check_copy(g, "all-gather", type, dst + (size_t)r * block, n, tr_group_member(g, r), 0, salt));
  return TR_OK;
}

static inline tr_status cf_allgather_v(tr_group *g, char *dst, char *other, size_t n, tr_dtype type, uint32_t salt,
                                       int in_place) {
  size_t start[CF_RANKS + 1], width = tr_dtype_size(type), own = (size_t)tr_group_rank(g), first = 3;
  cf_uneven(g, n, first, start);
  char *src = in_place ? dst + start[own] * width : other;
  memset(dst, 0x55, start[tr_group_size(g)] * width);
  cf_fill(type, src, start[own + 1] - start[own], cf_own(g), 0, salt);
  TR_TRY(tr_group_allgather_v(g, src, dst, start, type, NULL));
  TR_TRY(cf_check_untouched(g, "all-gather-v", dst, first * width));
  for (int r = 0; r < tr_group_size(g); r++)
    TR_TRY(cf_check_copy(g, "all-gather-v", type, dst + start[r] * width, start[r + 1] - start[r],
                         tr_group_member(g, r), 0, salt));
  return TR_OK;
}

static inline tr_status cf_alltoall(tr_group *g, char *src, char *dst, size_t n, tr_dtype type, uint32_t salt) {
  size_t block = n * tr_dtype_size(type), size = (size_t)tr_group_size(g), own = (size_t)tr_group_rank(g);
  cf_fill(type, src, n * size, cf_own(g), 0, salt);
  memset(dst, 0x55, block * size);
  TR_TRY(tr_group_alltoall(g, src, dst, n, type, NULL));
  for (size_t r = 0; r < size; r++)
    TR_TRY(cf_check_copy(g, "all-to-all", type, dst + r * block, n, tr_group_member(g, (int)r), own * n, salt));
  return cf_check_copy(g, "all-to-all's source", type, src, n * size, cf_own(g), 0, salt);
}

// Elements that index i sends to index j: 0, n/2, n or 3n/2.
static inline size_t cf_sent(int i, int j, size_t n) { return n * (size_t)((i * 3 + j * 5 + 1) % 4) / 2; }

static inline void cf_sent_starts(const tr_group *g, int i, size_t n, size_t *start) {
  start[0] = 2;
  for (int j = 0; j < tr_group_size(g); j++) start[j + 1] = start[j] + cf_sent(i, j, n);
}

static inline tr_status cf_alltoall_v(tr_group *g, char *src, char *dst, size_t n, tr_dtype type, uint32_t salt) {
  size_t to[CF_RANKS + 1], from[CF_RANKS + 1] = {1}, theirs[CF_RANKS + 1], width = tr_dtype_size(type);
  int size = tr_group_size(g), own = tr_group_rank(g);
  cf_sent_starts(g, own, n, to);
  for (int i = 0; i < size; i++) from[i + 1] = from[i] + cf_sent(i, own, n);
  cf_fill(type, src, to[size], cf_own(g), 0, salt);
  memset(dst, 0x55, from[size] * width);
  TR_TRY(tr_group_alltoall_v(g, src, to, dst, from, type, NULL));
  TR_TRY(cf_check_untouched(g, "all-to-all-v", dst, from[0] * width));
  for (int i = 0; i < size; i++) {
    cf_sent_starts(g, i, n, theirs);
    TR_TRY(cf_check_copy(g, "all-to-all-v", type, dst + from[i] * width, from[i + 1] - from[i], tr_group_member(g, i),
                         theirs[own], salt));
  }
  return TR_OK;
}

static inline tr_status cf_broadcast(tr_group *g, char *data, size_t n, tr_dtype type, int root, uint32_t salt) {
  memset(data, 0x55, n * tr_dtype_size(type));
  if (tr_group_rank(g) == root) cf_fill(type, data, n, tr_group_member(g, root), 0, salt);
  TR_TRY(tr_group_broadcast(g, data, n, type, root, NULL));
  return cf_check_copy(g, "broadcast", type, data, n, tr_group_member(g, root), 0, salt);
}

static inline tr_status cf_gather(tr_group *g, char *dst, char *other, size_t n, tr_dtype type, int root,
                                  uint32_t salt, int in_place) {
  size_t block = n * tr_dtype_size(type);
  int is_root = tr_group_rank(g) == root;
  char *src = in_place && is_root ? dst + (size_t)root * block : other;
  memset(dst, 0x55, block * (size_t)tr_group_size(g));
  cf_fill(type, src, n, cf_own(g), 0, salt);
  TR_TRY(tr_group_gather(g, src, is_root || salt % 2 ? dst : NULL, n, type, root, NULL));
  if (!is_root) return cf_check_untouched(g, "gather", dst, block * (size_t)tr_group_size(g));
  for (int r = 0; r < tr_group_size(g); r++)
    TR_TRY(cf_check_copy(g, "gather", type, dst + (size_t)r * block, n, tr_group_member(g, r), 0, salt));
  return TR_OK;
}

static inline tr_status cf_scatter(tr_group *g, char *src, char *other, size_t n, tr_dtype type, int root,
                                   uint32_t salt, int in_place) {
  size_t block = n * tr_dtype_size(type), own = (size_t)tr_group_rank(g);
  int is_root = tr_group_rank(g) == root;
  char *dst = in_place && is_root ? src + own * block : other;
  if (is_root) cf_fill(type, src, n * (size_t)tr_group_size(g), cf_own(g), 0, salt);
  if (dst == other) memset(dst, 0x55, block);
  TR_TRY(tr_group_scatter(g, is_root || salt % 2 ? src : NULL, dst, n, type, root, NULL));
  return cf_check_copy(g, "scatter", type, dst, n, tr_group_member(g, root), own * n, salt);
}

// ---- all of them

static inline tr_status cf_each_reduction(tr_group *g, char *a, char *b, size_t n, tr_dtype type, uint32_t salt) {
  int last = tr_group_size(g) - 1;
  TR_TRY(cf_allreduce(g, a, a, n, type, TR_SUM, salt));
  TR_TRY(cf_allreduce(g, a, b, n, type, TR_SUM, salt + 1));
  TR_TRY(cf_allreduce(g, a, a, n, type, TR_MAX, salt + 2));
  TR_TRY(cf_allreduce(g, a, tr_group_rank(g) % 2 ? a : b, n, type, TR_MAX, salt + 3));
  if (!cf_is_integer(type)) TR_TRY(cf_allreduce(g, a, a, n, type, TR_AVERAGE, salt + 4));
  TR_TRY(cf_reduce(g, a, b, n, type, TR_SUM, 0, salt + 5));
  TR_TRY(cf_reduce(g, a, a, n, type, TR_MAX, last, salt + 6));
  TR_TRY(cf_reduce(g, a, b, n, type, TR_SUM, last, salt + 7));
  TR_TRY(cf_reduce_scatter(g, a, b, n, type, TR_SUM, salt + 8, 0));
  TR_TRY(cf_reduce_scatter(g, a, b, n, type, TR_MAX, salt + 9, 1));
  TR_TRY(cf_reduce_scatter_v(g, a, b, n, type, 64, salt + 10, 0));
  return cf_reduce_scatter_v(g, a, b, n, type, 1000, salt + 11, 1);
}

static inline tr_status cf_each_copy(tr_group *g, char *a, char *b, size_t n, tr_dtype type, uint32_t salt) {
  int last = tr_group_size(g) - 1;
  for (int in_place = 0; in_place < 2; in_place++, salt += 16) {
    TR_TRY(cf_allgather(g, a, b, n, type, salt, in_place));
    TR_TRY(cf_allgather_v(g, a, b, n, type, salt + 1, in_place));
    TR_TRY(cf_gather(g, a, b, n, type, 0, salt + 2, in_place));
    TR_TRY(cf_gather(g, a, b, n, type, last, salt + 3, in_place));
    TR_TRY(cf_scatter(g, a, b, n, type, 0, salt + 4, in_place));
    TR_TRY(cf_scatter(g, a, b, n, type, last, salt + 5, in_place));
  }
  TR_TRY(cf_alltoall(g, a, b, n, type, salt));
  TR_TRY(cf_alltoall_v(g, a, b, n, type, salt + 1));
  TR_TRY(cf_broadcast(g, a, n, type, 0, salt + 2));
  return cf_broadcast(g, a, n, type, last, salt + 3);
}

// Where the buffers of this rank lie: 0 private, 1 arena, 2 arena on even ranks, 3 a in the arena, 4 b in the arena.
enum { CF_PLACES = 5 };
static inline int cf_in_arena(const tr_comm *comm, int place, int second) {
  if (place == 2) return tr_comm_rank(comm) % 2 == 0;
  return place == 1 || place == 3 + second;
}

// All collectives, types and sizes.
static inline tr_status cf_collectives(tr_comm *comm, tr_group *g, int place, size_t large) {
  static const tr_dtype types[] = {TR_F32, TR_BF16, TR_F16, TR_F64, TR_I32, TR_I64, TR_U8};
  enum { MIDDLE = 2053, WIDEST = 8 }; // more than fits a record, of any type
  const size_t sizes[] = {0, 1, 5, 33, 257, 1031, MIDDLE, large};
  size_t each = large * 4 > MIDDLE * WIDEST ? large * 4 : MIDDLE * WIDEST;
  size_t most = each * (size_t)tr_group_size(g) * 3 / 2 + 64, mark = tr_arena_mark(tr_comm_arena(comm));
  cf_buffer a = cf_take(comm, most, cf_in_arena(comm, place, 0));
  cf_buffer b = cf_take(comm, most, cf_in_arena(comm, place, 1));
  tr_status status = a.data && b.data ? TR_OK : tr_error(TR_ERR_MEMORY, "test buffers do not fit");
  uint32_t salt = 1;
  for (size_t t = 0; t < sizeof types / sizeof *types; t++)
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes && status == TR_OK; s++) {
      if (t > 0 && s != 1 && s != 4 && s != 6) continue; // all sizes for f32 only
      if (t > 2 && place > 2) continue;                  // one type of each width where places differ
      status = cf_each_reduction(g, a.data, b.data, sizes[s], types[t], salt += 64);
      if (status == TR_OK) status = cf_each_copy(g, a.data, b.data, sizes[s], types[t], salt + 16);
      if (status == TR_OK) status = tr_group_barrier(g);
    }
  cf_drop(a);
  cf_drop(b);
  tr_arena_reset(tr_comm_arena(comm), mark);
  return status;
}

#endif
