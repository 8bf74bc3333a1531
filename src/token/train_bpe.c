// SPDX-License-Identifier: MIT
// Learning a vocabulary: text to counted words, and what was learned to a tokenizer.json. The merging is train_bpe_merge.c.
//
//   text -> repaired UTF-8 -> special tokens cut out -> words of the pattern -> hash table of counts
//
// Bytes are numbered in the order of the byte-level alphabet, as in GPT-2's vocabulary, so a text without ties between
// equally frequent pairs, and one with them too, gives the merges that the `tokenizers` library learns from it.
#include "trireme/token/train_bpe.h"
#include "token/split_internal.h"
#include "token/train_bpe_internal.h"
#include "trireme/base/file.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

// Longer words (base64, a page of blanks) are counted in pieces: every merge in a word costs its length.
enum { WORD_MOST = 4096, BYTES = 256, FIRST_SLOTS = 1 << 16 };

struct tr_bpe_trainer {
  int64_t vocab, min_count;
  tr__scan_kind pattern;
  tr__classes *classes;
  char **special;
  size_t *special_at; // next place of each in the text being added
  size_t nspecial;
  tr_text text, repaired; // of the words; of the text being added
  tr__counted_word *word;
  size_t nword, capacity;
  uint32_t *slot; // numbers of words plus 1
  size_t nslot;
};

// ---- making one

static const struct {
  const char *name;
  tr__scan_kind kind;
} patterns[] = {{"gpt2", TR__SCAN_GPT2}, {"llama3", TR__SCAN_LLAMA3}, {"qwen", TR__SCAN_QWEN2}};

static tr__scan_kind find_pattern(const char *name) {
  for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++)
    if (strcmp(patterns[i].name, name) == 0) return patterns[i].kind;
  return TR__SCAN_NONE;
}

static tr_status check_special(const tr_bpe_trainer_options *o, size_t i) {
  const char *text = o->special[i];
  int32_t character;
  if (!*text) return tr_error(TR_ERR_CONFIG, "a special token without text cannot be found in any");
  for (size_t at = 0, n = strlen(text); at < n;) {
    int step = tr__utf8_next(text + at, n - at, &character);
    if (step == 0) return tr_error(TR_ERR_CONFIG, "special token %zu is not valid UTF-8", i + 1);
    at += (size_t)step;
  }
  for (size_t k = 0; k < i; k++)
    if (strcmp(o->special[k], text) == 0)
      return tr_error(TR_ERR_CONFIG, "the special token '%s' is given twice", text);
  return TR_OK;
}

static tr_status check_options(const tr_bpe_trainer_options *o) {
  int64_t least = BYTES + (int64_t)o->nspecial;
  if (o->vocab < least || o->vocab > INT32_MAX)
    return tr_error(TR_ERR_CONFIG,
                    "a vocabulary of %" PRId64 " tokens cannot be learned; %" PRId64
                    " (256 bytes and the special tokens) and more can",
                    o->vocab, least);
  if (find_pattern(o->pattern) == TR__SCAN_NONE)
    return tr_error(TR_ERR_CONFIG, "there is no pattern '%s'; there are gpt2, llama3 and qwen", o->pattern);
  for (size_t i = 0; i < o->nspecial; i++) TR_TRY(check_special(o, i));
  return TR_OK;
}

static tr_status grow_slots(tr_bpe_trainer *t) {
  size_t n = t->nslot ? 2 * t->nslot : FIRST_SLOTS;
  uint32_t *slot = calloc(n, sizeof *slot);
  if (!slot) return tr_error(TR_ERR_MEMORY, "no memory for %zu words", n);
  for (size_t w = 0; w < t->nword; w++) {
    size_t i = t->word[w].hash & (n - 1);
    while (slot[i]) i = (i + 1) & (n - 1);
    slot[i] = (uint32_t)w + 1;
  }
  free(t->slot);
  t->slot = slot;
  t->nslot = n;
  return TR_OK;
}

static tr_status fill_in(tr_bpe_trainer *t, const tr_bpe_trainer_options *o) {
  t->vocab = o->vocab;
  t->min_count = o->min_count;
  t->pattern = find_pattern(o->pattern);
  t->special = calloc(o->nspecial + 1, sizeof *t->special);
  t->special_at = calloc(o->nspecial + 1, sizeof *t->special_at);
  int failed = !t->special || !t->special_at;
  for (; !failed && t->nspecial < o->nspecial; t->nspecial++)
    failed = !(t->special[t->nspecial] = strdup(o->special[t->nspecial]));
  if (failed) return tr_error(TR_ERR_MEMORY, "no memory for %zu special tokens", o->nspecial);
  TR_TRY(grow_slots(t));
  return tr__classes_create(&t->classes);
}

