// SPDX-License-Identifier: MIT
// `trireme plan fit --cluster C`: every model by size, the first means that gets it onto the cluster (means.h), and what the fullest
// rank holds with each of them; and the largest model that each means can do.
#include "cli/cli_internal.h"
#include "cli/plan_case_internal.h"
#include "cli/plan_words_internal.h"
#include "trireme/base/preset.h"
#include "trireme/plan/means.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double GIB = 1073741824;

enum { MODELS = 128, VOCAB = 32000 };

typedef struct request {
  const char *cluster, *batch;
  int64_t sequence, devices;
  int number, json;
  tr__argument_list models;
} request;

typedef struct candidate {
  const char *name;
  char *owned; // NULL: the name is an argument
  tr_workload model;
  double params;
  tr_means_result with[TR_MEANS_COUNT];
} candidate;

typedef struct job {
  tr_cluster cluster;
  tr_means_job means;
  candidate *model;
  size_t n;
} job;

static tr_status print_help(void) {
  printf(
      "usage: trireme plan fit --cluster C [--model M ...] [--batch TOKENS] [--seq S] [--devices N]\n"
      "                        [--precision bf16|fp8] [--json]\n\n"
      "List what can be trained on a cluster and with which means, from whole copies to all that the search knows:\n"
      "for every model the first means with which it fits and its fastest plan, and the memory of the smallest plan "
      "with "
      "each;\n"
      "for every means the largest model.\n\n"
      "  --cluster C      a preset (presets/clusters) or a file; the name of a device means one host of it\n"
      "  --model M        a preset, a config.json or a folder; may be repeated (all presets)\n"
      "  --batch TOKENS   of a step, or sequences as in 1024seq (a sequence per device)\n"
      "  --seq S          tokens per sequence (4096)\n"
      "  --devices N      use N of the cluster's devices (all)\n"
      "  --precision P    bf16 (default) or fp8\n"
      "  --json           one JSON object\n\n"
      "examples:\n"
      "  trireme plan fit --cluster dgx-h100 --devices 64\n"
      "  trireme plan fit --cluster a100-sxm-80 --model llama-7b --model llama-13b --batch 32seq\n");
  return TR_OK;
}

static tr_status parse(int argc, char **argv, request *r) {
  *r = (request){.sequence = 4096};
  const tr__argument table[] = {
      {.name = "--cluster", .kind = TR__ARGUMENT_TEXT, .out = &r->cluster},
      {.name = "--model", .kind = TR__ARGUMENT_LIST, .out = &r->models},
      {.name = "--batch", .kind = TR__ARGUMENT_TEXT, .out = &r->batch},
      {.name = "--seq", .kind = TR__ARGUMENT_COUNT, .out = &r->sequence, .min = 1, .max = 1 << 28},
      {.name = "--devices", .kind = TR__ARGUMENT_COUNT, .out = &r->devices, .min = 1, .max = 1 << 24},
      {.name = "--precision", .kind = TR__ARGUMENT_CHOICE, .out = &r->number, .choices = {"bf16", "fp8", NULL}},
      {.name = "--json", .kind = TR__ARGUMENT_FLAG, .out = &r->json}};
  TR_TRY(tr__plan_options("fit", argc, argv, table, sizeof table / sizeof *table));
  if (!r->cluster) return tr__cli_usage("plan fit", "--cluster is missing: a preset or a file");
  return TR_OK;
}

// ---- the models

static tr_status load_models(const request *r, job *j) {
  char *preset[MODELS];
  size_t n = r->models.n ? r->models.n : tr_preset_list("models", ".json", preset, MODELS);
  tr_status status = TR_OK;
  j->model = calloc(n + 1, sizeof *j->model);
  if (!j->model) status = tr_error(TR_ERR_MEMORY, "no memory for %zu models", n);
  for (size_t i = 0; i < n; i++) {
    tr_workload model;
    char *owned = r->models.n ? NULL : preset[i];
    if (status == TR_OK) status = tr_workload_load(owned ? owned : r->models.item[i], &model, NULL);
    if (status < 0) {
      free(owned);
      continue;
    }
    candidate *c = &j->model[j->n++];
    *c = (candidate){.name = owned ? owned : r->models.item[i], .owned = owned, .model = model};
    c->params = tr_workload_params(&model);
    tr__plan_positions(r->sequence, &c->model);
  }
  if (status == TR_OK && n == 0) status = tr_error(TR_ERR_CONFIG, "no presets of models were found; give --model");
  return status;
}

