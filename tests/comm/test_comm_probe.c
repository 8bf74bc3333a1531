// SPDX-License-Identifier: MIT
// tier: quick
// timeout: 120
// The pre-flight look at ranks and links names the slow one: from made-up figures of every shape, and in a job where one
// rank sleeps inside its operations.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "trireme/base/clock.h"
#include "trireme/comm/launch.h"
#include "trireme/comm/probe.h"
#include <stdio.h>
#include <string.h>

// ---- made-up figures

// `nrank` equal ranks, `per_host` on a host; links between hosts are a hundred times slower.
static tr_probe healthy(int nrank, int per_host) {
  tr_probe p;
  assert_int_equal(tr_probe_create(nrank, &p), TR_OK);
  for (int i = 0; i < nrank; i++) {
    p.host[i] = i / per_host;
    p.compute[i] = 100e9 + i;
    p.copy[i] = 10e9 - i;
    for (int j = 0; j < nrank; j++) {
      const double far = j / per_host == i / per_host ? 1 : 100;
      p.small[i * nrank + j] = i == j ? 0 : far * 1e-6;
      p.large[i * nrank + j] = i == j ? 0 : far * 1e-4;
    }
  }
  return p;
}

static void slow_link(double *pairs, int n, int i, int j, double times) {
  pairs[i * n + j] *= times;
  pairs[j * n + i] *= times;
}

static tr_probe_verdict judged(tr_probe *p, double factor) {
  tr_probe_verdict v;
  assert_int_equal(tr_probe_judge(p, factor, &v), TR_OK);
  tr_probe_destroy(p);
  return v;
}

static void says(const tr_probe_verdict *v, const char *text) {
  if (!strstr(v->text, text)) print_error("expected '%s' in '%s'\n", text, v->text);
  assert_non_null(strstr(v->text, text));
}

static void equal_ranks_are_not_slow(void **state) {
  (void)state;
  static const int shapes[][2] = {{1, 1}, {2, 2}, {2, 1}, {3, 3}, {8, 8}, {8, 2}, {5, 2}, {9, 4}};
  for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
    tr_probe p = healthy(shapes[i][0], shapes[i][1]);
    tr_probe_verdict v = judged(&p, 1.5);
    assert_false(v.slow);
    if (shapes[i][0] == 1)
      says(&v, "nothing to compare");
    else if (shapes[i][0] == 2)
      says(&v, "no rank is slow; ");
    else
      says(&v, "no rank or link is slow");
  }
}

static void slow_processor_is_named(void **state) {
  (void)state;
  tr_probe p = healthy(4, 4);
  p.compute[2] /= 3;
  tr_probe_verdict v = judged(&p, 2);
  assert_true(v.slow && v.rank == 2 && v.peer == -1 && v.kind == TR_PROBE_COMPUTE);
  says(&v, "rank 2 is slow: it computes at 33.3 GFLOP/s, 3.00 times slower than the median of 100.0");
  p = healthy(2, 2); // of two, the faster is what the other could be
  p.copy[1] /= 4;
  v = judged(&p, 2);
  assert_true(v.slow && v.rank == 1 && v.kind == TR_PROBE_COPY);
  says(&v, "rank 1 is slow: it copies at 2.5 GB/s, 4.00 times slower than the other rank with 10.0; their only link "
           "takes 1.0 us");
}

// Nobody knows how fast the link between two ranks should be: its times are said, and not judged.
static void only_link_of_two_is_not_judged(void **state) {
  (void)state;
  tr_probe p = healthy(2, 2);
  slow_link(p.small, 2, 0, 1, 1000);
  tr_probe_verdict v = judged(&p, 2);
  assert_false(v.slow);
  says(&v, "no rank is slow; the slowest is rank 1: it copies at 10.0 GB/s, 1.00 times slower than the other rank "
           "with 10.0; "
           "their only link takes 1.0 ms for 8 B and 100 us for 1.0 MiB, and there is no other to compare it with");
}

