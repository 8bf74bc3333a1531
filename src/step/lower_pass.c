// SPDX-License-Identifier: MIT
// Writing passes as operations. A backward pass is cut only where a bucket becomes complete, because that is where a REDUCE
// has to start, and where values have to be computed again before it can go on. The two passes of an X are cut where pieces
// communicate, and their parts alternate: while one pass's values travel, the other computes.
//
//   compute         forward attention | backward MLP     | forward MLP       | backward attention
//   communication   backward combine  | forward dispatch | backward dispatch | forward combine
#include "step/lower_internal.h"
#include <stdlib.h>

// A pass that is being written: pieces [begin, end) are left.
typedef struct pass {
  const tr__half *half;
  int begin, end;
  uint32_t last;             // its last operation so far
  uint32_t after[3], nafter; // what ends all that came before it
  int bucket, stop;          // buckets [bucket, stop) become complete in it
} pass;

static const tr_chunk *chunk_of(const tr__lowering *low, const tr__half *h) { return &low->program->chunk[h->chunk]; }
static int is_backward(int kind) { return kind == TR_OP_B || kind == TR_OP_I; }

// ---- messages

static uint32_t *user_of(const tr__lowering *low, int ring, int slot) {
  return &low->user[low->slot_base[ring] + (uint32_t)slot];
}

static int has_peer(const tr__lowering *low, int ring) { return ring >= 0 && low->program->ring[ring].peer >= 0; }

static uint32_t *recv_of(const tr__lowering *low, int gradient, int chunk, int microbatch) {
  return &low->recv[gradient][(size_t)chunk * (size_t)low->program->microbatches + (size_t)microbatch];
}

static tr_op new_message(const tr__lowering *low, tr_op_kind kind, int ring, int chunk, int microbatch, int slot) {
  const tr_ring *r = &low->program->ring[ring];
  tr_op op = tr__op_new(kind, TR_LANE_COMM);
  op.role = r->role;
  op.stage = r->stage;
  op.peer = r->peer;
  op.ring = ring;
  op.chunk = (uint16_t)chunk;
  op.microbatch = microbatch;
  op.slot_in = (int16_t)slot;
  return op;
}

static void append_recv(tr__lowering *low, const tr__message *m) {
  int forward = m->role == TR_ROLE_ACTIVATION,
      chunk = tr__lower_chunk(low->program, m->stage + forward, m->direction);
  uint32_t op = tr__lower_append(low, new_message(low, TR_OP_RECV, m->ring, chunk, m->microbatch, m->slot)),
           user = *user_of(low, m->ring, m->slot);
  if (user != TR__NO_OP) tr__lower_edge(low, op, user, 0);
  *recv_of(low, !forward, chunk, m->microbatch) = op;
}

static void append_send(tr__lowering *low, const tr__half *h, int ring, int slot, uint32_t after) {
  if (!has_peer(low, ring)) return;
  uint32_t op = tr__lower_append(low, new_message(low, TR_OP_SEND, ring, h->chunk, h->microbatch, slot));
  tr__lower_edge(low, op, after, 0);
  *user_of(low, ring, slot) = op;
}

// `op` reads what has been received.
static void wait_for_input(tr__lowering *low, const tr__half *h, uint32_t op) {
  if (h->kind != TR_OP_F && !is_backward(h->kind)) return;
  int gradient = h->kind != TR_OP_F, ring = gradient ? chunk_of(low, h)->ring_din : chunk_of(low, h)->ring_in;
  if (has_peer(low, ring)) tr__lower_edge(low, op, *recv_of(low, gradient, h->chunk, h->microbatch), 0);
}

// `op` writes what will be sent.
static void wait_for_output(tr__lowering *low, const tr__half *h, uint32_t op) {
  const tr_chunk *chunk = chunk_of(low, h);
  int ring = h->kind == TR_OP_F ? chunk->ring_out : is_backward(h->kind) ? chunk->ring_dout : -1;
  if (!has_peer(low, ring)) return;
  uint32_t user = *user_of(low, ring, h->kind == TR_OP_F ? h->slot_out : h->slot_dout);
  if (user != TR__NO_OP) tr__lower_edge(low, op, user, 0);
}

