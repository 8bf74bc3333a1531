// SPDX-License-Identifier: MIT
// tier: quick
// timeout: 60
// Proves that parts of a model are the model: every piece once, with the same values, parameters and facts, whatever the
// ranges; that one activation crosses at each cut; who has a tied embedding; and that what cannot be cut is refused by name.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "trireme/model/gpt2.h"
#include "trireme/model/llama.h"
#include <stdio.h>
#include <string.h>

enum { LAYERS = 5, MOST = 16 };

static tr_model *gpt2(int tied) {
  tr_gpt2_config c;
  tr_model *model;
  tr_gpt2_config_init(&c);
  c.layers = LAYERS;
  c.width = 12;
  c.heads = 3;
  c.vocab = 29;
  c.positions = 16;
  c.tied = tied;
  assert_int_equal(tr_gpt2_create(&c, &model), TR_OK);
  return model;
}

static tr_model *llama(int tied) {
  tr_llama_config c;
  tr_model *model;
  tr_llama_config_init(&c);
  c.layers = LAYERS;
  c.width = 12;
  c.heads = 4;
  c.heads_kv = 2;
  c.head_dim = 6;
  c.ffn = 10;
  c.vocab = 29;
  c.positions = 16;
  c.tied = tied;
  assert_int_equal(tr_llama_create(&c, &model), TR_OK);
  return model;
}

static int piece_named(const tr_model *model, const char *name) {
  for (int i = 0; i < tr_model_pieces(model); i++)
    if (strcmp(tr_model_piece(model, i)->name, name) == 0) return i;
  return -1;
}

static int param_named(const tr_model *model, const char *name) {
  for (int i = 0; i < tr_model_params(model); i++)
    if (strcmp(tr_model_param(model, i)->name, name) == 0) return i;
  return -1;
}

// ---- where models can be cut

static void layers_and_the_head_can_be_cut_off(void **state) {
  (void)state;
  static const char *const first[] = {"h.%d.ln_1", "layers.%d.input_layernorm"}, *const last[] = {"ln_f", "norm"};
  for (int k = 0; k < 4; k++) {
    tr_model *model = k & 1 ? llama(k / 2) : gpt2(k / 2);
    int cut[MOST];
    char name[64];
    assert_int_equal(tr_model_cuts(model, cut, MOST), LAYERS + 1);
    for (int i = 0; i < LAYERS; i++) {
      snprintf(name, sizeof name, first[k & 1], i);
      assert_int_equal(cut[i], piece_named(model, name));
    }
    assert_int_equal(cut[LAYERS], piece_named(model, last[k & 1]));
    cut[2] = -7;
    assert_int_equal(tr_model_cuts(model, cut, 2), LAYERS + 1);
    assert_int_equal(cut[2], -7);
    tr_model_destroy(model);
  }
}

// ---- parts against the whole

static void same_value(const tr_model *part, int v, const tr_model *whole, int w) {
  const tr_value *a = tr_model_value(part, v), *b = tr_model_value(whole, w);
  assert_string_equal(a->name, b->name);
  assert_int_equal(a->kind, b->kind);
  assert_int_equal(a->width, b->width);
}

static void same_param(const tr_model *part, int i, const tr_model *whole, int w) {
  const tr_param *a = tr_model_param(part, i), *b = tr_model_param(whole, w);
  assert_string_equal(a->name, b->name);
  assert_int_equal(a->role, b->role);
  assert_int_equal(a->shape.dim[0], b->shape.dim[0]);
  assert_string_equal(tr_model_unit_name(part, a->unit), tr_model_unit_name(whole, b->unit));
  assert_int_equal(tr_model_whole_param(part, i), w);
}

