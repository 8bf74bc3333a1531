// SPDX-License-Identifier: MIT
// tier: quick
// timeout: 60
// Proves that weights survive a conversion and its way back bit for bit, in any number of files and under either family of
// names; that other number types are those of tr_convert and only config.json's type changes; that folders whose tensors
// do not match, whose files are pickle, or whose numbers do not fit are refused with nothing left behind; that names with
// and without prefix load into the same places; and what a comparison says of every kind of difference.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "ckpt/scratch.h"
#include "trireme/ckpt/convert.h"
#include "trireme/ckpt/weights.h"
#include "trireme/model/arch.h"

#include <math.h>
#include <sys/stat.h>

enum { MOST = 128 };

// A Hugging Face folder in the making: the tensors of a small model, with numbers that follow from their names.
typedef struct source {
  scratch folder;
  tr_arch arch;
  tr_model *model;
  tr_safetensors_item item[MOST];
  char name[MOST][96];
  float *data[MOST];
  size_t nitem;
} source;

static float *numbers_of(const char *name, int64_t count) {
  float *data = malloc((size_t)count * sizeof *data);
  uint64_t seed = tr_hash_bytes(name, strlen(name));
  assert_non_null(data);
  for (int64_t i = 0; i < count; i++) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    data[i] = (float)(int32_t)(seed >> 33) * 1e-9f;
  }
  return data;
}

static void add_tensor(source *s, const char *name, tr_dtype type, tr_shape shape) {
  size_t i = s->nitem++;
  assert_true(i < MOST);
  snprintf(s->name[i], sizeof s->name[i], "%s", name);
  s->data[i] = numbers_of(name, tr_shape_count(&shape) + 1);
  s->item[i] = (tr_safetensors_item){s->name[i], TR_F32, type, shape, s->data[i], 0};
}

static void write_text(const scratch *folder, const char *name, const char *text) {
  scratch path = scratch_path(folder, name);
  scratch_write(path.path, text, strlen(text));
}

static char *read_text(const char *folder, const char *name) {
  char path[SCRATCH_PATH * 2], *text;
  size_t nbyte;
  snprintf(path, sizeof path, "%s/%s", folder, name);
  if (tr_file_read(path, 100000000, &text, &nbyte) != TR_OK) fail_msg("%s", tr_status_text());
  return text;
}

// `prefix` is left out of names.
static void make_source(source *s, tr_arch_kind kind, tr_dtype type, const char *prefix) {
  *s = (source){.folder = scratch_make_fast(), .arch = {.kind = kind}};
  if (kind == TR_ARCH_GPT2) {
    tr_gpt2_config_init(&s->arch.gpt2);
    s->arch.gpt2.layers = 2, s->arch.gpt2.width = 16, s->arch.gpt2.heads = 2;
    s->arch.gpt2.vocab = 40, s->arch.gpt2.positions = 8;
  } else {
    tr_llama_config_init(&s->arch.llama);
    s->arch.llama.layers = 2, s->arch.llama.width = 16, s->arch.llama.heads = 4, s->arch.llama.heads_kv = 2;
    s->arch.llama.head_dim = 0, s->arch.llama.ffn = 24, s->arch.llama.vocab = 40, s->arch.llama.positions = 8;
    s->arch.llama.tied = 1;
  }
  if (tr_arch_create(&s->arch, &s->model) != TR_OK) fail_msg("%s", tr_status_text());
  for (int p = 0; p < tr_model_params(s->model); p++) {
    const tr_param *param = tr_model_param(s->model, p);
    size_t n = strlen(prefix);
    tr_shape shape = param->shape;
    if (param->transposed) shape.dim[0] = param->shape.dim[1], shape.dim[1] = param->shape.dim[0];
    add_tensor(s, strncmp(param->name, prefix, n) == 0 ? param->name + n : param->name, type, shape);
  }
}

