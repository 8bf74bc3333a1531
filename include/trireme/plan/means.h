// SPDX-License-Identifier: MIT
// Means by which a model gets onto a cluster, the simplest first, and what each of them is good for: whether a model fits with it
// and how fast it is then, and the largest model that does.
//
// A means is a family of plans on all devices of the cluster: data parallelism alone, with states sharded (ZeRO) or activations
// computed again, experts dealt out, tensor parallelism inside the fast links, a pipeline, these two together, and all that the search knows. Inside a
// family everything else is free: the answer has its fastest plan that fits, and the memory of its smallest.
#ifndef TRIREME_PLAN_MEANS_H
#define TRIREME_PLAN_MEANS_H

#include "trireme/plan/search.h"

typedef enum tr_means {
  TR_MEANS_DATA, // a whole copy per device
  TR_MEANS_RECOMPUTE,
  TR_MEANS_ZERO1,
  TR_MEANS_ZERO2,
  TR_MEANS_ZERO3,
  TR_MEANS_ZERO3_RECOMPUTE,
  TR_MEANS_EXPERTS, // of models that have some
  TR_MEANS_TENSOR,
  TR_MEANS_PIPELINE,
  TR_MEANS_TENSOR_PIPELINE,
  TR_MEANS_ALL,
  TR_MEANS_COUNT
} tr_means;

const char *tr_means_name(tr_means means);  // "ZeRO 1"
const char *tr_means_about(tr_means means); // one line: what it does

typedef struct tr_means_job {
  int64_t sequence, batch; // tokens per sequence, sequences per step
  tr_plan_number number;
} tr_means_job;

typedef struct tr_means_result {
  int exists;            // 0: no plan of the family divides devices and batch
  int fits;              // then entry is the fastest that does
  double bytes;          // on the fullest rank of the smallest plan; where none fits, tr_means_bytes
  tr_search_entry entry; // where it fits
} tr_means_result;

// TR_ERR_CONFIG for a model that is none. No plan that fits is an answer, not an error.
tr_status tr_means_try(tr_means means, const tr_workload *model, const tr_cluster *cluster, const tr_means_job *job,
                       tr_means_result *out);

// Bytes on the fullest rank of the smallest plan of a means, whether it fits or not, with micro-batches of one sequence and no more
// of them than keep a pipeline full; NaN where the devices cannot be split so.
double tr_means_bytes(tr_means means, const tr_workload *model, const tr_cluster *cluster, int64_t sequence);

// A model of the shape that published ones have: width 128 x heads, as many layers as heads, a gated MLP of 2.75 x the width,
// separate tables of `vocab` rows.
tr_workload tr_means_shape(int64_t heads, int64_t vocab);
// The largest of that shape that fits. Layers 0: not even the smallest does.
tr_status tr_means_largest(tr_means means, const tr_cluster *cluster, const tr_means_job *job, int64_t vocab,
                           tr_workload *out);

#endif
