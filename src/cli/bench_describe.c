// SPDX-License-Identifier: MIT
// Prices of the library's kernels (plan/kernel_time.h), measured in steps of small models of several sizes.
//
// Two layers of each model are enough: a piece takes as long in every layer. Sizes are such that products go from far below to near
// their full rate, and activations from a core's own cache to beyond it. In a step a piece finds its operands where the piece before
// left them, which no benchmark of a kernel alone has. All is measured twice, one half after the other, so that a minute in which the
// machine is slower is not one layout's. With one thread per rank times are processor times, so that others on the machine count
// for little.
#include "cli/bench_describe_internal.h"
#include "trireme/base/clock.h"
#include "trireme/base/cpu.h"
#include "trireme/base/sort.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct shape {
  const char *kind;
  int width, heads, heads_kv, ffn, vocab, sequence, micro;
} shape;

static const shape shapes[] = {
    {"gpt2", 64, 2, 2, 256, 256, 64, 4},        {"gpt2", 128, 4, 4, 512, 256, 128, 2},
    {"gpt2", 128, 4, 4, 512, 256, 256, 8},      {"gpt2", 192, 6, 6, 768, 2048, 256, 2},
    {"gpt2", 256, 4, 4, 1024, 65, 64, 2},       {"gpt2", 384, 6, 6, 1536, 65, 256, 4},
    {"gpt2", 512, 8, 8, 2048, 8192, 256, 1},    {"gpt2", 768, 12, 12, 3072, 4096, 128, 1},
    {"llama", 64, 4, 2, 192, 512, 64, 4},       {"llama", 128, 4, 2, 352, 512, 256, 4},
    {"llama", 256, 4, 4, 704, 2048, 128, 2},    {"llama", 384, 6, 2, 1024, 512, 512, 1},
    {"llama", 768, 12, 12, 2048, 4096, 128, 1},
};
enum {
  SHAPES = sizeof shapes / sizeof *shapes,
  ACCUMULATION = 2,
  HALVES = 2,
  SETUPS = 32,
  CALLS = 1 << 16,
  ROWS = 1024
};
static const double measured_seconds = 0.15; // of each half

// A layout and type that is measured.
typedef struct setup {
  int ranks, threads;
  tr_dtype type;
} setup;

// A call that was seen: what it had to do and what it took, and by what its error counts.
typedef struct call {
  int setup;
  char kind[TR_KERNEL_KIND];
  tr_kernel_pass pass;
  tr_kernel_work work;
  double seconds, scale;
} call;

typedef struct survey {
  const tr__describe_job *job;
  setup setup[SETUPS];
  int nsetup;
  call *call; // [CALLS]
  size_t n;
  tr_kernel_rate *row; // [ROWS]
  size_t nrow;
  double step[SETUPS][HALVES * SHAPES], error[SETUPS * HALVES * SHAPES]; // of whole steps: seconds; as shares
  size_t nerror;
} survey;

// ---- one model

static tr_status set_count(tr_options *options, const char *key, int value) {
  char text[96];
  snprintf(text, sizeof text, "%s=%d", key, value);
  return tr_options_apply_argument(options, text);
}

static tr_status set_model(const shape *s, const setup *on, tr_options *options) {
  const struct {
    const char *key;
    int value;
  } count[] = {{"model.layers", 2},
               {"model.width", s->width},
               {"model.heads", s->heads},
               {"model.heads_kv", s->heads_kv},
               {"model.ffn", s->ffn},
               {"model.vocab", s->vocab},
               {"model.positions", s->sequence},
               {"model.dropout", 0},
               {"data.sequence", s->sequence},
               {"batch.micro", s->micro},
               {"batch.sequences", ACCUMULATION * s->micro * on->ranks},
               {"run.ranks", on->ranks},
               {"run.threads", on->threads}};
  char text[64];
  snprintf(text, sizeof text, "model.kind=%s", s->kind);
  TR_TRY(tr_options_apply_argument(options, text));
  for (size_t i = 0; i < sizeof count / sizeof *count; i++) TR_TRY(set_count(options, count[i].key, count[i].value));
  return tr_options_apply_argument(options, on->type == TR_BF16 ? "precision.compute=bf16" : "precision.compute=f32");
}

static void add_call(survey *v, int k, const char *kind, tr_kernel_pass pass, const tr_kernel_work *work,
                     double seconds, double scale) {
  if (v->n == CALLS || !(scale > 0)) return;
  call *c = &v->call[v->n++];
  *c = (call){.setup = k, .pass = pass, .work = *work, .seconds = seconds, .scale = scale};
  snprintf(c->kind, sizeof c->kind, "%s", kind);
}

