// SPDX-License-Identifier: MIT
// Programs by hand, straight from the rule: walk all ranks in turn, one pass each; a pass whose inputs are promised goes into
// its rank's list, behind it a SEND for each neighbour that waits for its result, and at that moment the RECV into the
// neighbour's list. No slots, no limits, nothing but what the simulator needs: a second opinion on tr_program_build_pipeline,
// and the order of messages that the figures for one stream belong to.
#ifndef TRIREME_TEST_HAND_LOWER_H
#define TRIREME_TEST_HAND_LOWER_H

#include "trireme/sim/sim.h"
#include <stdlib.h>
#include <string.h>

typedef struct hand {
  const tr_schedule *schedule;
  tr_program *program;         // [p]
  const tr_program **pointers; // [p]
  uint32_t *cursor;            // [p] next pass of each rank's list
  // Where F and B or I of (stage, micro-batch) were put, or the RECV of what they wait for, plus 1; 0: not yet.
  uint32_t *put[2], *promised[2]; // [S m], forward and backward
} hand;

static inline size_t hand_at(const hand *h, int stage, int microbatch) {
  return (size_t)stage * (size_t)h->schedule->m + (size_t)microbatch;
}

static inline tr_op hand_op(tr_op_kind kind, int stage, int microbatch, int chunk) {
  return (tr_op){.kind = (uint8_t)kind,
                 .lane = kind == TR_OP_SEND || kind == TR_OP_RECV ? TR_LANE_COMM : TR_LANE_COMPUTE,
                 .stage = (uint16_t)stage,
                 .microbatch = microbatch,
                 .chunk = (uint16_t)chunk,
                 .peer = -1};
}

static inline uint32_t hand_append(tr_program *p, tr_op op, const uint32_t *after, uint32_t nafter) {
  if (p->nop == p->op_capacity) {
    p->op_capacity = p->op_capacity ? 2 * p->op_capacity : 64;
    p->op = realloc(p->op, p->op_capacity * sizeof *p->op);
    p->edge = realloc(p->edge, 2 * p->op_capacity * sizeof *p->edge);
  }
  op.edge_begin = p->nedge;
  for (uint32_t i = 0; i < nafter; i++) p->edge[p->nedge++] = (tr_edge){after[i], 0};
  op.edge_end = p->nedge;
  p->op[p->nop] = op;
  return p->nop++;
}

static inline uint16_t hand_ring(tr_program *p, tr_ring ring) {
  for (int i = 0; i < p->nring; i++)
    if (p->ring[i].stage == ring.stage && p->ring[i].role == ring.role && p->ring[i].direction == ring.direction &&
        p->ring[i].peer == ring.peer)
      return (uint16_t)i;
  p->ring = realloc(p->ring, sizeof *p->ring * ((size_t)p->nring + 1));
  p->ring[p->nring] = ring;
  return (uint16_t)p->nring++;
}

// One half of a pass: forward or backward of a stage and a micro-batch.
typedef struct hand_half {
  int back, weights, stage, microbatch;
} hand_half;

static inline int hand_halves(const tr_pass *pass, hand_half half[2]) {
  half[0] = (hand_half){pass->kind != TR_OP_F && pass->kind != TR_OP_X, pass->kind == TR_OP_W, pass->stage,
                        pass->microbatch};
  half[1] = (hand_half){1, 0, pass->back_stage, pass->back_microbatch};
  return pass->kind == TR_OP_X ? 2 : 1;
}

// Whether the input of a half is there or promised; *recv is the operation to wait for, plus 1 (0: none).
static inline int hand_ready(const hand *h, int rank, hand_half half, uint32_t *recv) {
  const int from = half.stage + (half.back ? 1 : -1);
  *recv = 0;
  if (half.weights || from < 0 || from >= h->schedule->S) return 1;
  if (tr_schedule_rank(h->schedule, from, half.microbatch) == rank)
    return h->put[half.back][hand_at(h, from, half.microbatch)] != 0;
  *recv = h->promised[half.back][hand_at(h, half.stage, half.microbatch)];
  return *recv != 0;
}

