// SPDX-License-Identifier: MIT
// Byte-pair encoding: a word starts as one token per character, and the pair of neighbours that was learnt first is merged,
// the leftmost one where several are equal, until no pair of the word is known.
//
// Short words look through all their pairs for the best, which is quadratic and fast; long ones keep the pairs in a heap
// over a linked list, which is n log n, so a megabyte without a blank is no trouble. Byte-level vocabularies take bytes
// for characters through a table of 256, without spelling a word in the printable alphabet.
#include "token/part_internal.h"

#include "trireme/base/json.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { VOCAB_MAX = 1 << 24, MERGES_MAX = 1 << 24, AFFIX_MAX = 64, SHORT = 48 };
enum { UNK_NONE = -1, UNK_MISSING = -2 };
static const uint32_t NO_RANK = UINT32_MAX;
static const uint32_t NOWHERE = UINT32_MAX;
static const uint64_t NO_PAIR = UINT64_MAX;

// What becomes of a pair of neighbours.
typedef struct merge {
  uint32_t rank; // NO_RANK: they stay two
  int32_t made;
} merge;

typedef struct slot {
  uint64_t pair; // left << 32 | right
  merge merge;
} slot;

typedef struct bpe {
  tr__model base;
  slot *slot;
  size_t nslot;          // a power of two, at most half used
  tr__vocabulary *words; // the vocabulary by what its texts spell in bytes; only for ignore_merges
  int32_t byte[256];     // numbers of the byte-level alphabet
  int32_t fallback[256]; // numbers of <0x00> .. <0xFF>, -1: none
  int32_t unk;
  int fuse_unk, byte_fallback, ignore_merges;
  const char *prefix, *suffix; // continuing_subword_prefix, end_of_word_suffix
  char affixes[2 * AFFIX_MAX + 2];
} bpe;

typedef struct bpe_work {
  int32_t *id; // the tokens of the word, -1: merged into the one before
  uint32_t *previous, *next;
  uint64_t *heap; // rank << 32 | place
  size_t capacity, list_capacity, nheap;
} bpe_work;

// ---- pairs

static size_t home(const bpe *b, uint64_t pair) {
  return (size_t)((pair * UINT64_C(0x9E3779B97F4A7C15)) >> 32) & (b->nslot - 1);
}

static slot *place(const bpe *b, uint64_t pair) {
  size_t i = home(b, pair);
  while (b->slot[i].pair != pair && b->slot[i].pair != NO_PAIR) i = (i + 1) & (b->nslot - 1);
  return &b->slot[i];
}

static inline merge look_up(const bpe *b, int32_t left, int32_t right) {
  return place(b, (uint64_t)(uint32_t)left << 32 | (uint32_t)right)->merge; // a free slot says NO_RANK
}

// ---- short words

// Merge n tokens in place; returns how many are left.
static size_t merge_short(const bpe *b, int32_t *id, size_t n) {
  merge pair[SHORT];
  for (size_t i = 0; i + 1 < n; i++) pair[i] = look_up(b, id[i], id[i + 1]);
  while (n > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < n; i++) {
      if (pair[i].rank < pair[best].rank) best = i;
    }
    if (pair[best].rank == NO_RANK) break;
    id[best] = pair[best].made;
    n--;
    memmove(id + best + 1, id + best + 2, (n - best - 1) * sizeof *id);
    memmove(pair + best, pair + best + 1, (n - best) * sizeof *pair);
    if (best + 1 < n) pair[best] = look_up(b, id[best], id[best + 1]);
    if (best > 0) pair[best - 1] = look_up(b, id[best - 1], id[best]);
  }
  return n;
}

// ---- long words

static void sink(uint64_t *heap, size_t n, size_t i) {
  uint64_t moved = heap[i];
  for (size_t child; (child = 2 * i + 1) < n; i = child) {
    if (child + 1 < n && heap[child + 1] < heap[child]) child++;
    if (moved <= heap[child]) break;
    heap[i] = heap[child];
  }
  heap[i] = moved;
}

static uint64_t heap_pop(bpe_work *w) {
  uint64_t top = w->heap[0];
  w->heap[0] = w->heap[--w->nheap];
  if (w->nheap) sink(w->heap, w->nheap, 0);
  return top;
}

static void heap_push(bpe_work *w, uint64_t added) {
  size_t i = w->nheap++;
  for (; i > 0 && added < w->heap[(i - 1) / 2]; i = (i - 1) / 2) w->heap[i] = w->heap[(i - 1) / 2];
  w->heap[i] = added;
}

