// SPDX-License-Identifier: MIT
// Recursive halving and doubling (Rabenseifner): all-reduce as reduce-scatter and all-gather, each in lg P rounds.
//
//   reduce-scatter   round k: rank i and i xor 2^k split the parts they both still care for: one keeps the lower half, the
//                    other the upper, chosen by bit k of the rank; each sends the other's half and adds what it gets
//   all-gather       the same backwards: halves are put together again
//
//                                 messages   bytes sent      cost
//   reduce-scatter, all-gather    lg P       (P-1)/P n       lg P alpha + (P-1)/P n beta, sums + (P-1)/P n gamma
//   all-reduce                    2 lg P     2 (P-1)/P n     2 lg P alpha + 2 (P-1)/P n beta + (P-1)/P n gamma
//
// No fewer bytes are possible, in few rounds. Distances grow from 1, so that what is added is always the sum of the aligned
// block of 2^k ranks to the left of the one to the right: the contract's order. Rank i ends with the part whose number is i
// with its bits reversed, so where parts have owners, they are numbered that way. P must be a power of two; partial sums are
// wide from the second round on. Rabenseifner, Optimization of collective reduction operations, 2004.
#include "algorithm.h"
#include <stdlib.h>

static int reversed(int i, int rounds) {
  int out = 0;
  for (int k = 0; k < rounds; k++) out |= (i >> k & 1) << (rounds - 1 - k);
  return out;
}

static void number_backwards(tr__script *s, int rounds) {
  s->order = malloc((size_t)s->size * sizeof *s->order);
  if (!s->order) s->failed = 1;
  for (int i = 0; s->order && i < s->size; i++) s->order[i] = reversed(i, rounds);
}

// First of the parts for which rank i still cares before round k.
static int kept(int size, int i, int k) {
  int first = 0;
  for (int j = 0; j < k; j++) first += (i >> j & 1) * (size >> (j + 1));
  return first;
}

static void reduce_scatter(tr__script *s, int rounds) {
  int half = s->size / 2, mine = kept(s->size, s->index, 1);
  int narrow = tr__script_register(s, TR__ANY_PART, half, 0, 0);
  int wide = half > 1 ? tr__script_register(s, TR__ANY_PART, half / 2, 1, 0) : 0;
  int sum = half > 1 ? tr__script_register(s, mine, half, 1, 0) : 0;
  for (int k = 0; k < rounds; k++, half /= 2) {
    int peer = s->index ^ (1 << k), last = k == rounds - 1, right = s->index >> k & 1;
    int keep = kept(s->size, s->index, k + 1), other = kept(s->size, peer, k + 1);
    int out = k == 0 ? tr__script_register(s, other, half, 0, TR__SOURCE) : sum, own = k == 0 ? TR__SOURCE : sum;
    tr__run in = tr__run_of(k == 0 ? narrow : wide, keep, half);
    tr__script_recv(s, peer, in);
    if (k == 0) tr__script_copy(s, tr__run_of(out, other, half), tr__run_of(TR__SOURCE, other, half));
    tr__script_send(s, peer, tr__run_of(out, other, half));
    tr__script_wait_all(s);
    tr__run have = tr__run_of(own, keep, half), to = tr__run_of(last ? TR__DEST : sum, keep, half);
    tr__script_add(s, to, right ? in : have, right ? have : in, last);
  }
}

static void allgather(tr__script *s, int rounds) {
  for (int k = rounds - 1, count = 1; k >= 0; k--, count *= 2) {
    int peer = s->index ^ (1 << k), own = kept(s->size, s->index, k + 1), other = kept(s->size, peer, k + 1);
    int out = tr__script_register(s, own, count, 0, TR__DEST), in = tr__script_register(s, other, count, 0, TR__DEST);
    tr__script_copy(s, tr__run_of(out, own, count), tr__run_of(TR__DEST, own, count));
    int arrival = tr__script_recv(s, peer, tr__run_of(in, other, count));
    tr__script_send(s, peer, tr__run_of(out, own, count));
    tr__script_wait(s, arrival, 1);
    tr__script_copy(s, tr__run_of(TR__DEST, other, count), tr__run_of(in, other, count));
  }
}

static void build(tr__script *s) {
  int rounds = tr__log2_up(s->size), part = reversed(s->index, rounds);
  if (!tr__is_vector(s->kind)) number_backwards(s, rounds);
  if (tr__kind_reduces(s->kind))
    reduce_scatter(s, rounds);
  else
    tr__script_copy(s, tr__run_of(TR__DEST, part, 1), tr__run_of(TR__SOURCE, part, 1));
  if (s->kind != TR__REDUCE_SCATTER && s->kind != TR__REDUCE_SCATTER_V) allgather(s, rounds);
}

// Elements of parts [first, first + count) in the order in which this algorithm numbers them.
static size_t run(const tr__case *c, int rounds, int first, int count) {
  if (tr__is_vector(c->kind)) return tr__case_run(c, c->size, first, count);
  size_t total = 0;
  for (int i = first; i < first + count; i++) total += tr__case_run(c, c->size, reversed(i, rounds), 1);
  return total;
}

static void claim(const tr__case *c, int index, tr__claim *out) {
  int rounds = tr__log2_up(c->size), sums = tr__kind_reduces(c->kind), gathers = !sums || c->kind == TR__ALLREDUCE;
  *out = (tr__claim){.rounds = rounds * (sums + gathers)};
  for (int k = 0; k < rounds; k++) {
    int half = c->size >> (k + 1), keep = kept(c->size, index, k + 1), other = kept(c->size, index ^ (1 << k), k + 1);
    size_t have = run(c, rounds, keep, half), away = run(c, rounds, other, half);
    if (sums) out->messages += away > 0, out->bytes += away * (k == 0 ? c->width : c->wide), out->sums += have;
    if (gathers) out->messages += have > 0, out->bytes += have * c->width;
  }
  out->path_bytes = out->bytes;
  out->path_sums = out->sums * c->wide;
}

#define SUMS (1u << TR__ALLREDUCE | 1u << TR__REDUCE_SCATTER | 1u << TR__REDUCE_SCATTER_V)
#define ALL  (SUMS | 1u << TR__ALLGATHER | 1u << TR__ALLGATHER_V)
const tr__algorithm tr__algorithm_halving = {
    .name = "halving",
    .kinds = ALL,
    .ordered = SUMS,
    .powers_of_two = ALL,
    .build = build,
    .claim = claim,
};
