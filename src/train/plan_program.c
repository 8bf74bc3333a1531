// SPDX-License-Identifier: MIT
// The step programs of a plan: one per place in the pipeline, each proved alone, and all of a pipeline together, before any
// rank exists.
#include "train/train_internal.h"
#include <stdlib.h>

// Ranks that sum their gradients: those of a data group; where two places of a pipeline have the same stages, both their
// groups.
static int gradient_ranks(const tr_train_plan *plan) {
  int copies = plan->schedule.p && plan->schedule.map == TR_STAGES_BOTH ? 2 : 1;
  return plan->mesh.degree[TR_AXIS_DP] * copies;
}

static tr_status build(const tr_train_plan *plan, int rank, tr_train_part *part) {
  const tr_train_config *c = plan->config;
  int nunit = tr_model_units(part->model);
  tr_program_destroy(&part->program);
  free(part->recompute);
  part->step = plan->step;
  part->step.recompute = part->recompute = malloc(sizeof *part->recompute * (size_t)nunit);
  int *last_piece = part->recompute ? malloc(sizeof *last_piece * (size_t)nunit) : NULL;
  if (!last_piece) return tr_error(TR_ERR_MEMORY, "no memory to plan %d units", nunit);
  for (int i = 0; i < nunit; i++) last_piece[i] = tr_model_unit_last_piece(part->model, i);
  tr_step_model model = {.npiece = tr_model_pieces(part->model),
                         .nunit = nunit,
                         .unit_last_piece = last_piece,
                         .unit_start = part->layout.unit_start};
  tr_status status = tr_run_recompute_ranges(part->model, (tr_recompute)c->memory.recompute, part->recompute,
                                             &part->step.nrecompute);
  if (status == TR_OK)
    status = plan->schedule.p ? tr_program_build_pipeline(&plan->schedule, rank, &model, part->chunk_piece,
                                                          &part->step, &part->program)
                              : tr_program_build(&model, &part->step, &part->program);
  if (status == TR_OK) status = tr_program_check(&part->program, &model, &part->step);
  free(last_piece);
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
  const int ranks = gradient_ranks(plan), spans_hosts = plan->local < c->run.ranks;
  plan->step = (tr_step_options){.microbatches = plan->accumulation,
                                 .dp = ranks,
                                 .grad_sync = (tr_grad_sync)c->comm.grad_sync,
                                 .bucket_elements = c->comm.bucket / (int64_t)sizeof(float),
                                 .zero = ranks > 1 && !spans_hosts ? (int)c->parallel.zero : 0};
  for (int r = 0; r < plan->mesh.degree[TR_AXIS_PP]; r++) TR_TRY(build(plan, r, &plan->part[r]));
  return plan->schedule.p ? check_together(plan) : TR_OK;
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
  out->recompute = (tr_recompute)c->memory.recompute;
  out->optim = plan->optim;
  out->clip = c->optim.clip;
  out->seed = (uint64_t)c->train.seed;
}

void tr_train_run_options(const tr_train_plan *plan, int rank, tr_run_options *out) {
  tr__part_run_options(plan, tr_train_part_of(plan, rank), out);
}

int tr_train_gradient_place(const tr_train_plan *plan, int rank) {
  int dp = plan->mesh.degree[TR_AXIS_DP], place = tr_mesh_coordinate(&plan->mesh, rank, TR_AXIS_DP);
  int second = 2 * tr_mesh_coordinate(&plan->mesh, rank, TR_AXIS_PP) >= plan->mesh.degree[TR_AXIS_PP];
  return place + (plan->step.dp > dp && second ? dp : 0);
}
