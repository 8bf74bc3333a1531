// SPDX-License-Identifier: MIT
// Damage of all kinds to a step program, drawn at random: what is missing, repeated, out of order, or says something else.
#ifndef TRIREME_TESTS_STEP_PROGRAM_DAMAGE_H
#define TRIREME_TESTS_STEP_PROGRAM_DAMAGE_H

#include "step/symbolic_ranks.h"

enum { PD_OPS = SR_OPS + 2 };

typedef void (*damage)(tr_program *p, uint64_t *random);

// The program with its operations in the order of `order` (old indices; one may be missing, one twice). Edges follow.
static inline void reorder(tr_program *p, const uint32_t *order, uint32_t n) {
  tr_op *op = malloc(sizeof *op * (n + 1));
  tr_edge *edge = malloc(sizeof *edge * (2 * p->nedge + 1));
  int64_t at[PD_OPS];
  uint32_t nedge = 0;
  for (uint32_t i = 0; i < p->nop; i++) at[i] = -1;
  for (uint32_t i = n; i-- > 0;) at[order[i]] = i;
  for (uint32_t i = 0; i < n; i++) {
    op[i] = p->op[order[i]];
    op[i].edge_begin = nedge;
    for (uint32_t e = p->op[order[i]].edge_begin; e < p->op[order[i]].edge_end; e++)
      if (at[p->edge[e].op] >= 0) edge[nedge++] = (tr_edge){(uint32_t)at[p->edge[e].op], p->edge[e].step_offset};
    op[i].edge_end = nedge;
  }
  free(p->op);
  free(p->edge);
  p->op = op;
  p->edge = edge;
  p->nop = n;
  p->nedge = nedge;
}

static inline void drop_op(tr_program *p, uint64_t *random) {
  uint32_t order[PD_OPS], n = 0, which = sr_random(random, p->nop);
  for (uint32_t i = 0; i < p->nop; i++)
    if (i != which) order[n++] = i;
  reorder(p, order, n);
}

static inline void repeat_op(tr_program *p, uint64_t *random) {
  uint32_t order[PD_OPS], n = 0, which = sr_random(random, p->nop), at = which + sr_random(random, p->nop - which);
  for (uint32_t i = 0; i < p->nop; i++) {
    order[n++] = i;
    if (i == at) order[n++] = which;
  }
  reorder(p, order, n);
}

static inline void swap_ops(tr_program *p, uint64_t *random) {
  uint32_t order[PD_OPS], a = sr_random(random, p->nop), b = sr_random(random, p->nop);
  for (uint32_t i = 0; i < p->nop; i++) order[i] = i == a ? b : i == b ? a : i;
  reorder(p, order, p->nop);
}

static inline void move_op(tr_program *p, uint64_t *random) {
  uint32_t order[PD_OPS], n = 0, from = sr_random(random, p->nop), to = sr_random(random, p->nop);
  for (uint32_t i = 0; i < p->nop; i++) {
    if (i != from) order[n++] = i;
    if (i == to) order[n++] = from;
  }
  reorder(p, order, n);
}

// Edge e disappears; the operation's others close up.
static inline void drop_edge(tr_program *p, uint64_t *random) {
  if (p->nedge == 0) return;
  uint32_t e = sr_random(random, p->nedge);
  for (uint32_t i = 0; i < p->nop; i++)
    if (p->op[i].edge_begin <= e && e < p->op[i].edge_end) p->edge[e] = p->edge[--p->op[i].edge_end];
}

static inline void turn_edge(tr_program *p, uint64_t *random) {
  if (p->nedge > 0) p->edge[sr_random(random, p->nedge)].op = sr_random(random, p->nop);
}

static inline void flip_flag(tr_program *p, uint64_t *random) {
  tr_op *op = &p->op[sr_random(random, p->nop)];
  if (sr_random(random, 2))
    op->first = !op->first;
  else
    op->last = !op->last;
}

static inline void change_lane(tr_program *p, uint64_t *random) { p->op[sr_random(random, p->nop)].lane ^= 1; }

static inline void change_field(tr_program *p, uint64_t *random) {
  tr_op *op = &p->op[sr_random(random, p->nop)];
  int step = sr_random(random, 2) ? 1 : -1;
  switch (sr_random(random, 17)) {
  case 0: op->microbatch += step; break;
  case 1: op->piece_begin += (uint32_t)step; break;
  case 2: op->piece_end += (uint32_t)step; break;
  case 3: op->unit_begin = (uint16_t)(op->unit_begin + step); break;
  case 4: op->unit_end = (uint16_t)(op->unit_end + step); break;
  case 5: op->slot_fi += step; break;
  case 6: op->slot_fw += step; break;
  case 7: op->role = (uint8_t)(op->role + step); break;
  case 8: op->slot_iw += step; break;
  case 9: op->slot_in = (int16_t)(op->slot_in + step); break;
  case 10: op->slot_out = (int16_t)(op->slot_out + step); break;
  case 11: op->slot_din = (int16_t)(op->slot_din + step); break;
  case 12: op->slot_dout = (int16_t)(op->slot_dout + step); break;
  case 13: op->ring = (uint16_t)(op->ring + step); break;
  case 14: op->chunk = (uint16_t)(op->chunk + step); break;
  case 15: op->pair ^= 1; break;
  default: op->kind = (uint8_t)sr_random(random, TR_OP_KIND_COUNT);
  }
}

// Most orders are kept twice, by an edge and by a lane: an edge goes, then an operation moves.
static inline void drop_edges_and_move(tr_program *p, uint64_t *random) {
  for (uint32_t n = 1 + sr_random(random, 3); n > 0; n--) drop_edge(p, random);
  if (sr_random(random, 2))
    move_op(p, random);
  else
    swap_ops(p, random);
}

#endif
