// SPDX-License-Identifier: MIT
// tier: quick
// Alpha and beta come back from points that were made with them, exactly or with noise within the stated errors, and the
// plateau of a curve whose shape is known.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "trireme/comm/fit.h"
#include <math.h>

enum { POINTS = 28 };

static uint32_t noise_state;
static double noise(void) { // -1 .. 1, the same every time
  noise_state = noise_state * 1664525u + 1013904223u;
  return (double)(int32_t)noise_state * 0x1p-31;
}

// 8 B to 1 GiB.
static void make(double alpha, double beta, double spread, double *bytes, double *seconds) {
  for (int i = 0; i < POINTS; i++) {
    bytes[i] = ldexp(8, i);
    seconds[i] = (alpha + beta * bytes[i]) * (1 + spread * noise());
  }
}

static void near(double got, double wanted, double share) {
  if (!(fabs(got - wanted) <= share * fabs(wanted))) print_error("%.12g instead of %.12g\n", got, wanted);
  assert_true(fabs(got - wanted) <= share * fabs(wanted));
}

static void exact_points_give_their_line(void **state) {
  (void)state;
  static const double lines[][2] = {{3.6e-7, 1 / 12e9}, {50e-6, 1 / 12.5e6}, {2e-3, 1 / 1e6}, {1e-9, 1 / 1e12}};
  double bytes[POINTS], seconds[POINTS];
  for (size_t k = 0; k < sizeof lines / sizeof *lines; k++) {
    tr_fit fit;
    make(lines[k][0], lines[k][1], 0, bytes, seconds);
    assert_int_equal(tr_fit_line(bytes, seconds, POINTS, &fit), TR_OK);
    near(fit.alpha, lines[k][0], 1e-6);
    near(fit.beta, lines[k][1], 1e-6);
    assert_true(fit.residual < 1e-6);
    near(tr_fit_seconds(&fit, 1 << 20), lines[k][0] + lines[k][1] * (1 << 20), 1e-6);
  }
}

// A plain least-squares fit would see nothing of alpha beside a GiB.
static void noisy_points_give_their_line_within_its_errors(void **state) {
  (void)state;
  double bytes[POINTS], seconds[POINTS];
  int within = 0;
  noise_state = 1;
  for (int k = 0; k < 100; k++) {
    tr_fit fit;
    make(2e-6, 1 / 10e9, 0.1, bytes, seconds);
    assert_int_equal(tr_fit_line(bytes, seconds, POINTS, &fit), TR_OK);
    near(fit.alpha, 2e-6, 0.1);
    near(fit.beta, 1 / 10e9, 0.1);
    assert_true(fit.residual > 0.03 && fit.residual < 0.1); // 0.1 / sqrt 3, less what the fit takes away
    assert_true(fit.alpha_error > 0.005 * fit.alpha && fit.alpha_error < 0.1 * fit.alpha);
    assert_true(fit.beta_error > 0.005 * fit.beta && fit.beta_error < 0.1 * fit.beta);
    within += fabs(fit.alpha - 2e-6) < 2 * fit.alpha_error && fabs(fit.beta - 1e-10) < 2 * fit.beta_error;
  }
  assert_true(within > 60);
}

static void parameters_are_never_negative(void **state) {
  (void)state;
  const double bytes[] = {1, 2, 3}, steep[] = {1, 10, 100}, falling[] = {3, 2, 1}, flat[] = {2, 2, 2};
  tr_fit fit;
  assert_int_equal(tr_fit_line(bytes, steep, 3, &fit), TR_OK);
  assert_true(fit.alpha == 0 && fit.beta > 0 && fit.residual > 0.1);
  assert_int_equal(tr_fit_line(bytes, falling, 3, &fit), TR_OK);
  assert_true(fit.beta == 0 && fit.alpha > 1 && fit.alpha < 3);
  assert_int_equal(tr_fit_line(bytes, flat, 3, &fit), TR_OK);
  near(fit.alpha, 2, 1e-9);
  assert_true(fit.beta < 1e-9);
}

