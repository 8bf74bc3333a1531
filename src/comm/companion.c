// SPDX-License-Identifier: MIT
// The thread beside each rank that others have started: what the launcher does for ranks that it forked, each rank does
// for itself and its host.
//
//   while messages are under way   lets them move, every 50 to 200 us, unless the rank's own thread does so
//   every 50 ms                    signals; other ranks of this host, and who started them: has one gone?
//                                  news of other hosts (mirror.c); deadline of a job in which nobody moves
//   after a failure                the rank has the grace period to end; then its process is ended here, and the first
//                                  of a host that is still there ends those that are stuck
//
// The first stop signal asks the job to stop after the step, the second ends it.
#include "external_internal.h"
#include "trireme/base/clock.h"
#include "trireme/base/log.h"
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
  LOOK_NS = 50000000,
  LOOK_MS = 50,
  REST_NS = 50000,
  REST_MOST_NS = 200000,
  // An MPI may look at its sockets in one of eight calls only, and take some of them for a message.
  POLLS_OF_LOOK = 64,
  POLLS_OF_DRIVE = 8
};

struct tr__companion {
  pthread_t thread;
  tr__job *job;
  tr__net *net; // NULL: one host
  tr__mirror *mirror;
  tr__sentinel *sentinel;
  tr__watch *watch;
  int rank, starter_pid, starter_fd;
  int pid_fd[TR__RANKS]; // of the other ranks of this host, -1
  _Atomic int gone[TR__RANKS];
  int said;                        // how the job failed
  _Atomic int heard;               // a message of another host waits to be read
  _Atomic int leaving, left, over; // leaving: the rank has returned from its main; over: nothing more is to be told
  int pending;                     // operations are under way
  uint64_t driven;
  int64_t rest;
};

static int is_here(const tr__companion *c, int rank) { return c->job->hosts.of[rank] == c->job->hosts.own; }

// The first rank of this host whose process is there.
static int speaks(const tr__companion *c) {
  for (int r = 0; r < c->rank; r++)
    if (is_here(c, r) && !atomic_load(&c->gone[r])) return 0;
  return 1;
}

// ---- whose process has gone

static int has_gone(int fd) {
  struct pollfd one = {.fd = fd, .events = POLLIN};
  return fd >= 0 && poll(&one, 1, 0) > 0;
}

static void judge_rank(tr__companion *c, int rank) {
  char who[TR__WHO], doing[120], sentence[TR__SENTENCE];
  atomic_store(&c->gone[rank], 1);
  close(c->pid_fd[rank]);
  c->pid_fd[rank] = -1;
  if (atomic_load_explicit(&c->job->page[rank].life, memory_order_acquire) == TR__ENDED) return;
  tr__describe_rank(c->job, rank, who, sizeof who);
  tr__describe_activity(c->job, rank, doing, sizeof doing);
  snprintf(sentence, sizeof sentence, "%s was killed or has ended while in %s", who, doing);
  tr__abort(c->job, rank, TR_ERR_PEER, sentence);
}

static void judge_starter(tr__companion *c) {
  char sentence[TR__SENTENCE];
  close(c->starter_fd);
  c->starter_fd = -1;
  snprintf(sentence, sizeof sentence, "the process that started the ranks of this host (pid %d) has ended",
           c->starter_pid);
  tr__abort(c->job, -1, TR_ERR_PEER, sentence);
}

static void look_around(tr__companion *c) {
  for (int r = 0; r < c->job->options.nrank; r++)
    if (has_gone(c->pid_fd[r])) judge_rank(c, r);
  if (has_gone(c->starter_fd)) judge_starter(c);
}

// ---- the end of a failed job

// MPI_Abort may wait for a server that has gone.
static void *exit_soon(void *code) {
  tr_clock_sleep_ns(2000000000);
  _exit((int)(intptr_t)code);
}

static tr_status say(tr__companion *c) {
  char sentence[TR__SENTENCE];
  int culprit;
  tr_status status = tr__abort_status(c->job, &culprit, sentence, sizeof sentence);
  if (c->rank == tr__external_speaker(culprit, status) && !c->said) {
    c->said = 1;
    tr__report_print(c->job);
    fprintf(stderr, "trireme: %s\n", sentence);
    fflush(stderr);
  }
  return status;
}