static void offer(const bpe *b, bpe_work *w, uint32_t at) {
  merge found = look_up(b, w->id[at], w->id[w->next[at]]);
  if (found.rank != NO_RANK) heap_push(w, (uint64_t)found.rank << 32 | at);
}

// Every pair that is known goes on the heap once; what a merge has changed is found out when it comes off again.
static void heap_fill(const bpe *b, bpe_work *w, uint32_t n) {
  w->nheap = 0;
  for (uint32_t i = 0; i < n; i++) {
    w->previous[i] = i ? i - 1 : NOWHERE;
    w->next[i] = i + 1 < n ? i + 1 : NOWHERE;
    merge found = i + 1 < n ? look_up(b, w->id[i], w->id[i + 1]) : (merge){.rank = NO_RANK};
    if (found.rank != NO_RANK) w->heap[w->nheap++] = (uint64_t)found.rank << 32 | i;
  }
  for (size_t i = w->nheap / 2; i > 0; i--) sink(w->heap, w->nheap, i - 1);
}

static size_t merge_long(const bpe *b, bpe_work *w, size_t n) {
  heap_fill(b, w, (uint32_t)n);
  while (w->nheap) {
    uint64_t top = heap_pop(w);
    uint32_t at = (uint32_t)top, right = w->next[at];
    if (w->id[at] < 0 || right == NOWHERE) continue;
    merge found = look_up(b, w->id[at], w->id[right]);
    if (found.rank != (uint32_t)(top >> 32)) continue; // a pair that is no more
    w->id[at] = found.made;
    w->id[right] = -1;
    w->next[at] = w->next[right];
    if (w->next[at] != NOWHERE) {
      w->previous[w->next[at]] = at;
      offer(b, w, at);
    }
    if (w->previous[at] != NOWHERE) offer(b, w, w->previous[at]);
  }
  size_t left = 0;
  for (size_t i = 0; i < n; i++) {
    if (w->id[i] >= 0) w->id[left++] = w->id[i];
  }
  return left;
}

// ---- encoding

static int resize(void *array, size_t n, size_t nbyte) {
  void *grown = realloc(*(void **)array, n * nbyte);
  if (grown) *(void **)array = grown;
  return grown != NULL;
}

static tr_status reserve(bpe_work *w, size_t n) {
  if (n <= w->capacity) return TR_OK;
  if (n > INT32_MAX) return tr_error(TR_ERR_DATA, "a word of %zu characters is too long", n);
  size_t capacity = n < 256 ? 256 : n + n / 2;
  if (!resize(&w->id, capacity, sizeof *w->id))
    return tr_error(TR_ERR_MEMORY, "no memory for a word of %zu bytes", n);
  w->capacity = capacity;
  return TR_OK;
}

static tr_status reserve_lists(bpe_work *w, size_t n) {
  if (n <= w->list_capacity) return TR_OK;
  size_t capacity = n + n / 2;
  if (!resize(&w->previous, capacity, sizeof *w->previous) || !resize(&w->next, capacity, sizeof *w->next) ||
      !resize(&w->heap, 2 * capacity, sizeof *w->heap)) // each merge takes one off and puts at most two on
    return tr_error(TR_ERR_MEMORY, "no memory for a word of %zu bytes", n);
  w->list_capacity = capacity;
  return TR_OK;
}

static tr_status append(tr_tokens *out, const int32_t *id, size_t n) {
  TR_TRY(tr_tokens_reserve(out, n));
  if (n) memcpy(out->data + out->size, id, n * sizeof *id);
  out->size += n;
  return TR_OK;
}

static tr_status merge_and_append(const bpe *b, bpe_work *w, size_t n, tr_tokens *out) {
  if (n <= SHORT) return append(out, w->id, merge_short(b, w->id, n));
  TR_TRY(reserve_lists(w, n));
  return append(out, w->id, merge_long(b, w, n));
}

static tr_status encode_bytes(const tr__model *model, void *work, const char *word, size_t nbyte, tr_tokens *out) {
  const bpe *b = (const bpe *)model;
  bpe_work *w = work;
  if (b->ignore_merges) {
    int32_t whole = tr__vocabulary_find(b->words, word, nbyte);
    if (whole >= 0) return append(out, &whole, 1);
  }
  TR_TRY(reserve(w, nbyte));
  for (size_t i = 0; i < nbyte; i++) w->id[i] = b->byte[(unsigned char)word[i]];
  return merge_and_append(b, w, nbyte, out);
}

