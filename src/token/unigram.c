// SPDX-License-Identifier: MIT
// The Unigram model: the most likely way to cut a word into pieces (Kudo, "Subword regularization", 2018), by Viterbi.
//
// best(end) = max over pieces that end there of best(start) + score(piece), in doubles and in the order in which the
// `tokenizers` library adds them, so that ties fall the same way: the earliest start wins. A character that is no piece
// may be taken as unknown, with the lowest score of all minus 10; neighbouring unknowns become one token, or, with byte
// fallback, the tokens of their bytes.
//
// Words may be whole documents. Wherever no piece reaches across a place, every way goes through it: what lies before is
// decided, is put out, and its memory is used again. So memory follows the longest stretch that pieces bridge, not the
// word. Cost: nbyte steps times the longest piece.
#include "token/part_internal.h"
#include "token/trie_internal.h"
#include "trireme/base/json.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

// A longer piece makes the cost of a byte a matter of the file.
enum { PIECE_MAX = 4096 };
static const double UNKNOWN_PENALTY = 10.0;

typedef struct unigram {
  tr__model model;
  tr__trie trie;
  double *score; // of every number
  double unknown_score;
  int32_t unknown; // -1: the model has none
  int byte_fallback;
  int32_t byte_number[256]; // of "<0x00>" .. "<0xFF>", -1: none
} unigram;

// The best way to a place: its score, and the length and number of its last piece. length 0: none yet.
typedef struct node {
  double score;
  uint32_t length;
  int32_t number;
} node;

typedef struct unigram_work {
  node *node; // from the last decided place on
  size_t filled, capacity;
} unigram_work;

static void unigram_work_free(void *work) {
  unigram_work *own = work;
  free(own->node);
  *own = (unigram_work){0};
}

static void unigram_free(tr__model *model) {
  if (!model) return;
  unigram *self = (unigram *)model;
  tr__trie_free(&self->trie);
  tr__vocabulary_free(model->vocabulary);
  free(self->score);
  free(self);
}

static tr_status push(tr_tokens *out, int32_t number) {
  if (out->size == out->capacity) TR_TRY(tr_tokens_reserve(out, 1));
  out->data[out->size++] = number;
  return TR_OK;
}

// Neighbouring unknown characters: together they may be a piece after all, one whose score was worse.
static tr_status put_unknown(const unigram *self, const char *text, size_t nbyte, tr_tokens *out) {
  if (nbyte <= self->trie.longest) {
    int32_t whole = tr__vocabulary_find(self->model.vocabulary, text, nbyte);
    if (whole >= 0) return push(out, whole);
  }
  int bytes = self->byte_fallback;
  for (size_t i = 0; bytes && i < nbyte; i++) bytes = self->byte_number[(unsigned char)text[i]] >= 0;
  if (!bytes) return push(out, self->unknown);
  for (size_t i = 0; i < nbyte; i++) TR_TRY(push(out, self->byte_number[(unsigned char)text[i]]));
  return TR_OK;
}

// One word on its way: everything before `decided` has been put out but for the unknown characters before it.
typedef struct walk {
  const unigram *self;
  unigram_work *work;
  const char *word;
  size_t decided, unknown; // the last `unknown` bytes before `decided` are unknown characters
  tr_tokens *out;
} walk;

static tr_status end_unknown(walk *w, size_t at) {
  size_t n = w->unknown;
  w->unknown = 0;
  return n ? put_unknown(w->self, w->word + at - n, n, w->out) : TR_OK;
}

// Every way goes through `end`: turn the links of the best one around, then put its pieces out from the front.
static tr_status decide(walk *w, size_t end) {
  node *nodes = w->work->node, last = nodes[end - w->decided];
  double score = last.score;
  for (size_t at = end - w->decided; at > 0;) {
    size_t from = at - last.length;
    node before = nodes[from];
    nodes[from] = last;
    at = from;
    last = before;
  }
  size_t at = w->decided;
  while (at < end) {
    node piece = nodes[at - w->decided];
    if (piece.number == w->self->unknown) {
      w->unknown += piece.length;
    } else {
      TR_TRY(end_unknown(w, at));
      TR_TRY(push(w->out, piece.number));
    }
    at += piece.length;
  }
  w->decided = end;
  w->work->filled = 0;
  nodes[0] = (node){score, 0, -1};
  return TR_OK;
}

