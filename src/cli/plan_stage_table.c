// SPDX-License-Identifier: MIT
// `trireme plan stages`: where a pipeline cuts a model (step/stages.h), with what each stage takes and how uneven they are.
#include "cli/cli_internal.h"
#include "cli/plan_case_internal.h"
#include "cli/plan_words_internal.h"
#include "trireme/plan/stage_parts.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BY_FLOPS, BY_TIME, BY_MEMORY, STAGES_MOST = 4096 };

typedef struct request {
  const char *model, *schedule, *layers, *cluster;
  int64_t p, v, m, sequence, micro;
  double memory;
  int by, type, json;
} request;

static tr_status print_help(void) {
  printf(
      "usage: trireme plan stages --model M -p RANKS [options]\n\n"
      "Where a pipeline cuts a model: the embedding, each layer and the head go to one stage whole.\n\n"
      "  --model M            a preset (presets/models), a config.json or the folder of one\n"
      "  -p N                 ranks of the pipeline\n"
      "  --schedule S         1f1b (the default), gpipe, interleaved, zb_h1, zbv, dualpipe, ..., or a file of "
      "tokens,\n"
      "                       which has its own p, v and m\n"
      "  -v N -m N            stages per rank (as the schedule has it), micro-batches (2 p)\n"
      "  --by flops|time|memory    what the largest stage has least of (flops)\n"
      "  --layers 4,3,3,2     no search: these layers, stage by stage\n"
      "  --memory BYTES       of a rank: none may take more\n"
      "  --seq N --micro N    tokens per sequence (1024, or what the model takes), sequences per micro-batch (1)\n"
      "  --precision P        bf16 (the default) or f32: bytes of weights, states and activations\n"
      "  --cluster C          the time on it, for --by time: a preset (presets/clusters, presets/devices) or a file\n"
      "  --json               one JSON object\n\n"
      "examples: trireme plan stages --model gpt2 -p 4 -m 8\n"
      "          trireme plan stages --model llama3-8b -p 4 -v 2 --schedule interleaved --by time --cluster "
      "dgx-h100\n");
  return TR_OK;
}

static tr_status check_request(const request *r) {
  if (!r->model) return tr__cli_usage("plan stages", "--model is missing: a preset, a config.json or a folder");
  if (tr__cli_is_schedule_file(r->schedule) && (r->p || r->v || r->m))
    return tr__cli_usage("plan stages", "-p, -v and -m are in the file %.80s; leave them out", r->schedule);
  if (!tr__cli_is_schedule_file(r->schedule) && !r->p)
    return tr__cli_usage("plan stages", "-p is missing: ranks of the pipeline");
  if (r->by == BY_TIME && !r->cluster)
    return tr__cli_usage("plan stages", "--by time needs a --cluster whose time it is, as in --cluster dgx-h100");
  if (r->cluster && r->type)
    return tr__cli_usage("plan stages", "times of --cluster are those of bf16; leave out --precision f32");
  return TR_OK;
}

static tr_status parse(int argc, char **argv, request *r) {
  *r = (request){.schedule = "1f1b", .micro = 1};
  const tr__argument table[] = {
      {.name = "--model", .kind = TR__ARGUMENT_TEXT, .out = &r->model},
      {.name = "--schedule", .kind = TR__ARGUMENT_TEXT, .out = &r->schedule},
      {.name = "--layers", .kind = TR__ARGUMENT_TEXT, .out = &r->layers},
      {.name = "--cluster", .kind = TR__ARGUMENT_TEXT, .out = &r->cluster},
      {.name = "-p", .kind = TR__ARGUMENT_COUNT, .out = &r->p, .min = 1, .max = STAGES_MOST},
      {.name = "-v", .kind = TR__ARGUMENT_COUNT, .out = &r->v, .min = 1, .max = STAGES_MOST},
      {.name = "-m", .kind = TR__ARGUMENT_COUNT, .out = &r->m, .min = 1, .max = TR_STEP_MICROBATCHES},
      {.name = "--seq", .kind = TR__ARGUMENT_COUNT, .out = &r->sequence, .min = 1, .max = 1 << 28},
      {.name = "--micro", .kind = TR__ARGUMENT_COUNT, .out = &r->micro, .min = 1, .max = 1 << 20},
      {.name = "--memory", .kind = TR__ARGUMENT_AMOUNT, .out = &r->memory, .min = 1, .max = 1e15},
      {.name = "--by", .kind = TR__ARGUMENT_CHOICE, .out = &r->by, .choices = {"flops", "time", "memory", NULL}},
      {.name = "--precision", .kind = TR__ARGUMENT_CHOICE, .out = &r->type, .choices = {"bf16", "f32", NULL}},
      {.name = "--json", .kind = TR__ARGUMENT_FLAG, .out = &r->json}};
  TR_TRY(tr__plan_options("stages", argc, argv, table, sizeof table / sizeof *table));
  return check_request(r);
}

