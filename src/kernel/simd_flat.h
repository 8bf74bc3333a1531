// SPDX-License-Identifier: MIT
// Kernels over flat ranges, element by element: GELU, optimizer steps, sums, conversions. For simd_body.h only.
#ifndef TRIREME_KERNEL_SIMD_FLAT_H
#define TRIREME_KERNEL_SIMD_FLAT_H

#include "kernel/simd_vector.h"

// 0.5 (1 + tanh u) = 1 / (1 + e^-2u): no cancellation for negative x. Here 2 u = x (a + b x^2).
INLINE vf gelu(vf x) {
  vf slope;
  return x * sigmoid(x * (1.5957691216f + 0.0713548162726f * (x * x)), &slope);
}

INLINE vf gelu_derivative(vf x) {
  x = max_f32(splat(-16.0f), min_f32(splat(16.0f), x)); // flat beyond; NaN passes
  vf square = x * x, slope;
  vf gate = sigmoid(x * (1.5957691216f + 0.0713548162726f * square), &slope);
  return gate + x * (1.5957691216f + 0.2140644488178f * square) * slope;
}

INLINE void gelu_forward_in(tr_dtype type, int64_t n, const void *x, void *y) {
  for (int64_t i = 0; i < n; i += TR_VL) {
    fetch(type, x, i);
    store(type, y, i, gelu(load(type, x, i, n - i)), n - i);
  }
}

static void gelu_forward(size_t count, tr_dtype type, const void *x, void *y) {
  if (type == TR_BF16) {
    gelu_forward_in(TR_BF16, (int64_t)count, x, y);
  } else {
    gelu_forward_in(TR_F32, (int64_t)count, x, y);
  }
}

INLINE void gelu_backward_in(tr_dtype type, int64_t n, const void *x, const void *dy, void *dx) {
  for (int64_t i = 0; i < n; i += TR_VL) {
    fetch(type, x, i);
    fetch(type, dy, i);
    store(type, dx, i, load(type, dy, i, n - i) * gelu_derivative(load(type, x, i, n - i)), n - i);
  }
}

static void gelu_backward(size_t count, tr_dtype type, const void *x, const void *dy, void *dx) {
  if (type == TR_BF16) {
    gelu_backward_in(TR_BF16, (int64_t)count, x, dy, dx);
  } else {
    gelu_backward_in(TR_F32, (int64_t)count, x, dy, dx);
  }
}

INLINE vf sqrt_f32(vf v) {
  for (int i = 0; i < TR_VL; i++) v[i] = __builtin_sqrtf(v[i]);
  return v;
}

// The optimizers write the new weights to `working` as well, unless it is NULL: one pass over memory, not two.
INLINE void adamw_in(tr_dtype type, int64_t n, const tr_adamw *p, float *w, const float *g, float *m, float *v,
                     void *working) {
  const float inverse1 = 1.0f / p->bias1, inverse2 = 1.0f / p->bias2;
  for (int64_t i = 0; i < n; i += TR_VL) {
    const int64_t left = n - i;
    fetch(TR_F32, w, i);
    fetch(TR_F32, g, i);
    fetch(TR_F32, m, i);
    fetch(TR_F32, v, i);
    vf grad = load_f32(g + i, left) * p->grad_scale, weight = load_f32(w + i, left);
    vf first = p->beta1 * load_f32(m + i, left) + (1.0f - p->beta1) * grad;
    vf second = p->beta2 * load_f32(v + i, left) + (1.0f - p->beta2) * (grad * grad);
    vf ratio = (first * inverse1) / (sqrt_f32(second * inverse2) + p->eps);
    weight -= p->lr * (p->decay * weight + ratio);
    store_f32(w + i, weight, left);
    store_f32(m + i, first, left);
    store_f32(v + i, second, left);
    if (working) store(type, working, i, weight, left);
  }
}

static void adamw(size_t count, const tr_adamw *p, float *w, const float *g, float *m, float *v, tr_dtype type,
                  void *working) {
  const int64_t n = (int64_t)count;
  if (!working) {
    adamw_in(TR_F32, n, p, w, g, m, v, NULL);
  } else if (type == TR_BF16) {
    adamw_in(TR_BF16, n, p, w, g, m, v, working);
  } else {
    adamw_in(TR_F32, n, p, w, g, m, v, working);
  }
}

