// SPDX-License-Identifier: MIT
// The frontier (frontier.h): every plan that a search predicts is held against the points so far; one that beats it goes to the
// front of the list, since it is likely to beat the next ones too. A plan costs as many comparisons as there are points, at worst.
#include "trireme/plan/frontier.h"
#include "trireme/plan/law_money.h"
#include "trireme/plan/pipeline.h"
#include <stdlib.h>

static const double ALIKE = 0.01;

typedef struct gathering {
  tr_frontier *out;
  const tr_cluster *cluster;
} gathering;

int tr_frontier_covers(int criteria, const tr_front_point *a, const tr_front_point *b, double slack) {
  const tr_prediction *x = &a->entry.prediction, *y = &b->entry.prediction;
  double room = 1 + slack;
  if ((criteria & TR_FRONT_TIME) && x->step > y->step * room) return 0;
  if ((criteria & TR_FRONT_MEMORY) && x->memory.process > y->memory.process * room) return 0;
  return !((criteria & TR_FRONT_PRICE) && a->price > b->price * room);
}

static void swap(tr_front_point *a, tr_front_point *b) {
  tr_front_point t = *a;
  *a = *b;
  *b = t;
}

static void add(tr_frontier *f, const tr_front_point *p) {
  for (size_t i = 0; i < f->n; i++)
    if (tr_frontier_covers(f->criteria, &f->point[i], p, 0)) {
      if (i > 0) swap(&f->point[0], &f->point[i]);
      return;
    }
  size_t left = 0;
  for (size_t i = 0; i < f->n; i++)
    if (!tr_frontier_covers(f->criteria, p, &f->point[i], 0)) f->point[left++] = f->point[i];
  f->n = left;
  if (f->n == f->room) {
    size_t room = f->room ? 2 * f->room : 64;
    tr_front_point *more = realloc(f->point, room * sizeof *more);
    if (!more) {
      f->failed = 1;
      return;
    }
    f->point = more;
    f->room = room;
  }
  f->point[f->n++] = *p;
}

static void gather(void *user, const tr_search_entry *entry) {
  const gathering *g = user;
  tr_front_point p = {.entry = *entry, .devices = tr_plan_devices(&entry->plan)};
  p.price = tr_law_price((double)p.devices, entry->prediction.step, g->cluster->price_hour);
  add(g->out, &p);
}

static int by_time(const void *a, const void *b) {
  const tr_front_point *x = a, *y = b;
  double p = x->entry.prediction.step, q = y->entry.prediction.step;
  return (p > q) - (p < q);
}

// The next smaller part of a cluster; 0: there is none.
static int halve(tr_cluster *c) {
  if (c->hosts > 1)
    c->hosts /= 2;
  else if (c->host_devices > 1)
    c->host_devices /= 2;
  else
    return 0;
  return 1;
}

tr_status tr_frontier_find(const tr_workload *model, const tr_cluster *cluster, const tr_search_options *options,
                           int criteria, tr_frontier *out) {
  if ((criteria & TR_FRONT_PRICE) && !(cluster->price_hour > 0))
    return tr_error(
        TR_ERR_CONFIG,
        "neither %s nor its device %s has a price; 'price: 2.5' in a description is that of a device's hour",
        cluster->name, cluster->device.name);
  tr_search_result *result = malloc(sizeof *result);
  if (!result) return tr_error(TR_ERR_MEMORY, "no memory for the result");
  *out = (tr_frontier){.criteria = criteria};
  tr_cluster part = *cluster;
  gathering g = {.out = out, .cluster = &part};
  tr_search_options o = *options;
  o.visit = gather;
  o.user = &g;
  tr_status status = tr_search(model, &part, &o, result), other = status;
  out->predicted = result->predicted;
  // A part on which nothing fits or divides has no points.
  while ((other == TR_OK || other == TR_ERR_PLAN) && (criteria & TR_FRONT_PRICE) && halve(&part)) {
    other = tr_search(model, &part, &o, result);
    out->predicted += other == TR_OK ? result->predicted : 0;
  }
  free(result);
  if (out->n > 0 && (other == TR_OK || other == TR_ERR_PLAN)) status = TR_OK;
  if (out->failed) status = tr_error(TR_ERR_MEMORY, "no memory for the frontier");
  if (status < 0) {
    tr_frontier_free(out);
    return status;
  }
  qsort(out->point, out->n, sizeof *out->point, by_time);
  return TR_OK;
}

