// SPDX-License-Identifier: MIT
// Plain loops, compiled with everything the compiler has (-O3 -march=native -ffast-math, see CMakeLists.txt).
#include "update_plain.h"
#include <math.h>
#include <string.h>

double plain_squares(size_t n, const float *x) {
  double sum = 0;
  for (size_t i = 0; i < n; i++) sum += (double)x[i] * x[i];
  return sum;
}

static uint16_t rounded(float value) { // to bf16, ties to even
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

void plain_adamw(size_t n, const tr_adamw *p, float *restrict w, const float *restrict g, float *restrict m,
                 float *restrict v, uint16_t *restrict working) {
  const tr_adamw a = *p;
  const float one1 = 1 - a.beta1, one2 = 1 - a.beta2;
  for (size_t i = 0; i < n; i++) {
    const float x = a.grad_scale * g[i];
    m[i] = a.beta1 * m[i] + one1 * x;
    v[i] = a.beta2 * v[i] + one2 * x * x;
    w[i] -= a.lr * (a.decay * w[i] + m[i] / a.bias1 / (sqrtf(v[i] / a.bias2) + a.eps));
    if (working) working[i] = rounded(w[i]);
  }
}
