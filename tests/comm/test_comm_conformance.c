// SPDX-License-Identifier: MIT
// tier: quick
// timeout: 240
// The conformance suite over ranks that are threads: group sizes 1 to 8, all types, small and large messages, arena
// and private buffers, sub-groups, requests in any order, delays, wrapping sequences; and calls that do not agree.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "comm/comm_internal.h"
#include "comm/conformance.h"
#include "comm/differ.h"

static tr_status run_reading(int reads, int nrank, tr_rank_main rank_main, void *user, tr_launch_report *report) {
  tr_launch_options o;
  tr_launch_options_init(&o);
  o.mode = TR_LAUNCH_THREADS;
  o.nrank = nrank;
  o.deadline = 20;
  o.arena_nbyte = (size_t)12 << 20;
  o.read_peers = reads;
  return tr_launch(&o, rank_main, user, report);
}

static tr_status run(int nrank, tr_rank_main rank_main, void *user, tr_launch_report *report) {
  return run_reading(1, nrank, rank_main, user, report);
}

static void conforms(int nrank, cf_options options) {
  tr_launch_report report;
  tr_status status = run(nrank, cf_main, &options, &report);
  if (status < 0) print_error("%d ranks: %s\n", nrank, report.text);
  assert_int_equal(status, TR_OK);
  assert_string_equal(report.text, "");
}

static void every_group_size_conforms(void **state) {
  (void)state;
  static const int sizes[] = {1, 2, 3, 4, 5, 7, 8};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
    conforms(sizes[i], (cf_options){.large = sizes[i] == 2 ? 70003 : 12007});
}

// Where others' memory is not to be read, private buffers go through the stages.
static void staged_operations_conform(void **state) {
  (void)state;
  static const int sizes[] = {2, 3, 4, 7};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    cf_options options = {.large = sizes[i] == 2 ? 70003 : 12007, .outside = 1};
    assert_int_equal(run_reading(0, sizes[i], cf_main, &options, NULL), TR_OK);
  }
}

static void read_all(tr_comm *comm) { comm->reads_all = 1; }

static void pulled_operations_conform(void **state) {
  (void)state;
  static const int sizes[] = {2, 3, 5, 8};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
    conforms(
        sizes[i],
        (cf_options){.large = sizes[i] == 2 ? 70003 : 12007, .prepare = read_all, .delays = i % 2, .outside = 1});
}

static void begin_before_the_wrap(tr_comm *comm) { tr__comm_set_first_sequence(comm, 0xffffff00u); }

static void sequences_may_wrap(void **state) {
  (void)state;
  conforms(3, (cf_options){.large = 10007, .prepare = begin_before_the_wrap});
}

static void delays_change_nothing(void **state) {
  (void)state;
  conforms(4, (cf_options){.large = 10007, .delays = 1});
}

static tr_status large_pieces(tr_comm *comm, void *user) {
  (void)user;
  size_t n = 700001; // more than one piece and many chunks
  for (int place = 0; place < 2; place++) {
    size_t mark = tr_arena_mark(tr_comm_arena(comm));
    cf_buffer b = cf_take(comm, n * 4, place);
    TR_TRY(cf_allreduce(tr_comm_world(comm), b.data, b.data, n, TR_F32, TR_SUM, 9));
    TR_TRY(cf_broadcast(tr_comm_world(comm), b.data, n, TR_F32, 1, 10));
    TR_TRY(tr_group_barrier(tr_comm_world(comm)));
    cf_drop(b);
    tr_arena_reset(tr_comm_arena(comm), mark);
  }
  return TR_OK;
}

static void messages_of_many_pieces_are_whole(void **state) {
  (void)state;
  for (int reads = 0; reads < 2; reads++)
    for (int nrank = 2; nrank < 4; nrank++)
      assert_int_equal(run_reading(reads, nrank, large_pieces, NULL, NULL), TR_OK);
}

