// SPDX-License-Identifier: MIT
// A plan's pipeline from its schedule object, through the simulator: how long a step's passes take with and without messages, and how
// many micro-batches each rank has alive.
//
// tr_predict has closed forms for 1F1B and interleaved 1F1B with stages that are alike. Here stages have the layers and the tables that
// they have, messages the links that they take, and the schedule may be any that is known (schedule.h).
//
// Long steps: from some micro-batch on a schedule repeats itself, and each further round takes as long as the one before. So three
// short steps are simulated, a round apart, and the rest is added up if the two differences are equal to the tick (a nanosecond); if
// they are not, the whole step is simulated. tests/plan/test_pipeline.c holds both against each other.
#ifndef TRIREME_PLAN_PIPELINE_H
#define TRIREME_PLAN_PIPELINE_H

#include "trireme/plan/predict.h"
#include "trireme/sim/sim.h"
#include "trireme/step/schedule.h"

// The schedule that a plan asks for: its own, or, where it names none, 1f1b and, with chunks, interleaved.
const char *tr_plan_schedule(const tr_plan *plan);

typedef struct tr_pipeline tr_pipeline;
// One step of `microbatches` (0: the plan's own), simulated. TR_ERR_PLAN from the schedule where it cannot be built so. The caller
// closes it.
tr_status tr_pipeline_open(const tr_plan *plan, const tr_workload *model, const tr_cluster *cluster,
                           int64_t microbatches, tr_pipeline **out);
void tr_pipeline_close(tr_pipeline *pipeline); // NULL allowed
const tr_schedule *tr_pipeline_schedule(const tr_pipeline *pipeline);
const tr_program *const *tr_pipeline_programs(const tr_pipeline *pipeline); // [p]
const tr_sim_result *tr_pipeline_result(const tr_pipeline *pipeline);       // ticks are nanoseconds

// Seconds of a step's passes. bubble: what the slowest rank does not work; messages: what they add.
typedef struct tr_pipeline_time {
  double work, bubble, messages; // work: of the rank that has most
  int64_t simulated;             // most micro-batches of a simulated step
} tr_pipeline_time;
tr_status tr_predict_pipeline(const tr_plan *plan, const tr_workload *model, const tr_cluster *cluster,
                              tr_pipeline_time *out);

// Memory of the ranks of every place in the pipeline: rank[plan->pp].
tr_status tr_predict_rank_memory(const tr_plan *plan, const tr_workload *model, const tr_cluster *cluster,
                                 tr_footprint *rank);

// tr_predict, with bubble, messages and memory from the schedule where there is a pipeline.
tr_status tr_predict_simulated(const tr_plan *plan, const tr_workload *model, const tr_cluster *cluster,
                               tr_prediction *out);

#endif
