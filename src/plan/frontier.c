// SPDX-License-Identifier: MIT
// The frontier (frontier.h): every plan that a search predicts is held against the points so far; one that beats it goes to the
// front of the list, since it is likely to beat the next ones too. A plan costs as many comparisons as there are points, at worst.
#include "trireme/plan/frontier.h"
#include "trireme/plan/law_money.h"
#include <stdlib.h>

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

void tr_frontier_free(tr_frontier *frontier) {
  free(frontier->point);
  *frontier = (tr_frontier){0};
}
