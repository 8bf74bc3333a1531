// SPDX-License-Identifier: MIT
// Laying out and binding the memory of a run. tr_run_memory_predict and tr_run_create walk the same list, so what is
// predicted is what is taken.
#include "run/run_internal.h"
#include "trireme/base/memory.h"
#include <stdlib.h>
#include <string.h>

void tr_run_options_init(tr_run_options *options) {
  *options = (tr_run_options){
      .size = sizeof *options, .kernels = tr_kernels_reference(), .type = TR_F32, .grad_wire = TR_F32};
  options->optim = (tr_optim){.kind = TR_OPTIM_ADAMW, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1};
}

static size_t blocks(size_t count, size_t nbyte) { return count * tr_arena_rounded(nbyte); }

static size_t sums_bytes(int dp) { return (TR_ROLE_PACKED + 1) * sizeof(double) * (size_t)dp; }

static size_t slot_bytes(const tr_run_options *o, const tr__value_plan *plan) {
  if (!o->program) return plan->size[TR__FI] + plan->size[TR__FW];
  return (size_t)o->program->slots_fi * plan->size[TR__FI] + (size_t)o->program->slots_fw * plan->size[TR__FW] +
         (size_t)o->program->slots_iw * plan->size[TR__IW];
}

static int shares_state(const tr_run_options *o, int share) { return o->program && o->zero && share > 1; }

