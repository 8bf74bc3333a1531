// SPDX-License-Identifier: MIT
// The compute power law: loss = floor + scale / C^exponent, for a loss target, and its fit to somebody's own runs.
//
// The form is that of Kaplan et al. ("Scaling laws for neural language models", 2020) and, with a floor, of Henighan et al.
// (2020). Fitting: for a given floor a straight line through (log C, log (loss - floor)) by least squares; the floor is
// that of the least residual, which needs four runs. Runs must be tuned alike, and the law says nothing far beyond
// them: the error of the exponent is printed and the reach of the runs is checked by the lint.
#ifndef TRIREME_PLAN_LAW_POWER_H
#define TRIREME_PLAN_LAW_POWER_H

#include "trireme/base/status.h"
#include <stddef.h>

typedef struct tr_law_power {
  double floor, scale, exponent;
  double exponent_error; // standard error; NaN with two runs
  double residual;       // root mean square of log(loss - floor) around the line
  double least, most;    // compute of the runs it was fitted to; 0: not fitted
} tr_law_power;

double tr_law_power_loss(const tr_law_power *law, double compute);
double tr_law_power_compute(const tr_law_power *law, double loss); // infinite at or below the floor

// Runs' compute in FLOP and loss. `floor` NaN: fitted where there are at least four runs, 0 else. TR_ERR_DATA names the run
// that makes no sense, or says that compute or loss does not vary.
tr_status tr_law_power_fit(size_t n, const double *compute, const double *loss, double floor, tr_law_power *out);

#endif