// A point through the simulator, which may find that it is no plan or does not fit after all.
static tr_status add_simulated(const tr_workload *model, const tr_cluster *part, tr_front_point p, tr_frontier *out) {
  tr_status status = tr_predict_simulated(&p.entry.plan, model, part, &p.entry.prediction);
  if (status == TR_OK && p.entry.prediction.fits) {
    p.price = tr_law_price((double)p.devices, p.entry.prediction.step, part->price_hour);
    add(out, &p);
  }
  return status == TR_ERR_PLAN ? TR_OK : status;
}

// What the search shows has been simulated, and may be faster than what the closed form took for best.
static tr_status add_found(const tr_workload *model, const tr_cluster *part, const tr_search_options *options,
                           tr_frontier *out) {
  tr_search_result *found = malloc(sizeof *found);
  if (!found) return tr_error(TR_ERR_MEMORY, "no memory for the result");
  tr_search_options o = *options;
  o.visit = NULL;
  o.all = 0;
  o.unexplained = 1;
  tr_status status = tr_search(model, part, &o, found);
  const gathering g = {.out = out, .cluster = part};
  for (size_t i = 0; status == TR_OK && i < found->n; i++) gather((void *)&g, &found->top[i]);
  free(found);
  return status == TR_ERR_PLAN ? TR_OK : status;
}

size_t tr_frontier_thin(const tr_frontier *f, size_t most, const tr_front_point **kept) {
  size_t n = 0;
  for (size_t i = 0; i < f->n && n < most; i++) {
    size_t like = 0;
    while (like < n && !tr_frontier_covers(f->criteria, kept[like], &f->point[i], ALIKE)) like++;
    if (like == n) kept[n++] = &f->point[i];
  }
  return n;
}

static tr_status simulate(const tr_workload *model, const tr_cluster *cluster, const tr_search_options *options,
                          const tr_frontier *frontier, tr_frontier *out) {
  const tr_front_point **kept = malloc(frontier->n * sizeof *kept);
  if (!kept) return tr_error(TR_ERR_MEMORY, "no memory for the frontier");
  const size_t n = tr_frontier_thin(frontier, frontier->n, kept);
  tr_cluster part = *cluster;
  tr_status status = add_found(model, &part, options, out);
  do {
    const int64_t devices = part.hosts * part.host_devices;
    for (size_t i = 0; i < n && status == TR_OK; i++)
      if (kept[i]->devices == devices) status = add_simulated(model, &part, *kept[i], out);
  } while (status == TR_OK && (out->criteria & TR_FRONT_PRICE) && halve(&part));
  free(kept);
  if (status == TR_OK && out->failed) status = tr_error(TR_ERR_MEMORY, "no memory for the frontier");
  if (status == TR_OK && out->n == 0)
    status =
        tr_error(TR_ERR_PLAN, "no plan fits: each holds more when its pipeline is simulated than the closed form "
                              "says; more devices, a smaller batch or a shorter sequence would help");
  return status;
}

tr_status tr_frontier_simulate(const tr_workload *model, const tr_cluster *cluster, const tr_search_options *options,
                               tr_frontier *frontier) {
  tr_frontier out = {.criteria = frontier->criteria, .predicted = frontier->predicted};
  tr_status status = simulate(model, cluster, options, frontier, &out);
  tr_frontier_free(frontier);
  if (status < 0) {
    tr_frontier_free(&out);
    return status;
  }
  qsort(out.point, out.n, sizeof *out.point, by_time);
  *frontier = out;
  return TR_OK;
}

void tr_frontier_free(tr_frontier *frontier) {
  free(frontier->point);
  *frontier = (tr_frontier){0};
}
