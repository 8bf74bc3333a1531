// SPDX-License-Identifier: MIT
// Laws of utilisation (law_utilisation.h). The names of the formulas are what reports print beside every figure: a utilisation
// without its formula cannot be compared with another.
#include "trireme/plan/law_utilisation.h"

const char *tr_law_count_formula(tr_law_count count) {
  static const char *const formula[] = {"6N", "6N + 12LdS", "6N + 6LdS"};
  return formula[count];
}

double tr_law_token_flop(tr_law_count count, double params, double layers, double width, double sequence) {
  static const double attention[] = {0, 12, 6};
  return 6 * params + attention[count] * layers * width * sequence;
}

double tr_law_utilisation(double token_flop, double tokens_per_second, double devices, double peak) {
  return token_flop * tokens_per_second / (devices * peak);
}

double tr_law_recompute_factor(double share) { return 1 + share / 3; }
