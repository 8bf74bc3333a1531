// SPDX-License-Identifier: MIT
// A rank that executes a step program on symbols instead of numbers, under any timing that the rules of the lanes
// allow, and says whether the step's result would be right. Written from the description of the operations, not from
// the checks it is used to test: what tr_program_check accepts must come out right here under every timing.
//
// A gradient is kept per (unit, piece): how often each micro-batch is in it. Pieces from the last one of the
// backward pass to contribute (unit_last_piece) up to the end are all taken to contribute. Activations are
// kept per (slot, piece). Of a range that is computed again, each piece writes into the one recompute area and reads
// there what the earlier ones of its range wrote, forward and backward; from outside it reads the slots.
#ifndef TRIREME_TESTS_STEP_SYMBOLIC_RANK_H
#define TRIREME_TESTS_STEP_SYMBOLIC_RANK_H

#include "trireme/step/program.h"
#include <stdlib.h>
#include <string.h>

enum { SR_PIECES = 12, SR_UNITS = 6, SR_MICRO = 4, SR_OPS = 256, SR_SLOTS = 4 };

typedef struct sr_cell {
  unsigned char count[2][SR_MICRO]; // [inputs, weights][micro-batch]
} sr_cell;

typedef struct sr_rank {
  const tr_program *program;
  const tr_step_model *model;
  const tr_step_options *options;
  int every;
  uint64_t random;
  unsigned char started[SR_OPS], done[SR_OPS];
  sr_cell part[SR_UNITS][SR_PIECES], sum[SR_UNITS][SR_PIECES];
  int summed[SR_UNITS];  // REDUCEs that have ended, per unit (SYNC_LAST)
  int reading[SR_UNITS]; // REDUCEs under way
  signed char fi[SR_SLOTS][SR_PIECES], fw[SR_SLOTS][SR_PIECES], iw[SR_SLOTS][SR_PIECES]; // whose, -1
  signed char area[SR_PIECES]; // whose values of this piece are in the recompute area, -1: others lie there
  unsigned char forward[SR_MICRO][SR_PIECES], input[SR_MICRO][SR_PIECES], weight[SR_MICRO][SR_PIECES];
  int counted, losses, loss_in_sum, loss_done, normed, updated[SR_UNITS], published[SR_UNITS];
  int zero, ended_sums, squares_of, updates, publishes; // squares_of: sums whose squares are gathered
  int gathered[2], gathering[2];                        // weights, packed weights: units that a GATHER covers
  const char *wrong;                                    // first thing that went wrong
} sr_rank;

static inline uint32_t sr_random(uint64_t *state, uint32_t n) {
  *state = *state * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)(*state >> 33) % n;
}

static inline void sr_wrong(sr_rank *r, int is_wrong, const char *what) {
  if (is_wrong && !r->wrong) r->wrong = what;
}

static inline void sr_contribute(sr_rank *r, const tr_op *op, int piece, int kind) {
  for (int u = 0; u < r->model->nunit; u++) {
    if (piece < r->model->unit_last_piece[u]) continue;
    sr_wrong(r, r->reading[u] > 0, "written while it is summed");
    sr_wrong(r, !r->every && r->summed[u] > 0, "written after it was summed");
    sr_cell *cell = &r->part[u][piece];
    if (op->first) memset(cell->count[kind], 0, SR_MICRO);
    cell->count[kind][op->microbatch]++;
  }
}

static inline int sr_same_range(const sr_rank *r, int p, int q) {
  for (int k = 0; k < r->options->nrecompute; k++) {
    const tr_step_range *range = &r->options->recompute[k];
    if (range->begin <= p && p < range->end) return range->begin <= q && q < range->end;
  }
  return 0;
}

static inline void sr_read_area(sr_rank *r, int mb, int p, int last) {
  for (int q = 0; q <= last; q++)
    sr_wrong(r, sr_same_range(r, p, q) && r->area[q] != mb, "the recompute area holds something else");
}

// Values of one range lie over those of every other.
static inline void sr_write_area(sr_rank *r, int mb, int p) {
  if (!sr_same_range(r, p, p)) return;
  sr_read_area(r, mb, p, p - 1);
  for (int q = 0; q < SR_PIECES; q++)
    if (!sr_same_range(r, p, q)) r->area[q] = -1;
  r->area[p] = (signed char)mb;
}

static inline void sr_recompute(sr_rank *r, const tr_op *op, int p) {
  sr_wrong(r, r->forward[op->microbatch][p] != 1, "computed again before the first time");
  sr_wrong(r, r->fw[op->slot_fw][p] != op->microbatch, "F-W slot holds something else");
  if (!r->options->split_backward)
    sr_wrong(r, r->fi[op->slot_fi][p] != op->microbatch, "F-I slot holds something else");
  sr_write_area(r, op->microbatch, p);
}