// model.safetensors, config.json and the files that go along.
static void write_source(source *s, const char *dtype) {
  scratch model = scratch_path(&s->folder, "model.safetensors");
  char *config;
  if (tr_safetensors_write(model.path, s->item, s->nitem, NULL, 0, NULL, NULL, NULL, NULL) != TR_OK)
    fail_msg("%s", tr_status_text());
  if (tr_arch_to_json(&s->arch, dtype, &config) != TR_OK) fail_msg("%s", tr_status_text());
  write_text(&s->folder, "config.json", config);
  free(config);
  write_text(&s->folder, "tokenizer.json", "{\"a\": 1.50}\n");
  write_text(&s->folder, "tokenizer_config.json", "{}\n");
  write_text(&s->folder, "chat_template.jinja", "{{ x }}\n");
  write_text(&s->folder, "merges.txt", "a b\n");
  write_text(&s->folder, "README.md", "not copied\n");
}

static void free_source(source *s) {
  for (size_t i = 0; i < s->nitem; i++) free(s->data[i]);
  tr_model_destroy(s->model);
  scratch_remove(&s->folder);
}

static tr_convert_options options_of(const source *s, const scratch *to) {
  return (tr_convert_options){.from = s->folder.path, .to = to->path, .dtype = -1};
}

static void convert(const tr_convert_options *options) {
  if (tr_convert_folder(options) != TR_OK) fail_msg("%s", tr_status_text());
  assert_int_equal(tr_ckpt_verify(options->to), TR_OK);
}

static void assert_same_text(const char *a, const char *b, const char *name) {
  char *x = read_text(a, name), *y = read_text(b, name);
  assert_string_equal(x, y);
  free(x);
  free(y);
}

// Differences of two folders, for looking at.
typedef struct seen {
  tr_diff_entry entry[MOST];
  char name[MOST][96];
  size_t n;
  int equal;
} seen;

static void keep(void *user, const tr_diff_entry *e) {
  seen *s = user;
  assert_true(s->n < MOST);
  snprintf(s->name[s->n], sizeof s->name[0], "%s", e->name);
  s->entry[s->n] = *e;
  s->entry[s->n].name = s->name[s->n];
  s->n++;
}

// Into *s, because its entries point into it.
static void compare(const char *a, const char *b, seen *s) {
  tr_tensors *left, *right;
  *s = (seen){0};
  assert_int_equal(tr_tensors_open(a, "model", &left), TR_OK);
  assert_int_equal(tr_tensors_open(b, "model", &right), TR_OK);
  assert_int_equal(tr_tensors_diff(left, right, keep, s, &s->equal), TR_OK);
  tr_tensors_close(left);
  tr_tensors_close(right);
}

static void there_and_back_is_the_same_in_any_number_of_files(void **state) {
  (void)state;
  static const struct {
    int64_t shards;
    uint64_t limit;
    size_t files; // 0: any
  } rows[] = {{0, 0, 1}, {1, 0, 1}, {3, 0, 3}, {5, 0, 5}, {0, 1000, 0}, {0, 1, 0}};
  for (int kind = 0; kind < 2; kind++) {
    source s;
    make_source(&s, kind ? TR_ARCH_LLAMA : TR_ARCH_GPT2, TR_BF16, "");
    write_source(&s, "bfloat16");
    for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++) {
      scratch top = scratch_make_fast(), ours = scratch_path(&top, "new/ours/"), back = scratch_path(&top, "back");
      tr_convert_options there = options_of(&s, &ours), home = options_of(&s, &back);
      there.names = TR_NAMES_MODEL;
      there.shards = rows[r].shards;
      there.shard_limit = rows[r].limit;
      convert(&there);
      home.from = ours.path;
      convert(&home);
      tr_tensors *t;
      assert_int_equal(tr_tensors_open(ours.path, "model", &t), TR_OK);
      if (rows[r].files) assert_int_equal(tr_tensors_files(t), rows[r].files);
      if (!rows[r].files) assert_true(tr_tensors_files(t) > 3);
      tr_tensors_close(t);
      seen d;
      compare(s.folder.path, back.path, &d);
      assert_true(d.equal && d.n == s.nitem);
      assert_same_text(s.folder.path, back.path, "config.json");
      assert_same_text(s.folder.path, back.path, "tokenizer.json");
      assert_same_text(s.folder.path, back.path, "tokenizer_config.json");
      assert_same_text(s.folder.path, back.path, "chat_template.jinja");
      assert_same_text(s.folder.path, back.path, "merges.txt");
      assert_int_equal(scratch_count(back.path, "README"), 0);
      assert_int_equal(scratch_count(top.path, "."), 2);
      scratch_remove(&top);
    }
    free_source(&s);
  }
}

