// SPDX-License-Identifier: MIT
// Laws of reliability: from parts that fail to a job that goes on, how often to save, and how many spares to keep.
//
// Failures of parts are independent and memoryless, so rates add up: MTBF of a system is 1 / sum(n_i / MTBF_i). The
// interval between saves is Young's ("A first order approximation to the optimum checkpoint interval", 1974), with Daly's
// higher-order terms ("A higher order estimate of the optimum checkpoint interval for restart dumps", 2006) where a save is
// not small against the MTBF; training uses it for checkpoint.every=auto. Failures in a time are Poisson; so are devices in
// repair.
#ifndef TRIREME_PLAN_LAW_RELIABILITY_H
#define TRIREME_PLAN_LAW_RELIABILITY_H

#include <stddef.h>

typedef struct tr_law_part {
  const char *name;   // for the reader
  double count, mtbf; // seconds
} tr_law_part;

double tr_law_mtbf(double count, double mtbf);                   // of the whole: mtbf / count
double tr_law_mtbf_of(const tr_law_part *part, size_t n);        // of all parts together; infinite for none
double tr_law_any_failure(double count, double survival);        // 1 - survival^count, in the same period
double tr_law_mtbf_from_survival(double count, double survival); // in periods: -1 / (count ln survival)
double tr_law_failure_probability(double seconds, double mtbf);  // at least one
double tr_law_expected_failures(double seconds, double mtbf);

// One choice of the interval between saves.
typedef struct tr_law_saving {
  double interval;                // seconds of work between saves
  double saving, redone, restart; // against the work, first order: C / t, t / 2M, R / M
  double overhead;                // their sum, against the work
  double exact;                   // share of all time lost, with failures while saving or working again
  double lost;                    // seconds of work lost by one failure on average
} tr_law_saving;
tr_law_saving tr_law_saving_at(double interval, double write, double mtbf, double restart);
double tr_law_saving_young(double write, double mtbf); // sqrt(2 write mtbf)
double tr_law_saving_daly(double write, double mtbf);  // with the higher-order terms; mtbf when write >= 2 mtbf
// Share of time lost to saving, to work done again and to restarts of `restart` seconds each, at this interval.
double tr_law_saving_loss(double interval, double write, double mtbf, double restart);
double tr_law_overhead_price(double share, double devices, double per_hour); // a day

// Spares so that with probability `target` no failed device is waited for while others are repaired.
double tr_law_spares(double count, double mtbf, double repair, double target);
double tr_law_availability(double mtbf, double repair); // MTBF / (MTBF + repair)

#endif
