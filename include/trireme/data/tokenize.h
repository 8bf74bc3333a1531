// SPDX-License-Identifier: MIT
// From text files to token files: streaming, parallel, resumable, with the same bytes whatever the number of threads.
#ifndef TRIREME_DATA_TOKENIZE_H
#define TRIREME_DATA_TOKENIZE_H

#include "trireme/data/corpus.h"
#include "trireme/token/tokenizer.h"

typedef struct tr_tokenize_progress {
  int64_t bytes, tokens, documents; // so far
  double share;                     // of all input, 0 .. 1
  double seconds;
} tr_tokenize_progress;

typedef struct tr_tokenize_options {
  const tr_tokenizer *tokenizer;
  const char *const *path; // text files, in order
  size_t npath;
  const char *key; // JSON lines: member with the text; NULL: "text"
  const char *output;
  tr_corpus_format format;
  int split;   // plain text: documents end at blank lines
  int end;     // append tr_tokenizer_end() to every document, where the tokenizer has one
  int nthread; // >= 1
  // Called about twice a second; return 0 to stop (TR_PENDING; the work done so far is kept for resuming).
  int (*progress)(void *user, const tr_tokenize_progress *progress);
  void *user;
} tr_tokenize_options;

// Write OUTPUT.bin (and .idx). Work that was stopped or killed leaves OUTPUT.partial.json beside its temporary files;
// the same call goes on there when inputs, tokenizer and options are the same, and starts over when not.
tr_status tr_tokenize(const tr_tokenize_options *options, tr_tokenize_progress *done);

#endif
