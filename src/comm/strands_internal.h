// SPDX-License-Identifier: MIT
// What a group keeps to run scripts: the scripts it has used, its lanes, the groups it leans on.
//
// Strands of a group are numbered through all its operations, in the order in which these were started, which is the same
// on every rank. Strand t runs on lane t mod 4, after strand t - 4 has ended here: so the transfers of a lane are
// started in the same order on every rank, whichever operation they belong to.
#ifndef TRIREME_COMM_STRANDS_INTERNAL_H
#define TRIREME_COMM_STRANDS_INTERNAL_H

#include "algorithm.h"

enum {
  TR__GRAIN = 32, // messages are cut at multiples of this many elements
  TR__KNOWN = 64, // calls of a group whose algorithm is remembered
};

typedef struct tr__flight { // a transfer, or an operation of the local group
  tr__transfer transfer;
  tr_request *local;
  int ended;
} tr__flight;

// Where the parts of one side lie: part p at element at[p]; sum[p] elements are in the parts before it; `reach[p]` parts from
// p on lie one behind the other.
typedef struct tr__cut {
  size_t *at, *sum;
  int *reach;
} tr__cut;

typedef struct tr__strand {
  tr_request *request; // NULL: the lane is free
  const tr__script *script;
  uint32_t number;    // of the next strand of this lane, or of the one under way
  uint32_t chunk;     // of its request
  int step, started;  // next step; transfers started
  tr__flight *flight; // [script->ntransfer]
  tr__cut cut[2];     // of the source, of the destination
  char **base;        // [script->nreg]
  size_t *starts;     // [local operations of the script][ranks of the host + 1]
  char *scratch;
  size_t scratch_nbyte;
  int room_parts, room_flights, room_registers, room_starts;
} tr__strand;

typedef struct tr__known { // a call that was made before
  tr__kind kind;
  tr_dtype type;
  int root;
  size_t nelem;
  const tr__script *script;
} tr__known;

typedef struct tr__strands {
  tr__script *scripts;
  tr__known known[TR__KNOWN];
  unsigned known_next;
  tr__strand lane[TR__LANES];
  uint32_t next,
      ticket[TR__LOCALS];          // of the next operation: number of its first strand, of its first local operations
  uint32_t next_local[TR__LOCALS]; // number of the local operation that is the next to start
  tr_group *shadow;                // shared memory transport: the group whose channels carry the transfers
  tr_group *local_group[TR__LOCALS]; // ranks of this host
  int local_size;                    // ranks per host, where hosts are filled in blocks; else 0
  struct tr__compare *compare;       // NULL: calls are not compared, or the engine does that
  tr__traffic traffic;
  uint64_t summed; // elements
} tr__strands;

void tr__lane_free(tr__strand *lane);
// Into how many strands a message is cut: pieces on the wire are long enough, but several are under way.
uint32_t tr__script_strands(const tr_request *r);
size_t tr__script_room(tr_request *r); // scratch of its strands; of a request with script and chunks, in no list
size_t tr__scratch_size(size_t least); // that a lane takes for so much
tr__script *tr__script_build(const tr__algorithm *algorithm, tr__kind kind, int size, int index, int root, int local);

#endif
