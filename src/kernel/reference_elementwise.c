// SPDX-License-Identifier: MIT
// Reference kernels that treat elements one by one: SwiGLU, GELU, residual with dropout, column sums, add, convert.
//
// Each element is read before its place is written, so the in-place forms that kernel.h allows work here too.
#include "kernel/reference_internal.h"

#include <math.h>

static const double SQRT_2_OVER_PI = 0.79788456080286535588;
static const double GELU_CUBIC = 0.044715;

void tr__reference_swiglu_forward(const tr_compute *c, int64_t rows, int64_t width, tr_dtype type, const void *x,
                                  void *y) {
  (void)c;
  for (int64_t r = 0; r < rows; r++) {
    for (int64_t j = 0; j < width; j++) {
      double gate = tr__get(type, x, 2 * r * width + j), up = tr__get(type, x, (2 * r + 1) * width + j);
      tr__put(type, y, r * width + j, gate / (1 + exp(-gate)) * up);
    }
  }
}

// With s = 1 / (1 + exp(-gate)): d silu / d gate = s + gate s (1 - s).
void tr__reference_swiglu_backward(const tr_compute *c, int64_t rows, int64_t width, tr_dtype type, const void *x,
                                   const void *dy, void *dx) {
  (void)c;
  for (int64_t r = 0; r < rows; r++) {
    for (int64_t j = 0; j < width; j++) {
      int64_t at_gate = 2 * r * width + j, at_up = at_gate + width;
      double gate = tr__get(type, x, at_gate), up = tr__get(type, x, at_up), dout = tr__get(type, dy, r * width + j);
      double s = 1 / (1 + exp(-gate));
      tr__put(type, dx, at_gate, dout * up * s * (1 + gate * (1 - s)));
      tr__put(type, dx, at_up, dout * gate * s);
    }
  }
}

double tr__gelu(double x) { return 0.5 * x * (1 + tanh(SQRT_2_OVER_PI * (x + GELU_CUBIC * x * x * x))); }

double tr__gelu_derivative(double x) {
  double t = tanh(SQRT_2_OVER_PI * (x + GELU_CUBIC * x * x * x));
  double dinner = SQRT_2_OVER_PI * (1 + 3 * GELU_CUBIC * x * x);
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * dinner;
}

void tr__reference_gelu_forward(const tr_compute *c, size_t n, tr_dtype type, const void *x, void *y) {
  (void)c;
  for (int64_t i = 0; i < (int64_t)n; i++) tr__put(type, y, i, tr__gelu(tr__get(type, x, i)));
}

void tr__reference_gelu_backward(const tr_compute *c, size_t n, tr_dtype type, const void *x, const void *dy,
                                 void *dx) {
  (void)c;
  for (int64_t i = 0; i < (int64_t)n; i++)
    tr__put(type, dx, i, tr__gelu_derivative(tr__get(type, x, i)) * tr__get(type, dy, i));
}

void tr__reference_residual_forward(const tr_compute *c, int64_t rows, int64_t width, tr_dtype type, const void *x,
                                    const void *y, const tr_dropout *dropout, void *out) {
  (void)c;
  for (int64_t r = 0; r < rows; r++) {
    for (int64_t j = 0; j < width; j++) {
      int64_t i = r * width + j;
      tr__put(type, out, i, tr__get(type, x, i) + tr__get(type, y, i) * tr__dropout_factor(dropout, r, j));
    }
  }
}

void tr__reference_dropout_backward(const tr_compute *c, int64_t rows, int64_t width, tr_dtype type,
                                    const tr_dropout *dropout, const void *dout, void *dy) {
  (void)c;
  for (int64_t r = 0; r < rows; r++) {
    for (int64_t j = 0; j < width; j++) {
      int64_t i = r * width + j;
      tr__put(type, dy, i, tr__get(type, dout, i) * tr__dropout_factor(dropout, r, j));
    }
  }
}

void tr__reference_column_sum(const tr_compute *c, int64_t rows, int64_t width, tr_dtype type, const void *dy,
                              void *out, int add) {
  (void)c;
  for (int64_t j = 0; j < width; j++) {
    double sum = 0;
    for (int64_t r = 0; r < rows; r++) sum += tr__get(type, dy, r * width + j);
    tr__put_add(tr_wide(type), out, j, sum, add);
  }
}

void tr__reference_add(const tr_compute *c, size_t n, tr_dtype type, const void *x, void *y) {
  (void)c;
  for (int64_t i = 0; i < (int64_t)n; i++) tr__put_add(type, y, i, tr__get(type, x, i), 1);
}

void tr__reference_convert(const tr_compute *c, size_t n, tr_dtype from, const void *x, tr_dtype to, void *y) {
  (void)c;
  tr_convert(from, x, to, y, n);
}
