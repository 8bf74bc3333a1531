// SPDX-License-Identifier: MIT
// The answer of `trireme plan` (plan_search_internal.h): a table with what its words mean, the reasons behind the best, or all of
// it as JSON. Memory is in GiB, as devices have it.
#include "cli/plan_search_internal.h"
#include "trireme/base/text.h"
#include "trireme/plan/pipeline.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double GIB = 1073741824;

// ---- above and in the table

// Few plans divide a batch with large prime factors, and tokens in thousands seldom are whole sequences.
static void print_rounding(const tr__plan_request *r, const tr_search_options *o) {
  int64_t even = 1;
  while (even * 2 <= o->fixed.batch + o->fixed.batch / 2) even *= 2;
  if (tr_text_ends_in(r->batch, "seq") || even == o->fixed.batch || even / (o->fixed.batch & -o->fixed.batch) < 16)
    return;
  printf("note    --batch %s was rounded to whole sequences, which few plans divide; --batch %lldseq gives more "
         "choice\n",
         r->batch, (long long)even);
}

static void print_model(const tr__plan_request *r, const tr_workload *w) {
  char params[32];
  tr_format_count(params, sizeof params, tr_workload_params(w));
  printf("model   %s: %s parameters", r->model, params);
  if (w->experts > 0) {
    tr_format_count(params, sizeof params, tr_workload_active_params(w));
    printf(", %s of them for a token (%lld of %lld experts)", params, (long long)w->active, (long long)w->experts);
  }
  if (w->imbalance > 1) printf(", the fullest rank's experts get %.3g times the mean", w->imbalance);
  printf("\n");
  if (w->experts > 0 && w->imbalance <= 1)
    printf("note    experts are taken to be evenly loaded; what routing really cost Qwen3-235B is --imbalance 1.5\n");
}

static int has_own_order(const tr_plan *p) {
  tr_plan standard;
  tr_plan_init(&standard);
  return memcmp(p->map, standard.map, sizeof p->map) != 0;
}

static void print_row(const tr_search_entry *e, int rank, int orders, int grouped) {
  const tr_plan *p = &e->plan;
  const tr_prediction *x = &e->prediction;
  char map[32];
  tr__plan_map_text(p, map, sizeof map);
  printf("%3d %4lld %4lld %-11s %3lld %5lld %3lld %4lld %4d %5lld  %-9s %9.3f %5.1f %9.0f %7.1f", rank,
         (long long)p->tp, (long long)p->pp, p->pp > 1 ? tr_plan_schedule(p) : "-", (long long)p->vpp,
         (long long)p->dp, (long long)p->cp, (long long)p->ep, p->zero, (long long)p->micro,
         tr_plan_recompute_name(p->recompute), x->step, 100 * x->mfu, x->tokens_per_device, x->memory.process / GIB);
  if (orders) printf("  %-11s", map);
  if (grouped && e->alike > 0) printf("  +%lld", (long long)e->alike);
  printf("\n");
}

// What the words in the table mean, where they stand in it.
static void print_words(const tr_search_result *f, int orders) {
  static const char *const recompute[] = {[TR_PLAN_RECOMPUTE_SCORES] = "attention's scores",
                                          [TR_PLAN_RECOMPUTE_PARTS] = "norms and activations",
                                          [TR_PLAN_RECOMPUTE_EXPERTS] = "norms, activations and experts",
                                          [TR_PLAN_RECOMPUTE_HALF] = "every second layer",
                                          [TR_PLAN_RECOMPUTE_FULL] = "every layer, from its input"};
  const char *between = "\nrecompute: ";
  for (int way = TR_PLAN_RECOMPUTE_SCORES; way <= TR_PLAN_RECOMPUTE_FULL; way++) {
    size_t i = 0;
    while (i < f->n && (int)f->top[i].plan.recompute != way) i++;
    if (i == f->n) continue;
    printf("%s%s computes %s again in the backward pass", between, tr_plan_recompute_name(way), recompute[way]);
    between = "; ";
  }
  if (orders)
    printf("%sorder: axes over ranks, neighbours first (tp,cp,dp,pp unless it says)",
           *between == ';' ? between : "\n");
  if (*between == ';' || orders) printf("\n");
}

static void print_counts(const tr__plan_answer *a) {
  const tr_search_result *f = a->found;
  const tr_device *d = &a->cluster->device;
  printf("\n%lld plan%s predicted in %.0f ms, the pipelines of the best %lld simulated; %lld more do%s not fit.\n",
         (long long)f->predicted, tr_text_plural(f->predicted, "s"), 1e3 * a->seconds, (long long)f->simulated,
         (long long)f->too_big, f->too_big == 1 ? "es" : "");
  if (f->bounded > 0)
    printf("Left out: %lld famil%s of plans (the same degrees and ZeRO stage) whose products alone take longer "
           "than\nthe slowest plan of interest.\n",
           (long long)f->bounded, f->bounded == 1 ? "y" : "ies");
  printf("%lld plan%s %s within the prediction's error of the best: nine in ten runs of %s were within %.0f %%.\n",
         (long long)f->near, tr_text_plural(f->near, "s"), f->near == 1 ? "lies" : "lie", d->name,
         100 * (f->top[0].prediction.high / f->top[0].prediction.step - 1));
  if (a->options->grouped)
    printf("+N: so many plans with the same tp, pp and ep take at most a percent longer; --each shows them.\n");
}

