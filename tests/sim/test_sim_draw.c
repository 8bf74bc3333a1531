// SPDX-License-Identifier: MIT
// tier: quick
// The drawings: text character by character, SVG and trace by what is in them.
#include "sim/sim_case.h"
#include <jansson.h>

static char *text_of(const tr_schedule_spec *spec, const sc_costs *costs, int64_t tick) {
  tr_text out = {0};
  sc_case c;
  sc_run(spec, costs, &c);
  tr_sim_draw_text(c.programs.program, &c.result, tick, &out);
  assert_false(out.failed);
  sc_free(&c);
  return out.data;
}

static void expect_text(const char *name, int p, int m, const sc_costs *costs, int64_t tick, const char *want) {
  char *got = text_of(&(tr_schedule_spec){.name = name, .p = p, .m = m}, costs, tick);
  assert_string_equal(got, want);
  free(got);
}

static void gpipe_and_1f1b(void **state) {
  (void)state;
  const sc_costs costs = {.f = 1, .b = 2};
  expect_text("gpipe", 4, 8, &costs, SC_TICKS,
              "GPU0 |01234567.........aabbccddeeffgghh|\n"
              "GPU1 |.01234567......aabbccddeeffgghh..|\n"
              "GPU2 |..01234567...aabbccddeeffgghh....|\n"
              "GPU3 |...01234567aabbccddeeffgghh......|\n");
  expect_text("1f1b", 4, 8, &costs, SC_TICKS,
              "GPU0 |0123......aa4bb5cc6dd7ee.ff.gg.hh|\n"
              "GPU1 |.012....aa3bb4cc5dd6ee7ff.gg.hh..|\n"
              "GPU2 |..01..aa2bb3cc4dd5ee6ff7gg.hh....|\n"
              "GPU3 |...0aa1bb2cc3dd4ee5ff6gg7hh......|\n");
}

static void split_passes_and_pairs(void **state) {
  (void)state;
  const sc_costs costs = {.f = 1, .b = 1, .w = 1};
  expect_text("zb_h1", 4, 8, &costs, SC_TICKS,
              "GPU0 |0123...aA4bB5cC6dD7eEfFgGhH|\n"
              "GPU1 |.012..a3bA4cB5dC6eD7fEgFhGH|\n"
              "GPU2 |..01.a2b3cA4dB5eC6fD7gEhFGH|\n"
              "GPU3 |...0a1b2c3dA4eB5fC6gD7hEFGH|\n");
  // X takes three characters: both micro-batches in turn.
  char *got = text_of(&(tr_schedule_spec){.name = "dualpipe", .p = 4, .m = 8}, &costs, SC_TICKS);
  assert_non_null(strstr(got, "GPU0 |0124eE53f3"));
  free(got);
}

// The labels of ten ranks and more end at one column; digits and letters begin again.
static void many_ranks_and_micro_batches(void **state) {
  (void)state;
  char *got = text_of(&(tr_schedule_spec){.name = "1f1b", .p = 11, .m = 30}, &(sc_costs){.f = 1, .b = 2}, SC_TICKS);
  assert_non_null(strstr(got, "GPU0  |01234567890."));
  assert_non_null(strstr(got, "GPU10 |..........0aa1bb2cc3dd4ee5ff6gg7hh8ii9jj0kk1ll"));
  assert_non_null(strstr(got, "6aa7bb8cc9dd.....")); // 26, 27, ...
  free(got);
}

// A character shows what runs in the middle of its ticks.
static void coarse_and_fine_ticks(void **state) {
  (void)state;
  const sc_costs costs = {.f = 1, .b = 2, .latency = 0.5};
  expect_text("gpipe", 2, 2, &costs, SC_TICKS / 2,
              "GPU0 |0011........aaaabbbb|\n"
              "GPU1 |...0011aaaabbbb.....|\n");
  expect_text("gpipe", 2, 2, &costs, 2 * SC_TICKS,
              "GPU0 |1..ab|\n"
              "GPU1 |.1ab.|\n");
}

// ---- SVG

static int count(const char *text, const char *what) {
  int n = 0;
  for (const char *at = text; (at = strstr(at, what)) != NULL; at += strlen(what)) n++;
  return n;
}

