// SPDX-License-Identifier: MIT
// tier: quick
// timeout: 60
// Proves that the decoder's logits are those of the training forward pass, however the tokens are appended, that it
// refuses what does not fit, and that sampling keeps its promises.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "trireme/model/arch.h"
#include "trireme/run/decode.h"
#include "trireme/run/run.h"
#include <math.h>
#include <string.h>

enum { LENGTH = 300, VOCAB = 23 }; // longer than the decoder's chunks

typedef struct scene {
  tr_model *model;
  tr_layout layout;
  tr_run *run;
  int32_t token[LENGTH], target[LENGTH], position[LENGTH], start[2];
  int64_t sample[LENGTH];
} scene;

static tr_arch gpt2_arch(void) {
  tr_arch arch = {.kind = TR_ARCH_GPT2};
  tr_gpt2_config *config = &arch.gpt2;
  tr_gpt2_config_init(config);
  config->layers = 2;
  config->width = 16;
  config->heads = 2;
  config->vocab = VOCAB;
  config->positions = LENGTH;
  config->init_std = 0.3;
  return arch;
}

static tr_arch llama_arch(tr_llama_family family) {
  tr_arch arch = {.kind = TR_ARCH_LLAMA};
  tr_llama_config *config = &arch.llama;
  tr_llama_config_init(config);
  config->family = family;
  config->layers = 2;
  config->width = 16;
  config->heads = 4;
  config->heads_kv = 2;
  config->head_dim = 6;
  config->ffn = 24;
  config->vocab = VOCAB;
  config->positions = LENGTH;
  config->init_std = 0.3;
  config->rope.theta = 100;
  config->tied = family != TR_LLAMA;
  config->window = family == TR_LLAMA ? 0 : 20;
  config->window_layer = family == TR_QWEN3;
  config->head_norm = family == TR_QWEN3;
  config->qkv_bias = family == TR_QWEN2;
  return arch;
}

static void open_scene(scene *s, const tr_arch *arch, const tr_kernels *kernels, tr_dtype type) {
  *s = (scene){0};
  assert_int_equal(tr_arch_create(arch, &s->model), TR_OK);
  assert_int_equal(tr_layout_build(s->model, &s->layout), TR_OK);
  tr_run_options options;
  tr_run_options_init(&options);
  options.model = s->model;
  options.layout = &s->layout;
  options.kernels = kernels;
  options.type = type;
  options.rows = LENGTH;
  assert_int_equal(tr_run_create(&options, &s->run), TR_OK);
  tr_run_init_weights(s->run, 9);
  for (int i = 0; i < LENGTH; i++) {
    s->token[i] = (7 * i + i * i / 3) % VOCAB;
    s->position[i] = i;
  }
}

static void close_scene(scene *s) {
  tr_run_destroy(s->run);
  tr_layout_destroy(&s->layout);
  tr_model_destroy(s->model);
}

static tr_decoder *open_decoder(const scene *s, const tr_kernels *kernels, tr_dtype type, int64_t capacity) {
  tr_decoder *decoder;
  assert_int_equal(
      tr_decoder_create(s->model, &s->layout, tr_run_weights(s->run), type, kernels, NULL, capacity, &decoder),
      TR_OK);
  return decoder;
}

// The loss of the forward pass when the token after `length` tokens is `next`.
static double eval_loss(scene *s, int length, int32_t next) {
  double loss;
  for (int i = 0; i < length; i++) s->target[i] = -1;
  s->target[length - 1] = next;
  s->start[1] = length;
  tr_model_input input = {.rows = length,
                          .nseq = 1,
                          .token = s->token,
                          .target = s->target,
                          .position = s->position,
                          .sample = s->sample,
                          .start = s->start,
                          .valid = 1};
  assert_int_equal(tr_run_eval(s->run, &input, &loss), TR_OK);
  return loss;
}

static double logit_loss(const float *logits, int32_t next) {
  double most = logits[0], sum = 0;
  for (int v = 1; v < VOCAB; v++) most = fmax(most, logits[v]);
  for (int v = 0; v < VOCAB; v++) sum += exp(logits[v] - most);
  return most + log(sum) - logits[next];
}

static void check_against_forward(const tr_arch *arch, const tr_kernels *kernels, tr_dtype type, double allowed) {
  scene s;
  const float *logits;
  open_scene(&s, arch, kernels, type);
  tr_decoder *decoder = open_decoder(&s, kernels, type, LENGTH);
  for (int i = 0; i < LENGTH; i++) {
    assert_int_equal(tr_decoder_append(decoder, s.token + i, 1, &logits), TR_OK);
    if (i % 37 != 0 && i != LENGTH - 1) continue;
    for (int32_t next = 0; next < VOCAB; next += 4)
      if (!(fabs(logit_loss(logits, next) - eval_loss(&s, i + 1, next)) < allowed))
        fail_msg("after %d tokens: %g, forward %g", i + 1, logit_loss(logits, next), eval_loss(&s, i + 1, next));
  }
  assert_int_equal(tr_decoder_length(decoder), LENGTH);
  tr_decoder_destroy(decoder);
  close_scene(&s);
}

