// SPDX-License-Identifier: MIT
// Scripts: what one rank does in a collective, as a list of steps over five verbs that engines without shared memory run.
//
//   send RUN to PEER            starts a transfer
//   receive RUN from PEER       starts a transfer
//   wait for TRANSFERS          those started before, by number
//   sum RUNS into RUN           one aligned binary tree over the runs listed; the last sum of all rounds and averages
//   local OPERATION on RUNS     starts an operation of the ranks of this host, on the engine of their own group
//
// (a copy is the sum of one run). Steps are taken in order; nothing but a wait holds them up. Data are named, not measured: a
// *run* is a number of consecutive *parts* of the caller's source, of its destination, or of a scratch register, and parts
// get their sizes when a call is made. So one script serves every size, type and operation: it is built once per group, kind,
// root and algorithm, and kept. `script_run.c` runs it.
//
//   kind                              parts of the source        parts of the destination
//   all-reduce, reduce, broadcast     the message, cut in `parts` runs of nearly equal length, on both sides
//   reduce-scatter (-v), scatter      one per rank               this rank's alone
//   all-gather (-v), gather           this rank's alone          one per rank
//   all-to-all (-v)                   one per rank               one per rank
//
// A large message is cut into *strands*, each a smaller message that runs the same script on one of a few lanes, so that
// transfers of one overlap with sums of another. Within a strand the parts of a source or destination need not be neighbours
// in memory, so what sends or receives several parts at once uses a register with a `home`: it is that place itself where it
// is contiguous, else scratch, and the copies between the two vanish or happen.
//
// Sums: a register is *wide* when it holds partial sums, which are f32 for narrow floating types. A sum may be written over one
// of its sources. Two sources may differ in being wide.
#ifndef TRIREME_COMM_SCRIPT_H
#define TRIREME_COMM_SCRIPT_H

#include "transport.h"

enum {
  TR__LANES = 4,
  TR__SOURCE = -1,
  TR__DEST = -2,
  TR__ANY_PART = -1, // first part of a register that may hold any `count` parts, one run at a time
};

typedef struct tr__run {
  int buffer;       // TR__SOURCE, TR__DEST, or a register
  int first, count; // parts; past the last comes the first
} tr__run;

typedef struct tr__register {
  int first, count; // the parts for which it has room
  int wide, home;   // home: TR__SOURCE, TR__DEST, or 0 for none
} tr__register;

typedef enum tr__verb { TR__DO_SEND, TR__DO_RECV, TR__DO_WAIT, TR__DO_SUM, TR__DO_LOCAL } tr__verb;

typedef struct tr__step {
  tr__verb verb;
  int peer; // send, receive: group index; local: a tr__local
  int first,
      count; // wait: transfers; sum: its sources in `source`; local: the owner or -1, how many of its kind before it
  int last;  // sum: nothing is added to it any more
  tr__run to, from;
} tr__step;

// Operations of the ranks of one host. Reduce: the host's sum of `from`, of which each local rank gets an equal number of
// parts, or its owner all, in `to` (wide). Gather: the reverse, in place in `to`, which is of the destination. Both runs must be
// contiguous.
typedef enum tr__local { TR__LOCAL_REDUCE, TR__LOCAL_GATHER, TR__LOCALS } tr__local;

typedef struct tr__script {
  struct tr__script *next;
  const struct tr__algorithm *algorithm;
  tr__kind kind;
  int size, index, root; // of the group
  int local;             // ranks per host, for hierarchical algorithms; 0 elsewhere
  int parts;
  int *order; // part number -> rank's block; NULL: equal. Only where there is one part per rank
  tr__register *reg;
  tr__run *source;
  tr__step *step;
  int nreg, nsource, nstep, ntransfer, nlocal[TR__LOCALS];
  int failed; // no memory while it was built
} tr__script;

// ---- building (script.c): what an algorithm is written with

static inline tr__run tr__run_of(int buffer, int first, int count) { return (tr__run){buffer, first, count}; }
int tr__script_register(tr__script *s, int first, int count, int wide, int home); // its number
int tr__script_send(tr__script *s, int peer, tr__run from);                       // number of the transfer
int tr__script_recv(tr__script *s, int peer, tr__run to);                         // number of the transfer
void tr__script_wait(tr__script *s, int first, int count);
void tr__script_wait_all(tr__script *s); // for every transfer started so far
void tr__script_sum(tr__script *s, tr__run to, const tr__run *from, int count, int last);
void tr__script_add(tr__script *s, tr__run to, tr__run left, tr__run right, int last);
void tr__script_copy(tr__script *s, tr__run to, tr__run from);
void tr__script_local(tr__script *s, tr__local what, int owner, tr__run to, tr__run from); // owner -1: each its share
int tr__script_index(int i, int size); // i brought into 0 .. size - 1
void tr__script_free(tr__script *s);
// The script of a request's operation by `algorithm`, built on first use. NULL: no memory.
const tr__script *tr__script_find(tr_group *group, tr__kind kind, int root, const struct tr__algorithm *algorithm);

// ---- running (script_run.c)

struct tr__strands;
// Everything a group keeps for scripts: made with the group, freed with it. What members need groups of their own for (the
// lanes of the shared memory transport, ranks of one host) is created here, which is collective.
tr_status tr__strands_create(tr_group *group);
void tr__strands_destroy(tr_group *group, int leave); // leave: the other members go on
// Choose algorithm and script of a collective request. Called in the order in which the group's operations were started.
tr_status tr__script_begin(tr_request *request);
tr_status tr__script_step(tr_request *request); // begins if need be; as tr_engine.step
void tr__script_drop(tr_request *request);      // as tr_engine.drop
const tr__traffic *tr__script_traffic(const tr_group *group);

// The type in which partial sums of `type` travel.
tr_dtype tr__wide_type(tr_dtype type);

#endif
