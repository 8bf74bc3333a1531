// SPDX-License-Identifier: MIT
// Batches: samples of a source laid end to end in rows, without padding.
//
//   rows    | sample 17            | sample 4     |
//   start   0          6           11             16   sample 17 holds two documents
//   position 0 1 2 3 4 5 0 1 2 3 4 0 1 2 3 4
//
// All sizes are fixed by tr_batch_create: filling never allocates.
#include "data/corpus_internal.h"
#include "data/source_internal.h"

#include <stdlib.h>

tr_status tr_batch_create(int nsample_capacity, int64_t sequence, tr_batch *out) {
  // `start` counts rows in 32 bits.
  if (nsample_capacity < 0 || sequence < 1 || sequence >= INT32_MAX ||
      (nsample_capacity > 0 && sequence > INT32_MAX / nsample_capacity)) {
    return tr_error(TR_ERR_CONFIG,
                    "a micro-batch of %d samples of %lld tokens does not work; samples >= 0, tokens >= 1 and at most "
                    "%d rows in all would",
                    nsample_capacity, (long long)sequence, INT32_MAX);
  }
  tr_batch batch = {.nsample_capacity = nsample_capacity, .rows_capacity = nsample_capacity * sequence};
  size_t rows = batch.rows_capacity > 0 ? (size_t)batch.rows_capacity : 1;
  batch.token = calloc(rows, sizeof *batch.token);
  batch.target = calloc(rows, sizeof *batch.target);
  batch.position = calloc(rows, sizeof *batch.position);
  batch.sample = calloc(rows, sizeof *batch.sample);
  batch.start = calloc(rows + 1, sizeof *batch.start); // a sequence may have a single row
  if (!batch.token || !batch.target || !batch.position || !batch.sample || !batch.start) {
    tr_batch_destroy(&batch);
    return tr_error(TR_ERR_MEMORY, "no memory for a micro-batch of %d samples of %lld tokens", nsample_capacity,
                    (long long)sequence);
  }
  *out = batch;
  return TR_OK;
}

size_t tr_batch_bytes(int nsample_capacity, int64_t sequence) {
  enum { BLOCKS = 5, HEAD = 16 }; // what the allocator adds to a block
  const tr_batch *batch = NULL;
  size_t row = sizeof *batch->token + sizeof *batch->target + sizeof *batch->position + sizeof *batch->sample;
  return (size_t)nsample_capacity * (size_t)sequence * (row + sizeof *batch->start) + sizeof *batch->start +
         BLOCKS * HEAD;
}

void tr_batch_destroy(tr_batch *batch) {
  free(batch->token);
  free(batch->target);
  free(batch->position);
  free(batch->sample);
  free(batch->start);
  *batch = (tr_batch){0};
}

static tr_status check_request(const tr_source *source, int validation, const int64_t *index, int count,
                               const tr_batch *batch) {
  int64_t limit = validation ? tr_source_samples(source, 1) : INT64_MAX;
  if (count < 0 || count > batch->nsample_capacity) {
    return tr_error(TR_ERR_USAGE, "%d samples do not fit a batch made for %d", count, batch->nsample_capacity);
  }
  for (int i = 0; i < count; i++) {
    if (index[i] < 0 || index[i] >= limit) {
      return tr_error(TR_ERR_USAGE, "sample %lld does not exist: %s indices go from 0 to %lld", (long long)index[i],
                      validation ? "validation" : "training", (long long)(limit - 1));
    }
  }
  return TR_OK;
}

// The rows from the end of the last sequence up to `end` are one more.
static void add_sequence(tr_batch *batch, int64_t end) {
  int32_t start = batch->start[batch->nseq];
  for (int64_t r = start; r < end; r++) batch->position[r] = (int32_t)(r - start);
  batch->start[++batch->nseq] = (int32_t)end;
}

// A sequence for each document in the rows from `row` on, which are the tokens of `run`; nothing predicts the first token of
// the next document.
static void add_documents(const tr_corpus *corpus, tr__run run, int64_t row, tr_batch *batch) {
  int64_t ndocument = tr_corpus_documents(corpus), end = row + run.count;
  for (int64_t d = tr_corpus_document_of(corpus, run.first) + 1; d < ndocument; d++) {
    int64_t bound = row + tr_corpus_document_start(corpus, d) - run.first;
    if (bound > end) break;
    if (bound == batch->start[batch->nseq]) continue; // an empty document
    batch->target[bound - 1] = -1;
    batch->valid--;
    add_sequence(batch, bound);
  }
  if (batch->start[batch->nseq] < end) add_sequence(batch, end);
}

static tr_status add_run(const tr_source *source, const tr__part *part, tr__run run, int64_t index, tr_batch *batch) {
  int64_t row = batch->rows;
  if (run.count > batch->rows_capacity - row) {
    return tr_error(TR_ERR_USAGE, "sample %lld does not fit: the batch has %lld rows", (long long)index,
                    (long long)batch->rows_capacity);
  }
  TR_TRY(tr__corpus_copy(part->corpus, run.first, run.count, batch->token + row));
  TR_TRY(tr__corpus_copy(part->corpus, run.first + 1, run.count, batch->target + row));
  for (int64_t r = row; r < row + run.count; r++) batch->sample[r] = index;
  batch->rows += run.count;
  batch->valid += run.count;
  if (source->options.packing == TR_PACK_STREAM && source->options.documents) {
    add_documents(part->corpus, run, row, batch);
  } else {
    add_sequence(batch, batch->rows);
  }
  return TR_OK;
}

static tr_status add_sample(const tr_source *source, int validation, int64_t index, tr_batch *batch) {
  size_t corpus;
  int64_t sample;
  tr_source_locate(source, validation, index, &corpus, &sample);
  const tr__part *part = &source->part[validation ? TR__VALIDATION : TR__TRAIN][corpus];
  int64_t nrun = tr__part_runs(part, sample);
  for (int64_t i = 0; i < nrun; i++) TR_TRY(add_run(source, part, tr__part_run(part, sample, i), index, batch));
  batch->nsample++;
  return TR_OK;
}

// What was copied was really in the files: asked once for samples of one corpus that follow each other, not for each.
static tr_status check_corpora(const tr_source *source, int validation, const int64_t *index, int count) {
  const tr_corpus *checked = NULL;
  for (int i = 0; i < count; i++) {
    size_t corpus;
    int64_t sample;
    tr_source_locate(source, validation, index[i], &corpus, &sample);
    const tr_corpus *own = source->part[validation ? TR__VALIDATION : TR__TRAIN][corpus].corpus;
    if (own != checked) TR_TRY(tr__corpus_check(own));
    checked = own;
  }
  return TR_OK;
}

tr_status tr_batch_fill(const tr_source *source, int validation, const int64_t *index, int count, tr_batch *batch) {
  TR_TRY(check_request(source, validation, index, count, batch));
  batch->nsample = batch->nseq = 0;
  batch->rows = batch->valid = 0;
  batch->start[0] = 0;
  for (int i = 0; i < count; i++) TR_TRY(add_sample(source, validation, index[i], batch));
  return check_corpora(source, validation, index, count);
}
