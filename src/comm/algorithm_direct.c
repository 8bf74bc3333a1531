// SPDX-License-Identifier: MIT
// Direct exchange: everybody sends to everybody what is theirs, in one round; the owner of a part sums it.
//
//   reduce-scatter   i sends part j to j, for all j; adds the P copies of part i as one tree
//   all-gather       i sends its part to all
//   all-reduce       both, one after the other
//   all-to-all       i sends block j to j
//
//                                   messages   bytes sent            cost
//   reduce-scatter, all-gather,     P - 1      (P-1)/P n             alpha + (P-1)/P n beta, sums + (P-1)/P n gamma
//     all-to-all
//   all-reduce                      2 (P - 1)  2 (P-1)/P n           2 alpha + 2 (P-1)/P n beta + (P-1)/P n gamma
//
// No fewer bytes are possible, and the rounds do not grow with P; the price is P messages at once at each end. Any P, the
// contract's order, and narrow types are narrow on the wire both ways.
#include "algorithm.h"

static void scatter_sum(tr__script *s, tr__run to) {
  int own = s->index, reg[TR__RANKS];
  tr__run sources[TR__RANKS];
  for (int d = 1; d < s->size; d++) {
    int from = tr__script_index(own - d, s->size);
    reg[from] = tr__script_register(s, own, 1, 0, 0);
    tr__script_recv(s, from, tr__run_of(reg[from], own, 1));
  }
  for (int d = 1; d < s->size; d++) {
    int peer = tr__script_index(own + d, s->size);
    tr__script_send(s, peer, tr__run_of(TR__SOURCE, peer, 1));
  }
  tr__script_wait_all(s); // of the sends too: the result may take the place of what they read
  for (int i = 0; i < s->size; i++) sources[i] = tr__run_of(i == own ? TR__SOURCE : reg[i], own, 1);
  tr__script_sum(s, to, sources, s->size, 1);
}

static void gather(tr__script *s, int buffer) {
  for (int d = 1; d < s->size; d++) {
    int from = tr__script_index(s->index - d, s->size);
    tr__script_recv(s, from, tr__run_of(TR__DEST, from, 1));
  }
  for (int d = 1; d < s->size; d++)
    tr__script_send(s, tr__script_index(s->index + d, s->size), tr__run_of(buffer, s->index, 1));
}

static void exchange(tr__script *s) {
  int own = s->index;
  for (int d = 1; d < s->size; d++) {
    int from = tr__script_index(own - d, s->size);
    tr__script_recv(s, from, tr__run_of(TR__DEST, from, 1));
  }
  for (int d = 1; d < s->size; d++) {
    int peer = tr__script_index(own + d, s->size);
    tr__script_send(s, peer, tr__run_of(TR__SOURCE, peer, 1));
  }
  tr__script_copy(s, tr__run_of(TR__DEST, own, 1), tr__run_of(TR__SOURCE, own, 1));
}

static void build(tr__script *s) {
  tr__run own = tr__run_of(TR__DEST, s->index, 1), mine = tr__run_of(TR__SOURCE, s->index, 1);
  switch (s->kind) {
  case TR__ALLREDUCE:
    scatter_sum(s, own);
    gather(s, TR__DEST);
    return;
  case TR__REDUCE_SCATTER:
  case TR__REDUCE_SCATTER_V: scatter_sum(s, own); return;
  case TR__ALLGATHER:
  case TR__ALLGATHER_V:
    gather(s, TR__SOURCE);
    tr__script_copy(s, own, mine);
    return;
  default: exchange(s);
  }
}

static void claim(const tr__case *c, int index, tr__claim *out) {
  size_t all = tr__case_run(c, c->size, 0, c->size), own = tr__case_run(c, c->size, index, 1);
  uint64_t others = (uint64_t)c->size - 1, filled = (uint64_t)tr__case_filled(c, c->size, 0, c->size);
  uint64_t scatter = filled - (own > 0), gather_messages = own > 0 ? others : 0;
  int scatters = c->kind != TR__ALLGATHER && c->kind != TR__ALLGATHER_V;
  int gathers = c->kind == TR__ALLREDUCE || !scatters;
  int sums = scatters && tr__kind_reduces(c->kind);
  out->messages = (scatters ? scatter : 0) + (gathers ? gather_messages : 0);
  out->bytes = ((scatters ? all - own : 0) + (gathers ? others * own : 0)) * c->width;
  out->sums = sums ? others * own : 0;
  out->rounds = scatters + gathers;
  out->crowd = out->rounds * (c->size - 2);
  out->path_bytes = out->bytes;
  out->path_sums = out->sums * c->width;
}

#define SUMS (1u << TR__ALLREDUCE | 1u << TR__REDUCE_SCATTER | 1u << TR__REDUCE_SCATTER_V)
const tr__algorithm tr__algorithm_direct = {
    .name = "direct",
    .kinds = SUMS | 1u << TR__ALLGATHER | 1u << TR__ALLGATHER_V | 1u << TR__ALLTOALL | 1u << TR__ALLTOALL_V,
    .ordered = SUMS,
    .build = build,
    .claim = claim,
};