static tr_dtype wire_type(const tr_run_options *o, int dp) {
  return dp > 1 && o->grad_wire == TR_BF16 ? TR_BF16 : tr_wide(o->type);
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

static size_t squares_bytes(const tr_run_options *o) {
  return o->program ? tr_arena_rounded(sizeof(double) * (size_t)tr_layout_blocks(o->layout, o->layout->nunit)) : 0;
}

// What tr__value_plan_make, tr__shares_make, bind_facts and bind_packed take.
static size_t tables_bytes(const tr_run_options *o, int share) {
  size_t nop = o->program ? o->program->nop : 0, nbucket = o->program ? (size_t)o->program->nbucket : 0;
  return (size_t)tr_model_values(o->model) * 2 * sizeof(tr__place) +
         (size_t)tr_model_pieces(o->model) * (TR_PIECE_PORTS + TR_PIECE_PARAMS + 1) +
         (size_t)tr_model_params(o->model) * (sizeof(tr_optim_segment) + TR_PACKS * sizeof(size_t)) +
         nop * (sizeof(uint64_t) + sizeof(tr_request *) + sizeof(uint32_t)) +
         nbucket * (sizeof(tr__share) + ((size_t)share + 1) * sizeof(size_t));
}

static void predict(const tr_run_options *o, const tr__value_plan *plan, int nthread, int dp, int share,
                    tr_run_memory *out) {
  size_t total = (size_t)o->layout->total, wide = tr_dtype_size(tr_wide(o->type));
  int training = o->program != NULL, separate_master = training && o->type != tr_wide(o->type);
  int narrow = training && wire_type(o, dp) != tr_wide(o->type);
  *out = (tr_run_memory){
      .weights = tr_arena_rounded(total * tr_dtype_size(o->type)),
      .packed = packed_total(o),
      .master = separate_master ? tr_arena_rounded(total * wide) : 0,
      .gradients = training ? blocks(o->grad_sync == TR_SYNC_EVERY ? 2 : 1, total * wide) : 0,
      .wire = narrow ? tr_arena_rounded(total * tr_dtype_size(TR_BF16)) : 0,
      .state = training ? blocks((size_t)tr_optim_state_count(&o->optim), total * sizeof(float)) : 0,
      .activations = slot_bytes(o, plan),
      .recompute = plan->size[TR__RECOMPUTE],
      .temporaries = plan->size[TR__TEMPORARY],
      .kernel_scratch = tr__kernel_scratch(o->model, o->kernels, o->type, o->rows, nthread),
      .tables = tables_bytes(o, share),
  };
  size_t travels = narrow ? out->wire : out->gradients, stays = narrow ? out->gradients : 0;
  size_t state = out->weights + out->packed + out->master + out->state + squares_bytes(o);
  out->shared_total = training ? travels + tr_arena_rounded(sums_bytes(dp)) : 0;
  out->host_total = shares_state(o, share) ? state : 0;
  out->private_total = (shares_state(o, share) ? 0 : state) + stays + tr_arena_rounded(out->activations) +
                       tr_arena_rounded(out->recompute) + tr_arena_rounded(out->temporaries) + out->kernel_scratch;
}

static tr_status plan_values(const tr_run_options *o, tr__value_plan *out) {
  tr__value_options options = {.type = o->type, .rows = o->rows};
  if (o->program) {
    options.gradients = 1;
    options.split_backward = o->split_backward;
    options.recompute = o->recompute;
  }
  return tr__value_plan_make(o->model, &options, out);
}

tr_status tr_run_memory_predict(const tr_run_options *options, int nthread, int dp, int share, tr_run_memory *out) {
  tr__value_plan plan;
  TR_TRY(plan_values(options, &plan));
  predict(options, &plan, nthread, dp, share, out);
  tr__value_plan_free(&plan);
  return TR_OK;
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
  run->squares = tr_arena_alloc(arena, squares_bytes(o));
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

// Private memory in the order of the prediction.
static tr_status bind_private(tr_run *run, const tr_run_memory *need) {
  const tr_run_options *o = &run->options;
  TR_TRY(tr_arena_create(&run->memory, "model", need->private_total));
  if (!need->host_total) TR_TRY(bind_state(run, need, &run->memory));
  if (need->wire) TR_TRY(bind_gradients(run, need, &run->memory));
  char *slots = tr_arena_alloc(&run->memory, need->activations);
  run->slot[TR__FI] = slots;
  run->slot[TR__FW] = slots + run->plan.size[TR__FI] * (size_t)(o->program ? o->program->slots_fi : 1);
  run->slot[TR__IW] = run->slot[TR__FW] + run->plan.size[TR__FW] * (size_t)(o->program ? o->program->slots_fw : 1);
  run->slot[TR__RECOMPUTE] = tr_arena_alloc(&run->memory, need->recompute);
  run->slot[TR__TEMPORARY] = tr_arena_alloc(&run->memory, need->temporaries);
  void *scratch = tr_arena_alloc(&run->memory, need->kernel_scratch);
  if (!scratch) return TR_ERR_MEMORY;
  tr_arena_wrap(&run->scratch, "kernel scratch", scratch, need->kernel_scratch);
  tr_arena_prefault(&run->memory, o->comm ? beat : NULL, o->comm);
  return TR_OK;
}

// What travels: gradients and the small sums, in the rank's shared arena, or in private memory for a
// single rank without one.
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
  run->sums = tr_arena_alloc(arena, sums_bytes(run->dp));
  if (!run->sums) return TR_ERR_MEMORY;
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

static tr_status bind_facts(tr_run *run) {
  const tr_model *model = run->options.model;
  int n = tr_model_pieces(model);
  run->grad_first = calloc((size_t)n, TR_PIECE_PORTS);
  run->param_first = calloc((size_t)n, TR_PIECE_PARAMS);
  run->segment = calloc((size_t)tr_model_params(model) + 1, sizeof *run->segment);
  uint32_t nop = run->options.program ? run->options.program->nop : 0;
  run->done = calloc(nop + 1, sizeof *run->done);
  run->pending = calloc(nop + 1, sizeof *run->pending);
  run->active = calloc(nop + 1, sizeof *run->active);
  if (!run->grad_first || !run->param_first || !run->segment || !run->done || !run->pending || !run->active)
    return tr_error(TR_ERR_MEMORY, "no memory for the tables of %d pieces", n);
  for (int i = 0; i < n; i++) {
    const tr_piece *piece = tr_model_piece(model, i);
    for (int k = 0; k < piece->nin; k++)
      run->grad_first[i * TR_PIECE_PORTS + k] = (unsigned char)tr_model_grad_is_first(model, i, k);
    for (int k = 0; k < piece->nparam; k++)
      run->param_first[i * TR_PIECE_PARAMS + k] = (unsigned char)tr_model_param_grad_is_first(model, i, k);
  }
  return TR_OK;
}

static tr_status bind(tr_run *run) {
  const tr_run_options *o = &run->options;
  tr_run_memory need;
  TR_TRY(plan_values(o, &run->plan));
  predict(o, &run->plan, tr_pool_nthread(o->pool), run->dp, run->nsharer, &need);
  tr_memory_map_code();
  TR_TRY(tr__shares_make(run));
  TR_TRY(bind_private(run, &need));
  TR_TRY(bind_shared(run, &need));
  TR_TRY(bind_facts(run));
  TR_TRY(bind_packed(run));
  TR_TRY(tr_compute_open(o->kernels, o->pool, &run->scratch, &run->compute));
  run->inline_compute = run->compute;
  run->inline_compute.pool = NULL;
  return TR_OK;
}

static tr_status check_options(const tr_run_options *o, int dp) {
  if (o->grad_wire != TR_F32 && o->grad_wire != TR_BF16)
    return tr_error(TR_ERR_PLAN, "gradients cannot travel as %s: f32 or bf16", tr_dtype_name(o->grad_wire));
  if (wire_type(o, dp) == TR_BF16 && (!o->zero || tr_wide(o->type) != TR_F32))
    return tr_error(TR_ERR_PLAN, "gradients travel as bf16 only with zero 1 and f32 sums");
  int again = 0;
  for (uint32_t i = 0; o->program && i < o->program->nop; i++) again |= o->program->op[i].kind == TR_OP_R;
  if (again && o->recompute == TR_RECOMPUTE_NONE)
    return tr_error(TR_ERR_PLAN, "the program computes values again, but the run keeps them all (recompute none)");
  return TR_OK;
}

tr_status tr_run_create(const tr_run_options *options, tr_run **out) {
  tr_run *run = calloc(1, sizeof *run);
  if (!run) return tr_error(TR_ERR_MEMORY, "no memory for a run");
  run->options = *options;
  run->wide = tr_wide(options->type);
  run->dp = options->dp ? tr_group_size(options->dp) : 1;
  run->dp_rank = options->dp ? tr_group_rank(options->dp) : 0;
  run->sharers = options->share ? options->share : options->dp;
  run->nsharer = run->sharers ? tr_group_size(run->sharers) : 1;
  run->sharer = run->sharers ? tr_group_rank(run->sharers) : 0;
  run->shares = shares_state(options, run->nsharer);
  run->wire_type = wire_type(options, run->dp);
  tr_status status = check_options(options, run->dp);
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
  tr__value_plan_free(&run->plan);
  free(run->grad_first);
  free(run->param_first);
  free(run->packed_at);
  tr__shares_free(run);
  free(run->segment);
  free(run->done);
  free(run->pending);
  free(run->active);
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
