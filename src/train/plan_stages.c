// SPDX-License-Identifier: MIT
// The stages of a pipeline: which layers each has, and the model of each rank. The embedding goes with the first stage, the
// head with the last.
//
//   segment   embedding | layer 0 | layer 1 | ... | layer L-1 | head        a cut lies before each but the first
//   stages    4,3,3,2   [embedding, 0 .. 3] [4 .. 6] [7 .. 9] [10, 11, head]
#include "train/train_internal.h"
#include <stdlib.h>
#include <string.h>

// Where the model can be cut: before each layer and before what follows the last one.
static tr_status find_cuts(const tr_train_plan *plan, int **cut) {
  const int layers = (int)plan->sizes.layers;
  int n = tr_model_cuts(plan->model, NULL, 0);
  *cut = calloc((size_t)n + 1, sizeof **cut);
  if (!*cut) return tr_error(TR_ERR_MEMORY, "no memory to cut a model into stages");
  tr_model_cuts(plan->model, *cut, n);
  if (n == layers + 1) return TR_OK;
  return tr_error(TR_ERR_INTERNAL, "model '%s' can be cut at %d places, and has %d layers",
                  tr_model_name(plan->model), n, layers);
}

// ---- how many layers each stage has

// "4,3,3,2": one number per stage; a stage between others has at least one layer.
static tr_status read_layers(tr_train_plan *plan, const tr_options *options) {
  const char *text = plan->config->parallel.stages, *at = text;
  const int S = plan->schedule.S;
  long long sum = 0;
  int n = 0;
  while (*at) {
    char *end;
    long long layers = strtoll(at, &end, 10);
    if (end == at || layers < 0 || layers > plan->sizes.layers || (*end && *end != ',') || (*end && !end[1]))
      return tr_options_error(options, "parallel.stages",
                              "'%.80s' is no list of layer counts; as in 4,3,3,2, or balanced", text);
    if (n < S) plan->stage_layers[n] = (int)layers;
    if (layers == 0 && n > 0 && *end)
      return tr_options_error(options, "parallel.stages", "stage %d of '%.80s' has nothing to do", n, text);
    sum += layers;
    n++;
    at = *end ? end + 1 : end;
  }
  if (n != S)
    return tr_options_error(options, "parallel.stages",
                            "'%.80s' are %d stage%s, parallel.pp=%d with parallel.schedule=%s has %d", text, n,
                            n == 1 ? "" : "s", plan->schedule.p, plan->config->parallel.schedule, S);
  if (sum != plan->sizes.layers)
    return tr_options_error(options, "parallel.stages", "'%.80s' are %lld layers, the model has %lld", text, sum,
                            (long long)plan->sizes.layers);
  return TR_OK;
}

static tr_status too_many(const tr_train_plan *plan, const tr_options *options) {
  const int layers = (int)plan->sizes.layers, v = plan->schedule.S / plan->schedule.p;
  int most = layers / v, ranks = (int)plan->config->run.ranks;
  while (most > 1 && (ranks % most || layers < most * v)) most--;
  return tr_options_error(options, "parallel.pp",
                          "%d stages (parallel.pp=%d with parallel.schedule=%s) need as many layers, the model has "
                          "%d; parallel.pp=%d would work",
                          plan->schedule.S, plan->schedule.p, plan->config->parallel.schedule, layers,
                          most > 1 ? most : 1);
}

static tr_status choose_layers(tr_train_plan *plan, const tr_options *options) {
  const int layers = (int)plan->sizes.layers, S = plan->schedule.S;
  if (strcmp(plan->config->parallel.stages, "balanced") != 0) return read_layers(plan, options);
  if (layers < S) return too_many(plan, options);
  for (int s = 0; s < S; s++) plan->stage_layers[s] = layers / S + (s < layers % S);
  return TR_OK;
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

static tr_status cut_model(tr_train_plan *plan, const tr_options *options) {
  const int S = plan->schedule.S;
  int *cut = NULL, segment = 1;
  plan->stage_piece = calloc((size_t)S + 1, sizeof *plan->stage_piece);
  plan->stage_layers = calloc((size_t)S, sizeof *plan->stage_layers);
  if (!plan->stage_piece || !plan->stage_layers)
    return tr_error(TR_ERR_MEMORY, "no memory for %d stages of a model", S);
  TR_TRY(choose_layers(plan, options));
  tr_status status = find_cuts(plan, &cut);
  for (int s = 1; s < S && status == TR_OK; s++) {
    segment += plan->stage_layers[s - 1];
    plan->stage_piece[s] = cut[segment - 1];
  }
  plan->stage_piece[S] = tr_model_pieces(plan->model);
  free(cut);
  return status;
}

tr_status tr__plan_stages(tr_train_plan *plan, const tr_options *options) {
  int pp = plan->mesh.degree[TR_AXIS_PP];
  plan->part = calloc((size_t)pp, sizeof *plan->part);
  if (!plan->part) return tr_error(TR_ERR_MEMORY, "no memory for the parts of %d ranks", pp);
  if (!plan->schedule.p) {
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
