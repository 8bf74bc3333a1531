// SPDX-License-Identifier: MIT
// `trireme plan --model M --cluster C --batch TOKENS`: the best plans for a model on a cluster, as a table, as JSON, or
// with the reasons why other families of plans lose and what binds the winner.
#include "cli/arguments_internal.h"
#include "cli/cli_internal.h"
#include "cli/plan_search_internal.h"
#include "trireme/base/clock.h"
#include "trireme/base/text.h"
#include "trireme/plan/pipeline.h"
#include "trireme/plan/search.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef tr__plan_request request;

enum { SEQUENCE = 4096 }; // unless it is given

static void print_help(void) {
  printf(
      "usage: trireme plan --model M --cluster C --batch TOKENS [OPTIONS]\n\n"
      "Predict every way to split the training of a model over a cluster, and show the best.\n\n"
      "  --model M        a preset (presets/models), a config.json or the folder of one\n"
      "  --cluster C      a preset (presets/clusters) or a file; the name of a device means one host of it\n"
      "  --batch TOKENS   tokens per step, as in 4M or 4Mi (M is a million), or sequences, as in 1024seq\n"
      "  --seq S          tokens per sequence (default 4096, or as many positions as the model has)\n"
      "  --devices N      use N of the cluster's devices (all)\n"
      "  --precision P    bf16 (default) or fp8\n"
      "  --top K          how many plans to show (default 5)\n"
      "  --each           every plan for itself; else the best of those alike in tp, pp and ep stands for the "
      "others\n"
      "  --fix KNOB=V     tp, pp, vpp, dp, cp, ep, micro, zero, recompute, schedule (1f1b, interleaved, zb_h1, "
      "dualpipe),\n"
      "                   order (of axes over ranks, innermost first: tp,cp,pp,dp); may be repeated\n"
      "  --overhead P:S   a model of P parameters was seen to spend the share S (0 to 1) in communication: is that "
      "so here?\n"
      "  --imbalance F    rows of the fullest rank's experts over the mean (default 1: even)\n"
      "  --explain        where the winner's time and memory go, what each family of plans lacks, what would help\n"
      "  --pareto WHAT    instead: the plans that none beats in all of WHAT, some of time,memory,cost; with cost, "
      "on\n"
      "                   parts of the cluster too\n"
      "  --price P        of a device's hour, if the descriptions have none\n"
      "  --write FILE     write the best as a run file: trireme train FILE, trireme plan explain FILE\n"
      "  --json           the same as one JSON object\n\n"
      "examples:\n"
      "  trireme plan --model llama3-70b --cluster dgx-h100 --devices 512 --batch 512seq --seq 8192 --explain\n");
}

static tr_status parse(int argc, char **argv, request *r) {
  *r = (request){.top = 5};
  const tr__argument table[] = {
      {.name = "--model", .kind = TR__ARGUMENT_TEXT, .out = &r->model},
      {.name = "--cluster", .kind = TR__ARGUMENT_TEXT, .out = &r->cluster},
      {.name = "--batch", .kind = TR__ARGUMENT_TEXT, .out = &r->batch},
      {.name = "--seq", .kind = TR__ARGUMENT_COUNT, .out = &r->sequence, .min = 1, .max = 1 << 28},
      {.name = "--devices", .kind = TR__ARGUMENT_COUNT, .out = &r->devices, .min = 1, .max = 1 << 24},
      {.name = "--top", .kind = TR__ARGUMENT_COUNT, .out = &r->top, .min = 1, .max = TR_SEARCH_TOP_MOST},
      {.name = "--precision", .kind = TR__ARGUMENT_CHOICE, .out = &r->number, .choices = {"bf16", "fp8", NULL}},
      {.name = "--each", .kind = TR__ARGUMENT_FLAG, .out = &r->each},
      {.name = "--fix", .kind = TR__ARGUMENT_LIST, .out = &r->fix},
      {.name = "--explain", .kind = TR__ARGUMENT_FLAG, .out = &r->explain},
      {.name = "--overhead", .kind = TR__ARGUMENT_TEXT, .out = &r->overhead},
      {.name = "--pareto", .kind = TR__ARGUMENT_TEXT, .out = &r->pareto},
      {.name = "--imbalance", .kind = TR__ARGUMENT_REAL, .out = &r->imbalance, .min = 1, .max = 1e4},
      {.name = "--price", .kind = TR__ARGUMENT_REAL, .out = &r->price, .min = 0, .max = 1e4},
      {.name = "--write", .kind = TR__ARGUMENT_TEXT, .out = &r->write},
      {.name = "--json", .kind = TR__ARGUMENT_FLAG, .out = &r->json}};
  size_t npath = 0;
  TR_TRY(tr__cli_parse_paths("plan", argc, argv, table, sizeof table / sizeof *table, &npath));
  if (npath) return tr__cli_usage("plan", "'%.80s' is neither an option nor a part", argv[1]);
  if (!r->model) return tr__cli_usage("plan", "--model is missing: a preset, a config.json or a folder");
  if (!r->cluster) return tr__cli_usage("plan", "--cluster is missing: a preset or a file");
  if (r->pareto && (r->write || r->explain))
    return tr__cli_usage("plan", "--pareto shows many plans; --write and --explain take the best of a search");
  if (!r->batch) return tr__cli_usage("plan", "--batch is missing: tokens per step");
  return TR_OK;
}

