// SPDX-License-Identifier: MIT
// The conformance suite of communication engines: rank mains that check every operation against sums computed here.
//
// A check that fails returns TR_ERR_VERIFY with a sentence, which stops the job and reaches the test through
// tr_launch. Ranks make no cmocka assertions: they may be other processes.
#ifndef TRIREME_TESTS_COMM_CONFORMANCE_H
#define TRIREME_TESTS_COMM_CONFORMANCE_H

#include "comm/comm_internal.h"
#include "trireme/base/clock.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct cf_options {
  size_t large;   // elements of the largest messages
  int delays;     // inject random delays at the hook's points
  uint32_t first; // first sequence of groups
} cf_options;

static inline uint32_t cf_mix(uint32_t x) {
  x ^= x >> 16;
  x *= 0x7feb352du;
  x ^= x >> 15;
  x *= 0x846ca68bu;
  return x ^ (x >> 16);
}

// Element i of what `rank` contributes in round `salt`: values whose sums depend on the order of adding.
static inline void cf_element(tr_dtype type, int rank, size_t i, uint32_t salt, void *out) {
  uint32_t h = cf_mix((uint32_t)i * 977u + (uint32_t)rank * 131071u + salt * 7919u);
  float f = ((float)(h >> 9) / 8388608.0f - 0.5f) * (float)(1 << (h & 7));
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

static inline void cf_fill(tr_dtype type, void *data, size_t n, int rank, size_t first, uint32_t salt) {
  size_t width = tr_dtype_size(type);
  for (size_t i = 0; i < n; i++) cf_element(type, rank, first + i, salt, (char *)data + i * width);
}

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
  int64_t v[TR__RANKS];
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

// Element i of the reduction over the group.
static inline void cf_expect(tr_dtype type, const tr_group *g, size_t i, uint32_t salt, tr_reduce_op op, void *out) {
  int n = tr_group_size(g);
  if (type == TR_I32 || type == TR_I64 || type == TR_U8) {
    cf_expect_int(type, g, i, salt, op, out);
  } else if (type == TR_F64) {
    double v[TR__RANKS];
    for (int r = 0; r < n; r++) cf_element(type, tr_group_member(g, r), i, salt, &v[r]);
    double all = cf_tree_f64(v, n, op);
    if (op == TR_AVERAGE) all /= n;
    memcpy(out, &all, sizeof all);
  } else {
    float v[TR__RANKS];
    for (int r = 0; r < n; r++) {
      char raw[8];
      cf_element(type, tr_group_member(g, r), i, salt, raw);
      v[r] = tr_load(type, raw, 0);
    }
    float all = cf_tree_f32(v, n, op);
    tr_store(type, out, 0, op == TR_AVERAGE ? all / (float)n : all);
  }
}

static inline tr_status cf_wrong(tr_group *g, const char *what, tr_dtype type, size_t n, size_t i) {
  return tr_error(TR_ERR_VERIFY, "%s of %zu %s in group '%s' of %d: element %zu is wrong", what, n,
                  tr_dtype_name(type), tr_group_name(g), tr_group_size(g), i);
}

// Large results are sampled: every 61st element and the last hundred.
static inline size_t cf_next(size_t i, size_t n) { return n > 20000 && i + 100 < n ? i + 61 : i + 1; }

static inline tr_status cf_check_sum(tr_group *g, const char *what, tr_dtype type, const void *data, size_t n,
                                     size_t first, uint32_t salt, tr_reduce_op op) {
  size_t width = tr_dtype_size(type);
  for (size_t i = 0; i < n; i = cf_next(i, n)) {
    char expected[8];
    cf_expect(type, g, first + i, salt, op, expected);
    if (memcmp(expected, (const char *)data + i * width, width) != 0) return cf_wrong(g, what, type, n, i);
  }
  return TR_OK;
}

static inline tr_status cf_check_copy(tr_group *g, const char *what, tr_dtype type, const void *data, size_t n,
                                      int rank, size_t first, uint32_t salt) {
  size_t width = tr_dtype_size(type);
  for (size_t i = 0; i < n; i = cf_next(i, n)) {
    char expected[8];
    cf_element(type, rank, first + i, salt, expected);
    if (memcmp(expected, (const char *)data + i * width, width) != 0) return cf_wrong(g, what, type, n, i);
  }
  return TR_OK;
}

// A buffer in the arena or private; arena buffers start at another offset on every rank.
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

// ---- one call of each collective ----------------------------------------------------------------

static inline tr_status cf_allreduce(tr_group *g, char *data, size_t n, tr_dtype type, tr_reduce_op op,
                                     uint32_t salt) {
  cf_fill(type, data, n, tr_group_member(g, tr_group_rank(g)), 0, salt);
  TR_TRY(tr_group_allreduce(g, data, n, type, op, NULL));
  return cf_check_sum(g, "all-reduce", type, data, n, 0, salt, op);
}

static inline tr_status cf_reduce_scatter(tr_group *g, char *src, char *other, size_t n, tr_dtype type,
                                          tr_reduce_op op, uint32_t salt, int in_place) {
  size_t own = (size_t)tr_group_rank(g) * n;
  char *dst = in_place ? src + own * tr_dtype_size(type) : other;
  cf_fill(type, src, n * (size_t)tr_group_size(g), tr_group_member(g, tr_group_rank(g)), 0, salt);
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

static inline float cf_wide_sum(tr_dtype type, const tr_group *g, size_t i, uint32_t salt) {
  float v[TR__RANKS];
  for (int r = 0; r < tr_group_size(g); r++) {
    char raw[8];
    cf_element(type, tr_group_member(g, r), i, salt, raw);
    v[r] = tr_load(type, raw, 0);
  }
  return cf_tree_f32(v, tr_group_size(g), TR_SUM);
}

// Parts that grow with the square of the rank: the first may be empty.
static inline tr_status cf_reduce_scatter_v(tr_group *g, char *src, char *other, size_t n, tr_dtype type,
                                            size_t grain, uint32_t salt, int in_place) {
  size_t size = (size_t)tr_group_size(g), total = n * size, start[TR__RANKS + 1], me = (size_t)tr_group_rank(g);
  for (size_t i = 0; i <= size; i++) start[i] = total * i * i / (size * size);
  int widens = !in_place && (type == TR_BF16 || type == TR_F16);
  tr_dtype to = widens ? TR_F32 : type;
  cf_parts p = {.grain = grain, .count = start[me + 1] - start[me], .width = tr_dtype_size(to)};
  char *dst = in_place ? src + start[me] * p.width : other;
  p.dst = dst;
  p.seen = calloc(p.count + 1, p.width);
  cf_fill(type, src, total, tr_group_member(g, tr_group_rank(g)), 0, salt);
  tr_status status = tr_group_reduce_scatter_v(g, src, dst, start, type, to, TR_SUM, grain, cf_part_done, &p, NULL);
  if (status == TR_OK && (p.wrong || p.told != p.count || memcmp(p.seen, dst, p.count * p.width) != 0))
    status = tr_error(TR_ERR_VERIFY, "reduce-scatter-v tells of %zu of %zu elements, or too early", p.told, p.count);
  free(p.seen);
  TR_TRY(status);
  if (!widens) return cf_check_sum(g, "reduce-scatter-v", type, dst, p.count, start[me], salt, TR_SUM);
  for (size_t i = 0; i < p.count; i = cf_next(i, p.count)) {
    float want = cf_wide_sum(type, g, start[me] + i, salt), got;
    memcpy(&got, dst + i * sizeof got, sizeof got);
    if (got != want) return cf_wrong(g, "wide reduce-scatter-v", type, p.count, i);
  }
  return TR_OK;
}

static inline tr_status cf_allgather(tr_group *g, char *dst, char *other, size_t n, tr_dtype type, uint32_t salt,
                                     int in_place) {
  size_t block = n * tr_dtype_size(type);
  char *src = in_place ? dst + (size_t)tr_group_rank(g) * block : other;
  memset(dst, 0x55, block * (size_t)tr_group_size(g));
  cf_fill(type, src, n, tr_group_member(g, tr_group_rank(g)), 0, salt);
  TR_TRY(tr_group_allgather(g, src, dst, n, type, NULL));
  for (int r = 0; r < tr_group_size(g); r++)
    TR_TRY(cf_check_copy(g, "all-gather", type, dst + (size_t)r * block, n, tr_group_member(g, r), 0, salt));
  return TR_OK;
}

static inline tr_status cf_broadcast(tr_group *g, char *data, size_t n, tr_dtype type, int root, uint32_t salt) {
  memset(data, 0x55, n * tr_dtype_size(type));
  if (tr_group_rank(g) == root) cf_fill(type, data, n, tr_group_member(g, root), 0, salt);
  TR_TRY(tr_group_broadcast(g, data, n, type, root, NULL));
  return cf_check_copy(g, "broadcast", type, data, n, tr_group_member(g, root), 0, salt);
}

static inline tr_status cf_each(tr_group *g, char *a, char *b, size_t n, tr_dtype type, uint32_t salt) {
  int average = tr__reduce_supported(type, TR_AVERAGE);
  TR_TRY(cf_allreduce(g, a, n, type, TR_SUM, salt));
  TR_TRY(cf_allreduce(g, a, n, type, TR_MAX, salt + 1));
  if (average) TR_TRY(cf_allreduce(g, a, n, type, TR_AVERAGE, salt + 2));
  TR_TRY(cf_reduce_scatter(g, a, b, n, type, TR_SUM, salt + 3, 0));
  TR_TRY(cf_reduce_scatter(g, a, b, n, type, TR_MAX, salt + 4, 1));
  TR_TRY(cf_reduce_scatter_v(g, a, b, n, type, 64, salt + 9, 0));
  TR_TRY(cf_reduce_scatter_v(g, a, b, n, type, 1000, salt + 10, 1));
  TR_TRY(cf_allgather(g, a, b, n, type, salt + 5, 0));
  TR_TRY(cf_allgather(g, a, b, n, type, salt + 6, 1));
  TR_TRY(cf_broadcast(g, a, n, type, 0, salt + 7));
  TR_TRY(cf_broadcast(g, a, n, type, tr_group_size(g) - 1, salt + 8));
  return tr_group_barrier(g);
}

// All collectives, types and sizes. `place`: 0 private, 1 arena, 2 mixed (even ranks arena).
static inline tr_status cf_collectives(tr_group *g, int place, size_t large) {
  static const tr_dtype types[] = {TR_F32, TR_BF16, TR_F16, TR_F64, TR_I32, TR_I64, TR_U8};
  const size_t sizes[] = {0, 1, 5, 33, 257, 1031, 5003, large};
  int in_arena = place == 2 ? tr_comm_rank(g->comm) % 2 == 0 : place;
  size_t most = large * 4 * (size_t)tr_group_size(g), mark = tr_arena_mark(tr_comm_arena(g->comm));
  cf_buffer a = cf_take(g->comm, most, in_arena), b = cf_take(g->comm, most, in_arena);
  tr_status status = a.data && b.data ? TR_OK : tr_error(TR_ERR_MEMORY, "test buffers do not fit");
  uint32_t salt = 1;
  for (size_t t = 0; t < sizeof types / sizeof *types && status == TR_OK; t++)
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes && status == TR_OK; s++) {
      if (t > 1 && s != 1 && s != 4 && s != 6) continue; // all sizes for f32 and bf16 only
      status = cf_each(g, a.data, b.data, sizes[s], types[t], salt += 16);
    }
  cf_drop(a);
  cf_drop(b);
  tr_arena_reset(tr_comm_arena(g->comm), mark);
  return status;
}

// ---- requests under way together ----------------------------------------------------------------

enum { CF_FLIGHT = 24 };

typedef struct cf_flight {
  tr_group *group;
  tr_request *request;
  cf_buffer buffer;
  size_t n;
  uint32_t salt;
  int ended;
} cf_flight;

// Test the requests in an order of this rank's own until all have ended.
static inline tr_status cf_land(cf_flight *flights, uint32_t seed) {
  for (int left = CF_FLIGHT; left > 0;) {
    cf_flight *f = &flights[cf_mix(seed++) % CF_FLIGHT];
    if (f->ended) continue;
    tr_status status = left % 3 == 0 ? tr_request_wait(f->request) : tr_request_test(f->request);
    if (status < 0) return status;
    if (status == TR_PENDING) continue;
    f->ended = 1;
    left--;
    TR_TRY(cf_check_sum(f->group, "started all-reduce", TR_F32, f->buffer.data, f->n, 0, f->salt, TR_SUM));
  }
  return TR_OK;
}

static inline tr_status cf_flights(tr_comm *comm, tr_group **groups, int ngroup, int place, size_t large) {
  cf_flight flights[CF_FLIGHT];
  size_t mark = tr_arena_mark(tr_comm_arena(comm));
  memset(flights, 0, sizeof flights);
  for (int i = 0; i < CF_FLIGHT; i++) {
    cf_flight *f = &flights[i];
    f->group = groups[i % ngroup];
    f->n = i % 5 == 0 ? large : (size_t)(i * 117);
    f->salt = 1000 + (uint32_t)i;
    f->buffer = cf_take(comm, f->n * 4, place == 2 ? (i + tr_comm_rank(comm)) % 2 : place);
    if (!f->buffer.data) return tr_error(TR_ERR_MEMORY, "test buffers do not fit");
    cf_fill(TR_F32, f->buffer.data, f->n, tr_comm_rank(comm), 0, f->salt);
    TR_TRY(tr_group_allreduce(f->group, f->buffer.data, f->n, TR_F32, TR_SUM, &f->request));
  }
  TR_TRY(cf_land(flights, 77u * (uint32_t)(tr_comm_rank(comm) + 1)));
  for (int i = 0; i < CF_FLIGHT; i++) cf_drop(flights[i].buffer);
  tr_arena_reset(tr_comm_arena(comm), mark);
  return tr_group_barrier(tr_comm_world(comm)); // arena offsets may be used again by all
}

// One rank comes late while the others have started more operations than the ring of records holds.
static inline tr_status cf_far_ahead(tr_group *g) {
  enum { FAR = 40 };
  int32_t x[FAR];
  tr_request *requests[FAR];
  int size = tr_group_size(g), late = tr_group_rank(g) == size - 1;
  TR_TRY(tr_group_barrier(g));
  if (late) tr_clock_sleep_ns(20000000);
  for (int i = 0; i < FAR; i++) {
    x[i] = i + tr_group_rank(g);
    TR_TRY(tr_group_allreduce(g, &x[i], 1, TR_I32, TR_SUM, &requests[i]));
  }
  for (int i = FAR - 1; i >= 0; i--) {
    TR_TRY(tr_request_wait(requests[i]));
    if (x[i] != size * i + size * (size - 1) / 2) return cf_wrong(g, "early all-reduce", TR_I32, FAR, (size_t)i);
  }
  return TR_OK;
}

// ---- point to point -----------------------------------------------------------------------------

// Everybody sends `n` bytes to everybody, receives started in another order than sends.
static inline tr_status cf_exchange(tr_group *g, size_t n, int place) {
  int size = tr_group_size(g), own = tr_group_rank(g), rank = tr_group_member(g, own);
  size_t mark = tr_arena_mark(tr_comm_arena(g->comm));
  tr_request *sends[TR__RANKS], *recvs[TR__RANKS];
  cf_buffer out = cf_take(g->comm, n * (size_t)size, place & 1), in = cf_take(g->comm, n * (size_t)size, place >> 1);
  if (!out.data || !in.data) return tr_error(TR_ERR_MEMORY, "test buffers do not fit");
  for (int i = 0; i < size; i++) {
    cf_fill(TR_U8, out.data + (size_t)i * n, n, rank, (size_t)i, 5);
    TR_TRY(tr_group_send(g, i, out.data + (size_t)i * n, n, &sends[i]));
  }
  for (int i = size - 1; i >= 0; i--) TR_TRY(tr_group_recv(g, i, in.data + (size_t)i * n, n, &recvs[i]));
  for (int i = 0; i < size; i++) {
    TR_TRY(tr_request_wait(recvs[(i + own) % size]));
    TR_TRY(tr_request_wait(sends[i]));
  }
  for (int i = 0; i < size; i++)
    TR_TRY(cf_check_copy(g, "transfer", TR_U8, in.data + (size_t)i * n, n, tr_group_member(g, i), (size_t)own, 5));
  cf_drop(out);
  cf_drop(in);
  tr_arena_reset(tr_comm_arena(g->comm), mark);
  return tr_group_barrier(g);
}

// More sends than a channel holds, waited for in reverse.
static inline tr_status cf_many_sends(tr_group *g) {
  enum { MANY = 40 };
  int size = tr_group_size(g), own = tr_group_rank(g);
  int32_t out[MANY], in[MANY];
  tr_request *sends[MANY], *recvs[MANY];
  for (int i = 0; i < MANY; i++) {
    out[i] = tr_group_member(g, own) * 1000 + i;
    TR_TRY(tr_group_send(g, (own + 1) % size, &out[i], sizeof out[i], &sends[i]));
  }
  for (int i = 0; i < MANY; i++) TR_TRY(tr_group_recv(g, (own + size - 1) % size, &in[i], sizeof in[i], &recvs[i]));
  for (int i = MANY - 1; i >= 0; i--) {
    TR_TRY(tr_request_wait(recvs[i]));
    TR_TRY(tr_request_wait(sends[i]));
    if (in[i] != tr_group_member(g, (own + size - 1) % size) * 1000 + i)
      return cf_wrong(g, "send", TR_I32, MANY, (size_t)i);
  }
  return TR_OK;
}

static inline tr_status cf_transfers(tr_group *g) {
  static const size_t sizes[] = {0, 4, 64, 65, 5000, 600001};
  for (int place = 0; place < 4; place++)
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
      if (sizes[s] > 100000 && tr_group_size(g) > 4) continue;
      TR_TRY(cf_exchange(g, sizes[s], place));
    }
  return cf_many_sends(g);
}

