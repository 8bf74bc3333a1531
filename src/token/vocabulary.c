// SPDX-License-Identifier: MIT
// The two directions of a vocabulary: an open-addressing hash table from texts to numbers, and an array from numbers to
// texts. The texts lie one after another in one block.
#include "token/token_internal.h"

#include "trireme/base/file.h"
#include <stdlib.h>
#include <string.h>

// Numbers above this make the array from numbers to texts absurdly large; no vocabulary comes near.
enum { NUMBER_MAX = 1 << 24, SLOT_MIN = 64 };

typedef struct entry {
  size_t at; // of its text, plus 1; 0: no such number
  size_t nbyte;
} entry;

typedef struct slot {
  uint32_t hash;
  int32_t number; // -1: free
} slot;

struct tr__vocabulary {
  tr_text text;
  entry *entry; // by number
  size_t limit, capacity;
  slot *slot;
  size_t nslot, used; // nslot: a power of two, at most half used
};

static slot *make_slots(size_t n) {
  slot *made = malloc(n * sizeof *made);
  for (size_t i = 0; made && i < n; i++) made[i].number = -1;
  return made;
}

tr_status tr__vocabulary_create(size_t expected, tr__vocabulary **out) {
  size_t n = SLOT_MIN;
  while (expected <= NUMBER_MAX && n < 2 * expected) n *= 2;
  tr__vocabulary *vocabulary = calloc(1, sizeof *vocabulary);
  if (vocabulary) vocabulary->slot = make_slots(n);
  if (!vocabulary || !vocabulary->slot) {
    free(vocabulary);
    return tr_error(TR_ERR_MEMORY, "no memory for a vocabulary of %zu tokens", expected);
  }
  vocabulary->nslot = n;
  *out = vocabulary;
  return TR_OK;
}

void tr__vocabulary_free(tr__vocabulary *vocabulary) {
  if (!vocabulary) return;
  tr_text_free(&vocabulary->text);
  free(vocabulary->entry);
  free(vocabulary->slot);
  free(vocabulary);
}

const char *tr__vocabulary_text(const tr__vocabulary *vocabulary, int32_t number, size_t *nbyte) {
  if (number < 0 || (size_t)number >= vocabulary->limit || !vocabulary->entry[number].at) return NULL;
  *nbyte = vocabulary->entry[number].nbyte;
  return vocabulary->text.data + vocabulary->entry[number].at - 1;
}

// The slot that holds the text, or the free one where it would go.
static slot *place(const tr__vocabulary *vocabulary, const char *text, size_t nbyte, uint32_t hash) {
  size_t mask = vocabulary->nslot - 1;
  for (size_t i = hash & mask;; i = (i + 1) & mask) {
    slot *s = &vocabulary->slot[i];
    if (s->number < 0) return s;
    const entry *e = &vocabulary->entry[s->number];
    if (s->hash == hash && e->nbyte == nbyte && memcmp(vocabulary->text.data + e->at - 1, text, nbyte) == 0) return s;
  }
}

int32_t tr__vocabulary_find(const tr__vocabulary *vocabulary, const char *text, size_t nbyte) {
  return place(vocabulary, text, nbyte, (uint32_t)tr_hash_bytes(text, nbyte))->number;
}

int64_t tr__vocabulary_limit(const tr__vocabulary *vocabulary) { return (int64_t)vocabulary->limit; }

size_t tr__vocabulary_count(const tr__vocabulary *vocabulary) { return vocabulary->used; }

static int grow_slots(tr__vocabulary *vocabulary) {
  size_t n = vocabulary->nslot * 2;
  slot *made = make_slots(n);
  if (!made) return 0;
  for (size_t i = 0; i < vocabulary->nslot; i++) {
    slot old = vocabulary->slot[i];
    if (old.number < 0) continue;
    size_t at = old.hash & (n - 1);
    while (made[at].number >= 0) at = (at + 1) & (n - 1);
    made[at] = old;
  }
  free(vocabulary->slot);
  vocabulary->slot = made;
  vocabulary->nslot = n;
  return 1;
}

static int grow_entries(tr__vocabulary *vocabulary, size_t number) {
  size_t capacity = vocabulary->capacity ? vocabulary->capacity : SLOT_MIN;
  while (capacity <= number) capacity *= 2;
  if (capacity == vocabulary->capacity) return 1;
  entry *grown = realloc(vocabulary->entry, capacity * sizeof *grown);
  if (!grown) return 0;
  memset(grown + vocabulary->capacity, 0, (capacity - vocabulary->capacity) * sizeof *grown);
  vocabulary->entry = grown;
  vocabulary->capacity = capacity;
  return 1;
}

// Whether the text or the number is taken already. `*known`: both are, by each other.
static tr_status check_free(const tr__vocabulary *vocabulary, const char *text, size_t nbyte, int32_t number,
                            int *known) {
  int shown = nbyte < 100 ? (int)nbyte : 100;
  if (number < 0 || number >= NUMBER_MAX)
    return tr_error(TR_ERR_DATA, "token '%.*s' has the number %d; numbers go from 0 to %d", shown, text, number,
                    NUMBER_MAX - 1);
  int32_t before = tr__vocabulary_find(vocabulary, text, nbyte);
  *known = before == number;
  if (before >= 0 && before != number)
    return tr_error(TR_ERR_DATA, "token '%.*s' has two numbers, %d and %d", shown, text, before, number);
  size_t other_nbyte;
  const char *other = tr__vocabulary_text(vocabulary, number, &other_nbyte);
  if (other && !*known)
    return tr_error(TR_ERR_DATA, "number %d has two tokens, '%.*s' and '%.*s'", number,
                    other_nbyte < 100 ? (int)other_nbyte : 100, other, shown, text);
  return TR_OK;
}

tr_status tr__vocabulary_add(tr__vocabulary *vocabulary, const char *text, size_t nbyte, int32_t number) {
  int known = 0;
  TR_TRY(check_free(vocabulary, text, nbyte, number, &known));
  if (known) return TR_OK;
  size_t at = vocabulary->text.size;
  tr_text_append_bytes(&vocabulary->text, text, nbyte);
  if (vocabulary->text.failed || !grow_entries(vocabulary, (size_t)number) ||
      (2 * (vocabulary->used + 1) > vocabulary->nslot && !grow_slots(vocabulary)))
    return tr_error(TR_ERR_MEMORY, "no memory for a vocabulary of more than %zu tokens", vocabulary->used);
  uint32_t hash = (uint32_t)tr_hash_bytes(text, nbyte);
  *place(vocabulary, text, nbyte, hash) = (slot){.hash = hash, .number = number};
  vocabulary->entry[number] = (entry){.at = at + 1, .nbyte = nbyte};
  vocabulary->used++;
  if ((size_t)number >= vocabulary->limit) vocabulary->limit = (size_t)number + 1;
  return TR_OK;
}
