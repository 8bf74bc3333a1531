// SPDX-License-Identifier: MIT
// tier: quick
// timeout: 60
// The reference kernels give values that can be checked by hand: a 2 x 3 product in all four storage orders,
// the normalisation of 1 2 3 4, quarter turns, GELU and SwiGLU of a few numbers, the entropy of uniform logits,
// attention over equal keys, and dropout whose masks depend on sample, position and feature alone.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kernel/kernel_conformance.h"

static conform_bench bench;
static const tr_compute *c;

static int setup(void **state) {
  (void)state;
  bench_open(&bench, tr_kernels_reference());
  c = &bench.reference;
  return 0;
}

static int teardown(void **state) {
  (void)state;
  bench_close(&bench);
  return 0;
}

static void matmul_gives_hand_computed_products_in_every_storage_order(void **state) {
  (void)state;
  const double a[] = {1, 2, 3, 4, 5, 6}, a_transposed[] = {1, 4, 2, 5, 3, 6};
  const double b[] = {1, 0, 2, 1, 3, 5}, b_transposed[] = {1, 2, 3, 0, 1, 5};
  const double bias[] = {100, 200}, expected[] = {14, 17, 32, 35};
  for (int option = 0; option < 16; option++) {
    int trans_a = option & 1, trans_b = option >> 1 & 1, add = option >> 2 & 1, with_bias = option >> 3;
    double out[] = {1000, 1000, -7, 1000, 1000, -7};
    tr_matmul p = {.m = 2, .n = 2, .k = 3, .trans_a = trans_a, .trans_b = trans_b, .add = add, .ldc = 3};
    p.lda = trans_a ? 2 : 3;
    p.ldb = trans_b ? 3 : 2;
    p.type = p.type_c = TR_F64;
    assert_int_equal(c->kernels->matmul(c, &p, trans_a ? a_transposed : a, trans_b ? b_transposed : b,
                                        with_bias ? bias : NULL, out),
                     TR_OK);
    for (int i = 0; i < 2; i++) {
      for (int j = 0; j < 2; j++)
        assert_true(out[i * 3 + j] == expected[i * 2 + j] + (with_bias ? bias[j] : 0) + (add ? 1000 : 0));
      assert_true(out[i * 3 + 2] == -7);
    }
  }
}

static void matmul_names_an_output_type_it_cannot_write(void **state) {
  (void)state;
  tr_matmul p = {.type = TR_F32, .type_c = TR_BF16};
  assert_int_equal(c->kernels->matmul(c, &p, NULL, NULL, NULL, NULL), TR_ERR_USAGE);
  assert_non_null(strstr(tr_status_text(), "bf16"));
}

static void matmul_without_inner_dimension_writes_zeros_or_the_bias(void **state) {
  (void)state;
  float out[2] = {NAN, NAN}, bias[2] = {3, 4};
  tr_matmul p = {.m = 1, .n = 2, .k = 0, .lda = 1, .ldb = 2, .ldc = 2, .type = TR_F32, .type_c = TR_F32};
  assert_int_equal(c->kernels->matmul(c, &p, NULL, NULL, NULL, out), TR_OK);
  assert_true(out[0] == 0 && out[1] == 0);
  assert_int_equal(c->kernels->matmul(c, &p, NULL, NULL, bias, out), TR_OK);
  assert_true(out[0] == 3 && out[1] == 4);
}

// Mean 5/2, variance 5/4: (x - 5/2) / sqrt(5/4) = -3, -1, 1, 3 over sqrt(5).
static void layernorm_of_one_to_four(void **state) {
  (void)state;
  const double x[] = {1, 2, 3, 4}, gamma[] = {1, 1, 2, 1}, beta[] = {0, 0, 0, 10};
  const double root = 2.2360679774997897;
  double y[4], mean, rstd;
  c->kernels->layernorm_forward(c, 1, 4, TR_F64, 0, x, gamma, beta, y, &mean, &rstd);
  const double expected[] = {-3 / root, -1 / root, 2 / root, 3 / root + 10};
  for (int i = 0; i < 4; i++) expect_near(y[i], expected[i], 1e-14);
  expect_near(mean, 2.5, 1e-15);
  expect_near(rstd, 2 / root, 1e-15);
}

static void layernorm_weight_gradient_without_rows_is_zero(void **state) {
  (void)state;
  float dgamma[2] = {NAN, NAN}, dbeta[2] = {NAN, NAN}, gamma[2] = {1, 1};
  c->kernels->layernorm_backward(c, 0, 2, TR_F32, NULL, NULL, gamma, NULL, NULL, NULL, 0, dgamma, dbeta, 0);
  assert_true(dgamma[0] == 0 && dgamma[1] == 0 && dbeta[0] == 0 && dbeta[1] == 0);
}