// ---- what is asked

static tr_status load_schedule(const request *r, tr_schedule *out) {
  if (tr__cli_is_schedule_file(r->schedule)) return tr_schedule_read(r->schedule, out);
  int64_t m = r->m ? r->m : 2 * r->p < TR_STEP_MICROBATCHES ? 2 * r->p : TR_STEP_MICROBATCHES;
  const tr_schedule_spec spec = {.name = r->schedule, .p = (int)r->p, .v = (int)r->v, .m = (int)m};
  return tr_schedule_build(&spec, out);
}

static tr_status set_sequence(const request *r, const tr_model *model, int64_t *sequence) {
  int64_t most = tr_model_positions(model);
  *sequence = r->sequence ? r->sequence : most < 1024 ? most : 1024;
  if (*sequence <= most) return TR_OK;
  return tr_error(TR_ERR_PLAN, "--seq %lld is longer than the %lld tokens that %.80s takes", (long long)*sequence,
                  (long long)most, r->model);
}

// ---- the report

typedef struct answer {
  const request *r;
  tr_stage_problem problem;
  const tr_stage_parts *parts;
  int *bound;
  tr_stage_sum *stage;
  double *rank_bytes;
  int64_t sequence;
} answer;

enum { COLUMNS_MOST = 12 };
typedef struct row {
  tr__plan_column column[COLUMNS_MOST]; // ends with a column of NULL
  double value[COLUMNS_MOST];
  int n;
} row;

static void add(row *to, const char *title, const char *key, tr__plan_unit unit, double value) {
  to->column[to->n] = (tr__plan_column){title, key, unit};
  to->value[to->n++] = value;
}

// Columns that would be empty are left out: a stage's second rank, times without a cluster.
static row row_of(const answer *a, int stage) {
  const tr_schedule *s = a->problem.schedule;
  const tr_stage_sum *x = &a->stage[stage];
  double params = 0, flops = 0;
  row out = {.n = 0};
  for (int k = a->bound[stage]; k < a->bound[stage + 1]; k++)
    params += a->parts->params[k], flops += a->parts->flops[k];
  add(&out, "stage", "stage", TR__PLAN_COUNT, stage);
  add(&out, "rank", "rank", TR__PLAN_COUNT, tr_schedule_rank(s, stage, 0));
  if (s->map == TR_STAGES_BOTH)
    add(&out, "and rank", "other_rank", TR__PLAN_COUNT, tr_schedule_rank(s, stage, s->m - 1));
  add(&out, "layers", "layers", TR__PLAN_COUNT, x->all.layers);
  add(&out, "parameters", "parameters", TR__PLAN_AMOUNT, params);
  add(&out, "FLOP", "flops", TR__PLAN_NUMBER, flops);
  if (a->r->cluster) add(&out, "time", "seconds", TR__PLAN_TIME, x->all.forward + x->all.backward);
  add(&out, "alive", "alive", TR__PLAN_COUNT, x->peak);
  add(&out, "activations", "activation_bytes", TR__PLAN_MEMORY, x->peak * x->all.activations);
  add(&out, "memory", "memory_bytes", TR__PLAN_MEMORY, x->bytes);
  return out;
}

