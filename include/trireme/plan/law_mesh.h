// SPDX-License-Identifier: MIT
// Laws of the mesh: how many ranks and groups degrees make, and what bounds a degree.
//
// TP x PP x DP (x CP) ranks. Experts are folded over the data ranks. Heads are dealt in DeepSpeed-Ulysses (Jacobs et al.,
// 2023), so KV heads bound it. A token goes to at most `limit` nodes where the router is told so (DeepSeek-V3, 2024).
#ifndef TRIREME_PLAN_LAW_MESH_H
#define TRIREME_PLAN_LAW_MESH_H

typedef struct tr_law_mesh {
  double tp, pp, dp, cp; // 0 counts as 1
} tr_law_mesh;

double tr_law_mesh_ranks(tr_law_mesh mesh);
double tr_law_mesh_dp_groups(tr_law_mesh mesh);                       // groups of dp ranks that sum gradients
double tr_law_mesh_parts(tr_law_mesh mesh);                           // that one copy of the model is cut into
double tr_law_mesh_dp_for(double ranks, tr_law_mesh mesh);            // dp that the other degrees leave
double tr_law_ulysses_degree(double kv_heads, double want);           // at most; the rest, want / degree, is a ring
double tr_law_expert_nodes(double experts_parallel, double per_node); // over which experts lie
double tr_law_token_nodes(double top_k, double nodes, double limit);  // that a token reaches; limit 0: none
double tr_law_expert_capacity(double factor, double tokens, double experts); // C tokens / E
double tr_law_capacity_ratio(double params, double active); // parameters held per parameter computed with

#endif
