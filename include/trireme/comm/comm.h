// SPDX-License-Identifier: MIT
// Communication between the ranks of a job: groups, collectives, point to point, and the rule that nothing hangs.
//
// A tr_comm is one rank's handle on its job; a tr_group is an ordered set of ranks that communicate together; a
// tr_request is one operation under way. Handles live until destroyed; requests end when test or wait returns
// anything but TR_PENDING, and must not be used after that. A rank uses its handles from one thread.
//
// Every call below names what the other ranks must do. "Collective": all ranks of the group call it, in the same
// order on that group, with equal nelem, type, op and root. Operations with `request` NULL block; otherwise they are
// started and `*request` is to be tested or waited for; several may be under way at once, on one group or many;
// buffers belong to the operation until it ends.
//
// Sums are one aligned binary tree over the group index, (0+1)+(2+3)..., computed in f32 for floating types and
// rounded once at the end, whatever the engine, the algorithm, the size or the timing: the same bits on every run, on
// every rank and on every engine. Partial sums of narrow types travel in f32. Algorithms that add in another order (ring
// and double-tree reductions) are chosen only where the launch allows any order. Buffers inside the rank's arena
// (tr_comm_arena) travel without a copy between ranks of one host; others are staged or read from process to process.
//
// Waiting: each wait has a deadline, counted from the last progress of the rank waited for (tr_comm_beat). When it
// passes, or a rank dies or aborts, every pending and later call in every rank returns TR_ERR_PEER or TR_ERR_TIMEOUT
// with one sentence that names the culprit rank, its pid, what it was doing (operation, step) and since when.
#ifndef TRIREME_COMM_COMM_H
#define TRIREME_COMM_COMM_H

#include "trireme/base/arena.h"
#include "trireme/base/status.h"
#include "trireme/tensor/dtype.h"
#include <stddef.h>
#include <stdint.h>

typedef struct tr_comm tr_comm;
typedef struct tr_group tr_group;
typedef struct tr_request tr_request;

typedef enum tr_reduce_op { TR_SUM, TR_MAX, TR_AVERAGE } tr_reduce_op;

// ---- the rank and its job: local calls

int tr_comm_rank(const tr_comm *comm); // 0 .. size - 1
int tr_comm_size(const tr_comm *comm);
const char *tr_comm_engine(const tr_comm *comm); // "self", "shm", "mpi"
int tr_comm_host(const tr_comm *comm, int rank); // number of the host on which `rank` runs: 0 .. hosts - 1
int tr_comm_hosts(const tr_comm *comm);          // hosts of the job
tr_arena *tr_comm_arena(tr_comm *comm);          // this rank's shared memory; what travels is allocated here
int tr_comm_spin(const tr_comm *comm);  // nonzero: every thread of every rank has its own core, short spins are fine
tr_group *tr_comm_world(tr_comm *comm); // all ranks; owned by comm

// Bump this rank's progress counter: called after each piece of work, cheap. Others' deadlines restart.
void tr_comm_beat(tr_comm *comm);
// Say what this rank is doing, for everybody's error messages; -1 for no step or no micro-batch.
void tr_comm_activity(tr_comm *comm, const char *what, int64_t step, int64_t microbatch);
// Advance every request under way without waiting. Called between pieces; returns the job's error if it is stopping.
tr_status tr_comm_progress(tr_comm *comm);
// Stop the whole job: every rank's pending and later calls fail with this status and sentence, with "rank N: " before it where
// others pass it on and it begins with no rank. First caller wins.
void tr_comm_abort(tr_comm *comm, tr_status status, const char *format, ...) __attribute__((format(printf, 3, 4)));
tr_status tr_comm_check(tr_comm *comm);          // TR_OK, or the job's error (recorded as this thread's sentence)
int tr_comm_stop_requested(const tr_comm *comm); // Ctrl-C or SIGTERM: finish the step, save, leave

