// SPDX-License-Identifier: MIT
// What a plan takes of memory, before anything is allocated, and what to do when that is too much: the same prediction is
// made for plans that differ in one setting, in the order of what the change costs the user, and those that fit are named.
#include "train/train_internal.h"
#include "trireme/base/cpu.h"
#include "trireme/comm/launch.h"
#include <stdlib.h>
#include <string.h>

// What a rank takes besides its run and its saves. More than a hundredth of the whole only in small runs.
typedef struct extras {
  size_t data, threads, lists, messages;
} extras;

// Sums of gradients, where ranks do not read them in each other's memory.
static size_t message_bytes(const tr_train_plan *plan, const tr_run_options *run) {
  const int dp = plan->mesh.degree[TR_AXIS_DP], n = plan->program.nbucket;
  size_t *nelem = calloc((size_t)n + 1, sizeof *nelem);
  if (!nelem) return 0;
  for (int b = 0; b < n; b++) {
    const tr_bucket *bucket = &plan->program.bucket[b];
    nelem[b] = (size_t)(plan->layout.unit_start[bucket->unit_end] - plan->layout.unit_start[bucket->unit_begin]);
  }
  const tr_launch_messages messages = {.nrank = dp,
                                       .local = plan->local,
                                       .any_order = plan->config->comm.order == TR_ORDER_ANY,
                                       .scatters = plan->step.zero && plan->local >= dp,
                                       .nelem = nelem,
                                       .n = (size_t)n,
                                       .type = run->grad_wire};
  size_t nbyte = tr_launch_message_bytes(&messages);
  free(nelem);
  return nbyte;
}

// In a job on one host every rank is in the group of all and in dp. Groups over hosts have two within each; the third is who
// shares the state.
static size_t talk_bytes(const tr_train_plan *plan) {
  enum { GROUPS = 2, GROUPS_OF_HOSTS = 2 * GROUPS + 1 };
  const int ranks = (int)plan->config->run.ranks;
  return tr_launch_bytes(ranks, plan->local, plan->local < ranks ? GROUPS_OF_HOSTS : GROUPS);
}

static extras extras_of(const tr_train_plan *plan, const tr_run_options *run, const tr_run_memory *memory,
                        const tr__state_sizes *state) {
  const tr_train_config *c = plan->config;
  enum { THREAD_BYTES = 88 << 10 }; // of a rank that is a thread: what it uses of its stack and of a heap of its own
  size_t nbatch = (size_t)plan->accumulation + 1;
  return (extras){
      .data = nbatch * (tr_batch_bytes(plan->micro, c->data.sequence) + sizeof(tr_batch) + sizeof(tr_model_input)) +
              tr__dealer_bytes(plan),
      .threads = (size_t)plan->nthread * TR_POOL_MEMORY + (c->run.launch == TR_LAUNCH_THREADS ? THREAD_BYTES : 0),
      .lists = memory->tables + state->lists,
      .messages = message_bytes(plan, run)};
}

// In the order in which a model grows: this is what a user reads when it does not fit.
static void describe(tr_train_plan *plan, const tr_run_memory *memory, const extras *extra) {
  const struct {
    const char *name;
    size_t nbyte;
  } part[] = {{"weights", memory->weights + memory->master},
              {"packed weights", memory->packed},
              {"gradients", memory->gradients + memory->wire},
              {"optimizer", memory->state},
              {"activations", memory->activations},
              {"recomputed", memory->recompute},
              {"temporaries", memory->temporaries},
              {"kernel scratch", memory->kernel_scratch},
              {"checkpoint buffer", plan->save_nbyte},
              {"batches", extra->data},
              {"threads", extra->threads},
              {"lists", extra->lists},
              {"messages", extra->messages},
              {"communication", plan->talk_nbyte},
              {"trace", tr__trace_bytes(plan)}};
  size_t at = 0;
  for (size_t i = 0; i < sizeof part / sizeof *part && at < sizeof plan->memory_text; i++) {
    char bytes[32];
    if (!part[i].nbyte) continue;
    tr_format_bytes(bytes, sizeof bytes, (double)part[i].nbyte);
    int wrote = snprintf(plan->memory_text + at, sizeof plan->memory_text - at, "%s%s %s", at ? ", " : "",
                         part[i].name, bytes);
    at += wrote > 0 ? (size_t)wrote : 0;
  }
}

