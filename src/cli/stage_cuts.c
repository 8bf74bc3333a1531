// SPDX-License-Identifier: MIT
// Cutting a described model into the stages of a schedule: evenly, as told, or so that the slowest stage is as fast as can be
// (step/stages.h).
#include "cli/cli_internal.h"
#include "cli/plan_case_internal.h"
#include "cli/stage_cuts_internal.h"
#include "trireme/base/text.h"
#include "trireme/step/stages.h"
#include <stdlib.h>
#include <string.h>

double tr__stage_seconds(const tr_stage_time *time) { return time->forward + time->input + time->weights; }

static tr_status load(const tr__stage_request *r, const tr_schedule *s, tr__stage_cuts *out) {
  tr_plan *p = &out->plan;
  TR_TRY(tr_workload_load(r->model, &out->model, NULL));
  tr_plan_init(p);
  p->tp = r->tp ? r->tp : 1;
  p->pp = s->p;
  p->dp = r->replicas;
  p->ep = r->ep ? r->ep : 1;
  p->sequence_parallel = p->tp > 1;
  p->micro = r->micro ? r->micro : 1;
  if (r->sequence) p->sequence = r->sequence;
  p->batch = p->micro * s->m * p->dp;
  TR_TRY(tr__plan_cluster_load(r->cluster, p->tp * p->pp * p->dp, &out->cluster));
  TR_TRY(tr_workload_check(&out->model));
  return tr_plan_check(p, &out->model, &out->cluster);
}

// ---- layers: part 0 is the embedding, the last one the head

// Those that predict further tokens stand behind the others.
static int64_t layers_of(const tr__stage_cuts *x) { return x->model.layers + x->model.predict_more; }

static tr_stage_time time_of(const tr__stage_cuts *x, int64_t begin, int64_t layers, int first, int last) {
  const tr_stage_cut cut = {.begin = begin, .layers = layers, .first = first, .last = last};
  return tr_predict_stage(&x->plan, &x->model, &x->cluster, &cut);
}

static tr_stage_part *make_parts(const tr__stage_cuts *x) {
  const int64_t layers = layers_of(x);
  tr_stage_part *part = calloc((size_t)layers + 2, sizeof *part);
  for (int64_t i = 0; part && i < layers + 2; i++) {
    const int is_layer = i > 0 && i <= layers;
    const tr_stage_time t = time_of(x, is_layer ? i - 1 : 0, is_layer, i == 0, i > layers);
    part[i] = (tr_stage_part){.forward = t.forward, .backward = t.input + t.weights, .layers = is_layer};
  }
  return part;
}

static tr_status cut_evenly(const tr__stage_cuts *x, int *bound) {
  const int64_t all = layers_of(x);
  if (all < x->S)
    return tr_error(TR_ERR_PLAN,
                    "%d stages are more than the model's %lld layer%s; --layers balanced can make some of "
                    "the embedding and the head alone",
                    x->S, (long long)all, tr_text_plural(all, "s"));
  for (int s = 1; s < x->S; s++) bound[s] = (int)(1 + s * all / x->S);
  bound[0] = 0;
  bound[x->S] = (int)all + 2;
  return TR_OK;
}

static tr_status cut_as(const tr__stage_cuts *x, const tr_schedule *s, const char *layers, const tr_stage_part *part,
                        int *bound) {
  const tr_stage_problem problem = {
      .part = part, .npart = (int)layers_of(x) + 2, .schedule = s, .goal = TR_STAGES_WORK};
  if (!layers || strcmp(layers, "even") == 0) return cut_evenly(x, bound);
  if (strcmp(layers, "balanced") == 0) return tr_stages_balance(&problem, bound);
  tr_status status = tr_stages_count(&problem, layers, bound);
  if (status < 0) tr_error_prefix("--layers");
  return status;
}

// In a comparison another schedule may have stages that suit.
static tr_status choose(const tr__stage_cuts *x, const tr_schedule *s, const char *layers, const tr_stage_part *part,
                        int *bound) {
  tr_status status = cut_as(x, s, layers, part, bound);
  if (status == TR_ERR_PLAN) tr_error_prefix("schedule %s", s->name);
  return status;
}

static void set_times(tr__stage_cuts *x, const int *bound) {
  const int head = (int)layers_of(x) + 1;
  for (int s = 0; s < x->S; s++) {
    const int first = bound[s] == 0 && bound[s + 1] > 0, last = bound[s + 1] > head && bound[s] <= head;
    const int begin = bound[s] > 0 ? bound[s] - 1 : 0, end = last ? head - 1 : bound[s + 1] - 1;
    x->time[s] = time_of(x, begin, end > begin ? end - begin : 0, first, last);
  }
}

static tr_status cut(const char *layers, const tr_schedule *s, tr__stage_cuts *x) {
  int *bound = calloc((size_t)x->S + 1, sizeof *bound);
  tr_stage_part *part = make_parts(x);
  x->time = calloc((size_t)x->S, sizeof *x->time);
  tr_status status = bound && part && x->time ? choose(x, s, layers, part, bound)
                                              : tr_error(TR_ERR_MEMORY, "no memory for %d stages", x->S);
  if (status == TR_OK) set_times(x, bound);
  free(bound);
  free(part);
  return status;
}

tr_status tr__stage_cuts_make(const tr__stage_request *request, const tr_schedule *schedule, tr__stage_cuts *out) {
  *out = (tr__stage_cuts){.S = schedule->S};
  tr_status status = load(request, schedule, out);
  if (status == TR_OK) status = cut(request->layers, schedule, out);
  if (status < 0) tr__stage_cuts_free(out);
  return status;
}

void tr__stage_cuts_free(tr__stage_cuts *cuts) {
  free(cuts->time);
  tr_cluster_unload(&cuts->cluster);
  *cuts = (tr__stage_cuts){0};
}