// All readers of what enters a range are in it, so even who starts its gradient is the same.
static void same_piece(const tr_model *part, int i, const tr_model *whole, int w) {
  const tr_piece *a = tr_model_piece(part, i), *b = tr_model_piece(whole, w);
  assert_string_equal(a->name, b->name);
  assert_ptr_equal(a->ops, b->ops);
  assert_int_equal(a->index, w);
  assert_int_equal(a->config_nbyte, b->config_nbyte);
  if (a->config_nbyte) assert_memory_equal(a->config, b->config, a->config_nbyte);
  assert_int_equal(a->nin, b->nin);
  assert_int_equal(a->nout, b->nout);
  assert_int_equal(a->nparam, b->nparam);
  for (int k = 0; k < a->nin; k++) {
    same_value(part, a->in[k].value, whole, b->in[k].value);
    assert_int_equal(a->in[k].use, b->in[k].use);
    assert_int_equal(tr_model_grad_is_first(part, i, k), tr_model_grad_is_first(whole, w, k));
  }
  for (int k = 0; k < a->nout; k++) same_value(part, a->out[k].value, whole, b->out[k].value);
  for (int k = 0; k < a->nparam; k++) same_param(part, a->param[k], whole, b->param[k]);
}

static void check_part(const tr_model *whole, const int *range, int nrange, const tr_model *part,
                       const tr_model_boundary *boundary) {
  int at = 0, npiece = tr_model_pieces(whole);
  assert_ptr_equal(tr_model_whole(part), whole);
  for (int r = 0; r < nrange; r++) {
    for (int i = range[2 * r]; i < range[2 * r + 1]; i++) same_piece(part, at++, whole, i);
    assert_int_equal(boundary[r].in < 0, range[2 * r] == 0);
    assert_int_equal(boundary[r].out < 0, range[2 * r + 1] == npiece);
    if (boundary[r].out >= 0) assert_int_equal(tr_model_piece(part, at - 1)->out[0].value, boundary[r].out);
    if (boundary[r].in >= 0) assert_int_equal(tr_model_value(part, boundary[r].in)->width, 12);
  }
  assert_int_equal(tr_model_pieces(part), at);
  assert_int_equal(tr_model_loss_value(part) >= 0, range[2 * nrange - 1] == npiece);
  assert_int_equal(tr_model_vocab(part), tr_model_vocab(whole));
  assert_int_equal(tr_model_positions(part), tr_model_positions(whole));
}

// Adds how many of the whole model's parameters the part has.
static void make_and_check(const tr_model *whole, const int *range, int nrange, int *owners) {
  tr_model *part;
  tr_model_boundary boundary[4];
  assert_int_equal(tr_model_part(whole, range, nrange, boundary, &part), TR_OK);
  check_part(whole, range, nrange, part, boundary);
  for (int i = 0; i < tr_model_params(part); i++) owners[tr_model_whole_param(part, i)]++;
  tr_model_destroy(part);
}

// All ways to choose cuts; stages in one part each, or a first and a last one together.
static void every_way_to_cut(const tr_model *whole, int tied, const char *embedding) {
  int cut[MOST], n = tr_model_cuts(whole, cut, MOST);
  for (int set = 0; set < 1 << n; set++) {
    int range[2 * MOST] = {0}, nstage = 0, owners[256] = {0};
    for (int i = 0; i < n; i++) {
      if (!(set >> i & 1)) continue;
      range[2 * nstage + 1] = range[2 * nstage + 2] = cut[i];
      nstage++;
    }
    range[2 * nstage++ + 1] = tr_model_pieces(whole);
    int together = set % 3 == 0 && nstage > 1;
    if (together)
      make_and_check(whole, (int[]){0, range[1], range[2 * nstage - 2], range[2 * nstage - 1]}, 2, owners);
    for (int s = together; s < nstage - together; s++) make_and_check(whole, &range[2 * s], 1, owners);
    for (int i = 0; i < tr_model_params(whole); i++) {
      int shared = tied && nstage > 1 && !together && i == param_named(whole, embedding);
      assert_int_equal(owners[i], shared ? 2 : 1);
    }
  }
}

static void parts_are_the_model(void **state) {
  (void)state;
  for (int tied = 0; tied < 2; tied++) {
    tr_model *a = gpt2(tied), *b = llama(tied);
    every_way_to_cut(a, tied, "transformer.wte.weight");
    every_way_to_cut(b, tied, "model.embed_tokens.weight");
    tr_model_destroy(a);
    tr_model_destroy(b);
  }
}

