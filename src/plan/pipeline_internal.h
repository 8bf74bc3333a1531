// SPDX-License-Identifier: MIT
// Inside the planner: the costs of a pipeline's stages and links in nanoseconds, and its schedule.
#ifndef TRIREME_PLAN_PIPELINE_INTERNAL_H
#define TRIREME_PLAN_PIPELINE_INTERNAL_H

#include "trireme/plan/pipeline.h"

// Ranks of the pipeline are `stride` devices apart, and `domain` devices have fast links; [1] leaves them.
typedef struct tr__pipeline_costs {
  int S;
  tr_stage_cut *cut;                // [S]
  int64_t (*row)[TR_OP_KIND_COUNT]; // [S]
  int64_t *beside;                  // [S] that a pair of passes hides
  int64_t stride, domain, latency[2], occupancy[2];
} tr__pipeline_costs;
tr_status tr__pipeline_costs_make(const tr_plan *plan, const tr_workload *model, const tr_cluster *cluster, int S,
                                  tr__pipeline_costs *out);
void tr__pipeline_costs_free(tr__pipeline_costs *costs);
// For the simulator, which reads `costs` while it runs; `messages` 0: they take no time.
tr_sim_costs tr__pipeline_sim_costs(tr__pipeline_costs *costs, int messages);

// The plan's schedule with m micro-batches.
tr_status tr__pipeline_schedule(const tr_plan *plan, int64_t m, tr_schedule *out);

#endif
