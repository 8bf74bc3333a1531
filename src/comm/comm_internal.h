// SPDX-License-Identifier: MIT
// What the files of src/comm share: the job's memory, the rank object, groups, requests, the engine table.
//
// Everything ranks share is mapped once by the launcher, before any rank starts, so that addresses are equal in all
// ranks. It is two ranges; untouched parts of them cost nothing but address space:
//
//   arenas    | rank 0: arena | rank 1: arena | ...         one memory file each, `arena_stride` apart
//   control   | control | rank pages | mails | rings | channels | stages | courier stages |
//
//     control         one: abort word and sentence, stop flag, epoch counter
//     rank page       one per rank, written by it: progress counter, activity, what it waits for, how it ended
//     mail            one line per (rank, group slot): a new group announced by its leader
//     ring            one per (group slot, rank): a line that counts ended operations, then 16 operation records
//     channel         one per (group slot, sender, receiver): two reply lines by the receiver, 16 entries by the sender
//     stage           one per (group slot, rank): two halves of 256 KiB for private buffers in collectives
//     courier stage   one per rank: two halves of 256 KiB for private buffers in receives
//
// Every flag has one writer and stands in its writer's own 128-byte line. A flag that belongs to an operation
// is a tag, (epoch of the group, 32-bit sequence): epochs are never used twice in a job, so nothing is cleared
// when a slot is used again, and sequences may wrap. Data is published by a release store of a flag and read
// after an acquire load.
#ifndef TRIREME_COMM_INTERNAL_H
#define TRIREME_COMM_INTERNAL_H

#include "trireme/base/text.h"
#include "trireme/comm/comm.h"
#include "trireme/comm/launch.h"
#include <signal.h>
#include <stdatomic.h>

enum {
  TR__LINE = 128,
  TR__RANKS = 256,         // most ranks of a job on one machine
  TR__SLOTS = 64,          // most groups a rank can be in at once, the world group included
  TR__RING = 16,           // operations a rank may be ahead on one group, sends on one channel
  TR__INLINE = 2048,       // most payload bytes inside an operation record
  TR__ENTRY_INLINE = 64,   // most payload bytes inside a channel entry
  TR__STAGE = 256 * 1024,  // half of a stage
  TR__BOUNCE = 128 * 1024, // of what is read to be added at a time: stays in the cache
  TR__READ_LEAST = 32768,  // what has fewer bytes is staged rather than read in its rank's own memory
  TR__READ_ALONE =
      512 * 1024, // so is from here on what one rank takes from another that has a core of its own: both copy then
  TR__PIECE = 1024 * 1024, // most bytes worked on in one step of an operation
  TR__NAME = 32,           // names and activities shown to others, terminator included
  TR__SENTENCE = 768,
  TR__HOST_NAME = 64,
  TR__WHO = TR__HOST_NAME + 48, // "rank 3 (pid 4711 on node2)"
};

// Places of buffers: an offset in the arenas; TR__OWN and an address in the rank's own memory; the record itself; no buffer.
#define TR__OWN     (1ull << 63)
#define TR__WITHIN  (UINT64_MAX - 1)
#define TR__NOWHERE UINT64_MAX

// ---- shared memory ------------------------------------------------------------------------------

typedef _Atomic uint64_t tr__name[TR__NAME / 8]; // text in atomic words: readers may look at any time

typedef struct tr__control {
  _Alignas(TR__LINE) _Atomic uint32_t abort_state; // 0 none, 1 being written, 2 set
  _Atomic uint32_t stop;
  _Alignas(TR__LINE) _Atomic uint32_t epoch; // last epoch given to a group
  _Alignas(TR__LINE) int32_t status;         // the abort record: written between states 1 and 2
  int32_t culprit;
  int64_t stopped; // ns, when the views were taken
  char sentence[TR__SENTENCE];
} tr__control;

