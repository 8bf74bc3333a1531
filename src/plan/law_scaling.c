// SPDX-License-Identifier: MIT
// Laws of scaling (law_scaling.h): Amdahl and the fleet law; a scaling curve is the fleet law with the hierarchical all-reduce
// for its communication and the slowest of N devices for its barrier.
#include "trireme/plan/law_scaling.h"

#include <math.h>

double tr_law_amdahl_ceiling(double serial) { return 1 / serial; }

double tr_law_amdahl_speedup(double devices, double serial) { return 1 / (serial + (1 - serial) / devices); }

double tr_law_amdahl_serial(double devices, double speedup) { return (devices / speedup - 1) / (devices - 1); }

double tr_law_efficiency(double speedup, double devices) { return speedup / devices; }

double tr_law_step_efficiency(double compute, double exposed) { return compute / (compute + exposed); }

double tr_law_equivalents(double devices, double efficiency) { return devices * efficiency; }

double tr_law_goodput(double devices, double mfu, double scaling, double availability) {
  return devices * mfu * scaling * availability;
}

double tr_law_expected_late(double devices, double share) { return devices * share; }

double tr_law_late_probability(double devices, double share) { return -expm1(devices * log1p(-share)); }

// Of N independent standard normals: Blom's approximation of their largest order statistic, with the quantile of Winitzki's
// inverse error function. Within 0.03 from N = 2 to a million, and 0 for one.
double tr_law_expected_maximum(double devices) {
  if (devices <= 1) return 0;
  const double pi = 3.14159265358979323846, a = 0.147;
  double share = (devices - 0.375) / (devices + 0.25); // of the distribution below it
  double x = 2 * share - 1, l = log(1 - x * x), half = 2 / (pi * a) + l / 2;
  return sqrt(2) * sqrt(sqrt(half * half - l / a) - half);
}

static double step_at(const tr_law_job *job, double devices, tr_law_point *out) {
  tr_law_fabric fabric = job->fabric;
  fabric.nodes = ceil(devices / fabric.per_node);
  fabric.per_node = fmin(devices, fabric.per_node);
  double parts = job->most > 0 ? fmin(devices, job->most) : devices;
  out->compute = job->compute / parts;
  out->communication = devices > 1 ? tr_law_allreduce_hierarchical(&fabric, job->bytes).total : 0;
  // Nothing hides behind more computing than there is.
  out->exposed = fmax(tr_law_exposed(out->communication, job->overlap), out->communication - out->compute);
  out->waiting = out->compute * job->jitter * tr_law_expected_maximum(devices);
  out->step = out->compute + out->exposed + out->waiting;
  return out->step;
}

tr_law_point tr_law_scale(const tr_law_job *job, double devices) {
  tr_law_point out = {.devices = devices}, half;
  double step = step_at(job, devices, &out);
  out.speedup = job->compute / step;
  out.efficiency = tr_law_efficiency(out.speedup, devices);
  out.rho = out.exposed / out.compute;
  out.cost = devices * step / 3600 * job->price;
  if (devices >= 2) out.worth = step_at(job, devices / 2, &half) / step;
  return out;
}

double tr_law_scale_limit(const tr_law_job *job, double limit, double worth) {
  double devices = 1;
  while (2 * devices <= limit && tr_law_scale(job, 2 * devices).worth >= worth) devices *= 2;
  return devices;
}
