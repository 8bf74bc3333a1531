// SPDX-License-Identifier: MIT
// tier: quick
// timeout: 30
// Proves that the planner counts models as the library builds them, mixtures of experts as their makers do, and names what
// is wrong with a model.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "trireme/base/file.h"
#include "trireme/plan/workload.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void near_to(double got, double want, double share) {
  if (fabs(got / want - 1) > share) fail_msg("%.6g is not %.6g", got, want);
}

static void presets(void **state) {
  (void)state;
  static const struct {
    const char *name;
    double params;
  } known[] = {{"llama3-8b", 8030261248.},
               {"llama3-70b", 70553706496.},
               {"llama3-405b", 405853388800.},
               {"gpt2-xl", 1557611200.},
               {"qwen2.5-7b", 7615616512.}};
  for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
    tr_arch arch;
    assert_int_equal(tr_arch_load(known[i].name, &arch, NULL, 0), TR_OK);
    tr_workload w = tr_workload_from_arch(&arch);
    assert_int_equal(tr_workload_check(&w), TR_OK);
    near_to(tr_workload_params(&w), known[i].params, 1e-3);
  }
}

// Totals and what a token visits, as published with the models.
static void experts(void **state) {
  (void)state;
  static const struct {
    const char *name;
    double params, active;
    int64_t layers; // with experts
  } known[] = {{"deepseek-v3", 671e9, 37e9, 58},
               {"mixtral-8x7b", 46.7e9, 12.9e9, 32},
               {"qwen3-235b-a22b", 235e9, 22e9, 94},
               {"qwen3-30b-a3b", 30.5e9, 3.3e9, 48}};
  for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
    tr_workload w;
    int planned_only = 0;
    if (tr_workload_load(known[i].name, &w, &planned_only) < 0) fail_msg("%s", tr_status_text());
    assert_true(planned_only);
    near_to(tr_workload_params(&w), known[i].params, 0.005);
    near_to(tr_workload_active_params(&w), known[i].active, 0.02);
    assert_int_equal(tr_workload_expert_layers(&w), known[i].layers);
    // 6 per parameter that multiplies; the embedding does not.
    double attention = tr_workload_flops(&w, 4096, 0) - tr_workload_flops(&w, 0, 0);
    double matrices = tr_workload_active_params(&w) - (double)(w.vocab * w.width);
    near_to(tr_workload_flops(&w, 4096, 0), 6 * matrices + attention, 1e-3);
  }
}

static tr_status load_text(const char *text, tr_workload *out) {
  char path[] = "/tmp/trireme-workload-XXXXXX";
  int fd = mkstemp(path), planned_only = 0;
  assert_true(fd >= 0);
  assert_int_equal(tr_file_write_all(fd, text, strlen(text), path), TR_OK);
  close(fd);
  tr_status status = tr_workload_load(path, out, &planned_only);
  unlink(path);
  return status;
}

#define KIMI                                                                                                         \
  "{\"model_type\": \"kimi_k2\", \"num_hidden_layers\": 61, \"hidden_size\": 7168, \"num_attention_heads\": 64,"     \
  "\"num_key_value_heads\": 64, \"intermediate_size\": 18432, \"vocab_size\": 163840, \"n_routed_experts\": 384,"    \
  "\"n_shared_experts\": 1, \"num_experts_per_tok\": 8, \"moe_intermediate_size\": 2048, "                           \
  "\"first_k_dense_replace\": 1,"                                                                                    \
  "\"n_group\": 1, \"topk_group\": 1, \"q_lora_rank\": 1536, \"kv_lora_rank\": 512, \"qk_nope_head_dim\": 128,"      \
  "\"qk_rope_head_dim\": 64, \"v_head_dim\": 128}"
