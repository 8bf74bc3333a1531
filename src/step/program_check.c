// SPDX-License-Identifier: MIT
// Static proof of a program: free of deadlock, complete, and every order that a result depends on enforced.
// Runs before anything is allocated.
//
// Deadlock: lanes are queues, so the program of one rank is executable iff taking, again and again, the head
// of a lane whose edges are satisfied empties both lanes. Collectives add no cycle across ranks because every
// rank lowers the same list and its communication lane starts them in the same order.
//
// Order: that walk also fills, for every operation, the set of operations that have surely *ended* when it
// starts. In the compute lane one ends before the next starts, so of these the set is all up to one; in the
// communication lane operations only start in order, so a sum has ended only for those that wait for it by an
// edge, directly or through others. All rules below ask that set, never the list.
#include "step/check_internal.h"
#include <stdlib.h>

typedef struct checker {
  const tr_program *program;
  const tr_step_model *model;
  const tr_step_options *options;
  unsigned char *input, *weight;       // [microbatches * npiece] backward passes done
  unsigned char *forward;              // [microbatches * npiece]
  int *slot;                           // [microbatches * 3] slots of F-I, F-W, I-W in use, -1
  unsigned char *updated, *published;  // [nunit]
  uint32_t *reduce;                    // [microbatches * nunit] operation + 1 that sums this micro-batch's gradient
  uint32_t single[TR_ROLE_PACKED + 1]; // operation + 1: NORM, and REDUCE or GATHER of each role
  uint32_t *computed;                  // [nop] compute operations below this one have ended when an operation starts
  uint32_t *number;                    // [nop] of a communication operation among its kind
  uint64_t *ended;                     // [nop * nword] bits: communication that has ended, by number
  size_t nword;
} checker;

enum { NORM_AT = 0 }; // in `single`; REDUCE and GATHER are at their role

tr_status tr__step_broken(const tr_program *program, uint32_t op, const char *rule) {
  return tr_error(TR_ERR_PLAN, "step program: operation %u (%s, micro-batch %d) %s", op,
                  tr_op_name((tr_op_kind)program->op[op].kind), program->op[op].microbatch, rule);
}

static tr_status broken(const checker *c, uint32_t op, const char *rule) {
  return tr__step_broken(c->program, op, rule);
}

static int has_ended(const checker *c, uint32_t before, uint32_t op) {
  if (c->program->op[before].lane == TR_LANE_COMPUTE) return before < c->computed[op];
  return c->ended[op * c->nword + c->number[before] / 64] >> c->number[before] % 64 & 1;
}

// `op` starts after `before` has ended and after all that had ended when `before` started.
static void mark_ended(const checker *c, uint32_t op, uint32_t before, int itself) {
  int computes = c->program->op[before].lane == TR_LANE_COMPUTE;
  uint32_t computed = itself && computes ? before + 1 : c->computed[before];
  if (computed > c->computed[op]) c->computed[op] = computed;
  for (size_t w = 0; w < c->nword; w++) c->ended[op * c->nword + w] |= c->ended[before * c->nword + w];
  if (itself && !computes) c->ended[op * c->nword + c->number[before] / 64] |= (uint64_t)1 << c->number[before] % 64;
}

// ---- each operation alone

static int is_pass(const tr_op *op) { return op->kind <= TR_OP_W || op->kind == TR_OP_R; }
static int is_gather(const tr_op *op) { return op->kind == TR_OP_GATHER; }
static int is_backward(const tr_op *op) { return op->kind == TR_OP_B || op->kind == TR_OP_I || op->kind == TR_OP_W; }

