// SPDX-License-Identifier: MIT
// Where a step's time goes, inside the train module. One observer of the executor reads the clock (timing.c) and feeds the
// trace's ring (trace.c, written as a file by trace_file.c) and the profile's tables (profile.c, profile_text.c), which
// compare times with what the work costs (cost.c) and with what the processor can do (limits.c).
#ifndef TRIREME_TRAIN_TIMING_INTERNAL_H
#define TRIREME_TRAIN_TIMING_INTERNAL_H

#include "train/train_internal.h"
#include "trireme/sim/sim.h"
#include <stdatomic.h>

// ---- what is kept of an event. Slices of the loop have the numbers of tr__slice.
typedef enum tr__event_kind {
  TR__EVENT_WRITE = TR__SLICES_OF_LOOP, // a checkpoint written by its own thread
  TR__EVENT_OP,
  TR__EVENT_PIECE,
  TR__EVENT_ARENAS, // counters from here on: bytes of the rank's arenas
  TR__EVENT_RESIDENT,
  TR__EVENT_RATE, // tokens per second
  TR__EVENT_LOSS
} tr__event_kind;

enum { TR__NO_OP = -1 };

typedef struct tr__event {
  int64_t begin, end; // ns of the monotonic clock; equal for counters
  int64_t step;
  union {
    struct {
      int32_t op, piece; // pieces of an evaluation: TR__NO_OP
    };
    double value;
  };
  int32_t kind;
} tr__event;

typedef struct tr__under_way { // of a communication operation
  int64_t begin, step;         // begin 0: it is not
} tr__under_way;

// The events of one rank, in the order in which they ended: the newest `capacity` of them. What has begun and not ended
// stands beside them, so that a crash shows what it interrupted. One writer, the rank's own thread; whoever reads does so
// when that has ended, in whatever state it was.
enum { TR__OPEN_SLICES = 8 };
// How far a rank's clock was ahead of rank 0's when that showed `at`, ns.
typedef struct tr__clock {
  int64_t offset, error, at;
} tr__clock;
enum { TR__CLOCK_BEGIN, TR__CLOCK_END }; // END: where events are gathered
typedef struct tr__ring {
  _Atomic uint64_t count; // events so far
  _Atomic uint32_t depth; // of slices that have begun, outermost first
  tr__event open[TR__OPEN_SLICES];
  tr__under_way *under_way; // [ops]
  tr__event *event;         // [capacity]
  uint64_t capacity;        // 0: events are not kept
  tr__clock clock[2];
  char host[64]; // "": nothing is known of this rank
} tr__ring;

struct tr__trace {
  const tr_train_plan *plan;
  char *memory; // the ranks' shares, each a ring and what it points to
  size_t share;
  int64_t begin; // ns: time 0 of the file
  char begin_utc[32];
  int whole; // 0: only this rank's events are here
};
tr__ring *tr__trace_ring(const struct tr__trace *trace, int rank);
// trace_gather.c
tr_status tr__trace_join(tr__trainer *t); // collective, before the first step: memory is there, clocks are compared
static const char tr__trace_begins[] =
    "{\"displayTimeUnit\":\"ms\",\"otherData\":{\"program\":\"trireme\""; // every file with a trace
void tr__trace_temporary(const char *path, char *out, size_t nbyte);      // what the file is called until it is whole
void tr__ring_put(tr__ring *ring, const tr__event *event);

// ---- cost.c: what work has to be done
typedef enum tr__pass {
  TR__PASS_FORWARD,
  TR__PASS_BACKWARD,
  TR__PASS_INPUTS,
  TR__PASS_WEIGHTS,
  TR__PASS_RECOMPUTE,
  TR__PASSES
} tr__pass;
tr__pass tr__pass_of(const tr_op *op);
const char *tr__pass_name(tr__pass pass);
const char *tr__role_name(int role); // of a communication operation: "gradients"
typedef struct tr__cost {
  double flops, bytes;
} tr__cost;
// Of one call of a piece's functions. Bytes: every port and parameter that the pass touches, read or written once. FLOPs
// of the backward pass: twice those of the forward pass for products, 2.5 times for attention, which computes its scores
// again, 3 times for the last piece, whose forward pass leaves everything to the backward pass.
tr__cost tr__piece_cost(const tr_train_plan *plan, const tr_model *model, int piece, tr__pass pass,
                        const tr_model_input *input); // `model`: the plan's, or a part of it
// Of a pass over a micro-batch of full sequences.
double tr__op_flops(const tr_train_plan *plan, const tr_model *model, const tr_op *op);
double tr__op_bytes(const tr_train_plan *plan, int rank, const tr_op *op); // communication: bytes of its buffer