static void report_stages(tr__plan_report *out, const answer *a) {
  row first = row_of(a, 0);
  tr__plan_table(out, "stages", first.column);
  for (int i = 0; i < a->problem.schedule->S; i++) tr__plan_row(out, NULL, row_of(a, i).value);
}

// The largest of a row of numbers over their mean, less 1; its place in *at.
static double imbalance(const double *value, int n, int *at) {
  double sum = 0;
  *at = 0;
  for (int i = 0; i < n; i++) {
    sum += value[i];
    if (value[i] > value[*at]) *at = i;
  }
  return sum > 0 ? value[*at] * n / sum - 1 : 0;
}

static void report_work(tr__plan_report *out, const answer *a, double *work, const char *what) {
  const tr_schedule *s = a->problem.schedule;
  char label[64];
  int at;
  for (int i = 0; i < s->S; i++) work[i] = a->stage[i].all.forward + a->stage[i].all.backward;
  double share = imbalance(work, s->S, &at);
  snprintf(label, sizeof label, "stage with the most %s", what);
  tr__plan_value(out, label, "largest_stage", TR__PLAN_COUNT, at);
  tr__plan_value(out, "above the mean", "imbalance", TR__PLAN_SHARE, share);
  if (s->v == 1) return;
  for (int r = 0; r < s->p; r++) work[r] = 0;
  for (int i = 0; i < s->S; i++)
    for (int half = 0; half < (s->map == TR_STAGES_BOTH ? 2 : 1); half++)
      work[tr_schedule_rank(s, i, half ? s->m - 1 : 0)] += a->stage[i].all.forward + a->stage[i].all.backward;
  share = imbalance(work, s->p, &at);
  snprintf(label, sizeof label, "rank with the most %s", what);
  tr__plan_value(out, label, "largest_rank", TR__PLAN_COUNT, at);
  tr__plan_value(out, "above the mean", "rank_imbalance", TR__PLAN_SHARE, share);
}

static tr_status report_balance(tr__plan_report *out, const answer *a) {
  const tr_schedule *s = a->problem.schedule;
  tr_text layers = {0};
  double *work = calloc((size_t)s->S, sizeof *work); // S >= p
  int at;
  if (!work) return tr_error(TR_ERR_MEMORY, "no memory for %d stages", s->S);
  for (int i = 0; i < s->S; i++) tr_text_append(&layers, "%s%d", i ? "," : "", a->stage[i].all.layers);
  tr__plan_head(out, "how uneven");
  tr__plan_text(out, "layers", "layers", layers.data ? layers.data : "");
  report_work(out, a, work, a->r->cluster ? "time" : "FLOP");
  double share = imbalance(a->rank_bytes, s->p, &at);
  tr__plan_value(out, "rank with the most memory", "fullest_rank", TR__PLAN_COUNT, at);
  tr__plan_value(out, "its memory", "rank_bytes", TR__PLAN_MEMORY, a->rank_bytes[at]);
  tr__plan_value(out, "above the mean", "memory_imbalance", TR__PLAN_SHARE, share);
  free(work);
  tr_text_free(&layers);
  return TR_OK;
}

static void set_json(tr__plan_report *out, const char *key, json_t *value) {
  if (json_object_set_new(out->root, key, value) != 0) out->failed = 1;
}

static void report_head(tr__plan_report *out, const answer *a) {
  const tr_schedule *s = a->problem.schedule;
  const request *r = a->r;
  tr__plan_head(out, "%.60s, %s: p %d, %d stage%s, m %d; %lld sequence%s of %lld token%s a micro-batch, %s", r->model,
                s->name, s->p, s->S, tr_text_plural(s->S, "s"), s->m, (long long)r->micro,
                tr_text_plural(r->micro, "s"), (long long)a->sequence, tr_text_plural(a->sequence, "s"),
                r->type ? "f32" : "bf16");
  set_json(out, "schedule", json_string(s->name));
  set_json(out, "p", json_integer(s->p));
  set_json(out, "v", json_integer(s->v));
  set_json(out, "m", json_integer(s->m));
  set_json(out, "sequence", json_integer(a->sequence));
}

