// SPDX-License-Identifier: MIT
// What a plan takes of memory, before anything is allocated, and what to do when that is too much: the same prediction is
// made for plans that differ in one setting, in the order of what the change costs the user, and those that fit are named.
#include "train/train_internal.h"
#include "trireme/base/cpu.h"
#include "trireme/comm/launch.h"
#include <stdlib.h>
#include <string.h>

enum { RANKS = 256 };

// What a rank takes besides its run and its saves. More than a hundredth of the whole only in small runs.
typedef struct extras {
  size_t data, threads, lists, messages;
} extras;

// Sums of gradients, where ranks do not read them in each other's memory.
static size_t message_bytes(const tr_train_plan *plan, const tr_train_part *part, int sharers, tr_dtype type) {
  const int n = part->program.nbucket;
  size_t *nelem = calloc((size_t)n + 1, sizeof *nelem);
  if (!nelem) return 0;
  for (int b = 0; b < n; b++) {
    const tr_bucket *bucket = &part->program.bucket[b];
    nelem[b] = (size_t)(part->layout.unit_start[bucket->unit_end] - part->layout.unit_start[bucket->unit_begin]);
  }
  const tr_launch_messages messages = {.nrank = plan->step.dp,
                                       .local = sharers,
                                       .any_order = plan->config->comm.order == TR_ORDER_ANY,
                                       .scatters = plan->step.zero && sharers >= plan->step.dp,
                                       .nelem = nelem,
                                       .n = (size_t)n,
                                       .type = type};
  size_t nbyte = tr_launch_message_bytes(&messages);
  free(nelem);
  return nbyte;
}

// Groups over hosts have two within each; the last one is who shares the state.
static size_t talk_bytes(const tr_train_plan *plan) {
  const int ranks = (int)plan->config->run.ranks, n = tr__plan_groups(plan);
  return tr_launch_bytes(ranks, plan->local, plan->local < ranks ? 2 * n + 1 : n);
}

static extras extras_of(const tr_train_plan *plan, const tr_train_part *part, int sharers, const tr_run_options *run,
                        const tr_run_memory *memory, size_t state_lists) {
  const tr_train_config *c = plan->config;
  enum { THREAD_BYTES = 88 << 10 }; // of a rank that is a thread: what it uses of its stack and of a heap of its own
  size_t nbatch = (size_t)plan->accumulation;
  return (extras){
      .data = nbatch * (tr_batch_bytes(plan->micro, c->data.sequence) + sizeof(tr_batch) + sizeof(tr_model_input)) +
              tr__dealer_bytes(plan),
      .threads = (size_t)plan->nthread * TR_POOL_MEMORY + (c->run.launch == TR_LAUNCH_THREADS ? THREAD_BYTES : 0),
      .lists = memory->tables + state_lists + tr__bubble_bytes(plan),
      .messages = message_bytes(plan, part, sharers, run->grad_wire)};
}

// Of a rank in one place of the pipeline, but for its share of a save.
typedef struct rank_memory {
  tr_run_memory run;
  extras extra;
} rank_memory;

