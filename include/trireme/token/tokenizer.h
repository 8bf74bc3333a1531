// SPDX-License-Identifier: MIT
// Tokenizers: from bytes to token numbers and back.
//
// "byte" is built in (token = byte, 256 tokens). Everything else is a tokenizer.json in the form of the `tokenizers`
// library: byte-level BPE (GPT-2, Llama 3, Qwen), SentencePiece-style BPE with byte fallback (Llama 1-2), Unigram, with
// normalizers, pre-tokenizers, added and special tokens, templates and decoders; numbers are the same as that library's.
// Bytes that are not UTF-8 are replaced by U+FFFD first, as the maximal subparts that Unicode recommends.
//
// A tokenizer is immutable once open and may be shared by threads; what encoding needs to write lives in an encoder,
// one per thread. Files are not trusted: sizes, counts and depth are limited, patterns run with match, depth and heap
// limits, and what is not understood is refused by name (TR_ERR_DATA).
#ifndef TRIREME_TOKEN_TOKENIZER_H
#define TRIREME_TOKEN_TOKENIZER_H

#include "trireme/base/status.h"
#include "trireme/base/text.h"
#include <stddef.h>
#include <stdint.h>

typedef struct tr_tokenizer tr_tokenizer;
typedef struct tr_encoder tr_encoder;

// "byte", a tokenizer.json, or a folder that holds one. TR_ERR_CONFIG when there is no such thing, TR_ERR_DATA for a file
// that cannot be used.
tr_status tr_tokenizer_open(const char *name, tr_tokenizer **out);
// From a text in memory; `name` is for messages.
tr_status tr_tokenizer_parse(const char *text, size_t nbyte, const char *name, tr_tokenizer **out);
void tr_tokenizer_close(tr_tokenizer *tokenizer); // NULL allowed
const char *tr_tokenizer_name(const tr_tokenizer *tokenizer);
int64_t tr_tokenizer_vocab(const tr_tokenizer *tokenizer); // largest number + 1, added tokens included
uint64_t tr_tokenizer_hash(const tr_tokenizer *tokenizer); // of everything that decides numbers
int tr_tokenizer_is_bytes(const tr_tokenizer *tokenizer);  // 1 for "byte": token i of a text is its byte i
// Number of a token by its text as the file spells it ("<|endoftext|>"); -1: none.
int32_t tr_tokenizer_find(const tr_tokenizer *tokenizer, const char *token);
// The token that ends a document: the first of <|endoftext|>, <|end_of_text|>, </s>, <|im_end|>, <eos> that is a special
// token; -1 when there is none.
int32_t tr_tokenizer_end(const tr_tokenizer *tokenizer);

// Tokens in a growing array. Zero-initialise; tr_tokens_free when done.
typedef struct tr_tokens {
  int32_t *data;
  size_t size, capacity;
} tr_tokens;
void tr_tokens_free(tr_tokens *tokens);
tr_status tr_tokens_reserve(tr_tokens *tokens, size_t more); // room for `more` beyond size; TR_ERR_MEMORY

tr_status tr_encoder_create(const tr_tokenizer *tokenizer, tr_encoder **out); // keeps the tokenizer, does not own it
void tr_encoder_destroy(tr_encoder *encoder);                                 // NULL allowed

enum {
  TR_ENCODE_TEMPLATE = 1, // apply the post-processor's template (<s> before a sequence, say)
  TR_ENCODE_PLAIN = 2,    // special tokens spelled in the text are text
};
// Append the tokens of one text to `out`. TR_ERR_DATA when a pattern exceeds its limits, TR_ERR_MEMORY.
tr_status tr_encode(tr_encoder *encoder, const char *text, size_t nbyte, int flags, tr_tokens *out);

// A copy with every maximal subpart that is not UTF-8 replaced by U+FFFD, appended.
void tr_utf8_repair(const char *text, size_t nbyte, tr_text *out);

// Append the text of tokens to `out`: bytes of a byte-level or byte-fallback vocabulary are put together; unknown numbers are
// skipped. `skip_special`: special tokens leave nothing. What is not UTF-8 comes out as the bytes that it is.
tr_status tr_decode(const tr_tokenizer *tokenizer, const int32_t *token, size_t ntoken, int skip_special,
                    tr_text *out);

#endif
