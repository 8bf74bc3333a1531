// SPDX-License-Identifier: MIT
// Laws of reliability (law_reliability.h): rates add up, saves cost and failures cost, spares are a quantile of a Poisson
// distribution. How often to save: more often costs more saving, less often costs more work done again.
//
// Failures come as a Poisson process, one every M seconds on average; a save costs C seconds; work goes on for t seconds
// between saves. A segment of t + C seconds then takes M e^(R/M) (e^((t + C)/M) - 1) seconds on average, restarts of R
// seconds and repetitions included (Daly), of which t are work.
#include "trireme/plan/law_reliability.h"

#include <math.h>

double tr_law_mtbf(double count, double mtbf) { return mtbf / count; }

double tr_law_mtbf_of(const tr_law_part *part, size_t n) {
  double rate = 0;
  for (size_t i = 0; i < n; i++) rate += part[i].count / part[i].mtbf;
  return 1 / rate;
}

double tr_law_any_failure(double count, double survival) { return -expm1(count * log(survival)); }

double tr_law_mtbf_from_survival(double count, double survival) { return -1 / (count * log(survival)); }

double tr_law_failure_probability(double seconds, double mtbf) { return -expm1(-seconds / mtbf); }

double tr_law_expected_failures(double seconds, double mtbf) { return seconds / mtbf; }

double tr_law_saving_loss(double interval, double write, double mtbf, double restart) {
  double takes = mtbf * exp(restart / mtbf) * expm1((interval + write) / mtbf);
  return 1 - interval / takes;
}

tr_law_saving tr_law_saving_at(double interval, double write, double mtbf, double restart) {
  tr_law_saving out = {.interval = interval,
                       .saving = write / interval,
                       .redone = interval / (2 * mtbf),
                       .restart = restart / mtbf,
                       .exact = tr_law_saving_loss(interval, write, mtbf, restart)};
  out.overhead = out.saving + out.redone + out.restart;
  // Where in a segment of work and save a failure falls, given that one does: a little before its middle.
  double segment = interval + write;
  out.lost = mtbf - segment / expm1(segment / mtbf);
  return out;
}

double tr_law_saving_young(double write, double mtbf) { return sqrt(2 * write * mtbf); }

double tr_law_saving_daly(double write, double mtbf) {
  if (write >= 2 * mtbf) return mtbf;
  double ratio = write / (2 * mtbf);
  return sqrt(2 * write * mtbf) * (1 + sqrt(ratio) / 3 + ratio / 9) - write;
}

double tr_law_overhead_price(double share, double devices, double per_hour) {
  return share * devices * per_hour * 24;
}

double tr_law_spares(double count, double mtbf, double repair, double target) {
  double mean = count * repair / mtbf, log_term = -mean, below = exp(-mean), spares = 0;
  if (!isfinite(mean) || !(target < 1)) return INFINITY;
  // Far beyond the mean terms vanish, so the sum has stopped growing when they do.
  while (below < target && (spares <= mean || exp(log_term) > 1e-17)) {
    spares++;
    log_term += log(mean / spares);
    below += exp(log_term);
  }
  return spares;
}

double tr_law_availability(double mtbf, double repair) { return mtbf / (mtbf + repair); }