static void files_of_the_same_size_are_about_as_large(void **state) {
  (void)state;
  source s;
  make_source(&s, TR_ARCH_LLAMA, TR_F32, "");
  scratch top = scratch_make_fast(), to = scratch_path(&top, "to");
  write_source(&s, "float32");
  tr_convert_options o = options_of(&s, &to);
  o.shards = 3;
  convert(&o);
  tr_tensors *t;
  uint64_t nbyte[3] = {0};
  assert_int_equal(tr_tensors_open(to.path, "model", &t), TR_OK);
  for (size_t i = 0; i < tr_tensors_count(t); i++) nbyte[tr_tensors_file_of(t, i)] += tr_tensors_at(t, i)->nbyte;
  for (int f = 0; f < 3; f++) assert_true(nbyte[f] > tr_tensors_bytes(t) / 5 && nbyte[f] < tr_tensors_bytes(t) / 2);
  tr_tensors_close(t);
  o.shards = (int64_t)s.nitem + 1;
  scratch other = scratch_path(&top, "other");
  o.to = other.path;
  assert_int_equal(tr_convert_folder(&o), TR_ERR_CONFIG);
  assert_non_null(strstr(tr_status_text(), "at most one file per tensor"));
  assert_int_equal(scratch_count(top.path, "other") + scratch_count(top.path, ".other"), 0);
  scratch_remove(&top);
  free_source(&s);
}

static void other_types_are_those_of_tr_convert(void **state) {
  (void)state;
  static const struct {
    tr_dtype type;
    const char *dtype;
  } rows[] = {{TR_F32, "\"torch_dtype\": \"float32\""},
              {TR_BF16, "\"torch_dtype\": \"bfloat16\""},
              {TR_F16, "\"torch_dtype\": \"float16\""}};
  source s;
  make_source(&s, TR_ARCH_GPT2, TR_F32, "");
  add_tensor(&s, "transformer.h.0.attn.bias", TR_U8, (tr_shape){2, {4, 4}}); // no weight, no number to convert
  write_source(&s, "float64");
  for (size_t r = 0; r < 3; r++) {
    scratch top = scratch_make_fast(), to = scratch_path(&top, "to");
    tr_convert_options o = options_of(&s, &to);
    tr_tensors *t;
    o.dtype = rows[r].type;
    convert(&o);
    char *config = read_text(to.path, "config.json"), *before = read_text(s.folder.path, "config.json");
    char *at = strstr(before, "\"torch_dtype\": \"float64\"");
    assert_non_null(at);
    assert_non_null(strstr(config, rows[r].dtype));
    assert_memory_equal(config, before, (size_t)(at - before)); // and nothing else has changed
    assert_string_equal(strstr(config, rows[r].dtype) + strlen(rows[r].dtype),
                        at + strlen("\"torch_dtype\": \"float64\""));
    free(before);
    free(config);
    assert_int_equal(tr_tensors_open(to.path, "model", &t), TR_OK);
    for (size_t i = 0; i < s.nitem; i++) {
      const tr_safetensors_entry *entry = tr_tensors_find(t, s.name[i]);
      unsigned char want[16384];
      tr_dtype type = i + 1 < s.nitem ? rows[r].type : TR_U8;
      assert_int_equal(entry->type, type);
      assert_true(entry->nbyte <= sizeof want);
      tr_convert(TR_F32, s.data[i], type, want, (size_t)tr_shape_count(&entry->shape));
      assert_memory_equal(entry->data, want, entry->nbyte);
    }
    tr_tensors_close(t);
    scratch_remove(&top);
  }
  free_source(&s);
}

