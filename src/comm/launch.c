// SPDX-License-Identifier: MIT
// The launcher's part that processes and threads share: options, the job's memory, signals, the watch over progress.
//
// Stop signals are blocked and read from a file: the first asks the ranks to stop after their step, the second ends
// the job. One wish can come as several signals: timeout(1) sends its signal to the program and then to the program's whole
// process group, so those right after the first are not a second. Should no rank at all move for the deadline and the grace
// period, the job is stopped from here.
#include "trireme/comm/launch.h"
#include "external_internal.h"
#include "trireme/base/clock.h"
#include "trireme/base/log.h"
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

enum { SUSPENDED_NS = 2000000000, ONE_WISH_NS = 250000000 };

void tr_launch_options_init(tr_launch_options *o) {
  *o = (tr_launch_options){.size = sizeof *o,
                           .mode = TR_LAUNCH_PROCESSES,
                           .nrank = 1,
                           .nthread = 1,
                           .bind = 1,
                           .arena_nbyte = (size_t)64 << 20,
                           .deadline = 60,
                           .grace = 5,
                           .read_peers = 1};
}

static tr_status check_options(const tr_launch_options *o, tr_rank_main rank_main) {
  if (!o || o->size != sizeof *o || !rank_main)
    return tr_error(TR_ERR_USAGE,
                    "launch: options must come from tr_launch_options_init and a rank's main is needed");
  if (o->nrank < 1 || o->nrank > TR__RANKS)
    return tr_error(TR_ERR_USAGE, "launch: %d ranks; one machine can run 1 to %d", o->nrank, TR__RANKS);
  if (o->nthread < 1) return tr_error(TR_ERR_USAGE, "launch: %d threads per rank; at least 1", o->nthread);
  if (!(o->deadline > 0) || !(o->grace >= 0))
    return tr_error(TR_ERR_USAGE,
                    "launch: deadline %g s and grace %g s; the deadline must be above 0, the grace at least 0",
                    o->deadline, o->grace);
  if (o->mode != TR_LAUNCH_PROCESSES && o->mode != TR_LAUNCH_THREADS)
    return tr_error(TR_ERR_USAGE, "launch: no such mode: %d", (int)o->mode);
  return TR_OK;
}

// A closed terminal (SIGHUP) asks to stop, it does not throw the run away. What the caller ignores (nohup) stays ignored,
// except SIGINT: shells ignore it in every job that a script puts into the background.
static void choose_signals(sigset_t *set) {
  static const int stops[] = {SIGTERM, SIGHUP, SIGUSR1};
  struct sigaction now;
  sigemptyset(set);
  sigaddset(set, SIGINT);
  for (size_t i = 0; i < sizeof stops / sizeof *stops; i++)
    if (sigaction(stops[i], NULL, &now) == 0 && now.sa_handler != SIG_IGN) sigaddset(set, stops[i]);
}

tr_status tr__watch_open(tr__watch *w, void *old_mask) {
  memset(w, 0, sizeof *w);
  choose_signals(&w->set);
  pthread_sigmask(SIG_BLOCK, &w->set, old_mask);
  w->signal_fd = signalfd(-1, &w->set, SFD_CLOEXEC | SFD_NONBLOCK);
  if (w->signal_fd >= 0) return TR_OK;
  int error = errno;
  pthread_sigmask(SIG_SETMASK, old_mask, NULL);
  return tr_error(TR_ERR_IO, "launch: cannot watch signals: %s", strerror(error));
}

void tr__watch_close(tr__watch *w, const void *old_mask) {
  tr_log_debug("launcher leaves after %d stop signals", w->signals);
  close(w->signal_fd);
  pthread_sigmask(SIG_SETMASK, old_mask, NULL);
}

int tr__watch_signals(tr__watch *w, tr__job *job) {
  struct signalfd_siginfo info;
  while (read(w->signal_fd, &info, sizeof info) == (ssize_t)sizeof info) {
    int64_t now = tr_clock_ns();
    if (w->signals == 1 && now - w->asked < ONE_WISH_NS) continue;
    w->signals++;
    w->asked = now;
  }
  if (w->signals) atomic_store(&job->control->stop, 1u);
  if (w->signals > 1) tr__abort(job, -1, TR_ERR_PEER, "the job was interrupted twice and ended at once");
  return w->signals;
}

// The rank to name when nobody moves: the one the first rank still running waits for in the end; -1 all have ended.
static int standing(const tr__job *job) {
  for (int r = 0; r < job->options.nrank; r++)
    if (atomic_load(&job->page[r].life) != TR__ENDED) {
      int waiter = r, circle;
      return tr__awaited_root(job, r, &waiter, &circle);
    }
  return -1;
}

// Returns nonzero when all ranks have ended and only their processes or threads are still there.
static int nobody_moves(tr__job *job, double seconds) {
  int rank = standing(job);
  if (rank < 0) return 1;
  char who[TR__WHO], doing[120], sentence[TR__SENTENCE];
  tr__describe_rank(job, rank, who, sizeof who);
  tr__describe_activity(job, rank, doing, sizeof doing);
  snprintf(sentence, sizeof sentence, "no rank made progress for %.1f s: %s was in %s", seconds, who, doing);
  tr__abort(job, rank, TR_ERR_TIMEOUT, sentence);
  return 0;
}

int tr__watch_progress(tr__watch *w, tr__job *job) {
  int64_t now = tr_clock_ns();
  if (tr__aborted(job)) {
    if (!w->failed_since) w->failed_since = now;
    return (double)(now - w->failed_since) >= job->options.grace * 1e9;
  }
  // A long gap since the last look: the job was suspended, launcher and all. That counts for nobody.
  if (w->looked && now - w->looked > SUSPENDED_NS) w->beats_since += now - w->looked;
  w->looked = now;
  uint64_t beats = 1;
  for (int r = 0; r < job->options.nrank; r++)
    beats += atomic_load_explicit(&job->page[r].beat, memory_order_relaxed);
  if (beats != w->beats) {
    w->beats = beats;
    w->beats_since = now;
  }
  double still = (double)(now - w->beats_since) * 1e-9;
  return still > job->options.deadline + job->options.grace && nobody_moves(job, still);
}

// What the job came to: the abort record if there is one.
static tr_status conclude(const tr__job *job, tr_status status, tr_launch_report *report) {
  if (status < 0) {
    snprintf(report->text, sizeof report->text, "%s", tr_status_text());
    return status;
  }
  if (!tr__aborted(job)) return TR_OK;
  status = tr__abort_status(job, &report->culprit, report->text, sizeof report->text);
  return tr_error(status, "%s", report->text);
}

tr_status tr_launch(const tr_launch_options *options, tr_rank_main rank_main, void *user, tr_launch_report *report) {
  tr_launch_report own;
  if (!report) report = &own;
  *report = (tr_launch_report){.culprit = -1};
  tr__job job;
  tr_launch_place place;
  tr_status status = check_options(options, rank_main);
  if (status == TR_OK && options->mode == TR_LAUNCH_PROCESSES) {
    status = tr_launch_placed(&place);
    if (status > 0) return tr__launch_external(options, &place, rank_main, user, report);
  }
  if (status == TR_OK) status = tr__job_create(options, &job);
  if (status < 0) {
    snprintf(report->text, sizeof report->text, "%s", tr_status_text());
    return status;
  }
  if (options->mode == TR_LAUNCH_THREADS)
    status = tr__launch_threads(&job, rank_main, user, report);
  else
    status = tr__launch_processes(&job, rank_main, user, report);
  status = conclude(&job, status, report);
  tr__job_destroy(&job);
  return status;
}
