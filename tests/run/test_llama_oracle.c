// SPDX-License-Identifier: MIT
// tier: quick
// timeout: 60
// Proves that models of the Llama family compute what Hugging Face transformers computes: loss, logits and every
// gradient against figures that tests/oracle/llama_golden.py printed, for models described by the config.json files
// that transformers saved; in f64 to ten digits, in f32 with both kernel tables.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "oracle/golden.h"
#include "trireme/base/json.h"
#include "trireme/model/arch.h"
#include "trireme/run/decode.h"
#include "trireme/run/run.h"

enum { SEQUENCES = 3, LENGTH = 14, VOCAB = 23, ROWS = SEQUENCES * LENGTH };
static const char *const every_case[] = {"plain",   "biased", "linear", "dynamic",     "llama3",
                                         "mistral", "qwen2",  "qwen3",  "qwen3_biased"};
enum { CASES = sizeof every_case / sizeof *every_case };

typedef struct oracle {
  golden_file file;
  tr_model *model;
  tr_layout layout;
  tr_program program;
  tr_run *run;
  tr_dtype type;
  int32_t token[ROWS], target[ROWS], position[ROWS], start[SEQUENCES + 1];
  int64_t sample[ROWS];
  tr_model_input input;
} oracle;

static void works(tr_status status) {
  if (status < 0) fail_msg("%s", tr_status_text());
}

static void make_model(oracle *o, const char *name) {
  char path[512];
  json_t *json;
  tr_arch arch;
  snprintf(path, sizeof path, "%s/oracle/llama/%s.txt", TRIREME_TEST_DATA, name);
  assert_int_equal(golden_open(path, &o->file), 0);
  snprintf(path, sizeof path, "%s/oracle/llama/%s.json", TRIREME_TEST_DATA, name);
  works(tr_json_load(path, 1 << 20, &json));
  works(tr_arch_from_json(json, path, &arch));
  json_decref(json);
  works(tr_arch_create(&arch, &o->model));
  works(tr_layout_build(o->model, &o->layout));
  int nunit = tr_model_units(o->model), *last = malloc(sizeof *last * (size_t)nunit);
  for (int u = 0; u < nunit; u++) last[u] = tr_model_unit_last_piece(o->model, u);
  tr_step_model step = {.npiece = tr_model_pieces(o->model),
                        .nunit = nunit,
                        .unit_last_piece = last,
                        .unit_start = o->layout.unit_start};
  tr_step_options options = {.microbatches = 1, .dp = 1};
  works(tr_program_build(&step, &options, &o->program));
  free(last);
}

static int32_t token_at(int s, int j) { return (7 * s + 5 * j + j * j) % VOCAB; }

static void make_input(oracle *o) {
  o->input = (tr_model_input){.rows = ROWS,
                              .nseq = SEQUENCES,
                              .token = o->token,
                              .target = o->target,
                              .position = o->position,
                              .sample = o->sample,
                              .start = o->start};
  for (int r = 0; r < ROWS; r++) {
    int s = r / LENGTH, j = r % LENGTH;
    o->token[r] = token_at(s, j);
    o->target[r] = (s + 2 * j) % 5 == 0 ? -1 : token_at(s, j + 1);
    o->position[r] = j;
    o->sample[r] = s;
    o->input.valid += o->target[r] >= 0;
  }
  for (int s = 0; s <= SEQUENCES; s++) o->start[s] = s * LENGTH;
}

// Element i of a tensor, by the formula of the script.
static float weight(const tr_param *param, int64_t i) {
  int number = 0, matrix = param->shape.ndim == 2;
  size_t length = strlen(param->name);
  for (size_t k = 0; k < length; k++) number = (number + param->name[k]) % 101;
  int is_norm = length > 11 && strcmp(param->name + length - 11, "norm.weight") == 0;
  double value = 0.5 * (matrix ? 0.4 : 0.1) * sin(0.7 * (double)i + 1.3 * number + 0.1 * (double)(i % 7));
  return (float)(value + is_norm);
}

static void load_weights(oracle *o) {
  for (int p = 0; p < o->layout.nparam; p++)
    for (int64_t i = 0; i < o->layout.param_count[p]; i++) {
      int64_t at = o->layout.param_offset[p] + i;
      float w = weight(tr_model_param(o->model, p), i);
      if (o->type == TR_F64)
        ((double *)tr_run_master(o->run))[at] = w;
      else
        ((float *)tr_run_master(o->run))[at] = w;
    }
  tr_run_publish(o->run);
}

static void open_oracle(oracle *o, const char *name, tr_dtype type, const tr_kernels *kernels) {
  *o = (oracle){.type = type};
  make_model(o, name);
  make_input(o);
  tr_run_options options;
  tr_run_options_init(&options);
  options.model = o->model;
  options.layout = &o->layout;
  options.program = &o->program;
  options.kernels = kernels;
  options.type = type;
  options.rows = ROWS;
  options.optim = (tr_optim){.kind = TR_OPTIM_SGD};
  works(tr_run_create(&options, &o->run));
  load_weights(o);
}

static void close_oracle(oracle *o) {
  tr_run_destroy(o->run);
  tr_program_destroy(&o->program);
  tr_layout_destroy(&o->layout);
  tr_model_destroy(o->model);
  golden_close(&o->file);
}