// The text of the character word[at .. at + n) as the vocabulary has it.
static int32_t find_character(const bpe *b, const char *word, size_t nbyte, size_t at, size_t n, char *spelled,
                              size_t *nspelled) {
  size_t size = 0;
  for (const char *p = b->prefix; at > 0 && *p; p++) spelled[size++] = *p;
  memcpy(spelled + size, word + at, n);
  size += n;
  for (const char *p = b->suffix; at + n == nbyte && *p; p++) spelled[size++] = *p;
  *nspelled = size;
  return tr__vocabulary_find(b->base.vocabulary, spelled, size);
}

// The bytes of a character that is not in the vocabulary as tokens; 0: not all of them are.
static size_t fall_back(const bpe *b, const char *spelled, size_t n, int32_t *id) {
  for (size_t i = 0; i < n; i++) {
    id[i] = b->fallback[(unsigned char)spelled[i]];
    if (id[i] < 0) return 0;
  }
  return n;
}

static tr_status unk_missing(const char *spelled, size_t n) {
  return tr_error(TR_ERR_DATA, "'%.*s' is not in the vocabulary, and neither is the token for what is not", (int)n,
                  spelled);
}

// A token per character into w->id. An unknown one waits until a known one follows, to be fused with those behind it; bytes
// do not count as known here, which is how the `tokenizers` library has it.
static tr_status split_characters(const bpe *b, bpe_work *w, const char *word, size_t nbyte, size_t *count) {
  size_t used = 0;
  int waiting = 0;
  for (size_t at = 0, n; at < nbyte; at += n) {
    char spelled[2 * AFFIX_MAX + 4];
    size_t nspelled, nfallback = 0;
    int32_t character;
    n = (size_t)tr__utf8_next(word + at, nbyte - at, &character);
    int32_t id = find_character(b, word, nbyte, at, n, spelled, &nspelled);
    if (id < 0 && b->byte_fallback) nfallback = fall_back(b, spelled, nspelled, w->id + used);
    used += nfallback;
    if (nfallback || (id < 0 && b->unk == UNK_NONE)) continue;
    if (id < 0 && b->unk == UNK_MISSING) return unk_missing(spelled, nspelled);
    if (waiting && !(id < 0 && b->fuse_unk)) w->id[used++] = b->unk;
    waiting = id < 0;
    if (id >= 0) w->id[used++] = id;
  }
  if (waiting) w->id[used++] = b->unk;
  *count = used;
  return TR_OK;
}

static tr_status encode_characters(const tr__model *model, void *work, const char *word, size_t nbyte,
                                   tr_tokens *out) {
  const bpe *b = (const bpe *)model;
  bpe_work *w = work;
  size_t n = 0;
  if (b->ignore_merges) {
    int32_t whole = tr__vocabulary_find(b->base.vocabulary, word, nbyte);
    if (whole >= 0) return append(out, &whole, 1);
  }
  if (nbyte > INT32_MAX) return tr_error(TR_ERR_DATA, "a word of %zu bytes is too long", nbyte);
  TR_TRY(reserve(w, nbyte * (1 + strlen(b->prefix)) + strlen(b->suffix) + 4));
  TR_TRY(split_characters(b, w, word, nbyte, &n));
  return merge_and_append(b, w, n, out);
}

static void work_free(void *work) {
  bpe_work *w = work;
  free(w->id);
  free(w->previous);
  free(w->next);
  free(w->heap);
}

static void bpe_free(tr__model *model) {
  bpe *b = (bpe *)model;
  tr__vocabulary_free(b->base.vocabulary);
  tr__vocabulary_free(b->words);
  free(b->slot);
  free(b);
}

static const tr__model_ops character_ops = {
    .free = bpe_free, .encode = encode_characters, .work_nbyte = sizeof(bpe_work), .work_free = work_free};
static const tr__model_ops byte_ops = {.free = bpe_free,
                                       .encode = encode_characters,
                                       .encode_bytes = encode_bytes,
                                       .work_nbyte = sizeof(bpe_work),
                                       .work_free = work_free};

// ---- parsing

static tr_status parse_vocabulary(bpe *b, const json_t *json, const char *name) {
  const char *key;
  json_t *value;
  const json_t *vocab = json_object_get(json, "vocab");
  if (!json_is_object(vocab)) return tr_error(TR_ERR_DATA, "%s: model: \"vocab\" is no object", name);
  size_t n = json_object_size(vocab);
  if (n > VOCAB_MAX)
    return tr_error(TR_ERR_DATA, "%s: model: %zu tokens; at most %d are accepted", name, n, VOCAB_MAX);
  TR_TRY(tr__vocabulary_create(n, &b->base.vocabulary));
  json_object_foreach((json_t *)vocab, key, value) {
    json_int_t number = json_is_integer(value) ? json_integer_value(value) : -1;
    if (number < 0 || number > INT32_MAX)
      return tr_error(TR_ERR_DATA, "%s: model: the number of token '%.100s' is no number from 0 to %d", name, key,
                      VOCAB_MAX - 1);
    tr_status status = tr__vocabulary_add_key(b->base.vocabulary, key, (int32_t)number);
    if (status != TR_OK) tr_error_prefix("%s: model", name);
    TR_TRY(status);
  }
  return TR_OK;
}

