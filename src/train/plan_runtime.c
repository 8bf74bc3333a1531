// SPDX-License-Identifier: MIT
// A training plan as the planner's description of what the executor runs (plan/runtime.h): the same objects, and the options that
// runs get.
#include "train/train_internal.h"

void tr_train_runtime(const tr_train_plan *plan, tr_runtime_part *part, tr_runtime_plan *out) {
  const int pp = plan->mesh.degree[TR_AXIS_PP];
  int16_t host[TR__TRAIN_RANKS];
  int first;
  tr_run_options run;
  tr__plan_hosts(plan, host);
  tr__part_run_options(plan, plan->part, &run);
  for (int r = 0; r < pp; r++)
    part[r] = (tr_runtime_part){plan->part[r].model, &plan->part[r].layout, &plan->part[r].program};
  *out = (tr_runtime_plan){.part = part,
                           .pp = pp,
                           .dp = plan->step.dp,
                           .share = tr__plan_sharers(plan, host, 0, &first),
                           .ranks = plan->local,
                           .threads = plan->nthread,
                           .rows = run.rows,
                           .sequence = plan->config->data.sequence,
                           .type = run.type,
                           .grad_wire = run.grad_wire,
                           .stage_wire = run.stage_wire,
                           .recompute = run.recompute,
                           .grad_sync = run.grad_sync,
                           .zero = run.zero,
                           .pack = run.pack,
                           .optim = &plan->optim,
                           .kernels = run.kernels};
}
