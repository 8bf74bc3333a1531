// SPDX-License-Identifier: MIT
// Laws of alignment: models side by side, memory by phase, key and value caches, padding.
//
// PPO (Ouyang et al., 2022) trains a policy and a value model beside a frozen reference and a reward model; DPO (Rafailov et
// al., 2023) has the policy and a reference; GRPO (Shao et al., 2024) has no value model. A step generates, scores and trains;
// frozen models need their weights only.
#ifndef TRIREME_PLAN_LAW_RLHF_H
#define TRIREME_PLAN_LAW_RLHF_H

#include "trireme/plan/law_memory.h"
#include <stddef.h>

typedef enum tr_law_method { TR_LAW_PPO, TR_LAW_DPO, TR_LAW_GRPO } tr_law_method;

typedef struct tr_law_cache {
  double layers, kv_heads, head_width, tokens, sequences, nbyte;
} tr_law_cache;
double tr_law_cache_bytes(const tr_law_cache *cache); // 2 L n_kv d_head tokens sequences nbyte

// Share of a padded batch that holds nothing. length[n]; padded to the longest.
double tr_law_padding_waste(const double *length, size_t n);
// Utilisation of a job that generates for a share of its step, by its utilisation while it trains.
double tr_law_effective_mfu(double generating, double mfu);

typedef struct tr_law_align {
  tr_law_method method;
  double policy, reward, value; // parameters; those that the method has no use for do not count
  tr_law_roles trained, frozen; // bytes per parameter
  tr_law_cache cache;
  double parts, frozen_parts; // ranks over which the trained models and the cache are cut, and the frozen ones
  double activation;          // bytes on a rank while training
  double capacity;            // bytes of a device
} tr_law_align;

typedef struct tr_law_align_memory {
  double policy, reference, reward, value, total; // state, in bytes over the whole job
  double devices;                                 // at least, for states alone
  double rank_policy, rank_frozen, rank_value;    // on one rank
  double rank_cache;
  double generate, score, train; // peak of a rank by phase; nothing is moved away in between
  double left;                   // of the capacity, in the worst phase
} tr_law_align_memory;
tr_law_align_memory tr_law_align_bytes(const tr_law_align *align);

#endif