// ---- groups -------------------------------------------------------------------------------------

// Halves, odd and even ranks: two families of disjoint groups, created concurrently, used while the
// other is under way.
static inline tr_status cf_subgroups(tr_comm *comm, size_t large) {
  int size = tr_comm_size(comm), rank = tr_comm_rank(comm), half = (size + 1) / 2;
  int ranks[TR__RANKS], n = 0, m = 0, members[TR__RANKS];
  tr_group *groups[3] = {tr_comm_world(comm)};
  for (int r = 0; r < size; r++) {
    if ((r < half) == (rank < half)) ranks[n++] = r;
    if (r % 2 == rank % 2) members[m++] = r;
  }
  for (int i = 0; i < m / 2; i++) { // descending: group index is position in the list
    int t = members[i];
    members[i] = members[m - 1 - i];
    members[m - 1 - i] = t;
  }
  TR_TRY(tr_group_create(comm, ranks, n, "half", &groups[1]));
  TR_TRY(tr_group_create(comm, members, m, "parity", &groups[2]));
  float x[40];
  TR_TRY(cf_allreduce(groups[1], (char *)x, 40, TR_F32, TR_SUM, 3));
  TR_TRY(cf_allreduce(groups[2], (char *)x, 40, TR_F32, TR_AVERAGE, 4));
  for (int place = 0; place < 3; place++) TR_TRY(cf_flights(comm, groups, 3, place, large));
  TR_TRY(cf_exchange(groups[2], 3000, 0));
  tr_group_destroy(groups[1]);
  tr_group_destroy(groups[2]);
  return TR_OK;
}

