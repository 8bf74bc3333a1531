// SPDX-License-Identifier: MIT
// Fits the planner's efficiencies, one set per kind of device, on published runs, and cross-validates: every source is
// predicted with efficiencies fitted on all others, and every fifth of the models likewise.
//
//   bench_plan_fit RUNS.csv [MORE.csv ...] [--write presets/devices] [--cross] [--only DEVICE]
//
// Coordinate descent on the mean of a robust loss of ln(predicted / measured). A device with few runs is held near the
// device that it is related to, whose efficiencies are its prior: the pull of the prior weighs as much as PULL runs. Rows
// of one source count less the more there are of it (n^-SHARE each), so no source decides alone.
#include "trireme/base/file.h"
#include "trireme/base/sort.h"
#include "trireme/plan/runs.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { TABLES = 8, FIT_MOST = 32, SWEEPS = 60, RUNS_MOST = 4096, GROUPS = 1024, FOLDS = 5 };
static const double PULL = 1.5, ORDER = 0.5, SHARE = 0.85;

// Fitted in this order; each prior before its relatives.
static const struct {
  const char *device, *prior;
} family[] = {{"A100-SXM-80", NULL},
              {"A100-SXM-40", "A100-SXM-80"},
              {"H100-SXM-80", "A100-SXM-80"},
              {"H100-96-HBM2e-500W", "H100-SXM-80"},
              {"H200-SXM", "H100-SXM-80"},
              {"B200-SXM", "H100-SXM-80"},
              {"GB200", "B200-SXM"},
              {"B300-SXM", "B200-SXM"},
              {"GB300", "GB200"},
              {"MI325X", "H100-SXM-80"},

              {"TPUv4", "A100-SXM-80"},
              {"V100-SXM3-32", "A100-SXM-80"},
              {"V100-SXM3-32 (DGX-2)", "V100-SXM3-32"},
              {"V100-SXM3-32 (DGX-2H)", "V100-SXM3-32 (DGX-2)"}};
enum { FAMILY = sizeof family / sizeof *family };

typedef struct bench {
  tr_runs table[TABLES];
  size_t ntable;
  tr_run *run[RUNS_MOST]; // all that are timed, over the tables
  double weight[RUNS_MOST];
  size_t n;
  tr_efficiency fit[FAMILY], standard; // the table's defaults: the prior of those without relatives
  const tr_option *row;
  size_t nrow;
} bench;

static _Noreturn void stop(const char *what) {
  fprintf(stderr, "bench_plan_fit: %s: %s\n", what, tr_status_text());
  exit(1);
}

static double *value_of(const bench *b, tr_efficiency *fit, size_t i) {
  return (double *)((char *)fit + (b->row[i].offset - offsetof(tr_device, fit)));
}

// ---- loss

static double loss_of(double error) { // |x| beyond 5 %, smooth inside
  double x = fabs(error);
  return x < 0.05 ? x * x / 0.1 + 0.025 : x;
}

static double distance(const bench *b, tr_efficiency *fit, tr_efficiency *prior) {
  double sum = 0;
  for (size_t i = 0; i < b->nrow; i++) {
    double x = log((*value_of(b, fit, i) + 0.02) / (*value_of(b, prior, i) + 0.02));
    sum += x * x;
  }
  return sum;
}

typedef struct problem {
  bench *b;
  size_t member[RUNS_MOST], n;
  tr_efficiency *prior;
  double pull;
} problem;

// Errors of a group's rows against their mean decide its order; they count besides.
static double loss(const problem *p, tr_efficiency *fit) {
  static double error[RUNS_MOST], mean[GROUPS], members[GROUPS];
  double sum = 0, weight = 0, term[TR_TERM_COUNT];
  memset(mean, 0, sizeof mean);
  memset(members, 0, sizeof members);
  for (size_t i = 0; i < p->n; i++) {
    tr_run *run = p->b->run[p->member[i]];
    run->cluster.device.fit = *fit;
    error[i] = log(tr_predict_step(&run->plan, &run->model, &run->cluster, term) / run->step);
    sum += p->b->weight[p->member[i]] * loss_of(error[i]);
    weight += p->b->weight[p->member[i]];
    mean[run->group % GROUPS] += error[i];
    members[run->group % GROUPS]++;
  }
  for (size_t i = 0; i < p->n; i++) {
    int64_t group = p->b->run[p->member[i]]->group % GROUPS;
    if (group == 0 || members[group] < 2) continue;
    sum += ORDER * p->b->weight[p->member[i]] * loss_of(error[i] - mean[group] / members[group]);
    weight += ORDER * p->b->weight[p->member[i]];
  }
  return (sum + p->pull * 0.1 * distance(p->b, fit, p->prior)) / fmax(weight, 1e-9);
}

// ---- descent

