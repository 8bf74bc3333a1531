// SPDX-License-Identifier: MIT
// The decision tree of parallelism with numbers at its forks: does it fit one device, one node, does the data ask for replicas,
// and then which split on which tier.
//
// Each fork compares two numbers. The rule of thumb by size (below 20 GB of training state data parallelism, to 100 GB a
// pipeline, above ZeRO and three dimensions) is told beside the answer, and where it is wrong, why. The tree is advice for
// a reader: the search prices every plan and may find a better one.
#ifndef TRIREME_PLAN_LAW_TREE_H
#define TRIREME_PLAN_LAW_TREE_H

#include "trireme/plan/law_collective.h"
#include <stddef.h>

typedef struct tr_law_tree_input {
  double params;
  tr_law_roles roles;
  tr_law_blocks blocks; // one micro-batch
  tr_law_keep keep;
  double capacity, flops;      // of a device: bytes; FLOP/s that it reaches
  double per_node, nodes;      // devices
  tr_law_link inside, between; // of a device
  double batch_tokens;         // per step
  double tokens, seconds;      // of the whole run and the time it may take; seconds 0: any
} tr_law_tree_input;

enum { TR_LAW_FORKS = 8 };
typedef struct tr_law_fork {
  const char *question, *unit;
  double have, limit; // yes: have <= limit
  int yes;
  char text[240]; // what follows
} tr_law_fork;

typedef enum tr_law_split {
  TR_LAW_SPLIT_NONE,
  TR_LAW_SPLIT_ZERO,
  TR_LAW_SPLIT_PIPELINE,
  TR_LAW_SPLIT_TENSOR,
  TR_LAW_SPLIT_3D
} tr_law_split;

typedef struct tr_law_tree {
  size_t n;
  tr_law_fork fork[TR_LAW_FORKS];
  tr_law_split split;
  double tp, pp, dp;
  int zero, fits;
  double shard;      // ranks that states are divided over: those of a node, or all replicas
  double rank_bytes; // states and activations on the fullest rank
  const char *thumb; // what the rule of thumb says
  int thumb_right;
  char thumb_text[320]; // and why it is right or wrong here
} tr_law_tree;

void tr_law_tree_walk(const tr_law_tree_input *input, tr_law_tree *out);

#endif
