// SPDX-License-Identifier: MIT
// tier: quick
// timeout: 120
// Proves that every task runs exactly once, on the worker of the static split, for all small sizes; that workers wake
// from sleep; that init runs once per worker; and that signals go to the thread that made the pool.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "trireme/base/clock.h"
#include "trireme/base/log.h"
#include "trireme/base/pool.h"

#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>

enum { NTASK_MAX = 40, NTHREAD_MAX = 5 };

typedef struct ledger {
  int nrun[NTASK_MAX], worker[NTASK_MAX];
} ledger;

static void note(void *context, int task, int worker) {
  ledger *l = context; // plain memory: each task is one thread's, and the pool must order it before the reader
  l->nrun[task]++;
  l->worker[task] = worker;
}

static void check_split(tr_pool *pool, int ntask) {
  ledger l = {{0}, {0}};
  int n = tr_pool_nthread(pool);
  tr_pool_run(pool, ntask, note, &l);
  for (int task = 0; task < NTASK_MAX; task++) assert_int_equal(l.nrun[task], task < ntask);
  if (ntask == 1) return; // stays with the caller
  for (int w = 0; w < n; w++) {
    for (int task = w * ntask / n; task < (w + 1) * ntask / n; task++) assert_int_equal(l.worker[task], w);
  }
}

static void every_task_runs_once_on_its_worker(void **state) {
  (void)state;
  for (int spin = 0; spin < 2; spin++) {
    for (int n = 1; n <= NTHREAD_MAX; n++) {
      tr_pool *pool = NULL;
      assert_int_equal(tr_pool_create(n, spin, NULL, NULL, &pool), TR_OK);
      assert_int_equal(tr_pool_nthread(pool), n);
      for (int ntask = 0; ntask < NTASK_MAX; ntask++) check_split(pool, ntask);
      tr_pool_destroy(pool);
    }
  }
}

static void a_null_pool_runs_inline(void **state) {
  (void)state;
  assert_int_equal(tr_pool_nthread(NULL), 1);
  check_split(NULL, 7);
  check_split(NULL, 0);
  tr_pool_destroy(NULL);
}

static void workers_wake_after_every_length_of_pause(void **state) {
  (void)state;
  tr_pool *pool = NULL;
  assert_int_equal(tr_pool_create(3, 1, NULL, NULL, &pool), TR_OK);
  const int64_t pause_ns[] = {0, 10000, 200000, 1000000, 1100000, 5000000, 30000000};
  for (int again = 0; again < 3; again++) {
    for (size_t i = 0; i < sizeof pause_ns / sizeof pause_ns[0]; i++) {
      tr_clock_sleep_ns(pause_ns[i]);
      check_split(pool, 10);
    }
  }
  tr_pool_destroy(pool);
}

static void stall_last(void *context, int task, int worker) {
  if (task == 2) tr_clock_sleep_ns(20000000); // the caller goes to sleep meanwhile
  note(context, task, worker);
}

static void the_caller_waits_for_the_slowest_worker(void **state) {
  (void)state;
  tr_pool *pool = NULL;
  assert_int_equal(tr_pool_create(3, 0, NULL, NULL, &pool), TR_OK);
  for (int again = 0; again < 5; again++) {
    ledger l = {{0}, {0}};
    tr_pool_run(pool, 3, stall_last, &l);
    for (int task = 0; task < 3; task++) assert_int_equal(l.nrun[task], 1);
  }
  tr_pool_destroy(pool);
}

static void many_short_runs_neither_hang_nor_lose_work(void **state) {
  (void)state;
  tr_pool *pool = NULL;
  assert_int_equal(tr_pool_create(4, 0, NULL, NULL, &pool), TR_OK);
  ledger l = {{0}, {0}};
  for (int i = 0; i < 2000; i++) tr_pool_run(pool, 8, note, &l);
  for (int task = 0; task < 8; task++) assert_int_equal(l.nrun[task], 2000);
  tr_pool_destroy(pool);
}

static void idle_workers_use_no_processor_time(void **state) {
  (void)state;
  tr_pool *pool = NULL;
  assert_int_equal(tr_pool_create(3, 1, NULL, NULL, &pool), TR_OK);
  check_split(pool, 3);
  long switches = 1000;
  for (int again = 0; again < 5 && switches >= 50; again++) { // they may get to where they sleep late, but they do
    tr_clock_sleep_ns(100000000);                             // well past spinning and yielding
    struct rusage before, after;
    getrusage(RUSAGE_SELF, &before);
    tr_clock_sleep_ns(100000000);
    getrusage(RUSAGE_SELF, &after);
    // Sleepers are not scheduled at all: allow a few stray switches, not a polling loop.
    switches = after.ru_nvcsw + after.ru_nivcsw - before.ru_nvcsw - before.ru_nivcsw;
  }
  assert_true(switches < 50);
  tr_pool_destroy(pool);
}

