// SPDX-License-Identifier: MIT
// The step program: what one rank does in one training step, as a list of operations.
//
// A program has two levels in one object. A *schedule* is the upper level: forward and backward passes of
// micro-batches through stages, in order. *Lowering* turns it into operations on ranges of pieces and adds what state
// needs: counting valid tokens, reducing gradients bucket by bucket as soon as they are complete, the norm, the
// update, publishing new weights. `run` executes it, the checks here prove it complete and free of deadlock,
// tr_program_print shows it.
//
// Operations sit in two lanes, compute and communication. A lane is a queue, executed in list order; edges order
// operations across lanes and across steps: (operation, step offset <= 0) on counters that never reset. Pure data;
// knows no kernels.
#ifndef TRIREME_STEP_PROGRAM_H
#define TRIREME_STEP_PROGRAM_H

#include "trireme/base/status.h"
#include "trireme/base/text.h"
#include <stdint.h>

//      name        text       what it does
#define TR_OP_TABLE(X)                                                                                               \
  X(TR_OP_F, "F", "forward pass of pieces")                                                                          \
  X(TR_OP_B, "B", "backward pass of pieces, inputs and weights")                                                     \
  X(TR_OP_I, "I", "backward pass for inputs only")                                                                   \
  X(TR_OP_W, "W", "backward pass for weights only")                                                                  \
  X(TR_OP_X, "X", "overlapped pair of a forward and a backward pass")                                                \
  X(TR_OP_R, "R", "recomputation of a forward pass")                                                                 \
  X(TR_OP_SEND, "SEND", "send an activation or its gradient to a neighbouring stage")                                \
  X(TR_OP_RECV, "RECV", "receive it")                                                                                \
  X(TR_OP_GATHER, "GATHER", "gather a unit's sharded weights")                                                       \
  X(TR_OP_RELEASE, "RELEASE", "give back gathered weights")                                                          \
  X(TR_OP_REDUCE, "REDUCE", "sum over the data-parallel group")                                                      \
  X(TR_OP_NORM, "NORM", "gradient norm and clip factor")                                                             \
  X(TR_OP_UPDATE, "UPDATE", "optimizer on a unit")                                                                   \
  X(TR_OP_PUBLISH, "PUBLISH", "master weights to working weights")

typedef enum tr_op_kind {
#define X(name, text, what) name,
  TR_OP_TABLE(X)
#undef X
      TR_OP_KIND_COUNT
} tr_op_kind;

// What a REDUCE sums, and over which ranks (COUNT: those with other data; GRADIENT: these, and both copies of a stage in map
// `both`; LOSS, and SQUARES, the parts of the squared gradient norm: their owners, then the ranks of the pipeline), and what a
// GATHER makes whole on all ranks.
typedef enum tr_op_role {
  TR_ROLE_NONE,
  TR_ROLE_GRADIENT,
  TR_ROLE_COUNT,
  TR_ROLE_LOSS,
  TR_ROLE_SQUARES,
  TR_ROLE_WEIGHTS,
  TR_ROLE_PACKED,
  // Instead of GRADIENT, for a unit with a parameter that the first and the last stage share: over the ranks of both, and
  // what only one of them has over its own.
  TR_ROLE_TIED,
  TR_ROLE_ACTIVATION, // SEND and RECV: what a stage writes
  TR_ROLE_DERIVATIVE  // SEND and RECV: its gradient
} tr_op_role;
typedef enum tr_lane { TR_LANE_COMPUTE, TR_LANE_COMM } tr_lane;
typedef enum tr_phase { TR_PHASE_TRAIN, TR_PHASE_EVAL } tr_phase;

