// SPDX-License-Identifier: MIT
// Ten assumptions that make plans wrong, each a test that says what is wrong with its number.
//
// A function gets what a plan assumes and what the laws (or a measurement) say, and fills a warning; `name` is NULL where there
// is nothing to say. The thresholds are arguments of nobody: they are what the planner's own error bars can tell apart
// (5 % of a speed-up, a point of overhead), and stand in the source.
#ifndef TRIREME_PLAN_LAW_LINT_H
#define TRIREME_PLAN_LAW_LINT_H

#include "trireme/plan/law_memory.h"
#include "trireme/plan/law_power.h"

typedef struct tr_law_warning {
  const char *name; // "linear-speedup"; NULL: no warning
  double number;    // what decides, as told below
  char text[320];   // one sentence with the number
} tr_law_warning;

// number: how many times the predicted speed-up the assumed one is.
tr_law_warning tr_law_lint_linear_speedup(double devices, double assumed, double predicted);
// number: device-equivalents that are left of `devices` when MFU and scaling are both counted.
tr_law_warning tr_law_lint_mfu_without_scaling(double devices, double mfu, double scaling);
// A rate that was tuned with one batch used with another, `changed` times it. number: the factor that the rule gives.
tr_law_warning tr_law_lint_small_cluster_rate(double tuned_batch, double batch, double critical, double changed);
// number: samples needed against the fewest possible.
tr_law_warning tr_law_lint_batch_over_critical(double batch, double critical);
// A plan was taken for its memory although a faster one fits. number: how many times as long its step takes.
tr_law_warning tr_law_lint_memory_alone(double chosen_seconds, double fastest_seconds);
// A ZeRO stage above what is needed. `rest` is what a rank holds besides states. number: the lowest stage that fits.
tr_law_warning tr_law_lint_needless_sharding(tr_law_roles roles, double params, int zero, double ranks, double rest,
                                             double capacity);
// A share of communication that was measured with a small model. number: the share at the real size.
tr_law_warning tr_law_lint_small_model_overhead(double small_params, double measured, double params,
                                                double predicted);
// Efficiency that a vendor prints. number: assumed over reachable; peaks with sparsity are twice those without.
tr_law_warning tr_law_lint_vendor_efficiency(double assumed_flops, double reachable_flops);
// K passes per update said to cost nothing. number: how many times as long an update takes.
tr_law_warning tr_law_lint_free_accumulation(double passes, double compute, double exposed);
// Saving every `interval` seconds because that is the habit. number: points of overhead over the best interval.
tr_law_warning tr_law_lint_fixed_interval(double interval, double write, double mtbf, double restart);
// A loss target beyond the runs that the power law was fitted to. number: how many times their largest compute.
tr_law_warning tr_law_lint_far_extrapolation(const tr_law_power *law, double compute);

#endif
