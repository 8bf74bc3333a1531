// SPDX-License-Identifier: MIT
// Reference output projection with cross-entropy, one row of logits at a time.
//
// With p = softmax(logits), the gradient with respect to logit v is scale (p[v] - [v == target]). The first
// pass walks rows and keeps the log of each row's sum of exponentials; the gradient of the weights then walks
// the vocabulary and computes logits again, so no array of rows x vocab exists here either.
#include "kernel/reference_internal.h"

#include <inttypes.h>
#include <math.h>

typedef struct loss_scratch {
  double *lse;    // [rows]
  double *logits; // [vocab]
  double *sum;    // [width]
} loss_scratch;

size_t tr__reference_head_loss_scratch(const tr_head_loss *p, int nthread) {
  (void)nthread;
  size_t each = sizeof(double);
  return tr_arena_rounded((size_t)p->rows * each) + tr_arena_rounded((size_t)p->vocab * each) +
         tr_arena_rounded((size_t)p->width * each);
}

// Logits of row r into s->logits; returns the logarithm of the sum of their exponentials.
static double row_logits(const tr_head_loss *p, int64_t r, double *logits) {
  double largest = -INFINITY, sum = 0;
  for (int64_t v = 0; v < p->vocab; v++) {
    logits[v] =
        tr__dot(p->type, p->width, tr__at(p->type, p->x, r * p->width), 1, tr__at(p->type, p->w, v * p->width), 1);
    if (logits[v] > largest) largest = logits[v];
  }
  for (int64_t v = 0; v < p->vocab; v++) sum += exp(logits[v] - largest);
  return largest + log(sum);
}

static double logit_gradient(const tr_head_loss *p, int64_t r, int64_t v, double logit, double lse) {
  return p->scale * (exp(logit - lse) - (p->target[r] == v ? 1 : 0));
}

static void clear_row(const tr_head_loss *p, int64_t r) {
  tr__put(tr_wide(p->type), p->loss, r, 0);
  for (int64_t j = 0; p->dx && j < p->width; j++) tr__put(p->type, p->dx, r * p->width + j, 0);
}

static void row_loss(const tr_head_loss *p, int64_t r, const loss_scratch *s) {
  double lse = s->lse[r] = row_logits(p, r, s->logits);
  tr__put(tr_wide(p->type), p->loss, r, lse - s->logits[p->target[r]]);
  if (!p->dx) return;
  for (int64_t j = 0; j < p->width; j++) s->sum[j] = 0;
  for (int64_t v = 0; v < p->vocab; v++) {
    double d = logit_gradient(p, r, v, s->logits[v], lse);
    for (int64_t j = 0; j < p->width; j++) s->sum[j] += d * tr__get(p->type, p->w, v * p->width + j);
  }
  for (int64_t j = 0; j < p->width; j++) tr__put(p->type, p->dx, r * p->width + j, s->sum[j]);
}

static void weight_gradient(const tr_head_loss *p, int64_t v, const loss_scratch *s) {
  const void *w = tr__at(p->type, p->w, v * p->width);
  for (int64_t j = 0; j < p->width; j++) s->sum[j] = 0;
  for (int64_t r = 0; r < p->rows; r++) {
    if (p->target[r] < 0) continue;
    double logit = tr__dot(p->type, p->width, tr__at(p->type, p->x, r * p->width), 1, w, 1);
    double d = logit_gradient(p, r, v, logit, s->lse[r]);
    for (int64_t j = 0; j < p->width; j++) s->sum[j] += d * tr__get(p->type, p->x, r * p->width + j);
  }
  for (int64_t j = 0; j < p->width; j++) tr__put_add(tr_wide(p->type), p->dw, v * p->width + j, s->sum[j], p->add);
}

static tr_status check_targets(const tr_head_loss *p) {
  for (int64_t r = 0; r < p->rows; r++) {
    if (p->target[r] >= p->vocab) {
      return tr_error(TR_ERR_DATA, "target %" PRId32 " of row %" PRId64 " is not below the vocabulary size %" PRId64,
                      p->target[r], r, p->vocab);
    }
  }
  return TR_OK;
}

tr_status tr__reference_head_loss(const tr_compute *c, const tr_head_loss *p) {
  TR_TRY(check_targets(p));
  size_t mark = tr_arena_mark(c->scratch);
  tr_status status = TR_ERR_MEMORY;
  loss_scratch s;
  s.lse = tr_arena_alloc(c->scratch, (size_t)p->rows * sizeof(double));
  s.logits = tr_arena_alloc(c->scratch, (size_t)p->vocab * sizeof(double));
  s.sum = tr_arena_alloc(c->scratch, (size_t)p->width * sizeof(double));
  if (!s.lse || !s.logits || !s.sum) goto reset;
  for (int64_t r = 0; r < p->rows; r++) {
    if (p->target[r] < 0) {
      clear_row(p, r);
    } else {
      row_loss(p, r, &s);
    }
  }
  for (int64_t v = 0; p->dw && v < p->vocab; v++) weight_gradient(p, v, &s);
  status = TR_OK;
reset:
  tr_arena_reset(c->scratch, mark);
  return status;
}
