// SPDX-License-Identifier: MIT
// A profile as people read it and as a JSON object: rows by time, each with its share of the step, its rates, their share of
// the processor's peak, and how many times longer it took than its work must, which is the larger of FLOPs over peak and
// bytes over the bandwidth of a copy (Williams, Waterman, Patterson, "Roofline: an insightful visual performance model").
// Below 1 the operands came from a cache. A rank's limits are its part of those of all ranks.
#include "train/timing_internal.h"
#include <stdlib.h>

typedef struct line {
  char name[64];
  const tr__tally *tally; // NULL: time alone
  int64_t ns;
  int comm;
} line;

typedef struct sheet {
  line *line;
  int nline;
  int64_t steps, total; // ns
  tr__limits limits;    // of this rank
} sheet;

static int by_time(const void *a, const void *b) {
  const line *x = a, *y = b;
  return (x->ns < y->ns) - (x->ns > y->ns);
}

static void add_rest(sheet *s, const char *name, int64_t ns) {
  line *l = &s->line[s->nline++];
  *l = (line){.ns = ns};
  snprintf(l->name, sizeof l->name, "%s", name);
}

static tr_status make_sheet(const tr__trainer *t, const tr__table *table, sheet *out) {
  const struct tr__profile *p = t->timing->profile;
  const double ranks = (double)t->plan->config->run.ranks;
  int64_t inside = 0;
  *out = (sheet){.line = calloc((size_t)p->nrow + 3, sizeof(line)),
                 .steps = table->steps,
                 .limits = {t->limits.flops / ranks, t->limits.bytes / ranks}};
  if (!out->line) return tr_error(TR_ERR_MEMORY, "no memory for a profile");
  for (int i = 0; i < p->nrow; i++) {
    const tr__tally *tally = &table->row[i];
    if (!tally->calls) continue;
    line *l = &out->line[out->nline++];
    *l = (line){.tally = tally, .ns = tally->ns, .comm = tally->under_way > 0};
    tr__profile_name(p, i, l->name, sizeof l->name);
    inside += tally->ns;
  }
  qsort(out->line, (size_t)out->nline, sizeof *out->line, by_time);
  const int64_t *slice = table->slice;
  out->total = slice[TR__SLICE_STEP] - slice[TR__SLICE_EVALUATION] - slice[TR__SLICE_SAVE];
  add_rest(out, "between pieces", slice[TR__SLICE_PROGRAM] - inside);
  add_rest(out, "reading data", slice[TR__SLICE_DATA]);
  add_rest(out, "around the program", out->total - slice[TR__SLICE_PROGRAM] - slice[TR__SLICE_DATA]);
  return TR_OK;
}

// ---- what a row says; 0 where it has nothing to say

static double flops_per_s(const line *l) { return l->tally && l->ns > 0 ? l->tally->flops / (double)l->ns * 1e9 : 0; }

static double bytes_per_s(const line *l) {
  int64_t ns = !l->tally ? 0 : l->comm ? l->tally->under_way : l->ns;
  return ns > 0 ? l->tally->bytes / (double)ns * 1e9 : 0;
}

static double over_roofline(const sheet *s, const line *l) {
  if (!l->tally || l->comm || s->limits.flops <= 0 || s->limits.bytes <= 0) return 0;
  double least = fmax(l->tally->flops / s->limits.flops, l->tally->bytes / s->limits.bytes);
  return least > 0 ? (double)l->ns * 1e-9 / least : 0;
}

static double of_peak(const sheet *s, const line *l) {
  return s->limits.flops > 0 ? flops_per_s(l) / s->limits.flops : 0;
}
static double share_of(const sheet *s, const line *l) { return s->total > 0 ? (double)l->ns / (double)s->total : 0; }

// ---- for people

static void put_number(tr_text *out, int width, const char *unit, double x) {
  if (x > 0)
    tr_text_append(out, " %*.1f%s", width, x, unit);
  else
    tr_text_append(out, " %*s%*s", width, "-", *unit ? 1 : 0, "");
}

static void put_line(const sheet *s, const line *l, tr_text *out) {
  double per_step = (double)l->ns * 1e-6 / (double)s->steps;
  tr_text_append(out, "  %-30s ", l->name);
  if (l->tally) tr_text_append(out, "%8lld", (long long)l->tally->calls);
  if (!l->tally) tr_text_append(out, "%8s", "");
  tr_text_append(out, " %10.3f %6.1f%%", per_step, 100 * share_of(s, l));
  put_number(out, 8, "", flops_per_s(l) * 1e-9);
  put_number(out, 6, "%", 100 * of_peak(s, l));
  put_number(out, 7, "", bytes_per_s(l) * 1e-9);
  put_number(out, 9, "", over_roofline(s, l));
  tr_text_append(out, "\n");
}

tr_status tr__profile_print(const tr__trainer *t, const tr__table *table, int whole, tr_text *out) {
  sheet s;
  TR_TRY(make_sheet(t, table, &s));
  tr_text_append(out, "profile of %s%lld step%s up to step %lld, rank 0: %.3f ms a step", whole ? "all " : "",
                 (long long)s.steps, s.steps == 1 ? "" : "s", (long long)t->step,
                 (double)s.total * 1e-6 / (double)s.steps);
  if (s.limits.flops > 0) tr_text_append(out, "; at most %.1f GFLOP/s", s.limits.flops * 1e-9);
  if (s.limits.bytes > 0) tr_text_append(out, " and %.1f GB/s", s.limits.bytes * 1e-9);
  tr_text_append(out, "\n  %-30s %8s %10s %7s %8s %7s %7s %9s\n", "", "calls", "ms a step", "share", "GFLOP/s",
                 "of peak", "GB/s", "x limit");
  for (int i = 0; i < s.nline; i++) put_line(&s, &s.line[i], out);
  free(s.line);
  return out->failed ? tr_error(TR_ERR_MEMORY, "no memory to print a profile") : TR_OK;
}

// ---- for programs

static json_t *json_line(const sheet *s, const line *l) {
  json_t *row =
      json_pack("{s:s, s:I, s:f, s:f}", "what", l->name, "calls", (json_int_t)(l->tally ? l->tally->calls : 0),
                "seconds", (double)l->ns * 1e-9, "share", share_of(s, l));
  if (!row || !l->tally) return row;
  if (l->comm) json_object_set_new(row, "under_way_seconds", json_real((double)l->tally->under_way * 1e-9));
  json_object_set_new(row, "flops", json_real(l->tally->flops));
  json_object_set_new(row, "bytes", json_real(l->tally->bytes));
  if (over_roofline(s, l) > 0) json_object_set_new(row, "over_roofline", json_real(over_roofline(s, l)));
  return row;
}

json_t *tr__profile_json(const tr__trainer *t, const tr__table *table, int whole) {
  sheet s;
  if (make_sheet(t, table, &s) < 0) return NULL;
  json_t *rows = json_array();
  for (int i = 0; i < s.nline; i++) json_array_append_new(rows, json_line(&s, &s.line[i]));
  json_t *json =
      json_pack("{s:s, s:I, s:I, s:b, s:f, s:f, s:f, s:o}", "event", "profile", "step", (json_int_t)t->step, "steps",
                (json_int_t)s.steps, "whole_run", whole, "seconds", (double)s.total * 1e-9, "peak_flops_per_s",
                s.limits.flops, "copy_bytes_per_s", s.limits.bytes, "rows", rows);
  free(s.line);
  return json;
}
