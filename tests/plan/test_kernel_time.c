// SPDX-License-Identifier: MIT
// tier: quick
// timeout: 30
// Prices of kernels: what pieces have to do, against numbers by hand; the fit finds prices that made the measurements, never one below
// zero, and the best there are for measurements that no prices explain; between what was measured, ranks and threads do what is said.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "trireme/model/gpt2.h"
#include "trireme/plan/kernel_time.h"
#include <math.h>
#include <string.h>

// ---- work

static tr_kernel_work work_of(const tr_model *model, const char *kind, int64_t rows, int64_t sequence) {
  for (int i = 0; i < tr_model_pieces(model); i++)
    if (strcmp(tr_model_piece(model, i)->ops->kind, kind) == 0)
      return tr_piece_work(model, i, TR_F32, rows, sequence);
  fail_msg("no piece of kind %s", kind);
  return (tr_kernel_work){0};
}

static void pieces_have_the_work_of_their_ports(void **state) {
  (void)state;
  enum { WIDTH = 32, HEADS = 4, VOCAB = 100, ROWS = 24, SEQUENCE = 12 };
  tr_gpt2_config config;
  tr_model *model;
  tr_gpt2_config_init(&config);
  config.layers = 1, config.width = WIDTH, config.heads = HEADS, config.vocab = VOCAB, config.positions = SEQUENCE;
  assert_int_equal(tr_gpt2_create(&config, &model), TR_OK);
  const tr_kernel_work linear = work_of(model, "projection", ROWS, SEQUENCE); // the first: queries, keys and values
  assert_true(linear.in == ROWS * WIDTH && linear.out == ROWS * 3 * WIDTH);
  assert_true(linear.weights == 3 * WIDTH * WIDTH + 3 * WIDTH && linear.exps == 0 && linear.far == 0);
  assert_true(linear.flops == 2.0 * ROWS * 3 * WIDTH * WIDTH);
  // A query sees itself and what is before it: a score, a product of two rows and one more for the output.
  const tr_kernel_work attention = work_of(model, "attention", ROWS, SEQUENCE);
  const double scores = (double)ROWS / SEQUENCE * HEADS * SEQUENCE * (SEQUENCE + 1) / 2;
  assert_true(attention.exps == scores && attention.flops == scores * 4 * (WIDTH / HEADS));
  const tr_kernel_work head = work_of(model, "head_loss", ROWS, SEQUENCE);
  assert_true(head.exps == (double)ROWS * VOCAB && head.weights == (double)VOCAB * WIDTH);
  const tr_kernel_work rows = work_of(model, "embedding", 2, SEQUENCE); // two rows of each table are looked up
  assert_true(rows.weights == 2 * 2 * WIDTH && rows.in == 0 && rows.out == 2 * WIDTH);
  // 1 MiB is near, the rest far.
  const tr_kernel_work gelu = work_of(model, "gelu", 1 << 14, SEQUENCE);
  assert_true(gelu.far == gelu.in + gelu.out - (1 << 18));
  tr_model_destroy(model);
}

// ---- the fit

static double draw(uint64_t *random) {
  *random = *random * 6364136223846793005u + 1442695040888963407u;
  return (double)(*random >> 11) * 0x1p-53;
}

// Sizes over four decades, as products of small and large models have them.
static tr_kernel_work draw_work(uint64_t *random) {
  const double m = pow(10, 1 + 3 * draw(random)), n = pow(10, 1 + 3 * draw(random)),
               k = pow(10, 1 + 3 * draw(random));
  return (tr_kernel_work){.in = m * k, .out = m * n, .weights = n * k, .flops = 2 * m * n * k};
}

enum { SEEN = 60 };

static void prices_that_made_the_times_are_found(void **state) {
  (void)state;
  uint64_t random = 3;
  const tr_kernel_rate truth = {.price = {2e-6, 3e-10, 5e-10, 1e-10, 8e-12, 0, 0}};
  tr_kernel_work work[SEEN];
  double seconds[SEEN];
  for (int i = 0; i < SEEN; i++) {
    work[i] = draw_work(&random);
    seconds[i] = tr_kernel_seconds(&truth, &work[i]);
  }
  tr_kernel_rate found = {.kind = "linear"};
  assert_int_equal(tr_kernel_fit(work, seconds, NULL, SEEN, &found), TR_OK);
  assert_true(found.error < 1e-3);
  for (int i = 0; i < 200; i++) { // also of works that it has not seen
    const tr_kernel_work w = draw_work(&random);
    assert_true(fabs(tr_kernel_seconds(&found, &w) / tr_kernel_seconds(&truth, &w) - 1) < 5e-3);
  }
  assert_int_equal(tr_kernel_fit(work, seconds, NULL, 0, &found), TR_OK);
  assert_true(tr_kernel_seconds(&found, &work[0]) == 0);
}

