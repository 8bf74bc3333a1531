// SPDX-License-Identifier: MIT
// `trireme bench step`: whole training steps, for several ways to put ranks and threads on this machine. The plan is that of
// `trireme train` with the same settings, without data; bench_ranks.c runs it. Medians are compared, ranges are printed. The
// speed of a processor moves by more than what layouts differ in: with bench.rounds they take turns, and a speed-up is the median
// of the rounds'.
#include "cli/bench_describe_internal.h"
#include "cli/bench_internal.h"
#include "cli/cli_internal.h"
#include "trireme/base/cpu.h"
#include "trireme/base/file.h"
#include "trireme/base/log.h"
#include "trireme/base/sort.h"
#include "trireme/train/train.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LAYOUTS_MOST = 16, ROUNDS_MOST = 20, SEQUENCE_MOST = 1024, TOKENS_AT_ONCE = 2048 };

typedef struct settings {
  tr_train_config train; // the option table of train comes first, with its offsets
  tr__bench_settings bench;
} settings;

typedef struct layout {
  int ranks, threads;
} layout;

// ---- a layout

// What the plan of one layout measured, in all rounds. Sorted: [0] the least, [n / 2] the median.
typedef struct row {
  char name[32];
  double batch;           // tokens of a step
  double foreign, tokens; // per second
  double beyond;          // median of seconds that a step takes beyond kernels
  double peak[TR__BENCH_PEAKS];
  int nround;
  double round[ROUNDS_MOST]; // median of each round's steps
  tr__bench_times m;
} row;

static double middle(double *x, int n) {
  tr_sort_doubles(x, (size_t)n);
  return x[n / 2];
}

static void add_round(row *r, tr__bench_times *m) {
  for (int i = 0; i < m->npeak && r->m.npeak < TR__BENCH_PEAKS; i++)
    memcpy(r->m.peak[r->m.npeak++], m->peak[i], sizeof m->peak[i]);
  for (int i = 0; i < m->nstep && r->m.nstep < TR__BENCH_STEPS; i++) {
    r->m.seconds[r->m.nstep] = m->seconds[i];
    r->m.kernels[r->m.nstep++] = m->kernels[i];
  }
  r->round[r->nround++] = middle(m->seconds, m->nstep);
}

static void digest(row *r, const tr_train_plan *plan) {
  tr__bench_times *m = &r->m;
  double beyond[TR__BENCH_STEPS];
  for (int i = 0; i < m->nstep; i++) beyond[i] = m->seconds[i] - m->kernels[i];
  for (int i = 0; i < m->npeak; i++)
    for (int rank = 0; rank < plan->config->run.ranks; rank++) r->peak[i] += m->peak[i][rank];
  tr_sort_doubles(r->peak, (size_t)m->npeak);
  r->beyond = middle(beyond, m->nstep);
  r->tokens = r->batch / middle(m->seconds, m->nstep);
}

static tr_status run_round(tr_train_plan *plan, row *r) {
  const tr__bench_cpu start = tr__bench_cpu_now();
  tr__bench_times *m = calloc(1, sizeof *m);
  tr_status status = m ? tr__bench_ranks(plan, m) : tr_error(TR_ERR_MEMORY, "no memory for the times of a benchmark");
  const double foreign = tr__bench_foreign(&start);
  if (foreign > r->foreign) r->foreign = foreign;
  snprintf(r->name, sizeof r->name, "%lld x %d", (long long)plan->config->run.ranks, plan->nthread);
  r->batch = (double)(plan->config->batch.sequences * plan->config->data.sequence);
  if (status == TR_OK) add_round(r, m);
  free(m);
  return status;
}

// How many times as fast `r` is as `base`, which has had its rounds before.
static double speedup_of(const row *r, const row *base) {
  double ratio[ROUNDS_MOST];
  for (int i = 0; i < r->nround; i++) ratio[i] = r->batch / r->round[i] * base->round[i] / base->batch;
  return middle(ratio, r->nround);
}

// ---- the table

