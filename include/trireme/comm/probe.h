// SPDX-License-Identifier: MIT
// A quick look at every rank and every link of a job before it runs: which one is slow, against the others.
//
// Every rank computes and copies for a moment; then every pair of ranks sends a small and a large message to and fro,
// disjoint pairs at the same time. The least of many repetitions counts, so that a neighbour on the machine or a late
// wake-up is not taken for a slow rank. Links are compared with links of their kind: within a host, or between hosts. A rank
// is slow when even its best link is; what is left are single slow links.
#ifndef TRIREME_COMM_PROBE_H
#define TRIREME_COMM_PROBE_H

#include "trireme/comm/comm.h"

enum { TR_PROBE_BYTES = 1 << 20 }; // the large message; the arena needs twice that

// Between two ranks.
typedef struct tr_probe_pair {
  double least, median; // seconds of one way: half of there and back
} tr_probe_pair;
// Collective over two members of the group, `first` and `second`, who send `nbyte` to each other `repeats` times (at
// most 1024); buffers are the caller's, each of nbyte. Only `first` gets a result.
tr_status tr_probe_between(tr_group *group, int first, int second, const void *out_data, void *in_data, size_t nbyte,
                           int repeats, tr_probe_pair *out);

// How many bytes of a message of f32 this rank adds to another per second, the best of some tries. Local; both are zeroed.
double tr_probe_adding(float *to, float *from, size_t nbyte);

// Of all ranks of a job. The arrays belong to it.
typedef struct tr_probe {
  int nrank;
  int *host;       // [nrank]
  double *compute; // [nrank] FLOP/s
  double *copy;    // [nrank] bytes/s
  double *small;   // [nrank x nrank] seconds of one way for 8 bytes, symmetric
  double *large;   // the same for TR_PROBE_BYTES
} tr_probe;
tr_status tr_probe_create(int nrank, tr_probe *out);
void tr_probe_destroy(tr_probe *probe);
// Collective over all ranks of the job, who all get everything. A few seconds at most on a healthy machine.
tr_status tr_probe_measure(tr_comm *comm, tr_probe *out);

typedef enum tr_probe_kind { TR_PROBE_COMPUTE, TR_PROBE_COPY, TR_PROBE_SMALL, TR_PROBE_LARGE } tr_probe_kind;
typedef struct tr_probe_verdict {
  int slow;       // nonzero: the one named takes at least `factor` times the median
  int rank, peer; // the slowest rank, peer -1; or the two ends of a link
  tr_probe_kind kind;
  double value, median, ratio; // seconds, or per second for compute and copy; ratio of times, at least 1
  char text[400];              // one sentence
} tr_probe_verdict;
// Pure. The median of an even number is the faster of the two in the middle. One rank alone is never slow, and the only link
// of two ranks cannot be compared: the sentence gives its times.
tr_status tr_probe_judge(const tr_probe *probe, double factor, tr_probe_verdict *out);

#endif