static tr_status check_slots(const checker *c, uint32_t i) {
  const tr_op *op = &c->program->op[i];
  const tr_program *p = c->program;
  if (op->slot_fi >= p->slots_fi || op->slot_fw >= p->slots_fw || op->slot_iw >= p->slots_iw)
    return broken(c, i, "uses a slot beyond those laid out");
  if (!is_pass(op)) return TR_OK;
  int iw = op->kind == TR_OP_I || op->kind == TR_OP_W;
  int fi = op->kind == TR_OP_R ? !c->options->split_backward : op->kind != TR_OP_W;
  if ((fi && op->slot_fi < 0) || op->slot_fw < 0 || (iw && op->slot_iw < 0)) return broken(c, i, "lacks a slot");
  return TR_OK;
}

static tr_status check_fields(const checker *c, uint32_t i) {
  const tr_op *op = &c->program->op[i];
  int is_unit_op = op->kind == TR_OP_UPDATE || op->kind == TR_OP_PUBLISH || is_gather(op) ||
                   (op->kind == TR_OP_REDUCE && op->role == TR_ROLE_GRADIENT);
  int last_sum = c->options->zero ? TR_ROLE_SQUARES : TR_ROLE_LOSS,
      communicates = op->kind == TR_OP_REDUCE || is_gather(op);
  if (!is_pass(op) && !is_unit_op && op->kind != TR_OP_NORM && op->kind != TR_OP_REDUCE)
    return broken(c, i, "is of a kind that this lowering does not use");
  if (is_gather(op) && !c->options->zero) return broken(c, i, "gathers what every rank has");
  if (op->lane != (communicates ? TR_LANE_COMM : TR_LANE_COMPUTE)) return broken(c, i, "is in the wrong lane");
  if (op->kind == TR_OP_REDUCE && (op->role < TR_ROLE_GRADIENT || op->role > last_sum))
    return broken(c, i, "does not say what it sums");
  if (is_gather(op) && op->role != TR_ROLE_WEIGHTS && op->role != TR_ROLE_PACKED)
    return broken(c, i, "does not say what it gathers");
  if (is_pass(op) && (op->piece_begin >= op->piece_end || op->piece_end > (uint32_t)c->model->npiece))
    return broken(c, i, "names pieces that the model does not have");
  if (is_unit_op && (op->unit_begin >= op->unit_end || op->unit_end > c->model->nunit))
    return broken(c, i, "names units that the model does not have");
  if ((is_pass(op) || (is_unit_op && op->kind == TR_OP_REDUCE)) &&
      (op->microbatch < 0 || op->microbatch >= c->program->microbatches))
    return broken(c, i, "names a micro-batch that the step does not have");
  for (uint32_t e = op->edge_begin; e < op->edge_end; e++)
    if (e >= c->program->nedge || c->program->edge[e].op >= c->program->nop || c->program->edge[e].step_offset > 0)
      return broken(c, i, "waits for what does not exist");
  return check_slots(c, i);
}

// ---- deadlock, and what has ended when

static int edges_done(const tr_program *p, const tr_op *op, const unsigned char *done) {
  for (uint32_t e = op->edge_begin; e < op->edge_end; e++)
    if (p->edge[e].step_offset == 0 && !done[p->edge[e].op]) return 0; // earlier steps have ended
  return 1;
}

static void start_op(const checker *c, uint32_t i, uint32_t previous) {
  const tr_op *op = &c->program->op[i];
  if (previous) mark_ended(c, i, previous - 1, op->lane == TR_LANE_COMPUTE);
  for (uint32_t e = op->edge_begin; e < op->edge_end; e++)
    if (c->program->edge[e].step_offset == 0) mark_ended(c, i, c->program->edge[e].op, 1);
}

static tr_status walk_lanes(const checker *c, unsigned char *done) {
  const tr_program *p = c->program;
  uint32_t head[2] = {0, 0}, previous[2] = {0, 0}, left = p->nop;
  for (int moved = 1; moved;) {
    moved = 0;
    for (int lane = 0; lane < 2; lane++) {
      while (head[lane] < p->nop && p->op[head[lane]].lane != lane) head[lane]++;
      if (head[lane] == p->nop || !edges_done(p, &p->op[head[lane]], done)) continue;
      start_op(c, head[lane], previous[lane]);
      done[head[lane]++] = 1;
      previous[lane] = head[lane];
      left--;
      moved = 1;
    }
  }
  return left == 0 ? TR_OK : broken(c, head[0] < p->nop ? head[0] : head[1], "can never start: deadlock");
}

