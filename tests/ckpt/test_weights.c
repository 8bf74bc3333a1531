// SPDX-License-Identifier: MIT
// tier: quick
// timeout: 60
// Model folders: a small GPT-2 written with the safetensors writer comes back the same, under names with and
// without "transformer.", with Conv1D matrices turned, in f32 and bf16; what does not match is refused with
// the first names of every kind in one sentence.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "trireme/base/file.h"
#include "trireme/ckpt/safetensors.h"
#include "trireme/ckpt/weights.h"
#include "trireme/model/arch.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_ITEMS = 64, NAME = 128 };

typedef struct fixture {
  char folder[64];
  tr_gpt2_config config;
  tr_model *model;
  tr_layout layout;
  float *weights;
  tr_safetensors_item item[MOST_ITEMS]; // what save() writes: the model's tensors, to be edited by tests
  char name[MOST_ITEMS][NAME];
  size_t nitem;
} fixture;

static void save_as(const fixture *f, const char *name, const char *text) {
  char path[128];
  snprintf(path, sizeof path, "%s/%s", f->folder, name);
  assert_int_equal(tr_file_write_atomic(path, text, strlen(text)), TR_OK);
}

static void save(const fixture *f) {
  char path[128], *text;
  snprintf(path, sizeof path, "%s/model.safetensors", f->folder);
  remove(path);
  assert_int_equal(tr_safetensors_write(path, f->item, f->nitem, NULL, 0, NULL, NULL, NULL, NULL), TR_OK);
  assert_int_equal(tr_gpt2_config_to_json(&f->config, "float32", &text), TR_OK);
  save_as(f, "config.json", text);
  free(text);
}

static void add_item(fixture *f, const char *name, int ndim, int64_t rows, int64_t columns, const float *data) {
  assert_true(f->nitem < MOST_ITEMS);
  snprintf(f->name[f->nitem], NAME, "%s", name);
  f->item[f->nitem] = (tr_safetensors_item){.name = f->name[f->nitem],
                                            .type = TR_F32,
                                            .stored_type = TR_F32,
                                            .shape = {ndim, {rows, columns}},
                                            .data = data};
  f->nitem++;
}

static void open_fixture(fixture *f, int tied) {
  *f = (fixture){
      .config = {.layers = 2, .width = 8, .heads = 2, .vocab = 11, .positions = 6, .eps = 1e-5, .init_std = 0.02}};
  f->config.tied = tied;
  strcpy(f->folder, "/tmp/trireme-folder-XXXXXX");
  assert_non_null(mkdtemp(f->folder));
  assert_int_equal(tr_gpt2_create(&f->config, &f->model), TR_OK);
  assert_int_equal(tr_layout_build(f->model, &f->layout), TR_OK);
  f->weights = calloc((size_t)f->layout.total, sizeof *f->weights);
  assert_non_null(f->weights);
  for (int i = 0; i < tr_model_params(f->model); i++) {
    const tr_param *p = tr_model_param(f->model, i);
    float *at = f->weights + f->layout.param_offset[i];
    for (int64_t k = 0; k < f->layout.param_count[i]; k++) at[k] = (float)(i + 1) + (float)k / 1024; // exact in f32
    add_item(f, p->name, p->shape.ndim, p->shape.dim[0], p->shape.dim[1], at);
    f->item[f->nitem - 1].transpose = p->transposed;
  }
  save(f);
}

static void close_fixture(fixture *f) {
  assert_int_equal(tr_file_remove_tree(f->folder), TR_OK);
  free(f->weights);
  tr_layout_destroy(&f->layout);
  tr_model_destroy(f->model);
}

static void *load(const fixture *f, tr_dtype type) {
  size_t nbyte = (size_t)f->layout.total * tr_dtype_size(type);
  void *out = malloc(nbyte);
  assert_non_null(out);
  memset(out, 0xff, nbyte); // what is not written shows
  tr_status status = tr_weights_load(f->folder, f->model, &f->layout, type, out, NULL, NULL);
  if (status < 0) fail_msg("%s", tr_status_text());
  return out;
}

static void assert_loads_equal(const fixture *f) {
  float *got = load(f, TR_F32);
  assert_memory_equal(got, f->weights, (size_t)f->layout.total * sizeof *got); // gaps too: zero
  free(got);
}

static const char *refusal(const fixture *f) {
  float *out = malloc((size_t)f->layout.total * sizeof *out);
  assert_non_null(out);
  assert_int_equal(tr_weights_load(f->folder, f->model, &f->layout, TR_F32, out, NULL, NULL), TR_ERR_CKPT);
  free(out);
  return tr_status_text();
}

static void assert_says(const char *text, const char *part) {
  if (!strstr(text, part)) fail_msg("'%s' does not say '%s'", text, part);
}

static int find_item(const fixture *f, const char *name) {
  for (size_t i = 0; i < f->nitem; i++)
    if (strcmp(f->name[i], name) == 0) return (int)i;
  fail_msg("no tensor %s", name);
  return -1;
}

static void weights_come_back_as_they_were_written(void **state) {
  (void)state;
  fixture f;
  for (int tied = 0; tied < 2; tied++) {
    open_fixture(&f, tied);
    assert_loads_equal(&f);
    close_fixture(&f);
  }
}

static void names_without_prefix_are_accepted(void **state) {
  (void)state;
  fixture f;
  open_fixture(&f, 1);
  for (size_t i = 0; i < f.nitem; i++) {
    assert_memory_equal(f.name[i], "transformer.", 12);
    f.item[i].name += 12;
  }
  save(&f);
  assert_loads_equal(&f);
  close_fixture(&f);
}

