// SPDX-License-Identifier: MIT
// tier: quick
// timeout: 60
// Proves that frequencies of rotary positions are those of their formulas, that the pieces of the Llama family refuse
// what does not fit them, that its models have the parts, names and FLOPs one counts by hand, and that descriptions
// which cannot work are refused with the field and what would.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "trireme/model/llama.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static void says(const char *part) {
  if (!strstr(tr_status_text(), part)) fail_msg("'%s' does not say '%s'", tr_status_text(), part);
}

static void near(double a, double b) {
  if (!(fabs(a / b - 1) < 1e-12)) fail_msg("%.15g is not %.15g", a, b);
}

// ---- rotary positions

static void frequencies_fall_by_powers_of_theta(void **state) {
  (void)state;
  double f[4];
  tr_rope_config c = {.kind = TR_ROPE_DEFAULT, .theta = 10000, .factor = 8};
  tr_rope_frequencies(&c, 8, 1 << 20, f);
  for (int i = 0; i < 4; i++) near(f[i], pow(10, -i));
  c.kind = TR_ROPE_LINEAR;
  tr_rope_frequencies(&c, 8, 0, f);
  for (int i = 0; i < 4; i++) near(f[i], pow(10, -i) / 8);
}

static void dynamic_frequencies_stretch_with_the_length(void **state) {
  (void)state;
  double f[4];
  tr_rope_config c = {.kind = TR_ROPE_DYNAMIC, .theta = 10000, .factor = 2, .original_positions = 100};
  tr_rope_frequencies(&c, 8, 100, f); // within what it was trained on
  for (int i = 0; i < 4; i++) near(f[i], pow(10, -i));
  tr_rope_frequencies(&c, 8, 250, f); // 2 * 250 / 100 - 1 = 4 times: the last frequency falls to a quarter
  near(f[0], 1);
  near(f[3], 1e-3 / 4);
  double theta = 10000 * pow(4, 8.0 / 6);
  near(f[1], pow(theta, -0.25));
  tr_rope_frequencies(&c, 2, 250, f); // one pair, of frequency 1 whatever theta is
  near(f[0], 1);
}

static void llama3_divides_low_frequencies_and_keeps_high_ones(void **state) {
  (void)state;
  enum { DIM = 128 };
  const double pi = acos(-1);
  double f[DIM / 2], plain[DIM / 2];
  int kept = 0, divided = 0, between = 0;
  tr_rope_config c = {.kind = TR_ROPE_LLAMA3,
                      .theta = 500000,
                      .factor = 8,
                      .low_freq_factor = 1,
                      .high_freq_factor = 4,
                      .original_positions = 8192};
  tr_rope_frequencies(&c, DIM, 0, f);
  c.kind = TR_ROPE_DEFAULT;
  tr_rope_frequencies(&c, DIM, 0, plain);
  for (int i = 0; i < DIM / 2; i++) {
    double wavelength = 2 * pi / plain[i];
    if (wavelength < 8192.0 / 4) {
      near(f[i], plain[i]);
      kept++;
    } else if (wavelength > 8192.0) {
      near(f[i], plain[i] / 8);
      divided++;
    } else {
      double smooth = (8192 / wavelength - 1) / 3;
      near(f[i], (1 - smooth) * plain[i] / 8 + smooth * plain[i]);
      between++;
    }
  }
  assert_true(kept > 20 && divided > 20 && between > 3);
}

// ---- pieces

typedef struct scene {
  tr_model *model;
  int vector, small, square, wide, x, y, state, loss;
} scene;

static scene begin(void) {
  scene s;
  assert_int_equal(tr_model_create("m", &s.model), TR_OK);
  int unit = tr_model_add_unit(s.model, "u");
  tr_param p = {.name = "vector", .shape = {.ndim = 1, .dim = {6}}};
  s.vector = tr_model_add_param(s.model, unit, &p);
  p = (tr_param){.name = "small", .shape = {.ndim = 1, .dim = {2}}};
  s.small = tr_model_add_param(s.model, unit, &p);
  p = (tr_param){.name = "square", .shape = {.ndim = 2, .dim = {6, 6}}};
  s.square = tr_model_add_param(s.model, unit, &p);
  p = (tr_param){.name = "wide", .shape = {.ndim = 2, .dim = {6, 7}}};
  s.wide = tr_model_add_param(s.model, unit, &p);
  s.x = tr_model_add_value(s.model, "x", TR_VALUE_ACTIVATION, 6);
  s.y = tr_model_add_value(s.model, "y", TR_VALUE_ACTIVATION, 12);
  s.state = tr_model_add_value(s.model, "state", TR_VALUE_STATE, 2);
  s.loss = tr_model_add_value(s.model, "loss", TR_VALUE_STATE, 1);
  return s;
}