// Root mean square of 3 4: sqrt(25/2). Two vectors in a row, the second one twice the first.
static void rmsnorm_of_three_and_four(void **state) {
  (void)state;
  const double x[] = {3, 4, 6, 8, NAN}, gamma[] = {1, 10}, root = 3.5355339059327378;
  double y[5] = {0, 0, 0, 0, -7}, rstd[2], dgamma[2] = {NAN, NAN};
  tr_rmsnorm p = {.rows = 1, .count = 2, .width = 2, .ld_x = 5, .ld_y = 5, .type = TR_F64};
  c->kernels->rmsnorm_forward(c, &p, x, gamma, y, rstd);
  const double expected[] = {3 / root, 40 / root, 3 / root, 40 / root, -7};
  for (int i = 0; i < 5; i++) expect_near(y[i], expected[i], 1e-14);
  expect_near(rstd[0], 1 / root, 1e-15);
  expect_near(rstd[1], 0.5 / root, 1e-15);
  p.rows = 0;
  c->kernels->rmsnorm_backward(c, &p, NULL, NULL, gamma, NULL, NULL, 0, dgamma, 0);
  assert_true(dgamma[0] == 0 && dgamma[1] == 0);
}

// Elements 0 and 2 turn by a quarter per position, 1 and 3 not at all.
static void rope_turns_halves_against_each_other(void **state) {
  (void)state;
  const int32_t position[] = {1, 2};
  const double frequency[] = {1.5707963267948966, 0};
  double x[] = {1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3, 4, 5, 6, 7, 8};
  const double expected[] = {-3, 2, 1, 4, -7, 6, 5, 8, -1, 2, -3, 4, -5, 6, -7, 8};
  tr_rope p = {.rows = 2, .count = 2, .dim = 4, .ld = 8, .type = TR_F64, .scale = 0.5};
  p.position = position, p.frequency = frequency;
  c->kernels->rope(c, &p, x);
  for (int i = 0; i < 16; i++) expect_near(x[i], 0.5 * expected[i], 1e-14);
  p.inverse = 1, p.scale = 2;
  c->kernels->rope(c, &p, x);
  for (int i = 0; i < 16; i++) expect_near(x[i], 1 + i % 8, 1e-14);
}

// The angle is a number of f32, even where the frequency is not one and an f64 angle would be another.
static void rope_of_f32_rounds_the_angle(void **state) {
  (void)state;
  const int32_t position[] = {100003};
  const double frequency[] = {0.1};
  const float angle = 100003.0f * 0.1f;
  assert_true(fabs((double)angle - 100003 * 0.1) > 1e-4);
  float x[] = {1, 0};
  tr_rope p = {.rows = 1, .count = 1, .dim = 2, .ld = 2, .type = TR_F32, .scale = 1};
  p.position = position, p.frequency = frequency;
  c->kernels->rope(c, &p, x);
  expect_near((double)x[0], cos((double)angle), 1e-7);
  expect_near((double)x[1], sin((double)angle), 1e-7);
}

// silu(1) = 1 / (1 + 1/e), silu(-1) = silu(1) - 1; the slope at 0 is 1/2.
static void swiglu_has_the_known_values(void **state) {
  (void)state;
  const double x[] = {1, -1, 0, 2, 3, 4}, dy[] = {1, 1, 1};
  double y[3], dx[6];
  c->kernels->swiglu_forward(c, 1, 3, TR_F64, x, y);
  expect_near(y[0], 2 * 0.7310585786300049, 1e-15);
  expect_near(y[1], 3 * -0.2689414213699951, 1e-15);
  expect_near(y[2], 0, 0);
  c->kernels->swiglu_backward(c, 1, 3, TR_F64, x, dy, dx);
  expect_near(dx[2], 4 * 0.5, 1e-15);
  expect_near(dx[3], 0.7310585786300049, 1e-15);
}

// Values of 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) to 13 digits.
static void gelu_has_the_known_values(void **state) {
  (void)state;
  const double x[] = {0, 1, -1, 2, -3, 0.5, 40, -40};
  const double expected[] = {
      0, 0.8411919906083, -0.1588080093917, 1.9545976940878, -0.0036373920818, 0.3457140098252, 40, 0};
  double y[8];
  c->kernels->gelu_forward(c, 8, TR_F64, x, y);
  for (int i = 0; i < 8; i++) expect_near(y[i], expected[i], 1e-12);
}

