// SPDX-License-Identifier: MIT
// What the files of the reference table share: element access in double, and the dropout factor of an element.
//
// Every reference kernel reads elements as double, computes in double and rounds once, when it stores. So its f32
// results are the correctly rounded naive ones, and its f64 results are exact enough for finite differences. The
// functions below the helpers fill the table in reference.c; see kernel.h for what each one does.
#ifndef TRIREME_KERNEL_REFERENCE_INTERNAL_H
#define TRIREME_KERNEL_REFERENCE_INTERNAL_H

#include "trireme/kernel/kernel.h"

static inline double tr__get(tr_dtype type, const void *data, int64_t i) {
  if (type == TR_F32) return (double)((const float *)data)[i];
  if (type == TR_F64) return ((const double *)data)[i];
  if (type == TR_BF16) return (double)tr_bf16_to_f32(((const tr_bf16 *)data)[i]);
  return (double)tr_load(type, data, (size_t)i);
}

static inline void tr__put(tr_dtype type, void *data, int64_t i, double value) {
  if (type == TR_F32) {
    ((float *)data)[i] = (float)value;
  } else if (type == TR_F64) {
    ((double *)data)[i] = value;
  } else {
    tr_convert(TR_F64, &value, type, (char *)data + (size_t)i * tr_dtype_size(type), 1);
  }
}

// Store, or add to what is there.
static inline void tr__put_add(tr_dtype type, void *data, int64_t i, double value, int add) {
  tr__put(type, data, i, add ? tr__get(type, data, i) + value : value);
}

// The address of element i; NULL, which an empty array may be, stays NULL.
static inline const void *tr__at(tr_dtype type, const void *data, int64_t i) {
  return data ? (const char *)data + i * (int64_t)tr_dtype_size(type) : NULL;
}

// Sum of x[i * step_x] y[i * step_y].
static inline double tr__dot(tr_dtype type, int64_t n, const void *x, int64_t step_x, const void *y, int64_t step_y) {
  double sum = 0;
  for (int64_t i = 0; i < n; i++) sum += tr__get(type, x, i * step_x) * tr__get(type, y, i * step_y);
  return sum;
}

// 0 for a dropped element, 1 / (1 - p) for a kept one. NULL and p 0 mean no dropout.
static inline double tr__dropout_factor(const tr_dropout *dropout, int64_t row, int64_t feature) {
  if (!dropout || dropout->p <= 0) return 1;
  float u = tr_rng_uniform(dropout->key, (uint64_t)dropout->sample[row], (uint32_t)dropout->position[row],
                           (uint32_t)feature);
  return u >= dropout->p ? 1 / (1 - (double)dropout->p) : 0;
}

// GELU (tanh form) of one number, and its derivative.
double tr__gelu(double x);
double tr__gelu_derivative(double x);

tr_status tr__reference_matmul(const tr_compute *c, const tr_matmul *p, const void *a, const void *b,
                               const void *bias, void *out);

void tr__reference_layernorm_forward(const tr_compute *c, int64_t rows, int64_t width, tr_dtype type, float eps,
                                     const void *x, const void *gamma, const void *beta, void *y, void *mean,
                                     void *rstd);
void tr__reference_layernorm_backward(const tr_compute *c, int64_t rows, int64_t width, tr_dtype type, const void *dy,
                                      const void *x, const void *gamma, const void *mean, const void *rstd, void *dx,
                                      int add_dx, void *dgamma, void *dbeta, int add);

void tr__reference_rmsnorm_forward(const tr_compute *c, const tr_rmsnorm *p, const void *x, const void *gamma,
                                   void *y, void *rstd);
void tr__reference_rmsnorm_backward(const tr_compute *c, const tr_rmsnorm *p, const void *dy, const void *x,
                                    const void *gamma, const void *rstd, void *dx, int add_dx, void *dgamma, int add);

void tr__reference_rope(const tr_compute *c, const tr_rope *p, void *x);

void tr__reference_swiglu_forward(const tr_compute *c, int64_t rows, int64_t width, tr_dtype type, const void *x,
                                  void *y);
void tr__reference_swiglu_backward(const tr_compute *c, int64_t rows, int64_t width, tr_dtype type, const void *x,
                                   const void *dy, void *dx);

void tr__reference_gelu_forward(const tr_compute *c, size_t n, tr_dtype type, const void *x, void *y);
void tr__reference_gelu_backward(const tr_compute *c, size_t n, tr_dtype type, const void *x, const void *dy,
                                 void *dx);
void tr__reference_residual_forward(const tr_compute *c, int64_t rows, int64_t width, tr_dtype type, const void *x,
                                    const void *y, const tr_dropout *dropout, void *out);
void tr__reference_dropout_backward(const tr_compute *c, int64_t rows, int64_t width, tr_dtype type,
                                    const tr_dropout *dropout, const void *dout, void *dy);
void tr__reference_column_sum(const tr_compute *c, int64_t rows, int64_t width, tr_dtype type, const void *dy,
                              void *out, int add);
void tr__reference_add(const tr_compute *c, size_t n, tr_dtype type, const void *x, void *y);
void tr__reference_convert(const tr_compute *c, size_t n, tr_dtype from, const void *x, tr_dtype to, void *y);

void tr__reference_embedding_forward(const tr_compute *c, int64_t rows, int64_t width, tr_dtype type,
                                     const int32_t *token, const int32_t *position, const void *wte, const void *wpe,
                                     const tr_dropout *dropout, void *y);
void tr__reference_embedding_backward(const tr_compute *c, int64_t rows, int64_t width, tr_dtype type,
                                      const int32_t *token, const int32_t *position, const tr_dropout *dropout,
                                      const void *dy, void *dwte, int64_t vocab, int add_wte, void *dwpe,
                                      int64_t npos, int add_wpe);

tr_status tr__reference_attention_forward(const tr_compute *c, const tr_attention *p, const void *q, const void *k,
                                          const void *v, const tr_attention_running *running, void *out, void *lse);
tr_status tr__reference_attention_backward(const tr_compute *c, const tr_attention *p, const tr_attention_grad *g);
size_t tr__reference_attention_scratch(const tr_attention *p, int nthread);

tr_status tr__reference_head_loss(const tr_compute *c, const tr_head_loss *p);
size_t tr__reference_head_loss_scratch(const tr_head_loss *p, int nthread);

void tr__reference_adamw(const tr_compute *c, size_t n, const tr_adamw *p, float *w, const float *g, float *m,
                         float *v, tr_dtype type, void *working);
void tr__reference_sgd(const tr_compute *c, size_t n, const tr_sgd *p, float *w, const float *g, float *momentum,
                       tr_dtype type, void *working);
void tr__reference_sum_squares(const tr_compute *c, size_t n, size_t block, const float *x, double *out);

#endif
