// SPDX-License-Identifier: MIT
// Reading a plan from run files (plan_case_internal.h). The fields are those of train's own table, with the ranges of all
// plans instead of those that this version trains, so that names, aliases and messages are the same.
#include "cli/arguments_internal.h"
#include "cli/cli_internal.h"
#include "cli/plan_case_internal.h"
#include "trireme/base/text.h"
#include "trireme/base/yaml.h"
#include "trireme/plan/pipeline.h"
#include "trireme/train/config.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEGREE_MOST = 1 << 24, BATCH_MOST = 1 << 28, MICRO_MOST = 64 };
enum { COMPUTE_F32 = 0, COMPUTE_BF16 = 1, COMPUTE_FP8 = 2 };

// ---- words

// As in train's settings; "parts" was its name here.
int tr__plan_recompute_of(const char *name) {
  if (strcmp(name, "parts") == 0) return TR_PLAN_RECOMPUTE_PARTS;
  for (int i = 0; i < TR_PLAN_RECOMPUTE_COUNT; i++)
    if (strcmp(name, tr_plan_recompute_name((tr_plan_recompute)i)) == 0) return i;
  return -1;
}

void tr__plan_case_text(const tr_plan *p, char *out, size_t nbyte) {
  char map[32];
  tr__plan_map_text(p, map, sizeof map);
  snprintf(out, nbyte,
           "tp %lld, pp %lld, vpp %lld, dp %lld, cp %lld, ep %lld, zero %d, micro %lld, recompute %s, order %s",
           (long long)p->tp, (long long)p->pp, (long long)p->vpp, (long long)p->dp, (long long)p->cp,
           (long long)p->ep, p->zero, (long long)p->micro, tr_plan_recompute_name(p->recompute), map);
  size_t n = strlen(out);
  if (p->schedule && n < nbyte) snprintf(out + n, nbyte - n, ", schedule %s", p->schedule);
}

// ---- clusters

static tr_status cut_cluster(int64_t devices, tr_cluster *c) {
  if (devices > c->hosts * c->host_devices)
    return tr_error(TR_ERR_PLAN, "%lld devices are asked for; %s has %lld", (long long)devices, c->name,
                    (long long)(c->hosts * c->host_devices));
  if (devices < c->host_devices) c->host_devices = devices;
  if (devices % c->host_devices != 0)
    return tr_error(TR_ERR_PLAN, "%lld devices are asked for; whole hosts have a multiple of %lld",
                    (long long)devices, (long long)c->host_devices);
  c->hosts = devices / c->host_devices;
  return TR_OK;
}

// Whether a file has a section that only devices have.
static int describes_device(const char *path) {
  tr_yaml *yaml;
  if (tr_yaml_load(path, &yaml) < 0) return 0;
  const tr_yaml_node *root = tr_yaml_root(yaml);
  int is = tr_yaml_find(root, "peak") || tr_yaml_find(root, "memory");
  tr_yaml_free(yaml);
  return is;
}

tr_status tr__plan_cluster_load(const char *name, int64_t devices, tr_cluster *out) {
  tr_device device;
  if (tr_cluster_load(name, out) < 0) {
    if (tr_device_load(name, &device) < 0) // once more, for the sentence that fits
      return describes_device(name) ? tr_device_load(name, &device) : tr_cluster_load(name, out);
    *out = tr_cluster_of(&device, devices ? devices : device.link_domain < 8 ? device.link_domain : 8, 0);
    return TR_OK;
  }
  if (devices == 0) return TR_OK;
  tr_status status = cut_cluster(devices, out);
  if (status < 0) tr_cluster_unload(out);
  return status;
}

