// SPDX-License-Identifier: MIT
// Binomial tree: blocks of 2^k ranks merge into blocks of twice the size, or a message spreads the same way backwards.
//
//   reduce       each aligned block of 2^k ranks has one that holds its sum, the root or else its first; when two blocks merge,
//                one of the two holders sends its sum to the other
//   broadcast    who has the message sends it to the rank half as far away as the last time, counted from the root
//   all-reduce   reduce to rank 0, broadcast from there
//   gather       each sends all the blocks it has to the rank to which it is a child; scatter is the reverse
//
//                        messages of the root   bytes sent by it   cost
//   reduce               0                      0                  lg P (alpha + n beta + n gamma)
//   broadcast            lg P                   n lg P             lg P (alpha + n beta)
//   all-reduce           lg P                   n lg P             lg P (2 alpha + 2 n beta + n gamma)
//   gather, scatter      0, lg P                0, (P-1)/P n       lg P alpha + (P-1)/P n beta
//
// Few messages in all, P - 1. Any P; in the contract's order for any root, since only who holds a sum depends on it.
// Partial sums are wide, but for those of one rank, which go to the neighbour as they are.
#include "algorithm.h"

// ---- reduce: blocks by group index, so that the order of sums is the contract's

// The rank that holds the sum of the aligned block of 2^k ranks of which `i` is one.
static int holder(int i, int k, int root) { return i >> k == root >> k ? root : i >> k << k; }

// How many rounds rank i takes part in, and to whom it sends at the end of them (-1: the root).
static int rounds_of(int size, int i, int root, int *to) {
  int rounds = tr__log2_up(size), k = 0;
  while (k < rounds && holder(i, k + 1, root) == i) k++;
  *to = k < rounds ? holder(i, k + 1, root) : -1;
  return k;
}

// The child that sends to rank i in round k, or -1.
static int child(int size, int i, int k, int root) {
  int beside = ((i >> k) ^ 1) << k;
  return beside < size ? holder(beside, k, root) : -1;
}

// Leaves the sum in `to`, on the root.
static void reduce(tr__script *s, int root, tr__run to) {
  int parent, rounds = rounds_of(s->size, s->index, root, &parent), transfer[TR__RANKS], in[TR__RANKS], added = 0;
  int remaining = 0;
  for (int k = 0; k < rounds; k++) {
    int from = child(s->size, s->index, k, root);
    if (from < 0) continue;
    in[k] = tr__script_register(s, 0, 1, k > 0, 0);
    transfer[k] = tr__script_recv(s, from, tr__run_of(in[k], 0, 1));
    remaining++;
  }
  int sum = remaining || rounds ? tr__script_register(s, 0, 1, 1, 0) : 0;
  tr__run own = tr__run_of(TR__SOURCE, 0, 1);
  for (int k = 0; k < rounds; k++) {
    int from = child(s->size, s->index, k, root);
    if (from < 0) continue;
    int last = --remaining == 0 && parent < 0;
    tr__run other = tr__run_of(in[k], 0, 1), out = last ? to : tr__run_of(sum, 0, 1);
    tr__script_wait(s, transfer[k], 1);
    tr__script_add(s, out, from < s->index ? other : own, from < s->index ? own : other, last);
    own = out;
    added = 1;
  }
  if (parent < 0) return;
  if (rounds > 0 && !added) { // alone in a short last block: the receiver expects a wide sum
    own = tr__run_of(sum, 0, 1);
    tr__script_copy(s, own, tr__run_of(TR__SOURCE, 0, 1));
  }
  tr__script_send(s, parent, own);
}

// ---- broadcast, gather, scatter: by distance from the root, round the group

static int away(const tr__script *s, int root) { return tr__script_index(s->index - root, s->size); }
static int rank_at(const tr__script *s, int root, int distance) { return tr__script_index(root + distance, s->size); }
// The ranks from `i` on that hear of the message through it, itself included.
static int below(int size, int i) {
  int span = i ? i & -i : size;
  return size - i < span ? size - i : span;
}

static void broadcast(tr__script *s, int root) {
  int i = away(s, root), step = 1;
  tr__run all = tr__run_of(TR__DEST, 0, 1);
  tr__script_wait_all(s); // in place: what was sent before lies where the message comes
  while (step < below(s->size, i)) step *= 2;
  if (i > 0) tr__script_wait(s, tr__script_recv(s, rank_at(s, root, i - (i & -i)), all), 1);
  for (step /= 2; step > 0; step /= 2) tr__script_send(s, rank_at(s, root, i + step), all);
}

static void scatter(tr__script *s) {
  int i = away(s, s->root), count = below(s->size, i), step = 1, reg = TR__SOURCE;
  if (i > 0) {
    reg = tr__script_register(s, s->index, count, 0, 0);
    tr__run all = tr__run_of(reg, s->index, count);
    tr__script_wait(s, tr__script_recv(s, rank_at(s, s->root, i - (i & -i)), all), 1);
  }
  while (step < count) step *= 2;
  for (step /= 2; step > 0; step /= 2) {
    int first = rank_at(s, s->root, i + step), n = below(s->size, i + step);
    tr__run out = tr__run_of(reg, first, n);
    if (i == 0) {
      out.buffer = tr__script_register(s, first, n, 0, TR__SOURCE);
      tr__script_copy(s, out, tr__run_of(TR__SOURCE, first, n));
    }
    tr__script_send(s, first, out);
  }
  tr__script_copy(s, tr__run_of(TR__DEST, s->index, 1), tr__run_of(reg, s->index, 1));
}

