// SPDX-License-Identifier: MIT
// Static proof of a rank's training program: free of deadlock, complete, and every order that a result depends on enforced.
// Runs before anything is allocated. Here: each operation alone, that everything is there, sums and state.
#include "step/check_internal.h"
#include "step/lower_internal.h"
#include <stdlib.h>

tr_status tr__step_broken(const tr_program *program, uint32_t op, const char *rule) {
  const tr_op *o = &program->op[op];
  if (program->p > 1)
    return tr_error(TR_ERR_PLAN, "step program: rank %d, operation %u (%s, stage %d, micro-batch %d) %s",
                    program->rank, op, tr_op_name((tr_op_kind)o->kind), o->stage, o->microbatch, rule);
  return tr_error(TR_ERR_PLAN, "step program: operation %u (%s, micro-batch %d) %s", op,
                  tr_op_name((tr_op_kind)o->kind), o->microbatch, rule);
}

static tr_status broken(const tr__checker *c, uint32_t op, const char *rule) {
  return tr__step_broken(c->program, op, rule);
}

// ---- each operation alone

static int is_gather(const tr_op *op) { return op->kind == TR_OP_GATHER; }

static tr_status check_slots(const tr__checker *c, uint32_t i) {
  const tr_op *op = &c->program->op[i];
  const tr_chunk *chunk = &c->program->chunk[op->chunk];
  if (op->slot_fi >= chunk->slots_fi || op->slot_fw >= chunk->slots_fw || op->slot_iw >= chunk->slots_iw)
    return broken(c, i, "uses a slot beyond those laid out");
  int iw = op->kind == TR_OP_I || op->kind == TR_OP_W;
  int fi = op->kind == TR_OP_R ? !c->split : op->kind != TR_OP_W;
  tr_step_use use = tr__lower_use(c->model, c->options, op->chunk);
  if ((fi && op->slot_fi < 0) || op->slot_fw < 0 || (iw && op->slot_iw < 0) ||
      (chunk->ring_in >= 0 && tr__reads(op->kind, use.activation) && op->slot_in < 0) ||
      (chunk->ring_din >= 0 && op->kind == TR_OP_W && use.gradient == TR_OP_W && op->slot_din < 0))
    return broken(c, i, "lacks a slot");
  return TR_OK;
}

static int communicates(const tr__checker *c, const tr_op *op) {
  for (int i = 0; op->pair && op->piece_end == op->piece_begin + 1 && i < c->model->ncomm; i++)
    if ((uint32_t)c->model->comm_piece[i] == op->piece_begin) return 1;
  return 0;
}

static tr_status check_pass_fields(const tr__checker *c, uint32_t i) {
  const tr_op *op = &c->program->op[i];
  const tr_chunk *chunk = &c->program->chunk[op->chunk];
  if (op->lane != TR_LANE_COMPUTE && !communicates(c, op)) return broken(c, i, "is in the wrong lane");
  if (op->piece_begin >= op->piece_end || op->piece_begin < chunk->piece_begin || op->piece_end > chunk->piece_end)
    return broken(c, i, "names pieces that the model does not have");
  return check_slots(c, i);
}

static tr_status check_sum_fields(const tr__checker *c, uint32_t i) {
  const tr_op *op = &c->program->op[i];
  int known = op->role == TR_ROLE_GRADIENT || op->role == TR_ROLE_COUNT || op->role == TR_ROLE_LOSS ||
              op->role == TR_ROLE_TIED || (op->role == TR_ROLE_SQUARES && c->gathers);
  if (!known) return broken(c, i, "does not say what it sums");
  if (!tr__is_gradient_sum(op)) return TR_OK;
  if (op->microbatch < 0 || op->microbatch >= c->program->microbatches)
    return broken(c, i, "names a micro-batch that the step does not have");
  for (int unit = op->unit_begin; unit < op->unit_end && unit < c->model->nunit; unit++)
    if (tr__lower_is_tied(c->model, unit) != (op->role == TR_ROLE_TIED))
      return broken(c, i, "does not sum over the ranks that have these parameters");
  return TR_OK;
}

