// SPDX-License-Identifier: MIT
// tier: quick
// timeout: 60
// The Unigram model finds what a plain Viterbi over the whole word finds, with ties and unknown characters as in the
// `tokenizers` library, in linear time; WordLevel and WordPiece look words up; what is wrong in a file is refused by name.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "token/mutate.h"
#include "token/token_internal.h"
#include "token/trie_internal.h"
#include "trireme/base/json.h"
#include "trireme/base/philox.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(table) (sizeof(table) / sizeof *(table))

typedef tr_status (*parser)(const json_t *json, const char *name, tr__model **out);

static tr_status parse(parser read, const char *text, tr__model **out) {
  json_t *json = NULL;
  *out = NULL;
  assert_int_equal(tr_json_parse(text, strlen(text), "test", &json), TR_OK);
  tr_status status = read(json, "test", out);
  json_decref(json);
  return status;
}

static tr__model *parse_good(parser read, const char *text) {
  tr__model *model;
  if (parse(read, text, &model) < 0) fail_msg("%s: %s", text, tr_status_text());
  return model;
}

static tr_status encode(const tr__model *model, const char *word, size_t nbyte, tr_tokens *out) {
  void *work = calloc(1, model->ops->work_nbyte + 1);
  assert_non_null(work);
  tr_status status = model->ops->encode(model, work, word, nbyte, out);
  if (model->ops->work_free) model->ops->work_free(work);
  free(work);
  return status;
}

static void assert_numbers(const tr__model *model, const char *word, const char *expected) {
  tr_tokens out = {0};
  tr_text text = {0};
  tr_text_append(&text, "%s", "");
  if (encode(model, word, strlen(word), &out) < 0) fail_msg("'%s': %s", word, tr_status_text());
  for (size_t i = 0; i < out.size; i++) tr_text_append(&text, "%s%d", i ? " " : "", out.data[i]);
  if (strcmp(text.data, expected) != 0) fail_msg("'%s' became '%s', not '%s'", word, text.data, expected);
  tr_text_free(&text);
  tr_tokens_free(&out);
}

typedef struct row {
  const char *word, *expected;
} row;

static void assert_rows(parser read, const char *json, const row *rows, size_t nrow) {
  tr__model *model = parse_good(read, json);
  for (size_t i = 0; i < nrow; i++) assert_numbers(model, rows[i].word, rows[i].expected);
  model->ops->free(model);
}

// ---- Unigram

static const char letters[] =
    "{\"type\":\"Unigram\",\"unk_id\":0,\"byte_fallback\":false,\"vocab\":[[\"<unk>\",0],[\"a\",0],"
    "[\"b\",0],[\"c\",0],[\"d\",0],[\"cd\",1],[\"ab\",2],[\"abc\",5],[\"abcd\",10],"
    "[\"zz\",-90],[\"\",3],[\"\\u00e9\",-1],[\"e\\u0301\",-1]]}";

static void the_best_way_is_taken(void **state) {
  (void)state;
  static const row rows[] = {
      {"", ""},
      {"abcd", "8"},
      {"abcdacdxx", "8 1 5 0"}, // unknown characters become one token
      {"xaxxbx\u00E9x", "0 1 0 2 0 11 0"},
      {"zz", "9"},
      {"zzz", "0 9"},
      {"azza", "1 9 1"},
      {"e\u0301", "12"},
      {"<unk>", "0"},
      {"\U0001F600\u4E2D", "0"},
  };
  assert_rows(tr__unigram_parse, letters, rows, COUNT(rows));
}

// Only with scores above 0 can unknown characters be the better way.
static void unknown_characters_that_are_a_piece_together_are_that_piece(void **state) {
  (void)state;
  static const row rows[] = {{"zz", "1"}, {"zzz", "0"}, {"z", "0"}, {"azza", "2 1 2"}};
  assert_rows(tr__unigram_parse, "{\"type\":\"Unigram\",\"unk_id\":0,\"vocab\":[[\"?\",30],[\"zz\",21],[\"a\",50]]}",
              rows, COUNT(rows));
}