// Stages that follow each other on one rank hand over a value that is another one on either side.
static void neighbours_in_one_part_have_values_of_their_own(void **state) {
  (void)state;
  tr_model *whole = gpt2(0), *part;
  tr_model_boundary boundary[2];
  int cut[MOST];
  tr_model_cuts(whole, cut, MOST);
  const int range[] = {cut[0], cut[1], cut[1], cut[2]};
  assert_int_equal(tr_model_part(whole, range, 2, boundary, &part), TR_OK);
  check_part(whole, range, 2, part, boundary);
  assert_true(boundary[0].out != boundary[1].in);
  same_value(part, boundary[0].out, part, boundary[1].in);
  assert_int_equal(tr_model_units(part), 2);
  assert_string_equal(tr_model_unit_name(part, 1), "h.1");
  tr_model_destroy(part);
  tr_model_destroy(whole);
}

// The last part of a tied model shares the unit of the embeddings, but not the positions.
static void the_last_part_has_of_the_embeddings_what_it_uses(void **state) {
  (void)state;
  tr_model *whole = gpt2(1), *part;
  tr_model_boundary boundary;
  int cut[MOST], n = tr_model_cuts(whole, cut, MOST);
  assert_int_equal(tr_model_part(whole, (int[]){cut[n - 1], tr_model_pieces(whole)}, 1, &boundary, &part), TR_OK);
  assert_int_equal(tr_model_units(part), 2);
  assert_string_equal(tr_model_unit_name(part, 0), "embedding");
  assert_int_equal(tr_model_params(part), 3);
  assert_int_equal(param_named(part, "transformer.wpe.weight"), -1);
  assert_int_equal(tr_model_unit_last_piece(part, 0), 1); // the head
  assert_int_equal(tr_model_unit_last_piece(part, 1), 0);
  tr_model_destroy(part);
  tr_model_destroy(whole);
}

// ---- refusals

static void refused(const tr_model *whole, const int *range, int nrange, const char *text) {
  tr_model *part;
  tr_model_boundary boundary[4];
  assert_int_equal(tr_model_part(whole, range, nrange, boundary, &part), TR_ERR_PLAN);
  if (!strstr(tr_status_text(), text)) fail_msg("'%s' does not say '%s'", tr_status_text(), text);
}

static void what_is_no_stage_is_refused(void **state) {
  (void)state;
  tr_model *whole = gpt2(1), *part;
  tr_model_boundary boundary;
  int cut[MOST], n = tr_model_pieces(whole);
  tr_model_cuts(whole, cut, MOST);
  refused(whole, (int[]){0, cut[1] + 5}, 1, "before 'h.2.ln_1'");
  refused(whole, (int[]){0, cut[1] + 5}, 1, "('h.1.ln_1') and");
  refused(whole, (int[]){n - 1, n}, 1, "before piece 51 ('ln_f') and its end");
  refused(whole, (int[]){cut[0], cut[0]}, 1, "are no stage");
  refused(whole, (int[]){0, n + 1}, 1, "are no stage");
  refused(whole, (int[]){-1, n}, 1, "are no stage");
  refused(whole, (int[]){cut[1], cut[3], cut[2], n}, 2, "are no stage");
  refused(whole, NULL, 0, "needs pieces");
  assert_int_equal(tr_model_part(whole, (int[]){0, cut[1]}, 1, &boundary, &part), TR_OK);
  refused(part, (int[]){0, cut[0]}, 1, "is a part already");
  tr_model_destroy(part);
  tr_model_destroy(whole);
}

// ---- models that are no chains of layers

static tr_status nothing(const tr_piece_call *call) {
  (void)call;
  return TR_OK;
}
static const tr_piece_ops ops = {
    .kind = "test", .forward = nothing, .backward_input = nothing, .backward_weight = nothing};

typedef struct built {
  tr_model *model;
  int value[8], param[8];
} built;