typedef struct tr__rank_page {
  _Alignas(TR__LINE) _Atomic uint64_t beat;
  _Alignas(TR__LINE) tr__name what;
  _Atomic int64_t step, microbatch, since;
  _Alignas(TR__LINE) _Atomic int32_t awaits; // job rank, -1 none
  _Atomic uint32_t kind, seq;                // the operation this rank waits in; kind 0 none
  _Atomic uint64_t nbyte;
  _Atomic int64_t wait_since;
  _Atomic int64_t looked; // when this rank, waiting, last looked for an end; stands still in one that does not run
  tr__name group;
  _Alignas(TR__LINE) _Atomic int32_t pid;
  _Atomic int32_t life;             // a tr__life
  _Atomic uint64_t shown_at, shown; // where in its own memory stands what number (peer_read.c)
  _Atomic int64_t heard;            // of a rank of another host: when this page last came from there, 0 never
  int32_t status;                   // written before life becomes TR__ENDED
  _Alignas(TR__LINE) _Atomic uint64_t slots; // bit per group slot in use; set and cleared by group leaders
} tr__rank_page;

typedef enum tr__life { TR__UNBORN, TR__RUNNING, TR__ENDED } tr__life;

// A rank's page as it was when the job was stopped, for the report (report.c): afterwards all waits end.
typedef struct tr__rank_view {
  char what[TR__NAME], group[TR__NAME];
  int64_t step, microbatch, since, wait_since;
  uint64_t nbyte;
  int64_t heard;
  uint32_t kind, seq;
  int32_t awaits, pid, life, unused;
} tr__rank_view;

typedef struct tr__mail {
  _Alignas(TR__LINE) _Atomic uint32_t epoch; // 0 none; written by the leader last
  _Atomic uint32_t joined;                   // epoch the owner has answered
  _Atomic uint32_t left;                     // in the leader's mail: members that have destroyed the group
  int32_t leader;
  uint64_t key; // hash of members and name
} tr__mail;

// What must be equal on all ranks.
typedef struct tr__call {
  uint8_t kind, type, op, unused;
  int32_t root;
  uint64_t nelem;
} tr__call;

// One operation of one rank on one group. What small operations need stands first, in as few lines as it fits.
typedef struct tr__record {
  _Alignas(TR__LINE) _Atomic uint64_t ready; // tag; the fields below are valid
  tr__call call;
  union {
    uint8_t payload[TR__INLINE + TR__LINE - 24]; // of an operation that fits
    struct {
      uint64_t place, dst_place;                        // of the buffers that others read and write
      _Atomic uint32_t stage_in, stage_done, stage_out; // chunks copied into the stage, combined, copied out
      _Atomic uint32_t finished;                        // this rank no longer touches others' buffers
      uint32_t reads;                                   // this rank can read all others' own memory
      uint64_t
          words[(TR__INLINE + TR__LINE - 64) / 8]; // all-to-all-v: where each rank's block starts, then small data
    };
  };
} tr__record;

typedef struct tr__ring {
  _Alignas(TR__LINE) _Atomic uint64_t ended; // tag: all operations before this sequence have ended here
  tr__record record[TR__RING];
} tr__ring;

typedef struct tr__entry {
  _Alignas(TR__LINE) _Atomic uint64_t posted; // tag
  _Atomic uint32_t sent;                      // chunks written to the granted place
  int32_t tag;
  uint64_t nbyte, place;
  uint8_t payload[TR__ENTRY_INLINE];
} tr__entry;

typedef struct tr__channel {
  _Alignas(TR__LINE) _Atomic uint64_t taken[TR__RING]; // tag of the last send of each entry that has arrived
  _Alignas(TR__LINE) _Atomic uint64_t granted;         // tag of the send that may write to `grant`
  _Atomic uint32_t read;                               // chunks the receiver has copied out
  uint32_t ahead;                                      // chunks the sender may be ahead of `read`
  char *grant;                                         // chunk c goes to grant + (c % ahead) * TR__STAGE
  tr__entry entry[TR__RING];
} tr__channel;

