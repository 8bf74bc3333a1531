// SPDX-License-Identifier: MIT
// The three patterns that most byte-level tokenizers cut text with, written out by hand: what an engine for patterns does in
// microseconds per word takes nanoseconds here. test_split.c proves that both cut alike.
//
// Each function takes the position where a word starts and tries the pattern's alternatives in their order. All of them
// are decided by the classes of a few characters, so nothing is ever tried twice.
#include "token/split_internal.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

typedef enum class { OTHER, LETTER, NUMBER, SPACE } class;

enum { CHARACTERS = 0x110000, BLOCK = 256, NBLOCK = CHARACTERS / BLOCK };

// The class of character c is kind[block[c / 256]][c % 256]; equal blocks are stored once.
struct tr__classes {
  uint16_t block[NBLOCK];
  unsigned char (*kind)[BLOCK];
  size_t nkind;
};

static const char *const regexes[] = {
    [TR__SCAN_GPT2] = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+",
    [TR__SCAN_LLAMA3] = "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| "
                        "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
    [TR__SCAN_QWEN2] = "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| "
                       "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
};

const char *tr__scan_regex(tr__scan_kind kind) { return regexes[kind]; }

tr__scan_kind tr__scan_known(const char *regex, size_t nbyte) {
  for (int kind = TR__SCAN_GPT2; kind <= TR__SCAN_QWEN2; kind++) {
    if (strlen(regexes[kind]) == nbyte && memcmp(regexes[kind], regex, nbyte) == 0) return (tr__scan_kind)kind;
  }
  return TR__SCAN_NONE;
}

static class classify(int32_t c) {
  if ((c >= 0x9 && c <= 0xD) || c == 0x85) return SPACE; // blanks that are control characters
  switch (utf8proc_category(c)) {
  case UTF8PROC_CATEGORY_LU:
  case UTF8PROC_CATEGORY_LL:
  case UTF8PROC_CATEGORY_LT:
  case UTF8PROC_CATEGORY_LM:
  case UTF8PROC_CATEGORY_LO: return LETTER;
  case UTF8PROC_CATEGORY_ND:
  case UTF8PROC_CATEGORY_NL:
  case UTF8PROC_CATEGORY_NO: return NUMBER;
  case UTF8PROC_CATEGORY_ZS:
  case UTF8PROC_CATEGORY_ZL:
  case UTF8PROC_CATEGORY_ZP: return SPACE;
  default: return OTHER;
  }
}

// The number of the stored block equal to `row`, adding it when there is none. Most blocks equal one of the last few.
static size_t store(tr__classes *classes, const unsigned char row[BLOCK]) {
  for (size_t i = classes->nkind; i > 0; i--) {
    if (memcmp(classes->kind[i - 1], row, BLOCK) == 0) return i - 1;
  }
  memcpy(classes->kind[classes->nkind], row, BLOCK);
  return classes->nkind++;
}

tr_status tr__classes_create(tr__classes **out) {
  tr__classes *classes = calloc(1, sizeof *classes);
  if (classes) classes->kind = malloc(NBLOCK * sizeof *classes->kind);
  if (!classes || !classes->kind) {
    free(classes);
    return tr_error(TR_ERR_MEMORY, "no memory for the classes of characters");
  }
  for (int32_t b = 0; b < NBLOCK; b++) {
    unsigned char row[BLOCK];
    for (int32_t i = 0; i < BLOCK; i++) row[i] = (unsigned char)classify(b * BLOCK + i);
    classes->block[b] = (uint16_t)store(classes, row);
  }
  void *smaller = realloc(classes->kind, classes->nkind * sizeof *classes->kind);
  if (smaller) classes->kind = smaller;
  *out = classes;
  return TR_OK;
}

void tr__classes_free(tr__classes *classes) {
  if (!classes) return;
  free(classes->kind);
  free(classes);
}

// The text being scanned.
typedef struct scan {
  const tr__classes *classes;
  const unsigned char *text;
  size_t nbyte;
} scan;

// The class of the character at `at` < nbyte, and where the next one starts. The text is known to be UTF-8.
static inline class look(const scan *s, size_t at, size_t *next) {
  const unsigned char *p = s->text + at;
  if (p[0] < 0x80) {
    *next = at + 1;
    return s->classes->kind[s->classes->block[0]][p[0]];
  }
  size_t n = p[0] < 0xE0 ? 2 : p[0] < 0xF0 ? 3 : 4;
  uint32_t c = n == 2   ? (p[0] & 0x1Fu) << 6 | (p[1] & 0x3Fu)
               : n == 3 ? (p[0] & 0x0Fu) << 12 | (p[1] & 0x3Fu) << 6 | (p[2] & 0x3Fu)
                        : (p[0] & 0x07u) << 18 | (p[1] & 0x3Fu) << 12 | (p[2] & 0x3Fu) << 6 | (p[3] & 0x3Fu);
  *next = at + n;
  return s->classes->kind[s->classes->block[c / BLOCK]][c % BLOCK];
}

