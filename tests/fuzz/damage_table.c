// SPDX-License-Identifier: MIT
// Damages a table (CSV) without making it something else: a field becomes an odd number or a copy of another field. Numbers at
// the edge of what a reader takes meet in one row only so; changes of bytes hardly ever write one.
#include "fuzz/fuzz.h"

#include <string.h>

typedef struct field {
  size_t at, n;
} field;

static int ends_field(uint8_t c) { return c == ',' || c == '\n'; }

// The field that holds the byte `at`.
static field field_at(const uint8_t *data, size_t size, size_t at) {
  size_t from = at, to = at;
  while (from > 0 && !ends_field(data[from - 1])) from--;
  while (to < size && !ends_field(data[to])) to++;
  return (field){from, to - from};
}

size_t fuzz_damage_table(uint8_t *data, size_t size, size_t room, uint64_t *state) {
  static const char *const odd[] = {"",     "0",     "1",         "2",          "-1",         "0.5",
                                    "nan",  "1e300", "999999999", "1000000000", "2147483647", "2147483648",
                                    "4096", "65536", "7",         "inf"};
  enum { FIELD_LIMIT = 64 };
  const uint8_t *head = memchr(data, '\n', size);
  if (!head || !memchr(data, ',', (size_t)(head - data)) || memchr(data, 0, size)) return 0;
  const size_t body = (size_t)(head - data) + 1;
  if (body >= size) return 0;
  const field f = field_at(data, size, body + fuzz_random(state) % (size - body));
  const uint64_t pick = fuzz_random(state);
  char text[FIELD_LIMIT];
  size_t n;
  if (fuzz_random(state) % 4) {
    const char *word = odd[pick % (sizeof odd / sizeof *odd)];
    n = strlen(word);
    memcpy(text, word, n);
  } else {
    const field other = field_at(data, size, body + pick % (size - body));
    n = other.n < FIELD_LIMIT ? other.n : FIELD_LIMIT;
    memcpy(text, data + other.at, n);
  }
  if (size - f.n + n > room) return 0;
  memmove(data + f.at + n, data + f.at + f.n, size - f.at - f.n);
  memcpy(data + f.at, text, n);
  return size - f.n + n;
}
