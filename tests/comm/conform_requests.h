// SPDX-License-Identifier: MIT
// Requests of the conformance suite: many under way at once, on several groups, and transfers between two ranks.
#ifndef TRIREME_TESTS_COMM_CONFORM_REQUESTS_H
#define TRIREME_TESTS_COMM_CONFORM_REQUESTS_H

#include "comm/conform_collectives.h"
#include "trireme/base/clock.h"

// ---- collectives under way together

enum { CF_FLIGHT = 24 };

typedef enum cf_kind {
  CF_ALLREDUCE,
  CF_ALLREDUCE_TO,
  CF_REDUCE,
  CF_REDUCE_SCATTER,
  CF_ALLGATHER,
  CF_ALLTOALL,
  CF_BROADCAST,
  CF_GATHER,
  CF_SCATTER,
  CF_KINDS
} cf_kind;

typedef struct cf_flight {
  tr_group *group;
  tr_request *request;
  cf_kind kind;
  cf_buffer a, b;
  size_t n;
  uint32_t salt;
  int root, ended;
} cf_flight;

static inline tr_status cf_take_off(cf_flight *f) {
  tr_group *g = f->group;
  char *a = f->a.data, *b = f->b.data;
  cf_fill(TR_F32, a, f->n * (size_t)tr_group_size(g), cf_own(g), 0, f->salt);
  switch (f->kind) {
  case CF_ALLREDUCE: return tr_group_allreduce(g, a, a, f->n, TR_F32, TR_SUM, &f->request);
  case CF_ALLREDUCE_TO: return tr_group_allreduce(g, a, b, f->n, TR_F32, TR_SUM, &f->request);
  case CF_REDUCE: return tr_group_reduce(g, a, b, f->n, TR_F32, TR_SUM, f->root, &f->request);
  case CF_REDUCE_SCATTER: return tr_group_reduce_scatter(g, a, b, f->n, TR_F32, TR_SUM, &f->request);
  case CF_ALLGATHER: return tr_group_allgather(g, a, b, f->n, TR_F32, &f->request);
  case CF_ALLTOALL: return tr_group_alltoall(g, a, b, f->n, TR_F32, &f->request);
  case CF_BROADCAST: return tr_group_broadcast(g, a, f->n, TR_F32, f->root, &f->request);
  case CF_GATHER: return tr_group_gather(g, a, b, f->n, TR_F32, f->root, &f->request);
  default: return tr_group_scatter(g, a, b, f->n, TR_F32, f->root, &f->request);
  }
}

// Block r of b is what rank r contributes from element `first` on.
static inline tr_status cf_check_blocks(const cf_flight *f, const char *what, size_t first) {
  for (int r = 0; r < tr_group_size(f->group); r++)
    TR_TRY(cf_check_copy(f->group, what, TR_F32, f->b.data + (size_t)r * f->n * 4, f->n, tr_group_member(f->group, r),
                         first, f->salt));
  return TR_OK;
}

