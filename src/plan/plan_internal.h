// SPDX-License-Identifier: MIT
// Inside the planner: links as measured, the cost of collectives by tier, and of one layer on one rank. Times in seconds, rates in bytes
// and FLOPs per second; nothing here knows pipelines.
#ifndef TRIREME_PLAN_INTERNAL_H
#define TRIREME_PLAN_INTERNAL_H

#include "trireme/base/yaml.h"
#include "trireme/plan/predict.h"

// Puts what was measured into a cluster that is read (its list `links`).
tr_status tr__measured_links(const tr_yaml_node *list, tr_cluster *cluster);
tr_status tr__measured_kernels(const tr_yaml_node *map, tr_cluster *cluster); // its map `kernels`

// A group of ranks as the links see it: how many, and how many of them share one domain of fast links.
typedef struct tr__links {
  double ranks, near;
  int crosses; // leaves the domain
} tr__links;

// `degree` ranks that are `stride` ranks apart.
tr__links tr__links_of(const tr_cluster *cluster, int64_t degree, int64_t stride);
// Every rank ends up with (or starts from) `bytes` in all: a gather, or a reduction to shards.
double tr__gather_time(const tr_cluster *cluster, tr__links group, double bytes);
double tr__sum_time(const tr_cluster *cluster, tr__links group, double bytes); // all-reduce
// All-to-all of the copies of tokens that go to experts, `bytes` of them on each rank.
double tr__swap_time(const tr_cluster *cluster, tr__links group, double bytes, const tr_workload *model);
double tr__send_time(const tr_cluster *cluster, int crosses, double bytes);
// Rate of a group's gathers, and what one costs besides its bytes.
double tr__gather_rate(const tr_cluster *cluster, tr__links group);
double tr__gather_latency(const tr_cluster *cluster, tr__links group);

// One layer, one micro-batch, one rank.
typedef struct tr__layer {
  double forward, backward; // computation, host's floor applied
  double weights;           // the part of backward for them
  double again;             // recomputed in the backward pass
  double tp, tp_again, cp, ep;
} tr__layer;
tr__layer tr__layer_time(const tr_plan *plan, const tr_workload *model, const tr_cluster *cluster, int experts);
// The output head with the loss, forward and backward, of one micro-batch.
double tr__head_time(const tr_plan *plan, const tr_workload *model, const tr_cluster *cluster);

// The same by pass, and the embedding: only forward, backward and weights.
tr__layer tr__head_layer(const tr_plan *plan, const tr_workload *model, const tr_cluster *cluster);
tr__layer tr__embedding_layer(const tr_plan *plan, const tr_workload *model, const tr_cluster *cluster);

// How layers lie on the stages: of the fullest, and of the last, which also has the head.
typedef struct tr__stages {
  double most, first, last; // layers
} tr__stages;
tr__stages tr__stages_of(const tr_plan *plan, const tr_workload *model);
double tr__stage_layers(const tr_plan *plan, const tr_workload *model, int64_t stage);
// Parameters of layers [from, to) on one rank: those that all its data-parallel peers share, and experts; and of a stage
// with its tables.
typedef struct tr__local {
  double dense, experts;
} tr__local;
tr__local tr__local_params(const tr_plan *plan, const tr_workload *model, int64_t from, int64_t to);
tr__local tr__stage_params(const tr_plan *plan, const tr_workload *model, int64_t stage);
// Memory of a rank of a stage that holds `flight` layers' worth of activations.
void tr__rank_memory(const tr_plan *plan, const tr_workload *model, const tr_cluster *cluster, int64_t stage,
                     double flight, tr_footprint *out);
// What follows from a step's terms: `rest` is all of them but the fixed one.
void tr__finish_step(const tr_plan *plan, const tr_workload *model, const tr_cluster *cluster, double rest,
                     tr_prediction *out);
// Weights, gradients and optimizer states of the first stage.
void tr__states_of(const tr_plan *plan, const tr_workload *model, double item[TR_ITEM_COUNT]);

#endif
