// SPDX-License-Identifier: MIT
// tier: quick
// Proves of plans with pipelines: the parts of all places have every piece of the model once (twice where stages have copies), and
// every parameter; balanced stages are the best of all cuts; those who sum gradients are numbered without gaps, whatever the map;
// costs that are known give the textbook's makespans through the plan's real programs; batch.micro=auto leaves a pipeline enough
// micro-batches that its schedule can do.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "train/timing_internal.h"
#include <stdlib.h>
#include <string.h>

typedef struct job {
  tr_train_config config;
  tr_options *options;
  tr_train_plan plan;
} job;

// Settings in one text, a blank between.
static tr_status plan_of(job *j, const char *settings) {
  char text[1024], *save = NULL;
  snprintf(
      text, sizeof text,
      "data.sequence=16 model.vocab=64 model.width=16 model.heads=2 batch.micro=1 train.folder=/nowhere/at/all %s",
      settings);
  *j = (job){.options = NULL};
  assert_int_equal(tr_train_config_open(&j->config, &j->options), TR_OK);
  for (char *word = strtok_r(text, " ", &save); word; word = strtok_r(NULL, " ", &save))
    assert_int_equal(tr_options_apply_argument(j->options, word), TR_OK);
  return tr_train_plan_step(&j->config, j->options, &j->plan);
}

static void open_job(job *j, const char *settings) {
  if (plan_of(j, settings) != TR_OK) fail_msg("%s: %s", settings, tr_status_text());
}

static void close_job(job *j) {
  tr_train_plan_destroy(&j->plan);
  tr_options_destroy(j->options);
}

// ---- parts

static void check_pieces(const tr_train_plan *plan, int copies) {
  int npiece = tr_model_pieces(plan->model), *count = calloc((size_t)npiece, sizeof *count);
  assert_non_null(count);
  for (int r = 0; r < plan->mesh.degree[TR_AXIS_PP]; r++) {
    const tr_model *part = plan->part[r].model;
    assert_true(tr_model_whole(part) == plan->model);
    for (int i = 0; i < tr_model_pieces(part); i++) count[tr_model_piece(part, i)->index]++;
  }
  for (int i = 0; i < npiece; i++) assert_int_equal(count[i], copies);
  free(count);
}

static void check_params(const tr_train_plan *plan) {
  for (int i = 0; i < tr_model_params(plan->model); i++) {
    int64_t elements = -1;
    for (int r = 0; r < plan->mesh.degree[TR_AXIS_PP]; r++)
      for (int k = 0; k < plan->part[r].layout.nparam; k++)
        if (tr_model_whole_param(plan->part[r].model, k) == i) elements = plan->part[r].layout.param_count[k];
    assert_int_equal(elements, tr_shape_count(&tr_model_param(plan->model, i)->shape));
  }
}

static void parts_make_the_model(void **unused) {
  (void)unused;
  static const char *const schedule[] = {"gpipe", "1f1b", "interleaved",    "looped_bfs", "zb_h1",
                                         "zb_h2", "zbv",  "interleaved_zb", "dualpipe",   "dualpipev"};
  for (size_t i = 0; i < sizeof schedule / sizeof *schedule; i++)
    for (int tied = 0; tied < 2; tied++) {
      char settings[200];
      job j;
      snprintf(settings, sizeof settings,
               "run.ranks=4 parallel.pp=4 model.layers=8 batch.sequences=8 parallel.schedule=%s model.tied=%s",
               schedule[i], tied ? "true" : "false");
      open_job(&j, settings);
      int layers = 0;
      for (int s = 0; s < j.plan.schedule.S; s++) layers += j.plan.stage_layers[s];
      assert_int_equal(layers, 8);
      check_pieces(&j.plan, strcmp(schedule[i], "dualpipe") == 0 ? 2 : 1);
      check_params(&j.plan);
      close_job(&j);
    }
}

// ---- balanced stages

// FLOPs of the largest stage where each rank has one.
static double largest_stage(const tr_train_plan *plan) {
  double most = 0;
  for (int r = 0; r < plan->schedule.p; r++) {
    double flops = 0;
    for (int i = 0; i < tr_model_pieces(plan->part[r].model); i++) {
      const tr_piece *piece = tr_model_piece(plan->part[r].model, i);
      if (piece->ops->flops) flops += piece->ops->flops(piece, plan->config->data.sequence);
    }
    most = fmax(most, flops);
  }
  return most;
}

// Against every cut of six layers into three stages, given one by one.
static void no_cut_has_a_smaller_largest_stage(void **unused) {
  (void)unused;
  static const int vocab[] = {16, 300, 1000, 4000};
  for (size_t v = 0; v < sizeof vocab / sizeof *vocab; v++) {
    char settings[200];
    job balanced, given;
    int best = 0;
    snprintf(settings, sizeof settings, "run.ranks=3 parallel.pp=3 model.layers=6 batch.sequences=8 model.vocab=%d",
             vocab[v]);
    open_job(&balanced, settings);
    for (int a = 0; a <= 6; a++)
      for (int b = 1; a + b <= 6; b++) {
        char text[300];
        snprintf(text, sizeof text, "%s parallel.stages=%d,%d,%d", settings, a, b, 6 - a - b);
        open_job(&given, text);
        assert_true(largest_stage(&balanced.plan) <= largest_stage(&given.plan));
        best |= memcmp(balanced.plan.stage_layers, given.plan.stage_layers, 3 * sizeof(int)) == 0;
        close_job(&given);
      }
    assert_true(best);
    close_job(&balanced);
  }
}

