// SPDX-License-Identifier: MIT
// A model on the stages of a schedule, from descriptions: which layers each stage has, and how long its passes take.
#ifndef TRIREME_CLI_STAGE_CUTS_INTERNAL_H
#define TRIREME_CLI_STAGE_CUTS_INTERNAL_H

#include "trireme/plan/predict.h"
#include "trireme/step/schedule.h"

// 0 and NULL: as in the help.
typedef struct tr__stage_request {
  const char *model, *cluster, *layers; // layers: even, balanced, or a number for each stage
  int64_t micro, sequence, tp, replicas, ep;
} tr__stage_request;

typedef struct tr__stage_cuts {
  tr_plan plan;
  tr_workload model;
  tr_cluster cluster;
  int S;
  tr_stage_time *time; // [S]
} tr__stage_cuts;

// The caller destroys *out.
tr_status tr__stage_cuts_make(const tr__stage_request *request, const tr_schedule *schedule, tr__stage_cuts *out);
void tr__stage_cuts_free(tr__stage_cuts *cuts);

double tr__stage_seconds(const tr_stage_time *time); // forward and backward

#endif