tr_status tr__plan_sequences(const char *command, const char *text, int64_t sequence, int64_t *out) {
  int64_t count;
  char number[64];
  int are_sequences = tr_text_ends_in(text, "seq");
  snprintf(number, sizeof number, "%.*s", (int)(are_sequences ? strlen(text) - 3 : strlen(text)), text);
  if (tr_parse_count(number, &count) < 0 || count < 1)
    return tr__cli_usage(command, "--batch takes tokens as in 4M, or sequences as in 1024seq, not '%.40s'", text);
  const int64_t whole = are_sequences ? count : count / sequence;
  if (whole > BATCH_MOST)
    return tr__cli_usage(command, "--batch %.40s is %lld sequences; at most %d work", text, (long long)whole,
                         BATCH_MOST);
  *out = are_sequences ? count : (count + sequence / 2) / sequence;
  if (*out > 0) return TR_OK;
  return tr__cli_usage(command, "--batch %.40s is less than half a sequence of %lld tokens; --batch 1seq works", text,
                       (long long)sequence);
}

void tr__plan_positions(int64_t sequence, tr_workload *model) {
  if (model->positions > 0 && model->positions < sequence) model->positions = sequence;
}

// ---- run files

typedef struct run_file { // train's settings first: its table's offsets hold
  tr_train_config train;
  int64_t vpp, ep, devices;
  double imbalance;
  char *cluster;
} run_file;

static const tr_option more_rows[] = {
    {.path = "plan.vpp", .type = TR_OPTION_INT, .offset = offsetof(run_file, vpp), .def = "1", .min = 1, .max = 1024},
    {.path = "plan.ep",
     .type = TR_OPTION_INT,
     .offset = offsetof(run_file, ep),
     .def = "1",
     .min = 1,
     .max = 1 << 16},
    {.path = "plan.imbalance",
     .type = TR_OPTION_REAL,
     .offset = offsetof(run_file, imbalance),
     .def = "1",
     .min = 1,
     .max = 1e4},
    {.path = "plan.cluster", .type = TR_OPTION_STRING, .offset = offsetof(run_file, cluster), .def = ""},
    {.path = "plan.devices",
     .type = TR_OPTION_INT,
     .offset = offsetof(run_file, devices),
     .def = "0",
     .min = 0,
     .max = DEGREE_MOST},
};
enum { MORE_ROWS = sizeof more_rows / sizeof *more_rows };

static void widen(tr_option *row) {
  static const char *const degrees[] = {"parallel.dp", "parallel.tp", "parallel.pp", "parallel.cp", "run.ranks"};
  for (size_t i = 0; i < sizeof degrees / sizeof *degrees; i++)
    if (strcmp(row->path, degrees[i]) == 0) row->max = DEGREE_MOST;
  if (strcmp(row->path, "parallel.zero") == 0) row->max = 3;
  if (strcmp(row->path, "memory.recompute") == 0) row->choices = "none|selective|full|half";
  if (strcmp(row->path, "precision.compute") == 0) row->choices = "f32|bf16|fp8";
}

static tr_option *make_table(size_t *n) {
  *n = tr_train_option_count + MORE_ROWS;
  tr_option *table = malloc(*n * sizeof *table);
  if (!table) return NULL;
  memcpy(table, tr_train_options, tr_train_option_count * sizeof *table);
  memcpy(table + tr_train_option_count, more_rows, sizeof more_rows);
  for (size_t i = 0; i < tr_train_option_count; i++) widen(&table[i]);
  return table;
}

// ---- from settings to a plan

static int by_argument(const tr_options *o, const char *path) {
  return strncmp(tr_options_source(o, path), "argument", 8) == 0;
}

static tr_status set_numbers(const run_file *f, const tr_options *o, tr_plan *p) {
  static const tr_plan_recompute way[] = {TR_PLAN_RECOMPUTE_NONE, TR_PLAN_RECOMPUTE_PARTS, TR_PLAN_RECOMPUTE_FULL,
                                          TR_PLAN_RECOMPUTE_HALF};
  const tr_train_config *t = &f->train;
  if (t->precision.compute == COMPUTE_F32)
    return tr_options_error(
        o, "precision.compute",
        "f32 cannot be predicted, since descriptions of devices have no figures for it; bf16 and fp8 can");
  p->number = t->precision.compute == COMPUTE_FP8 ? TR_PLAN_FP8 : TR_PLAN_BF16;
  p->recompute = way[t->memory.recompute];
  p->wire_bytes = t->precision.grad_wire == 1 ? 2 : 4;
  if (t->optim.kind != 0) p->state_bytes = t->optim.momentum > 0 ? 8 : 4;
  return TR_OK;
}

