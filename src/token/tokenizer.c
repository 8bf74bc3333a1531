// SPDX-License-Identifier: MIT
// Opening a tokenizer and asking it questions; decoding. Encoding is in encode.c.
//
// A tokenizer.json is taken apart here: each member goes to the parser of its kind, which knows that member alone. What
// would change numbers and is not honoured is refused, so a file that opens gives the numbers of the `tokenizers` library.
#include "token/tokenizer_internal.h"

#include "trireme/base/file.h"
#include "trireme/base/json.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { NBYTE = 256, FILE_MAX = 256 << 20 };

static tr_status create(const char *name, tr_tokenizer **out) {
  tr_tokenizer *tokenizer = calloc(1, sizeof *tokenizer);
  char *copy = strdup(name);
  if (!tokenizer || !copy) {
    free(tokenizer);
    free(copy);
    return tr_error(TR_ERR_MEMORY, "no memory for tokenizer '%s'", name);
  }
  tokenizer->name = copy;
  *out = tokenizer;
  return TR_OK;
}

static tr_status open_bytes(tr_tokenizer **out) {
  TR_TRY(create("byte", out));
  (*out)->bytes = 1;
  (*out)->vocab = NBYTE;
  (*out)->hash = tr_hash_bytes("byte", 4);
  return TR_OK;
}

// ---- tokenizer.json

static tr_status check_members(const json_t *json, const char *name) {
  static const char *const known[] = {"version",       "truncation", "padding",        "added_tokens", "normalizer",
                                      "pre_tokenizer", "model",      "post_processor", "decoder"};
  enum { N = sizeof known / sizeof *known };
  const char *key;
  json_t *value;
  if (!json_is_object(json)) return tr_error(TR_ERR_DATA, "%s: not a tokenizer: no object", name);
  json_object_foreach((json_t *)json, key, value) {
    int i = 0;
    while (i < N && strcmp(known[i], key) != 0) i++;
    if (i == N) return tr_error(TR_ERR_DATA, "%s: the member \"%.100s\" of a tokenizer is not known", name, key);
  }
  return TR_OK;
}

// Cutting and filling up are the business of whoever makes batches.
static tr_status check_lengths(const json_t *json, const char *name) {
  const json_t *truncation = json_object_get(json, "truncation"), *padding = json_object_get(json, "padding");
  if (truncation && !json_is_null(truncation))
    return tr_error(TR_ERR_DATA, "%s: \"truncation\" would cut texts off; only null is accepted", name);
  const json_t *strategy = json_object_get(padding, "strategy"),
               *multiple = json_object_get(padding, "pad_to_multiple_of");
  int harmless = json_is_string(strategy) && strcmp(json_string_value(strategy), "BatchLongest") == 0 &&
                 (!multiple || json_is_null(multiple));
  if (padding && !json_is_null(padding) && !harmless)
    return tr_error(TR_ERR_DATA, "%s: \"padding\" would fill texts up; only null is accepted", name);
  return TR_OK;
}

// Files from before models had types are told apart as the `tokenizers` library does.
static const char *model_type(const json_t *model) {
  const json_t *type = json_object_get(model, "type");
  if (type) return json_is_string(type) ? json_string_value(type) : "(no string)";
  if (json_object_get(model, "merges")) return "BPE";
  if (json_is_array(json_object_get(model, "vocab"))) return "Unigram";
  return json_object_get(model, "max_input_chars_per_word") ? "WordPiece" : "WordLevel";
}

static tr_status parse_model(const json_t *json, const char *name, tr__model **out) {
  const json_t *model = json_object_get(json, "model");
  if (!json_is_object(model)) return tr_error(TR_ERR_DATA, "%s: \"model\" is no object", name);
  const char *type = model_type(model);
  if (strcmp(type, "BPE") == 0) return tr__bpe_parse(model, name, out);
  if (strcmp(type, "Unigram") == 0) return tr__unigram_parse(model, name, out);
  if (strcmp(type, "WordPiece") == 0 || strcmp(type, "WordLevel") == 0) return tr__word_parse(model, name, out);
  return tr_error(TR_ERR_DATA, "%s: model '%.100s' is not supported; there is: BPE, Unigram, WordPiece, WordLevel",
                  name, type);
}