static inline void sr_backward(sr_rank *r, const tr_op *op, int p) {
  int mb = op->microbatch, last = r->model->npiece - 1;
  sr_wrong(r, r->fw[op->slot_fw][p] != mb, "F-W slot holds something else");
  sr_read_area(r, mb, p, p);
  if (op->kind != TR_OP_W) {
    sr_wrong(r, !r->counted, "scale is not known");
    sr_wrong(r, r->fi[op->slot_fi][p] != mb, "F-I slot holds something else");
    sr_wrong(r, p < last && r->input[mb][p + 1] != 1, "gradient has not arrived");
    r->input[mb][p]++;
    r->losses += p == last;
    sr_contribute(r, op, p, 0);
  }
  if (op->kind == TR_OP_I) r->iw[op->slot_iw][p] = (signed char)mb;
  if (op->kind == TR_OP_W) sr_wrong(r, r->iw[op->slot_iw][p] != mb, "I-W slot holds something else");
  if (op->kind == TR_OP_I) return;
  r->weight[mb][p]++;
  sr_contribute(r, op, p, 1);
}

static inline void sr_norm(sr_rank *r) {
  sr_wrong(r, !r->counted || !r->loss_done || r->normed, "norm without sums, or again");
  sr_wrong(r, r->zero && (r->squares_of == 0 || r->squares_of != r->ended_sums),
           "norm without the squares of all sums");
  r->normed = 1;
  for (int u = 0; u < r->model->nunit; u++) {
    sr_wrong(r, !r->every && r->summed[u] != 1, "norm of gradients not summed once");
    for (int p = r->model->unit_last_piece[u]; p < r->model->npiece; p++)
      for (int k = 0; k < 2; k++)
        for (int mb = 0; mb < r->program->microbatches; mb++)
          sr_wrong(r, (r->every ? &r->sum : &r->part)[0][u][p].count[k][mb] != 1, "norm of incomplete gradients");
  }
}

static inline void sr_compute(sr_rank *r, const tr_op *op) {
  int mb = op->microbatch;
  if (op->kind <= TR_OP_R) sr_wrong(r, r->normed, "pass after the norm");
  if (op->kind == TR_OP_F)
    for (int p = (int)op->piece_begin; p < (int)op->piece_end; p++) {
      sr_wrong(r, p > 0 && r->forward[mb][p - 1] != 1, "activation has not arrived");
      r->forward[mb][p]++;
      r->fi[op->slot_fi][p] = r->fw[op->slot_fw][p] = (signed char)mb;
      sr_write_area(r, mb, p);
    }
  else if (op->kind == TR_OP_R)
    for (int p = (int)op->piece_begin; p < (int)op->piece_end; p++) sr_recompute(r, op, p);
  else if (op->kind <= TR_OP_W)
    for (int p = (int)op->piece_end; p-- > (int)op->piece_begin;) sr_backward(r, op, p);
  else if (op->kind == TR_OP_NORM)
    sr_norm(r);
  else
    for (int u = op->unit_begin; u < op->unit_end; u++) {
      sr_wrong(r, !r->normed, "state before the norm");
      if (op->kind == TR_OP_UPDATE) {
        r->updated[u]++, r->updates++;
      } else {
        sr_wrong(r, r->updated[u] != 1, "published before its update");
        sr_wrong(r, r->zero && r->gathered[0] != r->model->nunit, "published before all ranks' updates");
        r->published[u]++, r->publishes++;
      }
    }
}

static inline void sr_start_sum(sr_rank *r, const tr_op *op) {
  if (op->role == TR_ROLE_SQUARES) r->gathering[0] = r->ended_sums;
  if (op->role == TR_ROLE_WEIGHTS) r->gathering[0] = r->updates;
  if (op->role == TR_ROLE_PACKED) r->gathering[1] = r->publishes;
  if (op->role == TR_ROLE_LOSS) r->loss_in_sum = r->losses;
  if (op->role != TR_ROLE_GRADIENT) return;
  for (int u = op->unit_begin; u < op->unit_end; u++) r->reading[u]++;
}

static inline void sr_end_gradient(sr_rank *r, const tr_op *op, int u) {
  r->reading[u]--;
  r->summed[u]++;
  for (int p = r->model->unit_last_piece[u]; r->every && p < r->model->npiece; p++)
    for (int k = 0; k < 2; k++)
      for (int mb = 0; mb < SR_MICRO; mb++) {
        unsigned char *sum = &r->sum[u][p].count[k][mb];
        *sum = (unsigned char)((op->first ? 0 : *sum) + r->part[u][p].count[k][mb]);
      }
}

