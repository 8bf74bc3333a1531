// SPDX-License-Identifier: MIT
// Star: everybody sends to one rank, which adds, and which answers everybody.
//
//   all-reduce           all send to rank 0, which adds the P messages as one tree and sends the result to all
//   reduce, gather       all send to the root; broadcast, scatter: the root sends to all
//   barrier              an all-reduce of nothing
//
//                        messages of the centre   bytes through it        cost
//   reduce, gather       0                        (P-1) n in              alpha + (P-1) n beta, reduce + (P-1) n gamma
//   broadcast, scatter   P - 1                    (P-1) n out             alpha + (P-1) n beta
//   all-reduce           P - 1                    (P-1) n in, then out    2 alpha + 2 (P-1) n beta + (P-1) n gamma
//
// (n is the bytes of one rank.) As simple as it gets, and what a parameter server does. One rank's link carries it all, and
// P - 1 messages meet there at once: for few ranks, for very short messages, and to compare with. The contract's order.
#include "algorithm.h"

// Receive everybody's message, and add them as one tree.
static void collect(tr__script *s, tr__run to) {
  tr__run sources[TR__RANKS];
  for (int i = 0; i < s->size; i++) {
    sources[i] = tr__run_of(i == s->index ? TR__SOURCE : tr__script_register(s, 0, 1, 0, 0), 0, 1);
    if (i != s->index) tr__script_recv(s, i, sources[i]);
  }
  tr__script_wait_all(s);
  tr__script_sum(s, to, sources, s->size, 1);
}

static void send_to_all(tr__script *s, tr__run what) {
  for (int d = 1; d < s->size; d++) tr__script_send(s, tr__script_index(s->index + d, s->size), what);
}

static void build_blocks(tr__script *s) {
  int gathers = s->kind == TR__GATHER;
  if (s->index != s->root && gathers) tr__script_send(s, s->root, tr__run_of(TR__SOURCE, s->index, 1));
  if (s->index != s->root && !gathers) tr__script_recv(s, s->root, tr__run_of(TR__DEST, s->index, 1));
  if (s->index != s->root) return;
  for (int d = 1; d < s->size; d++) {
    int i = tr__script_index(s->index + d, s->size);
    if (gathers)
      tr__script_recv(s, i, tr__run_of(TR__DEST, i, 1));
    else
      tr__script_send(s, i, tr__run_of(TR__SOURCE, i, 1));
  }
  tr__script_copy(s, tr__run_of(TR__DEST, s->index, 1), tr__run_of(TR__SOURCE, s->index, 1));
}

static void build(tr__script *s) {
  tr__run all = tr__run_of(TR__DEST, 0, 1), own = tr__run_of(TR__SOURCE, 0, 1);
  if (!tr__is_vector(s->kind)) {
    build_blocks(s);
    return;
  }
  s->parts = 1;
  int centre = s->index == s->root, sums = s->kind != TR__BROADCAST, answers = s->kind != TR__REDUCE;
  if (centre && sums) collect(s, all);
  if (centre && answers) send_to_all(s, all);
  if (!centre && sums) tr__script_send(s, s->root, own);
  if (!centre && sums && answers) tr__script_wait_all(s); // in place: the answer comes where the message lies
  if (!centre && answers) tr__script_recv(s, s->root, all);
}

static void claim(const tr__case *c, int index, tr__claim *out) {
  int root = tr__kind_has_root(c->kind) ? c->root : 0, centre = index == root;
  int in = c->kind != TR__BROADCAST && c->kind != TR__SCATTER, back = c->kind != TR__REDUCE && c->kind != TR__GATHER;
  uint64_t others = (uint64_t)c->size - 1, n = c->nelem * c->width,
           sends = centre ? (uint64_t)back * others : (uint64_t)in;
  *out = (tr__claim){.rounds = in + back, .crowd = (in + back) * (c->size - 2)};
  out->messages = n || c->kind == TR__BARRIER ? sends : 0;
  out->bytes = sends * n;
  out->sums = centre && in && c->kind != TR__GATHER ? others * c->nelem : 0;
  out->path_bytes = (uint64_t)(in + back) * others * n;
  out->path_sums = tr__kind_reduces(c->kind) ? others * n : 0;
}

const tr__algorithm tr__algorithm_star = {
    .name = "star",
    .kinds = 1u << TR__ALLREDUCE | 1u << TR__REDUCE | 1u << TR__BROADCAST | 1u << TR__GATHER | 1u << TR__SCATTER |
             1u << TR__BARRIER,
    .ordered = 1u << TR__ALLREDUCE | 1u << TR__REDUCE | 1u << TR__BARRIER,
    .pieces = 1,
    .build = build,
    .claim = claim,
};