static void only_the_type_in_config_json_changes(void **state) {
  (void)state;
  static const struct {
    const char *tail, *want; // what stands in config.json besides the model's own fields, before and after
  } rows[] = {
      {"\"task_specific_params\": {\"dtype\": \"a\\\"}\", \"torch_dtype\": 1e-05}, \"torch_dtype\": \"float32\"}",
       "\"task_specific_params\": {\"dtype\": \"a\\\"}\", \"torch_dtype\": 1e-05}, \"torch_dtype\": \"bfloat16\"}"},
      {"\"transformers_version\" : \"4\",\n\t\"torch_dtype\"\n:\tnull }",
       "\"transformers_version\" : \"4\",\n\t\"torch_dtype\"\n:\t\"bfloat16\" }"},
      {"\"dtype\":\"float32\"}", "\"dtype\":\"bfloat16\"}"},
  };
  source s;
  make_source(&s, TR_ARCH_GPT2, TR_F32, "");
  write_source(&s, "float32");
  for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++) {
    scratch top = scratch_make_fast(), to = scratch_path(&top, "to");
    char text[2048];
    static const char head[] =
        "{\"model_type\": \"gpt2\", \"n_layer\": 2, \"n_embd\": 16, \"n_head\": 2, \"vocab_size\": 40, "
        "\"n_positions\": 8, \"layer_norm_epsilon\": 1e-05, ";
    snprintf(text, sizeof text, "%s%s", head, rows[r].tail);
    write_text(&s.folder, "config.json", text);
    tr_convert_options o = options_of(&s, &to);
    o.dtype = TR_BF16;
    convert(&o);
    snprintf(text, sizeof text, "%s%s", head, rows[r].want);
    char *config = read_text(to.path, "config.json");
    assert_string_equal(config, text);
    free(config);
    scratch_remove(&top);
  }
  free_source(&s);
}

static void names_count_with_and_without_their_prefix(void **state) {
  (void)state;
  static const struct {
    tr_arch_kind kind;
    const char *prefix, *extra[3];
  } rows[] = {{TR_ARCH_GPT2, "", {"lm_head.weight", "transformer.h.0.attn.bias", "transformer.h.1.attn.masked_bias"}},
              {TR_ARCH_GPT2, "transformer.", {"h.0.attn.bias"}},
              {TR_ARCH_LLAMA, "", {"lm_head.weight", "model.layers.0.self_attn.rotary_emb.inv_freq"}},
              {TR_ARCH_LLAMA, "model.", {"layers.1.self_attn.rotary_emb.inv_freq", "rotary_emb.inv_freq"}}};
  for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++) {
    source s;
    make_source(&s, rows[r].kind, TR_F32, rows[r].prefix);
    size_t nweight = s.nitem;
    for (int i = 0; i < 3 && rows[r].extra[i]; i++) add_tensor(&s, rows[r].extra[i], TR_F32, (tr_shape){1, {4}});
    write_source(&s, "float32");
    tr_layout layout;
    assert_int_equal(tr_layout_build(s.model, &layout), TR_OK);
    float *weights = malloc((size_t)layout.total * sizeof *weights);
    if (tr_weights_load(s.folder.path, s.model, &layout, TR_F32, weights, NULL, NULL) != TR_OK)
      fail_msg("%s", tr_status_text());
    for (int p = 0; p < layout.nparam; p++) {
      const tr_param *param = tr_model_param(s.model, p);
      const float *got = weights + layout.param_offset[p];
      int64_t rows_ = param->shape.dim[0], cols = param->shape.ndim > 1 ? param->shape.dim[1] : 1;
      for (int64_t i = 0; i < rows_; i++)
        for (int64_t k = 0; k < cols; k++)
          assert_true(got[i * cols + k] == s.data[p][param->transposed ? k * rows_ + i : i * cols + k]);
    }
    free(weights);
    tr_layout_destroy(&layout);
    // Converted to the library's names, only the weights are left, under the names of the model.
    scratch top = scratch_make_fast(), to = scratch_path(&top, "to");
    tr_convert_options o = options_of(&s, &to);
    o.names = TR_NAMES_MODEL;
    convert(&o);
    tr_tensors *t;
    assert_int_equal(tr_tensors_open(to.path, "model", &t), TR_OK);
    assert_int_equal(tr_tensors_count(t), nweight);
    for (int p = 0; p < tr_model_params(s.model); p++) {
      const tr_safetensors_entry *entry = tr_tensors_find(t, tr_model_param(s.model, p)->name);
      assert_non_null(entry);
      assert_memory_equal(entry->data, s.data[p], entry->nbyte);
    }
    tr_tensors_close(t);
    scratch_remove(&top);
    free_source(&s);
  }
}

