// SPDX-License-Identifier: MIT
// Worked examples of pipelines, scaling, convergence, money, reliability, alignment and number types; the inputs stand in the
// calls. Percentages are shown as they are on record.
#ifndef TRIREME_WORKED_SCALING_H
#define TRIREME_WORKED_SCALING_H

#include "plan/worked_examples.h"
#include "trireme/plan/law_batch.h"
#include "trireme/plan/law_mesh.h"
#include "trireme/plan/law_money.h"
#include "trireme/plan/law_number.h"
#include "trireme/plan/law_pipeline.h"
#include "trireme/plan/law_reliability.h"
#include "trireme/plan/law_rlhf.h"
#include "trireme/plan/law_scaling.h"
#include "trireme/plan/law_sync.h"
#include "trireme/plan/law_tree.h"

// Peaks of all stages as digits: 4321.
static double digits(tr_law_schedule schedule, const tr_law_pipe *pipe) {
  double out = 0;
  for (int s = 0; s < (int)pipe->stages; s++) out = 10 * out + tr_law_pipe_in_flight(schedule, pipe, s);
  return out;
}

static double warm_ups(const tr_law_pipe *pipe) {
  double out = 0;
  for (int s = 0; s < (int)pipe->stages; s++) out = 10 * out + tr_law_pipe_warm_up(pipe, s);
  return out;
}