// The pass has ended with `op`: what it made leaves, what it was the last to read may be overwritten.
static void end_pass(tr__lowering *low, const tr__half *h, uint32_t op) {
  const tr_chunk *chunk = chunk_of(low, h);
  tr_step_use use = tr__lower_use(low->model, low->options, h->chunk);
  if (h->kind == TR_OP_F) append_send(low, h, chunk->ring_out, h->slot_out, op);
  if (is_backward(h->kind)) append_send(low, h, chunk->ring_dout, h->slot_dout, op);
  if (has_peer(low, chunk->ring_in) && tr__reads_last(h->kind, use.activation))
    *user_of(low, chunk->ring_in, h->slot_in) = op;
  if (has_peer(low, chunk->ring_din) && h->kind != TR_OP_F && tr__reads_last(h->kind, use.gradient))
    *user_of(low, chunk->ring_din, h->slot_din) = op;
}

// ---- operations of a pass

static tr_op new_pass_op(const tr__lowering *low, const tr__half *h) {
  tr_op op = tr__op_new((tr_op_kind)h->kind, TR_LANE_COMPUTE);
  op.stage = chunk_of(low, h)->stage;
  op.chunk = h->chunk;
  op.microbatch = h->microbatch;
  op.first = h->first;
  op.last = h->last;
  op.pair = h->pair;
  op.slot_in = h->slot_in;
  op.slot_out = h->slot_out;
  op.slot_din = h->slot_din;
  op.slot_dout = h->slot_dout;
  op.slot_fi = h->fi;
  op.slot_fw = h->fw;
  op.slot_iw = h->iw;
  if (h->pair) {
    const tr__half *back = h->kind == TR_OP_F ? h + 1 : h;
    op.back_stage = chunk_of(low, back)->stage;
    op.back_microbatch = back->microbatch;
  }
  return op;
}

static void append_reduce(tr__lowering *low, int bucket, int mb, uint32_t after) {
  const tr_bucket *b = &low->program->bucket[bucket];
  tr_op op = tr__op_new(TR_OP_REDUCE, TR_LANE_COMM);
  op.role = tr__lower_is_tied(low->model, b->unit_begin) ? TR_ROLE_TIED : TR_ROLE_GRADIENT;
  op.bucket = (uint16_t)bucket;
  op.unit_begin = (uint16_t)b->unit_begin;
  op.unit_end = (uint16_t)b->unit_end;
  op.microbatch = mb;
  op.group = 0;
  op.first = mb == 0 || low->options->grad_sync == TR_SYNC_LAST;
  op.last = low->options->grad_sync == TR_SYNC_LAST || mb == low->program->microbatches - 1;
  tr__lower_edge(low, tr__lower_append(low, op), after, 0);
}

static pass begin_pass(const tr__lowering *low, const tr__half *h) {
  const tr_chunk *chunk = chunk_of(low, h);
  pass p = {.half = h,
            .begin = (int)chunk->piece_begin,
            .end = (int)chunk->piece_end,
            .last = TR__NO_OP,
            .after = {low->computed},
            .nafter = 1};
  for (uint32_t i = 0; i < low->njoin; i++) p.after[p.nafter++] = low->join[i];
  if (h->kind != TR_OP_B && h->kind != TR_OP_W) return p;
  if (low->options->grad_sync == TR_SYNC_EVERY) {
    p.stop = low->program->nbucket;
    return p;
  }
  while (p.bucket < low->program->nbucket && low->ready[p.bucket].entry < h->entry) p.bucket++;
  for (p.stop = p.bucket; p.stop < low->program->nbucket && low->ready[p.stop].entry == h->entry;) p.stop++;
  return p;
}

// A pass that begins in the communication lane comes after all before it, as it would in the other.
static void begin_part(tr__lowering *low, const pass *p, uint32_t op) {
  wait_for_input(low, p->half, op);
  if (low->program->op[op].lane != TR_LANE_COMM) return;
  for (uint32_t i = 0; i < p->nafter; i++) tr__lower_edge(low, op, p->after[i], 0);
}

// Writes pieces [begin, end), which are the next of the pass.
static void append_part(tr__lowering *low, pass *p, int begin, int end, tr_lane lane) {
  const tr_chunk *chunk = chunk_of(low, p->half);
  int forward = p->half->kind == TR_OP_F,
      ends = forward ? end == (int)chunk->piece_end : begin == (int)chunk->piece_begin;
  tr_op op = new_pass_op(low, p->half);
  op.lane = (uint8_t)lane;
  op.piece_begin = (uint32_t)begin;
  op.piece_end = (uint32_t)end;
  if (forward && !ends) op.slot_out = -1;
  uint32_t index = tr__lower_append(low, op);
  if (low->failed) return;
  if (p->last == TR__NO_OP)
    begin_part(low, p, index);
  else if (lane == TR_LANE_COMM || low->program->op[p->last].lane == TR_LANE_COMM)
    tr__lower_edge(low, index, p->last, 0);
  if (forward ? ends : p->last == TR__NO_OP) wait_for_output(low, p->half, index);
  if (forward)
    p->begin = end;
  else
    p->end = begin;
  p->last = index;
  if (ends) end_pass(low, p->half, index);
  for (; p->bucket < p->stop && low->program->bucket[p->bucket].last_piece >= begin; p->bucket++)
    append_reduce(low, p->bucket, p->half->microbatch, index);
}

