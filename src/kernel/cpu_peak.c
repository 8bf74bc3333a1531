// SPDX-License-Identifier: MIT
// The best rate of multiply-adds this processor reaches: loops that touch only registers (or AMX tiles), one per
// thread, run for a given time. It is what a "share of peak" is a share of; no product of matrices can be faster.
#include "kernel/cpu_table_internal.h"
#include "trireme/base/clock.h"
#include "trireme/base/cpu.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <time.h>

enum { THREADS_MAX = 1024, TURNS = 20000 };

typedef struct peak_job {
  int amx, alone; // alone: the thread's processor time counts
  double seconds, rate;
  atomic_int *waiting; // threads that have not started yet
  double sink;         // keeps the loop's result alive
} peak_job;

static double burst(peak_job *j) {
  double flops = 0;
  j->sink += j->amx ? tr__amx_peak(TURNS, &flops) : tr__simd_best()->peak(TURNS, (float)(j->seconds * 1e-6), &flops);
  return flops;
}

static double now_of(const peak_job *j) {
  struct timespec t;
  if (!j->alone || clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t) != 0) return tr_clock_seconds();
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void *peak_thread(void *argument) {
  peak_job *j = argument;
  burst(j); // wakes the clock and the wide units
  atomic_fetch_sub(j->waiting, 1);
  while (atomic_load(j->waiting) > 0) sched_yield(); // all are made before any waits for long
  const double begin = tr_clock_seconds(), start = now_of(j);
  double flops = 0;
  do flops += burst(j);
  while (tr_clock_seconds() - begin < j->seconds);
  j->rate = flops / (now_of(j) - start);
  return NULL;
}

static double measure(tr_dtype type, int nthread, double seconds, int alone) {
  static const double least = 1e-3;
  const int amx = type == TR_BF16 && tr_cpu_isa() == TR_ISA_AMX;
  if (nthread < 1) nthread = 1;
  if (nthread > THREADS_MAX) nthread = THREADS_MAX;
  peak_job job[THREADS_MAX];
  pthread_t thread[THREADS_MAX];
  atomic_int waiting = 1;
  int started = 1;
  job[0] = (peak_job){.amx = amx, .alone = alone, .seconds = seconds > least ? seconds : least, .waiting = &waiting};
  for (; started < nthread; started++) {
    job[started] = job[0];
    atomic_fetch_add(&waiting, 1);
    if (pthread_create(&thread[started], NULL, peak_thread, &job[started]) != 0) {
      atomic_fetch_sub(&waiting, 1);
      break;
    }
  }
  peak_thread(&job[0]);
  double rate = job[0].rate;
  for (int t = 1; t < started; t++) {
    pthread_join(thread[t], NULL);
    rate += job[t].rate;
  }
  return rate;
}

double tr_kernel_peak(tr_dtype type, int nthread, double seconds) { return measure(type, nthread, seconds, 0); }

double tr_kernel_peak_alone(tr_dtype type, int nthread, double seconds) { return measure(type, nthread, seconds, 1); }