// What the axes multiply to, or what is left for dp: see the header.
static tr_status set_degrees(const run_file *f, const tr_options *o, tr_plan *p, int64_t *devices) {
  const tr_train_config *t = &f->train;
  p->tp = t->parallel.tp, p->pp = t->parallel.pp, p->cp = t->parallel.cp;
  p->vpp = f->vpp, p->ep = f->ep, p->zero = (int)t->parallel.zero;
  double inner = (double)p->tp * (double)p->pp * (double)p->cp;
  int changed = by_argument(o, "parallel.tp") || by_argument(o, "parallel.pp") || by_argument(o, "parallel.cp") ||
                by_argument(o, "plan.devices");
  int given = t->parallel.dp > 0 && (!changed || by_argument(o, "parallel.dp"));
  *devices = f->devices ? f->devices : tr_options_is_set(o, "run.ranks") ? t->run.ranks : 0;
  if (given) {
    double all = inner * (double)t->parallel.dp;
    if (*devices > 0 && all != (double)*devices && !by_argument(o, "parallel.dp"))
      return tr_options_error(o, "parallel.dp", "tp x pp x cp x dp is %.0f; the plan is for %lld device%s", all,
                              (long long)*devices, tr_text_plural(*devices, "s"));
    if (all > DEGREE_MOST)
      return tr_options_error(o, "parallel.dp", "tp x pp x cp x dp is %.0f; at most %d devices can be planned", all,
                              DEGREE_MOST);
    p->dp = t->parallel.dp;
    *devices = (int64_t)all;
  }
  return TR_OK;
}

// What train can be told of a pipeline's layout, and predictions do not follow.
static tr_status check_layout(const run_file *f, const tr_options *o) {
  const tr_train_config *t = &f->train;
  if (t->parallel.pp == 1) return TR_OK;
  if (t->parallel.group > 0 && t->parallel.group != t->parallel.pp)
    return tr_options_error(o, "parallel.group", "%lld is not predicted, only groups of parallel.pp=%lld",
                            (long long)t->parallel.group, (long long)t->parallel.pp);
  if (strcmp(t->parallel.stages, "balanced") == 0) return TR_OK;
  return tr_options_error(
      o, "parallel.stages",
      "\"%.80s\" is not predicted, only balanced stages; trireme plan stages --layers and trireme "
      "simulate --layers take it",
      t->parallel.stages);
}

// Chunks are plan.vpp's, or parallel.chunks', or the two of a schedule that has several stages per rank. 1f1b and interleaved are
// one schedule that chunks choose; others go by their names.
static void set_schedule(const run_file *f, const tr_options *o, tr__plan_case *c) {
  static const char *const looped[] = {"interleaved", "interleaved_flex", "looped_bfs", "interleaved_zb"};
  const char *name = f->train.parallel.schedule;
  tr_plan *p = &c->plan;
  int is_looped = 0, by_chunks = strcmp(name, "1f1b") == 0 || strcmp(name, "interleaved") == 0;
  if (p->pp == 1) return;
  for (size_t i = 0; i < sizeof looped / sizeof *looped; i++) is_looped |= strcmp(name, looped[i]) == 0;
  if (!tr_options_is_set(o, "plan.vpp") && is_looped)
    p->vpp = f->train.parallel.chunks > 0 ? f->train.parallel.chunks : 2;
  if (by_chunks) return;
  snprintf(c->schedule, sizeof c->schedule, "%s", name);
  p->schedule = c->schedule;
}

// The setting that the devices do not divide by: one that an argument changed, else the axis that alone does not.
static const char *culprit(const tr_options *o, const int64_t *degree, int64_t all) {
  static const char *const path[] = {"parallel.tp", "parallel.pp", "parallel.cp"};
  if (by_argument(o, "plan.devices")) return "plan.devices";
  for (int i = 0; i < 3; i++)
    if (by_argument(o, path[i])) return path[i];
  for (int i = 0; i < 3; i++)
    if (all % degree[i] != 0) return path[i];
  return path[0];
}

