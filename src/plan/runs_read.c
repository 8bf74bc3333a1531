// SPDX-License-Identifier: MIT
// From a row of a table to a plan, a model and a cluster.
//
// A row says less than a plan needs. What the program could do is taken from the framework and year that the row names
// (fused attention came in 2023; Megatron of 2020 to 2022 and Megatron-DeepSpeed overlap nothing), from words of its
// notes (async TP, eager, shard scope, Gb/s per node), and what architectures have that no column says (latent attention,
// which layers have experts, windows) from the model's published description. No constant depends on the source.
#include "plan/csv_internal.h"
#include "plan/runs_internal.h"
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

// Above all that a table means. Products of two counts still are whole numbers, as is that of the four degrees.
static const double COUNT_MOST = 1e9, DEVICES_MOST = 1 << 28, PARAMS_MOST = 1e15;

typedef struct reader {
  const tr__csv *csv;
  size_t row;
} reader;

static const char *text(const reader *r, const char *column) {
  return tr__csv_at(r->csv, r->row, tr__csv_column(r->csv, column));
}

// A number, or `absent` where the field is empty or something else (which tr__run_read refuses for what decides a plan).
static double real(const reader *r, const char *column, double absent) {
  const char *field = text(r, column);
  char *end;
  double value = strtod(field, &end);
  return end == field || *end ? absent : value;
}

static int64_t count(const reader *r, const char *column, int64_t absent) {
  double value = real(r, column, (double)absent);
  return value >= 0 && value < COUNT_MOST ? (int64_t)value : absent;
}

static double params(const reader *r) { return real(r, "params_b", 0) * 1e9; }

static int has(const char *in, const char *word) { return strcasestr(in, word) != NULL; }

// ---- the model

static void published_details(const char *name, tr_workload *w) {
  if (has(name, "deepseek") ||
      has(name, "kimi")) { // DeepSeek-V3 report, table 1 and section 4.2; Kimi K2's config.json
    w->q_rank = 1536;
    w->kv_rank = 512;
    w->rope_dim = 64;
    w->head_dim = 192;
    w->dense_first = has(name, "kimi") || w->layers <= 8 ? 1 : 3;
    w->predict_more = has(name, "deepseek") && w->layers > 8 && !has(name, "w/o MTP");
    if (has(name, "deepseek") && w->experts == 256) w->groups = 8, w->group_limit = 4; // its config.json
  }
  if (has(name, "maverick")) w->every = 2; // Llama 4: experts on every second layer
  if (has(name, "gpt oss") || has(name, "gpt-oss")) {
    w->window = 128;
    w->window_every = 2;
  }
  if (has(name, "olmo 3")) {
    w->window = 4096;
    w->window_every = 4;
  }
}

static void read_model(const reader *r, tr_workload *w) {
  *w = (tr_workload){.layers = count(r, "layers", 0),
                     .width = count(r, "hidden", 0),
                     .heads = count(r, "heads", 0),
                     .heads_kv = count(r, "kv_heads", 0),
                     .head_dim = count(r, "head_dim", 0),
                     .ffn = count(r, "ffn", 0),
                     .vocab = count(r, "vocab", 50304),
                     .gated = has(text(r, "mlp"), "glu"),
                     .experts = count(r, "n_experts", 0),
                     .active = count(r, "top_k", 1),
                     .shared = count(r, "shared_experts", 0),
                     .expert_ffn = count(r, "moe_ffn", 0),
                     .every = 1};
  if (w->heads_kv == 0) w->heads_kv = w->heads;
  if (w->head_dim == 0 && w->heads > 0) w->head_dim = w->width / w->heads;
  if (w->ffn == 0) w->ffn = 4 * w->width;
  published_details(text(r, "model"), w);
}

// ---- the plan

// What words for recomputation mean; of those that a field has, the first counts.
typedef struct recompute_word {
  const char *word;
  enum { WHOLE, BEGIN, ANYWHERE } place; // of the word in the field
  tr_plan_recompute way;
  int megatron; // its own meaning of the word
} recompute_word;