static int by_size(const void *a, const void *b) {
  double x = ((const candidate *)a)->params, y = ((const candidate *)b)->params;
  return (x > y) - (x < y);
}

static tr_status try_all(job *j) {
  qsort(j->model, j->n, sizeof *j->model, by_size);
  for (size_t i = 0; i < j->n; i++)
    for (int m = 0; m < TR_MEANS_COUNT; m++)
      TR_TRY(tr_means_try((tr_means)m, &j->model[i].model, &j->cluster, &j->means, &j->model[i].with[m]));
  return TR_OK;
}

// ---- the report

static void name_model(const candidate *c, char *out, size_t nbyte) { snprintf(out, nbyte, "%.*s", 40, c->name); }

static int first_means(const candidate *c) {
  for (int m = 0; m < TR_MEANS_COUNT; m++)
    if (c->with[m].fits) return m;
  return -1;
}

// "26.2", in GiB; in parentheses what does not fit; "-" where the means does not exist here.
static void memory_cell(const tr_means_result *r, char *out, size_t nbyte) {
  if (!r->exists)
    snprintf(out, nbyte, "-");
  else
    snprintf(out, nbyte, r->fits ? "%.4g" : "(%.4g)", r->bytes / GIB);
}

static void print_wall(const job *j, tr_text *out) {
  tr_text_append(
      out,
      "\nGiB that the smallest plan with each means takes of a device's %.4g; in parentheses what does not "
      "fit\n  %-18s",
      j->cluster.device.memory_gib, "model");
  for (int m = 0; m < TR_MEANS_COUNT; m++) tr_text_append(out, " %*s", 17, tr_means_name((tr_means)m));
  tr_text_append(out, "\n");
  for (size_t i = 0; i < j->n; i++) {
    char name[48];
    name_model(&j->model[i], name, sizeof name);
    tr_text_append(out, "  %-18s", name);
    for (int m = 0; m < TR_MEANS_COUNT; m++) {
      char cell[24];
      memory_cell(&j->model[i].with[m], cell, sizeof cell);
      tr_text_append(out, " %*s", 17, cell);
    }
    tr_text_append(out, "\n");
  }
}

static void report_models(const job *j, tr__plan_report *out) {
  tr__plan_head(out, "models by size, and the first means with which each fits");
  tr_text_append(&out->text, "  %-18s %10s  %-17s %10s %10s %10s %6s  %s\n", "model", "parameters", "means", "memory",
                 "a step", "tok/s/dev", "MFU", "plan");
  for (size_t i = 0; i < j->n; i++) {
    const candidate *c = &j->model[i];
    int m = first_means(c);
    char name[48], params[32], plan[192];
    name_model(c, name, sizeof name);
    tr_format_count(params, sizeof params, c->params);
    if (m < 0) {
      tr_text_append(&out->text, "  %-18s %10s  nothing fits: the smallest plan lacks %.3g GiB\n", name, params,
                     c->with[TR_MEANS_ALL].bytes / GIB - j->cluster.device.memory_gib);
      continue;
    }
    const tr_means_result *r = &c->with[m];
    const tr_prediction *x = &r->entry.prediction;
    tr__plan_case_text(&r->entry.plan, plan, sizeof plan);
    tr_text_append(&out->text, "  %-18s %10s  %-17s %6.4g GiB %8.4g s %10.0f %4.1f %%  %s\n", name, params,
                   tr_means_name((tr_means)m), x->memory.process / GIB, x->step, x->tokens_per_device, 100 * x->mfu,
                   plan);
  }
  print_wall(j, &out->text);
}

static json_t *json_means(const tr_means_result *r, int m) {
  json_t *o = json_pack("{s:s, s:b, s:b, s:o}", "means", tr_means_name((tr_means)m), "exists", r->exists, "fits",
                        r->fits, "smallest_bytes", isfinite(r->bytes) ? json_real(r->bytes) : json_null());
  const tr_plan *p = &r->entry.plan;
  const tr_prediction *x = &r->entry.prediction;
  if (o && r->fits)
    json_object_update_new(o,
                           json_pack("{s:I,s:I,s:I,s:I,s:I,s:I,s:i,s:I,s:s,s:f,s:f,s:f}", "tp", p->tp, "pp", p->pp,
                                     "vpp", p->vpp, "dp", p->dp, "cp", p->cp, "ep", p->ep, "zero", p->zero, "micro",
                                     p->micro, "recompute", tr_plan_recompute_name(p->recompute), "step_s", x->step,
                                     "mfu", x->mfu, "tokens_per_s_per_device", x->tokens_per_device));
  return o;
}

