// SPDX-License-Identifier: MIT
// tier: quick
// timeout: 60
// Proves that every preset describes a model of the published size, that descriptions survive config.json, that
// config.json files which this library cannot follow are refused with the field's name, and that descriptions are
// found by file, folder and name, and compared in words.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "trireme/base/file.h"
#include "trireme/base/json.h"
#include "trireme/model/arch.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void says(const char *part) {
  if (!strstr(tr_status_text(), part)) fail_msg("'%s' does not say '%s'", tr_status_text(), part);
}

static tr_status parse(const char *text, tr_arch *out) {
  json_t *json;
  assert_int_equal(tr_json_parse(text, strlen(text), "x.json", &json), TR_OK);
  tr_status status = tr_arch_from_json(json, "x.json", out);
  json_decref(json);
  return status;
}

// ---- presets

// Numbers of parameters as their makers, or whoever counted the files, give them.
static const struct {
  const char *name, *type;
  int64_t count;
} preset[] = {{"gpt2", "gpt2", 124439808},
              {"gpt2-medium", "gpt2", 354823168},
              {"gpt2-large", "gpt2", 774030080},
              {"gpt2-xl", "gpt2", 1557611200},
              {"gpt2-tiny", "gpt2", 249216},
              {"gpt2-1m", "gpt2", 1255424},
              {"gpt2-char", "gpt2", 10770816},
              {"llama-7b", "llama", 6738415616},
              {"llama-13b", "llama", 13015864320},
              {"llama-70b", "llama", 68976648192},
              {"llama3-8b", "llama", 8030261248},
              {"llama3-70b", "llama", 70553706496},
              {"llama3-405b", "llama", 405853388800},
              {"llama-tiny", "llama", 262720},
              {"llama-160m", "llama", 162417408},
              {"mistral-7b", "mistral", 7241732096},
              {"qwen2.5-0.5b", "qwen2", 494032768},
              {"qwen2.5-1.5b", "qwen2", 1543714304},
              {"qwen2.5-3b", "qwen2", 3085938688},
              {"qwen2.5-7b", "qwen2", 7615616512},
              {"qwen3-0.6b", "qwen3", 596049920},
              {"qwen3-1.7b", "qwen3", 1720574976},
              {"qwen3-4b", "qwen3", 4022468096},
              {"qwen3-tiny", "qwen3", 279360}};
enum { PRESETS = sizeof preset / sizeof *preset };

static tr_arch load(const char *name) {
  tr_arch arch;
  if (tr_arch_load(name, &arch, NULL, 0) < 0) fail_msg("%s: %s", name, tr_status_text());
  return arch;
}

// Parameters counted from the sizes alone.
static int64_t counted(const tr_arch *arch) {
  tr_arch_sizes s = tr_arch_sizes_of(arch);
  int64_t q = s.heads * s.head_dim, kv = s.heads_kv * s.head_dim, e = s.width;
  if (arch->kind == TR_ARCH_GPT2) {
    int64_t layer = 4 * e * e + 4 * e + 2 * e * s.ffn + s.ffn + e + 4 * e;
    return (s.vocab + s.positions) * e + s.layers * layer + 2 * e;
  }
  int64_t layer = e * (q + 2 * kv) + q * e + 3 * e * s.ffn + 2 * e;
  if (strcmp(s.name, "qwen2") == 0) layer += q + 2 * kv;
  if (strcmp(s.name, "qwen3") == 0) layer += 2 * s.head_dim;
  return s.vocab * e * (s.tied ? 1 : 2) + s.layers * layer + e;
}

static void presets_have_their_published_sizes(void **state) {
  (void)state;
  for (int i = 0; i < PRESETS; i++) {
    tr_model *model;
    tr_arch arch = load(preset[i].name);
    assert_string_equal(tr_arch_sizes_of(&arch).name, preset[i].type);
    assert_int_equal(tr_arch_create(&arch, &model), TR_OK);
    if (tr_model_count(model) != preset[i].count || counted(&arch) != preset[i].count)
      fail_msg("%s: %lld parameters, %lld by its sizes, %lld are published", preset[i].name,
               (long long)tr_model_count(model), (long long)counted(&arch), (long long)preset[i].count);
    assert_int_equal(tr_model_units(model), tr_arch_sizes_of(&arch).layers + 2);
    assert_int_equal(tr_model_vocab(model), tr_arch_sizes_of(&arch).vocab);
    tr_model_destroy(model);
  }
}

