// SPDX-License-Identifier: MIT
// Laws of the batch (law_batch.h): gradient noise, the hyperbola of steps against samples, learning-rate rules and the bound of
// SGD. An infinite critical size means that noise never stops mattering: steps fall as 1 / B.
#include "trireme/plan/law_batch.h"

#include <math.h>

double tr_law_batch(double ranks, double micro, double passes) { return ranks * micro * passes; }

double tr_law_critical_batch(double noise_trace, double gradient_square) { return noise_trace / gradient_square; }

tr_law_noise tr_law_noise_from(double small, double small_square, double large, double large_square) {
  tr_law_noise out = {NAN, NAN, NAN};
  if (!(small > 0 && small < large)) return out;
  out.gradient_square = (large * large_square - small * small_square) / (large - small);
  out.trace = (small_square - large_square) / (1 / small - 1 / large);
  out.critical = tr_law_critical_batch(out.trace, out.gradient_square);
  return out;
}

double tr_law_critical_tokens(double loss) { return 2e8 / pow(loss, 1 / 0.21); }

double tr_law_steps_factor(double batch, double critical) { return 1 + critical / batch; }

double tr_law_samples_factor(double batch, double critical) { return 1 + batch / critical; }

double tr_law_iterations(double one, double batch, double times, double critical) {
  if (isinf(critical)) return one / times;
  return one * tr_law_steps_factor(batch * times, critical) / tr_law_steps_factor(batch, critical);
}

tr_law_lr_rule tr_law_lr_rule_for(double batch, double critical) {
  return batch <= critical ? TR_LAW_LR_LINEAR : TR_LAW_LR_SQRT;
}

double tr_law_lr_factor(tr_law_lr_rule rule, double times) { return rule == TR_LAW_LR_LINEAR ? times : sqrt(times); }

double tr_law_sgd_rate(const tr_law_sgd *sgd) {
  return sqrt(2 * sgd->to_go * sgd->batch / (sgd->smoothness * sgd->variance * sgd->steps));
}

double tr_law_sgd_bound(const tr_law_sgd *sgd, double rate) {
  return 2 * sgd->to_go / (rate * sgd->steps) + rate * sgd->smoothness * sgd->variance / sgd->batch;
}

double tr_law_per_rank(double samples, double ranks) { return samples / ranks; }
