// SPDX-License-Identifier: MIT
// Spoiled JSON for parsers: copies of a good text with some of its bytes changed, of which those that are still JSON are passed
// on. Whatever comes of it, nothing may be read or freed that should not be; sanitizers see to that.
#ifndef TRIREME_TESTS_TOKEN_MUTATE_H
#define TRIREME_TESTS_TOKEN_MUTATE_H

#include "trireme/base/json.h"
#include "trireme/base/philox.h"
#include <stdlib.h>
#include <string.h>

// Calls `use` with every spoiled object; how many there were.
static int mutate_json(const char *good, uint32_t tries, void (*use)(const json_t *json)) {
  static const char bytes[] = "0123456789-.eE\"{}[],: aAxul\\\xC3\xA9";
  size_t n = strlen(good);
  char *text = malloc(n + 1);
  int used = 0;
  for (uint32_t seed = 0; text && seed < tries; seed++) {
    uint32_t random[4];
    memcpy(text, good, n + 1);
    tr_philox4x32((uint32_t[2]){seed, (uint32_t)n}, (uint32_t[4]){0, 0, 0, 0}, random);
    for (uint32_t k = random[0] % 3 + 1; k > 0; k--) {
      tr_philox4x32((uint32_t[2]){seed, (uint32_t)n}, (uint32_t[4]){k, 0, 0, 0}, random);
      text[random[0] % n] = bytes[random[1] % (sizeof bytes - 1)];
    }
    json_t *json = NULL;
    if (tr_json_parse(text, n, "test", &json) < 0) continue;
    use(json);
    used++;
    json_decref(json);
  }
  free(text);
  return used;
}

#endif
