// SPDX-License-Identifier: MIT
// Kernels over rows: layer norm, RMSNorm, SwiGLU, embedding, residual with dropout, column sums, cross-entropy. Included by
// simd_body.h only. A row's result depends on that row alone, never on which rows share its task.
#ifndef TRIREME_KERNEL_SIMD_ROWS_H
#define TRIREME_KERNEL_SIMD_ROWS_H

#include "kernel/simd_vector.h"

// Mean, then variance about it in a second pass over the cached row: no cancellation.
static void norm_statistics(tr_dtype type, int64_t n, const void *x, float eps, float *mean, float *rstd) {
  vf sum = {0}, square = {0};
  for (int64_t i = 0; i < n; i += TR_VL) sum += load(type, x, i, n - i);
  const float m = sum_lanes(sum) / (float)n;
  for (int64_t i = 0; i < n; i += TR_VL) {
    vf d = load(type, x, i, n - i) - m;
    if (n - i < TR_VL) d = (vf)((vi)d & first_lanes(n - i));
    square += d * d;
  }
  *mean = m;
  *rstd = 1.0f / __builtin_sqrtf(sum_lanes(square) / (float)n + eps);
}

static void norm_forward(const tr_norm *a, int64_t r0, int64_t r1) {
  const int64_t n = a->width;
  for (int64_t r = r0; r < r1; r++) {
    const void *x = tr__elem(a->type, a->x, r * n);
    void *y = tr__elem_mut(a->type, a->y, r * n);
    float mean, rstd;
    norm_statistics(a->type, n, x, a->eps, &mean, &rstd);
    for (int64_t i = 0; i < n; i += TR_VL) {
      vf hat = (load(a->type, x, i, n - i) - mean) * rstd;
      store(a->type, y, i, hat * load(a->type, a->gamma, i, n - i) + load(a->type, a->beta, i, n - i), n - i);
    }
    if (a->mean) a->mean[r] = mean;
    if (a->rstd) a->rstd[r] = rstd;
  }
}

