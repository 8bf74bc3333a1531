// SPDX-License-Identifier: MIT
// The growing string, sizes and times for people, and the closest word to a misspelt one.
//
// Formatting here is for people: rounded to two or three digits and never read back. Numbers that come in are
// read by parse_number.c. tr_text never reports through a return value: a failed growth sets `failed`, and
// one check at the end of a long run of appends is enough.
#include "trireme/base/text.h"
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Make room for `nbyte` more bytes and the terminating zero.
static int text_reserve(tr_text *text, size_t nbyte) {
  if (text->failed) return 0;
  if (nbyte >= SIZE_MAX / 4 - text->size) {
    text->failed = 1;
    (void)tr_error(TR_ERR_MEMORY, "no memory for a text of %zu more bytes", nbyte);
    return 0;
  }
  size_t need = text->size + nbyte + 1;
  if (need <= text->capacity) return 1;
  size_t capacity = text->capacity ? text->capacity : 64;
  while (capacity < need) capacity *= 2;
  char *data = realloc(text->data, capacity);
  if (!data) {
    text->failed = 1;
    (void)tr_error(TR_ERR_MEMORY, "no memory for a text of %zu bytes", capacity);
    return 0;
  }
  text->data = data;
  text->capacity = capacity;
  return 1;
}

void tr_text_append_bytes(tr_text *text, const void *bytes, size_t nbyte) {
  if (!text_reserve(text, nbyte)) return;
  if (nbyte) memcpy(text->data + text->size, bytes, nbyte);
  text->size += nbyte;
  text->data[text->size] = '\0';
}

void tr_text_fit(tr_text *text) {
  char *data = text->data ? realloc(text->data, text->size + 1) : NULL;
  if (!data) return; // what it has will do
  text->data = data;
  text->capacity = text->size + 1;
}

// How much of a word of n bytes goes on a line with room for `room`.
static size_t part_of(const char *word, size_t n, size_t room, size_t line) {
  size_t end = room < n ? room : n;
  if (n <= line) return n;
  while (end > 0 && word[end - 1] != ',') end--;
  return end ? end : n;
}

void tr_text_wrap(tr_text *out, const char *text, int at, int indent) {
  const size_t first = (size_t)indent, line = TR_TEXT_COLUMNS - first;
  size_t column = (size_t)at;
  while (*text) {
    size_t gap = strspn(text, " "), n = strcspn(text + gap, " \n");
    if (n == 0 && text[gap] == '\n') {
      tr_text_append_bytes(out, "\n", 1);
      text += gap + 1;
      column = 0;
      continue;
    }
    size_t room = column + gap < TR_TEXT_COLUMNS ? TR_TEXT_COLUMNS - column - gap : 0;
    size_t part = part_of(text + gap, n, room, line);
    if (part > room && column > first) {
      tr_text_append(out, "\n%*s", indent, "");
      text += gap;
      part = part_of(text, n, line, line);
      column = first, gap = 0;
    }
    tr_text_append_bytes(out, text, gap + part);
    text += gap + part;
    column += gap + part;
  }
}

void tr_text_append(tr_text *text, const char *format, ...) {
  va_list args, again;
  va_start(args, format);
  va_copy(again, args);
  int n = vsnprintf(NULL, 0, format, args);
  va_end(args);
  if (n < 0) {
    text->failed = 1;
  } else if (text_reserve(text, (size_t)n)) {
    (void)vsnprintf(text->data + text->size, (size_t)n + 1, format, again);
    text->size += (size_t)n;
  }
  va_end(again);
}

void tr_text_free(tr_text *text) {
  free(text->data);
  *text = (tr_text){0};
}

const char *tr_text_plural(int64_t n, const char *ending) { return n == 1 ? "" : ending; }

int tr_text_ends_in(const char *text, const char *suffix) {
  size_t n = strlen(text), m = strlen(suffix);
  return n >= m && strcmp(text + n - m, suffix) == 0;
}

size_t tr_text_mark(const char *text, size_t nbyte) {
  return nbyte >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
}