static int try_value(const problem *p, tr_efficiency *fit, size_t i, double to, double *best) {
  double *at = value_of(p->b, fit, i), from = *at;
  *at = fmin(fmax(to, p->b->row[i].min), p->b->row[i].max);
  double now = loss(p, fit);
  if (now < *best - 1e-7) {
    *best = now;
    return 1;
  }
  *at = from;
  return 0;
}

static double descend(const problem *p, tr_efficiency *fit) {
  double best = loss(p, fit), stride = 0.3;
  for (int sweep = 0; sweep < SWEEPS && stride > 0.004; sweep++) {
    int moved = 0;
    for (size_t i = 0; i < p->b->nrow; i++) {
      double from = *value_of(p->b, fit, i), unit = fmax(from, 0.02);
      int better = try_value(p, fit, i, from + unit * stride, &best);
      if (!better) better = try_value(p, fit, i, from - unit * stride / (1 + stride), &best);
      moved += better;
    }
    if (moved < 3) stride *= 0.6;
  }
  return best;
}

// Runs that are left out of a fit: those of one source, or one fifth of all models (all runs of a model together).
typedef struct left_out {
  const char *source;
  int fold; // 1 to FOLDS, 0: none
} left_out;

static int fold_of(const tr_run *run) {
  return 1 + (int)(tr_hash_bytes(run->model_name, strlen(run->model_name)) % FOLDS);
}

static int is_out(const tr_run *run, left_out out) {
  return out.fold ? fold_of(run) == out.fold : out.source && strcmp(run->source, out.source) == 0;
}

static void collect(bench *b, const char *device, left_out out, problem *p) {
  p->b = b;
  p->n = 0;
  for (size_t i = 0; i < b->n; i++)
    if (strcasecmp(b->run[i]->device_name, device) == 0 && !is_out(b->run[i], out)) p->member[p->n++] = i;
}

static size_t index_of(const char *device) {
  size_t k = 0;
  while (k < FAMILY && strcmp(family[k].device, device) != 0) k++;
  return k;
}

// Fits the k-th device of the family, starting at its prior.
static void fit_device(bench *b, size_t k, left_out out, tr_efficiency *fit) {
  static problem p;
  collect(b, family[k].device, out, &p);
  tr_efficiency prior = family[k].prior ? b->fit[index_of(family[k].prior)] : b->standard;
  p.prior = &prior;
  p.pull = PULL;
  *fit = prior;
  if (p.n > 0) (void)descend(&p, fit);
  p.prior = NULL;
}

// ---- reports

static void apply(bench *b) {
  for (size_t i = 0; i < b->n; i++) {
    size_t k = index_of(b->run[i]->device_name);
    if (k < FAMILY) b->run[i]->cluster.device.fit = b->fit[k];
  }
  for (size_t t = 0; t < b->ntable; t++) tr_runs_predict(&b->table[t]);
}

static void predict_without(bench *b, size_t k, left_out out) {
  tr_efficiency fit;
  fit_device(b, k, out, &fit);
  for (size_t j = 0; j < b->n; j++) {
    tr_run *run = b->run[j];
    double term[TR_TERM_COUNT];
    if (strcmp(run->device_name, family[k].device) != 0 || !is_out(run, out)) continue;
    run->cluster.device.fit = fit;
    run->predicted_step = tr_predict_step(&run->plan, &run->model, &run->cluster, term);
  }
}

// Nine in ten errors of the device's runs, with or without experts; few runs say little, and are taken to err by `least`.
static double nine_in_ten(const bench *b, const problem *p, int experts, double least, double *median) {
  static double error[RUNS_MOST];
  size_t n = 0;
  for (size_t i = 0; i < p->n; i++) {
    const tr_run *run = b->run[p->member[i]];
    if ((run->model.experts > 0) == experts) error[n++] = fabs(run->predicted_step / run->step - 1);
  }
  tr_sort_doubles(error, n);
  if (median && n > 0) *median = error[n / 2];
  double most = n > 0 ? error[n * 9 / 10] : least;
  return n < 10 ? fmax(most, least) : most;
}

// The error bars of predictions: each run predicted with what was fitted without its model and a fifth of the others.
static void spread(bench *b, size_t k) {
  static problem p;
  collect(b, family[k].device, (left_out){0}, &p);
  if (p.n == 0) return;
  for (int fold = 1; fold <= FOLDS; fold++) predict_without(b, k, (left_out){.fold = fold});
  tr_efficiency *fit = &b->fit[k];
  fit->p90 = nine_in_ten(b, &p, 0, 0.25, &fit->median);
  fit->p90_experts = nine_in_ten(b, &p, 1, 0.4, NULL);
  printf("%-24s %4zu runs: median %4.1f %%, 90th percentile %4.1f %%, with experts %4.1f %%\n", family[k].device, p.n,
         100 * fit->median, 100 * fit->p90, 100 * fit->p90_experts);
}