// A starter ends all ranks soon after it has lost one, and an MPI its own rank: so a loss is told at once, by the rank that
// speaks for the job, and on each host where that is not by the first rank that is there.
static void say_loss(tr__companion *c) {
  char sentence[TR__SENTENCE];
  int culprit;
  if (c->said || !tr__aborted(c->job)) return;
  tr_status status = tr__abort_status(c->job, &culprit, sentence, sizeof sentence);
  if (status != TR_ERR_PEER) return;
  say(c);
  if (c->said || is_here(c, tr__external_speaker(culprit, status)) || !speaks(c)) return;
  c->said = 1;
  fprintf(stderr, "[rank %d] trireme: %s\n", c->rank, sentence);
}

static void end_process(tr__companion *c) {
  int code = tr_status_exit_code(say(c));
  pthread_t sure;
  if (c->net && pthread_create(&sure, NULL, exit_soon, (void *)(intptr_t)code) == 0 && tr__net_try_enter(c->net))
    c->net->mpi->abort(code);
  _exit(code);
}

static void end_others(tr__companion *c) {
  for (int r = 0; r < c->job->options.nrank; r++)
    if (r != c->rank && is_here(c, r) && !atomic_load(&c->gone[r]) && atomic_load(&c->job->page[r].life) != TR__ENDED)
      kill(c->job->hosts.pid[r], SIGKILL);
}

// Mutex held.
static void step_requests(tr__companion *c) {
  tr_comm *comm = c->net->comm;
  if (comm) tr__progress_beside(comm);
  c->pending = comm && comm->head;
}

static void look(tr__companion *c) {
  tr__watch_signals(c->watch, c->job);
  look_around(c);
  say_loss(c);
  if (c->net) {
    tr__net_enter(c->net);
    for (int i = 0; i < POLLS_OF_LOOK; i++) tr__net_poll(c->net);
    step_requests(c);
    tr__mirror_step(c->mirror, speaks(c), tr_clock_ns());
    atomic_store(&c->heard, 0);
    tr__mirror_hush(c->mirror, tr_clock_ns());
    atomic_store(&c->over, tr__mirror_over(c->mirror, speaks(c)) || c->net->closed);
    if (tr__aborted(c->job) && c->over) atomic_store(&c->net->told, 1);
    tr__net_leave(c->net);
    say_loss(c); // of another host
  }
  int over = tr__watch_progress(c->watch, c->job);
  if (!over || !tr__aborted(c->job)) return;
  if (!atomic_load(&c->leaving)) end_process(c);
  if (!speaks(c)) return;
  say(c); // before a starter sees that one was killed, and ends the rest
  end_others(c);
}

// ---- progress

// Returns how long to rest.
static int64_t drive(tr__companion *c) {
  tr__net *net = c->net;
  uint64_t driven = atomic_load(&net->driven);
  if (!tr__net_try_enter(net)) return REST_MOST_NS; // the rank itself does
  atomic_store(&c->heard, tr__mirror_heard(c->mirror));
  if (driven != c->driven) {
    tr__net_leave(net);
    c->driven = driven;
    return REST_MOST_NS;
  }
  int moved = 0;
  for (int i = 0; i < POLLS_OF_DRIVE; i++) moved += tr__net_poll(net);
  step_requests(c);
  atomic_store(&c->heard, tr__mirror_heard(c->mirror));
  tr__net_leave(net);
  c->rest = moved > 0 ? REST_NS : c->rest * 2;
  if (c->rest > REST_MOST_NS) c->rest = REST_MOST_NS;
  return c->rest;
}