static tr_status report(const answer *a) {
  tr__plan_report out;
  tr__plan_begin(&out, "stages", a->r->json);
  report_head(&out, a);
  report_stages(&out, a);
  tr_status status = report_balance(&out, a);
  if (status < 0) out.failed = 1;
  tr_status end = tr__plan_end(&out);
  return status < 0 ? status : end;
}

// ---- the answer

static tr_status solve(answer *a) {
  const request *r = a->r;
  const tr_stage_problem *x = &a->problem;
  size_t S = (size_t)x->schedule->S;
  a->bound = calloc(S + 1, sizeof *a->bound);
  a->stage = calloc(S, sizeof *a->stage);
  a->rank_bytes = calloc((size_t)x->schedule->p, sizeof *a->rank_bytes);
  tr_status status = TR_OK;
  if (!a->bound || !a->stage || !a->rank_bytes)
    status = tr_error(TR_ERR_MEMORY, "no memory for %zu stages", S);
  else
    status = r->layers ? tr_stages_count(x, r->layers, a->bound) : tr_stages_balance(x, a->bound);
  if (status == TR_OK) status = tr_stages_sum(x, a->bound, a->stage, a->rank_bytes);
  if (status == TR_OK) status = report(a);
  free(a->bound);
  free(a->stage);
  free(a->rank_bytes);
  return status;
}

static tr_status with_cluster(const request *r, const tr_model *model, const tr_workload *workload,
                              const tr_cluster *cluster, const tr_schedule *schedule) {
  tr_stage_parts parts;
  answer a = {.r = r, .parts = &parts};
  TR_TRY(set_sequence(r, model, &a.sequence));
  const tr_stage_parts_options options = {.sequence = a.sequence,
                                          .micro = r->micro,
                                          .type = r->type ? TR_F32 : TR_BF16,
                                          .schedule = schedule,
                                          .workload = workload,
                                          .cluster = cluster};
  TR_TRY(tr_stage_parts_make(model, &options, &parts));
  tr_stage_goal goal = r->by == BY_MEMORY ? TR_STAGES_MEMORY : TR_STAGES_WORK;
  a.problem = (tr_stage_problem){parts.part, parts.n, schedule, goal, r->memory};
  tr_status status = solve(&a);
  tr_stage_parts_destroy(&parts);
  return status;
}

static tr_status with_schedule(const request *r, const tr_model *model, const tr_workload *workload,
                               const tr_schedule *schedule) {
  tr_cluster cluster;
  if (!r->cluster) return with_cluster(r, model, workload, NULL, schedule);
  TR_TRY(tr__plan_cluster_load(r->cluster, 0, &cluster));
  tr_status status = with_cluster(r, model, workload, &cluster, schedule);
  tr_cluster_unload(&cluster);
  return status;
}

// Models that are planned but not built have no parts that could be counted.
static tr_status load_arch(const request *r, tr_arch *out) {
  tr_workload workload;
  int planned_only = 0;
  tr_status status = tr_arch_load(r->model, out, NULL, 0);
  if (status == TR_OK || tr_workload_load(r->model, &workload, &planned_only) < 0 || !planned_only) return status;
  return tr_error(TR_ERR_PLAN,
                  "%.80s is a model that train cannot build, so its parts are not known; trireme simulate --model "
                  "%.80s --layers balanced cuts it by predicted time",
                  r->model, r->model);
}

tr_status tr__plan_stage_table(int argc, char **argv) {
  if (tr__cli_wants_help(argc, argv)) return print_help();
  request r;
  tr_arch arch;
  tr_model *model;
  tr_schedule schedule;
  TR_TRY(parse(argc, argv, &r));
  TR_TRY(load_schedule(&r, &schedule));
  tr_status status = load_arch(&r, &arch);
  if (status == TR_OK) status = tr_arch_create(&arch, &model);
  if (status == TR_OK) {
    tr_workload workload = tr_workload_from_arch(&arch);
    status = with_schedule(&r, model, &workload, &schedule);
    tr_model_destroy(model);
  }
  tr_schedule_destroy(&schedule);
  return status;
}
