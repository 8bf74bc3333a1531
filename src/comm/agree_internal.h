// SPDX-License-Identifier: MIT
// Whether all ranks of a group made the same call: comparing, blaming (agree.c), and telling each other over hosts (compare.c).
#ifndef TRIREME_COMM_AGREE_INTERNAL_H
#define TRIREME_COMM_AGREE_INTERNAL_H

#include "comm_internal.h"
#include <string.h>

tr__call tr__call_of(const tr_request *r);
static inline int tr__calls_equal(const tr__call *a, const tr__call *b) {
  return memcmp(a, b, sizeof *a) == 0; // without padding
}
// Stop the job when the calls of all ranks, by group index, are not equal; names the same rank on every rank.
tr_status tr__agree(const tr_request *r, const tr__call *const *call);
// All-to-all-v: the same when rank `from` of the group sends this rank another number of elements than it expects.
tr_status tr__agree_count(const tr_request *r, int from, size_t sent);

// ---- compare.c: groups over hosts, where TRIREME_COMM_DEBUG asks for it
typedef struct tr__compare tr__compare;
tr__compare *tr__compare_create(const tr_group *group); // NULL: no memory
// Tells all ranks of this call and hears of theirs, without waiting; TR_OK once all are there and equal. Phases TR__POST and
// TR__GATHERING. The first step of each request is in the order of the calls.
tr_status tr__compare_step(tr__compare *compare, tr_request *r);

#endif