// One operation. Fields that a kind does not use are 0 (peers and slots -1).
typedef struct tr_op {
  uint8_t kind, role, lane, phase;
  uint8_t first; // first contribution of this step: gradients are overwritten
  uint8_t last;  // last contribution of this step to these gradients
  uint8_t pair;  // one half of an X that was lowered to pieces; the halves' operations may alternate
  uint16_t model, stage;
  uint16_t unit_begin, unit_end; // UPDATE, PUBLISH, REDUCE: units
  uint16_t bucket;
  int32_t microbatch;
  int32_t version;                 // parameter version used, relative to this step
  uint32_t piece_begin, piece_end; // executed ascending by F, descending by B, I, W
  int32_t peer, group;             // peer: rank of the pipeline; group: number of a mesh axis
  uint16_t chunk;                  // of this rank's chunks (tr_program.chunk)
  uint16_t back_stage;             // X and pairs: the backward half
  int32_t ring;                    // SEND, RECV: of tr_program.ring; a ring with a peer is a channel, kept in order
  // Slots of the chunk's rings; -1: none. For activations, entering and leaving; for gradients, entering (of what left) and
  // leaving (of what entered). SEND and RECV: slot_in.
  int16_t slot_in, slot_out, slot_din, slot_dout;
  int32_t back_microbatch;           // X and pairs
  int32_t slot_fi, slot_fw, slot_iw; // which copy of each lifetime class
  uint32_t edge_begin, edge_end;     // into the program's edges: what must be done before
} tr_op;

// Which queue of its rank an operation stands in: the compute lane, or one of the communication lane's (see below).
enum {
  TR_QUEUE_COMPUTE,
  TR_QUEUE_COLLECTIVES,
  TR_QUEUE_EXCHANGES,
  TR_QUEUE_RINGS
}; // the last: of ring 0, then 1, ...
static inline uint32_t tr_op_queue(const tr_op *op) {
  if (op->lane == TR_LANE_COMPUTE) return TR_QUEUE_COMPUTE;
  if (op->kind == TR_OP_SEND || op->kind == TR_OP_RECV) return TR_QUEUE_RINGS + (uint32_t)op->ring;
  return op->kind <= TR_OP_X ? TR_QUEUE_EXCHANGES : TR_QUEUE_COLLECTIVES;
}

typedef struct tr_edge {
  uint32_t op;
  int32_t step_offset;
} tr_edge;

// Which passes of a chunk read what entered it from another stage: F, and those up to this kind (TR_OP_F, TR_OP_I or TR_OP_W;
// B counts as both). For the gradient that entered it TR_OP_I or TR_OP_W.
typedef struct tr_step_use {
  uint8_t activation, gradient;
} tr_step_use;

// What lowering needs to know of a model: nothing but numbers. Of a pipeline: of the rank's part of it, chunk behind chunk.
typedef struct tr_step_model {
  int npiece, nunit;
  const int *unit_last_piece; // [nunit] when backward has passed this piece, the unit's gradient is complete
  const int64_t *unit_start;  // [nunit + 1] elements
  // Of pipelines only; 0 and NULL: nothing special.
  // [chunks][nunit] Lowest piece of the chunk that contributes to the unit, -1: none; for units that several chunks use.
  // NULL: each unit is of the chunk of its last piece.
  const int *unit_chunk_piece;
  const int *tied; // [ntied] units with a parameter that a stage on another rank has too (TR_ROLE_TIED)
  int ntied, ncomm;
  const int *comm_piece;  // [ncomm] ascending: pieces that exchange; between them the halves of an X alternate
  const tr_step_use *use; // [chunks] NULL: everything is read until W
} tr_step_model;

enum {
  TR_STEP_MICROBATCHES = 4096
}; // most micro-batches per rank and step: programs are lists, and lists are checked

typedef enum tr_grad_sync { TR_SYNC_LAST, TR_SYNC_EVERY } tr_grad_sync;

// What the backward pass computes again instead of keeping it from the forward pass: nothing; what cheap pieces write
// (tr_piece_ops.cheap: attention, norms, activations); everything inside a unit but the values that enter it.
typedef enum tr_recompute { TR_RECOMPUTE_NONE, TR_RECOMPUTE_SELECTIVE, TR_RECOMPUTE_FULL } tr_recompute;

