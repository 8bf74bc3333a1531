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

#include "run/gradient_check.h"
#include "trireme/model/piece.h"

static void tied_head(void **state) {
  (void)state;
  rh_case c = gc_base();
  gc_check(&c, 3);
}

static void untied_head_with_dropout(void **state) {
  (void)state;
  rh_case c = gc_base();
  c.tied = 0;
  c.dropout = 0.2;
  gc_check(&c, 3);
}

static void several_micro_batches_and_split_backward(void **state) {
  (void)state;
  rh_case c = gc_base();
  c.micro = 3; // 4 sequences: 2, 2, none
  c.split = 1;
  c.dropout = 0.1;
  gc_check(&c, 10);
}

static void summing_after_every_micro_batch(void **state) {
  (void)state;
  rh_case c = gc_base();
  c.micro = 2;
  c.sync = TR_SYNC_EVERY;
  c.tied = 0;
  gc_check(&c, 3);
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
    rh_case c = gc_base();
    c.model = own_model;
    c.split = split;
    c.micro = 2;
    gc_check(&c, 10);
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
