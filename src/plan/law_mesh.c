// SPDX-License-Identifier: MIT
// Laws of the mesh (law_mesh.h): products and quotients of degrees. Which degrees to choose is the business of the search;
// what they imply for groups and nodes is counted here.
#include "trireme/plan/law_mesh.h"

#include <math.h>

static double degree(double d) { return d > 0 ? d : 1; }

double tr_law_mesh_parts(tr_law_mesh mesh) { return degree(mesh.tp) * degree(mesh.pp); }

double tr_law_mesh_ranks(tr_law_mesh mesh) { return tr_law_mesh_parts(mesh) * degree(mesh.dp) * degree(mesh.cp); }

double tr_law_mesh_dp_groups(tr_law_mesh mesh) { return tr_law_mesh_ranks(mesh) / degree(mesh.dp); }

double tr_law_mesh_dp_for(double ranks, tr_law_mesh mesh) {
  mesh.dp = 1;
  return ranks / tr_law_mesh_ranks(mesh);
}

double tr_law_ulysses_degree(double kv_heads, double want) { return fmin(kv_heads, want); }

double tr_law_expert_nodes(double experts_parallel, double per_node) { return ceil(experts_parallel / per_node); }

double tr_law_token_nodes(double top_k, double nodes, double limit) {
  return fmin(fmin(top_k, nodes), limit > 0 ? limit : INFINITY);
}

double tr_law_expert_capacity(double factor, double tokens, double experts) { return factor * tokens / experts; }

double tr_law_capacity_ratio(double params, double active) { return params / active; }
