// SPDX-License-Identifier: MIT
// `trireme plan stages`: which layers the stages of a pipeline get, what each costs in time, FLOPs and memory, how far the
// worst is above the mean, and what step that gives (from the simulator).
#include "cli/cli_internal.h"
#include "cli/plan_words_internal.h"
#include "cli/simulate_internal.h"
#include <math.h>
#include <stdio.h>

typedef struct request {
  tr__stage_request stages;
  const char *schedule;
  int64_t p, m, v;
  int json;
} request;

static tr_status print_help(void) {
  printf("usage: trireme plan stages --model M --cluster C -p N [options]\n\n"
         "  --model M --cluster C      a model and a cluster, as for trireme plan\n"
         "  -p N -m N -v N             ranks of the pipeline, micro-batches (2 p), stages per rank where it is open "
         "(2)\n"
         "  --schedule NAME            whose memory and time count (1f1b; trireme simulate --help lists them)\n"
         "  --layers L                 balanced: stages take equally long (the default); flops, memory: the same for "
         "those;\n"
         "                             even; or the layers of each stage, as in 9,8,8,7\n"
         "  --micro N --seq N --tp N --replicas N\n"
         "                             sequences of a micro-batch (1), tokens of a sequence (4096), tensor-parallel "
         "ranks of a\n"
         "                             stage (1), data-parallel replicas (1)\n"
         "  --json                     one JSON object\n\n"
         "The embedding is in the first stage, the head and the loss in the last.\n\n"
         "example: trireme plan stages --model llama3-8b --cluster dgx-h100 -p 4 -m 16\n");
  return TR_OK;
}

static tr_status parse(int argc, char **argv, request *r) {
  *r = (request){.schedule = "1f1b", .stages.layers = "balanced"};
  tr__stage_request *s = &r->stages;
  const tr__argument table[] = {
      {.name = "--model", .kind = TR__ARGUMENT_TEXT, .out = &s->model},
      {.name = "--cluster", .kind = TR__ARGUMENT_TEXT, .out = &s->cluster},
      {.name = "--layers", .kind = TR__ARGUMENT_TEXT, .out = &s->layers},
      {.name = "--schedule", .kind = TR__ARGUMENT_TEXT, .out = &r->schedule},
      {.name = "-p", .kind = TR__ARGUMENT_COUNT, .out = &r->p, .min = 1, .max = 65535},
      {.name = "-m", .kind = TR__ARGUMENT_COUNT, .out = &r->m, .min = 1, .max = TR_STEP_MICROBATCHES},
      {.name = "-v", .kind = TR__ARGUMENT_COUNT, .out = &r->v, .min = 1, .max = 65535},
      {.name = "--micro", .kind = TR__ARGUMENT_COUNT, .out = &s->micro, .min = 1, .max = 1 << 16},
      {.name = "--seq", .kind = TR__ARGUMENT_COUNT, .out = &s->sequence, .min = 1, .max = 1 << 28},
      {.name = "--tp", .kind = TR__ARGUMENT_COUNT, .out = &s->tp, .min = 1, .max = 1 << 16},
      {.name = "--replicas", .kind = TR__ARGUMENT_COUNT, .out = &s->replicas, .min = 1, .max = 1 << 24},
      {.name = "--json", .kind = TR__ARGUMENT_FLAG, .out = &r->json}};
  TR_TRY(tr__plan_options("stages", argc, argv, table, sizeof table / sizeof *table));
  if (!s->model || !s->cluster) return tr__cli_usage("plan stages", "give --model and --cluster");
  if (!r->p) return tr__cli_usage("plan stages", "give -p, the ranks of the pipeline");
  if (!r->m) r->m = 2 * r->p < TR_STEP_MICROBATCHES ? 2 * r->p : TR_STEP_MICROBATCHES;
  return TR_OK;
}

// ---- the report

// The largest of all stages, and their mean.
typedef struct spread {
  double most, sum;
} spread;

static void count(spread *s, double value) {
  s->most = fmax(s->most, value);
  s->sum += value;
}

