// SPDX-License-Identifier: MIT
// Saving a run. Ranks of one data group hold the same state, the places of a pipeline different parts of it (saving_files.c);
// each writes its share of what it has (saver.h), all in the same files whatever the layout. What is not a tensor is trainer.json: the step decides the samples, the
// learning rate and every random number; the ledger proves which samples were used; the contract says what decided the bits.
#include "train/saving_internal.h"
#include "trireme/base/clock.h"
#include "trireme/base/file.h"
#include "trireme/base/log.h"
#include "trireme/base/memory.h"
#include "trireme/plan/law_reliability.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const double assumed_mtbf = 24 * 3600, assumed_rate = 500e6; // until something was measured

static void saver_options(const tr_train_plan *plan, const saved_files *f, int writer, tr_saver_options *out) {
  const tr_train_config *c = plan->config;
  *out = (tr_saver_options){.keep = (int)c->checkpoint.keep,
                            .keep_every = c->checkpoint.keep_every,
                            .file = f->file,
                            .nfile = f->nfile,
                            .writer = writer,
                            .nwriter = (int)c->run.ranks,
                            .side = f->writer_side,
                            .held = f->held,
                            .background = c->checkpoint.background,
                            // A rank that dies or stops is seen by the launcher well before.
                            .deadline = 3 * c->run.deadline};
}

// The lists that a rank keeps to save with: its own, and those of the saver with names and
// headers, about.
static size_t list_bytes(const saved_files *files) {
  enum { SAVER_BYTES = 220 }; // per tensor
  size_t own = files->nitem[SAVED_OPTIMIZER], ntensor = files->nitem[SAVED_MODEL] + own;
  return sizeof(struct tr__saving) + ntensor * (sizeof(tr_safetensors_item) + SAVER_BYTES) + own * SAVED_NAME_BYTES;
}

tr_status tr__state_bytes(const tr_train_plan *plan, size_t *each, size_t *lists) {
  saved_files files;
  tr_saver_options options;
  tr_status status = tr__saved_files_make(plan, NULL, &files);
  if (status == TR_OK) {
    saver_options(plan, &files, 0, &options);
    options.folder = "checkpoints"; // sizes depend neither on where nor on who
    options.job = 1;
    tr_saver_bytes(&options, each);
    *lists = list_bytes(&files);
  }
  tr__saved_files_free(&files);
  return status;
}

// ---- opening

// Between the pieces of work of the rank's own thread: when the job ends, so does its save.
static void beat(void *user) {
  tr__trainer *t = user;
  tr_comm_beat(t->comm);
  if (tr_comm_check(t->comm) < 0) atomic_store(&t->saving->closing, 1);
}
static void at_block(void *user) {
  tr__trainer *t = user;
  tr__fault_point(t, "SAVE", t->saving->step);
}

static int is_closing(void *user) { return atomic_load(&((tr__trainer *)user)->saving->closing); }

static tr_status open_saver(tr__trainer *t, struct tr__saving *s) {
  tr_saver_options options;
  int32_t job = (int32_t)getpid();
  if (tr_comm_size(t->comm) > 1) TR_TRY(tr_group_broadcast(tr_comm_world(t->comm), &job, 1, TR_I32, 0, NULL));
  snprintf(s->folder, sizeof s->folder, "%s/checkpoints", t->plan->config->train.folder);
  saver_options(t->plan, &s->files, t->rank, &options);
  options.folder = s->folder;
  options.job = job;
  options.stopped = is_closing;
  options.progress = beat;
  options.written = at_block;
  options.user = t;
  return tr_saver_create(&options, &s->saver);
}

tr_status tr__state_open(tr__trainer *t) {
  struct tr__saving *s = t->saving = calloc(1, sizeof *s);
  if (!s) return tr_error(TR_ERR_MEMORY, "no memory to save with");
  TR_TRY(tr__saved_files_make(t->plan, t, &s->files));
  if (t->rank == 0) TR_TRY(tr__side_files_read(t->plan, &s->files));
  TR_TRY(tr__contract(t->plan, &s->contract));
  s->last_save_ns = s->open_ns = tr_clock_ns();
  s->interval = -1;
  return open_saver(t, s);
}

void tr__state_close(tr__trainer *t) {
  struct tr__saving *s = t->saving;
  if (!s) return;
  atomic_store(&s->closing, 1);
  tr_saver_destroy(s->saver);
  tr__saved_files_free(&s->files);
  json_decref(s->contract);
  free(s);
  t->saving = NULL;
}

