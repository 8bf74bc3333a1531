// SPDX-License-Identifier: MIT
// Binding the memory of a run, in the order of what run_memory.c predicts; and the life of a run between its steps.
#include "run/run_internal.h"
#include "trireme/base/memory.h"
#include <stdlib.h>
#include <string.h>

void tr_run_options_init(tr_run_options *options) {
  *options = (tr_run_options){.size = sizeof *options,
                              .kernels = tr_kernels_reference(),
                              .type = TR_F32,
                              .grad_wire = TR_F32,
                              .stage_wire = TR_F32};
  options->optim = (tr_optim){.kind = TR_OPTIM_ADAMW, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1};
}

static void beat(void *comm) { tr_comm_beat(comm); }

static tr_status bind_gradients(tr_run *run, const tr_run_memory *need, tr_arena *arena) {
  int every = run->options.grad_sync == TR_SYNC_EVERY;
  size_t one = need->gradients / (every ? 2 : 1);
  run->partial = run->gradients = tr_arena_alloc(arena, one);
  if (run->gradients && every) run->gradients = tr_arena_alloc(arena, one);
  if (!run->gradients) return TR_ERR_MEMORY;
  memset(run->gradients, 0, one); // padding stays zero for ever: flat sums run over it
  memset(run->partial, 0, one);
  return TR_OK;
}

// Weights and all that is updated with them, from the rank's own memory or from that of all sharers.
static tr_status bind_state(tr_run *run, const tr_run_memory *need, tr_arena *arena) {
  const tr_run_options *o = &run->options;
  run->weights = tr_arena_alloc(arena, need->weights);
  run->packed = need->packed ? tr_arena_alloc(arena, need->packed) : NULL;
  run->master = need->master ? tr_arena_alloc(arena, need->master) : run->weights;
  for (int i = 0; o->program && i < tr_optim_state_count(&o->optim); i++)
    run->state[i] = tr_arena_alloc(arena, (size_t)o->layout->total * sizeof(float));
  if (!o->program) return TR_OK;
  run->squares = tr_arena_alloc(arena, tr__run_squares_bytes(o));
  return run->squares ? TR_OK : TR_ERR_MEMORY;
}

static tr_status bind_shared_state(tr_run *run, const tr_run_memory *need) {
  void *memory;
  tr_arena view;
  if (!need->host_total) return TR_OK;
  TR_TRY(tr_group_shared(run->sharers, need->host_total, &memory));
  tr_arena_wrap(&view, "shared state", memory, need->host_total);
  TR_TRY(bind_state(run, need, &view));
  tr__share_zero(run); // padding stays zero for ever: flat sums run over it
  tr_memory_map_pages(memory, need->host_total);
  return tr_group_barrier(run->sharers);
}

// Copies of each lifetime class of each chunk, behind each other.
static void bind_slots(tr_run *run, char *slots) {
  for (int c = 0; c < run->nchunk; c++) {
    const int copies[] = {[TR_PLACE_FI] = run->chunk[c].slots_fi,
                          [TR_PLACE_FW] = run->chunk[c].slots_fw,
                          [TR_PLACE_IW] = run->chunk[c].slots_iw};
    for (int where = TR_PLACE_FI; where <= TR_PLACE_IW; where++) {
      run->bound[c].slot[where] = slots;
      slots += (size_t)copies[where] * run->plan.size[c][where];
    }
  }
}

// Values and their gradients: private, or, where pieces exchange them, where what travels lies.
static tr_status bind_values(tr_run *run, const tr_run_memory *need, tr_arena *arena) {
  char *slots = tr_arena_alloc(arena, need->activations);
  run->area[TR_PLACE_RECOMPUTE] = tr_arena_alloc(arena, need->recompute);
  run->area[TR_PLACE_TEMPORARY] = tr_arena_alloc(arena, need->temporaries);
  if (!run->area[TR_PLACE_TEMPORARY]) return TR_ERR_MEMORY;
  bind_slots(run, slots);
  run->beside = need->temporaries > run->plan.area[TR_PLACE_TEMPORARY] ? run->plan.area[TR_PLACE_TEMPORARY] : 0;
  if (arena != &run->memory)
    memset(slots, 0, tr__run_values_bytes(need)); // private pages are touched with all others
  return TR_OK;
}

