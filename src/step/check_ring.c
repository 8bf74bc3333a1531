// SPDX-License-Identifier: MIT
// Static proof that what crosses stages lies where its reader looks, and is not overwritten before: of one rank, in time
// proportional to the length of its program. That both ends of a channel agree is for check_pipeline.c.
//
// Compute operations are in order. Whether a message has ended when one of them starts is decided by the edges of compute
// operations on messages; whether a compute operation has ended when a message starts, by the edges of messages of its ring
// up to it. Orders that other ranks' operations would keep do not count.
#include "step/check_internal.h"
#include "step/lower_internal.h"
#include <stdlib.h>

typedef struct rings {
  const tr_program *program;
  uint32_t *message;   // [nring * microbatches] operation + 1 that sends or receives it
  uint32_t *reader;    // [nring * microbatches] last operation + 1 that reads it
  uint32_t *before;    // [nop] of SEND and RECV: the one before in the same slot + 1
  uint32_t *computed;  // [nop] of communication: compute operations below this one have ended when it starts
  uint32_t *seen;      // [nop] of communication: the first compute operation that waits for it; nop: none
  uint32_t *slot_base; // [nring] where a ring's slots begin in `content`
  uint32_t *content;   // of rings without a peer: last operation + 1 that wrote it
  unsigned char *made; // [nop] SENDs whose slot has been written
} rings;

// ---- fields

static int uses_chunk(const tr_op *op) { return op->kind <= TR_OP_R || tr__is_message(op); }

static int direction_of(const tr_program *p, int microbatch) {
  int begin, end;
  for (int c = 0; c < p->nchunk; c++) {
    tr__chunk_microbatches(p, c, &begin, &end);
    if (begin <= microbatch && microbatch < end) return p->chunk[c].direction;
  }
  return 0;
}

static int back_chunk(const tr_program *p, const tr_op *op) {
  return tr__lower_chunk(p, op->back_stage, direction_of(p, op->back_microbatch));
}

static int has_microbatch(const tr_program *p, int chunk, int microbatch) {
  int begin, end;
  tr__chunk_microbatches(p, chunk, &begin, &end);
  return begin <= microbatch && microbatch < end;
}

static tr_status check_message(const tr_program *p, uint32_t i) {
  const tr_op *op = &p->op[i];
  const tr_chunk *chunk = &p->chunk[op->chunk];
  if (op->ring < 0 || op->ring >= p->nring || p->ring[op->ring].peer < 0)
    return tr__step_broken(p, i, "has no channel");
  const tr_ring *ring = &p->ring[op->ring];
  int sends = op->ring == chunk->ring_out || op->ring == chunk->ring_dout,
      receives = op->ring == chunk->ring_in || op->ring == chunk->ring_din;
  if (op->kind == TR_OP_SEND ? !sends : !receives)
    return tr__step_broken(p, i, "goes through a channel that its stage does not use so");
  if (op->role != ring->role || op->stage != ring->stage || op->peer != ring->peer)
    return tr__step_broken(p, i, "differs from its channel");
  if (op->lane != TR_LANE_COMM) return tr__step_broken(p, i, "is in the wrong lane");
  if (op->slot_in < 0 || op->slot_in >= ring->slots)
    return tr__step_broken(p, i, "uses a slot beyond those laid out");
  return TR_OK;
}

static int slot_fits(const tr_program *p, int ring, int slot) {
  return slot < 0 || (ring >= 0 && slot < p->ring[ring].slots);
}

static tr_status check_pass_links(const tr_program *p, uint32_t i) {
  const tr_op *op = &p->op[i];
  int back = op->kind == TR_OP_X ? back_chunk(p, op) : op->chunk;
  if (back < 0 || !has_microbatch(p, back, op->kind == TR_OP_X ? op->back_microbatch : op->microbatch))
    return tr__step_broken(p, i, "names a backward pass that this rank does not have");
  const tr_chunk *chunk = &p->chunk[op->chunk], *other = &p->chunk[back];
  if (op->stage != chunk->stage) return tr__step_broken(p, i, "names a stage that this rank does not have");
  if (!slot_fits(p, chunk->ring_in, op->slot_in) || !slot_fits(p, chunk->ring_out, op->slot_out) ||
      !slot_fits(p, other->ring_din, op->slot_din) || !slot_fits(p, other->ring_dout, op->slot_dout))
    return tr__step_broken(p, i, "uses a slot beyond those laid out");
  return TR_OK;
}

tr_status tr__check_links(const tr_program *p) {
  for (uint32_t i = 0; i < p->nop; i++) {
    const tr_op *op = &p->op[i];
    if (op->kind >= TR_OP_KIND_COUNT || op->role > TR_ROLE_DERIVATIVE || op->lane > TR_LANE_COMM)
      return tr_error(TR_ERR_PLAN, "step program: operation %u has no kind, role or lane", i);
    if (uses_chunk(op) && op->chunk >= p->nchunk) return tr__step_broken(p, i, "is of no stage of this rank");
    if (uses_chunk(op) && !has_microbatch(p, op->chunk, op->microbatch))
      return tr__step_broken(p, i, "names a micro-batch that the step does not have");
    if (tr__is_message(op)) TR_TRY(check_message(p, i));
    if (op->kind <= TR_OP_R) TR_TRY(check_pass_links(p, i));
    for (uint32_t e = op->edge_begin; e < op->edge_end; e++)
      if (e >= p->nedge || p->edge[e].op >= p->nop || p->edge[e].step_offset > 0)
        return tr__step_broken(p, i, "waits for what does not exist");
  }
  return TR_OK;
}

