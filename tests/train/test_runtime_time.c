// SPDX-License-Identifier: MIT
// tier: quick
// timeout: 60
// Proves what the planner makes of prices: every call of a piece counts once per micro-batch and pass, pieces that run again once
// more; sums over ranks by their elements, state by what a rank owns; terms add up to the step; pipelines take what the schedule says;
// and kinds that were not measured are refused by name.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "trireme/train/train.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PLACES = 4, KINDS = 32 };
enum { CALL, IN, OUT, WEIGHT, FLOP }; // terms

typedef struct settings {
  tr_train_config config;
  tr_options *options;
  tr_train_plan plan;
  tr_runtime_part part[PLACES];
  tr_runtime_plan runtime;
} settings;

// Of a model of two layers, 32 wide, in sequences of 16.
static void open_plan(settings *s, const char *const *argument) {
  static const char *const common[] = {"model.kind=gpt2", "model.layers=2",     "model.width=32",   "model.heads=2",
                                       "model.vocab=64",  "model.positions=16", "data.sequence=16", "run.threads=1"};
  memset(s, 0, sizeof *s);
  assert_int_equal(tr_train_config_open(&s->config, &s->options), TR_OK);
  for (size_t i = 0; i < sizeof common / sizeof *common; i++)
    assert_int_equal(tr_options_apply_argument(s->options, common[i]), TR_OK);
  for (; *argument; argument++)
    if (tr_options_apply_argument(s->options, *argument) < 0) fail_msg("%s: %s", *argument, tr_status_text());
  if (tr_train_plan_step(&s->config, s->options, &s->plan) < 0) fail_msg("%s", tr_status_text());
  tr_train_runtime(&s->plan, s->part, &s->runtime);
}

static void close_plan(settings *s) {
  tr_train_plan_destroy(&s->plan);
  tr_options_destroy(s->options);
}

// ---- prices

static const char *const piece_kind[] = {"embedding", "layernorm", "projection", "attention",
                                         "residual",  "gelu",      "head_loss"};
static const char *const state_kind[] = {"update", "pack", "norm", "step"};
enum { PIECE_KINDS = sizeof piece_kind / sizeof *piece_kind, STATE_KINDS = sizeof state_kind / sizeof *state_kind };

typedef struct prices {
  tr_kernel_rate row[KINDS];
  tr_kernel_rates rates;
} prices;

static tr_kernel_rate *add(prices *p, const char *kind, tr_kernel_pass pass, int ranks) {
  tr_kernel_rate *r = &p->row[p->rates.n++];
  *r = (tr_kernel_rate){.pass = pass, .type = TR_F32, .ranks = ranks, .threads = 1};
  strcpy(r->kind, kind);
  return r;
}

// All kinds, for nothing.
static void free_prices(prices *p) {
  memset(p, 0, sizeof *p);
  p->rates.row = p->row;
  for (int i = 0; i < PIECE_KINDS; i++)
    for (int pass = 0; pass < TR_KERNEL_PASSES; pass++) add(p, piece_kind[i], (tr_kernel_pass)pass, 1);
  for (int i = 0; i < STATE_KINDS; i++) add(p, state_kind[i], TR_KERNEL_FORWARD, 1);
}

static void set(prices *p, const char *kind, int pass, int term, double price) { // pass -1: all; kind NULL: of pieces
  for (size_t i = 0; i < p->rates.n; i++) {
    int is = 0;
    for (int k = 0; k < PIECE_KINDS && !kind; k++) is |= strcmp(p->row[i].kind, piece_kind[k]) == 0;
    if ((kind ? strcmp(p->row[i].kind, kind) == 0 : is) && (pass < 0 || p->row[i].pass == (tr_kernel_pass)pass))
      p->row[i].price[term] = price;
  }
}