static inline void sr_end_sum(sr_rank *r, const tr_op *op) {
  if (op->role == TR_ROLE_SQUARES) r->squares_of = r->gathering[0];
  if (op->role == TR_ROLE_WEIGHTS) r->gathered[0] = r->gathering[0];
  if (op->role == TR_ROLE_PACKED) r->gathered[1] = r->gathering[1];
  r->ended_sums += op->role == TR_ROLE_GRADIENT;
  if (op->role == TR_ROLE_COUNT) r->counted = 1;
  if (op->role == TR_ROLE_LOSS) {
    sr_wrong(r, r->loss_in_sum != r->program->microbatches, "losses are missing in their sum");
    r->loss_done = 1;
  }
  if (op->role == TR_ROLE_GRADIENT)
    for (int u = op->unit_begin; u < op->unit_end; u++) sr_end_gradient(r, op, u);
}

static inline int sr_ready(const sr_rank *r, uint32_t i) {
  const tr_op *op = &r->program->op[i];
  for (uint32_t e = op->edge_begin; e < op->edge_end; e++)
    if (r->program->edge[e].step_offset == 0 && !r->done[r->program->edge[e].op]) return 0;
  return 1;
}

// One of: the next compute operation, the start of the next sum, the end of any sum under way. 0: none is possible.
static inline int sr_move(sr_rank *r, uint32_t head[2], uint32_t eager) {
  const tr_program *p = r->program;
  for (int lane = 0; lane < 2; lane++)
    while (head[lane] < p->nop && p->op[head[lane]].lane != lane) head[lane]++;
  int can_compute = head[0] < p->nop && sr_ready(r, head[0]), can_start = head[1] < p->nop && sr_ready(r, head[1]),
      nopen = 0;
  uint32_t open[SR_OPS];
  for (uint32_t i = 0; i < p->nop; i++)
    if (r->started[i] && !r->done[i]) open[nopen++] = i;
  if (!can_compute && !can_start && !nopen) return 0;
  int communicate = (can_start || nopen) && (!can_compute || sr_random(&r->random, 8) < eager);
  if (!communicate) {
    sr_compute(r, &p->op[head[0]]);
    r->done[head[0]++] = 1;
  } else if (can_start && (!nopen || sr_random(&r->random, 2))) {
    sr_start_sum(r, &p->op[head[1]]);
    r->started[head[1]++] = 1;
  } else {
    uint32_t i = open[sr_random(&r->random, (uint32_t)nopen)];
    sr_end_sum(r, &p->op[i]);
    r->done[i] = 1;
  }
  return 1;
}

static inline void sr_check_end(sr_rank *r) {
  for (uint32_t i = 0; i < r->program->nop; i++) sr_wrong(r, !r->done[i], "deadlock");
  sr_wrong(r, !r->normed, "no norm");
  for (int mb = 0; mb < r->program->microbatches; mb++)
    for (int p = 0; p < r->model->npiece; p++)
      sr_wrong(r, r->forward[mb][p] != 1 || r->input[mb][p] != 1 || r->weight[mb][p] != 1,
               "pass missing or repeated");
  for (int u = 0; u < r->model->nunit; u++) {
    sr_wrong(r, r->updated[u] != 1, "not updated once");
    sr_wrong(r, r->published[u] != 1, "not published once");
  }
  sr_wrong(r, r->zero && r->gathered[1] != r->model->nunit, "the next step starts before all ranks have published");
}

// NULL: the result is right under the timing drawn from `seed`; `eager` 0..8: how readily communication advances.
static inline const char *sr_run(const tr_program *program, const tr_step_model *model,
                                 const tr_step_options *options, uint64_t seed, uint32_t eager) {
  static sr_rank r; // large; tests have one thread
  memset(&r, 0, sizeof r);
  memset(r.fi, -1, sizeof r.fi);
  memset(r.fw, -1, sizeof r.fw);
  memset(r.iw, -1, sizeof r.iw);
  memset(r.area, -1, sizeof r.area);
  r.program = program;
  r.model = model;
  r.options = options;
  r.every = options->grad_sync == TR_SYNC_EVERY;
  r.zero = options->zero;
  r.random = seed * 2 + 1;
  uint32_t head[2] = {0, 0};
  while (!r.wrong && sr_move(&r, head, eager)) {
  }
  sr_check_end(&r);
  return r.wrong;
}

#endif
