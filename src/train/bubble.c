// SPDX-License-Identifier: MIT
// The bubble of a pipeline: the share of a step that its ranks compute nothing, because they wait for neighbours. Measured on
// all ranks, and simulated from what operations took in the first steps; the log line and the last words of a run have both.
//
//   bubble = 1 - sum over ranks of the time in operations of the compute lane / sum over ranks of the time of their programs
//
// The first step is left out (memory and clocks warm up), the next ones give costs, and all later ones are what is compared.
#include "train/timing_internal.h"
#include <stdlib.h>
#include <string.h>

enum { COST_STEPS = 8, WARM_STEPS = 1 };

struct tr__bubble {
  tr__costs own;        // of this rank
  tr__cost_sum *agreed; // [classes] of all ranks
  int place;
  int64_t busy, program, steps;             // of this rank since the last agreement
  int64_t all_busy, all_program, all_steps; // compared: of all ranks
  int64_t seen;                             // steps of this process
  int settled;                              // `agreed` is of COST_STEPS steps
  double measured;                          // in the last window; below 0: not known
  tr__simulated simulated;
};

size_t tr__bubble_bytes(const tr_train_plan *plan) {
  size_t nbyte = sizeof(struct tr__bubble);
  if (plan->schedule.p < 2) return 0;
  for (int r = 0; r < plan->schedule.p; r++) nbyte += plan->part[r].program.nop * sizeof(uint32_t);
  return nbyte;
}

tr_status tr__bubble_open(const tr__trainer *t, struct tr__bubble **out) {
  struct tr__bubble *b = calloc(1, sizeof *b);
  if (!b) return tr_error(TR_ERR_MEMORY, "no memory to measure a pipeline");
  *out = b;
  b->place = tr_mesh_coordinate(&t->plan->mesh, t->rank, TR_AXIS_PP);
  b->measured = -1;
  TR_TRY(tr__costs_open(t->plan, &b->own));
  b->agreed = calloc((size_t)b->own.first[t->plan->schedule.p] + 1, sizeof *b->agreed);
  return b->agreed ? TR_OK : tr_error(TR_ERR_MEMORY, "no memory to measure a pipeline");
}

void tr__bubble_close(struct tr__bubble *b) {
  if (!b) return;
  tr__costs_close(&b->own);
  free(b->agreed);
  free(b);
}

void tr__bubble_op(struct tr__bubble *b, uint32_t index, const tr_op *op, int64_t ns, int64_t kernels) {
  if (op->lane == TR_LANE_COMPUTE) b->busy += ns;
  if (b->seen >= WARM_STEPS && b->seen < WARM_STEPS + COST_STEPS)
    tr__costs_add(&b->own, b->place, index, ns, kernels);
}

void tr__bubble_step(struct tr__bubble *b, int64_t program_ns) {
  b->seen++;
  if (b->seen <= WARM_STEPS) {
    b->busy = 0;
    return;
  }
  b->program += program_ns;
  b->steps++;
}

// What all ranks have measured since the last time, added up.
static tr_status sum_times(const tr__trainer *t, struct tr__bubble *b) {
  int64_t sum[2] = {b->busy, b->program};
  TR_TRY(tr_group_allreduce(tr_comm_world(t->comm), sum, sum, 2, TR_I64, TR_SUM, NULL));
  b->measured = sum[1] > 0 ? 1 - (double)sum[0] / (double)sum[1] : -1;
  b->all_busy += sum[0];
  b->all_program += sum[1];
  b->all_steps += b->steps;
  b->busy = b->program = b->steps = 0;
  return TR_OK;
}

static tr_status simulate(const tr__trainer *t, struct tr__bubble *b) {
  const size_t n = b->own.first[t->plan->schedule.p];
  tr__costs all = b->own;
  tr_sim_result result;
  all.sum = b->agreed;
  memcpy(all.sum, b->own.sum, n * sizeof *all.sum);
  TR_TRY(tr_group_allreduce(tr_comm_world(t->comm), all.sum, all.sum, 3 * n, TR_I64, TR_SUM, NULL));
  b->settled = b->seen >= WARM_STEPS + COST_STEPS;
  if (t->rank != 0) return TR_OK;
  TR_TRY(tr__costs_simulate(&all, &result));
  b->simulated = (tr__simulated){.makespan = result.makespan, .bubble = result.bubble};
  tr_sim_result_destroy(&result);
  return tr__costs_kernels(&all, &b->simulated.kernels);
}

tr_status tr__bubble_count(tr__trainer *t) {
  struct tr__bubble *b = t->timing ? t->timing->bubble : NULL;
  if (!b || b->steps == 0) return TR_OK;
  TR_TRY(sum_times(t, b));
  return b->settled ? TR_OK : simulate(t, b);
}

int tr__bubble_say(const tr__trainer *t, double *measured, tr__simulated *simulated) {
  const struct tr__bubble *b = t->timing ? t->timing->bubble : NULL;
  if (!b || b->measured < 0) return 0;
  *measured = b->measured;
  *simulated = b->simulated;
  return 1;
}

tr_status tr__bubble_end(const tr__trainer *t) {
  const struct tr__bubble *b = t->timing ? t->timing->bubble : NULL;
  char took[32], would[32];
  if (!b || t->rank != 0 || b->all_steps == 0 || b->simulated.makespan == 0) return TR_OK;
  double step = (double)b->all_program / (double)(b->all_steps * tr_comm_size(t->comm));
  double bubble = 1 - (double)b->all_busy / (double)b->all_program;
  tr_format_duration(took, sizeof took, step * 1e-9);
  tr_format_duration(would, sizeof would, (double)b->simulated.makespan * 1e-9);
  double simulated = (double)b->simulated.makespan, kernels = (double)b->simulated.kernels;
  printf("step    %s measured, %s simulated (%+.1f%%), bubble %.1f%% measured, %.1f%% simulated\n", took, would,
         100 * (simulated / step - 1), 100 * bubble, 100 * b->simulated.bubble);
  return tr__metrics_append(t, json_pack("{s:s, s:I, s:I, s:f, s:f, s:f, s:f, s:f}", "event", "pipeline", "step",
                                         (json_int_t)t->step, "steps", (json_int_t)b->all_steps, "step_s",
                                         step * 1e-9, "step_simulated_s", simulated * 1e-9, "step_kernels_s",
                                         kernels * 1e-9, "bubble", bubble, "bubble_simulated", b->simulated.bubble));
}
