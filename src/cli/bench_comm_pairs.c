// SPDX-License-Identifier: MIT
// `trireme bench comm --matrix` and `--preflight`: the map of all pairs, and the search for a slow rank or link.
#include "cli/bench_comm_internal.h"
#include "trireme/base/cpu.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NUMBERS_MOST = 12, SHADES = 9 };
static const char shade[SHADES + 1] = " .:-=+*#%"; // the higher the rate, the darker

// ---- the map

static double large_bytes(const tr__comm_job *job) { return (double)(job->most < 4 << 20 ? job->most : 4 << 20); }

typedef struct value_range {
  double least, most;
} value_range;

static value_range range_of(const double *pairs, int n) {
  value_range r = {INFINITY, 0};
  for (int i = 0; i < n * n; i++)
    if (pairs[i] > 0) r.least = fmin(r.least, pairs[i]), r.most = fmax(r.most, pairs[i]);
  return r;
}

// By the logarithm: the slowest pair is the lightest.
static char shade_of(const value_range *r, double seconds) {
  if (r->most <= r->least) return shade[SHADES / 2];
  const double at = log(r->most / seconds) / log(r->most / r->least);
  return shade[(int)lround(at * (SHADES - 1))];
}

static void print_numbers(const tr__comm_job *job, const double *pairs, double scale, int is_rate) {
  const int n = job->nrank;
  printf("%9s", "");
  for (int j = 0; j < n; j++) printf(" %8d", j);
  printf("\n");
  for (int i = 0; i < n; i++) {
    printf("%8d:", i);
    for (int j = 0; j < n; j++)
      if (i == j)
        printf(" %8s", "-");
      else
        printf(" %8.2f", is_rate ? scale / pairs[i * n + j] : scale * pairs[i * n + j]);
    printf("\n");
  }
}

static void print_shades(const tr__comm_job *job, const double *pairs) {
  const int n = job->nrank;
  const value_range r = range_of(pairs, n);
  for (int i = 0; i < n; i++) {
    printf("%8d: ", i);
    for (int j = 0; j < n; j++) putchar(i == j ? '/' : shade_of(&r, pairs[i * n + j]));
    putchar('\n');
  }
  printf("%10s'%s' from the slowest to the fastest pair, by the logarithm\n", "", shade);
}

static void print_paths(const tr__comm_job *job) {
  const int n = job->nrank;
  static const char paths[] = "scmt";
  printf("paths:");
  for (const char *p = paths; *p; p++) {
    int pairs = 0;
    for (int i = 0; i < n; i++)
      for (int j = i + 1; j < n; j++) pairs += job->path[i * n + j] == *p;
    if (pairs) printf(" %d pair%s %s", pairs, pairs == 1 ? "" : "s", tr__comm_path_name(*p));
  }
  printf("\n");
  for (int i = 0; i < n && n <= NUMBERS_MOST; i++) {
    printf("%8d:", i);
    for (int j = 0; j < n; j++) printf(" %8s", i == j ? "-" : tr__comm_path_name(job->path[i * n + j]));
    printf("\n");
  }
}

static tr_status print_json(json_t *json) {
  char *text = json ? json_dumps(json, JSON_INDENT(1) | JSON_REAL_PRECISION(9)) : NULL;
  json_decref(json);
  if (!text) return tr_error(TR_ERR_MEMORY, "no memory for the results");
  puts(text);
  free(text);
  return TR_OK;
}

static tr_status print_pairs_json(const tr__comm_job *job) {
  const int n = job->nrank;
  json_t *list = json_array();
  for (int i = 0; list && i < n; i++)
    for (int j = i + 1; j < n; j++)
      json_array_append_new(list,
                            json_pack("{s:i, s:i, s:s, s:f, s:f}", "first", i, "second", j, "path",
                                      tr__comm_path_name(job->path[i * n + j]), "latency_s", job->small[i * n + j],
                                      "bytes_per_s", large_bytes(job) / job->large[i * n + j]));
  return print_json(json_pack("{s:i, s:s, s:s, s:i, s:o}", "trireme_bench", 1, "benchmark", "comm --matrix", "engine",
                              job->results->engine, "ranks", n, "pairs", list));
}

tr_status tr__comm_print_matrix(const tr__comm_job *job) {
  char large[32];
  if (job->settings->json) return print_pairs_json(job);
  tr_format_bytes(large, sizeof large, large_bytes(job));
  printf("%d ranks, engine %s, pairs one after the other\n\nlatency of 8 B, one way, us\n", job->nrank,
         job->results->engine);
  if (job->nrank <= NUMBERS_MOST) print_numbers(job, job->small, 1e6, 0);
  print_shades(job, job->small);
  printf("\nbandwidth of %s, one way, GB/s\n", large);
  if (job->nrank <= NUMBERS_MOST) print_numbers(job, job->large, large_bytes(job) * 1e-9, 1);
  print_shades(job, job->large);
  printf("\n");
  print_paths(job);
  return TR_OK;
}

// ---- the search

static double best_link(const double *pairs, int n, int rank) {
  double best = 0;
  for (int j = 0; j < n; j++)
    if (j != rank && (best <= 0 || pairs[rank * n + j] < best)) best = pairs[rank * n + j];
  return best;
}

static void print_ranks(const tr_probe *p) {
  printf("rank  host  compute GFLOP/s  copy GB/s  best link: 8 B us      GB/s\n");
  for (int r = 0; r < p->nrank; r++) {
    const double small = best_link(p->small, p->nrank, r), large = best_link(p->large, p->nrank, r);
    printf("%4d %5d %16.1f %10.2f %18.2f %9.2f\n", r, p->host[r], p->compute[r] * 1e-9, p->copy[r] * 1e-9,
           small * 1e6, large > 0 ? TR_PROBE_BYTES / large * 1e-9 : 0.0);
  }
}

static tr_status print_ranks_json(const tr_probe *p, const tr_probe_verdict *v) {
  json_t *list = json_array();
  for (int r = 0; list && r < p->nrank; r++)
    json_array_append_new(list, json_pack("{s:i, s:i, s:f, s:f, s:f, s:f}", "rank", r, "host", p->host[r],
                                          "flops_per_s", p->compute[r], "copy_bytes_per_s", p->copy[r],
                                          "best_link_8_bytes_s", best_link(p->small, p->nrank, r),
                                          "best_link_1_mib_s", best_link(p->large, p->nrank, r)));
  return print_json(json_pack("{s:i, s:s, s:b, s:i, s:i, s:f, s:s, s:o}", "trireme_bench", 1, "benchmark",
                              "comm --preflight", "slow", v->slow, "rank", v->rank, "peer", v->peer, "ratio",
                              v->ratio, "sentence", v->text, "ranks", list));
}

tr_status tr__comm_preflight_rank(tr_comm *comm, void *user) {
  const tr__comm_job *job = user;
  tr_probe p;
  tr_comm_activity(comm, "preflight", -1, -1);
  TR_TRY(tr_probe_create(tr_comm_size(comm), &p));
  tr_status status = tr_probe_measure(comm, &p);
  if (status == TR_OK && tr_comm_rank(comm) == 0) {
    status = tr_probe_judge(&p, job->settings->slow, &job->results->verdict);
    if (status == TR_OK && job->settings->json)
      status = print_ranks_json(&p, &job->results->verdict);
    else if (status == TR_OK)
      print_ranks(&p);
    job->results->done = status == TR_OK;
    fflush(stdout);
  }
  tr_probe_destroy(&p);
  return status;
}
