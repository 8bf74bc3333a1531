// SPDX-License-Identifier: MIT
// Laying out and binding the memory of a run. tr_run_memory_predict and tr_run_create walk the same list, so what is
// predicted is what is taken.
#include "run/run_internal.h"
#include <stdlib.h>
#include <string.h>

void tr_run_options_init(tr_run_options *options) {
  *options = (tr_run_options){.size = sizeof *options, .kernels = tr_kernels_reference(), .type = TR_F32};
  options->optim = (tr_optim){.kind = TR_OPTIM_ADAMW, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1};
}

static size_t blocks(size_t count, size_t nbyte) { return count * tr_arena_rounded(nbyte); }

static size_t slot_bytes(const tr_run_options *o, const tr__value_plan *plan) {
  if (!o->program) return plan->size[TR__FI] + plan->size[TR__FW];
  return (size_t)o->program->slots_fi * plan->size[TR__FI] + (size_t)o->program->slots_fw * plan->size[TR__FW] +
         (size_t)o->program->slots_iw * plan->size[TR__IW];
}

static void predict(const tr_run_options *o, const tr__value_plan *plan, int nthread, int dp, tr_run_memory *out) {
  size_t total = (size_t)o->layout->total, wide = tr_dtype_size(tr_wide(o->type));
  int training = o->program != NULL, separate_master = training && o->type != tr_wide(o->type);
  *out = (tr_run_memory){
      .weights = tr_arena_rounded(total * tr_dtype_size(o->type)),
      .master = separate_master ? tr_arena_rounded(total * wide) : 0,
      .gradients = training ? blocks(o->grad_sync == TR_SYNC_EVERY ? 2 : 1, total * wide) : 0,
      .state = training ? blocks((size_t)tr_optim_state_count(&o->optim), total * sizeof(float)) : 0,
      .activations = slot_bytes(o, plan),
      .recompute = plan->size[TR__RECOMPUTE],
      .temporaries = plan->size[TR__TEMPORARY],
      .kernel_scratch = tr__kernel_scratch(o->model, o->kernels, o->type, o->rows, nthread),
  };
  out->shared_total = training ? out->gradients + tr_arena_rounded(2 * sizeof(double) * (size_t)dp) : 0;
  out->private_total = out->weights + out->master + out->state + tr_arena_rounded(out->activations) +
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

tr_status tr_run_memory_predict(const tr_run_options *options, int nthread, int dp, tr_run_memory *out) {
  tr__value_plan plan;
  TR_TRY(plan_values(options, &plan));
  predict(options, &plan, nthread, dp, out);
  tr__value_plan_free(&plan);
  return TR_OK;
}

static void beat(void *comm) { tr_comm_beat(comm); }

// Private memory in the order of the prediction.
static tr_status bind_private(tr_run *run, const tr_run_memory *need) {
  const tr_run_options *o = &run->options;
  TR_TRY(tr_arena_create(&run->memory, "model", need->private_total));
  run->weights = tr_arena_alloc(&run->memory, need->weights);
  run->master = need->master ? tr_arena_alloc(&run->memory, need->master) : run->weights;
  for (int i = 0; o->program && i < tr_optim_state_count(&o->optim); i++)
    run->state[i] = tr_arena_alloc(&run->memory, (size_t)o->layout->total * sizeof(float));
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
  size_t one = need->gradients / (o->grad_sync == TR_SYNC_EVERY ? 2 : 1);
  run->partial = run->gradients = tr_arena_alloc(arena, one);
  if (run->gradients && o->grad_sync == TR_SYNC_EVERY) run->gradients = tr_arena_alloc(arena, one);
  run->sums = tr_arena_alloc(arena, 2 * sizeof(double) * (size_t)run->dp);
  if (!run->gradients || !run->sums) return TR_ERR_MEMORY;
  memset(run->gradients, 0, one); // padding stays zero for ever: flat sums run over it
  memset(run->partial, 0, one);
  return TR_OK;
}

static tr_status bind_facts(tr_run *run) {
  const tr_model *model = run->options.model;
  int n = tr_model_pieces(model);
  run->grad_first = calloc((size_t)n, TR_PIECE_PORTS);
  run->param_first = calloc((size_t)n, TR_PIECE_PARAMS);
  run->squares = calloc((size_t)tr_layout_blocks(run->options.layout, run->options.layout->nunit) + 1,
                        sizeof *run->squares);
  run->segment = calloc((size_t)tr_model_params(model) + 1, sizeof *run->segment);
  uint32_t nop = run->options.program ? run->options.program->nop : 0;
  run->done = calloc(nop + 1, sizeof *run->done);
  run->pending = calloc(nop + 1, sizeof *run->pending);
  run->active = calloc(nop + 1, sizeof *run->active);
  if (!run->squares || !run->grad_first || !run->param_first || !run->segment || !run->done || !run->pending || !run->active)
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
  predict(o, &run->plan, tr_pool_nthread(o->pool), run->dp, &need);
  TR_TRY(bind_private(run, &need));
  TR_TRY(bind_shared(run, &need));
  TR_TRY(bind_facts(run));
  return tr_compute_open(o->kernels, o->pool, &run->scratch, &run->compute);
}

tr_status tr_run_create(const tr_run_options *options, tr_run **out) {
  tr_run *run = calloc(1, sizeof *run);
  if (!run) return tr_error(TR_ERR_MEMORY, "no memory for a run");
  run->options = *options;
  run->wide = tr_wide(options->type);
  run->dp = options->dp ? tr_group_size(options->dp) : 1;
  tr_status status = bind(run);
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
  free(run->squares);
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

void tr_run_publish(tr_run *run) {
  if (run->master == run->weights) return;
  size_t n = (size_t)run->options.layout->total;
  run->compute.kernels->convert(&run->compute, n, run->wide, run->master, run->options.type, run->weights);
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

void tr_run_init_weights(tr_run *run, uint64_t seed) {
  const tr_layout *layout = run->options.layout;
  // An evaluation-only run in bf16 keeps no master: its weights are written directly.
  tr_dtype type = run->master == run->weights ? run->options.type : run->wide;
  for (int i = 0; i < layout->nparam; i++) {
    init_job job = {.param = tr_model_param(run->options.model, i),
                    .seed = seed,
                    .type = type,
                    .out = (char *)run->master + (size_t)layout->param_offset[i] * tr_dtype_size(type),
                    .count = layout->param_count[i]};
    tr_pool_run(run->options.pool, (int)((job.count + INIT_BLOCK - 1) / INIT_BLOCK), init_task, &job);
    if (run->options.comm) tr_comm_beat(run->options.comm);
  }
  tr_run_publish(run);
}
