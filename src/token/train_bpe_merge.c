// SPDX-License-Identifier: MIT
// Learning merges from counted words.
//
// The most frequent pair of neighbours becomes a token, and only the words that hold the pair are looked at again:
//
//   pair (a, b): count, words that hold it (some perhaps no longer)
//   heap of (count, pair): an entry is as old as its count; a pop compares it with the pair and puts it back when outdated
//
// Merging a word at "x a b y" takes away (x, a), (a, b), (b, y) and adds (x, ab), (ab, y), times the word's count. Counts of
// other pairs only fall, so the heap needs new entries just for pairs that grew, once per merge.
#include "token/train_bpe_internal.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { REPORT_EVERY = 128, FIRST_SLOTS = 1 << 16, BYTES = 256 };

typedef struct pair {
  uint64_t key; // left << 32 | right
  int64_t count;
  uint32_t *word;
  uint32_t nword, capacity;
  int grew; // in the present merge
} pair;

typedef struct candidate {
  int64_t count;
  uint32_t pair;
} candidate;

typedef struct learner {
  const tr__learn_options *options;
  tr__vocabulary *vocabulary;
  // words as tokens: word w is symbol[start[w] .. start[w] + length[w])
  int32_t *symbol;
  size_t *start;
  uint32_t *length;
  // pairs and a hash table of their numbers plus 1
  pair *pair;
  size_t npair, pair_capacity;
  uint32_t *slot;
  size_t nslot;
  candidate *heap; // the best first
  size_t nheap, heap_capacity;
  uint32_t *grown; // pairs that grew in the present merge
  size_t ngrown, grown_capacity;
  tr__merge *merge;
  size_t nmerge, merge_capacity;
} learner;

// Room for one more element.
static tr_status reserve(void *array, size_t n, size_t *capacity, size_t size) {
  if (n < *capacity) return TR_OK;
  size_t larger = *capacity ? 2 * *capacity : 16;
  void *old, *data;
  memcpy(&old, array, sizeof old);
  data = realloc(old, larger * size);
  if (!data) return tr_error(TR_ERR_MEMORY, "no memory for %zu entries while learning merges", larger);
  memcpy(array, &data, sizeof data);
  *capacity = larger;
  return TR_OK;
}

// ---- pairs

static size_t slot_of(const learner *l, uint64_t key) {
  uint64_t hash = key * 0x9e3779b97f4a7c15u;
  size_t i = (size_t)(hash >> 20) & (l->nslot - 1);
  while (l->slot[i] && l->pair[l->slot[i] - 1].key != key) i = (i + 1) & (l->nslot - 1);
  return i;
}

static tr_status grow_slots(learner *l) {
  size_t n = l->nslot ? 2 * l->nslot : FIRST_SLOTS;
  uint32_t *slot = calloc(n, sizeof *slot);
  if (!slot) return tr_error(TR_ERR_MEMORY, "no memory for %zu pairs", n);
  free(l->slot);
  l->slot = slot;
  l->nslot = n;
  for (size_t p = 0; p < l->npair; p++) slot[slot_of(l, l->pair[p].key)] = (uint32_t)p + 1;
  return TR_OK;
}

static tr_status find_pair(learner *l, int32_t left, int32_t right, uint32_t *out) {
  uint64_t key = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
  if (2 * l->npair >= l->nslot) TR_TRY(grow_slots(l));
  size_t i = slot_of(l, key);
  if (!l->slot[i]) {
    TR_TRY(reserve(&l->pair, l->npair, &l->pair_capacity, sizeof *l->pair));
    l->pair[l->npair++] = (pair){.key = key};
    l->slot[i] = (uint32_t)l->npair;
  }
  *out = l->slot[i] - 1;
  return TR_OK;
}

static tr_status add_pair(learner *l, int32_t left, int32_t right, int64_t count, uint32_t word) {
  uint32_t number;
  TR_TRY(find_pair(l, left, right, &number));
  pair *p = &l->pair[number];
  p->count += count;
  if (!p->grew) {
    TR_TRY(reserve(&l->grown, l->ngrown, &l->grown_capacity, sizeof *l->grown));
    l->grown[l->ngrown++] = number;
    p->grew = 1;
  }
  if (p->nword > 0 && p->word[p->nword - 1] == word) return TR_OK;
  size_t capacity = p->capacity;
  TR_TRY(reserve(&p->word, p->nword, &capacity, sizeof *p->word));
  p->capacity = (uint32_t)capacity;
  p->word[p->nword++] = word;
  return TR_OK;
}