static void expect_refused(const tr_convert_options *o, const scratch *top, tr_status status, const char *fragment) {
  tr_status got = tr_convert_folder(o);
  if (got != status || !strstr(tr_status_text(), fragment))
    fail_msg("%d '%s' instead of %d with '%s'", got, tr_status_text(), status, fragment);
  assert_int_equal(scratch_count(top->path, ""), 2); // "." and ".."
}

static void folders_that_cannot_be_converted_are_refused_with_nothing_left(void **state) {
  (void)state;
  scratch top = scratch_make_fast(), to = scratch_path(&top, "to");
  source s;
  make_source(&s, TR_ARCH_GPT2, TR_F32, "");
  scratch model = scratch_path(&s.folder, "model.safetensors");
  tr_convert_options o = options_of(&s, &to);
  expect_refused(&o, &top, TR_ERR_CKPT, "no config.json");
  write_source(&s, "float32");

  o.dtype = TR_F64;
  expect_refused(&o, &top, TR_ERR_USAGE, "to f32, bf16 or f16, not to f64");
  o.dtype = TR_BF16;
  o.optimizer = 1;
  expect_refused(&o, &top, TR_ERR_USAGE, "keeps its number types");
  o.dtype = -1;
  expect_refused(&o, &top, TR_ERR_CKPT, "no trainer.json");
  write_text(&s.folder, "trainer.json", "{}");
  expect_refused(&o, &top, TR_ERR_CKPT, "neither optimizer.safetensors nor");
  o.optimizer = 0;
  o.shards = -1;
  expect_refused(&o, &top, TR_ERR_USAGE, "files are possible, not -1");
  o.shards = 0;

  // A number that f16 does not have: named, whatever its place.
  s.data[3][2] = -65520.0f;
  assert_int_equal(unlink(model.path), 0);
  write_source(&s, "float32");
  o.dtype = TR_F16;
  expect_refused(&o, &top, TR_ERR_CONFIG, s.name[3]);
  assert_non_null(strstr(tr_status_text(), "-65520, which is infinite in f16; bf16 or f32 would work"));
  o.dtype = TR_BF16;
  convert(&o);
  scratch_remove(&to);
  o.dtype = -1;

  // Tensors that are not those of config.json.
  s.item[0].name = "transformer.wrong";
  s.item[1].shape = (tr_shape){2, {2, 64}};
  s.item[4].stored_type = TR_I32;
  assert_int_equal(unlink(model.path), 0);
  write_source(&s, "float32");
  expect_refused(&o, &top, TR_ERR_CKPT, "4 tensors do not match config.json: missing 'transformer.wte.weight'");
  assert_non_null(strstr(tr_status_text(), "mis-shaped 'transformer.wpe.weight' (f32 [2, 64], wanted [8, 16])"));
  assert_non_null(strstr(tr_status_text(), "not of a real type"));
  assert_non_null(strstr(tr_status_text(), "unexpected 'transformer.wrong'"));

  write_text(&s.folder, "config.json", "{\"model_type\": \"other\"}");
  expect_refused(&o, &top, TR_ERR_CKPT, "other");
  write_text(&s.folder, "config.json", "{");
  expect_refused(&o, &top, TR_ERR_DATA, "config.json");
  scratch_remove(&top);
  free_source(&s);
}

