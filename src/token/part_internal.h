// SPDX-License-Identifier: MIT
// What normalizers, decoders and post-processors have in common: each is an object with a "type" and the members of that
// type, and a "Sequence" of them holds others.
#ifndef TRIREME_TOKEN_PART_INTERNAL_H
#define TRIREME_TOKEN_PART_INTERNAL_H

#include "token/pattern_internal.h"
#include "token/token_internal.h"

enum { TR__PART_DEPTH = 8 }; // of sequences in sequences

// The type of a part; `part` ("normalizer") is for messages.
tr_status tr__part_type(const json_t *json, const char *name, const char *part, const char **type);
// TR_ERR_DATA, by name, for a member that is neither "type" nor in `known`, a list with blanks between.
tr_status tr__part_fields(const json_t *json, const char *name, const char *part, const char *known);
// A member that is a string of any bytes. TR_ERR_DATA when it is missing or no string.
tr_status tr__part_string(const json_t *json, const char *name, const char *part, const char *key,
                          tr__piece_text *out);
// A member that is a string of one character.
tr_status tr__part_character(const json_t *json, const char *name, const char *part, const char *key,
                             tr__piece_text *out);
char *tr__copy_bytes(const char *data, size_t nbyte); // NULL with TR_ERR_MEMORY recorded; a zero byte is added

// ---- replace.c
// A member that is put into texts: a string of limited length, copied.
tr_status tr__part_content(const json_t *json, const char *name, const char *part, const char *key, char **out,
                           size_t *nbyte);

// "Replace": what is looked for, a string or a pattern, and what stands for it. Zero-initialise.
typedef struct tr__replacement {
  char *string, *content;
  size_t nstring, ncontent;
  tr__pattern *pattern; // NULL: the string
} tr__replacement;
tr_status tr__replacement_parse(const json_t *json, const char *name, const char *part, tr__replacement *out);
void tr__replacement_free(tr__replacement *replacement);
tr_status tr__replacement_apply(const tr__replacement *self, const char *text, size_t nbyte, tr_text *out); // appends
// A file must not be able to make more of a text than memory holds: TR_ERR_DATA when `grown` bytes are too many for a text
// of nbyte.
tr_status tr__check_growth(size_t nbyte, size_t grown);

#endif