static inline void hand_send(hand *h, int rank, hand_half half, uint32_t pass) {
  const tr_schedule *s = h->schedule;
  const int to = half.stage + (half.back ? -1 : 1);
  if (half.weights) return;
  h->put[half.back][hand_at(h, half.stage, half.microbatch)] = 1;
  if (to < 0 || to >= s->S) return;
  const int peer = tr_schedule_rank(s, to, half.microbatch);
  if (peer == rank) return;
  tr_ring ring = {.stage = (uint16_t)(half.back ? to : half.stage),
                  .role = half.back ? TR_ROLE_DERIVATIVE : TR_ROLE_ACTIVATION,
                  .direction = (uint8_t)tr_schedule_direction(s, half.microbatch),
                  .peer = peer};
  tr_op send = hand_op(TR_OP_SEND, half.stage, half.microbatch, 0);
  send.ring = hand_ring(&h->program[rank], ring);
  send.peer = peer;
  hand_append(&h->program[rank], send, &pass, 1);
  ring.peer = rank;
  tr_op recv = hand_op(TR_OP_RECV, to, half.microbatch, 0);
  recv.ring = hand_ring(&h->program[peer], ring);
  recv.peer = rank;
  h->promised[half.back][hand_at(h, to, half.microbatch)] = 1 + hand_append(&h->program[peer], recv, NULL, 0);
}

static inline int hand_step(hand *h, int rank) {
  const tr_schedule *s = h->schedule;
  if (h->cursor[rank] == s->begin[rank + 1]) return 0;
  const tr_pass *pass = &s->pass[h->cursor[rank]];
  hand_half half[2];
  uint32_t after[2], nafter = 0, recv;
  const int n = hand_halves(pass, half);
  for (int i = 0; i < n; i++) {
    if (!hand_ready(h, rank, half[i], &recv)) return 0;
    if (recv) after[nafter++] = recv - 1;
  }
  tr_op op = hand_op((tr_op_kind)pass->kind, pass->stage, pass->microbatch, 0);
  op.back_stage = pass->back_stage;
  op.back_microbatch = pass->back_microbatch;
  const uint32_t at = hand_append(&h->program[rank], op, after, nafter);
  for (int i = 0; i < n; i++) hand_send(h, rank, half[i], at);
  h->cursor[rank]++;
  return 1;
}

// Returns 0 when the lists wait for each other; the programs are there as far as they go.
static inline int hand_lower(const tr_schedule *schedule, hand *h) {
  const size_t p = (size_t)schedule->p, passes = (size_t)schedule->S * (size_t)schedule->m;
  *h = (hand){.schedule = schedule,
              .program = calloc(p, sizeof *h->program),
              .pointers = calloc(p, sizeof *h->pointers),
              .cursor = calloc(p, sizeof *h->cursor)};
  for (int i = 0; i < 2; i++) {
    h->put[i] = calloc(passes, sizeof *h->put[i]);
    h->promised[i] = calloc(passes, sizeof *h->promised[i]);
  }
  for (size_t r = 0; r < p; r++) {
    h->pointers[r] = &h->program[r];
    h->cursor[r] = schedule->begin[r];
  }
  for (int any = 1; any;) {
    any = 0;
    for (int r = 0; r < schedule->p; r++) any |= hand_step(h, r);
  }
  for (size_t r = 0; r < p; r++)
    if (h->cursor[r] != schedule->begin[r + 1]) return 0;
  return 1;
}

static inline void hand_free(hand *h) {
  for (int r = 0; r < h->schedule->p; r++) {
    free(h->program[r].op);
    free(h->program[r].edge);
    free(h->program[r].ring);
  }
  for (int i = 0; i < 2; i++) {
    free(h->put[i]);
    free(h->promised[i]);
  }
  free(h->program);
  free(h->pointers);
  free(h->cursor);
}

#endif
