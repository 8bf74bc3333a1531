// SPDX-License-Identifier: MIT
// tier: quick
// timeout: 60
//
// Optimizers against their formulas written out in double: AdamW and SGD over several updates, decay by role, padding
// between segments left alone, the number and names of state arrays, and the clip factor at its edges.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "trireme/optim/optim.h"
#include <math.h>

enum { N = 64, UPDATES = 12 };

// A flat range with padding at 10..15, 25..31 and 60..63; roles in all four kinds, one segment empty.
static const tr_optim_segment segments[] = {
    {0, 10, TR_ROLE_MATRIX}, {16, 9, TR_ROLE_BIAS},       {32, 0, TR_ROLE_NORM},
    {32, 12, TR_ROLE_NORM},  {44, 16, TR_ROLE_EMBEDDING},
};
enum { NSEGMENT = sizeof segments / sizeof segments[0] };

static const tr_optim adamw = {.kind = TR_OPTIM_ADAMW, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-6, .weight_decay = 0.1};
static const tr_optim sgd = {.kind = TR_OPTIM_SGD, .weight_decay = 0.1};

static const tr_optim_segment *segment_of(size_t i) {
  for (int s = 0; s < NSEGMENT; s++) {
    if (i >= segments[s].start && i < segments[s].start + segments[s].count) return &segments[s];
  }
  return NULL;
}

static float start_weight(size_t i) { return (float)(0.5 * sin(0.7 * (double)i)); }

static float gradient(size_t i, int64_t step) { return (float)(0.3 * cos(1.1 * (double)i + 0.37 * (double)step)); }

// One weight's history in double.
static double twin_adamw(const tr_optim *o, size_t i, double decay, double lr, double scale) {
  double w = (double)start_weight(i), m = 0, v = 0;
  for (int64_t t = 1; t <= UPDATES; t++) {
    double g = scale * (double)gradient(i, t);
    m = o->beta1 * m + (1 - o->beta1) * g;
    v = o->beta2 * v + (1 - o->beta2) * g * g;
    double mean = m / (1 - pow(o->beta1, (double)t)), square = v / (1 - pow(o->beta2, (double)t));
    w -= lr * (decay * w + mean / (sqrt(square) + o->eps));
  }
  return w;
}

static double twin_sgd(const tr_optim *o, size_t i, double decay, double lr, double scale) {
  double w = (double)start_weight(i), buffer = 0;
  for (int64_t t = 1; t <= UPDATES; t++) {
    double g = scale * (double)gradient(i, t) + decay * w;
    buffer = t == 1 ? g : o->momentum * buffer + g;
    w -= lr * (o->nesterov ? g + o->momentum * buffer : buffer);
  }
  return w;
}

// Run UPDATES updates and compare every weight with its twin; padding must keep its bits, in weights and state.
static void check_updates(const tr_optim *o, double lr, double scale) {
  tr_compute c;
  float w[N], g[N], state0[N], state1[N];
  float *const all[TR_OPTIM_MAX_STATE] = {state0, state1};
  assert_int_equal(tr_compute_open(tr_kernels_reference(), NULL, NULL, &c), TR_OK);
  for (size_t i = 0; i < N; i++) {
    const tr_optim_segment *s = segment_of(i);
    w[i] = s ? start_weight(i) : 123;
    // SGD's first update must not read its buffer.
    state0[i] = state1[i] = !s ? 456 : o->kind == TR_OPTIM_SGD ? NAN : 0;
  }
  for (int64_t t = 1; t <= UPDATES; t++) {
    for (size_t i = 0; i < N; i++) g[i] = segment_of(i) ? gradient(i, t) : NAN;
    tr_optim_update(&c, o, t, lr, scale, segments, NSEGMENT, w, g, tr_optim_state_count(o) ? all : NULL, TR_F32,
                    NULL);
  }
  for (size_t i = 0; i < N; i++) {
    const tr_optim_segment *s = segment_of(i);
    if (!s) {
      assert_true(w[i] == 123 && state0[i] == 456 && state1[i] == 456);
      continue;
    }
    int decays = o->decay_all || s->role == TR_ROLE_MATRIX || s->role == TR_ROLE_EMBEDDING;
    double decay = decays ? o->weight_decay : 0;
    double twin = o->kind == TR_OPTIM_ADAMW ? twin_adamw(o, i, decay, lr, scale) : twin_sgd(o, i, decay, lr, scale);
    if (!(fabs((double)w[i] - twin) <= 2e-6)) fail_msg("weight %zu is %.9g, not %.9g", i, (double)w[i], twin);
  }
  tr_compute_close(&c);
}

