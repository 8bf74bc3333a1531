// SPDX-License-Identifier: MIT
// Scores of predictions against published runs: errors overall and by source, order inside groups, memory, and whether
// plans that ran out of memory are called so.
#include "trireme/base/sort.h"
#include "trireme/plan/runs.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SOURCES_MOST = 128 };

static double quantile(const double *sorted, size_t n, double share) {
  if (n == 0) return NAN;
  double at = share * (double)(n - 1);
  size_t low = (size_t)at, high = low + 1 < n ? low + 1 : low;
  return sorted[low] + (at - (double)low) * (sorted[high] - sorted[low]);
}

// Of signed relative errors, which are used up.
static tr_score score_of(double *error, size_t n) {
  tr_score s = {.n = n};
  if (n == 0) return s;
  tr_sort_doubles(error, n);
  s.bias = quantile(error, n, 0.5);
  for (size_t i = 0; i < n; i++) {
    error[i] = fabs(error[i]);
    s.mean += error[i] / (double)n;
  }
  tr_sort_doubles(error, n);
  s.median = quantile(error, n, 0.5);
  s.p90 = quantile(error, n, 0.9);
  s.worst = error[n - 1];
  return s;
}

static int timed(const tr_run *run) { return run->step > 0 && run->predicted_step > 0; }

tr_score tr_runs_score(const tr_runs *runs, const char *tiers, const char *source) {
  double *error = malloc((runs->n + 1) * sizeof *error);
  size_t n = 0;
  for (size_t i = 0; error && i < runs->n; i++) {
    const tr_run *run = &runs->run[i];
    if (timed(run) && strchr(tiers, run->tier) && (!source || strcmp(run->source, source) == 0))
      error[n++] = run->predicted_step / run->step - 1;
  }
  tr_score score = score_of(error, n);
  free(error);
  return score;
}

tr_ranking tr_runs_ranking(const tr_runs *runs) {
  tr_ranking r = {0};
  size_t right = 0;
  double regret = 0;
  for (size_t i = 0; i < runs->n; i++) {
    const tr_run *first = &runs->run[i];
    if (first->group == 0 || !timed(first)) continue;
    const tr_run *chosen = first, *best = first;
    size_t members = 0, earlier = 0;
    for (size_t j = 0; j < runs->n; j++) {
      const tr_run *other = &runs->run[j];
      if (other->group != first->group || !timed(other)) continue;
      if (j < i) earlier++;
      members++;
      if (other->predicted_step < chosen->predicted_step) chosen = other;
      if (other->step < best->step) best = other;
      if (j <= i || fabs(other->step / first->step - 1) <= 0.03) continue;
      r.pairs++;
      right += (other->step > first->step) == (other->predicted_step > first->predicted_step);
    }
    if (earlier > 0 || members < 2) continue;
    r.groups++;
    regret += chosen->step / best->step - 1;
  }
  r.ordered = r.pairs ? (double)right / (double)r.pairs : NAN;
  r.regret = r.groups ? regret / (double)r.groups : NAN;
  return r;
}

tr_score tr_runs_memory_score(const tr_runs *runs) {
  double *error = malloc((runs->n + 1) * sizeof *error);
  size_t n = 0;
  for (size_t i = 0; error && i < runs->n; i++) {
    const tr_run *run = &runs->run[i];
    if (run->memory_gb > 0 && run->predicted_memory > 0) error[n++] = run->predicted_memory / run->memory_gb - 1;
  }
  tr_score score = score_of(error, n);
  free(error);
  return score;
}

// ---- as text

static void line(tr_text *out, const char *name, tr_score s) {
  tr_text_append(out, "%-64.64s %5zu %8.1f %8.1f %8.1f %8.1f %+8.1f\n", name, s.n, 100 * s.median, 100 * s.mean,
                 100 * s.p90, 100 * s.worst, 100 * s.bias);
}

static void by_source(const tr_runs *runs, const char *tiers, tr_text *out) {
  const char *seen[SOURCES_MOST];
  size_t n = 0;
  for (size_t i = 0; i < runs->n; i++) {
    const tr_run *run = &runs->run[i];
    size_t k = 0;
    if (!timed(run) || !strchr(tiers, run->tier)) continue;
    while (k < n && strcmp(seen[k], run->source) != 0) k++;
    if (k < n || n == SOURCES_MOST) continue;
    seen[n++] = run->source;
    line(out, run->source, tr_runs_score(runs, tiers, run->source));
  }
}

static void out_of_memory(const tr_runs *runs, tr_text *out) {
  size_t n = 0, called = 0, fit = 0, refused = 0;
  for (size_t i = 0; i < runs->n; i++) {
    const tr_run *run = &runs->run[i];
    tr_footprint m;
    if (*run->why || run->tier == 'S') continue;
    tr_predict_memory(&run->plan, &run->model, &run->cluster, &m);
    int fits = m.needed <= run->cluster.device.memory_gib * 1073741824.0;
    n += run->out_of_memory != 0;
    called += run->out_of_memory && !fits;
    fit += run->step > 0;
    refused += run->step > 0 && !fits;
  }
  tr_text_append(out, "published as out of memory: %zu, called so: %zu; ran: %zu, called out of memory: %zu\n", n,
                 called, fit, refused);
}

void tr_runs_summary(const tr_runs *runs, tr_text *out) {
  tr_text_append(out, "%-64s %5s %8s %8s %8s %8s %8s\n", "step time, error in %", "rows", "median", "mean", "90th",
                 "worst", "bias");
  tr_score a = tr_runs_score(runs, "A", NULL), other = tr_runs_score(runs, "BC", NULL);
  tr_score node = tr_runs_score(runs, "S", NULL);
  if (a.n) {
    line(out, "tier A", a);
    by_source(runs, "A", out);
  }
  if (other.n) {
    line(out, "tiers B and C", other);
    by_source(runs, "BC", out);
  }
  if (node.n) line(out, "one node (vTrain)", node);
  tr_score memory = tr_runs_memory_score(runs);
  if (memory.n) line(out, "peak memory", memory);
  tr_ranking r = tr_runs_ranking(runs);
  if (r.groups)
    tr_text_append(out, "order: %.1f %% of %zu pairs in %zu groups; the favourite is %.1f %% slower than the best\n",
                   100 * r.ordered, r.pairs, r.groups, 100 * r.regret);
  if (a.n) out_of_memory(runs, out);
}
