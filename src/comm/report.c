// SPDX-License-Identifier: MIT
// The report of a job that lost a rank or waited too long: who was missing from which operation, and what every rank was
// doing, in what it waited for whom, and since when.
//
// Whoever stops the job looks at all pages at that moment, before anybody else learns of the end: a little later the
// ranks' waits have ended, and so has what there was to see. The launcher prints it when the ranks are gone.
#include "comm_internal.h"
#include "trireme/base/clock.h"
#include "trireme/base/file.h"
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { OPERATIONS_MOST = 8, HOST_MOST = 128 };
static const char prefix[] = "[launcher] ";
static const double fresh_seconds = 0.2; // hosts tell each other four times as often

void tr__report_take(tr__job *job) {
  job->control->stopped = tr_clock_ns();
  for (int r = 0; r < job->options.nrank; r++) {
    const tr__rank_page *page = &job->page[r];
    tr__rank_view *v = &job->view[r];
    tr__name_load(page->what, v->what);
    tr__name_load(page->group, v->group);
    v->step = atomic_load_explicit(&page->step, memory_order_relaxed);
    v->microbatch = atomic_load_explicit(&page->microbatch, memory_order_relaxed);
    v->since = atomic_load_explicit(&page->since, memory_order_relaxed);
    v->wait_since = atomic_load_explicit(&page->wait_since, memory_order_relaxed);
    v->nbyte = atomic_load_explicit(&page->nbyte, memory_order_relaxed);
    v->kind = atomic_load_explicit(&page->kind, memory_order_relaxed);
    v->seq = atomic_load_explicit(&page->seq, memory_order_relaxed);
    v->awaits = atomic_load_explicit(&page->awaits, memory_order_relaxed);
    v->pid = atomic_load_explicit(&page->pid, memory_order_relaxed);
    if (!v->pid) v->pid = job->hosts.pid[r]; // nobody sends that from host to host
    v->heard = atomic_load_explicit(&page->heard, memory_order_relaxed);
    v->life = atomic_load_explicit(&page->life, memory_order_relaxed);
  }
}

// ---- operations and who is missing from them

static int waits(const tr__rank_view *v) { return v->life == TR__RUNNING && v->kind != TR__NONE; }

// Sends and receives are one operation each, of two ranks; the rest is one for all that wait in it.
static int same_operation(const tr__rank_view *a, const tr__rank_view *b) {
  return waits(b) && a->kind == b->kind && a->seq == b->seq && strcmp(a->group, b->group) == 0 &&
         a->kind != TR__SEND && a->kind != TR__RECV;
}

static void append_operation(const tr__rank_view *v, tr_text *out) {
  char size[32];
  tr_format_bytes(size, sizeof size, (double)v->nbyte);
  tr_text_append(out, "%s #%u of group '%s'", tr__kind_name((tr__kind)v->kind), v->seq, v->group);
  if (v->kind != TR__BARRIER && v->kind != TR__CREATE) tr_text_append(out, " (%s)", size);
}

static int is_in(const tr__job *job, int rank, int first) {
  return rank == first || same_operation(&job->view[first], &job->view[rank]);
}

// Somebody in the operation waits for `rank`, which is not in it itself.
static int is_missing(const tr__job *job, int rank, int first) {
  if (is_in(job, rank, first)) return 0;
  for (int r = 0; r < job->options.nrank; r++)
    if (is_in(job, r, first) && job->view[r].awaits == rank) return 1;
  return 0;
}

// "rank 1", "ranks 1 3 4"; nothing for none.
static void append_ranks(const tr__job *job, int first, int (*chosen)(const tr__job *, int, int), tr_text *out) {
  int n = 0;
  for (int r = 0; r < job->options.nrank; r++) n += chosen(job, r, first);
  if (n > 0) tr_text_append(out, n == 1 ? "rank" : "ranks");
  for (int r = 0; r < job->options.nrank; r++)
    if (chosen(job, r, first)) tr_text_append(out, " %d", r);
}

static int seen_before(const tr__job *job, int rank) {
  for (int r = 0; r < rank; r++)
    if (waits(&job->view[r]) && same_operation(&job->view[r], &job->view[rank])) return 1;
  return 0;
}

