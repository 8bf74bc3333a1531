// SPDX-License-Identifier: MIT
// Ring: each rank talks to its two neighbours only; parts travel round the ring, and sums grow on their way.
//
//   reduce-scatter   step s = 0 .. P-2: i sends part i-1-s to i+1, receives part i-2-s from i-1 and adds its own to it;
//                    the last part to arrive is part i
//   all-gather       step s: i sends part i-s to i+1, receives part i-1-s from i-1
//   all-reduce       both, one after the other
//
//                                 messages   bytes sent      cost
//   reduce-scatter, all-gather    P - 1      (P-1)/P n       (P-1) alpha + (P-1)/P n beta, sums + (P-1)/P n gamma
//   all-reduce                    2 (P - 1)  2 (P-1)/P n     2 (P-1) alpha + 2 (P-1)/P n beta + (P-1)/P n gamma
//
// No fewer bytes are possible, and no link is shared by two messages; the price is a latency that grows with P. Sums begin at
// the rank after the owner and go round, so each part has an order of its own: only where any order will do. Patarasuk and
// Yuan, Bandwidth optimal all-reduce algorithms for clusters of workstations, 2009.
#include "algorithm.h"

// Partial sums alternate between two registers: one is sent while the next arrives in the other.
static void reduce_scatter(tr__script *s) {
  int size = s->size, right = tr__script_index(s->index + 1, size), left = tr__script_index(s->index - 1, size);
  int first = tr__script_register(s, TR__ANY_PART, 1, 0, 0);
  int wide[] = {tr__script_register(s, TR__ANY_PART, 1, 1, 0), tr__script_register(s, TR__ANY_PART, 1, 1, 0)};
  tr__run travelling = tr__run_of(TR__SOURCE, tr__script_index(s->index - 1, size), 1);
  for (int step = 0; step < size - 1; step++) {
    int part = tr__script_index(s->index - 2 - step, size), last = step == size - 2;
    tr__run in = tr__run_of(step == 0 ? first : wide[step % 2], part, 1);
    tr__script_recv(s, left, in);
    tr__script_send(s, right, travelling);
    tr__script_wait_all(s);
    travelling = tr__run_of(last ? TR__DEST : wide[step % 2], part, 1);
    tr__script_add(s, travelling, in, tr__run_of(TR__SOURCE, part, 1), last);
  }
}

static void allgather(tr__script *s, int buffer) {
  int size = s->size, right = tr__script_index(s->index + 1, size), left = tr__script_index(s->index - 1, size);
  tr__run travelling = tr__run_of(buffer, s->index, 1);
  for (int step = 0; step < size - 1; step++) {
    int part = tr__script_index(s->index - 1 - step, size);
    int in = tr__script_recv(s, left, tr__run_of(TR__DEST, part, 1));
    tr__script_send(s, right, travelling);
    tr__script_wait(s, in, 1);
    travelling = tr__run_of(TR__DEST, part, 1);
  }
}

static void build(tr__script *s) {
  if (s->kind == TR__ALLGATHER || s->kind == TR__ALLGATHER_V) {
    allgather(s, TR__SOURCE);
    tr__script_copy(s, tr__run_of(TR__DEST, s->index, 1), tr__run_of(TR__SOURCE, s->index, 1));
    return;
  }
  reduce_scatter(s);
  if (s->kind == TR__ALLREDUCE) allgather(s, TR__DEST);
}

static void claim(const tr__case *c, int index, tr__claim *out) {
  int size = c->size, sums = tr__kind_reduces(c->kind), gathers = c->kind == TR__ALLREDUCE || !sums;
  *out = (tr__claim){.rounds = (size - 1) * (sums + gathers)};
  if (sums) { // sends all parts but its own, the first of them before anything was added; adds to all but the first
    size_t first = tr__case_run(c, size, index + size - 1, 1);
    size_t later = tr__case_run(c, size, index + 1, size - 2 > 0 ? size - 2 : 0);
    out->messages = (uint64_t)tr__case_filled(c, size, index + 1, size - 1);
    out->bytes = first * c->width + later * c->wide;
    out->sums = tr__case_run(c, size, index, size - 1);
  }
  if (gathers) { // sends all parts but the right neighbour's
    out->messages += (uint64_t)tr__case_filled(c, size, index + 2, size - 1);
    out->bytes += tr__case_run(c, size, index + 2, size - 1) * c->width;
  }
  out->path_bytes = out->bytes;
  out->path_sums = out->sums * c->wide;
}

#define SUMS (1u << TR__ALLREDUCE | 1u << TR__REDUCE_SCATTER | 1u << TR__REDUCE_SCATTER_V)
const tr__algorithm tr__algorithm_ring = {
    .name = "ring",
    .kinds = SUMS | 1u << TR__ALLGATHER | 1u << TR__ALLGATHER_V,
    .build = build,
    .claim = claim,
};
