// SPDX-License-Identifier: MIT
// Reductions over the ranks of a pipeline, which all of them have to reach: of the loss, of the squares of gradients, of what
// the first and the last stage share, and, where every stage is there twice (map `both`), of the gradients of both copies. The nth
// of a role on one rank meets the nth of that role on every rank that has one; of gradients, on the rank that has the same stages.
#include "sim/sim_internal.h"
#include <stdlib.h>

static const uint8_t role[] = {TR_ROLE_LOSS, TR_ROLE_SQUARES, TR_ROLE_TIED, TR_ROLE_GRADIENT};
enum { ROLES = sizeof role, COPIES = ROLES - 1 }; // the last: of the gradients of two copies

// Of map `both`, a rank has two chunks, one of each direction. Where one stream is all of a rank's communication, copies that met
// in it would hold up the messages behind.
static int has_copies(const tr__sim_graph *g, int rank) {
  const tr_program *program = g->program[rank];
  return program->nchunk == 2 && (program->chunk[0].direction || program->chunk[1].direction) &&
         !g->costs->one_stream;
}

static int role_of(const tr__sim_graph *g, uint32_t i) {
  const tr_op *op = tr__sim_op(g, i);
  int k = op->kind == TR_OP_REDUCE ? 0 : ROLES;
  while (k < ROLES && role[k] != op->role) k++;
  return k == COPIES && !has_copies(g, g->node[i].rank) ? ROLES : k;
}

// Who meets: all ranks, or two that have the same stages.
static int party_of(const tr__sim_graph *g, int rank, int k) {
  const int other = g->p - 1 - rank;
  return k < COPIES ? k : COPIES + (rank < other ? rank : other);
}

// Calls of each party on the rank that has most of them.
static void count_calls(const tr__sim_graph *g, uint32_t *most) {
  for (int r = 0; r < g->p; r++) {
    uint32_t n[ROLES] = {0};
    for (uint32_t i = g->base[r]; i < g->base[r + 1]; i++) {
      const int k = role_of(g, i);
      if (k < ROLES && ++n[k] > most[party_of(g, r, k)]) most[party_of(g, r, k)] = n[k];
    }
  }
}

// Gives every call its meeting, and says who is in each: counting first, then storing.
static void visit(tr__sim_graph *g, const uint32_t *base, int store) {
  for (int r = 0; r < g->p; r++) {
    uint32_t n[ROLES] = {0};
    for (uint32_t i = g->base[r]; i < g->base[r + 1]; i++) {
      const int k = role_of(g, i);
      if (k == ROLES) continue;
      tr__sim_meeting *m = &g->meeting[base[party_of(g, r, k)] + n[k]++];
      g->node[i].partner = (uint32_t)(m - g->meeting);
      if (store) g->member[m->first + m->left] = i;
      m->left++;
    }
  }
}

static tr_status no_memory(uint32_t n) {
  return tr_error(TR_ERR_MEMORY, "no memory for %u reductions over a pipeline", n);
}

// base[party]: its first meeting.
static tr_status make_meetings(tr__sim_graph *g, uint32_t *base) {
  uint32_t n = 0, members = 0;
  count_calls(g, base);
  for (int k = 0; k < COPIES + g->p; k++) {
    const uint32_t calls = base[k];
    base[k] = n;
    n += calls;
  }
  g->meeting = calloc((size_t)n + 1, sizeof *g->meeting);
  if (!g->meeting) return no_memory(n);
  visit(g, base, 0);
  for (uint32_t m = 0; m < n; m++) {
    g->meeting[m].first = members;
    members += g->meeting[m].left;
    g->meeting[m].left = 0;
  }
  g->member = malloc(sizeof *g->member * ((size_t)members + 1));
  if (!g->member) return no_memory(members);
  visit(g, base, 1);
  for (uint32_t m = 0; m < n; m++) g->meeting[m].size = g->meeting[m].left;
  return TR_OK;
}

tr_status tr__sim_add_meetings(tr__sim_graph *g) {
  uint32_t *base = calloc((size_t)g->p + COPIES, sizeof *base);
  tr_status status = base ? make_meetings(g, base) : no_memory((uint32_t)g->p);
  free(base);
  return status;
}
