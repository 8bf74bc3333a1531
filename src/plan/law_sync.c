// SPDX-License-Identifier: MIT
// Laws of synchronisation (law_sync.h): the price of a run of so many workers, from measured iterations and overheads or from
// predicted ones.
#include "trireme/plan/law_sync.h"
#include "trireme/plan/law_batch.h"
#include "trireme/plan/law_money.h"

#include <math.h>

double tr_law_sample_efficiency(double ideal, double actual) { return ideal / actual; }

double tr_law_stale_lr(double staleness) { return 1 / sqrt(1 + staleness); }

tr_law_run_cost tr_law_run_price(const tr_law_run *run, double one, double seconds, double batch, double price) {
  tr_law_run_cost out = {.iteration = seconds * (1 + run->overhead)};
  out.seconds = run->iterations * out.iteration;
  out.speedup = one / (run->iterations * (1 + run->overhead));
  out.samples = run->iterations * run->workers * batch;
  out.sample_efficiency = tr_law_sample_efficiency(one / run->workers, run->iterations);
  out.price = tr_law_price(run->workers, out.seconds, price);
  out.lr_factor = tr_law_stale_lr(run->staleness);
  return out;
}

tr_law_run tr_law_run_predict(const tr_law_sync *sync, double workers, double staleness) {
  tr_law_job job = sync->job;
  job.compute *= workers; // each worker keeps its batch, so an iteration computes as long as that of one
  job.most = 0;
  tr_law_point at = tr_law_scale(&job, workers);
  // A worker may be s iterations ahead: what it sends has s + 1 iterations to arrive in, and delays average over as many.
  double exposed = fmax(0, at.exposed - staleness * at.compute), waiting = at.waiting / sqrt(1 + staleness);
  double iterations = tr_law_iterations(sync->one, sync->batch, workers, sync->critical);
  return (tr_law_run){.workers = workers,
                      .staleness = staleness,
                      .iterations = iterations * (1 + sync->stale_penalty * staleness),
                      .overhead = (exposed + waiting) / at.compute};
}