static void pipelines(example_count *count) {
  const tr_law_pipe four = {4, 8, 1, 2, 1, 0, 0}, late = {4, 8, 1, 2, 1, 0, 0.5}, naive = {4, 1, 1, 2, 1, 0, 0};
  const tr_law_pipe two = {4, 2, 1, 2, 1, 0, 0}, quiz = {8, 24, 1, 2, 1, 0, 0};
  const tr_law_pipe eight = {8, 32, 1, 2, 1, 3, 0}, sixteen = {16, 32, 1, 2, 1, 3, 0},
                    pair = {8, 32, 1, 2, 1, 2.4, 0};
  const example rows[] = {
      ROW("pipe-bubble", 100 * tr_law_bubble(8, 32, 1), 17.9, 0.05),
      ROW("pipe-bubble", 100 * tr_law_bubble(4, 4, 1), 43, 0.5),
      ROW("pipe-bubble", 100 * tr_law_bubble(16, 32, 1), 31.9, 0.05),
      ROW("pipe-bubble", 100 * tr_law_bubble(4, 8, 1), 27.3, 0.05),
      ROW("pipe-bubble", 100 * tr_law_bubble(8, 24, 1), 22.6, 0.05),
      ROW("pipe-bubble", 100 * tr_law_bubble(4, 32, 1), 8.6, 0.05),
      ROW("pipe-in-flight", tr_law_pipe_makespan(TR_LAW_GPIPE, &four), 33, 0),
      ROW("pipe-in-flight", tr_law_pipe_makespan(TR_LAW_1F1B, &four), 33, 0),
      ROW("pipe-in-flight", tr_law_pipe_makespan(TR_LAW_1F1B, &late), 41, 0),
      ROW("pipe-in-flight", digits(TR_LAW_GPIPE, &four), 8888, 0),
      ROW("pipe-in-flight", digits(TR_LAW_1F1B, &four), 4321, 0),
      ROW("pipe-idle", tr_law_pipe_idle(TR_LAW_1F1B, &four), (4 - 1) * (1 + 2), 0),
      ROW("pipe-idle", tr_law_pipe_idle(TR_LAW_ZB1P, &four), (4 - 1) * (1 + 2 - 2 * 1), 0),
      ROW("pipe-idle", tr_law_pipe_idle(TR_LAW_DUALPIPE, &four), (4 / 2 - 1) * (3 + 2 - 3 * 1), 0),
      ROW("pipe-idle", tr_law_pipe_weight_copies(TR_LAW_1F1B), 1, 0),
      ROW("pipe-idle", tr_law_pipe_weight_copies(TR_LAW_ZB1P), 1, 0),
      ROW("pipe-idle", tr_law_pipe_weight_copies(TR_LAW_DUALPIPE), 2, 0),
      ROW("pipe-idle", tr_law_pipe_in_flight(TR_LAW_1F1B, &eight, 0), 8, 0),
      ROW("pipe-idle", tr_law_pipe_in_flight(TR_LAW_ZB1P, &eight, 0), 8, 0),
      ROW("pipe-idle", tr_law_pipe_in_flight(TR_LAW_DUALPIPE, &eight, 0), 9, 0),
      ROW("pipe-naive", tr_law_pipe_makespan(TR_LAW_GPIPE, &naive), 12, 0),
      ROW("pipe-naive", 100 * tr_law_pipe_idle_share(TR_LAW_GPIPE, &naive), 75, 0.5),
      ROW("pipe-latency", tr_law_pipe_makespan(TR_LAW_GPIPE, &late), 36, 0),
      ROW("pipe-latency", 100 * tr_law_pipe_idle_share(TR_LAW_GPIPE, &late), 33.3, 0.05),
      ROW("pipe-latency", tr_law_pipe_makespan(TR_LAW_1F1B, &late), 41, 0),
      ROW("pipe-latency", 100 * tr_law_pipe_idle_share(TR_LAW_1F1B, &late), 41.5, 0.05),
      ROW("pipe-latency", tr_law_pipe_messages(TR_LAW_GPIPE, &late), 6, 0),
      ROW("pipe-latency", tr_law_pipe_messages(TR_LAW_1F1B, &late), 16, 0),
      ROW("pipe-short", warm_ups(&two), 2210, 0),
      ROW("pipe-short", tr_law_pipe_makespan(TR_LAW_1F1B, &two), 15, 0),
      ROW("pipe-short", digits(TR_LAW_1F1B, &two), 2221, 0),
      ROW("pipe-quiz", tr_law_bubble(8, 24, 1), 0.23, 0.005),
      ROW("pipe-quiz", tr_law_pipe_makespan(TR_LAW_1F1B, &quiz), 93, 0),
      ROW("pipe-quiz", digits(TR_LAW_1F1B, &quiz), 87654321, 0),
      ROW("pipe-target", tr_law_micros_for(8, 0.05, 1), 133, 0),
      ROW("pipe-target", tr_law_micros_for(8, 0.10, 1), 63, 0),
      ROW("pipe-target", tr_law_bubble(8, 63, 1), 0.1, 1e-12),
      ROW("pipe-target", 1 - tr_law_bubble(8, 64, 1) > 0.9, 1, 0),
      ROW("pipe-depth", 100 * tr_law_bubble(16, 32, 1), 31.9, 0.05),
      ROW("pipe-depth", 100 * tr_law_bubble(8, 32, 1), 17.9, 0.05),
      ROW("pipe-table2", tr_law_pipe_idle(TR_LAW_1F1B, &eight), 21, 0),
      ROW("pipe-table2", tr_law_pipe_idle(TR_LAW_ZB1P, &eight), 7, 0),
      ROW("pipe-table2", tr_law_pipe_idle(TR_LAW_DUALPIPE, &eight), 6, 0),
      ROW("pipe-table2", tr_law_pipe_idle(TR_LAW_1F1B, &sixteen), 45, 0),
      ROW("pipe-table2", tr_law_pipe_idle(TR_LAW_ZB1P, &sixteen), 15, 0),
      ROW("pipe-table2", tr_law_pipe_idle(TR_LAW_DUALPIPE, &sixteen), 14, 0),
      ROW("pipe-table2", tr_law_pipe_idle(TR_LAW_DUALPIPE, &pair), 4.2, 0.05),
      ROW("pipe-layers", tr_law_per_rank(96, 16), 6, 0),
      ROW("pipe-layers", tr_law_per_rank(16, 4), 4, 0),
      ROW("pipe-layers", tr_law_per_rank(24, 4), 6, 0),
  };
  CHECK_EXAMPLES(rows, count);
}

static tr_law_run_cost run(double workers, double iterations, double overhead, double staleness) {
  const tr_law_run r = {.workers = workers, .iterations = iterations, .overhead = overhead, .staleness = staleness};
  return tr_law_run_price(&r, 100e3, 0.4, 32, 3);
}