// Of equal ways the one whose last piece begins first is taken, as in the library.
static void of_equal_ways_the_longest_last_piece_wins(void **state) {
  (void)state;
  static const row rows[] = {{"aaa", "1 2"}, {"aaaa", "2 2"}, {"aaaaa", "1 2 2"}, {"ab", "4"}, {"aab", "1 4"}};
  assert_rows(
      tr__unigram_parse,
      "{\"type\":\"Unigram\",\"unk_id\":0,\"vocab\":[[\"?\",-9],[\"a\",-1],[\"aa\",-2],[\"b\",-1],[\"ab\",-2]]}",
      rows, COUNT(rows));
}

static void unknown_characters_fall_back_to_bytes(void **state) {
  (void)state;
  tr_text json = {0};
  tr_text_append(&json,
                 "{\"type\":\"Unigram\",\"unk_id\":0,\"byte_fallback\":true,\"vocab\":[[\"<unk>\",0],[\"a\",-1]");
  for (int i = 0; i < 256; i++)
    if (i != 'z') tr_text_append(&json, ",[\"<0x%02X>\",-20]", (unsigned)i);
  tr_text_append(&json, "]}");
  static const row rows[] = {
      {"a\u00E9a", "1 196 170 1"}, // <0x00> is 2; bytes from 'z' on are one lower
      {"bc", "100 101"},
      {"bzc", "0"}, // one byte has no token: the whole of the unknown characters is unknown
      {"bzcab", "0 1 100"},
  };
  assert_rows(tr__unigram_parse, json.data, rows, COUNT(rows));
  tr_text_free(&json);
}

static void a_model_without_unknown_refuses_unknown_characters(void **state) {
  (void)state;
  tr__model *model = parse_good(tr__unigram_parse, "{\"type\":\"Unigram\",\"unk_id\":null,\"vocab\":[[\"a\",-1]]}");
  tr_tokens out = {0};
  assert_numbers(model, "aa", "0 0");
  assert_int_equal(encode(model, "a\u00E9", 3, &out), TR_ERR_DATA);
  assert_non_null(strstr(tr_status_text(), "\"\u00E9\" is not in the vocabulary"));
  tr_tokens_free(&out);
  model->ops->free(model);
}

// A score of 17 digits is read as the library reads it, off by the last bit: so these two ways tie or not.
static void scores_are_read_as_the_library_reads_them(void **state) {
  (void)state;
  static const char json[] = "{\"type\":\"Unigram\",\"unk_id\":0,\"vocab\":[[\"?\",-9],[\"a\",-3.7020635153275325],"
                             "[\"ab\",-3.702063515327533],[\"b\",0.0]]}";
  static const row rows[] = {{"ab", "2"}}; // exact scores would make a + b the better way
  assert_rows(tr__unigram_parse, json, rows, COUNT(rows));
}

// The textbook: every start before every end, over the whole word.
static void naive(const tr__vocabulary *vocabulary, const double *score, double unknown, const char *word, size_t n,
                  tr_tokens *out) {
  double best[64];
  size_t from[64];
  int32_t number[64];
  for (size_t end = 1; end <= n; end++) {
    from[end] = SIZE_MAX;
    for (size_t start = 0; start < end; start++) {
      int32_t piece = tr__vocabulary_find(vocabulary, word + start, end - start);
      if (piece < 0 && end - start > 1) continue;
      double way = (piece < 0 ? unknown : score[piece]) + (start ? best[start] : 0.0);
      if (from[end] != SIZE_MAX && !(way > best[end])) continue;
      best[end] = way;
      from[end] = start;
      number[end] = piece < 0 ? 0 : piece;
    }
  }
  int32_t reversed[64];
  size_t count = 0;
  for (size_t at = n; at > 0; at = from[at])
    if (number[at] != 0 || count == 0 || reversed[count - 1] != 0) reversed[count++] = number[at];
  out->size = 0;
  assert_int_equal(tr_tokens_reserve(out, count), TR_OK);
  while (count > 0) out->data[out->size++] = reversed[--count];
}

static uint32_t draw(uint32_t seed, uint32_t i, uint32_t below) {
  uint32_t random[4];
  tr_philox4x32((uint32_t[2]){seed, 1}, (uint32_t[4]){i, 0, 0, 0}, random);
  return random[0] % below;
}

