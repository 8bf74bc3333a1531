// SPDX-License-Identifier: MIT
// Data: sources of samples, batches, how they are dealt, and the ledger of what was used.
//
// Everything is addressed by global sample index: sample g is the same tokens for every number of ranks, every
// micro-batch size and after every restart. A rank asks for the indices that it was dealt and never keeps a position
// of its own.
#ifndef TRIREME_DATA_DATA_H
#define TRIREME_DATA_DATA_H

#include "trireme/data/corpus.h"
#include <jansson.h>

// How tokens become samples of at most `sequence` tokens.
typedef enum tr_packing {
  TR_PACK_STREAM,    // windows of `sequence` over a corpus as one long text; only its last sample is shorter
  TR_PACK_DOCUMENTS, // one document each (longer ones are cut): samples of different lengths
  TR_PACK_FIRST_FIT, // whole documents put together, each into the first sample with room (longer ones are cut)
} tr_packing;

typedef struct tr_source tr_source;
typedef struct tr_source_options {
  const char *const *path; // corpora that are mixed
  const double *weight;    // shares of the samples, any scale, > 0; NULL: by the number of samples
  size_t npath;
  const char *val_path; // "" or NULL: the last val_fraction of every corpus
  double val_fraction;  // at least one sample of it; 0: no validation data
  int64_t sequence;     // most tokens per sample
  uint64_t seed;        // of every order
  tr_packing packing;
  int documents; // 1: attention does not cross document bounds and positions restart there (always so unless STREAM)
  int replacement; // 1: samples are drawn with replacement
  int text;        // corpus options
  int64_t vocab;
  int32_t end;
} tr_source_options;

// Opens the corpora and, where packing or documents need it, finds the bounds of documents. TR_ERR_DATA names the file
// and what would work: too short for one training sample (2 tokens), nothing left to validate on.
tr_status tr_source_open(const tr_source_options *options, tr_source **out);
void tr_source_close(tr_source *source);                            // NULL allowed
int64_t tr_source_tokens(const tr_source *source, int validation);  // tokens in that part
int64_t tr_source_targets(const tr_source *source, int validation); // of which so many are predicted in one epoch
int64_t tr_source_samples(const tr_source *source, int validation); // samples in one epoch of all corpora together
uint64_t tr_source_hash(const tr_source *source);                   // of all corpora: kept with checkpoints
double tr_source_waste(const tr_source *source);                    // share of sample room that no token fills
size_t tr_source_corpora(const tr_source *source);
const tr_corpus *tr_source_corpus(const tr_source *source, size_t i);
// Of the file of its own for validation; 0: there is none.
uint64_t tr_source_validation_hash(const tr_source *source);
// Rows of sample `index` (a global index; validation: below tr_source_samples(source, 1)). Pure.
int64_t tr_source_length(const tr_source *source, int validation, int64_t index);
// Which corpus sample `index` comes from and which of its samples it is.
void tr_source_locate(const tr_source *source, int validation, int64_t index, size_t *corpus, int64_t *sample);

// A micro-batch: samples laid end to end in rows without padding. Row r predicts target[r] from token[r] and what came
// before it in its sequence; target -1: not counted. A sample is one sequence, or one per document in it. The arrays
// are made by tr_batch_create and freed by tr_batch_destroy.
typedef struct tr_batch {
  int nsample, nsample_capacity;
  int nseq; // sequences: as attention sees them
  int64_t rows, rows_capacity;
  int64_t valid;                      // rows with target >= 0
  int32_t *token, *target, *position; // [rows]
  int64_t *sample;                    // [rows] global sample index
  int32_t *start;                     // [nseq + 1] first row of each sequence
} tr_batch;

// Room for this many samples of at most `sequence` rows. TR_ERR_CONFIG, TR_ERR_MEMORY.
tr_status tr_batch_create(int nsample_capacity, int64_t sequence, tr_batch *out);
void tr_batch_destroy(tr_batch *batch);
size_t tr_batch_bytes(int nsample_capacity, int64_t sequence); // that tr_batch_create takes
// Fill with the samples of these global indices, in order; count 0 gives an empty batch. Validation samples come in file
// order. TR_ERR_USAGE for samples that do not exist or do not fit; TR_ERR_DATA when a file has become shorter or holds a
// token beyond the vocabulary. Never allocates.
tr_status tr_batch_fill(const tr_source *source, int validation, const int64_t *index, int count, tr_batch *batch);

// Position of element i of n under the permutation of this key (a bijection of 0 .. n - 1 without memory: a Feistel
// network with cycle walking; any n >= 1).
uint64_t tr_permute(uint64_t seed, uint64_t epoch, uint64_t n, uint64_t i);

// How a step's samples are dealt. Step s of `batch` samples over dp ranks and micro-batches of `micro`: micro-batch
// j of rank r takes global indices s*batch + (j*dp + r)*micro ... of which those below `limit` exist (limit < 0: no
// end). Sets first and count (0 <= count <= micro). Pure.
void tr_deal(int64_t step, int64_t batch, int micro, int dp, int rank, int j, int64_t limit, int64_t *first,
             int *count);
// The same samples dealt so that bins (micro-batches of ranks) get about the same number of tokens: longest first,
// each to the emptiest bin that has room for one more of at most `most` samples; ties by number. length[n] in tokens;
// writes bin[n], 0 .. nbin - 1, and needs `work` of n + nbin entries. n <= nbin * most, and as in a tr_batch no bin can
// get more than INT32_MAX tokens. Pure.
void tr_deal_balanced(const int64_t *length, int n, int nbin, int most, int *bin, int64_t *work);

// ---- the ledger: which samples were used, exactly once
// A tally is what one rank adds up while it trains: how many samples, and a sum of hashes of their indices that does not
// depend on order.
typedef struct tr_tally {
  uint64_t count, digest;
} tr_tally;
void tr_tally_add(tr_tally *tally, int64_t sample);
// What the tally of samples first .. end - 1, each once, must be.
tr_tally tr_tally_expected(int64_t first, int64_t end);

typedef struct tr_ledger_span {
  int64_t first, end; // samples used: first .. end - 1
  int64_t step;       // updates done when they were recorded
  int ranks;          // data-parallel ranks that shared them
  uint64_t digest;
} tr_ledger_span;
typedef struct tr_ledger {
  tr_ledger_span *span; // in order, without gaps
  size_t nspan, capacity;
} tr_ledger;
void tr_ledger_free(tr_ledger *ledger);
// Add samples used since the last record. TR_ERR_VERIFY, naming the samples, when `first` is not where the ledger ends or
// the ranks' tallies (added up) are not those of first .. end - 1 each once. Spans of the same ranks are joined.
tr_status tr_ledger_add(tr_ledger *ledger, int64_t first, int64_t end, int64_t step, int ranks, tr_tally used);
int64_t tr_ledger_end(const tr_ledger *ledger); // the next sample to be used
// As JSON, an array of spans: how it is kept in a checkpoint. Reading refuses gaps, overlaps and wrong digests
// (TR_ERR_CKPT naming `name`).
tr_status tr_ledger_to_json(const tr_ledger *ledger, json_t **out);
tr_status tr_ledger_from_json(const json_t *json, const char *name, tr_ledger *out);

#endif
