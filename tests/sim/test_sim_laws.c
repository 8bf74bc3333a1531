// SPDX-License-Identifier: MIT
// tier: quick
// timeout: 120
// Closed forms over grids of ranks, micro-batches, chunks, costs and latencies; what must hold for every schedule: no time below
// the bounds, none shorter because something costs more.
#include "sim/sim_case.h"

// Costs whose multiples by small numbers stay whole eighths.
static const double cost[] = {0.5, 1, 1.5, 2, 3};
enum { COSTS = sizeof cost / sizeof *cost };
static const double latency[] = {0, 0.25, 0.5, 1, 2};
enum { LATENCIES = sizeof latency / sizeof *latency };

static void expect_makespan(const tr_schedule_spec *spec, const sc_costs *costs, double want) {
  sc_expect("the makespan", spec, costs, sc_makespan(spec, costs), want);
}

static void naive_gpipe_and_1f1b(void **state) {
  (void)state;
  for (int p = 1; p <= 6; p++)
    for (int m = 1; m <= 13; m += m < 9 ? 1 : 4)
      for (int k = 0; k < COSTS * LATENCIES; k++) {
        const double f = cost[k % COSTS], b = cost[(k * 3 + 1) % COSTS], c = latency[k / COSTS];
        const sc_costs costs = {.f = f, .b = b, .latency = c};
        const double work = (m + p - 1) * (f + b), fill = 2 * (p - 1);
        const double rounds = ceil((double)(m - 1) / p);
        expect_makespan(&(tr_schedule_spec){.name = "gpipe", .p = p, .m = m}, &costs, work + fill * c);
        expect_makespan(&(tr_schedule_spec){.name = "gpipe_lifo", .p = p, .m = m}, &costs, work + fill * c);
        expect_makespan(&(tr_schedule_spec){.name = "1f1b", .p = p, .m = m}, &costs,
                        work + c * (p > 1 ? fill + 2 * (m - 1 - rounds) : 0));
        if (2 * c <= f + b)
          expect_makespan(&(tr_schedule_spec){.name = "1f1b_eager", .p = p, .m = m}, &costs, work + fill * c);
        if (m == 1) expect_makespan(&(tr_schedule_spec){.name = "naive", .p = p, .m = m}, &costs, work + fill * c);
      }
}

static void interleaved(void **state) {
  (void)state;
  for (int p = 2; p <= 5; p++)
    for (int v = 2; v <= 4; v++)
      for (int m = p; m <= 3 * p; m += p)
        for (int k = 0; k < COSTS * LATENCIES; k++) {
          const double f = cost[k % COSTS], b = cost[(k * 3 + 1) % COSTS], c = latency[k / COSTS];
          const sc_costs costs = {.f = f, .b = b, .latency = c};
          const double work = (m * v + p - 1) * (f + b);
          if (c <= fmin(f, b))
            expect_makespan(&(tr_schedule_spec){.name = "interleaved", .p = p, .m = m, .v = v}, &costs,
                            work + 2 * (p * v - 1) * c);
          if (c == 0)
            expect_makespan(&(tr_schedule_spec){.name = "looped_bfs", .p = p, .m = m, .v = v}, &costs, work);
          if (c == 0 && f == b) {
            const sc_costs thirds = {.f = f, .b = f, .w = f};
            expect_makespan(&(tr_schedule_spec){.name = "interleaved_zb", .p = p, .m = m, .v = v}, &thirds,
                            (3 * m * v + p - 1) * f);
          }
        }
}

