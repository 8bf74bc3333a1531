// SPDX-License-Identifier: MIT
// Reductions over the ranks of a pipeline, which all of them have to reach: of the loss, of the squares of gradients, and of
// what the first and the last stage share. The nth of a role on one rank meets the nth of that role on every rank that has one.
#include "sim/sim_internal.h"
#include <stdlib.h>

static const uint8_t role[] = {TR_ROLE_LOSS, TR_ROLE_SQUARES, TR_ROLE_TIED};
enum { ROLES = sizeof role };

static int role_of(const tr_op *op) {
  int k = op->kind == TR_OP_REDUCE ? 0 : ROLES;
  while (k < ROLES && role[k] != op->role) k++;
  return k;
}

// Calls of each role on the rank that has most of them.
static void count_calls(const tr__sim_graph *g, uint32_t most[ROLES]) {
  for (int r = 0; r < g->p; r++) {
    uint32_t n[ROLES] = {0};
    for (uint32_t i = g->base[r]; i < g->base[r + 1]; i++) {
      const int k = role_of(tr__sim_op(g, i));
      if (k < ROLES && ++n[k] > most[k]) most[k] = n[k];
    }
  }
}

// Gives every call its meeting, and says who is in each: counting first, then storing.
static void visit(tr__sim_graph *g, const uint32_t base[ROLES], int store) {
  for (int r = 0; r < g->p; r++) {
    uint32_t n[ROLES] = {0};
    for (uint32_t i = g->base[r]; i < g->base[r + 1]; i++) {
      const int k = role_of(tr__sim_op(g, i));
      if (k == ROLES) continue;
      tr__sim_meeting *m = &g->meeting[base[k] + n[k]++];
      g->node[i].partner = (uint32_t)(m - g->meeting);
      if (store) g->member[m->first + m->left] = i;
      m->left++;
    }
  }
}

tr_status tr__sim_add_meetings(tr__sim_graph *g) {
  uint32_t most[ROLES] = {0}, base[ROLES], n = 0, members = 0;
  count_calls(g, most);
  for (int k = 0; k < ROLES; k++) base[k] = n, n += most[k];
  g->meeting = calloc((size_t)n + 1, sizeof *g->meeting);
  if (!g->meeting) return tr_error(TR_ERR_MEMORY, "no memory for %u reductions over a pipeline", n);
  visit(g, base, 0);
  for (uint32_t m = 0; m < n; m++) {
    g->meeting[m].first = members;
    members += g->meeting[m].left;
    g->meeting[m].left = 0;
  }
  g->member = malloc(sizeof *g->member * ((size_t)members + 1));
  if (!g->member) return tr_error(TR_ERR_MEMORY, "no memory for %u reductions over a pipeline", members);
  visit(g, base, 1);
  for (uint32_t m = 0; m < n; m++) g->meeting[m].size = g->meeting[m].left;
  return TR_OK;
}
