// SPDX-License-Identifier: MIT
// Inside lowering: one rank's program while it is built.
//
// A rank's passes become *halves* (an X is two, F and B), in the order of its list. lower_walk.c finds where in its list each
// message arrives, lower_slots.c gives halves and messages their slots, lower_pass.c writes operations, lower_bucket.c and
// lower_state.c say what is reduced when, and what follows the passes. The program of one rank alone is the same without
// messages.
#ifndef TRIREME_STEP_LOWER_INTERNAL_H
#define TRIREME_STEP_LOWER_INTERNAL_H

#include "trireme/step/program.h"
#include "trireme/step/schedule.h"

#define TR__NO_OP UINT32_MAX

typedef struct tr__half {
  uint8_t kind, first, last, pair; // as in tr_op
  uint16_t chunk;
  int32_t microbatch;
  uint32_t entry; // place in the rank's list; both halves of an X have the same
  int16_t slot_in, slot_out, slot_din, slot_dout, fi, fw, iw;
} tr__half;

static inline tr__half tr__half_new(int kind, int chunk, int microbatch, uint32_t entry) {
  return (tr__half){.kind = (uint8_t)kind,
                    .chunk = (uint16_t)chunk,
                    .microbatch = microbatch,
                    .entry = entry,
                    .slot_in = -1,
                    .slot_out = -1,
                    .slot_din = -1,
                    .slot_dout = -1,
                    .fi = -1,
                    .fw = -1,
                    .iw = -1};
}

// A message on its way to a rank.
typedef struct tr__message {
  uint32_t before; // passes of the receiver that stand before its RECV
  uint32_t known;  // of these, how many have surely ended when the message is sent, whatever passes and messages take
  int32_t microbatch;
  uint16_t stage; // whose boundary it crosses, and what it is, as in tr_ring
  uint8_t role, direction;
  int16_t slot;
  int32_t ring;
} tr__message;

typedef struct tr__arrivals {
  tr__message *message;
  uint32_t *begin; // [p + 1] those of rank r are message[begin[r]] .. message[begin[r + 1] - 1]; begin[p] of them
} tr__arrivals;

// When a unit's gradient, or a bucket's, is complete: in this place of the list, when the backward pass has done this piece.
typedef struct tr__ready {
  uint32_t entry;
  int piece;
} tr__ready;

typedef struct tr__edge {
  uint32_t op;
  tr_edge edge;
} tr__edge;

// What is being built, with the first failure kept until the end: appending stays readable.
typedef struct tr__lowering {
  tr_program *program;
  const tr_step_model *model; // NULL: none
  const tr_step_options *options;
  tr__edge *edge;
  uint32_t nedge, edge_capacity;
  tr__half *half;
  uint32_t nhalf;
  tr__message *message; // to this rank; not owned
  uint32_t nmessage;
  tr__ready *ready; // [buckets]
  int split;        // some pass of the rank is split
  // While operations are written:
  uint32_t *recv[2];       // [chunks][micro-batches] RECV of the activation, the gradient that enters; one block
  uint32_t *slot_base;     // [rings] where a ring's slots begin in
  uint32_t *user;          // [slots of rings with a peer] operation that a slot waits for before it is written again
  int held, held_for;      // range whose values are in the recompute area, -1: none; and the micro-batch
  uint32_t computed;       // the last compute operation
  uint32_t join[2], njoin; // communication that ends a pair: the next compute operation waits for it
  int failed;
} tr__lowering;

// ---- lower_op.c: operations and edges

tr_op tr__op_new(tr_op_kind kind, tr_lane lane);
uint32_t tr__lower_append(tr__lowering *low, tr_op op);
// `op` waits for `before` of the step at `step_offset`. Edges may be added in any order.
void tr__lower_edge(tr__lowering *low, uint32_t op, uint32_t before, int step_offset);
// Ends lowering with the `status` that it has come to: takes the edges into the program and gives back everything but that,
// which is destroyed on failure.
tr_status tr__lower_finish(tr__lowering *low, tr_status status, tr_program *out);

// ---- lower_bucket.c

tr_status tr__lower_buckets(tr__lowering *low);
int tr__lower_is_tied(const tr_step_model *model, int unit);
// Lowest piece of a chunk that contributes to the unit, -1: none.
int tr__lower_unit_piece(const tr_program *program, const tr_step_model *model, int chunk, int unit);

// ---- lower_walk.c

// One pass, or the two of an X; returns how many.
int tr__pass_halves(const tr_pass *pass, tr_pass half[2]);
// Walks all ranks' lists, for the messages to `width` ranks from `first` on; 0: to all, without `known`.
tr_status tr__walk(const tr_schedule *schedule, int first, int width, tr__arrivals *out);
void tr__arrivals_free(tr__arrivals *arrivals);

// ---- lower_slots.c

// Chunks and rings of a rank.
tr_status tr__lower_places(const tr_schedule *schedule, int rank, tr_program *out);
// Number of the chunk that has this stage, and number of the ring on its side of a boundary; -1: none.
int tr__lower_chunk(const tr_program *program, int stage, int direction);
int tr__lower_ring(const tr_program *program, int stage, int role, int direction);
// Slots of halves and messages, and how many of each there are.
tr_status tr__lower_slots(tr__lowering *low);
// tr_step_model.use; everything is read until W where nobody says, and where passes are run again.
tr_step_use tr__lower_use(const tr_step_model *model, const tr_step_options *options, int chunk);
// Whether a pass of this kind reads what is read up to passes of kind `use`, and whether for the last time.
static inline int tr__reads(int kind, int use) { return kind <= use || kind == TR_OP_R; }
static inline int tr__reads_last(int kind, int use) { return kind == use || (kind == TR_OP_B && use != TR_OP_F); }

// ---- lower_pass.c, lower_state.c

// `first` and `last` of halves.
tr_status tr__lower_flags(tr__lowering *low);
// All passes, with what has to stand between them. `count` is the operation that the first one waits for, TR__NO_OP: none.
tr_status tr__lower_passes(tr__lowering *low, uint32_t count, uint32_t *first_pass);
// A training program from halves with slots and flags: buckets, count, passes, loss, norm, update, new weights.
tr_status tr__lower_training(tr__lowering *low);

// ---- program.c

tr_status tr__lower_check_options(const tr_step_model *model, const tr_step_options *options);

#endif