static void points_that_give_no_line_are_refused(void **state) {
  (void)state;
  const double bytes[] = {8, 16}, same[] = {8, 8}, seconds[] = {1, 2}, zero[] = {1, 0};
  tr_fit fit = {.n = 77};
  assert_int_equal(tr_fit_line(bytes, seconds, 1, &fit), TR_ERR_DATA);
  assert_int_equal(tr_fit_line(same, seconds, 2, &fit), TR_ERR_DATA);
  assert_int_equal(tr_fit_line(bytes, zero, 2, &fit), TR_ERR_DATA);
  assert_int_equal(fit.n, 77);
  assert_int_equal(tr_fit_line(bytes, seconds, 2, &fit), TR_OK);
  assert_true(fit.alpha_error == 0 && fit.beta_error == 0);
}

static void what_a_fit_is_worth(void **state) {
  (void)state;
  const struct {
    double alpha, beta, residual;
    tr_fit_worth worth;
  } table[] = {
      {1e-6, 1e-10, 0, TR_FIT_GOOD},    {1e-6, 1e-10, 0.25, TR_FIT_GOOD}, {1e-6, 1e-10, 0.3, TR_FIT_ROUGH},
      {1e-6, 1e-10, 0.51, TR_FIT_VOID}, {0, 1e-10, 0.1, TR_FIT_VOID},     {1e-6, 0, 0.1, TR_FIT_VOID},
      {1e-6, 1e-10, NAN, TR_FIT_VOID},
  };
  for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
    const tr_fit f = {.alpha = table[i].alpha, .beta = table[i].beta, .residual = table[i].residual};
    assert_int_equal(tr_fit_judge(&f), table[i].worth);
  }
}

// What a busy machine makes of a link: every second time is thirty times too long. A line through that is not believed.
static void times_of_a_busy_machine_are_no_line(void **state) {
  (void)state;
  double bytes[POINTS], seconds[POINTS];
  tr_fit fit;
  make(1e-6, 1e-10, 0, bytes, seconds);
  for (int i = 0; i < POINTS; i += 2) seconds[i] *= 30;
  assert_int_equal(tr_fit_line(bytes, seconds, POINTS, &fit), TR_OK);
  assert_int_equal(tr_fit_judge(&fit), TR_FIT_VOID);
}

static void plateau_of_a_known_curve(void **state) {
  (void)state;
  double bytes[POINTS + 1] = {0}, seconds[POINTS + 1] = {1}; // a point without bytes is no bandwidth
  tr_plateau p;
  make(1e-6, 1e-9, 0, bytes + 1, seconds + 1); // half of the rate at 1000 bytes, 90 % at 9000
  assert_int_equal(tr_plateau_find(bytes, seconds, POINTS + 1, &p), TR_OK);
  near(p.bandwidth, 1e9, 1e-3);
  assert_true(p.bytes == bytes[POINTS]);
  near(p.half, 1000, 0.02);
  assert_true(p.enough == 16384);
  assert_int_equal(tr_plateau_find(bytes, seconds, 1, &p), TR_ERR_DATA);
  // A cache's hill: the highest counts, though it is not the last.
  const double size[] = {1, 2, 4, 8}, time[] = {1, 1, 1, 4};
  assert_int_equal(tr_plateau_find(size, time, 4, &p), TR_OK);
  assert_true(p.bandwidth == 4 && p.bytes == 4 && p.half == 2 && p.enough == 4);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(exact_points_give_their_line),
      cmocka_unit_test(noisy_points_give_their_line_within_its_errors),
      cmocka_unit_test(parameters_are_never_negative),
      cmocka_unit_test(points_that_give_no_line_are_refused),
      cmocka_unit_test(what_a_fit_is_worth),
      cmocka_unit_test(times_of_a_busy_machine_are_no_line),
      cmocka_unit_test(plateau_of_a_known_curve),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