static void runs_by_workers(example_count *count) {
  const tr_law_run_cost bare = run(8, 12.8e3, 0, 0), eight = run(8, 12.8e3, 0.15, 0);
  const tr_law_run_cost all = run(64, 1.72e3, 0.45, 0), stale = run(64, 2.1e3, 0.25, 4);
  const example rows[] = {
      ROW("scale-8w", eight.speedup, 6.8, 0.05),
      ROW("scale-8w", bare.price, 34, 0.5),
      ROW("scale-8w", eight.iteration, 0.46, 0.005),
      ROW("scale-8w", eight.price, 39, 0.5),
      ROW("scale-64w", all.speedup, 40.1, 0.05),
      ROW("scale-64w", all.price, 53, 0.5),
      ROW("scale-64w", all.iteration, 0.58, 0.005),
      ROW("scale-64w", stale.speedup, 38.1, 0.05),
      ROW("scale-64w", stale.price, 56, 0.5),
      ROW("scale-64w", stale.iteration, 0.50, 0.005),
      ROW("scale-64w", stale.lr_factor, 0.45, 0.005),
      ROW("scale-iter", all.iteration, 0.58, 0.005),
      ROW("scale-iter", stale.iteration, 0.50, 0.005),
      ROW("scale-samples", 100 * eight.sample_efficiency, 98, 0.5),
      ROW("scale-samples", 100 * all.sample_efficiency, 91, 0.5),
      ROW("scale-samples", 100 * stale.sample_efficiency, 74, 0.5),
  };
  CHECK_EXAMPLES(rows, count);
}

// 175B on 8192 devices of 80 GB, a batch of 3.2M tokens: what the tree advises.
static tr_law_tree contrast(void) {
  const tr_law_tree_input in = {.params = 175e9,
                                .roles = tr_law_roles_mixed_adam(),
                                .blocks = blocks(96, 12288, 96, 2048, 1),
                                .keep = TR_LAW_KEEP_TILED,
                                .capacity = 80e9,
                                .flops = 500e12,
                                .per_node = 8,
                                .nodes = 1024,
                                .inside = {0, 450e9},
                                .between = {0, 50e9},
                                .batch_tokens = 3.2e6};
  tr_law_tree tree;
  tr_law_tree_walk(&in, &tree);
  return tree;
}

