// SPDX-License-Identifier: MIT
// tier: quick
// timeout: 180
// Proves that computing values again changes no bit of a run: losses, norms, gradients of every step and the weights at
// the end, for GPT-2 with dropout and two of the Llama family, however the backward pass, sums and micro-batches are cut;
// that it takes less memory; and which pieces run again.
#include "run/parallel_cases.h"
#include "run/run_internal.h"
#include "trireme/model/llama.h"

static tr_status gpt2_of(int64_t layers, tr_model **out) {
  tr_gpt2_config c;
  tr_gpt2_config_init(&c);
  c.layers = layers;
  c.width = 12;
  c.heads = 3;
  c.vocab = RH_VOCAB;
  c.positions = RH_POSITIONS;
  c.init_std = 0.2;
  c.dropout_embedding = c.dropout_residual = c.dropout_attention = 0.1;
  return tr_gpt2_create(&c, out);
}

static tr_status llama_of(tr_llama_family family, tr_model **out) {
  tr_llama_config c;
  tr_llama_config_init(&c);
  c.family = family;
  c.layers = 3;
  c.width = 12;
  c.heads = 4;
  c.heads_kv = 2;
  c.head_dim = 6;
  c.ffn = 10;
  c.vocab = RH_VOCAB;
  c.positions = RH_POSITIONS;
  c.init_std = 0.3;
  c.dropout_attention = 0.1;
  c.head_norm = family == TR_QWEN3;
  return tr_llama_create(&c, out);
}

static tr_status gpt2(tr_model **out) { return gpt2_of(3, out); }
static tr_status llama(tr_model **out) { return llama_of(TR_LLAMA, out); }
static tr_status qwen3(tr_model **out) { return llama_of(TR_QWEN3, out); }

static void expect_same_bits(rh_case c) {
  rh_result *want = rh_run(&c);
  for (int recompute = TR_RECOMPUTE_SELECTIVE; recompute <= TR_RECOMPUTE_FULL; recompute++) {
    c.recompute = (tr_recompute)recompute;
    rh_result *got = rh_run(&c);
    for (int step = 0; step < c.steps; step++) assert_true(got->loss[step] == want->loss[step]);
    for (int rank = 0; rank < c.nrank; rank++) assert_true(got->hash[rank] == want->hash[rank]);
    rh_free(got);
  }
  rh_free(want);
}

static void every_way_to_cut_a_step(tr_status (*model)(tr_model **out)) {
  for (int k = 0; k < 24; k++) {
    rh_case c = rh_default();
    c.model = model;
    c.nrank = 1 + k % 3;
    c.micro = k / 3 % 2 ? 3 : 1;
    c.split = k / 6 % 2;
    c.sync = k / 12 ? TR_SYNC_EVERY : TR_SYNC_LAST;
    c.bucket = k % 2 ? 500 : 1 << 30;
    c.sequences = 11;
    c.steps = 3;
    c.optim.kind = TR_OPTIM_ADAMW;
    expect_same_bits(c);
  }
}

static void gpt2_with_dropout_keeps_its_bits(void **state) {
  (void)state;
  every_way_to_cut_a_step(gpt2);
}

static void llama_keeps_its_bits(void **state) {
  (void)state;
  every_way_to_cut_a_step(llama);
}

static void norms_of_heads_and_other_types_and_kernels_keep_their_bits(void **state) {
  (void)state;
  for (int k = 0; k < 8; k++) {
    rh_case c = rh_default();
    c.model = k % 2 ? gpt2 : qwen3;
    c.type = k / 2 % 2 ? TR_BF16 : TR_F32;
    c.kernels = k / 4 ? tr_kernels_cpu() : NULL;
    c.nthread = 1 + k % 2;
    c.micro = 2;
    c.steps = 3;
    expect_same_bits(c);
  }
}

static void evaluation_keeps_its_bits(void **state) {
  (void)state;
  double loss[3][16];
  for (int recompute = TR_RECOMPUTE_NONE; recompute <= TR_RECOMPUTE_FULL; recompute++) {
    rh_case c = rh_default();
    rh_rank r;
    tr_step_result done;
    c.model = gpt2;
    c.recompute = (tr_recompute)recompute;
    assert_true(rh_works(rh_open(&c, NULL, &r)));
    for (int step = 0; step < 2; step++) {
      rh_deal(&c, step, 0, r.rows, r.input);
      assert_true(rh_works(tr_run_step(r.run, step, c.lr, r.input, &done)));
      assert_true(rh_works(tr_run_eval(r.run, r.input, loss[recompute])));
    }
    assert_memory_equal(loss[recompute], loss[0], (size_t)c.sequences * sizeof(double));
    rh_close(&r);
  }
}

// ---- which pieces run again

static int ends_with_one_of(const char *name, const char *const *suffix) {
  for (; *suffix; suffix++) {
    const char *dot = name + strlen(name) - strlen(*suffix);
    if (dot > name && strcmp(dot, *suffix) == 0) return 1;
  }
  return 0;
}