typedef struct tr__stage {
  _Alignas(TR__LINE) char half[2][TR__STAGE];
} tr__stage;

_Static_assert(sizeof(tr__record) == TR__INLINE + TR__LINE, "a record is its payload and one line");
_Static_assert(sizeof(tr__entry) == TR__LINE, "an entry is one line");

// ---- the job: made by the launcher, inherited by every rank -------------------------------------

// Who shares memory with whom. Tables that ranks share are indexed by the rank in the job on every host; what belongs to
// ranks of other hosts has no meaning there, but for their pages (mirror.c).
typedef struct tr__hosts {
  int count, own, nlocal;              // hosts of the job; this one's number; ranks on it
  int joined;                          // others have started the ranks
  int differs;                         // first rank whose options.agrees is not that of rank 0; 0: none
  int compare;                         // groups over hosts compare their ranks' calls (compare.c)
  int64_t least;                       // of all ranks' options.offer
  int16_t of[TR__RANKS];               // host of each rank
  int16_t local[TR__RANKS];            // number of each rank among those of its host
  int32_t pid[TR__RANKS];              // of ranks that others have started
  char name[TR__RANKS][TR__HOST_NAME]; // of each host, where there are several
} tr__hosts;

typedef struct tr__net tr__net; // connection to other hosts (external_internal.h)

typedef struct tr__job {
  tr_launch_options options;
  tr__hosts hosts;
  tr__net *net; // NULL: all ranks are on this host
  int spin;
  int mates;             // ranks on each core where several are bound to one, consecutive ones; else 0
  char *arenas, *shared; // the two mappings
  size_t arena_stride, shared_nbyte;
  tr__control *control;
  tr__rank_page *page;  // [rank]
  tr__rank_view *view;  // [rank], written between states 1 and 2 of the abort word
  tr__mail *mail;       // [rank][slot]
  tr__ring *ring;       // [slot][rank]
  tr__channel *channel; // [slot][from][to]
  tr__stage *stage;     // [slot][rank]
  tr__stage *courier;   // [rank]
} tr__job;

tr_status tr__job_create(const tr_launch_options *options, tr__job *job); // all ranks on this host, and its memory
// Parts of it, for ranks that meet: check and size what job->options and job->hosts ask for; then, with the ranges mapped,
// cut them; then, once per host, fill in what is not zero.
tr_status tr__job_prepare(tr__job *job);
void tr__job_lay_out(tr__job *job);
void tr__job_init_control(tr__job *job);
void tr__job_destroy(tr__job *job);
size_t tr__job_taken(const tr__job *job, int rank); // see tr_comm_memory
size_t tr__round_to_pages(size_t nbyte);
size_t tr__arena_nbyte(const tr__job *job, int rank);
// Place of [data, data + nbyte): in one of the arenas, or in this rank's own memory.
uint64_t tr__job_place(const tr__job *job, const void *data, size_t nbyte);
static inline int tr__in_arena(uint64_t place) { return !(place & TR__OWN); }

static inline tr__mail *tr__mail_of(const tr__job *job, int rank, int slot) {
  return &job->mail[(size_t)rank * TR__SLOTS + (size_t)slot];
}
static inline tr__ring *tr__ring_of(const tr__job *job, int slot, int rank) {
  return &job->ring[(size_t)slot * (size_t)job->options.nrank + (size_t)rank];
}
static inline tr__stage *tr__stage_of(const tr__job *job, int slot, int rank) {
  return &job->stage[(size_t)slot * (size_t)job->options.nrank + (size_t)rank];
}
static inline tr__channel *tr__channel_of(const tr__job *job, int slot, int from, int to) {
  size_t n = (size_t)job->options.nrank;
  return &job->channel[((size_t)slot * n + (size_t)from) * n + (size_t)to];
}
static inline uint64_t tr__tag(uint32_t epoch, uint32_t seq) { return (uint64_t)epoch << 32 | seq; }
// a - b of two sequences: right across the wrap as long as they are less than 2^31 apart.
static inline int32_t tr__ahead(uint32_t a, uint32_t b) { return (int32_t)(a - b); }

