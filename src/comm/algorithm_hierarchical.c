// SPDX-License-Identifier: MIT
// Hierarchical: the ranks of a host do their part through shared memory, and only what hosts must know of each other travels.
//
//   all-reduce       a host's ranks sum their messages, each a part of them or one rank all; ranks with the same part exchange
//                    it directly over the H hosts, as one tree; the host's ranks put the parts together
//   reduce-scatter   for each host in turn, local ranks sum what its ranks are to get; those sums are exchanged directly
//   all-gather       blocks are exchanged directly between ranks with the same place on their hosts, then locally
//   broadcast        from the root down a binomial tree of one rank per host, then locally
//
// "hierarchical" has all L local ranks drive the network, "leaders" one; sums and broadcasts, which need no more, use one.
//
//                             bytes a host sends over the network      cost, over the network
//   all-reduce                2 (H-1)/H n                              2 alpha + 2 (H-1)/H n beta + (H-1)/H n gamma
//   reduce-scatter, -gather   (H-1)/H n                                alpha + (H-1)/H n beta
//   broadcast                 at most lg H n                           lg H (alpha + n beta)
//
// A flat algorithm sends L times as much over a host's link. Strands begin on the wire as soon as they are summed. Hosts must
// be filled in equal blocks of the group (for "leaders" the last may be short), of a power-of-two size where sums must have the
// contract's order: a host's sum is then a subtree of it. Host sums are wide on the wire, results narrow.
#include "algorithm.h"

typedef struct place {
  int local, hosts, own, host; // ranks per host, hosts; this rank's place on its host, its host
} place;

static place place_of(int size, int local, int index) {
  return (place){local, (size + local - 1) / local, index % local, index / local};
}

// ---- the network: rank `own` of every host -------------------------------------------------------

// Sum over hosts of the part at part0 + own host, of which `sums` has this host's for every host.
static void exchange_sums(tr__script *s, place p, int sums, int part0, int stride, tr__run to) {
  int reg[TR__RANKS], begun = s->ntransfer, part = part0 + p.host * stride;
  tr__run sources[TR__RANKS];
  for (int d = 1; d < p.hosts; d++) {
    int h = tr__script_index(p.host - d, p.hosts);
    reg[h] = tr__script_register(s, part, 1, 1, 0);
    tr__script_recv(s, h * p.local + p.own, tr__run_of(reg[h], part, 1));
  }
  for (int d = 1; d < p.hosts; d++) {
    int h = tr__script_index(p.host + d, p.hosts);
    tr__script_send(s, h * p.local + p.own, tr__run_of(sums, part0 + h * stride, 1));
  }
  tr__script_wait(s, begun, s->ntransfer - begun);
  for (int h = 0; h < p.hosts; h++) sources[h] = tr__run_of(h == p.host ? sums : reg[h], part, 1);
  tr__script_sum(s, to, sources, p.hosts, 1);
}

static void exchange_parts(tr__script *s, place p, int buffer, int part0, int stride) {
  int begun = s->ntransfer;
  for (int d = 1; d < p.hosts; d++) {
    int h = tr__script_index(p.host - d, p.hosts);
    tr__script_recv(s, h * p.local + p.own, tr__run_of(TR__DEST, part0 + h * stride, 1));
  }
  for (int d = 1; d < p.hosts; d++) {
    int h = tr__script_index(p.host + d, p.hosts);
    tr__script_send(s, h * p.local + p.own, tr__run_of(buffer, part0 + p.host * stride, 1));
  }
  tr__script_wait(s, begun, s->ntransfer - begun);
}

// ---- the operations -----------------------------------------------------------------------------

// `drivers` local ranks have a share each, of one part per host.
static void allreduce(tr__script *s, place p, int drivers) {
  int each = p.hosts, first = p.own * each, drives = p.own<drivers, owner = drivers> 1 ? -1 : 0;
  s->parts = drivers * each;
  tr__run all = tr__run_of(TR__SOURCE, 0, s->parts), share = {0};
  if (drives) share = tr__run_of(tr__script_register(s, first, each, 1, 0), first, each);
  tr__script_local(s, TR__LOCAL_REDUCE, owner, share, all);
  tr__script_wait_all(s);
  if (drives) {
    exchange_sums(s, p, share.buffer, first, 1, tr__run_of(TR__DEST, first + p.host, 1));
    exchange_parts(s, p, TR__DEST, first, 1);
  }
  tr__script_local(s, TR__LOCAL_GATHER, owner, tr__run_of(TR__DEST, 0, s->parts), all);
}

static void reduce_scatter(tr__script *s, place p) {
  int sums = tr__script_register(s, 0, s->size, 1, 0);
  for (int h = 0; h < p.hosts; h++)
    tr__script_local(s, TR__LOCAL_REDUCE, -1, tr__run_of(sums, h * p.local + p.own, 1),
                     tr__run_of(TR__SOURCE, h * p.local, p.local));
  tr__script_wait_all(s);
  exchange_sums(s, p, sums, p.own, p.local, tr__run_of(TR__DEST, s->index, 1));
}

static void allgather(tr__script *s, place p) {
  tr__script_copy(s, tr__run_of(TR__DEST, s->index, 1), tr__run_of(TR__SOURCE, s->index, 1));
  exchange_parts(s, p, TR__DEST, p.own, p.local);
  for (int h = 0; h < p.hosts; h++) {
    tr__run block = tr__run_of(TR__DEST, h * p.local, p.local);
    tr__script_local(s, TR__LOCAL_GATHER, -1, block, block);
  }
}