// ---- step_costs.c: what a pipeline's operations took, as costs for the simulator
typedef struct tr__cost_sum {
  int64_t ns, kernels, count; // kernels: of the time, inside pieces and state operations
} tr__cost_sum;
typedef struct tr__costs {
  const tr_train_plan *plan;
  uint32_t *first;     // [pp + 1] classes of operations of each place in the pipeline
  uint32_t **class_of; // [pp][ops] among those of its place
  tr__cost_sum *sum;   // [classes of all places]
} tr__costs;
tr_status tr__costs_open(const tr_train_plan *plan, tr__costs *out);
void tr__costs_close(tr__costs *costs);
void tr__costs_add(tr__costs *costs, int place, uint32_t op, int64_t ns, int64_t kernels);
int64_t tr__costs_of(const tr__costs *costs, int place, uint32_t op); // ns; 0: never seen
tr_status tr__costs_simulate(tr__costs *costs, tr_sim_result *out);   // ticks are ns
// Makespan in ns if nothing took time but kernels.
tr_status tr__costs_kernels(tr__costs *costs, int64_t *makespan);

// ---- bubble.c: how much of a step a pipeline's ranks wait, on all ranks
struct tr__bubble;
tr_status tr__bubble_open(const tr__trainer *t, struct tr__bubble **out);
void tr__bubble_close(struct tr__bubble *bubble); // NULL allowed
void tr__bubble_op(struct tr__bubble *bubble, uint32_t index, const tr_op *op, int64_t ns, int64_t kernels);
void tr__bubble_step(struct tr__bubble *bubble, int64_t program_ns);

// ---- trace_predicted.c: a pipeline's step as simulated, beside the last one of a trace
typedef struct tr__prediction {
  int64_t first, compared, last; // steps: costs are from [first, compared), held against [compared, last]
  tr__costs costs;
  tr_sim_result result;
  tr__cost_sum measured[TR_OP_KIND_COUNT], expected[TR_OP_KIND_COUNT];
  int64_t busy, programs; // ns of all ranks in the steps compared
  int64_t begin;          // of the last step
  int made;               // 0: there is none
} tr__prediction;
tr_status tr__prediction_make(const struct tr__trace *trace, tr__prediction *out); // free it in every case
void tr__prediction_free(tr__prediction *prediction);
void tr__prediction_json(const tr__prediction *prediction, tr_text *out); // a member of otherData, a comma before it
void tr__prediction_say(const tr__prediction *prediction);
void tr__prediction_events(const tr__prediction *prediction, int64_t shift, const char *comma, tr_text *out);

// ---- profile.c
typedef struct tr__tally {
  int64_t calls, ns;
  int64_t under_way; // communication: ns from start to end, beside other work
  double flops, bytes;
} tr__tally;

// One table: a row per kind of piece and pass, per state operation and per communication operation, and what the loop did.
typedef struct tr__table {
  int64_t steps;
  tr__tally *row; // [nrow]
  int64_t slice[TR__SLICES_OF_LOOP];
} tr__table;

struct tr__profile {
  int nkind;
  const char **kind; // [nkind] names of kinds of pieces
  int *kind_of;      // [pieces]
  int nrow;
  tr__table window, total;
};
tr_status tr__profile_open(const tr__trainer *t, struct tr__profile **out);
void tr__profile_close(struct tr__profile *profile); // NULL allowed
void tr__profile_piece(struct tr__profile *profile, const tr__trainer *t, int piece, const tr_op *op,
                       const tr_model_input *input, int64_t ns);
// A state operation, or a communication operation that the compute lane waited `ns` for.
void tr__profile_op(struct tr__profile *profile, const tr__trainer *t, const tr_op *op, int64_t ns,
                    int64_t under_way);
void tr__profile_slice(struct tr__profile *profile, tr__slice slice, int64_t ns);

// profile_text.c: name of a row, and a table for people and for programs
void tr__profile_name(const struct tr__profile *profile, int row, char *out, size_t nbyte);
tr_status tr__profile_print(const tr__trainer *t, const tr__table *table, int whole, tr_text *out);
json_t *tr__profile_json(const tr__trainer *t, const tr__table *table, int whole);

struct tr__timing {
  tr__ring *ring; // the trace's, or `own`
  tr__ring own;
  struct tr__profile *profile;    // NULL: none
  struct tr__bubble *bubble;      // NULL: no pipeline
  int computing;                  // a compute operation is under way
  int64_t idle_since;             // the compute lane, otherwise
  int64_t compute_ns, program_ns; // since the last log line
  int64_t piece_ns;               // of the operation under way
  int memory_fd;                  // /proc/self/statm, -1: none
};

#endif
