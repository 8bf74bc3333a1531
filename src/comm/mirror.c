// SPDX-License-Identifier: MIT
// What ranks of one host see of those of others: a copy of their pages, some times per second.
//
// Waiting and blame (wait.c) look at the pages of ranks waited for: counters, activities, whom they wait for. Pages of
// ranks of other hosts are written here, from what the first rank of that host sends; so a deadline follows a chain of
// waiting ranks across hosts, and a sentence tells what a rank far away was doing. The abort record and the wish to stop
// travel the same way, at once. Times of a page are sent as ages, as hosts have different clocks.
//
// Each host keeps one message under way to each other host, and answers none: what is late is overtaken by the next. The
// last message of a host says that all ranks of all hosts have ended, or that the job has failed; who has sent it and got
// one from every host is done.
#include "external_internal.h"
#include "trireme/base/clock.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PERIOD_NS = 50000000, SILENT_NS = 1000000000, TAG = TR__CONTEXT_LEADERS * TR__NET_LANES + 1 };

typedef struct copy { // of a rank page
  int32_t rank, awaits, life, status;
  uint32_t kind, seq;
  uint64_t beat, nbyte;
  int64_t step, microbatch, age, wait_age, look_age;
  char what[TR__NAME], group[TR__NAME];
} copy;

typedef struct report { // of a host
  int32_t host, last, stop, aborted, status, culprit;
  int32_t npage;
  char sentence[TR__SENTENCE];
  copy page[];
} report;

typedef struct peer { // another host
  int leader;         // its first rank
  report *out;
  tr__message *sending; // NULL: none under way
  int told_last, heard_last;
  int64_t heard; // when last
} peer;

struct tr__mirror {
  tr__net *net;
  peer *peers; // [hosts]; the own one is not used
  report *in;
  size_t in_nbyte;
  tr__message *receiving; // NULL: nothing more is expected
  int64_t told;
  int told_abort;
};

static size_t report_nbyte(const tr__job *job, int host) {
  size_t n = 0;
  for (int r = 0; r < job->options.nrank; r++) n += job->hosts.of[r] == host;
  return sizeof(report) + n * sizeof(copy);
}

// ---- writing

static void write_copy(const tr__job *job, int rank, int64_t now, copy *c) {
  const tr__rank_page *p = &job->page[rank];
  *c = (copy){.rank = rank,
              .life = atomic_load_explicit(&p->life, memory_order_acquire),
              .status = p->status,
              .awaits = atomic_load(&p->awaits),
              .kind = atomic_load(&p->kind),
              .seq = atomic_load(&p->seq),
              .beat = atomic_load(&p->beat),
              .nbyte = atomic_load(&p->nbyte),
              .step = atomic_load(&p->step),
              .microbatch = atomic_load(&p->microbatch),
              .age = now - atomic_load(&p->since),
              .wait_age = now - atomic_load(&p->wait_since),
              .look_age = now - atomic_load(&p->looked)};
  tr__name_load(p->what, c->what);
  tr__name_load(p->group, c->group);
}

static int all_ended(const tr__job *job) {
  for (int r = 0; r < job->options.nrank; r++)
    if (atomic_load_explicit(&job->page[r].life, memory_order_acquire) != TR__ENDED) return 0;
  return 1;
}

static void write_report(const tr__job *job, int64_t now, report *out) {
  char sentence[TR__SENTENCE] = "";
  int culprit = -1;
  out->host = job->hosts.own;
  out->npage = 0;
  out->last = all_ended(job);
  for (int r = 0; r < job->options.nrank; r++)
    if (job->hosts.of[r] == job->hosts.own) write_copy(job, r, now, &out->page[out->npage++]);
  out->stop = (int32_t)atomic_load(&job->control->stop);
  out->aborted = tr__aborted(job);
  if (out->aborted) {
    out->status = tr__abort_status(job, &culprit, sentence, sizeof sentence);
    out->last = 1;
  }
  out->culprit = culprit;
  memcpy(out->sentence, sentence, sizeof sentence);
}

static void tell(tr__mirror *m, int host, int64_t now) {
  tr__net *net = m->net;
  peer *p = &m->peers[host];
  if (p->sending && !tr__message_ended(p->sending)) return;
  if (p->sending) tr__message_free(net, p->sending);
  p->sending = NULL;
  if (p->told_last) return;
  write_report(net->job, now, p->out);
  p->told_last = p->out->last;
  p->sending = tr__net_send(net, p->leader, TAG, p->out, report_nbyte(net->job, net->job->hosts.own), 1);
}

// ---- reading

