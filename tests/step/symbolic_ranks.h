// SPDX-License-Identifier: MIT
// Ranks that execute step programs on symbols instead of numbers, under any timing that the rules of lanes and channels
// allow, and say whether the step's result would be right. Written from the description of the operations, not from
// the checks it is used to test: what those accept must come out right here under every timing.
//
// Activations are kept per (slot, piece), what crosses stages per slot of a ring: whose it is. A message is read from its
// sender's slot and written to its receiver's at any moment between their start and end, which a channel that holds messages
// makes two moments. A gradient is kept per (unit, piece): how often each micro-batch is in it. Pieces of a chunk from the
// lowest to contribute up to its end are all taken to contribute, each to a parameter of its own, and, where several chunks use
// a unit, all to one that they share: that one is overwritten by the last piece only, and gets a chunk's part with inputs or
// with weights. Of a range that
// is computed again, each piece writes into the one recompute area and reads there what the earlier ones of its range wrote,
// forward and backward; from outside it reads the slots. Without a model a chunk is one piece.
#ifndef TRIREME_TESTS_STEP_SYMBOLIC_RANKS_H
#define TRIREME_TESTS_STEP_SYMBOLIC_RANKS_H

#include "trireme/step/program.h"
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum {
  SR_RANKS = 8,
  SR_PIECES = 16,
  SR_UNITS = 10,
  SR_MICRO = 28,
  SR_OPS = 1024,
  SR_SLOTS = 64,
  SR_CHUNKS = 4,
  SR_RINGS = 16,
  SR_WAYS = 4 // even chunks give a shared gradient with inputs or weights, odd ones too
};

typedef struct sr_gradient {
  unsigned char count[2][SR_PIECES][SR_MICRO];        // [inputs, weights]
  unsigned char shared[SR_WAYS][SR_PIECES][SR_MICRO]; // one parameter of all pieces
} sr_gradient;

typedef struct sr_channel {
  uint32_t op[SR_MICRO];
  int n, started, ended; // ended: read from the sender's slot, or written to the receiver's
  signed char held[SR_MICRO];
} sr_channel;

typedef struct sr_rank {
  const tr_program *program;
  const tr_step_model *model; // NULL: none
  const tr_step_options *options;
  int every, gathers, split;
  unsigned char started[SR_OPS], done[SR_OPS];
  uint32_t head[TR_QUEUE_RINGS], open[SR_OPS]; // heads of all queues but channels
  int nopen;
  sr_channel channel[SR_RINGS];
  int summed[SR_UNITS];  // REDUCEs that have ended, per unit (SYNC_LAST)
  int reading[SR_UNITS]; // REDUCEs under way
  signed char fi[SR_CHUNKS][SR_SLOTS][SR_PIECES], fw[SR_CHUNKS][SR_SLOTS][SR_PIECES],
      iw[SR_CHUNKS][SR_SLOTS][SR_PIECES]; // whose, -1
  signed char ring[SR_RINGS][SR_SLOTS];   // whose, -1: nobody's, or being written
  signed char area[SR_PIECES]; // whose values of this piece are in the recompute area, -1: others lie there
  int temporary[2];            // which pass's temporaries lie in the area for all passes, and in that for a pair's F
  unsigned char forward[SR_MICRO][SR_PIECES], input[SR_MICRO][SR_PIECES], weight[SR_MICRO][SR_PIECES];
  int counted, losses, loss_in_sum, loss_done, normed, updated[SR_UNITS], published[SR_UNITS];
  int ended_sums, sums, squares_of, updates, publishes; // squares_of: sums whose squares are gathered
  int gathered[2], gathering[2];                        // weights, packed weights: units that a GATHER covers
  sr_gradient part[SR_UNITS], sum[SR_UNITS]; // last: a step begins without those of units that are not there
} sr_rank;

typedef struct sr_job {
  sr_rank rank[SR_RANKS];
  int p, capacity;
  uint64_t random;
  int late;          // messages whose RECV could not start yet when their SEND did
  const char *wrong; // first thing that went wrong
} sr_job;