// The halves of a merge, "a b" or ["a", "b"].
static int halves(const json_t *row, tr__piece_text half[2]) {
  if (json_is_string(row)) {
    const char *text = json_string_value(row), *end = text + json_string_length(row);
    const char *blank = memchr(text, ' ', (size_t)(end - text));
    if (!blank || memchr(blank + 1, ' ', (size_t)(end - blank - 1))) return 0;
    half[0] = (tr__piece_text){text, (size_t)(blank - text)};
    half[1] = (tr__piece_text){blank + 1, (size_t)(end - blank - 1)};
    return 1;
  }
  if (json_array_size(row) != 2) return 0;
  for (int i = 0; i < 2; i++) {
    const json_t *text = json_array_get(row, (size_t)i);
    if (!json_is_string(text)) return 0;
    half[i] = (tr__piece_text){json_string_value(text), json_string_length(text)};
  }
  return 1;
}

static tr_status merge_unknown(const char *name, size_t row, const char *text, size_t nbyte) {
  return tr_error(TR_ERR_DATA, "%s: model: merge %zu: '%.*s' is not in the vocabulary", name, row,
                  nbyte < 100 ? (int)nbyte : 100, text);
}

static tr_status add_merge(bpe *b, const json_t *json, size_t row, const char *name, tr_text *made) {
  tr__piece_text half[2];
  int32_t id[2];
  size_t cut = strlen(b->prefix);
  if (!halves(json, half))
    return tr_error(TR_ERR_DATA, "%s: model: merge %zu is neither \"a b\" nor [\"a\", \"b\"]", name, row);
  for (int i = 0; i < 2; i++) {
    id[i] = tr__vocabulary_find(b->base.vocabulary, half[i].data, half[i].nbyte);
    if (id[i] < 0) return merge_unknown(name, row, half[i].data, half[i].nbyte);
  }
  if (half[1].nbyte < cut)
    return tr_error(TR_ERR_DATA, "%s: model: merge %zu: '%s' is shorter than the prefix '%s'", name, row,
                    half[1].data, b->prefix);
  made->size = 0;
  tr_text_append_bytes(made, half[0].data, half[0].nbyte);
  tr_text_append_bytes(made, half[1].data + cut, half[1].nbyte - cut);
  if (made->failed) return TR_ERR_MEMORY;
  int32_t whole = tr__vocabulary_find(b->base.vocabulary, made->data, made->size);
  if (whole < 0) return merge_unknown(name, row, made->data, made->size);
  uint64_t pair = (uint64_t)(uint32_t)id[0] << 32 | (uint32_t)id[1];
  slot *s = place(b, pair);
  if (s->pair == pair)
    return tr_error(TR_ERR_DATA, "%s: model: merge %zu is the same as merge %u", name, row, s->merge.rank);
  *s = (slot){.pair = pair, .merge = {.rank = (uint32_t)row, .made = whole}};
  return TR_OK;
}

static tr_status parse_merges(bpe *b, const json_t *json, const char *name) {
  const json_t *merges = json_object_get(json, "merges");
  tr_text made = {0};
  tr_status status = TR_OK;
  if (!json_is_array(merges)) return tr_error(TR_ERR_DATA, "%s: model: \"merges\" is no list", name);
  size_t n = json_array_size(merges);
  if (n > MERGES_MAX)
    return tr_error(TR_ERR_DATA, "%s: model: %zu merges; at most %d are accepted", name, n, MERGES_MAX);
  for (b->nslot = 64; b->nslot < 2 * n; b->nslot *= 2) {
  }
  b->slot = malloc(b->nslot * sizeof *b->slot);
  if (!b->slot) return tr_error(TR_ERR_MEMORY, "%s: no memory for %zu merges", name, n);
  for (size_t i = 0; i < b->nslot; i++) b->slot[i] = (slot){.pair = NO_PAIR, .merge = {.rank = NO_RANK}};
  for (size_t i = 0; i < n && status == TR_OK; i++) status = add_merge(b, json_array_get(merges, i), i, name, &made);
  tr_text_free(&made);
  return status;
}

