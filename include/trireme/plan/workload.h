// SPDX-License-Identifier: MIT
// What a planner must know of a model: sizes, from which parameters, products and bytes follow. Filled from any model that
// the library builds, from the config.json of ones that it only plans (mixtures of experts), or by hand; a plain value
// without pointers.
#ifndef TRIREME_PLAN_WORKLOAD_H
#define TRIREME_PLAN_WORKLOAD_H

#include "trireme/base/status.h"
#include "trireme/model/arch.h"
#include <stdint.h>

typedef struct tr_workload {
  int64_t layers, width, heads, heads_kv, head_dim, ffn, vocab;
  int gated;         // the MLP has a gate (SwiGLU): three matrices instead of two
  int tied;          // the head shares the token embedding
  int64_t positions; // learned positions, 0: none
  // Experts: `experts` 0 is a dense model. Layers before `dense_first`, and those that are no multiple of `every`, are dense.
  int64_t experts, active, shared, expert_ffn, dense_first, every;
  // A token's experts are in at most `group_limit` of `groups` equal groups (DeepSeek: a group per host); 0: anywhere.
  int64_t groups, group_limit;
  double imbalance; // rows of the fullest rank's experts over the mean; 0: even
  // Latent attention (DeepSeek): ranks of the compressed queries and keys; 0: plain attention.
  int64_t q_rank, kv_rank, rope_dim;
  int64_t window, window_every; // a window of attention on all layers but each `window_every`th; 0: none
  int64_t predict_more;         // layers that predict further tokens (multi-token heads)
} tr_workload;

tr_workload tr_workload_from_arch(const tr_arch *arch);
// A preset, a config.json or its folder: of any architecture that the library builds, and of mixtral, qwen2_moe, qwen3_moe,
// deepseek_v2, deepseek_v3 and kimi_k2, of which sizes alone are read (*planned_only 1; planned_only may be NULL). TR_ERR_CKPT and TR_ERR_DATA name
// file and field, TR_ERR_CONFIG a name that is none.
tr_status tr_workload_load(const char *name, tr_workload *out, int *planned_only);
tr_status tr_workload_check(const tr_workload *w); // TR_ERR_CONFIG naming the field, its value and what would work

// Parameters: of a layer's attention, of a dense MLP, of one expert, of everything.
double tr_workload_attention_params(const tr_workload *w);
double tr_workload_mlp_params(const tr_workload *w);
double tr_workload_expert_params(const tr_workload *w);
double tr_workload_params(const tr_workload *w);
double tr_workload_active_params(const tr_workload *w);  // without the experts that a token does not visit
int64_t tr_workload_expert_layers(const tr_workload *w); // layers with experts
// Model FLOPs per token, forward and backward: 6 per active matrix parameter and attention's products, counted whole
// (`causal` 0) or only what a causal mask leaves (1). Recomputation never counts.
double tr_workload_flops(const tr_workload *w, int64_t sequence, int causal);
// Mean number of positions that a token attends to, over layers.
double tr_workload_context(const tr_workload *w, int64_t sequence, int causal);

#endif