static void descriptions_survive_config_json(void **state) {
  (void)state;
  for (int i = 0; i < PRESETS; i++) {
    char *text, *again;
    tr_text difference = {0};
    tr_arch arch = load(preset[i].name), back;
    assert_int_equal(tr_arch_to_json(&arch, "bfloat16", &text), TR_OK);
    assert_non_null(strstr(text, "\"torch_dtype\": \"bfloat16\""));
    assert_int_equal(parse(text, &back), TR_OK);
    tr_arch_compare(&arch, &back, &difference);
    if (difference.size) fail_msg("%s: %s", preset[i].name, difference.data);
    assert_int_equal(tr_arch_to_json(&back, "bfloat16", &again), TR_OK);
    assert_string_equal(text, again);
    free(text);
    free(again);
  }
}

static void windows_biases_and_ropes_survive_config_json(void **state) {
  (void)state;
  static const tr_llama_config rows[] = {
      {.family = TR_LLAMA,
       .qkv_bias = 1,
       .out_bias = 1,
       .mlp_bias = 1,
       .rope = {TR_ROPE_LINEAR, 10000, 4, 0, 0, 0},
       .dropout_attention = 0.25},
      {.family = TR_LLAMA, .head_dim = 10, .tied = 1, .rope = {TR_ROPE_DYNAMIC, 5e5, 2, 0, 0, 0}},
      {.family = TR_LLAMA, .rope = {TR_ROPE_LLAMA3, 5e5, 8, 1, 4, 16}},
      {.family = TR_MISTRAL, .window = 7, .rope = {.theta = 1e4}},
      {.family = TR_MISTRAL, .rope = {.theta = 1e4}},
      {.family = TR_QWEN2, .window = 9, .window_layer = 2, .qkv_bias = 1, .rope = {.theta = 1e6}},
      {.family = TR_QWEN3, .window = 9, .qkv_bias = 1, .out_bias = 1, .head_norm = 1, .rope = {.theta = 1e6}}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    char *text;
    tr_text difference = {0};
    tr_arch arch = {.kind = TR_ARCH_LLAMA, .llama = rows[i]}, back;
    tr_llama_config *c = &arch.llama;
    c->layers = 3, c->width = 24, c->heads = 4, c->heads_kv = 2, c->ffn = 40, c->vocab = 50, c->positions = 64;
    c->eps = 1e-6, c->init_std = 0.01;
    if (tr_arch_to_json(&arch, "float32", &text) < 0) fail_msg("row %zu: %s", i, tr_status_text());
    if (parse(text, &back) < 0) fail_msg("row %zu: %s", i, tr_status_text());
    tr_arch_compare(&arch, &back, &difference);
    if (difference.size) fail_msg("row %zu: %s", i, difference.data);
    assert_true(back.llama.dropout_attention == c->dropout_attention && back.llama.init_std == 0.01);
    free(text);
  }
}

// ---- foreign config.json files

#define GPT2                                                                                                         \
  "\"model_type\": \"gpt2\", \"n_layer\": 2, \"n_embd\": 8, \"n_head\": 2, \"n_positions\": 8, \"vocab_size\": 9"
#define SIZES                                                                                                        \
  "\"num_hidden_layers\": 3, \"hidden_size\": 8, \"num_attention_heads\": 2, \"intermediate_size\": 12, "            \
  "\"vocab_size\": 9, \"max_position_embeddings\": 32"
#define LLAMA   "\"model_type\": \"llama\", " SIZES
#define MISTRAL "\"model_type\": \"mistral\", \"num_key_value_heads\": 1, " SIZES
#define QWEN2   "\"model_type\": \"qwen2\", \"num_key_value_heads\": 2, " SIZES
#define QWEN3   "\"model_type\": \"qwen3\", \"num_key_value_heads\": 2, \"head_dim\": 6, " SIZES