// Called at named points inside operations ("allreduce.ready", "allreduce.reduce", "barrier.wait", ...): fault and
// delay injection for tests. NULL removes it.
typedef void (*tr_comm_hook)(void *user, const char *point);
void tr_comm_set_hook(tr_comm *comm, tr_comm_hook hook, void *user);
// The i-th of all points that there are: "allreduce.start", ... Returns 0 behind the last.
int tr_comm_point(int i, char *out, size_t nbyte);

// Bytes of shared memory that exist on this rank's account: its arena and, for rank 0, what all ranks talk through. 0 where
// ranks are threads: there it is private memory of their process.
size_t tr_comm_memory(const tr_comm *comm);

// What went over the engine so far, for checks and logs.
typedef struct tr_comm_counters {
  uint64_t operations, bytes_direct, bytes_staged;
  int64_t wait_ns;
} tr_comm_counters;
tr_comm_counters tr_comm_count(const tr_comm *comm);

// ---- groups

// Collective over `ranks` (ascending or not; group index i is ranks[i]); all pass equal lists and name. Cheap. The
// rank that created a group destroys it. TR_ERR_USAGE for a list that cannot be a group.
tr_status tr_group_create(tr_comm *comm, const int *ranks, int nrank, const char *name, tr_group **out);
void tr_group_destroy(tr_group *group); // Local; not for the world group; NULL allowed
// Local. From now on this many operations can be under way on the group at once without memory being taken.
tr_status tr_group_reserve(tr_group *group, int noperation);
int tr_group_rank(const tr_group *group); // own index in the group
int tr_group_size(const tr_group *group);
const char *tr_group_name(const tr_group *group);
int tr_group_member(const tr_group *group, int index); // job rank of group index
int tr_group_on_one_host(const tr_group *group);       // nonzero: its members share memory

// Slice `index` of n elements cut over `size` ranks in runs that start on multiples of `grain` elements: how
// collectives here cut data by owner. Pure function.
void tr_slice(size_t n, int size, int index, size_t grain, size_t *start, size_t *count);

// Collective; blocks. Memory that all ranks of the group read and write at the same address, from the arena of group
// index 0, which takes all of it (given back by resetting that arena). For groups whose ranks share a machine;
// TR_ERR_MEMORY when the arena has no room. Zeroed on first use of a fresh arena.
tr_status tr_group_shared(tr_group *group, size_t nbyte, void **out);

// ---- operations
//
// Errors: TR_ERR_USAGE for arguments that cannot be right, or that differ between ranks (which stops the job; found in groups
// over hosts where TRIREME_COMM_DEBUG=1, else perhaps only by the deadline); TR_ERR_MEMORY; otherwise the job's error. Testing
// and waiting are local calls.

// Collective. dst[i] = op over ranks of src[i], on all ranks; dst == src is in place, otherwise they may not overlap.
// TR_AVERAGE is for floating types.
tr_status tr_group_allreduce(tr_group *group, const void *src, void *dst, size_t nelem, tr_dtype type,
                             tr_reduce_op op, tr_request **request);
// Collective. The same on the group index `root` only; dst of other ranks is not touched and may be NULL.
tr_status tr_group_reduce(tr_group *group, const void *src, void *dst, size_t nelem, tr_dtype type, tr_reduce_op op,
                          int root, tr_request **request);
// Collective. src has size * nelem elements; rank r receives op over ranks of src[r * nelem ...] in dst (nelem). dst
// may be src + rank * nelem (in place); the rest of src is left unspecified.
tr_status tr_group_reduce_scatter(tr_group *group, void *src, void *dst, size_t nelem, tr_dtype type, tr_reduce_op op,
                                  tr_request **request);
