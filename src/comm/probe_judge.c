// SPDX-License-Identifier: MIT
// What a probe's figures say: the slowest rank or link, against the median, as a sentence.
//
// All figures become times, so that larger is slower. First ranks: each is as slow as what it computes, copies, and the best
// of its links of one kind (within a host, between hosts). If none is slow, links, each against those of its kind.
#include "trireme/base/text.h"
#include "trireme/comm/probe.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KINDS = TR_PROBE_LARGE + 1 };

typedef struct candidate {
  int rank, peer;
  double value; // a time
} candidate;

typedef struct judge {
  const tr_probe *probe;
  candidate *list; // room for all pairs
  size_t n;
  tr_probe_verdict worst;
} judge;

static int compare_candidates(const void *a, const void *b) {
  const double x = ((const candidate *)a)->value, y = ((const candidate *)b)->value;
  return (x > y) - (x < y);
}

// The slowest of the list against its median.
static void consider(judge *j, tr_probe_kind kind) {
  if (j->n < 2) return;
  qsort(j->list, j->n, sizeof *j->list, compare_candidates);
  const candidate *slowest = &j->list[j->n - 1];
  const double median = j->list[(j->n - 1) / 2].value, ratio = slowest->value / median;
  if (!(median > 0) || ratio <= j->worst.ratio) return;
  j->worst = (tr_probe_verdict){.rank = slowest->rank, .peer = slowest->peer, .kind = kind, .ratio = ratio};
  const int rate = kind == TR_PROBE_COMPUTE || kind == TR_PROBE_COPY;
  j->worst.value = rate ? 1 / slowest->value : slowest->value;
  j->worst.median = rate ? 1 / median : median;
}

static void add(judge *j, int rank, int peer, double value) { j->list[j->n++] = (candidate){rank, peer, value}; }

static const double *pairs_of(const tr_probe *p, tr_probe_kind kind) {
  return kind == TR_PROBE_SMALL ? p->small : p->large;
}

static int same_kind(const tr_probe *p, int i, int j, int between) {
  return i != j && (p->host[i] != p->host[j]) == between;
}

static void consider_rates(judge *j, tr_probe_kind kind, const double *rate) {
  j->n = 0;
  for (int r = 0; r < j->probe->nrank; r++) add(j, r, -1, 1 / rate[r]);
  consider(j, kind);
}

static void consider_best_links(judge *j, tr_probe_kind kind, int between) {
  const tr_probe *p = j->probe;
  const double *pair = pairs_of(p, kind);
  j->n = 0;
  for (int r = 0; r < p->nrank; r++) {
    double best = 0;
    for (int k = 0; k < p->nrank; k++) {
      const double value = pair[r * p->nrank + k];
      if (same_kind(p, r, k, between) && (best <= 0 || value < best)) best = value;
    }
    if (best > 0) add(j, r, -1, best);
  }
  consider(j, kind);
}

static void consider_links(judge *j, tr_probe_kind kind, int between) {
  const tr_probe *p = j->probe;
  j->n = 0;
  for (int r = 0; r < p->nrank; r++)
    for (int k = r + 1; k < p->nrank; k++)
      if (same_kind(p, r, k, between)) add(j, r, k, pairs_of(p, kind)[r * p->nrank + k]);
  consider(j, kind);
}

// Of two ranks, the faster is what the other is held against; "the median" would promise more.
static void describe(const tr_probe_verdict *v, int nrank, char *out, size_t nbyte) {
  char value[32], median[32], large[32];
  tr_format_bytes(large, sizeof large, TR_PROBE_BYTES);
  if (v->kind == TR_PROBE_COMPUTE || v->kind == TR_PROBE_COPY) {
    snprintf(value, sizeof value, "%.1f", v->value * 1e-9);
    snprintf(median, sizeof median, "%.1f", v->median * 1e-9);
    snprintf(out, nbyte, "it %s at %s %s, %.2f times slower than %s %s",
             v->kind == TR_PROBE_COMPUTE ? "computes" : "copies", value,
             v->kind == TR_PROBE_COMPUTE ? "GFLOP/s" : "GB/s", v->ratio,
             nrank == 2 ? "the other rank with" : "the median of", median);
    return;
  }
  tr_format_duration(value, sizeof value, v->value);
  tr_format_duration(median, sizeof median, v->median);
  snprintf(out, nbyte, "%s%s take %s, %.2f times the median of %s", v->kind == TR_PROBE_SMALL ? "8 B" : large,
           v->peer < 0 ? " over its best link" : "", value, v->ratio, median);
}

// What two ranks cannot tell: their one link may be as slow as it likes.
static void say_one_link(const tr_probe *p, tr_probe_verdict *v) {
  const size_t used = strlen(v->text);
  char small[32], large[32], bytes[32];
  tr_format_duration(small, sizeof small, p->small[1]);
  tr_format_duration(large, sizeof large, p->large[1]);
  tr_format_bytes(bytes, sizeof bytes, TR_PROBE_BYTES);
  snprintf(v->text + used, sizeof v->text - used,
           "; their only link takes %s for 8 B and %s for %s, and there is no other to compare it with", small, large,
           bytes);
}

static void say(tr_probe_verdict *v, int nrank) {
  char what[160], who[64];
  describe(v, nrank, what, sizeof what);
  if (v->peer < 0)
    snprintf(who, sizeof who, "rank %d", v->rank);
  else
    snprintf(who, sizeof who, "the link between ranks %d and %d", v->rank, v->peer);
  if (v->rank < 0)
    snprintf(v->text, sizeof v->text, "%d rank: there is nothing to compare it with", nrank);
  else if (v->slow)
    snprintf(v->text, sizeof v->text, "%s is slow: %s", who, what);
  else
    snprintf(v->text, sizeof v->text, "no rank %sis slow; the slowest is %s: %s", nrank == 2 ? "" : "or link ", who,
             what);
}

tr_status tr_probe_judge(const tr_probe *p, double factor, tr_probe_verdict *out) {
  judge j = {.probe = p, .worst = {.rank = -1, .peer = -1}};
  j.list = calloc((size_t)p->nrank * (size_t)p->nrank, sizeof *j.list);
  if (!j.list) return tr_error(TR_ERR_MEMORY, "no memory to compare %d ranks", p->nrank);
  consider_rates(&j, TR_PROBE_COMPUTE, p->compute);
  consider_rates(&j, TR_PROBE_COPY, p->copy);
  for (int kind = TR_PROBE_SMALL; kind < KINDS; kind++)
    for (int between = 0; between < 2; between++) consider_best_links(&j, (tr_probe_kind)kind, between);
  if (j.worst.ratio < factor)
    for (int kind = TR_PROBE_SMALL; kind < KINDS; kind++)
      for (int between = 0; between < 2; between++) consider_links(&j, (tr_probe_kind)kind, between);
  free(j.list);
  j.worst.slow = j.worst.rank >= 0 && j.worst.ratio >= factor;
  say(&j.worst, p->nrank);
  if (p->nrank == 2) say_one_link(p, &j.worst);
  *out = j.worst;
  return TR_OK;
}