static void append_missing(const tr__job *job, tr_text *out) {
  int n = 0;
  for (int r = 0; r < job->options.nrank && n < OPERATIONS_MOST; r++) {
    tr_text missing = {0};
    if (!waits(&job->view[r]) || seen_before(job, r)) continue;
    append_ranks(job, r, is_missing, &missing);
    if (missing.data) {
      tr_text_append(out, "%smissing from ", prefix);
      append_operation(&job->view[r], out);
      tr_text_append(out, ": %s; in it: ", missing.data);
      append_ranks(job, r, is_in, out);
      tr_text_append(out, "\n");
      n++;
    }
    tr_text_free(&missing);
  }
}

// ---- ranks

static void append_age(const tr__job *job, int64_t since, tr_text *out) {
  const double seconds = (double)(job->control->stopped - since) * 1e-9;
  if (since > 0 && seconds >= 0) tr_text_append(out, " for %.1f s", seconds);
}

// What a rank of another host was doing is as old as the last word from there.
static void append_news(const tr__job *job, const tr__rank_view *v, tr_text *out) {
  const double seconds = (double)(job->control->stopped - v->heard) * 1e-9;
  if (v->heard && seconds > fresh_seconds) tr_text_append(out, ", as last heard %.1f s before", seconds);
}

// `own`: this host, where there is only one.
static void append_rank(const tr__job *job, int rank, const char *own, tr_text *out) {
  const tr__rank_view *v = &job->view[rank];
  const int lost = rank == job->control->culprit && job->control->status == TR_ERR_PEER && v->life == TR__RUNNING;
  const char *host = job->hosts.count > 1 ? job->hosts.name[job->hosts.of[rank]] : own;
  tr_text_append(out, "%srank %d on %s", prefix, rank, host);
  if (v->pid) tr_text_append(out, " (pid %d)", (int)v->pid);
  tr_text_append(out, ": %s", lost ? "lost; was " : "");
  if (v->life == TR__UNBORN) {
    tr_text_append(out, "not started\n");
    return;
  }
  tr_text_append(out, "%s%s", v->life == TR__ENDED ? "ended after " : "in ", v->what[0] ? v->what : "its start");
  if (v->step >= 0) tr_text_append(out, " of step %lld", (long long)v->step);
  if (v->microbatch >= 0) tr_text_append(out, ", micro-batch %lld", (long long)v->microbatch);
  append_age(job, v->since, out);
  if (waits(v)) {
    tr_text_append(out, ", waiting in ");
    append_operation(v, out);
    if (v->awaits >= 0) tr_text_append(out, " for rank %d", (int)v->awaits);
    append_age(job, v->wait_since, out);
  } else if (v->life == TR__RUNNING && !lost)
    tr_text_append(out, ", waiting for nobody");
  append_news(job, v, out);
  tr_text_append(out, "\n");
}

void tr__report_write(const tr__job *job, const char *host, tr_text *out) {
  const tr__control *c = job->control;
  if (job->options.nrank < 2 || atomic_load_explicit(&c->abort_state, memory_order_acquire) != 2) return;
  if (c->culprit < 0 || (c->status != TR_ERR_PEER && c->status != TR_ERR_TIMEOUT)) return;
  tr_text_append(out, "%s%s\n", prefix, c->sentence);
  append_missing(job, out);
  for (int r = 0; r < job->options.nrank; r++) append_rank(job, r, host, out);
}

void tr__report_say(const tr__job *job, void (*put)(void *user, const char *line, size_t nbyte), void *user) {
  char host[HOST_MOST] = "this host", path[4096];
  tr_text out = {0};
  if (gethostname(host, sizeof host - 1) != 0) snprintf(host, sizeof host, "this host");
  tr__report_write(job, host, &out);
  if (out.data && !out.failed) {
    for (const char *at = out.data, *end; *at; at = end + 1) {
      end = strchr(at, '\n');
      put(user, at, (size_t)(end - at) + 1);
    }
    snprintf(path, sizeof path, "%s/launcher.log", job->options.log_folder ? job->options.log_folder : "");
    if (job->options.log_folder) tr_file_append(path, out.data, out.size);
  }
  tr_text_free(&out);
}

static void print_line(void *user, const char *line, size_t nbyte) { fwrite(line, 1, nbyte, user); }

void tr__report_print(const tr__job *job) { tr__report_say(job, print_line, stderr); }
