// SPDX-License-Identifier: MIT
// tier: quick
// timeout: 30
//
// The advice that laws give: each warning speaks when it should, with its number, and is silent when it should be; the tree divides
// only what does not fit; alignment budgets, embedding tables and the fit of a power law do what their headers say.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "trireme/base/status.h"
#include "trireme/plan/law_embedding.h"
#include "trireme/plan/law_lint.h"
#include "trireme/plan/law_reliability.h"
#include "trireme/plan/law_rlhf.h"
#include "trireme/plan/law_tree.h"
#include <math.h>
#include <string.h>

static void near(const char *what, double got, double want, double tolerance) {
  if (!(fabs(got - want) <= tolerance)) fail_msg("%s: %.17g, not %.17g", what, got, want);
}

// Speaks under this name, with this number and with these words; name NULL: is silent.
static void says(tr_law_warning w, const char *name, double number, const char *words) {
  near(w.name ? w.name : "no warning", w.number, number, 1e-3 * fabs(number));
  if (!name && w.name) fail_msg("'%s' is no reason for a warning", w.text);
  if (!name) return;
  if (!w.name || strcmp(w.name, name) != 0) fail_msg("no warning '%s' but '%s'", name, w.name ? w.name : "none");
  if (!strstr(w.text, words)) fail_msg("'%s' does not say '%s'", w.text, words);
  assert_true(strlen(w.text) < sizeof w.text - 1);
}

static void warnings_speak_when_they_should(void **state) {
  (void)state;
  const tr_law_roles adam = tr_law_roles_mixed_adam();
  says(tr_law_lint_linear_speedup(64, 64, 40), "linear-speedup", 1.6, "40 is predicted: 1.60 times");
  says(tr_law_lint_linear_speedup(64, 41, 40), NULL, 1.025, "");
  says(tr_law_lint_mfu_without_scaling(1024, 0.5, 0.5), "mfu-without-scaling", 256, "work of 256");
  says(tr_law_lint_mfu_without_scaling(8, 0.5, 0.99), NULL, 3.96, "");
  says(tr_law_lint_small_cluster_rate(32, 2048, 4000, 1), "small-cluster-rate", 64, "the linear rule gives 64 times");
  says(tr_law_lint_small_cluster_rate(32, 2048, 500, 64), "small-cluster-rate", 8, "the square-root rule gives 8");
  says(tr_law_lint_small_cluster_rate(32, 2048, 4000, 60), NULL, 64, "");
  says(tr_law_lint_batch_over_critical(32000, 16000), "batch-over-critical", 3, "2 times the critical size 1.6e+04");
  says(tr_law_lint_batch_over_critical(8192, 16000), NULL, 1.512, "");
  says(tr_law_lint_memory_alone(1.5, 1), "memory-alone", 1.5, "1.50 times as long");
  says(tr_law_lint_memory_alone(1.04, 1), NULL, 1.04, "");
  says(tr_law_lint_needless_sharding(adam, 1e9, 3, 8, 10e9, 80e9), "needless-sharding", 0, "1.5 times the bytes");
  says(tr_law_lint_needless_sharding(adam, 7e9, 3, 64, 10e9, 80e9), "needless-sharding", 1, "of ZeRO-1");
  says(tr_law_lint_needless_sharding(adam, 70e9, 3, 64, 10e9, 80e9), NULL, 3, "");
  says(tr_law_lint_needless_sharding(adam, 1e9, 1, 8, 10e9, 80e9), NULL, 0, "");
  says(tr_law_lint_small_model_overhead(1e9, 0.33, 1e11, 0.07), "small-model-overhead", 0.07,
       "at 100B parameters it is 7 %");
  says(tr_law_lint_small_model_overhead(1e9, 0.33, 1e9, 0.07), NULL, 0.07, "");
  says(tr_law_lint_small_model_overhead(1e9, 0.10, 1e11, 0.07), NULL, 0.07, "");
  says(tr_law_lint_vendor_efficiency(1979e12, 795e12), "vendor-efficiency", 2.489, "peak with sparsity");
  says(tr_law_lint_vendor_efficiency(989e12, 795e12), "vendor-efficiency", 1.244, "795 (1.24 times)");
  says(tr_law_lint_vendor_efficiency(795e12, 795e12), NULL, 1, "");
  says(tr_law_lint_free_accumulation(4, 1.8, 0.2), "free-accumulation", 3.7, "saves 75 %");
  says(tr_law_lint_free_accumulation(1, 1.8, 0.2), NULL, 1, "");
  says(tr_law_lint_fixed_interval(900, 300, 175781, 0), "fixed-interval", 19.53, "saving every 15 min");
  says(tr_law_lint_fixed_interval(tr_law_saving_daly(300, 175781), 300, 175781, 0), NULL, 0, "");
  const tr_law_power law = {.floor = 1, .scale = 1, .exponent = 0.1, .most = 1e20};
  says(tr_law_lint_far_extrapolation(&law, 1e24), "far-extrapolation", 1e4, "a guess");
  says(tr_law_lint_far_extrapolation(&law, 1e21), NULL, 10, "");
}

