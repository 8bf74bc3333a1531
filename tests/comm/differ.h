// SPDX-License-Identifier: MIT
// Calls that differ between ranks, one kind of difference at a time: rank 2 of at least three is the odd one.
#ifndef TRIREME_TESTS_COMM_DIFFER_H
#define TRIREME_TESTS_COMM_DIFFER_H

#include "trireme/comm/comm.h"
#include <string.h>

enum { WAYS_TO_DIFFER = 14 }; // the next one: counts of an all-to-all-v, of which each rank has its own

static inline tr_status call_differently(tr_comm *comm, void *user) {
  int how = *(int *)user, odd = tr_comm_rank(comm) == 2;
  tr_group *world = tr_comm_world(comm);
  float *x = tr_arena_alloc(tr_comm_arena(comm), 40000);
  float *y = tr_arena_alloc(tr_comm_arena(comm), 40000);
  memset(x, 0, 40000);
  const size_t start[] = {0, 1000, 2000, odd ? 3001 : 3000, 4000}, even[] = {0, 100, 200, 300, 400};
  const size_t uneven[] = {0, 100, odd ? 100 : 200, odd ? 200 : 300, odd ? 300 : 400}; // nothing for rank 1
  switch (how) {
  case 0: return tr_group_allreduce(world, x, x, odd ? 200 : 100, TR_F32, TR_SUM, NULL);
  case 1: return tr_group_allreduce(world, x, x, 10000, odd ? TR_BF16 : TR_F32, TR_SUM, NULL);
  case 2: return tr_group_allreduce(world, x, x, 100, TR_F32, odd ? TR_MAX : TR_SUM, NULL);
  case 3: return tr_group_broadcast(world, x, 100, TR_F32, odd, NULL);
  case 4:
    return tr_group_reduce_scatter_v(world, x, x + start[tr_comm_rank(comm)], start, TR_F32, TR_F32, TR_SUM, 1, NULL,
                                     NULL, NULL);
  case 5: return tr_group_allgather_v(world, x + start[tr_comm_rank(comm)], x, start, TR_F32, NULL);
  case 6: return tr_group_reduce(world, x, x, 100, TR_F32, TR_SUM, odd, NULL);
  case 7: return tr_group_reduce_scatter(world, x, x, odd ? 500 : 501, TR_F32, TR_SUM, NULL);
  case 8: return tr_group_allgather(world, x, y, odd ? 1000 : 999, TR_F32, NULL);
  case 9: return tr_group_alltoall(world, x, y, 100, odd ? TR_I32 : TR_F32, NULL);
  case 10: return tr_group_gather(world, x, y, 100, TR_F32, odd ? 0 : 1, NULL);
  case 11: return tr_group_scatter(world, x, y, odd ? 7 : 8, TR_F32, 0, NULL);
  case 12: return tr_group_alltoall_v(world, x, even, y, even, odd ? TR_I32 : TR_F32, NULL);
  case 13: return odd ? tr_group_barrier(world) : tr_group_allreduce(world, x, x, 100, TR_F32, TR_SUM, NULL);
  default: return tr_group_alltoall_v(world, x, uneven, y, even, TR_F32, NULL);
  }
}

#endif