static inline uint32_t sr_random(uint64_t *state, uint32_t n) {
  *state = *state * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)(*state >> 33) % n;
}

static inline void sr_wrong(sr_job *job, int is_wrong, const char *what) {
  if (is_wrong && !job->wrong) job->wrong = what;
}

static inline int sr_is_message(const tr_op *op) { return op->kind == TR_OP_SEND || op->kind == TR_OP_RECV; }
static inline int sr_sums_gradients(const tr_op *op) {
  return op->kind == TR_OP_REDUCE && (op->role == TR_ROLE_GRADIENT || op->role == TR_ROLE_TIED);
}
static inline int sr_over_pipeline(const tr_op *op) {
  return op->kind == TR_OP_REDUCE &&
         (op->role == TR_ROLE_LOSS || op->role == TR_ROLE_SQUARES || op->role == TR_ROLE_TIED);
}

// ---- facts of a rank

static inline int sr_twice(const tr_program *p) {
  for (int c = 0; c < p->nchunk; c++)
    if (p->chunk[c].direction) return 1;
  return 0;
}

static inline int sr_goes_through(const tr_program *p, int chunk, int mb) {
  return mb < p->microbatches && (!sr_twice(p) || (mb >= p->microbatches / 2) == p->chunk[chunk].direction);
}

static inline int sr_begin(const sr_rank *r, int chunk) {
  return r->model ? (int)r->program->chunk[chunk].piece_begin : chunk;
}
static inline int sr_end(const sr_rank *r, int chunk) {
  return r->model ? (int)r->program->chunk[chunk].piece_end : chunk + 1;
}

// Lowest piece of the chunk that contributes to a unit, -1: none.
static inline int sr_lowest(const sr_rank *r, int chunk, int unit) {
  if (r->model->unit_chunk_piece) return r->model->unit_chunk_piece[chunk * r->model->nunit + unit];
  int piece = r->model->unit_last_piece[unit];
  return sr_begin(r, chunk) <= piece && piece < sr_end(r, chunk) ? piece : -1;
}

static inline int sr_highest(const sr_rank *r, int unit) {
  for (int c = r->program->nchunk; c-- > 0;)
    if (sr_lowest(r, c, unit) >= 0) return sr_end(r, c) - 1;
  return -1;
}

// Whether a pass of this kind reads what entered the chunk. B, which is both, counts as I and as W.
static inline int sr_reads(const sr_rank *r, int chunk, int kind, int gradient) {
  if (kind == TR_OP_F || kind == TR_OP_R) return !gradient;
  if (!r->model || !r->model->use || r->options->nrecompute) return 1;
  int use = gradient ? r->model->use[chunk].gradient : r->model->use[chunk].activation;
  return use == TR_OP_W || (use == TR_OP_I && kind != TR_OP_W);
}

// ---- gradients

static inline void sr_contribute(sr_job *job, sr_rank *r, const tr_op *op, int chunk, int mb, int piece, int kind) {
  for (int u = 0; r->model && u < r->model->nunit; u++) {
    int lowest = sr_lowest(r, chunk, u);
    if (lowest < 0 || piece < lowest) continue;
    sr_wrong(job, r->reading[u] > 0, "written while it is summed");
    sr_wrong(job, !r->every && r->summed[u] > 0, "written after it was summed");
    sr_gradient *g = &r->part[u];
    if (op->first) memset(g->count[kind][piece], 0, SR_MICRO);
    g->count[kind][piece][mb]++;
    for (int way = 0; r->model->unit_chunk_piece && way < SR_WAYS; way++) {
      if ((way >> (chunk & 1) & 1) != kind) continue;
      if (op->first && piece == sr_highest(r, u)) memset(g->shared[way], 0, sizeof g->shared[way]);
      g->shared[way][piece][mb]++;
    }
  }
}