static tr_status parse_affix(const json_t *json, const char *name, const char *key, char *copy, const char **out) {
  const char *text = "";
  TR_TRY(tr_json_get_string(json, name, key, 0, &text));
  if (strlen(text) > AFFIX_MAX)
    return tr_error(TR_ERR_DATA, "%s: model: %s has more than %d bytes", name, key, AFFIX_MAX);
  *out = strcpy(copy, text);
  return TR_OK;
}

static tr_status parse_options(bpe *b, const json_t *json, const char *name) {
  double dropout = 0;
  const char *unk = NULL;
  TR_TRY(tr_json_get_real(json, name, "dropout", 0, &dropout));
  if (dropout != 0)
    return tr_error(TR_ERR_DATA, "%s: model: dropout is %g; only 0 and null give the same tokens every time", name,
                    dropout);
  TR_TRY(tr_json_get_bool(json, name, "fuse_unk", 0, &b->fuse_unk));
  TR_TRY(tr_json_get_bool(json, name, "byte_fallback", 0, &b->byte_fallback));
  TR_TRY(tr_json_get_bool(json, name, "ignore_merges", 0, &b->ignore_merges));
  TR_TRY(parse_affix(json, name, "continuing_subword_prefix", b->affixes, &b->prefix));
  TR_TRY(parse_affix(json, name, "end_of_word_suffix", b->affixes + AFFIX_MAX + 1, &b->suffix));
  TR_TRY(tr_json_get_string(json, name, "unk_token", 0, &unk));
  b->unk = UNK_NONE;
  if (unk) b->unk = tr__vocabulary_find(b->base.vocabulary, unk, strlen(unk));
  if (unk && b->unk < 0) b->unk = UNK_MISSING; // an error only for a text that needs it
  return TR_OK;
}

static void find_bytes(bpe *b) {
  for (int i = 0; i < 256; i++) {
    char text[8];
    size_t n = tr__utf8_put(tr__byte_to_character((unsigned char)i), text);
    b->byte[i] = tr__vocabulary_find(b->base.vocabulary, text, n);
    (void)snprintf(text, sizeof text, "<0x%02X>", (unsigned)i);
    b->fallback[i] = tr__vocabulary_find(b->base.vocabulary, text, strlen(text));
  }
}

static int is_byte_level(const bpe *b) {
  for (int i = 0; i < 256; i++) {
    if (b->byte[i] < 0) return 0;
  }
  return !*b->prefix && !*b->suffix;
}

// The bytes that a token of the byte-level alphabet spells; 0: it has other characters.
static int spell(const char *text, size_t nbyte, tr_text *out) {
  int32_t character = 0;
  out->size = 0;
  for (size_t at = 0; at < nbyte;) {
    int n = tr__utf8_next(text + at, nbyte - at, &character), byte = n ? tr__character_to_byte(character) : -1;
    if (byte < 0) return 0;
    tr_text_append_bytes(out, &(char){(char)byte}, 1);
    at += (size_t)n;
  }
  return nbyte > 0;
}

static tr_status make_words(bpe *b) {
  tr_text spelled = {0};
  size_t n;
  int64_t limit = tr__vocabulary_limit(b->base.vocabulary);
  tr_status status = tr__vocabulary_create(tr__vocabulary_count(b->base.vocabulary), &b->words);
  for (int32_t i = 0; i < limit && status == TR_OK; i++) {
    const char *text = tr__vocabulary_text(b->base.vocabulary, i, &n);
    if (text && spell(text, n, &spelled)) status = tr__vocabulary_add(b->words, spelled.data, spelled.size, i);
  }
  if (spelled.failed) status = TR_ERR_MEMORY;
  tr_text_free(&spelled);
  return status;
}

static tr_status parse(bpe *b, const json_t *json, const char *name) {
  TR_TRY(tr__part_fields(json, name, "model",
                         "dropout unk_token continuing_subword_prefix end_of_word_suffix fuse_unk byte_fallback "
                         "ignore_merges vocab merges"));
  TR_TRY(parse_vocabulary(b, json, name));
  TR_TRY(parse_options(b, json, name));
  TR_TRY(parse_merges(b, json, name));
  find_bytes(b);
  int byte_level = is_byte_level(b);
  b->base.ops = byte_level ? &byte_ops : &character_ops;
  return byte_level && b->ignore_merges ? make_words(b) : TR_OK;
}

tr_status tr__bpe_parse(const json_t *json, const char *name, tr__model **out) {
  bpe *b = calloc(1, sizeof *b);
  if (!b) return tr_error(TR_ERR_MEMORY, "%s: no memory for the model", name);
  tr_status status = parse(b, json, name);
  if (status == TR_OK)
    *out = &b->base;
  else
    bpe_free(&b->base);
  return status;
}
