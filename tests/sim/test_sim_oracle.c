// SPDX-License-Identifier: MIT
// tier: quick
// timeout: 120
// The figures on record: every row of pipeline-oracles.csv, and the tables of unequal costs, overlapped pairs, slow stages, links
// that fill up, one stream, buffers, and ends of the gradients, all exactly.
#include "sim/sim_case.h"

// ---- the file

typedef struct oracle {
  char name[32], peaks[128];
  int p, m, v;
  double f, b, w, latency, makespan, bubble;
} oracle;

static int read_oracle(const char *line, oracle *o) {
  return sscanf(line, "%31[^,],%d,%d,%d,%lf,%lf,%lf,%lf,%lf,%lf,%127s", o->name, &o->p, &o->m, &o->v, &o->f, &o->b,
                &o->w, &o->latency, &o->makespan, &o->bubble, o->peaks) == 11;
}

static void check_oracle(const oracle *o) {
  const tr_schedule_spec spec = {.name = o->name, .p = o->p, .m = o->m, .v = o->v};
  const sc_costs costs = {.f = o->f, .b = o->b, .w = o->w, .latency = o->latency};
  char peaks[128] = "";
  sc_case c;
  sc_run(&spec, &costs, &c);
  sc_expect("the makespan", &spec, &costs, sc_units(c.result.makespan), o->makespan);
  if (fabs(c.result.bubble - o->bubble) > 0.6e-6) sc_expect("the bubble", &spec, &costs, c.result.bubble, o->bubble);
  for (int r = 0; r < o->p; r++) sprintf(peaks + strlen(peaks), "%s%d", r ? ";" : "", c.result.rank[r].peak_w);
  assert_string_equal(peaks, o->peaks);
  sc_free(&c);
}

static void all_rows_of_the_file(void **state) {
  (void)state;
  FILE *file = fopen(TRIREME_TEST_DATA "/pipeline/pipeline-oracles.csv", "r");
  char line[512];
  int rows = 0;
  oracle o;
  assert_non_null(file);
  assert_non_null(fgets(line, sizeof line, file));
  for (; fgets(line, sizeof line, file); rows++) {
    assert_true(read_oracle(line, &o));
    check_oracle(&o);
  }
  fclose(file);
  assert_int_equal(rows, 350);
}

// ---- tables

// Makespan and largest idle span, costs per chunk; 1f1b takes I + W as B.
static void unequal_costs(void **state) {
  (void)state;
  static const char *const name[] = {"1f1b", "zb_h1", "zb_h2", "zbv", "interleaved_zb", "dualpipe", "dualpipev"};
  static const struct {
    double f, i, w;
    int p, m;
    int want[7][2];
  } row[] = {
      {2, 2, 1, 4, 8, {{55, 15}, {49, 9}, {46, 6}, {86, 6}, {89, 9}, {45, 5}, {95, 15}}},
      {2, 3, 2, 4, 8, {{77, 21}, {65, 9}, {62, 3}, {121, 6}, {121, 9}, {61, 5}, {128, 16}}},
      {3, 2, 2, 4, 8, {{77, 21}, {65, 9}, {65, 3}, {123, 6}, {121, 9}, {62, 6}, {130, 18}}},
      {1, 2, 1, 4, 8, {{44, 12}, {38, 6}, {35, 3}, {70, 6}, {70, 6}, {35, 3}, {75, 11}}},
      {1, 1, 2, 4, 8, {{44, 12}, {35, 3}, {35, 0}, {69, 2}, {67, 3}, {34, 2}, {70, 6}}},
      {2, 2, 1, 8, 16, {{115, 35}, {101, 21}, {94, 14}, {174, 14}, {181, 21}, {95, 15}, {195, 35}}},
      {2, 3, 2, 8, 16, {{161, 49}, {133, 21}, {126, 7}, {245, 14}, {245, 21}, {128, 16}, {264, 40}}},
      {1, 2, 1, 8, 16, {{92, 28}, {78, 14}, {71, 7}, {142, 14}, {142, 14}, {75, 11}, {155, 27}}},
  };
  for (size_t k = 0; k < sizeof row / sizeof *row; k++)
    for (int n = 0; n < 7; n++) {
      const tr_schedule_spec spec = {.name = name[n], .p = row[k].p, .m = row[k].m, .v = n == 4 ? 2 : 0};
      const sc_costs costs = {.f = row[k].f, .b = row[k].i, .w = row[k].w};
      sc_case c;
      sc_run(&spec, &costs, &c);
      sc_expect("the makespan", &spec, &costs, sc_units(c.result.makespan), row[k].want[n][0]);
      sc_expect("the idle span", &spec, &costs, sc_units(c.result.span_idle), row[k].want[n][1]);
      sc_free(&c);
    }
}

