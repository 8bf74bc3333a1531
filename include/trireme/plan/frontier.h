// SPDX-License-Identifier: MIT
// The frontier: of all plans that fit, those that no other plan beats in every criterion at once (time of a step, memory of
// the fullest rank, price of a step).
//
// Price is the devices' time, so it asks for fewer devices: with TR_FRONT_PRICE, the cluster's hosts are halved down to one, and
// the devices of that one, and every such part of the cluster is searched; without it, the whole cluster alone. The caller
// frees the points.
#ifndef TRIREME_PLAN_FRONTIER_H
#define TRIREME_PLAN_FRONTIER_H

#include "trireme/plan/search.h"

enum { TR_FRONT_TIME = 1, TR_FRONT_MEMORY = 2, TR_FRONT_PRICE = 4 };

typedef struct tr_front_point {
  tr_search_entry entry;
  int64_t devices;
  double price; // of a step; 0: the cluster has none
} tr_front_point;

typedef struct tr_frontier {
  int criteria;
  tr_front_point *point; // the fastest first
  size_t n, room;
  int64_t predicted; // plans that were compared
  int failed;        // no memory
} tr_frontier;

// options->top and ->all do not count. TR_ERR_PLAN where nothing fits, TR_ERR_CONFIG where a price is asked for and there
// is none.
tr_status tr_frontier_find(const tr_workload *model, const tr_cluster *cluster, const tr_search_options *options,
                           int criteria, tr_frontier *out);
// The same points (of those alike to a percent the fastest), and the best that a search finds, with the times of their
// schedules as tr_predict_simulated has them; points that others beat then, or that do not fit, are left out. Arguments as for
// tr_frontier_find; on failure there are none left, and nothing to free.
tr_status tr_frontier_simulate(const tr_workload *model, const tr_cluster *cluster, const tr_search_options *options,
                               tr_frontier *frontier);
// Of points that are alike to a percent in all criteria the first, which is the fastest: at most `most`, into kept[most].
size_t tr_frontier_thin(const tr_frontier *frontier, size_t most, const tr_front_point **kept);
void tr_frontier_free(tr_frontier *frontier);
// Whether `a` is at most `1 + slack` times `b` in every criterion.
int tr_frontier_covers(int criteria, const tr_front_point *a, const tr_front_point *b, double slack);

#endif