static void foreign_files_are_refused_by_name(void **state) {
  (void)state;
  static const struct {
    const char *json, *part;
  } bad[] = {
      {"{}", "model_type"},
      {"{\"model_type\": 5}", "model_type"},
      {"{\"model_type\": \"bert\"}", "'bert' is not supported; gpt2, llama, mistral, qwen2 and qwen3 are"},
      {"{\"model_type\": \"own\", \"auto_map\": {\"AutoModel\": \"x.Y\"}}", "auto_map names is never run"},
      {"{" GPT2 ", \"activation_function\": \"gelu\"}", "activation_function 'gelu'"},
      {"{" GPT2 ", \"rotary_dim\": 4}", "field 'rotary_dim' is not known"},
      {"{" GPT2 ", \"scale_attn_by_inverse_layer_idx\": true}", "scale_attn_by_inverse_layer_idx"},
      {"{" GPT2 ", \"add_cross_attention\": true}", "add_cross_attention"},
      {"{" GPT2 ", \"pruned_heads\": {\"0\": [1]}}", "pruned_heads"},
      {"{" LLAMA ", \"quantization_config\": {}}", "field 'quantization_config' is not known"},
      {"{" LLAMA ", \"hidden_act\": \"gelu\"}", "hidden_act 'gelu'"},
      {"{" LLAMA ", \"pretraining_tp\": 2}", "pretraining_tp is 2"},
      {"{" LLAMA ", \"sliding_window\": 16}", "field 'sliding_window'"},
      {"{" LLAMA ", \"num_key_value_heads\": 3}", "heads_kv"},
      {"{" LLAMA ", \"head_dim\": 5}", "head_dim is 5; rotary positions turn pairs"},
      {"{" LLAMA ", \"rope_theta\": 0}", "rope.theta is 0"},
      {"{" LLAMA ", \"rms_norm_eps\": -1}", "eps is -1"},
      {"{" LLAMA ", \"rope_scaling\": 4}", "rope_scaling must be an object"},
      {"{" LLAMA ", \"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 4}}", "type 'yarn' is not supported"},
      {"{" LLAMA ", \"rope_scaling\": {\"type\": \"linear\"}}", "\"factor\" is missing"},
      {"{" LLAMA ", \"rope_scaling\": {\"type\": \"linear\", \"factor\": 0.5}}", "rope.factor is 0.5"},
      {"{" LLAMA ", \"rope_scaling\": {\"type\": \"linear\", \"factor\": 2, \"beta_fast\": 1}}", "'beta_fast'"},
      {"{" LLAMA ", \"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 8}}", "\"low_freq_factor\" is missing"},
      {"{" LLAMA ", \"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 8, \"low_freq_factor\": 4, "
       "\"high_freq_factor\": 4, \"original_max_position_embeddings\": 8}}",
       "high_freq_factor is 4; it must be above low_freq_factor, 4"},
      {"{" LLAMA ", \"rope_scaling\": {\"rope_type\": \"dynamic\", \"factor\": 8, "
       "\"original_max_position_embeddings\": 8}}",
       "dynamic positions stretch from model.positions, 32"},
      {"{" LLAMA ", \"rope_scaling\": {\"type\": \"linear\", \"factor\": 2}, \"rope_parameters\": {}}",
       "both rope_scaling and rope_parameters"},
      {"{" MISTRAL "}", "sliding_window is missing"},
      {"{" MISTRAL ", \"sliding_window\": 4, \"attention_bias\": false}", "field 'attention_bias'"},
      {"{" QWEN2 ", \"attention_bias\": false}", "field 'attention_bias'"},
      {"{" QWEN2 ", \"use_sliding_window\": true, \"sliding_window\": 4}", "max_window_layers"},
      {"{" QWEN2 ", \"layer_types\": [\"full_attention\"]}", "a list of 3 words"},
      {"{" QWEN2 ", \"layer_types\": [\"full_attention\", \"linear_attention\", 1]}", "layer_types[1]"},
      {"{" QWEN2 ", \"layer_types\": [\"full_attention\", \"sliding_attention\", \"sliding_attention\"]}",
       "there is no sliding window"},
      {"{" QWEN2 ", \"use_sliding_window\": true, \"sliding_window\": 4, \"max_window_layers\": 0, \"layer_types\": "
       "[\"sliding_attention\", \"full_attention\", \"sliding_attention\"]}",
       "full_attention after sliding_attention (layer 1)"},
      {"{\"model_type\": \"qwen3\", \"num_key_value_heads\": 2, " SIZES "}", "head_dim"},
      {"{\"model_type\": \"mistral\", \"sliding_window\": null, " SIZES "}", "num_key_value_heads"}};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    tr_arch arch;
    tr_status status = parse(bad[i].json, &arch);
    if (status != TR_ERR_CKPT && status != TR_ERR_DATA) fail_msg("taken: %s", bad[i].json);
    says(bad[i].part);
    says("x.json");
  }
}

