// SPDX-License-Identifier: MIT
// How much memory a run takes, and which runs can be. tr_run_memory_predict and tr_run_create (run.c) use the same numbers in
// the same order, so what is predicted is what is taken.
#include "run/run_internal.h"

static size_t blocks(size_t count, size_t nbyte) { return count * tr_arena_rounded(nbyte); }

// The program's chunks; the one chunk of a program, or of a run without one, that lists none.
int tr__run_chunks(const tr_run_options *o, tr_chunk *only, const tr_chunk **out) {
  const tr_program *program = o->program;
  if (program && program->nchunk) {
    *out = program->chunk;
    return program->nchunk;
  }
  *only = (tr_chunk){.piece_end = (uint32_t)tr_model_pieces(o->model),
                     .ring_in = -1,
                     .ring_out = -1,
                     .ring_din = -1,
                     .ring_dout = -1,
                     .slots_fi = program ? program->slots_fi : 1,
                     .slots_fw = program ? program->slots_fw : 1,
                     .slots_iw = program ? program->slots_iw : 0};
  *out = only;
  return 1;
}

int tr__run_shares_state(const tr_run_options *o, int nshare) { return o->program && o->zero && nshare > 1; }

int tr__run_values_travel(const tr_run_options *o) { return o->program && tr_model_exchanges(o->model); }

size_t tr__run_values_bytes(const tr_run_memory *need) {
  return tr_arena_rounded(need->activations) + tr_arena_rounded(need->recompute) +
         tr_arena_rounded(need->temporaries);
}

tr_dtype tr__run_wire_type(const tr_run_options *o, int ngrad) {
  return ngrad > 1 && o->grad_wire == TR_BF16 ? TR_BF16 : tr_wide(o->type);
}

// One number per rank and role of a small exchange.
size_t tr__run_sums_bytes(int ngrad) { return (TR_ROLE_PACKED + 1) * sizeof(double) * (size_t)ngrad; }

static size_t pipeline_size(const tr_run_options *o) {
  return o->program && o->program->p > 1 ? (size_t)o->program->p : 1;
}

size_t tr__run_norms_bytes(const tr_run_options *o) {
  return pipeline_size(o) * ((size_t)tr_model_units(tr_model_whole(o->model)) + 1) * sizeof(double);
}

size_t tr__run_squares_bytes(const tr_run_options *o) {
  return o->program ? tr_arena_rounded(sizeof(double) * (size_t)tr_layout_blocks(o->layout, o->layout->nunit)) : 0;
}

size_t tr__run_chunk_bytes(const tr_chunk *chunk, const size_t *size) {
  return (size_t)chunk->slots_fi * size[TR_PLACE_FI] + (size_t)chunk->slots_fw * size[TR_PLACE_FW] +
         (size_t)chunk->slots_iw * size[TR_PLACE_IW];
}

static int has_kind(const tr_program *program, tr_op_kind kind) {
  for (uint32_t i = 0; i < program->nop; i++)
    if (program->op[i].kind == kind) return 1;
  return 0;
}

// Halves of an overlapped pair alternate where a piece of one of them exchanges, so that each needs temporaries of its own.
static int pairs_alternate(const tr_program *program) {
  for (uint32_t i = 0; program && i < program->nop; i++)
    if (tr_op_queue(&program->op[i]) == TR_QUEUE_EXCHANGES) return 1;
  return 0;
}

size_t tr_run_packed_bytes(const tr_run_options *o, int param, tr_pack use) {
  const tr_param *p = tr_model_param(o->model, param);
  if (!o->program || !o->pack || !o->kernels->pack_size || p->shape.ndim != 2) return 0;
  if (!(tr_model_param_pack(o->model, param) >> use & 1)) return 0;
  return o->kernels->pack_size(o->type, p->shape.dim[0], p->shape.dim[1], use);
}

static size_t packed_total(const tr_run_options *o) {
  size_t total = 0;
  for (int i = 0; i < tr_model_params(o->model); i++)
    for (int use = 0; use < TR_PACKS; use++) total += tr_arena_rounded(tr_run_packed_bytes(o, i, (tr_pack)use));
  return total;
}

static size_t slots_of_rings(const tr_program *program) {
  size_t n = 0;
  for (int r = 0; program && r < program->nring; r++) n += (size_t)program->ring[r].slots;
  return n;
}

// What tr_value_plan_make, tr__shares_make and the bind functions of run.c allocate.
static size_t tables_bytes(const tr_run_options *o, int nshare) {
  const tr_program *program = o->program;
  size_t nop = program ? program->nop : 0, nbucket = program ? (size_t)program->nbucket : 0,
         nring = program ? (size_t)program->nring : 0, nchunk = (size_t)tr_model_ranges(o->model);
  return (size_t)tr_model_values(o->model) * 3 * sizeof(tr_place) +
         (size_t)tr_model_pieces(o->model) * (TR_PIECE_PORTS + TR_PIECE_PARAMS + 1) +
         (size_t)tr_model_params(o->model) * (sizeof(tr_optim_segment) + TR_PACKS * sizeof(size_t) + 1) +
         (size_t)tr_model_units(o->model) * sizeof(int) +
         nop * (sizeof(uint64_t) + sizeof(tr_request *) + 2 * sizeof(uint32_t) + 1) +
         nbucket * (sizeof(tr__share) + ((size_t)nshare + 1) * sizeof(size_t)) +
         nchunk * (sizeof(tr__bound_chunk) + TR_PLACE_CLASSES * sizeof(size_t)) +
         nring * (sizeof(tr__bound_ring) + sizeof(tr__queue)) + slots_of_rings(program) * sizeof(tr_request *) +
         2 * ((size_t)nshare + 1) * sizeof(size_t) + (program ? (size_t)program->microbatches * sizeof(double) : 0);
}

