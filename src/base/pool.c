// SPDX-License-Identifier: MIT
// The thread pool: a generation counter starts the workers, a second one says that all are done.
//
//   caller: write job; generation++ ------> workers: see a new generation, run their share
//   caller: run share 0; wait for `finished` <------ the last worker to end sets finished = generation
//
// Both directions use one waiting function, wait_while(): spin, yield for about a millisecond, then sleep in
// a futex. A sleeper counts itself first, so the waker makes no system call when nobody sleeps. Making the
// pool is generation 1, whose job is `init`. There is no queue and no stealing: shares are static, so
// placement of memory stays put.
#include "trireme/base/pool.h"
#include "trireme/base/clock.h"
#include "trireme/base/log.h"

#include "base/cpu_internal.h"

#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { NTHREAD_MAX = 4096, CACHE_LINE = 128, SPIN_ALONE = 2000, SPIN_SHARED = 20, YIELD_NS = 1000000 };

// A counter that threads wait on, alone on its cache lines.
typedef struct gate {
  _Alignas(CACHE_LINE) atomic_uint value;
  atomic_uint sleepers;
} gate;

typedef struct worker {
  tr_pool *pool;
  pthread_t thread;
  int index;
} worker;

struct tr_pool {
  gate generation;
  gate finished;
  _Alignas(CACHE_LINE) atomic_uint remaining; // workers that have not ended this generation
  // The job: written by the caller before `generation` moves, read by workers after.
  _Alignas(CACHE_LINE) tr_pool_task fn;
  void *context;
  int ntask;
  int stop;
  int nthread, nspin;
  void (*init)(void *user, int worker);
  void *user;
  const char *label; // of the creating thread, valid during generation 1
  worker *workers;   // nthread of them; entry 0 is unused
};

static void gate_sleep(gate *g, unsigned old) {
  // Counted before the last look: either the opener sees the sleeper, or the kernel sees the new value and returns.
  atomic_fetch_add(&g->sleepers, 1);
  if (atomic_load(&g->value) == old) syscall(SYS_futex, &g->value, FUTEX_WAIT_PRIVATE, old, NULL, NULL, 0);
  atomic_fetch_sub(&g->sleepers, 1);
}

// Return when the gate's value is no longer `old`.
static void wait_while(gate *g, unsigned old, int nspin) {
  for (int i = 0; i < nspin; i++) {
    if (atomic_load_explicit(&g->value, memory_order_acquire) != old) return;
    tr__cpu_pause();
  }
  int64_t end = tr_clock_ns() + YIELD_NS;
  while (atomic_load_explicit(&g->value, memory_order_acquire) == old) {
    if (tr_clock_ns() < end) {
      sched_yield();
    } else {
      gate_sleep(g, old);
    }
  }
}

static void gate_open(gate *g, unsigned value) {
  atomic_store(&g->value, value);
  if (atomic_load(&g->sleepers) > 0) syscall(SYS_futex, &g->value, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

static void run_share(const tr_pool *pool, int index) {
  int64_t n = pool->nthread, ntask = pool->ntask;
  int first = (int)(index * ntask / n), last = (int)((index + 1) * ntask / n);
  for (int task = first; task < last; task++) pool->fn(pool->context, task, index);
}

// The last worker to end opens the gate the caller waits at.
static void arrive(tr_pool *pool, unsigned generation) {
  if (atomic_fetch_sub(&pool->remaining, 1) == 1) gate_open(&pool->finished, generation);
}

// The deepest call of a step comes at any time, and must not be the first to touch that part of the stack.
__attribute__((noinline)) static void touch_stack(void) {
  enum { PAGE = 4096 };
  volatile char deep[TR_POOL_STACK];
  for (int i = 0; i < TR_POOL_STACK; i += PAGE) {
    deep[i] = 0;
    (void)deep[i];
  }
}

static void *worker_main(void *argument) {
  worker *self = argument;
  tr_pool *pool = self->pool;
  char name[16];
  snprintf(name, sizeof name, "trireme-w%d", self->index);
  pthread_setname_np(pthread_self(), name);
  tr_log_set_label(pool->label);
  touch_stack();
  if (pool->init) pool->init(pool->user, self->index);
  arrive(pool, 1);
  for (unsigned generation = 1;; generation++) {
    wait_while(&pool->generation, generation, pool->nspin);
    if (pool->stop) return NULL;
    run_share(pool, self->index);
    arrive(pool, generation + 1);
  }
}

// Start the workers with all signals blocked that somebody sends, so that those reach the rank's main thread. Faults
// stay open: they belong to the thread that made them. Returns how many entries are in use, 0 included.
static int start_workers(tr_pool *pool, int *error) {
  sigset_t blocked, before;
  sigfillset(&blocked);
  const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGSYS};
  for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++) sigdelset(&blocked, faults[i]);
  pthread_sigmask(SIG_SETMASK, &blocked, &before);
  int started = 1;
  for (; started < pool->nthread; started++) {
    worker *w = &pool->workers[started];
    *w = (worker){.pool = pool, .index = started};
    *error = pthread_create(&w->thread, NULL, worker_main, w);
    if (*error) break;
  }
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  return started;
}

