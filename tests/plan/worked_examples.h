// SPDX-License-Identifier: MIT
// The ids of the worked examples that the planner must reproduce, and what checks a row of them.
//
// A row has the id of its example, the call of the general functions with the inputs in it, the answer on record and how far
// off one may be: half a unit of the last digit that is on record. An id without a row is a failure, and so is a row
// whose id is not in the list.
#ifndef TRIREME_WORKED_EXAMPLES_H
#define TRIREME_WORKED_EXAMPLES_H

#include "trireme/plan/law_memory.h"
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

typedef struct example {
  const char *id, *call; // the call as it is written, inputs and all
  double got, want, tolerance;
} example;
#define ROW(id, call, want, tolerance)                                                                               \
  { (id), #call, (call), (want), (tolerance) }

static const char *const example_ids[] = {
    // memory
    "mem-adam", "mem-7b", "mem-zero-table", "mem-175b-zero3", "mem-act-175b", "mem-weights", "mem-175b-3d-8B",
    "mem-671b", "mem-grad-sizes", "mem-pp-boundary", "mem-threshold", "mem-175b-states", "mem-175b-slices",
    "mem-zero3-headroom", "mem-grad-7b", "mem-small", "mem-671b-ratio", "mem-blocks", "mem-sp", "mem-fit-4x32",
    "mem-dlrm", "mem-archetype-a",
    // communication and mesh; comm-mean is a test of training
    "comm-ring-3gb-1024", "comm-hier-3gb", "comm-pcie", "comm-gpt2-node", "comm-gpt2-10g", "comm-accum",
    "comm-175b-dp", "comm-175b-tp8", "comm-175b-tp8pp4", "comm-tp-64mb", "comm-tp-175b", "comm-moe", "comm-fsdp",
    "comm-ring-attn", "comm-share-1b", "comm-energy", "comm-1b-1024", "comm-accum-freq", "comm-tp-tier",
    "comm-sp-bytes", "comm-tier-ratio", "comm-flop-byte", "comm-star", "comm-overlap-half", "comm-slow-sync",
    "comm-dp-pp", "mesh-groups", "mesh-blackwell", "mesh-v3", "mesh-ulysses",
    // pipelines; the first three stand as text on record
    "pipe-bubble", "pipe-in-flight", "pipe-idle", "pipe-naive", "pipe-latency", "pipe-short", "pipe-quiz",
    "pipe-target", "pipe-depth", "pipe-table2", "pipe-layers",
    // scaling, convergence and money; scale-lars and scale-warmup are tests of training
    "scale-amdahl", "scale-8w", "scale-64w", "scale-goodput", "scale-critical-batch", "scale-flops",
    "scale-straggler", "scale-sampler", "scale-search", "scale-eff", "scale-both-forms", "scale-hours",
    "scale-device-years", "scale-samples", "scale-iter", "scale-batch", "scale-lr", "scale-sgd-bound",
    "scale-past-critical", "scale-amdahl-1000", "scale-measured", "scale-fsdp-cost", "scale-moe", "scale-energy-tier",
    "scale-shard",
    // reliability, alignment, number types (text on record); fp8-scale and par-* are tests of training
    "rel-100", "rel-yd", "rel-yd-15", "rl-ppo", "rl-dpo", "rl-kv", "rl-per-device", "rl-padding", "rl-parts",
    "rl-saving", "rl-left", "rl-mfu", "fp8-range"};
enum { EXAMPLE_IDS = sizeof example_ids / sizeof *example_ids };

typedef struct example_count {
  int rows[EXAMPLE_IDS], wrong;
} example_count;

static void check_example(const example *row, example_count *count) {
  size_t at = 0;
  while (at < EXAMPLE_IDS && strcmp(example_ids[at], row->id) != 0) at++;
  if (at == EXAMPLE_IDS) {
    printf("%s: no example has this id\n", row->id);
    count->wrong++;
    return;
  }
  count->rows[at]++;
  if (fabs(row->got - row->want) <= row->tolerance) return;
  printf("%s: %s is %.9g, not %.9g +- %.2g\n", row->id, row->call, row->got, row->want, row->tolerance);
  count->wrong++;
}

static void check_examples(const example *rows, size_t n, example_count *count) {
  for (size_t i = 0; i < n; i++) check_example(&rows[i], count);
}
#define CHECK_EXAMPLES(rows, count) check_examples((rows), sizeof(rows) / sizeof *(rows), (count))

// Inputs that many rows share.
static const double K = 1e3, M = 1e6, G = 1e9, T = 1e12;
static inline tr_law_roles roles(double weight, double gradient, double optimizer) {
  return (tr_law_roles){weight, gradient, optimizer};
}
static inline tr_law_blocks blocks(double layers, double width, double heads, double sequence, double micro) {
  return (tr_law_blocks){layers, width, heads, sequence, micro};
}
static inline double states(double params, double bytes) { // a role of so many bytes, not divided
  return tr_law_state_bytes(roles(bytes, 0, 0), params, 0, 1);
}

#endif
