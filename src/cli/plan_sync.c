// SPDX-License-Identifier: MIT
// `trireme plan sync`: a run of one worker on more of them, with a barrier each iteration or with bounded staleness: iterations,
// samples, time and price (law_sync.h), predicted or from what was measured.
#include "cli/cli_internal.h"
#include "cli/plan_words_internal.h"
#include "trireme/plan/law_sync.h"
#include <math.h>
#include <stdio.h>

enum { RUNS = 2 * TR__ARGUMENT_LIST_MOST };

typedef struct request {
  tr_law_sync sync;
  double staleness, price, seconds;
  const char *workers;
  tr__argument_list measured;
  int json;
  tr_law_run run[RUNS];
  size_t nrun;
} request;

static tr_status print_help(void) {
  printf(
      "usage: trireme plan sync --iterations N --seconds TIME [options]\n\n"
      "One worker needs N iterations of TIME each. What do more workers need, waiting for each other in every\n"
      "iteration, or being at most --staleness iterations apart?\n\n"
      "  --batch B --critical B      samples of a worker (32); the critical batch size (unknown: iterations fall as\n"
      "                              1/workers)\n"
      "  --workers 1:8:64            how many (1:8:64)\n"
      "  --staleness S               for the stale rows (4); 0: none\n"
      "  --penalty X                 more iterations per step of staleness (0.055: measured 2100 against 1720 at 4)\n"
      "  --gradients BYTES           summed in each iteration (0)\n"
      "  --per-node N --inside BYTES --ports N --between BYTES --alpha TIME\n"
      "                              devices of a node (8), bytes per second of each (300GB), ports of a node (8),\n"
      "                              bytes per second of one (25GB), and a message between nodes (5us)\n"
      "  --overlap X --jitter X      communication that is hidden (0); deviation of an iteration's time (0.05)\n"
      "  --price P                   of a worker for an hour (3)\n"
      "  --measured W:N:X[:S]        measured instead: workers, iterations, overhead of one, staleness; several\n"
      "  --json                      one JSON object\n\n"
      "examples: trireme plan sync --iterations 100k --seconds 0.4s --critical 20k --gradients 400MB\n"
      "          trireme plan sync --iterations 100k --seconds 0.4s --measured 8:12.8k:0.15 --measured 64:1.72k:0.45 "
      "\\\n"
      "                            --measured 64:2.1k:0.25:4\n");
  return TR_OK;
}

static tr_status take_measured(request *r) {
  const char *const form = "WORKERS:ITERATIONS:OVERHEAD[:STALENESS] as in 64:1720:0.45";
  for (size_t i = 0; i < r->measured.n; i++) {
    char field[4][TR__PLAN_FIELD];
    const char *text = r->measured.item[i];
    size_t n;
    double value[4] = {0};
    TR_TRY(tr__plan_split("sync", "--measured", text, field, 3, 4, form, &n));
    for (size_t k = 0; k < n; k++) TR_TRY(tr__plan_field("sync", "--measured", text, field[k], 0, &value[k]));
    if (value[0] < 1 || value[1] < 1)
      return tr__cli_usage("plan sync", "--measured %.80s needs a worker and an iteration at least", text);
    r->run[r->nrun++] =
        (tr_law_run){.workers = value[0], .iterations = value[1], .overhead = value[2], .staleness = value[3]};
  }
  return TR_OK;
}

static tr_status predict(request *r) {
  char field[16][TR__PLAN_FIELD];
  size_t n;
  TR_TRY(tr__plan_split("sync", "--workers", r->workers, field, 1, 16, "at most 16 numbers as in 1:8:64", &n));
  for (size_t i = 0; i < n; i++) {
    double workers;
    TR_TRY(tr__plan_field("sync", "--workers", r->workers, field[i], 0, &workers));
    if (!(workers >= 1 && workers <= 1e7))
      return tr__cli_usage("plan sync", "--workers %.80s has '%s'; from 1 to 1e7 work", r->workers, field[i]);
    r->run[r->nrun++] = tr_law_run_predict(&r->sync, workers, 0);
    if (workers > 1 && r->staleness > 0) r->run[r->nrun++] = tr_law_run_predict(&r->sync, workers, r->staleness);
  }
  return TR_OK;
}

