// SPDX-License-Identifier: MIT
// tier: quick
// timeout: 30
// Proves that the planner counts models as the library builds them, mixtures of experts as their makers do, and names what
// is wrong with a model.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "trireme/plan/workload.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static void near_to(double got, double want, double share) {
  if (fabs(got / want - 1) > share) fail_msg("%.6g is not %.6g", got, want);
}

static void presets(void **state) {
  (void)state;
  static const struct {
    const char *name;
    double params;
  } known[] = {{"llama3-8b", 8030261248.},
               {"llama3-70b", 70553706496.},
               {"llama3-405b", 405853388800.},
               {"gpt2-xl", 1557611200.},
               {"qwen2.5-7b", 7615616512.}};
  for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
    tr_arch arch;
    assert_int_equal(tr_arch_load(known[i].name, &arch, NULL, 0), TR_OK);
    tr_workload w = tr_workload_from_arch(&arch);
    assert_int_equal(tr_workload_check(&w), TR_OK);
    near_to(tr_workload_params(&w), known[i].params, 1e-3);
  }
}

static void experts(void **state) {
  (void)state;
  tr_workload v3 = {.layers = 61,
                    .width = 7168,
                    .heads = 128,
                    .heads_kv = 128,
                    .head_dim = 192,
                    .ffn = 18432,
                    .vocab = 129280,
                    .gated = 1,
                    .experts = 256,
                    .active = 8,
                    .shared = 1,
                    .expert_ffn = 2048,
                    .dense_first = 3,
                    .every = 1,
                    .q_rank = 1536,
                    .kv_rank = 512,
                    .rope_dim = 64};
  near_to(tr_workload_params(&v3), 671e9, 0.005);
  tr_workload qwen = {.layers = 94,
                      .width = 4096,
                      .heads = 64,
                      .heads_kv = 4,
                      .head_dim = 128,
                      .ffn = 12288,
                      .vocab = 151936,
                      .gated = 1,
                      .experts = 128,
                      .active = 8,
                      .expert_ffn = 1536,
                      .every = 1};
  near_to(tr_workload_params(&qwen), 235e9, 0.005);
  assert_int_equal(tr_workload_expert_layers(&v3), 58);
}

static void flops(void **state) {
  (void)state;
  tr_workload w = {.layers = 96,
                   .width = 12288,
                   .heads = 96,
                   .heads_kv = 96,
                   .head_dim = 128,
                   .ffn = 49152,
                   .vocab = 51200,
                   .every = 1};
  // 72 L h^2 (1 + s/6h + V/12Lh) per token: Narayanan et al. 2021, without the recomputed pass.
  double h = 12288, s = 2048, l = 96, v = 51200;
  near_to(tr_workload_flops(&w, 2048, 0), 72 * l * h * h * (1 + s / (6 * h) + v / (12 * l * h)), 1e-9);
  near_to(tr_workload_context(&w, 4096, 1), 2048.5, 1e-9);
  w.window = 128;
  assert_true(tr_workload_flops(&w, 2048, 1) < tr_workload_flops(&w, 2048, 0));
}

static void refused(void **state) {
  (void)state;
  tr_workload w = {.layers = 1, .width = 8, .heads = 3, .heads_kv = 2, .head_dim = 8, .ffn = 8, .vocab = 8};
  assert_int_equal(tr_workload_check(&w), TR_ERR_CONFIG);
  assert_non_null(strstr(tr_status_text(), "heads_kv is 2"));
  w.heads_kv = 3;
  w.experts = 2, w.active = 4, w.expert_ffn = 8;
  assert_int_equal(tr_workload_check(&w), TR_ERR_CONFIG);
  assert_non_null(strstr(tr_status_text(), "active is 4"));
}

int main(void) {
  setenv("TRIREME_PRESETS", TRIREME_TEST_DATA "/../../presets", 0);
  const struct CMUnitTest tests[] = {cmocka_unit_test(presets), cmocka_unit_test(experts), cmocka_unit_test(flops),
                                     cmocka_unit_test(refused)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
