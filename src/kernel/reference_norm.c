// SPDX-License-Identifier: MIT
// Reference layer normalisation (Ba, Kiros, Hinton, "Layer normalization", 2016).
//
// With xhat = (x - mean) rstd and a = dy gamma, the gradients are
//   dx = rstd (a - mean(a) - xhat mean(a xhat))   what moves the row's mean or its variance is taken out of a
//   dgamma = sum over rows of dy xhat             dbeta = sum over rows of dy
#include "kernel/reference_internal.h"

#include <math.h>

void tr__reference_layernorm_forward(const tr_compute *c, int64_t rows, int64_t width, tr_dtype type, float eps,
                                     const void *x, const void *gamma, const void *beta, void *y, void *mean,
                                     void *rstd) {
  (void)c;
  for (int64_t r = 0; r < rows; r++) {
    double sum = 0, squares = 0;
    for (int64_t j = 0; j < width; j++) sum += tr__get(type, x, r * width + j);
    double center = sum / (double)width;
    for (int64_t j = 0; j < width; j++) {
      double d = tr__get(type, x, r * width + j) - center;
      squares += d * d;
    }
    double inverse = 1 / sqrt(squares / (double)width + (double)eps);
    for (int64_t j = 0; j < width; j++) {
      double xhat = (tr__get(type, x, r * width + j) - center) * inverse;
      tr__put(type, y, r * width + j, xhat * tr__get(type, gamma, j) + tr__get(type, beta, j));
    }
    if (mean) tr__put(tr_wide(type), mean, r, center);
    if (rstd) tr__put(tr_wide(type), rstd, r, inverse);
  }
}

typedef struct norm_arrays {
  int64_t rows, width;
  tr_dtype type;
  const void *dy, *x, *gamma, *mean, *rstd;
} norm_arrays;

static double normalised(const norm_arrays *n, int64_t r, int64_t j) {
  double center = tr__get(tr_wide(n->type), n->mean, r), inverse = tr__get(tr_wide(n->type), n->rstd, r);
  return (tr__get(n->type, n->x, r * n->width + j) - center) * inverse;
}

static void weight_gradient(const norm_arrays *n, void *dgamma, void *dbeta, int add) {
  for (int64_t j = 0; j < n->width; j++) {
    double gamma_sum = 0, beta_sum = 0;
    for (int64_t r = 0; r < n->rows; r++) {
      double dy = tr__get(n->type, n->dy, r * n->width + j);
      gamma_sum += dy * normalised(n, r, j);
      beta_sum += dy;
    }
    tr__put_add(tr_wide(n->type), dgamma, j, gamma_sum, add);
    tr__put_add(tr_wide(n->type), dbeta, j, beta_sum, add);
  }
}

static void input_gradient_row(const norm_arrays *n, int64_t r, void *dx, int add) {
  double inverse = tr__get(tr_wide(n->type), n->rstd, r), mean_a = 0, mean_a_xhat = 0;
  for (int64_t j = 0; j < n->width; j++) {
    double a = tr__get(n->type, n->dy, r * n->width + j) * tr__get(n->type, n->gamma, j);
    mean_a += a / (double)n->width;
    mean_a_xhat += a * normalised(n, r, j) / (double)n->width;
  }
  for (int64_t j = 0; j < n->width; j++) {
    double a = tr__get(n->type, n->dy, r * n->width + j) * tr__get(n->type, n->gamma, j);
    double value = inverse * (a - mean_a - normalised(n, r, j) * mean_a_xhat);
    tr__put_add(n->type, dx, r * n->width + j, value, add);
  }
}

void tr__reference_layernorm_backward(const tr_compute *c, int64_t rows, int64_t width, tr_dtype type, const void *dy,
                                      const void *x, const void *gamma, const void *mean, const void *rstd, void *dx,
                                      int add_dx, void *dgamma, void *dbeta, int add) {
  (void)c;
  norm_arrays n = {rows, width, type, dy, x, gamma, mean, rstd};
  weight_gradient(&n, dgamma, dbeta, add);
  for (int64_t r = 0; r < rows; r++) input_gradient_row(&n, r, dx, add_dx);
}