static tr_status check_fields(const tr__checker *c, uint32_t i) {
  const tr_op *op = &c->program->op[i];
  int is_unit_op = op->kind == TR_OP_UPDATE || op->kind == TR_OP_PUBLISH || is_gather(op) || tr__is_gradient_sum(op);
  if (tr__is_message(op)) return TR_OK; // rings have been checked
  if (tr__is_pass(op)) return check_pass_fields(c, i);
  if (!is_unit_op && op->kind != TR_OP_NORM && op->kind != TR_OP_REDUCE)
    return broken(c, i, "is of a kind that this lowering does not use");
  if (is_gather(op) && !c->options->zero) return broken(c, i, "gathers what every rank has");
  if (op->lane != (op->kind == TR_OP_REDUCE || is_gather(op) ? TR_LANE_COMM : TR_LANE_COMPUTE))
    return broken(c, i, "is in the wrong lane");
  if (op->kind == TR_OP_REDUCE) TR_TRY(check_sum_fields(c, i));
  if (is_gather(op) && op->role != TR_ROLE_WEIGHTS && op->role != TR_ROLE_PACKED)
    return broken(c, i, "does not say what it gathers");
  if (is_unit_op && (op->unit_begin >= op->unit_end || op->unit_end > c->model->nunit))
    return broken(c, i, "names units that the model does not have");
  return TR_OK;
}

// ---- sums: what a REDUCE of gradients reads must be written, and not be written again before it has ended

static uint32_t *reduce_of(const tr__checker *c, int microbatch, int unit) {
  size_t row = c->every ? (size_t)microbatch : 0;
  return &c->reduce[row * (size_t)c->model->nunit + (size_t)unit];
}

static tr_status note_reduce(tr__checker *c, uint32_t i) {
  const tr_op *op = &c->program->op[i];
  if (!tr__is_gradient_sum(op)) {
    if (c->single[op->role]) return broken(c, i, "repeats a sum");
    c->single[op->role] = i + 1;
    return TR_OK;
  }
  int last = c->program->microbatches - 1;
  if (op->first != (!c->every || op->microbatch == 0) || op->last != (!c->every || op->microbatch == last))
    return broken(c, i, "is wrong about being the first or last sum");
  for (int unit = op->unit_begin; unit < op->unit_end; unit++) {
    uint32_t *slot = reduce_of(c, op->microbatch, unit);
    if (*slot) return broken(c, i, "sums gradients twice");
    *slot = i + 1;
  }
  return TR_OK;
}

static tr_status check_reduce_against(const tr__checker *c, uint32_t i, int unit, uint32_t pass) {
  const tr_op *op = &c->program->op[i], *other = &c->program->op[pass];
  if (!tr__is_backward(other)) return TR_OK;
  int piece = tr__lower_unit_piece(c->program, c->model, other->chunk, unit);
  if (piece < 0 || (int)other->piece_end <= piece) return TR_OK;
  int ended = tr__has_ended(c, pass, i);
  if (!c->every || other->microbatch == op->microbatch)
    return ended ? TR_OK : broken(c, i, "does not wait for the gradients that it sums");
  if (tr__has_ended(c, i, pass)) return TR_OK;
  uint32_t reduce = *reduce_of(c, other->microbatch, unit);
  if (!ended || !reduce || !tr__has_ended(c, reduce - 1, i))
    return broken(c, pass, "overwrites gradients that are still being summed");
  return TR_OK;
}

// The loss is written by the last piece of the model.
static int writes_loss(const tr_program *p, const tr_op *op) {
  const tr_chunk *chunk = &p->chunk[op->chunk];
  return tr__is_backward(op) && op->kind != TR_OP_W && chunk->ring_out < 0 && op->piece_end == chunk->piece_end;
}

static tr_status check_reduce(const tr__checker *c, uint32_t i) {
  const tr_op *op = &c->program->op[i];
  const tr_program *p = c->program;
  for (uint32_t j = 0; j < p->nop; j++) {
    if (op->role == TR_ROLE_SQUARES && tr__is_gradient_sum(&p->op[j]) && !tr__has_ended(c, j, i))
      return broken(c, i, "does not wait for the sums whose squares it gathers");
    if (op->role == TR_ROLE_LOSS && tr__is_pass(&p->op[j]) && writes_loss(p, &p->op[j]) && !tr__has_ended(c, j, i))
      return broken(c, i, "does not wait for the losses that it sums");
    if (!tr__is_gradient_sum(op)) continue;
    for (int unit = op->unit_begin; unit < op->unit_end; unit++) TR_TRY(check_reduce_against(c, i, unit, j));
  }
  return TR_OK;
}

// ---- state