static inline void sr_complete(sr_job *job, const sr_rank *r, const sr_gradient *g, int unit) {
  for (int c = 0; c < r->program->nchunk; c++) {
    int lowest = sr_lowest(r, c, unit);
    for (int p = lowest; lowest >= 0 && p < sr_end(r, c); p++)
      for (int mb = 0; mb < r->program->microbatches; mb++) {
        int want = sr_goes_through(r->program, c, mb), wrong = 0;
        for (int k = 0; k < 2; k++) wrong |= g->count[k][p][mb] != want;
        for (int way = 0; r->model->unit_chunk_piece && way < SR_WAYS; way++) wrong |= g->shared[way][p][mb] != want;
        sr_wrong(job, wrong, "norm of incomplete gradients");
      }
  }
}

// ---- recomputation

static inline int sr_same_range(const sr_rank *r, int p, int q) {
  for (int k = 0; r->options && k < r->options->nrecompute; k++) {
    const tr_step_range *range = &r->options->recompute[k];
    if (range->begin <= p && p < range->end) return range->begin <= q && q < range->end;
  }
  return 0;
}

static inline void sr_read_area(sr_job *job, const sr_rank *r, int mb, int p, int last) {
  for (int q = 0; q <= last; q++)
    sr_wrong(job, sr_same_range(r, p, q) && r->area[q] != mb, "the recompute area holds something else");
}

// Values of one range lie over those of every other.
static inline void sr_write_area(sr_job *job, sr_rank *r, int mb, int p) {
  if (!sr_same_range(r, p, p)) return;
  sr_read_area(job, r, mb, p, p - 1);
  for (int q = 0; q < SR_PIECES; q++)
    if (!sr_same_range(r, p, q)) r->area[q] = -1;
  r->area[p] = (signed char)mb;
}

// ---- passes

// A pass, or one half of an X, of which an operation has only some of the slots (-2: not known).
typedef struct sr_pass {
  int kind, chunk, mb, begin, end;
  int in, out, din, dout, fi, fw, iw;
} sr_pass;

static inline sr_pass sr_pass_of(const sr_rank *r, const tr_op *op) {
  int whole = !r->model, chunk = op->chunk;
  return (sr_pass){.kind = op->kind == TR_OP_X ? TR_OP_F : op->kind,
                   .chunk = chunk,
                   .mb = op->microbatch,
                   .begin = whole ? chunk : (int)op->piece_begin,
                   .end = whole ? chunk + 1 : (int)op->piece_end,
                   .in = op->slot_in,
                   .out = op->slot_out,
                   .din = op->slot_din,
                   .dout = op->slot_dout,
                   .fi = op->slot_fi,
                   .fw = op->slot_fw,
                   .iw = op->slot_iw};
}

static inline sr_pass sr_back_of(const sr_rank *r, const tr_op *op) {
  const tr_program *p = r->program;
  sr_pass back = {.kind = TR_OP_B, .mb = op->back_microbatch, .in = -2, .fi = -2, .fw = -2, .iw = -1};
  for (int c = 0; c < p->nchunk; c++)
    if (p->chunk[c].stage == op->back_stage && sr_goes_through(p, c, back.mb)) back.chunk = c;
  back.begin = back.chunk;
  back.end = back.chunk + 1;
  back.din = op->slot_din;
  back.dout = op->slot_dout;
  return back;
}

static inline void sr_read_ring(sr_job *job, const sr_rank *r, int ring, int slot, int mb, const char *what) {
  if (ring < 0 || slot == -2) return;
  sr_wrong(job, slot < 0 || slot >= r->program->ring[ring].slots || r->ring[ring][slot] != mb, what);
}

static inline void sr_write_ring(sr_job *job, sr_rank *r, int ring, int slot, int tag) {
  if (ring < 0) return;
  sr_wrong(job, slot < 0 || slot >= r->program->ring[ring].slots, "no slot for what leaves");
  if (!job->wrong) r->ring[ring][slot] = (signed char)tag;
}

