// SPDX-License-Identifier: MIT
// The loop of one rank: deal the step's samples, run the step, report, evaluate, save, and stop when asked. Everything that
// decides what happens next is known to all ranks alike (the step, the settings, summed results), except the request to
// stop, which rank 0 sees and tells.
#include "train/saving_internal.h"
#include "trireme/base/clock.h"
#include "trireme/base/file.h"
#include "trireme/base/log.h"
#include "trireme/base/memory.h"
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <unistd.h>

// ---- one rank's objects
static tr_status open_data(tr__trainer *t) {
  const tr_train_config *c = t->plan->config;
  int n = t->plan->accumulation;
  t->batch = calloc((size_t)n, sizeof *t->batch);
  t->input = calloc((size_t)n, sizeof *t->input);
  t->eval_index = calloc((size_t)t->plan->micro, sizeof *t->eval_index);
  if (!t->batch || !t->input || !t->eval_index) return tr_error(TR_ERR_MEMORY, "no memory for %d micro-batches", n);
  for (int j = 0; j < n; j++) TR_TRY(tr_batch_create(t->plan->micro, c->data.sequence, &t->batch[j]));
  return tr__dealer_create(t->plan, &t->dealer);
}

static tr_status open_run(tr__trainer *t) {
  const tr_train_plan *plan = t->plan;
  TR_TRY(tr_pool_create(plan->nthread, tr_comm_spin(t->comm), NULL, NULL, &t->pool));
  TR_TRY(tr_train_groups_open(plan, t->comm, &t->groups));
  tr_run_options options;
  tr_train_run_options(plan, t->rank, &options);
  options.pool = t->pool;
  options.comm = t->comm;
  options.dp = t->groups.dp;
  options.pp = t->groups.pp;
  options.grads = t->groups.grads;
  options.share = t->groups.share;
  options.tied = t->groups.tied;
  tr__timing_observe(t, &options); // first, so that it sees what a fault strikes
  tr__fault_observe(t, &options);
  TR_TRY(tr_run_create(&options, &t->run));
  t->eval_sum = tr_arena_alloc(tr_comm_arena(t->comm), tr__train_eval_bytes(plan));
  return t->eval_sum ? TR_OK : TR_ERR_MEMORY;
}

static tr_status open_events(tr__trainer *t) {
  char folder[4096];
  if (t->rank != 0 || !t->plan->config->train.tensorboard) return TR_OK;
  snprintf(folder, sizeof folder, "%s/events", t->plan->config->train.folder);
  return tr_events_open(folder, &t->events);
}

static void close_trainer(tr__trainer *t) {
  tr__state_close(t); // before the run: its thread may still read
  tr_run_destroy(t->run);
  tr_train_groups_close(&t->groups);
  tr_pool_destroy(t->pool);
  for (int j = 0; t->batch && j < t->plan->accumulation; j++) tr_batch_destroy(&t->batch[j]);
  free(t->batch);
  free(t->input);
  free(t->eval_index);
  tr__dealer_free(t->dealer);
  tr_ledger_free(&t->ledger);
  tr_events_close(t->events);
  tr__timing_close(t);
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
  tr_comm_activity(t->comm, "data", t->step + 1, -1);
  tr__timing_begin(t, TR__SLICE_DATA);
  for (int j = 0; j < plan->accumulation; j++) {
    const int64_t *index;
    int count;
    tr__dealer_take(t->dealer, plan, t->step, t->dp_rank, j, &index, &count);
    TR_TRY(tr_batch_fill(plan->source, 0, index, count, &t->batch[j]));
    for (int i = 0; i < count; i++) tr_tally_add(&t->used, index[i]);
    t->input[j] = tr__batch_input(&t->batch[j]);
  }
  tr__timing_end(t);
  t->data_ns += tr_clock_ns() - begin;
  return TR_OK;
}

