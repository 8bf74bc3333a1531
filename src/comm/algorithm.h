// SPDX-License-Identifier: MIT
// Algorithms of collectives: a table of builders of scripts, with what each claims to send and what it costs.
//
// Costs are in the usual three constants: alpha, seconds per message on the longest chain of messages; beta, seconds per byte
// sent one after the other on that chain; gamma, seconds per byte added. n is the bytes of the whole message, P the ranks,
// lg the logarithm to base 2, rounded up.
//
// The order of sums is the contract's (comm.h) where `ordered` says so. Others are used only where the job allows any order.
#ifndef TRIREME_COMM_ALGORITHM_H
#define TRIREME_COMM_ALGORITHM_H

#include "script.h"

// One operation, as far as claims and choice depend on it.
typedef struct tr__case {
  tr__kind kind;
  int size, root;
  int local; // of a group that spans hosts: ranks per host, the last may have fewer; 1 also for others; 0: one host
  size_t nelem;        // as in tr_request
  size_t width, wide;  // bytes of an element, of a partial sum
  const size_t *start; // of the v-variants
} tr__case;

// What rank `index` sends and adds, and the longest chain of the operation. Without strands: each has as many messages.
typedef struct tr__claim {
  uint64_t messages, bytes, sums; // sums: elements
  int rounds, crowd; // crowd: messages of the longest chain's ranks that go beside those on it, at the same time
  uint64_t path_bytes, path_sums; // path_sums: bytes added
} tr__claim;

typedef struct tr__algorithm {
  const char *name;
  uint32_t kinds, ordered; // bit per tr__kind; ordered: of those that sum
  uint32_t powers_of_two;  // kinds for which the ranks must be a power of two
  uint32_t whole;          // kinds that are not cut into strands
  int hosts;               // only for ranks that fill hosts in equal blocks (1), of which the last may be short (2)
  int pieces; // of a message that is one on all ranks a strand has so many pieces of TR__WIRE; 0: one per rank
  void (*build)(tr__script *script);
  void (*claim)(const tr__case *c, int index, tr__claim *claim);
} tr__algorithm;

enum { TR__WIRE = 512 * 1024 }; // bytes of a message that is long enough to fill a link

extern const tr__algorithm tr__algorithm_direct, tr__algorithm_ring, tr__algorithm_doubling, tr__algorithm_halving,
    tr__algorithm_tree, tr__algorithm_chain, tr__algorithm_double_tree, tr__algorithm_bruck, tr__algorithm_star,
    tr__algorithm_hierarchical, tr__algorithm_leaders;
extern const tr__algorithm *const tr__algorithms[]; // in order of preference; NULL ends it

static inline uint32_t tr__bit(tr__kind kind) { return 1u << kind; }
static inline int tr__log2_up(int n) { return n <= 1 ? 0 : 32 - __builtin_clz((unsigned)n - 1u); }
// Whether it is one message that all ranks know, rather than a block per rank.
static inline int tr__is_vector(tr__kind kind) {
  return kind == TR__ALLREDUCE || kind == TR__REDUCE || kind == TR__BROADCAST || kind == TR__BARRIER;
}
// Elements of `count` parts from `first` on, of a message cut in `parts`.
size_t tr__case_run(const tr__case *c, int parts, int first, int count);
// How many of these parts are not empty: empty ones are not sent.
int tr__case_filled(const tr__case *c, int parts, int first, int count);

// ---- choice (choose.c)

// Time of one message of n bytes: latency + n / bandwidth.
typedef struct tr__tier {
  double latency, bandwidth;
} tr__tier;
typedef struct tr__tiers {
  tr__tier host, network; // between ranks of one host, of different hosts
  double adding;          // bytes of partial sums that a rank adds per second
} tr__tiers;
void tr__tiers_init(tr__tiers *tiers);
// The `links` of a cluster description, as `trireme bench comm --write` makes it; tiers it does not name stay as they are.
tr_status tr__tiers_load(const char *path, tr__tiers *tiers);

// What TRIREME_COMM demands: an algorithm per kind, NULL where the choice is free.
typedef struct tr__forced {
  const tr__algorithm *algorithm[TR__KINDS];
  const tr__algorithm *everywhere; // demanded without an operation: of all that it can do
  int local;                       // hierarchical/N: blocks of N ranks count as hosts; 0: hosts as they are
} tr__forced;
tr_status tr__forced_parse(const char *text, tr__forced *forced); // NULL or "": nothing

// What a rank knows for its choices: from the environment, the same on every rank.
typedef struct tr__choice {
  tr__forced forced;
  tr__tiers tiers;
  int any_order;
  size_t wire; // bytes of a piece of a strand: TR__WIRE
} tr__choice;
tr_status tr__choice_create(int any_order, tr__choice **out); // TRIREME_COMM and TRIREME_COMM_LINKS
int tr__choice_forces(const tr__choice *choice);              // nonzero: at least one kind
// What a demand without an operation leaves alone, as a sentence; nothing where that is nothing.
void tr__choice_say(const tr__choice *choice, tr_text *out);
// Refuses a demand that no group of such a job could meet: of levels where there are none. Pure.
tr_status tr__choice_check(const tr__choice *choice, int nrank, int nhost);
// The algorithm demanded for a kind, NULL where none is. Those for several hosts are not demanded of groups within one (local 0).
const tr__algorithm *tr__choice_demand(const tr__choice *choice, tr__kind kind, int local);

// NULL if the algorithm can do it, else what stands against it.
const char *tr__algorithm_refuses(const tr__algorithm *a, const tr__case *c, int any_order);
double tr__algorithm_seconds(const tr__algorithm *a, const tr__case *c, const tr__tiers *tiers);
// The forced algorithm where there is one, an error that names those that can where it cannot; else the one that is predicted
// to be the fastest. Pure.
tr_status tr__algorithm_choose(const tr__choice *choice, const tr__case *c, const tr__algorithm **out);

#endif