static void zero_bubble(void **state) {
  (void)state;
  for (int p = 1; p <= 6; p++)
    for (int m = p; m <= 3 * p; m++)
      for (int k = 0; k < COSTS * COSTS * COSTS; k++) {
        const double f = cost[k % COSTS], i = cost[k / COSTS % COSTS], w = cost[k / COSTS / COSTS];
        const sc_costs costs = {.f = f, .b = i, .w = w};
        const tr_schedule_spec h1 = {.name = "zb_h1", .p = p, .m = m}, h2 = {.name = "zb_h2", .p = p, .m = m};
        if (w > fmin(f, i)) continue;
        expect_makespan(&h1, &costs, m * (f + i + w) + (p - 1) * (f + i - w));
        if (m < 2 * p - 1) continue;
        sc_case c;
        sc_run(&h2, &costs, &c);
        sc_expect("the makespan", &h2, &costs, sc_units(c.result.makespan),
                  m * (f + i + w) + (p - 1) * fmax(f, f + i - 2 * w));
        sc_expect("the idle span", &h2, &costs, sc_units(c.result.span_idle), (p - 1) * (f + i - 2 * w));
        sc_free(&c);
      }
}

// zb_h2 hides messages almost wholly; between it and zb_h1 a micro-batch more in flight takes a unit of the bubble.
static void zero_bubble_family(void **state) {
  (void)state;
  char name[16];
  for (int p = 2; p <= 6; p++)
    for (int m = p; m <= 3 * p; m++) {
      const int e = m - p < p - 1 ? m - p : p - 1;
      const sc_costs costs = {.f = 1, .b = 1, .w = 1};
      sprintf(name, "zb_e%d", e);
      const tr_schedule_spec spec = {.name = name, .p = p, .m = m}, h2 = {.name = "zb_h2", .p = p, .m = m};
      sc_case c;
      sc_run(&spec, &costs, &c);
      sc_expect("the makespan", &spec, &costs, sc_units(c.result.makespan), 3 * m + p - 1);
      sc_expect("the idle span", &spec, &costs, sc_units(c.result.span_idle), p - 1 - e);
      for (int r = 0; r < p; r++) assert_int_equal(c.result.rank[r].peak_w, p + e);
      sc_free(&c);
      for (int k = 0; k < LATENCIES && m >= 2 * p - 1; k++) {
        const sc_costs far = {.f = 1, .b = 1, .w = 1, .latency = latency[k]};
        if (latency[k] <= 1) expect_makespan(&h2, &far, 3 * m + (p - 1) * (1 + latency[k]));
      }
    }
}

static void zbv(void **state) {
  (void)state;
  for (int p = 1; p <= 8; p++)
    for (int m = 2 * p - 1; m <= 3 * p; m++) {
      const tr_schedule_spec spec = {.name = "zbv", .p = p, .m = m};
      const sc_costs costs = {.f = 0.5, .b = 0.5, .w = 0.5};
      sc_case c;
      sc_run(&spec, &costs, &c);
      sc_expect("the makespan", &spec, &costs, sc_units(c.result.makespan), 0.5 * (6 * m + p - 1));
      sc_expect("the idle span", &spec, &costs, sc_units(c.result.span_idle), 0);
      sc_free(&c);
    }
}

static double most_idle(const tr_sim_result *result) {
  int64_t most = 0;
  for (int r = 0; r < result->p; r++)
    if (result->makespan - result->rank[r].busy > most) most = result->makespan - result->rank[r].busy;
  return sc_units(most);
}

static void expect_idle(const tr_schedule_spec *spec, const sc_costs *costs, double want) {
  sc_case c;
  sc_run(spec, costs, &c);
  sc_expect("idle time", spec, costs, most_idle(&c.result), want);
  sc_free(&c);
}

