// SPDX-License-Identifier: MIT
// Laws of memory (law_memory.h): roles over ZeRO ranks, activations of transformer blocks. Sums of products, nothing else; what
// the runtime really lays out is counted elsewhere.
#include "trireme/plan/law_memory.h"

#include <math.h>

tr_law_roles tr_law_roles_mixed_adam(void) { return (tr_law_roles){.weight = 2, .gradient = 2, .optimizer = 12}; }

double tr_law_roles_sum(tr_law_roles roles) { return roles.weight + roles.gradient + roles.optimizer; }

double tr_law_state_bytes(tr_law_roles roles, double params, int zero, double ranks) {
  double weight = zero >= 3 ? roles.weight / ranks : roles.weight;
  double gradient = zero >= 2 ? roles.gradient / ranks : roles.gradient;
  double optimizer = zero >= 1 ? roles.optimizer / ranks : roles.optimizer;
  return params * (weight + gradient + optimizer);
}

double tr_law_params_within(tr_law_roles roles, double capacity) { return capacity / tr_law_roles_sum(roles); }

double tr_law_devices_for(double bytes, double capacity) { return fmax(1, ceil(bytes / capacity)); }

double tr_law_block_params(double layers, double width) { return 12 * layers * width * width; }

double tr_law_mlp_params(double blocks, double width, double expansion) {
  return blocks * (2 * expansion * width * width + (expansion + 3) * width);
}

double tr_law_activation_bytes(const tr_law_blocks *blocks, tr_law_keep keep, double tp, int sequence_parallel) {
  double sbh = blocks->sequence * blocks->micro * blocks->width;
  double whole = sequence_parallel ? tp : 1; // what lies outside the products is divided too
  double scores = 5 * blocks->heads * blocks->sequence / (blocks->width * tp);
  if (keep == TR_LAW_KEEP_INPUT) return 2 * sbh * blocks->layers / whole;
  return sbh * blocks->layers * (10 / whole + 24 / tp + (keep == TR_LAW_KEEP_ALL ? scores : 0));
}

double tr_law_boundary_bytes(const tr_law_blocks *blocks, double nbyte) {
  return blocks->micro * blocks->sequence * blocks->width * nbyte;
}

tr_law_accumulation tr_law_accumulate(double params, double nbyte, double ranks, double micro, double passes) {
  return (tr_law_accumulation){
      .buffer = params * nbyte, .saved = (passes - 1) / passes, .batch = ranks * micro * passes};
}
