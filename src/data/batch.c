// SPDX-License-Identifier: MIT
// Batches: samples of a source laid end to end in rows.
//
// Sequence q of a batch owns the rows q * sequence .. (q + 1) * sequence - 1. A short sample fills the first
// of them; the rest are padding with token 0, target -1 and positions that go on, so kernels need no special
// case. All sizes are fixed by tr_batch_create: filling never allocates.
#include "data/source_internal.h"

#include <stdlib.h>

tr_status tr_batch_create(int nseq_capacity, int64_t sequence, tr_batch *out) {
  // `start` counts rows in 32 bits.
  if (nseq_capacity < 0 || sequence < 1 || sequence >= INT32_MAX ||
      (nseq_capacity > 0 && sequence > INT32_MAX / nseq_capacity)) {
    return tr_error(TR_ERR_CONFIG,
                    "a micro-batch of %d sequences of %lld tokens does not work; sequences >= 0, tokens >= 1 "
                    "and at most %d rows in all would",
                    nseq_capacity, (long long)sequence, INT32_MAX);
  }
  tr_batch batch = {.nseq_capacity = nseq_capacity, .rows_capacity = nseq_capacity * sequence};
  size_t rows = batch.rows_capacity > 0 ? (size_t)batch.rows_capacity : 1;
  batch.token = calloc(rows, sizeof *batch.token);
  batch.target = calloc(rows, sizeof *batch.target);
  batch.position = calloc(rows, sizeof *batch.position);
  batch.sample = calloc(rows, sizeof *batch.sample);
  batch.start = calloc((size_t)nseq_capacity + 1, sizeof *batch.start);
  if (!batch.token || !batch.target || !batch.position || !batch.sample || !batch.start) {
    tr_batch_destroy(&batch);
    return tr_error(TR_ERR_MEMORY, "no memory for a micro-batch of %d sequences of %lld tokens", nseq_capacity,
                    (long long)sequence);
  }
  *out = batch;
  return TR_OK;
}

void tr_batch_destroy(tr_batch *batch) {
  free(batch->token);
  free(batch->target);
  free(batch->position);
  free(batch->sample);
  free(batch->start);
  *batch = (tr_batch){0};
}

static tr_status check_request(const tr_source *source, int validation, int64_t first, int nseq,
                               const tr_batch *batch) {
  if (nseq < 0 || nseq > batch->nseq_capacity || nseq * source->sequence > batch->rows_capacity) {
    return tr_error(TR_ERR_USAGE,
                    "%d sequences of %lld tokens do not fit a batch made for %d sequences and %lld rows", nseq,
                    (long long)source->sequence, batch->nseq_capacity, (long long)batch->rows_capacity);
  }
  if (nseq == 0) return TR_OK;
  int64_t limit = validation ? tr_source_samples(source, 1) : INT64_MAX;
  if (first < 0 || first > limit - nseq) {
    return tr_error(TR_ERR_USAGE, "samples %lld and %d more do not exist: %s indices go from 0 to %lld",
                    (long long)first, nseq - 1, validation ? "validation" : "training", (long long)(limit - 1));
  }
  return TR_OK;
}

static int64_t window_of(const tr_source *source, int validation, int64_t index) {
  if (validation) return index;
  int64_t samples = tr_source_samples(source, 0);
  return (int64_t)tr_permute(source->seed, (uint64_t)(index / samples), (uint64_t)samples,
                             (uint64_t)(index % samples));
}

// Sample `index` into the rows from `row` on.
static tr_status fill_sample(const tr_source *source, int validation, int64_t index, int64_t row, tr_batch *batch) {
  int64_t count, sequence = source->sequence;
  int32_t *token = batch->token + row, *target = batch->target + row;
  TR_TRY(tr__source_window(source, validation, window_of(source, validation, index), token, target, &count));
  for (int64_t i = count; i < sequence; i++) {
    token[i] = 0;
    target[i] = -1;
  }
  for (int64_t i = 0; i < sequence; i++) {
    batch->position[row + i] = (int32_t)i;
    batch->sample[row + i] = index;
  }
  batch->valid += count;
  return TR_OK;
}

tr_status tr_batch_fill(const tr_source *source, int validation, int64_t first, int nseq, tr_batch *batch) {
  TR_TRY(check_request(source, validation, first, nseq, batch));
  TR_TRY(tr__source_check(source, validation));
  batch->nseq = 0;
  batch->rows = batch->valid = 0;
  batch->start[0] = 0;
  for (int q = 0; q < nseq; q++) {
    TR_TRY(fill_sample(source, validation, first + q, batch->rows, batch));
    batch->rows += source->sequence;
    batch->start[q + 1] = (int32_t)batch->rows;
    batch->nseq = q + 1;
  }
  return TR_OK;
}
