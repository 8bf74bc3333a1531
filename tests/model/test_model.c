// SPDX-License-Identifier: MIT
// tier: quick
// timeout: 60
// Proves that wrong lists of pieces are refused by name, that GPT-2 has the published size and the FLOPs one counts
// by hand, that its configuration is checked and survives config.json, and that initial weights do not depend on
// how they are cut.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "trireme/base/json.h"
#include "trireme/model/gpt2.h"
#include "trireme/model/piece.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static tr_status nothing(const tr_piece_call *call) {
  (void)call;
  return TR_OK;
}
static const tr_piece_ops ops = {
    .kind = "test", .forward = nothing, .backward_input = nothing, .backward_weight = nothing};
static const tr_piece_ops no_backward = {.kind = "test", .forward = nothing};

// A chain under construction: values a, b (activations of width 4), loss; one parameter w.
typedef struct chain {
  tr_model *model;
  int unit, w, a, b, loss;
} chain;

static chain begin(void) {
  chain c;
  assert_int_equal(tr_model_create("m", &c.model), TR_OK);
  c.unit = tr_model_add_unit(c.model, "u");
  tr_param w = {.name = "w", .shape = {.ndim = 1, .dim = {4}}};
  c.w = tr_model_add_param(c.model, c.unit, &w);
  c.a = tr_model_add_value(c.model, "a", TR_VALUE_ACTIVATION, 4);
  c.b = tr_model_add_value(c.model, "b", TR_VALUE_ACTIVATION, 4);
  c.loss = tr_model_add_value(c.model, "loss", TR_VALUE_STATE, 1);
  return c;
}

// One piece from `in` (-1: none) to `out` with parameter `param` (-1: none).
static int add(chain *c, const char *name, int in, int out, int param) {
  tr_piece piece = {.name = name,
                    .ops = &ops,
                    .nin = in >= 0,
                    .in = {{.value = in}},
                    .nout = 1,
                    .out = {{.value = out}},
                    .nparam = param >= 0,
                    .param = {param}};
  return tr_model_add_piece(c->model, &piece);
}

static void refused(chain *c, const char *text) {
  assert_int_equal(tr_model_finish(c->model), TR_ERR_CONFIG);
  if (!strstr(tr_status_text(), text)) fail_msg("'%s' does not say '%s'", tr_status_text(), text);
  tr_model_destroy(c->model);
}

static void a_complete_chain_is_a_model(void **state) {
  (void)state;
  chain c = begin();
  assert_int_equal(add(&c, "first", -1, c.a, c.w), 0);
  assert_int_equal(add(&c, "second", c.a, c.b, -1), 1);
  add(&c, "last", c.b, c.loss, c.w);
  assert_int_equal(tr_model_finish(c.model), TR_OK);
  assert_int_equal(tr_model_loss_value(c.model), c.loss);
  assert_int_equal(tr_model_pieces(c.model), 3);
  assert_int_equal(tr_model_piece(c.model, 2)->index, 2);
  assert_int_equal(tr_model_param_grad_is_first(c.model, 2, 0), 1);
  assert_int_equal(tr_model_param_grad_is_first(c.model, 0, 0), 0); // "last" runs backward before "first"
  assert_int_equal(tr_model_unit_last_piece(c.model, c.unit), 0);
  tr_model_destroy(c.model);
}

static void gradients_start_at_the_last_reader(void **state) {
  (void)state;
  chain c = begin();
  add(&c, "first", -1, c.a, c.w);
  add(&c, "second", c.a, c.b, -1);
  tr_piece last = {.name = "last",
                   .ops = &ops,
                   .nin = 2,
                   .in = {{.value = c.a}, {.value = c.b}},
                   .nout = 1,
                   .out = {{.value = c.loss}}};
  tr_model_add_piece(c.model, &last);
  assert_int_equal(tr_model_finish(c.model), TR_OK);
  assert_int_equal(tr_model_grad_is_first(c.model, 1, 0), 0);
  assert_int_equal(tr_model_grad_is_first(c.model, 2, 0), 1);
  assert_int_equal(tr_model_grad_is_first(c.model, 2, 1), 1);
  tr_model_destroy(c.model);
}