static tr_status check_deadlock(const checker *c) {
  unsigned char *done = calloc(c->program->nop + 1, 1);
  if (!done) return tr_error(TR_ERR_MEMORY, "no memory to check the step program");
  tr_status status = walk_lanes(c, done);
  free(done);
  return status;
}

// ---- passes, in the order of the compute lane

static size_t place(const checker *c, int mb, uint32_t piece) {
  return (size_t)mb * (size_t)c->model->npiece + piece;
}

static int passed(const checker *c, const unsigned char *done, int mb) {
  for (int piece = 0; piece < c->model->npiece; piece++)
    if (!done[place(c, mb, (uint32_t)piece)]) return 0;
  return 1;
}

// A slot belongs to the micro-batch that used it first until that one's last pass has ended, so it is enough to ask for
// the others when it is taken. `class` 0 is F-I, 1 F-W, 2 I-W.
static tr_status use_slot(const checker *c, uint32_t i, int class, int slot) {
  int mb = c->program->op[i].microbatch;
  if (slot < 0) return TR_OK;
  int *own = &c->slot[mb * 3 + class];
  if (*own >= 0 && *own != slot) return broken(c, i, "uses another slot than this micro-batch's earlier passes");
  if (*own == slot) return TR_OK;
  *own = slot;
  for (int other = 0; other < c->program->microbatches; other++)
    if (other != mb && c->slot[other * 3 + class] == slot && !passed(c, class == 0 ? c->input : c->weight, other))
      return broken(c, i, "uses a slot that another micro-batch still needs");
  return TR_OK;
}

static tr_status check_backward_piece(const checker *c, uint32_t i, uint32_t piece) {
  const tr_op *op = &c->program->op[i];
  size_t at = place(c, op->microbatch, piece);
  if (!c->forward[at]) return broken(c, i, "comes before its forward pass");
  if (op->kind == TR_OP_W && !c->input[at]) return broken(c, i, "comes before its backward pass for inputs");
  if (op->kind != TR_OP_W && c->input[at]++) return broken(c, i, "repeats a backward pass for inputs");
  if (op->kind != TR_OP_I && c->weight[at]++) return broken(c, i, "repeats a backward pass for weights");
  if (piece + 1 < (uint32_t)c->model->npiece && !c->input[at + 1])
    return broken(c, i, "skips a later piece's backward pass");
  int before = 0, after = 0; // contributions of other micro-batches, by the passes done so far
  for (int mb = 0; mb < c->program->microbatches; mb++) {
    int done = (op->kind == TR_OP_W ? c->weight : c->input)[place(c, mb, piece)];
    if (mb != op->microbatch) before |= done, after |= !done;
  }
  int every = c->options->grad_sync == TR_SYNC_EVERY;
  if (op->first != (every || !before)) return broken(c, i, "is wrong about being the first contribution");
  if (op->last != (every || !after)) return broken(c, i, "is wrong about being the last contribution");
  return TR_OK;
}

static tr_status check_pass(const checker *c, uint32_t i) {
  const tr_op *op = &c->program->op[i];
  TR_TRY(use_slot(c, i, 0, op->slot_fi));
  TR_TRY(use_slot(c, i, 1, op->slot_fw));
  TR_TRY(use_slot(c, i, 2, op->slot_iw));
  if (op->kind == TR_OP_R) return TR_OK;
  if (is_backward(op)) {
    for (uint32_t piece = op->piece_end; piece-- > op->piece_begin;) TR_TRY(check_backward_piece(c, i, piece));
    return TR_OK;
  }
  for (uint32_t piece = op->piece_begin; piece < op->piece_end; piece++) {
    size_t at = place(c, op->microbatch, piece);
    if (c->forward[at]++) return broken(c, i, "repeats a forward pass");
    if (piece > 0 && !c->forward[at - 1]) return broken(c, i, "skips an earlier piece's forward pass");
  }
  return TR_OK;
}