static void print_head(const tr_train_plan *plan, const char *subject) {
  char cpu[128], params[32];
  tr_cpu_name(cpu, sizeof cpu);
  tr_format_count(params, sizeof params, (double)tr_model_count(plan->model));
  printf("%s, %s, %d core%s\n%s: %s parameters, %.1f MFLOP per token\n\n", cpu, tr_isa_name(tr_cpu_isa()),
         tr_cpu_count(), tr_cpu_count() == 1 ? "" : "s", subject, params,
         tr_model_flops(plan->model, plan->config->data.sequence) * 1e-6);
  printf(
      "ranks x threads  steps    ms/step        least..most  tokens/s  GFLOP/s   peak        least..most  of peak  "
      "speed-up  beyond kernels\n");
}

static void print_row(const row *r, double flops, double speedup) {
  const tr__bench_times *m = &r->m;
  char range[32], peaks[32], faster[16] = "";
  const double seconds = m->seconds[m->nstep / 2], peak = r->peak[m->npeak / 2];
  snprintf(range, sizeof range, "%.2f..%.2f", m->seconds[0] * 1e3, m->seconds[m->nstep - 1] * 1e3);
  snprintf(peaks, sizeof peaks, "%.1f..%.1f", r->peak[0] * 1e-9, r->peak[m->npeak - 1] * 1e-9);
  if (speedup > 0) snprintf(faster, sizeof faster, "%.2f", speedup);
  printf("%-16s %5d %10.2f %18s %9.0f %8.1f %6.1f %18s %6.1f %% %9s %8.3f ms %.2f %%\n", r->name, m->nstep,
         seconds * 1e3, range, r->tokens, flops * 1e-9, peak * 1e-9, peaks, 100 * flops / peak, faster,
         r->beyond * 1e3, 100 * r->beyond / seconds);
  fflush(stdout);
}

static json_t *row_json(const row *r, const tr_train_plan *plan, double flops, double speedup) {
  const tr__bench_times *m = &r->m;
  const double peak = r->peak[m->npeak / 2];
  json_t *json = json_pack(
      "{s:s, s:I, s:i, s:i, s:i, s:i, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "name", r->name,
      "ranks", (json_int_t)plan->config->run.ranks, "threads", plan->nthread, "micro", plan->micro, "accumulation",
      plan->accumulation, "steps", m->nstep, "seconds", m->seconds[m->nstep / 2], "least_seconds", m->seconds[0],
      "most_seconds", m->seconds[m->nstep - 1], "tokens_per_s", r->tokens, "flops_per_s", flops, "peak_flops_per_s",
      peak, "least_peak_flops_per_s", r->peak[0], "most_peak_flops_per_s", r->peak[m->npeak - 1], "share",
      flops / peak, "beyond_kernels_s", r->beyond, "foreign_cpu", r->foreign);
  if (json && speedup > 0) json_object_set_new(json, "speed_up", json_real(speedup));
  return json;
}

// ---- settings

// "1x1,2x1" -> layouts, at most `most`; *n says how many.
static tr_status parse_layouts(const char *text, const tr_options *options, layout *out, int most, int *n) {
  *n = 0;
  for (const char *at = text; at; at = strchr(at, ',')) {
    int used = 0;
    layout l = {0};
    if (*at == ',') at++;
    if (sscanf(at, "%3dx%4d%n", &l.ranks, &l.threads, &used) != 2 || (at[used] && at[used] != ',') || l.ranks < 1 ||
        l.ranks > 256 || l.threads < 1 || l.threads > 1024 || *n == most)
      return tr_options_error(
          options, "bench.layouts",
          "'%.80s' is no list of ranks x threads; at most %d with commas between, as in 1x1,2x1,1x2", text, most);
    out[(*n)++] = l;
  }
  return TR_OK;
}

static tr_status choose_layouts(const settings *s, const tr_options *options, layout *out, int *n) {
  const int chosen = tr_options_is_set(options, "run.ranks") || tr_options_is_set(options, "run.threads");
  const int listed = tr_options_is_set(options, "bench.layouts");
  if (chosen && listed)
    return tr_options_error(options, "bench.layouts",
                            "run.ranks and run.threads choose one layout; leave one of the two out");
  if (chosen) {
    const int64_t own = tr_cpu_count() / s->train.run.ranks;
    const int64_t threads = s->train.run.threads > 0 ? s->train.run.threads : own > 0 ? own : 1;
    *out = (layout){(int)s->train.run.ranks, (int)threads};
    *n = 1;
    return TR_OK;
  }
  TR_TRY(parse_layouts(s->bench.layouts, options, out, LAYOUTS_MOST, n));
  int fit = 0; // of the default's, those for which there are cores
  for (int i = 0; i < *n; i++)
    if (listed || out[i].ranks * out[i].threads <= tr_cpu_count()) out[fit++] = out[i];
  *n = fit;
  return TR_OK;
}