static void adamw_follows_its_formula(void **state) {
  (void)state;
  check_updates(&adamw, 0.01, 1);
  check_updates(&adamw, 0.01, 0.01);
}

static void sgd_follows_its_formula(void **state) {
  (void)state;
  tr_optim o = sgd;
  check_updates(&o, 0.05, 1);
  check_updates(&o, 0.05, 0.25);
  o.momentum = 0.9;
  check_updates(&o, 0.05, 1);
  o.nesterov = 1;
  check_updates(&o, 0.05, 0.5);
}

static void decay_all_reaches_biases_and_norms(void **state) {
  (void)state;
  tr_optim o = adamw;
  o.decay_all = 1;
  check_updates(&o, 0.01, 1);
  o = sgd;
  o.decay_all = 1;
  check_updates(&o, 0.05, 1);
}

static void decay_goes_by_role(void **state) {
  (void)state;
  tr_optim o = adamw;
  assert_true(tr_optim_decays(&o, TR_ROLE_MATRIX));
  assert_true(tr_optim_decays(&o, TR_ROLE_EMBEDDING));
  assert_false(tr_optim_decays(&o, TR_ROLE_BIAS));
  assert_false(tr_optim_decays(&o, TR_ROLE_NORM));
  o.decay_all = 1;
  assert_true(tr_optim_decays(&o, TR_ROLE_BIAS));
  assert_true(tr_optim_decays(&o, TR_ROLE_NORM));
}

// With no gradient, only decay moves weights: matrices and embeddings shrink, the rest stays bit for bit.
static void without_gradient_only_decay_moves_weights(void **state) {
  (void)state;
  tr_compute c;
  float w[N], g[N] = {0}, m[N] = {0}, v[N] = {0};
  float *const all[TR_OPTIM_MAX_STATE] = {m, v};
  assert_int_equal(tr_compute_open(tr_kernels_reference(), NULL, NULL, &c), TR_OK);
  for (size_t i = 0; i < N; i++) w[i] = 1;
  tr_optim_update(&c, &adamw, 1, 0.5, 1, segments, NSEGMENT, w, g, all, TR_F32, NULL);
  for (size_t i = 0; i < N; i++) {
    const tr_optim_segment *s = segment_of(i);
    int decays = s && (s->role == TR_ROLE_MATRIX || s->role == TR_ROLE_EMBEDDING);
    assert_true(decays ? fabs((double)w[i] - 0.95) < 1e-6 : w[i] == 1);
  }
  tr_compute_close(&c);
}