// What one all-reduce of n floats counts.
static tr_status count_one(tr_comm *comm, float *x, size_t n, size_t direct, size_t staged) {
  tr_comm_counters before = tr_comm_count(comm);
  TR_TRY(tr_group_allreduce(tr_comm_world(comm), x, x, n, TR_F32, TR_SUM, NULL));
  tr_comm_counters after = tr_comm_count(comm);
  if (after.operations == before.operations + 1 && after.bytes_direct - before.bytes_direct == direct &&
      after.bytes_staged - before.bytes_staged == staged)
    return TR_OK;
  return tr_error(TR_ERR_VERIFY, "%zu floats: %zu bytes direct, %zu staged", n,
                  (size_t)(after.bytes_direct - before.bytes_direct),
                  (size_t)(after.bytes_staged - before.bytes_staged));
}

static tr_status count_paths(tr_comm *comm, void *user) {
  enum { SMALL = 4096, LARGE = 600000, WIDTH = sizeof(float) };
  static float outside[2][LARGE];
  const int *reads = user;
  float *inside = tr_arena_alloc(tr_comm_arena(comm), sizeof outside[0]), *own = outside[tr_comm_rank(comm)];
  memset(inside, 0, sizeof outside[0]);
  TR_TRY(count_one(comm, inside, LARGE, LARGE * WIDTH, 0));
  TR_TRY(count_one(comm, own, SMALL, 0, SMALL * WIDTH));
  return count_one(comm, own, LARGE, *reads ? LARGE * WIDTH : 0, *reads ? 0 : LARGE * WIDTH);
}

static void only_private_buffers_are_staged_and_large_ones_where_they_cannot_be_read(void **state) {
  (void)state;
  for (int reads = 0; reads < 2; reads++) assert_int_equal(run_reading(reads, 2, count_paths, &reads, NULL), TR_OK);
}

static void calls_that_differ_stop_the_job_and_name_the_rank(void **state) {
  (void)state;
  for (int how = 0; how < WAYS_TO_DIFFER; how++) {
    tr_launch_report report;
    assert_int_equal(run(4, call_differently, &how, &report), TR_ERR_USAGE);
    assert_int_equal(report.culprit, 2);
    assert_non_null(strstr(report.text, "operation #1 of group 'world' differs: rank 2 called"));
  }
}

static tr_status send_too_much(tr_comm *comm, void *user) {
  (void)user;
  char data[64] = {0};
  if (tr_comm_rank(comm) == 0) return tr_group_send(tr_comm_world(comm), 1, 0, data, 64, NULL);
  return tr_group_recv(tr_comm_world(comm), 0, 0, data, 32, NULL);
}

static void transfers_of_unequal_size_stop_the_job(void **state) {
  (void)state;
  tr_launch_report report;
  assert_int_equal(run(2, send_too_much, NULL, &report), TR_ERR_USAGE);
  assert_non_null(strstr(report.text, "64 bytes are sent, 32 are received"));
}

static tr_status expect_too_much(tr_comm *comm, void *user) {
  const size_t *nelem = user; // sent by all to all, and received by all but rank 2 from rank 1
  size_t src[4] = {0}, dst[4] = {0};
  for (size_t i = 0; i < 3; i++) {
    src[i + 1] = src[i] + nelem[0];
    dst[i + 1] = dst[i] + nelem[i == 1 && tr_comm_rank(comm) == 2];
  }
  char *x = tr_arena_alloc(tr_comm_arena(comm), 90000), *y = tr_arena_alloc(tr_comm_arena(comm), 90000);
  return tr_group_alltoall_v(tr_comm_world(comm), x, src, y, dst, TR_U8, NULL);
}

static void blocks_of_unequal_size_stop_the_job(void **state) {
  (void)state;
  size_t nelem[][2] = {{10, 11}, {20000, 20001}};
  for (int i = 0; i < 2; i++) {
    tr_launch_report report;
    char expected[64];
    snprintf(expected, sizeof expected, "rank 1 sends %zu elements to rank 2, which expects %zu", nelem[i][0],
             nelem[i][1]);
    assert_int_equal(run(3, expect_too_much, nelem[i], &report), TR_ERR_USAGE);
    assert_non_null(strstr(report.text, expected));
  }
}