// Settings that only the loop around the steps knows. Who asks for a file or a fault and gets none would wait for it; the rest
// comes from run files, and is said to mean nothing here.
static tr_status check_unused(const settings *s, const tr_options *options) {
  static const char *const section[] = {"data.", "train.", "checkpoint."};
  static const char *const used[] = {"data.sequence", "train.steps", "train.seed"};
  const char *fault = getenv("TRIREME_FAULT");
  tr_text list = {0};
  if (*s->train.run.trace)
    return tr_options_error(options, "run.trace", "bench step writes no trace; trireme train does");
  if (s->train.run.profile > 0)
    return tr_options_error(options, "run.profile", "bench step makes no profile; trireme train does");
  if (fault && *fault) return tr_error(TR_ERR_CONFIG, "TRIREME_FAULT: bench step has no faults; trireme train has");
  for (size_t i = 0; i < tr_train_option_count; i++) {
    const char *path = tr_train_options[i].path;
    int counts = 1;
    for (size_t k = 0; k < 3; k++) counts &= strncmp(path, section[k], strlen(section[k])) != 0;
    for (size_t k = 0; k < 3; k++) counts |= strcmp(path, used[k]) == 0;
    if (!counts && tr_options_is_set(options, path)) tr_text_append(&list, "%s%s", list.size ? ", " : "", path);
  }
  if (list.data) tr_log_warn("bench step has no use for %s", list.data);
  tr_text_free(&list);
  return TR_OK;
}

static tr_status set_unless(tr_options *options, const char *path, const char *value) {
  char text[512];
  if (tr_options_is_set(options, path)) return TR_OK;
  snprintf(text, sizeof text, "%s=%s", path, value);
  return tr_options_apply_argument(options, text);
}

// What follows from the model, where nothing is set.
static tr_status fill_in(settings *s, tr_options *options) {
  char number[32];
  tr_arch arch;
  if (!tr_options_is_set(options, "model.kind")) TR_TRY(set_unless(options, "model.from", "gpt2"));
  TR_TRY(set_unless(options, "model.dropout", "0"));
  if (*s->train.model.from && tr_arch_load(s->train.model.from, &arch, NULL, 0) == TR_OK) {
    const int64_t positions = tr_arch_sizes_of(&arch).positions;
    snprintf(number, sizeof number, "%lld", (long long)(positions < SEQUENCE_MOST ? positions : SEQUENCE_MOST));
    TR_TRY(set_unless(options, "data.sequence", number));
  }
  if (!tr_options_is_set(options, "train.steps")) s->train.train.steps = 0;
  s->train.checkpoint.background = 0; // nothing is saved
  return TR_OK;
}

// A description is of the machine, whatever models are trained on it.
static tr_status check_description(const settings *s, const tr__argument_list *model, const tr_options *options) {
  if (model->n || tr_options_is_set(options, "model.from") || tr_options_is_set(options, "model.kind"))
    return tr__cli_usage(
        "bench", "bench step --write FILE.yaml describes this machine with models of its own; leave out the model");
  if (*s->bench.baseline || s->bench.json)
    return tr__cli_usage("bench", "bench step --write FILE.yaml has no table to compare or to print as JSON");
  return TR_OK;
}