// ---- recomputation

static int is_held(const tr__lowering *low, int range, int microbatch) {
  return range == low->held && microbatch == low->held_for;
}

// Fills the recompute area for the backward pass that comes to piece `end` - 1, if it reads there and finds another
// range's values. A split pass has given back its F-I slot before W, so R reads F-W only.
static void append_recompute(tr__lowering *low, const tr__half *h, int end) {
  const tr_step_range *range = low->options->recompute;
  int r = low->options->nrecompute - 1;
  while (r >= 0 && range[r].begin >= end) r--;
  if (r < 0 || range[r].end < end || is_held(low, r, h->microbatch)) return;
  tr__half again = *h;
  again.kind = TR_OP_R;
  again.first = again.last = again.pair = 0;
  again.slot_out = again.slot_din = again.slot_dout = again.iw = -1;
  if (low->split) again.fi = -1;
  tr_op op = new_pass_op(low, &again);
  op.piece_begin = (uint32_t)range[r].begin;
  op.piece_end = (uint32_t)range[r].end;
  tr__lower_append(low, op);
  low->held = r;
  low->held_for = h->microbatch;
}

// Where the part of a pass that starts below `end` stops: at `begin`, or before that where the area has to be filled.
static int cut_for_recompute(const tr__lowering *low, int microbatch, int begin, int end) {
  for (int r = 0; r < low->options->nrecompute; r++) {
    int top = low->options->recompute[r].end;
    if (!is_held(low, r, microbatch) && top > begin && top < end) begin = top;
  }
  return begin;
}

// The area holds the chunk's last range now.
static void fill_area(tr__lowering *low, const tr__half *h) {
  const tr_chunk *chunk = chunk_of(low, h);
  for (int r = 0; r < low->options->nrecompute; r++)
    if (low->options->recompute[r].begin >= (int)chunk->piece_begin &&
        low->options->recompute[r].end <= (int)chunk->piece_end) {
      low->held = r;
      low->held_for = h->microbatch;
    }
}

// ---- passes

// Pieces from the last that is left down to `stop`.
static void backward_to(tr__lowering *low, pass *p, int stop) {
  while (p->end > stop && !low->failed) {
    int begin = stop;
    if (p->bucket < p->stop && low->options->dp > 1 && low->program->bucket[p->bucket].last_piece > begin)
      begin = low->program->bucket[p->bucket].last_piece;
    append_recompute(low, p->half, p->end);
    append_part(low, p, cut_for_recompute(low, p->half->microbatch, begin, p->end), p->end, TR_LANE_COMPUTE);
  }
}

static int is_comm(const tr__lowering *low, int piece) {
  for (int i = 0; i < low->model->ncomm; i++)
    if (low->model->comm_piece[i] == piece) return 1;
  return 0;
}

// Up to and with the next piece that communicates.
static void backward_turn(tr__lowering *low, pass *p) {
  int stop = p->end;
  while (stop > p->begin && !is_comm(low, stop - 1)) stop--;
  backward_to(low, p, stop);
  if (p->end > p->begin && !low->failed) append_part(low, p, p->end - 1, p->end, TR_LANE_COMM);
}

static void forward_turn(tr__lowering *low, pass *p) {
  int stop = p->begin;
  while (stop < p->end && !is_comm(low, stop)) stop++;
  if (stop > p->begin) append_part(low, p, p->begin, stop, TR_LANE_COMPUTE);
  if (p->end > p->begin && !low->failed) append_part(low, p, p->begin, p->begin + 1, TR_LANE_COMM);
}

static void join_pair(tr__lowering *low, const pass *p) {
  if (!low->failed && low->program->op[p->last].lane == TR_LANE_COMM) low->join[low->njoin++] = p->last;
}

static void lower_pair(tr__lowering *low, const tr__half *h) {
  pass forward = begin_pass(low, h), backward = begin_pass(low, h + 1);
  if (low->options->nrecompute > 0 || low->model->ncomm == 0) {
    append_part(low, &forward, forward.begin, forward.end, TR_LANE_COMPUTE);
    fill_area(low, h);
    backward_to(low, &backward, backward.begin);
    return;
  }
  while ((forward.begin < forward.end || backward.begin < backward.end) && !low->failed) {
    if (backward.begin < backward.end) backward_turn(low, &backward);
    if (forward.begin < forward.end) forward_turn(low, &forward);
  }
  low->njoin = 0; // what is left of it, both halves have waited for
  join_pair(low, &backward);
  join_pair(low, &forward);
}

