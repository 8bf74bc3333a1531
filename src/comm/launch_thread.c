// SPDX-License-Identifier: MIT
// Ranks as threads of this process: for tests, examples and debugging. Nothing is captured; a rank that never returns
// keeps the launcher waiting, as a thread cannot be ended from outside. The third stop signal ends the process.
#include "comm_internal.h"
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { LOOK_MS = 50 };

typedef struct rank_thread {
  pthread_t thread;
  tr__job *job;
  int rank, done_fd;
  tr_rank_main rank_main;
  void *user;
  const tr__binding *binding;
} rank_thread;

static void *thread_main(void *argument) {
  rank_thread *t = argument;
  tr__binding_apply(t->binding, t->rank);
  tr__rank_run(t->job, t->rank, t->rank_main, t->user);
  uint64_t one = 1;
  while (write(t->done_fd, &one, sizeof one) < 0 && errno == EINTR) {
  }
  return NULL;
}

static void watch(tr__watch *w, tr__job *job, int done_fd, int started) {
  struct pollfd polls[2] = {{.fd = done_fd, .events = POLLIN}, {.fd = w->signal_fd, .events = POLLIN}};
  uint64_t ended = 0, more;
  while (ended < (uint64_t)started) {
    poll(polls, 2, LOOK_MS);
    if (read(done_fd, &more, sizeof more) == (ssize_t)sizeof more) ended += more;
    if (tr__watch_signals(w, job) > 1)
      pthread_sigmask(SIG_UNBLOCK, &w->set, NULL); // ranks that do not listen can still be ended by a third one
    tr__watch_progress(w, job);
  }
}

static int start_threads(rank_thread *threads, tr__job *job) {
  int started = 0;
  for (; started < job->options.nrank; started++) {
    int error = pthread_create(&threads[started].thread, NULL, thread_main, &threads[started]);
    if (!error) continue;
    tr_error(TR_ERR_MEMORY, "launch: cannot start rank %d as a thread: %s", started, strerror(error));
    tr__abort(job, started, TR_ERR_MEMORY, tr_status_text());
    break;
  }
  return started;
}

tr_status tr__launch_threads(tr__job *job, tr_rank_main rank_main, void *user, tr_launch_report *report) {
  (void)report;
  int n = job->options.nrank;
  sigset_t mask;
  tr__watch w;
  tr__binding binding;
  rank_thread *threads = calloc((size_t)n, sizeof *threads);
  if (!threads) return tr_error(TR_ERR_MEMORY, "launch: no memory for %d threads", n);
  tr_status status;
  int done_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (done_fd < 0) {
    status = tr_error(TR_ERR_IO, "launch: cannot watch threads: %s", strerror(errno));
    goto free_threads;
  }
  status = tr__watch_open(&w, &mask);
  if (status < 0) goto close_event;
  tr__binding_create(job, &binding);
  for (int r = 0; r < n; r++)
    threads[r] = (rank_thread){
        .job = job, .rank = r, .done_fd = done_fd, .rank_main = rank_main, .user = user, .binding = &binding};
  int started = start_threads(threads, job);
  watch(&w, job, done_fd, started);
  for (int r = 0; r < started; r++) pthread_join(threads[r].thread, NULL);
  tr__report_print(job);
  tr__binding_destroy(&binding);
  tr__watch_close(&w, &mask);
close_event:
  close(done_fd);
free_threads:
  free(threads);
  return status;
}