// Let nodes exist up to `place` after the decided one.
static tr_status reach(unigram_work *work, size_t place) {
  if (place >= work->capacity) {
    size_t capacity = work->capacity ? work->capacity : 256;
    while (capacity <= place) capacity *= 2;
    node *grown = realloc(work->node, capacity * sizeof *grown);
    if (!grown) return tr_error(TR_ERR_MEMORY, "no memory to cut a word after %zu undecided bytes", place);
    work->node = grown;
    work->capacity = capacity;
  }
  while (work->filled < place) work->node[++work->filled].length = 0;
  return TR_OK;
}

static tr_status offer(walk *w, size_t start, size_t length, double score, int32_t number) {
  size_t end = start + length - w->decided;
  TR_TRY(reach(w->work, end));
  node *target = &w->work->node[end];
  if (target->length == 0 || score > target->score) *target = (node){score, (uint32_t)length, number};
  return TR_OK;
}

// Offer every piece that begins at `start`, and the character there as unknown when it is no piece.
static tr_status offer_pieces(walk *w, size_t start, size_t nbyte, size_t character) {
  const unigram *self = w->self;
  double before = w->work->node[start - w->decided].score;
  uint32_t at = 0;
  int single = 0;
  for (size_t end = start; end < nbyte && tr__trie_step(&self->trie, &at, (unsigned char)w->word[end]);) {
    end++;
    int32_t number = self->trie.number[at];
    if (number < 0) continue;
    TR_TRY(offer(w, start, end - start, self->score[number] + before, number));
    single |= end - start == character;
  }
  if (single) return TR_OK;
  if (self->unknown < 0)
    return tr_error(TR_ERR_DATA, "\"%.*s\" is not in the vocabulary, and the model has no \"unk_id\"", (int)character,
                    w->word + start);
  return offer(w, start, character, self->unknown_score + before, self->unknown);
}

static tr_status unigram_encode(const tr__model *model, void *work, const char *word, size_t nbyte, tr_tokens *out) {
  walk w = {(const unigram *)model, work, word, 0, 0, out};
  w.work->filled = 0;
  TR_TRY(reach(w.work, 0));
  w.work->node[0] = (node){0.0, 0, -1};
  for (size_t at = 0; at < nbyte;) {
    if (at > w.decided && at == w.decided + w.work->filled) TR_TRY(decide(&w, at));
    int32_t character;
    int n = tr__utf8_next(word + at, nbyte - at, &character);
    if (n == 0) return tr_error(TR_ERR_INTERNAL, "a word is not UTF-8");
    TR_TRY(offer_pieces(&w, at, nbyte, (size_t)n));
    at += (size_t)n;
  }
  if (nbyte) TR_TRY(decide(&w, nbyte));
  return end_unknown(&w, nbyte);
}

static const tr__model_ops unigram_ops = {
    .free = unigram_free,
    .encode = unigram_encode,
    .work_nbyte = sizeof(unigram_work),
    .work_free = unigram_work_free,
};

static double power_of_ten(int n) {
  char text[16];
  snprintf(text, sizeof text, "1e%d", n);
  return strtod(text, NULL);
}

// A score as the `tokenizers` library reads it: its shortest decimal digits as an integer, rounded to double, times or by a
// power of ten, rounded again. With 16 or 17 digits that may be off in the last bit, which decides between equal ways.
static double read_score(double exact) {
  char text[40] = "";
  double size = fabs(exact);
  int ndigit = 15;
  for (; ndigit <= 17; ndigit++) {
    snprintf(text, sizeof text, "%.*e", ndigit - 1, size);
    if (strtod(text, NULL) == size) break;
  }
  uint64_t digits = 0;
  const char *at = text;
  for (; *at && *at != 'e'; at++)
    if (*at >= '0' && *at <= '9') digits = 10 * digits + (uint64_t)(*at - '0');
  int exponent = (*at ? atoi(at + 1) : 0) - (ndigit - 1);
  if (exponent < -300 || exponent > 290) return exact; // no logarithm of a frequency
  double value = exponent < 0 ? (double)digits / power_of_ten(-exponent) : (double)digits * power_of_ten(exponent);
  return exact < 0 ? -value : value;
}

