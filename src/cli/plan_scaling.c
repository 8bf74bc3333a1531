// SPDX-License-Identifier: MIT
// `trireme plan scaling`: a job of fixed batch on 1, 2, 4 ... devices by the fleet law (law_scaling.h), and the count from
// which on doubling is no longer worth it.
#include "cli/cli_internal.h"
#include "cli/plan_words_internal.h"
#include "trireme/plan/law_money.h"
#include "trireme/plan/law_scaling.h"
#include "trireme/plan/workload.h"
#include <math.h>
#include <stdio.h>

typedef struct request {
  const char *model;
  tr_law_job job;
  double params, active, batch, flops, mfu, steps, limit, worth, assumed;
  int json;
} request;

static tr_status print_help(void) {
  printf(
      "usage: trireme plan scaling --step TIME --gradients BYTES [options]\n"
      "       trireme plan scaling --model M|--params N --batch TOKENS --flops F [options]\n\n"
      "  --step TIME                a step on one device; or parameters, tokens of a batch and FLOP/s that a device\n"
      "                             reaches (6 x N x tokens / F)\n"
      "  --model M                  parameters of a preset (presets/models), a config.json or the folder of one; of\n"
      "                             experts, those that a token visits compute and all are summed\n"
      "  --gradients BYTES          summed once a step (2 bytes a parameter)\n"
      "  --per-node N --inside BYTES --ports N --between BYTES --alpha TIME\n"
      "                             devices of a node (8), bytes per second of each (300GB), ports of a node (8),\n"
      "                             bytes per second of one (25GB), and a message between nodes (5us)\n"
      "  --overlap X --jitter X     communication that is hidden (0); deviation of a step's time (0)\n"
      "  --most N                   devices that the batch can be divided over (its sequences); any number\n"
      "  --mfu X                    of one device, for the goodput (0.4)\n"
      "  --price P                  of a device for an hour (2)\n"
      "  --limit N --worth X        up to how many devices (16384), and what doubling must give (1.41)\n"
      "  --assumed X                a speed-up at --limit that somebody counts on\n"
      "  --json                     one JSON object\n\n"
      "example: trireme plan scaling --params 1.5e9 --batch 500k --flops 150e12 --between 1.25GB --ports 1\n");
  return TR_OK;
}

static tr_status take_model(request *r) {
  tr_workload w;
  if (r->params > 0)
    return tr__cli_usage("plan scaling", "--model %.80s has its own parameters; leave --params out", r->model);
  TR_TRY(tr_workload_load(r->model, &w, NULL));
  r->params = tr_workload_params(&w);
  r->active = tr_workload_active_params(&w);
  return TR_OK;
}

static tr_status parse(int argc, char **argv, request *r) {
  *r = (request){.mfu = 0.4, .steps = 1, .limit = 16384, .worth = 1.41};
  tr_law_job *j = &r->job;
  tr_law_fabric *f = &j->fabric;
  j->price = 2;
  *f = (tr_law_fabric){.per_node = 8, .ports = 8, .inside = {0, 300e9}, .between = {5e-6, 25e9}};
  const tr__argument table[] = {
      {.name = "--step", .kind = TR__ARGUMENT_TIME, .out = &j->compute, .min = 1e-6, .max = 1e10},
      {.name = "--model", .kind = TR__ARGUMENT_TEXT, .out = &r->model},
      {.name = "--params", .kind = TR__ARGUMENT_PARAMS, .out = &r->params, .min = 1000, .max = 1e15},
      {.name = "--batch", .kind = TR__ARGUMENT_PARAMS, .out = &r->batch, .min = 1, .max = 1e12},
      {.name = "--flops", .kind = TR__ARGUMENT_AMOUNT, .out = &r->flops, .min = 1e6, .max = 1e18},
      {.name = "--gradients", .kind = TR__ARGUMENT_AMOUNT, .out = &j->bytes, .min = 0, .max = 1e15},
      {.name = "--per-node", .kind = TR__ARGUMENT_NUMBER, .out = &f->per_node, .min = 1, .max = 1e5},
      {.name = "--inside", .kind = TR__ARGUMENT_AMOUNT, .out = &f->inside.bandwidth, .min = 1, .max = 1e15},
      {.name = "--ports", .kind = TR__ARGUMENT_NUMBER, .out = &f->ports, .min = 1, .max = 1e5},
      {.name = "--between", .kind = TR__ARGUMENT_AMOUNT, .out = &f->between.bandwidth, .min = 1, .max = 1e15},
      {.name = "--alpha", .kind = TR__ARGUMENT_TIME, .out = &f->between.alpha, .min = 0, .max = 1},
      {.name = "--overlap", .kind = TR__ARGUMENT_REAL, .out = &j->overlap, .min = 0, .max = 1},
      {.name = "--jitter", .kind = TR__ARGUMENT_REAL, .out = &j->jitter, .min = 0, .max = 10},
      {.name = "--most", .kind = TR__ARGUMENT_NUMBER, .out = &j->most, .min = 1, .max = 1e9},
      {.name = "--mfu", .kind = TR__ARGUMENT_REAL, .out = &r->mfu, .min = 0, .max = 1},
      {.name = "--price", .kind = TR__ARGUMENT_REAL, .out = &j->price, .min = 0, .max = 1e6},
      {.name = "--steps", .kind = TR__ARGUMENT_AMOUNT, .out = &r->steps, .min = 1, .max = 1e12},
      {.name = "--limit", .kind = TR__ARGUMENT_NUMBER, .out = &r->limit, .min = 1, .max = 1e8},
      {.name = "--worth", .kind = TR__ARGUMENT_REAL, .out = &r->worth, .min = 1, .max = 2},
      {.name = "--assumed", .kind = TR__ARGUMENT_REAL, .out = &r->assumed, .min = 1, .max = 1e9},
      {.name = "--json", .kind = TR__ARGUMENT_FLAG, .out = &r->json}};
  TR_TRY(tr__plan_options("scaling", argc, argv, table, sizeof table / sizeof *table));
  if (r->model) TR_TRY(take_model(r));
  if (!(r->active > 0)) r->active = r->params;
  if (!(j->compute > 0) && !(r->params > 0 && r->batch > 0 && r->flops > 0))
    return tr__cli_usage("plan scaling", "give --step TIME, or --model M (or --params N), --batch and --flops");
  if (!(j->bytes > 0) && !(r->params > 0))
    return tr__cli_usage("plan scaling", "give --gradients BYTES, or --model M, or --params N");
  if (!(j->compute > 0)) j->compute = tr_law_train_flop(r->active, r->batch) / r->flops;
  if (!(j->bytes > 0)) j->bytes = 2 * r->params;
  return TR_OK;
}