static void wrong_flow_is_refused(void **state) {
  (void)state;
  chain c = begin();
  add(&c, "second", c.a, c.b, c.w);
  add(&c, "first", -1, c.a, -1);
  add(&c, "last", c.b, c.loss, -1);
  refused(&c, "'second' reads value 'a' before");
  c = begin();
  add(&c, "one", -1, c.a, c.w);
  add(&c, "two", c.a, c.a, -1);
  refused(&c, "value 'a' is written by pieces 'one' and 'two'");
  c = begin();
  add(&c, "one", -1, c.a, c.w);
  add(&c, "dead", c.a, c.b, -1);
  add(&c, "last", c.a, c.loss, -1);
  refused(&c, "no piece reads value 'b'");
  c = begin();
  add(&c, "one", -1, c.a, -1);
  add(&c, "two", c.a, c.b, -1);
  add(&c, "last", c.b, c.loss, -1);
  refused(&c, "no piece uses parameter 'w'");
  c = begin();
  tr_param again = {.name = "w", .shape = {.ndim = 1, .dim = {4}}};
  tr_model_add_param(c.model, c.unit, &again);
  add(&c, "one", -1, c.a, c.w);
  add(&c, "two", c.a, c.b, -1);
  add(&c, "last", c.b, c.loss, -1);
  refused(&c, "parameter 'w' was added before");
}

static void the_last_piece_must_be_the_loss(void **state) {
  (void)state;
  chain c = begin();
  refused(&c, "no pieces");
  c = begin();
  int wide = tr_model_add_value(c.model, "wide", TR_VALUE_STATE, 2);
  add(&c, "one", -1, c.a, c.w);
  add(&c, "two", c.a, c.b, -1);
  add(&c, "wide", c.b, wide, -1);
  refused(&c, "must write the loss");
  c = begin();
  add(&c, "one", -1, c.a, c.w);
  add(&c, "two", c.a, c.b, -1);
  tr_piece last = {
      .name = "last", .ops = &no_backward, .nin = 1, .in = {{.value = c.b}}, .nout = 1, .out = {{.value = c.loss}}};
  tr_model_add_piece(c.model, &last);
  refused(&c, "must write the loss");
}

static void wrong_additions_are_remembered(void **state) {
  (void)state;
  chain c = begin();
  tr_param again = {.name = "w", .shape = {.ndim = 1, .dim = {4}}};
  assert_int_equal(tr_model_add_value(c.model, "empty", TR_VALUE_STATE, 0), -1);
  assert_int_equal(tr_model_add_param(c.model, 7, &again), -1);
  refused(&c, "value 'empty' needs a width"); // the first failure, not the last
  c = begin();
  assert_int_equal(tr_model_add_param(c.model, 7, &again), -1);
  refused(&c, "no known unit");
  c = begin();
  assert_int_equal(add(&c, "bad", 99, c.a, -1), -1);
  refused(&c, "unknown value");
  c = begin();
  assert_int_equal(add(&c, "bad", -1, c.a, 5), -1);
  refused(&c, "unknown parameter");
}

