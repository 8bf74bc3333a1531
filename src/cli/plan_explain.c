// SPDX-License-Identifier: MIT
// `trireme plan explain` and `plan what-if`: where the time and memory of a given plan go, what binds it and which single
// change would help; and the same of two plans that differ in some fields, side by side.
#include "cli/cli_internal.h"
#include "cli/plan_case_internal.h"
#include "cli/plan_words_internal.h"
#include "trireme/plan/pipeline.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CHANGES_MOST = 40, CHANGES_SHOWN = 3 };

static tr_status print_explain_help(void) {
  printf(
      "usage: trireme plan explain RUN.yaml [MORE.yaml ...] [key=value ...] [--cluster C] [--devices N] [--json]\n\n"
      "Predict the plan of a run file (trireme plan --write makes one): time by term, memory by item, what binds "
      "it,\n"
      "and the single changes that would help. Fields are those of trireme train, and plan.cluster, plan.devices,\n"
      "plan.vpp, plan.ep.\n\n"
      "examples:\n"
      "  trireme plan --model llama3-8b --cluster dgx-a100 --devices 16 --batch 64seq --write plan.yaml && \\\n"
      "  trireme plan explain plan.yaml\n");
  return TR_OK;
}

static tr_status print_what_if_help(void) {
  printf(
      "usage: trireme plan what-if RUN.yaml [MORE.yaml ...] FIELD=VALUE ... [--cluster C] [--devices N] [--json]\n\n"
      "The plan of a run file beside the same with other values: every term of its time and item of its memory.\n"
      "FIELD is as in trireme train (tp=4, recompute=full, batch.micro=2, model.layers=40), or cluster, devices, "
      "vpp,\n"
      "ep. Unless dp is given, it takes the devices that the other axes leave. What is given with -- before its "
      "name\n"
      "holds for both sides.\n\n"
      "examples:\n"
      "  trireme plan --model llama3-8b --cluster dgx-a100 --devices 16 --batch 64seq --write plan.yaml && \\\n"
      "  trireme plan what-if plan.yaml recompute=full\n"
      "  trireme plan what-if plan.yaml cluster=dgx-h100 --json\n");
  return TR_OK;
}

// ---- one plan

static double room_of(const tr_cluster *c) { return c->device.memory_gib * 1073741824.0; }

static void report_case(tr__plan_report *out, const tr__plan_case *c, const tr_prediction *x) {
  char plan[192];
  tr__plan_case_text(&c->plan, plan, sizeof plan);
  tr__plan_head(out, "%s on %s: %lld x %s, %lld sequence%s of %lld token%s", c->model_name, c->cluster.name,
                (long long)tr_plan_devices(&c->plan), c->cluster.device.name, (long long)c->plan.batch,
                tr_text_plural(c->plan.batch, "s"), (long long)c->plan.sequence,
                tr_text_plural(c->plan.sequence, "s"));
  tr__plan_text(out, "plan", "degrees", plan);
  tr__plan_value(out, "step", "step_s", TR__PLAN_TIME, x->step);
  tr__plan_value(out, "nine in ten such runs take at least", "step_low_s", TR__PLAN_TIME, x->low);
  tr__plan_value(out, "and at most", "step_high_s", TR__PLAN_TIME, x->high);
  tr__plan_value(out, "MFU", "mfu", TR__PLAN_SHARE, x->mfu);
  tr__plan_value(out, "tokens per second and device", "tokens_per_s_per_device", TR__PLAN_NUMBER,
                 x->tokens_per_device);
  tr__plan_value(out, "memory of the fullest rank", "memory_bytes", TR__PLAN_MEMORY, x->memory.process);
  tr__plan_value(out, "a device has", "device_bytes", TR__PLAN_MEMORY, room_of(&c->cluster));
  tr__plan_text(out, "its biggest item", "biggest", tr_memory_item_name(x->memory.biggest));
}

static void report_items(tr__plan_report *out, const tr_prediction *x) {
  static const tr__plan_column column[] = {{"memory", "item", TR__PLAN_NUMBER},
                                           {"fullest rank", "bytes", TR__PLAN_MEMORY},
                                           {"share", "share", TR__PLAN_SHARE},
                                           {0}};
  tr__plan_table(out, "memory", column);
  for (int i = 0; i < TR_ITEM_COUNT; i++)
    if (x->memory.item[i] > 0)
      tr__plan_row(out, tr_memory_item_name(i), (double[]){x->memory.item[i], x->memory.item[i] / x->memory.process});
  double rest = x->memory.process - x->memory.total;
  tr__plan_row(out, "driver, libraries", (double[]){rest, rest / x->memory.process});
}