static tr_law_tree_input cluster(double params, double layers, double width) {
  return (tr_law_tree_input){.params = params,
                             .roles = tr_law_roles_mixed_adam(),
                             .blocks = {layers, width, width / 128, 2048, 1},
                             .keep = TR_LAW_KEEP_TILED,
                             .capacity = 80e9,
                             .flops = 400e12,
                             .per_node = 8,
                             .nodes = 128,
                             .inside = {0, 450e9},
                             .between = {0, 50e9},
                             .batch_tokens = 4e6};
}

static void the_tree_divides_what_does_not_fit(void **state) {
  (void)state;
  static const struct {
    double params, layers, width;
    tr_law_split split;
    const char *thumb;
    int right;
  } cases[] = {{0.5e9, 24, 1024, TR_LAW_SPLIT_NONE, "data parallelism", 1},
               {2e9, 24, 2560, TR_LAW_SPLIT_NONE, "a pipeline", 0},
               {7e9, 32, 4096, TR_LAW_SPLIT_ZERO, "ZeRO and three dimensions", 0},
               {175e9, 96, 12288, TR_LAW_SPLIT_3D, "ZeRO and three dimensions", 1}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    tr_law_tree_input in = cluster(cases[i].params, cases[i].layers, cases[i].width);
    tr_law_tree tree;
    tr_law_tree_walk(&in, &tree);
    if (tree.split != cases[i].split) fail_msg("case %zu: split %d, not %d", i, tree.split, cases[i].split);
    assert_string_equal(tree.thumb, cases[i].thumb);
    assert_int_equal(tree.thumb_right, cases[i].right);
    assert_true(strstr(tree.thumb_text, cases[i].right ? "right here" : "wrong here"));
    assert_true(tree.fits && tree.rank_bytes <= in.capacity && tree.n >= 1 && tree.n <= TR_LAW_FORKS);
    if (tree.zero) assert_true(tree.shard == (tree.split == TR_LAW_SPLIT_ZERO ? in.per_node : tree.dp));
    for (size_t f = 0; f < tree.n; f++) assert_true(tree.fork[f].yes == (tree.fork[f].have <= tree.fork[f].limit));
  }
}

static void slow_links_inside_a_node_make_a_pipeline(void **state) {
  (void)state;
  tr_law_tree_input in = cluster(5e9, 32, 3584);
  in.capacity = 32e9;
  in.per_node = 2;
  in.nodes = 4;
  in.batch_tokens = 16000;
  tr_law_tree tree;
  in.inside.bandwidth = 1000e9;
  tr_law_tree_walk(&in, &tree);
  assert_true(tree.tp == 2 && tree.pp == 1 && tree.split == TR_LAW_SPLIT_TENSOR);
  in.inside.bandwidth = 10e9; // as PCIe shared by devices
  tr_law_tree_walk(&in, &tree);
  assert_true(tree.tp == 1 && tree.pp == 2 && tree.split == TR_LAW_SPLIT_PIPELINE && tree.fits);
  assert_true(tree.thumb_right && strcmp(tree.thumb, "a pipeline") == 0);
}

static void more_memory_never_makes_the_tree_fail(void **state) {
  (void)state;
  for (double params = 1e8; params < 2e12; params *= 2) {
    double width = 128 * ceil(sqrt(params / 12 / 64) / 128), ranks = INFINITY;
    for (double capacity = 16e9; capacity <= 512e9; capacity *= 2) {
      tr_law_tree_input in = cluster(params, 64, width);
      in.capacity = capacity;
      tr_law_tree tree;
      tr_law_tree_walk(&in, &tree);
      double parts = tree.fits ? tree.tp * tree.pp : INFINITY;
      if (parts > ranks)
        fail_msg("%.3g parameters with %.3g bytes: %g parts after %g", params, capacity, parts, ranks);
      ranks = parts;
    }
  }
}

static void enough_tokens_make_full_sharding_enough(void **state) {
  (void)state;
  tr_law_tree_input in = cluster(70e9, 80, 8192);
  tr_law_tree tree;
  tr_law_tree_walk(&in, &tree);
  assert_int_equal(tree.split == TR_LAW_SPLIT_TENSOR || tree.split == TR_LAW_SPLIT_3D, 1);
  in.batch_tokens = 64e6; // 62500 tokens a device
  in.tokens = 1e12;
  in.seconds = 30 * 86400;
  tr_law_tree_walk(&in, &tree);
  assert_int_equal(tree.split, TR_LAW_SPLIT_ZERO);
  assert_int_equal(tree.zero, 3);
  assert_string_equal(tree.fork[tree.n - 1].question, "is one copy of the model fast enough?");
}

