// SPDX-License-Identifier: MIT
// Cutting text into words: the hand-written scanner (scan.c) and the chain of pre-tokenizers (split.c).
#ifndef TRIREME_TOKEN_SPLIT_INTERNAL_H
#define TRIREME_TOKEN_SPLIT_INTERNAL_H

#include "token/pattern_internal.h"

// ---- scan.c: the patterns of GPT-2, Llama 3 and Qwen 2 without an engine for patterns
typedef enum tr__scan_kind { TR__SCAN_NONE, TR__SCAN_GPT2, TR__SCAN_LLAMA3, TR__SCAN_QWEN2 } tr__scan_kind;
typedef struct tr__classes tr__classes; // of every character: letter, number, blank or other
tr__scan_kind tr__scan_known(const char *regex, size_t nbyte);
const char *tr__scan_regex(tr__scan_kind kind);
tr_status tr__classes_create(tr__classes **out);
void tr__classes_free(tr__classes *classes);
// The end of the word that starts at `at` < nbyte.
size_t tr__scan_next(const tr__classes *classes, tr__scan_kind kind, const char *text, size_t nbyte, size_t at);

// ---- split.c
typedef struct tr__piece {
  size_t start, end;
  int match; // while it is being cut
} tr__piece;
typedef struct tr__pieces {
  tr__piece *data;
  size_t size, capacity;
} tr__pieces;
// What splitting writes to: one per thread. The words are piece.data[i] of `text`.
typedef struct tr__split_work {
  const char *text;
  tr__pieces piece;
  tr__pieces spare, span; // what the words were cut from; one of those being cut
  tr_text rewritten, spare_text;
  tr__matcher *matcher;
} tr__split_work;
tr_status tr__split_work_init(tr__split_work *work);
void tr__split_work_clear(tr__split_work *work);
int tr__is_space(int32_t character); // White_Space
int tr__is_word(int32_t character);  // \w
tr_status tr__splitter_parse(const json_t *json, const char *name, tr__splitter **out);
void tr__splitter_free(tr__splitter *splitter);
// 1: words are bytes that stand for characters of the byte-level alphabet.
int tr__splitter_is_bytes(const tr__splitter *splitter);
// Not TR__SCAN_NONE: tr__scan_next alone cuts as this splitter does.
tr__scan_kind tr__splitter_scan(const tr__splitter *splitter, const tr__classes **classes);
// Cut a text into words. `first`: the text is the beginning of the whole input.
tr_status tr__split(const tr__splitter *splitter, tr__split_work *work, const char *text, size_t nbyte, int first);

#endif
