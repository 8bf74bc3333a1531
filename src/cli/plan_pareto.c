// SPDX-License-Identifier: MIT
// `trireme plan --pareto time,memory,cost`: the plans that no other beats in all that is asked for. People are shown points that
// differ by a percent; JSON has them all.
#include "cli/cli_internal.h"
#include "cli/plan_case_internal.h"
#include "cli/plan_words_internal.h"
#include "trireme/plan/frontier.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PLAN_CELL = 56 };

static tr_status read_criteria(const char *text, int *out) {
  static const char *const name[] = {"time", "memory", "cost"};
  static const int bit[] = {TR_FRONT_TIME, TR_FRONT_MEMORY, TR_FRONT_PRICE};
  *out = 0;
  for (const char *at = text;; at++) {
    size_t n = strcspn(at, ","), i = 0;
    while (i < 3 && !(strlen(name[i]) == n && strncmp(at, name[i], n) == 0)) i++;
    if (i == 3)
      return tr__cli_usage("plan", "--pareto takes some of time, memory, cost with commas between, not '%.80s'",
                           text);
    if (*out & bit[i])
      return tr__cli_usage("plan", "--pareto names '%s' twice, in '%.80s'; each of time, memory, cost may stand once",
                           name[i], text);
    *out |= bit[i];
    at += n;
    if (!*at) return TR_OK;
  }
}

// "tp=8 dp=4 zero=1 recompute=none": as --fix and what-if take it, degrees of 1 left out; padded for a table.
static void name_point(const tr_front_point *p, int pad, char *out, size_t nbyte) {
  const tr_plan *q = &p->entry.plan;
  static const char *const name[] = {"tp", "pp", "vpp", "dp", "cp", "ep", "micro"};
  const int64_t value[] = {q->tp, q->pp, q->vpp, q->dp, q->cp, q->ep, q->micro};
  size_t n = 0;
  for (size_t i = 0; i < sizeof value / sizeof *value; i++)
    if (value[i] > 1) n += (size_t)snprintf(out + n, nbyte - n, "%s=%lld ", name[i], (long long)value[i]);
  n += (size_t)snprintf(out + n, nbyte - n, "zero=%d recompute=%s", q->zero, tr_plan_recompute_name(q->recompute));
  if (q->schedule && q->pp > 1) n += (size_t)snprintf(out + n, nbyte - n, " schedule=%s", q->schedule);
  if (pad && n < PLAN_CELL) snprintf(out + n, nbyte - n, "%*s", (int)(PLAN_CELL - n), "");
}

static void point_row(tr__plan_report *out, const tr_front_point *p, double tokens) {
  const tr_prediction *x = &p->entry.prediction;
  char name[192];
  name_point(p, !out->as_json, name, sizeof name);
  tr__plan_row(out, name,
               (double[]){(double)p->devices, x->step, x->memory.process, x->mfu, p->price > 0 ? p->price : NAN,
                          p->price > 0 ? 1e9 * p->price / tokens : NAN});
}

static void shown_points(tr__plan_report *out, const tr_frontier *f, double tokens) {
  static const tr__plan_column column[] = {
      {"plan                                                    ", "plan", TR__PLAN_NUMBER},
      {"devices", "devices", TR__PLAN_COUNT},
      {"a step", "step_s", TR__PLAN_TIME},
      {"memory", "memory_bytes", TR__PLAN_MEMORY},
      {"MFU", "mfu", TR__PLAN_SHARE},
      {"price/step", "price_step", TR__PLAN_MONEY},
      {"per G tokens", "price_per_billion_tokens", TR__PLAN_MONEY},
      {0}};
  const tr_front_point **kept = malloc(f->n * sizeof *kept);
  if (!kept) {
    out->failed = 1;
    return;
  }
  const size_t n = out->as_json ? f->n : tr_frontier_thin(f, f->n, kept);
  tr__plan_table(out, "points", column);
  for (size_t i = 0; i < n; i++) point_row(out, out->as_json ? &f->point[i] : kept[i], tokens);
  free(kept);
}

static const tr_front_point *smallest(const tr_frontier *f) {
  const tr_front_point *best = f->point;
  for (size_t i = 1; i < f->n; i++)
    if (f->point[i].entry.prediction.memory.process < best->entry.prediction.memory.process) best = &f->point[i];
  return best;
}

tr_status tr__plan_pareto(const char *text, const tr_workload *w, const tr_cluster *c, const tr_search_options *o,
                          int as_json) {
  tr_frontier f;
  tr__plan_report out;
  int criteria;
  TR_TRY(read_criteria(text, &criteria));
  TR_TRY(tr_frontier_find(w, c, o, criteria, &f));
  TR_TRY(tr_frontier_simulate(w, c, o, &f));
  tr__plan_begin(&out, "pareto", as_json);
  tr__plan_head(&out, "no other plan on %lld x %s%s is better in all of %s", (long long)(c->hosts * c->host_devices),
                c->device.name, criteria & TR_FRONT_PRICE ? " or fewer" : "", text);
  tr__plan_value(&out, "plans predicted", "predicted", TR__PLAN_COUNT, (double)f.predicted);
  tr__plan_value(&out, "on the frontier", "frontier", TR__PLAN_COUNT, (double)f.n);
  shown_points(&out, &f, (double)(o->fixed.batch * o->fixed.sequence));
  if (criteria & TR_FRONT_MEMORY) {
    tr_law_warning alone =
        tr_law_lint_memory_alone(smallest(&f)->entry.prediction.step, f.point[0].entry.prediction.step);
    tr__plan_warning(&out, &alone);
  }
  tr_frontier_free(&f);
  return tr__plan_end(&out);
}