// Members may stand in any order, so objects add up the hashes of their members.
static uint64_t hash_json(const json_t *json) {
  uint64_t part[2] = {(uint64_t)json_typeof(json), 0};
  const char *key;
  json_t *value;
  switch (json_typeof(json)) {
  case JSON_OBJECT:
    json_object_foreach((json_t *)json, key, value) {
      uint64_t member[2] = {tr_hash_bytes(key, strlen(key)), hash_json(value)};
      part[1] += tr_hash_bytes(member, sizeof member);
    }
    break;
  case JSON_ARRAY:
    for (size_t i = 0; i < json_array_size(json); i++) {
      uint64_t item[2] = {part[1], hash_json(json_array_get(json, i))};
      part[1] = tr_hash_bytes(item, sizeof item);
    }
    break;
  case JSON_STRING: part[1] = tr_hash_bytes(json_string_value(json), json_string_length(json)); break;
  case JSON_INTEGER: part[1] = (uint64_t)json_integer_value(json); break;
  case JSON_REAL: memcpy(&part[1], &(double){json_real_value(json)}, sizeof part[1]); break;
  default: break;
  }
  return tr_hash_bytes(part, sizeof part);
}

static uint64_t hash_numbers(const json_t *json) {
  static const char *const deciding[] = {"added_tokens", "normalizer", "pre_tokenizer", "model", "post_processor"};
  uint64_t hash[5] = {0};
  for (int i = 0; i < 5; i++) {
    const json_t *member = json_object_get(json, deciding[i]);
    if (member) hash[i] = hash_json(member);
  }
  return tr_hash_bytes(hash, sizeof hash);
}

static tr_status parse(tr_tokenizer *t, const json_t *json) {
  TR_TRY(check_members(json, t->name));
  TR_TRY(check_lengths(json, t->name));
  TR_TRY(parse_model(json, t->name, &t->model));
  TR_TRY(tr__normalizer_parse(json_object_get(json, "normalizer"), t->name, &t->normalizer));
  TR_TRY(tr__splitter_parse(json_object_get(json, "pre_tokenizer"), t->name, &t->splitter));
  TR_TRY(tr__added_parse(json_object_get(json, "added_tokens"), t->name, t->model->vocabulary, t->normalizer,
                         &t->added));
  TR_TRY(tr__template_parse(json_object_get(json, "post_processor"), t->name, &t->template));
  TR_TRY(tr__decoder_parse(json_object_get(json, "decoder"), t->name, &t->decoder));
  int64_t model = tr__vocabulary_limit(t->model->vocabulary),
          added = tr__vocabulary_limit(tr__added_vocabulary(t->added));
  t->vocab = model > added ? model : added;
  if (t->vocab == 0) return tr_error(TR_ERR_DATA, "%s: the vocabulary is empty", t->name);
  t->hash = hash_numbers(json);
  return TR_OK;
}

static tr_status parse_whole(const json_t *json, const char *name, tr_tokenizer **out) {
  tr_tokenizer *tokenizer = NULL;
  TR_TRY(create(name, &tokenizer));
  tr_status status = parse(tokenizer, json);
  if (status == TR_OK)
    *out = tokenizer;
  else
    tr_tokenizer_close(tokenizer);
  return status;
}

tr_status tr_tokenizer_parse(const char *text, size_t nbyte, const char *name, tr_tokenizer **out) {
  json_t *json = NULL;
  tr_text copy = {0};
  if (nbyte > FILE_MAX) return tr_error(TR_ERR_DATA, "%s: %zu bytes; at most %d are accepted", name, nbyte, FILE_MAX);
  tr__zero_keys_hide(&text, &nbyte, &copy);
  tr_status status = copy.failed ? tr_error(TR_ERR_MEMORY, "%s: no memory to parse it", name)
                                 : tr_json_parse_with_zeros(text, nbyte, name, &json);
  tr_text_free(&copy);
  if (status == TR_OK) status = parse_whole(json, name, out);
  json_decref(json);
  return status;
}

static tr_status open_file(const char *path, const char *name, tr_tokenizer **out) {
  char *text = NULL;
  size_t nbyte = 0;
  TR_TRY(tr_file_read(path, FILE_MAX, &text, &nbyte));
  tr_status status = tr_tokenizer_parse(text, nbyte, name, out);
  free(text);
  return status;
}

