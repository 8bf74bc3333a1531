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

enum { TR__TRAIN_RANKS = 256 }; // most ranks of a run

tr_model_input tr__batch_input(const tr_batch *batch);  // the view of a batch that pieces get; owns nothing
tr_dtype tr__train_type(const tr_train_config *config); // of the working weights
tr_dtype tr__stage_type(const tr_train_config *config); // of what travels between stages

// ---- the parts of a plan, in this order
tr_status tr__plan_from(tr_train_plan *plan, const tr_options *options);      // plan_model.c
tr_status tr__plan_tokenizer(tr_train_plan *plan, const tr_options *options); // plan_data.c
tr_status tr__plan_model(tr_train_plan *plan, const tr_options *options);     // plan_model.c
tr_status tr__plan_data(tr_train_plan *plan, const tr_options *options);      // plan_data.c
tr_status tr__plan_stages(tr_train_plan *plan, const tr_options *options);    // plan_stages.c: the parts of ranks
tr_status tr__plan_program(tr_train_plan *plan); // plan_program.c; again with another micro
tr_status tr__plan_memory(tr_train_plan *plan);  // plan_memory.c
// Predicted bytes of those ranks of a host that are `here` ([ranks]), together.
size_t tr__plan_bytes_here(const tr_train_plan *plan, const unsigned char *here);
enum { TR_PLAN_ROWS = INT32_MAX / 4 }; // most rows that go through at once
// plan_schedule.c. Whether there is a pipeline; its schedule, for plan->accumulation micro-batches (`options` NULL: refusals
// name no setting); whether there would be one for m.
int tr__plan_pipelined(const tr_train_plan *plan);
tr_status tr__plan_schedule(tr_train_plan *plan, const tr_options *options);
int tr__plan_suits(const tr_train_plan *plan, int64_t m);
// Whether dp pipelines of pp ranks could have this schedule with so many stages a rank (0: as it has them), all with layers.
int tr__plan_has_layers(const tr_train_plan *plan, int pp, int dp, char *name, int chunks);
void tr__plan_stages_free(tr_train_plan *plan);
// groups.c: places of a pipeline with the same stages are one side, named by its first place; how many ranks sum their
// gradients together; whether a parameter of a place's part is also in a part of another side.
int tr__plan_side(const tr_train_plan *plan, int place);
// Of the ranks whose gradients are summed with those of `rank`, how many are on its host, and which of them comes first; `host` of
// each rank, NULL: one host. Those have the state together with parallel.zero=1.
int tr__plan_sharers(const tr_train_plan *plan, const int16_t *host, int rank, int *first);
void tr__plan_hosts(const tr_train_plan *plan, int16_t *host); // [ranks], as starters mostly lay them out: in blocks
int tr__plan_gradient_ranks(const tr_train_plan *plan);
int tr__plan_ties(const tr_train_plan *plan, int place, int param);
int tr__plan_groups(const tr_train_plan *plan); // of one rank at most, that of all ranks included
// plan_program.c: what tr_train_run_options says for the ranks of a part, whether its backward passes are split.
void tr__part_run_options(const tr_train_plan *plan, const tr_train_part *part, tr_run_options *out);
int tr__part_splits(const tr_train_part *part);
int64_t tr__plan_most_micro(const tr_train_plan *plan); // plan_micro.c; the largest that divides, whatever the memory
tr_status tr__plan_fit_micro(tr_train_plan *plan);      // plan_micro.c; lowers batch.micro=auto until it fits
tr_status tr__plan_lower_micro(tr_train_plan *plan, int64_t micro); // to what another host has chosen
// Without looking whether it fits. `like` (may be NULL): a plan for the same data, whose tokenizer and source are borrowed;
// the caller takes them out again before destroying.
tr_status tr__train_plan(const tr_train_config *config, const tr_options *options, int progress,
                         const tr_train_plan *like, tr_train_plan *out);
