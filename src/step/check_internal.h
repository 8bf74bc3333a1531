// SPDX-License-Identifier: MIT
// The parts of the static proof of a program, which call each other across files.
//
// program_check.c proves a rank's training program: each operation alone, that everything is there, sums and state.
// check_order.c says what has ended when, check_pass.c is about passes, check_recompute.c about values that are computed again,
// check_ring.c about what crosses stages. check_pipeline.c proves the programs of all ranks together.
#ifndef TRIREME_STEP_CHECK_INTERNAL_H
#define TRIREME_STEP_CHECK_INTERNAL_H

#include "trireme/step/program.h"

typedef struct tr__checker {
  const tr_program *program;
  const tr_step_model *model;
  const tr_step_options *options;
  int every, split;                        // grad_sync every; some pass is split
  int gathers;                             // other ranks have other parts of the gradients
  uint32_t *forward, *input, *weight;      // [microbatches * npiece] operation + 1 that did it
  int *ninput, *nweight;                   // [npiece] backward passes so far
  int *slot;                               // [microbatches * nchunk * 3] slots of F-I, F-W, I-W in use, -1
  int *owner[3];                           // [nchunk][slots of the class] micro-batch that has it, -1
  unsigned char *updated, *published;      // [nunit]
  uint32_t *reduce;                        // [rows * nunit] operation + 1 that sums this micro-batch's gradient
  uint32_t single[TR_ROLE_DERIVATIVE + 1]; // operation + 1: NORM, and REDUCE or GATHER of each role
  uint32_t *computed; // [nop] compute operations below this one have ended when an operation starts
  uint32_t *number;   // [nop] of a collective among its kind
  uint64_t *ended;    // [nop * nword] bits: collectives that have ended, by number
  size_t nword;
} tr__checker;

enum { TR__NORM_AT = 0 }; // in `single`; REDUCE and GATHER are at their role

// TR_ERR_PLAN: "step program: operation OP (KIND, micro-batch M) RULE"; of a pipeline with the rank.
tr_status tr__step_broken(const tr_program *program, uint32_t op, const char *rule);

static inline int tr__is_pass(const tr_op *op) { return op->kind <= TR_OP_W || op->kind == TR_OP_R; }
static inline int tr__is_backward(const tr_op *op) {
  return op->kind == TR_OP_B || op->kind == TR_OP_I || op->kind == TR_OP_W;
}
static inline int tr__is_message(const tr_op *op) { return op->kind == TR_OP_SEND || op->kind == TR_OP_RECV; }
static inline int tr__is_gradient_sum(const tr_op *op) {
  return op->kind == TR_OP_REDUCE && (op->role == TR_ROLE_GRADIENT || op->role == TR_ROLE_TIED);
}

// Micro-batches [*begin, *end) that go through a chunk: half of them where stages are there twice.
void tr__chunk_microbatches(const tr_program *program, int chunk, int *begin, int *end);

// ---- check_order.c

// No cycle over queues and edges. Fills `computed` and `ended`.
tr_status tr__check_deadlock(const tr__checker *c);
// Whether `before` has surely ended when `op` starts; not for SEND and RECV.
int tr__has_ended(const tr__checker *c, uint32_t before, uint32_t op);

// ---- check_pass.c

tr_status tr__check_pass(const tr__checker *c, uint32_t i);
tr_status tr__check_temporaries(const tr__checker *c);
tr_status tr__check_shared_units(const tr__checker *c);
int tr__passed(const tr__checker *c, const uint32_t *done, int microbatch, int chunk); // each piece of the chunk

// ---- check_recompute.c, check_ring.c

tr_status tr__step_check_recompute(const tr_program *program, const tr_step_options *options);
// Edges, and the fields of passes and messages that rings go by, are such that the rest may follow them.
tr_status tr__check_links(const tr_program *program);
tr_status tr__check_rings(const tr_program *program); // after that

#endif