static void idle_of_ranks(const tr_sim_result *r, double *idle) {
  for (int i = 0; i < r->p; i++) idle[i] = sc_units(r->makespan - r->rank[i].busy);
}

static void pairs_cheaper_than_their_sum(void **state) {
  (void)state;
  static const struct {
    const char *name;
    int p, m;
    double makespan;
  } row[] = {{"dualpipe", 4, 8, 24},
             {"dualpipe", 8, 16, 49},
             {"dualpipe", 8, 20, 59},
             {"dualpipev", 4, 8, 49},
             {"dualpipev", 8, 16, 99}};
  static const double want[8] = {3.5, 4, 4.5, 4.5, 4.5, 4.5, 4, 3.5};
  const sc_costs costs = {.f = 1, .b = 1, .w = 1, .pair = 2.5};
  for (size_t k = 0; k < sizeof row / sizeof *row; k++) {
    const tr_schedule_spec spec = {.name = row[k].name, .p = row[k].p, .m = row[k].m};
    double idle[8];
    sc_case c;
    sc_run(&spec, &costs, &c);
    sc_expect("the makespan", &spec, &costs, sc_units(c.result.makespan), row[k].makespan);
    idle_of_ranks(&c.result, idle);
    for (int r = 0; r < c.result.p && k < 2; r++)
      sc_expect("idle time", &spec, &costs, idle[r], k == 0 ? 1.5 : want[r]);
    sc_free(&c);
  }
}

static void slow_stages(void **state) {
  (void)state;
  static const double uneven[] = {1.25, 1, 1, 1.5}, slow_end[] = {1, 1, 1, 1.5};
  static const struct {
    const char *name;
    const double *slow;
    double b, w, makespan;
  } row[] = {{"gpipe", uneven, 2, 0, 45.75}, {"1f1b", uneven, 2, 0, 45.75}, {"zb_h1", uneven, 1, 1, 39.25},
             {"zb_h2", uneven, 1, 1, 39.25}, {"gpipe", slow_end, 2, 0, 45}, {"1f1b", slow_end, 2, 0, 45}};
  for (size_t k = 0; k < sizeof row / sizeof *row; k++) {
    const tr_schedule_spec spec = {.name = row[k].name, .p = 4, .m = 8};
    const sc_costs costs = {.f = 1, .b = row[k].b, .w = row[k].w};
    sc_case c;
    sc_run_scaled(&spec, &costs, row[k].slow, &c);
    sc_expect("the makespan", &spec, &costs, sc_units(c.result.makespan), row[k].makespan);
    sc_free(&c);
  }
}

typedef struct figure {
  tr_schedule_spec spec;
  sc_costs costs;
  double makespan;
} figure;