// Pieces [begin, end) that write values which live in the one recompute area of the rank. A forward pass and an R over a
// range fill the area with that range's values; its backward passes read them there.
typedef struct tr_step_range {
  int begin, end;
} tr_step_range;

typedef struct tr_step_options {
  int microbatches;        // per rank and step
  int dp;                  // ranks that gradients are summed over
  int split_backward;      // I then W instead of B (later schedules use it; results are equal)
  tr_grad_sync grad_sync;  // reduce after the last micro-batch, or after every one
  int64_t bucket_elements; // reduce in buckets of at least this many elements; 0: one bucket per unit
  int zero; // ZeRO stage. 0: every rank updates everything; 1: each its part of every bucket, then weights are gathered
  int nrecompute;
  // Ascending and disjoint; not owned. An R precedes each backward pass of a range whose values the area has lost.
  const tr_step_range *recompute;
} tr_step_options;

typedef struct tr_bucket {
  int unit_begin, unit_end;
  int last_piece;
} tr_bucket;

// Buffers for what crosses the boundary behind `stage`: activations (TR_ROLE_ACTIVATION) or their gradients
// (TR_ROLE_DERIVATIVE), for micro-batches of one direction. peer >= 0: they come from or go to that rank of the pipeline, in
// this order; -1: both stages are on this rank, which hands them over. Its partner at the peer has the same stage, role and
// direction; no two rings of a rank have.
typedef struct tr_ring {
  uint16_t stage;
  uint8_t role, direction;
  int32_t peer;
  int32_t slots;
} tr_ring;

// What a rank has of one stage. With a model: pieces [piece_begin, piece_end) of the rank's part of it.
typedef struct tr_chunk {
  uint16_t stage;
  uint8_t direction;
  uint32_t piece_begin, piece_end;
  int ring_in, ring_out, ring_din, ring_dout; // numbers of rings, as tr_op.slot_in ...; -1: none (first, last stage)
  int slots_fi, slots_fw, slots_iw;           // copies needed of each lifetime class: exact peaks
} tr_chunk;

typedef struct tr_program {
  tr_op *op;
  uint32_t nop, op_capacity;
  tr_edge *edge;
  uint32_t nedge;
  int nbucket;
  tr_bucket *bucket; // in the order in which they become complete
  int nchunk, nring;
  tr_chunk *chunk; // ascending by stage; without a pipeline one of all pieces
  tr_ring *ring;
  int microbatches;
  int slots_fi, slots_fw, slots_iw; // of chunk[0]
  int p, rank;                      // ranks of the pipeline, own one; 1, 0 without one
} tr_program;

// Forward and backward of each micro-batch in turn, reduction, norm, update, publish. TR_ERR_PLAN for numbers that
// make no program; TR_ERR_MEMORY. The caller destroys *out.
tr_status tr_program_build(const tr_step_model *model, const tr_step_options *options, tr_program *out);