tr_status tr_bpe_trainer_create(const tr_bpe_trainer_options *options, tr_bpe_trainer **out) {
  TR_TRY(check_options(options));
  tr_bpe_trainer *t = calloc(1, sizeof *t);
  if (!t) return tr_error(TR_ERR_MEMORY, "no memory for learning a vocabulary");
  tr_status status = fill_in(t, options);
  if (status == TR_OK)
    *out = t;
  else
    tr_bpe_trainer_destroy(t);
  return status;
}

void tr_bpe_trainer_destroy(tr_bpe_trainer *trainer) {
  if (!trainer) return;
  for (size_t i = 0; i < trainer->nspecial; i++) free(trainer->special[i]);
  free(trainer->special);
  free(trainer->special_at);
  tr__classes_free(trainer->classes);
  tr_text_free(&trainer->text);
  tr_text_free(&trainer->repaired);
  free(trainer->word);
  free(trainer->slot);
  free(trainer);
}

// ---- counting words

static tr_status add_word(tr_bpe_trainer *t, const char *text, uint32_t nbyte, uint32_t hash) {
  if (t->nword == t->capacity) {
    size_t capacity = t->capacity ? 2 * t->capacity : 1024;
    tr__counted_word *word = capacity <= UINT32_MAX ? realloc(t->word, capacity * sizeof *word) : NULL;
    if (!word) return tr_error(TR_ERR_MEMORY, "no memory for %zu different words", capacity);
    t->word = word;
    t->capacity = capacity;
  }
  t->word[t->nword++] = (tr__counted_word){.start = t->text.size, .nbyte = nbyte, .hash = hash, .count = 1};
  tr_text_append_bytes(&t->text, text, nbyte);
  return t->text.failed ? TR_ERR_MEMORY : TR_OK;
}

static tr_status count_word(tr_bpe_trainer *t, const char *text, uint32_t nbyte) {
  uint32_t hash = (uint32_t)tr_hash_bytes(text, nbyte);
  if (2 * t->nword >= t->nslot) TR_TRY(grow_slots(t));
  size_t i = hash & (t->nslot - 1);
  for (; t->slot[i]; i = (i + 1) & (t->nslot - 1)) {
    tr__counted_word *word = &t->word[t->slot[i] - 1];
    if (word->hash != hash || word->nbyte != nbyte || memcmp(t->text.data + word->start, text, nbyte) != 0) continue;
    word->count++;
    return TR_OK;
  }
  TR_TRY(add_word(t, text, nbyte, hash));
  t->slot[i] = (uint32_t)t->nword;
  return TR_OK;
}

static tr_status count_words(tr_bpe_trainer *t, const char *text, size_t nbyte) {
  for (size_t at = 0; at < nbyte;) {
    size_t end = tr__scan_next(t->classes, t->pattern, text, nbyte, at);
    for (; at < end; at += WORD_MOST) {
      size_t n = end - at < WORD_MOST ? end - at : WORD_MOST;
      if (n > 1) TR_TRY(count_word(t, text + at, (uint32_t)n)); // one byte has no pair
    }
    at = end;
  }
  return TR_OK;
}

// The first special token from `at` on, of several at one place the longest; its place is nbyte when there is none. Where
// each comes next is kept, so that rare ones are not looked for again and again.
static size_t find_special(tr_bpe_trainer *t, const char *text, size_t nbyte, size_t at, size_t *length) {
  size_t first = nbyte;
  *length = 0;
  for (size_t i = 0; i < t->nspecial; i++) {
    size_t n = strlen(t->special[i]);
    if (at == 0 || t->special_at[i] < at) {
      const char *found = memmem(text + at, nbyte - at, t->special[i], n);
      t->special_at[i] = found ? (size_t)(found - text) : nbyte;
    }
    if (t->special_at[i] > first || (t->special_at[i] == first && n <= *length)) continue;
    first = t->special_at[i];
    *length = n;
  }
  return first;
}

tr_status tr_bpe_trainer_add(tr_bpe_trainer *trainer, const char *text, size_t nbyte) {
  trainer->repaired.size = 0;
  tr_utf8_repair(text, nbyte, &trainer->repaired);
  if (trainer->repaired.failed) return TR_ERR_MEMORY;
  text = trainer->repaired.data;
  nbyte = trainer->repaired.size;
  for (size_t at = 0; at < nbyte;) {
    size_t length, special = find_special(trainer, text, nbyte, at, &length);
    TR_TRY(count_words(trainer, text + at, special - at));
    at = special < nbyte ? special + length : nbyte;
  }
  return TR_OK;
}

// ---- the finished tokenizer

static json_t *byte_level(int use_regex) {
  return json_pack("{s:s, s:b, s:b, s:b}", "type", "ByteLevel", "add_prefix_space", 0, "trim_offsets", 1, "use_regex",
                   use_regex);
}

static json_t *pre_tokenizer(tr__scan_kind pattern) {
  if (pattern == TR__SCAN_GPT2) return byte_level(1);
  return json_pack("{s:s, s:[{s:s, s:{s:s}, s:s, s:b}, o]}", "type", "Sequence", "pretokenizers", "type", "Split",
                   "pattern", "Regex", tr__scan_regex(pattern), "behavior", "Isolated", "invert", 0, byte_level(0));
}

