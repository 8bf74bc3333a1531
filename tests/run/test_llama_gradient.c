// SPDX-License-Identifier: MIT
// tier: quick
// timeout: 120
// Proves that the gradients of whole models of the Llama family are the derivatives of their loss: grouped heads,
// norms of heads, biases, windows, every kind of rotary scaling, tied and untied heads. That a split backward pass
// gives what a whole one does and two ranks what one does, and that f32 and bf16 stay close to f64 on both kernel tables.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "run/gradient_check.h"
#include "trireme/model/llama.h"

static tr_llama_config tiny(tr_llama_family family) {
  tr_llama_config c;
  tr_llama_config_init(&c);
  c.family = family;
  c.layers = 2;
  c.width = 12;
  c.heads = 4;
  c.heads_kv = 2;
  c.head_dim = 6;
  c.ffn = 10;
  c.vocab = RH_VOCAB;
  c.positions = RH_POSITIONS;
  c.init_std = 0.3;
  c.rope.theta = 50;
  c.qkv_bias = family == TR_QWEN2;
  c.head_norm = family == TR_QWEN3;
  return c;
}

static tr_status llama(tr_model **out) {
  tr_llama_config c = tiny(TR_LLAMA);
  return tr_llama_create(&c, out);
}

static tr_status llama_with_all_biases(tr_model **out) {
  tr_llama_config c = tiny(TR_LLAMA);
  c.qkv_bias = c.out_bias = c.mlp_bias = c.tied = 1;
  c.dropout_attention = 0.2;
  c.heads_kv = 0;
  c.head_dim = 0;
  c.heads = 3;
  return tr_llama_create(&c, out);
}

static tr_status llama_linear(tr_model **out) {
  tr_llama_config c = tiny(TR_LLAMA);
  c.rope.kind = TR_ROPE_LINEAR;
  c.rope.factor = 2.5;
  return tr_llama_create(&c, out);
}

static tr_status llama_dynamic(tr_model **out) {
  tr_llama_config c = tiny(TR_LLAMA);
  c.rope.kind = TR_ROPE_DYNAMIC;
  c.rope.factor = 3;
  c.positions = 6; // sequences are longer
  return tr_llama_create(&c, out);
}

static tr_status llama3(tr_model **out) {
  tr_llama_config c = tiny(TR_LLAMA);
  c.rope = (tr_rope_config){.kind = TR_ROPE_LLAMA3,
                            .theta = 50,
                            .factor = 4,
                            .low_freq_factor = 0.3,
                            .high_freq_factor = 1,
                            .original_positions = 10};
  return tr_llama_create(&c, out);
}

static tr_status mistral(tr_model **out) {
  tr_llama_config c = tiny(TR_MISTRAL);
  c.window = 4;
  return tr_llama_create(&c, out);
}

static tr_status qwen2(tr_model **out) {
  tr_llama_config c = tiny(TR_QWEN2);
  c.tied = 1;
  return tr_llama_create(&c, out);
}

static tr_status qwen3(tr_model **out) {
  tr_llama_config c = tiny(TR_QWEN3);
  c.qkv_bias = c.out_bias = c.tied = 1;
  c.window = 3;
  c.window_layer = 1;
  return tr_llama_create(&c, out);
}

static tr_status (*const every_model[])(tr_model **out) = {
    llama, llama_with_all_biases, llama_linear, llama_dynamic, llama3, mistral, qwen2, qwen3};
enum { MODELS = sizeof every_model / sizeof *every_model };

static void gradients_are_derivatives(void **state) {
  (void)state;
  for (int i = 0; i < MODELS; i++) {
    rh_case c = gc_base();
    c.model = every_model[i];
    c.micro = 1 + i % 2;
    gc_check(&c, 2);
  }
}

static void split_gradients_are_derivatives(void **state) {
  (void)state;
  rh_case c = gc_base();
  c.model = qwen3;
  c.micro = 3; // 4 sequences: 2, 2, none
  c.split = 1;
  gc_check(&c, 2);
}

static void compare_runs(const rh_case *a, const rh_case *b, double loss, double gradient) {
  char worst[96];
  rh_result *x = rh_run(a), *y = rh_run(b);
  if (!(fabs(x->loss[0] / y->loss[0] - 1) <= loss)) fail_msg("loss %.12g, not %.12g", x->loss[0], y->loss[0]);
  double d = rh_difference(b, x->gradient, y->gradient, 1, 0, worst);
  if (!(d <= gradient)) fail_msg("gradient of %s differs by %g", worst, d);
  rh_free(x);
  rh_free(y);
}

static void a_split_backward_pass_gives_the_same(void **state) {
  (void)state;
  for (int i = 0; i < MODELS; i++) {
    rh_case whole = gc_base();
    whole.model = every_model[i];
    whole.micro = 2;
    rh_case split = whole;
    split.split = 1;
    compare_runs(&split, &whole, 0, 1e-14);
  }
}

static void two_ranks_give_what_one_gives(void **state) {
  (void)state;
  for (int i = 0; i < MODELS; i++) {
    rh_case one = gc_base();
    one.model = every_model[i];
    one.micro = 2;
    rh_case two = one;
    two.nrank = 2;
    two.micro = 1;
    compare_runs(&two, &one, 1e-14, 1e-12);
  }
}

// bf16 has two to three digits, and gradients cancel.
static void narrow_types_are_close_to_f64(void **state) {
  (void)state;
  for (int i = 0; i < MODELS; i++) {
    rh_case exact = gc_base();
    exact.model = every_model[i];
    exact.sequences = 12;
    rh_case narrow = exact, fast;
    narrow.type = TR_F32;
    fast = narrow;
    fast.kernels = tr_kernels_cpu();
    compare_runs(&narrow, &exact, 1e-6, 1e-5);
    compare_runs(&fast, &exact, 1e-6, 1e-5);
    narrow.type = fast.type = TR_BF16;
    compare_runs(&narrow, &exact, 1e-3, 0.25);
    compare_runs(&fast, &narrow, 1e-3, 0.1);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(gradients_are_derivatives),
      cmocka_unit_test(split_gradients_are_derivatives),
      cmocka_unit_test(a_split_backward_pass_gives_the_same),
      cmocka_unit_test(two_ranks_give_what_one_gives),
      cmocka_unit_test(narrow_types_are_close_to_f64),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