static void finite_numbers_do_not_become_infinite(void **state) {
  (void)state;
  static const struct {
    double value;
    tr_dtype stored, to;
    const char *part; // NULL: is converted
  } rows[] = {
      {3.4e38, TR_F32, TR_BF16, "the value 3.4e+38, which is infinite in bf16; f32 would work"},
      {-3.4e38, TR_F32, TR_F16, "the value -3.4e+38, which is infinite in f16; f32 would work"},
      {3.38e38, TR_F32, TR_BF16, NULL}, // below the largest number of bf16
      {1e5, TR_BF16, TR_F16, "which is infinite in f16; bf16 or f32 would work"},
      {65504, TR_F32, TR_F16, NULL},
      {1e300, TR_F64, TR_F32, "the value 1e+300, which is infinite in f32; without a type it stays as it is"},
      {1e300, TR_F64, TR_BF16, "the value 1e+300, which is infinite in bf16; without a type it stays as it is"},
      {3.4e38, TR_F64, TR_F32, NULL},
      {INFINITY, TR_F32, TR_BF16, NULL}, // was not finite before
      {-INFINITY, TR_F32, TR_F16, NULL},
      {NAN, TR_F32, TR_BF16, NULL},
      {INFINITY, TR_F64, TR_F32, NULL},
  };
  for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++) {
    scratch top = scratch_make_fast(), to = scratch_path(&top, "to");
    source s;
    make_source(&s, TR_ARCH_GPT2, TR_F32, "");
    double number[16] = {0}; // of transformer.ln_f.bias, the last tensor
    number[11] = rows[r].value;
    tr_safetensors_item *item = &s.item[s.nitem - 1];
    item->type = TR_F64, item->stored_type = rows[r].stored, item->data = number;
    assert_int_equal(item->shape.dim[0], 16);
    write_source(&s, "float32");
    tr_convert_options o = options_of(&s, &to);
    o.dtype = rows[r].to;
    if (rows[r].part)
      expect_refused(&o, &top, TR_ERR_CONFIG, rows[r].part);
    else
      convert(&o);
    scratch_remove(&top);
    free_source(&s);
  }
}

static void side_files_are_texts_beside_the_weights(void **state) {
  (void)state;
  size_t n = 0, found = 0;
  for (; tr_convert_side_file(n); n++) {
    found += strcmp(tr_convert_side_file(n), "tokenizer.json") == 0;
    found += strcmp(tr_convert_side_file(n), "generation_config.json") == 0;
    assert_int_not_equal(strcmp(tr_convert_side_file(n), "config.json"), 0);
    assert_null(strchr(tr_convert_side_file(n), '/'));
  }
  assert_int_equal(found, 2);
  assert_null(tr_convert_side_file(n + 1));
}

static void pickle_is_refused_by_name(void **state) {
  (void)state;
  scratch top = scratch_make_fast(), to = scratch_path(&top, "to");
  source s;
  make_source(&s, TR_ARCH_GPT2, TR_F32, "");
  scratch model = scratch_path(&s.folder, "model.safetensors"), pickle = scratch_path(&s.folder, "pytorch_model.bin");
  write_source(&s, "float32");
  assert_int_equal(rename(model.path, pickle.path), 0);
  tr_convert_options o = options_of(&s, &to);
  expect_refused(&o, &top, TR_ERR_CKPT, "pickle (.bin, .pt), which runs code when it is read");
  assert_non_null(strstr(tr_status_text(), "safe_serialization=True"));
  scratch_remove(&top);
  free_source(&s);
}

static void existing_and_impossible_targets_are_refused(void **state) {
  (void)state;
  scratch top = scratch_make_fast(), to = scratch_path(&top, "to"), below = scratch_path(&top, "to/x");
  source s;
  make_source(&s, TR_ARCH_GPT2, TR_F32, "");
  write_source(&s, "float32");
  tr_convert_options o = options_of(&s, &to);
  scratch_write(to.path, "precious", 8);
  assert_int_equal(tr_convert_folder(&o), TR_ERR_CONFIG);
  assert_non_null(strstr(tr_status_text(), "is there already"));
  char *text = read_text(top.path, "to");
  assert_string_equal(text, "precious");
  free(text);
  o.to = below.path;
  assert_int_equal(tr_convert_folder(&o), TR_ERR_IO);
  o.to = "/";
  assert_int_equal(tr_convert_folder(&o), TR_ERR_CONFIG);
  o.from = "/nonexistent";
  o.to = below.path;
  assert_int_equal(tr_convert_folder(&o), TR_ERR_CKPT);
  scratch_remove(&top);
  free_source(&s);
}

