// SPDX-License-Identifier: MIT
// Reference optimizer steps, element by element, and the sum of squares behind the gradient norm.
//
// The formulas are those written above tr_adamw and tr_sgd in kernel.h. State is f32; each value is rounded
// when it is stored, and the step of the same element goes on with the unrounded one.
#include "kernel/reference_internal.h"

#include <math.h>

void tr__reference_adamw(const tr_compute *c, size_t n, const tr_adamw *p, float *w, const float *g, float *m,
                         float *v, tr_dtype type, void *working) {
  (void)c;
  double beta1 = (double)p->beta1, beta2 = (double)p->beta2;
  for (size_t i = 0; i < n; i++) {
    double gradient = (double)p->grad_scale * (double)g[i];
    double mean = beta1 * (double)m[i] + (1 - beta1) * gradient;
    double square = beta2 * (double)v[i] + (1 - beta2) * gradient * gradient;
    double direction = mean / (double)p->bias1 / (sqrt(square / (double)p->bias2) + (double)p->eps);
    w[i] = (float)((double)w[i] - (double)p->lr * ((double)p->decay * (double)w[i] + direction));
    m[i] = (float)mean;
    v[i] = (float)square;
  }
  if (working) tr_convert(TR_F32, w, type, working, n);
}

void tr__reference_sgd(const tr_compute *c, size_t n, const tr_sgd *p, float *w, const float *g, float *momentum,
                       tr_dtype type, void *working) {
  (void)c;
  double mu = (double)p->momentum;
  for (size_t i = 0; i < n; i++) {
    double gradient = (double)p->grad_scale * (double)g[i] + (double)p->decay * (double)w[i], step = gradient;
    if (p->momentum != 0) {
      double buffer = p->first ? gradient : mu * (double)momentum[i] + gradient;
      step = p->nesterov ? gradient + mu * buffer : buffer;
      momentum[i] = (float)buffer;
    }
    w[i] = (float)((double)w[i] - (double)p->lr * step);
  }
  if (working) tr_convert(TR_F32, w, type, working, n);
}

void tr__reference_sum_squares(const tr_compute *c, size_t n, size_t block, const float *x, double *out) {
  (void)c;
  for (size_t at = 0; at < n; at += block) {
    size_t end = n - at < block ? n : at + block;
    double sum = 0;
    for (size_t i = at; i < end; i++) sum += (double)x[i] * (double)x[i];
    *out++ = sum;
  }
}