void tr_format_bytes(char *out, size_t nbyte, double bytes) {
  static const char *const unit[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  size_t i = 0;
  double value = bytes;
  // 1023.95 would print as "1024.0", so the next unit starts a little early.
  for (; fabs(value) >= 1023.95 && i + 1 < sizeof unit / sizeof *unit; i++) value /= 1024;
  int decimals = i == 0 || fabs(value) >= 99.95 ? 0 : 1;
  (void)snprintf(out, nbyte, "%.*f %s", decimals, value, unit[i]);
}

void tr_format_count(char *out, size_t nbyte, double count) {
  static const char *const unit[] = {"", "k", "M", "B", "T"};
  size_t i = 0;
  double value = count;
  for (; fabs(value) >= 999.5 && i + 1 < sizeof unit / sizeof *unit; i++) value /= 1000;
  (void)snprintf(out, nbyte, "%.3g%s", value, unit[i]);
}

// At least a minute: two whole parts, rounded together, so that "59 min 60 s" cannot appear.
static void format_long_duration(char *out, size_t nbyte, const char *sign, double seconds) {
  static const struct {
    double below, small, large;
    const char *large_name, *small_name;
  } step[] = {{3599.5, 1, 60, "min", "s"}, {86370, 60, 3600, "h", "min"}, {INFINITY, 3600, 86400, "d", "h"}};
  size_t i = 0;
  while (i < 2 && seconds >= step[i].below) i++;
  double whole = rint(seconds / step[i].small) * step[i].small;
  double large = floor(whole / step[i].large);
  (void)snprintf(out, nbyte, "%s%.0f %s %02.0f %s", sign, large, step[i].large_name,
                 (whole - large * step[i].large) / step[i].small, step[i].small_name);
}

void tr_format_duration(char *out, size_t nbyte, double seconds) {
  static const struct {
    double below, scale;
    const char *name;
  } step[] = {{0.9995e-6, 1e9, "ns"}, {0.9995e-3, 1e6, "us"}, {0.9995, 1e3, "ms"}, {59.95, 1, "s"}};
  const char *sign = seconds < 0 ? "-" : "";
  double size = fabs(seconds);
  if (!isfinite(seconds) || size == 0) {
    (void)snprintf(out, nbyte, "%g s", seconds);
    return;
  }
  for (size_t i = 0; i < sizeof step / sizeof *step; i++)
    if (size < step[i].below) {
      double value = size * step[i].scale;
      (void)snprintf(out, nbyte, "%s%.*f %s", sign, value < 99.95 ? 1 : 0, value, step[i].name);
      return;
    }
  format_long_duration(out, nbyte, sign, size);
}

enum { WORD_LIMIT = 127 }; // longer words are no slips of the finger

static char folded(char c) {
  if (c == '-') return '_';
  return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

static size_t least(size_t a, size_t b) { return a < b ? a : b; }

// Edits that turn a into b: insert, delete, replace, swap two neighbours. Case, and dash for underscore, are free.
static size_t edit_distance(const char *a, size_t na, const char *b, size_t nb) {
  size_t row[3][WORD_LIMIT + 1];
  for (size_t j = 0; j <= nb; j++) row[0][j] = j;
  for (size_t i = 1; i <= na; i++) {
    size_t *now = row[i % 3];
    const size_t *before = row[(i - 1) % 3], *earlier = row[(i + 1) % 3];
    now[0] = i;
    for (size_t j = 1; j <= nb; j++) {
      char x = folded(a[i - 1]), y = folded(b[j - 1]);
      now[j] = least(before[j - 1] + (x != y), least(before[j], now[j - 1]) + 1);
      if (i > 1 && j > 1 && x == folded(b[j - 2]) && folded(a[i - 2]) == y)
        now[j] = least(now[j], earlier[j - 2] + 1);
    }
  }
  return row[na % 3][nb];
}

const char *tr_text_closest(const char *word, const char *const *candidates, size_t ncandidate) {
  size_t n = strnlen(word, WORD_LIMIT + 1);
  if (n > WORD_LIMIT) return NULL;
  size_t best = n / 3 > 1 ? n / 3 : 1;
  const char *closest = NULL;
  for (size_t i = 0; i < ncandidate; i++) {
    size_t m = strnlen(candidates[i], WORD_LIMIT + 1);
    if (m > WORD_LIMIT) continue;
    size_t distance = edit_distance(word, n, candidates[i], m);
    // Nothing in common ("x" and "a") is no suggestion; among equals the first stays.
    if (distance > best || (closest && distance == best) || distance >= (n > m ? n : m)) continue;
    best = distance;
    closest = candidates[i];
  }
  return closest;
}
