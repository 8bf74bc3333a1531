// SPDX-License-Identifier: MIT
// Shared inside the train module: the state of one rank's loop, metrics, saving and loading, fault injection.
#ifndef TRIREME_TRAIN_INTERNAL_H
#define TRIREME_TRAIN_INTERNAL_H

#include "trireme/data/data.h"
#include "trireme/run/run.h"
#include "trireme/train/train.h"
#include <jansson.h>
#include <math.h>
#include <stdio.h>

tr_model_input tr__batch_input(const tr_batch *batch); // the view of a batch that pieces get; owns nothing
tr_source_options tr__train_source_options(const tr_train_config *config);
void tr__train_run_options(const tr_train_plan *plan, tr_run_options *out);
tr_dtype tr__train_type(const tr_train_config *config); // of the working weights
size_t tr__train_eval_bytes(const tr_train_plan *plan); // shared memory that an evaluation's exchange takes

// What the loop of one rank holds. Everything hangs off this object, so ranks can be threads.
typedef struct tr__trainer {
  const tr_train_plan *plan;
  const tr_options *options;
  tr_comm *comm;
  int rank;
  tr_group *dp;
  tr_pool *pool;
  tr_tokenizer *tokenizer;
  tr_source *source;
  tr_run *run;
  tr_batch *batch;       // [accumulation]
  tr_model_input *input; // [accumulation]
  tr_batch eval_batch;
  double *eval_loss;       // [all ranks' shares] in the shared arena
  struct tr__fault *fault; // NULL: none
  int64_t step;            // updates done
  int64_t tokens;          // valid tokens seen
  int64_t start_step;      // of this process, after resume
  uint64_t data_hash;
  double val_loss;  // of the last evaluation
  int64_t val_step; // after how many updates, -1: never
  // since the last log line
  int64_t mark_ns, mark_tokens, data_ns, comm_ns;
  int64_t begin_ns;
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

// ---- state.c. Rank 0 saves; every rank loads.
tr_status tr__state_save(tr__trainer *t);
tr_status tr__state_resume(tr__trainer *t, int *resumed); // from the folder's newest checkpoint, if it has one

// ---- fault.c. TRIREME_FAULT="rank=1,op=REDUCE,step=3,action=kill|stop|segv|exit|error|sleep": for tests of mishaps.
tr_status tr__fault_check(const tr_train_plan *plan); // by the launcher, before any rank starts
tr_status tr__fault_open(tr__trainer *t);
void tr__fault_close(tr__trainer *t);
void tr__fault_observe(tr__trainer *t, tr_run_observer *observer);
void tr__fault_at_step(tr__trainer *t, int64_t step);
void tr__fault_point(tr__trainer *t, const char *op);
tr_status tr__fault_status(tr__trainer *t);

#endif
