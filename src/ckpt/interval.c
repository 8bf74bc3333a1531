// SPDX-License-Identifier: MIT
// How often to save: more often costs more saving, less often costs more work done again.
//
// Failures come as a Poisson process, one every M seconds on average; a save costs C seconds; work goes on for t seconds
// between saves. A segment of t + C seconds then takes M e^(R/M) (e^((t + C)/M) - 1) seconds on average, restarts of R
// seconds and repetitions included (Daly), of which t are work.
#include "trireme/ckpt/saver.h"

#include <math.h>

double tr_interval_young(double cost, double mtbf) { return sqrt(2 * cost * mtbf); }

double tr_interval_daly(double cost, double mtbf) {
  if (cost >= 2 * mtbf) return mtbf;
  double ratio = cost / (2 * mtbf);
  return sqrt(2 * cost * mtbf) * (1 + sqrt(ratio) / 3 + ratio / 9) - cost;
}

double tr_interval_loss(double interval, double cost, double mtbf, double restart) {
  double takes = mtbf * exp(restart / mtbf) * expm1((interval + cost) / mtbf);
  return 1 - interval / takes;
}