static void pieces_whose_gradients_would_mix_are_refused(void **state) {
  (void)state;
  chain c = begin();
  add(&c, "one", -1, c.a, c.w);
  tr_piece twice = {.name = "twice",
                    .ops = &ops,
                    .nin = 2,
                    .in = {{.value = c.a}, {.value = c.a}},
                    .nout = 1,
                    .out = {{.value = c.b}}};
  assert_int_equal(tr_model_add_piece(c.model, &twice), -1);
  refused(&c, "twice");
  c = begin();
  tr_piece set = {.name = "set",
                  .ops = &ops,
                  .nin = 1,
                  .in = {{.value = c.a, .use = TR_SET_GRAD}},
                  .nout = 1,
                  .out = {{.value = c.b}}};
  tr_piece last = {.name = "last",
                   .ops = &ops,
                   .nin = 2,
                   .in = {{.value = c.a}, {.value = c.b}},
                   .nout = 1,
                   .out = {{.value = c.loss}}};
  add(&c, "one", -1, c.a, c.w);
  tr_model_add_piece(c.model, &set);
  tr_model_add_piece(c.model, &last);
  refused(&c, "'set' must be the last reader of value 'a'");
  c = begin();
  int wide = tr_model_add_value(c.model, "wide", TR_VALUE_ACTIVATION, 8);
  tr_piece alias = {.name = "alias",
                    .ops = &ops,
                    .nin = 1,
                    .in = {{.value = wide, .use = TR_ALIAS_GRAD}},
                    .nout = 1,
                    .out = {{.value = c.b}}};
  assert_int_equal(tr_model_add_piece(c.model, &alias), -1);
  refused(&c, "not alike");
  c = begin();
  tr_piece silent = {
      .name = "silent", .ops = &no_backward, .nin = 1, .in = {{.value = c.a}}, .nout = 1, .out = {{.value = c.b}}};
  add(&c, "one", -1, c.a, c.w);
  tr_model_add_piece(c.model, &silent);
  add(&c, "last", c.b, c.loss, -1);
  refused(&c, "'silent' has no backward function for its inputs");
}

static const tr_piece_ops swap = {.kind = "swap", .exchanges = 1, .forward = nothing, .backward_input = nothing};
static const tr_piece_ops busy_swap = {
    .kind = "swap", .exchanges = 1, .forward = nothing, .backward_input = nothing, .backward_weight = nothing};

static int add_swap(chain *c, const tr_piece_ops *how, unsigned use, int nparam) {
  tr_piece piece = {.name = "swap",
                    .ops = how,
                    .nin = 1,
                    .in = {{.value = c->a, .use = use}},
                    .nout = 1,
                    .out = {{.value = c->b}},
                    .nparam = nparam,
                    .param = {c->w}};
  return tr_model_add_piece(c->model, &piece);
}

// What travels adds to nothing, and nobody is there to compute when it comes.
static void an_exchange_only_passes_on(void **state) {
  (void)state;
  chain c = begin();
  add(&c, "one", -1, c.a, c.w);
  assert_int_equal(add_swap(&c, &swap, TR_SET_GRAD, 0), 1);
  add(&c, "last", c.b, c.loss, -1);
  assert_int_equal(tr_model_finish(c.model), TR_OK);
  assert_true(tr_model_exchanges(c.model));
  tr_model_destroy(c.model);
  const struct {
    const tr_piece_ops *how;
    unsigned use;
    int nparam;
  } wrong[] = {
      {&swap, 0, 0}, {&swap, TR_SET_GRAD | TR_ALIAS_GRAD, 0}, {&swap, TR_SET_GRAD, 1}, {&busy_swap, TR_SET_GRAD, 0}};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    c = begin();
    assert_false(tr_model_exchanges(c.model));
    assert_int_equal(add_swap(&c, wrong[i].how, wrong[i].use, wrong[i].nparam), -1);
    refused(&c, "'swap' exchanges, but");
  }
}

