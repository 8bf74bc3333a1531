// SPDX-License-Identifier: MIT
// What tokenizers and encoders are made of: added tokens (added.c), the cache of words (cache.c), and the tokenizer itself.
#ifndef TRIREME_TOKEN_TOKENIZER_INTERNAL_H
#define TRIREME_TOKEN_TOKENIZER_INTERNAL_H

#include "token/split_internal.h"
#include "token/token_internal.h"

// ---- added.c: tokens that are found in the text itself, before anything cuts it
typedef struct tr__added tr__added;
typedef struct tr__added_set tr__added_set; // what is looked for in raw texts, or in normalized ones
typedef struct tr__added_match {
  size_t start, end; // with the blanks that belong to it
  int32_t number;
} tr__added_match;
tr_status tr__added_parse(const json_t *json, const char *name, const tr__vocabulary *vocabulary,
                          const tr__normalizer *normalizer, tr__added **out);
void tr__added_free(tr__added *added);
const tr__added_set *tr__added_raw(const tr__added *added);
const tr__added_set *tr__added_normalized(const tr__added *added);
const tr__vocabulary *tr__added_vocabulary(const tr__added *added);
int tr__added_is_special(const tr__added *added, int32_t number);
// What the token decodes to: its text as it is looked for, so normalized if that is where it is found. NULL: not an added one.
const char *tr__added_text(const tr__added *added, int32_t number, size_t *nbyte);
// The next one at *from or later; 1: found. `past`: where the one before ended. `plain`: special tokens are text.
int tr__added_find(const tr__added_set *set, const char *text, size_t nbyte, int plain, size_t past, size_t *from,
                   tr__added_match *match);

// ---- cache.c: short words and their numbers, as many as fit; a new one takes the place of an old one
typedef struct tr__cache tr__cache;
tr_status tr__cache_create(tr__cache **out);
void tr__cache_free(tr__cache *cache);
enum { TR__CACHE_WORD = 32, TR__CACHE_NUMBERS = 7 }; // longer words and those of more numbers are not kept
typedef struct tr__probe {
  const char *word;
  size_t nbyte;
  uint64_t key[TR__CACHE_WORD / 8];
  void *set; // where the word is if it is there; NULL: too long
} tr__probe;
// `readable` >= nbyte: bytes at `word` that may be read.
void tr__cache_aim(const tr__cache *cache, const char *word, size_t nbyte, size_t readable, tr__probe *probe);
int tr__cache_find(const tr__probe *probe, tr_tokens *out); // append the numbers; 1: there. `out` has room
void tr__cache_put(const tr__probe *probe, const int32_t *number, size_t n);

struct tr_tokenizer {
  char *name;
  int bytes; // "byte": nothing below `vocab` is set
  uint64_t hash;
  int64_t vocab;
  tr__normalizer *normalizer;
  tr__splitter *splitter;
  tr__model *model;
  tr__template template;
  tr__decoder *decoder;
  tr__added *added;
};

#endif