// ---- sums: what a REDUCE of gradients reads must be written, and not be written again before it has ended

static tr_status note_reduce(checker *c, uint32_t i) {
  const tr_op *op = &c->program->op[i];
  if (op->role != TR_ROLE_GRADIENT) {
    if (c->single[op->role]) return broken(c, i, "repeats a sum");
    c->single[op->role] = i + 1;
    return TR_OK;
  }
  int every = c->options->grad_sync == TR_SYNC_EVERY, last = c->program->microbatches - 1;
  if (!every && op->microbatch != last) return broken(c, i, "sums before the last micro-batch");
  if (op->first != (!every || op->microbatch == 0) || op->last != (op->microbatch == last))
    return broken(c, i, "is wrong about being the first or last sum");
  for (int unit = op->unit_begin; unit < op->unit_end; unit++) {
    uint32_t *slot = &c->reduce[(size_t)op->microbatch * (size_t)c->model->nunit + (size_t)unit];
    if (*slot) return broken(c, i, "sums gradients twice");
    *slot = i + 1;
  }
  return TR_OK;
}

static tr_status check_reduce_against(const checker *c, uint32_t i, int unit, uint32_t pass) {
  const tr_op *op = &c->program->op[i], *other = &c->program->op[pass];
  if (!is_backward(other) || (int)other->piece_end <= c->model->unit_last_piece[unit]) return TR_OK;
  int ended = has_ended(c, pass, i);
  if (c->options->grad_sync == TR_SYNC_LAST || other->microbatch == op->microbatch)
    return ended ? TR_OK : broken(c, i, "does not wait for the gradients that it sums");
  if (has_ended(c, i, pass)) return TR_OK;
  uint32_t reduce = c->reduce[(size_t)other->microbatch * (size_t)c->model->nunit + (size_t)unit];
  if (!ended || !reduce || !has_ended(c, reduce - 1, i))
    return broken(c, pass, "overwrites gradients that are still being summed");
  return TR_OK;
}

static tr_status check_reduce(const checker *c, uint32_t i) {
  const tr_op *op = &c->program->op[i];
  const tr_program *p = c->program;
  for (uint32_t j = 0; j < p->nop; j++) {
    int is_sum = p->op[j].kind == TR_OP_REDUCE && p->op[j].role == TR_ROLE_GRADIENT;
    if (op->role == TR_ROLE_SQUARES && is_sum && !has_ended(c, j, i))
      return broken(c, i, "does not wait for the sums whose squares it gathers");
    if (op->role == TR_ROLE_LOSS && is_backward(&p->op[j]) && p->op[j].kind != TR_OP_W &&
        p->op[j].piece_end == (uint32_t)c->model->npiece && !has_ended(c, j, i))
      return broken(c, i, "does not wait for the losses that it sums");
    if (op->role != TR_ROLE_GRADIENT) continue;
    for (int unit = op->unit_begin; unit < op->unit_end; unit++) TR_TRY(check_reduce_against(c, i, unit, j));
  }
  return TR_OK;
}

// ---- state

// The norm reads every sum and decides for every update: everything before it must have ended.
static tr_status check_norm(const checker *c, uint32_t i) {
  for (uint32_t j = 0; j < c->program->nop; j++)
    if ((is_pass(&c->program->op[j]) || c->program->op[j].kind == TR_OP_REDUCE) && !has_ended(c, j, i))
      return tr_error(TR_ERR_PLAN, "step program: operation %u (NORM) does not wait for operation %u (%s)", i, j,
                      tr_op_name((tr_op_kind)c->program->op[j].kind));
  return TR_OK;
}

