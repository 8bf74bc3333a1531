// SPDX-License-Identifier: MIT
// `trireme plan mfu`: the utilisation of a run by each formula that is in use, so that figures of different sources can be
// compared (law_utilisation.h).
#include "cli/cli_internal.h"
#include "cli/plan_words_internal.h"
#include "trireme/plan/law_utilisation.h"
#include <math.h>
#include <stdio.h>

typedef struct request {
  double params, layers, width, sequence, rate, devices, peak, recomputed, reachable;
  int json;
} request;

static tr_status print_help(void) {
  printf("usage: trireme plan mfu --params N --rate TOKENS --devices N --peak F [options]\n\n"
         "  --params N --rate TOKENS          parameters that a token uses; tokens per second of the whole job\n"
         "  --devices N --peak F              FLOP/s of one, without sparsity\n"
         "  --layers N --width N --sequence N for the formulas that count attention (width: heads x width of one)\n"
         "  --recomputed X                    share of the layers whose forward pass runs again (0)\n"
         "  --reachable F                     FLOP/s that large products reach on a device\n"
         "  --json                            one JSON object\n\n"
         "example: trireme plan mfu --params 540.35e9 --layers 118 --width 12288 --sequence 2048 --rate 238.3e3 \\\n"
         "                          --devices 6144 --peak 275e12\n");
  return TR_OK;
}

static tr_status parse(int argc, char **argv, request *r) {
  *r = (request){0};
  const tr__argument table[] = {
      {.name = "--params", .kind = TR__ARGUMENT_PARAMS, .out = &r->params, .min = 1000, .max = 1e15},
      {.name = "--layers", .kind = TR__ARGUMENT_NUMBER, .out = &r->layers, .min = 1, .max = 1e5},
      {.name = "--width", .kind = TR__ARGUMENT_NUMBER, .out = &r->width, .min = 1, .max = 1e7},
      {.name = "--sequence", .kind = TR__ARGUMENT_NUMBER, .out = &r->sequence, .min = 1, .max = 1e9},
      {.name = "--rate", .kind = TR__ARGUMENT_AMOUNT, .out = &r->rate, .min = 1e-6, .max = 1e15},
      {.name = "--devices", .kind = TR__ARGUMENT_NUMBER, .out = &r->devices, .min = 1, .max = 1e8},
      {.name = "--peak", .kind = TR__ARGUMENT_AMOUNT, .out = &r->peak, .min = 1e6, .max = 1e18},
      {.name = "--recomputed", .kind = TR__ARGUMENT_REAL, .out = &r->recomputed, .min = 0, .max = 1},
      {.name = "--reachable", .kind = TR__ARGUMENT_AMOUNT, .out = &r->reachable, .min = 1e6, .max = 1e18},
      {.name = "--json", .kind = TR__ARGUMENT_FLAG, .out = &r->json}};
  TR_TRY(tr__plan_options("mfu", argc, argv, table, sizeof table / sizeof *table));
  if (!(r->params > 0 && r->rate > 0))
    return tr__cli_usage("plan mfu", "give --params, and --rate in tokens per second");
  if (!(r->devices > 0 && r->peak > 0))
    return tr__cli_usage("plan mfu", "give --devices, and --peak in FLOP/s of one");
  int shape = (r->layers > 0) + (r->width > 0) + (r->sequence > 0);
  if (shape % 3)
    return tr__cli_usage("plan mfu", "--layers, --width and --sequence count attention together; give all");
  return TR_OK;
}

static double report_formula(tr__plan_report *out, const request *r, tr_law_count count) {
  double flop = tr_law_token_flop(count, r->params, r->layers, r->width, r->sequence);
  double mfu = tr_law_utilisation(flop, r->rate, r->devices, r->peak);
  tr__plan_row(out, tr_law_count_formula(count),
               (const double[]){flop, mfu, mfu * tr_law_recompute_factor(r->recomputed), mfu * r->peak * 1e-12});
  return mfu;
}

tr_status tr__plan_utilisation(int argc, char **argv) {
  static const tr__plan_column columns[] = {
      {"formula", "formula", TR__PLAN_NUMBER}, {"FLOP a token", "token_flop", TR__PLAN_NUMBER},
      {"MFU", "mfu", TR__PLAN_SHARE},          {"HFU", "hfu", TR__PLAN_SHARE},
      {"TFLOP/s", "tflops", TR__PLAN_NUMBER},  {NULL, NULL, TR__PLAN_NUMBER}};
  if (tr__cli_wants_help(argc, argv)) return print_help();
  request r;
  tr__plan_report out;
  TR_TRY(parse(argc, argv, &r));
  tr__plan_begin(&out, "mfu", r.json);
  tr__plan_table(&out, "formulas", columns);
  double most = report_formula(&out, &r, TR_LAW_COUNT_6N);
  if (r.layers > 0) {
    report_formula(&out, &r, TR_LAW_COUNT_CAUSAL);
    most = report_formula(&out, &r, TR_LAW_COUNT_PALM);
  }
  double all = most * r.peak * tr_law_recompute_factor(r.recomputed);
  tr_law_warning vendor = tr_law_lint_vendor_efficiency(all, r.reachable > 0 ? r.reachable : r.peak);
  tr__plan_warning(&out, &vendor);
  return tr__plan_end(&out);
}