static void token_by_token_is_the_forward_pass(void **state) {
  (void)state;
  tr_arch arch = gpt2_arch();
  check_against_forward(&arch, tr_kernels_reference(), TR_F32, 2e-5);
  check_against_forward(&arch, tr_kernels_cpu(), TR_F32, 2e-5);
}

static void bf16_is_close_to_its_forward_pass(void **state) {
  (void)state;
  tr_arch arch = gpt2_arch();
  check_against_forward(&arch, tr_kernels_reference(), TR_BF16, 0.1);
  check_against_forward(&arch, tr_kernels_cpu(), TR_BF16, 0.1);
}

// Rotary positions go on where the cache ends, grouped heads share it, windows forget its beginning.
static void rotary_positions_go_on_with_the_cache(void **state) {
  (void)state;
  for (int family = TR_LLAMA; family <= TR_QWEN3; family++) {
    tr_arch arch = llama_arch((tr_llama_family)family);
    check_against_forward(&arch, tr_kernels_cpu(), TR_F32, 5e-5);
    check_against_forward(&arch, tr_kernels_cpu(), TR_BF16, 0.2);
  }
  tr_arch arch = llama_arch(TR_LLAMA);
  arch.llama.rope = (tr_rope_config){.kind = TR_ROPE_LLAMA3,
                                     .theta = 100,
                                     .factor = 4,
                                     .low_freq_factor = 1,
                                     .high_freq_factor = 4,
                                     .original_positions = 64};
  check_against_forward(&arch, tr_kernels_reference(), TR_F32, 5e-5);
}

// Dynamic frequencies are those of the whole prompt, although it goes through in chunks.
static void a_prompt_in_chunks_is_turned_by_its_whole_length(void **state) {
  (void)state;
  scene s;
  const float *logits;
  tr_arch arch = llama_arch(TR_LLAMA);
  arch.llama.positions = 20;
  arch.llama.rope.kind = TR_ROPE_DYNAMIC;
  arch.llama.rope.factor = 16;
  open_scene(&s, &arch, tr_kernels_reference(), TR_F32);
  tr_decoder *decoder = open_decoder(&s, tr_kernels_reference(), TR_F32, LENGTH);
  assert_int_equal(tr_decoder_append(decoder, s.token, LENGTH, &logits), TR_OK);
  for (int32_t next = 0; next < VOCAB; next += 4)
    assert_true(fabs(logit_loss(logits, next) - eval_loss(&s, LENGTH, next)) < 5e-5);
  tr_decoder_destroy(decoder);
  close_scene(&s);
}

static void any_cut_of_the_prompt_gives_the_same_logits(void **state) {
  (void)state;
  scene s;
  const float *logits;
  float whole[VOCAB];
  tr_arch arch = gpt2_arch();
  open_scene(&s, &arch, tr_kernels_reference(), TR_F32);
  tr_decoder *decoder = open_decoder(&s, tr_kernels_reference(), TR_F32, LENGTH);
  assert_int_equal(tr_decoder_append(decoder, s.token, LENGTH, &logits), TR_OK);
  memcpy(whole, logits, sizeof whole);
  static const int cut[] = {1, 7, 50, 128, 129, 299};
  for (size_t k = 0; k < sizeof cut / sizeof *cut; k++) {
    tr_decoder_reset(decoder);
    assert_int_equal(tr_decoder_length(decoder), 0);
    for (int at = 0; at < LENGTH; at += cut[k])
      assert_int_equal(tr_decoder_append(decoder, s.token + at, at + cut[k] < LENGTH ? cut[k] : LENGTH - at, &logits),
                       TR_OK);
    for (int v = 0; v < VOCAB; v++) assert_true(fabs(logits[v] - whole[v]) < 1e-5);
  }
  tr_decoder_destroy(decoder);
  close_scene(&s);
}

