// SPDX-License-Identifier: MIT
// The two halves of learning a vocabulary: words with their counts, and the merges learned from them.
#ifndef TRIREME_TOKEN_TRAIN_BPE_INTERNAL_H
#define TRIREME_TOKEN_TRAIN_BPE_INTERNAL_H

#include "token/token_internal.h"

typedef struct tr__counted_word {
  size_t start; // in the text of the words
  uint32_t nbyte;
  uint32_t hash;
  int64_t count;
} tr__counted_word;

typedef struct tr__merge {
  int32_t left, right, token;
} tr__merge;

typedef struct tr__learn_options {
  const char *text;
  const tr__counted_word *word;
  size_t nword;
  size_t ntoken; // wanted, the bytes included
  int64_t min_count;
  void (*progress)(void *user, int64_t done, int64_t all); // may be NULL
  void *user;
} tr__learn_options;

// Add to a vocabulary that holds the 256 bytes, each as its character of the byte-level alphabet, the tokens that merging
// makes. *merge is freed by the caller. There are fewer tokens than wanted where no pair is frequent enough.
tr_status tr__learn_merges(const tr__learn_options *options, tr__vocabulary *vocabulary, tr__merge **merge,
                           size_t *nmerge);

#endif