// A piece of the library on a value or a parameter that does not fit it, and what must be said.
static void adders_check_what_they_are_given(void **state) {
  (void)state;
  enum { LINEAR, GELU, NORM, EMBEDDING, ATTENTION, RESIDUAL, HEAD };
  static const struct {
    int kind, param, value, width;
    const char *text;
  } row[] = {{LINEAR, 99, 0, 4, "unknown parameter"},
             {LINEAR, 0, 99, 4, "unknown value"},
             {LINEAR, 0, 0, 5, "width does not fit"},
             {GELU, 0, 99, 4, "unknown value"},
             {GELU, 0, 0, 5, "width does not fit"},
             {NORM, 99, 0, 4, "unknown parameter"},
             {EMBEDDING, 99, 0, 4, "unknown parameter"},
             {EMBEDDING, 0, 0, 5, "width does not fit"},
             {ATTENTION, 0, 0, 5, "multiple of its key heads"},
             {RESIDUAL, 0, 0, 5, "width does not fit"},
             {HEAD, 99, 0, 4, "unknown parameter"},
             {HEAD, 1, 0, 4, "width does not fit"}};
  for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
    chain c = begin();
    tr_param square = {.name = "square", .shape = {.ndim = 2, .dim = {4, 4}}};
    tr_param wide = {.name = "wide", .shape = {.ndim = 2, .dim = {9, 7}}};
    int param[] = {tr_model_add_param(c.model, c.unit, &square), tr_model_add_param(c.model, c.unit, &wide)};
    int p = row[i].param > 1 ? row[i].param : param[row[i].param], x = row[i].value ? row[i].value : c.a;
    int y = tr_model_add_value(c.model, "y", TR_VALUE_ACTIVATION, row[i].width);
    tr_attention_config attention = {.heads = 4, .heads_kv = 3, .dim = 1};
    int got = 0;
    switch (row[i].kind) {
    case LINEAR: got = tr_piece_linear(c.model, "it", p, -1, x, y, 0); break;
    case GELU: got = tr_piece_gelu(c.model, "it", x, y); break;
    case NORM: got = tr_piece_layernorm(c.model, "it", p, p, 1e-5, x, y, c.loss, c.loss); break;
    case EMBEDDING: got = tr_piece_embedding(c.model, "it", p, -1, 0, y); break;
    case ATTENTION: got = tr_piece_attention(c.model, "it", &attention, x, y, c.loss); break;
    case RESIDUAL: got = tr_piece_residual(c.model, "it", 0, x, c.b, y); break;
    case HEAD: got = tr_piece_head_loss(c.model, "it", p, x, c.loss); break;
    }
    assert_int_equal(got, -1);
    refused(&c, row[i].text);
  }
}

// ---- GPT-2

static void gpt2_has_its_published_size(void **state) {
  (void)state;
  static const struct {
    int64_t layers, width, heads, count;
  } size[] = {
      {12, 768, 12, 124439808}, {24, 1024, 16, 354823168}, {36, 1280, 20, 774030080}, {48, 1600, 25, 1557611200}};
  for (size_t i = 0; i < sizeof size / sizeof *size; i++) {
    tr_gpt2_config config;
    tr_model *model;
    tr_gpt2_config_init(&config);
    config.layers = size[i].layers;
    config.width = size[i].width;
    config.heads = size[i].heads;
    assert_int_equal(tr_gpt2_create(&config, &model), TR_OK);
    assert_int_equal(tr_model_count(model), size[i].count);
    assert_int_equal(tr_model_units(model), size[i].layers + 2);
    assert_int_equal(tr_model_vocab(model), 50257);
    assert_int_equal(tr_model_positions(model), 1024);
    tr_model_destroy(model);
  }
}

static void an_untied_head_is_one_more_matrix(void **state) {
  (void)state;
  tr_gpt2_config config;
  tr_model *model;
  tr_gpt2_config_init(&config);
  config.tied = 0;
  assert_int_equal(tr_gpt2_create(&config, &model), TR_OK);
  assert_int_equal(tr_model_count(model), 124439808 + 50257 * 768);
  int last = tr_model_params(model) - 1;
  assert_string_equal(tr_model_param(model, last)->name, "lm_head.weight");
  assert_int_equal(tr_model_param(model, last)->transposed, 0);
  tr_model_destroy(model);
}

static void gpt2_flops_are_those_counted_by_hand(void **state) {
  (void)state;
  tr_gpt2_config config;
  tr_model *model;
  tr_gpt2_config_init(&config);
  assert_int_equal(tr_gpt2_create(&config, &model), TR_OK);
  double c = 768, t = 1024;
  double layer = 2 * (3 * c * c + c * c + 4 * c * c + 4 * c * c) + 2 * 2 * c * (t + 1) / 2;
  assert_true(fabs(tr_model_flops(model, 1024) / (3 * (12 * layer + 2 * c * 50257)) - 1) < 1e-12);
  tr_model_destroy(model);
}

