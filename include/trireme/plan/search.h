// SPDX-License-Identifier: MIT
// Finding plans: every TP x PP x VPP x DP x CP x EP x ZeRO x recomputation x micro-batch x schedule (1f1b, interleaved, zb_h1,
// dualpipe) of a model on all devices of a cluster for one global batch, each with the order of axes over ranks that is
// fastest, best first.
//
// All plans are compared by the closed forms of predict.h, and the answer is that of trying all: what is left out is left out by
// bounds that hold (states alone do not fit; products alone take longer than what is already found). The best TR_SEARCH_TOP_MOST
// of them (grouped: three of each group) then go through the simulator with their schedules (pipeline.h), and are put in order by that. One thread;
// microseconds a plan, milliseconds a simulation.
#ifndef TRIREME_PLAN_SEARCH_H
#define TRIREME_PLAN_SEARCH_H

#include "trireme/plan/predict.h"

enum { TR_SEARCH_TOP_MOST = 64, TR_SEARCH_FAMILY_MOST = 128 };

typedef struct tr_search_entry {
  tr_plan plan;
  tr_prediction prediction;
  int64_t alike; // grouped: others with these tp, pp and ep that take at most a percent longer, by the closed forms
} tr_search_entry;

// What is fixed: 0 (recompute and zero: -1) leaves a knob free; fixed_map 1 keeps to fixed.map.
typedef struct tr_search_options {
  tr_plan fixed; // degrees, micro; number, batch and sequence always count
  int fixed_zero, fixed_recompute, fixed_map;
  size_t top;      // how many plans to keep, 1 to TR_SEARCH_TOP_MOST
  int all;         // no bounds on time: every plan that fits is predicted (tests, explanations)
  int closed;      // by the closed forms alone
  int unexplained; // finding nothing, it does not look for what would help
  int grouped;     // of all plans alike in tp, pp and ep the fastest stands for the others
  void (*visit)(void *user,
                const tr_search_entry *
                    entry); // NULL, or called for each plan that fits, without bounds on time and by the closed forms
  void *user;
} tr_search_options;
void tr_search_options_init(tr_search_options *options);

typedef struct tr_search_family { // the plans with one value of one knob
  const char *knob;               // of "schedule" the value is a number of tr_search_schedule_name
  int64_t value;
  double step;     // of its best plan; 0: none fits
  double overflow; // bytes that its smallest plan lacks, when none fits
} tr_search_family;

typedef struct tr_search_result {
  tr_search_entry top[TR_SEARCH_TOP_MOST];
  size_t n;
  int64_t considered, too_big, bounded, predicted, simulated;
  int64_t near;   // plans within the prediction's error of the best
  double lacking; // bytes that the smallest plan lacks when none fits; infinite: no plan divides as asked
  tr_search_family family[TR_SEARCH_FAMILY_MOST];
  size_t nfamily;
} tr_search_result;

// Schedules that are searched, from 0; NULL behind the last.
const char *tr_search_schedule_name(int64_t i);

// TR_ERR_PLAN when no plan works, with what the smallest of them lacks and the nearest changes that would help: values of knobs that are
// fixed, else more devices or another batch.
tr_status tr_search(const tr_workload *model, const tr_cluster *cluster, const tr_search_options *options,
                    tr_search_result *out);

#endif