#define LITE                                                                                                         \
  "{\"model_type\": \"deepseek_v2\", \"num_hidden_layers\": 27, \"hidden_size\": 2048, \"num_attention_heads\": 16," \
  "\"intermediate_size\": 10944, \"vocab_size\": 102400, \"n_routed_experts\": 64, \"n_shared_experts\": 2,"         \
  "\"num_experts_per_tok\": 6, \"moe_intermediate_size\": 1408, \"first_k_dense_replace\": 1, \"topk_method\": "     \
  "\"greedy\", \"n_group\": 1, \"topk_group\": 1, \"q_lora_rank\": null, \"kv_lora_rank\": 512,"                     \
  "\"qk_nope_head_dim\": 128, \"qk_rope_head_dim\": 64, \"v_head_dim\": 128}"
#define QWEN(more)                                                                                                   \
  "{\"model_type\": \"qwen2_moe\", \"num_hidden_layers\": 24, \"hidden_size\": 2048, \"num_attention_heads\": 16,"   \
  "\"num_key_value_heads\": 16, \"intermediate_size\": 5632, \"vocab_size\": 151936, \"num_experts\": 60,"           \
  "\"num_experts_per_tok\": 4, \"moe_intermediate_size\": 1408, \"decoder_sparse_step\": 1" more "}"
#define MOE(layers, experts, ffn, every)                                                                             \
  "{\"model_type\": \"qwen3_moe\", \"num_hidden_layers\": " layers                                                   \
  ", \"hidden_size\": 64, \"num_attention_heads\": 4,"                                                               \
  "\"intermediate_size\": 64, \"vocab_size\": 100, \"num_experts\": " experts ", \"num_experts_per_tok\": 4,"        \
  "\"moe_intermediate_size\": " ffn ", \"decoder_sparse_step\": " every "}"
#define LATENT(plain, rope, dense, more)                                                                             \
  "{\"model_type\": \"deepseek_v3\", \"num_hidden_layers\": 2, \"hidden_size\": 64, \"num_attention_heads\": 4,"     \
  "\"intermediate_size\": 64, \"vocab_size\": 100, \"n_routed_experts\": 8, \"num_experts_per_tok\": 2,"             \
  "\"moe_intermediate_size\": 64, \"first_k_dense_replace\": " dense ", \"num_nextn_predict_layers\": " more ","     \
  "\"kv_lora_rank\": 16, \"qk_nope_head_dim\": " plain ", \"qk_rope_head_dim\": " rope ", \"v_head_dim\": " plain    \
  "}"

static void described(void **state) {
  (void)state;
  tr_workload w;
  assert_int_equal(load_text(KIMI, &w), TR_OK); // 1T parameters, 32B active
  near_to(tr_workload_params(&w), 1.026e12, 0.005);
  near_to(tr_workload_active_params(&w), 32e9, 0.05);
  assert_true(w.groups == 0 && w.head_dim == 192);
  assert_int_equal(load_text(LITE, &w), TR_OK); // 15.7B, 2.4B without embeddings
  near_to(tr_workload_params(&w), 15.7e9, 0.005);
  assert_true(w.q_rank == 0 && w.shared == 2);
  assert_int_equal(load_text(QWEN(", \"shared_expert_intermediate_size\": 5632"), &w), TR_OK); // 14.3B, 2.7B
  near_to(tr_workload_params(&w), 14.3e9, 0.005);
  assert_int_equal(w.shared, 4);
  assert_int_equal(load_text(QWEN(", \"mlp_only_layers\": [0, 1]"), &w), TR_OK);
  assert_int_equal(tr_workload_expert_layers(&w), 22);
}

