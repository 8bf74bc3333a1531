// SPDX-License-Identifier: MIT
// Inside the executor: the bound state of one run.
#ifndef TRIREME_RUN_INTERNAL_H
#define TRIREME_RUN_INTERNAL_H

#include "trireme/run/run.h"
#include "trireme/step/values.h"

// What this rank owns of one bucket, and how far its squares are summed.
typedef struct tr__share {
  tr_run *run;
  int64_t first; // element where the bucket starts
  size_t *start; // [sharers + 1] where each sharer's part starts, from `first`
  int unit;      // of the next block
  int64_t at;    // where it starts
  int64_t block; // its number
} tr__share;

// tr_run.touched of a parameter that several chunks use: a step's first contribution overwrites, whichever chunk it is of.
enum { TR__SHARED = 1, TR__TOUCHED = 2 };

// Where the copies of one chunk's lifetime classes begin.
typedef struct tr__bound_chunk {
  char *slot[TR_PLACE_IW + 1];
} tr__bound_chunk;

// A ring's slots: values as pieces read and write them, and, where a peer is at the other end, messages: a header and then
// the values as they travel, which are the same memory unless they travel as another type.
typedef struct tr__bound_ring {
  char *values, *message;
  size_t values_stride, message_stride;
  int64_t width; // elements of a row
  int tag;
} tr__bound_ring;

// A queue of communication operations in program order.
typedef struct tr__queue {
  uint32_t begin, end, head; // of tr_run.queued; head: next to start
} tr__queue;

struct tr_run {
  tr_run_options options;
  tr_dtype wide, wire_type, stage_type; // stage_type: in which activations travel
  tr_group *grads;                      // ranks whose gradients are summed, NULL: one
  int ngrad, grad_rank;                 // ranks in it, own index
  int dp, dp_rank;                      // ranks in options.dp, own index
  int pp, pp_rank;
  tr_group *sharers;   // those of grads who can have the state together; NULL: this rank alone
  int nsharer, sharer; // how many, own index
  int shares;          // zero 1 with several sharers
  // the chunks and rings of the program; of one without: `only`
  const tr_chunk *chunk;
  int nchunk, nring;
  tr_chunk only;
  // memory, one private arena and blocks of the rank's shared arena
  tr_arena memory, scratch;
  tr_arena own_shared; // stands in for the shared arena when there is no communicator
  size_t shared_mark;  // where this run's blocks begin in the shared arena
  tr_value_plan plan;
  tr__bound_chunk *bound;                       // [chunks]
  tr__bound_ring *ring;                         // [rings]
  char *area[TR_PLACE_CLASSES];                 // TEMPORARY and RECOMPUTE
  size_t beside;                                // where in the first F of a pair has its own; 0: there are no pairs
  void *weights, *master, *gradients, *partial; // partial: one micro-batch's sums, grad_sync every
  void *wire;                                   // gradients as they travel, NULL: as they are
  char *packed;
  size_t *packed_at; // [params][TR_PACKS] offset in `packed`, SIZE_MAX: not packed
  tr__share *share;  // [buckets]
  size_t *starts;    // of all shares
  int *bucket_of;    // [units]
  float *state[TR_OPTIM_MAX_STATE];
  double *squares;                    // [blocks of the layout]
  double *sums;                       // [gradient ranks] per role of a small exchange
  double *norms;                      // [pp] losses, then [pp][units of the whole model] sums of squares
  int *norm_unit;                     // [units] whose squares this rank reports: unit of the whole model, -1 none
  double *losses;                     // [micro-batches] of the step, in f64
  unsigned char *grad_first;          // [pieces * PORTS] facts of the model, looked up once
  unsigned char *param_first;         // [pieces * PARAMS] no later piece of the chunk uses it
  unsigned char *touched;             // [params] TR__SHARED, and whether there is a contribution to its gradient
  int tied_param;                     // gradient summed over options.tied, -1 none
  size_t *tied_starts;                // [2][sharers + 1] parts of what is around it
  tr_optim_segment *segment;          // [params]
  tr_compute compute, inline_compute; // the second without the pool: what is done beside communication
  // evaluation through a pipeline
  int loss_rank;             // of the pipeline
  int eval_group;            // inputs that go through one stage of a rank before those of its next stage
  tr_request **eval_request; // [slots of all rings]
  // the step under way
  const tr_model_input *input;
  int64_t step;
  int64_t updates;    // updates done, those of earlier runs included; skipped steps do not count
  int64_t step_count; // steps done by this run: what edges count
  double lr, scale;
  tr_step_result result;
  uint64_t *done;            // [ops] how often each has ended
  tr_request **pending;      // [ops] communication under way
  uint32_t *active, nactive; // [ops] communication operations under way
  unsigned char *phase;      // [ops] how many exchanges of an operation have been started
  uint32_t *queued;          // [ops] communication operations, queue after queue
  tr__queue *queue;          // [TR_QUEUE_RINGS + rings] by tr_op_queue; that of the compute lane is empty
};

tr_status tr__run_piece_forward(tr_run *run, int piece, const tr_model_input *input, const tr_op *op, int training);
tr_status tr__run_piece_backward(tr_run *run, int piece, const tr_model_input *input, const tr_op *op);
// The one piece of `op`, which exchanges: started. NULL: there is nothing to wait for.
tr_status tr__run_exchange_start(tr_run *run, const tr_op *op, tr_request **request);
// Address of a place in the slots that `op` uses; NULL for nowhere.
void *tr__run_resolve(const tr_run *run, const tr_op *op, const tr_place *place);
void tr__run_hand_over(tr_run *run, const tr_op *op,
                       int64_t rows); // what a forward pass has written for the next stage