static const recompute_word recompute_words[] = {
    {"no", WHOLE, TR_PLAN_RECOMPUTE_NONE, 0},
    {"off", WHOLE, TR_PLAN_RECOMPUTE_NONE, 0},
    {"0", WHOLE, TR_PLAN_RECOMPUTE_NONE, 0},
    {"false", WHOLE, TR_PLAN_RECOMPUTE_NONE, 0},
    {"1", WHOLE, TR_PLAN_RECOMPUTE_FULL, 0},
    {"yes", WHOLE, TR_PLAN_RECOMPUTE_FULL, 0},
    {"on", WHOLE, TR_PLAN_RECOMPUTE_FULL, 0},
    {"true", WHOLE, TR_PLAN_RECOMPUTE_FULL, 0},
    {"none", BEGIN, TR_PLAN_RECOMPUTE_NONE, 0},
    {"full", ANYWHERE, TR_PLAN_RECOMPUTE_FULL, 0},
    {"uniform", ANYWHERE, TR_PLAN_RECOMPUTE_FULL, 0},
    {"block", ANYWHERE, TR_PLAN_RECOMPUTE_FULL, 0},
    {"attn", ANYWHERE, TR_PLAN_RECOMPUTE_SCORES, 0},
    {"attention", ANYWHERE, TR_PLAN_RECOMPUTE_SCORES, 0},
    {"selective", WHOLE, TR_PLAN_RECOMPUTE_SCORES, 1}, // attention's core; elsewhere every second layer or product
    {"moe", ANYWHERE, TR_PLAN_RECOMPUTE_EXPERTS, 0},
    {"norm", ANYWHERE, TR_PLAN_RECOMPUTE_PARTS, 0},
    {"selective", ANYWHERE, TR_PLAN_RECOMPUTE_HALF, 0},
    {"mlp", ANYWHERE, TR_PLAN_RECOMPUTE_HALF, 0},
    {"layer", ANYWHERE, TR_PLAN_RECOMPUTE_HALF, 0},
    {"act", ANYWHERE, TR_PLAN_RECOMPUTE_HALF, 0}};

// NULL: the field has no word that is known.
static const recompute_word *find_recompute(const char *field, const char *framework) {
  const int is_megatron = has(framework, "Megatron") || has(framework, "NeMo");
  for (size_t i = 0; i < sizeof recompute_words / sizeof *recompute_words; i++) {
    const recompute_word *w = &recompute_words[i];
    const int is_there = w->place == WHOLE   ? strcasecmp(field, w->word) == 0
                         : w->place == BEGIN ? strncasecmp(field, w->word, strlen(w->word)) == 0
                                             : has(field, w->word);
    if (is_there && (is_megatron || !w->megatron)) return w;
  }
  return NULL;
}

static tr_plan_recompute read_recompute(const char *field, const char *framework) {
  if (!*field) return TR_PLAN_RECOMPUTE_NONE;
  const recompute_word *word = find_recompute(field, framework);
  return word ? word->way : TR_PLAN_RECOMPUTE_HALF;
}

// "shard scope: 8 ranks", "zero1=8"
static int64_t shard_ranks(const char *notes) {
  const char *at = strstr(notes, "shard scope: ");
  if (at) return strtoll(at + 13, NULL, 10);
  at = strstr(notes, "zero1=");
  return at ? strtoll(at + 6, NULL, 10) : 0;
}

// Programs that make as many micro-batches as there are stages, where the row does not say.
static void read_stages(const reader *r, tr_plan *p) {
  if (!has(text(r, "framework"), "torchtitan") || p->pp == 1 || p->dp == 0) return;
  if (!*text(r, "vpp") && has(text(r, "notes"), "interleaved")) p->vpp = 2;
  double micro = (double)p->batch / ((double)p->dp * (double)p->pp * (double)p->vpp);
  p->micro = micro > 1 ? (int64_t)micro : 1;
}