// Messages take next to no time.
static double time_of(const settings *s, const prices *p, double term[TR_TERM_COUNT]) {
  const tr_cluster here = {.hosts = 1,
                           .host_devices = 2,
                           .domain = 2,
                           .device = {.link_gbs = 1e9, .link_fused = 1, .link_domain = 2, .fit = {.link = 1}}};
  double step, sum = 0;
  if (tr_runtime_time(&s->runtime, &p->rates, &here, term, &step) < 0) fail_msg("%s", tr_status_text());
  for (int i = 0; i < TR_TERM_COUNT; i++) sum += term[i];
  assert_true(fabs(sum - step) <= 1e-9 * step);
  return step;
}

static void expect_near(double value, double wanted) {
  if (fabs(value - wanted) > 1e-6 * wanted) fail_msg("%.12g, not %.12g", value, wanted);
}

// ---- one rank

static void calls_count_once_per_pass(void **state) {
  (void)state;
  const char *const argument[] = {"batch.micro=2", "batch.sequences=6", NULL};
  settings s;
  prices p;
  double term[TR_TERM_COUNT];
  open_plan(&s, argument);
  const int pieces = tr_model_pieces(s.plan.model);
  free_prices(&p);
  assert_true(time_of(&s, &p, term) == 0);
  set(&p, NULL, TR_KERNEL_FORWARD, CALL, 1e-3);
  expect_near(time_of(&s, &p, term), 3 * pieces * 1e-3); // three micro-batches
  expect_near(term[TR_TERM_COMPUTE], 3 * pieces * 1e-3);
  set(&p, NULL, TR_KERNEL_BACKWARD, CALL, 5e-3);
  expect_near(time_of(&s, &p, term), 3 * pieces * 6e-3);
  // Elements: two layers of two norms, and one behind them, each over two sequences of 16 x 32.
  free_prices(&p);
  set(&p, "layernorm", TR_KERNEL_BACKWARD, IN, 1e-6);
  expect_near(time_of(&s, &p, term), 3 * 5 * (2 * 16 * 32) * 1e-6);
  free_prices(&p);
  set(&p, "update", -1, OUT, 1e-6);
  expect_near(time_of(&s, &p, term), (double)s.part->layout->total * 1e-6);
  expect_near(term[TR_TERM_OPTIMIZER], (double)s.part->layout->total * 1e-6);
  close_plan(&s);
}

static void what_runs_again_counts_again(void **state) {
  (void)state;
  const char *const argument[] = {"batch.micro=1", "batch.sequences=4", "memory.recompute=full", NULL};
  settings s;
  prices p;
  double term[TR_TERM_COUNT];
  int again = 0;
  open_plan(&s, argument);
  const tr_value_options options = {.type = TR_F32, .rows = 16, .whole = 1, .recompute = TR_RECOMPUTE_FULL};
  tr_value_plan values;
  assert_int_equal(tr_value_plan_make(s.plan.model, &options, &values), TR_OK);
  for (int i = 0; i < tr_model_pieces(s.plan.model); i++) again += values.again[i] != 0;
  tr_value_plan_free(&values);
  assert_true(again > 0 && again % 2 == 0);
  free_prices(&p);
  set(&p, NULL, TR_KERNEL_FORWARD, CALL, 1e-3);
  time_of(&s, &p, term);
  expect_near(term[TR_TERM_COMPUTE], 4 * tr_model_pieces(s.plan.model) * 1e-3);
  expect_near(term[TR_TERM_RECOMPUTE], 4 * again / 2 * 1e-3); // the last layer keeps everything
  close_plan(&s);
}

// ---- several ranks

static void ranks_sum_what_they_have_and_update_their_part(void **state) {
  (void)state;
  const char *const argument[] = {"batch.micro=1", "batch.sequences=2", "run.ranks=2", NULL};
  settings s;
  prices p;
  double term[TR_TERM_COUNT];
  open_plan(&s, argument);
  const double total = (double)s.part->layout->total;
  free_prices(&p);
  set(&p, "step", -1, OUT, 1e-6);
  expect_near(time_of(&s, &p, term), total * 1e-6);
  expect_near(term[TR_TERM_GRADS], total * 1e-6);
  free_prices(&p);
  set(&p, "update", -1, OUT, 1e-6);
  const double part = time_of(&s, &p, term) / (total * 1e-6);
  assert_true(part > 0.25 && part < 1); // one of two owns whole blocks of 8192
  close_plan(&s);
}

