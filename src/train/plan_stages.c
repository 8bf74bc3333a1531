// SPDX-License-Identifier: MIT
// The stages of a pipeline (step/stages.h): which layers each has, as parallel.stages says or so that the one with the most
// FLOPs has as few as can be, and the model of each rank. The embedding goes with the first stage, the head with the last.
#include "train/train_internal.h"
#include "trireme/plan/stage_parts.h"
#include <stdlib.h>
#include <string.h>

// ---- which parts of the model each stage has

// The most ranks, up to `most`, of a pipeline with this schedule that the layers are enough for, with all ranks or with as many
// pipelines as there are; 0: none.
static int find_ranks(const tr_train_plan *plan, int most, char *schedule, int chunks, int all) {
  const int dp = plan->mesh.degree[TR_AXIS_DP], ranks = plan->schedule.p * dp;
  if (all && plan->config->parallel.dp > 0) return 0;
  for (int pp = most; pp > 0; pp--) {
    const int now = all ? ranks / pp : dp;
    if ((!all || ranks % pp == 0) && tr__plan_has_layers(plan, pp, now, schedule, chunks)) return pp;
  }
  return 0;
}

// "parallel.pp=2", "-n 3 parallel.pp=3": what of the schedule would do; 1f1b with one rank does in any case.
static void suggest_ranks(const tr_train_plan *plan, int chunks, char *out, size_t nbyte) {
  const int p = plan->schedule.p, dp = plan->mesh.degree[TR_AXIS_DP];
  char plain[] = "1f1b";
  for (int other = 0; other < 2; other++)
    for (int all = 1; all >= 0; all--) {
      int pp = find_ranks(plan, other ? p : p - 1, other ? plain : plan->config->parallel.schedule,
                          other ? 0 : chunks, all),
          n = 0;
      if (pp == 0) continue;
      if (other) n = snprintf(out, nbyte, "parallel.schedule=1f1b with ");
      if (!all && pp < p) n += snprintf(out + n, nbyte - (size_t)n, "-n %d ", pp * dp);
      snprintf(out + n, nbyte - (size_t)n, "parallel.pp=%d", pp);
      return;
    }
}

static tr_status too_many(const tr_train_plan *plan, const tr_options *options) {
  const int p = plan->schedule.p, given = (int)plan->config->parallel.chunks;
  char *own = plan->config->parallel.schedule, ranks[96] = "fewer ranks", fewer[48] = "";
  int chunks = given > 0 ? given - 1 : 0;
  while (chunks > 0 && !tr__plan_has_layers(plan, p, plan->mesh.degree[TR_AXIS_DP], own, chunks)) chunks--;
  if (chunks > 0) snprintf(fewer, sizeof fewer, "parallel.chunks=%d or ", chunks);
  suggest_ranks(plan, given > 0 ? given : 0, ranks, sizeof ranks);
  return tr_options_error(options, "parallel.pp",
                          "%d stages (parallel.pp=%d with parallel.schedule=%s) need as many layers, the model has "
                          "%d; %s%s would work",
                          plan->schedule.S, p, own, (int)plan->sizes.layers, fewer, ranks);
}

// bound: parts of the model, as of step/stages.h.
static tr_status choose(const tr_train_plan *plan, const tr_options *options, const tr_stage_parts *parts,
                        int *bound) {
  const char *stages = plan->config->parallel.stages;
  const tr_stage_problem problem = {.part = parts->part, .npart = parts->n, .schedule = &plan->schedule};
  const int balanced = strcmp(stages, "balanced") == 0;
  if (balanced && plan->sizes.layers < plan->schedule.S) return too_many(plan, options);
  tr_status status = balanced ? tr_stages_balance(&problem, bound) : tr_stages_count(&problem, stages, bound);
  return status == TR_ERR_PLAN ? tr_options_error(options, "parallel.stages", "%s", tr_status_text()) : status;
}

// Before each part of the model but the first it can be cut.
static void note_stages(tr_train_plan *plan, const tr_stage_parts *parts, const int *bound, const int *cut) {
  for (int s = 0; s < plan->schedule.S; s++) {
    plan->stage_piece[s] = bound[s] > 0 ? cut[bound[s] - 1] : 0;
    for (int i = bound[s]; i < bound[s + 1]; i++) plan->stage_layers[s] += parts->part[i].layers;
  }
  plan->stage_piece[plan->schedule.S] = tr_model_pieces(plan->model);
}

