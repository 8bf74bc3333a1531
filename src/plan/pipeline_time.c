// SPDX-License-Identifier: MIT
// Steps of any length from a short one (pipeline.h), and the prediction of a whole step with them.
//
// In the middle of a step every operation comes a fixed time after the same operation `period` micro-batches before: the longest
// way through the pipeline goes round over some neighbours again and again, and the period is how many micro-batches are under
// way there. Everything that happens later follows from what happens within one pipeline's depth, so once all operations of so many
// micro-batches are shifted by the same time, they stay so until the pipeline runs empty, which always takes as long. A step is
// simulated that is long enough to find the period; where there is none yet (a slightly slower stage takes long to show), it is
// doubled; and the step that ends at the right place of the period is simulated, from which the rest is added up.
#include "plan/pipeline_internal.h"
#include "plan/plan_internal.h"
#include <stdlib.h>
#include <string.h>

// A step of m micro-batches, without and with messages.
typedef struct run {
  int64_t m, work, makespan[2]; // ticks; work: of the busiest rank
  int *peak;                    // [p] micro-batches of a chunk alive at once
  tr_sim_programs programs;
  tr_sim_result result[2];
} run;

typedef struct steps {
  const tr_plan *p;
  const tr_workload *w;
  const tr_cluster *c;
  tr__pipeline_costs costs;
  double *layers;           // [p] of a rank's chunk, on average
  int64_t m, period;        // of the whole step; period 0: `last` is the whole step
  int64_t shift[2], worked; // ticks of a period
  run last;
} steps;

// ---- one step

static void close_run(run *r) {
  for (int i = 0; i < 2; i++) tr_sim_result_destroy(&r->result[i]);
  tr_sim_programs_destroy(&r->programs);
  free(r->peak);
  *r = (run){0};
}

static tr_status open_costs(steps *s, const tr_schedule *shape) {
  if (s->costs.row) return TR_OK;
  int *stage = malloc((size_t)shape->v * sizeof *stage);
  s->layers = calloc((size_t)shape->p, sizeof *s->layers);
  if (!stage || !s->layers) return free(stage), tr_error(TR_ERR_MEMORY, "no memory for %d stages", shape->S);
  tr_status status = tr__pipeline_costs_make(s->p, s->w, s->c, shape->S, &s->costs);
  for (int rank = 0; rank < shape->p && status == TR_OK; rank++) {
    const int n = tr_schedule_stages(shape, rank, stage);
    for (int i = 0; i < n; i++) s->layers[rank] += (double)s->costs.cut[stage[i]].layers / n;
  }
  free(stage);
  return status;
}

static tr_status simulate(steps *s, const tr_schedule *schedule, run *out) {
  TR_TRY(open_costs(s, schedule));
  TR_TRY(tr_sim_lower(schedule, &out->programs));
  out->peak = malloc((size_t)schedule->p * sizeof *out->peak);
  if (!out->peak) return tr_error(TR_ERR_MEMORY, "no memory for %d ranks", schedule->p);
  tr_schedule_peaks(schedule, TR_HOLD_UNTIL_W, out->peak, NULL);
  for (int messages = 0; messages < 2; messages++) {
    tr_sim_result *result = &out->result[messages];
    const tr_sim_costs costs = tr__pipeline_sim_costs(&s->costs, messages);
    TR_TRY(tr_sim_run(out->programs.program, out->programs.p, &costs, result));
    out->makespan[messages] = result->makespan;
  }
  for (int i = 0; i < schedule->p; i++)
    if (out->result[0].rank[i].busy > out->work) out->work = out->result[0].rank[i].busy;
  return TR_OK;
}

// Replaces the run before.
static tr_status run_step(steps *s, int64_t m, run *out) {
  tr_schedule schedule;
  close_run(out);
  TR_TRY(tr__pipeline_schedule(s->p, m, &schedule));
  out->m = m;
  tr_status status = simulate(s, &schedule, out);
  tr_schedule_destroy(&schedule);
  return status;
}

