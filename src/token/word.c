// SPDX-License-Identifier: MIT
// The models that look words up: WordLevel (a word is a token or unknown) and WordPiece (BERT: the longest piece of the
// vocabulary that begins the word, then the longest that goes on, and so on; unknown as a whole when there is none).
//
// Pieces that go on are spelled with a prefix ("##ing"). In the trie that is the same walk begun below the node of the
// prefix, so no text is put together.
#include "token/part_internal.h"
#include "token/trie_internal.h"
#include "trireme/base/json.h"
#include <stdlib.h>

enum { CHARACTERS_DEFAULT = 100, CHARACTERS_MAX = 10000 };

typedef struct word_model {
  tr__model model;
  tr__trie trie;      // of WordPiece only
  uint32_t go_on;     // node of the prefix
  int can_go_on;      // the vocabulary has pieces with the prefix
  int64_t characters; // of a longer word nothing is looked up
  int32_t unknown;    // -1: not in the vocabulary
} word_model;

static void word_free(tr__model *model) {
  if (!model) return;
  word_model *self = (word_model *)model;
  tr__trie_free(&self->trie);
  tr__vocabulary_free(model->vocabulary);
  free(self);
}

static tr_status put_unknown(const word_model *self, const char *word, size_t nbyte, tr_tokens *out) {
  if (self->unknown < 0)
    return tr_error(TR_ERR_DATA, "\"%.*s\" is not in the vocabulary, nor is the model's \"unk_token\"",
                    nbyte < 40 ? (int)nbyte : 40, word);
  TR_TRY(tr_tokens_reserve(out, 1));
  out->data[out->size++] = self->unknown;
  return TR_OK;
}

static tr_status level_encode(const tr__model *model, void *work, const char *word, size_t nbyte, tr_tokens *out) {
  (void)work;
  int32_t number = tr__vocabulary_find(model->vocabulary, word, nbyte);
  if (number < 0) return put_unknown((const word_model *)model, word, nbyte, out);
  TR_TRY(tr_tokens_reserve(out, 1));
  out->data[out->size++] = number;
  return TR_OK;
}

// The longest piece at the front of a text: its bytes, 0: none.
static size_t longest_piece(const tr__trie *trie, uint32_t node, const char *text, size_t nbyte, int32_t *number) {
  size_t longest = 0;
  for (size_t i = 0; i < nbyte && tr__trie_step(trie, &node, (unsigned char)text[i]); i++) {
    if (trie->number[node] < 0) continue;
    *number = trie->number[node];
    longest = i + 1;
  }
  return longest;
}

static int too_long(const char *word, size_t nbyte, int64_t limit) {
  int64_t n = 0;
  for (size_t i = 0; i < nbyte && n <= limit; i++) n += ((unsigned char)word[i] & 0xC0) != 0x80;
  return n > limit;
}

static tr_status piece_encode(const tr__model *model, void *work, const char *word, size_t nbyte, tr_tokens *out) {
  (void)work;
  const word_model *self = (const word_model *)model;
  if (too_long(word, nbyte, self->characters)) return put_unknown(self, word, nbyte, out);
  size_t before = out->size;
  for (size_t at = 0; at < nbyte;) {
    int32_t number = -1;
    size_t n = 0;
    if (at == 0 || self->can_go_on)
      n = longest_piece(&self->trie, at == 0 ? 0 : self->go_on, word + at, nbyte - at, &number);
    if (n == 0) {
      out->size = before;
      return put_unknown(self, word, nbyte, out);
    }
    TR_TRY(tr_tokens_reserve(out, 1));
    out->data[out->size++] = number;
    at += n;
  }
  return TR_OK;
}

static const tr__model_ops level_ops = {.free = word_free, .encode = level_encode};
static const tr__model_ops piece_ops = {.free = word_free, .encode = piece_encode};

static tr_status read_vocabulary(word_model *self, const json_t *json, const char *name) {
  json_t *vocab = json_object_get(json, "vocab");
  if (!json_is_object(vocab)) return tr_error(TR_ERR_DATA, "%s: the model's \"vocab\" is no object", name);
  TR_TRY(tr__vocabulary_create(json_object_size(vocab), &self->model.vocabulary));
  const char *key;
  json_t *value;
  json_object_foreach(vocab, key, value) {
    json_int_t number = json_integer_value(value);
    if (!json_is_integer(value) || number < 0 || number > INT32_MAX)
      return tr_error(TR_ERR_DATA, "%s: \"%s\" of the vocabulary has no number from 0 to %d", name, key, INT32_MAX);
    tr_status status = tr__vocabulary_add_key(self->model.vocabulary, key, (int32_t)number);
    if (status < 0) tr_error_prefix("%s", name);
    TR_TRY(status);
  }
  return TR_OK;
}

static tr_status read_pieces(word_model *self, const json_t *json, const char *name) {
  const char *prefix = "##";
  self->model.ops = &piece_ops;
  self->characters = CHARACTERS_DEFAULT;
  TR_TRY(tr_json_get_string(json, name, "continuing_subword_prefix", 0, &prefix));
  TR_TRY(tr_json_get_int(json, name, "max_input_chars_per_word", 0, &self->characters));
  if (self->characters < 0 || self->characters > CHARACTERS_MAX)
    return tr_error(TR_ERR_DATA, "%s: \"max_input_chars_per_word\" is %lld (0 to %d)", name,
                    (long long)self->characters, CHARACTERS_MAX);
  TR_TRY(tr__trie_build(self->model.vocabulary, &self->trie));
  self->can_go_on = 1;
  for (; *prefix && self->can_go_on; prefix++)
    self->can_go_on = tr__trie_step(&self->trie, &self->go_on, (unsigned char)*prefix);
  return TR_OK;
}

static tr_status read_word_model(word_model *self, const json_t *json, const char *name) {
  const char *type, *unknown = NULL;
  TR_TRY(tr__part_type(json, name, "model", &type));
  int pieces = strcmp(type, "WordPiece") == 0;
  if (!pieces && strcmp(type, "WordLevel") != 0)
    return tr_error(TR_ERR_DATA, "%s: model \"%s\" is not known (WordLevel and WordPiece are here)", name, type);
  TR_TRY(tr__part_fields(json, name, "model",
                         pieces ? "vocab unk_token continuing_subword_prefix max_input_chars_per_word"
                                : "vocab unk_token"));
  TR_TRY(tr_json_get_string(json, name, "unk_token", 1, &unknown));
  TR_TRY(read_vocabulary(self, json, name));
  self->unknown = tr__vocabulary_find(self->model.vocabulary, unknown, strlen(unknown));
  return pieces ? read_pieces(self, json, name) : TR_OK;
}

tr_status tr__word_parse(const json_t *json, const char *name, tr__model **out) {
  word_model *self = calloc(1, sizeof *self);
  if (!self) return tr_error(TR_ERR_MEMORY, "no memory for a model of words");
  self->model.ops = &level_ops;
  tr_status status = read_word_model(self, json, name);
  if (status < 0) {
    word_free(&self->model);
    return status;
  }
  *out = &self->model;
  return TR_OK;
}