// ---- control: abort, activity, sentences --------------------------------------------------------

void tr__name_store(tr__name name, const char *text);
void tr__name_load(const tr__name name, char out[TR__NAME]);
// Record the job's end; only the first call has an effect and returns nonzero.
int tr__abort(tr__job *job, int culprit, tr_status status, const char *sentence);
int tr__aborted(const tr__job *job); // nonzero once any rank has begun to abort
// The abort record; waits shortly for it to be written.
tr_status tr__abort_status(const tr__job *job, int *culprit, char *sentence, size_t nbyte);
// "rank 3 (pid 4711)", with " on node2" where there are several hosts.
void tr__describe_rank(const tr__job *job, int rank, char out[TR__WHO], size_t nbyte);
// "F of step 12, micro-batch 3" for rank, or "its start".
void tr__describe_activity(const tr__job *job, int rank, char *out, size_t nbyte);
// "all-reduce #812 of group 'dp' (4.0 MiB)", or "" when the rank waits in nothing.
void tr__describe_wait(const tr__job *job, int rank, char *out, size_t nbyte);
// Follow "waits for" from `rank`, for which `*waiter` waits, to the one everybody waits for; *waiter becomes
// the last that waits. A rank that says that it waits, and has long not looked whether it still has to, does not run: it is
// where the search ends. A circle returns `rank`, with *circle set.
int tr__awaited_root(const tr__job *job, int rank, int *waiter, int *circle);

// ---- report: what every rank was doing when the job was stopped (report.c) -----------------------

void tr__report_take(tr__job *job); // by whoever stops the job
// One line per operation that ranks waited in, with who was missing from it, and one per rank, each with the prefix
// "[launcher] ". Nothing where other ranks do not matter: no rank was lost or late, or there is one rank only. `host`: this
// one's name.
void tr__report_write(const tr__job *job, const char *host, tr_text *out);
// To the launcher's standard error through `put`, and to launcher.log where there are log files.
void tr__report_say(const tr__job *job, void (*put)(void *user, const char *line, size_t nbyte), void *user);
void tr__report_print(const tr__job *job); // the same to this process's own standard error

// ---- rank, groups, requests ---------------------------------------------------------------------

typedef enum tr__kind {
  TR__NONE,
  TR__ALLREDUCE,
  TR__REDUCE,
  TR__REDUCE_SCATTER,
  TR__REDUCE_SCATTER_V,
  TR__ALLGATHER,
  TR__ALLGATHER_V,
  TR__ALLTOALL,
  TR__ALLTOALL_V,
  TR__BROADCAST,
  TR__GATHER,
  TR__SCATTER,
  TR__BARRIER,
  TR__SEND, // all before it are collective
  TR__RECV,
  TR__CREATE,
  TR__KINDS
} tr__kind;

typedef enum tr__point { TR__AT_START, TR__AT_READY, TR__AT_WORK, TR__AT_DONE, TR__AT_WAIT, TR__POINTS } tr__point;

typedef enum tr__phase { TR__POST, TR__GATHERING, TR__WORKING, TR__STAGING, TR__LEAVING, TR__SCRIPT } tr__phase;