static void rank_whose_links_are_all_slow_is_named(void **state) {
  (void)state;
  for (int n = 3; n < 9; n++) {
    tr_probe p = healthy(n, n);
    for (int j = 0; j < n; j++) slow_link(p.small, n, 1, j, 10);
    tr_probe_verdict v = judged(&p, 2);
    assert_true(v.slow && v.rank == 1 && v.peer == -1 && v.kind == TR_PROBE_SMALL);
    says(&v, "rank 1 is slow: 8 B over its best link take 10.0 us, 10.00 times the median of 1.0 us");
  }
}

static void single_slow_link_is_named(void **state) {
  (void)state;
  tr_probe p = healthy(5, 5);
  slow_link(p.large, 5, 3, 1, 4);
  tr_probe_verdict v = judged(&p, 2);
  assert_true(v.slow && v.rank == 1 && v.peer == 3 && v.kind == TR_PROBE_LARGE);
  says(&v, "the link between ranks 1 and 3 is slow: 1.0 MiB take 400 us, 4.00 times the median of 100 us");
  // Between hosts links are slower than within, which is no fault; one of them may be.
  p = healthy(6, 2);
  slow_link(p.small, 6, 0, 4, 3);
  v = judged(&p, 2);
  assert_true(v.slow && v.rank == 0 && v.peer == 4 && v.kind == TR_PROBE_SMALL);
}

static void factor_decides(void **state) {
  (void)state;
  tr_probe p = healthy(4, 4);
  slow_link(p.small, 4, 0, 1, 3);
  tr_probe_verdict v = judged(&p, 4);
  assert_false(v.slow);
  says(&v, "the slowest is the link between ranks 0 and 1: 8 B take 3.0 us, 3.00 times");
}

// ---- a job

typedef struct job {
  int slow; // which rank sleeps, -1 none
  tr_probe_verdict verdict;
  int rank_pairs; // how many pairs have figures
} job;

static void sleep_at_start(void *user, const char *point) {
  (void)user;
  if (strstr(point, ".start")) tr_clock_sleep_ns(25000000);
}

static tr_status look(tr_comm *comm, void *user) {
  job *j = user;
  const int n = tr_comm_size(comm);
  tr_probe p;
  if (tr_comm_rank(comm) == j->slow) tr_comm_set_hook(comm, sleep_at_start, NULL);
  TR_TRY(tr_probe_create(n, &p));
  tr_status status = tr_probe_measure(comm, &p);
  if (tr_comm_rank(comm) == n - 1 && status == TR_OK) {
    status = tr_probe_judge(&p, 20, &j->verdict);
    for (int i = 0; i < n * n; i++) j->rank_pairs += p.small[i] > 0 && p.large[i] > 0;
  }
  tr_probe_destroy(&p);
  return status;
}

static job probe_job(int nrank, int slow) {
  tr_launch_options o;
  tr_launch_options_init(&o);
  o.mode = TR_LAUNCH_THREADS;
  o.nrank = nrank;
  o.bind = 0; // a sleeper among ranks that share cores
  o.arena_nbyte = (size_t)4 << 20;
  job j = {.slow = slow};
  assert_int_equal(tr_launch(&o, look, &j, NULL), TR_OK);
  assert_int_equal(j.rank_pairs, nrank * nrank - nrank);
  return j;
}

static void every_pair_is_measured(void **state) {
  (void)state;
  static const int sizes[] = {1, 2, 4, 5};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) probe_job(sizes[i], -1);
}

static void sleeping_rank_is_named(void **state) {
  (void)state;
  job j = probe_job(3, 1);
  for (int again = 0; again < 2 && j.verdict.rank != 1; again++)
    j = probe_job(3, 1); // others disturb what is measured
  if (j.verdict.rank != 1) print_error("%s\n", j.verdict.text);
  assert_true(j.verdict.slow);
  assert_int_equal(j.verdict.rank, 1);
  assert_int_equal(j.verdict.peer, -1);
  says(&j.verdict, "rank 1 is slow: ");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(equal_ranks_are_not_slow),       cmocka_unit_test(slow_processor_is_named),
      cmocka_unit_test(only_link_of_two_is_not_judged), cmocka_unit_test(rank_whose_links_are_all_slow_is_named),
      cmocka_unit_test(single_slow_link_is_named),      cmocka_unit_test(factor_decides),
      cmocka_unit_test(every_pair_is_measured),         cmocka_unit_test(sleeping_rank_is_named),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