// Pieces over {a, b, c} of at most 5 letters with small whole scores (many ties); d is unknown, and no piece is two
// unknown characters, so the naive way may fuse them.
static void random_words_are_cut_as_by_a_plain_viterbi(void **state) {
  (void)state;
  tr_tokens wanted = {0}, got = {0};
  for (uint32_t seed = 0; seed < 60; seed++) {
    tr_text json = {0};
    double score[32];
    uint32_t at = 0, n = 1, npiece = 2 + draw(seed, at++, 25);
    tr__vocabulary *seen = NULL;
    assert_int_equal(tr__vocabulary_create(32, &seen), TR_OK);
    tr_text_append(&json, "{\"type\":\"Unigram\",\"unk_id\":0,\"vocab\":[[\"?\",0]");
    double lowest = score[0] = 0;
    for (uint32_t i = 0; i < npiece; i++) {
      char piece[8];
      uint32_t length = 1 + draw(seed, at++, 5);
      for (uint32_t k = 0; k < length; k++) piece[k] = (char)('a' + draw(seed, at++, 3));
      if (tr__vocabulary_find(seen, piece, length) >= 0) continue;
      score[n] = -(double)draw(seed, at++, 6);
      if (score[n] < lowest) lowest = score[n];
      assert_int_equal(tr__vocabulary_add(seen, piece, length, (int32_t)n), TR_OK);
      tr_text_append(&json, ",[\"%.*s\",%g]", (int)length, piece, score[n++]);
    }
    tr_text_append(&json, "]}");
    tr__model *model = parse_good(tr__unigram_parse, json.data);
    for (int w = 0; w < 200; w++) {
      char word[64];
      uint32_t length = draw(seed, at++, 40);
      for (uint32_t k = 0; k < length; k++) word[k] = "aaabbbcccd"[draw(seed, at++, 10)];
      naive(seen, score, lowest - 10, word, length, &wanted);
      got.size = 0;
      assert_int_equal(encode(model, word, length, &got), TR_OK);
      if (wanted.size != got.size || (got.size && memcmp(wanted.data, got.data, got.size * sizeof *got.data) != 0))
        fail_msg("seed %u: '%.*s' with %s", seed, (int)length, word, json.data);
    }
    model->ops->free(model);
    tr__vocabulary_free(seen);
    tr_text_free(&json);
  }
  tr_tokens_free(&wanted);
  tr_tokens_free(&got);
}

// Minutes, were it quadratic: a piece that bridges every place, unknown characters all through, and plain text.
static void words_of_megabytes_take_linear_time(void **state) {
  (void)state;
  tr__model *model = parse_good(tr__unigram_parse, letters);
  size_t n = 4u << 20;
  char *word = malloc(n);
  assert_non_null(word);
  static const char *const units[] = {"abcd", "zz", "dddd", "abza"};
  for (size_t k = 0; k < COUNT(units); k++) {
    size_t length = strlen(units[k]);
    for (size_t i = 0; i < n; i++) word[i] = units[k][i % length];
    tr_tokens out = {0};
    assert_int_equal(encode(model, word, n, &out), TR_OK);
    assert_true(out.size > 0);
    tr_tokens_free(&out);
  }
  free(word);
  model->ops->free(model);
}

// ---- words

static void words_of_a_level_are_tokens_or_unknown(void **state) {
  (void)state;
  static const row rows[] = {{"a", "0"}, {"bc", "7"}, {"b", "3"}, {"", "3"}, {"\u00E9", "5"}};
  assert_rows(tr__word_parse,
              "{\"type\":\"WordLevel\",\"unk_token\":\"?\",\"vocab\":{\"a\":0,\"bc\":7,\"?\":3,\"\u00E9\":5}}", rows,
              COUNT(rows));
}

static const char affixes[] =
    "{\"type\":\"WordPiece\",\"unk_token\":\"?\",\"continuing_subword_prefix\":\"##\",\"max_"
    "input_chars_per_word\":6,"
    "\"vocab\":{\"?\":0,\"un\":1,\"u\":2,\"##aff\":3,\"##able\":4,\"##a\":5,\"##ffab\":6,"
    "\"\u00E9\":7,\"##\u00E9\":8}}";