// "tp=2 or tp=4": the degrees next to `now` that leave whole replicas of `rest` devices.
static void nearest_degrees(const char *name, int64_t now, int64_t rest, char *out, size_t nbyte) {
  int64_t below = now - 1, above = now + 1;
  while (below > 0 && rest % below != 0) below--;
  while (above <= rest && rest % above != 0) above++;
  size_t n = 0;
  *out = '\0';
  if (below > 0) n = (size_t)snprintf(out, nbyte, "%s=%lld", name, (long long)below);
  if (above <= rest && n < nbyte) snprintf(out + n, nbyte - n, "%s%s=%lld", n ? " or " : "", name, (long long)above);
}

static tr_status refuse_degrees(const tr_options *o, const tr_plan *p, int64_t all) {
  const int64_t degree[] = {p->tp, p->pp, p->cp}, inner = p->tp * p->pp * p->cp;
  static const char *const path[] = {"parallel.tp", "parallel.pp", "parallel.cp"};
  const char *which = culprit(o, degree, all);
  char works[96] = "";
  for (int i = 0; i < 3; i++)
    if (strcmp(which, path[i]) == 0 && all % (inner / degree[i]) == 0)
      nearest_degrees(strchr(which, '.') + 1, degree[i], all / (inner / degree[i]), works, sizeof works);
  if (!*works) snprintf(works, sizeof works, "a multiple of %lld devices", (long long)inner);
  return tr_options_error(o, which, "tp x pp x cp is %lld, which does not divide the %lld device%s; %s would work",
                          (long long)inner, (long long)all, tr_text_plural(all, "s"), works);
}

// The most devices of whole hosts, or of a part of one, whose replicas divide the batch; 0: none.
static int64_t most_devices(const tr_cluster *c, int64_t inner, int64_t passes) {
  const int64_t most = c->hosts * c->host_devices / inner;
  for (int64_t dp = passes < most ? passes : most; dp > 0; dp--)
    if (passes % dp == 0 && (inner * dp < c->host_devices || inner * dp % c->host_devices == 0)) return inner * dp;
  return 0;
}

// Replicas over the whole cluster, which nobody asked for, where the batch is too small for them.
static tr_status check_whole(const tr_cluster *c, const tr_plan *p) {
  const int64_t inner = p->tp * p->pp * p->cp;
  if (p->batch % (p->dp * p->micro) == 0) return TR_OK;
  char works[64] = "N";
  const int64_t most = most_devices(c, inner, p->batch / p->micro);
  if (most > 0) snprintf(works, sizeof works, "%lld", (long long)most);
  return tr_error(TR_ERR_CONFIG,
                  "plan.devices is missing: all %lld of %s make dp %lld, whose micro-batches of %lld do not divide "
                  "batch.sequences=%lld; --devices %s works",
                  (long long)(inner * p->dp), c->name, (long long)p->dp, (long long)p->micro, (long long)p->batch,
                  works);
}

static tr_status fill_dp(const tr_options *o, const tr_cluster *c, tr_plan *p) {
  int64_t all = c->hosts * c->host_devices, inner = p->tp * p->pp * p->cp;
  if (inner > all || all % inner != 0) return refuse_degrees(o, p, all);
  p->dp = all / inner;
  return TR_OK;
}

// batch.micro=auto: the most sequences that fit.
static void fill_micro(tr__plan_case *c) {
  tr_plan *p = &c->plan;
  int64_t share = p->batch / p->dp, micro = share < MICRO_MOST ? share : MICRO_MOST;
  for (p->micro = micro > 0 ? micro : 1; p->micro > 1; p->micro--) {
    tr_prediction x;
    if (share % p->micro != 0) continue;
    if (tr_predict_simulated(p, &c->model, &c->cluster, &x) == TR_OK && x.fits) return;
  }
}

