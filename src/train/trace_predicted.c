// SPDX-License-Identifier: MIT
// The predicted timeline of a pipeline's trace: operations cost what they took in the first steps that the trace has, the
// simulator makes a step of them, and it stands beside the last step that was measured. How far it is off, per kind of operation
// and for the whole step, comes from all steps whose times were not taken for the costs.
#include "train/timing_internal.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { COST_STEPS = 8 };

// ---- which steps the rings of all ranks have

static uint64_t oldest(const tr__ring *ring) {
  return ring->count < ring->capacity ? 0 : ring->count - ring->capacity + 1;
}

// Steps of which a ring has all events: [*first, *last]; a step that began before the oldest event is not one of them.
static void steps_of(const tr__ring *ring, int64_t *first, int64_t *last) {
  int64_t begin = INT64_MAX, seen = INT64_MAX;
  *first = INT64_MAX, *last = -1;
  for (uint64_t i = oldest(ring); i < ring->count; i++) {
    const tr__event *e = &ring->event[i % ring->capacity];
    if (e->begin < seen && e->kind <= TR__EVENT_PIECE) seen = e->begin;
  }
  for (uint64_t i = oldest(ring); i < ring->count; i++) {
    const tr__event *e = &ring->event[i % ring->capacity];
    if (e->kind != TR__SLICE_PROGRAM) continue;
    if (oldest(ring) > 0 && e->begin <= seen) continue;
    if (e->step < *first) *first = e->step, begin = e->begin;
    if (e->step > *last) *last = e->step;
  }
  // Where events are missing, the first program may have lost some of its own.
  if (oldest(ring) > 0 && begin != INT64_MAX) ++*first;
}

static void common_steps(const struct tr__trace *trace, tr__prediction *p) {
  const int ranks = (int)trace->plan->config->run.ranks;
  int64_t first = 0, last = INT64_MAX;
  for (int r = 0; r < ranks; r++) {
    int64_t from, to;
    steps_of(tr__trace_ring(trace, r), &from, &to);
    if (from > first) first = from;
    if (to < last) last = to;
  }
  if (last > first) first++; // the first one warms up
  p->first = first;
  p->last = last;
  int64_t cost_steps = (last - first + 1) / 2;
  if (cost_steps > COST_STEPS) cost_steps = COST_STEPS;
  p->compared = first + cost_steps; // with a single step it is compared with itself
}

// ---- costs, and what they are compared with

static int is_cost(const tr__prediction *p, int64_t step) {
  return step >= p->first && (step < p->compared || p->first == p->last);
}

static int is_compared(const tr__prediction *p, int64_t step) { return step >= p->compared && step <= p->last; }

static void take_op(tr__prediction *p, int place, const tr__event *e) {
  const tr_op *op = &p->costs.plan->part[place].program.op[e->op];
  if (is_cost(p, e->step)) tr__costs_add(&p->costs, place, (uint32_t)e->op, e->end - e->begin, 0);
  if (!is_compared(p, e->step) || op->lane != TR_LANE_COMPUTE) return;
  p->measured[op->kind].ns += e->end - e->begin;
  p->measured[op->kind].count++;
  p->busy += e->end - e->begin;
}

static void take_ring(tr__prediction *p, int place, const tr__ring *ring) {
  for (uint64_t i = oldest(ring); i < ring->count; i++) {
    const tr__event *e = &ring->event[i % ring->capacity];
    if (e->kind == TR__EVENT_OP) take_op(p, place, e);
    if (e->kind != TR__SLICE_PROGRAM) continue;
    if (is_compared(p, e->step)) p->programs += e->end - e->begin;
    if (e->step == p->last && (p->begin == 0 || e->begin < p->begin)) p->begin = e->begin;
  }
}

static void count_simulated(tr__prediction *p) {
  const tr_train_plan *plan = p->costs.plan;
  for (int r = 0; r < plan->mesh.degree[TR_AXIS_PP]; r++)
    for (uint32_t i = 0; i < plan->part[r].program.nop; i++) {
      const tr_op *op = &plan->part[r].program.op[i];
      if (op->lane != TR_LANE_COMPUTE) continue;
      p->expected[op->kind].ns += tr__costs_of(&p->costs, r, i);
      p->expected[op->kind].count++;
    }
}

