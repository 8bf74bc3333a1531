// SPDX-License-Identifier: MIT
// `trireme plan cost`: days, energy, carbon and price of a token budget, of a number of operations, or of a loss target by a
// compute power law (law_money.h, law_power.h).
#include "cli/cli_internal.h"
#include "cli/plan_words_internal.h"
#include "trireme/plan/law_money.h"
#include "trireme/plan/law_power.h"
#include <math.h>
#include <stdio.h>

typedef struct request {
  tr_law_budget budget;
  tr_law_power law;
  double params, tokens, loss, reachable;
  int json;
} request;

static tr_status print_help(void) {
  printf(
      "usage: trireme plan cost --devices N --peak F (--params N --tokens N | --flop F | --loss L --scale A "
      "--exponent B)\n"
      "                         [options]\n\n"
      "  --params N --tokens N      6 x N x tokens operations; N: those that a token uses\n"
      "  --flop F                   operations of the whole run\n"
      "  --loss L --scale A --exponent B --floor E    loss = E + A / FLOP^B (E: 0; trireme plan fit-exponent)\n"
      "  --devices N --peak F       FLOP/s of one, without sparsity\n"
      "  --mfu X --scaling X --available X    shares (0.4, 1, 1)\n"
      "  --reachable F              FLOP/s that large products reach on a device, to check the MFU with\n"
      "  --power W --pue X          of a device with its part of the host (1000); of the building over that (1.2)\n"
      "  --carbon G                 grams per kWh (400)\n"
      "  --price P                  of a device for an hour (2)\n"
      "  --json                     one JSON object\n\n"
      "example: trireme plan cost --params 37e9 --tokens 14.8e12 --devices 2048 --peak 989e12 --mfu 0.346\n");
  return TR_OK;
}

static tr_status work(request *r) {
  const tr_law_power *law = &r->law;
  int tokens = r->params > 0 && r->tokens > 0, flop = r->budget.flop > 0, loss = r->loss > 0;
  if (tokens + flop + loss != 1)
    return tr__cli_usage("plan cost", "give one of --params with --tokens, --flop, and --loss with a power law");
  if (tokens) r->budget.flop = tr_law_train_flop(r->params, r->tokens);
  if (!loss) return TR_OK;
  if (!(law->scale > 0 && law->exponent > 0))
    return tr__cli_usage("plan cost",
                         "--loss needs --scale and --exponent of the power law (trireme plan fit-exponent)");
  if (r->loss <= law->floor)
    return tr__cli_usage("plan cost", "--loss %.15g is not above --floor %.15g: no run gets there", r->loss,
                         law->floor);
  r->budget.flop = tr_law_power_compute(law, r->loss);
  return TR_OK;
}

static tr_status parse(int argc, char **argv, request *r) {
  *r = (request){
      .budget = {.mfu = 0.4, .scaling = 1, .available = 1, .power = 1000, .pue = 1.2, .carbon = 400, .price = 2}};
  tr_law_budget *b = &r->budget;
  const tr__argument table[] = {
      {.name = "--params", .kind = TR__ARGUMENT_PARAMS, .out = &r->params, .min = 1000, .max = 1e15},
      {.name = "--tokens", .kind = TR__ARGUMENT_PARAMS, .out = &r->tokens, .min = 1, .max = 1e18},
      {.name = "--flop", .kind = TR__ARGUMENT_AMOUNT, .out = &b->flop, .min = 1, .max = 1e35},
      {.name = "--loss", .kind = TR__ARGUMENT_REAL, .out = &r->loss, .min = 1e-6, .max = 1e6},
      {.name = "--scale", .kind = TR__ARGUMENT_REAL, .out = &r->law.scale, .min = 1e-30, .max = 1e30},
      {.name = "--exponent", .kind = TR__ARGUMENT_REAL, .out = &r->law.exponent, .min = 1e-6, .max = 10},
      {.name = "--floor", .kind = TR__ARGUMENT_REAL, .out = &r->law.floor, .min = 0, .max = 1e6},
      {.name = "--devices", .kind = TR__ARGUMENT_NUMBER, .out = &b->devices, .min = 1, .max = 1e8},
      {.name = "--peak", .kind = TR__ARGUMENT_AMOUNT, .out = &b->peak, .min = 1e6, .max = 1e18},
      {.name = "--mfu", .kind = TR__ARGUMENT_REAL, .out = &b->mfu, .min = 1e-4, .max = 1},
      {.name = "--scaling", .kind = TR__ARGUMENT_REAL, .out = &b->scaling, .min = 1e-4, .max = 1},
      {.name = "--available", .kind = TR__ARGUMENT_REAL, .out = &b->available, .min = 1e-4, .max = 1},
      {.name = "--reachable", .kind = TR__ARGUMENT_AMOUNT, .out = &r->reachable, .min = 1e6, .max = 1e18},
      {.name = "--power", .kind = TR__ARGUMENT_REAL, .out = &b->power, .min = 0, .max = 1e6},
      {.name = "--pue", .kind = TR__ARGUMENT_REAL, .out = &b->pue, .min = 1, .max = 10},
      {.name = "--carbon", .kind = TR__ARGUMENT_REAL, .out = &b->carbon, .min = 0, .max = 1e5},
      {.name = "--price", .kind = TR__ARGUMENT_REAL, .out = &b->price, .min = 0, .max = 1e6},
      {.name = "--json", .kind = TR__ARGUMENT_FLAG, .out = &r->json}};
  TR_TRY(tr__plan_options("cost", argc, argv, table, sizeof table / sizeof *table));
  if (!(b->devices > 0 && b->peak > 0))
    return tr__cli_usage("plan cost", "give --devices, and --peak in FLOP/s of one");
  return work(r);
}

tr_status tr__plan_cost(int argc, char **argv) {
  if (tr__cli_wants_help(argc, argv)) return print_help();
  request r;
  tr__plan_report out;
  TR_TRY(parse(argc, argv, &r));
  const tr_law_budget *b = &r.budget;
  const tr_law_bill bill = tr_law_bill_for(b);
  tr__plan_begin(&out, "cost", r.json);
  tr__plan_value(&out, "operations (FLOP)", "flop", TR__PLAN_NUMBER, b->flop);
  tr__plan_value(&out, "a device does (FLOP/s)", "device_flops", TR__PLAN_NUMBER, b->peak * b->mfu * b->scaling);
  tr__plan_value(&out, "time", "seconds", TR__PLAN_TIME, bill.seconds);
  tr__plan_value(&out, "device hours", "device_hours", TR__PLAN_COUNT, bill.device_hours);
  tr__plan_value(&out, "years of one device", "device_years", TR__PLAN_NUMBER,
                 tr_law_device_years(bill.device_hours * 3600));
  tr__plan_value(&out, "energy (MWh)", "energy_mwh", TR__PLAN_NUMBER, bill.joule / 3.6e9);
  tr__plan_value(&out, "carbon dioxide (t)", "carbon_t", TR__PLAN_NUMBER, bill.gram * 1e-6);
  tr__plan_value(&out, "price", "price", TR__PLAN_MONEY, bill.price);
  tr_law_warning alone = tr_law_lint_mfu_without_scaling(b->devices, b->mfu, b->scaling);
  tr_law_warning vendor = tr_law_lint_vendor_efficiency(b->peak * b->mfu, r.reachable > 0 ? r.reachable : INFINITY);
  tr__plan_warning(&out, &alone);
  tr__plan_warning(&out, &vendor);
  return tr__plan_end(&out);
}