static void stop_workers(tr_pool *pool, int started) {
  pool->stop = 1;
  gate_open(&pool->generation, atomic_load(&pool->generation.value) + 1);
  for (int i = 1; i < started; i++) pthread_join(pool->workers[i].thread, NULL);
}

static tr_pool *pool_new(int nthread) {
  void *memory = NULL;
  if (posix_memalign(&memory, CACHE_LINE, sizeof(tr_pool)) != 0) return NULL;
  tr_pool *pool = memory;
  memset(pool, 0, sizeof *pool);
  pool->workers = calloc((size_t)nthread, sizeof *pool->workers);
  if (!pool->workers) {
    free(pool);
    return NULL;
  }
  atomic_init(&pool->generation.value, 1);
  atomic_init(&pool->finished.value, nthread > 1 ? 0 : 1);
  atomic_init(&pool->remaining, (unsigned)nthread - 1);
  return pool;
}

static void pool_free(tr_pool *pool) {
  free(pool->workers);
  free(pool);
}

tr_status tr_pool_create(int nthread, int spin, void (*init)(void *user, int worker), void *user, tr_pool **out) {
  if (nthread < 1 || nthread > NTHREAD_MAX) {
    return tr_error(TR_ERR_USAGE, "a pool of %d threads: give 1 to %d", nthread, NTHREAD_MAX);
  }
  tr_pool *pool = pool_new(nthread);
  if (!pool) return tr_error(TR_ERR_MEMORY, "no memory for a pool of %d threads", nthread);
  pool->nthread = nthread;
  pool->nspin = spin ? SPIN_ALONE : SPIN_SHARED;
  pool->init = init;
  pool->user = user;
  pool->label = tr_log_label();
  int error = 0;
  int started = start_workers(pool, &error);
  if (started < nthread) {
    stop_workers(pool, started);
    pool_free(pool);
    return tr_error(TR_ERR_MEMORY, "cannot start thread %d of %d: %s (see the limit on processes: ulimit -u)",
                    started, nthread, strerror(error));
  }
  touch_stack();
  if (init) init(user, 0);
  wait_while(&pool->finished, 0, pool->nspin);
  *out = pool;
  return TR_OK;
}

void tr_pool_destroy(tr_pool *pool) {
  if (!pool) return;
  stop_workers(pool, pool->nthread);
  pool_free(pool);
}

int tr_pool_nthread(const tr_pool *pool) { return pool ? pool->nthread : 1; }

void tr_pool_run(tr_pool *pool, int ntask, tr_pool_task fn, void *context) {
  // A single task is not worth waking anybody.
  if (!pool || pool->nthread == 1 || ntask <= 1) {
    for (int task = 0; task < ntask; task++) fn(context, task, 0);
    return;
  }
  unsigned before = atomic_load_explicit(&pool->generation.value, memory_order_relaxed);
  pool->fn = fn;
  pool->context = context;
  pool->ntask = ntask;
  atomic_store_explicit(&pool->remaining, (unsigned)pool->nthread - 1, memory_order_relaxed);
  gate_open(&pool->generation, before + 1);
  run_share(pool, 0);
  wait_while(&pool->finished, before, pool->nspin);
}
