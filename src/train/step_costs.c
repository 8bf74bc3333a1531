// SPDX-License-Identifier: MIT
// What operations of a pipeline's step took, as costs for the simulator: operations of one rank that do the same to different
// micro-batches are one class, whose mean is what each of them costs.
//
// A reduction waits for the ranks that it sums over, which is no cost of its own: of these the least that was seen counts, and
// of a message likewise. All places of the pipeline are in one table, so that ranks add theirs up by adding tables.
#include "train/timing_internal.h"
#include <stdlib.h>
#include <string.h>

static int same_class(const tr_op *a, const tr_op *b) {
  return a->kind == b->kind && a->role == b->role && a->stage == b->stage && a->back_stage == b->back_stage &&
         a->piece_begin == b->piece_begin && a->piece_end == b->piece_end && a->unit_begin == b->unit_begin &&
         a->unit_end == b->unit_end && a->chunk == b->chunk && a->lane == b->lane;
}

// Classes in the order in which their first operation comes. `example` has room for all operations.
static uint32_t classify(const tr_program *program, uint32_t *of, uint32_t *example) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < program->nop; i++) {
    uint32_t c = 0;
    while (c < n && !same_class(&program->op[example[c]], &program->op[i])) c++;
    if (c == n) example[n++] = i;
    of[i] = c;
  }
  return n;
}

tr_status tr__costs_open(const tr_train_plan *plan, tr__costs *out) {
  const int pp = plan->mesh.degree[TR_AXIS_PP];
  size_t nop = 0;
  *out = (tr__costs){.plan = plan};
  for (int r = 0; r < pp; r++) nop += plan->part[r].program.nop;
  out->first = calloc((size_t)pp + 1, sizeof *out->first);
  out->class_of = calloc((size_t)pp + 1, sizeof *out->class_of);
  uint32_t *of = calloc(nop + 1, sizeof *of), *example = calloc(nop + 1, sizeof *example);
  if (out->first && out->class_of && of && example) {
    out->class_of[0] = of;
    for (int r = 0; r < pp; r++) {
      out->first[r + 1] = out->first[r] + classify(&plan->part[r].program, out->class_of[r], example);
      out->class_of[r + 1] = out->class_of[r] + plan->part[r].program.nop;
    }
    out->sum = calloc((size_t)out->first[pp] + 1, sizeof *out->sum);
    if (out->sum) of = NULL;
  }
  free(example);
  free(of);
  if (out->sum) return TR_OK;
  free(out->first);
  free(out->class_of);
  *out = (tr__costs){0};
  return tr_error(TR_ERR_MEMORY, "no memory to measure the operations of a step");
}

void tr__costs_close(tr__costs *costs) {
  if (costs->class_of) free(costs->class_of[0]);
  free(costs->class_of);
  free(costs->first);
  free(costs->sum);
  *costs = (tr__costs){0};
}

void tr__costs_add(tr__costs *costs, int place, uint32_t op, int64_t ns, int64_t kernels) {
  const tr_op *o = &costs->plan->part[place].program.op[op];
  tr__cost_sum *sum = &costs->sum[costs->first[place] + costs->class_of[place][op]];
  if (o->lane == TR_LANE_COMPUTE) {
    sum->ns += ns;
    sum->kernels += kernels;
    sum->count++;
  } else if (sum->count == 0 || ns < sum->ns) {
    *sum = (tr__cost_sum){.ns = ns, .count = 1};
  }
}

int64_t tr__costs_of(const tr__costs *costs, int place, uint32_t op) {
  const tr__cost_sum *sum = &costs->sum[costs->first[place] + costs->class_of[place][op]];
  return sum->count > 0 ? sum->ns / sum->count : 0;
}

static int64_t op_cost(void *user, int rank, uint32_t index, const tr_op *op) {
  (void)op;
  return tr__costs_of(user, rank, index);
}

// The least that a message was seen to take, of any two places.
static int64_t message_cost(const tr__costs *costs) {
  int64_t least = INT64_MAX;
  for (int r = 0; r < costs->plan->mesh.degree[TR_AXIS_PP]; r++) {
    const tr_program *program = &costs->plan->part[r].program;
    for (uint32_t i = 0; i < program->nop; i++) {
      if (program->op[i].kind != TR_OP_SEND) continue;
      int64_t ns = tr__costs_of(costs, r, i);
      if (ns > 0 && ns < least) least = ns;
    }
  }
  return least < INT64_MAX ? least : 0;
}

static int64_t kernel_cost(void *user, int rank, uint32_t index, const tr_op *op) {
  (void)op;
  const tr__costs *costs = user;
  const tr__cost_sum *sum = &costs->sum[costs->first[rank] + costs->class_of[rank][index]];
  return sum->count > 0 ? sum->kernels / sum->count : 0;
}

static tr_status simulate(tr__costs *costs, const tr_sim_costs *sim, tr_sim_result *out) {
  const tr_train_plan *plan = costs->plan;
  const int pp = plan->mesh.degree[TR_AXIS_PP];
  const tr_program **program = malloc((size_t)pp * sizeof *program);
  if (!program) return tr_error(TR_ERR_MEMORY, "no memory to simulate a step");
  for (int r = 0; r < pp; r++) program[r] = &plan->part[r].program;
  tr_status status = tr_sim_run(program, pp, sim, out);
  free(program);
  return status;
}

tr_status tr__costs_simulate(tr__costs *costs, tr_sim_result *out) {
  const tr_sim_costs sim = {.op = op_cost, .user = costs, .latency = message_cost(costs)};
  return simulate(costs, &sim, out);
}

tr_status tr__costs_kernels(tr__costs *costs, int64_t *makespan) {
  const tr_sim_costs sim = {.op = kernel_cost, .user = costs};
  tr_sim_result result;
  TR_TRY(simulate(costs, &sim, &result));
  *makespan = result.makespan;
  tr_sim_result_destroy(&result);
  return TR_OK;
}
