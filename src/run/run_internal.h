// SPDX-License-Identifier: MIT
// Inside the executor: the memory plan of values, and the bound state of one run.
#ifndef TRIREME_RUN_INTERNAL_H
#define TRIREME_RUN_INTERNAL_H

#include "trireme/run/run.h"

// Where a buffer lives: a slot of a lifetime class, the area for temporaries or that for values that are computed again, or
// nowhere.
typedef enum tr__class { TR__NONE, TR__FI, TR__FW, TR__IW, TR__TEMPORARY, TR__RECOMPUTE, TR__CLASS_COUNT } tr__class;
typedef struct tr__place {
  tr__class where;
  size_t offset;
} tr__place;

typedef struct tr__value_plan {
  tr__place *value, *grad;      // [values]
  unsigned char *again;         // [pieces] run again by an R
  size_t size[TR__CLASS_COUNT]; // bytes of one slot of each class; of a whole area
} tr__value_plan;

typedef struct tr__value_options {
  tr_dtype type;
  int64_t rows;
  int gradients; // 0: forward only
  int split_backward, recompute;
} tr__value_options;
tr_status tr__value_plan_make(const tr_model *model, const tr__value_options *options, tr__value_plan *out);
void tr__value_plan_free(tr__value_plan *plan);

// What all ports together say about each value.
typedef struct tr__value_facts {
  int *producer, *last_reader; // [values] piece, -1 none; in one block with lowest_user
  int *lowest_user; // [values] lowest piece whose backward pass reads it; as many as there are pieces: none
  unsigned *use;    // [values] union over ports
} tr__value_facts;
tr_status tr__value_facts_make(const tr_model *model, tr__value_facts *out);
void tr__value_facts_free(tr__value_facts *facts);

int tr__unit_end(const tr_model *model, int begin); // first piece of the next unit
// Writes tr__value_plan.again.
void tr__recompute_pieces(const tr_model *model, const tr__value_facts *facts, int recompute, unsigned char *again);

// Kernel scratch for the worst piece.
size_t tr__kernel_scratch(const tr_model *model, const tr_kernels *kernels, tr_dtype type, int64_t rows, int nthread);

// What this rank owns of one bucket, and how far its squares are summed.
typedef struct tr__share {
  tr_run *run;
  int64_t first; // element where the bucket starts
  size_t *start; // [sharers + 1] where each sharer's part starts, from `first`
  int unit;      // of the next block
  int64_t at;    // where it starts
  int64_t block; // its number
} tr__share;

struct tr_run {
  tr_run_options options;
  tr_dtype wide, wire_type;
  int dp, dp_rank;     // ranks in options.dp, own index
  tr_group *sharers;   // who can have the state together; NULL: this rank alone
  int nsharer, sharer; // how many, own index
  int shares;          // zero 1 with several sharers
  // memory, one private arena and blocks of the rank's shared arena
  tr_arena memory, scratch;
  tr_arena own_shared; // stands in for the shared arena when there is no communicator
  size_t shared_mark;  // where this run's blocks begin in the shared arena
  tr__value_plan plan;
  char *slot[TR__CLASS_COUNT];                  // base of slot 0 of each class
  void *weights, *master, *gradients, *partial; // partial: one micro-batch's sums, grad_sync every
  void *wire;                                   // gradients as they travel, NULL: as they are
  char *packed;
  size_t *packed_at; // [params][TR_PACKS] offset in `packed`, SIZE_MAX: not packed
  tr__share *share;  // [buckets]
  size_t *starts;    // of all shares
  int *bucket_of;    // [units]
  float *state[TR_OPTIM_MAX_STATE];
  double *squares;                    // [blocks of the layout]
  double *sums;                       // [dp] per role of a small exchange
  unsigned char *grad_first;          // [pieces * PORTS] facts of the model, looked up once
  unsigned char *param_first;         // [pieces * PARAMS]
  tr_optim_segment *segment;          // [params]
  tr_compute compute, inline_compute; // the second without the pool: what is done beside communication
  // the step under way
  const tr_model_input *input;
  int64_t step;
  int64_t updates;    // updates done, those of earlier runs included; skipped steps do not count
  int64_t step_count; // steps done by this run: what edges count
  double lr, scale, loss_sum;
  tr_step_result result;
  uint64_t *done;            // [ops] how often each has ended
  tr_request **pending;      // [ops] communication under way
  uint32_t *active, nactive; // [ops] communication operations under way
  uint32_t comm_head;        // next operation of the communication lane
};

tr_status tr__run_piece_forward(tr_run *run, int piece, const tr_model_input *input, const tr_op *op, int training);
tr_status tr__run_piece_backward(tr_run *run, int piece, const tr_model_input *input, const tr_op *op);
// Address of a place in the slots that `op` uses; NULL for nowhere.
void *tr__run_resolve(const tr_run *run, const tr_op *op, const tr__place *place);
tr_status tr__run_comm_advance(tr_run *run);           // start what is ready, finish what has arrived
tr_status tr__run_comm_finish(tr_run *run);            // until the step's communication is done
tr_status tr__run_comm_wait(tr_run *run, uint32_t op); // until this communication operation is done
int tr__run_edge_done(const tr_run *run, const tr_edge *edge);
void tr__run_op_begin(tr_run *run, uint32_t index);
void tr__run_op_done(tr_run *run, uint32_t index);
tr_status tr__run_state_op(tr_run *run, const tr_op *op); // NORM, UPDATE, PUBLISH
void tr__run_pack(tr_run *run, int unit);                 // this rank's parts of the unit's packed weights

// ---- share.c: parts of buckets
tr_status tr__shares_make(tr_run *run);
void tr__shares_free(tr_run *run);
void tr__share_begin(tr_run *run, int bucket);               // before its sums of squares
void tr__share_squares(void *share, size_t first, size_t n); // a tr_part_done: elements of the own part are final
void tr__share_zero(tr_run *run); // the own parts of shared state: first touched by the owner
// Elements of a unit that this rank updates.
void tr__share_of_unit(const tr_run *run, int unit, int64_t *first, int64_t *count);

#endif
