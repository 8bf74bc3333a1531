// SPDX-License-Identifier: MIT
// tier: quick
// The list of a machine's parts nests as it should, and counts what it lists.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "trireme/base/cpu.h"
#include "trireme/comm/topology.h"
#include <string.h>

static int named(const tr_topology *t, const char *name) {
  int n = 0;
  for (size_t i = 0; i < t->npart; i++) n += strncmp(t->part[i].name, name, strlen(name)) == 0;
  return n;
}

static void this_machine_is_listed(void **state) {
  (void)state;
  tr_topology t;
  assert_int_equal(tr_topology_read(&t), TR_OK);
  assert_true(t.npart > 0 && t.part[0].depth == 0 && t.threads >= tr_cpu_count());
  assert_string_equal(t.part[0].name, "machine");
  assert_int_equal(tr_topology_inside(&t, 0), t.npart - 1);
  assert_int_equal(named(&t, "thread"), t.threads);
  assert_int_equal(named(&t, "core"), t.cores);
  assert_int_equal(named(&t, "package"), t.packages);
  assert_int_equal(named(&t, "NUMA node"), t.numa_nodes);
  for (size_t i = 1; i < t.npart; i++) {
    assert_true(t.part[i].depth >= 1 && t.part[i].depth <= t.part[i - 1].depth + 1);
    if (strstr(t.part[i].name, "cache,")) assert_true(t.part[i].nbyte > 0);
  }
  tr_topology_free(&t);
  assert_null(t.part);
}

static void likeness_includes_what_is_inside(void **state) {
  (void)state;
  tr_topology_part parts[] = {{"machine", 0, 0, 0}, {"core", 1, 0, 0}, {"thread", 2, 0, 0}, {"core", 1, 1, 0},
                              {"thread", 2, 1, 0},  {"core", 1, 2, 0}, {"thread", 2, 2, 0}, {"thread", 2, 3, 0}};
  const tr_topology t = {.part = parts, .npart = 8};
  assert_int_equal(tr_topology_inside(&t, 1), 1);
  assert_int_equal(tr_topology_inside(&t, 5), 2);
  assert_true(tr_topology_alike(&t, 1, 3));
  assert_false(tr_topology_alike(&t, 1, 5));
  assert_true(tr_topology_alike(&t, 2, 7));
  assert_false(tr_topology_alike(&t, 1, 2));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(this_machine_is_listed),
      cmocka_unit_test(likeness_includes_what_is_inside),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
