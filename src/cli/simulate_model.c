// SPDX-License-Identifier: MIT
// Costs from descriptions: `trireme simulate --model M --cluster C`. Every stage has the time of its own layers, the first the
// embedding and the last the head besides; messages are as long as activations are, over the links that they take. In
// nanoseconds, so what is drawn is exact to that.
#include "cli/cli_internal.h"
#include "cli/plan_case_internal.h"
#include "cli/simulate_internal.h"
#include "trireme/base/text.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct job {
  tr_plan plan;
  tr_workload model;
  tr_cluster cluster;
  int S;
  tr_stage_cut *cut; // [S]
} job;

static double sum(tr_stage_time t) { return t.forward + t.input + t.weights; }

// ---- layers on stages

static tr_status too_few(const job *j) {
  return tr_error(TR_ERR_PLAN, "%d stages are more than the model's %lld layers; --layers may give some of them none",
                  j->S, (long long)j->model.layers);
}

static tr_status cut_evenly(job *j) {
  const int64_t all = j->model.layers;
  if (all < j->S) return too_few(j);
  for (int s = 0; s < j->S; s++) j->cut[s].layers = (s + 1) * all / j->S - s * all / j->S;
  return TR_OK;
}

// One layer after the other to the stage that is fastest with it: for equal layers nothing is better.
static tr_status cut_balanced(job *j) {
  const tr_stage_cut one = {.begin = j->model.layers - 1, .layers = 1}, first = {.first = 1}, last = {.last = 1};
  const double layer = sum(tr_predict_stage(&j->plan, &j->model, &j->cluster, &one));
  double *load = calloc((size_t)j->S, sizeof *load);
  if (!load) return tr_error(TR_ERR_MEMORY, "no memory for %d stages", j->S);
  load[0] += sum(tr_predict_stage(&j->plan, &j->model, &j->cluster, &first));
  load[j->S - 1] += sum(tr_predict_stage(&j->plan, &j->model, &j->cluster, &last));
  for (int64_t l = 0; l < j->model.layers; l++) {
    int least = 0;
    for (int s = 1; s < j->S; s++)
      if (load[s] < load[least]) least = s;
    load[least] += layer;
    j->cut[least].layers++;
  }
  free(load);
  return TR_OK;
}

static tr_status cut_as_told(job *j, const char *text) {
  int64_t all = 0;
  int n = 0;
  for (const char *at = text;; n++) {
    const size_t length = strcspn(at, ",");
    char number[24];
    int64_t layers;
    snprintf(number, sizeof number, "%.*s", length < sizeof number ? (int)length : 1,
             length < sizeof number ? at : "x");
    if (tr_parse_count(number, &layers) < 0 || layers < 0 || layers > j->model.layers)
      return tr__cli_usage(
          "simulate", "--layers takes even, balanced, or the layers of each stage as in 3,4,4,3, not '%.60s'", text);
    if (n < j->S) j->cut[n].layers = layers;
    all += layers;
    if (at[length] == '\0') break;
    at += length + 1;
  }
  if (n + 1 == j->S && all == j->model.layers) return TR_OK;
  return tr_error(TR_ERR_PLAN, "--layers %.60s has %d stages and %lld layers; there are %d stages and %lld layers",
                  text, n + 1, (long long)all, j->S, (long long)j->model.layers);
}

static tr_status cut(job *j, const char *layers) {
  if (!layers || strcmp(layers, "even") == 0)
    TR_TRY(cut_evenly(j));
  else
    TR_TRY(strcmp(layers, "balanced") == 0 ? cut_balanced(j) : cut_as_told(j, layers));
  for (int s = 1; s < j->S; s++) j->cut[s].begin = j->cut[s - 1].begin + j->cut[s - 1].layers;
  j->cut[0].first = 1;
  j->cut[j->S - 1].last = 1;
  return TR_OK;
}

// ---- ticks

static int64_t ticks(double seconds) { return llround(seconds * 1e9); }

static void fill_row(tr_stage_time t, int64_t row[TR_OP_KIND_COUNT]) {
  memset(row, 0, sizeof *row * TR_OP_KIND_COUNT);
  row[TR_OP_F] = row[TR_OP_R] = ticks(t.forward);
  row[TR_OP_I] = ticks(t.input);
  row[TR_OP_W] = ticks(t.weights);
  row[TR_OP_B] = row[TR_OP_I] + row[TR_OP_W];
  row[TR_OP_X] = -1;
  row[TR_OP_REDUCE] = ticks(t.reduce);
}