// ---- what is asked

static tr_status fix_schedule(const char *name, tr_search_options *o) {
  const char *known[8] = {0};
  int64_t n = 0;
  for (; tr_search_schedule_name(n); n++) {
    known[n] = tr_search_schedule_name(n);
    if (strcmp(name, known[n]) == 0) return o->fixed.schedule = known[n], TR_OK;
  }
  const char *closest = tr_text_closest(name, known, (size_t)n);
  return tr__cli_usage("plan", "--fix schedule=%.40s is none that is searched%s%s%s", name,
                       closest ? "; did you mean '" : ": there are 1f1b, interleaved, zb_h1 and dualpipe",
                       closest ? closest : "", closest ? "'?" : "");
}

static tr_status fix(const char *text, tr_search_options *o) {
  tr_plan *p = &o->fixed;
  const struct {
    const char *name;
    int64_t *at;
  } knob[] = {{"tp", &p->tp}, {"pp", &p->pp}, {"vpp", &p->vpp},    {"dp", &p->dp},
              {"cp", &p->cp}, {"ep", &p->ep}, {"micro", &p->micro}};
  const char *is = strchr(text, '=');
  size_t n = is ? (size_t)(is - text) : 0;
  int64_t value;
  int recompute = is ? tr__plan_recompute_of(is + 1) : -1;
  if (n == 8 && strncmp(text, "schedule", n) == 0) return fix_schedule(is + 1, o);
  if (n == 5 && strncmp(text, "order", n) == 0)
    return tr_mesh_parse_map(is + 1, o->fixed.map) < 0
               ? tr__cli_usage("plan", "--fix order takes tp, cp, dp and pp with commas between, not '%.40s'", is + 1)
               : (o->fixed_map = 1, TR_OK);
  if (n == 9 && strncmp(text, "recompute", n) == 0 && recompute >= 0) return o->fixed_recompute = recompute, TR_OK;
  if (!is || tr_parse_count(is + 1, &value) < 0 || value < 0 || value > 1 << 24)
    return tr__cli_usage("plan", "--fix takes KNOB=VALUE as in tp=8 or recompute=full, not '%.80s'", text);
  if (n == 4 && strncmp(text, "zero", n) == 0)
    return value <= 3 ? (o->fixed_zero = (int)value, TR_OK)
                      : tr__cli_usage("plan", "--fix zero takes a stage from 0 to 3, not '%.40s'", is + 1);
  for (size_t i = 0; i < sizeof knob / sizeof *knob; i++)
    if (strlen(knob[i].name) == n && strncmp(text, knob[i].name, n) == 0)
      return value > 0
                 ? (*knob[i].at = value, TR_OK)
                 : tr__cli_usage("plan", "--fix %s takes a number from 1 on, not '%.40s'", knob[i].name, is + 1);
  return tr__cli_usage(
      "plan",
      "--fix has no knob like '%.80s'; there are tp, pp, vpp, dp, cp, ep, micro, zero, recompute, schedule, order",
      text);
}

// A knob has one value.
static tr_status check_fixed(const tr__argument_list *fix) {
  for (size_t i = 0; i < fix->n; i++)
    for (size_t k = 0; k < i; k++) {
      const size_t n = strcspn(fix->item[i], "=");
      if (n == strcspn(fix->item[k], "=") && strncmp(fix->item[i], fix->item[k], n) == 0)
        return tr__cli_usage("plan", "--fix names %.*s twice, in %.40s and %.40s; give one", n < 40 ? (int)n : 40,
                             fix->item[i], fix->item[k], fix->item[i]);
    }
  return TR_OK;
}

static tr_status set_options(const request *r, tr_search_options *o) {
  tr_search_options_init(o);
  o->fixed.sequence = r->sequence;
  TR_TRY(tr__plan_sequences("plan", r->batch, r->sequence, &o->fixed.batch));
  o->fixed.number = r->number == 1 ? TR_PLAN_FP8 : TR_PLAN_BF16;
  o->top = (size_t)r->top;
  o->all = r->explain;
  o->grouped = !r->each;
  TR_TRY(check_fixed(&r->fix));
  for (size_t i = 0; i < r->fix.n; i++) TR_TRY(fix(r->fix.item[i], o));
  return TR_OK;
}

// ---- warnings