// All pieces with these ends and no others, one range for each layer.
static void expect_again(tr_status (*make)(tr_model **out), int recompute, const char *const *suffix) {
  tr_model *model;
  tr_value_plan plan;
  tr_step_range range[8];
  int n;
  assert_int_equal(make(&model), TR_OK);
  tr_value_options options = {.type = TR_F32, .rows = 16, .whole = 1, .recompute = recompute};
  assert_int_equal(tr_value_plan_make(model, &options, &plan), TR_OK);
  for (int i = 0; i < tr_model_pieces(model); i++)
    if (plan.again[i] != ends_with_one_of(tr_model_piece(model, i)->name, suffix))
      fail_msg("%s: %d", tr_model_piece(model, i)->name, plan.again[i]);
  assert_int_equal(tr_value_recompute_ranges(model, (tr_recompute)recompute, range, &n), TR_OK);
  assert_int_equal(n, *suffix ? 3 : 0);
  for (int i = 0; i < n; i++) { // units 1 to 3 of 5
    assert_int_equal(range[i].begin, tr_model_unit_last_piece(model, i + 1));
    assert_int_equal(range[i].end, tr_model_unit_last_piece(model, i + 2));
  }
  tr_value_plan_free(&plan);
  tr_model_destroy(model);
}

// A sum of the stream and a branch is cheap, but the branch would have to be kept; so is turning by position, but the row
// before it is kept only where its heads are normed. The last product and sum of a layer end in the next one.
static void what_runs_again_is_what_saves_memory(void **state) {
  (void)state;
  static const char *const nothing[] = {NULL};
  static const char *const gpt2_cheap[] = {".ln_1", ".attn", ".ln_2", ".mlp.gelu", NULL};
  static const char *const gpt2_full[] = {".ln_1",     ".attn.c_attn", ".attn", ".attn.c_proj", ".attn.add", ".ln_2",
                                          ".mlp.c_fc", ".mlp.gelu",    NULL};
  static const char *const llama_cheap[] = {".input_layernorm", ".self_attn", ".post_attention_layernorm",
                                            ".mlp.swiglu", NULL};
  static const char *const qwen3_cheap[] = {".input_layernorm",          ".self_attn.rotary", ".self_attn",
                                            ".post_attention_layernorm", ".mlp.swiglu",       NULL};
  expect_again(gpt2, TR_RECOMPUTE_NONE, nothing);
  expect_again(gpt2, TR_RECOMPUTE_SELECTIVE, gpt2_cheap);
  expect_again(gpt2, TR_RECOMPUTE_FULL, gpt2_full);
  expect_again(llama, TR_RECOMPUTE_SELECTIVE, llama_cheap);
  expect_again(qwen3, TR_RECOMPUTE_SELECTIVE, qwen3_cheap);
}

// ---- memory

static tr_run_memory memory_of(int64_t layers, int recompute, int split) {
  tr_model *model;
  tr_layout layout;
  tr_run_options o;
  tr_run_memory need;
  tr_program program = {.slots_fi = 1, .slots_fw = 1, .slots_iw = split};
  assert_int_equal(gpt2_of(layers, &model), TR_OK);
  assert_int_equal(tr_layout_build(model, &layout), TR_OK);
  tr_run_options_init(&o);
  o.model = model;
  o.layout = &layout;
  o.program = &program;
  o.rows = 64;
  o.split_backward = split;
  o.recompute = (tr_recompute)recompute;
  assert_int_equal(tr_run_memory_predict(&o, 1, 1, 1, &need), TR_OK);
  tr_layout_destroy(&layout);
  tr_model_destroy(model);
  return need;
}

static void more_recomputation_takes_less_memory(void **state) {
  (void)state;
  for (int split = 0; split < 2; split++) {
    tr_run_memory none = memory_of(6, TR_RECOMPUTE_NONE, split),
                  selective = memory_of(6, TR_RECOMPUTE_SELECTIVE, split),
                  full = memory_of(6, TR_RECOMPUTE_FULL, split), deep = memory_of(12, TR_RECOMPUTE_FULL, split);
    assert_int_equal(none.recompute, 0);
    assert_true(selective.private_total < none.private_total);
    assert_true(full.private_total < selective.private_total);
    assert_int_equal(deep.recompute, full.recompute);
    assert_int_equal(deep.temporaries, full.temporaries);
  }
}

// Of a layer, full keeps one row of the stream per token; none keeps sixteen and statistics.
static void full_keeps_what_enters_a_layer(void **state) {
  (void)state;
  size_t row = 64 * 12 * sizeof(float);
  for (int recompute = TR_RECOMPUTE_NONE; recompute <= TR_RECOMPUTE_FULL; recompute++) {
    static const size_t rows[] = {16, 9, 1};
    size_t layer = memory_of(7, recompute, 0).activations - memory_of(6, recompute, 0).activations;
    size_t statistics = recompute == TR_RECOMPUTE_NONE ? 64 * (4 + 3) * sizeof(float) : 0;
    assert_int_equal(layer, rows[recompute] * row + statistics);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(gpt2_with_dropout_keeps_its_bits),
      cmocka_unit_test(llama_keeps_its_bits),
      cmocka_unit_test(norms_of_heads_and_other_types_and_kernels_keep_their_bits),
      cmocka_unit_test(evaluation_keeps_its_bits),
      cmocka_unit_test(what_runs_again_is_what_saves_memory),
      cmocka_unit_test(more_recomputation_takes_less_memory),
      cmocka_unit_test(full_keeps_what_enters_a_layer),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
