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

static void conforms_reading(int reads, int nrank, cf_options options) {
  tr_launch_options o;
  tr_launch_report report;
  tr_launch_options_init(&o);
  o.nrank = nrank;
  o.deadline = 20;
  o.arena_nbyte = (size_t)12 << 20;
  o.read_peers = reads;
  tr_status status = tr_launch(&o, cf_main, &options, &report);
  if (status < 0) print_error("%d ranks: %s\n", nrank, report.text);
  assert_int_equal(status, TR_OK);
  assert_string_equal(report.text, "");
  assert_int_equal(report.culprit, -1);
}

static void conforms(int nrank, cf_options options) { conforms_reading(1, nrank, options); }

static void staged_operations_conform(void **state) {
  (void)state;
  conforms_reading(0, 3, (cf_options){.large = 20011});
}

static void read_all(tr_comm *comm) { comm->reads_all = 1; }

static void pulled_operations_conform(void **state) {
  (void)state;
  conforms(2, (cf_options){.large = 70003, .prepare = read_all});
  conforms(4, (cf_options){.large = 20011, .prepare = read_all, .delays = 1});
}

// Whether the system lets ranks read each other's memory: then what is large and private is not staged, else it is.
static tr_status sum_private(tr_comm *comm, void *user) {
  enum { N = 600011 };
  const int *wanted = user;
  tr_group *world = tr_comm_world(comm);
  float *x = calloc(N, sizeof *x);
  TR_TRY(tr_group_barrier(world)); // all are there to be tried
  const int reads = tr__group_readable(world);
  for (size_t i = 0; i < N; i++) x[i] = (float)(i % 7 + (size_t)tr_comm_rank(comm));
  tr_comm_counters before = tr_comm_count(comm);
  TR_TRY(tr_group_allreduce(world, x, x, N, TR_F32, TR_SUM, NULL));
  tr_comm_counters after = tr_comm_count(comm);
  size_t wrong = 0;
  for (size_t i = 0; i < N; i++) wrong += x[i] != (float)(3 * (i % 7) + 3);
  free(x);
  if (reads && !*wanted) return tr_error(TR_ERR_VERIFY, "memory is read though it is not to be");
  if (wrong) return tr_error(TR_ERR_VERIFY, "%zu wrong sums", wrong);
  if (after.bytes_direct - before.bytes_direct == (reads ? N * sizeof *x : 0) &&
      after.bytes_staged - before.bytes_staged == (reads ? 0 : N * sizeof *x))
    return TR_OK;
  return tr_error(TR_ERR_VERIFY, "bytes went another way");
}

static void private_memory_is_read_where_it_can_be(void **state) {
  (void)state;
  for (int reads = 0; reads < 2; reads++) {
    tr_launch_options o;
    tr_launch_options_init(&o);
    o.nrank = 3;
    o.arena_nbyte = 1 << 20;
    o.read_peers = reads;
    assert_int_equal(tr_launch(&o, sum_private, &reads, NULL), TR_OK);
  }
}

// Rank 1 is killed holding what others are to read: they find nobody there, and wait to be told.
static tr_status die_holding(tr_comm *comm, void *user) {
  enum { N = 4 << 20 };
  tr_status *read = user; // [3], seen by all
  tr_group *world = tr_comm_world(comm);
  char *x = calloc(1, N);
  TR_TRY(tr_group_barrier(world));
  const int reads = tr__peer_readable(comm, 1);
  TR_TRY(tr_group_barrier(world));
  if (tr_comm_rank(comm) == 1) {
    tr_request *request;
    TR_TRY(tr_group_broadcast(world, x, N, TR_U8, 1, &request));
    raise(SIGKILL);
  }
  const uint64_t at = atomic_load(&comm->job->page[1].shown_at);
  read[tr_comm_rank(comm)] = reads ? TR_OK : TR_PENDING; // where the system forbids it, nothing is read
  for (int i = 0; i < 1000 && read[tr_comm_rank(comm)] == TR_OK; i++) {
    tr_clock_sleep_ns(1000000);
    read[tr_comm_rank(comm)] = tr__peer_read(comm, 1, x, at, 8);
  }
  tr_status status = tr_group_broadcast(world, x, N, TR_U8, 1, NULL);
  free(x);
  return status;
}

static void memory_of_a_dead_rank_is_no_answer(void **state) {
  (void)state;
  tr_launch_options o;
  tr_launch_report report;
  tr_status *read = shared_page();
  tr_launch_options_init(&o);
  o.nrank = 3;
  o.deadline = 20;
  o.arena_nbyte = 1 << 20;
  assert_int_equal(tr_launch(&o, die_holding, read, &report), TR_ERR_PEER);
  assert_int_equal(report.culprit, 1);
  assert_int_equal(report.signal, SIGKILL);
  for (int r = 0; r < 3; r += 2) assert_int_equal(read[r], TR_PENDING);
  assert_true(no_children());
  free_shared_page(read);
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
      cmocka_unit_test(staged_operations_conform),
      cmocka_unit_test(pulled_operations_conform),
      cmocka_unit_test(private_memory_is_read_where_it_can_be),
      cmocka_unit_test(memory_of_a_dead_rank_is_no_answer),
      cmocka_unit_test(more_ranks_than_cores_conform),
      cmocka_unit_test(wrapping_and_delays_conform),
      cmocka_unit_test(sums_have_the_same_bits_on_every_rank_run_and_mode),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
