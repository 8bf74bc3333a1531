// SPDX-License-Identifier: MIT
// Added tokens: found in the text itself before it is normalized, or in the normalized text, the longest at the leftmost place.
//
// A place is worth a look when its byte and the next begin an added token (a bitmap); then the lengths of the tokens that
// begin with that byte are tried against a hash table, longest first. A token that is found but may not stand where it does
// (single_word, or special in plain text) hides what begins inside it, which is how the `tokenizers` library has it.
#include "token/tokenizer_internal.h"

#include "token/part_internal.h"
#include "trireme/base/json.h"
#include <stdlib.h>
#include <string.h>

enum { ADDED_MAX = 1 << 20 };

typedef struct entry {
  int32_t number;
  int special, lstrip, rstrip, single_word, normalized;
  const char *content; // of the json value while it is there, then of the vocabulary
  size_t nbyte;
} entry;

struct tr__added_set {
  tr__vocabulary *text; // to the number of the entry
  const entry *entry;
  size_t *length; // for each first byte b length[first[b]] .. length[first[b + 1] - 1], longest first
  size_t first[257];
  unsigned char begins[256];         // first bytes
  unsigned char pair[256 * 256 / 8]; // first two bytes; any second one after a token of one byte
};

struct tr__added {
  tr__vocabulary *vocabulary;
  entry *entry;
  size_t nentry;
  int32_t *by_number; // places in `entry`, -1: none
  tr__added_set raw, normalized;
};

// ---- finding

static int may_begin(const tr__added_set *set, unsigned char a, unsigned char b) {
  size_t pair = (size_t)a << 8 | b;
  return set->pair[pair / 8] >> (pair % 8) & 1;
}

// The longest token at `at`: its entry, -1: none.
static int32_t longest(const tr__added_set *set, const char *text, size_t nbyte, size_t at) {
  unsigned char a = (unsigned char)text[at];
  for (size_t i = set->first[a]; i < set->first[a + 1]; i++) {
    if (set->length[i] > nbyte - at) continue;
    int32_t found = tr__vocabulary_find(set->text, text + at, set->length[i]);
    if (found >= 0) return found;
  }
  return -1;
}

// The character that ends before `at`, and its bytes.
static size_t before(const char *text, size_t at, int32_t *character) {
  size_t n = 1;
  while (n < at && ((unsigned char)text[at - n] & 0xC0) == 0x80) n++;
  (void)tr__utf8_next(text + at - n, n, character);
  return n;
}

static int is_word_around(const char *text, size_t nbyte, size_t start, size_t end) {
  int32_t c = 0;
  if (start > 0) {
    (void)before(text, start, &c);
    if (tr__is_word(c)) return 1;
  }
  return tr__utf8_next(text + end, nbyte - end, &c) > 0 && tr__is_word(c);
}

static size_t blanks_before(const char *text, size_t at, size_t past) {
  while (at > past) {
    int32_t c = 0;
    size_t n = before(text, at, &c);
    if (!tr__is_space(c)) break;
    at -= n;
  }
  return at;
}

static size_t blanks_after(const char *text, size_t nbyte, size_t at) {
  for (int32_t c = 0, n; (n = tr__utf8_next(text + at, nbyte - at, &c)) > 0 && tr__is_space(c);) at += (size_t)n;
  return at;
}

int tr__added_find(const tr__added_set *set, const char *text, size_t nbyte, int plain, size_t past, size_t *from,
                   tr__added_match *match) {
  const unsigned char *byte = (const unsigned char *)text;
  for (size_t at = *from;;) {
    while (at < nbyte && !set->begins[byte[at]]) at++;
    if (at == nbyte) return 0;
    int32_t found = may_begin(set, byte[at], at + 1 < nbyte ? byte[at + 1] : 0) ? longest(set, text, nbyte, at) : -1;
    if (found < 0) {
      at++;
      continue;
    }
    const entry *e = &set->entry[found];
    size_t n, start = at;
    (void)tr__vocabulary_text(set->text, found, &n);
    at += n;
    if ((plain && e->special) || (e->single_word && is_word_around(text, nbyte, start, at))) continue;
    *from = at;
    match->number = e->number;
    match->start = e->lstrip ? blanks_before(text, start, past) : start;
    match->end = e->rstrip ? blanks_after(text, nbyte, at) : at;
    return 1;
  }
}

// ---- building

static int longer(const void *a, const void *b) {
  size_t x = *(const size_t *)a, y = *(const size_t *)b;
  return (x < y) - (x > y);
}

static size_t without_repeats(size_t *length, size_t n) {
  size_t kept = 0;
  for (size_t i = 0; i < n; i++) {
    if (kept == 0 || length[kept - 1] != length[i]) length[kept++] = length[i];
  }
  return kept;
}

