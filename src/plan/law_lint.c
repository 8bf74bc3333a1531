// SPDX-License-Identifier: MIT
// The planner's warnings (law_lint.h). Each is one comparison and one sentence; thresholds stand at the top with what they are
// for.
#include "trireme/plan/law_lint.h"
#include "trireme/base/text.h"
#include "trireme/plan/law_batch.h"
#include "trireme/plan/law_collective.h"
#include "trireme/plan/law_reliability.h"
#include "trireme/plan/law_scaling.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>

static const double notable = 1.05;   // a ratio that repeats of one measurement do not explain
static const double rate_off = 1.5;   // learning rates are tuned in steps of about 2
static const double roomy = 0.9;      // a device is filled to this much: buffers and logits come on top
static const double one_point = 0.01; // of overhead or share
static const double larger = 3;       // times as many parameters: another size
static const double gib = 1073741824;
static const double reach = 100; // times the compute of the fitted runs: two decades

static tr_law_warning warn(const char *name, double number, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static tr_law_warning warn(const char *name, double number, const char *format, ...) {
  tr_law_warning out = {.name = name, .number = number};
  va_list args;
  va_start(args, format);
  vsnprintf(out.text, sizeof out.text, format, args);
  va_end(args);
  return out;
}

static tr_law_warning nothing(double number) { return (tr_law_warning){.number = number}; }

tr_law_warning tr_law_lint_linear_speedup(double devices, double assumed, double predicted) {
  double ratio = assumed / predicted;
  if (!(ratio > notable)) return nothing(ratio);
  return warn("linear-speedup", ratio, "a speed-up of %.4g on %.0f devices is assumed, %.4g is predicted: %.2f times",
              assumed, devices, predicted, ratio);
}

tr_law_warning tr_law_lint_mfu_without_scaling(double devices, double mfu, double scaling) {
  double left = tr_law_goodput(devices, mfu, scaling, 1);
  if (!(scaling * notable < 1)) return nothing(left);
  return warn(
      "mfu-without-scaling", left,
      "MFU %.3g %% is not what %.0f devices do: times a scaling of %.3g %% they do the work of %.4g perfect ones",
      100 * mfu, devices, 100 * scaling, left);
}

tr_law_warning tr_law_lint_small_cluster_rate(double tuned_batch, double batch, double critical, double changed) {
  tr_law_lr_rule rule = tr_law_lr_rule_for(batch, critical);
  double want = tr_law_lr_factor(rule, batch / tuned_batch), off = changed / want;
  if (!(off > rate_off || off * rate_off < 1)) return nothing(want);
  return warn("small-cluster-rate", want,
              "the learning rate was tuned with a batch of %.4g; with %.4g the %s rule gives %.3g times it, not %.3g "
              "times",
              tuned_batch, batch, rule == TR_LAW_LR_LINEAR ? "linear" : "square-root", want, changed);
}

tr_law_warning tr_law_lint_batch_over_critical(double batch, double critical) {
  double samples = tr_law_samples_factor(batch, critical);
  if (!(batch > critical)) return nothing(samples);
  return warn(
      "batch-over-critical", samples,
      "a batch of %.4g is %.3g times the critical size %.4g: %.3g times the samples for %.3g times the fewest "
      "steps",
      batch, batch / critical, critical, samples, tr_law_steps_factor(batch, critical));
}

tr_law_warning tr_law_lint_memory_alone(double chosen_seconds, double fastest_seconds) {
  double ratio = chosen_seconds / fastest_seconds;
  if (!(ratio > notable)) return nothing(ratio);
  return warn("memory-alone", ratio,
              "a plan that was chosen for its memory takes %.2f times as long as the fastest that fits (%.4g s "
              "against %.4g s)",
              ratio, chosen_seconds, fastest_seconds);
}

tr_law_warning tr_law_lint_needless_sharding(tr_law_roles roles, double params, int zero, double ranks, double rest,
                                             double capacity) {
  int lowest = 0;
  while (lowest < zero && tr_law_state_bytes(roles, params, lowest, ranks) + rest > roomy * capacity) lowest++;
  // Stages 1 and 2 move what an all-reduce moves, so only stage 3 costs anything.
  if (zero < 3 || lowest >= 3) return nothing(lowest);
  return warn("needless-sharding", lowest,
              "ZeRO-3 moves %.2g times the bytes of ZeRO-%d, with which %.4g GiB of %.4g GiB are taken: it fits",
              tr_law_zero_collectives(zero) / tr_law_zero_collectives(lowest), lowest,
              (tr_law_state_bytes(roles, params, lowest, ranks) + rest) / gib, capacity / gib);
}

tr_law_warning tr_law_lint_small_model_overhead(double small_params, double measured, double params,
                                                double predicted) {
  if (!(params > larger * small_params) || fabs(measured - predicted) < 5 * one_point) return nothing(predicted);
  char small[32], here[32];
  tr_format_count(small, sizeof small, small_params);
  tr_format_count(here, sizeof here, params);
  return warn("small-model-overhead", predicted,
              "%.3g %% of communication was measured with %s parameters; at %s parameters it is %.3g %%",
              100 * measured, small, here, 100 * predicted);
}

tr_law_warning tr_law_lint_vendor_efficiency(double assumed_flops, double reachable_flops) {
  double ratio = assumed_flops / reachable_flops;
  if (!(ratio > notable)) return nothing(ratio);
  return warn("vendor-efficiency", ratio, "%.4g TFLOP/s are assumed, large products reach %.4g (%.2f times%s)",
              assumed_flops * 1e-12, reachable_flops * 1e-12, ratio,
              ratio > 1.9 ? "; is it a peak with sparsity?" : "");
}

tr_law_warning tr_law_lint_free_accumulation(double passes, double compute, double exposed) {
  double ratio = (passes * compute + exposed) / (compute + exposed);
  if (!(ratio > notable)) return nothing(ratio);
  return warn(
      "free-accumulation", ratio,
      "accumulating over %.0f passes is not free: an update takes %.3g times as long; it saves %.3g %% of the "
      "synchronisations",
      passes, ratio, 100 * tr_law_accumulate(0, 0, 1, 1, passes).saved);
}

tr_law_warning tr_law_lint_fixed_interval(double interval, double write, double mtbf, double restart) {
  double best = tr_law_saving_daly(write, mtbf);
  double more =
      tr_law_saving_at(interval, write, mtbf, restart).exact - tr_law_saving_at(best, write, mtbf, restart).exact;
  if (!(more > one_point)) return nothing(100 * more);
  return warn("fixed-interval", 100 * more,
              "saving every %.3g min loses %.3g points more of the time than every %.3g min (a save takes %.3g min, "
              "a failure comes "
              "every %.3g h)",
              interval / 60, 100 * more, best / 60, write / 60, mtbf / 3600);
}

tr_law_warning tr_law_lint_far_extrapolation(const tr_law_power *law, double compute) {
  double times = compute / law->most;
  if (!(law->most > 0 && times > reach)) return nothing(times);
  return warn("far-extrapolation", times, "%.3g FLOP are %.3g times the largest run of the fit (%.3g): a guess",
              compute, times, law->most);
}
