// SPDX-License-Identifier: MIT
// Patterns as the `tokenizers` library writes them (Oniguruma's syntax), run by PCRE2 with limits.
#ifndef TRIREME_TOKEN_PATTERN_INTERNAL_H
#define TRIREME_TOKEN_PATTERN_INTERNAL_H

#include "token/token_internal.h"

typedef struct tr__pattern tr__pattern;
tr_status tr__pattern_compile(const char *regex, size_t nbyte, const char *name, tr__pattern **out);
tr_status tr__pattern_literal(const char *string, size_t nbyte, const char *name, tr__pattern **out);
void tr__pattern_free(tr__pattern *pattern); // NULL allowed
// The first match that begins at `from` or later, possibly empty; *begin = nbyte + 1: none. Text before `from` is seen by
// look-behind. TR_ERR_DATA when a limit is exceeded.
tr_status tr__pattern_next(const tr__pattern *pattern, const char *text, size_t nbyte, size_t from, size_t *begin,
                           size_t *end);
// The same for many matches: a matcher is what matching writes to, one per thread, for any pattern.
typedef struct tr__matcher tr__matcher;
tr_status tr__matcher_create(tr__matcher **out);
void tr__matcher_free(tr__matcher *matcher); // NULL allowed
// A new text: however many matches there are in it, all of them may take so many nanoseconds of processor time.
void tr__matcher_allow(tr__matcher *matcher, int64_t budget);
int64_t tr__matcher_budget(size_t nbyte); // 2 s, and 1 s for every MB of the text
tr_status tr__pattern_find(const tr__pattern *pattern, tr__matcher *matcher, const char *text, size_t nbyte,
                           size_t from, size_t *begin, size_t *end);

#endif
