// SPDX-License-Identifier: MIT
// Kernels over rows: layer norm, RMSNorm, SwiGLU, embedding, residual with dropout, column sums, cross-entropy. Included by
// simd_body.h only. A row's result depends on that row alone, never on which rows share its task.
#ifndef TRIREME_KERNEL_SIMD_ROWS_H
#define TRIREME_KERNEL_SIMD_ROWS_H

#include "kernel/simd_vector.h"

// Functions named ..._in do the work for a constant type: inlined into their callers, they test it nowhere.

// Mean, then variance about it in a second pass over the cached row: no cancellation.
INLINE void norm_statistics(tr_dtype type, int64_t n, const void *x, float eps, float *mean, float *rstd) {
  const int64_t pairs = n & -(2 * TR_VL);
  vf sum = {0}, sum2 = {0}, square = {0}, square2 = {0};
  for (int64_t i = 0; i < pairs; i += 2 * TR_VL) {
    sum += load(type, x, i, TR_VL);
    sum2 += load(type, x, i + TR_VL, TR_VL);
  }
  for (int64_t i = pairs; i < n; i += TR_VL) sum += load(type, x, i, n - i);
  const float m = sum_lanes(sum + sum2) / (float)n;
  for (int64_t i = 0; i < pairs; i += 2 * TR_VL) {
    const vf d = load(type, x, i, TR_VL) - m, d2 = load(type, x, i + TR_VL, TR_VL) - m;
    square += d * d;
    square2 += d2 * d2;
  }
  for (int64_t i = pairs; i < n; i += TR_VL) {
    const vf d = (vf)((vi)(load(type, x, i, n - i) - m) & first_lanes(n - i));
    square += d * d;
  }
  *mean = m;
  *rstd = 1.0f / __builtin_sqrtf(sum_lanes(square + square2) / (float)n + eps);
}

INLINE void norm_forward_in(tr_dtype type, const tr_norm *a, int64_t r0, int64_t r1) {
  const int64_t n = a->width;
  for (int64_t r = r0; r < r1; r++) {
    const void *x = tr__elem(type, a->x, r * n);
    void *y = tr__elem_mut(type, a->y, r * n);
    float mean, rstd;
    norm_statistics(type, n, x, a->eps, &mean, &rstd);
    for (int64_t i = 0; i < n; i += TR_VL) {
      vf hat = (load(type, x, i, n - i) - mean) * rstd;
      store(type, y, i, hat * load(type, a->gamma, i, n - i) + load(type, a->beta, i, n - i), n - i);
    }
    if (a->mean) a->mean[r] = mean;
    if (a->rstd) a->rstd[r] = rstd;
  }
}

static void norm_forward(const tr_norm *a, int64_t r0, int64_t r1) {
  if (a->type == TR_BF16) {
    norm_forward_in(TR_BF16, a, r0, r1);
  } else {
    norm_forward_in(TR_F32, a, r0, r1);
  }
}

// dx = rstd (g - mean(g) - xhat mean(g xhat)), g = dy gamma; dgamma and dbeta of these rows are
// added to the caller's.
INLINE void norm_backward_in(tr_dtype type, const tr_norm *a, int64_t r0, int64_t r1, float *dgamma, float *dbeta) {
  const int64_t n = a->width;
  for (int64_t r = r0; r < r1; r++) {
    const void *x = tr__elem(type, a->x, r * n), *dy = tr__elem(type, a->dy, r * n);
    void *dx = tr__elem_mut(type, a->dx, r * n);
    const float mean = a->mean[r], rstd = a->rstd[r];
    vf sum = {0}, dot = {0};
    for (int64_t i = 0; i < n; i += TR_VL) {
      const int64_t left = n - i;
      vf hat = (load(type, x, i, left) - mean) * rstd, d = load(type, dy, i, left);
      vf g = d * load(type, a->gamma, i, left);
      sum += g;
      dot += g * hat;
      store_f32(dgamma + i, load_f32(dgamma + i, left) + d * hat, left);
      store_f32(dbeta + i, load_f32(dbeta + i, left) + d, left);
    }
    const float mean_g = sum_lanes(sum) / (float)n, mean_gx = sum_lanes(dot) / (float)n;
    for (int64_t i = 0; i < n; i += TR_VL) {
      const int64_t left = n - i;
      vf hat = (load(type, x, i, left) - mean) * rstd;
      vf g = load(type, dy, i, left) * load(type, a->gamma, i, left);
      vf out = rstd * (g - mean_g - hat * mean_gx);
      if (a->add_dx) out += load(type, dx, i, left);
      store(type, dx, i, out, left);
    }
  }
}

