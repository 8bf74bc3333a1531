// SPDX-License-Identifier: MIT
// `trireme plan batch`: a proposed batch against the critical size, given or from measured gradients, the learning-rate rule
// that applies, and what accumulation costs (law_batch.h).
#include "cli/cli_internal.h"
#include "cli/plan_words_internal.h"
#include "trireme/plan/law_batch.h"
#include <math.h>
#include <stdio.h>

typedef struct request {
  double ranks, micro, passes, critical, trace, square, base, rate, chosen, pass, sync;
  const char *small, *large;
  int json;
} request;

static tr_status print_help(void) {
  printf(
      "usage: trireme plan batch --ranks N --micro N [--accumulation K] (--critical B | --noise X --square X |\n"
      "                          --small B:X --large B:X) [options]\n\n"
      "  --ranks N --micro N --accumulation K    the proposed batch is their product (1, 1, 1), in samples or "
      "tokens\n"
      "  --critical B                            the critical batch size, in the same unit\n"
      "  --noise X --square X                    tr(Sigma) of one sample's gradient, squared norm of the gradient\n"
      "  --small B:X --large B:X                 two batch sizes with the squared norms of their gradients\n"
      "  --base B --rate R                       the batch and the rate that were tuned\n"
      "  --chosen R                              the rate that is meant for the proposed batch\n"
      "  --pass TIME --sync TIME                 a pass and the exposed communication of a step\n"
      "  --json                                  one JSON object\n\n"
      "example: trireme plan batch --ranks 64 --micro 4 --accumulation 32 --noise 1.6e6 --square 100 --base 128 "
      "--rate 1e-4\n");
  return TR_OK;
}

static tr_status take_pair(const char *option, const char *text, double *batch, double *square) {
  char field[2][TR__PLAN_FIELD];
  size_t n;
  TR_TRY(tr__plan_split("batch", option, text, field, 2, 2, "BATCH:SQUARE as in 64:3.1", &n));
  TR_TRY(tr__plan_field("batch", option, text, field[0], 0, batch));
  return tr__plan_field("batch", option, text, field[1], 0, square);
}

static tr_status critical_size(request *r) {
  int given = r->critical > 0, noise = r->trace > 0 && r->square > 0, measured = r->small && r->large;
  if (given + noise + measured != 1)
    return tr__cli_usage("plan batch", "give one of --critical, --noise with --square, and --small with --large");
  if (noise) r->critical = tr_law_critical_batch(r->trace, r->square);
  if (!measured) return TR_OK;
  double small, small_square, large, large_square;
  TR_TRY(take_pair("--small", r->small, &small, &small_square));
  TR_TRY(take_pair("--large", r->large, &large, &large_square));
  tr_law_noise n = tr_law_noise_from(small, small_square, large, large_square);
  if (!(n.trace > 0 && n.gradient_square > 0))
    return tr__cli_usage("plan batch",
                         "--small %s and --large %s give no noise scale: the small batch must be the smaller one and "
                         "its square the larger one, by less than the ratio of the batches; average over more steps",
                         r->small, r->large);
  r->trace = n.trace;
  r->square = n.gradient_square;
  r->critical = n.critical;
  return TR_OK;
}

