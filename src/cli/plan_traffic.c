// SPDX-License-Identifier: MIT
// What a plan puts on the links, and what stops with a part of the cluster, as tables of a report (plan_case_internal.h).
#include "cli/plan_case_internal.h"
#include "cli/plan_words_internal.h"
#include "trireme/plan/traffic.h"
#include <math.h>
#include <stdio.h>

void tr__plan_map_text(const tr_plan *p, char *out, size_t nbyte) {
  size_t n = 0;
  for (int i = 0; i < TR_AXIS_COUNT && n < nbyte; i++)
    n += (size_t)snprintf(out + n, nbyte - n, "%s%s", i ? "," : "", tr_axis_name(p->map[i]));
}

static json_t *rate(double value) { return isfinite(value) ? json_real(value) : json_null(); }

static json_t *json_row(const tr_traffic *t, const char *verdict) {
  return json_pack("{s:s,s:s,s:s,s:s,s:f,s:f,s:f,s:f,s:f,s:f,s:o,s:o,s:f,s:s}", "axis", t->axis, "carries", t->what,
                   "primitive", t->primitive, "tier", t->tier, "ranks", t->ranks, "payload_bytes", t->payload,
                   "calls", t->count, "bytes", t->bytes, "seconds", t->seconds, "exposed_s", t->exposed,
                   "needs_bytes_per_s", rate(t->needs), "has_bytes_per_s", rate(t->has), "processor_share",
                   t->processors, "verdict", verdict);
}

static void text_row(tr_text *out, const tr_traffic *t) {
  char needs[32];
  snprintf(needs, sizeof needs, isfinite(t->needs) ? "%.3g" : "never", t->needs / 1e9);
  tr_text_append(out, "  %-5s %-20s %-27s %-25s %5.0f %8.1f %8.0f %8.2f %8.3f %8.3f %7s %6.1f\n", t->axis, t->what,
                 t->primitive, t->tier, t->ranks, t->payload / 1e6, t->count, t->bytes / 1e9, t->seconds, t->exposed,
                 needs, t->has / 1e9);
}

static void report_rows(tr__plan_report *out, const tr_traffic *row, size_t n) {
  json_t *rows = json_array();
  tr_text_append(&out->text,
                 "\n  %-5s %-20s %-27s %-25s %5s %8s %8s %8s %8s %8s %7s %6s\n"
                 "  %84s %5s %8s %8s %8s %8s %8s %14s\n",
                 "axis", "carries", "as", "over", "ranks", "a call", "calls", "in all", "takes", "exposed", "needs",
                 "has", "", "", "MB", "", "GB", "s", "s", "GB/s");
  for (size_t i = 0; i < n; i++) {
    char verdict[160];
    tr_traffic_verdict(&row[i], verdict, sizeof verdict);
    text_row(&out->text, &row[i]);
    if (!rows || json_array_append_new(rows, json_row(&row[i], verdict)) != 0) out->failed = 1;
  }
  for (size_t i = 0; i < n; i++) {
    char verdict[160];
    tr_traffic_verdict(&row[i], verdict, sizeof verdict);
    if (row[i].has < row[i].needs) tr_text_append(&out->text, "  %s: %s\n", row[i].what, verdict);
  }
  tr_text_append(&out->text, "  needs: the rate at which what is exposed takes a tenth of the computation\n");
  if (!rows || json_object_set_new(out->root, "traffic", rows) != 0) out->failed = 1;
}

static void report_processors(tr__plan_report *out, const tr__plan_case *c, const tr_traffic *row, size_t n) {
  double share = 0;
  for (size_t i = 0; i < n; i++) share += row[i].processors;
  if (c->cluster.device.link_share > 0)
    tr__plan_value(out, "communication takes of the processor", "processor_share", TR__PLAN_SHARE, share);
  else
    tr__plan_text(out, "communication takes of the processor", "processor_share_note",
                  "not known: the device has no link.processors");
}

void tr__plan_report_traffic(tr__plan_report *out, const tr__plan_case *c) {
  tr_traffic row[TR_TRAFFIC_MOST];
  size_t n = tr_predict_traffic(&c->plan, &c->model, &c->cluster, row);
  if (n == 0) return;
  report_rows(out, row, n);
  report_processors(out, c, row, n);
}

void tr__plan_report_failures(tr__plan_report *out, const tr__plan_case *c) {
  static const tr__plan_column column[] = {
      {"when one fails", "part", TR__PLAN_NUMBER}, {"devices", "devices", TR__PLAN_COUNT},
      {"replicas", "replicas", TR__PLAN_COUNT},    {"there are", "count", TR__PLAN_COUNT},
      {"fail a day", "per_day", TR__PLAN_NUMBER},  {0}};
  tr_failure_domain part[TR_FAILURE_DOMAINS];
  double used = tr_domain_used(&c->plan, &c->cluster);
  double domain = fmin((double)c->cluster.domain, (double)tr_plan_devices(&c->plan));
  tr__plan_table(out, "failures", column);
  for (size_t i = 0, n = tr_failure_domains(&c->plan, &c->cluster, part); i < n; i++)
    tr__plan_row(
        out, part[i].name,
        (double[]){part[i].devices, part[i].replicas, part[i].count, part[i].per_day > 0 ? part[i].per_day : NAN});
  if (used < domain)
    tr__plan_value(out, "used of each set that fast links join", "domain_used", TR__PLAN_COUNT, used);
}