static int64_t link_of(void *user, int from, int to, int64_t *occupancy) {
  const tr__simulate_links *l = user;
  const int crosses = from * l->stride / l->domain != to * l->stride / l->domain;
  *occupancy = l->occupancy[crosses];
  return l->latency[crosses];
}

static void fill_links(const job *j, tr__simulate_costs *out) {
  tr__simulate_links *l = &out->links;
  *l = (tr__simulate_links){.stride = j->plan.tp * j->plan.cp * j->plan.dp, .domain = j->cluster.domain};
  for (int crosses = 0; crosses < 2; crosses++) {
    double busy;
    l->latency[crosses] = ticks(tr_predict_message(&j->plan, &j->model, &j->cluster, crosses, &busy));
    l->occupancy[crosses] = ticks(busy);
  }
  out->sim.link = link_of;
  out->sim.user = l;
}

// A message over the slowest link that neighbours have.
static double message_seconds(tr__simulate_links *links, int p) {
  int64_t most = 0, busy;
  for (int r = 1; r < p; r++) {
    const int64_t latency = link_of(links, r - 1, r, &busy);
    most = latency + busy > most ? latency + busy : most;
  }
  return (double)most * 1e-9;
}

static tr_status fill(const job *j, const tr__simulate_request *r, tr__simulate_costs *out) {
  double slowest = 0, all = 0;
  char message[32];
  *out = (tr__simulate_costs){.unit_ticks = 1e9, .unit_name = "s", .row = malloc(sizeof *out->row * (size_t)j->S)};
  if (!out->row) return tr_error(TR_ERR_MEMORY, "no memory for the costs of %d stages", j->S);
  for (int s = 0; s < j->S; s++) {
    const tr_stage_time t = tr_predict_stage(&j->plan, &j->model, &j->cluster, &j->cut[s]);
    fill_row(t, out->row[s]);
    slowest = fmax(slowest, sum(t));
    all += sum(t);
  }
  out->sim = (tr_sim_costs){
      .nstage = j->S, .stage = (const int64_t(*)[TR_OP_KIND_COUNT])out->row, .one_stream = r->one_stream};
  fill_links(j, out);
  tr_format_duration(message, sizeof message, message_seconds(&out->links, (int)j->plan.pp));
  snprintf(out->text, sizeof out->text, "%.40s on %.40s, the slowest stage %.3g x the mean, a message %s", r->model,
           r->cluster, slowest * j->S / all, message);
  return TR_OK;
}

// ---- the job

static tr_status load(const tr__simulate_request *r, const tr_schedule *s, job *j) {
  tr_arch arch;
  tr_plan *p = &j->plan;
  TR_TRY(tr_arch_load(r->model, &arch, NULL, 0));
  j->model = tr_workload_from_arch(&arch);
  tr_plan_init(p);
  p->tp = r->tp ? r->tp : 1;
  p->pp = s->p;
  p->dp = r->replicas;
  p->sequence_parallel = p->tp > 1;
  p->micro = r->micro ? r->micro : 1;
  if (r->sequence) p->sequence = r->sequence;
  p->batch = p->micro * s->m * p->dp;
  TR_TRY(tr__plan_cluster_load(r->cluster, p->tp * p->pp * p->dp, &j->cluster));
  tr_status status = tr_workload_check(&j->model);
  if (status == TR_OK) status = tr_plan_check(p, &j->model, &j->cluster);
  if (status < 0) tr_cluster_unload(&j->cluster);
  return status;
}

tr_status tr__simulate_costs_predict(const tr__simulate_request *request, const tr_schedule *schedule,
                                     tr__simulate_costs *out) {
  job j = {.S = schedule->S};
  TR_TRY(load(request, schedule, &j));
  j.cut = calloc((size_t)j.S, sizeof *j.cut);
  tr_status status = j.cut ? cut(&j, request->layers) : tr_error(TR_ERR_MEMORY, "no memory for %d stages", j.S);
  if (status == TR_OK) status = fill(&j, request, out);
  free(j.cut);
  tr_cluster_unload(&j.cluster);
  return status;
}
