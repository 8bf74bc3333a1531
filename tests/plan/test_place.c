// SPDX-License-Identifier: MIT
// tier: quick
// timeout: 60
// Proves where groups lie and what the switches above hosts leave of their ports: against counting, rank by rank, who is in whose
// domain and which flows leave a leaf or a pod; that order and fabric decide as they should for 128 hosts of 8 with TP8 x PP4 x
// DP32; and that the rows of traffic are the prediction's terms.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "plan/plan_internal.h"
#include "plan_cases.h"
#include "trireme/plan/search.h"
#include "trireme/plan/traffic.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS = 512, HOST = 8, LEAF = 32, POD = 128 };

static tr_cluster tree_cluster(void) {
  tr_cluster c = case_cluster(RANKS);
  c.fabric = (tr_fabric){.leaf_hosts = LEAF / HOST,
                         .pod_hosts = POD / HOST,
                         .leaf_oversubscription = 2,
                         .pod_oversubscription = 8,
                         .congestion = 1.25};
  return c;
}

// ---- the twin: ranks one by one

static int64_t coordinate(const tr_plan *p, int64_t rank, tr_axis axis) {
  for (int i = 0; p->map[i] != axis; i++) rank /= tr__degree(p, p->map[i]);
  return rank % tr__degree(p, axis);
}

// The index of a rank over `axes` in the map's order, and the rest of its coordinates as one number.
static void split(const tr_plan *p, unsigned axes, int64_t rank, int64_t *inside, int64_t *outside) {
  int64_t in = 1, out = 1;
  *inside = *outside = 0;
  for (int i = 0; i < TR_AXIS_COUNT; i++) {
    tr_axis axis = p->map[i];
    int64_t *to = axes >> axis & 1 ? inside : outside, *unit = axes >> axis & 1 ? &in : &out;
    *to += *unit * coordinate(p, rank, axis);
    *unit *= tr__degree(p, axis);
  }
}

// Groups of `most` members by index: group[rank], and members of each in ascending order.
typedef struct twin {
  int64_t group[RANKS], member[RANKS][RANKS], n;
} twin;

static void make_twin(const tr_plan *p, unsigned axes, int64_t most, twin *t) {
  int64_t count[RANKS] = {0};
  for (int64_t rank = 0; rank < RANKS; rank++) {
    int64_t inside, outside, all = 1;
    split(p, axes, rank, &inside, &outside);
    for (int i = 0; i < TR_AXIS_COUNT; i++)
      if (axes >> i & 1) all *= tr__degree(p, (tr_axis)i);
    int64_t g = outside * (all / most) + inside / most;
    t->group[rank] = g;
    t->member[g][count[g]++] = rank;
  }
  t->n = count[0];
}

static double most_in_domain(const twin *t) {
  int64_t most = 0;
  for (int64_t rank = 0; rank < RANKS; rank++) {
    int64_t same = 0;
    for (int64_t other = rank / HOST * HOST; other < (rank / HOST + 1) * HOST; other++)
      same += t->group[other] == t->group[rank];
    most = same > most ? same : most;
  }
  return (double)most;
}

// Flows out of the fullest block over its ports: in rings of domains each member sends to the next domain; in exchanges an
// equal part to every member elsewhere.
static double uplink(const twin *t, int64_t block, int ring) {
  double most = 0, load[RANKS] = {0};
  for (int64_t rank = 0; rank < RANKS; rank++) {
    const int64_t *member = t->member[t->group[rank]];
    int64_t next = -1, elsewhere = 0, above = 0;
    for (int64_t k = 0; k < t->n; k++) {
      if (member[k] / HOST == rank / HOST) continue;
      if (next < 0 && member[k] > rank) next = member[k];
      elsewhere++;
      above += member[k] / block != rank / block;
    }
    if (elsewhere == 0) continue;
    if (next < 0) next = member[0];
    load[rank / block] += ring ? next / block != rank / block : (double)above / (double)elsewhere;
  }
  for (int64_t i = 0; i < RANKS / block; i++) most = fmax(most, load[i] / (double)block);
  return most;
}

static double message_uplink(const tr_plan *p, int64_t block) {
  double most = 0, load[RANKS] = {0};
  int64_t stride = (int64_t)tr__stride(p, TR_AXIS_PP);
  for (int64_t rank = 0; rank < RANKS; rank++)
    if (coordinate(p, rank, TR_AXIS_PP) + 1 < p->pp) load[rank / block] += (rank + stride) / block != rank / block;
  for (int64_t i = 0; i < RANKS / block; i++) most = fmax(most, load[i] / (double)block);
  return most;
}