// Messages travel, so they are in the shared arena; values that are no messages are with all others.
static void predict_rings(const tr_run_options *o, size_t *messages, size_t *values) {
  *messages = *values = 0;
  for (int r = 0; o->program && r < o->program->nring; r++) {
    tr__ring_sizes sizes;
    tr__ring_sizes_of(o, r, &sizes);
    *messages += (size_t)o->program->ring[r].slots * sizes.message;
    *values += (size_t)o->program->ring[r].slots * sizes.values;
  }
}

static size_t activation_bytes(const tr_run_options *o, const tr_value_plan *plan) {
  tr_chunk only;
  const tr_chunk *chunk;
  size_t total = 0;
  int n = tr__run_chunks(o, &only, &chunk);
  for (int c = 0; c < n; c++) total += tr__run_chunk_bytes(&chunk[c], plan->size[c]);
  return total;
}

size_t tr__kernel_scratch(const tr_model *model, const tr_kernels *kernels, tr_dtype type, int64_t rows,
                          int nthread) {
  size_t most = 0;
  for (int i = 0; i < tr_model_pieces(model); i++) {
    const tr_piece *piece = tr_model_piece(model, i);
    size_t need = piece->ops->scratch ? piece->ops->scratch(piece, kernels, type, rows, nthread) : 0;
    if (need > most) most = need;
  }
  return tr_arena_rounded(most) + TR_ARENA_ALIGN;
}

void tr__run_predict(const tr_run_options *o, const tr_value_plan *plan, int nthread, int ngrad, int nshare,
                     tr_run_memory *out) {
  size_t total = (size_t)o->layout->total, wide = tr_dtype_size(tr_wide(o->type)), messages, values;
  int training = o->program != NULL, separate_master = training && o->type != tr_wide(o->type);
  int narrow = training && tr__run_wire_type(o, ngrad) != tr_wide(o->type);
  predict_rings(o, &messages, &values);
  *out = (tr_run_memory){
      .weights = tr_arena_rounded(total * tr_dtype_size(o->type)),
      .packed = packed_total(o),
      .master = separate_master ? tr_arena_rounded(total * wide) : 0,
      .gradients = training ? blocks(o->grad_sync == TR_SYNC_EVERY ? 2 : 1, total * wide) : 0,
      .wire = narrow ? tr_arena_rounded(total * tr_dtype_size(TR_BF16)) : 0,
      .state = training ? blocks((size_t)tr_optim_state_count(&o->optim), total * sizeof(float)) : 0,
      .activations = activation_bytes(o, plan),
      .rings = messages + values,
      .recompute = plan->area[TR_PLACE_RECOMPUTE],
      .temporaries = plan->area[TR_PLACE_TEMPORARY] * (pairs_alternate(o->program) ? 2 : 1),
      .kernel_scratch = tr__kernel_scratch(o->model, o->kernels, o->type, o->rows, nthread),
      .tables = tables_bytes(o, nshare),
  };
  size_t travels = narrow ? out->wire : out->gradients, stays = narrow ? out->gradients : 0;
  size_t state = out->weights + out->packed + out->master + out->state + tr__run_squares_bytes(o);
  size_t small = tr_arena_rounded(tr__run_sums_bytes(ngrad)) + tr_arena_rounded(tr__run_norms_bytes(o));
  int shares = tr__run_shares_state(o, nshare);
  size_t all_values = tr__run_values_bytes(out) + values, exchanged = tr__run_values_travel(o) ? all_values : 0;
  out->shared_total = training ? travels + small + messages + exchanged : 0;
  out->host_total = shares ? state : 0;
  out->private_total = (shares ? 0 : state) + stays + all_values - exchanged + out->kernel_scratch;
}

tr_status tr__run_plan_values(const tr_run_options *o, tr_value_plan *out) {
  tr_value_options options = {.type = o->type, .rows = o->rows};
  if (o->program) {
    options.split = o->split_backward || has_kind(o->program, TR_OP_I);
    options.whole = !options.split || has_kind(o->program, TR_OP_B);
    options.recompute = o->recompute;
  }
  return tr_value_plan_make(o->model, &options, out);
}

tr_status tr_run_memory_predict(const tr_run_options *options, int nthread, int ngrad, int nshare,
                                tr_run_memory *out) {
  tr_value_plan plan;
  TR_TRY(tr__run_check_chunks(options));
  TR_TRY(tr__run_plan_values(options, &plan));
  tr__run_predict(options, &plan, nthread, ngrad, nshare, out);
  tr_value_plan_free(&plan);
  return TR_OK;
}