static void add_pairs(tr__added_set *set, const unsigned char *text, size_t nbyte) {
  set->begins[text[0]] = 1;
  for (size_t b = nbyte > 1 ? text[1] : 0; b <= (nbyte > 1 ? text[1] : 255u); b++) {
    size_t pair = (size_t)text[0] << 8 | b;
    set->pair[pair / 8] |= (unsigned char)(1 << pair % 8);
  }
}

// The lengths by first byte: counted, placed, sorted, and repeats left out.
static tr_status index_lengths(tr__added_set *set) {
  size_t count[256] = {0}, place[256], kept = 0, n, all = tr__vocabulary_count(set->text);
  int64_t limit = tr__vocabulary_limit(set->text);
  set->length = malloc((all + 1) * sizeof *set->length);
  if (!set->length) return tr_error(TR_ERR_MEMORY, "no memory for %zu added tokens", all);
  for (int32_t i = 0; i < limit; i++) {
    const char *text = tr__vocabulary_text(set->text, i, &n);
    if (text) count[(unsigned char)text[0]]++;
  }
  for (size_t b = 0, sum = 0; b < 256; sum += count[b++]) place[b] = sum;
  for (int32_t i = 0; i < limit; i++) {
    const unsigned char *text = (const unsigned char *)tr__vocabulary_text(set->text, i, &n);
    if (!text) continue;
    set->length[place[text[0]]++] = n;
    add_pairs(set, text, n);
  }
  for (size_t b = 0, start = 0; b < 256; start += count[b++]) {
    qsort(set->length + start, count[b], sizeof *set->length, longer);
    n = without_repeats(set->length + start, count[b]);
    memmove(set->length + kept, set->length + start, n * sizeof *set->length);
    set->first[b] = kept;
    kept += n;
  }
  set->first[256] = kept;
  return TR_OK;
}

// The entries that this set looks for, special ones first: where normalizing makes two the same, the first one counts.
static tr_status fill_set(tr__added *added, tr__added_set *set, int normalized, const tr__normalizer *normalizer,
                          const char *name) {
  tr_text text = {0};
  tr_status status = tr__vocabulary_create(added->nentry, &set->text);
  set->entry = added->entry;
  for (int special = 1; special >= 0; special--) {
    for (size_t i = 0; i < added->nentry && status == TR_OK; i++) {
      const entry *e = &added->entry[i];
      if (e->special != special || e->normalized != normalized) continue;
      text.size = 0;
      if (normalized && normalizer)
        status = tr__normalize(normalizer, e->content, e->nbyte, &text);
      else
        tr_text_append_bytes(&text, e->content, e->nbyte);
      if (status == TR_OK && text.failed) status = TR_ERR_MEMORY;
      if (status == TR_OK && text.size == 0)
        status =
            tr_error(TR_ERR_DATA, "%s: added token '%.100s': the normalizer leaves nothing of it", name, e->content);
      if (status == TR_OK && tr__vocabulary_find(set->text, text.data, text.size) < 0)
        status = tr__vocabulary_add(set->text, text.data, text.size, (int32_t)i);
    }
  }
  tr_text_free(&text);
  return status == TR_OK ? index_lengths(set) : status;
}

// ---- parsing

static tr_status parse_entry(const json_t *json, const char *name, entry *out, int64_t *number) {
  const json_t *content = json_object_get(json, "content");
  *out = (entry){.normalized = 1};
  if (json_is_object(json))
    TR_TRY(tr__part_fields(json, name, "added token", "id content special lstrip rstrip single_word normalized"));
  TR_TRY(tr_json_get_int(json, name, "id", 1, number));
  if (!json_is_string(content) || json_string_length(content) == 0)
    return tr_error(TR_ERR_DATA, "%s: added token %lld has no \"content\"", name, (long long)*number);
  out->content = json_string_value(content);
  out->nbyte = json_string_length(content);
  TR_TRY(tr_json_get_bool(json, name, "special", 1, &out->special));
  TR_TRY(tr_json_get_bool(json, name, "lstrip", 0, &out->lstrip));
  TR_TRY(tr_json_get_bool(json, name, "rstrip", 0, &out->rstrip));
  TR_TRY(tr_json_get_bool(json, name, "single_word", 0, &out->single_word));
  TR_TRY(tr_json_get_bool(json, name, "normalized", 0, &out->normalized));
  return TR_OK;
}

// The number that the `tokenizers` library gives a token, whatever the file says: the model's, or the next free one.
static int64_t number_of(const tr__added *added, const tr__vocabulary *vocabulary, const entry *e) {
  int32_t known = tr__vocabulary_find(vocabulary, e->content, e->nbyte);
  int64_t model = (int64_t)tr__vocabulary_count(vocabulary), limit = tr__vocabulary_limit(added->vocabulary);
  if (known >= 0) return known;
  return limit > model ? limit : model;
}

