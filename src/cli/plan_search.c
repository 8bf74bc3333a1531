// SPDX-License-Identifier: MIT
// `trireme plan --model M --cluster C --batch TOKENS`: the best plans for a model on a cluster, as a table, as JSON, or
// with the reasons why other families of plans lose and what binds the winner.
#include "cli/arguments_internal.h"
#include "cli/cli_internal.h"
#include "cli/plan_case_internal.h"
#include "cli/plan_words_internal.h"
#include "trireme/base/clock.h"
#include "trireme/base/json.h"
#include "trireme/base/text.h"
#include "trireme/plan/pipeline.h"
#include "trireme/plan/search.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct request {
  const char *model, *cluster, *batch, *write, *pareto, *overhead;
  double price, imbalance;
  int64_t sequence, devices, top;
  int number, json, explain;
  tr__argument_list fix;
} request;

static void print_help(void) {
  printf(
      "usage: trireme plan --model M --cluster C --batch TOKENS [OPTIONS]\n\n"
      "Predict every way to split the training of a model over a cluster, and show the best.\n\n"
      "  --model M        a preset (presets/models), a config.json or the folder of one\n"
      "  --cluster C      a preset (presets/clusters) or a file; the name of a device means one host of it\n"
      "  --batch TOKENS   tokens per step, as in 4M or 4Mi (M is a million), or sequences, as in 1024seq\n"
      "  --seq S          tokens per sequence (default 4096)\n"
      "  --devices N      use N of the cluster's devices (all)\n"
      "  --precision P    bf16 (default) or fp8\n"
      "  --top K          how many plans to show (default 5)\n"
      "  --fix KNOB=V     tp, pp, vpp, dp, cp, ep, micro, zero, recompute (none, parts, half, full); may be "
      "repeated\n"
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
  *r = (request){.sequence = 4096, .top = 5};
  const tr__argument table[] = {
      {.name = "--model", .kind = TR__ARGUMENT_TEXT, .out = &r->model},
      {.name = "--cluster", .kind = TR__ARGUMENT_TEXT, .out = &r->cluster},
      {.name = "--batch", .kind = TR__ARGUMENT_TEXT, .out = &r->batch},
      {.name = "--seq", .kind = TR__ARGUMENT_COUNT, .out = &r->sequence, .min = 1, .max = 1 << 28},
      {.name = "--devices", .kind = TR__ARGUMENT_COUNT, .out = &r->devices, .min = 1, .max = 1 << 24},
      {.name = "--top", .kind = TR__ARGUMENT_COUNT, .out = &r->top, .min = 1, .max = TR_SEARCH_TOP_MOST},
      {.name = "--precision", .kind = TR__ARGUMENT_CHOICE, .out = &r->number, .choices = {"bf16", "fp8", NULL}},
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
  if (n == 9 && strncmp(text, "recompute", n) == 0 && recompute >= 0) return o->fixed_recompute = recompute, TR_OK;
  if (!is || tr_parse_count(is + 1, &value) < 0 || value < 0 || value > 1 << 24)
    return tr__cli_usage("plan", "--fix takes KNOB=VALUE as in tp=8 or recompute=full, not '%.80s'", text);
  if (n == 4 && strncmp(text, "zero", n) == 0 && value <= 3) return o->fixed_zero = (int)value, TR_OK;
  for (size_t i = 0; i < sizeof knob / sizeof *knob; i++)
    if (strlen(knob[i].name) == n && strncmp(text, knob[i].name, n) == 0 && value > 0)
      return *knob[i].at = value, TR_OK;
  return tr__cli_usage(
      "plan", "--fix has no knob like '%.80s'; there are tp, pp, vpp, dp, cp, ep, micro, zero, recompute", text);
}

static tr_status set_options(const request *r, tr_search_options *o) {
  tr_search_options_init(o);
  o->fixed.sequence = r->sequence;
  TR_TRY(tr__plan_sequences("plan", r->batch, r->sequence, &o->fixed.batch));
  o->fixed.number = r->number == 1 ? TR_PLAN_FP8 : TR_PLAN_BF16;
  o->top = (size_t)r->top;
  o->all = r->explain;
  for (size_t i = 0; i < r->fix.n; i++) TR_TRY(fix(r->fix.item[i], o));
  return TR_OK;
}

// ---- as text

static void print_row(const tr_search_entry *e, int rank) {
  const tr_plan *p = &e->plan;
  const tr_prediction *x = &e->prediction;
  printf("%3d %4lld %4lld %4lld %5lld %3lld %4lld %5d %6lld  %-8s %9.3f %5.1f %9.0f %7.1f\n", rank, (long long)p->tp,
         (long long)p->pp, (long long)p->vpp, (long long)p->dp, (long long)p->cp, (long long)p->ep, p->zero,
         (long long)p->micro, tr__plan_recompute_name(p->recompute), x->step, 100 * x->mfu, x->tokens_per_device,
         x->memory.process / 1e9);
}

// Few plans divide a batch with large prime factors, and tokens in thousands seldom are whole sequences.
static void print_rounding(const request *r, const tr_search_options *o) {
  int64_t even = 1;
  while (even * 2 <= o->fixed.batch + o->fixed.batch / 2) even *= 2;
  if (tr_text_ends_in(r->batch, "seq") || even == o->fixed.batch || even / (o->fixed.batch & -o->fixed.batch) < 16)
    return;
  printf("note    --batch %s was rounded to whole sequences, which few plans divide; --batch %lldseq gives more "
         "choice\n",
         r->batch, (long long)even);
}

static void print_model(const request *r, const tr_workload *w) {
  printf("model   %s: %.4gB parameters", r->model, tr_workload_params(w) / 1e9);
  if (w->experts > 0)
    printf(", %.3gB of them for a token (%lld of %lld experts)", tr_workload_active_params(w) / 1e9,
           (long long)w->active, (long long)w->experts);
  if (w->imbalance > 1) printf(", the fullest rank's experts get %.3g times the mean", w->imbalance);
  printf("\n");
  if (w->experts > 0 && w->imbalance <= 1)
    printf("note    experts are taken to be evenly loaded; what routing really cost Qwen3-235B is --imbalance 1.5\n");
}

static void print_table(const request *r, const tr_workload *w, const tr_cluster *c, const tr_search_options *o,
                        const tr_search_result *f, double seconds) {
  int64_t devices = c->hosts * c->host_devices;
  print_model(r, w);
  printf("cluster %s: %lld x %s, %lld per host, %.0f GiB each\nbatch   %lld sequences of %lld tokens, %s\n", c->name,
         (long long)devices, c->device.name, (long long)c->host_devices, c->device.memory_gib,
         (long long)o->fixed.batch, (long long)o->fixed.sequence, r->number ? "fp8" : "bf16");
  print_rounding(r, o);
  printf("\n  #   tp   pp  vpp    dp  cp   ep  zero  micro  recompute  s/step  MFU%%  tok/s/dev  GB\n");
  for (size_t i = 0; i < f->n; i++) print_row(&f->top[i], (int)i + 1);
  printf(
      "\n%lld plans predicted in %.0f ms, the pipelines of the best %lld simulated; %lld do not fit, %lld groups of "
      "plans\n"
      "cannot be faster. %lld plans lie within the prediction's error (nine in ten runs of %s within %.0f %%) of the "
      "best.\n",
      (long long)f->predicted, 1e3 * seconds, (long long)f->simulated, (long long)f->too_big, (long long)f->bounded,
      (long long)f->near, c->device.name, 100 * c->device.fit.p90);
}

static void print_split(const tr_prediction *x) {
  printf("\ntime of the best, seconds per step (%.3f to %.3f)\n", x->low, x->high);
  for (int i = 0; i < TR_TERM_COUNT; i++)
    if (x->term[i] > 0)
      printf("  %-12s %10.4f %5.1f %%\n", tr_time_term_name(i), x->term[i], 100 * x->term[i] / x->step);
  printf("memory of its fullest rank (stage %lld), GB\n", (long long)x->memory.stage);
  for (int i = 0; i < TR_ITEM_COUNT; i++)
    if (x->memory.item[i] > 0) printf("  %-16s %8.2f\n", tr_memory_item_name(i), x->memory.item[i] / 1e9);
}

static void print_family(const tr_search_family *x, double best) {
  char value[24];
  snprintf(value, sizeof value, "%lld", (long long)x->value);
  if (strcmp(x->knob, "recompute") == 0) snprintf(value, sizeof value, "%s", tr__plan_recompute_name(x->value));
  if (x->step > 0)
    printf("  %-9s %-6s %9.3f s, %+5.1f %%\n", x->knob, value, x->step, 100 * (x->step / best - 1));
  else
    printf("  %-9s %-6s does not fit: its smallest plan lacks %.1f GB\n", x->knob, value, x->overflow / 1e9);
}

static int by_knob(const void *a, const void *b) {
  const tr_search_family *x = a, *y = b;
  int order = strcmp(x->knob, y->knob);
  return order ? order : (x->value > y->value) - (x->value < y->value);
}

static void print_families(tr_search_result *f) {
  double best = INFINITY;
  for (size_t i = 0; i < f->nfamily; i++)
    if (f->family[i].step > 0) best = fmin(best, f->family[i].step);
  printf("the best plan with each value of each knob, against the best of all, by the closed forms\n");
  qsort(f->family, f->nfamily, sizeof *f->family, by_knob);
  for (size_t i = 0; i < f->nfamily; i++) print_family(&f->family[i], best);
}

// What binds: the winner again with one resource doubled.
static tr_status print_helps(const tr_workload *w, const tr_cluster *c, const tr_search_entry *e) {
  static const char *const name[] = {"compute", "memory bandwidth", "links in the host", "network"};
  printf("the best with twice the\n");
  for (int i = 0; i < 4; i++) {
    tr_cluster more = *c;
    tr_prediction with = e->prediction;
    if (i == 0) more.device.peak_bf16 *= 2, more.device.peak_fp8 *= 2;
    if (i == 1) more.device.memory_gbs *= 2;
    if (i == 2) more.device.link_gbs *= 2;
    if (i == 3) more.network_gbit *= 2;
    TR_TRY(tr_predict_simulated(&e->plan, w, &more, &with));
    printf("  %-18s %9.3f s, %+5.1f %%\n", name[i], with.step, 100 * (with.step / e->prediction.step - 1));
  }
  return TR_OK;
}

// ---- warnings

enum { WARNINGS = 2 };

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
                               tr_law_warning out[WARNINGS]) {
  TR_TRY(memory_alone(w, c, o, &best->prediction, &out[0]));
  return small_overhead(r, w, &best->prediction, &out[1]);
}

// ---- as JSON

static json_t *json_entry(const tr_search_entry *e) {
  const tr_plan *p = &e->plan;
  const tr_prediction *x = &e->prediction;
  json_t *term = json_object(), *item = json_object();
  for (int i = 0; i < TR_TERM_COUNT; i++) json_object_set_new(term, tr_time_term_name(i), json_real(x->term[i]));
  for (int i = 0; i < TR_ITEM_COUNT; i++)
    json_object_set_new(item, tr_memory_item_name(i), json_real(x->memory.item[i]));
  return json_pack("{s:I,s:I,s:I,s:I,s:I,s:I,s:i,s:I,s:s,s:f,s:f,s:f,s:f,s:f,s:f,s:o,s:o}", "tp", p->tp, "pp", p->pp,
                   "vpp", p->vpp, "dp", p->dp, "cp", p->cp, "ep", p->ep, "zero", p->zero, "micro", p->micro,
                   "recompute", tr__plan_recompute_name(p->recompute), "step_s", x->step, "step_low_s", x->low,
                   "step_high_s", x->high, "mfu", x->mfu, "tokens_per_s_per_device", x->tokens_per_device,
                   "memory_bytes", x->memory.process, "time_s", term, "memory", item);
}

static tr_status print_json(const tr_search_result *f, const tr_law_warning warning[WARNINGS]) {
  json_t *plans = json_array(), *warnings = json_array();
  for (int i = 0; i < WARNINGS; i++)
    if (warning[i].name)
      json_array_append_new(warnings, json_pack("{s:s, s:f, s:s}", "name", warning[i].name, "number",
                                                warning[i].number, "text", warning[i].text));
  for (size_t i = 0; i < f->n; i++) json_array_append_new(plans, json_entry(&f->top[i]));
  json_t *all =
      json_pack("{s:I,s:I,s:I,s:I,s:I,s:o,s:o}", "predicted", f->predicted, "simulated", f->simulated, "too_big",
                f->too_big, "bounded", f->bounded, "within_error", f->near, "plans", plans, "warnings", warnings);
  char *text = all ? json_dumps(all, JSON_INDENT(1)) : NULL;
  tr_status status = text ? TR_OK : tr_error(TR_ERR_MEMORY, "no memory for the result");
  if (text) puts(text);
  free(text);
  json_decref(all);
  return status;
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
  tr_status status = set_options(r, &options);
  double start = tr_clock_seconds();
  if (status == TR_OK) status = tr_search(w, c, &options, found);
  double seconds = tr_clock_seconds() - start;
  tr_law_warning warning[WARNINGS];
  if (status == TR_OK) status = find_warnings(r, w, c, &options, &found->top[0], warning);
  if (status == TR_OK && r->json) {
    status = print_json(found, warning);
  } else if (status == TR_OK) {
    print_table(r, w, c, &options, found, seconds);
    if (r->explain) {
      print_split(&found->top[0].prediction);
      print_families(found);
      status = print_helps(w, c, &found->top[0]);
    }
    for (int i = 0; i < WARNINGS; i++)
      if (warning[i].name) printf("\nwarning (%s): %s\n", warning[i].name, warning[i].text);
  }
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
  w.imbalance = r.imbalance;
  TR_TRY(tr_workload_check(&w));
  TR_TRY(tr__plan_cluster_load(r.cluster, r.devices, &cluster));
  if (r.price > 0) cluster.price_hour = r.price;
  tr_status status = r.pareto ? frontier(&r, &w, &cluster) : answer(&r, &w, &cluster);
  tr_cluster_unload(&cluster);
  return status;
}