static tr_status misuse(tr_comm *comm, void *user) {
  (void)user;
  tr_group *world = tr_comm_world(comm), *g;
  int twice[] = {0, 0}, outside[] = {0, 9}, absent[] = {1 - tr_comm_rank(comm)};
  float x[4];
  int wrong = 0;
  wrong += tr_group_create(comm, twice, 2, "a", &g) != TR_ERR_USAGE;
  wrong += tr_group_create(comm, outside, 2, "b", &g) != TR_ERR_USAGE;
  wrong += tr_group_create(comm, absent, 1, "c", &g) != TR_ERR_USAGE;
  wrong += tr_group_allreduce(world, x, x, 4, TR_I32, TR_AVERAGE, NULL) != TR_ERR_USAGE;
  wrong += tr_group_allreduce(world, NULL, NULL, 4, TR_F32, TR_SUM, NULL) != TR_ERR_USAGE;
  wrong += tr_group_allreduce(world, x, x, SIZE_MAX / 2, TR_F32, TR_SUM, NULL) != TR_ERR_USAGE;
  wrong += tr_group_broadcast(world, x, 4, TR_F32, 2, NULL) != TR_ERR_USAGE;
  wrong += tr_group_send(world, -1, 0, x, 4, NULL) != TR_ERR_USAGE;
  wrong += tr_group_send(world, 1, -1, x, 4, NULL) != TR_ERR_USAGE;
  wrong += tr_group_recv(world, 1, TR_TAG_MOST + 1, x, 4, NULL) != TR_ERR_USAGE;
  wrong += tr_group_allreduce(world, x, NULL, 4, TR_F32, TR_SUM, NULL) != TR_ERR_USAGE;
  wrong += tr_group_reduce(world, x, x, 4, TR_F32, TR_SUM, 2, NULL) != TR_ERR_USAGE;
  wrong += tr_group_reduce(world, x, NULL, 4, TR_F32, TR_SUM, tr_comm_rank(comm), NULL) != TR_ERR_USAGE;
  wrong += tr_group_gather(world, x, x, 4, TR_F32, -1, NULL) != TR_ERR_USAGE;
  wrong += tr_group_scatter(world, NULL, x, 4, TR_F32, tr_comm_rank(comm), NULL) != TR_ERR_USAGE;
  wrong += tr_group_alltoall(world, x, NULL, 4, TR_F32, NULL) != TR_ERR_USAGE;
  wrong += tr_group_allgather(world, x, x, 4, TR_DTYPE_COUNT, NULL) != TR_ERR_USAGE;
  const size_t start[] = {0, 2, 4}, down[] = {0, 3, 2};
  wrong += tr_group_allgather_v(world, x, x, down, TR_F32, NULL) != TR_ERR_USAGE;
  wrong += tr_group_alltoall_v(world, x, start, x, down, TR_F32, NULL) != TR_ERR_USAGE;
  wrong += tr_group_alltoall_v(world, x, down, x, start, TR_F32, NULL) != TR_ERR_USAGE;
  wrong += tr_group_reduce_scatter_v(world, x, x, down, TR_F32, TR_F32, TR_SUM, 1, NULL, NULL, NULL) != TR_ERR_USAGE;
  wrong +=
      tr_group_reduce_scatter_v(world, x, x, start, TR_F32, TR_BF16, TR_SUM, 1, NULL, NULL, NULL) != TR_ERR_USAGE;
  wrong += tr_group_reduce_scatter_v(world, x, x, start, TR_I32, TR_F32, TR_SUM, 1, NULL, NULL, NULL) != TR_ERR_USAGE;
  return wrong ? tr_error(TR_ERR_VERIFY, "%d wrong calls were not refused", wrong) : TR_OK;
}

static void wrong_arguments_are_refused_without_harm(void **state) {
  (void)state;
  assert_int_equal(run(2, misuse, NULL, NULL), TR_OK);
}

