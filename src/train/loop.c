// SPDX-License-Identifier: MIT
// The loop of one rank: deal the step's samples, run the step, report, evaluate, save, and stop when asked. Everything that
// decides what happens next is known to all ranks alike (the step, the settings, summed results), except the request to
// stop, which rank 0 sees and tells.
#include "train/train_internal.h"
#include "trireme/base/clock.h"
#include "trireme/base/file.h"
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

tr_source_options tr__train_source_options(const tr_train_config *c) {
  return (tr_source_options){.path = c->data.path,
                             .val_path = c->data.val_path,
                             .val_fraction = c->data.val_fraction,
                             .sequence = c->data.sequence,
                             .seed = (uint64_t)c->train.seed};
}

// ---- one rank's objects
static tr_status open_data(tr__trainer *t) {
  const tr_train_config *c = t->plan->config;
  TR_TRY(tr_tokenizer_open(c->data.tokenizer, &t->tokenizer));
  tr_source_options options = tr__train_source_options(c);
  TR_TRY(tr_source_open(t->tokenizer, &options, &t->source));
  t->data_hash = tr_source_hash(t->source);
  int n = t->plan->accumulation;
  t->batch = calloc((size_t)n, sizeof *t->batch);
  t->input = calloc((size_t)n, sizeof *t->input);
  if (!t->batch || !t->input) return tr_error(TR_ERR_MEMORY, "no memory for %d micro-batches", n);
  for (int j = 0; j < n; j++) TR_TRY(tr_batch_create(t->plan->micro, c->data.sequence, &t->batch[j]));
  return tr_batch_create(t->plan->micro, c->data.sequence, &t->eval_batch);
}

static tr_status open_run(tr__trainer *t) {
  const tr_train_plan *plan = t->plan;
  TR_TRY(tr_pool_create(plan->nthread, tr_comm_spin(t->comm), NULL, NULL, &t->pool));
  TR_TRY(tr_mesh_group(&plan->mesh, t->comm, TR_AXIS_DP, &t->dp));
  tr_run_options options;
  tr__train_run_options(plan, &options);
  options.pool = t->pool;
  options.comm = t->comm;
  options.dp = t->dp;
  tr__fault_observe(t, &options.observer);
  TR_TRY(tr_run_create(&options, &t->run));
  t->eval_loss = tr_arena_alloc(tr_comm_arena(t->comm), tr__train_eval_bytes(plan));
  return t->eval_loss ? TR_OK : TR_ERR_MEMORY;
}

static void close_trainer(tr__trainer *t) {
  tr_run_destroy(t->run);
  tr_group_destroy(t->dp);
  tr_pool_destroy(t->pool);
  for (int j = 0; t->batch && j < t->plan->accumulation; j++) tr_batch_destroy(&t->batch[j]);
  tr_batch_destroy(&t->eval_batch);
  free(t->batch);
  free(t->input);
  tr_source_close(t->source);
  tr_tokenizer_close(t->tokenizer);
  tr__fault_close(t);
}

// ---- one step

tr_model_input tr__batch_input(const tr_batch *b) {
  return (tr_model_input){.rows = b->rows,
                          .nseq = b->nseq,
                          .token = b->token,
                          .target = b->target,
                          .position = b->position,
                          .sample = b->sample,
                          .start = b->start,
                          .valid = b->valid};
}

static tr_status fill_batches(tr__trainer *t) {
  const tr_train_plan *plan = t->plan;
  int64_t begin = tr_clock_ns();
  for (int j = 0; j < plan->accumulation; j++) {
    int64_t first;
    int count;
    tr_deal(t->step, plan->config->batch.sequences, plan->micro, plan->mesh.degree[TR_AXIS_DP], t->rank, j,
            plan->limit, &first, &count);
    tr_batch *b = &t->batch[j];
    TR_TRY(tr_batch_fill(t->source, 0, first, count, b));
    t->input[j] = tr__batch_input(b);
  }
  t->data_ns += tr_clock_ns() - begin;
  return TR_OK;
}

// The first tensor whose gradient is not finite: where to look.
static const char *bad_tensor(const tr__trainer *t) {
  const tr_layout *layout = &t->plan->layout;
  const float *g = tr_run_gradients(t->run);
  for (int i = 0; i < layout->nparam; i++)
    for (int64_t k = 0; k < layout->param_count[i]; k++)
      if (!isfinite(g[layout->param_offset[i] + k])) return tr_model_param(t->plan->model, i)->name;
  return "none (only the loss is not finite)";
}

static tr_status check_finite(tr__trainer *t, const tr_step_result *result) {
  if (!result->skipped || result->tokens == 0 || t->plan->config->train.nan == TR_NAN_SKIP) return TR_OK;
  return tr_error(TR_ERR_NAN,
                  "step %lld: loss %g, gradient norm %g; first tensor with a bad gradient: %s; a smaller lr.lr, more "
                  "lr.warmup, or train.nan=skip",
                  (long long)t->step, tr__unsigned_nan(result->loss), tr__unsigned_nan(result->norm), bad_tensor(t));
}

static int due(int64_t step, int64_t every, int64_t steps) {
  return step == steps || (every > 0 && step % every == 0);
}

static tr_status agree_to_stop(tr__trainer *t, int *stop) {
  int32_t flag = tr_comm_stop_requested(t->comm);
  if (tr_comm_size(t->comm) > 1) TR_TRY(tr_group_broadcast(tr_comm_world(t->comm), &flag, 1, TR_I32, 0, NULL));
  *stop = flag != 0;
  return TR_OK;
}