static tr_status check_state(const checker *c, uint32_t i) {
  const tr_op *op = &c->program->op[i];
  if (!has_ended(c, c->single[NORM_AT] - 1, i)) return broken(c, i, "does not wait for the norm");
  if (op->kind == TR_OP_PUBLISH && c->options->zero && !has_ended(c, c->single[TR_ROLE_WEIGHTS] - 1, i))
    return broken(c, i, "does not wait for the weights of other ranks");
  for (int unit = op->unit_begin; unit < op->unit_end; unit++) {
    if (op->kind == TR_OP_UPDATE && c->updated[unit]++) return broken(c, i, "repeats an update");
    if (op->kind == TR_OP_UPDATE) continue;
    if (!c->updated[unit]) return broken(c, i, "comes before its update");
    if (c->published[unit]++) return broken(c, i, "publishes twice");
  }
  return TR_OK;
}

// A GATHER speaks for all units: everything of the kind that it follows has ended.
static tr_status check_gather(const checker *c, uint32_t i) {
  const tr_op *op = &c->program->op[i];
  tr_op_kind before = op->role == TR_ROLE_WEIGHTS ? TR_OP_UPDATE : TR_OP_PUBLISH;
  if (op->unit_begin != 0 || op->unit_end != c->model->nunit) return broken(c, i, "gathers only some units");
  for (uint32_t j = 0; j < c->program->nop; j++)
    if (c->program->op[j].kind == before && !has_ended(c, j, i))
      return broken(c, i, "does not wait for what it gathers");
  return TR_OK;
}

static tr_status check_order(const checker *c, uint32_t i) {
  const tr_op *op = &c->program->op[i];
  switch ((tr_op_kind)op->kind) {
  case TR_OP_REDUCE: return check_reduce(c, i);
  case TR_OP_NORM: return check_norm(c, i);
  case TR_OP_GATHER: return check_gather(c, i);
  case TR_OP_UPDATE:
  case TR_OP_PUBLISH: return check_state(c, i);
  default: break;
  }
  if (!has_ended(c, c->single[TR_ROLE_COUNT] - 1, i))
    return broken(c, i, "does not wait for the count of valid tokens");
  return check_pass(c, i);
}

// A pass that is cut keeps its temporaries between the cuts, and there is one area for them: no other pass may come
// between, but R, which has an area of its own.
static tr_status check_temporaries(const checker *c) {
  const tr_op *open = NULL;
  for (uint32_t i = 0; i < c->program->nop; i++) {
    const tr_op *op = &c->program->op[i];
    if (op->kind > TR_OP_W) continue;
    if (open && (op->kind != open->kind || op->microbatch != open->microbatch))
      return broken(c, i, "starts between the parts of another pass, whose temporaries it would overwrite");
    int ends = op->kind == TR_OP_F ? op->piece_end == (uint32_t)c->model->npiece : op->piece_begin == 0;
    open = ends ? NULL : op;
  }
  return TR_OK;
}

// Everything is there, whatever its order.
static tr_status check_present(checker *c) {
  const tr_program *p = c->program;
  for (uint32_t i = 0; i < p->nop; i++) {
    if (p->op[i].kind == TR_OP_REDUCE || is_gather(&p->op[i])) TR_TRY(note_reduce(c, i));
    if (p->op[i].kind == TR_OP_NORM && c->single[NORM_AT]) return broken(c, i, "repeats the norm");
    if (p->op[i].kind == TR_OP_NORM) c->single[NORM_AT] = i + 1;
  }
  if (!c->single[NORM_AT] || !c->single[TR_ROLE_COUNT] || !c->single[TR_ROLE_LOSS])
    return tr_error(TR_ERR_PLAN, "step program: the %s is missing",
                    !c->single[NORM_AT]         ? "norm"
                    : !c->single[TR_ROLE_COUNT] ? "count of valid tokens"
                                                : "sum of the losses");
  for (int role = TR_ROLE_SQUARES; c->options->zero && role <= TR_ROLE_PACKED; role++)
    if (!c->single[role])
      return tr_error(TR_ERR_PLAN, "step program: the %s is missing",
                      role == TR_ROLE_SQUARES ? "sum of squares" : "gathering of weights");
  for (int mb = 0; mb < p->microbatches; mb++)
    for (int unit = 0; unit < c->model->nunit; unit++)
      if ((c->options->grad_sync == TR_SYNC_EVERY || mb == p->microbatches - 1) &&
          !c->reduce[(size_t)mb * (size_t)c->model->nunit + (size_t)unit])
        return tr_error(TR_ERR_PLAN, "step program: gradients of unit %d are not summed after micro-batch %d", unit,
                        mb);
  return TR_OK;
}