static void read_plan(const reader *r, tr_plan *p) {
  tr_plan_init(p);
  const char *number = text(r, "precision");
  p->tp = count(r, "tp", 1);
  p->pp = count(r, "pp", 1);
  p->cp = count(r, "cp", 1);
  p->ep = count(r, "ep", 1);
  p->micro = count(r, "mbs", 1);
  p->vpp = p->pp > 1 ? count(r, "vpp", 1) : 1;
  p->tp += p->tp == 0, p->pp += p->pp == 0, p->cp += p->cp == 0, p->ep += p->ep == 0;
  p->vpp += p->vpp == 0, p->micro += p->micro == 0;
  double devices = (double)count(r, "n_gpus", 0), rest = (double)p->tp * (double)p->pp * (double)p->cp;
  p->dp = count(r, "dp", 0);
  if (devices == 0) devices = rest * (double)(p->dp > 0 ? p->dp : 1);
  if (p->dp == 0 || (devices > 0 && (double)p->dp * rest != devices))
    p->dp = rest > 0 && devices >= rest ? (int64_t)(devices / rest) : 0;
  p->zero = (int)count(r, "zero_stage",
                       count(r, "dist_opt", tr__software_zero(text(r, "framework"), count(r, "year", 2024))));
  p->zero_ranks = shard_ranks(text(r, "notes"));
  p->sequence_parallel = count(r, "seq_par", p->cp > 1) != 0;
  p->recompute = read_recompute(text(r, "recompute"), text(r, "framework"));
  // Row-wise scales cost what fp8 gains: measured beside bf16 in torchtitan, 2025.
  p->number = (has(number, "fp8") || has(number, "fp4")) && !has(number, "rowwise") ? TR_PLAN_FP8
              : has(number, "fp16")                                                 ? TR_PLAN_FP16
                                                                                    : TR_PLAN_BF16;
  p->batch = count(r, "gbs_seqs", 0);
  p->sequence = count(r, "seq_len", 0);
  read_stages(r, p);
  tr__software software = {.framework = text(r, "framework"),
                           .notes = text(r, "notes"),
                           .number = number,
                           .year = count(r, "year", 2024),
                           .says_sequence_parallel = *text(r, "seq_par") != 0};
  tr__software_apply(&software, p);
  if (has(text(r, "recompute"), "layers activation offload") || has(text(r, "notes"), "CPU offload"))
    p->offloaded = count(r, "layers", 0);
}

// ---- the machine

// "4x 100 Gb/s Omni-Path per node": 400; "network 400 Gb/s per node": 400; 0 where the notes say nothing.
static double network_per_node(const char *notes) {
  for (const char *at = notes; (at = strstr(at, "Gb/s")); at++) {
    const char *end = strpbrk(at, ";,"), *per = strstr(at, "node");
    if (!per || (end && per > end)) continue;
    const char *from = at, *start = at;
    while (from > notes && (isdigit((unsigned char)from[-1]) || from[-1] == ' ')) from--;
    while (start > notes && !strchr(";,+(", start[-1])) start--;
    double rate = strtod(from, NULL), ports = 1;
    for (const char *x = start; x < from; x++)
      if (*x == 'x' && x > notes && isdigit((unsigned char)x[-1])) {
        while (x > notes && isdigit((unsigned char)x[-1])) x--;
        ports = strtod(x, NULL);
        break;
      }
    if (rate > 0 && ports > 0) return rate * ports;
  }
  return 0;
}

// What the other rows of this framework, year and device say of their network, where they agree: a source names it once.
static double network_of_others(const reader *r) {
  static const char *const same[] = {"framework", "year", "gpu"};
  enum { SAME = sizeof same / sizeof *same };
  const int notes = tr__csv_column(r->csv, "notes");
  int column[SAME];
  double found = 0;
  for (int i = 0; i < SAME; i++) column[i] = tr__csv_column(r->csv, same[i]);
  for (size_t row = 0; row < r->csv->nrow; row++) {
    int alike = 1;
    for (int i = 0; i < SAME && alike; i++)
      alike = strcmp(tr__csv_at(r->csv, row, column[i]), tr__csv_at(r->csv, r->row, column[i])) == 0;
    double rate = alike ? network_per_node(tr__csv_at(r->csv, row, notes)) : 0;
    if (rate > 0 && found > 0 && rate != found) return 0;
    if (rate > 0) found = rate;
  }
  return found;
}

static void read_cluster(const reader *r, const tr_device *device, int64_t devices, tr_cluster *c) {
  int64_t node = count(r, "gpus_per_node", 0);
  *c = tr_cluster_of(device, count(r, "n_gpus", devices), node);
  double per_node = network_per_node(text(r, "notes"));
  if (per_node == 0) per_node = network_of_others(r);
  if (per_node > 0) c->network_gbit = per_node / (double)(node > 0 ? node : c->host_devices);
}

// ---- what was measured

// Seconds of a step from FLOP/s per device, by the convention that the row names.
static double time_of_rate(const reader *r, const tr_run *run) {
  double tflops = real(r, "tflops_per_gpu", 0), peak = run->cluster.device.peak_bf16;
  const char *kind = text(r, "tflops_kind");
  if (tflops <= 0) tflops = peak * real(r, "mfu_pct", 0) / 100;
  if (tflops <= 0) return 0;
  int causal = has(text(r, "framework"), "Bridge") || has(text(r, "framework"), "MoE");
  double flops = tr_workload_flops(&run->model, run->plan.sequence, causal);
  if (has(kind, "hardware") && run->plan.recompute == TR_PLAN_RECOMPUTE_FULL) flops *= 4.0 / 3;
  return flops * (double)(run->plan.batch * run->plan.sequence) / (double)tr_plan_devices(&run->plan) / tflops / 1e12;
}

