// SPDX-License-Identifier: MIT
// One case of a simulation: a schedule by name, uniform costs in eighths of a unit, and what comes out, from the library's own
// programs and from programs by hand, which must agree in everything that both have.
#ifndef TRIREME_TEST_SIM_CASE_H
#define TRIREME_TEST_SIM_CASE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "sim/hand_lower.h"
#include "trireme/sim/sim.h"
#include <math.h>
#include <stdio.h>

enum { SC_TICKS = 8, SC_STAGES = 128 };

// Costs of the columns of the tables: B is the whole backward pass where it is not split (w 0), else its half for inputs.
typedef struct sc_costs {
  double f, b, w, pair; // pair 0: f + b + w
  double latency, occupancy;
  int one_stream;
} sc_costs;

typedef struct sc_case {
  tr_schedule schedule;
  hand by_hand;
  tr_sim_programs programs;
  tr_sim_result result, hand_result;
} sc_case;

static inline int64_t sc_ticks(double units) { return llround(units * SC_TICKS); }
static inline double sc_units(int64_t ticks) { return (double)ticks / SC_TICKS; }

static inline void sc_row(const sc_costs *c, double times, int64_t row[TR_OP_KIND_COUNT]) {
  memset(row, 0, sizeof *row * TR_OP_KIND_COUNT);
  row[TR_OP_F] = sc_ticks(c->f * times);
  row[TR_OP_B] = sc_ticks((c->b + c->w) * times);
  row[TR_OP_I] = sc_ticks(c->b * times);
  row[TR_OP_W] = sc_ticks(c->w * times);
  row[TR_OP_X] = c->pair > 0 ? sc_ticks(c->pair * times) : -1;
}

static inline void sc_compare(const sc_case *c) {
  const tr_sim_result *a = &c->result, *b = &c->hand_result;
  assert_int_equal(a->makespan, b->makespan);
  assert_int_equal(a->span_idle, b->span_idle);
  assert_int_equal(a->messages, b->messages);
  assert_true(a->bubble == b->bubble && a->span_bubble == b->span_bubble);
  for (int r = 0; r < a->p; r++) {
    assert_int_equal(a->rank[r].busy, b->rank[r].busy);
    assert_int_equal(a->rank[r].first, b->rank[r].first);
    assert_int_equal(a->rank[r].last, b->rank[r].last);
    assert_int_equal(a->rank[r].peak_w, b->rank[r].peak_w);
    assert_int_equal(a->rank[r].peak_i, b->rank[r].peak_i);
    assert_int_equal(a->rank[r].parked, b->rank[r].parked);
  }
}

// `slow` scales the costs of stages, NULL: all alike.
static inline void sc_run_scaled(const tr_schedule_spec *spec, const sc_costs *costs, const double *slow,
                                 sc_case *c) {
  static int64_t row[SC_STAGES][TR_OP_KIND_COUNT];
  if (tr_schedule_build(spec, &c->schedule) < 0) fail_msg("%s", tr_status_text());
  const int nstage = slow ? c->schedule.S : 1;
  assert_in_range(nstage, 1, SC_STAGES);
  for (int s = 0; s < nstage; s++) sc_row(costs, slow ? slow[s] : 1, row[s]);
  const tr_sim_costs sim = {.nstage = nstage,
                            .stage = (const int64_t(*)[TR_OP_KIND_COUNT])row,
                            .latency = sc_ticks(costs->latency),
                            .occupancy = sc_ticks(costs->occupancy),
                            .one_stream = costs->one_stream};
  assert_true(hand_lower(&c->schedule, &c->by_hand));
  if (tr_sim_run(c->by_hand.pointers, c->schedule.p, &sim, &c->hand_result) < 0) fail_msg("%s", tr_status_text());
  if (tr_sim_lower(&c->schedule, &c->programs) < 0) fail_msg("%s", tr_status_text());
  if (tr_sim_run(c->programs.program, c->programs.p, &sim, &c->result) < 0) fail_msg("%s", tr_status_text());
  sc_compare(c);
}

static inline void sc_run(const tr_schedule_spec *spec, const sc_costs *costs, sc_case *c) {
  sc_run_scaled(spec, costs, NULL, c);
}

static inline void sc_free(sc_case *c) {
  tr_sim_result_destroy(&c->result);
  tr_sim_result_destroy(&c->hand_result);
  tr_sim_programs_destroy(&c->programs);
  hand_free(&c->by_hand);
  tr_schedule_destroy(&c->schedule);
}

// The makespan alone, in units.
static inline double sc_makespan(const tr_schedule_spec *spec, const sc_costs *costs) {
  sc_case c;
  sc_run(spec, costs, &c);
  const double makespan = sc_units(c.result.makespan);
  sc_free(&c);
  return makespan;
}

static inline void sc_expect(const char *what, const tr_schedule_spec *spec, const sc_costs *costs, double got,
                             double want) {
  if (fabs(got - want) > 1e-9)
    fail_msg("%s p %d m %d v %d, costs %g %g %g pair %g, latency %g, occupancy %g: %s is %.9g, not %.9g", spec->name,
             spec->p, spec->m, spec->v, costs->f, costs->b, costs->w, costs->pair, costs->latency, costs->occupancy,
             what, got, want);
}

#endif