static tr_status check_complete(const checker *c) {
  for (int mb = 0; mb < c->program->microbatches; mb++)
    if (!passed(c, c->forward, mb) || !passed(c, c->input, mb) || !passed(c, c->weight, mb))
      return tr_error(TR_ERR_PLAN, "step program: micro-batch %d misses a part of its %s pass", mb,
                      passed(c, c->forward, mb) ? "backward" : "forward");
  for (int unit = 0; unit < c->model->nunit; unit++)
    if (!c->published[unit])
      return tr_error(TR_ERR_PLAN, "step program: unit %d is never %s", unit,
                      c->updated[unit] ? "published" : "updated");
  return TR_OK;
}

static tr_status check_all(checker *c) {
  for (uint32_t i = 0; i < c->program->nop; i++) TR_TRY(check_fields(c, i));
  TR_TRY(check_deadlock(c));
  TR_TRY(check_present(c));
  TR_TRY(check_temporaries(c));
  TR_TRY(tr__step_check_recompute(c->program, c->options));
  for (uint32_t i = 0; i < c->program->nop; i++) TR_TRY(check_order(c, i));
  return check_complete(c);
}

static tr_status allocate(checker *c) {
  size_t mb = (size_t)c->program->microbatches, pieces = mb * (size_t)c->model->npiece,
         units = (size_t)c->model->nunit, nop = c->program->nop, ncomm = 0;
  c->number = calloc(2 * nop + 1, sizeof *c->number);
  for (size_t i = 0; c->number && i < nop; i++)
    if (c->program->op[i].lane != TR_LANE_COMPUTE) c->number[i] = (uint32_t)ncomm++;
  c->nword = (ncomm + 63) / 64;
  c->ended = calloc(nop * c->nword + 1, sizeof *c->ended);
  c->reduce = calloc(mb * units + 1, sizeof *c->reduce);
  c->slot = malloc(sizeof *c->slot * 3 * mb);
  c->forward = calloc(3 * pieces + 2 * units + 1, 1);
  if (!c->number || !c->ended || !c->reduce || !c->slot || !c->forward)
    return tr_error(TR_ERR_MEMORY, "no memory to check the step program");
  c->computed = c->number + nop;
  c->input = c->forward + pieces;
  c->weight = c->input + pieces;
  c->updated = c->weight + pieces;
  c->published = c->updated + units;
  for (size_t i = 0; i < 3 * mb; i++) c->slot[i] = -1;
  return TR_OK;
}

tr_status tr_program_check(const tr_program *program, const tr_step_model *model, const tr_step_options *options) {
  if (program->microbatches != options->microbatches)
    return tr_error(TR_ERR_PLAN, "step program: made for %d micro-batches, the plan has %d", program->microbatches,
                    options->microbatches);
  checker c = {.program = program, .model = model, .options = options};
  tr_status status = allocate(&c);
  if (status == TR_OK) status = check_all(&c);
  free(c.number);
  free(c.ended);
  free(c.reduce);
  free(c.slot);
  free(c.forward);
  return status;
}
