// SPDX-License-Identifier: MIT
// batch.micro=auto: the largest number of sequences per pass with which the plan fills at most a part of the memory; the rest
// is left to the data that the system caches, and to others. Fewer sequences need not be slower: batch.micro sets them.
// Ranks on several hosts go on with the smallest that any host has chosen. A pipeline gets at least some micro-batches per rank, where the batch has them, as it idles while it fills and drains.
#include "train/train_internal.h"
#include "trireme/base/cpu.h"

enum { PASSES_PER_RANK = 4 };
static const double most_of_memory = 0.8;

static double part_of_memory(const tr_train_plan *plan) {
  return (double)plan->total_nbyte / (double)tr_cpu_memory();
}

static int64_t share_of_rank(const tr_train_plan *plan) {
  return plan->config->batch.sequences / plan->mesh.degree[TR_AXIS_DP];
}

static void set_micro(tr_train_plan *plan, int64_t micro) {
  plan->micro = (int)micro;
  plan->accumulation = (int)(share_of_rank(plan) / micro);
}

// With `micro` sequences per pass. TR_ERR_PLAN when that makes a program that is too long.
static tr_status plan_with(tr_train_plan *plan, int64_t micro) {
  set_micro(plan, micro);
  TR_TRY(tr__plan_schedule(plan, NULL));
  TR_TRY(tr__plan_program(plan));
  return tr__plan_memory(plan);
}

// Largest divisor of n that is at most `most`; 0: none.
static int64_t divisor_up_to(int64_t n, int64_t most) {
  int64_t d = most < n ? most : n;
  while (d > 0 && n % d) d--;
  return d;
}

// The same, with which the schedule of a pipeline has a number of micro-batches that it can do; 0: none.
static int64_t suitable_up_to(const tr_train_plan *plan, int64_t most) {
  int64_t share = share_of_rank(plan), d = divisor_up_to(share, most);
  if (!tr__plan_pipelined(plan)) return d;
  while (d > 0 && share / d <= TR_STEP_MICROBATCHES && !tr__plan_suits(plan, share / d))
    d = divisor_up_to(share, d - 1);
  return d > 0 && share / d <= TR_STEP_MICROBATCHES ? d : 0;
}

int64_t tr__plan_most_micro(const tr_train_plan *plan) {
  int64_t share = share_of_rank(plan), most = TR_PLAN_ROWS / plan->config->data.sequence, chosen = 0;
  if (most < 1) most = 1;
  if (!tr__plan_pipelined(plan)) return divisor_up_to(share, most);
  for (int64_t d = suitable_up_to(plan, most); d > 0; d = suitable_up_to(plan, d - 1)) {
    chosen = d;
    if (share / d >= PASSES_PER_RANK * plan->mesh.degree[TR_AXIS_PP]) break;
  }
  return chosen ? chosen : divisor_up_to(share, most); // which is then refused with its numbers
}

// Memory grows at most in proportion to the sequences of a pass, so none between this and now can fit.
static int64_t next_bound(const tr_train_plan *plan) {
  int64_t bound = (int64_t)((double)plan->micro * most_of_memory / part_of_memory(plan));
  return bound < 1 ? 1 : bound < plan->micro ? bound : plan->micro - 1;
}

tr_status tr__plan_fit_micro(tr_train_plan *plan) {
  if (plan->config->batch.micro >= 0) return TR_OK;
  int64_t share = share_of_rank(plan), refused = 0;
  double refused_part = 0;
  while (part_of_memory(plan) > most_of_memory && plan->micro > 1) {
    int64_t now = plan->micro, next = suitable_up_to(plan, next_bound(plan));
    if (next < 1 || share / next > TR_STEP_MICROBATCHES) break;
    refused_part = part_of_memory(plan);
    refused = now;
    tr_status status = plan_with(plan, next);
    if (status == TR_ERR_PLAN) TR_TRY(plan_with(plan, now)); // more passes than a program can have
    if (status == TR_ERR_PLAN) break;
    TR_TRY(status);
  }
  if (plan->micro == share)
    snprintf(plan->micro_text, sizeof plan->micro_text, "all of a rank's share of the batch");
  else if (refused)
    snprintf(plan->micro_text, sizeof plan->micro_text, "%lld would take %.0f%% of memory, at most %.0f%% are used",
             (long long)refused, 100 * refused_part, 100 * most_of_memory);
  else if (plan->schedule.p)
    snprintf(plan->micro_text, sizeof plan->micro_text, "%d micro-batches for %d ranks of a pipeline",
             plan->accumulation, plan->schedule.p);
  else
    snprintf(plan->micro_text, sizeof plan->micro_text, "sequences of %lld tokens allow no more rows",
             (long long)plan->config->data.sequence);
  return TR_OK;
}

tr_status tr__plan_lower_micro(tr_train_plan *plan, int64_t micro) {
  TR_TRY(plan_with(plan, micro));
  snprintf(plan->micro_text, sizeof plan->micro_text, "another host's memory allows no more");
  if (plan->place.rank == 0)
    printf("note    batch.micro=auto: %d sequence%s per pass, since %s\n", plan->micro, plan->micro == 1 ? "" : "s",
           plan->micro_text);
  return TR_OK;
}