static void equal(const char *what, int k, double got, double want) {
  if (fabs(got / want - 1) > 1e-9) fail_msg("plan %d: %s is %g, counting gives %g", k, what, got, want);
}

static void compare(const tr_plan *p, int k, unsigned axes, int64_t most, twin *t) {
  tr_cluster c = tree_cluster();
  tr__links g = tr__links_of(&c, tr__group_of(p, axes, 1, (double)most));
  make_twin(p, axes, most, t);
  equal("size", k, g.ranks, (double)t->n);
  equal("members in a domain", k, g.near, most_in_domain(t));
  if (!g.crosses) return;
  const double leaf = 2 * 1.25, pod = 8 * 1.25;
  equal("ring", k, g.ring_slow, fmax(fmax(leaf * uplink(t, LEAF, 1), pod * uplink(t, POD, 1)), 1));
  equal("exchange", k, g.swap_slow, fmax(fmax(leaf * uplink(t, LEAF, 0), pod * uplink(t, POD, 0)), 1));
}

static void equals_counting(void **state) {
  (void)state;
  twin *t = malloc(sizeof *t);
  tr_cluster c = tree_cluster();
  assert_non_null(t);
  int crossed = 0;
  for (int k = 0; k < 72; k++) {
    tr_axis order[TR__ORDERS][TR_AXIS_COUNT];
    tr_plan p;
    tr_plan_init(&p);
    p.tp = 1 << k % 3 * 2, p.cp = 1 << k / 3 % 2, p.pp = 1 << k / 6 % 3 * 2;
    p.dp = RANKS / (p.tp * p.cp * p.pp);
    int n = tr__orders(&p, order);
    memcpy(p.map, order[k % n], sizeof p.map);
    compare(&p, k, TR__OVER_TP, p.tp, t);
    compare(&p, k, TR__OVER_CP, p.cp, t);
    compare(&p, k, TR__OVER_REPLICAS, p.cp * p.dp, t);
    compare(&p, k, TR__OVER_REPLICAS, p.cp * p.dp < 8 ? 2 : 8, t);
    compare(&p, k, TR__OVER_EXPERTS, 16, t);
    tr__links s = tr__stage_links(&p, &c);
    if (!s.crosses) continue;
    crossed++;
    equal("message", k, s.ring_slow, fmax(fmax(2.5 * message_uplink(&p, LEAF), 10 * message_uplink(&p, POD)), 1));
  }
  assert_true(crossed > 30);
  free(t);
}

static void orders_differ(void **state) {
  (void)state;
  tr_axis order[TR__ORDERS][TR_AXIS_COUNT];
  tr_plan p;
  tr_plan_init(&p);
  assert_int_equal(tr__orders(&p, order), 1);
  p.tp = 8, p.pp = 4, p.dp = 32;
  assert_int_equal(tr__orders(&p, order), 6);
  assert_memory_equal(order[0], p.map, sizeof p.map);
  for (int i = 0; i < 6; i++) assert_true(order[i][1] == TR_AXIS_CP); // not split: stays where it is
  p.cp = 2;
  assert_int_equal(tr__orders(&p, order), 24);
  for (int i = 0; i < 24; i++)
    for (int j = 0; j < i; j++) assert_memory_not_equal(order[i], order[j], sizeof order[i]);
}

// ---- 128 hosts of 8, TP8 x PP4 x DP32

static tr_plan blocks_of_hosts(int near) {
  static const tr_axis near_map[] = {TR_AXIS_TP, TR_AXIS_CP, TR_AXIS_PP, TR_AXIS_DP};
  tr_plan p;
  tr_plan_init(&p);
  p.tp = 8, p.pp = 4, p.dp = 32, p.batch = 256, p.zero = 1, p.sequence_parallel = 1;
  if (near) memcpy(p.map, near_map, sizeof p.map);
  return p;
}

// Stages on neighbouring hosts and far ones, on leaves of `leaf_hosts` with `over` ports below per port above.
static void near_and_far(int64_t leaf_hosts, double over, tr_prediction out[2]) {
  tr_workload w = case_model();
  tr_cluster c = case_cluster(1024);
  c.fabric.leaf_hosts = leaf_hosts, c.fabric.leaf_oversubscription = over;
  for (int near = 0; near < 2; near++) {
    tr_plan p = blocks_of_hosts(near);
    assert_int_equal(tr_plan_check(&p, &w, &c), TR_OK);
    tr_predict(&p, &w, &c, &out[near]);
  }
}