// One rank's program of a pipeline (schedule.h): its passes in the schedule's order; after each pass SENDs of what its
// neighbours wait for; REDUCE of a bucket right after its last weight gradient; LOSS, SQUARES, NORM, UPDATE, PUBLISH.
//
// Queues. The compute lane is one. Of the communication lane, each ring with a peer is a queue of its own (a channel), pieces that
// exchange are one, and all other operations together are one (collectives). An operation may start when those before it in its
// queue have started (compute lane: have ended) and its edges are satisfied; so a RECV can start long before its place in the list.
// That place is where one stream for everything would have it: the SEND and the RECV of a message are put into both ranks' lists at
// once, in one walk over all ranks' passes. So nothing waits for ever, even if channels hold nothing.
//
// Rings. A slot of an entering ring is taken from the start of RECV to the end of the last pass that reads it (`use`), and RECV
// waits for that by an edge; a slot of a leaving ring from the start of the pass that writes it to the end of SEND, and the
// pass waits for that. Entering rings are so large that no SEND ever waits for its RECV, whatever passes and messages take;
// but where that takes more than two slots above what the walk needs, they have these. Leaving rings have two slots. A rank
// starts a step when everything of its step before has ended, so no edge of a ring crosses steps. Copies of lifetime classes,
// and slots of rings without a peer, are taken in list order, the lowest free one, so that their numbers are the schedule's
// exact peaks.
//
// `model` NULL: passes stay whole, without pieces, X stays X (chunk, slot_in, slot_out, slot_fi, slot_fw of its forward half,
// slot_din, slot_dout of its backward half); each message has a slot of its own, so that nothing but the schedule is timed;
// no state operations follow but one REDUCE per stage (of role GRADIENT, after its last weight gradient).
//
// With a model: `chunk_piece` has 2 nchunk entries, first and last + 1 piece of each of the rank's chunks in ascending order of
// stages. options->dp counts the ranks that sum gradients (both copies of map `both`); options->microbatches and
// split_backward are the schedule's. R passes of the schedule are left out: where values have to be computed again,
// options->recompute says. X becomes an F and a B (`pair`); what they need of a rank's memory beside slots (temporaries) both
// need at once. Between comm_piece entries their operations alternate, B first, and such a piece is an operation of the
// communication lane then, which the next operation of its half waits for; unless the rank computes anything again.
//
// TR_ERR_PLAN for a schedule that tr_schedule_check refuses, for grad_sync every, and for orders in which `first` cannot be
// right: a unit of several chunks takes its first gradient from the last of them.
typedef struct tr_schedule tr_schedule;
tr_status tr_program_build_pipeline(const tr_schedule *schedule, int rank, const tr_step_model *model,
                                    const int *chunk_piece, const tr_step_options *options, tr_program *out);
// The same for all ranks, whose lists are walked once instead of once per rank. A walk refers to its schedule; ranks may be built in
// any order, one after the other.
typedef struct tr_walk tr_walk;
tr_status tr_walk_create(const tr_schedule *schedule, tr_walk **out);
void tr_walk_destroy(tr_walk *walk); // NULL allowed
tr_status tr_program_build_rank(tr_walk *walk, int rank, const tr_step_model *model, const int *chunk_piece,
                                const tr_step_options *options, tr_program *out);
// All ranks' programs without a model: out[p].
tr_status tr_program_build_ranks(const tr_schedule *schedule, tr_program *out);
// Prove p programs together: sends and receives of every channel match in order, kind, stage and micro-batch; nothing waits for
// ever when channels hold `capacity` messages (0: rendezvous, -1: any number); no ring slot is read before it is written or
// written before its last reader. TR_ERR_PLAN names the rank and operation, and what every blocked rank waits for.
tr_status tr_program_check_pipeline(const tr_program *const *program, int p, int capacity);
void tr_program_destroy(tr_program *program);

// Prove a training step's program of one rank, with a model: every piece of every micro-batch forward exactly once before its
// backward; the recompute area filled for a backward pass by the F or an R of its micro-batch, and by nothing since;
// each unit reduced after its last contribution, then updated once, then published; first/last flags right; no cycle
// over lanes and edges; slots within their counts and never in use twice; every order that a result depends on kept by
// a lane or an edge. Of a pipeline this is what one rank answers for, tr_program_check_pipeline the rest. TR_ERR_PLAN names the
// first operation that breaks a rule.
tr_status tr_program_check(const tr_program *program, const tr_step_model *model, const tr_step_options *options);

const char *tr_op_name(tr_op_kind kind); // "REDUCE"
// Operations in list order, one per line: "  12 compute B stage 0 mb 1 pieces 42..30 after 3, 7".
void tr_program_print(const tr_program *program, tr_text *out);
// The upper level in PyTorch's tokens: "0F0,0B0,0F1,0B1", "(1F2;0B1)OVERLAP_F_B".
void tr_program_tokens(const tr_program *program, tr_text *out);

#endif
