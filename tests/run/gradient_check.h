// SPDX-License-Identifier: MIT
// Checks that the gradients of a whole model are the derivatives of its loss: in f64 on the reference table, against
// differences of fourth order of the loss that a step reports, for elements of every tensor. Include cmocka first.
#ifndef TRIREME_TESTS_GRADIENT_CHECK_H
#define TRIREME_TESTS_GRADIENT_CHECK_H

#include "run/run_harness.h"

typedef struct gc_checked {
  rh_rank rank;
  double *gradient;
  uint32_t sample;
  int ntested;
} gc_checked;

static inline double gc_loss_of(rh_rank *r) {
  tr_step_result done;
  assert_true(rh_works(tr_run_step(r->run, 3, 0, r->input, &done))); // f64 runs never update
  return done.loss;
}

// Fourth order: (8 (f(h) - f(-h)) - (f(2h) - f(-2h))) / 12h.
static inline double gc_difference_quotient(rh_rank *r, double *w) {
  const double h = 1e-3, at = *w;
  double f[4];
  for (int i = 0; i < 4; i++) {
    *w = at + h * (double[]){1, -1, 2, -2}[i];
    f[i] = gc_loss_of(r);
  }
  *w = at;
  return (8 * (f[0] - f[1]) - (f[2] - f[3])) / (12 * h);
}

static inline void gc_check_element(gc_checked *c, int param, int64_t i, double largest) {
  int64_t at = c->rank.layout.param_offset[param] + i, begin, end;
  double quotient = gc_difference_quotient(&c->rank, (double *)tr_run_master(c->rank.run) + at), g = c->gradient[at];
  rh_key_bias(tr_model_param(c->rank.model, param), &begin, &end);
  double allowed = i >= begin && i < end ? 1e-11 : 1e-6 * fabs(g) + 1e-8 * largest + 1e-11;
  if (!(fabs(quotient - g) <= allowed))
    fail_msg("%s[%lld]: gradient %.12g, quotient %.12g", tr_model_param(c->rank.model, param)->name, (long long)i, g,
             quotient);
  c->ntested++;
}

static inline void gc_check_tensor(gc_checked *c, int param) {
  const double *g = c->gradient + c->rank.layout.param_offset[param];
  int64_t n = c->rank.layout.param_count[param], largest = 0;
  for (int64_t i = 0; i < n; i++)
    if (fabs(g[i]) > fabs(g[largest])) largest = i;
  assert_true(fabs(g[largest]) > 1e-6); // every tensor matters
  gc_check_element(c, param, largest, fabs(g[largest]));
  for (uint32_t k = 0; k < c->sample; k++)
    gc_check_element(c, param, rh_mix((uint32_t)param, k) % n, fabs(g[largest]));
}

// The largest element and `sample` others of every tensor.
static inline void gc_check(const rh_case *rh, uint32_t sample) {
  gc_checked c = {.sample = sample};
  assert_true(rh_works(rh_open(rh, NULL, &c.rank)));
  rh_deal(rh, 0, 0, c.rank.rows, c.rank.input);
  double loss = gc_loss_of(&c.rank);
  assert_true(loss > 1 && loss < 12);
  size_t nbyte = sizeof(double) * (size_t)c.rank.layout.total;
  c.gradient = malloc(nbyte);
  memcpy(c.gradient, tr_run_gradients(c.rank.run), nbyte);
  for (int p = 0; p < c.rank.layout.nparam; p++) gc_check_tensor(&c, p);
  assert_int_equal(c.ntested, (int)(sample + 1) * c.rank.layout.nparam);
  assert_true(loss == gc_loss_of(&c.rank)); // weights are back, bits do not change
  assert_memory_equal(c.gradient, tr_run_gradients(c.rank.run), nbyte);
  free(c.gradient);
  rh_close(&c.rank);
}

static inline rh_case gc_base(void) {
  rh_case c = rh_default();
  c.type = TR_F64;
  c.sequences = 4;
  return c;
}

#endif