// ---- one save

// The samples since the last save, as all ranks counted them, into the ledger: the same on every rank.
static tr_status close_span(tr__trainer *t) {
  int dp = t->plan->mesh.degree[TR_AXIS_DP];
  tr_tally own = t->used, sum = {0}, *all = calloc((size_t)dp, sizeof *all);
  if (!all) return tr_error(TR_ERR_MEMORY, "no memory for %d tallies", dp);
  all[0] = own;
  tr_status status = dp > 1 ? tr_group_allgather(t->groups.dp, &own, all, sizeof own, TR_U8, NULL) : TR_OK;
  for (int r = 0; r < dp; r++) {
    sum.count += all[r].count;
    sum.digest += all[r].digest;
  }
  free(all);
  if (status == TR_OK)
    status =
        tr_ledger_add(&t->ledger, tr_ledger_end(&t->ledger), tr__samples_before(t->plan, t->step), t->step, dp, sum);
  t->used = (tr_tally){0};
  return status;
}

static double seconds_so_far(const struct tr__saving *s) {
  return s->seconds_before + (double)(tr_clock_ns() - s->open_ns) * 1e-9;
}

static tr_status trainer_json(const tr__trainer *t, int last, char **text) {
  const tr_train_config *c = t->plan->config;
  const struct tr__saving *s = t->saving;
  char hash[17];
  tr_text settings = {0};
  json_t *ledger = NULL;
  snprintf(hash, sizeof hash, "%016" PRIx64, tr_source_hash(t->plan->source));
  TR_TRY(tr_ledger_to_json(&t->ledger, &ledger));
  tr_options_print(t->options, 0, &settings);
  json_t *json = json_pack(
      "{s:i, s:I, s:I, s:I, s:s, s:I, s:s, s:I, s:I, s:s, s:I, s:f, s:i, s:b, s:O, s:o, s:s}", "version",
      TRAINER_VERSION, "step", (json_int_t)t->step, "updates", (json_int_t)tr_run_updates(t->run), "tokens",
      (json_int_t)t->tokens, "tokenizer",
      t->plan->tokenizer ? tr_tokenizer_is_bytes(t->plan->tokenizer) ? "byte" : "tokenizer.json" : "none", "seed",
      (json_int_t)c->train.seed, "data_hash", hash, "batch_sequences", (json_int_t)c->batch.sequences, "sequence",
      (json_int_t)c->data.sequence, "optimizer", tr__optimizer_word(c), "ranks", (json_int_t)c->run.ranks, "seconds",
      seconds_so_far(s), "failures", s->failures, "ended", last, "contract", s->contract, "ledger", ledger,
      "settings", settings.data ? settings.data : "");
  *text = json ? json_dumps(json, JSON_INDENT(2)) : NULL;
  json_decref(json);
  tr_text_free(&settings);
  return *text ? TR_OK : tr_error(TR_ERR_MEMORY, "no memory for trainer.json");
}

static tr_status start(tr__trainer *t, int last) {
  struct tr__saving *s = t->saving;
  if (t->rank != 0) return tr_saver_start(s->saver, t->step, NULL);
  char *config = NULL, *trainer = NULL;
  tr_status status = tr__config_text(t->plan, &config);
  if (status == TR_OK) status = trainer_json(t, last, &trainer);
  s->files.text[s->files.config] = config;
  s->files.text[s->files.trainer] = trainer;
  if (status == TR_OK) status = tr_saver_start(s->saver, t->step, s->files.text);
  free(config);
  free(trainer);
  return status;
}

// ---- how often, and what it costs

static double mtbf(const tr__trainer *t) {
  const struct tr__saving *s = t->saving;
  double stated = t->plan->config->checkpoint.mtbf;
  if (stated >= 0) return stated;
  return s->failures > 0 ? seconds_so_far(s) / s->failures : assumed_mtbf;
}

static void choose_interval(const tr__trainer *t, double cost, double write) {
  struct tr__saving *s = t->saving;
  double before = s->interval, failure = mtbf(t), least = 2 * write;
  if (cost < 1e-3) cost = 1e-3;
  s->interval = tr_law_saving_daly(cost, failure);
  if (s->interval < least) s->interval = least;
  if (before > 0 && fabs(s->interval - before) < 0.2 * before) return;
  char every[32], price[32], between[32];
  tr_format_duration(every, sizeof every, s->interval);
  tr_format_duration(price, sizeof price, cost);
  tr_format_duration(between, sizeof between, failure);
  double restart = (double)(t->begin_ns - s->open_ns) * 1e-9;
  printf("checkpoint every %s: a save costs %s, a failure comes every %s (%s); %.2g%% of the time will be lost\n",
         every, price, between,
         t->plan->config->checkpoint.mtbf >= 0 ? "checkpoint.mtbf"
         : s->failures                         ? "as seen"
                                               : "assumed",
         100 * tr_law_saving_loss(s->interval, cost, failure, restart));
}

