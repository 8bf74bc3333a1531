// SPDX-License-Identifier: MIT
// Static proof that the passes of a rank do each piece of each micro-batch once, in order, with slots that nobody else needs,
// and overwrite gradients exactly where they must. Walked in list order, but where a part of a pass stands in the
// communication lane, that it has ended is asked, not taken for granted.
#include "step/check_internal.h"
#include "step/lower_internal.h"

void tr__chunk_microbatches(const tr_program *program, int chunk, int *begin, int *end) {
  int twice = 0;
  for (int c = 0; c < program->nchunk; c++) twice |= program->chunk[c].direction;
  *begin = 0;
  *end = program->microbatches;
  if (!twice) return;
  if (program->chunk[chunk].direction)
    *begin = program->microbatches / 2;
  else
    *end = program->microbatches / 2;
}

static size_t place(const tr__checker *c, int mb, uint32_t piece) {
  return (size_t)mb * (size_t)c->model->npiece + piece;
}

int tr__passed(const tr__checker *c, const uint32_t *done, int microbatch, int chunk) {
  const tr_chunk *k = &c->program->chunk[chunk];
  for (uint32_t piece = k->piece_begin; piece < k->piece_end; piece++)
    if (!done[place(c, microbatch, piece)]) return 0;
  return 1;
}

// Whether that is so, and has ended when `op` starts. An operation does its pieces one after another.
static int is_there(const tr__checker *c, uint32_t done, uint32_t op) {
  return done && (done - 1 == op || tr__has_ended(c, done - 1, op));
}

static int all_there(const tr__checker *c, const uint32_t *done, int microbatch, int chunk, uint32_t op) {
  const tr_chunk *k = &c->program->chunk[chunk];
  for (uint32_t piece = k->piece_begin; piece < k->piece_end; piece++)
    if (!is_there(c, done[place(c, microbatch, piece)], op)) return 0;
  return 1;
}

// A slot belongs to the micro-batch that used it first until that one's last pass has ended, so it is enough to ask for
// its owner when it is taken. `class` 0 is F-I, 1 F-W, 2 I-W.
static tr_status use_slot(const tr__checker *c, uint32_t i, int class, int slot) {
  const tr_op *op = &c->program->op[i];
  if (slot < 0) return TR_OK;
  const tr_chunk *chunk = c->program->chunk;
  int *own = &c->slot[((size_t)op->microbatch * (size_t)c->program->nchunk + op->chunk) * 3 + (size_t) class];
  if (*own >= 0 && *own != slot)
    return tr__step_broken(c->program, i, "uses another slot than this micro-batch's earlier passes");
  if (*own == slot) return TR_OK;
  *own = slot;
  int *owner = c->owner[class];
  for (int k = 0; k < op->chunk; k++)
    owner += class == 0 ? chunk[k].slots_fi : class == 1 ? chunk[k].slots_fw : chunk[k].slots_iw;
  if (owner[slot] >= 0 && !all_there(c, class == 0 ? c->input : c->weight, owner[slot], op->chunk, i))
    return tr__step_broken(c->program, i, "uses a slot that another micro-batch still needs");
  owner[slot] = op->microbatch;
  return TR_OK;
}

// Counts of passes over a piece before and with this one give its flags.
static tr_status check_flags(const tr__checker *c, uint32_t i, uint32_t piece) {
  const tr_op *op = &c->program->op[i];
  int inputs = c->ninput[piece], weights = c->nweight[piece], begin, end;
  tr__chunk_microbatches(c->program, op->chunk, &begin, &end);
  if (op->kind != TR_OP_W) c->ninput[piece]++;
  if (op->kind != TR_OP_I) c->nweight[piece]++;
  int before = op->kind == TR_OP_W ? weights : inputs,
      after = op->kind == TR_OP_I ? c->ninput[piece] < end - begin : c->nweight[piece] < end - begin;
  if ((op->kind == TR_OP_B && (inputs == 0) != (weights == 0)) || op->first != (c->every || before == 0))
    return tr__step_broken(c->program, i, "is wrong about being the first contribution");
  if (op->last != (c->every || !after))
    return tr__step_broken(c->program, i, "is wrong about being the last contribution");
  return TR_OK;
}

static tr_status check_backward_piece(const tr__checker *c, uint32_t i, uint32_t piece) {
  const tr_op *op = &c->program->op[i];
  size_t at = place(c, op->microbatch, piece);
  if (!is_there(c, c->forward[at], i)) return tr__step_broken(c->program, i, "comes before its forward pass");
  if (op->kind == TR_OP_W && !is_there(c, c->input[at], i))
    return tr__step_broken(c->program, i, "comes before its backward pass for inputs");
  if (op->kind != TR_OP_W && c->input[at])
    return tr__step_broken(c->program, i, "repeats a backward pass for inputs");
  if (op->kind != TR_OP_I && c->weight[at])
    return tr__step_broken(c->program, i, "repeats a backward pass for weights");
  if (op->kind != TR_OP_W) c->input[at] = i + 1;
  if (op->kind != TR_OP_I) c->weight[at] = i + 1;
  const uint32_t *later = op->kind == TR_OP_W ? c->weight : c->input;
  if (piece + 1 < c->program->chunk[op->chunk].piece_end && !is_there(c, later[at + 1], i))
    return tr__step_broken(c->program, i, "skips a later piece's backward pass");
  return check_flags(c, i, piece);
}