// A link that carries one message at a time only matters where two leave at the same instant.
static void links_that_fill_up(void **state) {
  (void)state;
#define CASE(name, chunks, f, b, w, link, makespan)                                                                  \
  { {name, 4, 8, chunks, 0}, {f, b, w, 0, 0, link, 0}, makespan }
  static const figure row[] = {
      CASE("gpipe", 0, 1, 2, 0, 0.5, 36),
      CASE("gpipe", 0, 1, 2, 0, 1, 39),
      CASE("1f1b", 0, 1, 2, 0, 0.5, 41),
      CASE("1f1b", 0, 1, 2, 0, 1, 49),
      CASE("1f1b_eager", 0, 1, 2, 0, 1, 39),
      CASE("interleaved", 2, 0.5, 1, 0, 0.5, 35.5),
      CASE("interleaved", 2, 0.5, 1, 0, 1, 46),
      CASE("zb_h1", 0, 1, 1, 1, 0.5, 33),
      CASE("zb_h2", 0, 1, 1, 1, 1, 30),
      CASE("zbv", 0, 0.5, 0.5, 0.5, 0.5, 32.5),
      CASE("zbv", 0, 0.5, 0.5, 0.5, 1, 41.5),
      CASE("interleaved_zb", 2, 0.5, 0.5, 0.5, 1, 51),
      CASE("dualpipe", 0, 1, 1, 1, 0.5, 31.5),
      CASE("dualpipe", 0, 1, 1, 1, 1, 37),
      CASE("dualpipev", 0, 0.5, 0.5, 0.5, 0.5, 41),
      CASE("dualpipev", 0, 0.5, 0.5, 0.5, 1, 55.5),
  };
  for (size_t k = 0; k < sizeof row / sizeof *row; k++)
    sc_expect("the makespan", &row[k].spec, &row[k].costs, sc_makespan(&row[k].spec, &row[k].costs), row[k].makespan);
}

// Messages that queue behind others of the same rank.
static void one_stream(void **state) {
  (void)state;
  static const struct {
    tr_schedule_spec spec;
    sc_costs costs;
    double ideal, stream;
  } row[] = {{{"interleaved", 4, 8, 2, 0}, {1, 2, 0, 0, 0, 0, 0}, 57, 67},
             {{"interleaved", 8, 16, 2, 0}, {1, 2, 0, 0, 0, 0, 0}, 117, 168},
             {{"zbv", 4, 8, 0, 0}, {1, 1, 1, 0, 0, 0, 0}, 51, 55},
             {{"dualpipe", 8, 16, 0, 0}, {1, 1, 1, 0, 0, 0, 0}, 54, 64},
             {{"dualpipev", 4, 8, 0, 0}, {1, 1, 1, 0, 0, 0, 0}, 54, 69},
             {{"gpipe", 4, 8, 0, 0}, {1, 2, 0, 0, 0.5, 0, 0}, 36, 50}};
  for (size_t k = 0; k < sizeof row / sizeof *row; k++) {
    sc_costs costs = row[k].costs;
    sc_expect("the makespan", &row[k].spec, &costs, sc_makespan(&row[k].spec, &costs), row[k].ideal);
    costs.one_stream = 1;
    sc_expect("the makespan of one stream", &row[k].spec, &costs, sc_makespan(&row[k].spec, &costs), row[k].stream);
  }
}

static void peaks_when_inputs_gradients_free(void **state) {
  (void)state;
  static const struct {
    const char *name;
    int v, want[4];
  } row[] = {{"zb_h1", 0, {4, 3, 2, 1}},    {"zb_h2", 0, {7, 5, 3, 1}},    {"interleaved_zb", 2, {8, 7, 6, 5}},
             {"gpipe", 0, {8, 8, 8, 8}},    {"1f1b", 0, {4, 3, 2, 1}},     {"zbv", 0, {8, 8, 8, 8}},
             {"dualpipe", 0, {5, 5, 5, 5}}, {"dualpipev", 0, {9, 9, 9, 9}}};
  for (size_t k = 0; k < sizeof row / sizeof *row; k++) {
    const tr_schedule_spec spec = {.name = row[k].name, .p = 4, .m = 8, .v = row[k].v};
    const sc_costs costs = {.f = 1, .b = 1, .w = 1};
    sc_case c;
    sc_run(&spec, &costs, &c);
    for (int r = 0; r < 4; r++) assert_int_equal(c.result.rank[r].peak_i, row[k].want[r]);
    sc_free(&c);
  }
}

