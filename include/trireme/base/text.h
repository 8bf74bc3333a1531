// SPDX-License-Identifier: MIT
// Text helpers: a growing string, numbers with units, "did you mean".
#ifndef TRIREME_BASE_TEXT_H
#define TRIREME_BASE_TEXT_H

#include "trireme/base/status.h"
#include <stddef.h>
#include <stdint.h>

// A growing, always terminated string. Zero-initialise; tr_text_free when done. Growing failure is recorded and later
// appends do nothing; check `failed` once at the end.
typedef struct tr_text {
  char *data; // NULL until the first append
  size_t size, capacity;
  int failed;
} tr_text;

void tr_text_append(tr_text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
void tr_text_append_bytes(tr_text *text, const void *bytes, size_t nbyte);
// `text` from column `at` on, in lines of at most TR_TEXT_COLUMNS; those that begin in place of a blank are indented by `indent`,
// those of `text` are not. A word that is longer than a line is cut behind a comma, or stays.
enum { TR_TEXT_COLUMNS = 118 };
void tr_text_wrap(tr_text *out, const char *text, int at, int indent);
void tr_text_fit(tr_text *text); // give back the room beyond its end
void tr_text_free(tr_text *text);

// What stands behind the noun that is counted, as in "%d rank%s" and "%d batch%s" (es): `ending`, or "" for one.
const char *tr_text_plural(int64_t n, const char *ending);
int tr_text_ends_in(const char *text, const char *suffix);
// Bytes of the byte-order mark that some editors and spreadsheets put before UTF-8: 3, or 0 where there is none.
size_t tr_text_mark(const char *text, size_t nbyte);

// Counts and sizes as people write them: "64", "1e6", "512M" (10^6), "25MB" (10^6), "2GiB" (2^30), "1.5k". Integers
// only: "0.3" is refused; overflow is refused. Units: k M G T (decimal), Ki Mi Gi Ti (binary), optional B. All
// parsers return TR_ERR_CONFIG with what is wrong and what would work; blanks around the number are allowed.
tr_status tr_parse_count(const char *text, int64_t *out);
tr_status tr_parse_real(const char *text, double *out);
// Durations in seconds: "30", "30s", "5min", "2h", "250ms".
tr_status tr_parse_duration(const char *text, double *seconds);

void tr_format_bytes(char *out, size_t nbyte, double bytes);      // "1.5 GiB"
void tr_format_count(char *out, size_t nbyte, double count);      // "124M"
void tr_format_duration(char *out, size_t nbyte, double seconds); // "1 h 02 min", "3.4 s"

// The candidate closest to `word` (edit distance at most a third of its length, at least 1 allowed), or NULL.
const char *tr_text_closest(const char *word, const char *const *candidates, size_t ncandidate);

#endif