static inline void sr_read_class(sr_job *job, signed char whose[][SR_PIECES], int slot, int piece, int mb,
                                 const char *what) {
  if (slot != -2) sr_wrong(job, slot < 0 || whose[slot][piece] != mb, what);
}

static inline void sr_forward(sr_job *job, sr_rank *r, const sr_pass *h) {
  const tr_chunk *chunk = &r->program->chunk[h->chunk];
  sr_wrong(job, h->fi < 0 || h->fw < 0, "no slot for what is kept");
  for (int p = h->begin; p < h->end && !job->wrong; p++) {
    sr_read_ring(job, r, chunk->ring_in, h->in, h->mb, "activation has not arrived, or is gone");
    sr_wrong(job, p > sr_begin(r, h->chunk) && r->forward[h->mb][p - 1] != 1, "a piece is skipped");
    r->forward[h->mb][p]++;
    r->fi[h->chunk][h->fi][p] = r->fw[h->chunk][h->fw][p] = (signed char)h->mb;
    sr_write_area(job, r, h->mb, p);
    if (p == sr_end(r, h->chunk) - 1) sr_write_ring(job, r, chunk->ring_out, h->out, h->mb);
  }
}

static inline void sr_recompute(sr_job *job, sr_rank *r, const sr_pass *h, int p) {
  sr_wrong(job, r->forward[h->mb][p] != 1, "computed again before the first time");
  sr_read_class(job, r->fw[h->chunk], h->fw, p, h->mb, "F-W slot holds something else");
  if (!r->split) sr_read_class(job, r->fi[h->chunk], h->fi, p, h->mb, "F-I slot holds something else");
  sr_read_ring(job, r, r->program->chunk[h->chunk].ring_in, h->in, h->mb, "activation is gone");
  sr_write_area(job, r, h->mb, p);
}

static inline void sr_backward_inputs(sr_job *job, sr_rank *r, const tr_op *op, const sr_pass *h, int p) {
  const tr_chunk *chunk = &r->program->chunk[h->chunk];
  int mb = h->mb, last = p == sr_end(r, h->chunk) - 1;
  sr_wrong(job, r->model && !r->counted, "scale is not known");
  sr_wrong(job, r->forward[mb][p] != 1, "backward before forward");
  sr_read_class(job, r->fi[h->chunk], h->fi, p, mb, "F-I slot holds something else");
  sr_wrong(job, !last && r->input[mb][p + 1] != 1, "a piece is skipped");
  sr_read_ring(job, r, chunk->ring_din, h->din, mb, "gradient has not arrived, or is gone");
  r->input[mb][p]++;
  r->losses += last && chunk->ring_out < 0;
  sr_contribute(job, r, op, h->chunk, mb, p, 0);
  sr_write_ring(job, r, chunk->ring_dout, h->dout, p == sr_begin(r, h->chunk) ? mb : -1);
  if (h->kind != TR_OP_I) return;
  sr_wrong(job, h->iw < 0, "no slot for what is kept");
  if (!job->wrong) r->iw[h->chunk][h->iw][p] = (signed char)mb;
}

static inline void sr_backward(sr_job *job, sr_rank *r, const tr_op *op, const sr_pass *h) {
  const tr_chunk *chunk = &r->program->chunk[h->chunk];
  int mb = h->mb;
  for (int p = h->end; p-- > h->begin && !job->wrong;) {
    sr_read_class(job, r->fw[h->chunk], h->fw, p, mb, "F-W slot holds something else");
    sr_read_area(job, r, mb, p, p);
    if (sr_reads(r, h->chunk, h->kind, 0)) sr_read_ring(job, r, chunk->ring_in, h->in, mb, "activation is gone");
    if (h->kind != TR_OP_W) sr_backward_inputs(job, r, op, h, p);
    if (h->kind == TR_OP_I) continue;
    if (h->kind == TR_OP_W) {
      sr_read_class(job, r->iw[h->chunk], h->iw, p, mb, "I-W slot holds something else");
      if (sr_reads(r, h->chunk, h->kind, 1)) sr_read_ring(job, r, chunk->ring_din, h->din, mb, "gradient is gone");
    }
    r->weight[mb][p]++;
    sr_contribute(job, r, op, h->chunk, mb, p, 1);
  }
}