tr_status tr__run_check_rows(const tr_run *run, const tr_model_input *input, int n);
// `sum` and the losses of rows [first, last), which the last piece has just written in the slots of `op`, in row order.
double tr__run_add_losses(const tr_run *run, const tr_op *op, const tr_model_input *input, int64_t first,
                          int64_t last, double sum);
tr_status tr__run_queues_make(tr_run *run);
tr_status tr__run_comm_advance(tr_run *run);           // start what is ready, finish what has arrived
tr_status tr__run_comm_finish(tr_run *run);            // until the step's communication is done
tr_status tr__run_comm_wait(tr_run *run, uint32_t op); // until this communication operation is done
int tr__run_edge_done(const tr_run *run, const tr_edge *edge);
void tr__run_op_begin(tr_run *run, uint32_t index);
void tr__run_op_done(tr_run *run, uint32_t index);
tr_status tr__run_state_op(tr_run *run, const tr_op *op); // NORM, UPDATE, PUBLISH
void tr__run_pack(tr_run *run, int unit);                 // this rank's parts of the unit's packed weights

// ---- run_memory.c: what is taken, in the order in which it is
// Kernel scratch for the worst piece.
size_t tr__kernel_scratch(const tr_model *model, const tr_kernels *kernels, tr_dtype type, int64_t rows, int nthread);
int tr__run_chunks(const tr_run_options *o, tr_chunk *only, const tr_chunk **out); // how many
int tr__run_shares_state(const tr_run_options *o, int ngrad);
int tr__run_values_travel(const tr_run_options *o);     // values lie in the shared arena, too
size_t tr__run_values_bytes(const tr_run_memory *need); // but those in rings
tr_dtype tr__run_wire_type(const tr_run_options *o, int ngrad);
size_t tr__run_sums_bytes(int ngrad);
size_t tr__run_norms_bytes(const tr_run_options *o);
size_t tr__run_squares_bytes(const tr_run_options *o);
size_t tr__run_chunk_bytes(const tr_chunk *chunk, const size_t *size); // size: of a slot of each class
tr_status tr__run_plan_values(const tr_run_options *o, tr_value_plan *out);
void tr__run_predict(const tr_run_options *o, const tr_value_plan *plan, int nthread, int ngrad, int nshare,
                     tr_run_memory *out);

// ---- run_check.c
tr_status tr__run_check_chunks(const tr_run_options *o); // the program is one of this part of the model
tr_status tr__run_check(const tr_run *run);

// ---- rings.c: what crosses between stages
typedef struct tr__ring_sizes {
  int64_t width;
  size_t values, message; // bytes of a slot; 0: shares the other's memory, or there is none
} tr__ring_sizes;
tr_dtype tr__ring_type(const tr_run_options *o); // in which activations travel
void tr__ring_sizes_of(const tr_run_options *o, int ring, tr__ring_sizes *out);
tr_status tr__rings_bind(tr_run *run, tr_arena *shared);
// Address of the values in a slot of a ring.
static inline char *tr__ring_values(const tr_run *run, int ring, int slot) {
  return run->ring[ring].values + (size_t)slot * run->ring[ring].values_stride;
}
// Start a message. What it is stands in front of it, and is checked when it has come.
tr_status tr__ring_send(tr_run *run, const tr_op *op, int64_t rows, tr_request **request);
tr_status tr__ring_recv(tr_run *run, const tr_op *op, int64_t rows, tr_request **request);
tr_status tr__ring_received(tr_run *run, const tr_op *op, int64_t rows);

// ---- norm.c: the gradient norm of the whole model, whoever has which part of it
tr_status tr__norm_bind(tr_run *run);
void tr__norm_own(tr_run *run); // sums of squares of this rank's units
double *tr__norm_row(const tr_run *run, int rank);
double tr__norm_of_all(const tr_run *run);

// ---- run_sums.c: collectives, each one or more exchanges after each other
int tr__sum_phases(const tr_op *op);
tr_status tr__sum_start(tr_run *run, const tr_op *op, int phase, tr_request **request); // NULL: nothing to wait for
void tr__sum_finish(tr_run *run, const tr_op *op);
tr_status tr__tied_bind(tr_run *run);
int tr__param_elsewhere(const tr_model *model, int param); // whether a piece outside this part of a model uses it

// ---- run_eval.c
tr_status tr__eval_bind(tr_run *run); // collective over pp

// ---- share.c: parts of buckets
tr_status tr__shares_make(tr_run *run);
void tr__shares_free(tr_run *run);
void tr__share_begin(tr_run *run, int bucket);               // before its sums of squares
void tr__share_squares(void *share, size_t first, size_t n); // a tr_part_done: elements of the own part are final
double tr__squares_of_block(tr_run *run, int64_t first, int64_t count);
void tr__share_zero(tr_run *run); // the own parts of shared state: first touched by the owner
// Elements of a unit that this rank updates.
void tr__share_of_unit(const tr_run *run, int unit, int64_t *first, int64_t *count);

#endif
