// SPDX-License-Identifier: MIT
// The executor's memory added up (runtime.h): blocks as they are taken, each rounded up to the arena's grain.
#include "plan/runtime_internal.h"
#include "trireme/base/arena.h"

static size_t blocks(size_t count, size_t nbyte) { return count * tr_arena_rounded(nbyte); }

static int has_kind(const tr_program *program, tr_op_kind kind) {
  for (uint32_t i = 0; i < program->nop; i++)
    if (program->op[i].kind == kind) return 1;
  return 0;
}

// ---- activations, and what is not kept

static size_t slots_bytes(int fi, int fw, int iw, const size_t *size) {
  return (size_t)fi * size[TR_PLACE_FI] + (size_t)fw * size[TR_PLACE_FW] + (size_t)iw * size[TR_PLACE_IW];
}

static size_t kept_bytes(const tr_program *program, const tr_value_plan *values) {
  size_t sum = 0;
  if (program->nchunk == 0)
    return slots_bytes(program->slots_fi, program->slots_fw, program->slots_iw, values->size[0]);
  for (int c = 0; c < program->nchunk; c++) {
    const tr_chunk *chunk = &program->chunk[c];
    sum += slots_bytes(chunk->slots_fi, chunk->slots_fw, chunk->slots_iw, values->size[c]);
  }
  return sum;
}

// Halves of a pair that alternate, around pieces that exchange, need temporaries of their own.
static int pairs_alternate(const tr_program *program) {
  for (uint32_t i = 0; i < program->nop; i++)
    if (tr_op_queue(&program->op[i]) == TR_QUEUE_EXCHANGES) return 1;
  return 0;
}

static size_t scratch_bytes(const tr_runtime_plan *p, const tr_model *model) {
  size_t most = 0;
  for (int i = 0; i < tr_model_pieces(model); i++) {
    const tr_piece *piece = tr_model_piece(model, i);
    if (!piece->ops->scratch) continue;
    const size_t need = piece->ops->scratch(piece, p->kernels, p->type, p->rows, p->threads);
    most = need > most ? need : most;
  }
  return tr_arena_rounded(most) + TR_ARENA_ALIGN;
}

static tr_status plan_values(const tr_runtime_plan *p, const tr_runtime_part *part, tr_value_plan *out) {
  const int split = has_kind(part->program, TR_OP_I);
  const tr_value_options options = {.type = p->type,
                                    .rows = p->rows,
                                    .split = split,
                                    .whole = !split || has_kind(part->program, TR_OP_B),
                                    .recompute = (int)p->recompute};
  return tr_value_plan_make(part->model, &options, out);
}

// ---- rings

static int64_t ring_width(const tr_runtime_part *part, int ring) {
  for (int c = 0; c < part->program->nchunk; c++) {
    const tr_chunk *chunk = &part->program->chunk[c];
    int begin, end, value = -1;
    tr_model_boundary boundary;
    tr_model_range(part->model, c, &begin, &end, &boundary);
    if (chunk->ring_in == ring || chunk->ring_dout == ring) value = boundary.in;
    if (chunk->ring_out == ring || chunk->ring_din == ring) value = boundary.out;
    if (value >= 0) return tr_model_value(part->model, value)->width;
  }
  return 0;
}

// A message is a header and values; values that are handed over, or travel in another type, lie besides.
static void ring_bytes(const tr_runtime_plan *p, const tr_runtime_part *part, size_t *messages, size_t *values) {
  const tr_dtype wire = p->stage_wire == TR_BF16 && p->type == TR_F32 ? TR_BF16 : p->type;
  *messages = *values = 0;
  for (int r = 0; r < part->program->nring; r++) {
    const tr_ring *ring = &part->program->ring[r];
    const size_t nelem = (size_t)(p->rows * ring_width(part, r)), slots = (size_t)ring->slots;
    const int remote = ring->peer >= 0;
    if (remote) *messages += slots * (TR_ARENA_ALIGN + tr_arena_rounded(nelem * tr_dtype_size(wire)));
    if (!remote || wire != p->type) *values += slots * tr_arena_rounded(nelem * tr_dtype_size(p->type));
  }
}

// ---- state