// Rates are those of training: what evaluations and checkpoints take is left out of the window they are measured over.
static tr_status outside_rates(tr__trainer *t, tr_status (*work)(tr__trainer *t)) {
  int64_t begin = tr_clock_ns();
  tr_status status = work(t);
  t->mark_ns += tr_clock_ns() - begin;
  return status;
}

static tr_status evaluate_now(tr__trainer *t) {
  TR_TRY(tr__evaluate(t, &t->val_loss));
  t->val_step = t->step;
  return TR_OK;
}

static tr_status one_step(tr__trainer *t, int *stop) {
  const tr_train_config *c = t->plan->config;
  tr_step_result result;
  TR_TRY(fill_batches(t));
  double lr = tr_lr_at(&t->plan->lr, t->step);
  TR_TRY(tr_run_step(t->run, t->step, lr, t->input, &result));
  TR_TRY(tr__fault_status(t));
  TR_TRY(check_finite(t, &result));
  t->step++;
  t->tokens += result.tokens;
  t->comm_ns += result.comm_wait_ns;
  TR_TRY(agree_to_stop(t, stop));
  int last = *stop || t->step == t->plan->steps;
  int evaluate = t->plan->eval_samples > 0 && (last || due(t->step, c->train.eval_every, t->plan->steps));
  if (evaluate) TR_TRY(outside_rates(t, evaluate_now));
  int log = evaluate || last || t->step == t->start_step + 1 || due(t->step, c->train.log_every, t->plan->steps);
  tr_status said = tr__metrics_step(t, &result, lr, log);
  // What cannot be said is a failure, but no reason to lose what was learned.
  if (last || due(t->step, c->checkpoint.every, t->plan->steps)) TR_TRY(outside_rates(t, tr__state_save));
  return said;
}

// FOLDER/config.yaml says what the folder's newest state was trained with, so a refused resume leaves it alone.
static tr_status write_settings(const tr__trainer *t) {
  char path[4096];
  snprintf(path, sizeof path, "%s/config.yaml", t->plan->config->train.folder);
  tr_text text = {0};
  tr_options_print(t->options, 1, &text);
  tr_status status = text.failed ? tr_error(TR_ERR_MEMORY, "no memory to print the settings")
                                 : tr_file_write_atomic(path, text.data, text.size);
  tr_text_free(&text);
  return status;
}

static tr_status train_loop(tr__trainer *t) {
  int resumed = 0, stop = 0;
  TR_TRY(tr__state_resume(t, &resumed));
  if (t->rank == 0) TR_TRY(write_settings(t));
  if (resumed && t->step < t->plan->steps) TR_TRY(tr__metrics_event(t, "resume"));
  if (!resumed) tr_run_init_weights(t->run, (uint64_t)t->plan->config->train.seed);
  tr__metrics_start(t);
  if (t->step >= t->plan->steps && t->rank == 0)
    printf("nothing to do: %lld of %lld steps are done\n", (long long)t->step, (long long)t->plan->steps);
  while (t->step < t->plan->steps && !stop) TR_TRY(one_step(t, &stop));
  if (stop && t->step < t->plan->steps && t->rank == 0)
    printf("stopped as asked after step %lld, saved; the same trireme train command goes on from here\n",
           (long long)t->step);
  return TR_OK;
}

static tr_status rank_main(tr_comm *comm, void *user) {
  const tr__trainer *start = user;
  tr__trainer t = {.plan = start->plan, .options = start->options, .comm = comm, .rank = tr_comm_rank(comm)};
  tr_status status = tr__fault_open(&t);
  if (status == TR_OK) status = open_data(&t);
  if (status == TR_OK) status = open_run(&t);
  if (status == TR_OK) status = train_loop(&t);
  close_trainer(&t);
  return status;
}

// ---- the launcher's side

// One run at a time writes into a folder. The lock ends with the last process that holds it, so the ranks of a
// launcher that was just killed may hold it for another moment. Where a file system has no locks, the run goes on
// without.
static tr_status lock_folder(const char *folder, int *fd) {
  enum { TRIES = 20 };
  *fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (*fd < 0) return tr_error(TR_ERR_IO, "%s: cannot open the folder: %s", folder, strerror(errno));
  for (int i = 0; flock(*fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK; i++) {
    if (i == TRIES) {
      close(*fd);
      return tr_error(TR_ERR_CONFIG,
                      "train.folder %s is in use by another run; wait for its end, or give another folder", folder);
    }
    tr_clock_sleep_ns(100000000);
  }
  return TR_OK;
}

static tr_status launch_ranks(const tr_train_plan *plan, const tr_options *options, const char *logs) {
  const tr_train_config *c = plan->config;
  tr_launch_options launch;
  tr_launch_options_init(&launch);
  launch.mode = (tr_launch_mode)c->run.launch;
  launch.nrank = (int)c->run.ranks;
  launch.nthread = plan->nthread;
  launch.bind = c->run.bind;
  launch.arena_nbyte = plan->arena_nbyte;
  launch.deadline = c->run.deadline;
  launch.grace = 3; // a piece of compute or a block of a checkpoint is over by then
  launch.log_folder = launch.mode == TR_LAUNCH_PROCESSES ? logs : NULL;
  tr__trainer start = {.plan = plan, .options = options};
  return tr_launch(&launch, rank_main, &start, NULL);
}

tr_status tr_train(const tr_train_plan *plan, const tr_options *options) {
  const char *folder = plan->config->train.folder;
  char logs[4096];
  int lock;
  TR_TRY(tr__fault_check(plan));
  snprintf(logs, sizeof logs, "%s/logs", folder);
  TR_TRY(tr_file_make_folders(logs));
  TR_TRY(lock_folder(folder, &lock));
  tr_status status = launch_ranks(plan, options, logs);
  close(lock);
  return status;
}
