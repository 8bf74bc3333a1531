// SPDX-License-Identifier: MIT
// Recursive doubling: in round k everybody swaps what it knows with a partner at distance 2^k.
//
//   all-reduce   rank i has the sum of its aligned block of 2^k ranks; it gets that of the block beside it, from i xor 2^k,
//                and adds the two. Where that rank does not exist, because the last block is short, another of its members
//                sends the same sum; where the whole block does not exist there is nothing to add
//   all-gather   the same with blocks laid side by side (P a power of two)
//   barrier      an all-reduce of nothing
//
//                            messages   bytes sent   cost
//   all-reduce               lg P       n lg P       lg P (alpha + n beta + n gamma)
//   all-gather               lg P       (P-1)/P n    lg P alpha + (P-1)/P n beta
//   P = 2^k + m, m small     the m ranks of the last block send up to 2^k / m messages in the last round
//
// The fewest rounds there can be: for short messages. The contract's order for any P, without folding ranks into others first;
// the first round of narrow types is narrow, partial sums are wide.
#include "algorithm.h"

// Ranks of the block beside rank i's in round k; 0: there is none.
static int sibling(int size, int i, int k, int *first) {
  *first = ((i >> k) ^ 1) << k;
  if (*first >= size) return 0;
  return size - *first < 1 << k ? size - *first : 1 << k;
}

// From whom rank i gets the sum of the block beside it: i xor 2^k, or who stands for it.
static int giver(int size, int i, int k) {
  int first, members = sibling(size, i, k, &first);
  return first + (i & ((1 << k) - 1)) % members;
}

// Send `what` to all who get it from this rank in round k.
static void give(tr__script *s, int k, tr__run what) {
  int first, members = sibling(s->size, s->index, k, &first);
  for (int i = first; i < first + members; i++)
    if (giver(s->size, i, k) == s->index) tr__script_send(s, i, what);
}

static void allreduce(tr__script *s) {
  int rounds = tr__log2_up(s->size), first, parts = s->parts = 1;
  int narrow = tr__script_register(s, 0, parts, 0, 0), wide = tr__script_register(s, 0, parts, 1, 0);
  int sum = tr__script_register(s, 0, parts, 1, 0), widened = 0;
  for (int k = 0; k < rounds; k++) {
    if (!sibling(s->size, s->index, k, &first)) continue;
    if (k > 0 && !widened) tr__script_copy(s, tr__run_of(sum, 0, parts), tr__run_of(TR__SOURCE, 0, parts));
    tr__run in = tr__run_of(k == 0 ? narrow : wide, 0, parts), own = tr__run_of(k == 0 ? TR__SOURCE : sum, 0, parts);
    tr__script_recv(s, giver(s->size, s->index, k), in);
    give(s, k, own);
    tr__script_wait_all(s);
    int last = k == rounds - 1, left = first < s->index;
    tr__script_add(s, tr__run_of(last ? TR__DEST : sum, 0, parts), left ? in : own, left ? own : in, last);
    widened = 1;
  }
}

static void allgather(tr__script *s) {
  tr__script_copy(s, tr__run_of(TR__DEST, s->index, 1), tr__run_of(TR__SOURCE, s->index, 1));
  for (int k = 0; 1 << k < s->size; k++) {
    int count = 1 << k, own = s->index >> k << k, other = own ^ count;
    int out = tr__script_register(s, own, count, 0, TR__DEST), in = tr__script_register(s, other, count, 0, TR__DEST);
    tr__script_copy(s, tr__run_of(out, own, count), tr__run_of(TR__DEST, own, count));
    int arrival = tr__script_recv(s, s->index ^ count, tr__run_of(in, other, count));
    tr__script_send(s, s->index ^ count, tr__run_of(out, own, count));
    tr__script_wait(s, arrival, 1);
    tr__script_copy(s, tr__run_of(TR__DEST, other, count), tr__run_of(in, other, count));
  }
}

static void build(tr__script *s) {
  if (s->kind == TR__ALLGATHER || s->kind == TR__ALLGATHER_V)
    allgather(s);
  else
    allreduce(s);
}

static void claim_allgather(const tr__case *c, int index, tr__claim *out) {
  for (int k = 0; k < out->rounds; k++) {
    int count = 1 << k, own = index >> k << k;
    size_t n = tr__case_run(c, c->size, own, count);
    out->messages += n > 0;
    out->bytes += n * c->width;
    out->path_bytes += n * c->width;
  }
}

static void claim(const tr__case *c, int index, tr__claim *out) {
  int rounds = tr__log2_up(c->size), barrier = c->kind == TR__BARRIER;
  *out = (tr__claim){.rounds = rounds};
  if (c->kind == TR__ALLGATHER || c->kind == TR__ALLGATHER_V) {
    claim_allgather(c, index, out);
    return;
  }
  for (int k = 0; k < rounds; k++) {
    int first, members = sibling(c->size, index, k, &first), own = index >> k << k, last = (c->size - 1) >> k;
    size_t n = c->nelem * (k == 0 ? c->width : c->wide);
    int few = c->size - (last << k); // ranks of the last block, which all of the block to its left hear
    int beside = last & 1 ? ((1 << k) + few - 1) / few : 1;
    out->path_bytes += n * (size_t)beside;
    out->crowd += beside - 1;
    out->path_sums += c->nelem * c->wide;
    if (!members) continue;
    int mine = c->size - own < 1 << k ? c->size - own : 1 << k;
    uint64_t sent = (uint64_t)((members - (index - own) + mine - 1) / mine);
    out->messages += c->nelem || barrier ? sent : 0;
    out->bytes += sent * n;
    out->sums += c->nelem;
  }
}

const tr__algorithm tr__algorithm_doubling = {
    .name = "doubling",
    .kinds = 1u << TR__ALLREDUCE | 1u << TR__BARRIER | 1u << TR__ALLGATHER | 1u << TR__ALLGATHER_V,
    .ordered = 1u << TR__ALLREDUCE | 1u << TR__BARRIER,
    .powers_of_two = 1u << TR__ALLGATHER | 1u << TR__ALLGATHER_V,
    .pieces = 1,
    .build = build,
    .claim = claim,
};
