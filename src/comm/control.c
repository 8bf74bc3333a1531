// SPDX-License-Identifier: MIT
// The control page: how a job is stopped, and the words in which ranks tell about each other.
//
// The abort word goes 0 -> 1 (one winner writes the record) -> 2 (everybody may read it) and never back. A
// rank killed between 1 and 2 leaves no sentence; readers wait a second for it.
#include "comm_internal.h"
#include "trireme/base/clock.h"
#include "trireme/base/text.h"
#include <stdio.h>
#include <string.h>

enum { STALE_NET_NS = 1000000000 };

void tr__name_store(tr__name name, const char *text) {
  uint64_t words[TR__NAME / 8] = {0};
  if (text) memcpy(words, text, strnlen(text, TR__NAME - 1));
  for (int i = 0; i < TR__NAME / 8; i++) atomic_store_explicit(&name[i], words[i], memory_order_relaxed);
}

void tr__name_load(const tr__name name, char out[TR__NAME]) {
  for (int i = 0; i < TR__NAME / 8; i++) {
    uint64_t word = atomic_load_explicit(&name[i], memory_order_relaxed);
    memcpy(out + 8 * i, &word, sizeof word);
  }
  out[TR__NAME - 1] = 0;
}

int tr__abort(tr__job *job, int culprit, tr_status status, const char *sentence) {
  uint32_t none = 0;
  tr__control *c = job->control;
  if (!atomic_compare_exchange_strong(&c->abort_state, &none, 1u)) return 0;
  c->status = status;
  c->culprit = culprit;
  snprintf(c->sentence, sizeof c->sentence, "%s", sentence);
  tr__report_take(job);
  atomic_store_explicit(&c->abort_state, 2u, memory_order_release);
  return 1;
}

void tr__describe_rank(const tr__job *job, int rank, char out[TR__WHO], size_t nbyte) {
  int pid = atomic_load(&job->page[rank].pid), several = job->hosts.count > 1;
  if (!pid) pid = job->hosts.pid[rank];
  snprintf(out, nbyte, "rank %d (pid %d%s%s)", rank, pid, several ? " on " : "",
           several ? job->hosts.name[job->hosts.of[rank]] : "");
}

int tr__aborted(const tr__job *job) {
  return atomic_load_explicit(&job->control->abort_state, memory_order_relaxed) != 0;
}

tr_status tr__abort_status(const tr__job *job, int *culprit, char *sentence, size_t nbyte) {
  const tr__control *c = job->control;
  for (int i = 0; i < 1000; i++) {
    if (atomic_load_explicit(&c->abort_state, memory_order_acquire) == 2) {
      *culprit = c->culprit;
      snprintf(sentence, nbyte, "%s", c->sentence);
      return (tr_status)c->status;
    }
    tr_clock_sleep_ns(1000000);
  }
  *culprit = -1;
  snprintf(sentence, nbyte, "the job was stopped by a rank that ended before it could say why");
  return TR_ERR_PEER;
}

void tr__describe_activity(const tr__job *job, int rank, char *out, size_t nbyte) {
  const tr__rank_page *page = &job->page[rank];
  char what[TR__NAME], step[32] = "", microbatch[40] = "";
  tr__name_load(page->what, what);
  long long s = atomic_load(&page->step), m = atomic_load(&page->microbatch);
  if (s >= 0) snprintf(step, sizeof step, " of step %lld", s);
  if (m >= 0) snprintf(microbatch, sizeof microbatch, ", micro-batch %lld", m);
  snprintf(out, nbyte, "%s%s%s", what[0] ? what : "its start", step, microbatch);
}

void tr__describe_wait(const tr__job *job, int rank, char *out, size_t nbyte) {
  const tr__rank_page *page = &job->page[rank];
  char group[TR__NAME], size[32];
  tr__kind kind = (tr__kind)atomic_load(&page->kind);
  out[0] = 0;
  if (kind == TR__NONE) return;
  tr__name_load(page->group, group);
  tr_format_bytes(size, sizeof size, (double)atomic_load(&page->nbyte));
  if (kind == TR__BARRIER || kind == TR__CREATE)
    snprintf(out, nbyte, "%s #%u of group '%s'", tr__kind_name(kind), atomic_load(&page->seq), group);
  else
    snprintf(out, nbyte, "%s #%u of group '%s' (%s)", tr__kind_name(kind), atomic_load(&page->seq), group, size);
}

// How long a rank that waits may go without a look (it looks about every millisecond): a part of the deadline, and more than
// the time that pages take from one host to another.
static int64_t stale_ns(const tr__job *job) {
  const int64_t quarter = (int64_t)(job->options.deadline * 0.25e9);
  return job->net && quarter < STALE_NET_NS ? STALE_NET_NS : quarter;
}

int tr__awaited_root(const tr__job *job, int rank, int *waiter, int *circle) {
  int at = rank, first_waiter = *waiter;
  const int64_t stale = tr_clock_ns() - stale_ns(job);
  *circle = 0;
  for (int hop = 0; hop <= job->options.nrank; hop++) {
    int next = atomic_load_explicit(&job->page[at].awaits, memory_order_acquire);
    if (next < 0 || atomic_load_explicit(&job->page[at].looked, memory_order_relaxed) < stale) return at;
    *waiter = at;
    at = next;
  }
  *circle = 1;
  *waiter = first_waiter;
  return rank;
}

// A sentence that does not say whose it is does so where others pass it on.
tr_status tr_comm_check(tr_comm *comm) {
  if (!tr__aborted(comm->job)) return TR_OK;
  char sentence[TR__SENTENCE];
  int culprit;
  tr_status status = tr__abort_status(comm->job, &culprit, sentence, sizeof sentence);
  if (comm->job->net) tr__net_settle(comm->job->net);
  if (culprit < 0 || culprit == comm->rank || strncmp(sentence, "rank", 4) == 0)
    return tr_error(status, "%s", sentence);
  return tr_error(status, "rank %d: %s", culprit, sentence);
}

tr_status tr__fail(tr_comm *comm, int culprit, tr_status status, const char *format, ...) {
  char sentence[TR__SENTENCE];
  va_list args;
  va_start(args, format);
  vsnprintf(sentence, sizeof sentence, format, args);
  va_end(args);
  tr__abort(comm->job, culprit, status, sentence);
  return tr_comm_check(comm);
}

void tr_comm_abort(tr_comm *comm, tr_status status, const char *format, ...) {
  char sentence[TR__SENTENCE];
  va_list args;
  va_start(args, format);
  vsnprintf(sentence, sizeof sentence, format, args);
  va_end(args);
  tr__abort(comm->job, comm->rank, status < 0 ? status : TR_ERR_INTERNAL, sentence);
}

int tr_comm_stop_requested(const tr_comm *comm) {
  return atomic_load_explicit(&comm->job->control->stop, memory_order_relaxed) != 0;
}