static json_t *token_text(const tr__vocabulary *vocabulary, int32_t number) {
  size_t n;
  const char *text = tr__vocabulary_text(vocabulary, number, &n);
  return json_stringn(text, n);
}

static json_t *vocabulary_json(const tr__vocabulary *vocabulary) {
  json_t *out = json_object();
  for (int32_t i = 0; i < tr__vocabulary_limit(vocabulary); i++) {
    json_t *text = token_text(vocabulary, i);
    json_object_set_new(out, json_string_value(text), json_integer(i));
    json_decref(text);
  }
  return out;
}

static json_t *merges_json(const tr__vocabulary *vocabulary, const tr__merge *merge, size_t nmerge) {
  json_t *out = json_array();
  for (size_t i = 0; i < nmerge; i++) {
    json_t *left = token_text(vocabulary, merge[i].left), *right = token_text(vocabulary, merge[i].right);
    json_array_append_new(out, json_sprintf("%s %s", json_string_value(left), json_string_value(right)));
    json_decref(left);
    json_decref(right);
  }
  return out;
}

static json_t *added_json(const tr_bpe_trainer *t, int64_t first) {
  json_t *out = json_array();
  for (size_t i = 0; i < t->nspecial; i++)
    json_array_append_new(out, json_pack("{s:I, s:s, s:b, s:b, s:b, s:b, s:b}", "id",
                                         (json_int_t)first + (json_int_t)i, "content", t->special[i], "single_word",
                                         0, "lstrip", 0, "rstrip", 0, "normalized", 0, "special", 1));
  return out;
}

static tr_status write_json(const tr_bpe_trainer *t, const tr__vocabulary *vocabulary, const tr__merge *merge,
                            size_t nmerge, tr_text *out) {
  json_t *model =
      json_pack("{s:s, s:n, s:n, s:n, s:n, s:b, s:b, s:b, s:o, s:o}", "type", "BPE", "dropout", "unk_token",
                "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk", 0, "byte_fallback", 0, "ignore_merges",
                0, "vocab", vocabulary_json(vocabulary), "merges", merges_json(vocabulary, merge, nmerge));
  json_t *all =
      json_pack("{s:s, s:n, s:n, s:o, s:n, s:o, s:o, s:o, s:o}", "version", "1.0", "truncation", "padding",
                "added_tokens", added_json(t, tr__vocabulary_limit(vocabulary)), "normalizer", "pre_tokenizer",
                pre_tokenizer(t->pattern), "post_processor", byte_level(1), "decoder", byte_level(1), "model", model);
  char *text = all ? json_dumps(all, JSON_INDENT(1)) : NULL;
  if (text) tr_text_append(out, "%s\n", text);
  tr_status status = text && !out->failed ? TR_OK : tr_error(TR_ERR_MEMORY, "no memory for the tokenizer's text");
  free(text);
  json_decref(all);
  return status;
}

static tr_status add_bytes(tr__vocabulary *vocabulary) {
  int32_t number = 0;
  for (int32_t character = 0; number < BYTES; character++) {
    if (tr__character_to_byte(character) < 0) continue;
    char text[4];
    size_t n = tr__utf8_put(character, text);
    TR_TRY(tr__vocabulary_add(vocabulary, text, n, number++));
  }
  return TR_OK;
}

static tr_status check_learned(const tr_bpe_trainer *t, const tr__vocabulary *vocabulary) {
  for (size_t i = 0; i < t->nspecial; i++)
    if (tr__vocabulary_find(vocabulary, t->special[i], strlen(t->special[i])) >= 0)
      return tr_error(TR_ERR_CONFIG,
                      "the special token '%s' is spelled like an ordinary one; choose another spelling",
                      t->special[i]);
  return TR_OK;
}

tr_status tr_bpe_trainer_finish(tr_bpe_trainer *trainer, void (*progress)(void *user, int64_t done, int64_t all),
                                void *user, tr_text *out) {
  tr__vocabulary *vocabulary = NULL;
  tr__merge *merge = NULL;
  size_t nmerge = 0, ntoken = (size_t)trainer->vocab - trainer->nspecial;
  const tr__learn_options options = {.text = trainer->text.data,
                                     .word = trainer->word,
                                     .nword = trainer->nword,
                                     .ntoken = ntoken,
                                     .min_count = trainer->min_count,
                                     .progress = progress,
                                     .user = user};
  TR_TRY(tr__vocabulary_create(BYTES, &vocabulary));
  tr_status status = add_bytes(vocabulary);
  if (status == TR_OK) status = tr__learn_merges(&options, vocabulary, &merge, &nmerge);
  if (status == TR_OK) status = check_learned(trainer, vocabulary);
  if (status == TR_OK) status = write_json(trainer, vocabulary, merge, nmerge, out);
  free(merge);
  tr__vocabulary_free(vocabulary);
  return status;
}