static tr_status parse(int argc, char **argv, request *r) {
  *r = (request){.ranks = 1, .micro = 1, .passes = 1};
  const tr__argument table[] = {
      {.name = "--ranks", .kind = TR__ARGUMENT_NUMBER, .out = &r->ranks, .min = 1, .max = 1e8},
      {.name = "--micro", .kind = TR__ARGUMENT_NUMBER, .out = &r->micro, .min = 1, .max = 1e9},
      {.name = "--accumulation", .kind = TR__ARGUMENT_NUMBER, .out = &r->passes, .min = 1, .max = 1e6},
      {.name = "--critical", .kind = TR__ARGUMENT_PARAMS, .out = &r->critical, .min = 1e-3, .max = 1e15},
      {.name = "--noise", .kind = TR__ARGUMENT_REAL, .out = &r->trace, .min = 1e-300, .max = 1e300},
      {.name = "--square", .kind = TR__ARGUMENT_REAL, .out = &r->square, .min = 1e-300, .max = 1e300},
      {.name = "--small", .kind = TR__ARGUMENT_TEXT, .out = &r->small},
      {.name = "--large", .kind = TR__ARGUMENT_TEXT, .out = &r->large},
      {.name = "--base", .kind = TR__ARGUMENT_PARAMS, .out = &r->base, .min = 1e-3, .max = 1e15},
      {.name = "--rate", .kind = TR__ARGUMENT_REAL, .out = &r->rate, .min = 1e-30, .max = 1e6},
      {.name = "--chosen", .kind = TR__ARGUMENT_REAL, .out = &r->chosen, .min = 1e-30, .max = 1e6},
      {.name = "--pass", .kind = TR__ARGUMENT_TIME, .out = &r->pass, .min = 1e-9, .max = 1e6},
      {.name = "--sync", .kind = TR__ARGUMENT_TIME, .out = &r->sync, .min = 0, .max = 1e6},
      {.name = "--json", .kind = TR__ARGUMENT_FLAG, .out = &r->json}};
  TR_TRY(tr__plan_options("batch", argc, argv, table, sizeof table / sizeof *table));
  if (r->chosen > 0 && !(r->base > 0 && r->rate > 0))
    return tr__cli_usage("plan batch", "--chosen is compared with the tuned rate; give --base and --rate too");
  return critical_size(r);
}

static void report_rate(tr__plan_report *out, const request *r, double batch) {
  tr_law_lr_rule rule = tr_law_lr_rule_for(batch, r->critical);
  tr__plan_text(out, "learning-rate rule", "rule",
                rule == TR_LAW_LR_LINEAR ? "linear (below the critical size)" : "square root (above it)");
  if (!(r->base > 0)) return;
  double factor = tr_law_lr_factor(rule, batch / r->base);
  tr__plan_value(out, "rate, against the tuned one", "rate_factor", TR__PLAN_NUMBER, factor);
  if (r->rate > 0) tr__plan_value(out, "rate", "rate", TR__PLAN_NUMBER, factor * r->rate);
}

static void report_accumulation(tr__plan_report *out, const request *r) {
  if (!(r->pass > 0)) return;
  tr__plan_head(out, "accumulation over %.0f passes", r->passes);
  tr__plan_value(out, "an update takes", "update_s", TR__PLAN_TIME, r->passes * r->pass + r->sync);
  tr__plan_value(out, "synchronisations saved", "syncs_saved", TR__PLAN_SHARE,
                 tr_law_accumulate(0, 0, r->ranks, r->micro, r->passes).saved);
  tr__plan_value(out, "overhead of communication", "sync_overhead", TR__PLAN_SHARE, r->sync / (r->passes * r->pass));
  tr_law_warning free_lunch = tr_law_lint_free_accumulation(r->passes, r->pass, r->sync);
  tr__plan_warning(out, &free_lunch);
}

tr_status tr__plan_batch(int argc, char **argv) {
  if (tr__cli_wants_help(argc, argv)) return print_help();
  request r;
  tr__plan_report out;
  TR_TRY(parse(argc, argv, &r));
  double batch = tr_law_batch(r.ranks, r.micro, r.passes);
  tr__plan_begin(&out, "batch", r.json);
  tr__plan_value(&out, "proposed batch", "batch", TR__PLAN_COUNT, batch);
  tr__plan_value(&out, "critical batch", "critical", TR__PLAN_COUNT, r.critical);
  tr__plan_value(&out, "proposed / critical", "ratio", TR__PLAN_NUMBER, batch / r.critical);
  tr__plan_value(&out, "steps, against the fewest possible", "steps_factor", TR__PLAN_NUMBER,
                 tr_law_steps_factor(batch, r.critical));
  tr__plan_value(&out, "samples, against the fewest possible", "samples_factor", TR__PLAN_NUMBER,
                 tr_law_samples_factor(batch, r.critical));
  report_rate(&out, &r, batch);
  tr_law_warning over = tr_law_lint_batch_over_critical(batch, r.critical);
  tr__plan_warning(&out, &over);
  if (r.chosen > 0) {
    tr_law_warning rate = tr_law_lint_small_cluster_rate(r.base, batch, r.critical, r.chosen / r.rate);
    tr__plan_warning(&out, &rate);
  }
  report_accumulation(&out, &r);
  return tr__plan_end(&out);
}