tr_status tr__plan_check_memory(const tr_train_plan *plan, const tr_options *options);
tr_status tr__plan_bubble(const tr_train_plan *plan, double *bubble); // plan_bubble.c: of a pipeline, by FLOPs
size_t tr__train_eval_bytes(const tr_train_plan *plan); // shared memory that an evaluation's exchange takes

// ---- limits.c: what the processors of all ranks together could do, per second. 0: not measured.
typedef struct tr__limits {
  double flops; // of products in the run's type
  double bytes; // read and written by a copy of memory; measured for profiles only
} tr__limits;
// Before any rank is started. Takes about a hundredth of the time that the run will take, 20 to 200 ms.
tr__limits tr__limits_measure(const tr_train_plan *plan);
// The share of the limit that a run with so many FLOP/s reaches, at most 1: what was seen once is the limit if it is more. 0: not
// measured.
double tr__limits_share(tr__limits *limits, double flops);

// What the loop of one rank holds. Everything hangs off this object, so ranks can be threads.
typedef struct tr__trainer {
  const tr_train_plan *plan;
  const tr_options *options;
  tr_comm *comm;
  int rank;
  int dp_rank; // its place in dp: which micro-batches it reads
  const tr_train_part *part;
  tr_train_groups groups;
  tr_pool *pool;
  tr_run *run;
  tr_batch *batch;               // [accumulation]; evaluations use them between steps
  tr_model_input *input;         // [accumulation]
  int64_t *eval_index;           // [micro]
  struct tr__eval_sum *eval_sum; // [all ranks' shares] in the shared arena
  struct tr__dealer *dealer;
  _Atomic int *stopped;      // seen by the launcher: the run has ended before its last step, as asked
  struct tr__fault *fault;   // NULL: none
  struct tr__saving *saving; // files and writer of checkpoints
  tr_events *events;         // NULL: none
  struct tr__trace *trace;   // of the whole job, NULL: none
  struct tr__timing *timing; // NULL: nobody asks where the time goes
  tr__limits limits;
  int64_t step;       // updates done
  int64_t tokens;     // valid tokens seen
  int64_t start_step; // of this process, after resume
  tr_tally used;      // samples of this rank since the ledger's last span
  tr_ledger ledger;
  double val_loss;                      // of the last evaluation
  int64_t val_step;                     // after how many updates, -1: never
  size_t memory_before;                 // private memory of this process when it had done nothing yet
  size_t memory_own;                    // the most that this rank was seen to take
  size_t memory_used, memory_predicted; // by all ranks of rank 0's host
  int memory_ranks;                     // how many these are
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
tr_status tr__metrics_append(const tr__trainer *t, json_t *record); // takes the reference; NULL: no memory
void tr__metrics_clear_line(tr__trainer *t);                        // before anything else is printed

// ---- memory_used.c: what the job takes, to be laid beside the prediction
void tr__memory_begin(tr__trainer *t);      // before anything is allocated
tr_status tr__memory_count(tr__trainer *t); // collective: sets memory_used
tr_status tr__memory_end(tr__trainer *t);   // collective: the last line about it

// ---- timing.c: where the time goes. The slices of the loop, nested; those of a step's program come from the executor.
typedef enum tr__slice {
  TR__SLICE_STEP,
  TR__SLICE_DATA,
  TR__SLICE_PROGRAM,
  TR__SLICE_EVALUATION,
  TR__SLICE_SAVE,
  TR__SLICES_OF_LOOP
} tr__slice;
tr_status tr__timing_open(tr__trainer *t); // collective when there is a trace
void tr__timing_close(tr__trainer *t);
void tr__timing_observe(tr__trainer *t, tr_run_options *options);
void tr__timing_begin(tr__trainer *t, tr__slice slice);
void tr__timing_end(tr__trainer *t);                                   // of the innermost slice
void tr__timing_program(tr__trainer *t, const tr_step_result *result); // the same for PROGRAM, with what came of it
void tr__timing_wrote(tr__trainer *t, int64_t begin,
                      const tr_saved *saved); // a checkpoint written beside the training
// Communication: time of programs outside pieces and state operations, that is moving data and waiting, as a multiple of
// the time inside them, since the last call; -1: not known.
double tr__timing_rho(tr__trainer *t);

// ---- bubble.c: the share of a pipeline's step that its ranks compute nothing
size_t tr__bubble_bytes(const tr_train_plan *plan); // of each rank
typedef struct tr__simulated {
  int64_t makespan; // ns of a step; 0: not simulated yet
  int64_t kernels;  // the same if nothing took time but kernels
  double bubble;
} tr__simulated;
tr_status tr__bubble_count(tr__trainer *t); // collective: what all ranks measured since the last time
int tr__bubble_say(const tr__trainer *t, double *measured, tr__simulated *simulated); // rank 0; 0: nothing to say
tr_status tr__bubble_end(const tr__trainer *t);                                       // the last line about it

// ---- trace.c: the run's trace (run.trace), kept in memory that outlives the ranks
size_t tr__trace_bytes(const tr_train_plan *plan); // per rank; 0 without a trace
tr_status tr__trace_check(const tr_train_config *config, const tr_options *options);
tr_status tr__trace_create(const tr_train_plan *plan,
                           struct tr__trace **out); // by who starts the ranks; NULL without a trace
tr_status tr__trace_gather(tr__trainer *t);         // trace_gather.c; collective: rank 0 gets the events of all
void tr__trace_destroy(struct tr__trace *trace);
// trace_file.c: what all ranks left, as one file, after their end. Returns `job`, how that was, with its sentence if it
// failed, else what became of the file.
tr_status tr__trace_write(const struct tr__trace *trace, tr_status job);

// ---- curve.c: the last words of a run that ended well
void tr__curve_say(const tr_train_plan *plan);

// ---- profile.c: tables of where the time goes (run.profile)
tr_status tr__profile_step(tr__trainer *t); // after each step: the table of the last ones, when it is due
tr_status tr__profile_end(tr__trainer *t);  // of all steps

// ---- evaluate.c. Collective. Mean loss per valid token over the plan's validation samples: the same bits on any
// layout.
tr_status tr__evaluate(tr__trainer *t, double *loss);

// ---- same_run.c. A run may go on only as what it was: refuses settings that differ from those of the checkpoint in
// `path` and that the state in it cannot follow. `json` is its trainer.json, `file` the name of that.
tr_status tr__same_run(const tr__trainer *t, const char *path, const json_t *json, const char *file);
const char *tr__optimizer_word(const tr_train_config *config);

// ---- contract.c. What decides every bit of a run. The caller releases the object.
tr_status tr__contract(const tr_train_plan *plan, json_t **out);
// Of all settings but those that hosts may have of their own, and of what is trained on: what all ranks must have in common.
tr_status tr__contract_number(const tr_train_plan *plan, const tr_options *options, uint64_t *out);
void tr__contract_compare(const json_t *own, const json_t *saved, tr_text *out); // what differs, "" when nothing does

// ---- deal_samples.c: which samples a rank's micro-batches hold
tr_status tr__dealer_create(const tr_train_plan *plan, struct tr__dealer **out);
void tr__dealer_free(struct tr__dealer *dealer);
size_t tr__dealer_bytes(const tr_train_plan *plan);
// Global indices of micro-batch j of this place in dp in this step: valid until the next call for another step.
void tr__dealer_take(struct tr__dealer *dealer, const tr_train_plan *plan, int64_t step, int dp_rank, int j,
                     const int64_t **index, int *count);
int64_t tr__samples_before(const tr_train_plan *plan, int64_t step); // global samples used by the steps before `step`

// ---- saving.c, resuming.c: checkpoints of a run
// Before anything exists: the buffer that holds each rank's share of a save, each[ranks], and the lists of each rank.
tr_status tr__state_bytes(const tr_train_plan *plan, size_t *each, size_t *lists);
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
void tr__fault_end(const tr__trainer *t); // of a run that ended well: says that the fault has not struck

#endif