// ---- who sums gradients

static void check_places(const tr_train_plan *plan) {
  const int ranks = (int)plan->config->run.ranks, pp = plan->mesh.degree[TR_AXIS_PP];
  for (int side = 0; side < pp; side++) {
    int seen[64] = {0}, n = 0;
    for (int rank = 0; rank < ranks; rank++) {
      if (tr__plan_side(plan, tr_mesh_coordinate(&plan->mesh, rank, TR_AXIS_PP)) != side) continue;
      int place = tr_train_gradient_place(plan, rank);
      assert_in_range(place, 0, plan->step.dp - 1);
      assert_int_equal(seen[place]++, 0);
      n++;
    }
    assert_true(n == 0 || n == plan->step.dp);
  }
}

static void those_who_sum_are_numbered(void **unused) {
  (void)unused;
  static const char *const map[] = {"tp,cp,dp,pp", "pp,dp,cp,tp", "dp,tp,pp,cp"};
  static const char *const schedule[] = {"1f1b", "dualpipe", "zbv"};
  for (int m = 0; m < 3; m++)
    for (int s = 0; s < 3; s++) {
      char settings[200];
      job j;
      snprintf(settings, sizeof settings,
               "run.ranks=12 parallel.pp=4 model.layers=8 batch.sequences=24 parallel.schedule=%s parallel.map=%s",
               schedule[s], map[m]);
      open_job(&j, settings);
      assert_int_equal(j.plan.mesh.degree[TR_AXIS_DP], 3);
      assert_int_equal(j.plan.step.dp, s == 1 ? 6 : 3);
      check_places(&j.plan);
      // Tied embeddings: at both ends of a line, in one place of a fold; never between places with the same stages.
      int param = 0;
      while (strcmp(tr_model_param(j.plan.part[0].model, param)->name, "transformer.wte.weight") != 0) param++;
      assert_int_equal(tr__plan_ties(&j.plan, 0, param), s == 0);
      close_job(&j);
    }
}

// ---- costs

enum { UNIT = 1000000 };

// Operations that make up one pass.
static int ops_of_pass(const tr_program *program, const tr_op *op) {
  int n = 0;
  for (uint32_t i = 0; i < program->nop; i++) {
    const tr_op *o = &program->op[i];
    n += o->kind == op->kind && o->stage == op->stage && o->microbatch == op->microbatch;
  }
  return n;
}

static void add_costs(tr__costs *costs, const tr_train_plan *plan, const int64_t *units) {
  for (int r = 0; r < plan->schedule.p; r++)
    for (uint32_t i = 0; i < plan->part[r].program.nop; i++) {
      const tr_op *op = &plan->part[r].program.op[i];
      int64_t ns = op->kind <= TR_OP_W ? units[op->kind] * UNIT / ops_of_pass(&plan->part[r].program, op) : 0;
      tr__costs_add(costs, r, i, ns, ns / 2);
    }
}

static void known_costs_give_known_times(void **unused) {
  (void)unused;
  static const struct {
    const char *schedule;
    int64_t units[TR_OP_W + 1], makespan;
  } rows[] = {{"1f1b", {[TR_OP_F] = 1, [TR_OP_B] = 2}, 33},
              {"gpipe", {[TR_OP_F] = 1, [TR_OP_B] = 2}, 33},
              {"zb_h1", {[TR_OP_F] = 1, [TR_OP_I] = 1, [TR_OP_W] = 1}, 27},
              {"zb_h2", {[TR_OP_F] = 1, [TR_OP_I] = 1, [TR_OP_W] = 1}, 27},
              {"interleaved", {[TR_OP_F] = 1, [TR_OP_B] = 2}, 57},
              {"zbv", {[TR_OP_F] = 1, [TR_OP_I] = 1, [TR_OP_W] = 1}, 51}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    char settings[200];
    job j;
    tr__costs costs;
    tr_sim_result result;
    int64_t kernels;
    snprintf(settings, sizeof settings,
             "run.ranks=4 parallel.pp=4 model.layers=8 batch.sequences=8 parallel.schedule=%s", rows[i].schedule);
    open_job(&j, settings);
    assert_int_equal(tr__costs_open(&j.plan, &costs), TR_OK);
    add_costs(&costs, &j.plan, rows[i].units);
    assert_int_equal(tr__costs_simulate(&costs, &result), TR_OK);
    assert_in_range(result.makespan, rows[i].makespan * UNIT - 1000, rows[i].makespan * UNIT);
    assert_int_equal(tr__costs_kernels(&costs, &kernels), TR_OK);
    assert_in_range(kernels, rows[i].makespan * UNIT / 2 - 1000, rows[i].makespan * UNIT / 2);
    tr_sim_result_destroy(&result);
    tr__costs_close(&costs);
    close_job(&j);
  }
}