tr_status tr__check_pass(const tr__checker *c, uint32_t i) {
  const tr_op *op = &c->program->op[i];
  TR_TRY(use_slot(c, i, 0, op->slot_fi));
  TR_TRY(use_slot(c, i, 1, op->slot_fw));
  TR_TRY(use_slot(c, i, 2, op->slot_iw));
  if (op->kind == TR_OP_R) return TR_OK;
  if (tr__is_backward(op)) {
    for (uint32_t piece = op->piece_end; piece-- > op->piece_begin;) TR_TRY(check_backward_piece(c, i, piece));
    return TR_OK;
  }
  for (uint32_t piece = op->piece_begin; piece < op->piece_end; piece++) {
    size_t at = place(c, op->microbatch, piece);
    if (c->forward[at]) return tr__step_broken(c->program, i, "repeats a forward pass");
    c->forward[at] = i + 1;
    if (piece > c->program->chunk[op->chunk].piece_begin && !is_there(c, c->forward[at - 1], i))
      return tr__step_broken(c->program, i, "skips an earlier piece's forward pass");
  }
  return TR_OK;
}

// ---- temporaries

static int same_pass(const tr_op *a, const tr_op *b) {
  return a->kind == b->kind && a->chunk == b->chunk && a->microbatch == b->microbatch;
}

static int same_pair(const tr_op *a, const tr_op *b) {
  return a->pair && b->pair && a->back_stage == b->back_stage && a->back_microbatch == b->back_microbatch;
}

// A pass that is cut keeps its temporaries between the cuts, and there is one area for them: no other pass may come between,
// but R, which has an area of its own, and the other half of a pair. [0] is for forward passes, [1] for backward ones.
tr_status tr__check_temporaries(const tr__checker *c) {
  const tr_program *p = c->program;
  const tr_op *open[2] = {NULL, NULL}, *last[2] = {NULL, NULL};
  for (uint32_t i = 0; i < p->nop; i++) {
    const tr_op *op = &p->op[i];
    if (op->kind > TR_OP_W) continue;
    int side = op->kind != TR_OP_F;
    if ((open[side] && !same_pass(open[side], op)) || (open[!side] && !same_pair(open[!side], op)))
      return tr__step_broken(p, i, "starts between the parts of another pass, whose temporaries it would overwrite");
    for (int k = 0; k < 2; k++)
      if (last[k] && !same_pair(last[k], op) && !tr__has_ended(c, (uint32_t)(last[k] - p->op), i))
        return tr__step_broken(p, i, "does not wait for the end of a pair, whose temporaries it would overwrite");
    const tr_chunk *chunk = &p->chunk[op->chunk];
    int ends = op->kind == TR_OP_F ? op->piece_end == chunk->piece_end : op->piece_begin == chunk->piece_begin;
    open[side] = ends ? NULL : op;
    last[side] = op;
  }
  return TR_OK;
}

// ---- units of several chunks

// A piece overwrites only what no later piece uses: the first gradients of a later chunk must be there before an
// earlier one adds to them.
static tr_status check_shared(const tr__checker *c, int unit, int chunk, int later) {
  const tr_program *p = c->program;
  int piece = tr__lower_unit_piece(p, c->model, chunk, unit), over = tr__lower_unit_piece(p, c->model, later, unit);
  uint32_t overwritten = 0; // operations below this one
  if (piece < 0 || over < 0) return TR_OK;
  for (uint32_t i = 0; i < p->nop; i++)
    if (tr__is_backward(&p->op[i]) && p->op[i].chunk == later && p->op[i].first && (int)p->op[i].piece_end > over)
      overwritten = i + 1;
  for (uint32_t i = 0; i < overwritten; i++)
    if (tr__is_backward(&p->op[i]) && p->op[i].chunk == chunk && (int)p->op[i].piece_end > piece)
      return tr__step_broken(p, i, "adds to gradients that a later stage's first pass overwrites");
  return TR_OK;
}

tr_status tr__check_shared_units(const tr__checker *c) {
  for (int unit = 0; c->model->unit_chunk_piece && unit < c->model->nunit; unit++)
    for (int chunk = 0; chunk < c->program->nchunk; chunk++)
      for (int later = chunk + 1; later < c->program->nchunk; later++) TR_TRY(check_shared(c, unit, chunk, later));
  return TR_OK;
}