// What a part of a pass left for the next one must be there still.
static inline void sr_temporaries(sr_job *job, sr_rank *r, const tr_op *op) {
  if (!r->model || op->kind == TR_OP_R) return;
  int forward = op->kind == TR_OP_F, own = (op->kind * SR_CHUNKS + op->chunk) * SR_MICRO + op->microbatch,
      *area = &r->temporary[op->pair && forward],
      begins = forward ? (int)op->piece_begin == sr_begin(r, op->chunk) : (int)op->piece_end == sr_end(r, op->chunk);
  sr_wrong(job, !begins && *area != own, "temporaries are gone");
  *area = own;
}

static inline void sr_do_pass(sr_job *job, sr_rank *r, const tr_op *op) {
  sr_pass half = sr_pass_of(r, op);
  sr_wrong(job, r->normed, "pass after the norm");
  sr_temporaries(job, r, op);
  if (half.kind == TR_OP_F)
    sr_forward(job, r, &half);
  else if (half.kind == TR_OP_R)
    for (int p = half.begin; p < half.end; p++) sr_recompute(job, r, &half, p);
  else
    sr_backward(job, r, op, &half);
  if (op->kind != TR_OP_X) return;
  half = sr_back_of(r, op);
  sr_backward(job, r, op, &half);
}

// ---- sums and state

static inline void sr_norm(sr_job *job, sr_rank *r) {
  sr_wrong(job, !r->counted || !r->loss_done || r->normed, "norm without sums, or again");
  sr_wrong(job, r->gathers && r->squares_of != r->sums, "norm without the squares of all sums");
  r->normed = 1;
  for (int u = 0; u < r->model->nunit; u++) {
    sr_wrong(job, !r->every && r->summed[u] != 1, "norm of gradients not summed once");
    sr_complete(job, r, r->every ? &r->sum[u] : &r->part[u], u);
  }
}

static inline void sr_compute(sr_job *job, sr_rank *r, const tr_op *op) {
  if (op->kind <= TR_OP_R)
    sr_do_pass(job, r, op);
  else if (op->kind == TR_OP_NORM)
    sr_norm(job, r);
  else
    for (int u = op->unit_begin; u < op->unit_end; u++) {
      sr_wrong(job, !r->normed, "state before the norm");
      if (op->kind == TR_OP_UPDATE) {
        r->updated[u]++, r->updates++;
      } else {
        sr_wrong(job, r->updated[u] != 1, "published before its update");
        sr_wrong(job, r->options->zero && r->gathered[0] != r->model->nunit, "published before all ranks' updates");
        r->published[u]++, r->publishes++;
      }
    }
}

static inline void sr_start_sum(sr_job *job, sr_rank *r, const tr_op *op) {
  if (op->role == TR_ROLE_SQUARES) r->gathering[0] = r->ended_sums;
  if (op->role == TR_ROLE_WEIGHTS) r->gathering[0] = r->updates;
  if (op->role == TR_ROLE_PACKED) r->gathering[1] = r->publishes;
  if (op->role == TR_ROLE_LOSS) r->loss_in_sum = r->losses;
  if (!sr_sums_gradients(op)) return;
  for (int u = op->unit_begin; r->model && u < op->unit_end; u++) r->reading[u]++;
  for (int mb = 0; !r->model && mb < r->program->microbatches; mb++)
    sr_wrong(job, sr_goes_through(r->program, op->chunk, mb) && r->weight[mb][op->chunk] != 1,
             "gradients are summed before they are there");
}

