// SPDX-License-Identifier: MIT
// The parts that a model can be cut into for a pipeline, with what each costs: input of tr_stages_balance.
//
// A part lies between two neighbouring places of tr_model_cuts: the embedding, each layer, the head with the loss. Its work is FLOPs
// of the model's pieces, or seconds on a device (predict.h). Kept for the backward pass is what ports say that it reads,
// without recomputation; states are weights, gradients, master weights where they are others, and two f32 moments.
#ifndef TRIREME_PLAN_STAGE_PARTS_H
#define TRIREME_PLAN_STAGE_PARTS_H

#include "trireme/model/model.h"
#include "trireme/plan/device.h"
#include "trireme/plan/workload.h"
#include "trireme/step/stages.h"

typedef struct tr_stage_parts_options {
  int64_t sequence, micro; // a micro-batch: sequences of this many tokens
  tr_dtype type;           // of weights and activations
  const tr_schedule
      *schedule; // where the first and the last stage live: on two ranks each has a copy of a tied embedding
  const tr_workload *workload; // with a cluster
  const tr_cluster *cluster;   // work is time on it, bf16; NULL: FLOPs
} tr_stage_parts_options;

typedef struct tr_stage_parts {
  int n;
  tr_stage_part *part;
  double *params, *flops; // [n] parameters; FLOPs of a micro-batch, forward and backward
} tr_stage_parts;

// TR_ERR_MEMORY. The caller destroys *out.
tr_status tr_stage_parts_make(const tr_model *model, const tr_stage_parts_options *options, tr_stage_parts *out);
void tr_stage_parts_destroy(tr_stage_parts *parts);

#endif