static tr_status cut_model(tr_train_plan *plan, const tr_options *options) {
  const size_t S = (size_t)plan->schedule.S;
  const tr_stage_parts_options sizes = {.sequence = plan->config->data.sequence,
                                        .micro = plan->micro,
                                        .type = tr__train_type(plan->config),
                                        .schedule = &plan->schedule};
  tr_stage_parts parts;
  TR_TRY(tr_stage_parts_make(plan->model, &sizes, &parts));
  int *bound = calloc(S + 1 + (size_t)parts.n, sizeof *bound), *cut = bound + S + 1;
  plan->stage_piece = calloc(S + 1, sizeof *plan->stage_piece);
  plan->stage_layers = calloc(S, sizeof *plan->stage_layers);
  tr_status status = TR_OK;
  if (!bound || !plan->stage_piece || !plan->stage_layers)
    status = tr_error(TR_ERR_MEMORY, "no memory for %zu stages of a model", S);
  if (status == TR_OK) status = choose(plan, options, &parts, bound);
  if (status == TR_OK) {
    tr_model_cuts(plan->model, cut, parts.n - 1);
    note_stages(plan, &parts, bound, cut);
  }
  free(bound);
  tr_stage_parts_destroy(&parts);
  return status;
}

// ---- the part of each rank

static tr_status make_part(const tr_train_plan *plan, int place, tr_train_part *part) {
  const tr_schedule *schedule = &plan->schedule;
  int *stage = calloc((size_t)schedule->v, 3 * sizeof *stage), *range = stage + schedule->v;
  if (!stage) return tr_error(TR_ERR_MEMORY, "no memory for the %d stages of a rank", schedule->v);
  part->nchunk = tr_schedule_stages(schedule, place, stage);
  for (int c = 0; c < part->nchunk; c++) {
    range[2 * c] = plan->stage_piece[stage[c]];
    range[2 * c + 1] = plan->stage_piece[stage[c] + 1];
  }
  part->boundary = calloc((size_t)part->nchunk, sizeof *part->boundary);
  tr_status status = part->boundary ? tr_model_part(plan->model, range, part->nchunk, part->boundary, &part->own)
                                    : tr_error(TR_ERR_MEMORY, "no memory for the stages of a rank");
  free(stage);
  part->model = part->own;
  return status < 0 ? status : tr_layout_build(part->model, &part->layout);
}

// One stage has all layers, whoever counts them.
static tr_status check_alone(const tr_train_plan *plan, const tr_options *options) {
  const tr_schedule alone = {.p = 1, .v = 1, .S = 1};
  const tr_stage_part all = {.layers = (int)plan->sizes.layers};
  const tr_stage_problem problem = {.part = &all, .npart = 1, .schedule = &alone};
  int bound[2];
  if (strcmp(plan->config->parallel.stages, "balanced") == 0) return TR_OK;
  tr_status status = tr_stages_count(&problem, plan->config->parallel.stages, bound);
  return status == TR_ERR_PLAN ? tr_options_error(options, "parallel.stages", "%s", tr_status_text()) : status;
}

tr_status tr__plan_stages(tr_train_plan *plan, const tr_options *options) {
  int pp = plan->mesh.degree[TR_AXIS_PP];
  plan->part = calloc((size_t)pp, sizeof *plan->part);
  if (!plan->part) return tr_error(TR_ERR_MEMORY, "no memory for the parts of %d ranks", pp);
  if (!plan->schedule.p) {
    TR_TRY(check_alone(plan, options));
    plan->part->model = plan->model;
    return tr_layout_build(plan->model, &plan->part->layout);
  }
  TR_TRY(cut_model(plan, options));
  for (int r = 0; r < pp; r++) TR_TRY(make_part(plan, r, &plan->part[r]));
  return TR_OK;
}

void tr__plan_stages_free(tr_train_plan *plan) {
  for (int r = 0; plan->part && r < plan->mesh.degree[TR_AXIS_PP]; r++) {
    tr_train_part *part = &plan->part[r];
    tr_program_destroy(&part->program);
    if (part->layout.unit_start) tr_layout_destroy(&part->layout);
    tr_model_destroy(part->own);
    free(part->boundary);
    free(part->recompute);
  }
  free(plan->part);
  free(plan->stage_piece);
  free(plan->stage_layers);
  tr_schedule_destroy(&plan->schedule);
}

const tr_train_part *tr_train_part_of(const tr_train_plan *plan, int rank) {
  return &plan->part[tr_mesh_coordinate(&plan->mesh, rank, TR_AXIS_PP)];
}