static void refused(scene *s, int got, const char *part) {
  assert_int_equal(got, -1);
  assert_int_equal(tr_model_finish(s->model), TR_ERR_CONFIG);
  says(part);
  says("'it'");
  tr_model_destroy(s->model);
}

static void projections_check_what_they_are_given(void **state) {
  (void)state;
  scene s = begin();
  refused(&s, tr_piece_projection(s.model, "it", 4, (int[4]){0}, NULL, s.x, s.y, 0), "one to three products");
  s = begin();
  refused(&s, tr_piece_projection(s.model, "it", 0, NULL, NULL, s.x, s.y, 0), "one to three products");
  s = begin();
  refused(&s, tr_piece_projection(s.model, "it", 2, (int[]){s.square, 99}, NULL, s.x, s.y, 0), "unknown parameter");
  s = begin();
  refused(&s, tr_piece_projection(s.model, "it", 2, (int[]){s.square, s.wide}, NULL, s.x, s.y, 0),
          "inputs of different widths");
  s = begin();
  refused(&s, tr_piece_projection(s.model, "it", 1, &s.square, NULL, s.x, s.y, 0), "width does not fit");
  s = begin();
  refused(&s, tr_piece_projection(s.model, "it", 1, &s.square, &s.small, s.x, s.x, 0), "does not fit its weight");
  s = begin();
  refused(&s, tr_piece_projection(s.model, "it", 2, (int[]){s.square, s.square}, NULL, s.x, s.y, 0), "twice");
}

static void rotary_pieces_check_what_they_are_given(void **state) {
  (void)state;
  tr_rotary_config c = {.heads = 1, .heads_kv = 1, .dim = 2, .rope = {.theta = 10}};
  scene s = begin();
  refused(&s, tr_piece_rotary(s.model, "it", &c, -1, -1, s.y, s.y, -1), "width does not fit");
  s = begin();
  refused(&s, tr_piece_rotary(s.model, "it", &c, s.small, -1, s.x, s.x, s.state), "unknown parameter");
  s = begin();
  refused(&s, tr_piece_rotary(s.model, "it", &c, s.vector, s.small, s.x, s.x, s.state), "norms that do not fit");
  s = begin();
  refused(&s, tr_piece_rotary(s.model, "it", &c, s.small, s.vector, s.x, s.x, s.loss), "width does not fit");
  c.dim = 3;
  s = begin();
  refused(&s, tr_piece_rotary(s.model, "it", &c, -1, -1, s.x, s.x, -1), "even width");
  c.dim = 2;
  c.heads_kv = 0;
  s = begin();
  refused(&s, tr_piece_rotary(s.model, "it", &c, -1, -1, s.x, s.x, -1), "even width");
}

static void other_pieces_check_what_they_are_given(void **state) {
  (void)state;
  scene s = begin();
  refused(&s, tr_piece_rmsnorm(s.model, "it", s.square, 1e-5, s.x, s.x, s.loss), "another shape");
  s = begin();
  refused(&s, tr_piece_rmsnorm(s.model, "it", s.vector, 1e-5, s.x, s.y, s.loss), "width does not fit");
  s = begin();
  refused(&s, tr_piece_rmsnorm(s.model, "it", s.vector, 1e-5, s.x, s.x, s.state), "width does not fit");
  s = begin();
  refused(&s, tr_piece_swiglu(s.model, "it", s.x, s.y), "width does not fit");
  s = begin();
  refused(&s, tr_piece_swiglu(s.model, "it", s.x, 99), "unknown value");
  s = begin();
  tr_attention_config c = {.heads = 1, .heads_kv = 1, .dim = 2, .window = -1};
  refused(&s, tr_piece_attention(s.model, "it", &c, s.x, s.y, s.loss), "window");
}

// ---- models

static tr_llama_config small(void) {
  tr_llama_config c;
  tr_llama_config_init(&c);
  c.layers = 3;
  c.width = 24;
  c.heads = 4;
  c.heads_kv = 2;
  c.ffn = 40;
  c.vocab = 50;
  c.positions = 64;
  return c;
}

static tr_model *build(const tr_llama_config *config) {
  tr_model *model;
  if (tr_llama_create(config, &model) < 0) fail_msg("%s", tr_status_text());
  return model;
}

static int has_param(const tr_model *model, const char *name, int64_t rows, int64_t columns) {
  for (int i = 0; i < tr_model_params(model); i++) {
    const tr_param *p = tr_model_param(model, i);
    if (strcmp(p->name, name) != 0) continue;
    return p->shape.dim[0] == rows && (p->shape.ndim == 1 ? 0 : p->shape.dim[1]) == columns && !p->transposed;
  }
  return 0;
}