size_t tr__runtime_packed_bytes(const tr_runtime_plan *p, const tr_model *model, int param) {
  const tr_param *w = tr_model_param(model, param);
  size_t sum = 0;
  if (!p->pack || !p->kernels->pack_size || w->shape.ndim != 2) return 0;
  for (int use = 0; use < TR_PACKS; use++)
    if (tr_model_param_pack(model, param) >> use & 1)
      sum += tr_arena_rounded(p->kernels->pack_size(p->type, w->shape.dim[0], w->shape.dim[1], (tr_pack)use));
  return sum;
}

typedef struct state {
  size_t weights, packed, master, moments, squares, gradients, wire;
} state;

static state state_of(const tr_runtime_plan *p, const tr_runtime_part *part) {
  const size_t total = (size_t)part->layout->total, wide = tr_dtype_size(tr_wide(p->type));
  const int narrow = p->dp > 1 && p->grad_wire == TR_BF16;
  state s = {.weights = tr_arena_rounded(total * tr_dtype_size(p->type)),
             .master = p->type != tr_wide(p->type) ? tr_arena_rounded(total * wide) : 0,
             .moments = blocks((size_t)tr_optim_state_count(p->optim), total * sizeof(float)),
             .gradients = blocks(p->grad_sync == TR_SYNC_EVERY ? 2 : 1, total * wide),
             .wire = narrow ? tr_arena_rounded(total * tr_dtype_size(TR_BF16)) : 0};
  s.squares = tr_arena_rounded(sizeof(double) * (size_t)tr_layout_blocks(part->layout, part->layout->nunit));
  for (int i = 0; i < tr_model_params(part->model); i++) s.packed += tr__runtime_packed_bytes(p, part->model, i);
  return s;
}

// Sums of each rank that gradients come from, and of each place in the pipeline.
static size_t small_bytes(const tr_runtime_plan *p, const tr_runtime_part *part) {
  const size_t units = (size_t)tr_model_units(tr_model_whole(part->model)) + 1, pp = (size_t)p->pp;
  return tr_arena_rounded((TR_ROLE_PACKED + 1) * sizeof(double) * (size_t)p->dp) +
         tr_arena_rounded(pp * units * sizeof(double));
}

static void add_up(const tr_runtime_plan *p, const tr_runtime_part *part, const tr_value_plan *values,
                   tr_runtime_memory *out) {
  const state s = state_of(p, part);
  const size_t kept = tr_arena_rounded(kept_bytes(part->program, values)),
               again = tr_arena_rounded(values->area[TR_PLACE_RECOMPUTE]), scratch = scratch_bytes(p, part->model),
               temporaries =
                   tr_arena_rounded(values->area[TR_PLACE_TEMPORARY] * (pairs_alternate(part->program) ? 2 : 1)),
               small = small_bytes(p, part), once = s.weights + s.packed + s.master + s.moments + s.squares;
  const int shares = p->zero && p->share > 1;
  size_t messages, handed, exchanged;
  ring_bytes(p, part, &messages, &handed);
  *out = (tr_runtime_memory){
      .item = {[TR_ITEM_WEIGHTS] = s.weights + s.packed,
               [TR_ITEM_GRADS] = s.gradients + s.wire,
               [TR_ITEM_STATES] = s.master + s.moments,
               [TR_ITEM_ACTIVATIONS] = kept + again,
               [TR_ITEM_BUFFERS] = s.squares + small + messages + handed + temporaries + scratch}};
  exchanged =
      tr_model_exchanges(part->model) ? kept + handed + again + temporaries : 0; // values, in the shared arena then
  out->shared = (s.wire ? s.wire : s.gradients) + small + messages + exchanged;
  out->host = shares ? once : 0;
  out->own =
      (shares ? 0 : once) + (s.wire ? s.gradients : 0) + kept + handed + again + temporaries + scratch - exchanged;
}

tr_status tr_runtime_memory_of(const tr_runtime_plan *p, int place, tr_runtime_memory *out) {
  const tr_runtime_part *part = &p->part[place];
  tr_value_plan values;
  TR_TRY(plan_values(p, part, &values));
  add_up(p, part, &values, out);
  tr_value_plan_free(&values);
  return TR_OK;
}