// Idle at F = I (pairs may save time), and with the pair as the sum for F >= I.
static void dualpipe(void **state) {
  (void)state;
  for (int p = 2; p <= 8; p += 2)
    for (int m = 2 * p; m <= 3 * p; m += 2)
      for (int k = 0; k < COSTS * COSTS * COSTS; k++) {
        const double f = cost[k % COSTS], i = cost[k / COSTS % COSTS], w = cost[k / COSTS / COSTS], b = i + w;
        const tr_schedule_spec spec = {.name = "dualpipe", .p = p, .m = m};
        if (f >= i && w <= i)
          expect_idle(&spec, &(sc_costs){.f = f, .b = i, .w = w}, (p / 2.0 - 1) * (f + b + f - 2 * w));
        if (f == i && w == f)
          expect_idle(&spec, &(sc_costs){.f = f, .b = i, .w = w, .pair = 2.5 * f},
                      (p / 2.0 - 1) * (2.5 * f + b - 3 * w));
      }
  for (int p = 1; p <= 6; p++)
    for (int m = 2 * p; m <= 2 * p + 3; m++)
      for (int k = 0; k < COSTS; k++) {
        const double f = cost[k];
        expect_idle(&(tr_schedule_spec){.name = "dualpipev", .p = p, .m = m}, &(sc_costs){.f = f, .b = f, .w = f},
                    (p - 1) * (3 * f + 2 * f - 3 * f));
      }
}

// "Idle" in DeepSeek-V3's table at F = I = W = 1, and what it costs in memory.
static void the_table_of_deepseek(void **state) {
  (void)state;
  static const struct {
    const char *name;
    double idle[2];
  } row[] = {{"1f1b", {9, 21}}, {"zb_h1", {3, 7}}, {"dualpipe", {2, 6}}};
  for (int k = 0; k < 3; k++)
    for (int n = 0; n < 2; n++) {
      const int p = n ? 8 : 4;
      const tr_schedule_spec spec = {.name = row[k].name, .p = p, .m = 20};
      const sc_costs costs = {.f = 1, .b = 1, .w = 1};
      sc_case c;
      sc_run(&spec, &costs, &c);
      sc_expect("the idle span", &spec, &costs, sc_units(c.result.span_idle), row[k].idle[n]);
      for (int r = 0; r < p && k == 2; r++) assert_int_equal(c.result.rank[r].peak_w, p + 1);
      sc_free(&c);
    }
}

// ---- what holds for all

static const tr_schedule_spec every[] = {
    {"gpipe", 4, 8, 0, 0},       {"gpipe_lifo", 3, 5, 0, 0}, {"1f1b", 4, 8, 0, 0},
    {"1f1b", 4, 2, 0, 0},        {"1f1b_eager", 4, 6, 0, 0}, {"interleaved", 4, 8, 2, 0},
    {"interleaved", 2, 4, 4, 0}, {"looped_bfs", 3, 4, 2, 0}, {"zb_h1", 4, 8, 0, 0},
    {"zb_h2", 4, 8, 0, 0},       {"zb_e1", 4, 6, 0, 0},      {"interleaved_zb", 4, 8, 2, 0},
    {"zbv", 4, 8, 0, 0},         {"zbv", 3, 4, 0, 0},        {"dualpipe", 4, 8, 0, 0},
    {"dualpipev", 3, 7, 0, 0}};
enum { EVERY = sizeof every / sizeof *every };

// One rank: the work, no messages.
static void one_rank(void **state) {
  (void)state;
  for (int k = 0; k < EVERY; k++) {
    tr_schedule_spec spec = every[k];
    const sc_costs costs = {.f = 1, .b = 2, .w = 0.5, .latency = 3};
    if (strcmp(spec.name, "dualpipe") == 0 || strcmp(spec.name, "zb_e1") == 0) continue; // need two ranks or more
    spec.p = 1;
    sc_case c;
    sc_run(&spec, &costs, &c);
    sc_expect("the makespan", &spec, &costs, sc_units(c.result.makespan), 3.5 * c.schedule.S * spec.m);
    assert_int_equal(c.result.messages, 0);
    sc_free(&c);
  }
}

static int64_t price(const tr_schedule *s, int64_t stage[][TR_OP_KIND_COUNT], int64_t wait, int64_t occupancy) {
  const tr_sim_costs costs = {
      .nstage = s->S, .stage = (const int64_t(*)[TR_OP_KIND_COUNT])stage, .latency = wait, .occupancy = occupancy};
  tr_sim_result result;
  if (tr_sim_schedule(s, &costs, &result) < 0) fail_msg("%s", tr_status_text());
  const int64_t makespan = result.makespan;
  tr_sim_result_destroy(&result);
  return makespan;
}

