// SPDX-License-Identifier: MIT
// Inside the planner: links as measured, the cost of collectives by tier, and of one layer on one rank. Times in seconds, rates in bytes
// and FLOPs per second; nothing here knows pipelines.
#ifndef TRIREME_PLAN_INTERNAL_H
#define TRIREME_PLAN_INTERNAL_H

#include "trireme/base/yaml.h"
#include "trireme/mesh/mesh.h"
#include "trireme/plan/predict.h"

// Puts what was measured into a cluster that is read (its list `links`).
tr_status tr__measured_links(const tr_yaml_node *list, tr_cluster *cluster);
tr_status tr__measured_kernels(const tr_yaml_node *map, tr_cluster *cluster); // its map `kernels`

// ---- where groups lie (place.c)

typedef struct tr__run {
  double degree, stride;
} tr__run;
typedef struct tr__group {
  int n;
  tr__run run[TR_AXIS_COUNT];
} tr__group;

int64_t tr__degree(const tr_plan *plan, tr_axis axis);
double tr__stride(const tr_plan *plan, tr_axis axis); // ranks between neighbours along the axis
// Members of the group over `axes` (bits 1 << tr_axis), in the map's order: `most` of them, every `skip`th.
tr__group tr__group_of(const tr_plan *plan, unsigned axes, double skip, double most);
enum {
  TR__OVER_TP = 1 << TR_AXIS_TP,
  TR__OVER_CP = 1 << TR_AXIS_CP,
  TR__OVER_REPLICAS = 1 << TR_AXIS_CP | 1 << TR_AXIS_DP,                 // that share a dense parameter
  TR__OVER_EXPERTS = 1 << TR_AXIS_TP | 1 << TR_AXIS_CP | 1 << TR_AXIS_DP // that experts are folded over
};

// Every order of the axes that makes a difference, the plan's own first; how many.
enum { TR__ORDERS = 24 };
int tr__orders(const tr_plan *plan, tr_axis out[TR__ORDERS][TR_AXIS_COUNT]);

// A group of ranks as the links see it: how many, and how many of them share one domain of fast links.
typedef struct tr__links {
  double ranks, near;
  double ring_slow, swap_slow; // what the links above the leaves leave of a port: its rate over these
  int crosses;                 // leaves the domain
  int above;                   // of leaves (1), of pods (2)
} tr__links;

tr__links tr__links_of(const tr_cluster *cluster, tr__group group);
tr__links tr__stage_links(const tr_plan *plan, const tr_cluster *cluster);

// ---- what collectives cost (collective_cost.c)

typedef struct tr__call {
  tr__links group;
  double payload;          // bytes that are gathered, summed, exchanged or sent in all
  double bytes;            // that leave a rank, over the tier that decides
  double latency, seconds; // of one call
} tr__call;
// Every rank ends up with (or, summed to shards, starts from) `bytes` in all.
tr__call tr__gather(const tr_cluster *cluster, tr__links group, double bytes);
tr__call tr__sum(const tr_cluster *cluster, tr__links group, double bytes); // all-reduce
// All-to-all of the copies of tokens that go to experts, `bytes` of them on each rank.
tr__call tr__swap(const tr_cluster *cluster, tr__links group, double bytes, const tr_workload *model);
tr__call tr__send(const tr_cluster *cluster, tr__links pair, double bytes);

// ---- layers (layer_cost.c)

// One layer, one micro-batch, one rank.
typedef struct tr__layer {
  double forward, backward; // computation, host's floor applied
  double weights;           // the part of backward for them
  double again;             // recomputed in the backward pass
  double tp, tp_again, cp, ep;
  double beside; // of the exchange for experts, beyond ep: where passes do not come in pairs that hide it
} tr__layer;
tr__layer tr__layer_time(const tr_plan *plan, const tr_workload *model, const tr_cluster *cluster, int experts);
// The same in two parts: what the order of axes, stages and replicas cannot change, and communication, for which the first is
// there already.
tr__layer tr__layer_work(const tr_plan *plan, const tr_workload *model, const tr_cluster *cluster, int experts);
void tr__layer_links(const tr_plan *plan, const tr_workload *model, const tr_cluster *cluster, int experts,
                     tr__layer *layer);