// On every host the rank with the root's place there.
static void broadcast(tr__script *s, place p) {
  place root = place_of(s->size, p.local, s->root);
  int away = tr__script_index(p.host - root.host, p.hosts), span = away ? away & -away : p.hosts, step = 1;
  tr__run all = tr__run_of(TR__DEST, 0, 1);
  s->parts = 1;
  if (p.own == root.own) {
    int from = tr__script_index(root.host + away - (away & -away), p.hosts);
    if (away) tr__script_wait(s, tr__script_recv(s, from * p.local + p.own, all), 1);
    while (step < span) step *= 2;
    for (step /= 2; step > 0; step /= 2)
      if (away + step < p.hosts)
        tr__script_send(s, tr__script_index(root.host + away + step, p.hosts) * p.local + p.own, all);
  }
  tr__script_local(s, TR__LOCAL_GATHER, root.own, all, all);
}

static void build(tr__script *s) {
  place p = place_of(s->size, s->local, s->index);
  switch (s->kind) {
  case TR__ALLREDUCE: allreduce(s, p, p.local); return;
  case TR__REDUCE_SCATTER:
  case TR__REDUCE_SCATTER_V: reduce_scatter(s, p); return;
  case TR__BROADCAST: broadcast(s, p); return;
  default: allgather(s, p);
  }
}

static void build_leaders(tr__script *s) { allreduce(s, place_of(s->size, s->local, s->index), 1); }

// ---- claims: of the network ---------------------------------------------------------------------

// Parts [first, first + count), step apart: elements, and those that are not empty.
static size_t every(const tr__case *c, int parts, int first, int count, int step, uint64_t *filled) {
  size_t total = 0;
  *filled = 0;
  for (int i = 0; i < count; i++) {
    size_t n = tr__case_run(c, parts, first + i * step, 1);
    total += n;
    *filled += n > 0;
  }
  return total;
}

static void claim_exchange(const tr__case *c, place p, int parts, int first, int step, int sums, int gathers,
                           tr__claim *out) {
  uint64_t filled, others = (uint64_t)p.hosts - 1;
  size_t all = every(c, parts, first, p.hosts, step, &filled);
  size_t own = tr__case_run(c, parts, first + p.host * step, 1);
  if (sums) {
    out->messages += filled - (own > 0);
    out->bytes += (all - own) * c->wide;
    out->sums += others * own;
  }
  if (gathers) {
    out->messages += own ? others : 0;
    out->bytes += others * own * c->width;
  }
  out->rounds = sums + gathers;
  out->crowd = out->rounds * (p.hosts - 2);
  out->path_bytes = out->bytes * (uint64_t)(parts / p.hosts); // they share the host's link
  out->path_sums = out->sums * c->wide;
}

static void claim_broadcast(const tr__case *c, place p, tr__claim *out) {
  place root = place_of(c->size, p.local, c->root);
  int away = tr__script_index(p.host - root.host, p.hosts), span = away ? away & -away : p.hosts;
  int below = p.hosts - away < span ? p.hosts - away : span;
  uint64_t sends = p.own == root.own ? (uint64_t)tr__log2_up(below) : 0, n = c->nelem * c->width;
  out->messages = n ? sends : 0;
  out->bytes = sends * n;
  out->rounds = tr__log2_up(p.hosts);
  out->path_bytes = (uint64_t)out->rounds * n;
}

static void claim(const tr__case *c, int index, tr__claim *out) {
  place p = place_of(c->size, c->local, index);
  *out = (tr__claim){0};
  switch (c->kind) {
  case TR__ALLREDUCE: claim_exchange(c, p, c->size, p.own * p.hosts, 1, 1, 1, out); return;
  case TR__REDUCE_SCATTER:
  case TR__REDUCE_SCATTER_V: claim_exchange(c, p, c->size, p.own, p.local, 1, 0, out); return;
  case TR__BROADCAST: claim_broadcast(c, p, out); return;
  default: claim_exchange(c, p, c->size, p.own, p.local, 0, 1, out);
  }
}

static void claim_leaders(const tr__case *c, int index, tr__claim *out) {
  place p = place_of(c->size, c->local, index);
  *out = (tr__claim){.rounds = 2};
  if (p.own == 0) claim_exchange(c, p, p.hosts, 0, 1, 1, 1, out);
}

#define SUMS   (1u << TR__ALLREDUCE | 1u << TR__REDUCE_SCATTER | 1u << TR__REDUCE_SCATTER_V)
#define BLOCKS (1u << TR__REDUCE_SCATTER | 1u << TR__REDUCE_SCATTER_V | 1u << TR__ALLGATHER | 1u << TR__ALLGATHER_V)
const tr__algorithm tr__algorithm_hierarchical = {
    .name = "hierarchical",
    .kinds = SUMS | BLOCKS | 1u << TR__BROADCAST,
    .ordered = SUMS,
    .whole = BLOCKS, // a local operation needs its blocks one behind the other
    .hosts = 1,
    .build = build,
    .claim = claim,
};
const tr__algorithm tr__algorithm_leaders = {
    .name = "leaders",
    .kinds = 1u << TR__ALLREDUCE,
    .ordered = 1u << TR__ALLREDUCE,
    .hosts = 2,
    .build = build_leaders,
    .claim = claim_leaders,
};