// Messages of a step, and how many wait for their reader at most.
static void messages(void **state) {
  (void)state;
  static const struct {
    const char *name;
    int p, m, v, messages, parked;
  } row[] = {{"gpipe", 4, 8, 0, 48, 1},        {"1f1b", 4, 8, 0, 48, 2},         {"zb_h1", 4, 8, 0, 48, 2},
             {"interleaved", 4, 8, 2, 112, 4}, {"interleaved", 4, 8, 4, 240, 4}, {"zbv", 4, 8, 0, 96, 3},
             {"dualpipe", 4, 8, 0, 48, 2},     {"dualpipe", 8, 16, 0, 224, 4},   {"1f1b", 1, 8, 0, 0, 0}};
  for (size_t k = 0; k < sizeof row / sizeof *row; k++) {
    const tr_schedule_spec spec = {.name = row[k].name, .p = row[k].p, .m = row[k].m, .v = row[k].v};
    const sc_costs costs = {.f = 1, .b = 1, .w = 1};
    int parked = 0;
    sc_case c;
    sc_run(&spec, &costs, &c);
    sc_expect("the number of messages", &spec, &costs, (double)c.result.messages, row[k].messages);
    for (int r = 0; r < c.result.p; r++)
      if (c.result.rank[r].parked > parked) parked = c.result.rank[r].parked;
    sc_expect("the number of parked messages", &spec, &costs, parked, row[k].parked);
    sc_free(&c);
  }
}

// When the last weight gradient of each rank, or of each of its chunks, is there.
static void ends_of_gradients(void **state) {
  (void)state;
  static const struct {
    tr_schedule_spec spec;
    sc_costs costs;
    double want[8]; // by stage
  } row[] = {{{"1f1b", 4, 8, 0, 0}, {1, 2, 0, 0, 0, 0, 0}, {33, 31, 29, 27}},
             {{"interleaved", 4, 8, 2, 0}, {0.5, 1, 0, 0, 0, 0, 0}, {28.5, 27.5, 26.5, 25.5, 24.5, 23.5, 22.5, 21.5}},
             {{"zb_h1", 4, 8, 0, 0}, {1, 1, 1, 0, 0, 0, 0}, {27, 27, 27, 27}},
             {{"zb_h2", 4, 8, 0, 0}, {1, 1, 1, 0, 0, 0, 0}, {24, 25, 26, 27}},
             {{"zbv", 4, 8, 0, 0}, {0.5, 0.5, 0.5, 0, 0, 0, 0}, {24, 24.5, 25, 25.5, 24, 24, 24, 20}},
             {{"dualpipe", 4, 8, 0, 0}, {1, 1, 1, 0, 0, 0, 0}, {26, 26, 25, 22}}};
  for (size_t k = 0; k < sizeof row / sizeof *row; k++) {
    double end[8] = {0};
    sc_case c;
    sc_run(&row[k].spec, &row[k].costs, &c);
    for (int r = 0; r < c.result.p; r++)
      for (uint32_t i = 0; i < c.programs.program[r]->nop; i++) {
        const tr_op *op = &c.programs.program[r]->op[i];
        const int stage = op->kind == TR_OP_X ? op->back_stage : op->stage;
        const int weights = op->kind == TR_OP_B || op->kind == TR_OP_W || op->kind == TR_OP_X;
        if (weights) end[stage] = fmax(end[stage], sc_units(c.result.event[r][i].end));
        if (op->kind == TR_OP_REDUCE) assert_true(sc_units(c.result.event[r][i].begin) <= row[k].want[op->stage]);
      }
    for (int s = 0; s < c.schedule.S; s++)
      sc_expect("the end of a stage", &row[k].spec, &row[k].costs, end[s], row[k].want[s]);
    sc_free(&c);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(all_rows_of_the_file),
      cmocka_unit_test(unequal_costs),
      cmocka_unit_test(pairs_cheaper_than_their_sum),
      cmocka_unit_test(slow_stages),
      cmocka_unit_test(links_that_fill_up),
      cmocka_unit_test(one_stream),
      cmocka_unit_test(peaks_when_inputs_gradients_free),
      cmocka_unit_test(messages),
      cmocka_unit_test(ends_of_gradients),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