struct tr_request {
  tr_group *group;
  tr_request *next, *prev; // list of requests under way, or free list (next)
  tr_status status;        // TR_PENDING while under way
  tr__kind kind;
  tr__phase phase;
  int awaits; // job rank that keeps this request pending, -1 none or unknown
  uint32_t seq;
  // The call.
  const char *src;            // what others read
  char *dst;                  // what this rank gets
  size_t nelem, width, nbyte; // width: bytes of an element; nbyte: of this rank's contribution
  size_t dst_nbyte;           // of dst where others may write to it, else 0
  size_t most, all;           // bytes of the largest contribution and of all, the same on every rank
  tr_dtype type, dst_type;
  tr_reduce_op op;
  int root; // group index: root, or peer of a send or receive; v-variants with one table of starts: its hash
  int tag;  // of a send or receive
  // Whose part begins where: the table of all ranks (reduce-scatter-v, all-gather-v), or this rank's two (all-to-all-v).
  const size_t *start, *dst_start;
  // Reduce-scatter-v: what this rank's part becomes and who is told of it.
  size_t grain, told; // told: elements that `done` knows of
  tr_part_done done_part;
  void *user;
  // How far it is.
  int cursor;                     // how many peers have been seen where they must be
  int block;                      // blocks of the direct work done, and
  size_t at;                      // elements or bytes of it, or of the next block
  size_t extent;                  // elements of the longest contribution or block that goes through the stages
  uint32_t chunks, in, done, out; // staged work, in chunks
  uint32_t entry;                 // receive: sequence of the send that it was matched with
  // Run as a script (script.h): numbers of its first strand and of its first operations of the local group.
  const struct tr__script *script;
  uint32_t strand, local[2];
  int pulls;     // the direct work reads others' own memory
  void *message; // of a send or receive between hosts
};

// How operations travel. `step` advances without waiting: TR_OK ended, TR_PENDING, or the job's error.
typedef struct tr_engine {
  const char *name;
  // optional: agree with the members on what the group shares
  tr_status (*join)(tr_group *group, const char *name);
  void (*leave)(tr_group *group); // optional
  tr_status (*step)(tr_request *request);
  void (*drop)(tr_request *request);     // optional: the request ends early because the job does
  const struct tr__transport *transport; // optional: what scripts run over
} tr_engine;

extern const tr_engine tr__engine_self, tr__engine_shm, tr__engine_mpi;

struct tr_group {
  tr_comm *comm;
  const tr_engine *engine;
  int *ranks, size, index;
  int first; // index looked at first: of those on this rank's core, which can only move when it yields
  char name[TR__NAME];
  int slot, context; // context: over hosts
  uint32_t epoch;
  uint32_t base;       // first sequence
  uint32_t next;       // sequence of the next collective
  uint32_t ended;      // all collectives before it have ended here
  uint32_t ended_bits; // bit i: collective ended + i has ended
  uint32_t all_ended;  // all collectives before it had ended everywhere when last looked
  int readable;        // so many of its first members' own memory is known to be readable here
  // Per group index. Sends: started, posted. Receives: started; sends before `matched` have found their receive, of
  // those from there on the ones with a bit; nonzero while the channel's grant is in use.
  uint32_t *send_next, *send_posted, *recv_next, *matched, *matched_bits, *granting;
  tr_request *free;
  void *blocks;                // list of request blocks
  struct tr__strands *strands; // to run scripts, NULL where none can be asked for
};

struct tr_comm {
  tr__job *job;
  int rank;
  const tr_engine *engine;
  tr_arena arena;
  tr_group *world;
  tr_request *head, *tail;  // requests under way, oldest first
  tr_request *courier_user; // receive that uses the courier stage
  _Atomic uint64_t work;    // steps that moved something; resets wait ladders
  uint32_t first_sequence;
  uint64_t shown;          // for others to find
  uint8_t peer[TR__RANKS]; // whether this rank can read their memory (peer_read.c)
  int reads_all;           // for tests: read others' memory whatever the size
  char *bounce;            // room for what is read to be added, TR__BOUNCE bytes
  int spins;
  struct tr__choice *choice; // of algorithms
  tr_comm_hook hook;
  void *hook_user;
  tr_comm_counters counters;
};

tr_status tr__comm_create(tr__job *job, int rank, tr_comm **out);
void tr__comm_destroy(tr_comm *comm);
// One rank's life in either mode.
tr_status tr__rank_run(tr__job *job, int rank, tr_rank_main rank_main, void *user);
// The sequence that groups created later start with: for tests of the wrap.
void tr__comm_set_first_sequence(tr_comm *comm, uint32_t sequence);