// A range cut at any place and updated in two calls has the bits of one call.
static void splitting_a_range_changes_no_bit(void **state) {
  (void)state;
  tr_compute c;
  assert_int_equal(tr_compute_open(tr_kernels_reference(), NULL, NULL, &c), TR_OK);
  for (size_t cut = 0; cut <= N; cut += 7) {
    float w[2][N], g[N], m[2][N] = {{0}}, v[2][N] = {{0}};
    float *const one[] = {m[0], v[0]}, *const two[] = {m[1], v[1]}, *const rest[] = {m[1] + cut, v[1] + cut};
    for (size_t i = 0; i < N; i++) w[0][i] = w[1][i] = start_weight(i);
    const tr_optim_segment all = {0, N, TR_ROLE_MATRIX}, low = {0, cut, TR_ROLE_MATRIX},
                           high = {0, N - cut, TR_ROLE_MATRIX};
    for (int64_t t = 1; t <= 3; t++) {
      for (size_t i = 0; i < N; i++) g[i] = gradient(i, t);
      tr_optim_update(&c, &adamw, t, 0.01, 1, &all, 1, w[0], g, one, TR_F32, NULL);
      tr_optim_update(&c, &adamw, t, 0.01, 1, &low, 1, w[1], g, two, TR_F32, NULL);
      tr_optim_update(&c, &adamw, t, 0.01, 1, &high, 1, w[1] + cut, g + cut, rest, TR_F32, NULL);
    }
    assert_memory_equal(w[0], w[1], sizeof w[0]);
    assert_memory_equal(v[0], v[1], sizeof v[0]);
  }
  tr_compute_close(&c);
}

// Bias correction has faded by then; a power by repeated products must not over- or underflow into a NaN.
static void very_late_steps_are_finite(void **state) {
  (void)state;
  tr_compute c;
  float w[] = {1}, g[] = {0.5f}, m[] = {0.5f}, v[] = {0.25f};
  float *const all[] = {m, v};
  const tr_optim_segment s = {0, 1, TR_ROLE_BIAS};
  assert_int_equal(tr_compute_open(tr_kernels_reference(), NULL, NULL, &c), TR_OK);
  tr_optim_update(&c, &adamw, (int64_t)1 << 40, 0.1, 1, &s, 1, w, g, all, TR_F32, NULL);
  assert_true(fabs((double)w[0] - 0.9) < 1e-5);
  tr_compute_close(&c);
}

static void state_arrays_are_counted_and_named(void **state) {
  (void)state;
  tr_optim o = sgd;
  assert_int_equal(tr_optim_state_count(&adamw), 2);
  assert_string_equal(tr_optim_state_name(&adamw, 0), "exp_avg");
  assert_string_equal(tr_optim_state_name(&adamw, 1), "exp_avg_sq");
  assert_string_equal(tr_optim_state_name(&adamw, 2), "");
  assert_string_equal(tr_optim_state_name(&adamw, -1), "");
  assert_int_equal(tr_optim_state_count(&o), 0);
  assert_string_equal(tr_optim_state_name(&o, 0), "");
  o.momentum = 0.9;
  assert_int_equal(tr_optim_state_count(&o), 1);
  assert_string_equal(tr_optim_state_name(&o, 0), "momentum_buffer");
}

static void clip_factor_bounds_the_norm(void **state) {
  (void)state;
  const double inf = (double)INFINITY;
  assert_true(tr_clip_factor(2, 1) == 1 / (2 + 1e-6));
  assert_true(tr_clip_factor(0.5, 1) == 1); // never enlarges
  assert_true(tr_clip_factor(0, 1) == 1);
  assert_true(tr_clip_factor(1e-30, 1e-3) == 1);
  assert_true(tr_clip_factor(inf, 1) == 0);
  assert_true(tr_clip_factor(5, 0) == 1); // off
  assert_true(tr_clip_factor(inf, 0) == 1);
  assert_true(tr_clip_factor(5, -1) == 1);
  assert_true(isnan(tr_clip_factor((double)NAN, 1))); // a broken gradient stays visible
  for (double norm = 1e-3; norm < 1e6; norm *= 1.7) assert_true(norm * tr_clip_factor(norm, 1) <= 1);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(adamw_follows_its_formula),
      cmocka_unit_test(sgd_follows_its_formula),
      cmocka_unit_test(decay_all_reaches_biases_and_norms),
      cmocka_unit_test(decay_goes_by_role),
      cmocka_unit_test(without_gradient_only_decay_moves_weights),
      cmocka_unit_test(splitting_a_range_changes_no_bit),
      cmocka_unit_test(very_late_steps_are_finite),
      cmocka_unit_test(state_arrays_are_counted_and_named),
      cmocka_unit_test(clip_factor_bounds_the_norm),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
