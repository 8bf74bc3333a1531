// SPDX-License-Identifier: MIT
// Unicode's normal forms (annex 15) over utf8proc's tables.
//
// The text is worked off in stretches that cannot influence each other: an ASCII character neither decomposes nor joins
// what stands before it, so a stretch is a run of other characters with the one ASCII character in front. A stretch is
// decomposed, its marks are put in order, and it is composed.
//
// Marks are ordered here rather than by utf8proc, which takes the square of their number: a text may hold a million marks
// on one letter.
#include "token/normalize_internal.h"
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

enum {
  DECOMPOSED_MAX = 32, // characters from one; Unicode's longest is 18
  SORT_BY_INSERTION = 32,
};

typedef struct stretch {
  int32_t *data, *spare; // characters; `spare` is as large
  size_t size, capacity;
} stretch;

static tr_status stretch_reserve(stretch *s, size_t more) {
  if (s->capacity - s->size >= more) return TR_OK;
  size_t capacity = s->capacity ? 2 * s->capacity : 256;
  int32_t *data = realloc(s->data, capacity * sizeof *data);
  if (data) s->data = data;
  int32_t *spare = realloc(s->spare, capacity * sizeof *spare);
  if (spare) s->spare = spare;
  if (!data || !spare) return tr_error(TR_ERR_MEMORY, "no memory to normalize %zu characters", capacity);
  s->capacity = capacity;
  return TR_OK;
}

static int mark_class(int32_t character) { return utf8proc_get_property(character)->combining_class; }

static tr_status decompose(stretch *s, const char *text, size_t nbyte, int form) {
  int options = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | (form & TR__FORM_COMPAT ? UTF8PROC_COMPAT : 0);
  s->size = 0;
  for (size_t i = 0; i < nbyte;) {
    int32_t character;
    int n = tr__utf8_next(text + i, nbyte - i, &character);
    if (n == 0) return tr_error(TR_ERR_INTERNAL, "a text to normalize is not UTF-8");
    TR_TRY(stretch_reserve(s, DECOMPOSED_MAX));
    utf8proc_ssize_t got =
        utf8proc_decompose_char(character, s->data + s->size, DECOMPOSED_MAX, (utf8proc_option_t)options, NULL);
    if (got < 0 || got > DECOMPOSED_MAX)
      return tr_error(TR_ERR_INTERNAL, "U+%04X cannot be decomposed: %s", (unsigned)character,
                      got < 0 ? utf8proc_errmsg(got) : "too long");
    s->size += (size_t)got;
    i += (size_t)n;
  }
  return TR_OK;
}

// A run of marks by class, those of one class staying in order.
static void order_run(int32_t *mark, int32_t *spare, size_t n) {
  if (n <= SORT_BY_INSERTION) {
    for (size_t i = 1; i < n; i++) {
      int32_t moved = mark[i];
      size_t at = i;
      for (int class = mark_class(moved); at > 0 && mark_class(mark[at - 1]) > class; at--) mark[at] = mark[at - 1];
      mark[at] = moved;
    }
    return;
  }
  size_t place[257] = {0};
  for (size_t i = 0; i < n; i++) place[mark_class(mark[i]) + 1]++;
  for (int class = 0; class < 256; class ++) place[class + 1] += place[class];
  for (size_t i = 0; i < n; i++) spare[place[mark_class(mark[i])]++] = mark[i];
  memcpy(mark, spare, n * sizeof *mark);
}

static void order_marks(stretch *s) {
  for (size_t i = 0; i < s->size; i++) {
    size_t begin = i;
    while (i < s->size && mark_class(s->data[i]) != 0) i++;
    if (i - begin > 1) order_run(s->data + begin, s->spare, i - begin);
  }
}

static tr_status compose(stretch *s) {
  utf8proc_ssize_t n = utf8proc_normalize_utf32(s->data, (utf8proc_ssize_t)s->size,
                                                (utf8proc_option_t)(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  if (n < 0) return tr_error(TR_ERR_INTERNAL, "a text cannot be composed: %s", utf8proc_errmsg(n));
  s->size = (size_t)n;
  return TR_OK;
}

static tr_status normalize_stretch(stretch *s, const char *text, size_t nbyte, int form, tr_text *out) {
  TR_TRY(decompose(s, text, nbyte, form));
  order_marks(s);
  if (form & TR__FORM_COMPOSE) TR_TRY(compose(s));
  for (size_t i = 0; i < s->size; i++) {
    char bytes[4];
    tr_text_append_bytes(out, bytes, tr__utf8_put(s->data[i], bytes));
  }
  return TR_OK;
}

static int is_ascii(char byte) { return (unsigned char)byte < 0x80; }

tr_status tr__unicode_form(const char *text, size_t nbyte, int form, tr_text *out) {
  stretch s = {0};
  tr_status status = TR_OK;
  for (size_t i = 0; i < nbyte && status == TR_OK;) {
    size_t begin = i;
    while (i < nbyte && is_ascii(text[i])) i++;
    size_t plain = i < nbyte && i > begin ? i - 1 : i; // the last before other characters belongs to them
    tr_text_append_bytes(out, text + begin, plain - begin);
    while (i < nbyte && !is_ascii(text[i])) i++;
    if (i > plain) status = normalize_stretch(&s, text + plain, i - plain, form, out);
  }
  free(s.data);
  free(s.spare);
  return out->failed ? TR_ERR_MEMORY : status;
}