// The first tensor whose gradient is not finite, on any rank: where to look. Collective: all ranks have seen the same norm.
static tr_status bad_tensor(const tr__trainer *t, const char **name) {
  const tr_layout *layout = &t->part->layout;
  const int nparam = tr_model_params(t->plan->model);
  const float *g = tr_run_gradients(t->run);
  int32_t from_end = 0; // of the whole model; 0: none
  for (int i = 0; i < layout->nparam && !from_end; i++)
    for (int64_t k = 0; k < layout->param_count[i] && !from_end; k++)
      if (!isfinite(g[layout->param_offset[i] + k])) from_end = nparam - tr_model_whole_param(t->part->model, i);
  if (tr_comm_size(t->comm) > 1)
    TR_TRY(tr_group_allreduce(tr_comm_world(t->comm), &from_end, &from_end, 1, TR_I32, TR_MAX, NULL));
  *name = from_end ? tr_model_param(t->plan->model, nparam - from_end)->name : "none (only the loss is not finite)";
  return TR_OK;
}

static tr_status check_finite(tr__trainer *t, const tr_step_result *result) {
  if (!result->skipped || result->tokens == 0) return TR_OK;
  double loss = tr__unsigned_nan(result->loss), norm = tr__unsigned_nan(result->norm);
  const char *tensor;
  TR_TRY(bad_tensor(t, &tensor));
  if (t->plan->config->train.nan == TR_NAN_SKIP) {
    if (t->rank == 0)
      tr_log_warn("step %lld is skipped: loss %g, gradient norm %g; first tensor with a bad gradient: %s",
                  (long long)t->step + 1, loss, norm, tensor);
    return TR_OK;
  }
  return tr_error(TR_ERR_NAN,
                  "step %lld: loss %g, gradient norm %g; first tensor with a bad gradient: %s; a smaller lr.lr, more "
                  "lr.warmup, or train.nan=skip",
                  (long long)t->step + 1, loss, norm, tensor);
}

static int due(int64_t step, int64_t every, int64_t steps) {
  return step == steps || (every > 0 && step % every == 0);
}

// What only rank 0 sees: a person's wish to stop, and that it is time to save.
typedef struct decision {
  int32_t stop, save;
} decision;

static tr_status agree(tr__trainer *t, decision *d) {
  d->stop = tr_comm_stop_requested(t->comm);
  d->save = t->rank == 0 && tr__state_due(t);
  if (tr_comm_size(t->comm) > 1) TR_TRY(tr_group_broadcast(tr_comm_world(t->comm), d, 2, TR_I32, 0, NULL));
  return TR_OK;
}

static void pause_rates(tr__trainer *t, int64_t since) {
  int64_t pause = tr_clock_ns() - since;
  t->mark_ns += pause;
  t->begin_ns += pause;
}

static tr_status evaluate_now(tr__trainer *t) {
  TR_TRY(tr__evaluate(t, &t->val_loss));
  t->val_step = t->step;
  return TR_OK;
}

static tr_status one_step(tr__trainer *t, int *stop) {
  const tr_train_config *c = t->plan->config;
  tr_step_result result;
  decision d;
  int64_t begin = tr_clock_ns();
  TR_TRY(fill_batches(t));
  double lr = tr_lr_at(&t->plan->lr, t->step);
  tr__timing_begin(t, TR__SLICE_PROGRAM);
  TR_TRY(tr_run_step(t->run, t->step, lr, t->input, &result));
  tr__timing_program(t, &result);
  TR_TRY(tr__fault_status(t));
  TR_TRY(check_finite(t, &result));
  t->step++;
  t->tokens += result.tokens;
  t->comm_ns += result.comm_wait_ns;
  TR_TRY(tr__state_poll(t, tr_clock_ns() - begin));
  TR_TRY(agree(t, &d));
  *stop = d.stop;
  int last = d.stop || t->step == t->plan->steps;
  // Who asks to stop wants to be saved, not evaluated; but nobody goes on with a run that is finished.
  int stopped = d.stop && t->step < t->plan->steps;
  int evaluate = t->plan->eval_samples > 0 && !stopped && due(t->step, c->train.eval_every, t->plan->steps);
  // Rates are those of training: what evaluations and checkpoints take is left out of the window they are measured over.
  int64_t pause = tr_clock_ns();
  if (evaluate) TR_TRY(evaluate_now(t));
  pause_rates(t, pause);
  int log = evaluate || last || t->step == t->start_step + 1 || due(t->step, c->train.log_every, t->plan->steps);
  if (log) TR_TRY(tr__memory_count(t));
  if (log) TR_TRY(tr__bubble_count(t));
  tr_status said = tr__metrics_step(t, &result, lr, log);
  // What cannot be said is a failure, but no reason to lose what was learned.
  pause = tr_clock_ns();
  if (last || d.save) TR_TRY(tr__state_save(t, last));
  pause_rates(t, pause);
  if (said < 0) tr__state_settle(t, said);
  return said;
}