// ---- its period

// When each operation of a rank begins, by what it does and its micro-batch; -1: there is none.
typedef struct starts {
  int64_t *at, m;
  size_t room;
} starts;

static size_t place(const tr_op *op, int64_t m) {
  return (((size_t)op->chunk * TR_OP_KIND_COUNT + op->kind) * 2 + (op->role == TR_ROLE_DERIVATIVE)) * (size_t)m +
         (size_t)op->microbatch;
}

static void note_starts(const tr_program *program, const tr_sim_event *event, starts *t) {
  for (size_t i = 0; i < t->room; i++) t->at[i] = -1;
  for (uint32_t i = 0; i < program->nop; i++)
    if (program->op[i].microbatch >= 0) t->at[place(&program->op[i], t->m)] = event[i].begin;
}

// Whether all operations of a rank on micro-batches in the middle come *shift after those `period` before; *shift -1: not known yet.
static int is_shifted(const starts *t, int64_t period, int64_t window, int64_t *shift) {
  const int64_t end = t->m / 2 + window / 2, begin = end - window;
  for (size_t row = 0; row < t->room; row += (size_t)t->m)
    for (int64_t i = begin; i < end; i++) {
      const int64_t now = t->at[row + (size_t)i], before = t->at[row + (size_t)(i - period)];
      if (now < 0 && before < 0) continue;
      if (now < 0 || before < 0) return 0;
      if (*shift < 0) *shift = now - before;
      if (now - before != *shift) return 0;
    }
  return *shift > 0;
}

static int has_period(const run *r, starts *t, int64_t period, int64_t window, int64_t shift[2]) {
  for (int k = 0; k < 2; k++) {
    shift[k] = -1;
    for (int rank = 0; rank < r->programs.p; rank++) {
      note_starts(r->programs.program[rank], r->result[k].event[rank], t);
      if (!is_shifted(t, period, window, &shift[k])) return 0;
    }
  }
  return 1;
}

// Micro-batches that a schedule deals out together; 0: it does not repeat itself.
static int64_t unit_of(const tr_plan *p) {
  const char *name = tr_plan_schedule(p);
  if (strcmp(name, "interleaved_flex") == 0) return 0;
  if (strncmp(name, "interleaved", 11) == 0) return p->pp;
  return strncmp(name, "dualpipe", 8) == 0 ? 2 : 1;
}

static tr_status find_period(steps *s, const run *r, int64_t unit, int64_t window) {
  starts t = {.m = r->m};
  t.room = (size_t)s->p->vpp * 2 * TR_OP_KIND_COUNT * 2 * (size_t)r->m;
  t.at = malloc(t.room * sizeof *t.at);
  if (!t.at) return tr_error(TR_ERR_MEMORY, "no memory for the operations of %lld micro-batches", (long long)r->m);
  s->period = 0;
  for (int64_t period = unit; period <= 2 * s->p->pp && s->period == 0; period += unit)
    if (has_period(r, &t, period, window, s->shift)) s->period = period;
  free(t.at);
  return TR_OK;
}

// Works through the busiest rank in any period: its passes.
static tr_status find_steps(steps *s) {
  const int64_t unit = unit_of(s->p), window = 3 * s->p->pp;
  for (int64_t m = 8 * s->p->pp; unit > 0; m *= 2) {
    if (m + 2 * s->p->pp >= s->m || m > TR_STEP_MICROBATCHES) break;
    TR_TRY(run_step(s, m, &s->last));
    TR_TRY(find_period(s, &s->last, unit, window));
    if (s->period == 0) continue;
    s->worked = s->last.work / m * s->period;
    const int64_t rest = (s->m - m) % s->period;
    return rest ? run_step(s, m + rest, &s->last) : TR_OK;
  }
  return run_step(s, s->m, &s->last);
}

// ---- the whole step