static void scaling(example_count *count) {
  const tr_law_sgd sgd = {1, 1, 1, 256, 1000};
  const double rate = tr_law_sgd_rate(&sgd), k = 2048 / 32.0, device_seconds = 2.664e6 * 3600;
  const tr_law_tree tree = contrast();
  const example rows[] = {
      ROW("scale-amdahl", tr_law_amdahl_ceiling(0.30), 3.3, 0.05),
      ROW("scale-amdahl-1000", 100 * tr_law_amdahl_serial(1000, 500), 0.10, 0.005),
      ROW("scale-amdahl-1000", 100 * tr_law_amdahl_serial(1000, 100), 0.90, 0.005),
      ROW("scale-goodput", tr_law_goodput(1024, 0.5, 0.5, 1), 256, 0),
      ROW("scale-critical-batch", tr_law_critical_batch(1.6e6, 100), 16000, 0),
      ROW("scale-critical-batch", tr_law_batch(64, 4, 32), 8192, 0),
      ROW("scale-critical-batch", tr_law_batch(64, 4, 32) < tr_law_critical_batch(1.6e6, 100), 1, 0),
      ROW("scale-flops", tr_law_train_flop(37e9, 14.8e12) / 1e24, 3.3, 0.05),
      ROW("scale-flops", tr_law_achieved_flops(tr_law_train_flop(37e9, 14.8e12), device_seconds) / T, 340, 5),
      ROW("scale-device-years", tr_law_device_years(device_seconds), 304, 0.5),
      ROW("scale-device-years", tr_law_wall_seconds(device_seconds, 2048) / 86400, 54, 0.5),
      ROW("scale-straggler", tr_law_expected_late(1000, 0.01), 10, 1e-12),
      ROW("scale-sampler", tr_law_per_rank(1.2e6, 32), 37500, 0),
      ROW("scale-shard", tr_law_per_rank(1e6, 4), 250000, 0),
      ROW("scale-search", tree.tp, 8, 0),
      ROW("scale-search", tree.pp <= 8, 1, 0),
      ROW("scale-search", tree.fits, 1, 0),
      ROW("scale-eff", 100 * tr_law_efficiency(1.5, 2), 75, 0),
      ROW("scale-eff", tr_law_equivalents(10000, 0.5), 5000, 0),
      ROW("scale-both-forms", 100 * tr_law_step_efficiency(2.1, 3.5), 37.5, 0.05),
      ROW("scale-both-forms", 100 / (1 + 1024 * 3.5 / (2.1 * 1024)), 37.5, 0.05),
      ROW("scale-both-forms",
          tr_law_scale(&(tr_law_job){.compute = 2.1 * 1024,
                                     .bytes = 3.5 * G / (2 * (1 - 1 / 1024.0)),
                                     .fabric = {.per_node = 1, .ports = 1, .between = {0, G}}},
                       1024)
              .rho,
          1.67, 0.005),
      ROW("scale-batch", tr_law_batch(8, 32, 1), 256, 0),
      ROW("scale-batch", tr_law_batch(64, 32, 1), 2048, 0),
      ROW("scale-batch", tr_law_batch(8, 16, 1), 128, 0),
      ROW("scale-batch", tr_law_batch(256, 32, 1), 8192, 0),
      ROW("scale-lr", tr_law_lr_factor(tr_law_lr_rule_for(2048, 4000), k), 64, 0),
      ROW("scale-lr", tr_law_lr_factor(tr_law_lr_rule_for(4096, 4000), k), 8, 0),
      ROW("scale-sgd-bound", rate, 0.716, 0.0005),
      ROW("scale-sgd-bound", tr_law_sgd_bound(&sgd, rate), 0.0056, 0.00005),
      ROW("scale-sgd-bound", 2 / (rate * 1000) / (rate / 256), 1, 1e-12),
      ROW("scale-past-critical", 100 * tr_law_saved(18, 19), 5, 0.5),
      ROW("scale-past-critical",
          tr_law_price(1024, 18, 45000.0 * 3600 / (1024 * 18)) / tr_law_price(512, 19, 22000.0 * 3600 / (512 * 19)),
          2.05, 0.005),
      ROW("scale-measured", 100 * tr_law_efficiency(6.5, 8), 81, 0.5),
      ROW("scale-measured", 100 * tr_law_efficiency(2.5, 4), 62.5, 0.05),
      ROW("scale-measured", tr_law_equivalents(512, 0.76), 389, 0.5),
      ROW("scale-measured", tr_law_equivalents(512, 0.94), 481, 0.5),
      ROW("scale-fsdp-cost", 100 * tr_law_saved(118, 145), 19, 0.5),
  };
  CHECK_EXAMPLES(rows, count);
}

static void reliability(example_count *count) {
  const double mtbf = tr_law_mtbf(1024, 50000 * 3600.0), minute = 60;
  const double best = tr_law_saving_young(5 * minute, mtbf), slow = tr_law_saving_young(15 * minute, mtbf);
  const double least = tr_law_saving_at(best, 5 * minute, mtbf, 0).overhead;
  const double often = tr_law_saving_at(15 * minute, 5 * minute, mtbf, 0).overhead;
  const tr_law_part part = {"device", 1024, 50000 * 3600.0};
  const example rows[] = {
      ROW("rel-100", 100 * tr_law_any_failure(100, 0.999), 9.5, 0.05),
      ROW("rel-100", tr_law_mtbf_from_survival(100, 0.999), 10, 0.5),
      ROW("rel-yd", mtbf / 3600, 48.8, 0.05),
      ROW("rel-yd", tr_law_mtbf_of(&part, 1) / 3600, 48.8, 0.05),
      ROW("rel-yd", best / minute, 171.2, 0.05),
      ROW("rel-yd", 100 * least, 5.8, 0.05),
      ROW("rel-yd", 100 * often, 33.6, 0.05),
      ROW("rel-yd", tr_law_overhead_price(often - least, 1024, 2), 13638, 0.5),
      ROW("rel-yd-15", slow / minute, 296.5, 0.05),
      ROW("rel-yd-15", 100 * tr_law_saving_at(slow, 15 * minute, mtbf, 0).overhead, 10.1, 0.05),
      ROW("rel-yd-15", 100 * tr_law_saving_at(480 * minute, 5 * minute, mtbf, 0).overhead, 9.2, 0.05),
  };
  CHECK_EXAMPLES(rows, count);
}

