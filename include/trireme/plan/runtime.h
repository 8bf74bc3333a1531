// SPDX-License-Identifier: MIT
// Plans that this library's own executor runs: what it lays out, to the byte, and how long its step programs take on a machine whose
// kernels were measured (kernel_time.h).
//
// Unlike predict.h, which knows a model by its sizes and any software by constants, this reads the objects that are run: the model's
// pieces, the layout, the step program of every place in the pipeline. Memory is the executor's own sum of blocks
// (tests/run/test_runtime_memory.c holds both against each other); time is the program, with each operation at its measured price, through the
// simulator where there is a pipeline. Pure computation; the caller owns everything.
#ifndef TRIREME_PLAN_RUNTIME_H
#define TRIREME_PLAN_RUNTIME_H

#include "trireme/optim/optim.h"
#include "trireme/plan/kernel_time.h"
#include "trireme/plan/predict.h"
#include "trireme/shard/layout.h"
#include "trireme/step/values.h"

// The ranks of one place in the pipeline; without one, all ranks.
typedef struct tr_runtime_part {
  const tr_model *model;
  const tr_layout *layout;
  const tr_program *program;
} tr_runtime_part;

typedef struct tr_runtime_plan {
  const tr_runtime_part *part; // [pp]
  int pp, dp, share;           // dp: ranks whose gradients are summed; share: of those, that have the state together
  int ranks, threads;          // on one host, of each rank
  int64_t rows, sequence;      // of a micro-batch
  tr_dtype type;
  tr_dtype grad_wire, stage_wire; // as in the options of a run
  tr_recompute recompute;
  tr_grad_sync grad_sync;
  int zero, pack;
  const tr_optim *optim;
  const tr_kernels *kernels;
} tr_runtime_plan;

// Bytes of one rank in a place of the pipeline. What only lies in the executor's tables is not counted.
typedef struct tr_runtime_memory {
  size_t item[TR_ITEM_COUNT]; // buffers: messages, temporaries, scratch of kernels, small sums
  size_t own, shared;         // in its own memory, in its part of what ranks share
  size_t host;                // besides, once for all ranks that have the same weights
} tr_runtime_memory;
tr_status tr_runtime_memory_of(const tr_runtime_plan *plan, int place, tr_runtime_memory *out);

// What an operation on state has to do for the first rank of dp, and the kind of kernel that does it (NULL: none); and what a step
// takes besides. For whoever measures prices.
tr_kernel_work tr_runtime_state_work(const tr_runtime_plan *plan, int place, const tr_op *op, const char **kind);
tr_kernel_work tr_runtime_step_work(const tr_runtime_plan *plan, int place);

// A step's time, by term. TR_ERR_PLAN names a kind of kernel that was not measured, with type, ranks and threads.
tr_status tr_runtime_time(const tr_runtime_plan *plan, const tr_kernel_rates *rates, const tr_cluster *cluster,
                          double term[TR_TERM_COUNT], double *step);

#endif
