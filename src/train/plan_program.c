// SPDX-License-Identifier: MIT
// The step programs of a plan: one per place in the pipeline, each proved alone, and all of a pipeline together, before any
// rank exists.
#include "train/train_internal.h"
#include "trireme/step/values.h"
#include <stdlib.h>

// `walk` NULL: no pipeline.
static tr_status lower(const tr_train_plan *plan, tr_walk *walk, int place, tr_train_part *part,
                       const tr_run_step_model *model) {
  TR_TRY(tr_value_recompute_ranges(part->model, (tr_recompute)plan->config->memory.recompute, part->recompute,
                                   &part->step.nrecompute));
  if (walk)
    TR_TRY(tr_program_build_rank(walk, place, &model->model, model->chunk_piece, &part->step, &part->program));
  else
    TR_TRY(tr_program_build(&model->model, &part->step, &part->program));
  return tr_program_check(&part->program, &model->model, &part->step);
}

static tr_status build(const tr_train_plan *plan, tr_walk *walk, int place, tr_train_part *part) {
  const size_t nunit = (size_t)tr_model_units(part->model);
  tr_run_step_model model;
  tr_program_destroy(&part->program);
  free(part->recompute);
  part->step = plan->step;
  part->step.recompute = part->recompute = malloc(sizeof *part->recompute * nunit);
  if (!part->recompute) return tr_error(TR_ERR_MEMORY, "no memory to plan %zu units", nunit);
  TR_TRY(tr_run_step_model_make(part->model, &part->layout, &model));
  tr_status status = lower(plan, walk, place, part, &model);
  tr_run_step_model_free(&model);
  return status;
}

static tr_status check_together(const tr_train_plan *plan) {
  int pp = plan->mesh.degree[TR_AXIS_PP];
  const tr_program **program = malloc((size_t)pp * sizeof *program);
  if (!program) return tr_error(TR_ERR_MEMORY, "no memory to check the programs of %d ranks", pp);
  for (int r = 0; r < pp; r++) program[r] = &plan->part[r].program;
  tr_status status = tr_program_check_pipeline(program, pp, 0);
  free(program);
  return status;
}

tr_status tr__plan_program(tr_train_plan *plan) {
  const tr_train_config *c = plan->config;
  const int ranks = tr__plan_gradient_ranks(plan);
  plan->step = (tr_step_options){.microbatches = plan->accumulation,
                                 .dp = ranks,
                                 .grad_sync = (tr_grad_sync)c->comm.grad_sync,
                                 .bucket_elements = c->comm.bucket / (int64_t)sizeof(float),
                                 .zero = ranks > 1 ? (int)c->parallel.zero : 0};
  tr_walk *walk = NULL;
  tr_status status = plan->schedule.p ? tr_walk_create(&plan->schedule, &walk) : TR_OK;
  for (int r = 0; r < plan->mesh.degree[TR_AXIS_PP] && status == TR_OK; r++)
    status = build(plan, walk, r, &plan->part[r]);
  if (walk && status == TR_OK) status = check_together(plan);
  tr_walk_destroy(walk);
  return status;
}

int tr__part_splits(const tr_train_part *part) {
  for (uint32_t i = 0; i < part->program.nop; i++)
    if (part->program.op[i].kind == TR_OP_I) return 1;
  return 0;
}

void tr__part_run_options(const tr_train_plan *plan, const tr_train_part *part, tr_run_options *out) {
  const tr_train_config *c = plan->config;
  tr_run_options_init(out);
  out->model = part->model;
  out->layout = &part->layout;
  out->program = &part->program;
  out->kernels = c->run.kernels == TR_KERNELS_REFERENCE ? tr_kernels_reference() : tr_kernels_cpu();
  out->type = tr__train_type(c);
  out->rows = plan->micro * c->data.sequence;
  out->split_backward = tr__part_splits(part);
  out->grad_sync = plan->step.grad_sync;
  out->zero = plan->step.zero;
  out->pack = c->memory.pack;
  out->grad_wire = c->precision.grad_wire == TR_COMPUTE_BF16 ? TR_BF16 : TR_F32;
  out->stage_wire = c->precision.stage_wire == TR_WIRE_BF16 ? TR_BF16 : TR_F32; // f32: as computed
  out->recompute = (tr_recompute)c->memory.recompute;
  out->optim = plan->optim;
  out->clip = c->optim.clip;
  out->seed = (uint64_t)c->train.seed;
}

void tr_train_run_options(const tr_train_plan *plan, int rank, tr_run_options *out) {
  tr__part_run_options(plan, tr_train_part_of(plan, rank), out);
}