static void report_spread(tr__plan_report *out, const char *label, const char *key, const spread *s, int n) {
  tr__plan_value(out, label, key, TR__PLAN_NUMBER, s->sum > 0 ? s->most * n / s->sum : 1);
}

static void report_stages(tr__plan_report *out, const tr__stage_cuts *x, const tr_schedule *schedule) {
  static const tr__plan_column columns[] = {
      {"stage", "stage", TR__PLAN_COUNT},        {"rank", "rank", TR__PLAN_COUNT},
      {"layers", "layers", TR__PLAN_COUNT},      {"forward", "forward_s", TR__PLAN_TIME},
      {"backward", "backward_s", TR__PLAN_TIME}, {"FLOPs", "flops", TR__PLAN_NUMBER},
      {"parameters", "params", TR__PLAN_NUMBER}, {"in flight", "in_flight", TR__PLAN_COUNT},
      {"memory", "bytes", TR__PLAN_BYTES},       {NULL, NULL, TR__PLAN_NUMBER}};
  spread time = {0}, flops = {0}, bytes = {0};
  tr_text layers = {0};
  tr__plan_table(out, "stages", columns);
  for (int s = 0; s < x->S; s++) {
    const tr_stage_cost *c = &x->cost[s];
    const double memory = tr__stage_bytes(c, x->peak[s]);
    tr__plan_row(out, NULL,
                 (const double[]){s, tr_schedule_rank(schedule, s, 0), (double)x->cut[s].layers, c->forward,
                                  c->input + c->weights, c->flops, c->params, x->peak[s], memory});
    count(&time, tr__stage_seconds(c));
    count(&flops, c->flops);
    count(&bytes, memory);
    tr_text_append(&layers, "%s%lld", s ? "," : "", (long long)x->cut[s].layers);
  }
  tr__plan_head(out, "the stage that takes most, x the mean");
  report_spread(out, "time", "time_imbalance", &time, x->S);
  report_spread(out, "FLOPs", "flops_imbalance", &flops, x->S);
  report_spread(out, "memory", "memory_imbalance", &bytes, x->S);
  tr__plan_head(out, "simulated");
  tr__plan_text(out, "layers (trireme train parallel.stages=)", "layers", layers.data ? layers.data : "");
  tr_text_free(&layers);
}

static tr_status report_step(tr__plan_report *out, const tr__stage_cuts *x, const tr_schedule *schedule) {
  tr__simulate_costs costs;
  tr_sim_result result;
  TR_TRY(tr__simulate_costs_of(x, 0, &costs));
  tr_status status = tr_sim_schedule(schedule, &costs.sim, &result);
  tr__simulate_costs_free(&costs);
  if (status < 0) return status;
  tr__plan_value(out, "passes of a step", "makespan_s", TR__PLAN_TIME, (double)result.makespan * 1e-9);
  tr__plan_value(out, "bubble", "bubble_fraction", TR__PLAN_SHARE, result.bubble);
  tr_sim_result_destroy(&result);
  return TR_OK;
}

static tr_status report(const request *r, const tr__stage_cuts *x, const tr_schedule *schedule) {
  tr__plan_report out;
  tr__plan_begin(&out, "stages", r->json);
  report_stages(&out, x, schedule);
  tr_status status = report_step(&out, x, schedule);
  if (status < 0) out.failed = 1;
  tr_status end = tr__plan_end(&out);
  return status < 0 ? status : end;
}

tr_status tr__plan_cuts(int argc, char **argv) {
  if (tr__cli_wants_help(argc, argv)) return print_help();
  request r;
  tr_schedule schedule;
  tr__stage_cuts cuts;
  TR_TRY(parse(argc, argv, &r));
  const tr_schedule_spec spec = {.name = r.schedule, .p = (int)r.p, .m = (int)r.m, .v = (int)r.v};
  TR_TRY(tr_schedule_build(&spec, &schedule));
  tr_status status = tr__stage_cuts_make("plan stages", &r.stages, &schedule, &cuts);
  if (status == TR_OK) {
    status = report(&r, &cuts, &schedule);
    tr__stage_cuts_free(&cuts);
  }
  tr_schedule_destroy(&schedule);
  return status;
}
