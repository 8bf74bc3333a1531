// SPDX-License-Identifier: MIT
// `trireme plan checkpoint`: from the parts of a cluster to its failures, the interval between saves that loses least, what
// other intervals lose, and spares (law_reliability.h).
#include "cli/cli_internal.h"
#include "cli/plan_words_internal.h"
#include "trireme/plan/law_reliability.h"
#include <math.h>
#include <stdio.h>

enum { PARTS = TR__ARGUMENT_LIST_MOST + 1 };

typedef struct request {
  double devices, mtbf, write, state, storage, restart, every, price, repair, target, run;
  int json;
  tr__argument_list parts;
  char name[PARTS][TR__PLAN_FIELD];
  tr_law_part part[PARTS];
  size_t npart;
} request;

static tr_status print_help(void) {
  printf(
      "usage: trireme plan checkpoint --devices N --write TIME [options]\n\n"
      "How often to save, after Young and Daly, from failures of independent parts; what that loses, against other\n"
      "intervals; and spares.\n\n"
      "  --devices N --mtbf TIME      devices and the time between failures of one (50000h)\n"
      "  --part NAME:COUNT:TIME       other parts, each with the MTBF of one; may be given several times\n"
      "  --write TIME                 a save; or --state BYTES --storage BYTES (per second)\n"
      "  --restart TIME               from a failure until training goes on (5min)\n"
      "  --every TIME                 an interval to compare with (15min)\n"
      "  --price P                    of a device for an hour (2)\n"
      "  --run TIME                   length of the run (30d)\n"
      "  --repair TIME --target P     spares so that with this probability (0.99) nobody waits for a repair (24h)\n"
      "  --json                       one JSON object; times in seconds, shares of one\n\n"
      "example: trireme plan checkpoint --devices 1024 --mtbf 50000h --write 5min --part switch:64:200000h\n");
  return TR_OK;
}

static tr_status take_parts(request *r) {
  const char *const form = "NAME:COUNT:TIME as in switch:64:200000h";
  r->part[r->npart++] = (tr_law_part){.name = "device", .count = r->devices, .mtbf = r->mtbf};
  for (size_t i = 0; i < r->parts.n; i++) {
    char field[3][TR__PLAN_FIELD];
    size_t n;
    tr_law_part part = {.name = r->name[i]};
    TR_TRY(tr__plan_split("checkpoint", "--part", r->parts.item[i], field, 3, 3, form, &n));
    TR_TRY(tr__plan_field("checkpoint", "--part", r->parts.item[i], field[1], 0, &part.count));
    TR_TRY(tr__plan_field("checkpoint", "--part", r->parts.item[i], field[2], 1, &part.mtbf));
    if (part.mtbf < 1)
      return tr__cli_usage("plan checkpoint", "--part %.80s needs a time of a second at least", r->parts.item[i]);
    snprintf(r->name[i], TR__PLAN_FIELD, "%s", field[0]);
    r->part[r->npart++] = part;
  }
  return TR_OK;
}

static tr_status parse(int argc, char **argv, request *r) {
  *r = (request){.mtbf = 50000 * 3600.0,
                 .restart = 300,
                 .every = 900,
                 .price = 2,
                 .repair = 86400,
                 .target = 0.99,
                 .run = 30 * 86400.0};
  const tr__argument table[] = {
      {.name = "--devices", .kind = TR__ARGUMENT_NUMBER, .out = &r->devices, .min = 1, .max = 1e8},
      {.name = "--mtbf", .kind = TR__ARGUMENT_TIME, .out = &r->mtbf, .min = 1, .max = 1e12},
      {.name = "--part", .kind = TR__ARGUMENT_LIST, .out = &r->parts},
      {.name = "--write", .kind = TR__ARGUMENT_TIME, .out = &r->write, .min = 1e-3, .max = 1e7},
      {.name = "--state", .kind = TR__ARGUMENT_AMOUNT, .out = &r->state, .min = 1, .max = 1e18},
      {.name = "--storage", .kind = TR__ARGUMENT_AMOUNT, .out = &r->storage, .min = 1, .max = 1e15},
      {.name = "--restart", .kind = TR__ARGUMENT_TIME, .out = &r->restart, .min = 0, .max = 1e7},
      {.name = "--every", .kind = TR__ARGUMENT_TIME, .out = &r->every, .min = 1e-3, .max = 1e9},
      {.name = "--price", .kind = TR__ARGUMENT_REAL, .out = &r->price, .min = 0, .max = 1e6},
      {.name = "--repair", .kind = TR__ARGUMENT_TIME, .out = &r->repair, .min = 0, .max = 1e9},
      {.name = "--target", .kind = TR__ARGUMENT_REAL, .out = &r->target, .min = 0, .max = 0.999999},
      {.name = "--run", .kind = TR__ARGUMENT_TIME, .out = &r->run, .min = 1, .max = 1e10},
      {.name = "--json", .kind = TR__ARGUMENT_FLAG, .out = &r->json}};
  TR_TRY(tr__plan_options("checkpoint", argc, argv, table, sizeof table / sizeof *table));
  if (!(r->devices > 0)) return tr__cli_usage("plan checkpoint", "give --devices, the number of devices of the job");
  if (r->write > 0 && r->state > 0)
    return tr__cli_usage("plan checkpoint", "--write and --state both say how long a save takes; give one");
  if (r->write <= 0 && !(r->state > 0 && r->storage > 0))
    return tr__cli_usage("plan checkpoint", "give --write TIME, or --state BYTES and --storage BYTES per second");
  if (r->write <= 0) r->write = r->state / r->storage;
  return take_parts(r);
}