// Rank 3 updates the longest: it begins when rank 0, which ends its passes last, has summed its squares.
static void updates_begin_when_all_ranks_have_met(void **unused) {
  (void)unused;
  static const int64_t units[TR_OP_W + 1] = {[TR_OP_F] = 1, [TR_OP_B] = 2};
  job j;
  tr__costs costs;
  tr_sim_result result;
  open_job(&j, "run.ranks=4 parallel.pp=4 model.layers=8 batch.sequences=8");
  assert_int_equal(tr__costs_open(&j.plan, &costs), TR_OK);
  add_costs(&costs, &j.plan, units);
  for (int r = 0; r < 4; r++) {
    const tr_program *program = &j.plan.part[r].program;
    for (uint32_t i = 0; i < program->nop; i++)
      if (program->op[i].kind == TR_OP_NORM) tr__costs_add(&costs, r, i, (r == 3 ? 10 : 2) * UNIT, 0);
  }
  assert_int_equal(tr__costs_simulate(&costs, &result), TR_OK);
  // add_costs has given NORM a first cost of 0, so that its mean is half.
  assert_in_range(result.makespan, (33 + 5) * UNIT - 1000, (33 + 5) * UNIT);
  double work = 4 * 24 + 5 + 3 * 1;
  assert_true(result.bubble > 1 - work / (4 * 38) - 1e-3 && result.bubble < 1 - work / (4 * 38) + 1e-3);
  tr_sim_result_destroy(&result);
  tr__costs_close(&costs);
  close_job(&j);
}

static uint32_t first_of(const tr_program *program, tr_op_kind kind) {
  uint32_t i = 0;
  while (i < program->nop && program->op[i].kind != kind) i++;
  assert_true(i < program->nop);
  return i;
}

// Passes cost their mean, what waits for others the least.
static void classes_have_a_mean_or_the_least(void **unused) {
  (void)unused;
  job j;
  tr__costs costs;
  open_job(&j, "run.ranks=2 parallel.pp=2 model.layers=2 batch.sequences=8");
  const tr_program *program = &j.plan.part[0].program;
  const uint32_t f = first_of(program, TR_OP_F), send = first_of(program, TR_OP_SEND),
                 reduce = first_of(program, TR_OP_REDUCE);
  assert_int_equal(tr__costs_open(&j.plan, &costs), TR_OK);
  static const int64_t times[] = {700, 200, 600};
  for (int i = 0; i < 3; i++) {
    tr__costs_add(&costs, 0, f, times[i], 0);
    tr__costs_add(&costs, 0, send, times[i], 0);
    tr__costs_add(&costs, 0, reduce, times[i], 0);
  }
  assert_int_equal(tr__costs_of(&costs, 0, f), 500);
  assert_int_equal(tr__costs_of(&costs, 0, send), 200);
  assert_int_equal(tr__costs_of(&costs, 0, reduce), 200);
  assert_int_equal(tr__costs_of(&costs, 1, first_of(&j.plan.part[1].program, TR_OP_F)), 0); // never seen
  tr__costs_close(&costs);
  close_job(&j);
}

// ---- batch.micro=auto

static void a_pipeline_has_enough_micro_batches(void **unused) {
  (void)unused;
  static const struct {
    const char *settings;
    int micro, accumulation;
  } rows[] = {{"run.ranks=4 parallel.pp=4 batch.sequences=64", 4, 16}, // four for each rank
              {"run.ranks=4 parallel.pp=4 batch.sequences=8", 1, 8},   // there are no more
              {"run.ranks=4 parallel.pp=2 batch.sequences=64", 4, 8},  // half of the batch each
              {"run.ranks=1 batch.sequences=64", 64, 1},               // no pipeline: all at once
              {"run.ranks=4 parallel.pp=4 batch.sequences=60 parallel.schedule=interleaved", 3, 20}, // divisible by 4
              {"run.ranks=2 parallel.pp=2 batch.sequences=30 parallel.schedule=dualpipe", 3, 10},    // even
              {"run.ranks=2 parallel.pp=2 batch.sequences=16 parallel.schedule=naive", 2, 8}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    char settings[200];
    job j;
    snprintf(settings, sizeof settings, "model.layers=8 %s batch.micro=auto", rows[i].settings);
    open_job(&j, settings);
    if (j.plan.micro != rows[i].micro || j.plan.accumulation != rows[i].accumulation)
      fail_msg("%s: %d x %d", rows[i].settings, j.plan.micro, j.plan.accumulation);
    close_job(&j);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(parts_make_the_model),
      cmocka_unit_test(no_cut_has_a_smaller_largest_stage),
      cmocka_unit_test(those_who_sum_are_numbered),
      cmocka_unit_test(known_costs_give_known_times),
      cmocka_unit_test(updates_begin_when_all_ranks_have_met),
      cmocka_unit_test(classes_have_a_mean_or_the_least),
      cmocka_unit_test(a_pipeline_has_enough_micro_batches),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
