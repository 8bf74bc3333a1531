// SPDX-License-Identifier: MIT
// `trireme plan train`: what `trireme train` takes with the same settings on a machine whose kernels were measured (`trireme bench
// --write`): the step programs that it would run, at those prices, and the memory that it lays out (plan/runtime.h). The other words
// predict any program on any device by its description; this one predicts ours.
#include "cli/arguments_internal.h"
#include "cli/cli_internal.h"
#include "cli/plan_words_internal.h"
#include "trireme/base/yaml.h"
#include "trireme/train/config.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static tr_status print_help(void) {
  printf(
      "usage: trireme plan train [RUN.yaml ...] [-n RANKS] [key=value ...] --cluster C.yaml [--json]\n\n"
      "What a step of trireme train takes with these settings, and the memory of the job, on a machine that\n"
      "trireme bench --write has measured: its step programs operation by operation, at the prices of its kernels.\n"
      "Nothing is run. Settings are those of trireme train; plan.cluster of a run file stands for --cluster.\n\n"
      "example:\n"
      "  trireme bench --write here.yaml && \\\n"
      "  trireme plan train model=gpt2-char batch.sequences=8 batch.micro=2 -n 2 --cluster here.yaml\n");
  return TR_OK;
}

// ---- what is asked

typedef struct request {
  const char *cluster;
  int json;
  tr_train_config config;
  tr_options *options;
} request;

// Takes --cluster out of the arguments: the rest is what trireme train takes.
static tr_status take_cluster(request *r, int *argc, char **argv) {
  int n = 1;
  for (int i = 1; i < *argc; i++) {
    const char *value;
    if (!tr__cli_option(*argc, argv, &i, "--cluster", &value)) {
      argv[n++] = argv[i];
      continue;
    }
    if (!value) return tr__cli_usage("plan train", "--cluster needs a value");
    r->cluster = value;
  }
  *argc = n;
  return TR_OK;
}

static tr_status read_request(request *r, int argc, char **argv) {
  const tr__argument flags[] = {{.name = "--json", .kind = TR__ARGUMENT_FLAG, .out = &r->json}};
  TR_TRY(take_cluster(r, &argc, argv));
  TR_TRY(tr_train_config_open(&r->config, &r->options));
  TR_TRY(tr__cli_settings("plan train", r->options, argc, argv, flags, 1, NULL));
  const tr_yaml_node *plan = tr_options_subtree(r->options, "plan"),
                     *cluster = plan ? tr_yaml_find(plan, "cluster") : NULL;
  if (!r->cluster && cluster && cluster->kind == TR_YAML_SCALAR) r->cluster = cluster->value;
  if (r->cluster) return TR_OK;
  return tr__cli_usage("plan train", "--cluster is missing: a file that trireme bench --write has made");
}

// ---- the answer

typedef struct answer {
  const tr_train_plan *plan;
  const tr_cluster *cluster;
  double step, term[TR_TERM_COUNT];
  tr_runtime_memory memory; // of the largest rank
} answer;

static tr_status predict(answer *a) {
  const tr_train_plan *plan = a->plan;
  tr_runtime_plan runtime;
  tr_runtime_part *part = calloc((size_t)plan->mesh.degree[TR_AXIS_PP], sizeof *part);
  if (!part) return tr_error(TR_ERR_MEMORY, "no memory for the parts of a plan");
  tr_train_runtime(plan, part, &runtime);
  tr_status status = tr_runtime_time(&runtime, &a->cluster->kernels, a->cluster, a->term, &a->step);
  if (status == TR_OK) status = tr_runtime_memory_of(&runtime, plan->largest, &a->memory);
  free(part);
  return status;
}

static double peak_of(const answer *a) {
  const tr_train_config *c = a->plan->config;
  const tr_device *d = &a->cluster->device;
  const double core = c->precision.compute == TR_COMPUTE_BF16 ? d->peak_bf16 : d->peak_f32;
  return core > 0 ? 1e12 * core * (double)c->run.ranks * a->plan->nthread : NAN;
}