// The norm reads every sum and decides for every update: everything before it must have ended.
static tr_status check_norm(const tr__checker *c, uint32_t i) {
  for (uint32_t j = 0; j < c->program->nop; j++)
    if ((tr__is_pass(&c->program->op[j]) || c->program->op[j].kind == TR_OP_REDUCE) && !tr__has_ended(c, j, i))
      return tr_error(TR_ERR_PLAN, "step program: operation %u (NORM) does not wait for operation %u (%s)", i, j,
                      tr_op_name((tr_op_kind)c->program->op[j].kind));
  return TR_OK;
}

static tr_status check_state(const tr__checker *c, uint32_t i) {
  const tr_op *op = &c->program->op[i];
  if (!tr__has_ended(c, c->single[TR__NORM_AT] - 1, i)) return broken(c, i, "does not wait for the norm");
  if (op->kind == TR_OP_PUBLISH && c->options->zero && !tr__has_ended(c, c->single[TR_ROLE_WEIGHTS] - 1, i))
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
static tr_status check_gather(const tr__checker *c, uint32_t i) {
  const tr_op *op = &c->program->op[i];
  tr_op_kind before = op->role == TR_ROLE_WEIGHTS ? TR_OP_UPDATE : TR_OP_PUBLISH;
  if (op->unit_begin != 0 || op->unit_end != c->model->nunit) return broken(c, i, "gathers only some units");
  for (uint32_t j = 0; j < c->program->nop; j++)
    if (c->program->op[j].kind == before && !tr__has_ended(c, j, i))
      return broken(c, i, "does not wait for what it gathers");
  return TR_OK;
}

static tr_status check_order(const tr__checker *c, uint32_t i) {
  const tr_op *op = &c->program->op[i];
  switch ((tr_op_kind)op->kind) {
  case TR_OP_SEND:
  case TR_OP_RECV: return TR_OK;
  case TR_OP_REDUCE: return check_reduce(c, i);
  case TR_OP_NORM: return check_norm(c, i);
  case TR_OP_GATHER: return check_gather(c, i);
  case TR_OP_UPDATE:
  case TR_OP_PUBLISH: return check_state(c, i);
  default: break;
  }
  if (!tr__has_ended(c, c->single[TR_ROLE_COUNT] - 1, i))
    return broken(c, i, "does not wait for the count of valid tokens");
  return tr__check_pass(c, i);
}

// ---- everything is there, whatever its order

static tr_status check_singles(const tr__checker *c) {
  if (!c->single[TR__NORM_AT] || !c->single[TR_ROLE_COUNT] || !c->single[TR_ROLE_LOSS])
    return tr_error(TR_ERR_PLAN, "step program: the %s is missing",
                    !c->single[TR__NORM_AT]     ? "norm"
                    : !c->single[TR_ROLE_COUNT] ? "count of valid tokens"
                                                : "sum of the losses");
  if (c->gathers && !c->single[TR_ROLE_SQUARES])
    return tr_error(TR_ERR_PLAN, "step program: the sum of squares is missing");
  if (c->options->zero && (!c->single[TR_ROLE_WEIGHTS] || !c->single[TR_ROLE_PACKED]))
    return tr_error(TR_ERR_PLAN, "step program: the gathering of weights is missing");
  return TR_OK;
}

static tr_status check_present(tr__checker *c) {
  const tr_program *p = c->program;
  for (uint32_t i = 0; i < p->nop; i++) {
    if (p->op[i].kind == TR_OP_REDUCE || is_gather(&p->op[i])) TR_TRY(note_reduce(c, i));
    if (p->op[i].kind == TR_OP_NORM && c->single[TR__NORM_AT]) return broken(c, i, "repeats the norm");
    if (p->op[i].kind == TR_OP_NORM) c->single[TR__NORM_AT] = i + 1;
  }
  TR_TRY(check_singles(c));
  for (int mb = c->every ? 0 : p->microbatches - 1; mb < p->microbatches; mb++)
    for (int unit = 0; unit < c->model->nunit; unit++)
      if (!*reduce_of(c, mb, unit))
        return tr_error(TR_ERR_PLAN, "step program: gradients of unit %d are not summed after micro-batch %d", unit,
                        mb);
  return TR_OK;
}

static tr_status check_complete(const tr__checker *c) {
  for (int chunk = 0; chunk < c->program->nchunk; chunk++) {
    int begin, end;
    tr__chunk_microbatches(c->program, chunk, &begin, &end);
    for (int mb = begin; mb < end; mb++)
      if (!tr__passed(c, c->forward, mb, chunk) || !tr__passed(c, c->input, mb, chunk) ||
          !tr__passed(c, c->weight, mb, chunk))
        return tr_error(TR_ERR_PLAN, "step program: micro-batch %d misses a part of its %s pass", mb,
                        tr__passed(c, c->forward, mb, chunk) ? "backward" : "forward");
  }
  for (int unit = 0; unit < c->model->nunit; unit++)
    if (!c->published[unit])
      return tr_error(TR_ERR_PLAN, "step program: unit %d is never %s", unit,
                      c->updated[unit] ? "published" : "updated");
  return TR_OK;
}

static tr_status check_all(tr__checker *c) {
  for (uint32_t i = 0; i < c->program->nop; i++) TR_TRY(check_fields(c, i));
  TR_TRY(tr__check_deadlock(c));
  TR_TRY(tr__check_rings(c->program));
  TR_TRY(check_present(c));
  TR_TRY(tr__check_temporaries(c));
  TR_TRY(tr__step_check_recompute(c->program, c->options));
  for (uint32_t i = 0; i < c->program->nop; i++) TR_TRY(check_order(c, i));
  TR_TRY(tr__check_shared_units(c));
  return check_complete(c);
}

// ---- memory

static size_t class_slots(const tr_program *p, int class) {
  size_t n = 0;
  for (int k = 0; k < p->nchunk; k++)
    n += (size_t)(class == 0 ? p->chunk[k].slots_fi : class == 1 ? p->chunk[k].slots_fw : p->chunk[k].slots_iw);
  return n;
}

static int allocate_slots(tr__checker *c) {
  size_t n = (size_t)c->program->microbatches * (size_t)c->program->nchunk * 3, all = n;
  for (int k = 0; k < 3; k++) all += class_slots(c->program, k);
  c->slot = malloc(sizeof *c->slot * (all + 1));
  if (!c->slot) return 0;
  for (size_t i = 0; i < all; i++) c->slot[i] = -1;
  c->owner[0] = c->slot + n;
  c->owner[1] = c->owner[0] + class_slots(c->program, 0);
  c->owner[2] = c->owner[1] + class_slots(c->program, 1);
  return 1;
}

static tr_status allocate(tr__checker *c) {
  size_t mb = (size_t)c->program->microbatches, npiece = (size_t)c->model->npiece, pieces = mb * npiece,
         units = (size_t)c->model->nunit, nop = c->program->nop, ncomm = 0;
  c->number = calloc(2 * nop + 1, sizeof *c->number);
  for (size_t i = 0; c->number && i < nop; i++)
    if (c->program->op[i].lane != TR_LANE_COMPUTE && !tr__is_message(&c->program->op[i]))
      c->number[i] = (uint32_t)ncomm++;
  c->nword = (ncomm + 63) / 64;
  c->ended = calloc(nop * c->nword + 1, sizeof *c->ended);
  c->reduce = calloc((c->every ? mb : 1) * units + 1, sizeof *c->reduce);
  c->forward = calloc(3 * pieces + 1, sizeof *c->forward);
  c->ninput = calloc(2 * npiece + 1, sizeof *c->ninput);
  c->updated = calloc(2 * units + 1, 1);
  if (!c->number || !c->ended || !c->reduce || !c->forward || !c->ninput || !c->updated || !allocate_slots(c))
    return tr_error(TR_ERR_MEMORY, "no memory to check the step program");
  c->computed = c->number + nop;
  c->input = c->forward + pieces;
  c->weight = c->input + pieces;
  c->nweight = c->ninput + npiece;
  c->published = c->updated + units;
  return TR_OK;
}

static int is_split(const tr_program *p) {
  for (uint32_t i = 0; i < p->nop; i++)
    if (p->op[i].kind == TR_OP_W) return 1;
  return 0;
}

tr_status tr_program_check(const tr_program *program, const tr_step_model *model, const tr_step_options *options) {
  if (program->p == 1 && program->nchunk == 1 && program->microbatches != options->microbatches)
    return tr_error(TR_ERR_PLAN, "step program: made for %d micro-batches, the plan has %d", program->microbatches,
                    options->microbatches);
  TR_TRY(tr__check_links(program));
  tr__checker c = {.program = program,
                   .model = model,
                   .options = options,
                   .every = options->grad_sync == TR_SYNC_EVERY,
                   .split = options->split_backward || is_split(program),
                   .gathers = options->zero || program->p > 1};
  tr_status status = allocate(&c);
  if (status == TR_OK) status = check_all(&c);
  free(c.number);
  free(c.ended);
  free(c.reduce);
  free(c.slot);
  free(c.forward);
  free(c.ninput);
  free(c.updated);
  return status;
}