static void fields_of_other_programs_are_ignored(void **state) {
  (void)state;
  tr_arch arch;
  assert_int_equal(parse("{" GPT2
                         ", \"n_ctx\": 8, \"summary_type\": \"cls_index\", \"task_specific_params\": {\"a\": 1}, "
                         "\"reorder_and_upcast_attn\": false, \"activation_function\": \"gelu_pytorch_tanh\", "
                         "\"id2label\": {}, \"pruned_heads\": {}, \"something_new\": null}",
                         &arch),
                   TR_OK);
  assert_int_equal(parse("{" LLAMA
                         ", \"auto_map\": {\"AutoModel\": \"x.Y\"}, \"bos_token_id\": 1, \"use_cache\": true, "
                         "\"transformers_version\": \"4\", \"pretraining_tp\": 1, \"_name_or_path\": \"a/b\", "
                         "\"architectures\": [\"LlamaForCausalLM\"], \"dtype\": \"bfloat16\"}",
                         &arch),
                   TR_OK);
  assert_int_equal(arch.llama.heads_kv, 0);
  assert_true(arch.llama.eps == 1e-6 && arch.llama.rope.theta == 10000 && !arch.llama.tied);
}

static void both_forms_of_rope_are_read(void **state) {
  (void)state;
  tr_arch a, b;
  assert_int_equal(
      parse("{" LLAMA ", \"rope_theta\": 500, \"rope_scaling\": {\"type\": \"linear\", \"factor\": 4}}", &a), TR_OK);
  assert_int_equal(parse("{" LLAMA ", \"rope_parameters\": {\"rope_type\": \"linear\", \"factor\": 4, "
                         "\"rope_theta\": 500}}",
                         &b),
                   TR_OK);
  assert_int_equal(a.llama.rope.kind, TR_ROPE_LINEAR);
  assert_memory_equal(&a.llama.rope, &b.llama.rope, sizeof a.llama.rope);
  assert_int_equal(parse("{" LLAMA ", \"rope_parameters\": {\"rope_type\": \"default\", \"rope_theta\": 7}}", &b),
                   TR_OK);
  assert_true(b.llama.rope.kind == TR_ROPE_DEFAULT && b.llama.rope.theta == 7);
}

static void windows_are_read_as_transformers_means_them(void **state) {
  (void)state;
  static const struct {
    const char *json;
    int64_t window, layer;
  } row[] = {{"{" MISTRAL ", \"sliding_window\": 4}", 4, 0},
             {"{" MISTRAL ", \"sliding_window\": null}", 0, 0},
             {"{" QWEN2 ", \"sliding_window\": 4, \"max_window_layers\": 1}", 0, 0},
             {"{" QWEN2 ", \"use_sliding_window\": true, \"sliding_window\": 4, \"max_window_layers\": 1}", 4, 1},
             {"{" QWEN3 ", \"use_sliding_window\": true, \"sliding_window\": 4, \"max_window_layers\": 3}", 0, 0},
             {"{" QWEN3
              ", \"use_sliding_window\": true, \"sliding_window\": 4, \"max_window_layers\": 0, \"layer_types\": "
              "[\"full_attention\", \"full_attention\", \"sliding_attention\"]}",
              4, 2},
             {"{" QWEN3 ", \"sliding_window\": null, \"layer_types\": [\"full_attention\", \"full_attention\", "
              "\"full_attention\"]}",
              0, 0}};
  for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
    tr_arch arch;
    if (parse(row[i].json, &arch) < 0) fail_msg("%s: %s", row[i].json, tr_status_text());
    assert_int_equal(arch.llama.window, row[i].window);
    assert_int_equal(arch.llama.window_layer, row[i].layer);
  }
}

// ---- finding

