// SPDX-License-Identifier: MIT
// What the files of the shared memory engine share: where things are, and what a collective is made of.
//
// engine_shm.c knows the phases and paths, which are the same for all; a tr__collective says what one of them does on
// each path. shm_reduce.c has those that add, shm_move.c those that copy.
#ifndef TRIREME_COMM_SHM_INTERNAL_H
#define TRIREME_COMM_SHM_INTERNAL_H

#include "comm_internal.h"
#include <string.h>

// How far a piece of work has brought an operation. WAITING: not at all; it is for the rank in r->awaits.
typedef enum tr__pace { TR__MORE, TR__DONE, TR__WAITING } tr__pace;

typedef struct tr__collective {
  int only_root;                                   // only the root contributes
  void (*post)(tr_request *r, tr__record *record); // optional: instead of the payload and places that all post
  tr_status (*check)(tr_request *r);               // optional: more that must agree, once all records are there
  size_t (*inline_in)(const tr_request *r, char *payload); // optional: instead of the contribution; returns its bytes
  void (*combine)(tr_request *r);                          // inline: from all payloads to dst
  int (*direct)(const tr_request *r);        // do buffers lie where the direct path needs them? Equal on all ranks
  tr__pace (*work)(tr_request *r);           // direct: one bounded piece
  tr__pace (*pull)(tr_request *r);           // optional: the same where others' own memory can be read,
  size_t pull_least, pull_most;              // of contributions of so many bytes, 0: any; others are faster staged
  size_t pull_alone;                         // of fewer bytes where each rank has its own core; 0: any
  int (*free_to_leave)(const tr_request *r); // direct: nobody uses this rank's buffers, do not wait; NULL: wait
  size_t (*chunk)(const tr_request *r);      // staged: elements per chunk
  // staged: n elements from `at` into this rank's stage; then from all stages; then, when all have done that, from what
  // they left there (or NULL)
  void (*stage_in)(tr_request *r, size_t at, size_t n);
  void (*stage_work)(tr_request *r, size_t at, size_t n, int half);
  void (*stage_out)(tr_request *r, size_t at, size_t n, int half);
} tr__collective;

extern const tr__collective tr__shm_allreduce, tr__shm_reduce, tr__shm_reduce_scatter, tr__shm_reduce_scatter_v,
    tr__shm_allgather, tr__shm_allgather_v, tr__shm_alltoall, tr__shm_alltoall_v, tr__shm_broadcast, tr__shm_gather,
    tr__shm_scatter;

// ---- where things are

static inline tr__ring *tr__shm_ring(const tr_group *g, int index) {
  return tr__ring_of(g->comm->job, g->slot, g->ranks[index]);
}
static inline tr__record *tr__shm_record(const tr_request *r, int index) {
  return &tr__shm_ring(r->group, index)->record[r->seq % TR__RING];
}
static inline char *tr__shm_half(const tr_request *r, int index, int half) {
  return tr__stage_of(r->group->comm->job, r->group->slot, r->group->ranks[index])->half[half];
}
// The half that this rank fills next.
static inline char *tr__shm_own_half(const tr_request *r) {
  return tr__shm_half(r, r->group->index, (int)(r->in & 1));
}
static inline char *tr__shm_src(const tr_request *r, int index) {
  return r->group->comm->job->arenas + tr__shm_record(r, index)->place;
}
static inline char *tr__shm_dst(const tr_request *r, int index) {
  return r->group->comm->job->arenas + tr__shm_record(r, index)->dst_place;
}

// Do the sources of all that contribute lie where all can read them: in arenas, or in records?
static inline int tr__shm_srcs_shared(const tr_request *r, int only_root) {
  for (int i = only_root ? r->root : 0; i < (only_root ? r->root + 1 : r->group->size); i++) {
    uint64_t place = tr__shm_record(r, i)->place;
    if (!tr__in_arena(place) && place != TR__WITHIN) return 0;
  }
  return 1;
}

// Bytes [offset, offset + n) of what lies at a place of the rank with index i, to `to`. 0: it has gone, and is waited for.
int tr__shm_fetch(tr_request *r, int i, uint64_t place, size_t offset, char *to, size_t n);

// ---- small things

static inline size_t tr__smaller(size_t a, size_t b) { return a < b ? a : b; }

static inline void tr__shm_copy(char *dst, const char *src, size_t nbyte) {
  if (nbyte > TR__LINE && dst != src)
    tr__copy(dst, src, nbyte);
  else if (nbyte && dst != src)
    memcpy(dst, src, nbyte);
}

// Elements per chunk: of the whole contribution, and of each rank's block of it.
size_t tr__shm_chunk_whole(const tr_request *r);
size_t tr__shm_chunk_block(const tr_request *r);
// Stage in: a range of a contribution; the same range of each of its blocks but this rank's own, one after the other.
void tr__shm_stage_whole(tr_request *r, size_t at, size_t n);
void tr__shm_stage_blocks(tr_request *r, size_t at, size_t n);

#endif
