// SPDX-License-Identifier: MIT
// tier: quick
// timeout: 60
// The reference optimizer steps follow their formulas over ten steps: AdamW with bias correction and
// decoupled decay, SGD plain, with momentum, with Nesterov momentum and decay, the first step's momentum
// being the gradient itself. The expected values are computed here, in double and in the words of the papers,
// on state kept in double.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kernel/kernel_conformance.h"

enum { N = 13, STEPS = 10 };

static tr_compute compute;

static int setup(void **state) {
  (void)state;
  return tr_compute_open(tr_kernels_reference(), NULL, NULL, &compute) == TR_OK ? 0 : -1;
}

static void gradient_of_step(int step, float g[N]) { random_fill(TR_F32, g, N, 100 + (uint64_t)step, 1, 0.2f); }

// State is f32 in the kernel and double here, so ten roundings may come between them.
static void assert_near(const float *got, const double *expected) {
  for (int i = 0; i < N; i++) {
    if (!(fabs((double)got[i] - expected[i]) <= 2e-6 * fmax(1, fabs(expected[i]))))
      fail_msg("element %d is %.9g, expected %.9g", i, (double)got[i], expected[i]);
  }
}

static void adamw_follows_the_formula_for_ten_steps(void **state) {
  (void)state;
  const double lr = 0.01f, beta1 = 0.9f, beta2 = 0.95f, eps = 1e-8f, decay = 0.1f, scale = 0.25f;
  float w[N], m[N] = {0}, v[N] = {0}, g[N];
  double w_exact[N], m_exact[N] = {0}, v_exact[N] = {0};
  random_fill(TR_F32, w, N, 1, 1, 0);
  for (int i = 0; i < N; i++) w_exact[i] = (double)w[i];
  for (int t = 1; t <= STEPS; t++) {
    gradient_of_step(t, g);
    tr_adamw p = {0.01f, 0.9f, 0.95f, 1e-8f, 0.1f, 0, 0, 0.25f};
    p.bias1 = (float)(1 - pow(beta1, t));
    p.bias2 = (float)(1 - pow(beta2, t));
    compute.kernels->adamw(&compute, N, &p, w, g, m, v, TR_F32, NULL);
    for (int i = 0; i < N; i++) {
      double gradient = scale * (double)g[i];
      m_exact[i] = beta1 * m_exact[i] + (1 - beta1) * gradient;
      v_exact[i] = beta2 * v_exact[i] + (1 - beta2) * gradient * gradient;
      double m_hat = m_exact[i] / (1 - pow(beta1, t)), v_hat = v_exact[i] / (1 - pow(beta2, t));
      w_exact[i] -= lr * decay * w_exact[i] + lr * m_hat / (sqrt(v_hat) + eps);
    }
    assert_near(w, w_exact);
    assert_near(m, m_exact);
    assert_near(v, v_exact);
  }
}

// Without decay, the first step moves every weight by the learning rate against the sign of its gradient.
static void adamw_first_step_has_the_size_of_the_learning_rate(void **state) {
  (void)state;
  float w[2] = {1, 1}, g[2] = {3e-3f, -40}, m[2] = {0}, v[2] = {0};
  tr_adamw p = {0.125f, 0.9f, 0.999f, 0, 0, 1 - 0.9f, 1 - 0.999f, 1};
  compute.kernels->adamw(&compute, 2, &p, w, g, m, v, TR_F32, NULL);
  expect_near((double)w[0], 0.875, 1e-6);
  expect_near((double)w[1], 1.125, 1e-6);
}

static void check_sgd(float momentum, int nesterov, float decay) {
  float w[N], buffer[N], g[N];
  double w_exact[N], buffer_exact[N];
  random_fill(TR_F32, w, N, 1, 1, 0);
  for (int i = 0; i < N; i++) {
    w_exact[i] = (double)w[i];
    buffer[i] = NAN; // the first step must not read it
  }
  for (int t = 0; t < STEPS; t++) {
    gradient_of_step(t, g);
    tr_sgd p = {0.05f, momentum, decay, 0.5f, nesterov, t == 0};
    compute.kernels->sgd(&compute, N, &p, w, g, momentum > 0 ? buffer : NULL, TR_F32, NULL);
    for (int i = 0; i < N; i++) {
      double gradient = 0.5 * (double)g[i] + (double)decay * w_exact[i];
      buffer_exact[i] = t == 0 ? gradient : (double)momentum * buffer_exact[i] + gradient;
      if (momentum == 0) buffer_exact[i] = gradient;
      w_exact[i] -= (double)0.05f * (nesterov ? gradient + (double)momentum * buffer_exact[i] : buffer_exact[i]);
    }
    assert_near(w, w_exact);
    if (momentum > 0) assert_near(buffer, buffer_exact);
  }
}

static void sgd_without_momentum_needs_no_buffer(void **state) {
  (void)state;
  check_sgd(0, 0, 0);
  check_sgd(0, 0, 0.1f);
}

static void sgd_with_momentum_follows_the_formula_for_ten_steps(void **state) {
  (void)state;
  check_sgd(0.9f, 0, 0);
  check_sgd(0.9f, 0, 0.1f);
}

static void sgd_with_nesterov_momentum_follows_the_formula_for_ten_steps(void **state) {
  (void)state;
  check_sgd(0.9f, 1, 0);
  check_sgd(0.9f, 1, 0.1f);
}

static void sum_squares_is_exact_for_small_integers(void **state) {
  (void)state;
  float x[100];
  for (int i = 0; i < 100; i++) x[i] = (float)(i - 50);
  double sum[4];
  compute.kernels->sum_squares(&compute, 100, 100, x, sum);
  assert_true(sum[0] == 83350);
  compute.kernels->sum_squares(&compute, 100, 30, x, sum);
  assert_true(sum[0] + sum[1] + sum[2] + sum[3] == 83350 && sum[3] == 19885);
}

// In f32 the small ones would vanish beside the large one.
static void sum_squares_does_not_lose_small_elements(void **state) {
  (void)state;
  float x[1001];
  for (int i = 1; i < 1001; i++) x[i] = 1;
  x[0] = 0x1p20f;
  double sum;
  compute.kernels->sum_squares(&compute, 1001, 1001, x, &sum);
  assert_true(sum == 0x1p40 + 1000);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(adamw_follows_the_formula_for_ten_steps),
      cmocka_unit_test(adamw_first_step_has_the_size_of_the_learning_rate),
      cmocka_unit_test(sgd_without_momentum_needs_no_buffer),
      cmocka_unit_test(sgd_with_momentum_follows_the_formula_for_ten_steps),
      cmocka_unit_test(sgd_with_nesterov_momentum_follows_the_formula_for_ten_steps),
      cmocka_unit_test(sum_squares_is_exact_for_small_integers),
      cmocka_unit_test(sum_squares_does_not_lose_small_elements),
  };
  return cmocka_run_group_tests(tests, setup, NULL);
}