static tr_status timed_step(tr__trainer *t, int *stop) {
  tr__timing_begin(t, TR__SLICE_STEP);
  TR_TRY(one_step(t, stop));
  tr__timing_end(t);
  return tr__profile_step(t);
}

static tr_status write_contract(const tr__trainer *t) {
  char path[4096], *text = json_dumps(t->saving->contract, JSON_INDENT(2));
  snprintf(path, sizeof path, "%s/contract.json", t->plan->config->train.folder);
  tr_status status =
      text ? tr_file_write_atomic(path, text, strlen(text)) : tr_error(TR_ERR_MEMORY, "no memory for %s", path);
  free(text);
  return status;
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

static void say_stopped(const tr__trainer *t) {
  atomic_store(t->stopped, 1);
  if (t->rank == 0)
    printf("stopped as asked after step %lld, saved; the same trireme train command goes on from here\n",
           (long long)t->step);
}

// Where no step was asked for (train.steps=0), the validation loss of the weights as they are.
static tr_status no_step(tr__trainer *t) {
  const tr_train_plan *plan = t->plan;
  if (plan->steps > 0 || plan->eval_samples == 0) {
    if (t->rank == 0)
      printf("nothing to do: %lld of %lld steps are done\n", (long long)t->step, (long long)plan->steps);
    return TR_OK;
  }
  TR_TRY(evaluate_now(t));
  if (t->rank != 0) return TR_OK;
  printf("val_loss %.4f after %lld steps, over %lld sequences; train.steps=0 trains none\n", t->val_loss,
         (long long)t->step, (long long)plan->eval_samples);
  return tr__metrics_append(
      t, json_pack("{s:s, s:I, s:f}", "event", "evaluation", "step", (json_int_t)t->step, "val_loss", t->val_loss));
}

static tr_status train_loop(tr__trainer *t) {
  int resumed = 0, stop = 0;
  TR_TRY(tr__state_resume(t, &resumed));
  if (t->rank == 0) TR_TRY(write_settings(t));
  if (t->rank == 0) TR_TRY(write_contract(t));
  if (t->step < t->plan->steps) TR_TRY(open_events(t));
  if (resumed && t->step < t->plan->steps) TR_TRY(tr__metrics_event(t, "resume"));
  if (!resumed && *t->plan->model_folder) TR_TRY(tr__state_load_weights(t));
  if (!resumed && !*t->plan->model_folder) TR_TRY(tr_run_init_weights(t->run, (uint64_t)t->plan->config->train.seed));
  tr_memory_trim(); // what was only needed to get here
  tr__metrics_start(t);
  if (t->step >= t->plan->steps) TR_TRY(no_step(t));
  while (t->step < t->plan->steps && !stop) TR_TRY(timed_step(t, &stop));
  TR_TRY(tr__profile_end(t));
  TR_TRY(tr__bubble_end(t));
  TR_TRY(tr__memory_end(t));
  if (stop && t->step < t->plan->steps) say_stopped(t);
  tr__fault_end(t);
  return TR_OK;
}

// Ranks that others have started have each a trace of their own, as many micro-batches as all have agreed on.
static tr_status open_trace(tr__trainer *t, tr__trainer *start) {
  if (t->plan->place.size == 0) return TR_OK;
  tr_status status = tr__trace_create(t->plan, &t->trace);
  start->trace = t->trace;
  return status;
}

// While all ranks are there to be heard: after the last step, and where all have failed alike.
static tr_status gather_trace(tr__trainer *t, tr_status status) {
  if (!t->trace || t->plan->place.size == 0 || (status < 0 && status != TR_ERR_NAN)) return status;
  tr_status gathered = tr__trace_gather(t);
  return status < 0 ? status : gathered;
}

static tr_status rank_main(tr_comm *comm, void *user) {
  tr__trainer *start = user;
  tr__trainer t = *start;
  t.comm = comm;
  t.rank = tr_comm_rank(comm);
  t.dp_rank = tr_mesh_coordinate(&t.plan->mesh, t.rank, TR_AXIS_DP);
  t.part = tr_train_part_of(t.plan, t.rank);
  if (t.plan->config->run.launch == TR_LAUNCH_PROCESSES) tr__memory_begin(&t);
  tr_status status = tr__fault_open(&t);
  if (status == TR_OK) status = open_trace(&t, start);
  if (status == TR_OK) status = tr__timing_open(&t);
  if (status == TR_OK) status = open_data(&t);
  if (status == TR_OK) status = open_run(&t);
  if (status == TR_OK) status = tr__state_open(&t);
  if (status == TR_OK) status = train_loop(&t);
  if (status == TR_ERR_NAN) tr__state_settle(&t, status); // on all ranks alike
  status = gather_trace(&t, status);
  close_trainer(&t);
  return status;
}

// ---- the launcher's side

// One run at a time writes into a folder. The lock ends with the last process that holds it, so the ranks of a
// launcher that was just killed may hold it for another moment. Where a file system has no locks, the run goes on
// without.
static tr_status lock_folder(const tr_train_plan *plan, int *fd) {
  enum { TRIES = 20 };
  const char *folder = plan->config->train.folder;
  *fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (*fd < 0) return tr_error(TR_ERR_IO, "%s: cannot open the folder: %s", folder, strerror(errno));
  if (plan->place.rank > 0) return TR_OK; // the first of ranks that others have started locks
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

// What a killed run has left beside files that appear whole. The folder is locked.
static void remove_leftovers(const tr_train_plan *plan) {
  static const char *const name[] = {"config.yaml", "contract.json", "loss.svg"};
  char path[4096];
  if (plan->place.rank > 0) return;
  for (size_t i = 0; i < sizeof name / sizeof *name; i++) {
    snprintf(path, sizeof path, "%s/%s", plan->config->train.folder, name[i]);
    tr_file_remove_temporaries(path);
  }
}

// From the first rank to the last, in a folder that is locked.
static tr_status run_ranks(tr_train_plan *plan, const tr_options *options, const char *logs, _Atomic int *stopped) {
  tr__trainer start = {.plan = plan, .options = options, .stopped = stopped};
  tr_status status = plan->place.size > 0 ? TR_OK : tr__trace_create(plan, &start.trace);
  if (status == TR_OK && plan->place.size > 0) status = tr__contract_number(plan, options, &plan->agrees);
  if (status == TR_OK) {
    start.limits = tr__limits_measure(plan);
    tr_memory_trim();         // or ranks would find what the plan has left behind, and seem to need less
    tr__memory_begin(&start); // of ranks that are threads: their arenas come before they begin
    status = tr_train_launch(plan, logs, rank_main, &start);
  }
  if (status == TR_OK && plan->place.rank == 0) tr__curve_say(plan); // before a trace that perhaps cannot be written
  if (start.trace && plan->place.rank == 0) status = tr__trace_write(start.trace, status);
  tr__trace_destroy(start.trace);
  return status == TR_OK && atomic_load(stopped) ? TR_PENDING : status;
}

tr_status tr_train(tr_train_plan *plan, const tr_options *options) {
  const char *folder = plan->config->train.folder;
  char logs[4096];
  int lock;
  TR_TRY(tr__fault_check(plan));
  snprintf(logs, sizeof logs, "%s/logs", folder);
  TR_TRY(tr_file_make_folders(logs));
  TR_TRY(lock_folder(plan, &lock));
  remove_leftovers(plan);
  // Outlives ranks that are processes.
  _Atomic int *stopped = mmap(NULL, sizeof *stopped, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  tr_status status = stopped == MAP_FAILED ? tr_error(TR_ERR_MEMORY, "no memory that ranks and launcher share")
                                           : run_ranks(plan, options, logs, stopped);
  if (stopped != MAP_FAILED) munmap((void *)stopped, sizeof *stopped);
  close(lock);
  return status;
}
