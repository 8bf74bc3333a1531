// SPDX-License-Identifier: MIT
// tier: quick
// timeout: 60
// Proves that the model computes what PyTorch computes: loss, logits, every gradient, ten steps of SGD and of AdamW,
// against figures that tests/oracle/gpt2_golden.py printed; in f64 to seven digits, in f32 with both kernel tables.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "oracle/golden.h"
#include "trireme/model/gpt2.h"
#include "trireme/run/decode.h"
#include "trireme/run/run.h"

enum { ROWS = GOLDEN_SEQUENCES * GOLDEN_LENGTH };

typedef struct oracle {
  golden_file file;
  tr_model *model;
  tr_layout layout;
  tr_program program;
  tr_run *run;
  tr_dtype type;
  int32_t token[ROWS], target[ROWS], position[ROWS], start[GOLDEN_SEQUENCES + 1];
  int64_t sample[ROWS];
  tr_model_input input;
} oracle;

static void make_model(oracle *o) {
  tr_gpt2_config config;
  tr_gpt2_config_init(&config);
  config.layers = GOLDEN_LAYERS;
  config.width = GOLDEN_WIDTH;
  config.heads = GOLDEN_HEADS;
  config.vocab = GOLDEN_VOCAB;
  config.positions = GOLDEN_POSITIONS;
  assert_int_equal(tr_gpt2_create(&config, &o->model), TR_OK);
  assert_int_equal(tr_layout_build(o->model, &o->layout), TR_OK);
  int nunit = tr_model_units(o->model), *last = malloc(sizeof *last * (size_t)nunit);
  for (int u = 0; u < nunit; u++) last[u] = tr_model_unit_last_piece(o->model, u);
  tr_step_model step = {.npiece = tr_model_pieces(o->model),
                        .nunit = nunit,
                        .unit_last_piece = last,
                        .unit_start = o->layout.unit_start};
  tr_step_options options = {.microbatches = 1, .dp = 1};
  assert_int_equal(tr_program_build(&step, &options, &o->program), TR_OK);
  free(last);
}

static void make_input(oracle *o) {
  for (int r = 0; r < ROWS; r++) {
    int s = r / GOLDEN_LENGTH, j = r % GOLDEN_LENGTH;
    o->token[r] = golden_token(s, j);
    o->target[r] = golden_target(s, j);
    o->position[r] = j;
    o->sample[r] = s;
  }
  for (int s = 0; s <= GOLDEN_SEQUENCES; s++) o->start[s] = s * GOLDEN_LENGTH;
  o->input = (tr_model_input){.rows = ROWS,
                              .nseq = GOLDEN_SEQUENCES,
                              .token = o->token,
                              .target = o->target,
                              .position = o->position,
                              .sample = o->sample,
                              .start = o->start,
                              .valid = GOLDEN_TARGETS};
}

// The oracle's tensor of a parameter: "transformer.h.0.ln_1.weight" is "h.0.ln_1.weight" there, and
// "transformer.wte.weight" is "wte".
static golden_tensor tensor_of(const oracle *o, int param) {
  const char *name = tr_model_param(o->model, param)->name;
  if (strncmp(name, "transformer.", 12) == 0) name += 12;
  if (strcmp(name, "wte.weight") == 0) name = "wte";
  if (strcmp(name, "wpe.weight") == 0) name = "wpe";
  int number = golden_tensor_number(name);
  assert_true(number >= 0);
  return golden_tensor_at(number);
}

static void load_weights(oracle *o) {
  assert_int_equal(o->layout.nparam, GOLDEN_TENSORS);
  for (int p = 0; p < o->layout.nparam; p++) {
    golden_tensor tensor = tensor_of(o, p);
    assert_int_equal(golden_tensor_count(&tensor), o->layout.param_count[p]);
    for (size_t i = 0; i < golden_tensor_count(&tensor); i++) {
      size_t at = (size_t)o->layout.param_offset[p] + i;
      if (o->type == TR_F64)
        ((double *)tr_run_master(o->run))[at] = golden_weight(&tensor, i);
      else
        ((float *)tr_run_master(o->run))[at] = golden_weight(&tensor, i);
    }
  }
  tr_run_publish(o->run);
}

static void open_oracle(oracle *o, tr_dtype type, const tr_kernels *kernels, tr_optim_kind kind) {
  *o = (oracle){.type = type};
  assert_int_equal(golden_open(TRIREME_TEST_DATA "/oracle/gpt2_tiny.txt", &o->file), 0);
  make_model(o);
  make_input(o);
  tr_run_options options;
  tr_run_options_init(&options);
  options.model = o->model;
  options.layout = &o->layout;
  options.program = &o->program;
  options.kernels = kernels;
  options.type = type;
  options.rows = ROWS;
  options.optim = (tr_optim){
      .kind = kind, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-6, .weight_decay = kind == TR_OPTIM_ADAMW ? 0.1 : 0};
  assert_int_equal(tr_run_create(&options, &o->run), TR_OK);
  load_weights(o);
}

static void close_oracle(oracle *o) {
  tr_run_destroy(o->run);
  tr_program_destroy(&o->program);
  tr_layout_destroy(&o->layout);
  tr_model_destroy(o->model);
  golden_close(&o->file);
}