// All calls of a step; what is left of it is its own.
static void add_calls(survey *v, int k, const tr_runtime_plan *p, const tr__bench_samples *s) {
  const tr_runtime_part *part = p->part;
  const double step = tr__bench_sample_median(&s->step);
  double rest = step;
  for (int i = 0; i < tr_model_pieces(part->model); i++)
    for (int pass = 0; pass < TR_KERNEL_PASSES; pass++) {
      const double t = tr__bench_sample_median(&s->piece[i][pass]);
      const tr_kernel_work work = tr_piece_work(part->model, i, p->type, p->rows, p->sequence);
      rest -= ACCUMULATION * t;
      add_call(v, k, tr_model_piece(part->model, i)->ops->kind, (tr_kernel_pass)pass, &work, t, t);
    }
  for (uint32_t i = 0; i < part->program->nop && i < TR__SAMPLE_OPS; i++) {
    const char *kind;
    const double t = tr__bench_sample_median(&s->op[i]);
    const tr_kernel_work work = tr_runtime_state_work(p, 0, &part->program->op[i], &kind);
    rest -= t;
    if (kind) add_call(v, k, kind, TR_KERNEL_FORWARD, &work, t, t);
  }
  const tr_kernel_work work = tr_runtime_step_work(p, 0);
  add_call(v, k, "step", TR_KERNEL_FORWARD, &work, fmax(rest, 0), step);
}

// What the prices say of a step that was measured.
static tr_status check_step(survey *v, const tr_runtime_plan *p, double measured) {
  const tr_kernel_rates rates = {v->row, v->nrow};
  const tr_cluster none = {.hosts = 1, .host_devices = 1};
  double term[TR_TERM_COUNT], step;
  TR_TRY(tr_runtime_time(p, &rates, &none, term, &step));
  v->error[v->nerror++] = fabs(step / measured - 1);
  return TR_OK;
}

// With the kth setup. `fitted`: the prices are there, and are held against *step.
static tr_status visit(survey *v, int k, const shape *s, double *step, int fitted) {
  tr_train_config config;
  tr_train_plan plan;
  tr_options *options = NULL;
  tr__bench_samples *samples = malloc(sizeof *samples);
  if (!samples) return tr_error(TR_ERR_MEMORY, "no memory for the times of a benchmark");
  tr_status status = tr_train_config_open(&config, &options);
  if (status == TR_OK) status = set_model(s, &v->setup[k], options);
  config.checkpoint.background = 0; // nothing is saved
  config.train.steps = v->job->steps;
  if (status == TR_OK) status = tr_train_plan_step(&config, options, &plan);
  if (status == TR_OK) {
    tr_runtime_part part[1];
    tr_runtime_plan runtime;
    tr_train_runtime(&plan, part, &runtime);
    if (fitted) {
      status = check_step(v, &runtime, *step);
    } else {
      status = tr__bench_sampled(&plan, measured_seconds, samples);
      *step = tr__bench_sample_median(&samples->step);
      if (status == TR_OK) add_calls(v, k, &runtime, samples);
    }
    tr_train_plan_destroy(&plan);
  }
  tr_options_destroy(options);
  free(samples);
  return status;
}

// ---- prices

static int same_kind(const call *a, const call *b) {
  return a->setup == b->setup && a->pass == b->pass && strcmp(a->kind, b->kind) == 0;
}

// The calls of the same kind as the first, which are moved to the end of the list and off it.
static tr_status fit_kind(survey *v, tr_kernel_work *work, double *seconds, double *scale) {
  const call first = v->call[0];
  size_t left = 0, n = 0;
  for (size_t i = 0; i < v->n; i++) {
    const call *c = &v->call[i];
    if (!same_kind(c, &first)) {
      v->call[left++] = *c;
      continue;
    }
    work[n] = c->work, seconds[n] = c->seconds, scale[n++] = c->scale;
  }
  v->n = left;
  if (v->nrow == ROWS) return tr_error(TR_ERR_INTERNAL, "more than %d kinds of kernels", ROWS);
  tr_kernel_rate *row = &v->row[v->nrow++];
  const setup *on = &v->setup[first.setup];
  *row = (tr_kernel_rate){.pass = first.pass, .type = on->type, .ranks = on->ranks, .threads = on->threads};
  snprintf(row->kind, sizeof row->kind, "%s", first.kind);
  return tr_kernel_fit(work, seconds, scale, n, row);
}