static void descriptions_are_found_by_file_folder_and_name(void **state) {
  (void)state;
  char folder[] = "/tmp/trireme-arch-XXXXXX", path[300], found[300];
  const char *text = "{" LLAMA "}", *bad = "{" LLAMA ", \"odd\": 1}";
  tr_arch arch;
  assert_non_null(mkdtemp(folder));
  snprintf(path, sizeof path, "%s/config.json", folder);
  assert_int_equal(tr_file_write_atomic(path, text, strlen(text)), TR_OK);
  const char *const name[] = {folder, path};
  for (int i = 0; i < 2; i++) {
    assert_int_equal(tr_arch_load(name[i], &arch, found, sizeof found), TR_OK);
    assert_string_equal(found, path);
    assert_int_equal(arch.llama.layers, 3);
  }
  assert_int_equal(tr_file_write_atomic(path, bad, strlen(bad)), TR_OK);
  assert_int_equal(tr_arch_load(folder, &arch, NULL, 0), TR_ERR_CKPT);
  says(path);
  says("'odd'");
  assert_int_equal(tr_file_write_atomic(path, "{", 1), TR_OK);
  assert_int_equal(tr_arch_load(folder, &arch, NULL, 0), TR_ERR_DATA);
  assert_int_equal(tr_arch_load("llama3-8b", &arch, found, sizeof found), TR_OK);
  assert_non_null(strstr(found, "/models/llama3-8b.json"));
  assert_int_equal(arch.llama.rope.kind, TR_ROPE_LLAMA3);
  assert_int_equal(tr_file_remove_tree(folder), TR_OK);
}

static void what_is_not_there_is_said_with_the_nearest_name(void **state) {
  (void)state;
  tr_arch arch;
  assert_int_equal(tr_arch_load("lama3-8b", &arch, NULL, 0), TR_ERR_CONFIG);
  says("no model 'lama3-8b'");
  says("did you mean 'llama3-8b'?");
  assert_int_equal(tr_arch_load("../models/gpt2", &arch, NULL, 0), TR_ERR_CONFIG); // a path is never a preset
  assert_int_equal(tr_arch_load("", &arch, NULL, 0), TR_ERR_CONFIG);
  char *longest = malloc(5001);
  memset(longest, 'a', 5000);
  longest[5000] = '\0';
  assert_int_equal(tr_arch_load(longest, &arch, NULL, 0), TR_ERR_CONFIG);
  says("at most 4000 bytes");
  free(longest);
}

// ---- handing on

static void what_concerns_other_programs_goes_into_a_new_config(void **state) {
  (void)state;
  char folder[] = "/tmp/trireme-merge-XXXXXX", path[300];
  const char *original =
      "{" LLAMA ", \"dtype\": \"float16\", \"eos_token_id\": [5, 7], \"bos_token_id\": 1, \"auto_map\": "
      "{\"AutoModel\": \"x.Y\"}, \"_commit_hash\": \"ab\", \"architectures\": [\"Foreign\"], "
      "\"transformers_version\": \"4.40\", \"pad_token_id\": null, \"rope_parameters\": "
      "{\"rope_theta\": 7}, \"unknown\": 3, \"use_cache\": true}";
  const char *own = "{\"architectures\": [\"LlamaForCausalLM\"], \"hidden_size\": 16, \"rope_theta\": 9.5, "
                    "\"torch_dtype\": \"bfloat16\", \"use_cache\": false}";
  const char *want =
      "{\"architectures\": [\"LlamaForCausalLM\"], \"hidden_size\": 16, \"rope_theta\": 9.5, "
      "\"torch_dtype\": \"bfloat16\", \"use_cache\": false, \"eos_token_id\": [5, 7], \"bos_token_id\": "
      "1, \"transformers_version\": \"4.40\", \"pad_token_id\": null, \"model_type\": \"llama\"}";
  char *text = NULL;
  json_t *got, *wanted;
  assert_non_null(mkdtemp(folder));
  snprintf(path, sizeof path, "%s/config.json", folder);
  assert_int_equal(tr_file_write_atomic(path, original, strlen(original)), TR_OK);
  assert_int_equal(tr_config_text_merge(path, own, &text), TR_OK);
  assert_int_equal(tr_json_parse(text, strlen(text), "x.json", &got), TR_OK);
  assert_int_equal(tr_json_parse(want, strlen(want), "x.json", &wanted), TR_OK);
  if (!json_equal(got, wanted)) fail_msg("%s", text);
  json_decref(wanted);
  json_decref(got);
  free(text);
  // What cannot be read is named.
  static const struct {
    const char *original, *own;
    tr_status status;
    const char *part;
  } bad[] = {{"[]", "{}", TR_ERR_DATA, "config.json: not a JSON object"},
             {"{", "{}", TR_ERR_DATA, "config.json"},
             {"{}", "7", TR_ERR_DATA, "config.json"},
             {"{}", "", TR_ERR_DATA, "config.json"}};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    assert_int_equal(tr_file_write_atomic(path, bad[i].original, strlen(bad[i].original)), TR_OK);
    assert_int_equal(tr_config_text_merge(path, bad[i].own, &text), bad[i].status);
    says(bad[i].part);
  }
  char *large = calloc(1, (1 << 20) + 2);
  assert_non_null(large);
  memset(large, ' ', (1 << 20) + 1);
  large[0] = '{', large[1 << 20] = '}';
  assert_int_equal(tr_file_write_atomic(path, large, strlen(large)), TR_OK);
  assert_true(tr_config_text_merge(path, "{}", &text) < 0);
  says(path);
  free(large);
  assert_int_equal(tr_file_remove_tree(folder), TR_OK);
  assert_int_equal(tr_config_text_merge(path, "{}", &text), TR_ERR_IO);
}

