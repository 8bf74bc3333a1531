// SPDX-License-Identifier: MIT
// Chain: a message goes from the root to its neighbour, from there to the next, and so on round the group.
//
//   messages 1, bytes sent n, cost in s strands of n / s bytes: (s + P - 2) (alpha + n / s beta)
//
// Strands follow each other down the chain, so a long message costs every link n bytes once, whatever P is: for long
// messages. A short one takes P - 1 rounds.
#include "algorithm.h"

static void build(tr__script *s) {
  int i = tr__script_index(s->index - s->root, s->size);
  tr__run all = tr__run_of(TR__DEST, 0, 1);
  s->parts = 1;
  if (i > 0) tr__script_wait(s, tr__script_recv(s, tr__script_index(s->index - 1, s->size), all), 1);
  if (i < s->size - 1) tr__script_send(s, tr__script_index(s->index + 1, s->size), all);
}

static void claim(const tr__case *c, int index, tr__claim *out) {
  int sends = tr__script_index(index - c->root, c->size) < c->size - 1;
  uint64_t n = c->nelem * c->width, strand = n < TR__WIRE ? n : TR__WIRE;
  *out = (tr__claim){.messages = sends && n, .bytes = sends ? n : 0, .rounds = c->size - 1};
  out->path_bytes = n + (uint64_t)(c->size - 2) * strand;
}

const tr__algorithm tr__algorithm_chain = {
    .name = "chain",
    .kinds = 1u << TR__BROADCAST,
    .pieces = 1,
    .build = build,
    .claim = claim,
};
