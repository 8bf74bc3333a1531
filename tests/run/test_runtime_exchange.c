// SPDX-License-Identifier: MIT
// tier: quick
// timeout: 60
// Proves that pieces that exchange take their time from the links: waited for where nothing stands beside them, and in pairs of a forward
// and a backward pass beside the other half; and that ranks without peers exchange nothing.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "run/exchange_model.h"
#include "trireme/plan/runtime.h"
#include "trireme/run/run.h"
#include "trireme/step/schedule.h"
#include <math.h>
#include <string.h>

enum { LAYERS = 2, WIDTH = 32, VOCAB = 64, POSITIONS = 16, M = 8, PASSES = 2 * M, SWAPS = 2 * LAYERS };
enum { ALONE = 2 * PASSES - 2 * (2 * M - 3) }; // passes of a stage that have no partner
static const double product = 1e-3;            // seconds, and twice as much backward

typedef struct step {
  tr_model *whole, *part;
  tr_layout layout;
  tr_schedule schedule;
  tr_run_step_model numbers;
  tr_program program;
} step;

// A rank with the whole model in the two stages of dualpipev, whose passes come in pairs.
static void open_step(step *s, int pairs) {
  const ex_config config = {
      .layers = LAYERS, .width = WIDTH, .hidden = WIDTH, .vocab = VOCAB, .positions = POSITIONS, .rows = POSITIONS};
  int cut[8], n;
  tr_model_boundary boundary[2];
  memset(s, 0, sizeof *s);
  assert_int_equal(ex_model(&config, &s->whole), TR_OK);
  n = tr_model_cuts(s->whole, cut, 8);
  assert_true(n == LAYERS + 1);
  const int range[] = {0, cut[1], cut[1], tr_model_pieces(s->whole)};
  assert_int_equal(tr_model_part(s->whole, range, 2, boundary, &s->part), TR_OK);
  assert_int_equal(tr_layout_build(s->part, &s->layout), TR_OK);
  assert_int_equal(tr_schedule_build(&(tr_schedule_spec){.name = "dualpipev", .p = 1, .m = M}, &s->schedule), TR_OK);
  assert_int_equal(tr_run_step_model_make(s->part, &s->layout, &s->numbers), TR_OK);
  if (!pairs) s->numbers.model.ncomm = 0;
  const tr_step_options options = {.microbatches = M, .dp = 2};
  assert_int_equal(
      tr_program_build_pipeline(&s->schedule, 0, &s->numbers.model, s->numbers.chunk_piece, &options, &s->program),
      TR_OK);
}

static void close_step(step *s) {
  tr_program_destroy(&s->program);
  tr_run_step_model_free(&s->numbers);
  tr_schedule_destroy(&s->schedule);
  tr_layout_destroy(&s->layout);
  tr_model_destroy(s->part);
  tr_model_destroy(s->whole);
}

// Only products have a price; an exchange takes `exchange` seconds.
static double time_of(const step *s, int dp, double exchange, double term[TR_TERM_COUNT]) {
  static const char *const kind[] = {"embedding", "rmsnorm", "projection", "gelu", "residual",
                                     "head_loss", "update",  "pack",       "norm", "step"};
  enum { KINDS = sizeof kind / sizeof *kind };
  tr_kernel_rate row[2 * KINDS];
  memset(row, 0, sizeof row);
  for (int i = 0; i < 2 * KINDS; i++) {
    row[i] = (tr_kernel_rate){.pass = (tr_kernel_pass)(i % 2), .type = TR_F32, .ranks = 2, .threads = 1};
    strcpy(row[i].kind, kind[i / 2]);
    if (strcmp(row[i].kind, "projection") == 0)
      row[i].price[0] = product * (row[i].pass == TR_KERNEL_BACKWARD ? 2 : 1);
  }
  const tr_kernel_rates rates = {.row = row, .n = 2 * KINDS};
  const double bytes = POSITIONS * WIDTH * sizeof(float) / 2.0; // to the other rank
  const tr_cluster here = {.hosts = 1,
                           .host_devices = 2,
                           .domain = 2,
                           .device = {.link_gbs = bytes / exchange / 1e9, .link_domain = 2, .fit = {.link = 1}}};
  const tr_runtime_part part = {s->part, &s->layout, &s->program};
  const tr_runtime_plan plan = {.part = &part,
                                .pp = 1,
                                .dp = dp,
                                .share = 1,
                                .ranks = 2,
                                .threads = 1,
                                .rows = POSITIONS,
                                .sequence = POSITIONS,
                                .type = TR_F32};
  double sum = 0, whole;
  if (tr_runtime_time(&plan, &rates, &here, term, &whole) < 0) fail_msg("%s", tr_status_text());
  for (int i = 0; i < TR_TERM_COUNT; i++) sum += term[i];
  assert_true(fabs(sum - whole) <= 1e-9 * whole);
  return whole;
}

static void near_to(double value, double wanted) {
  if (fabs(value - wanted) > 1e-6 * (wanted + 1e-3)) fail_msg("%.9g, not %.9g", value, wanted);
}

static void exchanges_take_their_time(void **state) {
  (void)state;
  const double hidden = product * 0.9, seen = product * 50, work = M * LAYERS * 3 * 3 * product;
  double term[TR_TERM_COUNT];
  step apart, pairs;
  open_step(&apart, 0);
  open_step(&pairs, 1);
  // Without pairs all are waited for: two in each layer, each way.
  near_to(time_of(&apart, 2, hidden, term), work + PASSES * SWAPS * hidden);
  near_to(term[TR_TERM_EP], PASSES * SWAPS * hidden);
  near_to(term[TR_TERM_COMPUTE], work);
  // In pairs they are beside products that take longer; the first and the last passes have no partner.
  near_to(time_of(&pairs, 2, hidden, term), work + 2 * ALONE * hidden);
  near_to(term[TR_TERM_EP], 2 * ALONE * hidden);
  // Links that are much slower than products are all that is seen.
  (void)time_of(&pairs, 2, seen, term);
  assert_true(term[TR_TERM_EP] > 0.8 * PASSES * SWAPS * seen - work);
  near_to(time_of(&pairs, 1, seen, term), work);
  near_to(term[TR_TERM_EP], 0);
  close_step(&apart);
  close_step(&pairs);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(exchanges_take_their_time)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
