// SPDX-License-Identifier: MIT
// Laws of synchronisation: iterations, samples, time and price of a run by workers and staleness.
//
// More workers need fewer iterations, with less than they add in samples (law_batch.h); barriers and communication add to each
// iteration. Bounded staleness s (Ho et al., "Stale synchronous parallel", 2013) waits less and needs more iterations:
// `stale_penalty` per step of staleness, measured 0.055 (2.1k against 1.72k iterations at s = 4), the bound being s + 1
// times. The learning rate goes down with 1 / sqrt(1 + s).
#ifndef TRIREME_PLAN_LAW_SYNC_H
#define TRIREME_PLAN_LAW_SYNC_H

#include "trireme/plan/law_scaling.h"

typedef struct tr_law_run {
  double workers, staleness;
  double iterations, overhead; // overhead: share added to an iteration
} tr_law_run;

typedef struct tr_law_run_cost {
  double iteration, seconds; // with overhead
  double speedup;            // (iterations of one worker) / (iterations (1 + overhead))
  double samples;            // iterations x workers x batch
  double sample_efficiency;  // (iterations of one / workers) / iterations
  double price, lr_factor;
} tr_law_run_cost;

// `one`: iterations of one worker; `seconds`: of an iteration without overhead; `batch` of one worker.
tr_law_run_cost tr_law_run_price(const tr_law_run *run, double one, double seconds, double batch, double price);
double tr_law_sample_efficiency(double ideal, double actual); // iterations
double tr_law_stale_lr(double staleness);                     // 1 / sqrt(1 + s)

// Prediction where nothing was measured. Iterations by the critical batch size in samples (infinite: ideal); overhead of
// exposed communication and of waiting for the slowest, both divided by what staleness lets hide.
typedef struct tr_law_sync {
  double one, batch, critical, stale_penalty;
  tr_law_job job; // compute: an iteration of one worker, which stays the same
} tr_law_sync;
tr_law_run tr_law_run_predict(const tr_law_sync *sync, double workers, double staleness);

#endif