static tr_status drop_pair(learner *l, int32_t left, int32_t right, int64_t count) {
  uint32_t number;
  TR_TRY(find_pair(l, left, right, &number));
  l->pair[number].count -= count;
  return TR_OK;
}

// ---- the heap

// Higher counts first, of equal ones the pair with the smaller numbers.
static int before(const learner *l, candidate a, candidate b) {
  return a.count != b.count ? a.count > b.count : l->pair[a.pair].key < l->pair[b.pair].key;
}

static tr_status push(learner *l, uint32_t number) {
  TR_TRY(reserve(&l->heap, l->nheap, &l->heap_capacity, sizeof *l->heap));
  candidate new = {.count = l->pair[number].count, .pair = number};
  size_t i = l->nheap++;
  for (; i > 0 && before(l, new, l->heap[(i - 1) / 2]); i = (i - 1) / 2) l->heap[i] = l->heap[(i - 1) / 2];
  l->heap[i] = new;
  return TR_OK;
}

static candidate pop(learner *l) {
  candidate top = l->heap[0], last = l->heap[--l->nheap];
  size_t i = 0;
  for (size_t child; (child = 2 * i + 1) < l->nheap; i = child) {
    if (child + 1 < l->nheap && before(l, l->heap[child + 1], l->heap[child])) child++;
    if (!before(l, l->heap[child], last)) break;
    l->heap[i] = l->heap[child];
  }
  l->heap[i] = last;
  return top;
}

static tr_status push_grown(learner *l) {
  for (size_t i = 0; i < l->ngrown; i++) {
    l->pair[l->grown[i]].grew = 0;
    TR_TRY(push(l, l->grown[i]));
  }
  l->ngrown = 0;
  return TR_OK;
}

// The pair to merge next; 0: none is frequent enough.
static tr_status best_pair(learner *l, uint32_t *out, int *found) {
  *found = 0;
  while (l->nheap > 0) {
    candidate top = pop(l);
    int64_t count = l->pair[top.pair].count;
    if (count < l->options->min_count || count < 1 || count > top.count) continue; // a higher count has its own entry
    if (count < top.count) {
      TR_TRY(push(l, top.pair));
      continue;
    }
    *out = top.pair;
    *found = 1;
    return TR_OK;
  }
  return TR_OK;
}

// ---- merging

// The number of the token spelled by both: usually a new one.
static tr_status token_for(learner *l, int32_t left, int32_t right, int32_t *out) {
  size_t nleft, nright;
  tr_text text = {0};
  const char *a = tr__vocabulary_text(l->vocabulary, left, &nleft);
  tr_text_append_bytes(&text, a, nleft);
  const char *b = tr__vocabulary_text(l->vocabulary, right, &nright);
  tr_text_append_bytes(&text, b, nright);
  tr_status status = text.failed ? TR_ERR_MEMORY : TR_OK;
  *out = status == TR_OK ? tr__vocabulary_find(l->vocabulary, text.data, text.size) : 0;
  if (*out < 0) {
    *out = (int32_t)tr__vocabulary_limit(l->vocabulary);
    status = tr__vocabulary_add(l->vocabulary, text.data, text.size, *out);
  }
  tr_text_free(&text);
  return status;
}

static tr_status merge_word(learner *l, tr__merge m, uint32_t word) {
  int32_t *symbol = l->symbol + l->start[word];
  int64_t count = l->options->word[word].count;
  uint32_t n = l->length[word], out = 0;
  for (uint32_t i = 0; i < n;) {
    if (i + 1 == n || symbol[i] != m.left || symbol[i + 1] != m.right) {
      symbol[out++] = symbol[i++];
      continue;
    }
    if (out > 0) {
      TR_TRY(drop_pair(l, symbol[out - 1], m.left, count));
      TR_TRY(add_pair(l, symbol[out - 1], m.token, count, word));
    }
    if (i + 2 < n) {
      TR_TRY(drop_pair(l, m.right, symbol[i + 2], count));
      TR_TRY(add_pair(l, m.token, symbol[i + 2], count, word));
    }
    TR_TRY(drop_pair(l, m.left, m.right, count));
    symbol[out++] = m.token;
    i += 2;
  }
  l->length[word] = out;
  return TR_OK;
}