// Each host has memory of its own.
size_t tr__plan_total(const tr_train_plan *plan, int local) {
  return plan->even_nbyte * (size_t)local + plan->once_nbyte + plan->talk_nbyte;
}

tr_status tr__plan_memory(tr_train_plan *plan) {
  tr_run_options options;
  tr_run_memory memory;
  tr__state_sizes state;
  size_t ranks = (size_t)plan->config->run.ranks;
  tr_train_run_options(plan, &options);
  const int dp = plan->mesh.degree[TR_AXIS_DP];
  TR_TRY(tr_run_memory_predict(&options, plan->nthread, dp, plan->step.zero ? plan->local : dp, &memory));
  TR_TRY(tr__state_bytes(plan, &state));
  extras extra = extras_of(plan, &options, &memory, &state);
  plan->save_nbyte = state.most;
  plan->arena_nbyte = memory.shared_total + 2 * tr_arena_rounded(tr__train_eval_bytes(plan)) + 4 * TR_ARENA_ALIGN;
  plan->once_nbyte = memory.host_total;
  plan->talk_nbyte = talk_bytes(plan);
  size_t even = memory.private_total + plan->arena_nbyte + extra.data + extra.threads + extra.lists + extra.messages +
                tr__trace_bytes(plan);
  plan->rank_nbyte = even + state.most;
  plan->even_nbyte = even + state.all / ranks;
  plan->total_nbyte = tr__plan_total(plan, plan->local);
  describe(plan, &memory, &extra);
  return TR_OK;
}

static int fits(const tr_train_plan *plan) { return plan->total_nbyte <= tr_cpu_memory(); }

// ---- changes that would make it fit

// Lowers one setting of `c` by a notch and writes it as "setting=value"; 0: it cannot be lowered any more.
typedef int (*lower)(const tr_train_plan *plan, tr_train_config *c, char *text, size_t nbyte);

// One copy of weights and optimizer state per machine instead of one per rank: it costs nothing.
static int less_copies(const tr_train_plan *plan, tr_train_config *c, char *text, size_t nbyte) {
  (void)plan;
  if (c->parallel.zero == 1 || c->run.ranks < 2) return 0;
  c->parallel.zero = 1;
  snprintf(text, nbyte, "parallel.zero=1");
  return 1;
}

static int less_background(const tr_train_plan *plan, tr_train_config *c, char *text, size_t nbyte) {
  (void)plan;
  if (!c->checkpoint.background) return 0;
  c->checkpoint.background = 0;
  snprintf(text, nbyte, "checkpoint.background=false");
  return 1;
}

static int less_kept(const tr_train_plan *plan, tr_train_config *c, char *text, size_t nbyte) {
  (void)plan;
  if (c->memory.recompute == TR_RECOMPUTE_FULL) return 0;
  snprintf(text, nbyte, "memory.recompute=%s", ++c->memory.recompute == TR_RECOMPUTE_FULL ? "full" : "selective");
  return 1;
}

static int less_packed(const tr_train_plan *plan, tr_train_config *c, char *text, size_t nbyte) {
  (void)plan;
  if (!c->memory.pack) return 0;
  c->memory.pack = 0;
  snprintf(text, nbyte, "memory.pack=false");
  return 1;
}

// At most half of what it is.
static int less_micro(const tr_train_plan *plan, tr_train_config *c, char *text, size_t nbyte) {
  int64_t share = c->batch.sequences / plan->mesh.degree[TR_AXIS_DP];
  int64_t micro = (c->batch.micro < 0 ? plan->micro : c->batch.micro) / 2;
  while (micro > 1 && share % micro) micro--;
  if (micro < 1) return 0;
  c->batch.micro = micro;
  snprintf(text, nbyte, "batch.micro=%lld", (long long)micro);
  return 1;
}

static int less_precision(const tr_train_plan *plan, tr_train_config *c, char *text, size_t nbyte) {
  (void)plan;
  if (c->precision.compute == TR_COMPUTE_BF16) return 0;
  c->precision.compute = TR_COMPUTE_BF16;
  snprintf(text, nbyte, "precision.compute=bf16");
  return 1;
}