tr_status tr__prediction_make(const struct tr__trace *trace, tr__prediction *out) {
  const tr_train_plan *plan = trace->plan;
  *out = (tr__prediction){.last = -1};
  if (plan->schedule.p < 2) return TR_OK;
  common_steps(trace, out);
  if (out->last < out->first) return TR_OK; // none that all ranks ended
  TR_TRY(tr__costs_open(plan, &out->costs));
  for (int r = 0; r < (int)plan->config->run.ranks; r++)
    take_ring(out, tr_mesh_coordinate(&plan->mesh, r, TR_AXIS_PP), tr__trace_ring(trace, r));
  count_simulated(out);
  tr_status status = tr__costs_simulate(&out->costs, &out->result);
  out->made = status == TR_OK;
  return status;
}

void tr__prediction_free(tr__prediction *p) {
  if (p->made) tr_sim_result_destroy(&p->result);
  tr__costs_close(&p->costs);
}

// ---- saying it

static double mean(const tr__cost_sum *sum) { return sum->count > 0 ? (double)sum->ns / (double)sum->count : 0; }

static double step_ns(const tr__prediction *p) {
  const int64_t steps = p->last - p->compared + 1;
  return (double)p->programs / (double)(steps * p->costs.plan->config->run.ranks);
}

void tr__prediction_json(const tr__prediction *p, tr_text *out) {
  const char *comma = "";
  if (!p->made) return;
  tr_text_append(
      out,
      ",\"simulated\":{\"cost_steps\":[%" PRId64 ",%" PRId64 "],\"compared_steps\":[%" PRId64 ",%" PRId64
      "],\"step_us\":%.3f,\"measured_step_us\":%.3f,\"bubble\":%.6f,\"measured_bubble\":%.6f,\"mean_us\":{",
      p->first, p->first == p->last ? p->last : p->compared - 1, p->compared, p->last,
      (double)p->result.makespan * 1e-3, step_ns(p) * 1e-3, p->result.bubble,
      1 - (double)p->busy / (double)p->programs);
  for (int kind = 0; kind < TR_OP_KIND_COUNT; kind++) {
    if (!p->measured[kind].count) continue;
    tr_text_append(out, "%s\"%s\":{\"simulated\":%.3f,\"measured\":%.3f}", comma, tr_op_name((tr_op_kind)kind),
                   mean(&p->expected[kind]) * 1e-3, mean(&p->measured[kind]) * 1e-3);
    comma = ",";
  }
  tr_text_append(out, "}}");
}

void tr__prediction_say(const tr__prediction *p) {
  if (!p->made) return;
  printf("predicted   step %+.1f%%", 100 * ((double)p->result.makespan / step_ns(p) - 1));
  for (int kind = 0; kind < TR_OP_KIND_COUNT; kind++)
    if (p->measured[kind].ns > 0)
      printf(", %s %+.1f%%", tr_op_name((tr_op_kind)kind),
             100 * (mean(&p->expected[kind]) / mean(&p->measured[kind]) - 1));
  printf(" against steps %" PRId64 " to %" PRId64 "\n", p->compared, p->last);
}

void tr__prediction_events(const tr__prediction *p, int64_t shift, const char *comma, tr_text *out) {
  const tr_train_plan *plan = p->costs.plan;
  const int pp = plan->schedule.p;
  if (!p->made) return;
  const tr_program **program = malloc((size_t)pp * sizeof *program);
  const tr_sim_trace trace = {
      .ns = 1, .begin_ns = p->begin - shift, .pid_base = (int)plan->config->run.ranks, .label = "predicted"};
  for (int r = 0; program && r < pp; r++) program[r] = &plan->part[r].program;
  if (program)
    tr_sim_draw_trace_events(program, &p->result, &trace, comma, out);
  else
    out->failed = 1;
  free(program);
}