// Raises each cost of each stage by itself, and the latency.
static void no_cost_makes_it_shorter(void **state) {
  (void)state;
  static int64_t stage[16][TR_OP_KIND_COUNT];
  static const tr_op_kind kinds[] = {TR_OP_F, TR_OP_B, TR_OP_I, TR_OP_W};
  for (int k = 0; k < EVERY; k++) {
    tr_schedule s;
    assert_int_equal(tr_schedule_build(&every[k], &s), TR_OK);
    for (int i = 0; i < s.S; i++) {
      memset(stage[i], 0, sizeof stage[i]);
      stage[i][TR_OP_F] = 5 + i % 3, stage[i][TR_OP_I] = 6 + i % 2, stage[i][TR_OP_W] = 4 + i % 4;
      stage[i][TR_OP_B] = 11 + i % 5, stage[i][TR_OP_X] = -1;
    }
    const int64_t before = price(&s, stage, 2, 0);
    assert_true(price(&s, stage, 3, 0) >= before);
    for (int i = 0; i < s.S; i++)
      for (int n = 0; n < 4; n++) {
        stage[i][kinds[n]] += 3;
        assert_true(price(&s, stage, 2, 0) >= before);
        stage[i][kinds[n]] -= 3;
      }
    tr_schedule_destroy(&s);
  }
}

// No rank is faster than its work, no micro-batch than its way; the parts of the result add up.
static void bounds_and_sums(void **state) {
  (void)state;
  for (int k = 0; k < EVERY; k++)
    for (int n = 0; n < LATENCIES; n++) {
      const sc_costs costs = {.f = 1, .b = 1.5, .w = 0.5, .latency = latency[n], .occupancy = n % 2 ? 0.25 : 0};
      sc_case c;
      sc_run(&every[k], &costs, &c);
      const tr_sim_result *r = &c.result;
      int64_t work = 0, covered = 0;
      assert_true(sc_units(r->makespan) >= 2.5 * c.schedule.S);
      for (int i = 0; i < r->p; i++) {
        const tr_sim_rank *rank = &r->rank[i];
        assert_true(rank->busy <= rank->last - rank->first && rank->last <= r->makespan && rank->first >= 0);
        assert_true(rank->wait_message >= 0 && rank->wait_message <= rank->last - rank->first - rank->busy);
        assert_true(rank->peak_i <= rank->peak_w);
        work += rank->busy;
      }
      assert_true(fabs(r->bubble - (1 - (double)work / (double)(r->p * r->makespan))) < 1e-12);
      // The critical path leaves no gap but messages.
      assert_true(r->ncritical > 0);
      for (uint32_t i = 0; i < r->ncritical; i++) {
        const tr_sim_event event = r->event[r->critical[2 * i]][r->critical[2 * i + 1]];
        const tr_op *op = &c.programs.program[r->critical[2 * i]]->op[r->critical[2 * i + 1]];
        if (i == 0) assert_int_equal(event.end, r->makespan);
        if (op->kind != TR_OP_SEND) covered += event.end - event.begin;
        if (i == r->ncritical - 1) assert_int_equal(event.begin, 0);
      }
      if (costs.occupancy == 0) assert_int_equal(covered, r->makespan);
      sc_free(&c);
    }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(naive_gpipe_and_1f1b),
      cmocka_unit_test(interleaved),
      cmocka_unit_test(zero_bubble),
      cmocka_unit_test(zero_bubble_family),
      cmocka_unit_test(zbv),
      cmocka_unit_test(dualpipe),
      cmocka_unit_test(the_table_of_deepseek),
      cmocka_unit_test(one_rank),
      cmocka_unit_test(no_cost_makes_it_shorter),
      cmocka_unit_test(bounds_and_sums),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
