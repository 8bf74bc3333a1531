// SPDX-License-Identifier: MIT
// What the planner's tests share: a model, a machine made of round figures, and a generator of plans.
#ifndef TRIREME_TESTS_PLAN_CASES_H
#define TRIREME_TESTS_PLAN_CASES_H

#include "trireme/plan/predict.h"

static inline tr_workload case_model(void) {
  return (tr_workload){.layers = 24,
                       .width = 4096,
                       .heads = 32,
                       .heads_kv = 8,
                       .head_dim = 128,
                       .ffn = 14336,
                       .vocab = 32000,
                       .gated = 1,
                       .every = 1};
}

static inline tr_cluster case_cluster(int64_t devices) {
  tr_device d = {.name = "d",
                 .like = "",
                 .peak_bf16 = 1000,
                 .peak_fp8 = 2000,
                 .memory_gib = 80,
                 .memory_gbs = 3000,
                 .reserved_gb = 1,
                 .link_gbs = 400,
                 .link_fused = 1,
                 .link_domain = 8,
                 .network_gbit = 400,
                 .fit = {.matmul = 0.75,
                         .matmul_fp8 = 0.65,
                         .tile_mi = 1,
                         .depth = 128,
                         .attention = 0.5,
                         .attention_early = 0.4,
                         .passes = 14,
                         .scores = 1,
                         .touch = 16,
                         .memory = 0.6,
                         .layer_us = 600,
                         .expert_layer_us = 1500,
                         .link = 0.7,
                         .link_us = 30,
                         .network = 0.7,
                         .network_us = 90,
                         .hop_us = 5,
                         .hide_tp = 0.5,
                         .hide_grad = 0.8,
                         .hide_ep = 0.3,
                         .grouped = 0.7,
                         .step_ms = 20,
                         .straggle = 0.003,
                         .p90 = 0.1}};
  return tr_cluster_of(&d, devices, 8);
}

// The k-th of many plans for `devices` devices, not all of which pass tr_plan_check.
static inline tr_plan case_plan(int k, int64_t devices) {
  tr_plan p;
  tr_plan_init(&p);
  p.tp = 1 << k % 4;
  p.pp = 1 << k / 4 % 3;
  p.cp = 1 << k / 12 % 2;
  p.dp = devices / (p.tp * p.pp * p.cp);
  p.zero = k / 24 % 4;
  p.recompute = k / 96 % 2 ? TR_PLAN_RECOMPUTE_FULL : TR_PLAN_RECOMPUTE_NONE;
  p.micro = 1 << k / 192 % 2;
  p.vpp = p.pp > 1 && k / 384 % 2 ? 2 : 1;
  p.batch = 64;
  p.sequence = 4096;
  p.sequence_parallel = k % 5 != 0;
  p.hides_grads = k % 3 != 0;
  return p;
}
enum { CASE_PLANS = 768 };

#endif
