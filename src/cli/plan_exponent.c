// SPDX-License-Identifier: MIT
// `trireme plan fit-exponent`: the compute power law of somebody's own runs, from a table with commas
// (law_runs.h). What the law says for a target is printed, with a warning when it is far beyond the runs.
#include "cli/cli_internal.h"
#include "cli/plan_words_internal.h"
#include "trireme/plan/law_power.h"
#include "trireme/plan/law_runs.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct request {
  const char *path;
  double floor, loss, compute;
  int json;
} request;

static tr_status print_help(void) {
  printf(
      "usage: trireme plan fit-exponent RUNS.csv [--floor E] [--target LOSS] [--at FLOP] [--json]\n\n"
      "Fit loss = floor + scale / FLOP^exponent to runs that were tuned alike. RUNS.csv has a first line with the\n"
      "names of its columns: loss, and compute (FLOP of the run) or params and tokens (6 x params x tokens).\n\n"
      "  --floor E        the loss that no run gets below; fitted from four runs on unless given\n"
      "  --target LOSS    the operations that this loss needs\n"
      "  --at FLOP        the loss that these operations give\n\n"
      "example: printf 'params,tokens,loss\\n1e7,2e8,4.9\\n1e8,2e9,3.9\\n1e9,2e10,3.2\\n' >runs.csv\n"
      "         trireme plan fit-exponent runs.csv --target 2.8\n");
  return TR_OK;
}

static tr_status parse(int argc, char **argv, request *r) {
  *r = (request){.floor = NAN, .loss = NAN, .compute = NAN};
  const tr__argument options[] = {
      {.name = "--floor", .kind = TR__ARGUMENT_REAL, .out = &r->floor, .min = 0, .max = 1e6},
      {.name = "--target", .kind = TR__ARGUMENT_REAL, .out = &r->loss, .min = 1e-9, .max = 1e6},
      {.name = "--at", .kind = TR__ARGUMENT_AMOUNT, .out = &r->compute, .min = 1, .max = 1e40},
      {.name = "--json", .kind = TR__ARGUMENT_FLAG, .out = &r->json}};
  return tr__cli_parse("plan fit-exponent", argc, argv, options, sizeof options / sizeof *options,
                       "the table of runs, as in runs.csv", &r->path);
}

static void report(tr__plan_report *out, const request *r, const tr_law_runs *t, const tr_law_power *law) {
  tr__plan_value(out, "runs", "runs", TR__PLAN_COUNT, (double)t->n);
  tr__plan_value(out, "from (FLOP)", "least_flop", TR__PLAN_NUMBER, law->least);
  tr__plan_value(out, "to (FLOP)", "most_flop", TR__PLAN_NUMBER, law->most);
  tr__plan_value(out, "exponent", "exponent", TR__PLAN_NUMBER, law->exponent);
  tr__plan_value(out, "standard error of the exponent", "exponent_error", TR__PLAN_NUMBER, law->exponent_error);
  tr__plan_value(out, "scale", "scale", TR__PLAN_NUMBER, law->scale);
  tr__plan_value(out, "floor", "floor", TR__PLAN_NUMBER, law->floor);
  tr__plan_value(out, "scatter of the loss above the floor", "residual", TR__PLAN_SHARE, law->residual);
  if (!isnan(r->loss)) {
    double flop = tr_law_power_compute(law, r->loss);
    tr_law_warning far = tr_law_lint_far_extrapolation(law, flop);
    tr__plan_value(out, "operations for the target (FLOP)", "target_flop", TR__PLAN_NUMBER, flop);
    tr__plan_warning(out, &far);
  }
  if (isnan(r->compute)) return;
  tr_law_warning far = tr_law_lint_far_extrapolation(law, r->compute);
  tr__plan_value(out, "loss at these operations", "loss_at", TR__PLAN_NUMBER, tr_law_power_loss(law, r->compute));
  tr__plan_warning(out, &far);
}

static tr_status fit(const request *r, tr_law_runs *t) {
  tr_law_power law;
  tr__plan_report out;
  TR_TRY(tr_law_runs_load(r->path, t));
  tr_status status = tr_law_power_fit(t->n, t->compute, t->loss, r->floor, &law);
  if (status < 0) tr_error_prefix("%s", r->path);
  TR_TRY(status);
  if (r->loss <= law.floor)
    return tr__cli_usage("plan fit-exponent", "--target %.15g is not above the floor %.6g of these runs", r->loss,
                         law.floor);
  tr__plan_begin(&out, "fit-exponent", r->json);
  report(&out, r, t, &law);
  return tr__plan_end(&out);
}

tr_status tr__plan_exponent(int argc, char **argv) {
  if (tr__cli_wants_help(argc, argv)) return print_help();
  request r;
  TR_TRY(parse(argc, argv, &r));
  tr_law_runs *t = calloc(1, sizeof *t);
  if (!t) return tr_error(TR_ERR_MEMORY, "no memory for %d runs", TR_LAW_RUNS);
  tr_status status = fit(&r, t);
  free(t);
  return status;
}