static void add_json_models(const job *j, tr__plan_report *out) {
  json_t *models = json_array();
  for (size_t i = 0; i < j->n; i++) {
    const candidate *c = &j->model[i];
    int first = first_means(c);
    json_t *means = json_array();
    for (int m = 0; m < TR_MEANS_COUNT; m++) json_array_append_new(means, json_means(&c->with[m], m));
    json_array_append_new(
        models, json_pack("{s:s, s:f, s:o, s:o}", "model", c->name, "parameters", c->params, "first",
                          first < 0 ? json_null() : json_string(tr_means_name((tr_means)first)), "means", means));
  }
  if (json_object_set_new(out->root, "models", models) != 0) out->failed = 1;
}

static const candidate *largest_of(const job *j, int m) {
  for (size_t i = j->n; i-- > 0;)
    if (j->model[i].with[m].fits) return &j->model[i];
  return NULL;
}

static tr_status report_largest(const job *j, tr__plan_report *out) {
  json_t *list = json_array();
  tr__plan_head(out, "the largest model with each means");
  tr_text_append(&out->text, "  %-18s %-20s %12s %8s %8s   %s\n", "means", "of these", "at most", "layers", "width",
                 "what it is");
  for (int m = 0; m < TR_MEANS_COUNT; m++) {
    const candidate *c = largest_of(j, m);
    tr_workload most;
    char params[32] = "-", layers[32] = "-", width[32] = "-";
    TR_TRY(tr_means_largest((tr_means)m, &j->cluster, &j->means, VOCAB, &most));
    double n = most.layers ? tr_workload_params(&most) : 0;
    if (n > 0) {
      tr_format_count(params, sizeof params, n);
      snprintf(layers, sizeof layers, "%lld", (long long)most.layers);
      snprintf(width, sizeof width, "%lld", (long long)most.width);
    }
    tr_text_append(&out->text, "  %-18s %-20.40s %12s %8s %8s   %s\n", tr_means_name((tr_means)m), c ? c->name : "-",
                   params, layers, width, tr_means_about((tr_means)m));
    json_array_append_new(list, json_pack("{s:s, s:o, s:f, s:I, s:I}", "means", tr_means_name((tr_means)m), "model",
                                          c ? json_string(c->name) : json_null(), "parameters", n, "layers",
                                          most.layers, "width", most.width));
  }
  if (json_object_set_new(out->root, "largest", list) != 0) out->failed = 1;
  return TR_OK;
}

static tr_status answer(const request *r, job *j) {
  tr__plan_report out;
  int64_t devices = j->cluster.hosts * j->cluster.host_devices;
  j->means = (tr_means_job){r->sequence, devices, r->number == 1 ? TR_PLAN_FP8 : TR_PLAN_BF16};
  if (r->batch) TR_TRY(tr__plan_sequences("plan fit", r->batch, r->sequence, &j->means.batch));
  TR_TRY(load_models(r, j));
  TR_TRY(try_all(j));
  tr__plan_begin(&out, "fit", r->json);
  tr__plan_head(&out, "%s: %lld x %s, %lld per host, %.0f GiB each; %lld sequence%s of %lld token%s a step, %s",
                j->cluster.name, (long long)devices, j->cluster.device.name, (long long)j->cluster.host_devices,
                j->cluster.device.memory_gib, (long long)j->means.batch, tr_text_plural(j->means.batch, "s"),
                (long long)r->sequence, tr_text_plural(r->sequence, "s"), r->number == 1 ? "fp8" : "bf16");
  report_models(j, &out);
  add_json_models(j, &out);
  tr_status status = report_largest(j, &out), printed = tr__plan_end(&out);
  return status < 0 ? status : printed;
}

tr_status tr__plan_fit(int argc, char **argv) {
  request r;
  job j = {.n = 0};
  if (tr__cli_wants_help(argc, argv)) return print_help();
  TR_TRY(parse(argc, argv, &r));
  TR_TRY(tr__plan_cluster_load(r.cluster, r.devices, &j.cluster));
  tr_status status = answer(&r, &j);
  for (size_t i = 0; i < j.n; i++) free(j.model[i].owned);
  free(j.model);
  tr_cluster_unload(&j.cluster);
  return status;
}
