// SPDX-License-Identifier: MIT
// Inside the search: what it goes through (search.c), and what it remembers of it (search_keep.c): the best plans, or the best of
// each group of plans that split the model alike, how many take how long, and the best of each value of each knob.
#ifndef TRIREME_PLAN_SEARCH_INTERNAL_H
#define TRIREME_PLAN_SEARCH_INTERNAL_H

#include "plan/plan_internal.h"
#include "trireme/plan/search.h"

enum { TR__SEARCH_BINS = 16384, TR__SEARCH_GROUPS = 256, TR__SEARCH_NEAR = 10, TR__SEARCH_EACH = 3 };

// Plans alike in tp, pp and ep: the best of them, fastest first, and how many take up to 0, 0.1, ... 0.9 % longer than the first.
typedef struct tr__search_group {
  tr_search_entry best[TR__SEARCH_EACH];
  size_t n;
  int64_t near[TR__SEARCH_NEAR];
} tr__search_group;

typedef struct tr__search {
  const tr_workload *w;
  const tr_cluster *c;
  const tr_search_options *o;
  tr_search_result *out;
  int64_t devices;
  double room;    // bytes of a device
  double lacking; // bytes that the smallest plan lacks
  double best;
  size_t keep;                    // how many plans
  int32_t steps[TR__SEARCH_BINS]; // how many plans take how long
  tr__search_group *group;        // [TR__SEARCH_GROUPS] in no order, or NULL: each plan for itself
  size_t ngroup;
  double last_kept; // step of the last group that counts; infinite while there are too few
} tr__search;

int tr__search_before(const tr_search_entry *a, const tr_search_entry *b);
void tr__search_keep(tr__search *search, const tr_search_entry *entry);
double tr__search_limit(const tr__search *search);               // seconds; slower plans cannot enter the result
int64_t tr__search_below(const tr__search *search, double step); // plans that take at most so long
void tr__search_note(tr__search *search, const tr_plan *plan, double step, double overflow);
const char *tr__search_schedule_of(const tr_plan *plan); // as the search calls it
// TR_ERR_PLAN: why there is no plan, and what would help (search_help.c).
tr_status tr__search_nothing(const tr__search *search);
// The best of what is kept through the simulator, in order into the result. TR_ERR_MEMORY.
tr_status tr__search_finish(tr__search *search);

#endif
