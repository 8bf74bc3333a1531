// SPDX-License-Identifier: MIT
// The inside of a source. A source has parts: the training part of every corpus and, in the order of the corpora, their
// validation parts. A part has samples; a sample has runs, each of `count` tokens that follow each other in the corpus,
// predicting the `count` tokens from the second on.
//
// source.c opens corpora and cuts parts, packing.c says which runs a sample has, mixture.c which sample of which part a
// global index means, batch.c puts samples into rows. Read-only after tr_source_open: threads may share one source.
#ifndef TRIREME_DATA_SOURCE_INTERNAL_H
#define TRIREME_DATA_SOURCE_INTERNAL_H

#include "trireme/data/data.h"

typedef struct tr__part {
  const tr_corpus *corpus;
  int64_t sequence;
  int64_t first, end;            // of its tokens (TR_PACK_STREAM) or documents
  int64_t tokens, samples, rows; // rows: of all its samples
  int64_t targets;               // rows whose next token counts
  int64_t *piece_end;            // documents: [end - first] pieces up to the end of each; NULL: stream
  int32_t *piece;                // first fit: pieces by sample; NULL: each piece is a sample
  int64_t *piece_start;          // first fit: [samples + 1] where those of a sample start in `piece`
} tr__part;

typedef struct tr__run {
  int64_t first, count; // rows: tokens first .. first + count - 1; next tokens one later
} tr__run;

enum { TR__TRAIN, TR__VALIDATION, TR__NPART };

struct tr_source {
  tr_source_options options; // without the paths and weights, which belong to the caller
  size_t ncorpus;
  tr_corpus **corpus, *val_corpus; // val_corpus: of val_path
  size_t npart[TR__NPART];
  tr__part *part[TR__NPART];
  uint64_t *share; // [ncorpus + 1] shares of the samples, added up: corpus i has share[i] .. share[i + 1]
};

// Set samples, rows, targets and the tables of a part whose corpus, sequence, first, end and tokens are set.
// `documents`: count targets as when the stream is cut at document bounds.
tr_status tr__part_pack(tr__part *part, tr_packing packing, int documents);
void tr__part_free(tr__part *part);
int64_t tr__part_runs(const tr__part *part, int64_t sample); // how many runs
tr__run tr__part_run(const tr__part *part, int64_t sample, int64_t i);
int64_t tr__part_length(const tr__part *part, int64_t sample); // rows of all its runs

// Set source->share, from `weight` or, when NULL, from the number of samples.
tr_status tr__mixture_open(tr_source *source, const double *weight);

#endif