static void report_parts(tr__plan_report *out, const request *r, double mtbf) {
  static const tr__plan_column columns[] = {{"part", "part", TR__PLAN_NUMBER},
                                            {"count", "count", TR__PLAN_COUNT},
                                            {"MTBF of one", "one_mtbf_s", TR__PLAN_TIME},
                                            {"of all", "all_mtbf_s", TR__PLAN_TIME},
                                            {"of failures", "share", TR__PLAN_SHARE},
                                            {NULL, NULL, TR__PLAN_NUMBER}};
  tr__plan_table(out, "parts", columns);
  for (size_t i = 0; i < r->npart; i++) {
    double all = tr_law_mtbf(r->part[i].count, r->part[i].mtbf);
    tr__plan_row(out, r->part[i].name, (const double[]){r->part[i].count, r->part[i].mtbf, all, mtbf / all});
  }
  tr__plan_head(out, "failures");
  tr__plan_value(out, "MTBF of the job", "mtbf_s", TR__PLAN_TIME, mtbf);
  tr__plan_value(out, "a failure within an hour", "failure_per_hour", TR__PLAN_SHARE,
                 tr_law_failure_probability(3600, mtbf));
  tr__plan_value(out, "failures in the run", "failures", TR__PLAN_NUMBER, tr_law_expected_failures(r->run, mtbf));
  tr__plan_value(out, "spare devices", "spares", TR__PLAN_COUNT,
                 tr_law_spares(r->devices, r->mtbf, r->repair, r->target));
}

static void report_interval(tr__plan_report *out, const request *r, double mtbf, const char *name, double interval) {
  tr_law_saving s = tr_law_saving_at(interval, r->write, mtbf, r->restart);
  tr__plan_row(out, name,
               (const double[]){interval, s.saving, s.redone, s.overhead, s.exact, s.lost,
                                tr_law_overhead_price(s.exact, r->devices, r->price)});
}

static void report_intervals(tr__plan_report *out, const request *r, double mtbf) {
  static const tr__plan_column columns[] = {{"save every", "name", TR__PLAN_NUMBER},
                                            {"interval", "interval_s", TR__PLAN_TIME},
                                            {"saving", "saving", TR__PLAN_SHARE},
                                            {"done again", "redone", TR__PLAN_SHARE},
                                            {"overhead", "overhead", TR__PLAN_SHARE},
                                            {"time lost", "time_lost", TR__PLAN_SHARE},
                                            {"lost a failure", "lost_s", TR__PLAN_TIME},
                                            {"cost a day", "price", TR__PLAN_MONEY},
                                            {NULL, NULL, TR__PLAN_NUMBER}};
  tr__plan_table(out, "intervals", columns);
  report_interval(out, r, mtbf, "Young", tr_law_saving_young(r->write, mtbf));
  report_interval(out, r, mtbf, "Daly", tr_law_saving_daly(r->write, mtbf));
  report_interval(out, r, mtbf, "as now", r->every);
  tr_law_warning warning = tr_law_lint_fixed_interval(r->every, r->write, mtbf, r->restart);
  tr__plan_warning(out, &warning);
}

tr_status tr__plan_checkpoint(int argc, char **argv) {
  if (tr__cli_wants_help(argc, argv)) return print_help();
  request r;
  tr__plan_report out;
  TR_TRY(parse(argc, argv, &r));
  double mtbf = tr_law_mtbf_of(r.part, r.npart);
  tr__plan_begin(&out, "checkpoint", r.json);
  report_parts(&out, &r, mtbf);
  report_intervals(&out, &r, mtbf);
  return tr__plan_end(&out);
}
