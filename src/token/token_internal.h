// SPDX-License-Identifier: MIT
// The inside of a tokenizer: the parts of a tokenizer.json, each parsed by its own file into an object of its own.
//
//   text -> added tokens cut out -> normalizer -> pre-tokenizer (words) -> model (numbers) -> template
//   numbers -> token texts -> decoder -> text
//
// All strings here are UTF-8 that has been checked: tokenizer.c repairs the input once, before anything else sees it.
// Every parser gets its member of the file (NULL or JSON null: absent, *out NULL, TR_OK), and `name` for messages. It refuses
// unknown types and fields that it does not honour by name with TR_ERR_DATA. Objects are immutable once parsed.
#ifndef TRIREME_TOKEN_INTERNAL_H
#define TRIREME_TOKEN_INTERNAL_H

#include "trireme/token/tokenizer.h"
#include <jansson.h>

// ---- vocabulary.c: token texts to numbers and back, by hash table; texts may hold any byte
typedef struct tr__vocabulary tr__vocabulary;
tr_status tr__vocabulary_create(size_t expected, tr__vocabulary **out);
void tr__vocabulary_free(tr__vocabulary *vocabulary);
// Copies the text. TR_ERR_DATA when the text has another number already, or the number another text.
tr_status tr__vocabulary_add(tr__vocabulary *vocabulary, const char *text, size_t nbyte, int32_t number);
int32_t tr__vocabulary_find(const tr__vocabulary *vocabulary, const char *text, size_t nbyte);    // -1: none
const char *tr__vocabulary_text(const tr__vocabulary *vocabulary, int32_t number, size_t *nbyte); // NULL: none
int64_t tr__vocabulary_limit(const tr__vocabulary *vocabulary); // largest number + 1
size_t tr__vocabulary_count(const tr__vocabulary *vocabulary);  // of texts

// ---- zero_key.c: keys that hold zero bytes
// Where there are such keys, the text becomes a copy without them; copy->failed: no memory.
void tr__zero_keys_hide(const char **json, size_t *nbyte, tr_text *copy);
tr_status tr__vocabulary_add_key(tr__vocabulary *vocabulary, const char *key, int32_t number); // one with them again

// ---- normalize.c: NFC NFD NFKC NFKD Lowercase Strip StripAccents Replace Prepend Nmt Precompiled BertNormalizer ByteLevel
// Sequence
typedef struct tr__normalizer tr__normalizer;
tr_status tr__normalizer_parse(const json_t *json, const char *name, tr__normalizer **out);
void tr__normalizer_free(tr__normalizer *normalizer);
tr_status tr__normalize(const tr__normalizer *normalizer, const char *text, size_t nbyte, tr_text *out); // appends

// ---- split.c, pattern.c, scan.c: pre-tokenizers: Split ByteLevel Metaspace Digits Punctuation Whitespace WhitespaceSplit
// BertPreTokenizer CharDelimiterSplit UnicodeScripts FixedLength Sequence
typedef struct tr__splitter tr__splitter;

// ---- model: BPE (bpe.c) or Unigram (unigram.c), WordLevel and WordPiece (word.c). One word in, its numbers appended.
typedef struct tr__model tr__model;
typedef struct tr__model_ops {
  void (*free)(tr__model *model);
  tr_status (*encode)(const tr__model *model, void *work, const char *word, size_t nbyte, tr_tokens *out);
  // The same for a word of bytes that stand for characters of the byte-level alphabet; NULL: `encode` gets those characters.
  tr_status (*encode_bytes)(const tr__model *model, void *work, const char *word, size_t nbyte, tr_tokens *out);
  size_t work_nbyte;             // of what one encoder needs; zeroed before the first call
  void (*work_free)(void *work); // may be NULL
} tr__model_ops;
struct tr__model { // first member of every kind
  const tr__model_ops *ops;
  tr__vocabulary *vocabulary; // owned
};
tr_status tr__bpe_parse(const json_t *json, const char *name, tr__model **out);
tr_status tr__unigram_parse(const json_t *json, const char *name, tr__model **out);
tr_status tr__word_parse(const json_t *json, const char *name, tr__model **out);

// ---- template.c: post-processors: TemplateProcessing, BertProcessing, RobertaProcessing, ByteLevel (nothing), Sequence. What stands before
// and after a single sequence.
typedef struct tr__template {
  int32_t *before, *after;
  size_t nbefore, nafter;
} tr__template;
tr_status tr__template_parse(const json_t *json, const char *name, tr__template *out);
void tr__template_free(tr__template *template);

// ---- decoder.c: decoders: ByteLevel Metaspace ByteFallback Fuse Replace Strip WordPiece BPEDecoder CTC Sequence
typedef struct tr__decoder tr__decoder;
tr_status tr__decoder_parse(const json_t *json, const char *name, tr__decoder **out);
void tr__decoder_free(tr__decoder *decoder);
typedef struct tr__piece_text {
  const char *data;
  size_t nbyte;
} tr__piece_text;
// The texts of a run of tokens to text, appended; decoder NULL: joined by single blanks.
tr_status tr__decoder_run(const tr__decoder *decoder, const tr__piece_text *token, size_t ntoken, tr_text *out);

// ---- bytes.c: the byte-level alphabet (each byte as one printable character), UTF-8
int tr__utf8_next(const char *text, size_t nbyte, int32_t *character); // bytes taken, 0 when not valid UTF-8
size_t tr__utf8_put(int32_t character, char out[4]);
int32_t tr__byte_to_character(unsigned char byte); // of the byte-level alphabet
int tr__character_to_byte(int32_t character);      // -1: not in the alphabet
int tr__utf8_valid(const char *text, size_t nbyte);
void tr__bytes_to_alphabet(const char *bytes, size_t nbyte, tr_text *out); // appends

#endif