static void parameters_are_named_as_in_transformers(void **state) {
  (void)state;
  static const struct {
    const char *name;
    int64_t rows, columns;
  } row[] = {{"model.embed_tokens.weight", 50, 24},
             {"model.layers.0.input_layernorm.weight", 24, 0},
             {"model.layers.1.self_attn.q_proj.weight", 32, 24},
             {"model.layers.1.self_attn.q_proj.bias", 32, 0},
             {"model.layers.1.self_attn.k_proj.weight", 16, 24},
             {"model.layers.1.self_attn.k_proj.bias", 16, 0},
             {"model.layers.1.self_attn.v_proj.weight", 16, 24},
             {"model.layers.1.self_attn.v_proj.bias", 16, 0},
             {"model.layers.1.self_attn.q_norm.weight", 8, 0},
             {"model.layers.1.self_attn.k_norm.weight", 8, 0},
             {"model.layers.1.self_attn.o_proj.weight", 24, 32},
             {"model.layers.1.self_attn.o_proj.bias", 24, 0},
             {"model.layers.2.post_attention_layernorm.weight", 24, 0},
             {"model.layers.2.mlp.gate_proj.weight", 40, 24},
             {"model.layers.2.mlp.up_proj.weight", 40, 24},
             {"model.layers.2.mlp.down_proj.weight", 24, 40},
             {"model.norm.weight", 24, 0},
             {"lm_head.weight", 50, 24}};
  tr_llama_config c = small();
  c.family = TR_QWEN3;
  c.head_dim = 8;
  c.head_norm = c.qkv_bias = c.out_bias = 1;
  tr_model *model = build(&c);
  for (size_t i = 0; i < sizeof row / sizeof *row; i++)
    if (!has_param(model, row[i].name, row[i].rows, row[i].columns)) fail_msg("%s", row[i].name);
  assert_int_equal(tr_model_params(model), 3 + 3 * 15);
  tr_model_destroy(model);
  c = small();
  c.mlp_bias = 1;
  model = build(&c);
  assert_true(has_param(model, "model.layers.0.mlp.gate_proj.bias", 40, 0));
  assert_true(has_param(model, "model.layers.0.mlp.down_proj.bias", 24, 0));
  tr_model_destroy(model);
}

static void units_are_embedding_layers_and_norm(void **state) {
  (void)state;
  tr_llama_config c = small();
  c.tied = 1;
  tr_model *model = build(&c);
  assert_int_equal(tr_model_units(model), 5);
  assert_string_equal(tr_model_unit_name(model, 0), "embedding");
  assert_string_equal(tr_model_unit_name(model, 2), "layers.1");
  assert_string_equal(tr_model_unit_name(model, 4), "norm");
  enum { PER_LAYER = 11 };
  assert_int_equal(tr_model_pieces(model), 1 + 3 * PER_LAYER + 2);
  for (int unit = 1; unit < 5; unit++)
    assert_int_equal(tr_model_unit_last_piece(model, unit), 1 + (unit - 1) * PER_LAYER);
  int head = tr_model_pieces(model) - 1;
  assert_int_equal(tr_model_piece(model, head)->param[0], tr_model_piece(model, 0)->param[0]);
  tr_model_destroy(model);
}

static void flops_count_grouped_heads_and_windows(void **state) {
  (void)state;
  tr_llama_config c = small();
  c.family = TR_QWEN2;
  c.qkv_bias = 1;
  c.window = 8;
  c.window_layer = 1;
  tr_model *model = build(&c);
  double t = 64, seen = (t + 1) / 2, windowed = (8 * 9 / 2 + (t - 8) * 8) / t;
  double products = 2.0 * 24 * (24 + 2 * 12 + 24 + 3 * 40), attention = 4.0 * 24;
  near(tr_model_flops(model, 64), 3 * (3 * products + attention * (seen + 2 * windowed) + 2.0 * 24 * 50));
  near(tr_model_flops(model, 5), 3 * (3 * (products + attention * 3) + 2.0 * 24 * 50)); // shorter than the window
  tr_model_destroy(model);
}

static void stretched_models_take_longer_sequences(void **state) {
  (void)state;
  static const int64_t longest[] = {64, 160, 160, 64};
  for (int kind = 0; kind < 4; kind++) {
    tr_llama_config c = small();
    c.rope = (tr_rope_config){(tr_rope_kind)kind, 10000, 2.5, 1, 4, kind == TR_ROPE_LLAMA3 ? 16 : 0};
    tr_model *model = build(&c);
    assert_int_equal(tr_model_positions(model), longest[kind]);
    tr_model_destroy(model);
  }
}