static void alignment_memory_is_the_worst_phase(void **state) {
  (void)state;
  tr_law_align a = {.method = TR_LAW_PPO,
                    .policy = 7e9,
                    .reward = 7e9,
                    .value = 7e9,
                    .trained = tr_law_roles_mixed_adam(),
                    .frozen = {2, 0, 0},
                    .cache = {32, 8, 128, 2048, 64, 2},
                    .parts = 8,
                    .frozen_parts = 8,
                    .activation = 4e9,
                    .capacity = 80e9};
  const tr_law_align_memory ppo = tr_law_align_bytes(&a);
  a.method = TR_LAW_GRPO;
  const tr_law_align_memory grpo = tr_law_align_bytes(&a);
  a.method = TR_LAW_DPO;
  const tr_law_align_memory dpo = tr_law_align_bytes(&a);
  near("a value model", ppo.total - grpo.total, 7e9 * 16, 1);
  near("a reward model", grpo.total - dpo.total, 7e9 * 2, 1);
  near("no answers are made", dpo.generate + dpo.rank_cache, 0, 0);
  near("while training", ppo.train, ppo.score + 4e9, 1);
  near("left", ppo.left, 80e9 - fmax(ppo.train, ppo.generate), 1);
  a.method = TR_LAW_PPO;
  a.cache.sequences = 1e4;
  near("a large cache decides", tr_law_align_bytes(&a).left, 80e9 - tr_law_align_bytes(&a).generate, 1);
  const double even[3] = {5, 5, 5};
  near("nothing is padded", tr_law_padding_waste(even, 3), 0, 1e-12);
}

static void tables_are_cut_by_their_size(void **state) {
  (void)state;
  tr_law_table t[] = {{.name = "user", .rows = 1e9, .width = 128, .nbyte = 2, .optimizer = 4, .pooling = 1},
                      {.name = "item", .rows = 1e8, .width = 128, .nbyte = 2, .optimizer = 4, .pooling = 20},
                      {.name = "shop", .rows = 9e7, .width = 128, .nbyte = 2, .optimizer = 4, .pooling = 2},
                      {.name = "word", .rows = 8e7, .width = 128, .nbyte = 2, .optimizer = 4, .pooling = 5},
                      {.name = "day", .rows = 366, .width = 128, .nbyte = 2, .optimizer = 4, .pooling = 1}};
  tr_law_table_budget budget = {.devices = 8, .capacity = 80e9, .copy_below = 1e6, .batch = 1024};
  tr_law_table_result r;
  double load[8], sum = 0;
  assert_int_equal(tr_law_tables_place(t, 5, &budget, load, &r), TR_OK);
  assert_int_equal(t[0].cut, TR_LAW_TABLE_ROWS);
  assert_int_equal(t[1].cut, TR_LAW_TABLE_WHOLE);
  assert_int_equal(t[4].cut, TR_LAW_TABLE_COPY);
  assert_true(t[1].device != t[2].device && t[2].device != t[3].device && t[1].device != t[3].device);
  for (int d = 0; d < 8; d++) sum += load[d];
  near("all bytes are somewhere", sum, r.total + 7 * tr_law_table_bytes(&t[4]), 1);
  near("total", r.total, 260 * (1e9 + 1e8 + 9e7 + 8e7 + 366), 1);
  near("the fullest", r.fullest, 260 * (1e9 / 8 + 1e8 + 366), 1);
  near("on average", r.mean, sum / 8, 1);
  near("looked up", r.lookup, 1024 * 256 * (1 + 20 + 2 + 5 + 1.0), 1);
  near("moved", r.moved, 4 * 1024 * 256 * 7.0 / 8, 1);
  budget.capacity = 30e9;
  assert_int_equal(tr_law_tables_place(t, 5, &budget, load, &r), TR_ERR_PLAN);
  assert_true(strstr(tr_status_text(), "GiB more than it has; about 12 devices"));
  budget.copy_below = 1e12;
  assert_int_equal(tr_law_tables_place(t, 5, &budget, load, &r), TR_ERR_PLAN);
  assert_true(strstr(tr_status_text(), "copy fewer"));
}

