// SPDX-License-Identifier: MIT
// Jobs of ranks as threads in which an algorithm is demanded through TRIREME_COMM, for the tests of algorithms.
#ifndef TRIREME_TESTS_COMM_DEMAND_H
#define TRIREME_TESTS_COMM_DEMAND_H

#include "comm/conformance.h"
#include "comm/strands_internal.h"
#include <stdlib.h>

typedef struct trial {
  const char *demand;          // TRIREME_COMM
  size_t large, wire;          // elements of the largest message; bytes of a strand's pieces
  int whole, delays, requests; // whole: all of the suite's collectives, not a choice of them
} trial;

static inline tr_status run_demanding(const char *demand, int nrank, int any_order, tr_rank_main rank_main,
                                      const void *user) {
  tr_launch_options o;
  tr_launch_report report;
  tr_launch_options_init(&o);
  o.mode = TR_LAUNCH_THREADS;
  o.nrank = nrank;
  o.deadline = 20;
  o.arena_nbyte = (size_t)16 << 20;
  o.any_order = any_order;
  setenv("TRIREME_COMM", demand, 1);
  tr_status status = tr_launch(&o, rank_main, (void *)(uintptr_t)user, &report);
  unsetenv("TRIREME_COMM");
  if (status < 0) print_error("%s over %d ranks: %s\n", demand, nrank, report.text);
  return status;
}

// A choice of types and sizes; buffers of even ranks are in the arena.
static inline tr_status some_collectives(tr_comm *comm, tr_group *g, size_t large) {
  const struct {
    tr_dtype type;
    size_t n;
  } tries[] = {{TR_F32, 0},  {TR_F32, 1},    {TR_BF16, 257},  {TR_F32, 1031}, {TR_BF16, large},
               {TR_I32, 33}, {TR_F64, 1031}, {TR_F32, large}, {TR_F16, 5}};
  size_t mark = tr_arena_mark(tr_comm_arena(comm)), most = large * 12 * (size_t)tr_group_size(g) + 65536;
  cf_buffer a = cf_take(comm, most, cf_in_arena(comm, 2, 0)), b = cf_take(comm, most, cf_in_arena(comm, 2, 1));
  tr_status status = a.data && b.data ? TR_OK : tr_error(TR_ERR_MEMORY, "test buffers do not fit");
  for (uint32_t i = 0; i < sizeof tries / sizeof *tries && status == TR_OK; i++) {
    status = cf_each_reduction(g, a.data, b.data, tries[i].n, tries[i].type, i * 64);
    if (status == TR_OK) status = cf_each_copy(g, a.data, b.data, tries[i].n, tries[i].type, i * 64 + 16);
    if (status == TR_OK) status = tr_group_barrier(g);
  }
  cf_drop(a);
  cf_drop(b);
  tr_arena_reset(tr_comm_arena(comm), mark);
  return status;
}

static inline tr_status conform(tr_comm *comm, void *user) {
  const trial *t = user;
  tr_group *world = tr_comm_world(comm);
  uint32_t seed = 99u + (uint32_t)tr_comm_rank(comm);
  if (t->wire) comm->choice->wire = t->wire;
  if (t->delays) tr_comm_set_hook(comm, cf_delay, &seed);
  if (!t->whole) TR_TRY(some_collectives(comm, world, t->large));
  for (int place = 0; t->whole && place < 4; place += 2) TR_TRY(cf_collectives(comm, world, place, t->large));
  if (!t->requests) return TR_OK;
  TR_TRY(cf_far_ahead(world));
  return cf_subgroups(comm, t->large);
}

// Over jobs of so many ranks, 0 ends them.
static inline void over(const int *sizes, trial t) {
  for (int i = 0; sizes[i]; i++) assert_int_equal(run_demanding(t.demand, sizes[i], 0, conform, &t), TR_OK);
}

#endif