static void conv1d_matrices_lie_transposed_in_the_file(void **state) {
  (void)state;
  fixture f;
  char path[128];
  tr_safetensors *file;
  open_fixture(&f, 1);
  snprintf(path, sizeof path, "%s/model.safetensors", f.folder);
  assert_int_equal(tr_safetensors_open(path, &file), TR_OK);
  const tr_safetensors_entry *entry = tr_safetensors_find(file, "transformer.h.0.attn.c_attn.weight");
  assert_non_null(entry);
  assert_int_equal(entry->shape.dim[0], 8); // inputs first, as Hugging Face has it
  assert_int_equal(entry->shape.dim[1], 24);
  float stored[2];
  const float *memory = f.item[find_item(&f, "transformer.h.0.attn.c_attn.weight")].data;
  memcpy(stored, entry->data, sizeof stored);
  assert_true(stored[1] == memory[8]); // [0][1] in the file is [1][0] in memory
  tr_safetensors_close(file);
  close_fixture(&f);
}

static void bf16_weights_are_rounded(void **state) {
  (void)state;
  fixture f;
  open_fixture(&f, 1);
  tr_bf16 *got = load(&f, TR_BF16);
  for (int64_t i = 0; i < f.layout.total; i++) assert_int_equal(got[i], tr_f32_to_bf16(f.weights[i]));
  free(got);
  close_fixture(&f);
}

static void masks_and_a_copy_of_the_tied_head_are_passed_over(void **state) {
  (void)state;
  fixture f;
  float mask[36] = {0};
  open_fixture(&f, 1);
  add_item(&f, "transformer.h.0.attn.bias", 2, 6, 6, mask);
  add_item(&f, "h.1.attn.masked_bias", 1, 1, 0, mask);
  add_item(&f, "lm_head.weight", 2, 11, 8, f.weights);
  save(&f);
  assert_loads_equal(&f);
  close_fixture(&f);
}

static void everything_that_does_not_match_is_listed_at_once(void **state) {
  (void)state;
  fixture f;
  float extra[4] = {0};
  open_fixture(&f, 1);
  f.item[find_item(&f, "transformer.ln_f.bias")].name = "transformer.ln_f.offset"; // missing, and unexpected
  f.item[find_item(&f, "transformer.wpe.weight")].shape.dim[0] = 5;
  f.item[find_item(&f, "transformer.h.1.mlp.c_fc.weight")].transpose = 0;
  add_item(&f, "wte.weight", 2, 2, 2, extra); // there already under its full name
  save(&f);
  const char *text = refusal(&f);
  assert_says(text, "5 tensors do not match config.json: ");
  assert_says(text, "missing 'transformer.ln_f.bias'");
  assert_says(text, "; unexpected 'transformer.ln_f.offset', 'wte.weight'; mis-shaped ");
  assert_says(text, "'transformer.wpe.weight' (f32 [5, 8], wanted [6, 8])");
  assert_says(text, "'transformer.h.1.mlp.c_fc.weight' (f32 [32, 8], wanted [8, 32])");
  close_fixture(&f);
}

static void untied_model_needs_its_head(void **state) {
  (void)state;
  fixture f;
  open_fixture(&f, 0);
  f.nitem--; // lm_head.weight comes last
  save(&f);
  assert_says(refusal(&f), "1 tensor does not match config.json: missing 'lm_head.weight'");
  close_fixture(&f);
}

static void long_lists_are_cut_and_say_how_many_more(void **state) {
  (void)state;
  fixture f;
  open_fixture(&f, 1);
  size_t all = f.nitem;
  f.nitem = 1;
  save(&f);
  f.item[0].name = "x0";
  float extra[1] = {0};
  for (int i = 1; i < 6; i++) {
    char name[16];
    snprintf(name, sizeof name, "x%d", i);
    add_item(&f, name, 1, 1, 0, extra);
  }
  save(&f);
  char missing[64];
  snprintf(missing, sizeof missing, " and %zu more; unexpected '", all - 4);
  assert_says(refusal(&f), missing);
  assert_says(refusal(&f), "'x0', 'x1', 'x2', 'x3' and 2 more");
  assert_null(strstr(refusal(&f), "'x4'"));
  close_fixture(&f);
}

static void integer_tensors_are_no_weights(void **state) {
  (void)state;
  fixture f;
  int32_t number[8] = {0};
  open_fixture(&f, 1);
  int i = find_item(&f, "transformer.ln_f.bias");
  f.item[i].type = f.item[i].stored_type = TR_I32;
  f.item[i].data = number;
  save(&f);
  assert_says(refusal(&f), "not of a real type 'transformer.ln_f.bias' (i32 [8], wanted [8])");
  close_fixture(&f);
}

static void weights_are_present_or_not(void **state) {
  (void)state;
  fixture f;
  open_fixture(&f, 1);
  assert_int_equal(tr_weights_present(f.folder), 1);
  char path[128];
  snprintf(path, sizeof path, "%s/model.safetensors", f.folder);
  assert_int_equal(remove(path), 0);
  assert_int_equal(tr_weights_present(f.folder), 0);
  assert_says(refusal(&f), "model.safetensors");
  close_fixture(&f);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(weights_come_back_as_they_were_written),
      cmocka_unit_test(names_without_prefix_are_accepted),
      cmocka_unit_test(conv1d_matrices_lie_transposed_in_the_file),
      cmocka_unit_test(bf16_weights_are_rounded),
      cmocka_unit_test(masks_and_a_copy_of_the_tied_head_are_passed_over),
      cmocka_unit_test(everything_that_does_not_match_is_listed_at_once),
      cmocka_unit_test(untied_model_needs_its_head),
      cmocka_unit_test(long_lists_are_cut_and_say_how_many_more),
      cmocka_unit_test(integer_tensors_are_no_weights),
      cmocka_unit_test(weights_are_present_or_not),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