static tr_status add_piece(unigram *self, const json_t *row, int32_t number, const char *name, double *lowest) {
  const json_t *text = json_array_get(row, 0), *score = json_array_get(row, 1);
  if (json_array_size(row) != 2 || !json_is_string(text) || !json_is_number(score))
    return tr_error(TR_ERR_DATA, "%s: piece %d of the vocabulary is not [text, score]", name, (int)number);
  if (json_string_length(text) > PIECE_MAX)
    return tr_error(TR_ERR_DATA, "%s: piece %d of the vocabulary has %zu bytes (at most %d)", name, (int)number,
                    json_string_length(text), PIECE_MAX);
  self->score[number] = read_score(json_number_value(score));
  if (number == 0 || self->score[number] < *lowest) *lowest = self->score[number];
  tr_status status =
      tr__vocabulary_add(self->model.vocabulary, json_string_value(text), json_string_length(text), number);
  if (status < 0) tr_error_prefix("%s", name);
  return status;
}

static tr_status add_pieces(unigram *self, const json_t *json, const char *name) {
  const json_t *vocab = json_object_get(json, "vocab");
  size_t n = json_array_size(vocab);
  if (!json_is_array(vocab) || n == 0 || n > INT32_MAX)
    return tr_error(TR_ERR_DATA, "%s: the \"vocab\" of a Unigram model is no list of [text, score]", name);
  self->score = malloc(n * sizeof *self->score);
  if (!self->score) return tr_error(TR_ERR_MEMORY, "no memory for %zu scores", n);
  TR_TRY(tr__vocabulary_create(n, &self->model.vocabulary));
  double lowest = 0;
  for (size_t i = 0; i < n; i++) TR_TRY(add_piece(self, json_array_get(vocab, i), (int32_t)i, name, &lowest));
  self->unknown_score = lowest - UNKNOWN_PENALTY;
  for (int byte = 0; byte < 256; byte++) {
    char text[8];
    int length = snprintf(text, sizeof text, "<0x%02X>", (unsigned)byte);
    self->byte_number[byte] = tr__vocabulary_find(self->model.vocabulary, text, (size_t)length);
  }
  return tr__trie_build(self->model.vocabulary, &self->trie);
}

static tr_status read_unigram(unigram *self, const json_t *json, const char *name) {
  TR_TRY(tr__part_fields(json, name, "model", "unk_id vocab byte_fallback"));
  int64_t unknown = -1;
  TR_TRY(tr_json_get_int(json, name, "unk_id", 0, &unknown));
  TR_TRY(tr_json_get_bool(json, name, "byte_fallback", 0, &self->byte_fallback));
  TR_TRY(add_pieces(self, json, name));
  if (unknown < -1 || unknown >= tr__vocabulary_limit(self->model.vocabulary))
    return tr_error(TR_ERR_DATA, "%s: \"unk_id\" is %lld, outside the vocabulary of %lld pieces", name,
                    (long long)unknown, (long long)tr__vocabulary_limit(self->model.vocabulary));
  self->unknown = (int32_t)unknown;
  return TR_OK;
}

tr_status tr__unigram_parse(const json_t *json, const char *name, tr__model **out) {
  unigram *self = calloc(1, sizeof *self);
  if (!self) return tr_error(TR_ERR_MEMORY, "no memory for a Unigram model");
  self->model.ops = &unigram_ops;
  tr_status status = read_unigram(self, json, name);
  if (status < 0) {
    unigram_free(&self->model);
    return status;
  }
  *out = &self->model;
  return TR_OK;
}