static void gather(tr__script *s) {
  int i = away(s, s->root), count = below(s->size, i), begun = s->ntransfer, in[TR__RANKS], n = 0;
  int reg = i > 0 && count > 1 ? tr__script_register(s, s->index, count, 0, 0) : TR__DEST;
  for (int step = 1; step < count; step *= 2) {
    int first = rank_at(s, s->root, i + step), many = below(s->size, i + step);
    in[n] = i > 0 ? reg : tr__script_register(s, first, many, 0, TR__DEST);
    tr__script_recv(s, first, tr__run_of(in[n++], first, many));
  }
  if (i > 0 && count == 1) {
    tr__script_send(s, rank_at(s, s->root, i - (i & -i)), tr__run_of(TR__SOURCE, s->index, 1));
    return;
  }
  tr__script_copy(s, tr__run_of(reg, s->index, 1), tr__run_of(TR__SOURCE, s->index, 1));
  tr__script_wait(s, begun, n);
  if (i > 0) tr__script_send(s, rank_at(s, s->root, i - (i & -i)), tr__run_of(reg, s->index, count));
  for (int k = 0, step = 1; i == 0 && step < count; step *= 2, k++) {
    tr__run come = tr__run_of(in[k], rank_at(s, s->root, step), below(s->size, step));
    tr__script_copy(s, tr__run_of(TR__DEST, come.first, come.count), come);
  }
}

static void build(tr__script *s) {
  tr__run all = tr__run_of(TR__DEST, 0, 1);
  if (tr__is_vector(s->kind)) s->parts = 1;
  switch (s->kind) {
  case TR__REDUCE: reduce(s, s->root, all); return;
  case TR__BROADCAST: broadcast(s, s->root); return;
  case TR__GATHER: gather(s); return;
  case TR__SCATTER: scatter(s); return;
  default: reduce(s, 0, all); broadcast(s, 0);
  }
}

// ---- claims

static void claim_reduce(const tr__case *c, int index, int root, tr__claim *out) {
  int parent, rounds = rounds_of(c->size, index, root, &parent), all = tr__log2_up(c->size);
  for (int k = 0; k < rounds; k++)
    if (child(c->size, index, k, root) >= 0) out->sums += c->nelem;
  if (parent >= 0) {
    out->messages += c->nelem > 0;
    out->bytes += c->nelem * (rounds == 0 ? c->width : c->wide);
  }
  out->rounds += all;
  out->path_bytes += c->nelem * (c->width + (size_t)(all - 1) * c->wide);
  out->path_sums += (uint64_t)all * c->nelem * c->wide;
}

static void claim_broadcast(const tr__case *c, int index, int root, tr__claim *out) {
  int i = tr__script_index(index - root, c->size);
  uint64_t sends = (uint64_t)tr__log2_up(below(c->size, i));
  out->messages += c->nelem ? sends : 0;
  out->bytes += sends * c->nelem * c->width;
  out->rounds += tr__log2_up(c->size);
  out->path_bytes += (uint64_t)tr__log2_up(c->size) * c->nelem * c->width;
}

static void claim_blocks(const tr__case *c, int index, tr__claim *out) {
  int i = tr__script_index(index - c->root, c->size), count = below(c->size, i);
  size_t each = c->nelem * c->width;
  if (c->kind == TR__GATHER) {
    out->messages = i > 0 && each;
    out->bytes = i > 0 ? (uint64_t)count * each : 0;
  } else {
    out->messages = each ? (uint64_t)tr__log2_up(count) : 0;
    out->bytes = (uint64_t)(count - 1) * each;
  }
  out->rounds = tr__log2_up(c->size);
  out->path_bytes = (uint64_t)(c->size - 1) * each;
}

static void claim(const tr__case *c, int index, tr__claim *out) {
  *out = (tr__claim){0};
  switch (c->kind) {
  case TR__REDUCE: claim_reduce(c, index, c->root, out); return;
  case TR__BROADCAST: claim_broadcast(c, index, c->root, out); return;
  case TR__ALLREDUCE:
    claim_reduce(c, index, 0, out);
    claim_broadcast(c, index, 0, out);
    return;
  default: claim_blocks(c, index, out);
  }
}

const tr__algorithm tr__algorithm_tree = {
    .name = "tree",
    .kinds = 1u << TR__ALLREDUCE | 1u << TR__REDUCE | 1u << TR__BROADCAST | 1u << TR__GATHER | 1u << TR__SCATTER,
    .ordered = 1u << TR__ALLREDUCE | 1u << TR__REDUCE,
    .pieces = 1,
    .build = build,
    .claim = claim,
};
