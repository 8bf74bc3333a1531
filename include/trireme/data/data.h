// SPDX-License-Identifier: MIT
// Data: tokenizers, token sources, the sampler and batches.
//
// Everything is addressed by global sample index: sample g is the same tokens for every number of ranks, every
// micro-batch size and after every restart. A rank asks for the indices that it was dealt and never keeps a position
// of its own.
#ifndef TRIREME_DATA_DATA_H
#define TRIREME_DATA_DATA_H

#include "trireme/base/status.h"
#include <stddef.h>
#include <stdint.h>

// A tokenizer turns bytes into token numbers 0 .. vocab - 1 and back. The byte tokenizer: token = byte, vocab 256.
typedef struct tr_tokenizer tr_tokenizer;
tr_status tr_tokenizer_open(const char *name, tr_tokenizer **out); // "byte"; unknown names are TR_ERR_CONFIG
void tr_tokenizer_close(tr_tokenizer *tokenizer);
const char *tr_tokenizer_name(const tr_tokenizer *tokenizer);
int64_t tr_tokenizer_vocab(const tr_tokenizer *tokenizer);
// At most nbyte tokens for nbyte bytes; *ntoken is the count written to `token` (room for nbyte).
tr_status tr_tokenizer_encode(const tr_tokenizer *tokenizer, const char *text, size_t nbyte, int32_t *token,
                              size_t *ntoken);
// Bytes of one token into `out` (room for 64); returns how many, 0 for an unknown token.
size_t tr_tokenizer_decode(const tr_tokenizer *tokenizer, int32_t token, char *out);

// A token source: a text file mapped and tokenized on the fly, cut into a training and a validation part. The
// validation part is the last `val_fraction` of the tokens, at least one sequence, or a file of its own.
typedef struct tr_source tr_source;
typedef struct tr_source_options {
  const char *path;     // text file
  const char *val_path; // "" or NULL: cut from path
  double val_fraction;  // of path, when val_path is not given; 0: no validation data
  int64_t sequence;     // tokens per sample
  uint64_t seed;        // of the shuffle
} tr_source_options;
// Copies the options; the tokenizer is kept, not owned. TR_ERR_DATA names the file and what would work: missing,
// empty, a folder, too short for one training sample (2 tokens).
tr_status tr_source_open(const tr_tokenizer *tokenizer, const tr_source_options *options, tr_source **out);
void tr_source_close(tr_source *source);
int64_t tr_source_tokens(const tr_source *source, int validation);  // tokens in that part
int64_t tr_source_samples(const tr_source *source, int validation); // samples in one epoch (the last may be short)
uint64_t tr_source_hash(const tr_source *source); // of size and contents (first and last MiB): kept with checkpoints

// A micro-batch: nseq sequences laid end to end in rows. Row r predicts target[r] from token[r] and what came
// before it in its sequence; target -1: not counted. The arrays are made by tr_batch_create, for nseq_capacity
// sequences, and freed by tr_batch_destroy.
typedef struct tr_batch {
  int nseq, nseq_capacity;
  int64_t rows, rows_capacity;        // rows = nseq * sequence: short samples are padded with target -1
  int64_t valid;                      // rows with target >= 0
  int32_t *token, *target, *position; // [rows]
  int64_t *sample;                    // [rows] global sample index
  int32_t *start;                     // [nseq + 1] first row of each sequence
} tr_batch;

tr_status tr_batch_create(int nseq_capacity, int64_t sequence, tr_batch *out); // TR_ERR_CONFIG, TR_ERR_MEMORY
void tr_batch_destroy(tr_batch *batch);

// Fill with samples first, first + 1, ... first + nseq - 1 (global indices; epoch = index / samples, each epoch in
// its own order by a keyed permutation). nseq 0 gives an empty batch. Validation samples come in file order and only
// exist below tr_source_samples(source, 1). TR_ERR_USAGE for samples that do not exist or do not fit the batch;
// TR_ERR_DATA when the file has become shorter.
tr_status tr_batch_fill(const tr_source *source, int validation, int64_t first, int nseq, tr_batch *batch);

// Position of element i of n under the permutation of this key (a bijection of 0 .. n - 1 without memory: a Feistel
// network with cycle walking; any n >= 1).
uint64_t tr_permute(uint64_t seed, uint64_t epoch, uint64_t n, uint64_t i);

// How a step's samples are dealt. Step s of `batch` sequences over dp ranks and micro-batches of `micro`: micro-batch
// j of rank r takes global indices s*batch + (j*dp + r)*micro ... of which those below `limit` exist (limit < 0: no
// end). Sets first and count (0 <= count <= micro). Pure.
void tr_deal(int64_t step, int64_t batch, int micro, int dp, int rank, int j, int64_t limit, int64_t *first,
             int *count);

#endif
