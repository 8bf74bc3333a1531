// SPDX-License-Identifier: MIT
// Published training runs as rows of a table, so that predictions can be held against them: reading, predicting, scoring.
//
// Two tables are understood, told apart by their header: published runs (model, machine and plan by name, step time, rate
// or FLOP/s, memory) and measurements of one node (n_gpus, gbs, mbs, hidden, ..., iter_ms). What a row does not
// say is filled in and noted; rows that even so cannot be predicted stay in the list with the reason.
#ifndef TRIREME_PLAN_RUNS_H
#define TRIREME_PLAN_RUNS_H

#include "trireme/base/text.h"
#include "trireme/plan/predict.h"

typedef struct tr_run {
  const char *id, *source, *model_name, *device_name, *memory_kind;
  char tier;         // 'A' complete .. 'D'; 'S' a measurement of one node
  int64_t group;     // rows of a group differ in the plan alone; 0: none
  char why[160];     // why it cannot be predicted, "" where it can
  char note[256];    // what was not stated and how it was taken
  int guessed;       // there is such
  int searched;      // its degrees are those of the fastest plan that fits
  int batch_unknown; // no batch is stated: eight passes are predicted
  int micro_unknown; // no micro-batch is stated: no memory is predicted
  int states_only;   // no model is named: its states alone are predicted, from the number of parameters
  tr_plan plan;
  tr_workload model;
  tr_cluster cluster;
  double step;      // measured seconds; 0: none
  double memory_gb; // measured, in the unit of its source; 0: none
  int out_of_memory;
  double predicted_step, predicted_memory; // tr_runs_predict; 0: none
} tr_run;

typedef struct tr_runs {
  tr_run *run;
  size_t n;
  void *owned;
} tr_runs;

tr_status tr_runs_load(const char *path, tr_runs *out); // TR_ERR_DATA, TR_ERR_IO, TR_ERR_MEMORY
void tr_runs_unload(tr_runs *runs);

void tr_runs_predict(tr_runs *runs);
// A header and a row for every row: id, predicted step time and memory with their bounds, note.
void tr_runs_csv(const tr_runs *runs, tr_text *out);

// How well predictions meet measurements. Errors are relative; order and regret are over groups.
typedef struct tr_score {
  size_t n;
  double median, mean, p90, worst, bias; // bias: median of the signed error
} tr_score;
tr_score tr_runs_score(const tr_runs *runs, const char *tiers, const char *source); // source NULL: all
typedef struct tr_ranking {
  size_t groups, pairs;
  double ordered, regret; // shares
} tr_ranking;
tr_ranking tr_runs_ranking(const tr_runs *runs);
tr_score tr_runs_memory_score(const tr_runs *runs);
void tr_runs_summary(const tr_runs *runs, tr_text *out); // all of it as tables

#endif