// grad_sync every, which has one chunk and so nothing that chunks share.
static inline void sr_add_sum(sr_rank *r, int unit, int first) {
  for (int k = 0; k < 2; k++)
    for (int p = 0; p < r->model->npiece; p++)
      for (int mb = 0; mb < r->program->microbatches; mb++) {
        unsigned char *sum = &r->sum[unit].count[k][p][mb];
        *sum = (unsigned char)((first ? 0 : *sum) + r->part[unit].count[k][p][mb]);
      }
}

static inline void sr_end_sum(sr_job *job, sr_rank *r, const tr_op *op) {
  if (op->role == TR_ROLE_SQUARES) r->squares_of = r->gathering[0];
  if (op->role == TR_ROLE_WEIGHTS) r->gathered[0] = r->gathering[0];
  if (op->role == TR_ROLE_PACKED) r->gathered[1] = r->gathering[1];
  r->ended_sums += sr_sums_gradients(op);
  if (op->role == TR_ROLE_COUNT) r->counted = 1;
  if (op->role == TR_ROLE_LOSS) {
    int losses = 0;
    for (int k = 0; k < job->p; k++) losses += job->rank[k].loss_in_sum;
    sr_wrong(job, losses != r->program->microbatches, "losses are missing in their sum");
    r->loss_done = 1;
  }
  for (int u = op->unit_begin; r->model && sr_sums_gradients(op) && u < op->unit_end; u++) {
    r->reading[u]--;
    r->summed[u]++;
    if (r->every) sr_add_sum(r, u, op->first);
  }
}

// ---- timing

typedef enum sr_move_kind { SR_COMPUTE, SR_START, SR_END, SR_MESSAGE, SR_TAKE, SR_DELIVER } sr_move_kind;
typedef struct sr_move {
  sr_rank *rank;
  sr_move_kind kind;
  uint32_t at; // operation, or ring
} sr_move;

static inline int sr_ready(const sr_rank *r, uint32_t i) {
  const tr_op *op = &r->program->op[i];
  for (uint32_t e = op->edge_begin; e < op->edge_end; e++)
    if (r->program->edge[e].step_offset == 0 && !r->done[r->program->edge[e].op]) return 0;
  return 1;
}

// The other end of a ring's channel.
static inline sr_channel *sr_partner(sr_job *job, const sr_rank *r, int ring, sr_rank **peer) {
  const tr_ring *own = &r->program->ring[ring];
  *peer = &job->rank[own->peer];
  for (int k = 0; k < (*peer)->program->nring; k++) {
    const tr_ring *other = &(*peer)->program->ring[k];
    if (other->stage == own->stage && other->role == own->role && other->direction == own->direction)
      return &(*peer)->channel[k];
  }
  return NULL;
}

// A collective over the pipeline ends when all who take part have started it.
static inline int sr_can_end(const sr_job *job, const tr_op *op) {
  if (!sr_over_pipeline(op) || job->p == 1) return 1;
  for (int k = 0; k < job->p; k++) {
    const sr_rank *r = &job->rank[k];
    for (uint32_t i = 0; i < r->program->nop; i++)
      if (sr_over_pipeline(&r->program->op[i]) && r->program->op[i].role == op->role && !r->started[i]) return 0;
  }
  return 1;
}

static inline int sr_list_channel(sr_job *job, sr_rank *r, int ring, sr_move *move) {
  int n = 0;
  sr_channel *own = &r->channel[ring];
  sr_rank *peer;
  if (own->n == 0) return 0;
  if (own->started < own->n && sr_ready(r, own->op[own->started]))
    move[n++] = (sr_move){r, SR_MESSAGE, (uint32_t)ring};
  sr_channel *other = sr_partner(job, r, ring, &peer);
  if (!other || r->program->op[own->op[0]].kind != TR_OP_RECV) {
    int received = other ? other->ended : 0;
    if (own->ended < own->started && own->ended < received + job->capacity)
      move[n++] = (sr_move){r, SR_TAKE, (uint32_t)ring};
    return n;
  }
  if (own->ended < own->started && own->ended < other->started) move[n++] = (sr_move){r, SR_DELIVER, (uint32_t)ring};
  return n;
}