// Embedding gradients are complete at the very end, a layer's at its first norm, the last norm's at itself.
static void gpt2_units_complete_from_the_back(void **state) {
  (void)state;
  tr_gpt2_config config;
  tr_model *model;
  tr_gpt2_config_init(&config);
  config.layers = 3;
  assert_int_equal(tr_gpt2_create(&config, &model), TR_OK);
  assert_int_equal(tr_model_pieces(model), 1 + 3 * 10 + 2);
  for (int unit = 0; unit < 5; unit++) {
    int piece = unit == 0 ? 0 : 1 + (unit - 1) * 10;
    assert_int_equal(tr_model_unit_last_piece(model, unit), piece);
  }
  assert_string_equal(tr_model_unit_name(model, 2), "h.1");
  assert_string_equal(tr_model_piece(model, 11)->name, "h.1.ln_1");
  int head = tr_model_pieces(model) - 1;
  assert_int_equal(tr_model_piece(model, head)->param[0], tr_model_piece(model, 0)->param[0]); // tied
  assert_int_equal(tr_model_param_grad_is_first(model, head, 0), 1);
  assert_int_equal(tr_model_param_grad_is_first(model, 0, 0), 0);
  assert_int_equal(tr_model_param_grad_is_first(model, 0, 1), 1);
  assert_int_equal(tr_model_grad_is_first(model, 5, 0), 1); // the residual sum reads the layer's input last
  assert_int_equal(tr_model_grad_is_first(model, 1, 0), 0);
  tr_model_destroy(model);
}

static void config_errors_name_field_and_neighbours(void **state) {
  (void)state;
  tr_gpt2_config config;
  tr_model *model;
  tr_gpt2_config_init(&config);
  config.heads = 7;
  assert_int_equal(tr_gpt2_create(&config, &model), TR_ERR_CONFIG);
  assert_non_null(strstr(tr_status_text(), "model.heads 7 does not divide model.width 768; 6 or 8 would"));
  tr_gpt2_config_init(&config);
  config.dropout_residual = 1;
  assert_int_equal(tr_gpt2_config_check(&config), TR_ERR_CONFIG);
  assert_non_null(strstr(tr_status_text(), "model.dropout_residual is 1"));
  tr_gpt2_config_init(&config);
  config.eps = NAN;
  assert_int_equal(tr_gpt2_config_check(&config), TR_ERR_CONFIG);
  tr_gpt2_config_init(&config);
  config.layers = 0;
  assert_int_equal(tr_gpt2_config_check(&config), TR_ERR_CONFIG);
  assert_non_null(strstr(tr_status_text(), "model.layers"));
}

static void config_json_goes_there_and_back(void **state) {
  (void)state;
  tr_gpt2_config config = {.layers = 3,
                           .width = 60,
                           .heads = 5,
                           .ffn = 100,
                           .vocab = 77,
                           .positions = 33,
                           .eps = 1e-6,
                           .init_std = 0.01,
                           .dropout_embedding = 0.1,
                           .dropout_residual = 0.2,
                           .dropout_attention = 0.3,
                           .tied = 0};
  for (int round = 0; round < 2; round++) {
    char *text;
    json_t *json;
    tr_gpt2_config back;
    memset(&back, 0, sizeof back);
    assert_int_equal(tr_gpt2_config_to_json(&config, "bfloat16", &text), TR_OK);
    assert_int_equal(tr_json_parse(text, strlen(text), "config.json", &json), TR_OK);
    assert_int_equal(tr_gpt2_config_from_json(json, "config.json", &back), TR_OK);
    assert_int_equal(back.layers, config.layers);
    assert_int_equal(back.width, config.width);
    assert_int_equal(back.heads, config.heads);
    assert_int_equal(back.ffn, config.ffn);
    assert_int_equal(back.vocab, config.vocab);
    assert_int_equal(back.positions, config.positions);
    assert_int_equal(back.tied, config.tied);
    assert_true(back.eps == config.eps && back.init_std == config.init_std);
    assert_true(back.dropout_embedding == config.dropout_embedding &&
                back.dropout_residual == config.dropout_residual &&
                back.dropout_attention == config.dropout_attention);
    json_decref(json);
    free(text);
    config.ffn = 0; // null in the file
    config.tied = 1;
  }
}

