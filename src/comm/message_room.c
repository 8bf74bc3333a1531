// SPDX-License-Identifier: MIT
// What a rank will keep for collectives that are messages, before anything is started: the algorithm is chosen and its script
// built and measured as in the call itself, on a group that exists only here, for the first rank: none keeps more.
#include "strands_internal.h"
#include <stdlib.h>

// Scratch of one lane for one call; 0 too where there is no memory to find out.
static size_t lane_room(const tr__choice *choice, const tr__case *c, tr_dtype type) {
  const tr__algorithm *algorithm;
  tr_comm comm = {.choice = (tr__choice *)(uintptr_t)choice};
  tr_group group = {.comm = &comm, .size = c->size};
  char somewhere[TR__LINE]; // sources and results have an address
  tr_request r = {.group = &group,
                  .kind = c->kind,
                  .src = somewhere,
                  .dst = somewhere,
                  .nelem = c->nelem,
                  .width = c->width,
                  .type = type,
                  .dst_type = c->start ? tr__wide_type(type) : type,
                  .start = c->start};
  if (c->nelem == 0 || tr__algorithm_choose(choice, c, &algorithm) < 0)
    return 0; // refused: the call itself will say it
  tr__script *script = tr__script_build(algorithm, c->kind, c->size, 0, 0, c->local);
  if (!script) return 0;
  r.script = script;
  r.chunks = tr__script_strands(&r);
  size_t nbyte = tr__script_room(&r);
  tr__script_free(script);
  return nbyte;
}

static int are_messages(const tr__choice *choice, tr__kind kind, int nrank, int local) {
  return local < nrank || tr__choice_demand(choice, kind, 0) != NULL ||
         (choice->forced.local && choice->forced.algorithm[kind]);
}

static size_t rooms(const tr__choice *choice, const tr_launch_messages *m) {
  tr__kind kind = m->scatters ? TR__REDUCE_SCATTER_V : TR__ALLREDUCE;
  size_t most = 0, start[TR__RANKS + 1];
  tr__case c = {.kind = kind, .size = m->nrank, .width = tr_dtype_size(m->type)};
  c.wide = tr_dtype_size(tr__wide_type(m->type));
  c.local = choice->forced.local ? choice->forced.local : m->local < m->nrank ? m->local : 0;
  if (!are_messages(choice, kind, m->nrank, m->local)) return 0;
  for (size_t i = 0; i < m->n; i++) {
    c.nelem = m->nelem[i];
    for (int r = 0; r <= m->nrank; r++) start[r] = c.nelem * (size_t)r / (size_t)m->nrank;
    if (m->scatters) c.start = start;
    size_t nbyte = lane_room(choice, &c, m->type);
    if (nbyte > most) most = nbyte;
  }
  return TR__LANES * tr__scratch_size(most);
}

size_t tr_launch_message_bytes(const tr_launch_messages *m) {
  tr__choice *choice;
  if (m->nrank < 2 || tr__choice_create(m->any_order, &choice) < 0)
    return 0; // a wrong demand is told when ranks start
  size_t nbyte = rooms(choice, m);
  free(choice);
  return nbyte;
}
