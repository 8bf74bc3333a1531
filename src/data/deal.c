// SPDX-License-Identifier: MIT
// How the samples of a step are dealt to ranks and micro-batches.
//
// The step's samples are one run of global indices, cut into hands of `micro`. Hands go round the ranks like
// cards: hand j * dp + r is micro-batch j of rank r. The batch of a step and the end of the data cut hands
// short, so the last ones may be small or empty; a rank with none still takes part in every collective.
#include "trireme/data/data.h"

void tr_deal(int64_t step, int64_t batch, int micro, int dp, int rank, int j, int64_t limit, int64_t *first,
             int *count) {
  int64_t begin = step * batch, end = begin + batch;
  if (limit >= 0 && end > limit) end = limit;
  int64_t start = begin + ((int64_t)j * dp + rank) * micro, left = end - start;
  *first = start;
  *count = left <= 0 ? 0 : left < micro ? (int)left : micro;
}