static double measured_step(const reader *r, const tr_run *run) {
  double step = real(r, "step_time_s", 0), rate = real(r, "tokens_per_s_per_gpu", 0);
  if (step > 0) return step;
  if (rate > 0) return (double)(run->plan.batch * run->plan.sequence) / rate / (double)tr_plan_devices(&run->plan);
  return time_of_rate(r, run);
}

static void refuse(tr_run *run, const char *why) { snprintf(run->why, sizeof run->why, "%s", why); }

// ---- what no run says

// A field that is there and not understood says something else than one that is empty: nothing is guessed then.
static int check_counts(const reader *r, tr_run *run) {
  static const char *const columns[] = {"n_gpus",
                                        "gpus_per_node",
                                        "layers",
                                        "hidden",
                                        "heads",
                                        "kv_heads",
                                        "head_dim",
                                        "ffn",
                                        "vocab",
                                        "seq_len",
                                        "tp",
                                        "pp",
                                        "vpp",
                                        "dp",
                                        "cp",
                                        "ep",
                                        "dist_opt",
                                        "zero_stage",
                                        "mbs",
                                        "gbs",
                                        "gbs_seqs",
                                        "year",
                                        "shared_experts",
                                        "moe_ffn",
                                        "n_experts",
                                        "top_k",
                                        "seq_par"};
  for (size_t i = 0; i < sizeof columns / sizeof *columns; i++) {
    const char *field = text(r, columns[i]);
    double value = real(r, columns[i], -1);
    if (!*field || (value >= 0 && value < COUNT_MOST && value == (double)(int64_t)value)) continue;
    snprintf(run->why, sizeof run->why, "%s is '%.40s'; a whole number from 0 on, or nothing, works", columns[i],
             field);
    return 0;
  }
  const tr_plan *p = &run->plan;
  double devices = (double)p->tp * (double)p->pp * (double)p->cp * (double)p->dp;
  if (devices > DEVICES_MOST) {
    snprintf(run->why, sizeof run->why, "tp x pp x cp x dp is %.3g; at most %.3g devices work", devices,
             DEVICES_MOST);
    return 0;
  }
  if (!(params(r) <= PARAMS_MOST)) {
    snprintf(run->why, sizeof run->why, "params_b is '%.40s'; billions up to %.3g, or nothing, work",
             text(r, "params_b"), PARAMS_MOST / 1e9);
    return 0;
  }
  return 1;
}

// A word that is not known is taken as what is usual, and that is said.
static void note_words(const reader *r, tr_run *run) {
  static const struct {
    const char *column, *known[4], *taken;
  } words[] = {{"precision", {"bf16", "fp16", "fp8", "fp4"}, "bf16"}, {"mlp", {"lu"}, "two products with gelu"}};
  for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
    const char *field = text(r, words[i].column);
    int is_known = !*field;
    for (size_t k = 0; k < 4 && words[i].known[k]; k++) is_known = is_known || has(field, words[i].known[k]);
    if (!is_known) tr__run_note(run, "%s is '%.40s': taken as %s", words[i].column, field, words[i].taken);
  }
  const char *again = text(r, "recompute");
  if (*again && !find_recompute(again, text(r, "framework")))
    tr__run_note(run, "recompute is '%.40s': taken as half of what a layer keeps", again);
}

// A model of so many parameters, for rows that count states alone.
static void stand_in(double params, tr_workload *w) {
  *w = (tr_workload){
      .layers = 1, .width = 1024, .heads = 8, .heads_kv = 8, .head_dim = 128, .ffn = 4096, .vocab = 1, .every = 1};
  w->vocab += (int64_t)((params - tr_workload_params(w)) / 2048);
}