static inline tr_status cf_check_landed(const cf_flight *f) {
  tr_group *g = f->group;
  size_t own = (size_t)tr_group_rank(g) * f->n;
  int is_root = tr_group_rank(g) == f->root, root = tr_group_member(g, f->root);
  switch (f->kind) {
  case CF_ALLREDUCE: return cf_check_sum(g, "started all-reduce", TR_F32, f->a.data, f->n, 0, f->salt, TR_SUM);
  case CF_ALLREDUCE_TO: return cf_check_sum(g, "started all-reduce", TR_F32, f->b.data, f->n, 0, f->salt, TR_SUM);
  case CF_REDUCE:
    return is_root ? cf_check_sum(g, "started reduce", TR_F32, f->b.data, f->n, 0, f->salt, TR_SUM) : TR_OK;
  case CF_REDUCE_SCATTER:
    return cf_check_sum(g, "started reduce-scatter", TR_F32, f->b.data, f->n, own, f->salt, TR_SUM);
  case CF_ALLGATHER: return cf_check_blocks(f, "started all-gather", 0);
  case CF_ALLTOALL: return cf_check_blocks(f, "started all-to-all", own);
  case CF_BROADCAST: return cf_check_copy(g, "started broadcast", TR_F32, f->a.data, f->n, root, 0, f->salt);
  case CF_GATHER: return is_root ? cf_check_blocks(f, "started gather", 0) : TR_OK;
  default: return cf_check_copy(g, "started scatter", TR_F32, f->b.data, f->n, root, own, f->salt);
  }
}

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
    TR_TRY(cf_check_landed(f));
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
    f->kind = (cf_kind)(i % CF_KINDS);
    f->root = i % tr_group_size(f->group);
    f->n = i % 5 == 0 ? large : (size_t)(i * 117);
    f->salt = 1000 + (uint32_t)i;
    size_t nbyte = f->n * 4 * (size_t)tr_group_size(f->group);
    int mixed = (i + tr_comm_rank(comm)) % 2;
    f->a = cf_take(comm, nbyte, place == 2 ? mixed : cf_in_arena(comm, place, 0));
    f->b = cf_take(comm, nbyte, place == 2 ? mixed : cf_in_arena(comm, place, 1));
    if (!f->a.data || !f->b.data) return tr_error(TR_ERR_MEMORY, "test buffers do not fit");
    TR_TRY(cf_take_off(f));
  }
  TR_TRY(cf_land(flights, 77u * (uint32_t)(tr_comm_rank(comm) + 1)));
  for (int i = 0; i < CF_FLIGHT; i++) {
    cf_drop(flights[i].a);
    cf_drop(flights[i].b);
  }
  tr_arena_reset(tr_comm_arena(comm), mark);
  return tr_group_barrier(tr_comm_world(comm)); // arena offsets may be used again by all
}

// One rank comes late while the others have started more operations than an engine may remember.
static inline tr_status cf_far_ahead(tr_group *g) {
  enum { FAR = 40 };
  int32_t x[FAR];
  tr_request *requests[FAR];
  int size = tr_group_size(g), late = tr_group_rank(g) == size - 1;
  TR_TRY(tr_group_barrier(g));
  if (late) tr_clock_sleep_ns(20000000);
  for (int i = 0; i < FAR; i++) {
    x[i] = i + tr_group_rank(g);
    TR_TRY(tr_group_allreduce(g, &x[i], &x[i], 1, TR_I32, TR_SUM, &requests[i]));
  }
  for (int i = FAR - 1; i >= 0; i--) {
    TR_TRY(tr_request_wait(requests[i]));
    if (x[i] != size * i + size * (size - 1) / 2) return cf_wrong(g, "early all-reduce", TR_I32, FAR, (size_t)i);
  }
  return TR_OK;
}

// ---- point to point

// Everybody sends `n` bytes to everybody, receives started in another order than sends.
static inline tr_status cf_exchange(tr_comm *comm, tr_group *g, size_t n, int place) {
  int size = tr_group_size(g), own = tr_group_rank(g), rank = tr_group_member(g, own);
  size_t mark = tr_arena_mark(tr_comm_arena(comm));
  tr_request *sends[CF_RANKS], *recvs[CF_RANKS];
  cf_buffer out = cf_take(comm, n * (size_t)size, place & 1), in = cf_take(comm, n * (size_t)size, place >> 1);
  if (!out.data || !in.data) return tr_error(TR_ERR_MEMORY, "test buffers do not fit");
  for (int i = 0; i < size; i++) {
    cf_fill(TR_U8, out.data + (size_t)i * n, n, rank, (size_t)i, 5);
    TR_TRY(tr_group_send(g, i, 0, out.data + (size_t)i * n, n, &sends[i]));
  }
  for (int i = size - 1; i >= 0; i--) TR_TRY(tr_group_recv(g, i, 0, in.data + (size_t)i * n, n, &recvs[i]));
  for (int i = 0; i < size; i++) {
    TR_TRY(tr_request_wait(recvs[(i + own) % size]));
    TR_TRY(tr_request_wait(sends[i]));
  }
  for (int i = 0; i < size; i++)
    TR_TRY(cf_check_copy(g, "transfer", TR_U8, in.data + (size_t)i * n, n, tr_group_member(g, i), (size_t)own, 5));
  cf_drop(out);
  cf_drop(in);
  tr_arena_reset(tr_comm_arena(comm), mark);
  return tr_group_barrier(g);
}

