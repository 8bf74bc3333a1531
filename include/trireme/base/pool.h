// SPDX-License-Identifier: MIT
// The thread pool of one rank.
//
// Work is a grid of tasks whose size does not depend on the number of threads; worker w of n runs a fixed contiguous
// share of it. So results that add partial sums per task have the same bits with any number of threads. The caller is
// worker 0. Waiters spin for a short while (only if every thread of every local rank has its own core), then yield,
// then sleep in a futex: idle ranks cost nothing. One caller at a time; tasks must not call back into the pool.
#ifndef TRIREME_BASE_POOL_H
#define TRIREME_BASE_POOL_H

#include "trireme/base/status.h"

enum {
  TR_POOL_STACK = 64 << 10,                   // bytes of stack that every worker has touched before its first task
  TR_POOL_MEMORY = TR_POOL_STACK + (12 << 10) // bytes of memory that a worker takes, about
};

typedef struct tr_pool tr_pool;
typedef void (*tr_pool_task)(void *context, int task, int worker);

// Make a pool of `nthread` workers (the caller and nthread - 1 threads). `spin`: nonzero when cores are not shared.
// With nthread 1 no thread is made. `init` (may be NULL) runs once in every worker, the caller included. It is
// TR_ERR_MEMORY when the system gives no more threads.
tr_status tr_pool_create(int nthread, int spin, void (*init)(void *user, int worker), void *user, tr_pool **out);
void tr_pool_destroy(tr_pool *pool);      // joins the threads; NULL allowed
int tr_pool_nthread(const tr_pool *pool); // 1 for NULL

// Run fn(context, task, worker) for every task 0 .. ntask - 1 and return when all are done. A NULL pool runs inline.
void tr_pool_run(tr_pool *pool, int ntask, tr_pool_task fn, void *context);

#endif