tr_status tr_tokenizer_open(const char *name, tr_tokenizer **out) {
  struct stat about;
  tr_text path = {0};
  if (strcmp(name, "byte") == 0) return open_bytes(out);
  int there = stat(name, &about) == 0;
  tr_text_append(&path, there && S_ISDIR(about.st_mode) ? "%s/tokenizer.json" : "%s", name);
  tr_status status;
  if (path.failed)
    status = TR_ERR_MEMORY;
  else if (!tr_file_exists(path.data))
    status =
        tr_error(TR_ERR_CONFIG, "tokenizer '%s' is neither 'byte' nor a tokenizer.json nor a folder with one", name);
  else
    status = open_file(path.data, name, out);
  tr_text_free(&path);
  return status;
}

void tr_tokenizer_close(tr_tokenizer *tokenizer) {
  if (!tokenizer) return;
  tr__normalizer_free(tokenizer->normalizer);
  tr__splitter_free(tokenizer->splitter);
  if (tokenizer->model) tokenizer->model->ops->free(tokenizer->model);
  tr__template_free(&tokenizer->template);
  tr__decoder_free(tokenizer->decoder);
  tr__added_free(tokenizer->added);
  free(tokenizer->name);
  free(tokenizer);
}

// ---- questions

const char *tr_tokenizer_name(const tr_tokenizer *tokenizer) { return tokenizer->name; }
int64_t tr_tokenizer_vocab(const tr_tokenizer *tokenizer) { return tokenizer->vocab; }
uint64_t tr_tokenizer_hash(const tr_tokenizer *tokenizer) { return tokenizer->hash; }
int tr_tokenizer_is_bytes(const tr_tokenizer *tokenizer) { return tokenizer->bytes; }

// A token of "byte" is spelled by its byte, so the text is one byte long.
int32_t tr_tokenizer_find(const tr_tokenizer *tokenizer, const char *token) {
  if (tokenizer->bytes) return token[0] && !token[1] ? (unsigned char)token[0] : -1;
  int32_t added = tr__vocabulary_find(tr__added_vocabulary(tokenizer->added), token, strlen(token));
  return added >= 0 ? added : tr__vocabulary_find(tokenizer->model->vocabulary, token, strlen(token));
}

int32_t tr_tokenizer_end(const tr_tokenizer *tokenizer) {
  static const char *const ends[] = {"<|endoftext|>", "<|end_of_text|>", "</s>", "<|im_end|>", "<eos>"};
  for (size_t i = 0; !tokenizer->bytes && i < sizeof ends / sizeof *ends; i++) {
    int32_t number = tr__vocabulary_find(tr__added_vocabulary(tokenizer->added), ends[i], strlen(ends[i]));
    if (tr__added_is_special(tokenizer->added, number)) return number;
  }
  return -1;
}

// ---- decoding

static tr_status decode_bytes(const int32_t *token, size_t ntoken, tr_text *out) {
  for (size_t i = 0; i < ntoken; i++) {
    if (token[i] >= 0 && token[i] < NBYTE) tr_text_append_bytes(out, &(char){(char)token[i]}, 1);
  }
  return out->failed ? TR_ERR_MEMORY : TR_OK;
}

tr_status tr_decode(const tr_tokenizer *tokenizer, const int32_t *token, size_t ntoken, int skip_special,
                    tr_text *out) {
  if (tokenizer->bytes) return decode_bytes(token, ntoken, out);
  tr__piece_text *text = malloc((ntoken + 1) * sizeof *text);
  size_t n = 0;
  if (!text) return tr_error(TR_ERR_MEMORY, "no memory for the texts of %zu tokens", ntoken);
  for (size_t i = 0; i < ntoken; i++) {
    if (skip_special && tr__added_is_special(tokenizer->added, token[i])) continue;
    tr__piece_text *t = &text[n];
    t->data = tr__added_text(tokenizer->added, token[i], &t->nbyte);
    if (!t->data) t->data = tr__vocabulary_text(tokenizer->model->vocabulary, token[i], &t->nbyte);
    if (t->data) n++;
  }
  tr_status status = tr__decoder_run(tokenizer->decoder, text, n, out);
  free(text);
  return status;
}
