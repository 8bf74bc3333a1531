// SPDX-License-Identifier: MIT
// tier: quick
// Scripts allocate nothing once they have seen a size: calls of the allocator are counted while operations are repeated.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "comm/demand.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(__GLIBC__)
enum { CAN_COUNT = 0 };
static _Thread_local int allocations;
#else
enum { CAN_COUNT = 1 };
static _Thread_local int allocations; // by this thread

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *at, size_t size);
void *__libc_memalign(size_t alignment, size_t size);

void *malloc(size_t size) {
  allocations++;
  return __libc_malloc(size);
}
void *calloc(size_t n, size_t size) {
  allocations++;
  return __libc_calloc(n, size);
}
void *realloc(void *at, size_t size) {
  allocations++;
  return __libc_realloc(at, size);
}
void *aligned_alloc(size_t alignment, size_t size) {
  allocations++;
  return __libc_memalign(alignment, size);
}
#endif

enum { RANKS = 4, MOST = 6000 };

static tr_status every_kind(tr_group *g, float *a, float *b, size_t n) {
  TR_TRY(tr_group_allreduce(g, a, b, n, TR_F32, TR_SUM, NULL));
  TR_TRY(tr_group_reduce(g, a, b, n, TR_F32, TR_SUM, 1, NULL));
  TR_TRY(tr_group_reduce_scatter(g, a, b, n, TR_F32, TR_SUM, NULL));
  TR_TRY(tr_group_allgather(g, a, b, n, TR_F32, NULL));
  TR_TRY(tr_group_alltoall(g, a, b, n, TR_F32, NULL));
  TR_TRY(tr_group_broadcast(g, a, n, TR_F32, 3, NULL));
  TR_TRY(tr_group_gather(g, a, b, n, TR_F32, 0, NULL));
  TR_TRY(tr_group_scatter(g, a, b, n, TR_F32, 0, NULL));
  return tr_group_barrier(g);
}

static tr_status repeat(tr_comm *comm, void *user) {
  (void)user;
  tr_group *g = tr_comm_world(comm);
  float *a = tr_arena_alloc(tr_comm_arena(comm), RANKS * MOST * sizeof *a);
  float *b = tr_arena_alloc(tr_comm_arena(comm), RANKS * MOST * sizeof *b);
  comm->choice->wire = 4000;
  int before = 0;
  for (int step = 0; step < 8; step++) {
    if (step == 3) before = allocations;
    TR_TRY(every_kind(g, a, b, MOST));
    TR_TRY(every_kind(g, a, b, MOST / 7)); // smaller ones fit where the larger were
  }
  if (before == 0) return tr_error(TR_ERR_VERIFY, "allocations are not counted");
  if (allocations != before) return tr_error(TR_ERR_VERIFY, "%d allocations", allocations - before);
  return TR_OK;
}

static void sizes_seen_before_allocate_nothing(void **state) {
  (void)state;
  static const char *const demands[] = {"direct", "ring",  "doubling",    "halving",        "tree",     "chain",
                                        "star",   "bruck", "double-tree", "hierarchical/2", "leaders/2"};
  if (!CAN_COUNT) skip();
  for (size_t i = 0; i < sizeof demands / sizeof *demands; i++)
    assert_int_equal(run_demanding(demands[i], RANKS, 1, repeat, NULL), TR_OK);
}

// ---- what is predicted is what lanes take

typedef struct prediction {
  int scatters, even; // even: on all ranks the same
  size_t nelem;
  tr_dtype type;
  size_t nbyte;
} prediction;

static tr_status take_predicted(tr_comm *comm, void *user) {
  const prediction *p = user;
  tr_group *g = tr_comm_world(comm);
  size_t start[RANKS + 1], nbyte = 0, size = (size_t)g->size;
  char *a = tr_arena_alloc(tr_comm_arena(comm), p->nelem * 4), *b = tr_arena_alloc(tr_comm_arena(comm), p->nelem * 4);
  for (size_t i = 0; i <= size; i++) start[i] = p->nelem * i / size;
  memset(a, 0, p->nelem * 4);
  if (p->scatters)
    TR_TRY(tr_group_reduce_scatter_v(g, a, b, start, p->type, TR_F32, TR_SUM, 1, NULL, NULL, NULL));
  else
    TR_TRY(tr_group_allreduce(g, a, a, p->nelem, p->type, TR_SUM, NULL));
  for (int l = 0; l < TR__LANES; l++) nbyte += g->strands->lane[l].scratch_nbyte;
  // A tree's root takes the most.
  if (comm->rank == 0 || p->even ? nbyte == p->nbyte : nbyte <= p->nbyte) return TR_OK;
  return tr_error(TR_ERR_VERIFY, "rank %d takes %zu bytes, predicted are %zu", comm->rank, nbyte, p->nbyte);
}

static void predict_and_take(const char *demand, prediction p) {
  const tr_launch_messages m = {.nrank = RANKS,
                                .local = RANKS,
                                .any_order = 1,
                                .scatters = p.scatters,
                                .nelem = &p.nelem,
                                .n = 1,
                                .type = p.type};
  setenv("TRIREME_COMM", demand, 1);
  p.nbyte = tr_launch_message_bytes(&m);
  unsetenv("TRIREME_COMM");
  assert_int_equal(run_demanding(demand, RANKS, 1, take_predicted, &p), TR_OK);
}

static void lanes_take_what_is_predicted(void **state) {
  (void)state;
  static const char *const demands[] = {"direct", "ring", "allreduce=doubling", "halving", "tree", "hierarchical/2"};
  static const size_t sizes[] = {1024, 65536, 1 << 20};
  for (size_t i = 0; i < sizeof demands / sizeof *demands; i++)
    for (size_t k = 0; k < 6; k++)
      predict_and_take(demands[i],
                       (prediction){0, strcmp(demands[i], "tree") != 0, sizes[k % 3], k < 3 ? TR_F32 : TR_BF16, 0});
  for (size_t k = 0; k < 6; k++)
    predict_and_take("direct", (prediction){1, 1, sizes[k % 3], k < 3 ? TR_F32 : TR_BF16, 0});
}

static void what_is_no_message_takes_nothing(void **state) {
  (void)state;
  const size_t n = 1 << 20;
  tr_launch_messages m = {.nrank = RANKS, .local = RANKS, .nelem = &n, .n = 1, .type = TR_F32};
  assert_int_equal(tr_launch_message_bytes(&m), 0);
  m.local = 1;
  assert_true(tr_launch_message_bytes(&m) >= 65536);
  m.nrank = m.local = 1;
  assert_int_equal(tr_launch_message_bytes(&m), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(sizes_seen_before_allocate_nothing),
      cmocka_unit_test(lanes_take_what_is_predicted),
      cmocka_unit_test(what_is_no_message_takes_nothing),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