static void the_optimizer_goes_along_when_asked(void **state) {
  (void)state;
  scratch top = scratch_make_fast(), to = scratch_path(&top, "step-00000012"),
          from = scratch_path(&top, "step-00000007");
  source s;
  make_source(&s, TR_ARCH_GPT2, TR_F32, "");
  char name[MOST][128], *config;
  tr_safetensors_item state_item[MOST];
  for (size_t i = 0; i < s.nitem; i++) {
    snprintf(name[i], sizeof name[i], "exp_avg.%s", s.name[i]);
    state_item[i] = s.item[i];
    state_item[i].name = name[i];
  }
  assert_int_equal(tr_arch_to_json(&s.arch, "float32", &config), TR_OK);
  tr_ckpt_file file[] = {{"model.safetensors", s.item, s.nitem, NULL},
                         {"config.json", NULL, 0, config},
                         {"trainer.json", NULL, 0, "{\"step\": 7}\n"},
                         {"optimizer.safetensors", state_item, s.nitem, NULL}};
  tr_ckpt_save_options save = {.folder = top.path, .step = 7};
  assert_int_equal(tr_ckpt_save(&save, file, 4), TR_OK);
  tr_convert_options o = {.from = from.path, .to = to.path, .dtype = -1, .shards = 2, .optimizer = 1};
  convert(&o);
  tr_tensors *a, *b;
  seen d = {0};
  assert_int_equal(tr_tensors_open(from.path, "optimizer", &a), TR_OK);
  assert_int_equal(tr_tensors_open(to.path, "optimizer", &b), TR_OK);
  assert_int_equal(tr_tensors_files(b), 2);
  assert_int_equal(tr_tensors_diff(a, b, keep, &d, &d.equal), TR_OK);
  assert_true(d.equal);
  tr_tensors_close(a);
  tr_tensors_close(b);
  assert_same_text(from.path, to.path, "trainer.json");
  scratch plain = scratch_path(&top, "plain"); // without it, neither
  o.to = plain.path;
  o.optimizer = 0;
  convert(&o);
  assert_int_equal(scratch_count(plain.path, "optimizer") + scratch_count(plain.path, "trainer"), 0);
  free(config);
  scratch_remove(&top);
  free_source(&s);
}

static void progress_goes_up_to_the_end(void *user, uint64_t done, uint64_t all) {
  uint64_t *last = user;
  assert_true(done >= last[0] && done <= all);
  last[0] = done;
  last[1] = all;
}

static void progress_reaches_all(void **state) {
  (void)state;
  scratch top = scratch_make_fast(), to = scratch_path(&top, "to");
  source s;
  make_source(&s, TR_ARCH_GPT2, TR_F32, "");
  uint64_t last[2] = {0};
  write_source(&s, "float32");
  tr_convert_options o = options_of(&s, &to);
  o.progress = progress_goes_up_to_the_end;
  o.user = last;
  convert(&o);
  assert_true(last[0] > 0 && last[0] == last[1]);
  scratch_remove(&top);
  free_source(&s);
}

static void write_tensors(const scratch *folder, const tr_safetensors_item *item, size_t nitem) {
  scratch path = scratch_path(folder, "model.safetensors");
  assert_int_equal(tr_safetensors_write(path.path, item, nitem, NULL, 0, NULL, NULL, NULL, NULL), TR_OK);
}

