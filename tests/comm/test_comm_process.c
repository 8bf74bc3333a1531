// SPDX-License-Identifier: MIT
// tier: quick
// timeout: 120
// The conformance suite over ranks that are forked processes, with memory shared through memory files.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "comm/comm_internal.h"
#include "comm/conformance.h"
#include "comm/processes.h"

static void conforms(int nrank, cf_options options) {
  tr_launch_options o;
  tr_launch_report report;
  tr_launch_options_init(&o);
  o.nrank = nrank;
  o.deadline = 20;
  o.arena_nbyte = (size_t)12 << 20;
  tr_status status = tr_launch(&o, cf_main, &options, &report);
  if (status < 0) print_error("%d ranks: %s\n", nrank, report.text);
  assert_int_equal(status, TR_OK);
  assert_string_equal(report.text, "");
  assert_int_equal(report.culprit, -1);
}

static void group_sizes_conform(void **state) {
  (void)state;
  int files = open_files();
  static const int sizes[] = {1, 2, 3, 5};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) conforms(sizes[i], (cf_options){.large = 20011});
  assert_int_equal(open_files(), files);
  assert_true(no_children());
}

static void more_ranks_than_cores_conform(void **state) {
  (void)state;
  conforms(8, (cf_options){.large = 10007});
}

static void begin_before_the_wrap(tr_comm *comm) { tr__comm_set_first_sequence(comm, 0xffffff00u); }

static void wrapping_and_delays_conform(void **state) {
  (void)state;
  conforms(4, (cf_options){.large = 10007, .prepare = begin_before_the_wrap, .delays = 1});
}

static tr_status hash_of_sums(tr_comm *comm, void *user) {
  uint64_t *out = user; // shared by the test
  size_t n = 50021;
  float *x = tr_arena_alloc(tr_comm_arena(comm), n * 4);
  cf_fill(TR_F32, x, n, tr_comm_rank(comm), 0, 1);
  TR_TRY(tr_group_allreduce(tr_comm_world(comm), x, x, n, TR_F32, TR_SUM, NULL));
  uint64_t h = 14695981039346656037u;
  for (size_t i = 0; i < n * 4; i++) h = (h ^ ((unsigned char *)x)[i]) * 1099511628211u;
  out[tr_comm_rank(comm)] = h;
  return TR_OK;
}

static void sums_have_the_same_bits_on_every_rank_run_and_mode(void **state) {
  (void)state;
  uint64_t *hash = shared_page(), first = 0;
  for (int run = 0; run < 3; run++) {
    tr_launch_options o;
    tr_launch_options_init(&o);
    o.nrank = 5;
    o.mode = run == 2 ? TR_LAUNCH_THREADS : TR_LAUNCH_PROCESSES;
    o.arena_nbyte = 1 << 20;
    assert_int_equal(tr_launch(&o, hash_of_sums, hash, NULL), TR_OK);
    if (run == 0) first = hash[0];
    for (int r = 0; r < 5; r++) assert_int_equal(hash[r], first);
  }
  assert_int_not_equal(first, 0);
  free_shared_page(hash);
}

int main(void) {
  skip_unless_forking_works();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(group_sizes_conform),
      cmocka_unit_test(more_ranks_than_cores_conform),
      cmocka_unit_test(wrapping_and_delays_conform),
      cmocka_unit_test(sums_have_the_same_bits_on_every_rank_run_and_mode),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
