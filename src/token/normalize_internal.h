// SPDX-License-Identifier: MIT
// The two normalizers that are more than a map of characters: Unicode's normal forms and SentencePiece's precompiled map.
#ifndef TRIREME_TOKEN_NORMALIZE_INTERNAL_H
#define TRIREME_TOKEN_NORMALIZE_INTERNAL_H

#include "token/token_internal.h"

// ---- unicode_form.c
enum { TR__FORM_COMPOSE = 1, TR__FORM_COMPAT = 2 }; // 0: NFD, 1: NFC, 2: NFKD, 3: NFKC
tr_status tr__unicode_form(const char *text, size_t nbyte, int form, tr_text *out); // appends

// ---- charsmap.c
typedef struct tr__charsmap tr__charsmap;
tr_status tr__charsmap_parse(const char *base64, size_t nbyte, const char *name, tr__charsmap **out);
void tr__charsmap_free(tr__charsmap *map);
tr_status tr__charsmap_apply(const tr__charsmap *map, const char *text, size_t nbyte, tr_text *out); // appends

#endif