static void svg(void **state) {
  (void)state;
  tr_text out = {0};
  sc_case c;
  sc_run(&(tr_schedule_spec){.name = "dualpipe", .p = 4, .m = 8}, &(sc_costs){.f = 1, .b = 1, .w = 1}, &c);
  tr_sim_draw_svg(c.programs.program, &c.result, "a < b & c", SC_TICKS, "s", &out);
  int pairs = 0, passes = 0, path = 0;
  for (int r = 0; r < 4; r++)
    for (uint32_t i = 0; i < c.programs.program[r]->nop; i++) {
      pairs += c.programs.program[r]->op[i].kind == TR_OP_X;
      passes += c.programs.program[r]->op[i].kind <= TR_OP_X;
    }
  for (uint32_t k = 0; k < c.result.ncritical; k++)
    path += c.programs.program[c.result.critical[2 * k]]->op[c.result.critical[2 * k + 1]].lane == TR_LANE_COMPUTE;
  assert_int_equal(count(out.data, "class=\"box X"), pairs + 1); // one in the legend
  assert_int_equal(count(out.data, "class=\"box "), passes + 6);
  assert_int_equal(count(out.data, "class=\"critical\""), path);
  assert_int_equal(count(out.data, "class=\"idle\""), 4);
  assert_true(count(out.data, ">6+0<") >= 1); // of rank 0: F6 beside B0
  assert_int_equal(count(out.data, "<title>a &#60; b &#38; c</title>"), 1);
  assert_true(count(out.data, ">GPU3<") == 1 && count(out.data, ">20 s<") == 1 && count(out.data, ">30 s<") == 0);
  assert_string_equal(out.data + out.size - 7, "</svg>\n");
  tr_text_free(&out);
  sc_free(&c);
}

// ---- the trace

static json_t *events_of(sc_case *c, const tr_sim_trace *trace) {
  tr_text out = {0};
  json_error_t error;
  tr_sim_draw_trace(c->programs.program, &c->result, trace, &out);
  json_t *root = json_loads(out.data, 0, &error);
  if (!root) fail_msg("line %d: %s", error.line, error.text);
  tr_text_free(&out);
  return root;
}

static double number(const json_t *event, const char *key) { return json_number_value(json_object_get(event, key)); }

// Slices lie where the events are; each arrow has both ends, in the order of time; what is alive comes back to nothing.
static void trace(void **state) {
  (void)state;
  sc_case c;
  sc_run(&(tr_schedule_spec){.name = "zbv", .p = 4, .m = 8}, &(sc_costs){.f = 1, .b = 1, .w = 1, .latency = 0.5}, &c);
  const tr_sim_trace style = {.ns = 500, .begin_ns = 2000, .pid_base = 10, .label = "predicted"};
  json_t *root = events_of(&c, &style), *event, *starts = json_object();
  double busy[4] = {0}, alive[4] = {0}, peak[4] = {0};
  int arrows = 0, ends = 0;
  size_t at;
  json_array_foreach(json_object_get(root, "traceEvents"), at, event) {
    const char *phase = json_string_value(json_object_get(event, "ph")), *id;
    const int rank = (int)number(event, "pid") - 10;
    assert_in_range(rank, 0, 3);
    if (strcmp(phase, "X") == 0 && number(event, "tid") == 1) {
      busy[rank] += number(event, "dur");
      assert_true(number(event, "ts") >= 2);
    }
    if (strcmp(phase, "C") == 0) {
      alive[rank] = number(json_object_get(event, "args"), "chunks");
      peak[rank] = fmax(peak[rank], alive[rank]);
    }
    if (*phase == 's' || *phase == 'f') {
      id = json_string_value(json_object_get(event, "id"));
      arrows += *phase == 's', ends += *phase == 'f';
      const json_t *other = json_object_get(starts, id);
      if (other) {
        const double from = *phase == 's' ? number(event, "ts") : number(other, "ts");
        const double to = *phase == 's' ? number(other, "ts") : number(event, "ts");
        assert_true(to >= from + 0.5 * SC_TICKS * 0.5 - 1e-9);
      }
      json_object_set(starts, id, event);
    }
  }
  assert_true(arrows == (int)c.result.messages && ends == arrows && (int)json_object_size(starts) == arrows);
  for (int r = 0; r < 4; r++) {
    assert_true(fabs(busy[r] - (double)c.result.rank[r].busy * 0.5) < 1e-6);
    assert_true(alive[r] == 0 && peak[r] == c.result.rank[r].peak_w);
  }
  json_decref(starts);
  json_decref(root);
  sc_free(&c);
}

static void a_trace_of_one_rank(void **state) {
  (void)state;
  sc_case c;
  sc_run(&(tr_schedule_spec){.name = "1f1b", .p = 1, .m = 2}, &(sc_costs){.f = 1, .b = 2}, &c);
  json_t *root = events_of(&c, &(tr_sim_trace){.ns = 1, .label = ""});
  assert_true(json_array_size(json_object_get(root, "traceEvents")) > 4);
  json_decref(root);
  sc_free(&c);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(gpipe_and_1f1b),
      cmocka_unit_test(split_passes_and_pairs),
      cmocka_unit_test(many_ranks_and_micro_batches),
      cmocka_unit_test(coarse_and_fine_ticks),
      cmocka_unit_test(svg),
      cmocka_unit_test(trace),
      cmocka_unit_test(a_trace_of_one_rank),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