// grad_sync every: the pass overwrites gradients that the previous micro-batch's sums still read.
static void wait_for_sums(tr__lowering *low, int microbatch, uint32_t op) {
  for (uint32_t i = 0; i < op && !low->failed; i++) {
    const tr_op *sum = &low->program->op[i];
    if (sum->kind == TR_OP_REDUCE && sum->role == TR_ROLE_GRADIENT && sum->microbatch == microbatch)
      tr__lower_edge(low, op, i, 0);
  }
}

static void lower_pass(tr__lowering *low, const tr__half *h) {
  pass p = begin_pass(low, h);
  uint32_t first = low->program->nop;
  if (h->kind == TR_OP_R) return; // recomputation stands where it is needed
  if (h->kind == TR_OP_F) {
    append_part(low, &p, p.begin, p.end, TR_LANE_COMPUTE);
    fill_area(low, h);
    return;
  }
  backward_to(low, &p, p.begin);
  if (low->options->grad_sync == TR_SYNC_EVERY && is_backward(h->kind) && h->microbatch > 0)
    wait_for_sums(low, h->microbatch - 1, first);
}

// Without a model: one operation for all of it.
static void lower_whole(tr__lowering *low, const tr__half *h) {
  const tr__half *back = h->pair ? h + 1 : NULL;
  tr_op op = new_pass_op(low, h);
  if (back) {
    op.kind = TR_OP_X;
    op.pair = 0;
    op.first = back->first;
    op.last = back->last;
    op.slot_din = back->slot_din;
    op.slot_dout = back->slot_dout;
  }
  uint32_t index = tr__lower_append(low, op);
  for (const tr__half *each = h; each; each = each == h ? back : NULL) {
    wait_for_input(low, each, index);
    wait_for_output(low, each, index);
    end_pass(low, each, index);
    if (!each->last || (each->kind != TR_OP_B && each->kind != TR_OP_W)) continue;
    tr_op sum = tr__op_new(TR_OP_REDUCE, TR_LANE_COMM);
    sum.role = TR_ROLE_GRADIENT;
    sum.stage = chunk_of(low, each)->stage;
    sum.chunk = sum.bucket = each->chunk;
    sum.microbatch = each->microbatch;
    sum.first = sum.last = 1;
    tr__lower_edge(low, tr__lower_append(low, sum), index, 0);
  }
}

// ---- the rank's list

static tr_status allocate(tr__lowering *low) {
  const tr_program *p = low->program;
  size_t cells = (size_t)p->nchunk * (size_t)p->microbatches, slots = 0;
  low->slot_base = malloc(sizeof *low->slot_base * ((size_t)p->nring + 1));
  low->recv[0] = malloc(sizeof *low->recv[0] * (2 * cells + 1));
  for (int r = 0; low->slot_base && r < p->nring; r++) {
    low->slot_base[r] = (uint32_t)slots;
    slots += (size_t)p->ring[r].slots;
  }
  low->user = malloc(sizeof *low->user * (slots + 1));
  if (!low->slot_base || !low->recv[0] || !low->user)
    return tr_error(TR_ERR_MEMORY, "no memory for the step program");
  low->recv[1] = low->recv[0] + cells;
  for (size_t i = 0; i < 2 * cells; i++) low->recv[0][i] = TR__NO_OP;
  for (size_t i = 0; i < slots; i++) low->user[i] = TR__NO_OP;
  return TR_OK;
}

tr_status tr__lower_passes(tr__lowering *low, uint32_t count, uint32_t *first_pass) {
  TR_TRY(allocate(low));
  uint32_t message = 0;
  low->held = -1;
  for (uint32_t i = 0; i < low->nhalf && !low->failed; i += low->half[i].pair ? 2 : 1) {
    const tr__half *h = &low->half[i];
    while (message < low->nmessage && low->message[message].before <= h->entry)
      append_recv(low, &low->message[message++]);
    if (i == 0) *first_pass = low->program->nop;
    if (!low->model)
      lower_whole(low, h);
    else if (h->pair)
      lower_pair(low, h);
    else
      lower_pass(low, h);
    if (i == 0 && count != TR__NO_OP) tr__lower_edge(low, *first_pass, count, 0);
  }
  return TR_OK;
}