// Settings of a described model that is only planned; those of others are train's business.
static void change_sizes(const tr_train_config *t, const tr_options *o, tr_workload *w) {
  const struct {
    const char *path;
    int64_t value, *to;
  } row[] = {{"model.layers", t->model.layers, &w->layers}, {"model.width", t->model.width, &w->width},
             {"model.heads", t->model.heads, &w->heads},    {"model.heads_kv", t->model.heads_kv, &w->heads_kv},
             {"model.ffn", t->model.ffn, &w->ffn},          {"model.vocab", t->model.vocab, &w->vocab},
             {"model.window", t->model.window, &w->window}, {"model.head_dim", t->model.head_dim, &w->head_dim}};
  for (size_t i = 0; i < sizeof row / sizeof *row; i++)
    if (tr_options_is_set(o, row[i].path)) *row[i].to = row[i].value;
}

static tr_status settle_model(const run_file *f, const tr_options *o, tr_workload *out) {
  const tr_train_config *t = &f->train;
  tr_arch arch;
  int planned_only = 0;
  if (*t->model.from && tr_workload_load(t->model.from, out, &planned_only) == TR_OK && planned_only) {
    change_sizes(t, o, out);
  } else {
    TR_TRY(tr_train_arch(t, o, &arch));
    *out = tr_workload_from_arch(&arch);
  }
  out->imbalance = f->imbalance;
  return TR_OK;
}

static tr_status settle(const run_file *f, const tr_options *o, tr__plan_case *c) {
  int64_t devices;
  const tr_train_config *t = &f->train;
  TR_TRY(settle_model(f, o, &c->model));
  tr_plan_init(&c->plan);
  TR_TRY(set_numbers(f, o, &c->plan));
  TR_TRY(set_degrees(f, o, &c->plan, &devices));
  TR_TRY(check_layout(f, o));
  set_schedule(f, o, c);
  tr_plan_follow_degrees(&c->plan);
  if (!*f->cluster)
    return tr_error(TR_ERR_CONFIG,
                    "plan.cluster is missing: the plan has to say what it is for; --cluster NAME does");
  TR_TRY(tr__plan_cluster_load(f->cluster, devices, &c->cluster));
  snprintf(c->model_name, sizeof c->model_name, "%s", *t->model.from ? t->model.from : "the file's own model");
  snprintf(c->cluster_name, sizeof c->cluster_name, "%s", f->cluster);
  c->plan.batch = t->batch.sequences;
  c->plan.sequence = t->data.sequence;
  TR_TRY(tr_mesh_parse_map(t->parallel.map, c->plan.map));
  tr_status status = TR_OK;
  int64_t inner = c->plan.tp * c->plan.pp * c->plan.cp;
  if (devices == 0 || inner * c->plan.dp != devices) status = fill_dp(o, &c->cluster, &c->plan);
  if (status == TR_OK) c->plan.micro = t->batch.micro > 0 ? t->batch.micro : 1;
  if (status == TR_OK && devices == 0) status = check_whole(&c->cluster, &c->plan);
  if (status == TR_OK) status = tr_workload_check(&c->model);
  if (status == TR_OK && *f->train.parallel.schedule == 'i' && c->plan.vpp > 1 && !c->plan.schedule)
    c->plan.schedule = "interleaved"; // by its own rules, as train has it
  if (status == TR_OK) status = tr_plan_check(&c->plan, &c->model, &c->cluster);
  if (status == TR_OK && t->batch.micro < 0) fill_micro(c);
  if (status < 0) tr_cluster_unload(&c->cluster);
  return status;
}

tr_status tr__plan_case_load(const char *command, int argc, char **argv, int *as_json, tr__plan_case *out) {
  const tr__argument flags[] = {{.name = "--json", .kind = TR__ARGUMENT_FLAG, .out = as_json}};
  size_t n;
  run_file file = {0};
  tr_options *options = NULL;
  tr_option *table = make_table(&n);
  *out = (tr__plan_case){0};
  tr_status status = table ? tr_options_create(table, n, &file, &options)
                           : tr_error(TR_ERR_MEMORY, "no memory for a table of settings");
  if (status == TR_OK) status = tr__cli_settings(command, options, argc, argv, flags, 1, NULL);
  if (status == TR_OK) status = tr_train_settle(&file.train, options);
  if (status == TR_OK) status = settle(&file, options, out);
  tr_options_destroy(options);
  free(table);
  return status;
}

void tr__plan_case_unload(tr__plan_case *c) { tr_cluster_unload(&c->cluster); }