// In the order in which a model grows: this is what a user reads when it does not fit.
static void describe(tr_train_plan *plan, const rank_memory *rank, size_t save) {
  const tr_run_memory *memory = &rank->run;
  const extras *extra = &rank->extra;
  const struct {
    const char *name;
    size_t nbyte;
  } part[] = {{"weights", memory->weights + memory->master},
              {"packed weights", memory->packed},
              {"gradients", memory->gradients + memory->wire},
              {"optimizer", memory->state},
              {"activations", memory->activations},
              {"between stages", memory->rings},
              {"recomputed", memory->recompute},
              {"temporaries", memory->temporaries},
              {"kernel scratch", memory->kernel_scratch},
              {"checkpoint buffer", save},
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

// Of the ranks in a place the first, which has as many sharers as any where ranks are laid out in blocks.
static int sharers_in(const tr_train_plan *plan, int place) {
  int16_t host[RANKS];
  int rank = 0, first;
  tr__plan_hosts(plan, host);
  while (tr_mesh_coordinate(&plan->mesh, rank, TR_AXIS_PP) != place) rank++;
  return tr__plan_sharers(plan, host, rank, &first);
}

// The part's figures, with the largest share of a save among its ranks.
static tr_status measure_part(const tr_train_plan *plan, int place, size_t save, size_t lists, rank_memory *out) {
  const int ranks = plan->step.dp, sharers = sharers_in(plan, place), together = sharers > 1 ? sharers : 2;
  tr_train_part *part = &plan->part[place];
  tr_run_options options;
  tr_run_memory alone, shared;
  tr__part_run_options(plan, part, &options);
  TR_TRY(tr_run_memory_predict(&options, plan->nthread, ranks, 1, &alone));
  TR_TRY(tr_run_memory_predict(&options, plan->nthread, ranks, together, &shared));
  out->run = sharers > 1 ? shared : alone;
  out->extra = extras_of(plan, part, sharers, &options, &out->run, lists);
  part->arena_nbyte = out->run.shared_total + 2 * tr_arena_rounded(tr__train_eval_bytes(plan)) + 4 * TR_ARENA_ALIGN;
  part->once_nbyte = shared.host_total;
  part->alone_nbyte = alone.private_total - shared.private_total;
  part->even_nbyte = shared.private_total + part->arena_nbyte + out->extra.data + out->extra.threads +
                     out->extra.lists + out->extra.messages + tr__trace_bytes(plan);
  part->rank_nbyte = part->even_nbyte + (sharers > 1 ? 0 : part->alone_nbyte) + save;
  return TR_OK;
}

// The shares of a save of the ranks in each place of the pipeline: the largest one's, and of all ranks together.
static tr_status save_sizes(const tr_train_plan *plan, size_t *most, size_t *all, size_t *lists) {
  size_t each[RANKS];
  TR_TRY(tr__state_bytes(plan, each, lists));
  *all = 0;
  for (int rank = 0; rank < (int)plan->config->run.ranks; rank++) {
    size_t *own = &most[tr_mesh_coordinate(&plan->mesh, rank, TR_AXIS_PP)];
    if (each[rank] > *own) *own = each[rank];
    *all += each[rank];
  }
  return TR_OK;
}

// What the ranks of a host have together, and all that they take.
static size_t bytes_of_host(const tr_train_plan *plan, const int16_t *host, int16_t number, size_t *once) {
  const int ranks = (int)plan->config->run.ranks;
  size_t sum = plan->talk_nbyte;
  *once = 0;
  for (int rank = 0; rank < ranks; rank++) {
    if (host[rank] != number) continue;
    const tr_train_part *part = tr_train_part_of(plan, rank);
    int first, n = tr__plan_sharers(plan, host, rank, &first);
    sum += part->even_nbyte + plan->saves_nbyte / (size_t)ranks + (n > 1 ? 0 : part->alone_nbyte);
    if (n > 1 && first == rank) *once += part->once_nbyte;
  }
  return sum + *once;
}

size_t tr__plan_bytes_here(const tr_train_plan *plan, const unsigned char *here) {
  int16_t host[RANKS];
  size_t once;
  for (int rank = 0; rank < (int)plan->config->run.ranks; rank++) host[rank] = here[rank] != 0;
  return bytes_of_host(plan, host, 1, &once);
}

// Of the host that takes the most, so that it is the same on all: settings follow from it. Rank 0 of ranks that others have started
// has the events of all at the end.
static void add_up(tr_train_plan *plan) {
  int16_t host[RANKS];
  const int ranks = (int)plan->config->run.ranks;
  plan->total_nbyte = plan->once_nbyte = 0;
  tr__plan_hosts(plan, host);
  for (int16_t number = 0; number <= host[ranks - 1]; number++) {
    size_t once, sum = bytes_of_host(plan, host, number, &once);
    if (sum <= plan->total_nbyte) continue;
    plan->total_nbyte = sum;
    plan->once_nbyte = once;
  }
  if (plan->place.size > 0) plan->total_nbyte += (size_t)(ranks - 1) * tr__trace_bytes(plan);
}

tr_status tr__plan_memory(tr_train_plan *plan) {
  const int pp = plan->mesh.degree[TR_AXIS_PP];
  size_t save[RANKS] = {0}, lists;
  rank_memory largest = {0};
  TR_TRY(save_sizes(plan, save, &plan->saves_nbyte, &lists));
  plan->rank_nbyte = plan->arena_nbyte = 0;
  for (int place = 0; place < pp; place++) {
    rank_memory memory;
    const tr_train_part *part = &plan->part[place];
    TR_TRY(measure_part(plan, place, save[place], lists, &memory));
    if (part->arena_nbyte > plan->arena_nbyte) plan->arena_nbyte = part->arena_nbyte;
    if (part->rank_nbyte <= plan->rank_nbyte) continue;
    plan->rank_nbyte = part->rank_nbyte;
    plan->largest = place;
    largest = memory;
  }
  plan->talk_nbyte = talk_bytes(plan);
  add_up(plan);
  describe(plan, &largest, save[plan->largest]);
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
  const int64_t pp = c->parallel.pp;
  while (ranks > 1 && (ranks % pp || c->batch.sequences % (ranks / pp * micro))) ranks--;
  if (ranks < 1 || ranks % pp) return 0;
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

// Another training, but one that goes on.
static int less_batch(const tr_train_plan *plan, tr_train_config *c, char *text, size_t nbyte) {
  const int64_t pass = plan->mesh.degree[TR_AXIS_DP] * (c->batch.micro < 1 ? 1 : c->batch.micro);
  const int64_t sequences = c->batch.sequences / 2 / pass * pass;
  if (sequences < 1) return 0;
  c->batch.sequences = sequences;
  snprintf(text, nbyte, "batch.sequences=%lld", (long long)sequences);
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

static const lower cheapest_first[] = {less_copies,    less_background, less_packed,  less_kept,     less_micro,
                                       less_precision, less_ranks,      less_moments, less_sequence, less_batch};
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
  return tr_error(TR_ERR_MEMORY, "%lld rank%s x %s%s%s%s do not fit in %s of memory (%s); what would fit: %s",
                  (long long)plan->config->run.ranks, plan->config->run.ranks == 1 ? "" : "s",
                  plan->schedule.p > 1 ? "up to " : "", need, plan->once_nbyte ? " and shared " : "",
                  plan->once_nbyte ? once : "", all, plan->memory_text, changes);
}
