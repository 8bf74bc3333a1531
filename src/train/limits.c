// SPDX-License-Identifier: MIT
// What the processors of all ranks together could do, measured once: the denominators of "share of peak" and of a profile's
// distance from the roofline.
//
// The launcher has one thread when it forks the ranks, and ranks may be bound to some cores, so a child process of the
// launcher measures on as many threads as all ranks will have, at most one per core, and ends before any rank exists. Ranks
// that are threads are started by a process that may have threads anyway: it measures itself. How long this takes follows
// from the work that the run is going to do, at a guess of what a core does: tiny runs are not made longer.
//
// The machine may be busy with something else meanwhile, and later not: products are counted per second of the processors'
// own time. Where that does not tell either (a host that takes processors from its guests), the run may turn out to be
// faster; the fastest that was seen of it is the limit then.
#include "train/train_internal.h"
#include "trireme/base/clock.h"
#include "trireme/base/cpu.h"
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { COPY_BYTES = 32 << 20, WAIT_MS = 3000 };
static const double least = 0.02, most = 0.2, share = 0.01,
                    guess = 50e9; // seconds, seconds, of the run, FLOP/s of a core

static int threads_of(const tr_train_plan *plan) {
  int64_t all = plan->local * plan->nthread, cores = tr_cpu_count();
  return (int)(all < cores ? all : cores);
}

static double seconds_for(const tr_train_plan *plan) {
  const tr_train_config *c = plan->config;
  double tokens = (double)plan->steps * (double)c->batch.sequences * (double)c->data.sequence;
  double run = tokens * tr_model_flops(plan->model, c->data.sequence) / (guess * threads_of(plan));
  return fmin(fmax(share * run, least), most);
}

// ---- a plain copy, each thread of memory of its own

typedef struct copies {
  char *memory; // per thread: to, from
} copies;

static void copy_task(void *context, int task, int worker) {
  (void)worker;
  char *to = ((copies *)context)->memory + (size_t)task * 2 * COPY_BYTES;
  memcpy(to, to + COPY_BYTES, COPY_BYTES);
}

static double copy_rate(int nthread, double seconds) {
  size_t nbyte = (size_t)nthread * 2 * COPY_BYTES;
  tr_pool *pool = NULL;
  if (nbyte > tr_cpu_memory() / 4) return 0;
  copies c = {malloc(nbyte)};
  if (!c.memory || tr_pool_create(nthread, 1, NULL, NULL, &pool) < 0) {
    free(c.memory);
    return 0;
  }
  double best = 0, begin = tr_clock_seconds(), now = begin;
  memset(c.memory, 1, nbyte);
  for (int i = 0; i < 3 || now - begin < seconds; i++) {
    double start = tr_clock_seconds();
    tr_pool_run(pool, nthread, copy_task, &c);
    now = tr_clock_seconds();
    best = fmax(best, (double)nbyte / (now - start));
  }
  tr_pool_destroy(pool);
  free(c.memory);
  return best;
}

static tr__limits measure(const tr_train_plan *plan) {
  int nthread = threads_of(plan);
  double seconds = seconds_for(plan);
  // Where ranks have cores of their own, or are on other hosts, the measured ones stand for all.
  double times = fmax(1, (double)(plan->config->run.ranks * plan->nthread) / nthread);
  if (plan->place.size == 0) times = 1;
  tr__limits limits = {.flops = times * tr_kernel_peak_alone(tr__train_type(plan->config), nthread, seconds)};
  if (plan->config->run.profile > 0) limits.bytes = times * copy_rate(nthread, seconds);
  return limits;
}

// ---- in a child

_Noreturn static void measure_in_child(const tr_train_plan *plan, int fd, pid_t launcher) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != launcher) _exit(1);
  tr__limits limits = measure(plan);
  _exit(write(fd, &limits, sizeof limits) == (ssize_t)sizeof limits ? 0 : 1);
}

double tr__limits_share(tr__limits *limits, double flops) {
  if (!(limits->flops > 0)) return 0;
  limits->flops = fmax(limits->flops, flops);
  return flops / limits->flops;
}

tr__limits tr__limits_measure(const tr_train_plan *plan) {
  tr__limits none = {0}, limits;
  int ends[2];
  if (plan->config->run.launch == TR_LAUNCH_THREADS) return measure(plan);
  if (plan->place.rank > 0) return none; // of ranks that others have started the first measures
  if (pipe(ends) != 0) return none;
  pid_t launcher = getpid(), child = fork();
  if (child == 0) measure_in_child(plan, ends[1], launcher);
  close(ends[1]);
  struct pollfd answer = {.fd = ends[0], .events = POLLIN};
  int told = child > 0 && poll(&answer, 1, WAIT_MS) == 1 && read(ends[0], &limits, sizeof limits) == sizeof limits;
  close(ends[0]);
  if (child > 0) {
    if (!told) kill(child, SIGKILL);
    waitpid(child, NULL, 0);
  }
  return told ? limits : none;
}