static inline int sr_list_moves(sr_job *job, sr_move *compute, int *ncompute, sr_move *other) {
  int n = 0;
  *ncompute = 0;
  for (int k = 0; k < job->p; k++) {
    sr_rank *r = &job->rank[k];
    const tr_program *p = r->program;
    for (uint32_t q = 0; q < TR_QUEUE_RINGS; q++) {
      while (r->head[q] < p->nop && tr_op_queue(&p->op[r->head[q]]) != q) r->head[q]++;
      if (r->head[q] == p->nop || !sr_ready(r, r->head[q])) continue;
      if (q == TR_QUEUE_COMPUTE)
        compute[(*ncompute)++] = (sr_move){r, SR_COMPUTE, r->head[q]};
      else
        other[n++] = (sr_move){r, SR_START, r->head[q]};
    }
    for (int i = 0; i < r->nopen && i < 4; i++)
      if (sr_can_end(job, &p->op[r->open[i]])) other[n++] = (sr_move){r, SR_END, (uint32_t)i};
    for (int ring = 0; ring < p->nring; ring++) n += sr_list_channel(job, r, ring, other + n);
  }
  return n;
}

// The sender's slot is read: what lies there now travels.
static inline void sr_take(sr_job *job, sr_rank *r, sr_channel *c, int ring) {
  const tr_op *op = &r->program->op[c->op[c->ended]];
  sr_wrong(job, r->ring[ring][op->slot_in] != op->microbatch, "something else is sent");
  c->held[c->ended] = r->ring[ring][op->slot_in];
  r->done[c->op[c->ended++]] = 1;
}

static inline void sr_deliver(sr_job *job, sr_rank *r, int ring) {
  sr_rank *peer;
  sr_channel *own = &r->channel[ring], *other = sr_partner(job, r, ring, &peer);
  if (other->ended == own->ended) sr_take(job, peer, other, (int)(other - peer->channel));
  const tr_op *op = &r->program->op[own->op[own->ended]];
  sr_wrong(job, other->held[own->ended] != op->microbatch, "something else is received");
  r->ring[ring][op->slot_in] = (signed char)op->microbatch;
  r->done[own->op[own->ended++]] = 1;
}

static inline void sr_start_message(sr_job *job, sr_rank *r, int ring) {
  sr_rank *peer;
  sr_channel *own = &r->channel[ring], *other = sr_partner(job, r, ring, &peer);
  const tr_op *op = &r->program->op[own->op[own->started]];
  if (op->kind == TR_OP_RECV)
    r->ring[ring][op->slot_in] = -1;
  else if (other && own->started < other->n)
    job->late += !sr_ready(peer, other->op[own->started]);
  own->started++;
}

static inline void sr_make_move(sr_job *job, const sr_move *m) {
  sr_rank *r = m->rank;
  switch (m->kind) {
  case SR_COMPUTE:
    sr_compute(job, r, &r->program->op[m->at]);
    r->done[r->head[TR_QUEUE_COMPUTE]++] = 1;
    break;
  case SR_START:
    if (r->program->op[m->at].kind <= TR_OP_W)
      sr_temporaries(job, r, &r->program->op[m->at]);
    else
      sr_start_sum(job, r, &r->program->op[m->at]);
    r->started[m->at] = 1;
    r->open[r->nopen++] = r->head[tr_op_queue(&r->program->op[m->at])]++;
    break;
  case SR_END: {
    uint32_t i = r->open[m->at];
    if (r->program->op[i].kind <= TR_OP_W)
      sr_do_pass(job, r, &r->program->op[i]);
    else
      sr_end_sum(job, r, &r->program->op[i]);
    r->open[m->at] = r->open[--r->nopen];
    r->done[i] = 1;
    break;
  }
  case SR_MESSAGE: sr_start_message(job, r, (int)m->at); break;
  case SR_TAKE: sr_take(job, r, &r->channel[m->at], (int)m->at); break;
  case SR_DELIVER: sr_deliver(job, r, (int)m->at); break;
  }
}