static tr_status merge_pair(learner *l, uint32_t number) {
  pair *p = &l->pair[number];
  tr__merge m = {.left = (int32_t)(p->key >> 32), .right = (int32_t)(p->key & 0xffffffffu)};
  uint32_t *word = p->word, nword = p->nword;
  p->word = NULL; // the array of pairs moves, and this pair may even grow again
  p->nword = p->capacity = 0;
  tr_status status = token_for(l, m.left, m.right, &m.token);
  for (uint32_t i = 0; i < nword && status == TR_OK; i++) status = merge_word(l, m, word[i]);
  free(word);
  TR_TRY(status);
  TR_TRY(push_grown(l));
  TR_TRY(reserve(&l->merge, l->nmerge, &l->merge_capacity, sizeof *l->merge));
  l->merge[l->nmerge++] = m;
  return TR_OK;
}

// ---- the whole

static tr_status take_words(learner *l) {
  const tr__learn_options *o = l->options;
  size_t all = 0;
  int32_t number[BYTES];
  for (int byte = 0; byte < BYTES; byte++) {
    char text[4];
    size_t n = tr__utf8_put(tr__byte_to_character((unsigned char)byte), text);
    number[byte] = tr__vocabulary_find(l->vocabulary, text, n);
  }
  for (size_t w = 0; w < o->nword; w++) all += o->word[w].nbyte;
  l->symbol = malloc((all + 1) * sizeof *l->symbol);
  l->start = malloc((o->nword + 1) * sizeof *l->start);
  l->length = malloc((o->nword + 1) * sizeof *l->length);
  if (!l->symbol || !l->start || !l->length)
    return tr_error(TR_ERR_MEMORY, "no memory for %zu words of %zu bytes", o->nword, all);
  size_t at = 0;
  for (size_t w = 0; w < o->nword; w++) {
    l->start[w] = at;
    l->length[w] = o->word[w].nbyte;
    for (uint32_t i = 0; i < o->word[w].nbyte; i++)
      l->symbol[at + i] = number[(unsigned char)o->text[o->word[w].start + i]];
    for (uint32_t i = 1; i < o->word[w].nbyte; i++)
      TR_TRY(add_pair(l, l->symbol[at + i - 1], l->symbol[at + i], o->word[w].count, (uint32_t)w));
    at += o->word[w].nbyte;
  }
  return push_grown(l);
}

static tr_status learn(learner *l) {
  const tr__learn_options *o = l->options;
  int64_t first = tr__vocabulary_limit(l->vocabulary), all = (int64_t)o->ntoken - first, done;
  TR_TRY(take_words(l));
  while ((done = tr__vocabulary_limit(l->vocabulary) - first) < all) {
    uint32_t best;
    int found;
    TR_TRY(best_pair(l, &best, &found));
    if (!found) break;
    TR_TRY(merge_pair(l, best));
    if (o->progress && l->nmerge % REPORT_EVERY == 0) o->progress(o->user, done + 1, all);
  }
  return TR_OK;
}

tr_status tr__learn_merges(const tr__learn_options *options, tr__vocabulary *vocabulary, tr__merge **merge,
                           size_t *nmerge) {
  learner l = {.options = options, .vocabulary = vocabulary};
  tr_status status = learn(&l);
  for (size_t p = 0; p < l.npair; p++) free(l.pair[p].word);
  free(l.pair);
  free(l.slot);
  free(l.heap);
  free(l.grown);
  free(l.symbol);
  free(l.start);
  free(l.length);
  if (status == TR_OK) {
    *merge = l.merge;
    *nmerge = l.nmerge;
  } else {
    free(l.merge);
  }
  return status;
}