static tr_status open_steps(const tr_plan *p, const tr_workload *w, const tr_cluster *c, steps *out) {
  *out = (steps){.p = p, .w = w, .c = c, .m = p->batch / (p->dp * p->micro)};
  return find_steps(out);
}

static void close_steps(steps *s) {
  close_run(&s->last);
  tr__pipeline_costs_free(&s->costs);
  free(s->layers);
}

static void take_times(const steps *s, tr_pipeline_time *out) {
  const run *r = &s->last;
  const int64_t more = s->period ? (s->m - r->m) / s->period : 0;
  const int64_t work = r->work + more * s->worked, plain = r->makespan[0] + more * s->shift[0],
                whole = r->makespan[1] + more * s->shift[1];
  *out = (tr_pipeline_time){1e-9 * (double)work, 1e-9 * (double)(plain - work), 1e-9 * (double)(whole - plain), r->m};
}

tr_status tr_predict_pipeline(const tr_plan *p, const tr_workload *w, const tr_cluster *c, tr_pipeline_time *out) {
  steps s;
  tr_status status = open_steps(p, w, c, &s);
  if (status == TR_OK) take_times(&s, out);
  close_steps(&s);
  return status;
}

// What passes take is counted again by the stages that the simulator had: its busiest rank's, shared out as before.
static void put_times(const tr_plan *p, const tr_workload *w, const tr_cluster *c, const tr_pipeline_time *t,
                      tr_prediction *out) {
  static const int inside[] = {TR_TERM_COMPUTE, TR_TERM_RECOMPUTE, TR_TERM_TP, TR_TERM_CP, TR_TERM_EP};
  double *term = out->term, before = 0, rest = 0;
  for (size_t i = 0; i < sizeof inside / sizeof *inside; i++) before += term[inside[i]];
  for (size_t i = 0; i < sizeof inside / sizeof *inside; i++) term[inside[i]] *= t->work / before;
  term[TR_TERM_BUBBLE] = t->bubble;
  term[TR_TERM_PP] = t->messages;
  for (int i = 0; i < TR_TERM_COUNT; i++) rest += i == TR_TERM_FIXED ? 0 : term[i];
  tr__finish_step(p, w, c, rest, out);
}

static void rank_memory(const steps *s, int64_t rank, tr_footprint *out) {
  tr__rank_memory(s->p, s->w, s->c, rank, s->last.peak[rank] * s->layers[rank], out);
}

static void put_memory(const steps *s, tr_prediction *out) {
  out->memory = (tr_footprint){.total = -1};
  for (int64_t rank = 0; rank < s->p->pp; rank++) {
    tr_footprint one;
    rank_memory(s, rank, &one);
    tr__take_fuller(&out->memory, &one);
  }
  out->fits = out->memory.needed <= s->c->device.memory_gib * 1073741824.0;
}

tr_status tr_predict_rank_memory(const tr_plan *p, const tr_workload *w, const tr_cluster *c, tr_footprint *rank) {
  steps s;
  if (p->pp == 1) return tr_predict_stage_memory(p, w, c, 0, rank), TR_OK;
  tr_status status = open_steps(p, w, c, &s);
  for (int64_t i = 0; i < p->pp && status == TR_OK; i++) rank_memory(&s, i, &rank[i]);
  close_steps(&s);
  return status;
}

tr_status tr_predict_simulated(const tr_plan *p, const tr_workload *w, const tr_cluster *c, tr_prediction *out) {
  tr_prediction x;
  tr_pipeline_time time;
  steps s;
  tr_predict(p, w, c, &x);
  if (p->pp > 1) {
    tr_status status = open_steps(p, w, c, &s);
    if (status == TR_OK) {
      take_times(&s, &time);
      put_times(p, w, c, &time, &x);
      put_memory(&s, &x);
    }
    close_steps(&s);
    TR_TRY(status);
  }
  *out = x;
  return TR_OK;
}
