// SPDX-License-Identifier: MIT
// Tokenizers: a table of named kinds, each a pair of pure functions between bytes and token numbers.
//
// Every kind so far uses the same number of bytes for every token (`unit`). A source leans on that: token i
// of a file is at byte i * unit, so any window can be read without having tokenized what comes before it. A
// kind whose tokens differ in length does not belong in a source without an index of its windows.
#include "data/tokenizer_internal.h"

#include "trireme/base/text.h"
#include <stdlib.h>
#include <string.h>

typedef struct tokenizer_kind {
  const char *name;
  int64_t vocab;
  size_t unit; // bytes per token
  size_t (*encode)(const char *text, size_t nbyte, int32_t *token);
  size_t (*decode)(int32_t token, char *out); // token is known to be in 0 .. vocab - 1
} tokenizer_kind;

struct tr_tokenizer {
  const tokenizer_kind *kind;
};

static size_t byte_encode(const char *text, size_t nbyte, int32_t *token) {
  for (size_t i = 0; i < nbyte; i++) token[i] = (unsigned char)text[i];
  return nbyte;
}

static size_t byte_decode(int32_t token, char *out) {
  out[0] = (char)token;
  return 1;
}

static const tokenizer_kind kinds[] = {
    {.name = "byte", .vocab = 256, .unit = 1, .encode = byte_encode, .decode = byte_decode},
};
enum { NKIND = sizeof kinds / sizeof kinds[0] };

static tr_status unknown_name(const char *name) {
  const char *names[NKIND];
  tr_text list = {0};
  for (int i = 0; i < NKIND; i++) {
    names[i] = kinds[i].name;
    tr_text_append(&list, "%s%s", i ? ", " : "", names[i]);
  }
  const char *closest = tr_text_closest(name, names, NKIND);
  tr_status status = tr_error(TR_ERR_CONFIG, "tokenizer '%s' is not known%s%s%s; there is: %s", name,
                              closest ? " (did you mean '" : "", closest ? closest : "", closest ? "'?)" : "",
                              list.data ? list.data : kinds[0].name);
  tr_text_free(&list);
  return status;
}

tr_status tr_tokenizer_open(const char *name, tr_tokenizer **out) {
  const tokenizer_kind *kind = NULL;
  for (int i = 0; i < NKIND && !kind; i++) {
    if (strcmp(name, kinds[i].name) == 0) kind = &kinds[i];
  }
  if (!kind) return unknown_name(name);
  tr_tokenizer *tokenizer = malloc(sizeof *tokenizer);
  if (!tokenizer) return tr_error(TR_ERR_MEMORY, "no memory for tokenizer '%s'", name);
  tokenizer->kind = kind;
  *out = tokenizer;
  return TR_OK;
}

void tr_tokenizer_close(tr_tokenizer *tokenizer) { free(tokenizer); }

const char *tr_tokenizer_name(const tr_tokenizer *tokenizer) { return tokenizer->kind->name; }

int64_t tr_tokenizer_vocab(const tr_tokenizer *tokenizer) { return tokenizer->kind->vocab; }

size_t tr__tokenizer_unit(const tr_tokenizer *tokenizer) { return tokenizer->kind->unit; }

tr_status tr_tokenizer_encode(const tr_tokenizer *tokenizer, const char *text, size_t nbyte, int32_t *token,
                              size_t *ntoken) {
  if (nbyte % tokenizer->kind->unit != 0) {
    return tr_error(TR_ERR_DATA, "tokenizer '%s' takes a multiple of %zu bytes, not %zu", tokenizer->kind->name,
                    tokenizer->kind->unit, nbyte);
  }
  *ntoken = tokenizer->kind->encode(text, nbyte, token);
  return TR_OK;
}

size_t tr_tokenizer_decode(const tr_tokenizer *tokenizer, int32_t token, char *out) {
  if (token < 0 || token >= tokenizer->kind->vocab) return 0;
  return tokenizer->kind->decode(token, out);
}