// Memory of the first rank that all write and read at one address; and a request beyond its arena, refused everywhere.
static inline tr_status cf_shared_memory(tr_group *g) {
  int size = tr_group_size(g), own = tr_group_rank(g);
  tr_arena *arena = tr_comm_arena(g->comm);
  size_t mark = tr_arena_mark(arena);
  int32_t *word;
  void *none;
  TR_TRY(tr_group_shared(g, sizeof *word * (size_t)size, (void **)&word));
  word[own] = 7 * own;
  TR_TRY(tr_group_barrier(g));
  for (int r = 0; r < size; r++)
    if (word[r] != 7 * r) return tr_error(TR_ERR_VERIFY, "rank %d does not see what rank %d wrote", own, r);
  if (tr_group_shared(g, (size_t)1 << 40, &none) != TR_ERR_MEMORY)
    return tr_error(TR_ERR_VERIFY, "a shared block larger than the arena was not refused");
  if ((own == 0) != (tr_arena_mark(arena) > mark)) return tr_error(TR_ERR_VERIFY, "rank %d gave the memory", own);
  TR_TRY(tr_group_barrier(g));
  tr_arena_reset(arena, mark);
  return TR_OK;
}

static inline tr_status cf_slots_are_used_again(tr_comm *comm) {
  int size = tr_comm_size(comm), ranks[TR__RANKS];
  for (int r = 0; r < size; r++) ranks[r] = (r + 1) % size;
  for (int i = 0; i < 100; i++) {
    tr_group *g, *h;
    float x[3];
    TR_TRY(tr_group_create(comm, ranks, size, "again", &g));
    TR_TRY(tr_group_create(comm, ranks, size, "again", &h));
    TR_TRY(cf_allreduce(g, (char *)x, 3, TR_F32, TR_SUM, (uint32_t)i));
    if (i % 10 == 0) TR_TRY(cf_many_sends(h));
    tr_group_destroy(g);
    tr_group_destroy(h);
  }
  return TR_OK;
}

