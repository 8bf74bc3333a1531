// SPDX-License-Identifier: MIT
// The bubble of a pipeline before anything is measured: its programs through the simulator, where a pass takes as long as its
// FLOPs and nothing else takes time. So it has what the schedule and the stages' sizes cost; what messages, memory and other
// ranks on the same cores cost, the run will tell.
#include "train/timing_internal.h"
#include <stdlib.h>

typedef struct flops_cost {
  const tr_train_plan *plan;
  double ticks; // per FLOP
} flops_cost;

static int64_t cost_of(void *user, int rank, uint32_t index, const tr_op *op) {
  const flops_cost *c = user;
  (void)index;
  return (int64_t)(c->ticks * tr__op_flops(c->plan, c->plan->part[rank].model, op));
}

tr_status tr__plan_bubble(const tr_train_plan *plan, double *bubble) {
  enum { STEP_TICKS = 1000000000 };
  const int pp = plan->schedule.p;
  const tr_program **program = malloc((size_t)pp * sizeof *program);
  if (!program) return tr_error(TR_ERR_MEMORY, "no memory to simulate a step");
  double step = (double)plan->micro * plan->accumulation * (double)plan->config->data.sequence *
                tr_model_flops(plan->model, plan->config->data.sequence);
  flops_cost flops = {plan, STEP_TICKS / step};
  const tr_sim_costs costs = {.op = cost_of, .user = &flops};
  tr_sim_result result;
  for (int r = 0; r < pp; r++) program[r] = &plan->part[r].program;
  tr_status status = tr_sim_run(program, pp, &costs, &result);
  free(program);
  if (status < 0) return status;
  *bubble = result.bubble;
  tr_sim_result_destroy(&result);
  return TR_OK;
}