const char *tr__kind_name(tr__kind kind); // "all-reduce"
static inline int tr__kind_reduces(tr__kind kind) { return kind >= TR__ALLREDUCE && kind <= TR__REDUCE_SCATTER_V; }
static inline int tr__kind_has_root(tr__kind kind) {
  return kind == TR__REDUCE || kind == TR__BROADCAST || kind == TR__GATHER || kind == TR__SCATTER;
}
void tr__hook_call(tr_comm *comm, tr__kind kind, tr__point point);
static inline void tr__hook(tr_comm *comm, tr__kind kind, tr__point point) {
  if (comm->hook) tr__hook_call(comm, kind, point);
}
static inline tr__rank_page *tr__page(const tr_comm *comm) { return &comm->job->page[comm->rank]; }

// This rank is about to copy or add: whoever watches it must not think that it still waits.
static inline void tr__at_work(tr_comm *comm) {
  atomic_store_explicit(&tr__page(comm)->awaits, -1, memory_order_relaxed);
}
// Something moved: deadlines of those who wait for this rank restart.
static inline void tr__worked(tr_comm *comm) {
  atomic_store_explicit(&comm->work, atomic_load_explicit(&comm->work, memory_order_relaxed) + 1,
                        memory_order_relaxed);
  tr_comm_beat(comm);
}

