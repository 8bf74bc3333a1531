// SPDX-License-Identifier: MIT
// Reference RMSNorm (Zhang and Sennrich, "Root mean square layer normalization", 2019).
//
// A row holds `count` vectors, each normalised by itself; gamma is shared by all. With xhat = x rstd and a = dy gamma,
// the gradients are
//   dx = rstd (a - xhat mean(a xhat))   what changes the vector's length is taken out of a
//   dgamma = sum over rows and vectors of dy xhat
//
// Letters: r row, i vector of the row, j element of the vector.
#include "kernel/reference_internal.h"

#include <math.h>

void tr__reference_rmsnorm_forward(const tr_compute *c, const tr_rmsnorm *p, const void *x, const void *gamma,
                                   void *y, void *rstd) {
  (void)c;
  for (int64_t r = 0; r < p->rows; r++) {
    for (int64_t i = 0; i < p->count; i++) {
      int64_t at_x = r * p->ld_x + i * p->width, at_y = r * p->ld_y + i * p->width;
      const void *vector = tr__at(p->type, x, at_x);
      double mean = tr__dot(p->type, p->width, vector, 1, vector, 1) / (double)p->width;
      double inverse = 1 / sqrt(mean + (double)p->eps);
      for (int64_t j = 0; j < p->width; j++)
        tr__put(p->type, y, at_y + j, tr__get(p->type, x, at_x + j) * inverse * tr__get(p->type, gamma, j));
      if (rstd) tr__put(tr_wide(p->type), rstd, r * p->count + i, inverse);
    }
  }
}

typedef struct norm_arrays {
  const tr_rmsnorm *p;
  const void *dy, *x, *gamma, *rstd;
} norm_arrays;

static double normalised(const norm_arrays *n, int64_t r, int64_t i, int64_t j) {
  double inverse = tr__get(tr_wide(n->p->type), n->rstd, r * n->p->count + i);
  return tr__get(n->p->type, n->x, r * n->p->ld_x + i * n->p->width + j) * inverse;
}

static double output_gradient(const norm_arrays *n, int64_t r, int64_t i, int64_t j) {
  return tr__get(n->p->type, n->dy, r * n->p->ld_y + i * n->p->width + j);
}

static void weight_gradient(const norm_arrays *n, void *dgamma, int add) {
  const tr_rmsnorm *p = n->p;
  for (int64_t j = 0; j < p->width; j++) {
    double sum = 0;
    for (int64_t r = 0; r < p->rows; r++)
      for (int64_t i = 0; i < p->count; i++) sum += output_gradient(n, r, i, j) * normalised(n, r, i, j);
    tr__put_add(tr_wide(p->type), dgamma, j, sum, add);
  }
}

static void input_gradient_vector(const norm_arrays *n, int64_t r, int64_t i, void *dx, int add) {
  const tr_rmsnorm *p = n->p;
  double inverse = tr__get(tr_wide(p->type), n->rstd, r * p->count + i), mean = 0;
  for (int64_t j = 0; j < p->width; j++) {
    double a = output_gradient(n, r, i, j) * tr__get(p->type, n->gamma, j);
    mean += a * normalised(n, r, i, j) / (double)p->width;
  }
  for (int64_t j = 0; j < p->width; j++) {
    double a = output_gradient(n, r, i, j) * tr__get(p->type, n->gamma, j);
    double value = inverse * (a - normalised(n, r, i, j) * mean);
    tr__put_add(p->type, dx, r * p->ld_x + i * p->width + j, value, add);
  }
}

void tr__reference_rmsnorm_backward(const tr_compute *c, const tr_rmsnorm *p, const void *dy, const void *x,
                                    const void *gamma, const void *rstd, void *dx, int add_dx, void *dgamma,
                                    int add) {
  (void)c;
  norm_arrays n = {p, dy, x, gamma, rstd};
  weight_gradient(&n, dgamma, add);
  for (int64_t r = 0; r < p->rows; r++)
    for (int64_t i = 0; i < p->count; i++) input_gradient_vector(&n, r, i, dx, add_dx);
}