// The summary of a gradient as the script records it: largest element, weighted sum, sum of squares, some elements.
static void compare_gradient(const char *name, const golden_record *want, const double *g, int64_t n,
                             double allowed) {
  double largest = want->value[0], weighted = 0, squares = 0;
  int64_t stride = (n + 11) / 12;
  for (int64_t i = 0; i < n; i++) {
    weighted += g[i] * sin((double)i + 1);
    squares += g[i] * g[i];
  }
  assert_true(largest > 1e-4 && want->count > 3);
  if (!(fabs(weighted - want->value[1]) <= allowed * largest * sqrt((double)n)))
    fail_msg("%s: weighted sum %.9g, transformers has %.9g", name, weighted, want->value[1]);
  if (!(fabs(squares - want->value[2]) <= 3 * allowed * largest * largest * (double)n))
    fail_msg("%s: sum of squares %.9g, transformers has %.9g", name, squares, want->value[2]);
  for (size_t k = 0; k + 3 < want->count; k++)
    if (!(fabs(g[(int64_t)k * stride] - want->value[k + 3]) <= allowed * largest))
      fail_msg("%s[%lld]: %.9g, transformers has %.9g", name, (long long)((int64_t)k * stride),
               g[(int64_t)k * stride], want->value[k + 3]);
}

static void compare_gradients(const oracle *o, double allowed) {
  const void *all = tr_run_gradients(o->run);
  size_t compared = 0, recorded = 0;
  for (int p = 0; p < o->layout.nparam; p++) {
    const char *name = tr_model_param(o->model, p)->name;
    const golden_record *want = golden_find(&o->file, "grad", strncmp(name, "model.", 6) ? name : name + 6);
    int64_t n = o->layout.param_count[p], at = o->layout.param_offset[p];
    double *g = malloc((size_t)n * sizeof *g);
    assert_non_null(want);
    for (int64_t i = 0; i < n; i++)
      g[i] = o->type == TR_F64 ? ((const double *)all)[at + i] : ((const float *)all)[at + i];
    compare_gradient(name, want, g, n, allowed);
    free(g);
    compared++;
  }
  for (size_t i = 0; i < o->file.nrecord; i++) recorded += strcmp(o->file.record[i].kind, "grad") == 0;
  assert_int_equal(compared, recorded);
}

static void check_step(const char *name, tr_dtype type, const tr_kernels *kernels, double allowed) {
  oracle o;
  tr_step_result done;
  open_oracle(&o, name, type, kernels);
  works(tr_run_step(o.run, 0, 0, &o.input, &done));
  double want = golden_find(&o.file, "loss", "mean")->value[0];
  if (!(fabs(done.loss - want) < allowed)) fail_msg("%s: loss %.15g, transformers has %.15g", name, done.loss, want);
  compare_gradients(&o, allowed);
  close_oracle(&o);
}

static void check_logits(const char *name, const tr_kernels *kernels, double allowed) {
  static const int at[][2] = {{0, 0}, {0, LENGTH - 1}, {2, 7}};
  oracle o;
  tr_decoder *decoder;
  open_oracle(&o, name, TR_F32, kernels);
  works(tr_decoder_create(o.model, &o.layout, tr_run_weights(o.run), TR_F32, kernels, NULL, LENGTH, &decoder));
  for (size_t k = 0; k < sizeof at / sizeof *at; k++) {
    char place[16];
    const float *logits;
    if (strcmp(name, "dynamic") == 0 && at[k][1] < LENGTH - 1) continue; // a shorter sequence has other frequencies
    snprintf(place, sizeof place, "%d.%d", at[k][0], at[k][1]);
    const golden_record *want = golden_find(&o.file, "logits", place);
    tr_decoder_reset(decoder);
    works(tr_decoder_append(decoder, o.token + at[k][0] * LENGTH, at[k][1] + 1, &logits));
    assert_int_equal(want->count, VOCAB);
    for (int v = 0; v < VOCAB; v++)
      if (!(fabs(logits[v] - want->value[v]) < allowed))
        fail_msg("%s %s[%d]: %.9g, transformers has %.9g", name, place, v, logits[v], want->value[v]);
  }
  tr_decoder_destroy(decoder);
  close_oracle(&o);
}

static void gradients_in_f64_are_those_of_transformers(void **state) {
  (void)state;
  for (int i = 0; i < CASES; i++) check_step(every_case[i], TR_F64, tr_kernels_reference(), 1e-10);
}

static void gradients_in_f32_are_those_of_transformers(void **state) {
  (void)state;
  for (int i = 0; i < CASES; i++) {
    check_step(every_case[i], TR_F32, tr_kernels_reference(), 1e-5);
    check_step(every_case[i], TR_F32, tr_kernels_cpu(), 1e-5);
  }
}

static void logits_are_those_of_transformers(void **state) {
  (void)state;
  for (int i = 0; i < CASES; i++) {
    check_logits(every_case[i], tr_kernels_reference(), 1e-5);
    check_logits(every_case[i], tr_kernels_cpu(), 1e-5);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(gradients_in_f64_are_those_of_transformers),
      cmocka_unit_test(gradients_in_f32_are_those_of_transformers),
      cmocka_unit_test(logits_are_those_of_transformers),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