static void norm_backward(const tr_norm *a, int64_t r0, int64_t r1, float *dgamma, float *dbeta) {
  if (a->type == TR_BF16) {
    norm_backward_in(TR_BF16, a, r0, r1, dgamma, dbeta);
  } else {
    norm_backward_in(TR_F32, a, r0, r1, dgamma, dbeta);
  }
}

INLINE float rms_rstd(tr_dtype type, int64_t n, const void *x, float eps) {
  const int64_t pairs = n & -(2 * TR_VL);
  vf square = {0}, square2 = {0};
  for (int64_t i = 0; i < pairs; i += 2 * TR_VL) {
    const vf e = load(type, x, i, TR_VL), e2 = load(type, x, i + TR_VL, TR_VL);
    square += e * e;
    square2 += e2 * e2;
  }
  for (int64_t i = pairs; i < n; i += TR_VL) {
    const vf e = load(type, x, i, n - i);
    square += e * e;
  }
  return 1.0f / __builtin_sqrtf(sum_lanes(square + square2) / (float)n + eps);
}

INLINE void rms_forward_in(tr_dtype type, const tr_rms *a, int64_t r0, int64_t r1) {
  const tr_rmsnorm *p = a->p;
  const int64_t n = p->width;
  for (int64_t v = r0 * p->count; v < r1 * p->count; v++) {
    const int64_t r = v / p->count, at = v % p->count * n;
    const void *x = tr__elem(type, a->x, r * p->ld_x + at);
    void *y = tr__elem_mut(type, a->y, r * p->ld_y + at);
    const float rstd = rms_rstd(type, n, x, p->eps);
    for (int64_t i = 0; i < n; i += TR_VL)
      store(type, y, i, load(type, x, i, n - i) * rstd * load(type, a->gamma, i, n - i), n - i);
    if (a->rstd) a->rstd[v] = rstd;
  }
}

static void rms_forward(const tr_rms *a, int64_t r0, int64_t r1) {
  if (a->p->type == TR_BF16) {
    rms_forward_in(TR_BF16, a, r0, r1);
  } else {
    rms_forward_in(TR_F32, a, r0, r1);
  }
}

// dx = rstd (g - xhat mean(g xhat)), g = dy gamma; dgamma of these rows is added to the caller's.
INLINE void rms_backward_in(tr_dtype type, const tr_rms *a, int64_t r0, int64_t r1, float *dgamma) {
  const tr_rmsnorm *p = a->p;
  const int64_t n = p->width;
  for (int64_t v = r0 * p->count; v < r1 * p->count; v++) {
    const int64_t r = v / p->count, at = v % p->count * n;
    const void *x = tr__elem(type, a->x, r * p->ld_x + at), *dy = tr__elem(type, a->dy, r * p->ld_y + at);
    void *dx = tr__elem_mut(type, a->dx, r * p->ld_x + at);
    const float rstd = a->rstd[v];
    vf dot = {0};
    for (int64_t i = 0; i < n; i += TR_VL) {
      const int64_t left = n - i;
      vf product = load(type, dy, i, left) * (load(type, x, i, left) * rstd);
      dot += product * load(type, a->gamma, i, left);
      store_f32(dgamma + i, load_f32(dgamma + i, left) + product, left);
    }
    const float mean = sum_lanes(dot) / (float)n;
    for (int64_t i = 0; i < n; i += TR_VL) {
      const int64_t left = n - i;
      vf hat = load(type, x, i, left) * rstd, g = load(type, dy, i, left) * load(type, a->gamma, i, left);
      vf out = rstd * (g - hat * mean);
      if (a->add_dx) out += load(type, dx, i, left);
      store(type, dx, i, out, left);
    }
  }
}

static void rms_backward(const tr_rms *a, int64_t r0, int64_t r1, float *dgamma) {
  if (a->p->type == TR_BF16) {
    rms_backward_in(TR_BF16, a, r0, r1, dgamma);
  } else {
    rms_backward_in(TR_F32, a, r0, r1, dgamma);
  }
}

INLINE void swiglu_forward_in(tr_dtype type, int64_t rows, int64_t width, const void *x, void *y) {
  for (int64_t r = 0; r < rows; r++) {
    const void *gate = tr__elem(type, x, 2 * r * width), *up = tr__elem(type, gate, width);
    void *out = tr__elem_mut(type, y, r * width);
    for (int64_t i = 0; i < width; i += TR_VL) {
      vf g = load(type, gate, i, width - i), slope;
      store(type, out, i, g * sigmoid(g, &slope) * load(type, up, i, width - i), width - i);
    }
  }
}