static void print_table(const tr__plan_answer *a) {
  const tr_search_result *f = a->found;
  const tr_cluster *c = a->cluster;
  int orders = 0, alike = 0;
  for (size_t i = 0; i < f->n; i++) orders |= has_own_order(&f->top[i].plan), alike |= f->top[i].alike > 0;
  print_model(a->request, a->model);
  printf("cluster %s: %lld x %s, %lld per host, %.0f GiB each\nbatch   %lld sequence%s of %lld token%s, %s\n",
         c->name, (long long)(c->hosts * c->host_devices), c->device.name, (long long)c->host_devices,
         c->device.memory_gib, (long long)a->options->fixed.batch, tr_text_plural(a->options->fixed.batch, "s"),
         (long long)a->options->fixed.sequence, tr_text_plural(a->options->fixed.sequence, "s"),
         a->request->number ? "fp8" : "bf16");
  print_rounding(a->request, a->options);
  printf(
      "\n  #   tp   pp schedule    vpp    dp  cp   ep zero micro  recompute    s/step  MFU%%  tok/s/dev   GiB%s%s\n",
      orders ? "  order      " : "", a->options->grouped && alike ? "  alike" : "");
  for (size_t i = 0; i < f->n; i++) print_row(&f->top[i], (int)i + 1, orders, a->options->grouped);
  print_words(f, orders);
  print_counts(a);
}

// ---- why

static void print_split(const tr_prediction *x) {
  printf("\ntime of the best, seconds per step (%.3f to %.3f)\n", x->low, x->high);
  for (int i = 0; i < TR_TERM_COUNT; i++)
    if (x->term[i] > 0)
      printf("  %-12s %10.4f %5.1f %%\n", tr_time_term_name(i), x->term[i], 100 * x->term[i] / x->step);
  printf("memory of its fullest rank (place %lld of the pipeline), GiB\n", (long long)x->memory.stage);
  for (int i = 0; i < TR_ITEM_COUNT; i++)
    if (x->memory.item[i] > 0) printf("  %-16s %8.2f\n", tr_memory_item_name(i), x->memory.item[i] / GIB);
}

static void print_family(const tr_search_family *x, double best) {
  char value[24];
  snprintf(value, sizeof value, "%lld", (long long)x->value);
  if (strcmp(x->knob, "recompute") == 0)
    snprintf(value, sizeof value, "%s", tr_plan_recompute_name((tr_plan_recompute)x->value));
  if (strcmp(x->knob, "schedule") == 0) snprintf(value, sizeof value, "%s", tr_search_schedule_name(x->value));
  if (x->step > 0)
    printf("  %-9s %-11s %9.3f s, %+5.1f %%\n", x->knob, value, x->step, 100 * (x->step / best - 1));
  else
    printf("  %-9s %-11s does not fit: its smallest plan lacks %.1f GiB\n", x->knob, value, x->overflow / GIB);
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

static tr_status print_traffic(const tr__plan_answer *a, const tr_search_entry *e) {
  tr__plan_case best = {.model = *a->model, .cluster = *a->cluster, .plan = e->plan};
  tr__plan_report report;
  tr__plan_begin(&report, "traffic", 0);
  tr__plan_report_traffic(&report, &best);
  tr__plan_report_failures(&report, &best);
  return tr__plan_end(&report);
}

tr_status tr__plan_answer_print(const tr__plan_answer *a) {
  const tr_search_entry *best = &a->found->top[0];
  tr_status status = TR_OK;
  print_table(a);
  if (a->request->explain) {
    print_split(&best->prediction);
    print_families(a->found);
    status = print_helps(a->model, a->cluster, best);
    if (status == TR_OK) status = print_traffic(a, best);
  }
  for (int i = 0; i < TR__PLAN_WARNINGS; i++)
    if (a->warning[i].name) printf("\nwarning (%s): %s\n", a->warning[i].name, a->warning[i].text);
  return status;
}

// ---- as JSON

static json_t *json_entry(const tr_search_entry *e) {
  const tr_plan *p = &e->plan;
  const tr_prediction *x = &e->prediction;
  char map[32];
  tr__plan_map_text(p, map, sizeof map);
  json_t *term = json_object(), *item = json_object();
  for (int i = 0; i < TR_TERM_COUNT; i++) json_object_set_new(term, tr_time_term_name(i), json_real(x->term[i]));
  for (int i = 0; i < TR_ITEM_COUNT; i++)
    json_object_set_new(item, tr_memory_item_name(i), json_real(x->memory.item[i]));
  return json_pack("{s:I,s:I,s:I,s:s,s:I,s:I,s:I,s:i,s:I,s:s,s:s,s:f,s:f,s:f,s:f,s:f,s:f,s:I,s:o,s:o}", "tp", p->tp,
                   "pp", p->pp, "vpp", p->vpp, "schedule", tr_plan_schedule(p), "dp", p->dp, "cp", p->cp, "ep", p->ep,
                   "zero", p->zero, "micro", p->micro, "recompute", tr_plan_recompute_name(p->recompute), "order",
                   map, "step_s", x->step, "step_low_s", x->low, "step_high_s", x->high, "mfu", x->mfu,
                   "tokens_per_s_per_device", x->tokens_per_device, "memory_bytes", x->memory.process, "alike",
                   e->alike, "time_s", term, "memory", item);
}

tr_status tr__plan_answer_json(const tr__plan_answer *a) {
  const tr_search_result *f = a->found;
  json_t *plans = json_array(), *warnings = json_array();
  for (int i = 0; i < TR__PLAN_WARNINGS; i++)
    if (a->warning[i].name)
      json_array_append_new(warnings, json_pack("{s:s, s:f, s:s}", "name", a->warning[i].name, "number",
                                                a->warning[i].number, "text", a->warning[i].text));
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