static tr_status parse(int argc, char **argv, request *r) {
  *r = (request){.staleness = 4, .price = 3, .workers = "1:8:64"};
  tr_law_sync *s = &r->sync;
  tr_law_fabric *f = &s->job.fabric;
  *s = (tr_law_sync){.batch = 32, .critical = INFINITY, .stale_penalty = 0.055, .job = {.jitter = 0.05}};
  *f = (tr_law_fabric){.per_node = 8, .ports = 8, .inside = {0, 300e9}, .between = {5e-6, 25e9}};
  const tr__argument table[] = {
      {.name = "--iterations", .kind = TR__ARGUMENT_AMOUNT, .out = &s->one, .min = 1, .max = 1e15},
      {.name = "--seconds", .kind = TR__ARGUMENT_TIME, .out = &r->seconds, .min = 1e-6, .max = 1e6},
      {.name = "--batch", .kind = TR__ARGUMENT_AMOUNT, .out = &s->batch, .min = 1, .max = 1e9},
      {.name = "--critical", .kind = TR__ARGUMENT_PARAMS, .out = &s->critical, .min = 1, .max = 1e12},
      {.name = "--workers", .kind = TR__ARGUMENT_TEXT, .out = &r->workers},
      {.name = "--staleness", .kind = TR__ARGUMENT_REAL, .out = &r->staleness, .min = 0, .max = 1000},
      {.name = "--penalty", .kind = TR__ARGUMENT_REAL, .out = &s->stale_penalty, .min = 0, .max = 1},
      {.name = "--gradients", .kind = TR__ARGUMENT_AMOUNT, .out = &s->job.bytes, .min = 0, .max = 1e15},
      {.name = "--per-node", .kind = TR__ARGUMENT_NUMBER, .out = &f->per_node, .min = 1, .max = 1e5},
      {.name = "--inside", .kind = TR__ARGUMENT_AMOUNT, .out = &f->inside.bandwidth, .min = 1, .max = 1e15},
      {.name = "--ports", .kind = TR__ARGUMENT_NUMBER, .out = &f->ports, .min = 1, .max = 1e5},
      {.name = "--between", .kind = TR__ARGUMENT_AMOUNT, .out = &f->between.bandwidth, .min = 1, .max = 1e15},
      {.name = "--alpha", .kind = TR__ARGUMENT_TIME, .out = &f->between.alpha, .min = 0, .max = 1},
      {.name = "--overlap", .kind = TR__ARGUMENT_REAL, .out = &s->job.overlap, .min = 0, .max = 1},
      {.name = "--jitter", .kind = TR__ARGUMENT_REAL, .out = &s->job.jitter, .min = 0, .max = 10},
      {.name = "--price", .kind = TR__ARGUMENT_REAL, .out = &r->price, .min = 0, .max = 1e6},
      {.name = "--measured", .kind = TR__ARGUMENT_LIST, .out = &r->measured},
      {.name = "--json", .kind = TR__ARGUMENT_FLAG, .out = &r->json}};
  TR_TRY(tr__plan_options("sync", argc, argv, table, sizeof table / sizeof *table));
  if (!(s->one > 0)) return tr__cli_usage("plan sync", "give --iterations, those that one worker needs");
  if (!(r->seconds > 0)) return tr__cli_usage("plan sync", "give --seconds, the time of an iteration of one worker");
  s->job.compute = r->seconds;
  return r->measured.n ? take_measured(r) : predict(r);
}

static void report_run(tr__plan_report *out, const request *r, const tr_law_run *run) {
  char name[48];
  tr_law_run_cost cost = tr_law_run_price(run, r->sync.one, r->seconds, r->sync.batch, r->price);
  snprintf(name, sizeof name, run->staleness > 0 ? "%.0f, stale by %.3g" : "%.0f", run->workers, run->staleness);
  tr__plan_row(out, name,
               (const double[]){run->workers, run->staleness, run->iterations, cost.samples, cost.sample_efficiency,
                                run->overhead, cost.iteration, cost.seconds, cost.price, cost.speedup,
                                cost.lr_factor});
}

tr_status tr__plan_sync(int argc, char **argv) {
  static const tr__plan_column columns[] = {{"run", "name", TR__PLAN_NUMBER},
                                            {"workers", "workers", TR__PLAN_COUNT},
                                            {"staleness", "staleness", TR__PLAN_NUMBER},
                                            {"iterations", "iterations", TR__PLAN_COUNT},
                                            {"samples", "samples", TR__PLAN_NUMBER},
                                            {"of them used", "sample_efficiency", TR__PLAN_SHARE},
                                            {"overhead", "overhead", TR__PLAN_SHARE},
                                            {"iteration", "iteration_s", TR__PLAN_TIME},
                                            {"time", "seconds", TR__PLAN_TIME},
                                            {"price", "price", TR__PLAN_MONEY},
                                            {"speed-up", "speedup", TR__PLAN_NUMBER},
                                            {"rate x", "lr_factor", TR__PLAN_NUMBER},
                                            {NULL, NULL, TR__PLAN_NUMBER}};
  if (tr__cli_wants_help(argc, argv)) return print_help();
  request r;
  tr__plan_report out;
  TR_TRY(parse(argc, argv, &r));
  tr__plan_begin(&out, "sync", r.json);
  tr__plan_table(&out, "runs", columns);
  for (size_t i = 0; i < r.nrun; i++) report_run(&out, &r, &r.run[i]);
  const tr_law_run *last = &r.run[r.nrun - 1];
  tr_law_warning over = tr_law_lint_batch_over_critical(last->workers * r.sync.batch, r.sync.critical);
  tr__plan_warning(&out, &over);
  return tr__plan_end(&out);
}