static void foreign_config_json_is_refused(void **state) {
  (void)state;
  static const struct {
    const char *json, *says;
  } bad[] = {
      {"{\"model_type\": \"llama\"}", "'llama'"},
      {"{\"model_type\": \"gpt2\", \"activation_function\": \"relu\"}", "'relu'"},
      {"{\"model_type\": \"gpt2\", \"scale_attn_by_inverse_layer_idx\": true}", "scale_attn_by_inverse_layer_idx"},
      {"{\"model_type\": \"gpt2\", \"n_layer\": 2, \"n_embd\": 10, \"n_head\": 3, \"n_positions\": 8, "
       "\"vocab_size\": 9}",
       "2 or 5"},
      {"{\"model_type\": \"gpt2\", \"n_layer\": 2, \"n_embd\": 10}", "n_head"},
      {"{}", "model_type"}};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    json_t *json;
    tr_gpt2_config config;
    assert_int_equal(tr_json_parse(bad[i].json, strlen(bad[i].json), "x.json", &json), TR_OK);
    assert_true(tr_gpt2_config_from_json(json, "x.json", &config) < 0);
    if (!strstr(tr_status_text(), bad[i].says) || !strstr(tr_status_text(), "x.json"))
      fail_msg("%s", tr_status_text());
    json_decref(json);
  }
}

static void initial_weights_do_not_depend_on_the_cut(void **state) {
  (void)state;
  enum { N = 1000 };
  float whole[N], part[N], other[N];
  tr_param param = {.name = "some.weight", .shape = {.ndim = 1, .dim = {N}}, .init = TR_INIT_NORMAL, .std = 0.02};
  tr_param_init(&param, 42, whole, 0, N);
  for (int64_t at = 0, n = 1; at < N; at += n, n = n * 2 + 1)
    tr_param_init(&param, 42, part + at, at, at + n < N ? n : N - at);
  assert_memory_equal(whole, part, sizeof whole);
  double sum = 0, squares = 0;
  for (int i = 0; i < N; i++) sum += whole[i], squares += (double)whole[i] * whole[i];
  assert_true(fabs(sum / N) < 0.003 && fabs(sqrt(squares / N) - 0.02) < 0.002);
  param.name = "other.weight";
  tr_param_init(&param, 42, other, 0, N);
  assert_memory_not_equal(whole, other, sizeof whole);
  param.init = TR_INIT_ONES;
  tr_param_init(&param, 42, other, 5, 3);
  assert_true(other[0] == 1 && other[2] == 1);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_complete_chain_is_a_model),
      cmocka_unit_test(gradients_start_at_the_last_reader),
      cmocka_unit_test(wrong_flow_is_refused),
      cmocka_unit_test(the_last_piece_must_be_the_loss),
      cmocka_unit_test(wrong_additions_are_remembered),
      cmocka_unit_test(pieces_whose_gradients_would_mix_are_refused),
      cmocka_unit_test(an_exchange_only_passes_on),
      cmocka_unit_test(adders_check_what_they_are_given),
      cmocka_unit_test(gpt2_has_its_published_size),
      cmocka_unit_test(an_untied_head_is_one_more_matrix),
      cmocka_unit_test(gpt2_flops_are_those_counted_by_hand),
      cmocka_unit_test(gpt2_units_complete_from_the_back),
      cmocka_unit_test(config_errors_name_field_and_neighbours),
      cmocka_unit_test(config_json_goes_there_and_back),
      cmocka_unit_test(foreign_config_json_is_refused),
      cmocka_unit_test(initial_weights_do_not_depend_on_the_cut),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
