// SPDX-License-Identifier: MIT
// What a plan puts on the links: a row per axis and kind of collective, with what it costs and what it would need; and what stops
// when a part of the cluster fails.
//
// The rows are the very calls that a prediction adds up, on the stage that the others wait for: exposed seconds of an axis are
// that axis' term of the prediction. A rate is needed at which the exposed time is a tenth of the computation (TR_TRAFFIC_SHARE);
// infinite where latency alone takes longer. Plain values, no allocation.
#ifndef TRIREME_PLAN_TRAFFIC_H
#define TRIREME_PLAN_TRAFFIC_H

#include "trireme/plan/predict.h"

#define TR_TRAFFIC_SHARE 0.1

typedef struct tr_traffic {
  const char *axis; // "tp", "cp", "ep", "pp", "dp"
  const char *what, *primitive;
  const char *tier;        // the slowest links that it crosses
  double ranks, near;      // of a group, and how many of them the fast links join
  double payload, count;   // bytes of a call in all, calls of a step
  double bytes;            // that leave a rank in a step
  double seconds, exposed; // of a step: all calls, what sticks out
  double needs, has;       // bytes/s of a rank
  double processors;       // share of the step's processor time that its kernels take
} tr_traffic;
enum { TR_TRAFFIC_MOST = 12 };
size_t tr_predict_traffic(const tr_plan *plan, const tr_workload *model, const tr_cluster *cluster,
                          tr_traffic out[TR_TRAFFIC_MOST]);
// "tp 16 needs 310 GB/s on the network, which has 49".
void tr_traffic_verdict(const tr_traffic *row, char *out, size_t nbyte);

// A part that fails as a whole, and what of the plan's ranks it takes along.
typedef struct tr_failure_domain {
  const char *name;
  double devices;  // of this plan, that one of them holds
  double replicas; // of dp, that have ranks there
  double count;    // of them below the plan
  double per_day;  // failures a day of all of them; 0: not known
} tr_failure_domain;
enum { TR_FAILURE_DOMAINS = 5 };
size_t tr_failure_domains(const tr_plan *plan, const tr_cluster *cluster, tr_failure_domain out[TR_FAILURE_DOMAINS]);
// Of the devices that fast links join, those that the plan's groups fill: 64 of 72 where 16 are to stay together.
double tr_domain_used(const tr_plan *plan, const tr_cluster *cluster);

#endif
