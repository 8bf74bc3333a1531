// SPDX-License-Identifier: MIT
// Laws of scaling: speed-up, efficiency, goodput, and where adding devices stops paying.
//
// Amdahl (1967) for a serial share; the fleet law T(N) = T(1)/N + exposed(N) for a step whose work is divided and whose
// communication is not. rho is exposed communication over compute. Goodput is what is left of N devices: MFU x scaling
// x availability.
#ifndef TRIREME_PLAN_LAW_SCALING_H
#define TRIREME_PLAN_LAW_SCALING_H

#include "trireme/plan/law_collective.h"
#include <stddef.h>

double tr_law_amdahl_ceiling(double serial);                   // 1 / serial
double tr_law_amdahl_speedup(double devices, double serial);   // 1 / (s + (1-s)/N)
double tr_law_amdahl_serial(double devices, double speedup);   // (N/S - 1) / (N - 1): the share that explains S
double tr_law_efficiency(double speedup, double devices);      // S / N
double tr_law_step_efficiency(double compute, double exposed); // compute / (compute + exposed) = 1 / (1 + rho)
double tr_law_equivalents(double devices, double efficiency);  // devices that work in vain left out
double tr_law_goodput(double devices, double mfu, double scaling, double availability);
double tr_law_expected_late(double devices, double share);    // stragglers per step, N p
double tr_law_late_probability(double devices, double share); // that a synchronous step waits for one
double tr_law_expected_maximum(double devices);               // of N standard normals, in standard deviations

// A job of fixed batch on N devices.
typedef struct tr_law_job {
  double compute;       // seconds of one step on one device
  double bytes;         // gradients that are summed, once a step
  double overlap;       // share of communication hidden behind computing, 0..1
  double jitter;        // standard deviation of a device's step, as a share of it
  double price;         // of one device for an hour
  double most;          // devices that the batch can be divided over; 0: any number
  tr_law_fabric fabric; // per_node, ports and links; nodes follow from N
} tr_law_job;

typedef struct tr_law_point {
  double devices, compute, communication, exposed, waiting, step; // seconds
  double speedup, efficiency, rho, cost;                          // against one device; price of a step
  double worth; // speed-up over half as many devices, from 1 (nothing) to 2; 0 for one device
} tr_law_point;

tr_law_point tr_law_scale(const tr_law_job *job, double devices);
// The most devices, doubling from one up to `limit`, of which each doubling gave at least `worth` (1.41, say).
double tr_law_scale_limit(const tr_law_job *job, double limit, double worth);

#endif