tr_status tr__group_world(tr_comm *comm, tr_group **out);
// A group that nothing leans on: without scripts. Collective, as tr_group_create.
tr_status tr__group_create_plain(tr_comm *comm, const int *ranks, int nrank, const char *name, tr_group **out);
void tr__group_free(tr_group *group);
tr_status tr__slot_join(tr_group *group, const char *name);
void tr__slot_leave(tr_group *group);
tr_request *tr__request_new(tr_group *group, tr__kind kind);
void tr__request_recycle(tr_request *request);
// Begin; then wait for it, or hand it out.
tr_status tr__request_start(tr_request *request, tr_request **out);
void tr__request_unlink(tr_request *request); // from the requests under way
// Stop the job; returns the job's error.
tr_status tr__fail(tr_comm *comm, int culprit, tr_status status, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
void tr__progress(tr_comm *comm); // one step of every request under way
// The same by the thread beside the rank, which holds the net's mutex; not of those that tell their caller of parts.
void tr__progress_beside(tr_comm *comm);
// Around whatever touches requests, where that thread may be about.
void tr__net_enter(tr__net *net);
void tr__net_leave(tr__net *net);
void tr__net_drive(tr__net *net); // by the rank's own thread: let messages move
// The job has failed and the caller is about to give its buffers up: once other hosts have been told, MPI is left alone.
void tr__net_settle(tr__net *net);
void tr__net_serve(tr__net *net, tr_comm *comm); // whose requests the thread beside the rank steps
static inline void tr__enter(tr_comm *comm) {
  if (comm->job->net) tr__net_enter(comm->job->net);
}
static inline void tr__leave(tr_comm *comm) {
  if (comm->job->net) tr__net_leave(comm->job->net);
}

// ---- others' own memory (peer_read.c)
void tr__peer_show(tr_comm *comm); // that this rank is there to be read
int tr__peer_readable(tr_comm *comm, int rank);
int tr__group_readable(tr_group *group); // of all members; nonzero stays so
// TR_PENDING: that rank has gone, which others will tell; or the job's error.
tr_status tr__peer_read(tr_comm *comm, int rank, char *to, uint64_t at, size_t n);

// Channel operations of the shm engine (courier.c).
tr_status tr__courier_step(tr_request *request);
void tr__courier_drop(tr_request *request);

// ---- waiting (wait.c) ---------------------------------------------------------------------------

typedef struct tr__ladder {
  tr__kind kind; // what is waited in, for messages
  uint32_t seq;
  uint64_t nbyte;
  const char *group;
  int published;  // rank last published as waited for, -2 nothing published
  int ended_seen; // rank waited for that has ended, -1 none
  int ended_rounds;
  int64_t ended_since;
  int round;
  int64_t began, sleep, checked, wait_began; // ns; 0 not yet
  uint64_t work;
  int root; // whom we wait for in the end, and since when its counter stands still
  uint64_t root_beat;
  int64_t root_since;
} tr__ladder;

void tr__ladder_begin(tr__ladder *ladder, tr__kind kind, const tr_group *group, uint32_t seq, uint64_t nbyte);
// Let some time pass. `awaits` is the rank waited for (-1 unknown). Returns the job's error when it is
// stopping or this wait has just stopped it.
tr_status tr__ladder_wait(tr__ladder *ladder, tr_comm *comm, int awaits);
void tr__ladder_end(tr__ladder *ladder, tr_comm *comm);

// ---- reductions (reduce.c) ----------------------------------------------------------------------

int tr__reduce_supported(tr_dtype type, tr_reduce_op op);
// Every dst[j][0..n) = op over src[0..nsrc)[0..n), one aligned binary tree, rounded once. A dst may be a src. dst_type is
// `type`, or f32 for a narrow floating type.
void tr__reduce(tr_dtype type, tr_dtype dst_type, tr_reduce_op op, int nsrc, const char *const *src, int ndst,
                char *const *dst, size_t n);
// The same for one instruction set each (reduce_body.h).
void tr__reduce_base(tr_dtype type, tr_dtype dst_type, tr_reduce_op op, int nsrc, const char *const *src, int ndst,
                     char *const *dst, size_t n);
void tr__reduce_avx2(tr_dtype type, tr_dtype dst_type, tr_reduce_op op, int nsrc, const char *const *src, int ndst,
                     char *const *dst, size_t n);
void tr__reduce_avx512(tr_dtype type, tr_dtype dst_type, tr_reduce_op op, int nsrc, const char *const *src, int ndst,
                       char *const *dst, size_t n);
// memcpy between what different cores have in their caches.
void tr__copy(char *dst, const char *src, size_t nbyte);
void tr__copy_base(char *dst, const char *src, size_t nbyte);
void tr__copy_avx2(char *dst, const char *src, size_t nbyte);
void tr__copy_avx512(char *dst, const char *src, size_t nbyte);
// Reduce-scatter-v: `count` elements of this rank's part are written now; tell of all whole grains of them.
void tr__tell_part(tr_request *r, size_t count);

// ---- launcher -----------------------------------------------------------------------------------

tr_status tr__launch_threads(tr__job *job, tr_rank_main rank_main, void *user, tr_launch_report *report);
tr_status tr__launch_processes(tr__job *job, tr_rank_main rank_main, void *user, tr_launch_report *report);

// Cores of each rank, computed once by the launcher; all empty when ranks are not bound.
typedef struct tr__binding {
  void *sets; // cpu_set_t[nrank] or NULL
} tr__binding;
void tr__binding_create(const tr__job *job, tr__binding *binding);
void tr__binding_apply(const tr__binding *binding, int rank); // to the calling thread
void tr__binding_destroy(tr__binding *binding);

// Stop requests and the watch over progress: the part of the launcher that both modes share.
typedef struct tr__watch {
  sigset_t set; // the stop signals
  int signal_fd;
  int signals;                               // how often a stop was asked for
  int64_t asked;                             // ns, the last time
  uint64_t beats;                            // sum of all ranks' counters when last looked
  int64_t looked, beats_since, failed_since; // ns; looked: when last
} tr__watch;
tr_status tr__watch_open(tr__watch *watch, void *old_mask); // blocks the signals; old_mask: sigset_t
void tr__watch_close(tr__watch *watch, const void *old_mask);
// Read the signal file; returns how often a stop was asked for so far.
int tr__watch_signals(tr__watch *watch, tr__job *job);
// Returns nonzero when what is left of the ranks is to be ended: the grace period of a failed job has passed, or all
// ranks have ended for long and some process has not gone.
int tr__watch_progress(tr__watch *watch, tr__job *job);

#endif