static double report_curve(tr__plan_report *out, const request *r) {
  static const tr__plan_column columns[] = {{"devices", "devices", TR__PLAN_COUNT},
                                            {"step", "step_s", TR__PLAN_TIME},
                                            {"computing", "compute_s", TR__PLAN_TIME},
                                            {"exposed", "exposed_s", TR__PLAN_TIME},
                                            {"waiting", "waiting_s", TR__PLAN_TIME},
                                            {"rho", "rho", TR__PLAN_NUMBER},
                                            {"speed-up", "speedup", TR__PLAN_NUMBER},
                                            {"efficiency", "efficiency", TR__PLAN_SHARE},
                                            {"goodput", "goodput", TR__PLAN_NUMBER},
                                            {"for doubling", "worth", TR__PLAN_NUMBER},
                                            {"time", "seconds", TR__PLAN_TIME},
                                            {"price", "price", TR__PLAN_MONEY},
                                            {NULL, NULL, TR__PLAN_NUMBER}};
  double last = 1, n = 1;
  tr__plan_table(out, "curve", columns);
  while (n <= r->limit) {
    tr_law_point p = tr_law_scale(&r->job, n);
    tr__plan_row(out, NULL,
                 (const double[]){n, p.step, p.compute, p.exposed, p.waiting, p.rho, p.speedup, p.efficiency,
                                  tr_law_goodput(n, r->mfu, p.efficiency, 1), n > 1 ? p.worth : NAN,
                                  p.step * r->steps, p.cost * r->steps});
    last = n;
    n *= 2;
  }
  return last;
}

tr_status tr__plan_scaling(int argc, char **argv) {
  if (tr__cli_wants_help(argc, argv)) return print_help();
  request r;
  tr__plan_report out;
  TR_TRY(parse(argc, argv, &r));
  tr__plan_begin(&out, "scaling", r.json);
  double last = report_curve(&out, &r), pays = tr_law_scale_limit(&r.job, r.limit, r.worth);
  tr_law_point end = tr_law_scale(&r.job, last), best = tr_law_scale(&r.job, pays);
  tr__plan_head(&out, "where adding devices stops paying (doubling gives less than %.3g)", r.worth);
  tr__plan_value(&out, "devices", "pays_up_to", TR__PLAN_COUNT, pays);
  tr__plan_value(&out, "speed-up there", "pays_speedup", TR__PLAN_NUMBER, best.speedup);
  tr__plan_value(&out, "serial share that explains it (Amdahl)", "serial", TR__PLAN_SHARE,
                 pays > 1 ? tr_law_amdahl_serial(pays, best.speedup) : NAN);
  tr_law_warning linear = tr_law_lint_linear_speedup(last, r.assumed > 0 ? r.assumed : end.speedup, end.speedup);
  tr_law_warning alone = tr_law_lint_mfu_without_scaling(last, r.mfu, end.efficiency);
  tr__plan_warning(&out, &linear);
  tr__plan_warning(&out, &alone);
  return tr__plan_end(&out);
}
