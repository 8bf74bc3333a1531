// SPDX-License-Identifier: MIT
// "Replace", which is a normalizer and a decoder: a string, or what a pattern finds, becomes other text.
#include "token/part_internal.h"
#include <stdlib.h>
#include <string.h>

enum { CONTENT_MAX = 1024 };

tr_status tr__part_content(const json_t *json, const char *name, const char *part, const char *key, char **out,
                           size_t *nbyte) {
  tr__piece_text content;
  TR_TRY(tr__part_string(json, name, part, key, &content));
  if (content.nbyte > CONTENT_MAX)
    return tr_error(TR_ERR_DATA, "%s: \"%s\" of a %s has %zu bytes (at most %d)", name, key, part, content.nbyte,
                    CONTENT_MAX);
  *out = tr__copy_bytes(content.data, content.nbyte);
  *nbyte = content.nbyte;
  return *out ? TR_OK : TR_ERR_MEMORY;
}

// Versions of the `tokenizers` library differ in whether "$1" is the text of a group.
static int names_group(const char *content, size_t nbyte) {
  for (size_t i = 0; i + 1 < nbyte; i++) {
    unsigned char next = (unsigned char)content[i + 1];
    int word = next == '_' || next == '{' || next == '$' || (next >= '0' && next <= '9') ||
               ((next | 0x20) >= 'a' && (next | 0x20) <= 'z');
    if (content[i] == '$' && word) return 1;
  }
  return 0;
}

tr_status tr__replacement_parse(const json_t *json, const char *name, const char *part, tr__replacement *out) {
  const json_t *pattern = json_object_get(json, "pattern");
  int regex = json_object_get(pattern, "Regex") != NULL;
  if (json_object_size(pattern) != 1 || !(regex || json_object_get(pattern, "String")))
    return tr_error(TR_ERR_DATA, "%s: \"pattern\" of a %s is neither {\"String\": ...} nor {\"Regex\": ...}", name,
                    part);
  tr__piece_text find;
  TR_TRY(tr__part_string(pattern, name, part, regex ? "Regex" : "String", &find));
  if (find.nbyte == 0) return tr_error(TR_ERR_DATA, "%s: a %s replaces the empty string", name, part);
  TR_TRY(tr__part_content(json, name, part, "content", &out->content, &out->ncontent));
  if (regex && names_group(out->content, out->ncontent))
    return tr_error(TR_ERR_DATA, "%s: a %s replaces a pattern by groups (\"%s\"), which is not done here", name, part,
                    out->content);
  if (regex) return tr__pattern_compile(find.data, find.nbyte, name, &out->pattern);
  out->string = tr__copy_bytes(find.data, find.nbyte);
  out->nstring = find.nbyte;
  return out->string ? TR_OK : TR_ERR_MEMORY;
}

void tr__replacement_free(tr__replacement *replacement) {
  free(replacement->string);
  free(replacement->content);
  tr__pattern_free(replacement->pattern);
  *replacement = (tr__replacement){0};
}

// The next match at or after `from`; *begin beyond nbyte: none.
static tr_status find_next(const tr__replacement *self, tr__matcher *matcher, const char *text, size_t nbyte,
                           size_t from, size_t *begin, size_t *end) {
  if (matcher) return tr__pattern_find(self->pattern, matcher, text, nbyte, from, begin, end);
  const char *found = memmem(text + from, nbyte - from, self->string, self->nstring);
  *begin = found ? (size_t)(found - text) : nbyte + 1;
  *end = *begin + self->nstring;
  return TR_OK;
}

// An empty match counts unless the match before it ended there, as in the `tokenizers` library.
static tr_status replace_all(const tr__replacement *self, tr__matcher *matcher, const char *text, size_t nbyte,
                             tr_text *out) {
  size_t at = 0, from = 0, start = out->size, begin, end;
  while (from <= nbyte && nbyte > 0) {
    TR_TRY(find_next(self, matcher, text, nbyte, from, &begin, &end));
    if (begin > nbyte) break;
    from = end;
    if (begin == end) {
      int32_t character;
      int n = tr__utf8_next(text + end, nbyte - end, &character);
      from += n ? (size_t)n : 1;
      if (end == at && at > 0) continue;
    }
    tr_text_append_bytes(out, text + at, begin - at);
    tr_text_append_bytes(out, self->content, self->ncontent);
    TR_TRY(tr__check_growth(nbyte, out->size - start));
    at = end;
  }
  tr_text_append_bytes(out, text + at, nbyte - at);
  return out->failed ? TR_ERR_MEMORY : TR_OK;
}

static int is_utf8(const char *text, size_t nbyte) {
  int32_t character;
  for (size_t i = 0; i < nbyte;) {
    int n = tr__utf8_next(text + i, nbyte - i, &character);
    if (n == 0) return 0;
    i += (size_t)n;
  }
  return 1;
}

tr_status tr__replacement_apply(const tr__replacement *self, const char *text, size_t nbyte, tr_text *out) {
  if (!self->pattern) return replace_all(self, NULL, text, nbyte, out);
  if (!is_utf8(text, nbyte)) { // decoded bytes; patterns are for characters
    tr_text_append_bytes(out, text, nbyte);
    return out->failed ? TR_ERR_MEMORY : TR_OK;
  }
  tr__matcher *matcher = NULL;
  TR_TRY(tr__matcher_create(&matcher));
  tr__matcher_allow(matcher, tr__matcher_budget(nbyte));
  tr_status status = replace_all(self, matcher, text, nbyte, out);
  tr__matcher_free(matcher);
  return status;
}

tr_status tr__check_growth(size_t nbyte, size_t grown) {
  enum { FREE = 1 << 20, FACTOR = 64 };
  if (grown < FREE || grown / FACTOR <= nbyte) return TR_OK;
  return tr_error(TR_ERR_DATA, "the tokenizer makes more than %zu bytes of a text of %zu", grown, nbyte);
}
