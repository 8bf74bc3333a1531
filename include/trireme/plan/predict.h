// SPDX-License-Identifier: MIT
// Predicting a plan: the time of a step, term by term, and the memory of the fullest rank, item by item, of a model on a
// cluster. Closed formulas on plain values: no allocation, no state, microseconds a call, any thread.
//
// The terms of the step's time add up to it. What overlaps counts only where it sticks out. The efficiencies come with
// the device (device.h); plans whose degrees contradict each other are refused by tr_plan_check with one sentence.
#ifndef TRIREME_PLAN_PREDICT_H
#define TRIREME_PLAN_PREDICT_H

#include "trireme/mesh/mesh.h"
#include "trireme/plan/device.h"
#include "trireme/plan/workload.h"

typedef enum tr_plan_number { TR_PLAN_BF16, TR_PLAN_FP16, TR_PLAN_FP8 } tr_plan_number;

// What is computed again in the backward pass.
typedef enum tr_plan_recompute {
  TR_PLAN_RECOMPUTE_NONE,
  TR_PLAN_RECOMPUTE_SCORES,  // attention only
  TR_PLAN_RECOMPUTE_PARTS,   // norms, activations and what latent attention projects up
  TR_PLAN_RECOMPUTE_EXPERTS, // these and experts
  TR_PLAN_RECOMPUTE_HALF,    // every second layer or product
  TR_PLAN_RECOMPUTE_FULL,    // all but the layers' inputs
} tr_plan_recompute;
enum { TR_PLAN_RECOMPUTE_COUNT = TR_PLAN_RECOMPUTE_FULL + 1 };
const char *
tr_plan_recompute_name(tr_plan_recompute recompute); // "none", "scores", "selective", "experts", "half", "full"

typedef struct tr_plan {
  int64_t tp, pp, vpp, dp, cp, ep; // degrees; vpp: chunks per rank
  tr_axis map[TR_AXIS_COUNT];      // order of the axes over ranks, innermost first
  int zero;                        // 0 to 3
  int64_t zero_ranks;              // ranks that states are sharded over; 0: all of dp x cp
  int sequence_parallel;           // norms and residuals are cut along the sequence over tp
  tr_plan_recompute recompute;
  tr_plan_number number;
  int64_t micro, batch, sequence; // sequences per pass, sequences per step, tokens per sequence
  const char *schedule; // of the pipeline, as in step/schedule.h; NULL: 1f1b, or interleaved with vpp above 1
  // What the program that runs the plan can do.
  int fused_attention; // scores never go to memory
  int early_attention; // its kernels do not use what the newest devices have (FlashAttention 1 and 2 on Hopper)
  int fused_kernels;   // elementwise kernels are fused
  int hides_grads, hides_weights, hides_tp, hides_ep; // traffic runs beside computation
  int hides_input_grads; // the backward half of tensor-parallel traffic, beside the weights' gradients (Megatron since 2022)
  int waits;             // for the device after each layer (DeepSpeed's pipelines with recomputation)
  int gathers_singly;   // parameter by parameter, through one port of the host (DeepSpeed of 2021)
  int gathers_matrices; // sharded weights are whole matrix by matrix (DeepSpeed, XLA), not layer by layer
  int keeps_gathered;   // sharded weights stay gathered over the micro-batches of a step
  double weight_bytes, grad_bytes, state_bytes; // per parameter: weights, gradients, optimizer with master weights
  double update_bytes; // per parameter that the update makes besides, when activations are gone
  double wire_bytes;   // of a gradient that is reduced
  double logit_bytes;  // per logit, with the loss's copies
  int64_t offloaded;   // layers whose activations are in host memory
} tr_plan;

void tr_plan_init(tr_plan *plan); // one device, bf16, a current program
// What a current program does at the plan's degrees: cuts sequences where it cuts tensors, and where chunks interleave, runs
// the experts' exchange of one micro-batch beside the computation of another.
void tr_plan_follow_degrees(tr_plan *plan);
// TR_ERR_PLAN naming the degree, its value and what would work.
tr_status tr_plan_check(const tr_plan *plan, const tr_workload *model, const tr_cluster *cluster);
// Of the plans that it lets pass, those that the search goes through: where ranks have several chunks, chunks are of one size (the
// embedding and the head may count as a layer each), and micro-batches are dealt out in rounds of pp.
int tr_plan_is_even(const tr_plan *plan, const tr_workload *model);
int64_t tr_plan_devices(const tr_plan *plan);