// dx = rstd (g - mean(g) - xhat mean(g xhat)), g = dy gamma; dgamma and dbeta of these rows are
// added to the caller's.
static void norm_backward(const tr_norm *a, int64_t r0, int64_t r1, float *dgamma, float *dbeta) {
  const int64_t n = a->width;
  const tr_dtype type = a->type;
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

static void rms_forward(const tr_rms *a, int64_t r0, int64_t r1) {
  const tr_rmsnorm *p = a->p;
  const tr_dtype type = p->type;
  const int64_t n = p->width;
  for (int64_t v = r0 * p->count; v < r1 * p->count; v++) {
    const int64_t r = v / p->count, at = v % p->count * n;
    const void *x = tr__elem(type, a->x, r * p->ld_x + at);
    void *y = tr__elem_mut(type, a->y, r * p->ld_y + at);
    vf square = {0};
    for (int64_t i = 0; i < n; i += TR_VL) {
      vf e = load(type, x, i, n - i);
      square += e * e;
    }
    const float rstd = 1.0f / __builtin_sqrtf(sum_lanes(square) / (float)n + p->eps);
    for (int64_t i = 0; i < n; i += TR_VL)
      store(type, y, i, load(type, x, i, n - i) * rstd * load(type, a->gamma, i, n - i), n - i);
    if (a->rstd) a->rstd[v] = rstd;
  }
}

// dx = rstd (g - xhat mean(g xhat)), g = dy gamma; dgamma of these rows is added to the caller's.
static void rms_backward(const tr_rms *a, int64_t r0, int64_t r1, float *dgamma) {
  const tr_rmsnorm *p = a->p;
  const tr_dtype type = p->type;
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

INLINE vf sigmoid(vf x) { return 1.0f / (1.0f + exp_f32(-x)); }

static void swiglu_forward(int64_t rows, int64_t width, tr_dtype type, const void *x, void *y) {
  for (int64_t r = 0; r < rows; r++) {
    const void *gate = tr__elem(type, x, 2 * r * width), *up = tr__elem(type, gate, width);
    void *out = tr__elem_mut(type, y, r * width);
    for (int64_t i = 0; i < width; i += TR_VL) {
      vf g = load(type, gate, i, width - i);
      store(type, out, i, g * sigmoid(g) * load(type, up, i, width - i), width - i);
    }
  }
}

// With s = sigmoid(gate): d silu / d gate = s (1 + gate (1 - s)).
static void swiglu_backward(int64_t rows, int64_t width, tr_dtype type, const void *x, const void *dy, void *dx) {
  for (int64_t r = 0; r < rows; r++) {
    const void *gate = tr__elem(type, x, 2 * r * width), *up = tr__elem(type, gate, width);
    void *dgate = tr__elem_mut(type, dx, 2 * r * width), *dup = tr__elem_mut(type, dgate, width);
    for (int64_t i = 0; i < width; i += TR_VL) {
      const int64_t left = width - i;
      vf g = load(type, gate, i, left), u = load(type, up, i, left), d = load(type, dy, r * width + i, left);
      vf s = sigmoid(g);
      store(type, dgate, i, d * u * (s * (1.0f + g * (1.0f - s))), left);
      store(type, dup, i, d * (g * s), left);
    }
  }
}

// out = x + factor * y for one row; x NULL: factor * y alone. `row` indexes the dropout's arrays.
static void residual(int64_t row, int64_t width, tr_dtype type, const void *x, const void *y, const tr_dropout *d,
                     void *out) {
  const int drop = d && d->p > 0.0f;
  float factor[MASK_MAX];
  for (int64_t j = 0; j < width; j += MASK_MAX) {
    const int64_t end = tr__min(width, j + MASK_MAX);
    if (drop) keep_factors(d, row, (uint32_t)j, (int)(end - j), factor);
    for (int64_t i = j; i < end; i += TR_VL) {
      vf v = load(type, y, i, end - i);
      if (drop) v *= load_f32(factor + (i - j), end - i);
      if (x) v += load(type, x, i, end - i);
      store(type, out, i, v, end - i);
    }
  }
}

static void embed_forward(const tr_embed *e, int64_t r0, int64_t r1) {
  const int64_t n = e->width;
  for (int64_t r = r0; r < r1; r++) {
    const void *te = tr__elem(e->type, e->wte, e->token[r] * n);
    const void *pe = e->wpe ? tr__elem(e->type, e->wpe, e->position[r] * n) : NULL;
    void *y = tr__elem_mut(e->type, e->y, r * n);
    const int drop = e->dropout && e->dropout->p > 0.0f;
    float factor[MASK_MAX];
    for (int64_t j = 0; j < n; j += MASK_MAX) {
      const int64_t end = tr__min(n, j + MASK_MAX);
      if (drop) keep_factors(e->dropout, r, (uint32_t)j, (int)(end - j), factor);
      for (int64_t i = j; i < end; i += TR_VL) {
        vf v = load(e->type, te, i, end - i);
        if (pe) v += load(e->type, pe, i, end - i);
        if (drop) v *= load_f32(factor + (i - j), end - i);
        store(e->type, y, i, v, end - i);
      }
    }
  }
}

// Columns j0 .. j1 - 1 (at most MASK_MAX) of the scatter, rows in ascending order.
static void embed_backward(const tr_embed *e, int64_t j0, int64_t j1) {
  const int64_t n = e->width;
  const int drop = e->dropout && e->dropout->p > 0.0f;
  float factor[MASK_MAX];
  for (int64_t r = 0; r < e->rows; r++) {
    float *te = e->dwte ? e->dwte + e->token[r] * n : NULL, *pe = e->dwpe ? e->dwpe + e->position[r] * n : NULL;
    if (drop) keep_factors(e->dropout, r, (uint32_t)j0, (int)(j1 - j0), factor);
    for (int64_t i = j0; i < j1; i += TR_VL) {
      vf v = load(e->type, e->dy, r * n + i, j1 - i);
      if (drop) v *= load_f32(factor + (i - j0), j1 - i);
      if (te) store_f32(te + i, load_f32(te + i, j1 - i) + v, j1 - i);
      if (pe) store_f32(pe + i, load_f32(pe + i, j1 - i) + v, j1 - i);
    }
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
  for (int64_t j = j0; j < j1; j += 4 * TR_VL) column_sum_four(rows, width, type, dy, j, j1, out, add_out);
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