// ---- what binds: the plan again with one resource doubled

static void report_resources(tr__plan_report *out, const tr__plan_case *c, const tr_prediction *x) {
  static const tr__plan_column column[] = {{"with twice the", "resource", TR__PLAN_NUMBER},
                                           {"a step", "seconds", TR__PLAN_TIME},
                                           {"change", "change", TR__PLAN_SHARE},
                                           {0}};
  static const char *const name[] = {"compute", "memory bandwidth", "links in the host", "network"};
  double least = x->step;
  const char *binds = "the host, by the time that each layer and step needs there";
  tr__plan_table(out, "resources", column);
  for (int i = 0; i < 4; i++) {
    tr_cluster more = c->cluster;
    tr_prediction with = *x;
    if (i == 0) more.device.peak_bf16 *= 2, more.device.peak_fp8 *= 2;
    if (i == 1) more.device.memory_gbs *= 2;
    if (i == 2) more.device.link_gbs *= 2;
    if (i == 3) more.network_gbit *= 2;
    if (tr_predict_simulated(&c->plan, &c->model, &more, &with) < 0) out->failed = 1;
    tr__plan_row(out, name[i], (double[]){with.step, with.step / x->step - 1});
    if (with.step < 0.99 * least) least = with.step, binds = name[i];
  }
  tr__plan_text(out, "what binds it", "binds", x->fits ? binds : "memory");
}

// ---- which single change helps

typedef struct change {
  char name[40];
  tr_prediction prediction;
} change;

typedef struct changes {
  const tr__plan_case *of;
  size_t n;
  change item[CHANGES_MOST];
} changes;

// The plan with one knob changed and dp taking what is left, if that is a plan.
static void try_change(changes *s, const char *knob, const char *value, tr_plan p) {
  const tr__plan_case *c = s->of;
  int64_t devices = tr_plan_devices(&c->plan), inner = p.tp * p.pp * p.cp;
  if (s->n == CHANGES_MOST || inner > devices || devices % inner != 0) return;
  p.dp = devices / inner;
  tr_plan_follow_degrees(&p);
  if (p.zero > 0 && p.dp * p.cp == 1) return;
  if (tr_plan_check(&p, &c->model, &c->cluster) < 0 || !tr_plan_is_even(&p, &c->model)) return;
  change *x = &s->item[s->n];
  snprintf(x->name, sizeof x->name, "%s=%s", knob, value);
  if (tr_predict_simulated(&p, &c->model, &c->cluster, &x->prediction) == TR_OK) s->n++;
}

static void try_values(changes *s) {
  const tr_plan *now = &s->of->plan;
  static const struct {
    const char *name;
    size_t at;
  } knob[] = {{"tp", offsetof(tr_plan, tp)},   {"pp", offsetof(tr_plan, pp)}, {"cp", offsetof(tr_plan, cp)},
              {"vpp", offsetof(tr_plan, vpp)}, {"ep", offsetof(tr_plan, ep)}, {"micro", offsetof(tr_plan, micro)}};
  char text[24];
  for (size_t i = 0; i < sizeof knob / sizeof *knob; i++)
    for (int up = 0; up < 2; up++) {
      tr_plan p = *now;
      int64_t *value = (int64_t *)((char *)&p + knob[i].at);
      if (!up && *value % 2 != 0) continue;
      *value = up ? *value * 2 : *value / 2;
      snprintf(text, sizeof text, "%lld", (long long)*value);
      try_change(s, knob[i].name, text, p);
    }
  for (int zero = 0; zero <= 3; zero++) {
    tr_plan p = *now;
    p.zero = zero;
    snprintf(text, sizeof text, "%d", zero);
    if (zero != now->zero) try_change(s, "zero", text, p);
  }
  static const tr_plan_recompute ways[] = {TR_PLAN_RECOMPUTE_NONE, TR_PLAN_RECOMPUTE_PARTS, TR_PLAN_RECOMPUTE_HALF,
                                           TR_PLAN_RECOMPUTE_FULL};
  static const char *const word[] = {"none", "selective", "half", "full"};
  for (int i = 0; i < 4; i++) {
    tr_plan p = *now;
    p.recompute = ways[i];
    if (ways[i] != now->recompute) try_change(s, "recompute", word[i], p);
  }
}

static void try_schedules(changes *s) {
  const tr_plan *now = &s->of->plan;
  for (int64_t i = 0; now->pp > 1 && tr_search_schedule_name(i); i++) {
    const char *name = tr_search_schedule_name(i);
    tr_plan p = *now;
    if (strcmp(name, tr_plan_schedule(now)) == 0 || strcmp(name, "interleaved") == 0) continue;
    p.schedule = name;
    p.vpp = 1;
    try_change(s, "schedule", name, p);
  }
}

