// SPDX-License-Identifier: MIT
// How the samples of a step are dealt to ranks and micro-batches.
//
// Plain: the step's samples are one run of global indices, cut into hands of `micro`. Hands go round the ranks like cards:
// hand j * dp + r is micro-batch j of rank r. The batch of a step and the end of the data cut hands short, so the last
// ones may be small or empty; a rank with none still takes part in every collective.
//
// Balanced: longest first to the emptiest bin (Graham, "Bounds on multiprocessing timing anomalies", 1969: at most 4/3
// of the best possible, as long as no bin is full).
#include "trireme/data/data.h"

#include <stdlib.h>

void tr_deal(int64_t step, int64_t batch, int micro, int dp, int rank, int j, int64_t limit, int64_t *first,
             int *count) {
  int64_t begin = step * batch, end = begin + batch;
  if (limit >= 0 && end > limit) end = limit;
  int64_t start = begin + ((int64_t)j * dp + rank) * micro, left = end - start;
  *first = start;
  *count = left <= 0 ? 0 : left < micro ? (int)left : micro;
}

static int compare(const void *a, const void *b) {
  int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return (x > y) - (x < y);
}

void tr_deal_balanced(const int64_t *length, int n, int nbin, int most, int *bin, int64_t *work) {
  int64_t *order = work, *fill = work + n; // fill: tokens of a bin above 32 bits of its samples
  for (int i = 0; i < n; i++) order[i] = (INT32_MAX - length[i]) << 32 | i;
  for (int b = 0; b < nbin; b++) fill[b] = 0;
  qsort(order, (size_t)n, sizeof *order, compare);
  for (int k = 0; k < n; k++) {
    int i = (int)(order[k] & INT32_MAX), emptiest = -1;
    for (int b = 0; b < nbin; b++) {
      if ((fill[b] & INT32_MAX) < most && (emptiest < 0 || fill[b] >> 32 < fill[emptiest] >> 32)) emptiest = b;
    }
    bin[i] = emptiest;
    fill[emptiest] += (length[i] << 32) + 1;
  }
}