static void embedding_adds_token_and_position_rows(void **state) {
  (void)state;
  const int32_t token[] = {2, 0, 2}, position[] = {0, 1, 1};
  const float wte[] = {1, 2, 3, 4, 5, 6}, wpe[] = {10, 20, 30, 40};
  float y[6];
  c->kernels->embedding_forward(c, 3, 2, TR_F32, token, position, wte, wpe, NULL, y);
  const float both[] = {15, 26, 31, 42, 35, 46}, token_only[] = {5, 6, 1, 2, 5, 6};
  assert_memory_equal(y, both, sizeof y);
  c->kernels->embedding_forward(c, 3, 2, TR_F32, token, NULL, wte, NULL, NULL, y);
  assert_memory_equal(y, token_only, sizeof y);
  const float dy[] = {1, 2, 3, 4, 5, 6}, dwte_expected[] = {3, 4, 0, 0, 6, 8}, dwpe_expected[] = {1, 2, 8, 10};
  float dwte[6] = {9, 9, 9, 9, 9, 9}, dwpe[4] = {9, 9, 9, 9};
  c->kernels->embedding_backward(c, 3, 2, TR_F32, token, position, NULL, dy, dwte, 3, 0, dwpe, 2, 0);
  assert_memory_equal(dwte, dwte_expected, sizeof dwte);
  assert_memory_equal(dwpe, dwpe_expected, sizeof dwpe);
}

static void uniform_logits_cost_the_logarithm_of_the_vocabulary(void **state) {
  (void)state;
  const double x[] = {1, -2, 3, 0}, w[14] = {0};
  const int32_t target[] = {6, -1};
  double loss[2] = {NAN, NAN}, dx[4], dw[14];
  tr_head_loss p = {
      .rows = 2, .width = 2, .vocab = 7, .type = TR_F64, .scale = 0.5, .x = x, .w = w, .target = target};
  p.loss = loss, p.dx = dx, p.dw = dw;
  assert_int_equal(c->kernels->head_loss(c, &p), TR_OK);
  expect_near(loss[0], 1.9459101490553132, 1e-14); // log 7
  assert_true(loss[1] == 0);
  for (int v = 0; v < 7; v++) {
    double probability = 1.0 / 7 - (v == 6);
    expect_near(dw[2 * v], 0.5 * probability, 1e-15);
    expect_near(dw[2 * v + 1], -1 * probability, 1e-15);
  }
}

static void head_loss_names_a_target_outside_the_vocabulary(void **state) {
  (void)state;
  const float x[1] = {0}, w[3] = {0};
  const int32_t target[] = {3};
  float loss[1];
  tr_head_loss p = {
      .rows = 1, .width = 1, .vocab = 3, .type = TR_F32, .x = x, .w = w, .target = target, .loss = loss};
  assert_int_equal(c->kernels->head_loss(c, &p), TR_ERR_DATA);
  assert_non_null(strstr(tr_status_text(), "target 3"));
}

// --- attention ---

static tr_attention one_sequence(const int32_t start[2], const int32_t *pos) {
  return (tr_attention){.nseq = 1,
                        .query_start = start,
                        .key_start = start,
                        .query_pos = pos,
                        .key_pos = pos,
                        .head = 1,
                        .head_kv = 1,
                        .dim = 1,
                        .ld_q = 1,
                        .ld_k = 1,
                        .ld_v = 1,
                        .ld_out = 1,
                        .type = TR_F64,
                        .scale = 1,
                        .first = 1,
                        .last = 1};
}

static void attention_over_equal_keys_is_the_mean_of_what_is_seen(void **state) {
  (void)state;
  const int32_t start[] = {0, 3}, pos[] = {0, 1, 2};
  const double q[] = {1, 1, 1}, k[] = {0, 0, 0}, v[] = {6, 0, 3};
  double out[3], lse[3];
  tr_attention p = one_sequence(start, pos);
  assert_int_equal(c->kernels->attention_forward(c, &p, q, k, v, NULL, out, lse), TR_OK);
  expect_near(out[0], 6, 1e-15);
  expect_near(out[1], 3, 1e-15);
  expect_near(out[2], 3, 1e-15);
  expect_near(lse[0], 0, 1e-15);
  expect_near(lse[1], log(2), 1e-15);
  expect_near(lse[2], log(3), 1e-15);
}

