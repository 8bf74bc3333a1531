// SPDX-License-Identifier: MIT
// The step programs of a plan: one per place in the pipeline, each proved alone, and all of a pipeline together, before any
// rank exists.
#include "train/train_internal.h"
#include <stdlib.h>

// What lowering needs to know of a part: which units' gradients each chunk gives, and which of them others share.
typedef struct lists {
  int *last_piece;  // [units]
  int *chunk_piece; // [chunks][units]
  int *tied, ntied;
} lists;

static void note_piece(const tr_train_part *part, int chunk, int index, lists *l) {
  const tr_piece *piece = tr_model_piece(part->model, index);
  for (int k = 0; k < piece->nparam; k++) {
    int *lowest =
        &l->chunk_piece[chunk * tr_model_units(part->model) + tr_model_param(part->model, piece->param[k])->unit];
    if (*lowest < 0) *lowest = index;
  }
}

static int unit_is_tied(const tr_train_plan *plan, int place, int unit) {
  const tr_model *model = plan->part[place].model;
  for (int i = 0; i < tr_model_params(model); i++)
    if (tr_model_param(model, i)->unit == unit && tr__plan_ties(plan, place, i)) return 1;
  return 0;
}

static void fill_lists(const tr_train_plan *plan, int place, lists *l) {
  const tr_train_part *part = &plan->part[place];
  const int nunit = tr_model_units(part->model);
  for (int i = 0; i < nunit; i++) l->last_piece[i] = tr_model_unit_last_piece(part->model, i);
  for (int i = 0; i < part->nchunk * nunit; i++) l->chunk_piece[i] = -1;
  for (int c = 0; c < part->nchunk; c++)
    for (int i = part->chunk_piece[2 * c]; i < part->chunk_piece[2 * c + 1]; i++) note_piece(part, c, i, l);
  for (int i = 0; i < nunit && plan->schedule.p; i++)
    if (unit_is_tied(plan, place, i)) l->tied[l->ntied++] = i;
}

static tr_status lower(const tr_train_plan *plan, int place, tr_train_part *part, lists *l) {
  fill_lists(plan, place, l);
  const tr_step_model model = {.npiece = tr_model_pieces(part->model),
                               .nunit = tr_model_units(part->model),
                               .unit_last_piece = l->last_piece,
                               .unit_start = part->layout.unit_start,
                               .unit_chunk_piece = part->nchunk > 1 ? l->chunk_piece : NULL,
                               .tied = l->tied,
                               .ntied = l->ntied};
  TR_TRY(tr_run_recompute_ranges(part->model, (tr_recompute)plan->config->memory.recompute, part->recompute,
                                 &part->step.nrecompute));
  if (plan->schedule.p)
    TR_TRY(tr_program_build_pipeline(&plan->schedule, place, &model, part->chunk_piece, &part->step, &part->program));
  else
    TR_TRY(tr_program_build(&model, &part->step, &part->program));
  return tr_program_check(&part->program, &model, &part->step);
}

static tr_status build(const tr_train_plan *plan, int place, tr_train_part *part) {
  const size_t nunit = (size_t)tr_model_units(part->model), nchunk = (size_t)part->nchunk;
  lists l = {.last_piece = malloc((2 + nchunk) * nunit * sizeof *l.last_piece)};
  tr_program_destroy(&part->program);
  free(part->recompute);
  part->step = plan->step;
  part->step.recompute = part->recompute = malloc(sizeof *part->recompute * nunit);
  tr_status status = TR_OK;
  if (part->recompute && l.last_piece) {
    l.tied = l.last_piece + nunit;
    l.chunk_piece = l.tied + nunit;
    status = lower(plan, place, part, &l);
  } else {
    status = tr_error(TR_ERR_MEMORY, "no memory to plan %zu units", nunit);
  }
  free(l.last_piece);
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
  const int ranks = tr__plan_gradient_ranks(plan), spans_hosts = plan->local < c->run.ranks;
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
  out->stage_wire = c->precision.stage_wire == TR_WIRE_BF16 ? TR_BF16 : TR_F32; // f32: as computed
  out->recompute = (tr_recompute)c->memory.recompute;
  out->optim = plan->optim;
  out->clip = c->optim.clip;
  out->seed = (uint64_t)c->train.seed;
}

void tr_train_run_options(const tr_train_plan *plan, int rank, tr_run_options *out) {
  tr__part_run_options(plan, tr_train_part_of(plan, rank), out);
}