// Private memory in the order of the prediction.
static tr_status bind_private(tr_run *run, const tr_run_memory *need) {
  const tr_run_options *o = &run->options;
  TR_TRY(tr_arena_create(&run->memory, "model", need->private_total));
  if (!need->host_total) TR_TRY(bind_state(run, need, &run->memory));
  if (need->wire) TR_TRY(bind_gradients(run, need, &run->memory));
  if (!tr__run_values_travel(o)) TR_TRY(bind_values(run, need, &run->memory));
  void *scratch = tr_arena_alloc(&run->memory, need->kernel_scratch);
  if (!scratch) return TR_ERR_MEMORY;
  tr_arena_wrap(&run->scratch, "kernel scratch", scratch, need->kernel_scratch);
  tr_arena_prefault(&run->memory, o->comm ? beat : NULL, o->comm);
  return TR_OK;
}

// What travels: gradients, what crosses between stages, and the small sums, in the rank's shared arena, or in private
// memory for a single rank without one.
static tr_status bind_shared(tr_run *run, const tr_run_memory *need) {
  const tr_run_options *o = &run->options;
  if (!o->program) return TR_OK;
  if (!o->comm) {
    char *memory = aligned_alloc(TR_ARENA_ALIGN, need->shared_total);
    if (!memory) return tr_error(TR_ERR_MEMORY, "no memory for %zu bytes of gradients", need->shared_total);
    tr_arena_wrap(&run->own_shared, "gradients", memory, need->shared_total);
  }
  tr_arena *arena = o->comm ? tr_comm_arena(o->comm) : &run->own_shared;
  run->shared_mark = tr_arena_mark(arena);
  if (need->wire)
    run->wire = tr_arena_alloc(arena, need->wire);
  else
    TR_TRY(bind_gradients(run, need, arena));
  TR_TRY(tr__rings_bind(run, arena));
  if (tr__run_values_travel(o)) TR_TRY(bind_values(run, need, arena));
  run->sums = tr_arena_alloc(arena, tr__run_sums_bytes(run->ngrad));
  run->norms = tr_arena_alloc(arena, tr__run_norms_bytes(o));
  if (!run->norms) return TR_ERR_MEMORY;
  if (run->wire) memset(run->wire, 0, need->wire);
  return bind_shared_state(run, need);
}

static tr_status bind_packed(tr_run *run) {
  const tr_run_options *o = &run->options;
  size_t n = (size_t)tr_model_params(o->model) * TR_PACKS, at = 0;
  run->packed_at = malloc((n + 1) * sizeof *run->packed_at);
  if (!run->packed_at) return tr_error(TR_ERR_MEMORY, "no memory for the table of %zu packed weights", n);
  for (size_t i = 0; i < n; i++) {
    size_t nbyte = tr_run_packed_bytes(o, (int)(i / TR_PACKS), (tr_pack)(i % TR_PACKS));
    run->packed_at[i] = nbyte ? at : SIZE_MAX;
    at += tr_arena_rounded(nbyte);
  }
  return TR_OK;
}

// No later piece of the same chunk uses the parameter.
static int param_first_of_chunk(const tr_model *model, int piece, int k, int end) {
  int param = tr_model_piece(model, piece)->param[k];
  for (int i = piece + 1; i < end; i++)
    for (int j = 0; j < tr_model_piece(model, i)->nparam; j++)
      if (tr_model_piece(model, i)->param[j] == param) return 0;
  return 1;
}

static void note_chunk(tr_run *run, int range) {
  const tr_model *model = run->options.model;
  int begin, end;
  tr_model_boundary boundary;
  tr_model_range(model, range, &begin, &end, &boundary);
  for (int i = begin; i < end; i++) {
    const tr_piece *piece = tr_model_piece(model, i);
    for (int k = 0; k < piece->nin; k++)
      run->grad_first[i * TR_PIECE_PORTS + k] = (unsigned char)tr_model_grad_is_first(model, i, k);
    for (int k = 0; k < piece->nparam; k++) {
      run->param_first[i * TR_PIECE_PARAMS + k] = (unsigned char)param_first_of_chunk(model, i, k, end);
      if (tr_model_unit_last_piece(model, tr_model_param(model, piece->param[k])->unit) < begin)
        run->touched[piece->param[k]] = TR__SHARED;
    }
  }
}

static tr_status bind_facts(tr_run *run) {
  const tr_model *model = run->options.model;
  int n = tr_model_pieces(model);
  run->grad_first = calloc((size_t)n, TR_PIECE_PORTS);
  run->param_first = calloc((size_t)n, TR_PIECE_PARAMS);
  run->touched = calloc((size_t)tr_model_params(model) + 1, 1);
  run->segment = calloc((size_t)tr_model_params(model) + 1, sizeof *run->segment);
  if (!run->grad_first || !run->param_first || !run->touched || !run->segment)
    return tr_error(TR_ERR_MEMORY, "no memory for the tables of %d pieces", n);
  for (int r = 0; r < tr_model_ranges(model); r++) note_chunk(run, r);
  return TR_OK;
}

