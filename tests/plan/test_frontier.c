// SPDX-License-Identifier: MIT
// tier: quick
// timeout: 60
// Proves that the frontier is that of trying all: no point is beaten by a plan of any part of the cluster, every plan that
// fits is beaten or met by a point, and the ends are the best of their criterion. A price that nobody gave is refused.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "plan_cases.h"
#include "trireme/plan/frontier.h"
#include "trireme/plan/pipeline.h"
#include <string.h>

typedef struct held {
  const tr_frontier *frontier;
  double price_hour, least_memory, least_price;
  size_t plans;
} held;

static int strictly_better(int criteria, const tr_front_point *a, const tr_front_point *b) {
  return tr_frontier_covers(criteria, a, b, 0) && !tr_frontier_covers(criteria, b, a, 0);
}

static void hold(void *user, const tr_search_entry *entry) {
  held *h = user;
  const tr_frontier *f = h->frontier;
  tr_front_point p = {.entry = *entry, .devices = tr_plan_devices(&entry->plan)};
  p.price = (double)p.devices * entry->prediction.step / 3600 * h->price_hour;
  size_t covered = 0;
  for (size_t i = 0; i < f->n; i++) {
    assert_false(strictly_better(f->criteria, &p, &f->point[i]));
    covered += (size_t)tr_frontier_covers(f->criteria, &f->point[i], &p, 1e-12);
  }
  assert_true(covered > 0);
  if (entry->prediction.memory.process < h->least_memory) h->least_memory = entry->prediction.memory.process;
  if (p.price < h->least_price) h->least_price = p.price;
  h->plans++;
}

static void compare(int criteria) {
  static tr_search_result found;
  static const int64_t part[][2] = {{4, 8}, {2, 8}, {1, 8}, {1, 4}, {1, 2}, {1, 1}};
  tr_workload w = case_model();
  tr_cluster c = case_cluster(32);
  tr_search_options o;
  tr_frontier f;
  c.price_hour = 2;
  tr_search_options_init(&o);
  o.fixed.batch = 64, o.fixed.sequence = 4096;
  assert_int_equal(tr_frontier_find(&w, &c, &o, criteria, &f), TR_OK);
  assert_true(f.n >= (criteria & TR_FRONT_MEMORY ? 4 : 1));
  held h = {.frontier = &f, .price_hour = 2, .least_memory = 1e30, .least_price = 1e30};
  o.visit = hold, o.user = &h;
  for (size_t i = 0; i < (criteria & TR_FRONT_PRICE ? 6 : 1); i++) {
    tr_cluster smaller = c;
    smaller.hosts = part[i][0], smaller.host_devices = part[i][1];
    tr_status status = tr_search(&w, &smaller, &o, &found);
    assert_true(status == TR_OK || status == TR_ERR_PLAN);
  }
  assert_true(h.plans > 100 && h.plans == (size_t)f.predicted);
  double memory = 1e30, price = 1e30;
  for (size_t i = 0; i < f.n; i++) {
    const tr_front_point *p = &f.point[i];
    if (p->entry.prediction.memory.process < memory) memory = p->entry.prediction.memory.process;
    if (p->price < price) price = p->price;
    assert_true(i == 0 || f.point[i - 1].entry.prediction.step <= p->entry.prediction.step);
  }
  if (criteria & TR_FRONT_MEMORY) assert_true(memory == h.least_memory);
  if (criteria & TR_FRONT_PRICE) assert_true(price / h.least_price < 1 + 1e-12);
  tr_frontier_free(&f);
}

static void tries_all(void **state) {
  (void)state;
  compare(TR_FRONT_TIME);
  compare(TR_FRONT_TIME | TR_FRONT_MEMORY);
  compare(TR_FRONT_TIME | TR_FRONT_PRICE);
  compare(TR_FRONT_TIME | TR_FRONT_MEMORY | TR_FRONT_PRICE);
}

// With the times of their schedules: no point beats another, each is what its plan predicts, the fastest is the search's winner.
static void simulated(void **state) {
  (void)state;
  static tr_search_result found;
  tr_workload w = case_model();
  tr_cluster c = case_cluster(32);
  tr_search_options o;
  tr_frontier f;
  tr_search_options_init(&o);
  o.fixed.batch = 32, o.fixed.sequence = 4096, o.fixed.pp = 4;
  assert_int_equal(tr_frontier_find(&w, &c, &o, TR_FRONT_TIME | TR_FRONT_MEMORY, &f), TR_OK);
  const double closed = f.point[0].entry.prediction.step;
  assert_int_equal(tr_frontier_simulate(&w, &c, &o, &f), TR_OK);
  assert_int_equal(tr_search(&w, &c, &o, &found), TR_OK);
  assert_true(f.n > 1 && f.point[0].entry.prediction.step != closed);
  assert_true(f.point[0].entry.prediction.step <= found.top[0].prediction.step);
  for (size_t i = 0; i < f.n; i++) {
    tr_prediction x;
    assert_int_equal(tr_predict_simulated(&f.point[i].entry.plan, &w, &c, &x), TR_OK);
    assert_true(x.fits && x.step == f.point[i].entry.prediction.step);
    for (size_t k = 0; k < f.n; k++)
      assert_true(k == i || !tr_frontier_covers(f.criteria, &f.point[k], &f.point[i], 0));
  }
  tr_frontier_free(&f);
}

static void refused(void **state) {
  (void)state;
  tr_workload w = case_model();
  tr_cluster c = case_cluster(8);
  tr_search_options o;
  tr_frontier f;
  tr_search_options_init(&o);
  o.fixed.batch = 64;
  assert_int_equal(tr_frontier_find(&w, &c, &o, TR_FRONT_TIME | TR_FRONT_PRICE, &f), TR_ERR_CONFIG);
  assert_non_null(strstr(tr_status_text(), "price"));
  c.price_hour = 1, c.device.memory_gib = 2;
  assert_int_equal(tr_frontier_find(&w, &c, &o, TR_FRONT_TIME | TR_FRONT_PRICE, &f), TR_ERR_PLAN);
  assert_non_null(strstr(tr_status_text(), "lacks"));
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(tries_all), cmocka_unit_test(simulated),
                                     cmocka_unit_test(refused)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
