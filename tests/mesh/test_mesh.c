// SPDX-License-Identifier: MIT
// tier: quick
// timeout: 60
// Proves that the mesh is a bijection between ranks and coordinates for every map and every set of degrees
// up to 16 ranks, that the groups along an axis partition the ranks, and that bad maps and degrees are
// refused with the numbers.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "trireme/mesh/mesh.h"
#include <string.h>

// Calls `check` for every map of the axes and all degrees whose product is at most 16.
static int for_all_meshes(void (*check)(const tr_mesh_spec *spec, int nrank)) {
  int count = 0;
  for (int code = 0; code < 256; code++) {
    tr_mesh_spec spec;
    int seen = 0;
    for (int i = 0; i < 4; i++) {
      spec.map[i] = (tr_axis)(code >> 2 * i & 3);
      seen |= 1 << spec.map[i];
    }
    if (seen != 15) continue;
    for (int d = 0; d < 65536; d++) {
      int nrank = 1;
      for (int i = 0; i < 4; i++) nrank *= spec.degree[i] = (d >> 4 * i & 15) + 1;
      if (nrank > 16) continue;
      check(&spec, nrank);
      count++;
    }
  }
  return count;
}

static void check_coordinates(const tr_mesh_spec *spec, int nrank) {
  int seen[16] = {0};
  for (int rank = 0; rank < nrank; rank++) {
    int again = 0, stride = 1, key = 0;
    for (int i = 0; i < TR_AXIS_COUNT; i++) { // by hand: the map's first axis changes fastest
      int c = tr_mesh_coordinate(spec, rank, spec->map[i]);
      assert_in_range(c, 0, spec->degree[spec->map[i]] - 1);
      again += c * stride;
      stride *= spec->degree[spec->map[i]];
    }
    for (int axis = 0; axis < TR_AXIS_COUNT; axis++)
      key = key * spec->degree[axis] + tr_mesh_coordinate(spec, rank, (tr_axis)axis);
    assert_int_equal(again, rank);
    assert_int_equal(seen[key]++, 0);
  }
}

static void check_members(const tr_mesh_spec *spec, int nrank) {
  for (int axis = 0; axis < TR_AXIS_COUNT; axis++)
    for (int rank = 0; rank < nrank; rank++) {
      int member[16];
      tr_mesh_members(spec, rank, (tr_axis)axis, member);
      assert_int_equal(member[tr_mesh_coordinate(spec, rank, (tr_axis)axis)], rank);
      for (int i = 0; i < spec->degree[axis]; i++) {
        assert_in_range(member[i], 0, nrank - 1);
        for (int other = 0; other < TR_AXIS_COUNT; other++)
          assert_int_equal(tr_mesh_coordinate(spec, member[i], (tr_axis)other),
                           other == axis ? i : tr_mesh_coordinate(spec, rank, (tr_axis)other));
      }
    }
}

static void coordinates_name_each_rank_once(void **state) {
  (void)state;
  assert_true(for_all_meshes(check_coordinates) > 1000);
}

static void members_differ_only_along_their_axis(void **state) {
  (void)state;
  assert_true(for_all_meshes(check_members) > 1000);
}

static void the_default_map_is_tensor_innermost(void **state) {
  (void)state;
  tr_mesh_spec spec = {.degree = {2, 1, 3, 2}};
  assert_int_equal(tr_mesh_parse_map("tp,cp,dp,pp", spec.map), TR_OK);
  assert_int_equal(tr_mesh_coordinate(&spec, 7, TR_AXIS_TP), 1); // 7 = 1 + 2 (0 + 1 (0 + 3 * 1))
  assert_int_equal(tr_mesh_coordinate(&spec, 7, TR_AXIS_DP), 0);
  assert_int_equal(tr_mesh_coordinate(&spec, 7, TR_AXIS_PP), 1);
  int member[3];
  tr_mesh_members(&spec, 7, TR_AXIS_DP, member);
  assert_int_equal(member[0], 7);
  assert_int_equal(member[1], 9);
  assert_int_equal(member[2], 11);
}

static void maps_are_permutations(void **state) {
  (void)state;
  static const char *const bad[] = {"",
                                    "tp",
                                    "tp,cp,dp",
                                    "tp,cp,dp,dp",
                                    "tp,cp,dp,pp,",
                                    "tp,cp,dp,ep",
                                    "tp cp dp pp",
                                    "tp,cp,dp,ppx",
                                    "TP,cp,dp,pp",
                                    "tp,,dp,pp",
                                    ",tp,cp,dp,pp",
                                    "t"};
  tr_axis map[TR_AXIS_COUNT];
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    assert_int_equal(tr_mesh_parse_map(bad[i], map), TR_ERR_CONFIG);
    assert_non_null(strstr(tr_status_text(), bad[i]));
  }
  assert_int_equal(tr_mesh_parse_map("pp,dp,tp,cp", map), TR_OK);
  static const tr_axis want[] = {TR_AXIS_PP, TR_AXIS_DP, TR_AXIS_TP, TR_AXIS_CP};
  for (int i = 0; i < TR_AXIS_COUNT; i++) {
    assert_int_equal(map[i], want[i]);
    assert_string_equal(tr_axis_name(map[i]), ((const char *[]){"pp", "dp", "tp", "cp"})[i]);
  }
}

static void degrees_must_multiply_to_the_ranks(void **state) {
  (void)state;
  tr_mesh_spec spec = {.degree = {2, 1, 4, 1}};
  assert_int_equal(tr_mesh_parse_map("tp,cp,dp,pp", spec.map), TR_OK);
  assert_int_equal(tr_mesh_check(&spec, 8), TR_OK);
  assert_int_equal(tr_mesh_check(&spec, 6), TR_ERR_PLAN);
  assert_non_null(strstr(tr_status_text(), "tp=2"));
  assert_non_null(strstr(tr_status_text(), "has 6"));
  assert_int_equal(tr_mesh_check(&spec, 16), TR_ERR_PLAN);
  assert_non_null(strstr(tr_status_text(), "needs 8"));
  spec.degree[TR_AXIS_CP] = 0;
  assert_int_equal(tr_mesh_check(&spec, 8), TR_ERR_PLAN);
  assert_non_null(strstr(tr_status_text(), "cp=0"));
  tr_mesh_spec huge = {.degree = {1 << 30, 1 << 30, 1 << 30, 1 << 30}}; // the product would overflow
  assert_int_equal(tr_mesh_check(&huge, 8), TR_ERR_PLAN);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(coordinates_name_each_rank_once),     cmocka_unit_test(members_differ_only_along_their_axis),
      cmocka_unit_test(the_default_map_is_tensor_innermost), cmocka_unit_test(maps_are_permutations),
      cmocka_unit_test(degrees_must_multiply_to_the_ranks),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