static void swiglu_forward(int64_t rows, int64_t width, tr_dtype type, const void *x, void *y) {
  if (type == TR_BF16) {
    swiglu_forward_in(TR_BF16, rows, width, x, y);
  } else {
    swiglu_forward_in(TR_F32, rows, width, x, y);
  }
}

// With s = sigmoid(gate): d silu / d gate = s + gate s (1 - s).
INLINE void swiglu_backward_in(tr_dtype type, int64_t rows, int64_t width, const void *x, const void *dy, void *dx) {
  for (int64_t r = 0; r < rows; r++) {
    const void *gate = tr__elem(type, x, 2 * r * width), *up = tr__elem(type, gate, width);
    void *dgate = tr__elem_mut(type, dx, 2 * r * width), *dup = tr__elem_mut(type, dgate, width);
    for (int64_t i = 0; i < width; i += TR_VL) {
      const int64_t left = width - i;
      vf g = load(type, gate, i, left), u = load(type, up, i, left), d = load(type, dy, r * width + i, left), slope;
      vf s = sigmoid(g, &slope);
      store(type, dgate, i, d * u * (s + g * slope), left);
      store(type, dup, i, d * (g * s), left);
    }
  }
}

static void swiglu_backward(int64_t rows, int64_t width, tr_dtype type, const void *x, const void *dy, void *dx) {
  if (type == TR_BF16) {
    swiglu_backward_in(TR_BF16, rows, width, x, dy, dx);
  } else {
    swiglu_backward_in(TR_F32, rows, width, x, dy, dx);
  }
}

// out = x + factor * y for one row; x NULL: factor * y alone. `row` indexes the dropout's arrays.
INLINE void residual_in(tr_dtype type, int64_t row, int64_t width, const void *x, const void *y, const tr_dropout *d,
                        void *out) {
  const int drop = d && d->p > 0.0f;
  float space[MASK_SPACE];
  for (int64_t j = 0; j < width; j += MASK_MAX) {
    const int64_t end = tr__min(width, j + MASK_MAX);
    const float *factor = drop ? keep_factors(d, row, (uint32_t)j, (int)(end - j), space) : NULL;
    for (int64_t i = j; i < end; i += TR_VL) {
      vf v = load(type, y, i, end - i);
      if (drop) v *= load_f32(factor + (i - j), TR_VL);
      if (x) v += load(type, x, i, end - i);
      store(type, out, i, v, end - i);
    }
  }
}

static void residual(int64_t row, int64_t width, tr_dtype type, const void *x, const void *y, const tr_dropout *d,
                     void *out) {
  if (type == TR_BF16) {
    residual_in(TR_BF16, row, width, x, y, d, out);
  } else {
    residual_in(TR_F32, row, width, x, y, d, out);
  }
}

INLINE void embed_forward_in(tr_dtype type, const tr_embed *e, int64_t r0, int64_t r1) {
  const int64_t n = e->width;
  const int drop = e->dropout && e->dropout->p > 0.0f;
  float space[MASK_SPACE];
  for (int64_t r = r0; r < r1; r++) {
    const void *te = tr__elem(type, e->wte, e->token[r] * n);
    const void *pe = e->wpe ? tr__elem(type, e->wpe, e->position[r] * n) : NULL;
    void *y = tr__elem_mut(type, e->y, r * n);
    for (int64_t j = 0; j < n; j += MASK_MAX) {
      const int64_t end = tr__min(n, j + MASK_MAX);
      const float *factor = drop ? keep_factors(e->dropout, r, (uint32_t)j, (int)(end - j), space) : NULL;
      for (int64_t i = j; i < end; i += TR_VL) {
        vf v = load(type, te, i, end - i);
        if (pe) v += load(type, pe, i, end - i);
        if (drop) v *= load_f32(factor + (i - j), TR_VL);
        store(type, y, i, v, end - i);
      }
    }
  }
}

static void embed_forward(const tr_embed *e, int64_t r0, int64_t r1) {
  if (e->type == TR_BF16) {
    embed_forward_in(TR_BF16, e, r0, r1);
  } else {
    embed_forward_in(TR_F32, e, r0, r1);
  }
}