// ---- comparing

static void compared(const tr_arch *own, const tr_arch *saved, const char *text) {
  tr_text out = {0};
  tr_arch_compare(own, saved, &out);
  assert_string_equal(out.data ? out.data : "", text);
  tr_text_free(&out);
}

static void differences_are_named_with_both_values(void **state) {
  (void)state;
  tr_arch a = load("gpt2"), b = a;
  b.gpt2.dropout_residual = 0.5; // does not count
  compared(&a, &b, "");
  b.gpt2.layers = 6;
  b.gpt2.eps = 1e-6;
  compared(&a, &b, "model.layers is 12, the checkpoint has 6; model.eps is 1e-05, the checkpoint has 1e-06");
  b = a;
  b.gpt2.width = 1536; // heads are wider and ffn is larger because of it
  compared(&a, &b, "model.width is 768, the checkpoint has 1536");
  a = load("qwen3-tiny"), b = a;
  b.llama.rope.kind = TR_ROPE_LINEAR;
  b.llama.window = 5;
  b.llama.tied = 0;
  b.llama.qkv_bias = 1;
  compared(&a, &b,
           "model.tied is true, the checkpoint has false; model.rope.kind is default, the checkpoint has linear; "
           "model.window is 0, the "
           "checkpoint has 5; model.qkv_bias is false, the checkpoint has true");
  b = load("llama-tiny");
  a = b;
  a.llama.family = TR_MISTRAL;
  compared(&a, &b, "model.kind is mistral, the checkpoint has llama");
  a = load("llama3-8b"), b = a;
  b.llama.rope.factor = 4;
  b.llama.rope.original_positions = 4096;
  compared(
      &a, &b,
      "model.rope.factor is 8, the checkpoint has 4; model.rope.original_positions is 8192, the checkpoint has 4096");
}

int main(void) {
  setenv("TRIREME_PRESETS", TRIREME_TEST_DATA "/../../presets", 1);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(presets_have_their_published_sizes),
      cmocka_unit_test(descriptions_survive_config_json),
      cmocka_unit_test(windows_biases_and_ropes_survive_config_json),
      cmocka_unit_test(foreign_files_are_refused_by_name),
      cmocka_unit_test(fields_of_other_programs_are_ignored),
      cmocka_unit_test(both_forms_of_rope_are_read),
      cmocka_unit_test(windows_are_read_as_transformers_means_them),
      cmocka_unit_test(descriptions_are_found_by_file_folder_and_name),
      cmocka_unit_test(what_is_not_there_is_said_with_the_nearest_name),
      cmocka_unit_test(what_concerns_other_programs_goes_into_a_new_config),
      cmocka_unit_test(differences_are_named_with_both_values),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
