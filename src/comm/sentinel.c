// SPDX-License-Identifier: MIT
// A thread that keeps a rank's exit code when MPI ends the job. Open MPI gives its process up where it finds the other side of a
// connection gone: it tells its starter, rests some seconds inside the call that found it, and ends with a code of its own; and
// whoever holds the net's mutex may be the one that rests. The starter sends SIGTERM to all that is left a second later, and SIGKILL
// soon after that. So when the job has failed or a signal has come, and one call of MPI takes a third of a second, the job is told and
// this process ends with the job's code.
#include "external_internal.h"
#include "trireme/base/clock.h"
#include <errno.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { STUCK_NS = 300000000, LOOK_NS = 10000000, LOOK_MS = 50 };

struct tr__sentinel {
  pthread_t thread;
  tr__net *net;
  int signal_fd, end_fd;
};

// The same call of MPI from now on.
static int is_stuck(const tr__sentinel *s) {
  const uint64_t calls = atomic_load(&s->net->calls);
  for (int64_t begin = tr_clock_ns(); tr_clock_ns() - begin < STUCK_NS; tr_clock_sleep_ns(LOOK_NS))
    if (!(calls & 1) || atomic_load(&s->net->calls) != calls) return 0;
  return 1;
}

static void give_up(const tr__sentinel *s) {
  const tr__net *net = s->net;
  char sentence[TR__SENTENCE];
  int culprit;
  snprintf(sentence, sizeof sentence,
           "rank %d: %s has given up inside a call, as it does where the connection to another host breaks",
           net->rank, net->mpi->name);
  if (tr__abort(net->job, -1, TR_ERR_PEER, sentence)) fprintf(stderr, "[rank %d] trireme: %s\n", net->rank, sentence);
  fflush(stderr);
  _exit(tr_status_exit_code(tr__abort_status(net->job, &culprit, sentence, sizeof sentence)));
}

// The signal is for another thread to read. MPI may give up at any time after it.
static void *sentinel_main(void *argument) {
  const tr__sentinel *s = argument;
  for (int signals = 0;;) {
    struct pollfd polls[] = {{.fd = s->end_fd, .events = POLLIN}, {.fd = s->signal_fd, .events = POLLIN}};
    if (poll(polls, signals ? 1 : 2, LOOK_MS) < 0) continue;
    if (polls[0].revents) return NULL;
    signals |= polls[1].revents != 0;
    if ((signals || tr__aborted(s->net->job)) && is_stuck(s)) give_up(s);
  }
}

tr_status tr__sentinel_start(tr__net *net, int signal_fd, tr__sentinel **out) {
  tr__sentinel *s = calloc(1, sizeof *s);
  if (!s) return tr_error(TR_ERR_MEMORY, "no memory to watch MPI in rank %d", net->rank);
  *s = (tr__sentinel){.net = net, .signal_fd = signal_fd, .end_fd = eventfd(0, EFD_CLOEXEC)};
  int error = s->end_fd < 0 ? errno : pthread_create(&s->thread, NULL, sentinel_main, s);
  if (!error) {
    *out = s;
    return TR_OK;
  }
  if (s->end_fd >= 0) close(s->end_fd);
  free(s);
  return tr_error(TR_ERR_MEMORY, "cannot watch MPI in rank %d: %s", net->rank, strerror(error));
}

void tr__sentinel_end(tr__sentinel *s) {
  uint64_t one = 1;
  if (!s || write(s->end_fd, &one, sizeof one) < 0) return;
  pthread_join(s->thread, NULL);
  close(s->end_fd);
  free(s);
}