static void words_of_pieces_take_the_longest_first(void **state) {
  (void)state;
  static const row rows[] = {
      {"un", "1"},
      {"unaff", "1 3"},
      {"unaffa", "1 3 5"},
      {"u", "2"},
      {"uaffab", "0"},
      {"aff", "0"},
      {"x", "0"},
      {"unx", "0"},
      {"unaffaa", "0"},
      {"", ""},
      {"\u00E9\u00E9\u00E9\u00E9\u00E9\u00E9", "7 8 8 8 8 8"},
      {"##a", "5"},
      {"unaff\u00E9", "1 3 8"},
  };
  assert_rows(tr__word_parse, affixes, rows, COUNT(rows));
}

static void a_word_is_refused_when_unknown_itself_is_unknown(void **state) {
  (void)state;
  tr__model *model = parse_good(tr__word_parse, "{\"type\":\"WordLevel\",\"unk_token\":\"?\",\"vocab\":{\"a\":0}}");
  tr_tokens out = {0};
  assert_int_equal(encode(model, "b", 1, &out), TR_ERR_DATA);
  assert_non_null(strstr(tr_status_text(), "nor is the model's \"unk_token\""));
  tr_tokens_free(&out);
  model->ops->free(model);
}

// ---- files

// clang-format off
static const struct { parser read; const char *json, *message; } bad[] = {
    {tr__unigram_parse, "{}", "is no list of [text, score]"},
    {tr__unigram_parse, "{\"vocab\":[]}", "is no list of [text, score]"},
    {tr__unigram_parse, "{\"vocab\":{\"a\":1}}", "is no list of [text, score]"},
    {tr__unigram_parse, "{\"vocab\":[[\"a\"]]}", "piece 0 of the vocabulary is not [text, score]"},
    {tr__unigram_parse, "{\"vocab\":[[\"a\",1],[\"b\",\"1\"]]}", "piece 1 of the vocabulary is not [text, score]"},
    {tr__unigram_parse, "{\"vocab\":[[\"a\",1],[\"a\",2]]}", "'a' has two numbers"},
    {tr__unigram_parse, "{\"vocab\":[[\"a\",1]],\"unk_id\":1}", "\"unk_id\" is 1, outside"},
    {tr__unigram_parse, "{\"vocab\":[[\"a\",1]],\"unk_id\":-2}", "\"unk_id\" is -2, outside"},
    {tr__unigram_parse, "{\"vocab\":[[\"a\",1]],\"unk_id\":\"a\"}", "unk_id"},
    {tr__unigram_parse, "{\"vocab\":[[\"a\",1]],\"alpha\":0.1}", "has the member \"alpha\""},
    {tr__word_parse, "{\"vocab\":{}}", "has no \"type\""},
    {tr__word_parse, "{\"type\":\"Word\",\"unk_token\":\"a\",\"vocab\":{}}", "model \"Word\" is not known"},
    {tr__word_parse, "{\"type\":\"WordLevel\",\"vocab\":{}}", "unk_token"},
    {tr__word_parse, "{\"type\":\"WordLevel\",\"unk_token\":\"a\",\"vocab\":[]}", "\"vocab\" is no object"},
    {tr__word_parse, "{\"type\":\"WordLevel\",\"unk_token\":\"a\",\"vocab\":{\"a\":-1}}", "has no number from 0"},
    {tr__word_parse, "{\"type\":\"WordLevel\",\"unk_token\":\"a\",\"vocab\":{\"a\":1.5}}", "has no number from 0"},
    {tr__word_parse, "{\"type\":\"WordLevel\",\"unk_token\":\"a\",\"vocab\":{\"a\":1,\"b\":1}}", "number 1 has two tokens"},
    {tr__word_parse, "{\"type\":\"WordLevel\",\"unk_token\":\"a\",\"vocab\":{},\"continuing_subword_prefix\":\"##\"}", "has the member"},
    {tr__word_parse, "{\"type\":\"WordPiece\",\"unk_token\":\"a\",\"vocab\":{},\"max_input_chars_per_word\":100000}", "is 100000 (0 to"},
};
// clang-format on

static void what_is_wrong_is_refused_by_name(void **state) {
  (void)state;
  for (size_t i = 0; i < COUNT(bad); i++) {
    tr__model *model;
    tr_status status = parse(bad[i].read, bad[i].json, &model);
    if (status != TR_ERR_DATA || !strstr(tr_status_text(), bad[i].message))
      fail_msg("%s: status %d, '%s' does not say '%s'", bad[i].json, status, tr_status_text(), bad[i].message);
  }
}