static void every_kind_of_difference_is_said(void **state) {
  (void)state;
  scratch a = scratch_make_fast(), b = scratch_make_fast();
  float x[3000], y[3000], special[4] = {0.0f, NAN, INFINITY, 4}, other[4] = {-0.0f, NAN, 1, 4};
  for (int i = 0; i < 3000; i++) x[i] = y[i] = (float)i - 1000;
  y[7] += 0.5f;
  y[2999] -= 4;
  tr_safetensors_item left[] = {
      {"same", TR_F32, TR_F32, {1, {3000}}, x, 0}, {"changed", TR_F32, TR_F32, {1, {3000}}, x, 0},
      {"gone", TR_F32, TR_F32, {1, {2}}, x, 0},    {"shape", TR_F32, TR_F32, {1, {6}}, x, 0},
      {"type", TR_F32, TR_F32, {1, {3000}}, x, 0}, {"special", TR_F32, TR_F32, {1, {4}}, special, 0},
      {"empty", TR_F32, TR_F32, {1, {0}}, NULL, 0}};
  tr_safetensors_item right[] = {
      {"empty", TR_F32, TR_F32, {1, {0}}, NULL, 0}, {"special", TR_F32, TR_F32, {1, {4}}, other, 0},
      {"type", TR_F32, TR_BF16, {1, {3000}}, x, 0}, {"shape", TR_F32, TR_F32, {2, {2, 3}}, x, 0},
      {"new", TR_F32, TR_F32, {1, {2}}, x, 0},      {"changed", TR_F32, TR_F32, {1, {3000}}, y, 0},
      {"same", TR_F32, TR_F32, {1, {3000}}, x, 0}};
  static const struct {
    const char *name, *what;
    double largest, relative;
    int64_t unequal; // -1: some
  } want[] = {{"same", "same", 0, 0, 0},
              {"changed", "different", 4, 4.0 / 1999, 2},
              {"gone", "only in the first", 0, 0, 0},
              {"shape", "other shape", 0, 0, 0},
              {"type", "other type", 4, 4.0 / 1999, -1},
              {"special", "different", INFINITY, INFINITY, 2},
              {"empty", "same", 0, 0, 0},
              {"new", "only in the second", 0, 0, 0}};
  write_tensors(&a, left, 7);
  write_tensors(&b, right, 7);
  seen d;
  compare(a.path, b.path, &d);
  assert_false(d.equal);
  assert_int_equal(d.n, 8);
  for (size_t i = 0; i < 8; i++) {
    size_t k = 0;
    while (k < 8 && strcmp(d.entry[k].name, want[i].name) != 0) k++;
    assert_true(k < 8);
    const tr_diff_entry *e = &d.entry[k];
    if (strcmp(e->what, want[i].what) != 0) fail_msg("%s: %s", e->name, e->what);
    if (strcmp(e->name, "type") == 0) {
      assert_true(e->largest > 0 && e->largest <= 4 && e->relative < 0.01 && e->unequal > 1000);
      continue;
    }
    if (!(e->largest == want[i].largest && e->unequal == want[i].unequal)) fail_msg("%s: %g", e->name, e->largest);
    assert_true(e->relative == want[i].relative);
  }
  compare(a.path, a.path, &d);
  assert_true(d.equal);
  scratch_remove(&a);
  scratch_remove(&b);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(there_and_back_is_the_same_in_any_number_of_files),
      cmocka_unit_test(files_of_the_same_size_are_about_as_large),
      cmocka_unit_test(other_types_are_those_of_tr_convert),
      cmocka_unit_test(only_the_type_in_config_json_changes),
      cmocka_unit_test(names_count_with_and_without_their_prefix),
      cmocka_unit_test(folders_that_cannot_be_converted_are_refused_with_nothing_left),
      cmocka_unit_test(finite_numbers_do_not_become_infinite),
      cmocka_unit_test(side_files_are_texts_beside_the_weights),
      cmocka_unit_test(pickle_is_refused_by_name),
      cmocka_unit_test(existing_and_impossible_targets_are_refused),
      cmocka_unit_test(the_optimizer_goes_along_when_asked),
      cmocka_unit_test(progress_reaches_all),
      cmocka_unit_test(every_kind_of_difference_is_said),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