// Told of each part of an operation's result right after it was written, while it is in the cache: elements
// [first, first + count) of dst, in ascending order. Called by the thread that advances the operation.
typedef void (*tr_part_done)(void *user, size_t first, size_t count);
// Collective. Rank r receives op over ranks of src[start[r] .. start[r + 1]) in dst, as dst_type: `type`, or f32 when
// `type` is bf16 (then nothing is rounded). `start` has size + 1 ascending entries, equal on all ranks, and is read until
// the operation ends. dst may be src + start[rank] when the types are equal (in place); the rest of src is left as it is.
// Parts end on multiples of `grain` elements counted from dst (but for the last). `done` may be NULL.
tr_status tr_group_reduce_scatter_v(tr_group *group, void *src, void *dst, const size_t *start, tr_dtype type,
                                    tr_dtype dst_type, tr_reduce_op op, size_t grain, tr_part_done done, void *user,
                                    tr_request **request);
// Collective. dst has size * nelem elements, block r from rank r's src (nelem). In place: src is dst + rank * nelem.
tr_status tr_group_allgather(tr_group *group, const void *src, void *dst, size_t nelem, tr_dtype type,
                             tr_request **request);
// Collective. dst gets, from `start[r]` on, the start[r + 1] - start[r] elements of rank r's src, of every rank r. `start` as
// in reduce-scatter-v. In place: src is dst + start[rank].
tr_status tr_group_allgather_v(tr_group *group, const void *src, void *dst, const size_t *start, tr_dtype type,
                               tr_request **request);
// Collective. src and dst have size * nelem elements; block j of rank i's src becomes block i of rank j's dst. They may not
// overlap.
tr_status tr_group_alltoall(tr_group *group, const void *src, void *dst, size_t nelem, tr_dtype type,
                            tr_request **request);
// Collective. The same with uneven blocks: elements [src_start[j], src_start[j + 1]) of src go to rank j and stand in its
// dst from its dst_start[own index] on. Each rank's two arrays (size + 1 ascending entries) are its own; what i sends to j
// must be as long as what j expects of i. They are read until the operation ends.
tr_status tr_group_alltoall_v(tr_group *group, const void *src, const size_t *src_start, void *dst,
                              const size_t *dst_start, tr_dtype type, tr_request **request);
// Collective. data of the group index `root` comes to all ranks.
tr_status tr_group_broadcast(tr_group *group, void *data, size_t nelem, tr_dtype type, int root,
                             tr_request **request);
// Collective. dst of the root gets size * nelem elements, block r from rank r's src (nelem); other ranks' dst may be NULL.
// In place on the root: src is dst + root * nelem.
tr_status tr_group_gather(tr_group *group, const void *src, void *dst, size_t nelem, tr_dtype type, int root,
                          tr_request **request);
// Collective. The reverse: block r of the root's src (size * nelem) comes to rank r's dst (nelem). In place on the root: dst
// is src + root * nelem.
tr_status tr_group_scatter(tr_group *group, const void *src, void *dst, size_t nelem, tr_dtype type, int root,
                           tr_request **request);
// Point to point, by group index: the two ranks call, one send for one receive, matched in order per (group, sender,
// receiver, tag). nbyte must agree. Tags are 0 to TR_TAG_MOST. A receive is not held up by earlier sends with other tags, as
// long as no more than 15 of them wait for their receives; later sends between the two start when earlier ones have arrived.
enum { TR_TAG_MOST = 32767 };
tr_status tr_group_send(tr_group *group, int to, int tag, const void *data, size_t nbyte, tr_request **request);
tr_status tr_group_recv(tr_group *group, int from, int tag, void *data, size_t nbyte, tr_request **request);
// Local. There will be transfers with this member in steps that must not fault in a page: what they need is faulted in now.
void tr_group_expect(const tr_group *group, int peer);
tr_status tr_group_barrier(tr_group *group); // Collective; blocks until all ranks have called

tr_status tr_request_test(tr_request *request); // TR_OK ended, TR_PENDING, or the job's error; never waits
tr_status tr_request_wait(tr_request *request); // TR_OK or the job's error
// Nonzero: it has ended, so testing it collects it. Moves nothing: cheap for many requests after one tr_comm_progress.
int tr_request_ended(const tr_request *request);

#endif