static tr_status read_settings(int argc, char **argv, settings *s, tr_options *options) {
  tr__argument_list model = {.n = 0};
  const tr__argument flags[] = {{.name = "--json", .kind = TR__ARGUMENT_FLAG, .out = &s->bench.json}};
  TR_TRY(tr__cli_settings("bench", options, argc, argv, flags, 1, &model));
  if (model.n > 1)
    return tr__cli_usage("bench", "'%.80s' and '%.80s' are two models; give one", model.item[0], model.item[1]);
  if (model.n == 1 && tr_options_is_set(options, "model.from"))
    return tr__cli_usage("bench", "'%.80s' and model.from are two models; give one", model.item[0]);
  if (tr__is_description(s->bench.write)) return check_description(s, &model, options);
  if (model.n == 1) TR_TRY(set_unless(options, "model.from", model.item[0]));
  TR_TRY(check_unused(s, options));
  return fill_in(s, options);
}

// ---- the benchmark

// Without batch.sequences every rank gets as much work, whatever the layout.
static tr_status plan_layout(const settings *s, const tr_options *options, layout l, tr_train_config *config,
                             tr_train_plan *plan) {
  *config = s->train;
  config->run.ranks = l.ranks;
  config->run.threads = l.threads;
  if (!tr_options_is_set(options, "batch.sequences")) {
    const int64_t most = TOKENS_AT_ONCE / config->data.sequence;
    if (config->batch.micro < 0) config->batch.micro = most > 1 ? most : 1;
    config->batch.sequences = config->batch.micro * l.ranks;
  }
  return tr_train_plan_step(config, options, plan);
}

// Names the work, so that only the same is compared: the shape of the model rather than where it comes from, as settings may
// change every part of it. What may make it faster (types apart) is left out.
static void describe(const settings *s, const tr_options *options, const tr_train_plan *plan, char *out,
                     size_t nbyte) {
  const tr_train_config *c = plan->config;
  const int whole = tr_options_is_set(options, "batch.sequences");
  const tr_arch_sizes *m = &plan->sizes;
  char pipeline[64] = "";
  if (plan->schedule.p) snprintf(pipeline, sizeof pipeline, ", pp %d %s", plan->schedule.p, plan->schedule.name);
  snprintf(out, nbyte,
           "%.80s (%lld layer%s x %lld, %lld heads, vocabulary %lld, %lld parameters), %s, sequence %lld, "
           "%lld sequence%s per %s%s",
           *s->train.model.from ? s->train.model.from : m->name, (long long)m->layers, m->layers == 1 ? "" : "s",
           (long long)m->width, (long long)m->heads, (long long)m->vocab, (long long)tr_model_count(plan->model),
           c->precision.compute == TR_COMPUTE_BF16 ? "bf16" : "f32", (long long)c->data.sequence,
           (long long)(whole ? c->batch.sequences : c->batch.micro),
           (whole ? c->batch.sequences : c->batch.micro) == 1 ? "" : "s", whole ? "step" : "rank and step", pipeline);
}

static tr_status report_layout(const settings *s, row *r, const tr_train_plan *plan, double speedup,
                               tr__bench_report *report) {
  digest(r, plan);
  const double flops = r->tokens * tr_model_flops(plan->model, plan->config->data.sequence);
  const double core = r->peak[r->m.npeak / 2] / (double)(plan->config->run.ranks * plan->nthread);
  if (core > report->peak) report->peak = core;
  if (!s->bench.json) print_row(r, flops, speedup);
  return tr__bench_add(report, row_json(r, plan, flops, speedup));
}

// One round of layout `at`; in the last one it is reported. *base: the first layout of one core so far, -1: none.
static tr_status measure_layout(const settings *s, const tr_options *options, const layout *list, int at, row *rows,
                                int *base, tr__bench_report *report) {
  const layout l = list[at];
  tr_train_config config;
  tr_train_plan plan;
  TR_TRY(plan_layout(s, options, l, &config, &plan));
  tr_status status = run_round(&plan, &rows[at]);
  if (status == TR_OK && rows[at].nround == s->bench.rounds) {
    double speedup = 0;
    if (l.ranks * l.threads == 1 && *base < 0) *base = at;
    if (l.ranks * l.threads > 1 && *base >= 0) speedup = speedup_of(&rows[at], &rows[*base]);
    status = report_layout(s, &rows[at], &plan, speedup, report);
  }
  tr_train_plan_destroy(&plan);
  return status;
}