typedef struct init_record {
  int ninit[NTHREAD_MAX];
  char label[NTHREAD_MAX][32];
  sigset_t blocked[NTHREAD_MAX];
} init_record;

static void record_init(void *user, int worker) {
  init_record *r = user;
  r->ninit[worker]++;
  strncpy(r->label[worker], tr_log_label(), sizeof r->label[worker] - 1);
  pthread_sigmask(SIG_SETMASK, NULL, &r->blocked[worker]);
}

static void init_runs_once_in_every_worker_before_create_returns(void **state) {
  (void)state;
  init_record r;
  memset(&r, 0, sizeof r);
  tr_log_set_label("rank 9");
  tr_pool *pool = NULL;
  assert_int_equal(tr_pool_create(NTHREAD_MAX, 0, record_init, &r, &pool), TR_OK);
  for (int w = 0; w < NTHREAD_MAX; w++) {
    assert_int_equal(r.ninit[w], 1);
    assert_string_equal(r.label[w], "rank 9");
  }
  check_split(pool, 11);
  for (int w = 0; w < NTHREAD_MAX; w++) assert_int_equal(r.ninit[w], 1);
  tr_pool_destroy(pool);
  tr_log_set_label("");
}

static void only_workers_block_signals(void **state) {
  (void)state;
  init_record r;
  memset(&r, 0, sizeof r);
  tr_pool *pool = NULL;
  assert_int_equal(tr_pool_create(3, 0, record_init, &r, &pool), TR_OK);
  for (int w = 0; w < 3; w++) {
    assert_int_equal(sigismember(&r.blocked[w], SIGTERM), w > 0);
    assert_int_equal(sigismember(&r.blocked[w], SIGINT), w > 0);
    assert_int_equal(sigismember(&r.blocked[w], SIGSEGV), 0);
  }
  sigset_t now;
  pthread_sigmask(SIG_SETMASK, NULL, &now);
  assert_int_equal(sigismember(&now, SIGTERM), 0);
  tr_pool_destroy(pool);
}

static void impossible_sizes_are_refused(void **state) {
  (void)state;
  tr_pool *pool = NULL;
  assert_int_equal(tr_pool_create(0, 0, NULL, NULL, &pool), TR_ERR_USAGE);
  assert_int_equal(tr_pool_create(1 << 30, 0, NULL, NULL, &pool), TR_ERR_USAGE);
  assert_null(pool);
}

static void a_refused_thread_is_an_error_not_a_hang(void **state) {
  (void)state;
  pthread_attr_t before, huge;
  tr_pool *pool = NULL;
  assert_int_equal(pthread_getattr_default_np(&before), 0);
  assert_int_equal(pthread_attr_init(&huge), 0);
  assert_int_equal(pthread_attr_setstacksize(&huge, (size_t)1 << 46), 0); // more than any machine gives
  assert_int_equal(pthread_setattr_default_np(&huge), 0);
  tr_status status = tr_pool_create(3, 0, NULL, NULL, &pool);
  assert_int_equal(pthread_setattr_default_np(&before), 0);
  assert_int_equal(status, TR_ERR_MEMORY);
  assert_non_null(strstr(tr_status_text(), "thread 1 of 3"));
  assert_null(pool);
  pthread_attr_destroy(&huge);
  pthread_attr_destroy(&before);
}

static void *pool_of_one_thread(void *argument) {
  (void)argument;
  long failed = 0;
  for (int again = 0; again < 20; again++) {
    tr_pool *pool = NULL;
    ledger l = {{0}, {0}};
    if (tr_pool_create(2, 0, NULL, NULL, &pool) != TR_OK) return (void *)1;
    tr_pool_run(pool, NTASK_MAX, note, &l);
    for (int task = 0; task < NTASK_MAX; task++) failed += l.nrun[task] != 1;
    tr_pool_destroy(pool);
  }
  return (void *)failed;
}

static void ranks_in_threads_have_pools_side_by_side(void **state) {
  (void)state;
  pthread_t thread[3];
  for (int i = 0; i < 3; i++) assert_int_equal(pthread_create(&thread[i], NULL, pool_of_one_thread, NULL), 0);
  for (int i = 0; i < 3; i++) {
    void *failed = NULL;
    pthread_join(thread[i], &failed);
    assert_null(failed);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_task_runs_once_on_its_worker),
      cmocka_unit_test(a_null_pool_runs_inline),
      cmocka_unit_test(workers_wake_after_every_length_of_pause),
      cmocka_unit_test(the_caller_waits_for_the_slowest_worker),
      cmocka_unit_test(many_short_runs_neither_hang_nor_lose_work),
      cmocka_unit_test(idle_workers_use_no_processor_time),
      cmocka_unit_test(init_runs_once_in_every_worker_before_create_returns),
      cmocka_unit_test(only_workers_block_signals),
      cmocka_unit_test(impossible_sizes_are_refused),
      cmocka_unit_test(a_refused_thread_is_an_error_not_a_hang),
      cmocka_unit_test(ranks_in_threads_have_pools_side_by_side),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
