// SPDX-License-Identifier: MIT
// Learning-rate rules: pure functions of the step number, so a restart at any step continues the same curve.
//
// Every rule warms up linearly and then goes on as its own curve; from step `steps` on, all but the constant
// rule stay at min_lr. Not here: when steps are counted (an update number, from 0).
#include "trireme/optim/optim.h"

#include <math.h>

// How far `step` is on the way from `begin` to `begin + length`, in 0 .. 1.
static double progress(int64_t step, int64_t begin, int64_t length) {
  double x = (double)(step - begin) / (double)(length > 1 ? length : 1);
  return x < 0 ? 0 : x > 1 ? 1 : x;
}

static double cosine_at(const tr_lr *rule, double x) {
  return rule->min_lr + (rule->lr - rule->min_lr) * (1 + cos(3.14159265358979323846 * x)) / 2;
}

// Exactly lr at x = 0 and exactly min_lr at x = 1.
static double linear_at(const tr_lr *rule, double x) {
  return x < 1 ? rule->lr + (rule->min_lr - rule->lr) * x : rule->min_lr;
}

// A decay longer than what the warm-up leaves is shortened to that.
static double wsd_at(const tr_lr *rule, int64_t step) {
  int64_t begin = rule->steps - rule->decay_steps;
  if (begin < rule->warmup) begin = rule->warmup;
  if (step >= rule->steps) return rule->min_lr;
  return linear_at(rule, progress(step, begin, rule->steps - begin));
}

double tr_lr_at(const tr_lr *rule, int64_t step) {
  if (step < rule->warmup) return rule->lr * (double)(step + 1) / (double)rule->warmup;
  double x = progress(step, rule->warmup, rule->steps - rule->warmup);
  switch (rule->kind) {
  case TR_LR_COSINE: return cosine_at(rule, x);
  case TR_LR_LINEAR: return linear_at(rule, x);
  case TR_LR_WSD: return wsd_at(rule, step);
  default: return rule->lr;
  }
}