// ---- what has ended

// Whether an operation of the communication lane waits for `before`, directly or through earlier ones of its kind.
static int waits_for(const rings *r, uint32_t op, uint32_t before) {
  const tr_program *p = r->program;
  for (uint32_t e = p->op[op].edge_begin; e < p->op[op].edge_end; e++) {
    uint32_t on = p->edge[e].op;
    if (p->edge[e].step_offset) continue;
    if (on == before || (on < op && p->op[on].lane == TR_LANE_COMM && waits_for(r, on, before))) return 1;
  }
  return 0;
}

static int has_ended(const rings *r, uint32_t before, uint32_t op) {
  const tr_program *p = r->program;
  int computes = p->op[before].lane == TR_LANE_COMPUTE;
  if (p->op[op].lane == TR_LANE_COMPUTE) return computes ? before < op : r->seen[before] <= op;
  return (computes ? before < r->computed[op] : r->seen[before] < r->computed[op]) || waits_for(r, op, before);
}

// Compute operation i waits for this one, and so for what it waits for.
static void see(const rings *r, uint32_t i, uint32_t before) {
  const tr_program *p = r->program;
  if (p->op[before].lane == TR_LANE_COMPUTE || r->seen[before] <= i) return;
  r->seen[before] = i;
  for (uint32_t e = p->op[before].edge_begin; e < p->op[before].edge_end; e++)
    if (p->edge[e].step_offset == 0) see(r, i, p->edge[e].op);
}

static void follow_edges(const rings *r, uint32_t i) {
  const tr_program *p = r->program;
  const tr_op *op = &p->op[i];
  for (uint32_t e = op->edge_begin; e < op->edge_end; e++) {
    uint32_t before = p->edge[e].op;
    if (p->edge[e].step_offset) continue;
    if (op->lane == TR_LANE_COMPUTE) {
      see(r, i, before);
      continue;
    }
    int computes = p->op[before].lane == TR_LANE_COMPUTE;
    uint32_t known = computes ? before + 1 : before < i ? r->computed[before] : 0;
    if (known > r->computed[i]) r->computed[i] = known;
  }
}

// Fills the tables of messages. `last` is scratch: [nring] operation + 1, then [slots].
static tr_status note_messages(const rings *r, uint32_t *last) {
  const tr_program *p = r->program;
  for (uint32_t i = 0; i < p->nop; i++) {
    const tr_op *op = &p->op[i];
    follow_edges(r, i);
    if (!tr__is_message(op)) continue;
    uint32_t *message = &r->message[(size_t)op->ring * (size_t)p->microbatches + (size_t)op->microbatch],
             *in_ring = &last[op->ring], *in_slot = &last[p->nring + (int)r->slot_base[op->ring] + op->slot_in];
    if (*message) return tr__step_broken(p, i, "is there twice");
    if (*in_ring && r->computed[*in_ring - 1] > r->computed[i]) r->computed[i] = r->computed[*in_ring - 1];
    r->before[i] = *in_slot;
    *message = *in_ring = *in_slot = i + 1;
  }
  return TR_OK;
}

// ---- what passes read and write

static size_t cell(const rings *r, int ring, int microbatch) {
  return (size_t)ring * (size_t)r->program->microbatches + (size_t)microbatch;
}

// `slot` -2: not known (of the backward half of an X, an operation has only what concerns gradients).
static tr_status reads(const rings *r, uint32_t i, int ring, int slot, int microbatch) {
  const tr_program *p = r->program;
  if (ring < 0) return TR_OK;
  if (p->ring[ring].peer >= 0) {
    uint32_t from = r->message[cell(r, ring, microbatch)];
    if (!from || !has_ended(r, from - 1, i)) return tr__step_broken(p, i, "does not wait for what it receives");
    if (slot != -2 && p->op[from - 1].slot_in != slot)
      return tr__step_broken(p, i, "reads another slot than that of what it receives");
  } else if (slot != -2) {
    uint32_t from = slot < 0 ? 0 : r->content[r->slot_base[ring] + (uint32_t)slot];
    int own = from && (p->op[from - 1].kind == TR_OP_X && p->ring[ring].role == TR_ROLE_DERIVATIVE
                           ? p->op[from - 1].back_microbatch
                           : p->op[from - 1].microbatch) == microbatch;
    if (!own || !has_ended(r, from - 1, i))
      return tr__step_broken(p, i, "reads a slot that does not hold what the stage before made");
  }
  r->reader[cell(r, ring, microbatch)] = i + 1;
  return TR_OK;
}