// Tables that grow with the program.
static tr_status bind_program(tr_run *run) {
  const tr_program *program = run->options.program;
  size_t nop = program ? program->nop : 0, slots = 0;
  for (int r = 0; r < run->nring; r++) slots += (size_t)program->ring[r].slots;
  run->bound = calloc((size_t)run->nchunk, sizeof *run->bound);
  run->ring = calloc((size_t)run->nring + 1, sizeof *run->ring);
  run->losses = calloc(program ? (size_t)program->microbatches : 1, sizeof *run->losses);
  run->eval_request = calloc(slots + 1, sizeof *run->eval_request);
  run->done = calloc(nop + 1, sizeof *run->done);
  run->pending = calloc(nop + 1, sizeof *run->pending);
  run->active = calloc(nop + 1, sizeof *run->active);
  run->phase = calloc(nop + 1, sizeof *run->phase);
  if (!run->bound || !run->ring || !run->losses || !run->eval_request || !run->done || !run->pending ||
      !run->active || !run->phase)
    return tr_error(TR_ERR_MEMORY, "no memory for the tables of %zu operations", nop);
  return tr__run_queues_make(run);
}

enum { EXCHANGES = 2 }; // one of each half of a pair

// Operations under way at once: how many there are depends on time, so room for all is taken now.
static tr_status reserve_operations(const tr_run *run) {
  const tr_program *program = run->options.program;
  int nmessage = 0;
  for (int r = 0; r < run->nring; r++) nmessage += program->ring[r].peer < 0 ? 0 : program->ring[r].slots;
  if (run->grads && program) TR_TRY(tr_group_reserve(run->grads, program->nbucket + 4));
  if (run->options.peers) TR_TRY(tr_group_reserve(run->options.peers, EXCHANGES));
  return run->options.pp ? tr_group_reserve(run->options.pp, nmessage + 4) : TR_OK;
}

static tr_status bind(tr_run *run) {
  const tr_run_options *o = &run->options;
  tr_run_memory need;
  TR_TRY(tr__run_plan_values(o, &run->plan));
  tr__run_predict(o, &run->plan, tr_pool_nthread(o->pool), run->ngrad, run->nsharer, &need);
  tr_memory_map_code();
  TR_TRY(bind_program(run));
  TR_TRY(tr__shares_make(run));
  TR_TRY(bind_private(run, &need));
  TR_TRY(bind_shared(run, &need));
  TR_TRY(bind_facts(run));
  TR_TRY(bind_packed(run));
  TR_TRY(tr__norm_bind(run));
  TR_TRY(tr__tied_bind(run));
  TR_TRY(reserve_operations(run));
  TR_TRY(tr_compute_open(o->kernels, o->pool, &run->scratch, &run->compute));
  run->inline_compute = run->compute;
  run->inline_compute.pool = NULL;
  return tr__eval_bind(run);
}

static void place_of(const tr_group *group, int *size, int *index) {
  *size = group ? tr_group_size(group) : 1;
  *index = group ? tr_group_rank(group) : 0;
}

tr_status tr_run_create(const tr_run_options *options, tr_run **out) {
  tr_run *run = calloc(1, sizeof *run);
  if (!run) return tr_error(TR_ERR_MEMORY, "no memory for a run");
  run->options = *options;
  run->wide = tr_wide(options->type);
  run->grads = options->grads ? options->grads : options->dp;
  place_of(options->dp, &run->dp, &run->dp_rank);
  place_of(run->grads, &run->ngrad, &run->grad_rank);
  run->sharers = options->share ? options->share : run->grads;
  place_of(run->sharers, &run->nsharer, &run->sharer);
  place_of(options->pp, &run->pp, &run->pp_rank);
  run->shares = tr__run_shares_state(options, run->nsharer);
  run->wire_type = tr__run_wire_type(options, run->ngrad);
  run->stage_type = tr__ring_type(options);
  run->nchunk = tr__run_chunks(options, &run->only, &run->chunk);
  run->nring = options->program ? options->program->nring : 0;
  tr_status status = tr__run_check(run);
  if (status == TR_OK) status = bind(run);
  if (status < 0) {
    tr_run_destroy(run);
    return status;
  }
  *out = run;
  return TR_OK;
}