int tr__state_due(const tr__trainer *t) {
  const tr_train_plan *plan = t->plan;
  const struct tr__saving *s = t->saving;
  int64_t every = plan->config->checkpoint.every;
  if (t->step == plan->steps) return 1;
  if (every >= 0) return every > 0 && t->step % every == 0;
  if (s->interval < 0) {
    double state = 0;
    for (size_t i = 0; i < s->files.nitem[0] + s->files.nitem[1]; i++)
      state += (double)tr_shape_count(&s->files.item[i].shape) * (double)tr_dtype_size(s->files.item[i].stored_type);
    choose_interval(t, state / assumed_rate, state / assumed_rate);
  }
  return (double)(tr_clock_ns() - s->last_save_ns) * 1e-9 >= s->interval;
}

// ---- a save from start to end

// Seconds of training that the last save took away: the wait, and slower steps while it was written.
static double save_cost(const struct tr__saving *s) {
  double cost = s->stall;
  if (s->busy.steps > 0 && s->quiet.steps > 0) {
    double with = (double)s->busy.ns / (double)s->busy.steps, without = (double)s->quiet.ns / (double)s->quiet.steps;
    if (with > without) cost += (with - without) * (double)s->busy.steps * 1e-9;
  }
  return cost;
}

// The outcome of a save, once: what it cost is said, and how often to save follows from it.
static void report(tr__trainer *t, const tr_saved *saved) {
  struct tr__saving *s = t->saving;
  char bytes[32], write[32], cost[32];
  if (saved->step >= 0) tr__timing_wrote(t, s->last_save_ns, saved);
  if (saved->step >= 0) tr_memory_trim(); // the manifest of many tensors takes some megabytes while it is made
  if (saved->step < 0 || t->rank != 0) return;
  tr_format_bytes(bytes, sizeof bytes, (double)saved->bytes);
  tr_format_duration(write, sizeof write, saved->write);
  tr_format_duration(cost, sizeof cost, save_cost(s));
  printf("saved step %lld: %s in %s; training lost %s to it\n", (long long)saved->step, bytes, write, cost);
  if (t->plan->config->checkpoint.every < 0) choose_interval(t, save_cost(s), saved->write);
}

tr_status tr__state_save(tr__trainer *t, int last) {
  struct tr__saving *s = t->saving;
  tr_saved saved;
  int64_t begin = tr_clock_ns();
  tr__timing_begin(t, TR__SLICE_SAVE);
  tr_comm_activity(t->comm, "SAVE", t->step, -1);
  TR_TRY(tr_saver_wait(s->saver, &saved));
  int64_t waited = tr_clock_ns();
  s->stall += (double)(waited - begin) * 1e-9; // the price of the save before this one
  report(t, &saved);
  TR_TRY(close_span(t));
  s->step = t->step;
  TR_TRY(start(t, last));
  s->busy = (slowness){0};
  s->stall = (double)(tr_clock_ns() - waited) * 1e-9;
  s->last_save_ns = tr_clock_ns();
  if (last) {
    TR_TRY(tr_saver_wait(s->saver, &saved));
    report(t, &saved);
  }
  tr__timing_end(t);
  return tr__fault_status(t);
}

void tr__state_settle(tr__trainer *t, tr_status failure) {
  tr_saved saved;
  char *reason = strdup(tr_status_text());
  tr_status status = tr_saver_wait(t->saving->saver, &saved);
  if (status < 0)
    tr_log_warn("the checkpoint of step %lld was not written: %s", (long long)t->saving->step, tr_status_text());
  if (reason) (void)tr_error(failure, "%s", reason);
  free(reason);
}

tr_status tr__state_poll(tr__trainer *t, int64_t step_ns) {
  struct tr__saving *s = t->saving;
  tr_saved saved;
  tr_status status = tr_saver_poll(s->saver, &saved);
  slowness *window = status == TR_PENDING ? &s->busy : &s->quiet;
  window->steps++;
  window->ns += step_ns;
  if (status == TR_PENDING) return TR_OK;
  TR_TRY(status);
  report(t, &saved);
  return TR_OK;
}