static void read_copy(tr__job *job, const copy *c, int64_t now) {
  if (c->rank < 0 || c->rank >= job->options.nrank) return;
  tr__rank_page *p = &job->page[c->rank];
  tr__name_store(p->what, c->what);
  tr__name_store(p->group, c->group);
  atomic_store(&p->looked, now - c->look_age);
  atomic_store(&p->awaits, c->awaits);
  atomic_store(&p->kind, c->kind);
  atomic_store(&p->seq, c->seq);
  atomic_store(&p->nbyte, c->nbyte);
  atomic_store(&p->step, c->step);
  atomic_store(&p->microbatch, c->microbatch);
  atomic_store(&p->since, now - c->age);
  atomic_store(&p->wait_since, now - c->wait_age);
  atomic_store(&p->beat, c->beat);
  p->status = c->status;
  atomic_store(&p->heard, now);
  atomic_store_explicit(&p->life, c->life, memory_order_release);
}

static void read_report(tr__mirror *m, const report *in, int64_t now) {
  tr__job *job = m->net->job;
  if (in->host < 0 || in->host >= job->hosts.count || in->host == job->hosts.own) return;
  for (int i = 0; i < in->npage; i++) read_copy(job, &in->page[i], now);
  if (in->stop) atomic_store(&job->control->stop, 1u);
  if (in->aborted) tr__abort(job, in->culprit, (tr_status)in->status, in->sentence);
  m->peers[in->host].heard_last |= in->last;
  m->peers[in->host].heard = now;
}

// What ranks of a host waited for when it was last heard of says nothing about now.
void tr__mirror_hush(tr__mirror *m, int64_t now) {
  tr__job *job = m->net->job;
  for (int r = 0; r < job->options.nrank; r++) {
    const peer *p = &m->peers[job->hosts.of[r]];
    if (p->heard && now - p->heard > SILENT_NS) atomic_store(&job->page[r].awaits, -1);
  }
}

static int heard_all(const tr__mirror *m) {
  int heard = 1;
  for (int h = 0; h < m->net->job->hosts.count; h++) heard &= h == m->net->job->hosts.own || m->peers[h].heard_last;
  return heard;
}

static void hear(tr__mirror *m, int64_t now) {
  while (m->receiving && tr__message_ended(m->receiving)) {
    read_report(m, m->in, now);
    tr__message_free(m->net, m->receiving);
    m->receiving = heard_all(m) ? NULL : tr__net_recv(m->net, TR__MPI_ANY, TAG, m->in, m->in_nbyte, 1);
    tr__net_poll(m->net);
  }
}

// ---- the whole

int tr__mirror_heard(const tr__mirror *m) { return m->receiving && tr__message_ended(m->receiving); }

void tr__mirror_step(tr__mirror *m, int speaks, int64_t now) {
  tr__job *job = m->net->job;
  hear(m, now);
  int news = tr__aborted(job) && !m->told_abort;
  if (!speaks || (!news && now - m->told < PERIOD_NS)) return;
  m->told = now;
  m->told_abort |= news;
  for (int h = 0; h < job->hosts.count; h++)
    if (h != job->hosts.own) tell(m, h, now);
}

int tr__mirror_over(const tr__mirror *m, int speaks) {
  const tr__job *job = m->net->job;
  if (!speaks) return 1;
  for (int h = 0; h < job->hosts.count; h++) {
    const peer *p = &m->peers[h];
    if (h == job->hosts.own) continue;
    if (!p->told_last || (p->sending && !tr__message_ended(p->sending))) return 0;
    if (!p->heard_last && !tr__aborted(job)) return 0;
  }
  return 1;
}

tr_status tr__mirror_create(tr__net *net, tr__mirror **out) {
  const tr__hosts *hosts = &net->job->hosts;
  tr__mirror *m = calloc(1, sizeof *m);
  *out = m;
  if (!m || !(m->peers = calloc((size_t)hosts->count, sizeof *m->peers))) goto no_memory;
  m->net = net;
  for (int h = 0; h < hosts->count; h++) {
    size_t nbyte = report_nbyte(net->job, h);
    if (nbyte > m->in_nbyte) m->in_nbyte = nbyte;
    while (hosts->of[m->peers[h].leader] != h) m->peers[h].leader++;
    m->peers[h].out = calloc(1, report_nbyte(net->job, hosts->own));
    if (!m->peers[h].out) goto no_memory;
  }
  m->in = calloc(1, m->in_nbyte);
  if (!m->in) goto no_memory;
  // Only the first rank of a host is told of the others.
  if (net->rank == m->peers[hosts->own].leader)
    m->receiving = tr__net_recv(net, TR__MPI_ANY, TAG, m->in, m->in_nbyte, 1);
  return TR_OK;
no_memory:
  return tr_error(TR_ERR_MEMORY, "no memory to watch ranks of other hosts");
}

void tr__mirror_destroy(tr__mirror *m) {
  if (!m) return;
  for (int h = 0; m->peers && h < m->net->job->hosts.count; h++) free(m->peers[h].out);
  free(m->peers);
  free(m->in);
  free(m);
}