static int less_ranks(const tr_train_plan *plan, tr_train_config *c, char *text, size_t nbyte) {
  int64_t ranks = c->run.ranks / 2, micro = c->batch.micro < 0 ? 1 : c->batch.micro;
  while (ranks > 1 && c->batch.sequences % (ranks * micro)) ranks--;
  if (ranks < 1) return 0;
  c->run.ranks = ranks;
  c->parallel.dp = -1;
  snprintf(text, nbyte, "-n %lld%s", (long long)ranks, plan->config->parallel.dp < 0 ? "" : " parallel.dp=auto");
  return 1;
}

static int less_moments(const tr_train_plan *plan, tr_train_config *c, char *text, size_t nbyte) {
  (void)plan;
  if (c->optim.kind == TR_OPTIM_SGD) return 0;
  c->optim.kind = TR_OPTIM_SGD;
  snprintf(text, nbyte, "optim.kind=sgd");
  return 1;
}

static int less_sequence(const tr_train_plan *plan, tr_train_config *c, char *text, size_t nbyte) {
  (void)plan;
  if (c->data.sequence < 32) return 0;
  c->data.sequence /= 2;
  snprintf(text, nbyte, "data.sequence=%lld", (long long)c->data.sequence);
  return 1;
}

static int would_fit(const tr_train_plan *plan, const tr_options *options, const tr_train_config *config) {
  tr_train_plan other;
  if (tr__train_plan(config, options, 0, plan, &other) < 0) return 0;
  int fit = fits(&other);
  other.tokenizer = NULL; // borrowed
  other.source = NULL;
  tr_train_plan_destroy(&other);
  return fit;
}

static const lower cheapest_first[] = {less_copies,    less_background, less_packed,  less_kept,    less_micro,
                                       less_precision, less_ranks,      less_moments, less_sequence};
enum { CHANGES = sizeof cheapest_first / sizeof *cheapest_first };

// One setting, lowered until the plan fits.
static int one_change(const tr_train_plan *plan, const tr_options *options, lower change, char *text, size_t nbyte) {
  tr_train_config config = *plan->config;
  while (change(plan, &config, text, nbyte))
    if (would_fit(plan, options, &config)) return 1;
  return 0;
}

// Every setting as low as it goes, the cheapest first, until the plan fits.
static int all_changes(const tr_train_plan *plan, const tr_options *options, char *text, size_t nbyte) {
  tr_train_config config = *plan->config;
  size_t at = 0;
  for (size_t i = 0; i < CHANGES; i++) {
    char last[64] = "";
    int fit = 0;
    while (!fit && cheapest_first[i](plan, &config, last, sizeof last)) fit = would_fit(plan, options, &config);
    if (!*last) continue;
    int wrote = snprintf(text + at, nbyte - at, "%s%s", at ? " " : "", last);
    at += wrote > 0 ? (size_t)wrote : 0;
    if (fit) return 1;
  }
  return 0;
}

static void suggest(const tr_train_plan *plan, const tr_options *options, char *out, size_t nbyte) {
  char text[64];
  size_t at = 0, count = 0;
  *out = '\0';
  for (size_t i = 0; i < CHANGES && count < 3; i++) {
    if (!one_change(plan, options, cheapest_first[i], text, sizeof text)) continue;
    int wrote = snprintf(out + at, nbyte - at, "%s%s", count ? ", or " : "", text);
    at += wrote > 0 ? (size_t)wrote : 0;
    count++;
  }
  if (!count && !all_changes(plan, options, out, nbyte))
    snprintf(out, nbyte, "a smaller model (model.layers, model.width)");
}

tr_status tr__plan_check_memory(const tr_train_plan *plan, const tr_options *options) {
  char need[32], once[32], all[32], changes[256];
  if (fits(plan)) return TR_OK;
  suggest(plan, options, changes, sizeof changes);
  tr_format_bytes(need, sizeof need, (double)plan->rank_nbyte);
  tr_format_bytes(once, sizeof once, (double)plan->once_nbyte);
  tr_format_bytes(all, sizeof all, (double)tr_cpu_memory());
  return tr_error(TR_ERR_MEMORY, "%lld rank%s x %s%s%s do not fit in %s of memory (%s); what would fit: %s",
                  (long long)plan->config->run.ranks, plan->config->run.ranks == 1 ? "" : "s", need,
                  plan->once_nbyte ? " and shared " : "", plan->once_nbyte ? once : "", all, plan->memory_text,
                  changes);
}