// Values a, b, c, ... of width 3, of which those in `states` are states, and the loss; unit i has parameter i.
static built begin(int nvalue, unsigned states, int nunit) {
  built b;
  assert_int_equal(tr_model_create("own", &b.model), TR_OK);
  for (int i = 0; i < nvalue; i++)
    b.value[i] = tr_model_add_value(b.model, (char[]){(char)('a' + i), 0},
                                    states >> i & 1 ? TR_VALUE_STATE : TR_VALUE_ACTIVATION, 3);
  b.value[7] = tr_model_add_value(b.model, "loss", TR_VALUE_STATE, 1);
  for (int i = 0; i < nunit; i++) {
    tr_param param = {.name = (char[]){(char)('p' + i), 0}, .shape = {.ndim = 1, .dim = {3}}};
    b.param[i] = tr_model_add_param(b.model, tr_model_add_unit(b.model, param.name), &param);
  }
  return b;
}

// A piece from one or two values (-1: none) to `out`, with parameter `param` (-1: none).
static void add(built *b, int in, int other, int out, int param) {
  tr_piece piece = {.name = (char[]){(char)('A' + tr_model_pieces(b->model)), 0},
                    .ops = &ops,
                    .nin = (in >= 0) + (other >= 0),
                    .nout = 1,
                    .out = {{.value = b->value[out]}},
                    .nparam = param >= 0,
                    .param = {param >= 0 ? b->param[param] : 0}};
  if (in >= 0) piece.in[0].value = b->value[in];
  if (other >= 0) piece.in[1].value = b->value[other];
  tr_model_add_piece(b->model, &piece);
}

static void expect_cuts(built *b, int n, const int *want) {
  int cut[MOST];
  assert_int_equal(tr_model_finish(b->model), TR_OK);
  assert_int_equal(tr_model_cuts(b->model, cut, MOST), n);
  for (int i = 0; i < n; i++) assert_int_equal(cut[i], want[i]);
  tr_model_destroy(b->model);
}

static void only_one_activation_may_cross(void **state) {
  (void)state;
  built chain = begin(3, 0, 4); // A a B b C c D
  add(&chain, -1, -1, 0, 0);
  add(&chain, 0, -1, 1, 1);
  add(&chain, 1, -1, 2, 2);
  add(&chain, 2, -1, 7, 3);
  expect_cuts(&chain, 3, (int[]){1, 2, 3});
  built skip = begin(3, 0, 4); // D reads b too
  add(&skip, -1, -1, 0, 0);
  add(&skip, 0, -1, 1, 1);
  add(&skip, 1, -1, 2, 2);
  add(&skip, 2, 1, 7, 3);
  expect_cuts(&skip, 2, (int[]){1, 2});
  built read = begin(4, 2, 3); // B makes a statistic of a, which then crosses
  add(&read, -1, -1, 0, 0);
  add(&read, 0, -1, 1, -1);
  add(&read, 0, -1, 2, 1);
  add(&read, 2, -1, 3, -1);
  add(&read, 3, -1, 7, 2);
  expect_cuts(&read, 1, (int[]){4});
  built stat = begin(3, 2, 3); // a statistic crosses
  add(&stat, -1, -1, 0, 0);
  add(&stat, 0, -1, 1, -1);
  add(&stat, 0, -1, 2, 1);
  add(&stat, 2, 1, 7, 2);
  expect_cuts(&stat, 0, NULL);
}

// A unit stays whole but for parameters that are used on both sides.
static void units_are_not_torn(void **state) {
  (void)state;
  for (int torn = 0; torn < 2; torn++) {
    built b = begin(2, 0, 2);
    tr_param second = {.name = "second", .shape = {.ndim = 1, .dim = {3}}};
    if (torn) b.param[2] = tr_model_add_param(b.model, 0, &second);
    add(&b, -1, -1, 0, 0);
    add(&b, 0, -1, 1, 1);
    add(&b, 1, -1, 7, torn ? 2 : 0);
    expect_cuts(&b, !torn, (int[]){1});
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(layers_and_the_head_can_be_cut_off),
      cmocka_unit_test(parts_are_the_model),
      cmocka_unit_test(neighbours_in_one_part_have_values_of_their_own),
      cmocka_unit_test(the_last_part_has_of_the_embeddings_what_it_uses),
      cmocka_unit_test(what_is_no_stage_is_refused),
      cmocka_unit_test(only_one_activation_may_cross),
      cmocka_unit_test(units_are_not_torn),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