static tr_status add(tr__added *added, const json_t *json, const char *name, const tr__vocabulary *vocabulary) {
  entry *e = &added->entry[added->nentry];
  int64_t number = -1;
  TR_TRY(parse_entry(json, name, e, &number));
  if (tr__vocabulary_find(added->vocabulary, e->content, e->nbyte) >= 0)
    return tr_error(TR_ERR_DATA, "%s: added token '%.100s' is there twice", name, e->content);
  int64_t expected = number_of(added, vocabulary, e);
  if (number != expected)
    return tr_error(TR_ERR_DATA, "%s: added token '%.100s' has the number %lld, but the vocabulary makes it %lld",
                    name, e->content, (long long)number, (long long)expected);
  e->number = (int32_t)number;
  tr_status status = tr__vocabulary_add(added->vocabulary, e->content, e->nbyte, e->number);
  if (status != TR_OK) tr_error_prefix("%s: added tokens", name);
  added->nentry++;
  return status;
}

static tr_status parse(tr__added *added, const json_t *json, const char *name, const tr__vocabulary *vocabulary,
                       const tr__normalizer *normalizer) {
  size_t n = json_array_size(json);
  if (n > ADDED_MAX)
    return tr_error(TR_ERR_DATA, "%s: %zu added tokens; at most %d are accepted", name, n, ADDED_MAX);
  added->entry = calloc(n + 1, sizeof *added->entry);
  if (!added->entry) return tr_error(TR_ERR_MEMORY, "%s: no memory for %zu added tokens", name, n);
  TR_TRY(tr__vocabulary_create(n, &added->vocabulary));
  for (size_t i = 0; i < n; i++) TR_TRY(add(added, json_array_get(json, i), name, vocabulary));
  size_t limit = (size_t)tr__vocabulary_limit(added->vocabulary);
  added->by_number = malloc((limit + 1) * sizeof *added->by_number);
  if (!added->by_number) return tr_error(TR_ERR_MEMORY, "%s: no memory for %zu added tokens", name, n);
  for (size_t i = 0; i < limit; i++) added->by_number[i] = -1;
  for (size_t i = 0; i < n; i++) {
    entry *e = &added->entry[i];
    added->by_number[e->number] = (int32_t)i;
    e->content = tr__vocabulary_text(added->vocabulary, e->number, &e->nbyte);
  }
  TR_TRY(fill_set(added, &added->raw, 0, NULL, name));
  return fill_set(added, &added->normalized, 1, normalizer, name);
}

tr_status tr__added_parse(const json_t *json, const char *name, const tr__vocabulary *vocabulary,
                          const tr__normalizer *normalizer, tr__added **out) {
  if (json && !json_is_null(json) && !json_is_array(json))
    return tr_error(TR_ERR_DATA, "%s: \"added_tokens\" is no list", name);
  tr__added *added = calloc(1, sizeof *added);
  if (!added) return tr_error(TR_ERR_MEMORY, "%s: no memory for added tokens", name);
  tr_status status = parse(added, json, name, vocabulary, normalizer);
  if (status == TR_OK)
    *out = added;
  else
    tr__added_free(added);
  return status;
}

void tr__added_free(tr__added *added) {
  if (!added) return;
  tr__vocabulary_free(added->vocabulary);
  tr__vocabulary_free(added->raw.text);
  tr__vocabulary_free(added->normalized.text);
  free(added->raw.length);
  free(added->normalized.length);
  free(added->by_number);
  free(added->entry);
  free(added);
}

const tr__added_set *tr__added_raw(const tr__added *added) { return &added->raw; }
const tr__added_set *tr__added_normalized(const tr__added *added) { return &added->normalized; }
const tr__vocabulary *tr__added_vocabulary(const tr__added *added) { return added->vocabulary; }

static const entry *entry_of(const tr__added *added, int32_t number) {
  if (number < 0 || number >= tr__vocabulary_limit(added->vocabulary)) return NULL;
  return added->by_number[number] < 0 ? NULL : &added->entry[added->by_number[number]];
}

int tr__added_is_special(const tr__added *added, int32_t number) {
  const entry *e = entry_of(added, number);
  return e && e->special;
}

const char *tr__added_text(const tr__added *added, int32_t number, size_t *nbyte) {
  const entry *e = entry_of(added, number);
  if (!e) return NULL;
  const char *text =
      e->normalized ? tr__vocabulary_text(added->normalized.text, (int32_t)(e - added->entry), nbyte) : NULL;
  if (text) return text;
  *nbyte = e->nbyte;
  return e->content;
}
