// SPDX-License-Identifier: MIT
// One rank of a job whose processes mpirun, srun or torchrun has started: no fork, no watching launcher. The same rank
// entry runs in this process, on memory that it shares with the ranks of its host (rendezvous.c), over MPI to those of
// others (net.c), with a thread beside it that does what the launcher would (companion.c).
//
// What the job came to is the same in every rank, and so is the status returned; the sentence is recorded where rank 0
// runs, so that a command that prints it prints it once. Output and log files are the starter's business.
#include "external_internal.h"
#include "trireme/base/clock.h"
#include "trireme/base/cpu.h"
#include "trireme/base/log.h"
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
  START = 10,           // deadlines that the other ranks have to come: they may have to read files first
  AFTER_NS = 1000000000 // after which a failed rank ends that does not speak
};

static int on_one_host(const tr_launch_place *place) { return place->local_size == place->size; }

static void one_host(int nrank, tr__hosts *hosts) {
  *hosts = (tr__hosts){.count = 1, .nlocal = nrank};
  for (int r = 0; r < nrank; r++) hosts->local[r] = (int16_t)r;
}

static tr_status check(const tr_launch_options *o, const tr_launch_place *place) {
  if (o->nrank != place->size)
    return tr_error(TR_ERR_USAGE, "%s has started %d ranks, %d are wanted: leave the number to it", place->starter,
                    place->size, o->nrank);
  return TR_OK;
}

// The caller's word on arenas, now that it is known who is where.
static tr_status size_arenas(tr__job *job, void *user) {
  tr_launch_options *o = &job->options;
  const tr__hosts *hosts = &job->hosts;
  if (!o->met) return TR_OK;
  const tr_launch_met met = {
      .hosts = hosts->count, .host = hosts->of, .least = hosts->count > 1 ? hosts->least : o->offer};
  return o->met(user, &met, o);
}

static tr_status meet(tr__job *job, const tr_launch_place *place, const tr__starter *starter, void *user) {
  double start = START * job->options.deadline;
  if (!on_one_host(place)) {
    TR_TRY(tr__net_open(job, place, start, &job->net));
    TR_TRY(tr__net_hosts(job->net, place, start));
  } else {
    one_host(place->size, &job->hosts);
  }
  job->hosts.joined = 1;
  TR_TRY(size_arenas(job, user));
  TR_TRY(tr__job_prepare(job));
  return tr__rendezvous(job, place->rank, starter, start);
}

static int live(tr__job *job, int rank, tr__companion *companion, tr_rank_main rank_main, void *user) {
  tr__binding binding;
  tr__binding_create(job, &binding);
  tr__binding_apply(&binding, job->hosts.local[rank]);
  tr__binding_destroy(&binding);
  tr__rank_run(job, rank, rank_main, user);
  return tr__companion_leave(companion);
}

int tr__external_speaker(int culprit, tr_status status) {
  return culprit == 0 && (status == TR_ERR_PEER || status == TR_ERR_TIMEOUT);
}

// Every rank knows what the job came to; one tells. Starters end all ranks when the first has failed, so the others let it go
// first.
static tr_status conclude(const tr__job *job, int rank, int said, tr_launch_report *report) {
  if (!tr__aborted(job)) return TR_OK;
  tr_status status = tr__abort_status(job, &report->culprit, report->text, sizeof report->text);
  int speaker = tr__external_speaker(report->culprit, status);
  tr_status_clear();
  if (rank == speaker && !said) tr__report_print(job);
  if (rank == 0 && !said) tr_error(status, "%s", report->text);
  if (rank == speaker && rank != 0 && !said) fprintf(stderr, "trireme: %s\n", report->text);
  if (rank != speaker) tr_clock_sleep_ns(AFTER_NS);
  return status;
}

tr_status tr__launch_external(const tr_launch_options *options, const tr_launch_place *place, tr_rank_main rank_main,
                              void *user, tr_launch_report *report) {
  tr__job job = {.options = *options};
  tr__watch watch;
  sigset_t mask;
  tr__companion *companion = NULL;
  TR_TRY(check(options, place));
  tr__starter starter = tr__starter_find(tr__placed_variable());
  TR_TRY(tr__watch_open(&watch, &mask)); // before any thread, of MPI's too
  tr_status status = meet(&job, place, &starter, user);
  if (status == TR_OK) status = tr__companion_start(&job, place->rank, &watch, &starter, &companion);
  if (status == TR_OK) {
    int said = live(&job, place->rank, companion, rank_main, user);
    status = conclude(&job, place->rank, said, report);
    // Where a rank has failed the starter ends those that are left. They end already, each with a status that says why.
    if (status < 0) sigaddset(&mask, SIGTERM);
    if (status == TR_OK && job.net) tr__net_close(job.net, START * options->deadline);
  } else {
    snprintf(report->text, sizeof report->text, "%s", tr_status_text());
  }
  tr__watch_close(&watch, &mask);
  if (status == TR_OK || !job.net) tr__job_destroy(&job); // after a failure MPI may still write there
  return status;
}