static void not_understood(void **state) {
  (void)state;
  static const char *const bad[][2] = {
      {QWEN(", \"mlp_only_layers\": [3]"), "mlp_only_layers"},
      {QWEN(", \"shared_expert_intermediate_size\": 5000"), "is 5000; it must be a multiple"},
      {QWEN(", \"use_sliding_window\": true, \"sliding_window\": 4096"), "use_sliding_window"},
      {QWEN(", \"head_dim\": -1"), "head_dim is -1"},
      {QWEN(", \"tie_word_embeddings\": 3"), "tie_word_embeddings"},
      {"{\"model_type\": \"mixtral\"}", "num_hidden_layers"},
      {MOE("28", "99", "64", "0"), "decoder_sparse_step is 0; 1, experts on every layer, or more works"},
      {MOE("70000", "99", "64", "1"), "model.layers is 70000; it must be 1 to 65536"},
      {MOE("28", "268435456", "64", "1"), "model.experts is 268435456; it must be 1 to 1048576"},
      {LATENT("9223372036854775807", "64", "1", "0"), "qk_nope_head_dim is 9223372036854775807; it must be 0 to"},
      {LATENT("128", "64", "3", "0"), "model.dense_first is 3; it must be 0 to 2"},
      {LATENT("128", "64", "1", "9"), "model.predict_more is 9; it must be 0 to 2"},
      {"{\"model_type\": \"jamba\"}", "'jamba' is not supported"}};
  tr_workload w;
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    assert_true(load_text(bad[i][0], &w) < 0);
    if (!strstr(tr_status_text(), bad[i][1])) fail_msg("'%s' does not say '%s'", tr_status_text(), bad[i][1]);
  }
  assert_int_equal(tr_workload_load("mixtral-8x8b", &w, NULL), TR_ERR_CONFIG);
  assert_non_null(strstr(tr_status_text(), "did you mean 'mixtral-8x7b'"));
}

static void flops(void **state) {
  (void)state;
  tr_workload w = {.layers = 96,
                   .width = 12288,
                   .heads = 96,
                   .heads_kv = 96,
                   .head_dim = 128,
                   .ffn = 49152,
                   .vocab = 51200,
                   .every = 1};
  // 72 L h^2 (1 + s/6h + V/12Lh) per token: Narayanan et al. 2021, without the recomputed pass.
  double h = 12288, s = 2048, l = 96, v = 51200;
  near_to(tr_workload_flops(&w, 2048, 0), 72 * l * h * h * (1 + s / (6 * h) + v / (12 * l * h)), 1e-9);
  near_to(tr_workload_context(&w, 4096, 1), 2048.5, 1e-9);
  w.window = 128;
  assert_true(tr_workload_flops(&w, 2048, 1) < tr_workload_flops(&w, 2048, 0));
}

static void refused(void **state) {
  (void)state;
  tr_workload w = {.layers = 1, .width = 8, .heads = 3, .heads_kv = 2, .head_dim = 8, .ffn = 8, .vocab = 8};
  assert_int_equal(tr_workload_check(&w), TR_ERR_CONFIG);
  assert_non_null(strstr(tr_status_text(), "heads_kv is 2"));
  w.heads_kv = 3;
  w.experts = 2, w.active = 4, w.expert_ffn = 8;
  assert_int_equal(tr_workload_check(&w), TR_ERR_CONFIG);
  assert_non_null(strstr(tr_status_text(), "active is 4"));
  w.active = 2, w.groups = 3, w.group_limit = 1;
  assert_int_equal(tr_workload_check(&w), TR_ERR_CONFIG);
  assert_non_null(strstr(tr_status_text(), "groups is 3 of 2 experts"));
  w.groups = w.group_limit = 0, w.imbalance = 0.5;
  assert_int_equal(tr_workload_check(&w), TR_ERR_CONFIG);
  assert_non_null(strstr(tr_status_text(), "imbalance is 0.5"));
}

int main(void) {
  setenv("TRIREME_PRESETS", TRIREME_TEST_DATA "/../../presets", 0);
  const struct CMUnitTest tests[] = {cmocka_unit_test(presets),   cmocka_unit_test(experts),
                                     cmocka_unit_test(described), cmocka_unit_test(not_understood),
                                     cmocka_unit_test(flops),     cmocka_unit_test(refused)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