static void what_does_not_fit_is_refused(void **state) {
  (void)state;
  scene s;
  const float *logits;
  tr_decoder *decoder;
  tr_arch arch = gpt2_arch();
  open_scene(&s, &arch, tr_kernels_reference(), TR_F32);
  const void *w = tr_run_weights(s.run);
  assert_int_equal(
      tr_decoder_create(s.model, &s.layout, w, TR_F32, tr_kernels_reference(), NULL, LENGTH + 1, &decoder),
      TR_ERR_CONFIG);
  assert_int_equal(tr_decoder_create(s.model, &s.layout, w, TR_F32, tr_kernels_reference(), NULL, 0, &decoder),
                   TR_ERR_CONFIG);
  assert_int_equal(tr_decoder_create(s.model, &s.layout, w, TR_F64, tr_kernels_reference(), NULL, 5, &decoder),
                   TR_ERR_CONFIG);
  decoder = open_decoder(&s, tr_kernels_reference(), TR_F32, 5);
  assert_int_equal(tr_decoder_append(decoder, s.token, 6, &logits), TR_ERR_DATA);
  assert_int_equal(tr_decoder_append(decoder, s.token, 0, &logits), TR_ERR_DATA);
  assert_int_equal(tr_decoder_append(decoder, s.token, 4, &logits), TR_OK);
  assert_int_equal(tr_decoder_append(decoder, s.token, 2, &logits), TR_ERR_DATA);
  assert_non_null(strstr(tr_status_text(), "4 of 5"));
  static const int32_t bad[] = {VOCAB, -1};
  for (int i = 0; i < 2; i++) {
    assert_int_equal(tr_decoder_append(decoder, &bad[i], 1, &logits), TR_ERR_DATA);
    assert_non_null(strstr(tr_status_text(), "vocabulary"));
  }
  assert_int_equal(tr_decoder_length(decoder), 4); // refused tokens leave no trace
  assert_int_equal(tr_decoder_append(decoder, s.token + 4, 1, &logits), TR_OK);
  tr_decoder_destroy(decoder);
  close_scene(&s);
}

// ---- sampling

static const float some_logits[] = {0.5f, 2.0f, -1.0f, 1.5f, 2.0f, -3.0f};
enum { NTOKEN = 6 };

static int32_t draw(double temperature, int64_t top_k, double top_p, uint64_t seed, int64_t number) {
  tr_candidate work[NTOKEN];
  tr_sampling sampling = {temperature, top_k, top_p, seed};
  return tr_sample_token(&sampling, some_logits, NTOKEN, number, work);
}

static void narrow_sampling_takes_the_largest(void **state) {
  (void)state;
  for (int64_t k = 0; k < 50; k++) {
    assert_int_equal(draw(0, 0, 1, 3, k), 1); // of equals, the first
    assert_int_equal(draw(1, 1, 1, 3, k), 1);
    assert_int_equal(draw(1, 0, 1e-9, 3, k), 1);
    assert_int_equal(draw(0.001, 0, 1, 3, k) % 3, 1); // 1 or 4
  }
}

static void samples_follow_the_distribution(void **state) {
  (void)state;
  enum { N = 20000 };
  int count[NTOKEN] = {0};
  for (int64_t k = 0; k < N; k++) count[draw(0.8, 0, 1, 11, k)]++;
  double sum = 0;
  for (int i = 0; i < NTOKEN; i++) sum += exp(some_logits[i] / 0.8);
  for (int i = 0; i < NTOKEN; i++) {
    double p = exp(some_logits[i] / 0.8) / sum;
    assert_true(fabs((double)count[i] / N - p) < 5 * sqrt(p * (1 - p) / N) + 1e-9);
  }
}

static void top_k_and_top_p_cut_the_tail(void **state) {
  (void)state;
  int seen_k[NTOKEN] = {0}, seen_p[NTOKEN] = {0};
  for (int64_t k = 0; k < 5000; k++) {
    seen_k[draw(1, 3, 1, 4, k)]++;
    seen_p[draw(1, 0, 0.65, 4, k)]++; // probabilities 0.347 0.347 0.210 0.077 ...: two reach 0.65
  }
  for (int i = 0; i < NTOKEN; i++) {
    assert_int_equal(seen_k[i] > 0, i == 1 || i == 3 || i == 4);
    assert_int_equal(seen_p[i] > 0, i == 1 || i == 4);
  }
}

static void draws_repeat_by_seed_and_number(void **state) {
  (void)state;
  int same_seed = 0, other_seed = 0;
  for (int64_t k = 0; k < 500; k++) {
    same_seed += draw(1, 0, 1, 5, k) == draw(1, 0, 1, 5, k);
    other_seed += draw(1, 0, 1, 5, k) == draw(1, 0, 1, 6, k);
  }
  assert_int_equal(same_seed, 500);
  assert_true(other_seed < 300);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(token_by_token_is_the_forward_pass),
      cmocka_unit_test(bf16_is_close_to_its_forward_pass),
      cmocka_unit_test(rotary_positions_go_on_with_the_cache),
      cmocka_unit_test(a_prompt_in_chunks_is_turned_by_its_whole_length),
      cmocka_unit_test(any_cut_of_the_prompt_gives_the_same_logits),
      cmocka_unit_test(what_does_not_fit_is_refused),
      cmocka_unit_test(narrow_sampling_takes_the_largest),
      cmocka_unit_test(samples_follow_the_distribution),
      cmocka_unit_test(top_k_and_top_p_cut_the_tail),
      cmocka_unit_test(draws_repeat_by_seed_and_number),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