// Their collectives, and how many a layer and micro-batch has: sums over tp (cut along the sequence, one is a gather and a
// reduction), rounds of keys and values over cp, exchanges of tokens over ep.
tr__call tr__tensor_call(const tr_plan *plan, const tr_workload *model, const tr_cluster *cluster);
tr__call tr__context_call(const tr_plan *plan, const tr_workload *model, const tr_cluster *cluster);
tr__call tr__expert_call(const tr_plan *plan, const tr_workload *model, const tr_cluster *cluster);
double tr__tensor_sums(const tr_plan *plan, const tr_workload *model, int experts);
double tr__context_rounds(const tr_plan *plan);
double tr__expert_rounds(const tr_plan *plan);
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
void tr__take_fuller(tr_footprint *fullest, const tr_footprint *one);
// What follows from a step's terms: `rest` is all of them but the fixed one.
void tr__finish_step(const tr_plan *plan, const tr_workload *model, const tr_cluster *cluster, double rest,
                     tr_prediction *out);
// Of a rank in a place of the pipeline, which may have several stages; of the fullest such.
tr__local tr__rank_params(const tr_plan *plan, const tr_workload *model, int64_t place);
// The places that can be the fullest, ascending; how many.
enum { TR__PLACES = 4 };
int tr__full_places(const tr_plan *plan, const tr_workload *model, int64_t place[TR__PLACES]);
tr__local tr__fullest_params(const tr_plan *plan, const tr_workload *model);
// Weights, gradients and optimizer states of the stage that has the most.
void tr__states_of(const tr_plan *plan, const tr_workload *model, double item[TR_ITEM_COUNT]);

// ---- the step (predict.c, exchange.c)

// Schedules that have a closed form; others are taken for 1f1b until they are simulated.
typedef enum tr__pipe_form { TR__PIPE_1F1B, TR__PIPE_ZERO, TR__PIPE_DUAL } tr__pipe_form;
tr__pipe_form tr__pipe_form_of(const tr_plan *plan);

// Computation of layers and head: for all plans alike in tp, cp, ep, micro-batch, recomputation and number type.
typedef struct tr__work {
  tr__layer dense, sparse;
  double head;
} tr__work;
tr__work tr__work_of(const tr_plan *plan, const tr_workload *model, const tr_cluster *cluster);

typedef struct tr__passes {
  double forward, backward, weights, again, tp, tp_again, cp, ep, beside; // of one layer, mean over the model
} tr__passes;
typedef struct tr__pipe { // the stage that the others wait for
  tr__passes layer;
  double head, micro_batches, layers; // its head, its layers
  double slowest, mean;               // seconds of a micro-batch there, and on the average stage:
  double forward, weights, beside;    // parts of that, and what passes out of pairs have besides
} tr__pipe;
tr__pipe tr__pipe_of(const tr_plan *plan, const tr_workload *model, const tr_cluster *cluster, const tr__work *work);
// tr_predict_step and the times of tr_predict with the work that is known.
double tr__predict_step(const tr_plan *plan, const tr_workload *model, const tr_cluster *cluster,
                        const tr__work *work, double term[TR_TERM_COUNT]);
void tr__predict_time(const tr_plan *plan, const tr_workload *model, const tr_cluster *cluster, const tr__work *work,
                      tr_prediction *out);
// A message between stages; how many a micro-batch makes, and the share that does not hide.
tr__call tr__stage_call(const tr_plan *plan, const tr_workload *model, const tr_cluster *cluster);
double tr__stage_messages(const tr_plan *plan);
double tr__stage_exposed(const tr_plan *plan);

typedef struct tr__exchange {
  const char *what, *primitive;
  tr__call call;
  double count, exposed; // calls of a step, seconds that they add to it
} tr__exchange;
enum { TR__EXCHANGES = 8 };
int tr__exchanges_of(const tr_plan *plan, const tr_workload *model, const tr_cluster *cluster, const tr__pipe *pipe,
                     tr__exchange out[TR__EXCHANGES]);
double tr__update_time(const tr_plan *plan, const tr_workload *model, const tr_cluster *cluster);

#endif
