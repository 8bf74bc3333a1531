// SPDX-License-Identifier: MIT
// tier: quick
// timeout: 120
// Proves that the gradients of the whole model are the derivatives of the loss: in f64, against differences
// of fourth order of the loss that a step reports, for elements of every tensor, with dropout, tied and
// untied heads, and accumulation.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "run/run_harness.h"
#include "trireme/model/piece.h"

typedef struct checked {
  rh_rank rank;
  double *gradient;
  uint32_t sample;
  int ntested;
} checked;

static double loss_of(rh_rank *r) {
  tr_step_result done;
  assert_true(rh_works(tr_run_step(r->run, 3, 0, r->input, &done))); // f64 runs never update
  return done.loss;
}

// Fourth order: (8 (f(h) - f(-h)) - (f(2h) - f(-2h))) / 12h.
static double difference_quotient(rh_rank *r, double *w) {
  const double h = 1e-3, at = *w;
  double f[4];
  for (int i = 0; i < 4; i++) {
    *w = at + h * (double[]){1, -1, 2, -2}[i];
    f[i] = loss_of(r);
  }
  *w = at;
  return (8 * (f[0] - f[1]) - (f[2] - f[3])) / (12 * h);
}

static void check_element(checked *c, int param, int64_t i, double largest) {
  int64_t at = c->rank.layout.param_offset[param] + i, begin, end;
  double quotient = difference_quotient(&c->rank, (double *)tr_run_master(c->rank.run) + at), g = c->gradient[at];
  rh_key_bias(tr_model_param(c->rank.model, param), &begin, &end);
  double allowed = i >= begin && i < end ? 1e-11 : 1e-6 * fabs(g) + 1e-8 * largest + 1e-11;
  if (!(fabs(quotient - g) <= allowed))
    fail_msg("%s[%lld]: gradient %.12g, quotient %.12g", tr_model_param(c->rank.model, param)->name, (long long)i, g,
             quotient);
  c->ntested++;
}

static void check_tensor(checked *c, int param) {
  const double *g = c->gradient + c->rank.layout.param_offset[param];
  int64_t n = c->rank.layout.param_count[param], largest = 0;
  for (int64_t i = 0; i < n; i++)
    if (fabs(g[i]) > fabs(g[largest])) largest = i;
  assert_true(fabs(g[largest]) > 1e-6); // every tensor matters
  check_element(c, param, largest, fabs(g[largest]));
  for (uint32_t k = 0; k < c->sample; k++) check_element(c, param, rh_mix((uint32_t)param, k) % n, fabs(g[largest]));
}

// The largest element and `sample` others of every tensor.
static void check_case(const rh_case *rh, uint32_t sample) {
  checked c = {.sample = sample};
  assert_true(rh_works(rh_open(rh, NULL, &c.rank)));
  rh_deal(rh, 0, 0, c.rank.rows, c.rank.input);
  double loss = loss_of(&c.rank);
  assert_true(loss > 1 && loss < 12);
  size_t nbyte = sizeof(double) * (size_t)c.rank.layout.total;
  c.gradient = malloc(nbyte);
  memcpy(c.gradient, tr_run_gradients(c.rank.run), nbyte);
  for (int p = 0; p < c.rank.layout.nparam; p++) check_tensor(&c, p);
  assert_int_equal(c.ntested, (int)(sample + 1) * c.rank.layout.nparam);
  assert_true(loss == loss_of(&c.rank)); // weights are back, bits do not change
  assert_memory_equal(c.gradient, tr_run_gradients(c.rank.run), nbyte);
  free(c.gradient);
  rh_close(&c.rank);
}

static rh_case base(void) {
  rh_case c = rh_default();
  c.type = TR_F64;
  c.sequences = 4;
  return c;
}

static void tied_head(void **state) {
  (void)state;
  rh_case c = base();
  check_case(&c, 3);
}

static void untied_head_with_dropout(void **state) {
  (void)state;
  rh_case c = base();
  c.tied = 0;
  c.dropout = 0.2;
  check_case(&c, 3);
}

static void several_micro_batches_and_split_backward(void **state) {
  (void)state;
  rh_case c = base();
  c.micro = 3; // 4 sequences: 2, 2, none
  c.split = 1;
  c.dropout = 0.1;
  check_case(&c, 10);
}

static void summing_after_every_micro_batch(void **state) {
  (void)state;
  rh_case c = base();
  c.micro = 2;
  c.sync = TR_SYNC_EVERY;
  c.tied = 0;
  check_case(&c, 3);
}

// x is read by a norm and by two residual sums, as the stream of one and as the branch of the other: every way in
// which a gradient gets its contributions.
static tr_status own_model(tr_model **out) {
  enum { WIDTH = 8 };
  tr_model *m;
  TR_TRY(tr_model_create("own", &m));
  tr_model_set_limits(m, RH_VOCAB, RH_POSITIONS);
  int unit = tr_model_add_unit(m, "all");
  tr_param wte = {.name = "wte", .init = TR_INIT_NORMAL, .std = 0.5, .shape = {2, {RH_VOCAB, WIDTH}}};
  tr_param gamma = {.name = "gamma", .init = TR_INIT_ONES, .shape = {1, {WIDTH}}}, beta = gamma, weight = wte;
  beta.name = "beta";
  weight.name = "weight";
  weight.shape.dim[0] = WIDTH;
  int e = tr_model_add_param(m, unit, &wte), g = tr_model_add_param(m, unit, &gamma),
      b = tr_model_add_param(m, unit, &beta), w = tr_model_add_param(m, unit, &weight);
  static const char *const name[] = {"x", "normed", "product", "bent", "sum", "sum2"};
  int v[6];
  for (int i = 0; i < 6; i++) v[i] = tr_model_add_value(m, name[i], TR_VALUE_ACTIVATION, WIDTH);
  int mean = tr_model_add_value(m, "mean", TR_VALUE_STATE, 1),
      rstd = tr_model_add_value(m, "rstd", TR_VALUE_STATE, 1);
  tr_piece_embedding(m, "embedding", e, -1, 0, v[0]);
  tr_piece_layernorm(m, "norm", g, b, 1e-5, v[0], v[1], mean, rstd);
  tr_piece_linear(m, "linear", w, -1, v[1], v[2], 0);
  tr_piece_gelu(m, "gelu", v[2], v[3]);
  tr_piece_residual(m, "first", 0.1, v[0], v[3], v[4]);
  tr_piece_residual(m, "second", 0, v[4], v[0], v[5]);
  tr_piece_head_loss(m, "head", e, v[5], tr_model_add_value(m, "loss", TR_VALUE_STATE, 1));
  *out = m;
  return tr_model_finish(m);
}

static void a_value_read_three_times(void **state) {
  (void)state;
  for (int split = 0; split < 2; split++) {
    rh_case c = base();
    c.model = own_model;
    c.split = split;
    c.micro = 2;
    check_case(&c, 10);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(tied_head),
      cmocka_unit_test(untied_head_with_dropout),
      cmocka_unit_test(several_micro_batches_and_split_backward),
      cmocka_unit_test(summing_after_every_micro_batch),
      cmocka_unit_test(a_value_read_three_times),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