static void without_each_source(bench *b, size_t k) {
  const char *seen[128];
  size_t n = 0;
  for (size_t i = 0; i < b->n; i++) {
    size_t s = 0;
    if (strcmp(b->run[i]->device_name, family[k].device) != 0) continue;
    while (s < n && strcmp(seen[s], b->run[i]->source) != 0) s++;
    if (s < n || n == 128) continue;
    seen[n++] = b->run[i]->source;
    predict_without(b, k, (left_out){.source = b->run[i]->source});
  }
}

static void summarise(bench *b) {
  for (size_t t = 0; t < b->ntable; t++) {
    tr_text text = {0};
    tr_runs_summary(&b->table[t], &text);
    printf("%s\n", text.data);
    tr_text_free(&text);
  }
}

static void cross_validate(bench *b) {
  printf("\nleave one source out\n");
  for (size_t k = 0; k < FAMILY; k++) without_each_source(b, k);
  summarise(b);
  printf("leave a fifth of the models out\n");
  for (size_t k = 0; k < FAMILY; k++)
    for (int fold = 1; fold <= FOLDS; fold++) predict_without(b, k, (left_out){.fold = fold});
  summarise(b);
}

static void write_fit(bench *b, size_t k, const char *folder, size_t nrun) {
  char path[512], name[128], *old = NULL;
  size_t n = 0, nbyte;
  for (const char *c = family[k].device; *c; c++)
    if (*c != '(' && *c != ')') name[n++] = *c == ' ' ? '-' : (char)(*c | (*c >= 'A' && *c <= 'Z' ? 32 : 0));
  name[n] = '\0';
  snprintf(path, sizeof path, "%s/%s.yaml", folder, name);
  if (tr_file_read(path, 1 << 20, &old, &nbyte) < 0) stop(path);
  char *cut = strstr(old, "\nfit:");
  if (cut) cut[1] = '\0';
  tr_text text = {0};
  tr_text_append(&text, "%sfit: # shares of the figures above, us, ms; found by bench_plan_fit\n", old);
  for (size_t i = 0; i < b->nrow; i++)
    tr_text_append(&text, "  %s: %.4g\n", b->row[i].path + 4, *value_of(b, &b->fit[k], i));
  tr_text_append(&text, "  median: %.3f\n  p90: %.3f\n  p90_experts: %.3f\n", b->fit[k].median, b->fit[k].p90,
                 b->fit[k].p90_experts);
  tr_text_append(&text, "  source: \"coordinate descent on %zu published runs of this device, near those of %s\"\n",
                 nrun, family[k].prior ? family[k].prior : "the table's defaults");
  if (tr_file_write_atomic(path, text.data, text.size) < 0) stop(path);
  tr_text_free(&text);
  free(old);
}

static void gather(bench *b) {
  for (size_t t = 0; t < b->ntable; t++)
    for (size_t i = 0; i < b->table[t].n; i++) {
      tr_run *run = &b->table[t].run[i];
      if (*run->why || run->guessed || run->step <= 0 || run->tier == 'D' || b->n == RUNS_MOST) continue;
      b->run[b->n++] = run;
    }
  for (size_t i = 0; i < b->n; i++) {
    double same = 0;
    for (size_t j = 0; j < b->n; j++) same += strcmp(b->run[i]->source, b->run[j]->source) == 0;
    b->weight[i] = pow(same, -SHARE) * (b->run[i]->tier == 'A' ? 1 : 0.5);
  }
}

int main(int argc, char **argv) {
  static bench b;
  const char *folder = NULL, *only = NULL;
  int cross = 0;
  for (int i = 1; i < argc; i++) {
    if (strcmp(argv[i], "--cross") == 0)
      cross = 1;
    else if (strcmp(argv[i], "--write") == 0 && i + 1 < argc)
      folder = argv[++i];
    else if (strcmp(argv[i], "--only") == 0 && i + 1 < argc)
      only = argv[++i];
    else if (b.ntable < TABLES && tr_runs_load(argv[i], &b.table[b.ntable++]) < 0)
      stop(argv[i]);
  }
  b.row = tr_device_fit_rows(&b.nrow);
  gather(&b);
  for (size_t i = 0; i < b.nrow; i++) { // defaults are texts
    double value = 0;
    if (tr_parse_real(b.row[i].def, &value) < 0) stop(b.row[i].path);
    *value_of(&b, &b.standard, i) = value;
  }
  for (size_t k = 0; k < FAMILY; k++) {
    tr_device device;
    if (tr_device_load(family[k].device, &device) < 0) stop(family[k].device);
    b.fit[k] = device.fit;
    tr_device_unload(&device);
    if (!only || strcmp(only, family[k].device) == 0) fit_device(&b, k, (left_out){0}, &b.fit[k]);
    static problem p;
    collect(&b, family[k].device, (left_out){0}, &p);
    spread(&b, k);
    if (folder && p.n > 0) write_fit(&b, k, folder, p.n);
  }
  apply(&b);
  summarise(&b);
  if (cross) cross_validate(&b);
  return 0;
}
