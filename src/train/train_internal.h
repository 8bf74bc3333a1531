// SPDX-License-Identifier: MIT
// Shared inside the train module: the state of one rank's loop, metrics, saving and loading, fault injection.
#ifndef TRIREME_TRAIN_INTERNAL_H
#define TRIREME_TRAIN_INTERNAL_H

#include "trireme/ckpt/saver.h"
#include "trireme/ckpt/weights.h"
#include "trireme/run/run.h"
#include "trireme/train/events.h"
#include "trireme/train/train.h"
#include <jansson.h>
#include <math.h>
#include <stdio.h>

tr_model_input tr__batch_input(const tr_batch *batch); // the view of a batch that pieces get; owns nothing
void tr__train_run_options(const tr_train_plan *plan, tr_run_options *out);
tr_dtype tr__train_type(const tr_train_config *config); // of the working weights

// ---- the parts of a plan, in this order
tr_status tr__plan_from(tr_train_plan *plan, const tr_options *options);      // plan_model.c
tr_status tr__plan_tokenizer(tr_train_plan *plan, const tr_options *options); // plan_data.c
tr_status tr__plan_model(tr_train_plan *plan, const tr_options *options);     // plan_model.c
tr_status tr__plan_data(tr_train_plan *plan, const tr_options *options);      // plan_data.c
tr_status tr__plan_memory(tr_train_plan *plan);                               // plan_memory.c
// Without looking whether it fits. `like` (may be NULL): a plan for the same data, whose tokenizer and source are borrowed;
// the caller takes them out again before destroying.
tr_status tr__train_plan(const tr_train_config *config, const tr_options *options, int progress,
                         const tr_train_plan *like, tr_train_plan *out);
tr_status tr__plan_check_memory(const tr_train_plan *plan, const tr_options *options);
size_t tr__train_eval_bytes(const tr_train_plan *plan); // shared memory that an evaluation's exchange takes

// What the loop of one rank holds. Everything hangs off this object, so ranks can be threads.
typedef struct tr__trainer {
  const tr_train_plan *plan;
  const tr_options *options;
  tr_comm *comm;
  int rank;
  tr_group *dp;
  tr_pool *pool;
  tr_run *run;
  tr_batch *batch;       // [accumulation]
  tr_model_input *input; // [accumulation]
  tr_batch eval_batch;
  int64_t *eval_index;           // [micro]
  struct tr__eval_sum *eval_sum; // [all ranks' shares] in the shared arena
  struct tr__dealer *dealer;
  struct tr__fault *fault;   // NULL: none
  struct tr__saving *saving; // files and writer of checkpoints
  tr_events *events;         // NULL: none
  int64_t step;              // updates done
  int64_t tokens;            // valid tokens seen
  int64_t start_step;        // of this process, after resume
  tr_tally used;             // samples of this rank since the ledger's last span
  tr_ledger ledger;
  double val_loss;  // of the last evaluation
  int64_t val_step; // after how many updates, -1: never
  // since the last log line
  int64_t mark_ns, mark_tokens, data_ns, comm_ns;
  int64_t begin_ns;
  int64_t progress_ns; // when the progress bar was last drawn
  int progress_shown;
} tr__trainer;

// The sign of a "not a number" means nothing, so it is not printed.
static inline double tr__unsigned_nan(double x) { return isnan(x) ? (double)NAN : x; }

// ---- metrics.c (rank 0 speaks)
void tr__metrics_start(tr__trainer *t);
tr_status tr__metrics_step(tr__trainer *t, const tr_step_result *result, double lr, int log_now);
tr_status tr__metrics_event(tr__trainer *t, const char *event);

// ---- evaluate.c. Collective. Mean loss per valid token over the plan's validation samples: the same bits on any
// layout.
tr_status tr__evaluate(tr__trainer *t, double *loss);

// ---- same_run.c. A run may go on only as what it was: refuses settings that differ from those of the checkpoint in
// `path` and that the state in it cannot follow. `json` is its trainer.json, `file` the name of that.
tr_status tr__same_run(const tr__trainer *t, const char *path, const json_t *json, const char *file);
const char *tr__optimizer_word(const tr_train_config *config);

// ---- contract.c. What decides every bit of a run. The caller releases the object.
tr_status tr__contract(const tr_train_plan *plan, json_t **out);
void tr__contract_compare(const json_t *own, const json_t *saved, tr_text *out); // what differs, "" when nothing does

// ---- deal_samples.c: which samples a rank's micro-batches hold
tr_status tr__dealer_create(const tr_train_plan *plan, struct tr__dealer **out);
void tr__dealer_free(struct tr__dealer *dealer);
// Global indices of micro-batch j of this rank in this step: valid until the next call for another step.
void tr__dealer_take(struct tr__dealer *dealer, const tr_train_plan *plan, int64_t step, int rank, int j,
                     const int64_t **index, int *count);
int64_t tr__samples_before(const tr_train_plan *plan, int64_t step); // global samples used by the steps before `step`

// ---- state.c: checkpoints of a run
tr_status tr__state_bytes(const tr_train_plan *plan,
                          size_t *nbyte); // of the buffer of one rank, before anything exists
tr_status tr__state_open(tr__trainer *t); // collective; after the run
void tr__state_close(tr__trainer *t);
tr_status tr__state_resume(tr__trainer *t, int *resumed);  // collective; from the folder's newest checkpoint, if any
tr_status tr__state_load_weights(tr__trainer *t);          // from the plan's model folder
tr_status tr__state_save(tr__trainer *t, int last);        // collective; `last`: wait until it is on disk
tr_status tr__state_poll(tr__trainer *t, int64_t step_ns); // after each step: outcome of a save in progress
void tr__state_settle(tr__trainer *t,
                      tr_status reason); // before an end with this failure: a save in progress ends first
int tr__state_due(const tr__trainer *t); // rank 0: whether to save after this step

// ---- fault.c. TRIREME_FAULT="rank=1,op=REDUCE,step=3,action=kill|stop|segv|exit|error|sleep": for tests of mishaps.
tr_status tr__fault_check(const tr_train_plan *plan); // by the launcher, before any rank starts
tr_status tr__fault_open(tr__trainer *t);
void tr__fault_close(tr__trainer *t);
void tr__fault_observe(tr__trainer *t, tr_run_options *options);
void tr__fault_point(tr__trainer *t, const char *op, int64_t step); // SAVE comes from the writer's thread
tr_status tr__fault_status(tr__trainer *t);

#endif