// More sends than a channel holds, waited for in reverse; they come in order within each of three tags.
static inline tr_status cf_many_sends(tr_group *g) {
  enum { MANY = 40 };
  int size = tr_group_size(g), own = tr_group_rank(g), from = (own + size - 1) % size;
  int32_t out[MANY], in[MANY];
  tr_request *sends[MANY], *recvs[MANY];
  for (int i = 0; i < MANY; i++) {
    out[i] = tr_group_member(g, own) * 1000 + i;
    TR_TRY(tr_group_send(g, (own + 1) % size, i % 3, &out[i], sizeof out[i], &sends[i]));
  }
  for (int tag = 2; tag >= 0; tag--)
    for (int i = tag; i < MANY; i += 3) TR_TRY(tr_group_recv(g, from, tag, &in[i], sizeof in[i], &recvs[i]));
  for (int i = MANY - 1; i >= 0; i--) {
    TR_TRY(tr_request_wait(recvs[i]));
    TR_TRY(tr_request_wait(sends[i]));
    if (in[i] != tr_group_member(g, from) * 1000 + i) return cf_wrong(g, "send", TR_I32, MANY, (size_t)i);
  }
  return TR_OK;
}

// Blocking receives against the order of the sends: no tag is held up by an earlier one. `n` bytes, and every second less.
static inline tr_status cf_tags(tr_comm *comm, tr_group *g, size_t n, int place) {
  enum { TAGS = 12 };
  int size = tr_group_size(g), own = tr_group_rank(g), from = (own + size - 1) % size;
  size_t mark = tr_arena_mark(tr_comm_arena(comm));
  tr_request *sends[TAGS];
  cf_buffer out = cf_take(comm, n * TAGS, place & 1), in = cf_take(comm, n * TAGS, place >> 1);
  if (!out.data || !in.data) return tr_error(TR_ERR_MEMORY, "test buffers do not fit");
  for (int i = 0; i < TAGS; i++) {
    size_t at = (size_t)i * n, count = i % 2 ? n / 100 : n;
    cf_fill(TR_U8, out.data + at, count, tr_group_member(g, own), 0, (uint32_t)i);
    TR_TRY(tr_group_send(g, (own + 1) % size, i == 0 ? TR_TAG_MOST : i, out.data + at, count, &sends[i]));
  }
  for (int i = TAGS - 1; i >= 0; i--) {
    size_t at = (size_t)i * n, count = i % 2 ? n / 100 : n;
    tr_request *request = NULL;
    TR_TRY(tr_group_recv(g, from, i == 0 ? TR_TAG_MOST : i, in.data + at, count, i % 3 ? NULL : &request));
    if (request) TR_TRY(tr_request_wait(request));
    TR_TRY(cf_check_copy(g, "tagged transfer", TR_U8, in.data + at, count, tr_group_member(g, from), 0, (uint32_t)i));
  }
  for (int i = 0; i < TAGS; i++) TR_TRY(tr_request_wait(sends[i]));
  cf_drop(out);
  cf_drop(in);
  tr_arena_reset(tr_comm_arena(comm), mark);
  return tr_group_barrier(g);
}

static inline tr_status cf_transfers(tr_comm *comm, tr_group *g) {
  static const size_t sizes[] = {0, 4, 64, 65, 5000, 600001};
  for (int place = 0; place < 4; place++) {
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
      if (sizes[s] > 100000 && tr_group_size(g) > 4) continue;
      TR_TRY(cf_exchange(comm, g, sizes[s], place));
    }
    TR_TRY(cf_tags(comm, g, 30, place));
    TR_TRY(cf_tags(comm, g, 70000, place));
  }
  return cf_many_sends(g);
}

#endif