INLINE void sgd_in(tr_dtype type, int use, int64_t n, const tr_sgd *p, float *w, const float *g, float *momentum,
                   void *working) {
  for (int64_t i = 0; i < n; i += TR_VL) {
    const int64_t left = n - i;
    fetch(TR_F32, w, i);
    fetch(TR_F32, g, i);
    vf weight = load_f32(w + i, left), step = p->grad_scale * load_f32(g + i, left) + p->decay * weight;
    if (use) {
      fetch(TR_F32, momentum, i);
      vf buffer = p->first ? step : p->momentum * load_f32(momentum + i, left) + step;
      store_f32(momentum + i, buffer, left);
      step = p->nesterov ? step + p->momentum * buffer : buffer;
    }
    weight -= p->lr * step;
    store_f32(w + i, weight, left);
    if (working) store(type, working, i, weight, left);
  }
}

static void sgd(size_t count, const tr_sgd *p, float *w, const float *g, float *momentum, tr_dtype type,
                void *working) {
  const int64_t n = (int64_t)count;
  const int use = p->momentum != 0.0f;
  if (working && type == TR_BF16) {
    sgd_in(TR_BF16, use, n, p, w, g, momentum, working);
  } else {
    sgd_in(TR_F32, use, n, p, w, g, momentum, working);
  }
}

static double sum_squares(size_t count, const float *x) {
  const int64_t n = (int64_t)count;
  vd even = {0}, odd = {0};
  for (int64_t i = 0; i < n; i += TR_VL) {
    fetch(TR_F32, x, i);
    vf v = load_f32(x + i, n - i);
    vf_half half[2];
    memcpy(half, &v, sizeof v);
    vd a = __builtin_convertvector(half[0], vd), b = __builtin_convertvector(half[1], vd);
    even += a * a;
    odd += b * b;
  }
  even += odd;
  double sum = 0;
  for (int i = 0; i < TR_VL / 2; i++) sum += even[i];
  return sum;
}

INLINE void add_in(tr_dtype type, int64_t n, const void *x, void *y) {
  for (int64_t i = 0; i < n; i += TR_VL) {
    fetch(type, x, i);
    fetch(type, y, i);
    store(type, y, i, load(type, y, i, n - i) + load(type, x, i, n - i), n - i);
  }
}

static void add(size_t count, tr_dtype type, const void *x, void *y) {
  if (type == TR_BF16) {
    add_in(TR_BF16, (int64_t)count, x, y);
  } else {
    add_in(TR_F32, (int64_t)count, x, y);
  }
}

INLINE void convert_in(tr_dtype from, tr_dtype to, int64_t n, const void *x, void *y) {
  for (int64_t i = 0; i < n; i += TR_VL) {
    fetch(from, x, i);
    fetch_to_write(to, y, i);
    store(to, y, i, load(from, x, i, n - i), n - i);
  }
}

static void convert(size_t count, tr_dtype from, const void *x, tr_dtype to, void *y) {
  const int64_t n = (int64_t)count;
  if (from == to) {
    memmove(y, x, count * (from == TR_BF16 ? 2 : 4));
  } else if (to == TR_BF16) {
    convert_in(TR_F32, TR_BF16, n, x, y);
  } else {
    convert_in(TR_BF16, TR_F32, n, x, y);
  }
}

// Twelve independent chains of multiply-add that stay in registers: enough to hide a latency of 4 at two per cycle.
static double peak(int64_t turns, float seed, double *flops) {
  vf acc[12];
  const vf x = splat(0.5f + seed), y = splat(0.25f + seed);
  for (int j = 0; j < 12; j++) acc[j] = splat((float)j);
  for (int64_t i = 0; i < turns; i++) {
#pragma GCC unroll 12
    for (int j = 0; j < 12; j++) acc[j] = acc[j] * x + y;
  }
  double sum = 0;
  for (int j = 0; j < 12; j++) sum += (double)sum_lanes(acc[j]);
  *flops = (double)turns * 12 * 2 * TR_VL;
  return sum;
}

#endif