static tr_status fit_all(survey *v) {
  tr_kernel_work *work = malloc(CALLS * sizeof *work);
  double *seconds = malloc(2 * CALLS * sizeof *seconds);
  tr_status status = work && seconds ? TR_OK : tr_error(TR_ERR_MEMORY, "no memory for %d calls", CALLS);
  while (status == TR_OK && v->n > 0) status = fit_kind(v, work, seconds, seconds + CALLS);
  free(work);
  free(seconds);
  return status;
}

static tr_status measure_half(survey *v, int half) {
  for (int k = 0; k < v->nsetup; k++) {
    const setup *on = &v->setup[k];
    for (int i = 0; i < SHAPES; i++) TR_TRY(visit(v, k, &shapes[i], &v->step[k][half * SHAPES + i], 0));
    if (v->job->quiet) continue;
    printf("%d x %d, %-4s  steps of %d models, %s half\n", on->ranks, on->threads, tr_dtype_name(on->type), SHAPES,
           half ? "second" : "first");
    fflush(stdout);
  }
  return TR_OK;
}

static tr_status check_setup(survey *v, int k) {
  enum { STEPS = HALVES * SHAPES };
  double *error = v->error + v->nerror;
  const setup *on = &v->setup[k];
  for (int i = 0; i < STEPS; i++) TR_TRY(visit(v, k, &shapes[i % SHAPES], &v->step[k][i], 1));
  tr_sort_doubles(error, STEPS);
  if (!v->job->quiet)
    printf("%d x %d, %-4s  the prices give half of these steps within %.1f %%, nine in ten within %.1f %%\n",
           on->ranks, on->threads, tr_dtype_name(on->type), 100 * error[STEPS / 2], 100 * error[STEPS * 9 / 10]);
  return TR_OK;
}

static tr_status survey_all(survey *v) {
  for (int half = 0; half < HALVES; half++) TR_TRY(measure_half(v, half));
  TR_TRY(fit_all(v));
  for (int k = 0; k < v->nsetup; k++) TR_TRY(check_setup(v, k));
  return TR_OK;
}

// ---- text

static void append_row(const tr_kernel_rate *r, tr_text *out) {
  tr_text_append(out, "    - {kind: %s, pass: %s, type: %s, ranks: %d, threads: %d", r->kind,
                 tr_kernel_pass_name(r->pass), tr_dtype_name(r->type), r->ranks, r->threads);
  for (int j = 0; j < TR_KERNEL_TERMS; j++)
    if (r->price[j] > 1e-18) tr_text_append(out, ", %s: %.4g", tr_kernel_term[j], r->price[j]);
  tr_text_append(out, ", error: %.3f}\n", r->error);
}

static void append_section(survey *v, tr_text *out) {
  char cpu[128], now[32];
  tr_cpu_name(cpu, sizeof cpu);
  tr_clock_utc(now, sizeof now);
  tr_sort_doubles(v->error, v->nerror);
  const double median = v->nerror ? v->error[v->nerror / 2] : 0, p90 = v->nerror ? v->error[v->nerror * 9 / 10] : 0;
  tr_text_append(out,
                 "kernels: # seconds per call, element, FLOP ...; with so many ranks of so many threads at once\n"
                 "  source: \"trireme bench step, steps of %d models with each layout and type, %s, %s, %s\"\n"
                 "  median: %.4f # error of these steps with these prices\n  p90: %.4f\n  prices:\n",
                 SHAPES, cpu, tr_isa_name(tr_cpu_isa()), now, median, p90);
  for (size_t i = 0; i < v->nrow; i++) append_row(&v->row[i], out);
}

static void add_setup(survey *v, setup s) {
  for (int k = 0; k < v->nsetup; k++)
    if (v->setup[k].ranks == s.ranks && v->setup[k].threads == s.threads && v->setup[k].type == s.type) return;
  v->setup[v->nsetup++] = s;
}

tr_status tr__describe_kernels(const tr__describe_job *job, tr_text *out) {
  static const tr_dtype type[] = {TR_F32, TR_BF16};
  survey *v = calloc(1, sizeof *v);
  if (!v) return tr_error(TR_ERR_MEMORY, "no memory for a description");
  v->job = job;
  v->call = malloc(CALLS * sizeof *v->call);
  v->row = malloc(ROWS * sizeof *v->row);
  tr_status status = v->call && v->row ? TR_OK : tr_error(TR_ERR_MEMORY, "no memory for %d calls", CALLS);
  for (int k = 0; k < job->nlayout; k++)
    for (int i = 0; i < 2; i++)
      if (job->types >> i & 1) add_setup(v, (setup){job->layout[k][0], job->layout[k][1], type[i]});
  if (status == TR_OK) status = survey_all(v);
  if (status == TR_OK) append_section(v, out);
  free(v->call);
  free(v->row);
  free(v);
  return status;
}
