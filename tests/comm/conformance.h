// SPDX-License-Identifier: MIT
// The conformance suite of communication engines: cf_main, the main of a rank, checks every operation.
//
// It uses public headers only, so that it runs on any engine; what a test of one engine adds goes through cf_options.
#ifndef TRIREME_TESTS_COMM_CONFORMANCE_H
#define TRIREME_TESTS_COMM_CONFORMANCE_H

#include "comm/conform_requests.h"
#include "trireme/comm/launch.h"

typedef struct cf_options {
  size_t large; // elements of the largest messages
  int delays;   // inject random delays at the hook's points
  void (*prepare)(
      tr_comm *comm); // optional: before the group is created that the suite then uses for that of all ranks
} cf_options;

// ---- groups -------------------------------------------------------------------------------------

// Halves, odd and even ranks: two families of disjoint groups, created concurrently, used while the
// other is under way.
static inline tr_status cf_subgroups(tr_comm *comm, size_t large) {
  int size = tr_comm_size(comm), rank = tr_comm_rank(comm), half = (size + 1) / 2;
  int ranks[CF_RANKS], n = 0, m = 0, members[CF_RANKS];
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
  TR_TRY(cf_allreduce(groups[1], (char *)x, (char *)x, 40, TR_F32, TR_SUM, 3));
  TR_TRY(cf_allreduce(groups[2], (char *)x, (char *)x, 40, TR_F32, TR_AVERAGE, 4));
  for (int place = 0; place < CF_PLACES; place++) TR_TRY(cf_flights(comm, groups, 3, place, large));
  TR_TRY(cf_exchange(comm, groups[2], 3000, 0));
  tr_group_destroy(groups[1]);
  tr_group_destroy(groups[2]);
  return TR_OK;
}

// Memory of the first rank that all write and read at one address; and a request beyond its arena, refused everywhere.
static inline tr_status cf_shared_memory(tr_comm *comm, tr_group *g) {
  int size = tr_group_size(g), own = tr_group_rank(g);
  tr_arena *arena = tr_comm_arena(comm);
  size_t mark = tr_arena_mark(arena);
  int32_t *word;
  void *none;
  if (!tr_group_on_one_host(g)) return TR_OK;
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
  int size = tr_comm_size(comm), ranks[CF_RANKS];
  for (int r = 0; r < size; r++) ranks[r] = (r + 1) % size;
  for (int i = 0; i < 40; i++) { // two groups each: more than a rank can be in at once
    tr_group *g, *h;
    float x[3];
    TR_TRY(tr_group_create(comm, ranks, size, "again", &g));
    TR_TRY(tr_group_create(comm, ranks, size, "again", &h));
    TR_TRY(cf_allreduce(g, (char *)x, (char *)x, 3, TR_F32, TR_SUM, (uint32_t)i));
    if (i % 10 == 0) TR_TRY(cf_many_sends(h));
    tr_group_destroy(g);
    tr_group_destroy(h);
  }
  return TR_OK;
}

static inline tr_status cf_hosts(tr_comm *comm) {
  int hosts = tr_comm_hosts(comm), size = tr_comm_size(comm), together = 1;
  for (int r = 0; r < size; r++) {
    int host = tr_comm_host(comm, r);
    if (host < 0 || host >= hosts) return tr_error(TR_ERR_VERIFY, "rank %d on host %d of %d", r, host, hosts);
    together &= host == tr_comm_host(comm, 0);
  }
  if (together == tr_group_on_one_host(tr_comm_world(comm))) return TR_OK;
  return tr_error(TR_ERR_VERIFY, "ranks are on %d hosts, the group of all is said to be on %s", hosts,
                  together ? "several" : "one");
}

// ---- delays, and the whole ----------------------------------------------------------------------

static inline void cf_delay(void *user, const char *point) {
  uint32_t *state = user;
  uint32_t h = *state = cf_mix(*state + (uint32_t)strlen(point));
  if (h % 32 == 0) tr_clock_sleep_ns(50000 + h % 100000);
}

static inline tr_status cf_main(tr_comm *comm, void *user) {
  const cf_options *o = user;
  tr_group *world = tr_comm_world(comm), *all = NULL;
  uint32_t seed = 12345u + (uint32_t)tr_comm_rank(comm);
  int ranks[CF_RANKS];
  if (o->delays) tr_comm_set_hook(comm, cf_delay, &seed);
  for (int r = 0; r < tr_comm_size(comm); r++) ranks[r] = r;
  if (o->prepare) {
    o->prepare(comm);
    TR_TRY(tr_group_create(comm, ranks, tr_comm_size(comm), "prepared", &all));
    world = all;
  }
  TR_TRY(cf_hosts(comm));
  for (int place = 0; place < CF_PLACES; place++) TR_TRY(cf_collectives(comm, world, place, o->large));
  TR_TRY(cf_far_ahead(world));
  TR_TRY(cf_transfers(comm, world));
  TR_TRY(cf_subgroups(comm, o->large));
  TR_TRY(cf_shared_memory(comm, tr_comm_world(comm)));
  TR_TRY(cf_slots_are_used_again(comm));
  tr_group_destroy(all);
  return TR_OK;
}

#endif