static void attention_with_a_window_forgets_what_lies_before(void **state) {
  (void)state;
  const int32_t start[] = {0, 4}, pos[] = {0, 1, 2, 3};
  const double q[] = {1, 1, 1, 1}, k[] = {0, 0, 0, 0}, v[] = {6, 0, 3, 9};
  const double mean[4][4] = {{6, 3, 3, 4.5}, {6, 0, 3, 9}, {6, 3, 1.5, 6}, {6, 3, 3, 4}}; // windows 0 1 2 3
  double out[4], lse[4];
  tr_attention p = one_sequence(start, pos);
  for (p.window = 0; p.window < 4; p.window++) {
    assert_int_equal(c->kernels->attention_forward(c, &p, q, k, v, NULL, out, lse), TR_OK);
    for (int i = 0; i < 4; i++) expect_near(out[i], mean[p.window][i], 1e-15);
  }
}

static void attention_weights_follow_the_softmax(void **state) {
  (void)state;
  const int32_t start[] = {0, 2}, pos[] = {0, 1};
  const double q[] = {0, 2}, k[] = {0, log(3) / 2}, v[] = {1, 5}; // the last query's scores: 0 and log 3
  double out[2], lse[2];
  tr_attention p = one_sequence(start, pos);
  assert_int_equal(c->kernels->attention_forward(c, &p, q, k, v, NULL, out, lse), TR_OK);
  expect_near(out[1], 0.25 * 1 + 0.75 * 5, 1e-14);
  expect_near(lse[1], log(4), 1e-14);
}

static void attention_of_a_query_without_keys_is_zero(void **state) {
  (void)state;
  const int32_t start[] = {0, 1}, query_pos[] = {0}, key_pos[] = {1};
  const double one[] = {1};
  double out = NAN, lse = NAN;
  tr_attention p = one_sequence(start, query_pos);
  p.key_pos = key_pos;
  assert_int_equal(c->kernels->attention_forward(c, &p, one, one, one, NULL, &out, &lse), TR_OK);
  assert_true(out == 0);
  assert_true(isinf(lse) && lse < 0);
}

static void attention_in_several_calls_asks_for_running_state(void **state) {
  (void)state;
  const int32_t start[] = {0, 1}, pos[] = {0};
  const double one[] = {1};
  double out, lse;
  tr_attention p = one_sequence(start, pos);
  p.last = 0;
  assert_int_equal(c->kernels->attention_forward(c, &p, one, one, one, NULL, &out, &lse), TR_ERR_USAGE);
  p.head = 3, p.head_kv = 2, p.last = 1;
  assert_int_equal(c->kernels->attention_forward(c, &p, one, one, one, NULL, &out, &lse), TR_ERR_USAGE);
}

static void scratch_that_is_too_small_is_reported_and_given_back(void **state) {
  (void)state;
  const int32_t start[] = {0, 1}, pos[] = {0};
  const double one[] = {1};
  double out, lse;
  char memory[64];
  tr_arena small;
  tr_arena_wrap(&small, "small", memory, sizeof memory);
  tr_compute other = {.kernels = tr_kernels_reference(), .scratch = &small};
  tr_attention p = one_sequence(start, pos);
  assert_int_equal(other.kernels->attention_forward(&other, &p, one, one, one, NULL, &out, &lse), TR_ERR_MEMORY);
  assert_true(small.used == 0);
}

// --- dropout ---

enum { ROWS = 64, WIDTH = 300 };

static tr_dropout rows_from(const int64_t *sample, const int32_t *position) {
  return (tr_dropout){
      .p = 0.2f, .key = tr_rng_key_make(3, TR_RNG_DROPOUT, 4), .sample = sample, .position = position};
}

static void dropout_keeps_the_asked_share_and_scales_it(void **state) {
  (void)state;
  static double y[ROWS * WIDTH], out[ROWS * WIDTH];
  int64_t sample[ROWS];
  int32_t position[ROWS];
  for (int r = 0; r < ROWS; r++) sample[r] = r / 8, position[r] = r % 8;
  for (int i = 0; i < ROWS * WIDTH; i++) y[i] = 1;
  tr_dropout dropout = rows_from(sample, position);
  c->kernels->dropout_backward(c, ROWS, WIDTH, TR_F64, &dropout, y, out);
  int kept = 0;
  for (int i = 0; i < ROWS * WIDTH; i++) {
    assert_true(out[i] == 0 || fabs(out[i] - 1.25) < 1e-6);
    kept += out[i] != 0;
  }
  // 19200 draws with standard deviation 0.0029: five of them either way.
  expect_near((double)kept / (ROWS * WIDTH), 0.8, 0.0145);
}