// Columns j0 .. j1 - 1 (at most MASK_MAX) of the scatter, rows in ascending order.
INLINE void embed_backward_in(tr_dtype type, const tr_embed *e, int64_t j0, int64_t j1) {
  const int64_t n = e->width;
  const int drop = e->dropout && e->dropout->p > 0.0f;
  float space[MASK_SPACE];
  for (int64_t r = 0; r < e->rows; r++) {
    float *te = e->dwte ? e->dwte + e->token[r] * n : NULL, *pe = e->dwpe ? e->dwpe + e->position[r] * n : NULL;
    const float *factor = drop ? keep_factors(e->dropout, r, (uint32_t)j0, (int)(j1 - j0), space) : NULL;
    for (int64_t i = j0; i < j1; i += TR_VL) {
      vf v = load(type, e->dy, r * n + i, j1 - i);
      if (drop) v *= load_f32(factor + (i - j0), TR_VL);
      if (te) store_f32(te + i, load_f32(te + i, j1 - i) + v, j1 - i);
      if (pe) store_f32(pe + i, load_f32(pe + i, j1 - i) + v, j1 - i);
    }
  }
}

static void embed_backward(const tr_embed *e, int64_t j0, int64_t j1) {
  if (e->type == TR_BF16) {
    embed_backward_in(TR_BF16, e, j0, j1);
  } else {
    embed_backward_in(TR_F32, e, j0, j1);
  }
}

// Columns j .. j + 4 TR_VL - 1 as far as they lie before j1: sums of 32 rows each are added to a total, which
// keeps rounding errors small.
INLINE void column_sum_four(int64_t rows, int64_t width, tr_dtype type, const void *dy, int64_t j, int64_t j1,
                            float *out, int add_out) {
  const int64_t left = j1 - j;
  vf total[4] = {{0}, {0}, {0}, {0}};
  for (int64_t r0 = 0; r0 < rows; r0 += 32) {
    vf a = {0}, b = {0}, c = {0}, d = {0};
    for (int64_t r = r0; r < tr__min(rows, r0 + 32); r++) {
      const int64_t at = r * width + j;
      a += load(type, dy, at, left);
      if (left > TR_VL) b += load(type, dy, at + TR_VL, left - TR_VL);
      if (left > 2 * TR_VL) c += load(type, dy, at + 2 * TR_VL, left - 2 * TR_VL);
      if (left > 3 * TR_VL) d += load(type, dy, at + 3 * TR_VL, left - 3 * TR_VL);
    }
    total[0] += a, total[1] += b, total[2] += c, total[3] += d;
  }
  for (int v = 0; v < 4; v++) {
    const int64_t n = left - v * TR_VL;
    if (n > 0) store_f32(out + j + v * TR_VL, add_out ? load_f32(out + j + v * TR_VL, n) + total[v] : total[v], n);
  }
}

static void column_sum(int64_t rows, int64_t width, tr_dtype type, const void *dy, int64_t j0, int64_t j1, float *out,
                       int add_out) {
  for (int64_t j = j0; j < j1; j += 4 * TR_VL)
    if (type == TR_BF16) {
      column_sum_four(rows, width, TR_BF16, dy, j, j1, out, add_out);
    } else {
      column_sum_four(rows, width, TR_F32, dy, j, j1, out, add_out);
    }
}

// Loss of one row of logits; with want_gradient the logits become scale * (softmax - onehot).
static float cross_entropy(int64_t n, float *logits, int64_t target, int want_gradient, float scale) {
  vf top = splat(-__builtin_inff());
  for (int64_t i = 0; i < n; i += TR_VL) {
    vf v = load_f32(logits + i, n - i);
    if (n - i < TR_VL) v = select_f32(first_lanes(n - i), v, splat(-__builtin_inff()));
    top = select_f32(v > top, v, top);
  }
  const float max = max_lanes(top), wanted = logits[target];
  vf sum = {0};
  for (int64_t i = 0; i < n; i += TR_VL) {
    vf e = exp_f32(load_f32(logits + i, n - i) - max);
    if (n - i < TR_VL) e = (vf)((vi)e & first_lanes(n - i));
    if (want_gradient) store_f32(logits + i, e, n - i);
    sum += e;
  }
  const float total = sum_lanes(sum);
  if (want_gradient) {
    const float factor = scale / total;
    for (int64_t i = 0; i < n; i += TR_VL) store_f32(logits + i, load_f32(logits + i, n - i) * factor, n - i);
    logits[target] -= scale;
  }
  return log_f32(total) + (max - wanted);
}

#endif
