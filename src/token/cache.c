// SPDX-License-Identifier: MIT
// A cache of words: most words of a text are words that were there before.
//
// A set of two entries per hash value, so memory is fixed and an entry that is not there costs no search. An entry is one
// cache line: up to 32 bytes of the word, padded with zeros, and up to 7 numbers. Looking a word up is aiming (the line is
// fetched) and finding (it is read); with a few words aimed at before the first is found, nobody waits for memory.
#include "token/tokenizer_internal.h"

#include <stdlib.h>
#include <string.h>

enum { KEY_NBYTE = TR__CACHE_WORD, WAYS = 2, SET_BITS = 16, NSET = 1 << SET_BITS, LINE = 64 };

typedef struct entry {
  uint64_t key[KEY_NBYTE / 8];
  int32_t number[TR__CACHE_NUMBERS];
  uint16_t nbyte, n; // of the word; numbers. nbyte 0: a free entry
} entry;

struct tr__cache {
  void *memory;
  entry (*set)[WAYS]; // in it, at the start of a cache line
};

tr_status tr__cache_create(tr__cache **out) {
  tr__cache *cache = calloc(1, sizeof *cache);
  if (cache)
    cache->memory = calloc(1, NSET * sizeof *cache->set + LINE); // pages that no word reaches are never touched
  if (!cache || !cache->memory) {
    free(cache);
    return tr_error(TR_ERR_MEMORY, "no memory for a cache of words");
  }
  cache->set = (void *)(((uintptr_t)cache->memory + LINE - 1) / LINE * LINE);
  *out = cache;
  return TR_OK;
}

void tr__cache_free(tr__cache *cache) {
  if (!cache) return;
  free(cache->memory);
  free(cache);
}

// The first n bytes of 8, in memory order, of a part of a key. Byte order matters to nothing else here.
static uint64_t first_bytes(uint64_t part, size_t n) {
  static const unsigned char ones[16] = {255, 255, 255, 255, 255, 255, 255, 255};
  uint64_t mask;
  memcpy(&mask, ones + 8 - n, sizeof mask);
  return part & mask;
}

void tr__cache_aim(const tr__cache *cache, const char *word, size_t nbyte, size_t readable, tr__probe *probe) {
  uint64_t *k = probe->key;
  probe->word = word;
  probe->nbyte = nbyte;
  probe->set = NULL;
  if (nbyte > KEY_NBYTE) return;
  memset(k, 0, KEY_NBYTE);
  if (readable >= KEY_NBYTE) {
    memcpy(k, word, KEY_NBYTE);
    for (size_t i = 0; i < KEY_NBYTE / 8; i++) {
      size_t n = nbyte > 8 * i ? nbyte - 8 * i : 0;
      k[i] = first_bytes(k[i], n < 8 ? n : 8);
    }
  } else {
    memcpy(k, word, nbyte);
  }
  uint64_t h = k[0] * UINT64_C(0x9E3779B97F4A7C15) ^ k[1] * UINT64_C(0xC2B2AE3D27D4EB4F) ^
               k[2] * UINT64_C(0x165667B19E3779F9) ^ k[3] * UINT64_C(0xD6E8FEB86659FD93);
  h = (h ^ h >> 32) * UINT64_C(0x9E3779B97F4A7C15) >> (64 - SET_BITS);
  probe->set = cache->set[h];
  __builtin_prefetch(probe->set);
}

static int holds(const entry *e, const tr__probe *probe) {
  const uint64_t *a = e->key, *b = probe->key;
  return ((a[0] ^ b[0]) | (a[1] ^ b[1]) | (a[2] ^ b[2]) | (a[3] ^ b[3]) | (e->nbyte ^ probe->nbyte)) == 0;
}

int tr__cache_find(const tr__probe *probe, tr_tokens *out) {
  const entry *e = probe->set;
  if (!e || (!holds(e, probe) && !holds(++e, probe))) return 0;
  memcpy(out->data + out->size, e->number, sizeof e->number);
  out->size += e->n;
  return 1;
}

void tr__cache_put(const tr__probe *probe, const int32_t *number, size_t n) {
  entry *e = probe->set;
  if (!e || n > TR__CACHE_NUMBERS) return;
  e[1] = e[0];
  e[0] = (entry){.nbyte = (uint16_t)probe->nbyte, .n = (uint16_t)n};
  memcpy(e[0].key, probe->key, KEY_NBYTE);
  if (n) memcpy(e[0].number, number, n * sizeof *number);
}