// Plans that fit before others, the faster first; of those that do not fit, the smaller.
static int by_use(const void *a, const void *b) {
  const tr_prediction *x = &((const change *)a)->prediction, *y = &((const change *)b)->prediction;
  if (x->fits != y->fits) return y->fits - x->fits;
  double p = x->fits ? x->step : x->memory.process, q = x->fits ? y->step : y->memory.process;
  return (p > q) - (p < q);
}

static int helps(const tr_prediction *now, const tr_prediction *x) {
  if (now->fits) return x->fits && x->step < now->step;
  return x->fits || x->memory.process < now->memory.process;
}

static void report_changes(tr__plan_report *out, const tr__plan_case *c, const tr_prediction *now) {
  static const tr__plan_column column[] = {{"what would help", "change", TR__PLAN_NUMBER},
                                           {"a step", "seconds", TR__PLAN_TIME},
                                           {"change", "time_change", TR__PLAN_SHARE},
                                           {"memory", "memory_bytes", TR__PLAN_MEMORY},
                                           {0}};
  static const char none[] = "no single change of an axis, micro-batch, ZeRO or recomputation helps";
  changes *s = calloc(1, sizeof *s);
  if (!s) {
    out->failed = 1;
    return;
  }
  s->of = c;
  try_values(s);
  try_schedules(s);
  qsort(s->item, s->n, sizeof *s->item, by_use);
  tr__plan_table(out, "changes", column);
  size_t shown = 0;
  for (; shown < s->n && shown < CHANGES_SHOWN && helps(now, &s->item[shown].prediction); shown++) {
    const tr_prediction *x = &s->item[shown].prediction;
    tr__plan_row(out, s->item[shown].name, (double[]){x->step, x->step / now->step - 1, x->memory.process});
  }
  tr__plan_text(out, "nearest change that helps", "nearest", shown ? s->item[0].name : none);
  free(s);
}

static void report_lack(tr__plan_report *out, const tr__plan_case *c, const tr_prediction *x) {
  tr_law_warning lack = {.name = x->fits ? NULL : "does-not-fit", .number = x->memory.process - room_of(&c->cluster)};
  snprintf(lack.text, sizeof lack.text, "a device lacks %.3g GiB for this plan, of which %s take the most",
           lack.number / 1073741824, tr_memory_item_name(x->memory.biggest));
  tr__plan_warning(out, &lack);
}

tr_status tr__plan_explain(int argc, char **argv) {
  tr__plan_case c;
  tr__plan_report out;
  tr_prediction x;
  int json = 0;
  if (tr__cli_wants_help(argc, argv)) return print_explain_help();
  if (argc < 2) return tr__cli_usage("plan explain", "give a run file, as trireme plan --write makes it");
  TR_TRY(tr__plan_case_load("plan explain", argc, argv, &json, &c));
  tr_status status = tr_predict_simulated(&c.plan, &c.model, &c.cluster, &x);
  if (status < 0) {
    tr__plan_case_unload(&c);
    return status;
  }
  tr__plan_begin(&out, "explain", json);
  report_case(&out, &c, &x);
  tr__plan_terms(&out, x.term, x.step);
  report_items(&out, &x);
  tr__plan_report_traffic(&out, &c);
  tr__plan_report_failures(&out, &c);
  report_resources(&out, &c, &x);
  report_changes(&out, &c, &x);
  report_lack(&out, &c, &x);
  tr__plan_case_unload(&c);
  return tr__plan_end(&out);
}

// ---- two plans

static void report_pair(tr__plan_report *out, const char *name, double before, double after) {
  if (before == 0 && after == 0) return;
  tr__plan_row(out, name, (double[]){before, after, before > 0 ? after / before - 1 : NAN});
}