// ---- delays, and the whole ----------------------------------------------------------------------

static inline void cf_delay(void *user, const char *point) {
  uint32_t *state = user;
  uint32_t h = *state = cf_mix(*state + (uint32_t)strlen(point));
  if (h % 16 == 0) tr_clock_sleep_ns(50000 + h % 100000);
}

static inline tr_status cf_main(tr_comm *comm, void *user) {
  const cf_options *o = user;
  tr_group *world = tr_comm_world(comm), *all = NULL;
  uint32_t seed = 12345u + (uint32_t)tr_comm_rank(comm);
  int ranks[TR__RANKS];
  if (o->delays) tr_comm_set_hook(comm, cf_delay, &seed);
  for (int r = 0; r < tr_comm_size(comm); r++) ranks[r] = r;
  if (o->first) {
    tr__comm_set_first_sequence(comm, o->first);
    TR_TRY(tr_group_create(comm, ranks, tr_comm_size(comm), "wrapping", &all));
    world = all;
  }
  for (int place = 0; place < 3; place++) TR_TRY(cf_collectives(world, place, o->large));
  TR_TRY(cf_far_ahead(world));
  TR_TRY(cf_transfers(world));
  TR_TRY(cf_subgroups(comm, o->large));
  TR_TRY(cf_shared_memory(tr_comm_world(comm)));
  TR_TRY(cf_slots_are_used_again(comm));
  tr_group_destroy(all);
  return TR_OK;
}

#endif
