// SPDX-License-Identifier: MIT
// Learning a byte-level BPE vocabulary from text (Sennrich et al., "Neural machine translation of rare words with
// subword units"): words are counted, then the most frequent pair of neighbours becomes a token, again and again. Ties
// go to the pair with the smaller numbers, so the same words give the same vocabulary on every machine.
#ifndef TRIREME_TOKEN_TRAIN_BPE_H
#define TRIREME_TOKEN_TRAIN_BPE_H

#include "trireme/base/status.h"
#include "trireme/base/text.h"
#include <stddef.h>
#include <stdint.h>

typedef struct tr_bpe_trainer tr_bpe_trainer;
typedef struct tr_bpe_trainer_options {
  int64_t vocab;              // tokens wanted, 256 bytes and the special ones included
  const char *pattern;        // "gpt2", "llama3" or "qwen": how text is cut into words
  const char *const *special; // special tokens, numbered after the merges
  size_t nspecial;
  int64_t min_count; // pairs seen less often make no token
} tr_bpe_trainer_options;

tr_status tr_bpe_trainer_create(const tr_bpe_trainer_options *options, tr_bpe_trainer **out);
void tr_bpe_trainer_destroy(tr_bpe_trainer *trainer);
tr_status tr_bpe_trainer_add(tr_bpe_trainer *trainer, const char *text, size_t nbyte); // count the words of a text
// Learn, and append the finished tokenizer.json to `out`. progress (may be NULL) is called after every so many merges.
tr_status tr_bpe_trainer_finish(tr_bpe_trainer *trainer, void (*progress)(void *user, int64_t done, int64_t all),
                                void *user, tr_text *out);

#endif