static void dropout_masks_do_not_depend_on_how_rows_are_split(void **state) {
  (void)state;
  static float x[ROWS * WIDTH], y[ROWS * WIDTH], whole[ROWS * WIDTH], parts[ROWS * WIDTH];
  int64_t sample[ROWS];
  int32_t position[ROWS];
  for (int r = 0; r < ROWS; r++) sample[r] = r / 8, position[r] = r % 8;
  random_fill(TR_F32, y, ROWS * WIDTH, 1, 1, 0);
  tr_dropout dropout = rows_from(sample, position);
  c->kernels->residual_forward(c, ROWS, WIDTH, TR_F32, x, y, &dropout, whole);
  const int cuts[] = {0, 1, 8, 29, ROWS};
  for (int i = 3; i >= 0; i--) { // last part first
    tr_dropout part = rows_from(sample + cuts[i], position + cuts[i]);
    int at = cuts[i] * WIDTH;
    c->kernels->residual_forward(c, cuts[i + 1] - cuts[i], WIDTH, TR_F32, x + at, y + at, &part, parts + at);
  }
  assert_memory_equal(whole, parts, sizeof whole);
}

// The mask of attention probabilities is that of (sample, position of the query, head, position of the key).
static void attention_dropout_masks_follow_positions(void **state) {
  (void)state;
  enum { KEYS = 40, HEADS = 2 };
  int32_t start[2] = {0, KEYS}, pos[KEYS], position[KEYS];
  int64_t sample[KEYS];
  double zero[KEYS * HEADS] = {0}, v[KEYS], out[KEYS * HEADS], lse[KEYS * HEADS];
  tr_attention p = one_sequence(start, pos);
  p.head = HEADS;
  p.ld_q = p.ld_out = HEADS;
  for (int i = 0; i < KEYS; i++) pos[i] = position[i] = i, sample[i] = 9, v[i] = 1;
  p.dropout = rows_from(sample, position);
  p.dropout_stride = 1000;
  assert_int_equal(c->kernels->attention_forward(c, &p, zero, zero, v, NULL, out, lse), TR_OK);
  for (int n = 0; n < KEYS * HEADS; n++) {
    int i = n / HEADS, h = n % HEADS, kept = 0;
    for (int j = 0; j <= i; j++)
      kept += tr_rng_uniform(p.dropout.key, 9, (uint32_t)i, (uint32_t)(h * 1000 + j)) >= 0.2f;
    expect_near(out[n], kept * 1.25 / (i + 1), 1e-6);
    expect_near(lse[n], log(i + 1), 1e-13); // not touched by dropout
  }
}

static void results_in_bf16_are_rounded_to_nearest(void **state) {
  (void)state;
  const float exact[] = {1, 0x1p-8f}; // the sum lies half-way between two bf16 numbers; 1 is even
  tr_bf16 x[1] = {tr_f32_to_bf16(exact[0])}, y[1] = {tr_f32_to_bf16(exact[1])};
  c->kernels->add(c, 1, TR_BF16, x, y);
  assert_int_equal(y[0], tr_f32_to_bf16(1));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(matmul_gives_hand_computed_products_in_every_storage_order),
      cmocka_unit_test(matmul_names_an_output_type_it_cannot_write),
      cmocka_unit_test(matmul_without_inner_dimension_writes_zeros_or_the_bias),
      cmocka_unit_test(layernorm_of_one_to_four),
      cmocka_unit_test(layernorm_weight_gradient_without_rows_is_zero),
      cmocka_unit_test(rmsnorm_of_three_and_four),
      cmocka_unit_test(rope_turns_halves_against_each_other),
      cmocka_unit_test(rope_of_f32_rounds_the_angle),
      cmocka_unit_test(swiglu_has_the_known_values),
      cmocka_unit_test(gelu_has_the_known_values),
      cmocka_unit_test(embedding_adds_token_and_position_rows),
      cmocka_unit_test(uniform_logits_cost_the_logarithm_of_the_vocabulary),
      cmocka_unit_test(head_loss_names_a_target_outside_the_vocabulary),
      cmocka_unit_test(attention_over_equal_keys_is_the_mean_of_what_is_seen),
      cmocka_unit_test(attention_with_a_window_forgets_what_lies_before),
      cmocka_unit_test(attention_weights_follow_the_softmax),
      cmocka_unit_test(attention_of_a_query_without_keys_is_zero),
      cmocka_unit_test(attention_in_several_calls_asks_for_running_state),
      cmocka_unit_test(scratch_that_is_too_small_is_reported_and_given_back),
      cmocka_unit_test(dropout_keeps_the_asked_share_and_scales_it),
      cmocka_unit_test(dropout_masks_do_not_depend_on_how_rows_are_split),
      cmocka_unit_test(attention_dropout_masks_follow_positions),
      cmocka_unit_test(results_in_bf16_are_rounded_to_nearest),
  };
  return cmocka_run_group_tests(tests, setup, teardown);
}