static void alignment(example_count *count) {
  tr_law_align a = {.method = TR_LAW_PPO,
                    .policy = 70 * G,
                    .reward = 13 * G,
                    .value = 13 * G,
                    .trained = tr_law_roles_mixed_adam(),
                    .frozen = roles(2, 0, 0),
                    .cache = {80, 8, 128, 1024, 256, 2},
                    .parts = 32,
                    .frozen_parts = 32,
                    .capacity = 80 * G};
  const tr_law_align_memory ppo = tr_law_align_bytes(&a);
  a.value = a.policy;
  const tr_law_align_memory large = tr_law_align_bytes(&a);
  a.method = TR_LAW_DPO;
  const tr_law_align_memory dpo = tr_law_align_bytes(&a);
  const tr_law_cache full = {80, 64, 128, 1024, 256, 2};
  const double beside = dpo.rank_policy + dpo.rank_frozen, left = 80 * G - beside, cache = ppo.rank_cache;
  const double length[16] = {2048, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128};
  const example rows[] = {
      ROW("rl-ppo", ppo.total / G, 1494, 0.5),
      ROW("rl-ppo", ppo.devices, 19, 0),
      ROW("rl-ppo", large.total / G, 2406, 0.5),
      ROW("rl-dpo", dpo.total / G, 1260, 0.5),
      ROW("rl-parts", ppo.policy / G, 1120, 0.5),
      ROW("rl-parts", ppo.reference / G, 140, 0.5),
      ROW("rl-parts", ppo.reward / G, 26, 0.5),
      ROW("rl-parts", ppo.value / G, 208, 0.5),
      ROW("rl-parts", tr_law_state_bytes(a.frozen, 70 * G, 3, 8) / G, 17.5, 0.05),
      ROW("rl-kv", tr_law_cache_bytes(&a.cache) / G, 85.9, 0.05),
      ROW("rl-kv", tr_law_cache_bytes(&full) / G, 687.2, 0.05),
      ROW("rl-kv", cache / G, 2.7, 0.05),
      ROW("rl-per-device", dpo.rank_policy / G, 35, 0.5),
      ROW("rl-per-device", dpo.rank_frozen / G, 4.4, 0.05),
      ROW("rl-per-device", beside / G, 39.4, 0.05),
      ROW("rl-per-device", dpo.left / G, 40.6, 0.05),
      ROW("rl-padding", 100 * tr_law_padding_waste(length, 16), 88, 0.5),
      ROW("rl-saving", 100 * tr_law_saved(dpo.total, ppo.total), 15.7, 0.05),
      ROW("rl-saving", 100 * tr_law_saved(dpo.total, large.total), 48, 0.5),
      ROW("rl-left", (left - cache) / G, 37.9, 0.05),
      ROW("rl-left", left / (left - cache), 1.07, 0.005),
      ROW("rl-mfu", 100 * tr_law_effective_mfu(0.6, 1), 40, 0.5),
      ROW("rl-mfu", 100 * tr_law_effective_mfu(0.6, 0.40), 16, 0.5),
      ROW("rl-mfu", 100 * tr_law_effective_mfu(0.6, 0.55), 22, 0.5),
      ROW("fp8-range", tr_law_format_largest((tr_law_format){4, 3, 1}), 448, 0),
      ROW("fp8-range", tr_law_format_largest((tr_law_format){5, 2, 0}), 57344, 0),
      ROW("fp8-range", tr_law_narrowed(14 * G, 1, 2, tr_law_format_bytes((tr_law_format){4, 3, 1})) / G, 7, 0),
      ROW("fp8-range", tr_law_narrowed(14 * G, 0, 2, 1) / G, 14, 0),
  };
  CHECK_EXAMPLES(rows, count);
}

#endif
