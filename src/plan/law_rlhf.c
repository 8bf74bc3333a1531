// SPDX-License-Identifier: MIT
// Laws of alignment (law_rlhf.h): a table of models by method, summed over the job and over one rank. In every phase all
// models stay where they are; the cache lives while answers are made, activations while models are trained.
#include "trireme/plan/law_rlhf.h"

#include <math.h>

double tr_law_cache_bytes(const tr_law_cache *c) {
  return 2 * c->layers * c->kv_heads * c->head_width * c->tokens * c->sequences * c->nbyte;
}

double tr_law_padding_waste(const double *length, size_t n) {
  double sum = 0, longest = 0;
  for (size_t i = 0; i < n; i++) {
    sum += length[i];
    longest = fmax(longest, length[i]);
  }
  return 1 - sum / (longest * (double)n);
}

double tr_law_effective_mfu(double generating, double mfu) { return (1 - generating) * mfu; }

tr_law_align_memory tr_law_align_bytes(const tr_law_align *a) {
  const double trained = tr_law_roles_sum(a->trained), frozen = tr_law_roles_sum(a->frozen);
  const int samples = a->method != TR_LAW_DPO; // answers are made and rewarded
  tr_law_align_memory out = {.policy = a->policy * trained, .reference = a->policy * frozen};
  if (samples) out.reward = a->reward * frozen;
  if (a->method == TR_LAW_PPO) out.value = a->value * trained;
  out.total = out.policy + out.reference + out.reward + out.value;
  out.devices = tr_law_devices_for(out.total, a->capacity);
  out.rank_policy = out.policy / a->parts;
  out.rank_value = out.value / a->parts;
  out.rank_frozen = (out.reference + out.reward) / a->frozen_parts;
  if (samples) out.rank_cache = tr_law_cache_bytes(&a->cache) / a->parts;
  double states = out.rank_policy + out.rank_value + out.rank_frozen;
  out.generate = samples ? states + out.rank_cache : 0;
  out.score = states;
  out.train = states + a->activation;
  out.left = a->capacity - fmax(out.generate, out.train);
  return out;
}
