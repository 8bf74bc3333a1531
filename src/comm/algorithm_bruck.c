// SPDX-License-Identifier: MIT
// Bruck: blocks travel by the bits of their distance, those with bit k set in round k.
//
//   all-gather   round k: i sends all blocks it has, those of i .. i + 2^k - 1, to i - 2^k; they are put in order at the end
//   all-to-all   round k: i sends to i + 2^k every block that has still to go a distance with bit k set
//
//                messages   bytes sent     cost
//   all-gather   lg P       (P-1)/P n      lg P alpha + (P-1)/P n beta
//   all-to-all   lg P       n/2 lg P       lg P (alpha + n/2 beta)
//
// The fewest rounds there can be, for any P: for short messages. All-to-all pays with blocks that travel lg P / 2 times on
// average. Bruck et al., Efficient algorithms for all-to-all communications in multiport message-passing systems, 1997.
#include "algorithm.h"

static void allgather(tr__script *s) {
  int size = s->size, all = tr__script_register(s, s->index, size, 0, TR__DEST);
  tr__script_copy(s, tr__run_of(all, s->index, 1), tr__run_of(TR__SOURCE, s->index, 1));
  for (int distance = 1; distance < size; distance *= 2) {
    int count = distance < size - distance ? distance : size - distance;
    int ahead = tr__script_index(s->index + distance, size), behind = tr__script_index(s->index - distance, size);
    int arrival = tr__script_recv(s, ahead, tr__run_of(all, ahead, count));
    tr__script_send(s, behind, tr__run_of(all, s->index, count));
    tr__script_wait(s, arrival, 1);
  }
  tr__script_copy(s, tr__run_of(TR__DEST, s->index, size), tr__run_of(all, s->index, size));
}

// Copy between the blocks at distances with bit k and a register that holds them one behind the other.
static int collect(tr__script *s, int all, int bundle, int k, int into_bundle) {
  int n = 0;
  for (int at = 1 << k; at < s->size; at += 2 << k) {
    int count = s->size - at < 1 << k ? s->size - at : 1 << k;
    tr__run here = tr__run_of(all, tr__script_index(s->index + at, s->size), count),
            there = tr__run_of(bundle, n, count);
    if (bundle >= 0) tr__script_copy(s, into_bundle ? there : here, into_bundle ? here : there);
    n += count;
  }
  return n;
}

static void alltoall(tr__script *s) {
  int size = s->size, all = tr__script_register(s, s->index, size, 0, 0);
  tr__script_copy(s, tr__run_of(all, s->index, size), tr__run_of(TR__SOURCE, s->index, size));
  for (int k = 0; 1 << k < size; k++) {
    int n = collect(s, all, -1, k, 1);
    int out = tr__script_register(s, 0, n, 0, 0), in = tr__script_register(s, 0, n, 0, 0);
    int arrival = tr__script_recv(s, tr__script_index(s->index - (1 << k), size), tr__run_of(in, 0, n));
    collect(s, all, out, k, 1);
    tr__script_send(s, tr__script_index(s->index + (1 << k), size), tr__run_of(out, 0, n));
    tr__script_wait(s, arrival, 1);
    collect(s, all, in, k, 0);
  }
  for (int d = 0; d < size; d++) // what is left at distance d has come all the way from d ranks behind
    tr__script_copy(s, tr__run_of(TR__DEST, tr__script_index(s->index - d, size), 1),
                    tr__run_of(all, tr__script_index(s->index + d, size), 1));
}

static void build(tr__script *s) {
  if (s->kind == TR__ALLTOALL)
    alltoall(s);
  else
    allgather(s);
}

static void claim(const tr__case *c, int index, tr__claim *out) {
  *out = (tr__claim){.rounds = tr__log2_up(c->size)};
  for (int distance = 1; distance < c->size; distance *= 2) {
    size_t n = 0;
    if (c->kind == TR__ALLTOALL)
      for (int d = 1; d < c->size; d++) n += d & distance ? c->nelem : 0;
    else
      n = tr__case_run(c, c->size, index, distance < c->size - distance ? distance : c->size - distance);
    out->messages += n > 0;
    out->bytes += n * c->width;
  }
  out->path_bytes = out->bytes;
}

const tr__algorithm tr__algorithm_bruck = {
    .name = "bruck",
    .kinds = 1u << TR__ALLTOALL | 1u << TR__ALLGATHER | 1u << TR__ALLGATHER_V,
    .build = build,
    .claim = claim,
};