static tr_status writes(const rings *r, uint32_t i, int ring, int slot, int microbatch) {
  const tr_program *p = r->program;
  if (ring < 0) return TR_OK;
  if (slot < 0) return tr__step_broken(p, i, "makes what nobody can receive");
  if (p->ring[ring].peer >= 0) {
    uint32_t to = r->message[cell(r, ring, microbatch)], before = to ? r->before[to - 1] : 0;
    if (!to || p->op[to - 1].slot_in != slot || !has_ended(r, i, to - 1))
      return tr__step_broken(p, i, "makes what is not sent when it is there");
    if (before && !has_ended(r, before - 1, i)) return tr__step_broken(p, i, "overwrites what is still being sent");
    r->made[to - 1] = 1;
    return TR_OK;
  }
  r->content[r->slot_base[ring] + (uint32_t)slot] = i + 1; // who would have read what was there will notice
  return TR_OK;
}

static tr_status check_forward(const rings *r, uint32_t i) {
  const tr_op *op = &r->program->op[i];
  const tr_chunk *chunk = &r->program->chunk[op->chunk];
  TR_TRY(reads(r, i, chunk->ring_in, op->slot_in, op->microbatch));
  if (op->piece_end != chunk->piece_end) return TR_OK;
  return writes(r, i, chunk->ring_out, op->slot_out, op->microbatch);
}

// What a chunk's later passes read of what entered it is for the model to say; what they say they read must be there.
static tr_status check_backward(const rings *r, uint32_t i, const tr_chunk *chunk, int microbatch, int slot_in) {
  const tr_op *op = &r->program->op[i];
  int weights = op->kind == TR_OP_W || op->kind == TR_OP_R;
  if (slot_in != -1) TR_TRY(reads(r, i, chunk->ring_in, slot_in, microbatch));
  if (!weights || op->slot_din >= 0) TR_TRY(reads(r, i, chunk->ring_din, op->slot_din, microbatch));
  return weights ? TR_OK : writes(r, i, chunk->ring_dout, op->slot_dout, microbatch);
}

static tr_status check_pass(const rings *r, uint32_t i) {
  const tr_program *p = r->program;
  const tr_op *op = &p->op[i];
  if (op->kind == TR_OP_F || op->kind == TR_OP_X) TR_TRY(check_forward(r, i));
  if (op->kind == TR_OP_F) return TR_OK;
  if (op->kind == TR_OP_X) return check_backward(r, i, &p->chunk[back_chunk(p, op)], op->back_microbatch, -2);
  return check_backward(r, i, &p->chunk[op->chunk], op->microbatch, op->slot_in);
}

static tr_status check_received(const rings *r, uint32_t i) {
  const tr_program *p = r->program;
  const tr_op *op = &p->op[i];
  uint32_t reader = r->reader[cell(r, op->ring, op->microbatch)], before = r->before[i];
  if (!reader) return tr__step_broken(p, i, "receives what nobody reads");
  if (!before) return TR_OK;
  reader = r->reader[cell(r, op->ring, p->op[before - 1].microbatch)];
  if (!reader || !has_ended(r, reader - 1, i)) return tr__step_broken(p, i, "overwrites what this rank still reads");
  return TR_OK;
}

static tr_status check_all(const rings *r, uint32_t *last) {
  const tr_program *p = r->program;
  TR_TRY(note_messages(r, last));
  for (uint32_t i = 0; i < p->nop; i++)
    if (p->op[i].kind <= TR_OP_R) TR_TRY(check_pass(r, i));
  for (uint32_t i = 0; i < p->nop; i++) {
    if (p->op[i].kind == TR_OP_RECV) TR_TRY(check_received(r, i));
    if (p->op[i].kind == TR_OP_SEND && !r->made[i]) return tr__step_broken(p, i, "sends what nobody makes");
  }
  return TR_OK;
}

tr_status tr__check_rings(const tr_program *p) {
  size_t nop = p->nop, cells = (size_t)p->nring * (size_t)p->microbatches, slots = 0;
  if (p->nring == 0) return TR_OK;
  for (int k = 0; k < p->nring; k++) slots += (size_t)p->ring[k].slots;
  size_t n = 2 * cells + 3 * nop + 2 * (size_t)p->nring + 2 * slots;
  rings r = {.program = p, .message = calloc(n + 1, sizeof *r.message), .made = calloc(nop + 1, 1)};
  tr_status status = TR_ERR_MEMORY;
  if (r.message && r.made) {
    r.reader = r.message + cells;
    r.before = r.reader + cells;
    r.computed = r.before + nop;
    r.seen = r.computed + nop;
    r.slot_base = r.seen + nop;
    r.content = r.slot_base + p->nring;
    for (size_t i = 0; i < nop; i++) r.seen[i] = p->nop;
    for (int k = 1; k < p->nring; k++) r.slot_base[k] = r.slot_base[k - 1] + (uint32_t)p->ring[k - 1].slots;
    status = check_all(&r, r.content + slots);
  } else {
    tr_error(status, "no memory to check the step program");
  }
  free(r.message);
  free(r.made);
  return status;
}