static void impossible_descriptions_are_refused(void **state) {
  (void)state;
  static const struct {
    size_t field;
    int64_t value;
    const char *part;
  } row[] = {{offsetof(tr_llama_config, layers), 0, "model.layers is 0"},
             {offsetof(tr_llama_config, width), 0, "model.width is 0"},
             {offsetof(tr_llama_config, heads), 7, "model.heads 7"},
             {offsetof(tr_llama_config, heads), -4, "model.heads is -4"},
             {offsetof(tr_llama_config, heads_kv), 3, "model.heads_kv 3 does not divide model.heads 4; 2 or 4 would"},
             {offsetof(tr_llama_config, heads_kv), 5, "model.heads_kv is 5"},
             {offsetof(tr_llama_config, width), 20, "model.head_dim is 5; rotary positions turn pairs"},
             {offsetof(tr_llama_config, head_dim), 7, "model.head_dim is 7"},
             {offsetof(tr_llama_config, ffn), 0, "model.ffn is 0"},
             {offsetof(tr_llama_config, vocab), 0, "model.vocab is 0"},
             {offsetof(tr_llama_config, positions), 0, "model.positions is 0"},
             {offsetof(tr_llama_config, window), -1, "model.window is -1"},
             {offsetof(tr_llama_config, window), 5, "llama models cannot have this model.window"},
             {offsetof(tr_llama_config, window_layer), 4, "model.window_layer is 4"}};
  for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
    tr_model *model;
    tr_llama_config c = small();
    if (strstr(row[i].part, "heads 7")) c.heads_kv = 0;
    *(int64_t *)(void *)((char *)&c + row[i].field) = row[i].value;
    assert_int_equal(tr_llama_create(&c, &model), TR_ERR_CONFIG);
    says(row[i].part);
  }
}

// What the family's config.json could not say is refused before anything is trained.
static void families_have_what_their_files_can_say(void **state) {
  (void)state;
  static const struct {
    tr_llama_family family;
    int head_norm, qkv_bias, out_bias, mlp_bias, window, window_layer;
    const char *part; // NULL: allowed
  } row[] = {{TR_LLAMA, 1, 0, 0, 0, 0, 0, "head_norm"},
             {TR_LLAMA, 0, 1, 0, 0, 0, 0, "qkv_bias"},
             {TR_LLAMA, 0, 1, 1, 1, 0, 0, NULL},
             {TR_MISTRAL, 0, 0, 0, 0, 8, 0, NULL},
             {TR_MISTRAL, 0, 0, 0, 0, 8, 1, "window_layer"},
             {TR_MISTRAL, 0, 1, 1, 0, 0, 0, "qkv_bias: it has no biases"},
             {TR_MISTRAL, 0, 0, 0, 1, 0, 0, "mlp_bias"},
             {TR_QWEN2, 0, 0, 0, 0, 0, 0, "qkv_bias"},
             {TR_QWEN2, 0, 1, 1, 0, 0, 0, "out_bias"},
             {TR_QWEN2, 0, 1, 0, 0, 8, 1, NULL},
             {TR_QWEN3, 0, 0, 0, 0, 0, 0, "head_norm"},
             {TR_QWEN3, 1, 1, 1, 0, 8, 2, NULL},
             {TR_QWEN3, 1, 0, 0, 1, 0, 0, "mlp_bias"}};
  for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
    tr_llama_config c = small();
    c.family = row[i].family;
    c.head_norm = row[i].head_norm;
    c.qkv_bias = row[i].qkv_bias;
    c.out_bias = row[i].out_bias;
    c.mlp_bias = row[i].mlp_bias;
    c.window = row[i].window;
    c.window_layer = row[i].window_layer;
    assert_int_equal(tr_llama_config_check(&c), row[i].part ? TR_ERR_CONFIG : TR_OK);
    if (row[i].part) says(row[i].part);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(frequencies_fall_by_powers_of_theta),
      cmocka_unit_test(dynamic_frequencies_stretch_with_the_length),
      cmocka_unit_test(llama3_divides_low_frequencies_and_keeps_high_ones),
      cmocka_unit_test(projections_check_what_they_are_given),
      cmocka_unit_test(rotary_pieces_check_what_they_are_given),
      cmocka_unit_test(other_pieces_check_what_they_are_given),
      cmocka_unit_test(parameters_are_named_as_in_transformers),
      cmocka_unit_test(units_are_embedding_layers_and_norm),
      cmocka_unit_test(flops_count_grouped_heads_and_windows),
      cmocka_unit_test(stretched_models_take_longer_sequences),
      cmocka_unit_test(impossible_descriptions_are_refused),
      cmocka_unit_test(families_have_what_their_files_can_say),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