static void whole_tables_are_placed_within_a_third_of_the_best(void **state) {
  (void)state;
  enum { TABLES = 7, DEVICES = 3, WAYS = 2187 };
  unsigned seed = 1;
  for (int round = 0; round < 50; round++) {
    tr_law_table t[TABLES];
    double load[DEVICES], best = INFINITY, even = 0;
    for (int i = 0; i < TABLES; i++) {
      seed = seed * 1103515245 + 12345;
      t[i] = (tr_law_table){.rows = 100 + (seed >> 16) % 100, .width = 1, .nbyte = 1};
      even += t[i].rows / DEVICES;
    }
    for (int way = 0; way < WAYS; way++) {
      double most = 0, sum[DEVICES] = {0};
      for (int i = 0, left = way; i < TABLES; i++, left /= DEVICES) sum[left % DEVICES] += t[i].rows;
      for (int d = 0; d < DEVICES; d++) most = fmax(most, sum[d]);
      best = fmin(best, most);
    }
    tr_law_table_budget budget = {.devices = DEVICES, .capacity = 1e9};
    tr_law_table_result r;
    assert_int_equal(tr_law_tables_place(t, TABLES, &budget, load, &r), TR_OK);
    assert_true(r.fullest >= best && r.fullest <= best * 4 / 3);
    near("even", r.mean, even, 1e-9);
  }
}

static void a_power_law_is_found_again(void **state) {
  (void)state;
  double compute[12], loss[12];
  for (double floor = 0; floor < 2.1; floor += 0.7) {
    const tr_law_power made = {.floor = floor, .scale = 40, .exponent = 0.07};
    for (int i = 0; i < 12; i++) {
      compute[i] = 1e17 * pow(4, i);
      loss[i] = tr_law_power_loss(&made, compute[i]);
    }
    tr_law_power got;
    assert_int_equal(tr_law_power_fit(12, compute, loss, NAN, &got), TR_OK);
    near("floor", got.floor, floor, 2e-3);
    near("exponent", got.exponent, 0.07, 2e-4);
    near("target", tr_law_power_compute(&got, loss[6]) / compute[6], 1, 1e-3);
    assert_int_equal(tr_law_power_fit(2, compute, loss, floor, &got), TR_OK);
    near("two runs and a floor", got.exponent, 0.07, 1e-9);
    assert_true(isnan(got.exponent_error) && isinf(tr_law_power_compute(&got, floor)));
    for (int i = 0; i < 12; i++) loss[i] *= 1 + (i % 2 ? 1e-3 : -1e-3);
    assert_int_equal(tr_law_power_fit(12, compute, loss, floor, &got), TR_OK);
    assert_true(fabs(got.exponent - 0.07) < 4 * got.exponent_error && got.exponent_error > 0);
  }
}

static void runs_that_say_nothing_are_refused(void **state) {
  (void)state;
  static const struct {
    double compute[3], loss[3], floor;
    size_t n;
    const char *words;
  } cases[] = {{{1e18}, {3}, NAN, 1, "1 run says nothing"},
               {{1e18, -1, 1e20}, {3, 2, 1}, NAN, 3, "compute -1 of run 2"},
               {{1e18, 1e19, 1e20}, {3, NAN, 1}, NAN, 3, "loss nan of run 2"},
               {{1e18, 1e19, 1e20}, {3, 2, 1}, 1.5, 3, "loss 1 of run 3 is not above the floor 1.5"},
               {{1e18, 1e18, 1e18}, {3, 2, 1}, NAN, 3, "compute is the same"},
               {{1e18, 1e19, 1e20}, {3, 3, 3}, NAN, 3, "loss is the same"},
               {{1e18, 1e19, 1e20}, {1, 2, 3}, NAN, 3, "does not fall with compute"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    tr_law_power law = {.floor = 42};
    tr_status status = tr_law_power_fit(cases[i].n, cases[i].compute, cases[i].loss, cases[i].floor, &law);
    assert_int_equal(status, TR_ERR_DATA);
    if (!strstr(tr_status_text(), cases[i].words)) fail_msg("'%s', not '%s'", tr_status_text(), cases[i].words);
    assert_true(law.floor == 42);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(warnings_speak_when_they_should),
                                     cmocka_unit_test(the_tree_divides_what_does_not_fit),
                                     cmocka_unit_test(slow_links_inside_a_node_make_a_pipeline),
                                     cmocka_unit_test(more_memory_never_makes_the_tree_fail),
                                     cmocka_unit_test(enough_tokens_make_full_sharding_enough),
                                     cmocka_unit_test(alignment_memory_is_the_worst_phase),
                                     cmocka_unit_test(tables_are_cut_by_their_size),
                                     cmocka_unit_test(whole_tables_are_placed_within_a_third_of_the_best),
                                     cmocka_unit_test(a_power_law_is_found_again),
                                     cmocka_unit_test(runs_that_say_nothing_are_refused)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