// Every tensor in `data` against the records of `kind`, relative to the tensor's largest element or absolute.
static void compare_tensors(const oracle *o, const char *kind, const void *data, int relative, int skip_keys,
                            double allowed) {
  for (int p = 0; p < o->layout.nparam; p++) {
    golden_tensor tensor = tensor_of(o, p);
    const golden_record *want = golden_find(&o->file, kind, tensor.name);
    assert_non_null(want);
    int keys = skip_keys && strstr(tensor.name, "c_attn.bias") != NULL;
    double size = relative ? 0 : 1;
    for (size_t i = 0; i < want->count && relative; i++) size = fmax(size, fabs(want->value[i]));
    for (size_t i = 0; i < want->count; i++) {
      if (keys && i >= GOLDEN_WIDTH && i < 2 * GOLDEN_WIDTH) continue;
      size_t at = (size_t)o->layout.param_offset[p] + i;
      double got = o->type == TR_F64 ? ((const double *)data)[at] : ((const float *)data)[at];
      if (!(fabs(got - want->value[i]) <= allowed * size))
        fail_msg("%s %s[%zu]: %.9g, PyTorch has %.9g", kind, tensor.name, i, got, want->value[i]);
    }
  }
}

static void check_first_step(tr_dtype type, const tr_kernels *kernels, double allowed) {
  oracle o;
  tr_step_result done;
  open_oracle(&o, type, kernels, TR_OPTIM_SGD);
  assert_int_equal(tr_run_step(o.run, 0, 0, &o.input, &done), TR_OK);
  assert_int_equal(done.tokens, GOLDEN_TARGETS);
  assert_true(fabs(done.loss - golden_find(&o.file, "loss", "start")->value[0]) < allowed);
  assert_true(fabs(done.norm / golden_find(&o.file, "gradnorm", "all")->value[0] - 1) < allowed);
  compare_tensors(&o, "grad", tr_run_gradients(o.run), 1, 0, allowed);
  close_oracle(&o);
}

static void check_training(const tr_kernels *kernels, tr_optim_kind kind, double lr, const char *name,
                           double allowed) {
  oracle o;
  tr_step_result done;
  char loss_name[16];
  open_oracle(&o, TR_F32, kernels, kind);
  snprintf(loss_name, sizeof loss_name, "%s_loss", name);
  const golden_record *loss = golden_find(&o.file, loss_name, "steps");
  for (int step = 0; step <= GOLDEN_STEPS; step++) {
    if (step == GOLDEN_STEPS) compare_tensors(&o, name, tr_run_weights(o.run), 0, 1, allowed);
    assert_int_equal(tr_run_step(o.run, step, lr, &o.input, &done), TR_OK);
    assert_true(fabs(done.loss - loss->value[step]) < 1e-5);
  }
  close_oracle(&o);
}

static void check_logits(const tr_kernels *kernels, double allowed) {
  static const int at[][2] = {{0, 0}, {0, 10}, {1, 3}, {2, 10}};
  oracle o;
  tr_decoder *decoder;
  open_oracle(&o, TR_F32, kernels, TR_OPTIM_SGD);
  assert_int_equal(
      tr_decoder_create(o.model, &o.layout, tr_run_weights(o.run), TR_F32, kernels, NULL, GOLDEN_POSITIONS, &decoder),
      TR_OK);
  for (size_t k = 0; k < sizeof at / sizeof *at; k++) {
    char name[16];
    const float *logits;
    snprintf(name, sizeof name, "%d.%d", at[k][0], at[k][1]);
    const golden_record *want = golden_find(&o.file, "logits", name);
    tr_decoder_reset(decoder);
    assert_int_equal(tr_decoder_append(decoder, o.token + o.start[at[k][0]], at[k][1] + 1, &logits), TR_OK);
    for (int v = 0; v < GOLDEN_VOCAB; v++) assert_true(fabs(logits[v] - want->value[v]) < allowed);
  }
  tr_decoder_destroy(decoder);
  close_oracle(&o);
}

static void gradients_in_f64_are_pytorchs(void **state) {
  (void)state;
  check_first_step(TR_F64, tr_kernels_reference(), 1e-7); // the attention scale and eps are f32 numbers
}

static void gradients_in_f32_are_pytorchs(void **state) {
  (void)state;
  check_first_step(TR_F32, tr_kernels_reference(), 1e-5);
  check_first_step(TR_F32, tr_kernels_cpu(), 1e-5);
}

static void logits_are_pytorchs(void **state) {
  (void)state;
  check_logits(tr_kernels_reference(), 2e-6);
  check_logits(tr_kernels_cpu(), 2e-6);
}

static void ten_sgd_steps_are_pytorchs(void **state) {
  (void)state;
  check_training(tr_kernels_reference(), TR_OPTIM_SGD, 0.05, "sgd", 1e-5);
  check_training(tr_kernels_cpu(), TR_OPTIM_SGD, 0.05, "sgd", 1e-5);
}

static void ten_adamw_steps_are_pytorchs(void **state) {
  (void)state;
  check_training(tr_kernels_reference(), TR_OPTIM_ADAMW, 1e-3, "adamw", 1e-4);
  check_training(tr_kernels_cpu(), TR_OPTIM_ADAMW, 1e-3, "adamw", 1e-4);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(gradients_in_f64_are_pytorchs), cmocka_unit_test(gradients_in_f32_are_pytorchs),
      cmocka_unit_test(logits_are_pytorchs),           cmocka_unit_test(ten_sgd_steps_are_pytorchs),
      cmocka_unit_test(ten_adamw_steps_are_pytorchs),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