static void stages_near_and_far(void **state) {
  (void)state;
  tr_prediction x[2];
  near_and_far(0, 1, x); // one switch: every host is as far as any other
  assert_true(x[0].step == x[1].step);
  near_and_far(32, 8,
               x); // a leaf of 32 hosts holds a whole far group of replicas: only messages leave it, and they all do
  assert_true(x[1].term[TR_TERM_PP] < 0.9 * x[0].term[TR_TERM_PP]);
  assert_true(x[1].step < x[0].step && x[1].term[TR_TERM_GRADS] == x[0].term[TR_TERM_GRADS]);
  near_and_far(4, 8, x); // a leaf of 4 holds the four stages, but one replica: gradients leave it with all ports
  assert_true(x[1].term[TR_TERM_PP] < x[0].term[TR_TERM_PP] && x[1].term[TR_TERM_GRADS] > x[0].term[TR_TERM_GRADS]);
  for (int near = 0; near < 2; near++)
    assert_true(x[near].term[TR_TERM_TP] == x[1 - near].term[TR_TERM_TP]); // stays in its host either way
}

static void search_orders(void **state) {
  (void)state;
  static tr_search_result found, fixed;
  tr_workload w = case_model();
  tr_cluster c = case_cluster(1024);
  for (int i = 0; i < 2; i++) {
    tr_search_options o;
    tr_search_options_init(&o);
    o.fixed = blocks_of_hosts(0);
    o.fixed_zero = 1, o.top = 1, o.all = 1;
    c.fabric.leaf_hosts = i ? 4 : 32, c.fabric.leaf_oversubscription = 8;
    assert_int_equal(tr_search(&w, &c, &o, &found), TR_OK);
    o.fixed_map = 1;
    assert_int_equal(tr_search(&w, &c, &o, &fixed), TR_OK);
    assert_int_equal(found.predicted, fixed.predicted);
    assert_true(found.top[0].prediction.step <= fixed.top[0].prediction.step);
    double best = INFINITY, term[TR_TERM_COUNT];
    tr_axis order[TR__ORDERS][TR_AXIS_COUNT];
    tr_plan p = found.top[0].plan;
    int n = tr__orders(&p, order);
    for (int k = 0; k < n; k++) {
      memcpy(p.map, order[k], sizeof p.map);
      best = fmin(best, tr_predict_step(&p, &w, &c, term));
    }
    assert_true(fabs(found.top[0].prediction.step / best - 1) < 1e-8);
  }
}

// ---- rails, domains larger than a host

static void rails(void **state) {
  (void)state;
  tr_cluster c = tree_cluster();
  tr_plan p;
  tr_plan_init(&p);
  p.cp = 4, p.pp = 4, p.dp = 32; // cp,pp,dp: stages 4 ranks apart, on other ports of the next host
  memcpy(p.map, (tr_axis[]){TR_AXIS_TP, TR_AXIS_CP, TR_AXIS_PP, TR_AXIS_DP}, sizeof p.map);
  tr__links same = tr__stage_links(&p, &c);
  c.fabric.rails = 1;
  tr__links rail = tr__stage_links(&p, &c);
  assert_true(same.above == 0 && same.ring_slow == 1 && rail.above == 1 && rail.ring_slow == 2.5);
  p.cp = 8, p.dp = 16; // a host apart: on the same rail
  assert_true(tr__stage_links(&p, &c).ring_slow == 1);
}

static void large_domains(void **state) {
  (void)state;
  tr_cluster c = case_cluster(576);
  tr_workload w = case_model();
  tr_plan p;
  tr_traffic row[TR_TRAFFIC_MOST];
  tr_plan_init(&p);
  p.tp = 16, p.dp = p.batch = 36, p.sequence_parallel = 1;
  assert_true(tr_predict_traffic(&p, &w, &c, row) >= 2 && strcmp(row[0].tier, "network") == 0);
  c.domain = 72; // a switch over nine hosts
  assert_true(tr_predict_traffic(&p, &w, &c, row) >= 2 && strcmp(row[0].tier, "fast links") == 0);
  assert_true(row[1].near == 4); // 64 of 72: a fifth group of 16 would leave the domain
  assert_true(tr_domain_used(&p, &c) == 64);
  p.tp = 8, p.dp = 72;
  assert_true(tr_domain_used(&p, &c) == 72);
}

// ---- rows of traffic

static double exposed_by(const char *axis, const tr_traffic *row, size_t n) {
  double sum = 0;
  for (size_t i = 0; i < n; i++)
    if (strcmp(row[i].axis, axis) == 0) sum += row[i].exposed;
  return sum;
}