static tr_status measure_rounds(const settings *s, const tr_options *options, const layout *list, int n,
                                tr__bench_report *report) {
  tr_status status = TR_OK;
  int base = -1;
  row *rows = calloc((size_t)n, sizeof *rows);
  if (!rows) return tr_error(TR_ERR_MEMORY, "no memory for the times of a benchmark");
  for (int64_t round = 0; round < s->bench.rounds; round++)
    for (int i = 0; i < n && status == TR_OK; i++) status = measure_layout(s, options, list, i, rows, &base, report);
  free(rows);
  return status;
}

static tr_status measure_all(const settings *s, const tr_options *options) {
  layout list[LAYOUTS_MOST];
  int n = 0;
  tr_train_config config;
  tr_train_plan plan;
  tr__bench_report report;
  char subject[256];
  TR_TRY(choose_layouts(s, options, list, &n));
  TR_TRY(plan_layout(s, options, list[0], &config, &plan));
  describe(s, options, &plan, subject, sizeof subject);
  tr_status status = tr__bench_open(&report, "step", subject, &s->bench, options);
  report.part = tr_options_is_set(options, "bench.layouts") || tr_options_is_set(options, "run.ranks") ||
                tr_options_is_set(options, "run.threads");
  if (status == TR_OK && !s->bench.json) print_head(&plan, subject);
  tr_train_plan_destroy(&plan);
  if (status == TR_OK) status = measure_rounds(s, options, list, n, &report);
  if (status == TR_OK) status = tr__bench_finish(&report);
  tr__bench_close(&report);
  return status;
}

// ---- a description

static tr_status describe_machine(const settings *s, const tr_options *options) {
  static const char *const once[] = {"name", "hosts", "host_devices", "source", NULL};
  const int cores = tr_cpu_count();
  int shape[LAYOUTS_MOST][2] = {{1, 1}, {cores, 1}, {1, cores}};
  tr__describe_job job = {.layout = shape, .nlayout = cores > 1 ? 3 : 1, .types = 3};
  layout chosen[LAYOUTS_MOST];
  tr_text text = {0};
  if (tr_options_is_set(options, "bench.layouts")) {
    TR_TRY(choose_layouts(s, options, chosen, &job.nlayout));
    for (int i = 0; i < job.nlayout; i++) shape[i][0] = chosen[i].ranks, shape[i][1] = chosen[i].threads;
  }
  if (tr_options_is_set(options, "precision.compute"))
    job.types = s->train.precision.compute == TR_COMPUTE_BF16 ? 2 : 1;
  if (tr_options_is_set(options, "train.steps")) job.steps = (int)s->train.train.steps;
  TR_TRY(tr_file_prove(s->bench.write));
  tr_status status = tr__describe_device(&text);
  if (status == TR_OK) status = tr__describe_kernels(&job, &text);
  if (status == TR_OK && text.failed) status = tr_error(TR_ERR_MEMORY, "no memory for a description");
  if (status == TR_OK) status = tr__description_put(s->bench.write, text.data, once);
  if (status == TR_OK) printf("written: %s\n", s->bench.write);
  tr_text_free(&text);
  return status;
}

int tr__cli_bench_step(int argc, char **argv) {
  static const size_t common = TR__BENCH_KERNEL;
  settings s = {.bench = {.json = 0}};
  tr_options *options = NULL;
  tr_option *table = calloc(tr_train_option_count + common, sizeof *table);
  tr_status status = table ? TR_OK : tr_error(TR_ERR_MEMORY, "no memory for a table of options");
  for (size_t i = 0; table && i < tr_train_option_count + common; i++) {
    table[i] = i < tr_train_option_count ? tr_train_options[i] : tr__bench_options[i - tr_train_option_count];
    if (i >= tr_train_option_count) table[i].offset += offsetof(settings, bench);
  }
  if (status == TR_OK) status = tr_options_create(table, tr_train_option_count + common, &s, &options);
  if (status == TR_OK) status = read_settings(argc, argv, &s, options);
  if (status == TR_OK)
    status = tr__is_description(s.bench.write) ? describe_machine(&s, options) : measure_all(&s, options);
  const int exit_code = status < 0 ? tr__cli_fail(status) : 0;
  tr_options_destroy(options);
  free(table);
  return exit_code;
}
