// SPDX-License-Identifier: MIT
// tier: quick
// timeout: 60
// Proves that a layout places every parameter once, aligned and apart, and that optimizer segments of any range are
// exactly the elements of parameters in it, by comparing with a map of all elements.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "trireme/model/gpt2.h"
#include "trireme/shard/layout.h"
#include <stdlib.h>

static tr_model *make_model(int64_t width, int tied) {
  tr_gpt2_config config;
  tr_model *model;
  tr_gpt2_config_init(&config);
  config.layers = 2;
  config.width = width;
  config.heads = 1;
  config.vocab = 13;
  config.positions = 5;
  config.tied = tied;
  assert_int_equal(tr_gpt2_create(&config, &model), TR_OK);
  return model;
}

// owner[i]: parameter of element i, -1 for padding.
static int *make_owners(const tr_layout *layout) {
  int *owner = malloc(sizeof *owner * (size_t)layout->total);
  for (int64_t i = 0; i < layout->total; i++) owner[i] = -1;
  for (int p = 0; p < layout->nparam; p++)
    for (int64_t i = 0; i < layout->param_count[p]; i++) {
      int64_t at = layout->param_offset[p] + i;
      assert_in_range(at, 0, layout->total - 1);
      assert_int_equal(owner[at], -1); // apart
      owner[at] = p;
    }
  return owner;
}

static void parameters_lie_apart_and_aligned(void **state) {
  (void)state;
  static const int64_t width[] = {7, 64, 12};
  for (int k = 0; k < 3; k++) {
    tr_model *model = make_model(width[k], k != 1);
    tr_layout layout;
    assert_int_equal(tr_layout_build(model, &layout), TR_OK);
    free(make_owners(&layout));
    int64_t count = 0, padding = 0;
    for (int p = 0; p < layout.nparam; p++) {
      int unit = tr_model_param(model, p)->unit;
      assert_int_equal(layout.param_offset[p] % TR_LAYOUT_ALIGN, 0);
      assert_int_equal(layout.param_count[p], tr_shape_count(&tr_model_param(model, p)->shape));
      assert_true(layout.param_offset[p] >= layout.unit_start[unit]);
      assert_true(layout.param_offset[p] + layout.param_count[p] <= layout.unit_start[unit + 1]);
      count += layout.param_count[p];
      padding += (TR_LAYOUT_ALIGN - layout.param_count[p] % TR_LAYOUT_ALIGN) % TR_LAYOUT_ALIGN;
    }
    assert_int_equal(count, tr_model_count(model));
    assert_int_equal(layout.total, count + padding); // nothing is wasted beyond the alignment
    assert_int_equal(layout.unit_start[0], 0);
    assert_int_equal(layout.unit_start[layout.nunit], layout.total);
    tr_layout_destroy(&layout);
    tr_model_destroy(model);
  }
}

static void check_range(const tr_layout *layout, const tr_model *model, const int *owner, int64_t first,
                        int64_t count) {
  enum { MOST = 64 };
  tr_optim_segment segment[MOST];
  size_t n = tr_layout_segments(layout, model, first, count, segment, MOST);
  assert_true(n <= (size_t)layout->nparam);
  assert_int_equal(tr_layout_segments(layout, model, first, count, NULL, 0), n);
  int *found = malloc(sizeof *found * (size_t)(count + 1));
  for (int64_t i = 0; i < count; i++) found[i] = -1;
  for (size_t s = 0; s < n; s++)
    for (size_t i = 0; i < segment[s].count; i++) {
      size_t at = segment[s].start + i;
      assert_true((int64_t)at < count);
      assert_int_equal(found[at], -1);
      found[at] = (int)segment[s].role;
    }
  for (int64_t i = 0; i < count; i++) {
    int p = owner[first + i];
    assert_int_equal(found[i], p < 0 ? -1 : (int)tr_model_param(model, p)->role);
  }
  free(found);
}

static void segments_are_the_parameters_of_any_range(void **state) {
  (void)state;
  tr_model *model = make_model(12, 0);
  tr_layout layout;
  assert_int_equal(tr_layout_build(model, &layout), TR_OK);
  int *owner = make_owners(&layout);
  uint64_t random = 1;
  for (int k = 0; k < 2000; k++) {
    random = random * 6364136223846793005u + 1442695040888963407u;
    int64_t first = (int64_t)(random >> 33) % layout.total, most = layout.total - first;
    random = random * 6364136223846793005u + 1442695040888963407u;
    check_range(&layout, model, owner, first,
                (int64_t)(random >> 33) % (k % 2        ? most + 1
                                           : most < 200 ? most + 1
                                                        : 200));
  }
  check_range(&layout, model, owner, 0, layout.total);
  free(owner);
  tr_layout_destroy(&layout);
  tr_model_destroy(model);
}

static void the_hash_tells_layouts_apart(void **state) {
  (void)state;
  uint64_t hash[4];
  for (int k = 0; k < 4; k++) {
    tr_model *model = make_model(k < 2 ? 12 : 13, k % 2);
    tr_layout layout, again;
    assert_int_equal(tr_layout_build(model, &layout), TR_OK);
    assert_int_equal(tr_layout_build(model, &again), TR_OK);
    assert_true(layout.hash == again.hash);
    hash[k] = layout.hash;
    for (int i = 0; i < k; i++) assert_true(hash[i] != hash[k]);
    tr_layout_destroy(&layout);
    tr_layout_destroy(&again);
    tr_model_destroy(model);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(parameters_lie_apart_and_aligned),
      cmocka_unit_test(segments_are_the_parameters_of_any_range),
      cmocka_unit_test(the_hash_tells_layouts_apart),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