static double squares(const tr_kernel_rate *rate, const tr_kernel_work *work, const double *seconds,
                      const double *scale) {
  double sum = 0;
  for (int i = 0; i < SEEN; i++) sum += pow((tr_kernel_seconds(rate, &work[i]) - seconds[i]) / scale[i], 2);
  return sum;
}

static void no_other_prices_are_better(void **state) {
  (void)state;
  uint64_t random = 11;
  tr_kernel_work work[SEEN];
  double seconds[SEEN], scale[SEEN];
  for (int i = 0; i < SEEN; i++) {
    work[i] = draw_work(&random);
    // A cost per element written that is below zero, which no price may be, and noise.
    seconds[i] = 1e-11 * work[i].flops * (0.7 + 0.6 * draw(&random)) - 1e-12 * work[i].out + 1e-6;
    scale[i] = i % 2 ? seconds[i] : 2 * seconds[i];
  }
  tr_kernel_rate found = {.kind = "linear"};
  assert_int_equal(tr_kernel_fit(work, seconds, scale, SEEN, &found), TR_OK);
  const double least = squares(&found, work, seconds, scale);
  for (int j = 0; j < TR_KERNEL_TERMS; j++) {
    assert_true(found.price[j] >= 0);
    const double step = found.price[j] > 0 ? 0.01 * found.price[j] : 1e-14;
    for (int sign = -1; sign < 2; sign += 2) {
      tr_kernel_rate other = found;
      other.price[j] += sign * step;
      if (other.price[j] >= 0) assert_true(squares(&other, work, seconds, scale) >= least * (1 - 1e-9));
    }
  }
}

// ---- ranks and threads

static tr_kernel_rate row(const char *kind, int ranks, int threads, double flop) {
  tr_kernel_rate r = {.type = TR_BF16, .ranks = ranks, .threads = threads};
  strcpy(r.kind, kind);
  r.price[4] = flop;
  return r;
}

static double seconds_of(const tr_kernel_rates *t, const char *kind, int ranks, int threads) {
  const tr_kernel_work work = {.flops = 1e9};
  return tr_kernel_rates_seconds(t, kind, TR_KERNEL_FORWARD, TR_BF16, ranks, threads, &work);
}

static void expect_near(double value, double wanted) {
  if (fabs(value - wanted) > 1e-9 * wanted) fail_msg("%.12g, not %.12g", value, wanted);
}

static void ranks_and_threads_lie_between_what_was_measured(void **state) {
  (void)state;
  tr_kernel_rate rows[] = {row("linear", 1, 1, 1e-9), row("linear", 5, 1, 2e-9), row("linear", 1, 4, 0.5e-9),
                           row("gelu", 1, 1, 3e-9)};
  const tr_kernel_rates t = {rows, sizeof rows / sizeof *rows};
  expect_near(seconds_of(&t, "linear", 1, 1), 1);
  expect_near(seconds_of(&t, "linear", 5, 1), 2);
  expect_near(seconds_of(&t, "linear", 1, 4), 0.5);
  expect_near(seconds_of(&t, "linear", 3, 1), 1.5); // half way from one rank to five
  expect_near(seconds_of(&t, "linear", 9, 1), 2);
  // Four threads gain 1.75 / 0.5 over one that has three others beside it; two gain the root of that over one with one.
  expect_near(seconds_of(&t, "linear", 1, 2), 1.25 * sqrt(0.5 / 1.75));
  expect_near(seconds_of(&t, "gelu", 4, 1), 3);
  assert_true(seconds_of(&t, "gelu", 1, 2) < 0 && seconds_of(&t, "swiglu", 1, 1) < 0);
  const tr_kernel_work work = {.flops = 1};
  assert_true(tr_kernel_rates_seconds(&t, "linear", TR_KERNEL_BACKWARD, TR_BF16, 1, 1, &work) < 0);
  assert_true(tr_kernel_rates_seconds(&t, "linear", TR_KERNEL_FORWARD, TR_F32, 1, 1, &work) < 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(pieces_have_the_work_of_their_ports),
                                     cmocka_unit_test(prices_that_made_the_times_are_found),
                                     cmocka_unit_test(no_other_prices_are_better),
                                     cmocka_unit_test(ranks_and_threads_lie_between_what_was_measured)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
