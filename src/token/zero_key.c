// SPDX-License-Identifier: MIT
// Vocabularies with a token that holds a zero byte: {"vocab": {"\u0000": 3}}.
//
// The parser of JSON takes zero bytes in values but not in keys. So before parsing, such a byte of a key becomes three
// noncharacters in a row, which no text is known to hold, and the tokens get it back when they enter the vocabulary.
#include "token/token_internal.h"

#include <string.h>

#define ZERO     "\\u0000"
#define STAND_IN "\xEF\xB7\x90\xEF\xB7\x91\xEF\xB7\x92" // U+FDD0 U+FDD1 U+FDD2
enum { NZERO = sizeof ZERO - 1, NSTAND_IN = sizeof STAND_IN - 1 };

// Behind the string that starts at `text` with its quotation mark; `end` when it has none.
static const char *string_end(const char *text, const char *end) {
  for (text++; text < end && *text != '"'; text++) {
    if (*text == '\\' && text + 1 < end) text++;
  }
  return text < end ? text + 1 : end;
}

static int is_key(const char *behind, const char *end) {
  while (behind < end && strchr(" \t\r\n", *behind) && *behind) behind++;
  return behind < end && *behind == ':';
}

static void hide(const char *key, const char *end, tr_text *out) {
  const char *start = key; // of what is not yet copied
  while (key < end) {
    int zero = end - key >= NZERO && memcmp(key, ZERO, NZERO) == 0;
    if (zero) {
      tr_text_append_bytes(out, start, (size_t)(key - start));
      tr_text_append_bytes(out, STAND_IN, NSTAND_IN);
      start = key + NZERO;
    }
    key += zero ? NZERO : *key == '\\' ? 2 : 1;
  }
  tr_text_append_bytes(out, start, (size_t)(end - start));
}

void tr__zero_keys_hide(const char **json, size_t *nbyte, tr_text *copy) {
  const char *text = *json, *end = text + *nbyte, *start = text;
  if (!memmem(text, *nbyte, ZERO, NZERO)) return;
  while ((text = memchr(text, '"', (size_t)(end - text)))) {
    const char *behind = string_end(text, end);
    if (is_key(behind, end)) {
      tr_text_append_bytes(copy, start, (size_t)(text - start));
      hide(text, behind, copy);
      start = behind;
    }
    text = behind;
  }
  tr_text_append_bytes(copy, start, (size_t)(end - start));
  *json = copy->data;
  *nbyte = copy->size;
}

tr_status tr__vocabulary_add_key(tr__vocabulary *vocabulary, const char *key, int32_t number) {
  const char *hidden = strstr(key, STAND_IN);
  if (!hidden) return tr__vocabulary_add(vocabulary, key, strlen(key), number);
  tr_text text = {0};
  for (; hidden; key = hidden + NSTAND_IN, hidden = strstr(key, STAND_IN)) {
    tr_text_append_bytes(&text, key, (size_t)(hidden - key));
    tr_text_append_bytes(&text, "", 1);
  }
  tr_text_append_bytes(&text, key, strlen(key));
  tr_status status = text.failed ? tr_error(TR_ERR_MEMORY, "no memory for a token")
                                 : tr__vocabulary_add(vocabulary, text.data, text.size, number);
  tr_text_free(&text);
  return status;
}