static void report_step(tr__plan_report *out, const answer *a, const request *r) {
  const tr_train_config *c = &r->config;
  const double tokens = (double)(c->batch.sequences * c->data.sequence) / a->step;
  const double flops = tokens * tr_model_flops(a->plan->model, c->data.sequence);
  char params[32];
  tr_format_count(params, sizeof params, (double)tr_model_count(a->plan->model));
  tr__plan_head(out, "%s, %s parameters: %lld x %d on %s, %lld sequence%s of %lld token%s",
                *c->model.from ? c->model.from : a->plan->sizes.name, params, (long long)c->run.ranks,
                a->plan->nthread, a->cluster->name, (long long)c->batch.sequences,
                tr_text_plural(c->batch.sequences, "s"), (long long)c->data.sequence,
                tr_text_plural(c->data.sequence, "s"));
  tr__plan_value(out, "step", "step_s", TR__PLAN_TIME, a->step);
  tr__plan_value(out, "nine in ten such steps take at least", "step_low_s", TR__PLAN_TIME,
                 a->step / (1 + a->cluster->kernels_p90));
  tr__plan_value(out, "and at most", "step_high_s", TR__PLAN_TIME, a->step * (1 + a->cluster->kernels_p90));
  tr__plan_value(out, "tokens per second", "tokens_per_s", TR__PLAN_NUMBER, tokens);
  tr__plan_value(out, "MFU", "mfu", TR__PLAN_SHARE, flops / peak_of(a));
  tr__plan_value(out, "memory of the largest rank, its own", "memory_bytes", TR__PLAN_MEMORY,
                 (double)a->plan->rank_nbyte);
  tr__plan_value(out, "memory of all ranks", "memory_total", TR__PLAN_MEMORY, (double)a->plan->total_nbyte);
}

// Of the largest rank, with what it and others have together.
static void report_items(tr__plan_report *out, const answer *a) {
  static const tr__plan_column column[] = {{"memory", "item", TR__PLAN_NUMBER},
                                           {"largest rank", "bytes", TR__PLAN_MEMORY},
                                           {"share", "share", TR__PLAN_SHARE},
                                           {0}};
  const double all = (double)(a->plan->rank_nbyte + a->plan->part[a->plan->largest].once_nbyte);
  double rest = all;
  tr__plan_table(out, "memory", column);
  for (int i = 0; i < TR_ITEM_COUNT; i++) {
    const double item = (double)a->memory.item[i];
    if (item > 0) tr__plan_row(out, tr_memory_item_name(i), (double[]){item, item / all});
    rest -= item;
  }
  tr__plan_row(out, "batches, saves", (double[]){rest, rest / all});
}

static tr_status answer_plan(const request *r, const tr_train_plan *plan, const tr_cluster *cluster) {
  answer a = {.plan = plan, .cluster = cluster};
  tr__plan_report out;
  TR_TRY(predict(&a));
  tr__plan_begin(&out, "train", r->json);
  report_step(&out, &a, r);
  tr__plan_terms(&out, a.term, a.step);
  report_items(&out, &a);
  return tr__plan_end(&out);
}

// As trireme train makes it; without data where none are named.
static tr_status make_plan(const request *r, tr_train_plan *out) {
  return *r->config.data.path ? tr_train_plan_make(&r->config, r->options, 0, out)
                              : tr_train_plan_step(&r->config, r->options, out);
}

static tr_status answer_request(const request *r) {
  tr_cluster cluster;
  tr_train_plan plan;
  TR_TRY(tr_cluster_load(r->cluster, &cluster));
  tr_status status = TR_OK;
  if (cluster.kernels.n == 0)
    status = tr_error(TR_ERR_CONFIG,
                      "%.200s has no kernels: trireme bench step --write FILE.yaml measures those of this machine",
                      r->cluster);
  if (status == TR_OK) status = make_plan(r, &plan);
  if (status == TR_OK) {
    status = answer_plan(r, &plan, &cluster);
    tr_train_plan_destroy(&plan);
  }
  tr_cluster_unload(&cluster);
  return status;
}

tr_status tr__plan_train(int argc, char **argv) {
  request r = {0};
  if (tr__cli_wants_help(argc, argv)) return print_help();
  tr_status status = read_request(&r, argc, argv);
  if (status == TR_OK) status = answer_request(&r);
  tr_options_destroy(r.options);
  return status;
}
