// SPDX-License-Identifier: MIT
// tier: quick
// timeout: 60
// Shapes count their elements, refuse what would overflow or has negative or too many dimensions, compare and print.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "trireme/tensor/shape.h"

static tr_shape shape2(int64_t a, int64_t b) { return tr_shape_make(2, (const int64_t[]){a, b}); }

static void count_is_the_product_of_the_dimensions(void **state) {
  (void)state;
  tr_shape scalar = tr_shape_make(0, NULL), matrix = shape2(768, 3072), none = shape2(0, 5);
  tr_shape eight = tr_shape_make(8, (const int64_t[]){2, 3, 1, 2, 1, 5, 1, 7});
  assert_int_equal(tr_shape_count(&scalar), 1);
  assert_int_equal(tr_shape_count(&matrix), 2359296);
  assert_int_equal(tr_shape_count(&none), 0);
  assert_int_equal(tr_shape_count(&eight), 420);
}

static void a_zero_dimension_makes_the_count_zero_whatever_the_others_are(void **state) {
  (void)state;
  tr_shape shape = tr_shape_make(3, (const int64_t[]){INT64_MAX, INT64_MAX, 0});
  assert_int_equal(tr_shape_check(&shape, TR_F64, "w"), TR_OK);
  assert_int_equal(tr_shape_count(&shape), 0);
}

static void check_refuses_sizes_from_two_to_the_62_bytes_on(void **state) {
  (void)state;
  tr_shape largest = shape2((INT64_C(1) << 30) - 1, INT64_C(1) << 30),
           limit = shape2(INT64_C(1) << 30, INT64_C(1) << 30);
  assert_int_equal(tr_shape_check(&largest, TR_F32, "w"), TR_OK);
  assert_int_equal(tr_shape_check(&limit, TR_F32, "lm_head"), TR_ERR_DATA);
  assert_non_null(strstr(tr_status_text(), "lm_head"));
  assert_non_null(strstr(tr_status_text(), "[1073741824, 1073741824]"));
  assert_int_equal(tr_shape_check(&limit, TR_BF16, "w"), TR_OK);
  tr_shape wraps = tr_shape_make(3, (const int64_t[]){INT64_C(1) << 40, INT64_C(1) << 40, 16});
  assert_int_equal(tr_shape_check(&wraps, TR_U8, "w"), TR_ERR_DATA);
}

static void check_refuses_negative_dimensions_even_beside_a_zero(void **state) {
  (void)state;
  tr_shape shape = shape2(0, -3);
  assert_int_equal(tr_shape_check(&shape, TR_F32, "bias"), TR_ERR_DATA);
  assert_non_null(strstr(tr_status_text(), "dimension 1 of 'bias' is -3"));
}

static void check_refuses_too_many_dimensions(void **state) {
  (void)state;
  const int64_t ones[9] = {1, 1, 1, 1, 1, 1, 1, 1, 1};
  tr_shape nine = tr_shape_make(9, ones), negative = tr_shape_make(-1, ones), eight = tr_shape_make(8, ones);
  assert_int_equal(tr_shape_check(&nine, TR_F32, "w"), TR_ERR_DATA);
  assert_int_equal(tr_shape_check(&negative, TR_F32, "w"), TR_ERR_DATA);
  assert_int_equal(tr_shape_check(&eight, TR_F32, "w"), TR_OK);
}

static void equality_needs_the_same_dimensions_in_the_same_order(void **state) {
  (void)state;
  tr_shape a = shape2(2, 3), b = shape2(2, 3), turned = shape2(3, 2);
  tr_shape longer = tr_shape_make(3, (const int64_t[]){2, 3, 1});
  a.dim[5] = 99; // not part of the shape
  assert_true(tr_shape_equal(&a, &b));
  assert_false(tr_shape_equal(&a, &turned));
  assert_false(tr_shape_equal(&b, &longer));
}

static void text_is_bracketed_and_cut_to_the_room_given(void **state) {
  (void)state;
  char text[32] = "?";
  tr_shape matrix = shape2(768, 3072), scalar = tr_shape_make(0, NULL);
  tr_shape_text(&matrix, text, sizeof text);
  assert_string_equal(text, "[768, 3072]");
  tr_shape_text(&scalar, text, sizeof text);
  assert_string_equal(text, "[]");
  tr_shape_text(&matrix, text, 6);
  assert_string_equal(text, "[768,");
  tr_shape_text(&matrix, text, 0);
  assert_string_equal(text, "[768,");
  tr_shape wide = {.ndim = 8};
  for (int i = 0; i < 8; i++) wide.dim[i] = INT64_MIN;
  char room[300];
  tr_shape_text(&wide, room, sizeof room);
  assert_int_equal(strlen(room), 8 * 20 + 7 * 2 + 2);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(count_is_the_product_of_the_dimensions),
      cmocka_unit_test(a_zero_dimension_makes_the_count_zero_whatever_the_others_are),
      cmocka_unit_test(check_refuses_sizes_from_two_to_the_62_bytes_on),
      cmocka_unit_test(check_refuses_negative_dimensions_even_beside_a_zero),
      cmocka_unit_test(check_refuses_too_many_dimensions),
      cmocka_unit_test(equality_needs_the_same_dimensions_in_the_same_order),
      cmocka_unit_test(text_is_bracketed_and_cut_to_the_room_given),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