static double pipeline(const char *schedule, const prices *p, double term[TR_TERM_COUNT]) {
  char order[64];
  snprintf(order, sizeof order, "parallel.schedule=%s", schedule);
  const char *const argument[] = {
      "batch.micro=1", "batch.sequences=8", "run.ranks=2", "parallel.pp=2", "parallel.stages=1,1", order, NULL};
  settings s;
  open_plan(&s, argument);
  const double step = time_of(&s, p, term);
  close_plan(&s);
  return step;
}

// A layer takes 10 ms forward and 20 ms backward on either rank, and nothing else takes time.
static void pipelines_take_what_their_schedule_says(void **state) {
  (void)state;
  prices p;
  double term[TR_TERM_COUNT];
  free_prices(&p);
  set(&p, "attention", TR_KERNEL_FORWARD, CALL, 10e-3);
  set(&p, "attention", TR_KERNEL_BACKWARD, CALL, 20e-3);
  for (int i = 0; i < 2; i++) {
    expect_near(pipeline(i ? "1f1b" : "gpipe", &p, term), (8 + 1) * 30e-3);
    expect_near(term[TR_TERM_COMPUTE], 8 * 30e-3);
    expect_near(term[TR_TERM_BUBBLE], 30e-3);
  }
  // Products have halves: those for weights fill in what the other waits for.
  free_prices(&p);
  set(&p, "projection", TR_KERNEL_FORWARD, CALL, 10e-3);
  set(&p, "projection", TR_KERNEL_BACKWARD, CALL, 20e-3);
  const double plain = pipeline("1f1b", &p, term), bubble = term[TR_TERM_BUBBLE];
  const double split = pipeline("zb_h1", &p, term);
  assert_true(split < plain && term[TR_TERM_BUBBLE] < 0.7 * bubble);
  // The embedding has only what is for weights, which nobody waits for until the end: one of eight, behind the last pass.
  free_prices(&p);
  set(&p, "embedding", TR_KERNEL_BACKWARD, CALL, 20e-3);
  expect_near(pipeline("zb_h1", &p, term), 8 * 20e-3);
}

// ---- refusals

static void kinds_that_were_not_measured_are_named(void **state) {
  (void)state;
  const char *const argument[] = {"batch.micro=1", "batch.sequences=1", NULL};
  const tr_cluster here = {.hosts = 1, .host_devices = 1};
  settings s;
  prices p;
  double term[TR_TERM_COUNT], step;
  open_plan(&s, argument);
  free_prices(&p);
  for (size_t i = 0; i < p.rates.n; i++) {
    char kind[TR_KERNEL_KIND];
    prices other = p;
    other.rates.row = other.row;
    strcpy(kind, p.row[i].kind);
    strcpy(other.row[i].kind, "another");
    assert_int_equal(tr_runtime_time(&s.runtime, &other.rates, &here, term, &step), TR_ERR_PLAN);
    if (!strstr(tr_status_text(), kind)) fail_msg("'%s' is not in: %s", kind, tr_status_text());
  }
  s.runtime.type = TR_BF16;
  assert_int_equal(tr_runtime_time(&s.runtime, &p.rates, &here, term, &step), TR_ERR_PLAN);
  assert_non_null(strstr(tr_status_text(), "bf16, 1 rank x 1 thread"));
  s.runtime.type = TR_F32;
  close_plan(&s);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(calls_count_once_per_pass),
                                     cmocka_unit_test(what_runs_again_counts_again),
                                     cmocka_unit_test(ranks_sum_what_they_have_and_update_their_part),
                                     cmocka_unit_test(pipelines_take_what_their_schedule_says),
                                     cmocka_unit_test(kinds_that_were_not_measured_are_named)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