static void a_piece_of_many_kilobytes_is_refused(void **state) {
  (void)state;
  tr_text json = {0};
  tr__model *model;
  tr_text_append(&json, "{\"vocab\":[[\"%05000d\",1]]}", 7);
  assert_int_equal(parse(tr__unigram_parse, json.data, &model), TR_ERR_DATA);
  assert_non_null(strstr(tr_status_text(), "has 5000 bytes"));
  tr_text_free(&json);
}

static void use(const json_t *json) {
  static const parser parsers[] = {tr__unigram_parse, tr__word_parse};
  for (size_t i = 0; i < COUNT(parsers); i++) {
    tr__model *model;
    tr_tokens out = {0};
    if (parsers[i](json, "test", &model) < 0) continue;
    (void)encode(model, "abcd e\u0301 zz unaffable", 22, &out);
    tr_tokens_free(&out);
    model->ops->free(model);
  }
}

static void spoiled_files_do_no_harm(void **state) {
  (void)state;
  assert_true(mutate_json(letters, 3000, use) > 300);
  assert_true(mutate_json(affixes, 3000, use) > 300);
}

// ---- the trie

static void a_trie_holds_the_vocabulary_and_nothing_else(void **state) {
  (void)state;
  static const char *const texts[] = {"b", "abc", "", "ab", "\xFF\x01", "abd", "\xFF"};
  tr__vocabulary *vocabulary;
  tr__trie trie;
  assert_int_equal(tr__vocabulary_create(8, &vocabulary), TR_OK);
  assert_int_equal(tr__trie_build(vocabulary, &trie), TR_OK);
  uint32_t node = 0;
  assert_int_equal(tr__trie_step(&trie, &node, 'a'), 0);
  tr__trie_free(&trie);
  for (size_t i = 0; i < COUNT(texts); i++)
    assert_int_equal(tr__vocabulary_add(vocabulary, texts[i], strlen(texts[i]), (int32_t)i), TR_OK);
  assert_int_equal(tr__trie_build(vocabulary, &trie), TR_OK);
  assert_int_equal(trie.longest, 3);
  assert_int_equal(trie.nnode, 8); // the root, a ab abc abd, b, and two of bytes
  assert_int_equal(trie.number[0], -1);
  for (size_t i = 0; i < COUNT(texts); i++) {
    node = 0;
    for (const char *at = texts[i]; *at; at++) assert_int_equal(tr__trie_step(&trie, &node, (unsigned char)*at), 1);
    if (*texts[i]) assert_int_equal(trie.number[node], i);
  }
  node = 0;
  assert_int_equal(tr__trie_step(&trie, &node, 'a'), 1);
  assert_int_equal(trie.number[node], -1);
  assert_int_equal(tr__trie_step(&trie, &node, 'c'), 0);
  tr__trie_free(&trie);
  tr__vocabulary_free(vocabulary);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_best_way_is_taken),
      cmocka_unit_test(unknown_characters_that_are_a_piece_together_are_that_piece),
      cmocka_unit_test(of_equal_ways_the_longest_last_piece_wins),
      cmocka_unit_test(unknown_characters_fall_back_to_bytes),
      cmocka_unit_test(a_model_without_unknown_refuses_unknown_characters),
      cmocka_unit_test(scores_are_read_as_the_library_reads_them),
      cmocka_unit_test(random_words_are_cut_as_by_a_plain_viterbi),
      cmocka_unit_test(words_of_megabytes_take_linear_time),
      cmocka_unit_test(words_of_a_level_are_tokens_or_unknown),
      cmocka_unit_test(words_of_pieces_take_the_longest_first),
      cmocka_unit_test(a_word_is_refused_when_unknown_itself_is_unknown),
      cmocka_unit_test(what_is_wrong_is_refused_by_name),
      cmocka_unit_test(spoiled_files_do_no_harm),
      cmocka_unit_test(a_piece_of_many_kilobytes_is_refused),
      cmocka_unit_test(a_trie_holds_the_vocabulary_and_nothing_else),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