static tr_status many_groups(tr_comm *comm, void *user) {
  (void)user;
  tr_group *g[TR__SLOTS];
  int ranks[] = {0, 1}, n = 0;
  tr_status status = TR_OK;
  if (tr_comm_rank(comm) == 0)
    while (n < TR__SLOTS && (status = tr_group_create(comm, ranks, 2, "many", &g[n])) == TR_OK) n++;
  else
    while (n < TR__SLOTS - 1 && (status = tr_group_create(comm, ranks, 2, "many", &g[n])) == TR_OK) n++;
  if (n != TR__SLOTS - 1) return tr_error(TR_ERR_VERIFY, "%d groups could be made", n);
  if (tr_comm_rank(comm) == 0 && status != TR_ERR_USAGE)
    return tr_error(TR_ERR_VERIFY, "one group too many was not refused");
  for (int i = n - 1; i >= 0; i--) {
    int32_t one = 1;
    TR_TRY(tr_group_allreduce(g[i], &one, &one, 1, TR_I32, TR_SUM, NULL));
    if (one != 2) return tr_error(TR_ERR_VERIFY, "sum %d in group %d", one, i);
    tr_group_destroy(g[i]);
  }
  return TR_OK;
}

static void sixty_four_groups_can_be_alive(void **state) {
  (void)state;
  assert_int_equal(run(2, many_groups, NULL, NULL), TR_OK);
}

static tr_status sum_in_a_large_group(tr_comm *comm, void *user) {
  (void)user;
  tr_group *g;
  int ranks[TR__RANKS], n = tr_comm_size(comm);
  int32_t x = tr_comm_rank(comm);
  for (int i = 0; i < n; i++) ranks[i] = n - 1 - i;
  TR_TRY(tr_group_create(comm, ranks, n, "large", &g));
  TR_TRY(tr_group_allreduce(g, &x, &x, 1, TR_I32, TR_SUM, NULL));
  tr_group_destroy(g);
  return x == n * (n - 1) / 2 ? TR_OK : tr_error(TR_ERR_VERIFY, "sum %d over %d ranks", x, n);
}

static void groups_of_many_ranks_work(void **state) {
  (void)state;
  tr_launch_options o;
  tr_launch_options_init(&o);
  o.mode = TR_LAUNCH_THREADS;
  o.nrank = 64;
  o.arena_nbyte = 4096;
  assert_int_equal(tr_launch(&o, sum_in_a_large_group, NULL, NULL), TR_OK);
}

static void slices_cover_everything_once(void **state) {
  (void)state;
  for (size_t n = 0; n < 200; n += 7)
    for (int size = 1; size <= 9; size++)
      for (size_t grain = 1; grain <= 32; grain *= 4) {
        size_t at = 0;
        for (int i = 0; i < size; i++) {
          size_t start, count;
          tr_slice(n, size, i, grain, &start, &count);
          assert_int_equal(start, at);
          assert_true(count == 0 || start % grain == 0);
          at += count;
        }
        assert_int_equal(at, n);
      }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(slices_cover_everything_once),
      cmocka_unit_test(every_group_size_conforms),
      cmocka_unit_test(staged_operations_conform),
      cmocka_unit_test(pulled_operations_conform),
      cmocka_unit_test(sequences_may_wrap),
      cmocka_unit_test(delays_change_nothing),
      cmocka_unit_test(messages_of_many_pieces_are_whole),
      cmocka_unit_test(only_private_buffers_are_staged_and_large_ones_where_they_cannot_be_read),
      cmocka_unit_test(calls_that_differ_stop_the_job_and_name_the_rank),
      cmocka_unit_test(transfers_of_unequal_size_stop_the_job),
      cmocka_unit_test(blocks_of_unequal_size_stop_the_job),
      cmocka_unit_test(wrong_arguments_are_refused_without_harm),
      cmocka_unit_test(sixty_four_groups_can_be_alive),
      cmocka_unit_test(groups_of_many_ranks_work),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
