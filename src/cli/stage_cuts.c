// SPDX-License-Identifier: MIT
// Cutting a model into stages: evenly, as told, or so that the stage that takes most (time, FLOPs, memory) takes least.
#include "cli/cli_internal.h"
#include "cli/plan_case_internal.h"
#include "cli/stage_cuts_internal.h"
#include "trireme/base/text.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

double tr__stage_seconds(const tr_stage_cost *cost) { return cost->forward + cost->input + cost->weights; }

double tr__stage_bytes(const tr_stage_cost *cost, int peak) { return cost->fixed + cost->kept * peak; }

// ---- what is asked for

static tr_status load(const tr__stage_request *r, const tr_schedule *s, tr__stage_cuts *out) {
  tr_arch arch;
  tr_plan *p = &out->plan;
  TR_TRY(tr_arch_load(r->model, &arch, NULL, 0));
  out->model = tr_workload_from_arch(&arch);
  tr_plan_init(p);
  p->tp = r->tp ? r->tp : 1;
  p->pp = s->p;
  p->dp = r->replicas ? r->replicas : 1;
  p->sequence_parallel = p->tp > 1;
  p->micro = r->micro ? r->micro : 1;
  if (r->sequence) p->sequence = r->sequence;
  p->batch = p->micro * s->m * p->dp;
  TR_TRY(tr__plan_cluster_load(r->cluster, p->tp * p->pp * p->dp, &out->cluster));
  TR_TRY(tr_workload_check(&out->model));
  return tr_plan_check(p, &out->model, &out->cluster);
}

// Most micro-batches alive at once, of each stage; where it is on two ranks, of the one that holds more.
static tr_status find_peaks(const tr_schedule *s, tr__stage_cuts *out) {
  int *peak = malloc(sizeof *peak * (size_t)s->p * (size_t)s->v), *stage = malloc(sizeof *stage * (size_t)s->v);
  out->peak = calloc((size_t)s->S, sizeof *out->peak);
  tr_status status = peak && stage && out->peak ? TR_OK : tr_error(TR_ERR_MEMORY, "no memory for %d stages", s->S);
  if (status == TR_OK) tr_schedule_peaks(s, TR_HOLD_UNTIL_W, NULL, peak);
  for (int r = 0; r < s->p && status == TR_OK; r++) {
    const int n = tr_schedule_stages(s, r, stage);
    for (int c = 0; c < n; c++)
      if (peak[r * s->v + c] > out->peak[stage[c]]) out->peak[stage[c]] = peak[r * s->v + c];
  }
  free(peak);
  free(stage);
  return status;
}

// ---- layers

static tr_status too_few(const tr__stage_cuts *x) {
  return tr_error(TR_ERR_PLAN, "%d stages are more than the model's %lld layers; --layers may give some of them none",
                  x->S, (long long)x->model.layers);
}

static tr_status cut_evenly(tr__stage_cuts *x) {
  const int64_t all = x->model.layers;
  if (all < x->S) return too_few(x);
  for (int s = 0; s < x->S; s++) x->cut[s].layers = (s + 1) * all / x->S - s * all / x->S;
  return TR_OK;
}

typedef enum measure { BY_TIME, BY_FLOPS, BY_MEMORY } measure;

static double cost_by(const tr__stage_cuts *x, const tr_stage_cut *cut, int stage, measure by) {
  const tr_stage_cost cost = tr_predict_stage(&x->plan, &x->model, &x->cluster, cut);
  return by == BY_TIME    ? tr__stage_seconds(&cost)
         : by == BY_FLOPS ? cost.flops
                          : tr__stage_bytes(&cost, x->peak[stage]);
}

// One layer after the other to the stage that takes least with it: for equal layers nothing is better.
static tr_status cut_balanced(tr__stage_cuts *x, measure by) {
  const tr_stage_cut one = {.begin = x->model.layers - 1, .layers = 1};
  double *load = calloc((size_t)x->S, 2 * sizeof *load), *layer = load + x->S;
  if (!load) return tr_error(TR_ERR_MEMORY, "no memory for %d stages", x->S);
  for (int s = 0; s < x->S; s++) {
    const tr_stage_cut end = {.first = s == 0, .last = s == x->S - 1};
    load[s] = cost_by(x, &end, s, by);
    layer[s] = cost_by(x, &one, s, by);
  }
  for (int64_t l = 0; l < x->model.layers; l++) {
    int least = 0;
    for (int s = 1; s < x->S; s++)
      if (load[s] + layer[s] < load[least] + layer[least]) least = s;
    load[least] += layer[least];
    x->cut[least].layers++;
  }
  free(load);
  return TR_OK;
}

static tr_status cut_as_told(const char *command, tr__stage_cuts *x, const char *text) {
  int64_t all = 0, layers;
  int n = 0;
  for (const char *at = text;; n++) {
    const size_t length = strcspn(at, ",");
    char number[24] = "";
    if (length < sizeof number) snprintf(number, sizeof number, "%.*s", (int)length, at);
    if (tr_parse_count(number, &layers) < 0 || layers < 0 || layers > x->model.layers)
      return tr__cli_usage(command,
                           "--layers takes even, balanced, flops, memory, or the layers of each stage as in 3,4,4,3, "
                           "not '%.60s'",
                           text);
    if (n < x->S) x->cut[n].layers = layers;
    all += layers;
    if (at[length] == '\0') break;
    at += length + 1;
  }
  if (n + 1 == x->S && all == x->model.layers) return TR_OK;
  return tr_error(TR_ERR_PLAN, "--layers %.60s has %d stages and %lld layers; there are %d stages and %lld layers",
                  text, n + 1, (long long)all, x->S, (long long)x->model.layers);
}

static tr_status choose(const char *command, tr__stage_cuts *x, const char *layers) {
  static const char *const by[] = {"balanced", "flops", "memory"};
  if (!layers || strcmp(layers, "even") == 0) return cut_evenly(x);
  for (int i = 0; i < 3; i++)
    if (strcmp(layers, by[i]) == 0) return cut_balanced(x, (measure)i);
  return cut_as_told(command, x, layers);
}

static tr_status cut(const char *command, const char *layers, tr__stage_cuts *x) {
  x->cut = calloc((size_t)x->S, sizeof *x->cut);
  x->cost = calloc((size_t)x->S, sizeof *x->cost);
  if (!x->cut || !x->cost) return tr_error(TR_ERR_MEMORY, "no memory for %d stages", x->S);
  TR_TRY(choose(command, x, layers));
  x->cut[0].first = 1;
  x->cut[x->S - 1].last = 1;
  for (int s = 0; s < x->S; s++) {
    if (s > 0) x->cut[s].begin = x->cut[s - 1].begin + x->cut[s - 1].layers;
    x->cost[s] = tr_predict_stage(&x->plan, &x->model, &x->cluster, &x->cut[s]);
  }
  return TR_OK;
}

tr_status tr__stage_cuts_make(const char *command, const tr__stage_request *request, const tr_schedule *schedule,
                              tr__stage_cuts *out) {
  *out = (tr__stage_cuts){.S = schedule->S};
  tr_status status = load(request, schedule, out);
  if (status == TR_OK) status = find_peaks(schedule, out);
  if (status == TR_OK) status = cut(command, request->layers, out);
  if (status < 0) tr__stage_cuts_free(out);
  return status;
}

void tr__stage_cuts_free(tr__stage_cuts *cuts) {
  free(cuts->peak);
  free(cuts->cut);
  free(cuts->cost);
  tr_cluster_unload(&cuts->cluster);
  *cuts = (tr__stage_cuts){0};
}