// Whether recomputation or ZeRO was fixed to save memory that a faster plan does not need saved.
static tr_status memory_alone(const tr_workload *w, const tr_cluster *c, const tr_search_options *o,
                              const tr_prediction *best, tr_law_warning *out) {
  tr_search_options free_options = *o;
  free_options.fixed_zero = free_options.fixed_recompute = -1;
  free_options.top = 1;
  free_options.all = 0;
  *out = (tr_law_warning){0};
  if (o->fixed_zero < 0 && o->fixed_recompute < 0) return TR_OK;
  tr_search_result *found = malloc(sizeof *found);
  if (!found) return tr_error(TR_ERR_MEMORY, "no memory for the result");
  tr_status status = tr_search(w, c, &free_options, found);
  const tr_prediction *fastest = &found->top[0].prediction;
  if (status == TR_OK && best->memory.process < fastest->memory.process)
    *out = tr_law_lint_memory_alone(best->step, fastest->step);
  free(found);
  return status;
}

static double communication_of(const tr_prediction *x) {
  const double *t = x->term;
  return (t[TR_TERM_TP] + t[TR_TERM_CP] + t[TR_TERM_EP] + t[TR_TERM_PP] + t[TR_TERM_GRADS]) / x->step;
}

static tr_status small_overhead(const request *r, const tr_workload *w, const tr_prediction *best,
                                tr_law_warning *out) {
  char field[2][TR__PLAN_FIELD];
  size_t n;
  double params, share;
  *out = (tr_law_warning){0};
  if (!r->overhead) return TR_OK;
  TR_TRY(tr__plan_split("search", "--overhead", r->overhead, field, 2, 2, "PARAMS:SHARE as in 125e6:0.1", &n));
  TR_TRY(tr__plan_field("search", "--overhead", r->overhead, field[0], 0, &params));
  TR_TRY(tr__plan_field("search", "--overhead", r->overhead, field[1], 0, &share));
  if (!(params > 0 && share <= 1))
    return tr__cli_usage("plan", "--overhead takes parameters above 0 and a share of at most 1, not '%.80s'",
                         r->overhead);
  *out = tr_law_lint_small_model_overhead(params, share, tr_workload_params(w), communication_of(best));
  return TR_OK;
}

static tr_status find_warnings(const request *r, const tr_workload *w, const tr_cluster *c,
                               const tr_search_options *o, const tr_search_entry *best,
                               tr_law_warning out[TR__PLAN_WARNINGS]) {
  TR_TRY(memory_alone(w, c, o, &best->prediction, &out[0]));
  return small_overhead(r, w, &best->prediction, &out[1]);
}

// ---- as a run file

static tr_status write_best(const request *r, const tr_workload *w, const tr_cluster *c, const tr_search_entry *e) {
  tr__plan_case found = {.model = *w, .cluster = *c, .plan = e->plan};
  snprintf(found.model_name, sizeof found.model_name, "%s", r->model);
  snprintf(found.cluster_name, sizeof found.cluster_name, "%s", r->cluster);
  TR_TRY(tr__plan_case_write(&found, &e->prediction, r->write));
  if (!r->json) printf("\nwritten: %s\n", r->write);
  return TR_OK;
}

static tr_status frontier(const request *r, const tr_workload *w, const tr_cluster *c) {
  tr_search_options options;
  TR_TRY(set_options(r, &options));
  return tr__plan_pareto(r->pareto, w, c, &options, r->json);
}

static tr_status answer(const request *r, const tr_workload *w, const tr_cluster *c) {
  tr_search_options options;
  tr_search_result *found = malloc(sizeof *found);
  if (!found) return tr_error(TR_ERR_MEMORY, "no memory for the result");
  tr__plan_answer all = {.request = r, .model = w, .cluster = c, .options = &options, .found = found};
  tr_status status = set_options(r, &options);
  double start = tr_clock_seconds();
  if (status == TR_OK) status = tr_search(w, c, &options, found);
  all.seconds = tr_clock_seconds() - start;
  if (status == TR_OK) status = find_warnings(r, w, c, &options, &found->top[0], all.warning);
  if (status == TR_OK) status = r->json ? tr__plan_answer_json(&all) : tr__plan_answer_print(&all);
  if (status == TR_OK && r->write) status = write_best(r, w, c, &found->top[0]);
  free(found);
  return status;
}

tr_status tr__plan_search(int argc, char **argv) {
  request r;
  tr_workload w;
  tr_cluster cluster;
  if (tr__cli_wants_help(argc, argv)) return print_help(), TR_OK;
  TR_TRY(parse(argc, argv, &r));
  TR_TRY(tr_workload_load(r.model, &w, NULL));
  if (r.sequence == 0) r.sequence = w.positions > 0 && w.positions < SEQUENCE ? w.positions : SEQUENCE;
  tr__plan_positions(r.sequence, &w);
  w.imbalance = r.imbalance;
  TR_TRY(tr_workload_check(&w));
  TR_TRY(tr__plan_cluster_load(r.cluster, r.devices, &cluster));
  if (r.price > 0) cluster.price_hour = r.price;
  tr_status status = r.pareto ? frontier(&r, &w, &cluster) : answer(&r, &w, &cluster);
  tr_cluster_unload(&cluster);
  return status;
}