// ---- a step

static inline void sr_check_end(sr_job *job, const sr_rank *r) {
  const tr_program *p = r->program;
  for (uint32_t i = 0; i < p->nop; i++) sr_wrong(job, !r->done[i], "deadlock");
  for (int c = 0; c < p->nchunk; c++)
    for (int mb = 0; mb < p->microbatches; mb++)
      for (int piece = sr_begin(r, c); sr_goes_through(p, c, mb) && piece < sr_end(r, c); piece++)
        sr_wrong(job, r->forward[mb][piece] != 1 || r->input[mb][piece] != 1 || r->weight[mb][piece] != 1,
                 "pass missing or repeated");
  if (!r->model) return;
  sr_wrong(job, !r->normed, "no norm");
  for (int u = 0; u < r->model->nunit; u++) {
    sr_wrong(job, r->updated[u] != 1, "not updated once");
    sr_wrong(job, r->published[u] != 1, "not published once");
  }
  sr_wrong(job, r->options->zero && r->gathered[1] != r->model->nunit,
           "the next step starts before all ranks have published");
}

static inline void sr_set_rank(sr_rank *r, const tr_program *program, const tr_step_model *model,
                               const tr_step_options *options) {
  memset(r, 0, offsetof(sr_rank, part));
  memset(r->part, 0, sizeof *r->part * (size_t)(model ? model->nunit : 0));
  memset(r->sum, 0, sizeof *r->sum * (size_t)(model ? model->nunit : 0));
  memset(r->fi, -1, sizeof r->fi);
  memset(r->fw, -1, sizeof r->fw);
  memset(r->iw, -1, sizeof r->iw);
  memset(r->ring, -1, sizeof r->ring);
  memset(r->area, -1, sizeof r->area);
  r->temporary[0] = r->temporary[1] = -1;
  r->program = program;
  r->model = model;
  r->options = options;
  r->every = options && options->grad_sync == TR_SYNC_EVERY;
  r->gathers = options && (options->zero || program->p > 1);
  for (uint32_t i = 0; i < program->nop; i++) {
    const tr_op *op = &program->op[i];
    r->split |= op->kind == TR_OP_W;
    r->sums += sr_sums_gradients(op);
    if (sr_is_message(op) && r->channel[op->ring].n < SR_MICRO) r->channel[op->ring].op[r->channel[op->ring].n++] = i;
  }
}

// Ranks are set; NULL: the result is right under the timing drawn from `seed`; `eager` 0..8: how readily communication
// advances.
static inline const char *sr_run_job(sr_job *job, uint64_t seed, uint32_t eager) {
  static sr_move compute[SR_RANKS], other[SR_RANKS * (8 + 2 * SR_RINGS)];
  job->random = seed * 2 + 1;
  job->wrong = NULL;
  job->late = 0;
  while (!job->wrong) {
    int ncompute, n = sr_list_moves(job, compute, &ncompute, other);
    if (ncompute + n == 0) break;
    if (n > 0 && (ncompute == 0 || sr_random(&job->random, 8) < eager))
      sr_make_move(job, &other[sr_random(&job->random, (uint32_t)n)]);
    else
      sr_make_move(job, &compute[sr_random(&job->random, (uint32_t)ncompute)]);
  }
  for (int k = 0; k < job->p; k++) sr_check_end(job, &job->rank[k]);
  return job->wrong;
}

// One rank alone.
static inline const char *sr_run(const tr_program *program, const tr_step_model *model,
                                 const tr_step_options *options, uint64_t seed, uint32_t eager) {
  static sr_job job; // large; tests have one thread
  job.p = 1;
  sr_set_rank(&job.rank[0], program, model, options);
  return sr_run_job(&job, seed, eager);
}

#endif