static void rows_are_terms(void **state) {
  (void)state;
  static const struct {
    const char *axis;
    tr_time_term term;
  } pair[] = {{"tp", TR_TERM_TP}, {"cp", TR_TERM_CP}, {"ep", TR_TERM_EP}, {"pp", TR_TERM_PP}, {"dp", TR_TERM_GRADS}};
  tr_workload w = case_model();
  w.experts = 8, w.active = 2, w.expert_ffn = 4096;
  tr_cluster c = case_cluster(64);
  c.device.link_share = 0.15;
  for (int k = 0; k < CASE_PLANS; k++) {
    tr_plan p = case_plan(k, 64);
    tr_prediction x;
    tr_traffic row[TR_TRAFFIC_MOST];
    p.ep = 4;
    if (tr_plan_check(&p, &w, &c) < 0) continue;
    tr_predict(&p, &w, &c, &x);
    size_t n = tr_predict_traffic(&p, &w, &c, row);
    for (size_t i = 0; i < sizeof pair / sizeof *pair; i++) {
      double got = exposed_by(pair[i].axis, row, n), want = x.term[pair[i].term];
      if (fabs(got - want) > 1e-9 * x.step) fail_msg("plan %d: %s is %g, not %g", k, pair[i].axis, got, want);
    }
    for (size_t i = 0; i < n; i++) {
      assert_true(row[i].bytes > 0 && row[i].has > 0 && row[i].processors >= 0 && row[i].processors < 1);
      int enough = row[i].exposed <= TR_TRAFFIC_SHARE * (x.term[TR_TERM_COMPUTE] + x.term[TR_TERM_RECOMPUTE]);
      assert_int_equal(row[i].has >= row[i].needs, enough);
    }
  }
}

// At the rate that is said to be needed, and at no lower one, the exposed time is a tenth of the computation.
static void needed_rate_is_enough(void **state) {
  (void)state;
  tr_workload w = case_model();
  tr_cluster c = case_cluster(16);
  tr_plan p;
  tr_traffic row[TR_TRAFFIC_MOST];
  char text[160];
  tr_plan_init(&p);
  p.tp = p.batch = 16, p.sequence_parallel = 1, p.hides_tp = 0;
  c.device.fit.hop_us = c.device.fit.link_us = c.device.fit.network_us = 0;
  assert_int_equal(tr_predict_traffic(&p, &w, &c, row), 1);
  assert_true(row[0].needs > row[0].has);
  tr_traffic_verdict(&row[0], text, sizeof text);
  assert_non_null(strstr(text, "tp 16 needs "));
  assert_non_null(strstr(text, " GB/s on the network, which has "));
  c.network_gbit *= row[0].needs / row[0].has * 1.001;
  c.device.link_gbs *= 100;
  assert_int_equal(tr_predict_traffic(&p, &w, &c, row), 1);
  assert_true(row[0].has >= row[0].needs);
  c.device.fit.network_us = 1e5;
  assert_int_equal(tr_predict_traffic(&p, &w, &c, row), 1);
  tr_traffic_verdict(&row[0], text, sizeof text);
  assert_non_null(strstr(text, "by latency alone"));
}

// ---- failures

static void failures(void **state) {
  (void)state;
  tr_cluster c = case_cluster(1024);
  tr_failure_domain out[TR_FAILURE_DOMAINS];
  c.fabric = (tr_fabric){.leaf_hosts = 32, .rails = 1, .switch_mtbf = 1e6};
  for (int near = 0; near < 2; near++) {
    tr_plan p = blocks_of_hosts(near);
    assert_int_equal(tr_failure_domains(&p, &c, out), 3);
    assert_true(out[0].count == 1024 && fabs(out[0].per_day - 24 * 1024 / c.mtbf_hours) < 1e-9);
    assert_true(out[1].devices == 8 && out[1].replicas == 1 && out[1].per_day == 0);
    assert_true(out[2].devices == 256 && out[2].count == 32 && out[2].replicas == (near ? 8 : 32));
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(equals_counting),
                                     cmocka_unit_test(orders_differ),
                                     cmocka_unit_test(stages_near_and_far),
                                     cmocka_unit_test(search_orders),
                                     cmocka_unit_test(rails),
                                     cmocka_unit_test(large_domains),
                                     cmocka_unit_test(rows_are_terms),
                                     cmocka_unit_test(needed_rate_is_enough),
                                     cmocka_unit_test(failures)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