// Where the run of characters of a class ends that goes on at `at`.
static size_t run(const scan *s, size_t at, class wanted) {
  const unsigned char *ascii = s->classes->kind[s->classes->block[0]];
  size_t next;
  for (;;) {
    while (at < s->nbyte && s->text[at] < 0x80 && ascii[s->text[at]] == wanted) at++;
    if (at == s->nbyte || s->text[at] < 0x80 || look(s, at, &next) != wanted) return at;
    at = next;
  }
}

static int is_line_end(unsigned char c) { return c == '\r' || c == '\n'; }

// Blanks from `at` on: all but the last where a word follows (\s+(?!\S)|\s+); with `lines`, up to the last line end first
// (\s*[\r\n]+).
static size_t blanks(const scan *s, size_t at, int lines) {
  size_t end = at, last = at, line = 0, next;
  while (end < s->nbyte && look(s, end, &next) == SPACE) {
    if (is_line_end(s->text[end])) line = next;
    last = end;
    end = next;
  }
  if (lines && line) return line;
  return end < s->nbyte && last > at ? last : end;
}

// 's 't 're 've 'm 'll 'd at the apostrophe `at`: where it ends, 0: none. `fold`: in any case, and then U+017F is an s.
static size_t contraction(const scan *s, size_t at, int fold) {
  const unsigned char *p = s->text + at + 1;
  size_t left = s->nbyte - at - 1;
  unsigned char a = left > 0 ? p[0] : 0, b = left > 1 ? p[1] : 0;
  if (fold && a == 0xC5 && b == 0xBF) return at + 3;
  if (fold && a >= 'A' && a <= 'Z') a |= 0x20;
  if (fold && b >= 'A' && b <= 'Z') b |= 0x20;
  if (a == 's' || a == 't' || a == 'm' || a == 'd') return at + 2;
  int two = ((a == 'r' || a == 'v') && b == 'e') || (a == 'l' && b == 'l');
  return two ? at + 3 : 0;
}

static size_t next_gpt2(const scan *s, size_t at) {
  unsigned char c = s->text[at];
  size_t after, more;
  if (c == '\'' && (after = contraction(s, at, 0)) > 0) return after;
  class kind = look(s, at, &after);
  if (c == ' ' && after < s->nbyte) {
    class following = look(s, after, &more);
    if (following != SPACE) return run(s, more, following);
  }
  return kind == SPACE ? blanks(s, at, 0) : run(s, after, kind);
}

static size_t numbers(const scan *s, size_t at, int most) {
  size_t next;
  for (int n = 0; n < most && at < s->nbyte && look(s, at, &next) == NUMBER; n++) at = next;
  return at;
}

// A run of neither blanks nor letters nor numbers, and the line ends after it.
static size_t others(const scan *s, size_t at) {
  at = run(s, at, OTHER);
  while (at < s->nbyte && is_line_end(s->text[at])) at++;
  return at;
}

static size_t next_llama3(const scan *s, size_t at, int digits) {
  unsigned char c = s->text[at];
  size_t after, more;
  if (c == '\'' && (after = contraction(s, at, 1)) > 0) return after;
  class kind = look(s, at, &after);
  if (kind == LETTER) return run(s, after, LETTER);
  if (kind == NUMBER) return numbers(s, at, digits);
  class following = after < s->nbyte ? look(s, after, &more) : SPACE;
  if (following == LETTER && !is_line_end(c)) return run(s, more, LETTER);
  if (kind == OTHER) return others(s, after);
  if (c == ' ' && following == OTHER) return others(s, more);
  return blanks(s, at, 1);
}

size_t tr__scan_next(const tr__classes *classes, tr__scan_kind kind, const char *text, size_t nbyte, size_t at) {
  scan s = {.classes = classes, .text = (const unsigned char *)text, .nbyte = nbyte};
  if (kind == TR__SCAN_GPT2) return next_gpt2(&s, at);
  return next_llama3(&s, at, kind == TR__SCAN_LLAMA3 ? 3 : 1);
}
