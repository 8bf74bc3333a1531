// SPDX-License-Identifier: MIT
// Damages JSON without making it something else: a value is removed, replaced by an odd one or by a copy of another, or gets
// another's name. Changes of single bytes hardly ever get past a JSON parser; these reach the code behind it.
#include "fuzz/fuzz.h"

#include <jansson.h>
#include <string.h>

enum { PLACES_MAX = 1 << 14 };

// Every value of a tree but the root, by what holds it.
typedef struct place {
  json_t *holder;
  const char *key; // in an object
  size_t index;    // in an array
} place;

static size_t list_places(json_t *holder, place *out, size_t n) {
  const char *key;
  json_t *value;
  size_t i;
  json_object_foreach(holder, key, value) {
    if (n < PLACES_MAX) out[n++] = (place){holder, key, 0};
    n = list_places(value, out, n);
  }
  json_array_foreach(holder, i, value) {
    if (n < PLACES_MAX) out[n++] = (place){holder, NULL, i};
    n = list_places(value, out, n);
  }
  return n;
}

static json_t *value_at(const place *p) {
  return p->key ? json_object_get(p->holder, p->key) : json_array_get(p->holder, p->index);
}

static json_t *odd_value(uint64_t pick) {
  static const char *const texts[] = {"null",
                                      "true",
                                      "false",
                                      "0",
                                      "-1",
                                      "1",
                                      "2147483648",
                                      "9223372036854775807",
                                      "-9223372036854775808",
                                      "1e308",
                                      "0.5",
                                      "\"\"",
                                      "\"a\"",
                                      "\"\\uffff\"",
                                      "\"../x\"",
                                      "[]",
                                      "{}",
                                      "[[]]"};
  return json_loads(texts[pick % (sizeof texts / sizeof *texts)], JSON_DECODE_ANY, NULL);
}

static void damage_place(const place *p, const place *other, uint64_t kind, uint64_t pick) {
  json_t *value = kind == 0 ? NULL : kind == 1 ? odd_value(pick) : json_deep_copy(value_at(other));
  if (kind == 3 && p->key && other->key) {
    json_object_set_new(p->holder, other->key, value);
  } else if (kind == 4 && !p->key) {
    json_array_insert_new(p->holder, p->index, value);
  } else if (p->key && value) {
    json_object_set_new(p->holder, p->key, value);
  } else if (p->key) {
    json_object_del(p->holder, p->key);
  } else if (value) {
    json_array_set_new(p->holder, p->index, value);
  } else {
    json_array_remove(p->holder, p->index);
  }
}

uint64_t fuzz_random(uint64_t *state) { // splitmix64
  uint64_t z = *state += 0x9e3779b97f4a7c15u;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  return z ^ z >> 31;
}

size_t fuzz_damage_json(uint8_t *data, size_t size, size_t room, uint64_t *state) {
  static place places[PLACES_MAX];
  json_t *root = json_loadb((const char *)data, size, 0, NULL);
  size_t n = root ? list_places(root, places, 0) : 0, written = 0;
  if (n > 0) {
    const place *p = &places[fuzz_random(state) % n], *other = &places[fuzz_random(state) % n];
    uint64_t kind = fuzz_random(state) % 5;
    damage_place(p, other, kind, fuzz_random(state));
    char *text = json_dumps(root, JSON_COMPACT);
    size_t nbyte = text ? strlen(text) : 0;
    if (nbyte <= room) {
      memcpy(data, text, nbyte);
      written = nbyte;
    }
    free(text);
  }
  json_decref(root);
  return written;
}