static void read_published(const reader *r, tr_run *run) {
  run->id = text(r, "id");
  run->source = text(r, "source");
  run->model_name = text(r, "model");
  run->device_name = text(r, "gpu");
  run->memory_kind = text(r, "mem_kind");
  run->tier = *text(r, "tier") ? *text(r, "tier") : 'A';
  run->group = count(r, "rank_group", 0);
  run->memory_gb = real(r, "mem_gb_per_gpu", 0);
  run->micro_unknown = count(r, "mbs", 0) == 0;
  run->out_of_memory = strcmp(text(r, "mem_gb_per_gpu"), "OOM") == 0 || has(run->memory_kind, "out of memory");
  read_model(r, &run->model);
  read_plan(r, &run->plan);
  run->states_only =
      has(run->memory_kind, "states only") && run->model.layers == 0 && params(r) > 0 && params(r) <= PARAMS_MOST;
  if (run->states_only) {
    stand_in(params(r), &run->model);
    run->device_name = "H100-SXM-80";
    refuse(run, "no model is named: only its states are predicted, from the number of parameters");
  }
  if (run->plan.batch == 0) { // only the rate is known: eight passes stand for many
    run->plan.batch = 8 * run->plan.dp * run->plan.micro;
    run->batch_unknown = 1;
    if (real(r, "step_time_s", 0) > 0) refuse(run, "the batch is not stated");
  }
}

static unsigned open_degrees(const reader *r) {
  return (count(r, "tp", 0) == 0 ? TR__OPEN_TP : 0u) | (count(r, "pp", 0) == 0 ? TR__OPEN_PP : 0u);
}

static void read_node(const reader *r, tr_run *run) {
  run->id = text(r, "id");
  run->source = "vTrain single node";
  run->model_name = "GPT";
  run->device_name = "A100-SXM-80";
  run->memory_kind = "";
  run->tier = 'S';
  read_model(r, &run->model);
  run->model.vocab = 51200;
  read_plan(r, &run->plan);
  run->plan.batch = count(r, "gbs", 0);
  tr__software software = {.framework = "Megatron-DeepSpeed", .notes = "", .number = "fp16", .year = 2024};
  tr__software_apply(&software, &run->plan);
  run->plan.number = TR_PLAN_FP16;
}

static int fits(const tr_run *run) {
  tr_footprint m;
  tr_predict_memory(&run->plan, &run->model, &run->cluster, &m);
  return m.needed <= run->cluster.device.memory_gib * 1073741824.0;
}

// What rows do not say was chosen so that it fitted: the least recomputation of parts that does; else, where the host's memory is
// as near as another device's, activations of as many layers as must go there; else all is computed again.
static void least_recompute(tr_run *run) {
  static const tr_plan_recompute ways[] = {TR_PLAN_RECOMPUTE_NONE, TR_PLAN_RECOMPUTE_PARTS,
                                           TR_PLAN_RECOMPUTE_EXPERTS};
  if (tr_workload_check(&run->model) < 0 || tr_plan_check(&run->plan, &run->model, &run->cluster) < 0) return;
  for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
    run->plan.recompute = ways[i];
    if (fits(run)) return;
  }
  run->plan.recompute = run->cluster.device.host_gbs > 0 ? TR_PLAN_RECOMPUTE_NONE : TR_PLAN_RECOMPUTE_FULL;
  while (run->cluster.device.host_gbs > 0 && !fits(run) && run->plan.offloaded < run->model.layers)
    run->plan.offloaded++;
}

void tr__run_read(const tr__csv *csv, size_t row, tr_run *run) {
  reader r = {csv, row};
  if (tr__csv_column(csv, "iter_ms") >= 0)
    read_node(&r, run);
  else
    read_published(&r, run);
  if (!check_counts(&r, run)) run->states_only = 0;
  if (!*run->why) note_words(&r, run);
}

void tr__run_finish(const tr__csv *csv, size_t row, const tr_device *device, tr_run *run) {
  reader r = {csv, row};
  const int is_refused = *run->why && !run->states_only; // its degrees may be any numbers
  unsigned open = run->tier == 'S' || *run->why ? 0 : open_degrees(&r);
  read_cluster(&r, device, is_refused ? 1 : tr_plan_devices(&run->plan), &run->cluster);
  if (!*run->why) tr__settle_model(run, params(&r));
  if (!*run->why) tr__settle_plan(run, open);
  run->guessed = *run->note != 0;
  if (!open && !*text(&r, "recompute") && !*run->why && run->tier != 'S') least_recompute(run);
  if (!*run->why && tr_workload_check(&run->model) < 0) refuse(run, tr_status_text());
  if (!*run->why && tr_plan_check(&run->plan, &run->model, &run->cluster) < 0) refuse(run, tr_status_text());
  if (*run->why) return;
  run->step = run->tier == 'S' ? real(&r, "iter_ms", 0) / 1000 : measured_step(&r, run);
}