// Wait at most so long for a signal, the end of a process, or a message to start. Nonzero: for one of the first two.
static int rest(tr__companion *c, int milliseconds) {
  struct pollfd polls[TR__RANKS + 3];
  nfds_t n = 0;
  uint64_t count;
  polls[n++] = (struct pollfd){.fd = c->watch->signal_fd, .events = POLLIN};
  if (c->starter_fd >= 0) polls[n++] = (struct pollfd){.fd = c->starter_fd, .events = POLLIN};
  for (int r = 0; r < c->job->options.nrank; r++)
    if (c->pid_fd[r] >= 0) polls[n++] = (struct pollfd){.fd = c->pid_fd[r], .events = POLLIN};
  if (c->net) polls[n++] = (struct pollfd){.fd = c->net->wake_fd, .events = POLLIN};
  int news = poll(polls, n, milliseconds) > 0;
  if (c->net && read(c->net->wake_fd, &count, sizeof count) == (ssize_t)sizeof count) news = 0;
  return news;
}

static void *companion_main(void *argument) {
  tr__companion *c = argument;
  int64_t looked = 0;
  int news = 0;
  while (!atomic_load(&c->left)) {
    int64_t now = tr_clock_ns();
    int busy = c->net && (c->pending || atomic_load(&c->net->under_way) > 0);
    if (!busy || news || now - looked >= LOOK_NS) {
      look(c);
      looked = now;
    }
    if (busy) tr_clock_sleep_ns(drive(c));
    // MPI may end the process soon after it has lost another one: what there is to tell of that must be faster.
    news = rest(c, busy ? 0 : LOOK_MS) || atomic_load(&c->heard);
  }
  return NULL;
}

// ---- start and end

static int open_pid(int pid) { return (int)syscall(SYS_pidfd_open, pid, 0); }

tr_status tr__companion_start(tr__job *job, int rank, tr__watch *watch, const tr__starter *starter,
                              tr__companion **out) {
  tr__companion *c = calloc(1, sizeof *c);
  if (!c) return tr_error(TR_ERR_MEMORY, "no memory for the thread beside rank %d", rank);
  *c = (tr__companion){.job = job,
                       .net = job->net,
                       .watch = watch,
                       .rank = rank,
                       .starter_pid = starter->pid,
                       .starter_fd = open_pid(starter->pid),
                       .rest = REST_NS};
  for (int r = 0; r < TR__RANKS; r++) {
    int other = r < job->options.nrank && r != rank && is_here(c, r);
    c->pid_fd[r] = other ? open_pid(job->hosts.pid[r]) : -1;
    if (other && c->pid_fd[r] < 0 && errno == ESRCH) judge_rank(c, r);
  }
  tr_status status = c->net ? tr__mirror_create(c->net, &c->mirror) : TR_OK;
  if (status == TR_OK && c->net) status = tr__sentinel_start(c->net, watch->signal_fd, &c->sentinel);
  int error = status == TR_OK ? pthread_create(&c->thread, NULL, companion_main, c) : 0;
  if (error) status = tr_error(TR_ERR_MEMORY, "cannot start the thread beside rank %d: %s", rank, strerror(error));
  *out = c;
  return status;
}

static int all_over(const tr__companion *c) {
  int here_only = tr__aborted(c->job);
  for (int r = 0; r < c->job->options.nrank; r++) {
    if (here_only && !is_here(c, r)) continue;
    if (atomic_load_explicit(&c->job->page[r].life, memory_order_acquire) != TR__ENDED && !atomic_load(&c->gone[r]))
      return 0;
  }
  return !c->net || atomic_load(&c->over);
}

int tr__companion_leave(tr__companion *c) {
  int64_t failed_since = 0;
  atomic_store(&c->leaving, 1);
  while (!all_over(c)) {
    int64_t now = tr_clock_ns();
    if (tr__aborted(c->job) && !failed_since) failed_since = now;
    // Whoever is stuck is killed after the grace period, which shows soon after.
    if (failed_since && (double)(now - failed_since) > (c->job->options.grace + 1) * 1e9) break;
    tr_clock_sleep_ns(1000000);
  }
  atomic_store(&c->left, 1);
  pthread_join(c->thread, NULL);
  for (int r = 0; r < TR__RANKS; r++)
    if (c->pid_fd[r] >= 0) close(c->pid_fd[r]);
  if (c->starter_fd >= 0) close(c->starter_fd);
  int said = c->said;
  tr__sentinel_end(c->sentinel);
  tr__mirror_destroy(c->mirror);
  free(c);
  return said;
}