void tr_run_destroy(tr_run *run) {
  if (!run) return;
  if (run->compute.kernels) tr_compute_close(&run->compute);
  if (run->options.comm && run->partial) tr_arena_reset(tr_comm_arena(run->options.comm), run->shared_mark);
  free(run->own_shared.base);
  tr_arena_destroy(&run->memory);
  tr_value_plan_free(&run->plan);
  free(run->bound);
  free(run->ring);
  free(run->losses);
  free(run->eval_request);
  free(run->norm_unit);
  free(run->tied_starts);
  free(run->grad_first);
  free(run->param_first);
  free(run->touched);
  free(run->packed_at);
  tr__shares_free(run);
  free(run->segment);
  free(run->done);
  free(run->pending);
  free(run->active);
  free(run->phase);
  free(run->queued);
  free(run->queue);
  free(run);
}

void *tr_run_master(tr_run *run) { return run->master; }
void *tr_run_weights(tr_run *run) { return run->weights; }
void *tr_run_gradients(tr_run *run) { return run->gradients; }
float *tr_run_state(tr_run *run, int i) { return i >= 0 && i < TR_OPTIM_MAX_STATE ? run->state[i] : NULL; }
int64_t tr_run_updates(const tr_run *run) { return run->updates; }
void tr_run_set_updates(tr_run *run, int64_t updates) { run->updates = updates; }
const tr_layout *tr_run_layout(const tr_run *run) { return run->options.layout; }

void tr_run_sharers(const tr_run *run, int *index, int *count) {
  *index = run->shares ? run->sharer : 0;
  *count = run->shares ? run->nsharer : 1;
}

// Sharers wait for each other: what one of them wrote, all read.
static tr_status meet(const tr_run *run) { return run->shares ? tr_group_barrier(run->sharers) : TR_OK; }

tr_status tr_run_publish(tr_run *run) {
  const tr_layout *layout = run->options.layout;
  TR_TRY(meet(run));
  for (int unit = 0; unit < layout->nunit && run->master != run->weights; unit++) {
    int64_t first, count;
    tr__share_of_unit(run, unit, &first, &count);
    run->compute.kernels->convert(&run->compute, (size_t)count, run->wide,
                                  (char *)run->master + (size_t)first * tr_dtype_size(run->wide), run->options.type,
                                  (char *)run->weights + (size_t)first * tr_dtype_size(run->options.type));
    if (run->options.comm) tr_comm_beat(run->options.comm);
  }
  TR_TRY(meet(run));
  for (int unit = 0; unit < layout->nunit; unit++) tr__run_pack(run, unit);
  return meet(run);
}

// One parameter's initial values, in blocks that any worker may take.
typedef struct init_job {
  const tr_param *param;
  uint64_t seed;
  tr_dtype type;
  char *out;
  int64_t count;
} init_job;

enum { INIT_BLOCK = 4096 };

// f32 values in a small buffer, converted to the master's type, so that f64 runs start from the same weights.
static void init_task(void *context, int task, int worker) {
  (void)worker;
  const init_job *job = context;
  float block[INIT_BLOCK];
  int64_t first = (int64_t)task * INIT_BLOCK, count = job->count - first;
  if (count > INIT_BLOCK) count = INIT_BLOCK;
  tr_param_init(job->param, job->seed, block, first, count);
  tr_convert(TR_F32, block, job->type, job->out + (size_t)first * tr_dtype_size(job->type), (size_t)count);
}

// Sharers take turns by parameter.
tr_status tr_run_init_weights(tr_run *run, uint64_t seed) {
  const tr_layout *layout = run->options.layout;
  // An evaluation-only run in bf16 keeps no master: its weights are written directly.
  tr_dtype type = run->master == run->weights ? run->options.type : run->wide;
  int index, count;
  tr_run_sharers(run, &index, &count);
  for (int i = index; i < layout->nparam; i += count) {
    init_job job = {.param = tr_model_param(run->options.model, i),
                    .seed = seed,
                    .type = type,
                    .out = (char *)run->master + (size_t)layout->param_offset[i] * tr_dtype_size(type),
                    .count = layout->param_count[i]};
    tr_pool_run(run->options.pool, (int)((job.count + INIT_BLOCK - 1) / INIT_BLOCK), init_task, &job);
    if (run->options.comm) tr_comm_beat(run->options.comm);
  }
  return tr_run_publish(run);
}