typedef enum tr_memory_item {
  TR_ITEM_WEIGHTS,
  TR_ITEM_GRADS,
  TR_ITEM_STATES, // master weights and moments
  TR_ITEM_GATHERED,
  TR_ITEM_ACTIVATIONS,
  TR_ITEM_LOGITS,
  TR_ITEM_BUFFERS, // of communication, and what libraries keep
  TR_ITEM_COUNT
} tr_memory_item;
const char *tr_memory_item_name(tr_memory_item item);

typedef struct tr_footprint {
  double item[TR_ITEM_COUNT]; // bytes, of the fullest rank
  double total;               // what an allocator sees
  double process;             // with what the driver and libraries reserve besides, and what an allocator caches
  double needed;              // the same without what it would give back before it fails: a device must have it
  int64_t stage;              // of the fullest rank
  tr_memory_item biggest;
} tr_footprint;

typedef enum tr_time_term {
  TR_TERM_COMPUTE, // products, attention, elementwise
  TR_TERM_RECOMPUTE,
  TR_TERM_TP,
  TR_TERM_CP,
  TR_TERM_EP,
  TR_TERM_BUBBLE,
  TR_TERM_PP,    // messages between stages
  TR_TERM_GRADS, // gradients, gathered weights: what sticks out
  TR_TERM_OPTIMIZER,
  TR_TERM_FIXED, // per step, and waiting for the slowest rank
  TR_TERM_COUNT
} tr_time_term;
const char *tr_time_term_name(tr_time_term term);

typedef struct tr_prediction {
  double step;                // seconds
  double low, high;           // nine in ten comparable published runs lie within
  double term[TR_TERM_COUNT]; // seconds, they add up to step
  double mfu;                 // model FLOPs (whole attention) over peak
  double tokens_per_device;   // per second
  tr_footprint memory;
  int fits;
} tr_prediction;

// Nine in ten comparable published runs took at most so much longer or shorter, as a share: by device, and with experts or not.
double tr_predict_spread(const tr_workload *model, const tr_cluster *cluster);
double tr_predict_step(const tr_plan *plan, const tr_workload *model, const tr_cluster *cluster,
                       double term[TR_TERM_COUNT]);
void tr_predict_memory(const tr_plan *plan, const tr_workload *model, const tr_cluster *cluster, tr_footprint *out);
// The same of the ranks of one place in the pipeline, from 0.
void tr_predict_stage_memory(const tr_plan *plan, const tr_workload *model, const tr_cluster *cluster, int64_t stage,
                             tr_footprint *out);
// One stage of a pipeline: `layers` of the model's layers from `begin` on; the first also has the embedding, the last the head
// with the loss.
typedef struct tr_stage_cut {
  int64_t begin, layers;
  int first, last;
} tr_stage_cut;
// Passes of one micro-batch through it, seconds: `input` and `weights` are the halves of the backward pass, with what is
// recomputed in the first; communication inside the stage is in forward and input, of which a pair of both hides `beside`
// (DualPipe). `reduce` sums its gradients over
// plan->dp x plan->cp ranks.
typedef struct tr_stage_time {
  double forward, input, weights, reduce, beside;
} tr_stage_time;
tr_stage_time tr_predict_stage(const tr_plan *plan, const tr_workload *model, const tr_cluster *cluster,
                               const tr_stage_cut *cut);
// A message between stages, forward or backward, inside the fast links or (`crosses`) not: returns its latency; *busy is how
// long its bytes keep the link busy. Pipeline ranks are tp x cp x dp devices apart.
double tr_predict_message(const tr_plan *plan, const tr_workload *model, const tr_cluster *cluster, int crosses,
                          double *busy);

void tr_predict(const tr_plan *plan, const tr_workload *model, const tr_cluster *cluster, tr_prediction *out);

#endif