static void report_both(tr__plan_report *out, const tr__plan_case side[2], const tr_prediction x[2]) {
  static const tr__plan_column time[] = {{"time", "term", TR__PLAN_NUMBER},
                                         {"before", "before_s", TR__PLAN_TIME},
                                         {"after", "after_s", TR__PLAN_TIME},
                                         {"change", "change", TR__PLAN_SHARE},
                                         {0}};
  static const tr__plan_column memory[] = {{"memory", "item", TR__PLAN_NUMBER},
                                           {"before", "before_bytes", TR__PLAN_MEMORY},
                                           {"after", "after_bytes", TR__PLAN_MEMORY},
                                           {"change", "change", TR__PLAN_SHARE},
                                           {0}};
  static const tr__plan_column rest[] = {{"besides", "figure", TR__PLAN_NUMBER},
                                         {"before", "before", TR__PLAN_NUMBER},
                                         {"after", "after", TR__PLAN_NUMBER},
                                         {"change", "change", TR__PLAN_SHARE},
                                         {0}};
  tr__plan_table(out, "time", time);
  for (int i = 0; i < TR_TERM_COUNT; i++) report_pair(out, tr_time_term_name(i), x[0].term[i], x[1].term[i]);
  report_pair(out, "step", x[0].step, x[1].step);
  tr__plan_table(out, "memory", memory);
  for (int i = 0; i < TR_ITEM_COUNT; i++)
    report_pair(out, tr_memory_item_name(i), x[0].memory.item[i], x[1].memory.item[i]);
  report_pair(out, "fullest rank", x[0].memory.process, x[1].memory.process);
  report_pair(out, "device", room_of(&side[0].cluster), room_of(&side[1].cluster));
  double devices[2], price[2];
  for (int i = 0; i < 2; i++) {
    devices[i] = (double)tr_plan_devices(&side[i].plan);
    price[i] = devices[i] * side[i].cluster.price_hour * x[i].step / 3600;
  }
  tr__plan_table(out, "besides", rest);
  report_pair(out, "devices", devices[0], devices[1]);
  report_pair(out, "MFU", x[0].mfu, x[1].mfu);
  report_pair(out, "tokens/s", devices[0] * x[0].tokens_per_device, devices[1] * x[1].tokens_per_device);
  report_pair(out, "tokens/s/device", x[0].tokens_per_device, x[1].tokens_per_device);
  if (price[0] > 0 && price[1] > 0) report_pair(out, "price of a step", price[0], price[1]);
}

static void report_sides(tr__plan_report *out, const tr__plan_case side[2]) {
  static const char *const label[] = {"before", "after"};
  char plan[192];
  tr__plan_head(out, "%s on %s, against %s on %s", side[0].model_name, side[0].cluster.name, side[1].model_name,
                side[1].cluster.name);
  for (int i = 0; i < 2; i++) {
    tr__plan_case_text(&side[i].plan, plan, sizeof plan);
    tr__plan_text(out, label[i], label[i], plan);
  }
}

// The arguments that hold for both sides: all but FIELD=VALUE. Returns how many.
static int common_arguments(int argc, char **argv, char **out) {
  int n = 0;
  for (int i = 0; i < argc; i++) {
    const char *equals = strchr(argv[i], '=');
    int is_change = argv[i][0] != '-' && equals && !memchr(argv[i], '/', (size_t)(equals - argv[i]));
    if (!is_change) out[n++] = argv[i];
  }
  out[n] = NULL;
  return n;
}

static tr_status load_sides(int argc, char **argv, int *json, tr__plan_case side[2]) {
  char **common = malloc(((size_t)argc + 1) * sizeof *common);
  if (!common) return tr_error(TR_ERR_MEMORY, "no memory for the arguments");
  int n = common_arguments(argc, argv, common);
  tr_status status = TR_OK;
  if (n == argc) status = tr__cli_usage("plan what-if", "give what changes as FIELD=VALUE, as in tp=4");
  if (status == TR_OK) status = tr__plan_case_load("plan what-if", n, common, json, &side[0]);
  free(common);
  TR_TRY(status);
  status = tr__plan_case_load("plan what-if", argc, argv, json, &side[1]);
  if (status < 0) tr__plan_case_unload(&side[0]);
  return status;
}

tr_status tr__plan_what_if(int argc, char **argv) {
  tr__plan_case side[2];
  tr_prediction x[2];
  tr__plan_report out;
  int json = 0;
  if (tr__cli_wants_help(argc, argv)) return print_what_if_help();
  if (argc < 2) return tr__cli_usage("plan what-if", "give a run file and FIELD=VALUE");
  TR_TRY(load_sides(argc, argv, &json, side));
  tr_status status = TR_OK;
  for (int i = 0; i < 2 && status == TR_OK; i++)
    status = tr_predict_simulated(&side[i].plan, &side[i].model, &side[i].cluster, &x[i]);
  if (status == TR_OK) {
    tr__plan_begin(&out, "what-if", json);
    report_sides(&out, side);
    report_both(&out, side, x);
    report_lack(&out, &side[1], &x[1]);
    status = tr__plan_end(&out);
  }
  for (int i = 0; i < 2; i++) tr__plan_case_unload(&side[i]);
  return status;
}
