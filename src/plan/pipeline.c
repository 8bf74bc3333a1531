// SPDX-License-Identifier: MIT
// One simulated step of a plan's pipeline (pipeline.h): layers on stages, seconds of passes and messages in whole nanoseconds, the
// schedule's programs through the simulator.
#include "plan/pipeline_internal.h"
#include "plan/plan_internal.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *tr_plan_schedule(const tr_plan *p) {
  if (p->schedule) return p->schedule;
  if (p->vpp == 1) return "1f1b";
  int64_t m = p->batch / (p->dp * p->micro);
  return m % p->pp == 0 ? "interleaved" : "interleaved_flex";
}

// ---- layers on stages

// As the closed forms have them (tr__stages_of): the first and the last stage one less where the embedding and the head count as a
// layer each; else as many as can be to all but the last.
static void cut_layers(const tr_workload *w, int S, tr_stage_cut *cut) {
  int64_t all = w->layers + w->predict_more, most = (all + S - 1) / S, left = all;
  int tables_count = all % S != 0 && (all + 2) % S == 0 && S > 1;
  int even = !tables_count && all - most * (S - 1) < 1;
  for (int s = 0; s < S; s++) {
    cut[s] = (tr_stage_cut){.begin = all - left, .first = s == 0, .last = s == S - 1};
    cut[s].layers = tables_count ? (all + 2) / S - (s == 0) - (s == S - 1)
                    : even       ? (s + 1) * all / S - s * all / S
                                 : (most < left ? most : left);
    left -= cut[s].layers;
  }
}

static int64_t ticks(double seconds) { return llround(seconds * 1e9); }

// Layers behind the last are further tokens' (predict_more): dense or sparse as the last one.
static tr_status fill_costs(tr__pipeline_costs *c, const tr_plan *p, const tr_workload *w,
                            const tr_cluster *cluster) {
  c->cut = calloc((size_t)c->S, sizeof *c->cut);
  c->row = calloc((size_t)c->S, sizeof *c->row);
  c->beside = calloc((size_t)c->S, sizeof *c->beside);
  if (!c->cut || !c->row || !c->beside) return tr_error(TR_ERR_MEMORY, "no memory for the costs of %d stages", c->S);
  cut_layers(w, c->S, c->cut);
  for (int s = 0; s < c->S; s++) {
    const tr_stage_time t = tr_predict_stage(p, w, cluster, &c->cut[s]);
    int64_t *row = c->row[s];
    row[TR_OP_F] = row[TR_OP_R] = ticks(t.forward);
    row[TR_OP_I] = ticks(t.input);
    row[TR_OP_W] = ticks(t.weights);
    row[TR_OP_B] = row[TR_OP_I] + row[TR_OP_W];
    row[TR_OP_X] = -1; // by what is paired (op_ticks)
    c->beside[s] = ticks(t.beside);
  }
  c->stride = (int64_t)tr__stride(p, TR_AXIS_PP);
  c->domain = cluster->domain;
  for (int crosses = 0; crosses < 2; crosses++) {
    double busy;
    c->latency[crosses] = ticks(tr_predict_message(p, w, cluster, crosses, &busy));
    c->occupancy[crosses] = ticks(busy);
  }
  return TR_OK;
}

tr_status tr__pipeline_costs_make(const tr_plan *p, const tr_workload *w, const tr_cluster *cluster, int S,
                                  tr__pipeline_costs *out) {
  *out = (tr__pipeline_costs){.S = S};
  tr_status status = fill_costs(out, p, w, cluster);
  if (status < 0) tr__pipeline_costs_free(out);
  return status;
}

void tr__pipeline_costs_free(tr__pipeline_costs *costs) {
  free(costs->cut);
  free(costs->row);
  free(costs->beside);
  *costs = (tr__pipeline_costs){0};
}

static int64_t link_of(void *user, int from, int to, int64_t *occupancy) {
  const tr__pipeline_costs *c = user;
  const int crosses = from * c->stride / c->domain != to * c->stride / c->domain;
  *occupancy = c->occupancy[crosses];
  return c->latency[crosses];
}

// A forward pass of one stage beside a backward pass of another: each hides half of its stage's exchanges.
static int64_t op_ticks(void *user, int rank, uint32_t index, const tr_op *op) {
  const tr__pipeline_costs *c = user;
  (void)rank, (void)index;
  if (op->kind != TR_OP_X) return op->stage < c->S ? c->row[op->stage][op->kind] : 0;
  return c->row[op->stage][TR_OP_F] + c->row[op->back_stage][TR_OP_B] -
         (c->beside[op->stage] + c->beside[op->back_stage]) / 2;
}

tr_sim_costs tr__pipeline_sim_costs(tr__pipeline_costs *costs, int messages) {
  return (tr_sim_costs){.nstage = costs->S,
                        .stage = (const int64_t(*)[TR_OP_KIND_COUNT])costs->row,
                        .op = op_ticks,
                        .link = messages ? link_of : NULL,
                        .user = costs};
}

tr_status tr__pipeline_schedule(const tr_plan *p, int64_t m, tr_schedule *out) {
  if (m > TR_STEP_MICROBATCHES)
    return tr_error(TR_ERR_PLAN, "%lld micro-batches a step; schedules have at most %d", (long long)m,
                    TR_STEP_MICROBATCHES);
  const tr_schedule_spec spec = {
      .name = tr_plan_schedule(p), .p = (int)p->pp, .m = (int)m, .v = p->vpp > 1 ? (int)p->vpp : 0};
  return tr_schedule_build(&spec, out);
}

// ---- one step, for whoever draws it

struct tr_pipeline {
  tr_schedule schedule;
  tr__pipeline_costs costs;
  tr_sim_programs programs;
  tr_sim_result result;
};

static tr_status simulate(tr_pipeline *l, const tr_plan *p, const tr_workload *w, const tr_cluster *c, int64_t m) {
  TR_TRY(tr__pipeline_schedule(p, m, &l->schedule));
  TR_TRY(tr__pipeline_costs_make(p, w, c, l->schedule.S, &l->costs));
  TR_TRY(tr_sim_lower(&l->schedule, &l->programs));
  const tr_sim_costs costs = tr__pipeline_sim_costs(&l->costs, 1);
  return tr_sim_run(l->programs.program, l->programs.p, &costs, &l->result);
}

tr_status tr_pipeline_open(const tr_plan *p, const tr_workload *w, const tr_cluster *c, int64_t microbatches,
                           tr_pipeline **out) {
  tr_pipeline *l = calloc(1, sizeof *l);
  if (!l) return tr_error(TR_ERR_MEMORY, "no memory for a pipeline");
  tr_status status = simulate(l, p, w, c, microbatches > 0 ? microbatches : p->batch / (p->dp * p->micro));
  if (status < 0)
    tr_pipeline_close(l);
  else
    *out = l;
  return status;
}

void tr_pipeline_close(tr_pipeline *l) {
  if (!l) return;
  tr_sim_result_destroy(&l->result);
  tr_sim_programs_destroy(&l->programs);
  tr__pipeline_costs_free(&l->costs);
  tr_schedule_destroy(&l->schedule);
  free(l);
}

const tr_schedule *tr_pipeline_schedule(const tr_pipeline *l) { return &l->schedule; }
const tr_program *const *tr_pipeline_programs(const tr_pipeline *l) {
  return (const tr_program *const *)l->programs.program;
}
const tr_sim_result *tr_pipeline_result(const tr_pipeline *l) { return &l->result; }
