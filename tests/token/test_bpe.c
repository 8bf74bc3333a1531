// SPDX-License-Identifier: MIT
// tier: quick
// timeout: 60
// Byte-pair encoding: the same tokens as merging by the book on random vocabularies and words of every length, long words in
// little time, what becomes of characters that are not in the vocabulary, and models that are refused.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "token/mutate.h"
#include "token/token_internal.h"
#include <stdio.h>

#define COUNT(table) (sizeof(table) / sizeof *(table))

static tr_status parse(const char *text, tr__model **out) {
  json_t *json;
  TR_TRY(tr_json_parse(text, strlen(text), "test", &json));
  tr_status status = tr__bpe_parse(json, "test", out);
  json_decref(json);
  return status;
}

static tr__model *parse_good(const char *text) {
  tr__model *model = NULL;
  if (parse(text, &model) != TR_OK) fail_msg("%s: %s", text, tr_status_text());
  return model;
}

// A model and what one encoder of it needs.
typedef struct encoder {
  tr__model *model;
  void *work;
  tr_tokens tokens;
} encoder;

static encoder encoder_of(tr__model *model) {
  encoder e = {.model = model, .work = calloc(1, model->ops->work_nbyte)};
  assert_non_null(e.work);
  return e;
}

static void encoder_clear(encoder *e) {
  e->model->ops->work_free(e->work);
  free(e->work);
  e->model->ops->free(e->model);
  tr_tokens_free(&e->tokens);
}

// ---- by the book

enum { LETTERS = 4, MERGES = 60 };

// Random merges over the letters a to d: merge i makes token LETTERS + i from two that were there before.
typedef struct book {
  int32_t left[MERGES], right[MERGES], made[MERGES];
  char text[LETTERS + MERGES][2000];
  int n, ntoken;
} book;

static uint64_t next_random(uint64_t *seed) {
  *seed = *seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
  return *seed >> 33;
}

static int find_text(const book *b, const char *text) {
  for (int i = 0; i < b->ntoken; i++) {
    if (strcmp(b->text[i], text) == 0) return i;
  }
  return -1;
}

static int known_pair(const book *b, int32_t left, int32_t right) {
  for (int i = 0; i < b->n; i++) {
    if (b->left[i] == left && b->right[i] == right) return 1;
  }
  return 0;
}

static void write_book(book *b, uint64_t seed) {
  memset(b, 0, sizeof *b);
  for (; b->ntoken < LETTERS; b->ntoken++) b->text[b->ntoken][0] = (char)('a' + b->ntoken);
  for (int tries = 0; tries < 1000 && b->n < MERGES; tries++) {
    int32_t left = (int32_t)(next_random(&seed) % (uint64_t)b->ntoken);
    int32_t right = (int32_t)(next_random(&seed) % (uint64_t)b->ntoken);
    char text[40];
    if (strlen(b->text[left]) + strlen(b->text[right]) >= 12 || known_pair(b, left, right)) continue;
    (void)snprintf(text, sizeof text, "%.12s%.12s", b->text[left], b->text[right]);
    int made = find_text(b, text); // two ways to one token are allowed
    if (made < 0) {
      made = b->ntoken++;
      strcpy(b->text[made], text);
    }
    b->left[b->n] = left;
    b->right[b->n] = right;
    b->made[b->n++] = made;
  }
}

static tr__model *model_of(const book *b) {
  tr_text json = {0};
  tr_text_append(&json, "{\"type\":\"BPE\",\"vocab\":{");
  for (int i = 0; i < b->ntoken; i++) tr_text_append(&json, "%s\"%s\":%d", i ? "," : "", b->text[i], i);
  tr_text_append(&json, "},\"merges\":[");
  for (int i = 0; i < b->n; i++) {
    tr_text_append(&json, i % 2 ? "%s[\"%s\",\"%s\"]" : "%s\"%s %s\"", i ? "," : "", b->text[b->left[i]],
                   b->text[b->right[i]]);
  }
  tr_text_append(&json, "]}");
  tr__model *model = parse_good(json.data);
  tr_text_free(&json);
  return model;
}

// Merge the first pair of the book that occurs, everywhere from the left, until none does.
static size_t merge_by_the_book(const book *b, int32_t *id, size_t n) {
  for (int m = 0; m < b->n;) {
    size_t at = 0;
    while (at + 1 < n && !(id[at] == b->left[m] && id[at + 1] == b->right[m])) at++;
    if (at + 1 >= n) {
      m++;
      continue;
    }
    id[at] = b->made[m];
    memmove(id + at + 1, id + at + 2, (n - at - 2) * sizeof *id);
    n--;
    m = 0;
  }
  return n;
}

static void words_of_every_length_are_merged_by_the_book(void **state) {
  (void)state;
  uint64_t seed = 3;
  static book b;
  for (uint64_t round = 0; round < 12; round++) {
    write_book(&b, round);
    encoder e = encoder_of(model_of(&b));
    for (size_t n = 1; n < 400; n += n < 60 ? 1 : 37) {
      char word[400];
      int32_t id[400];
      for (size_t i = 0; i < n; i++) {
        id[i] = (int32_t)(next_random(&seed) % (round % 3 ? LETTERS : 2));
        word[i] = (char)('a' + id[i]);
      }
      size_t wanted = merge_by_the_book(&b, id, n);
      e.tokens.size = 0;
      assert_int_equal(e.model->ops->encode(e.model, e.work, word, n, &e.tokens), TR_OK);
      assert_int_equal(e.tokens.size, wanted);
      assert_memory_equal(e.tokens.data, id, wanted * sizeof *id);
    }
    encoder_clear(&e);
  }
}

static void words_of_megabytes_take_little_time(void **state) {
  (void)state;
  enum { N = 1 << 20 };
  static const char model[] = "{\"vocab\":{\"a\":0,\"aa\":1,\"aaaa\":2,\"aaaaaaaa\":3},"
                              "\"merges\":[\"a a\",\"aa aa\",\"aaaa aaaa\"]}";
  encoder e = encoder_of(parse_good(model));
  char *word = malloc(N);
  assert_non_null(word);
  memset(word, 'a', N);
  assert_int_equal(e.model->ops->encode(e.model, e.work, word, N, &e.tokens), TR_OK);
  assert_int_equal(e.tokens.size, N / 8);
  for (size_t i = 0; i < N / 8; i++) assert_int_equal(e.tokens.data[i], 3);
  free(word);
  encoder_clear(&e);
}

// ---- characters that are not in the vocabulary, and the whole word first

typedef struct word_row {
  const char *options, *word, *numbers;
} word_row;

#define VOCAB                                                                                                        \
  "{\"vocab\":{\"a\":0,\"b\":1,\"ab\":2,\"U\":3,\"<0xC3>\":4,\"<0xA9>\":5,\"##b\":6,\"b$\":7,\"##b$\":8,\"a$\":9,"   \
  "\"aba\":10,\"a##b\":11}"

// clang-format off
#define AB ",\"merges\":[\"a b\"]"
#define NONE ",\"merges\":[]"
static const word_row words[] = {
    {AB "", "abab", "2 2"},
    {AB "", "axb", "2"},
    {AB ",\"unk_token\":\"U\"", "xaxxb", "3 0 3 3 1"},
    {AB ",\"unk_token\":\"U\",\"fuse_unk\":true", "xaxxbyy", "3 0 3 1 3"},
    {AB ",\"byte_fallback\":true", "a\xC3\xA9", "0 4 5"},
    {AB ",\"byte_fallback\":true", "a\xC3\xA8", "0"},
    {AB ",\"byte_fallback\":true,\"unk_token\":\"U\"", "\xC3\xA9\xC3\xA8" "b", "4 5 3 1"},
    {AB ",\"byte_fallback\":true,\"unk_token\":\"U\"", "\xC3\xA8\xC3\xA9" "b", "4 5 3 1"}, // as the library has it
    {NONE ",\"continuing_subword_prefix\":\"##\"", "bb", "1 6"},
    {AB ",\"end_of_word_suffix\":\"$\"", "ba", "1 9"},
    {NONE ",\"end_of_word_suffix\":\"$\",\"continuing_subword_prefix\":\"##\"", "bb", "1 8"},
    {AB ",\"end_of_word_suffix\":\"\",\"continuing_subword_prefix\":\"\",\"dropout\":0.0", "ab", "2"},
    {AB "", "aba", "2 0"},
    {AB ",\"ignore_merges\":true", "aba", "10"},
    {AB ",\"ignore_merges\":true", "abab", "2 2"},
};
// clang-format on

static void characters_that_are_unknown_go_where_the_options_say(void **state) {
  (void)state;
  for (size_t i = 0; i < COUNT(words); i++) {
    tr_text json = {0}, got = {0};
    tr_text_append(&json, VOCAB "%s}", words[i].options);
    encoder e = encoder_of(parse_good(json.data));
    assert_int_equal(e.model->ops->encode(e.model, e.work, words[i].word, strlen(words[i].word), &e.tokens), TR_OK);
    for (size_t k = 0; k < e.tokens.size; k++) tr_text_append(&got, k ? " %d" : "%d", e.tokens.data[k]);
    if (strcmp(got.data, words[i].numbers) != 0)
      fail_msg("%s: '%s' became %s, wanted %s", words[i].options, words[i].word, got.data, words[i].numbers);
    encoder_clear(&e);
    tr_text_free(&json);
    tr_text_free(&got);
  }
}

static void a_missing_unk_token_is_an_error_only_when_it_is_needed(void **state) {
  (void)state;
  encoder e = encoder_of(parse_good(VOCAB AB ",\"unk_token\":\"nowhere\"}"));
  assert_int_equal(e.model->ops->encode(e.model, e.work, "ab", 2, &e.tokens), TR_OK);
  assert_int_equal(e.model->ops->encode(e.model, e.work, "ax", 2, &e.tokens), TR_ERR_DATA);
  assert_non_null(strstr(tr_status_text(), "'x'"));
  encoder_clear(&e);
}

// A merge's second half loses the prefix in what the merge makes.
static void prefixes_are_left_out_of_what_is_merged(void **state) {
  (void)state;
  encoder e = encoder_of(parse_good("{\"vocab\":{\"a\":0,\"##b\":1,\"##c\":2,\"ab\":3,\"abc\":4},"
                                    "\"merges\":[\"a ##b\",\"ab ##c\"],\"continuing_subword_prefix\":\"##\"}"));
  assert_int_equal(e.model->ops->encode(e.model, e.work, "abc", 3, &e.tokens), TR_OK);
  assert_int_equal(e.tokens.size, 1);
  assert_int_equal(e.tokens.data[0], 4);
  encoder_clear(&e);
}

// ---- byte-level

static tr__model *byte_level(const char *options) {
  tr_text json = {0};
  tr_text_append(&json, "{\"vocab\":{");
  for (int i = 0; i < 256; i++) {
    char character[5] = "";
    character[tr__utf8_put(tr__byte_to_character((unsigned char)i), character)] = '\0';
    tr_text_append(&json, "\"%s%s\":%d,", strchr("\"\\", character[0]) ? "\\" : "", character, i);
  }
  tr_text_append(&json,
                 "\"\xC3\x83\xC2\xA9\":256,\"\xC4\xA0\xC3\x83\xC2\xA9\":257,\"\xC4\xA0x\":258},"
                 "\"merges\":[\"\xC3\x83 \xC2\xA9\",\"\xC4\xA0 \xC3\x83\xC2\xA9\"]%s}",
                 options);
  tr__model *model = parse_good(json.data);
  tr_text_free(&json);
  return model;
}

static void bytes_and_their_characters_give_the_same(void **state) {
  (void)state;
  static const char *const options[] = {"", ",\"ignore_merges\":true"};
  static const char *const spelled[] = {" \xC3\xA9", " x", "\xC3", "\xFF \x01", " \xC3\xA9\xC3\xA9 x"};
  static const size_t sizes[2][5] = {{1, 2, 1, 3, 4}, {1, 1, 1, 3, 4}};
  for (size_t o = 0; o < COUNT(options); o++) {
    encoder e = encoder_of(byte_level(options[o]));
    assert_non_null(e.model->ops->encode_bytes);
    for (size_t i = 0; i < COUNT(spelled); i++) {
      tr_text alphabet = {0};
      tr__bytes_to_alphabet(spelled[i], strlen(spelled[i]), &alphabet);
      e.tokens.size = 0;
      assert_int_equal(e.model->ops->encode_bytes(e.model, e.work, spelled[i], strlen(spelled[i]), &e.tokens), TR_OK);
      size_t n = e.tokens.size;
      assert_int_equal(n, sizes[o][i]);
      assert_int_equal(e.model->ops->encode(e.model, e.work, alphabet.data, alphabet.size, &e.tokens), TR_OK);
      assert_int_equal(e.tokens.size, 2 * n);
      assert_memory_equal(e.tokens.data, e.tokens.data + n, n * sizeof *e.tokens.data);
      tr_text_free(&alphabet);
    }
    encoder_clear(&e);
  }
}

static void the_alphabet_has_a_character_for_each_byte(void **state) {
  (void)state;
  for (int i = 0; i < 256; i++) assert_int_equal(tr__character_to_byte(tr__byte_to_character((unsigned char)i)), i);
  int known = 0;
  for (int32_t c = 0; c < 0x110000; c++) known += tr__character_to_byte(c) >= 0;
  assert_int_equal(known, 256);
  assert_int_equal(tr__byte_to_character(' '), 0x120);
  assert_int_equal(tr__byte_to_character('\n'), 0x10A);
  assert_int_equal(tr__byte_to_character(0x7F), 0x121);
  assert_int_equal(tr__byte_to_character(0xA0), 0x142);
  assert_int_equal(tr__byte_to_character(0xAD), 0x143);
  assert_int_equal(tr__character_to_byte(-1), -1);
}

// ---- models that are refused

// clang-format off
static const struct {
  const char *json, *message;
} bad[] = {
    {"{\"merges\":[]}", "\"vocab\" is no object"},
    {"{\"vocab\":{\"a\":0}}", "\"merges\" is no list"},
    {"{\"vocab\":{\"a\":-1},\"merges\":[]}", "number of token 'a'"},
    {"{\"vocab\":{\"a\":0.5},\"merges\":[]}", "number of token 'a'"},
    {"{\"vocab\":{\"a\":99999999},\"merges\":[]}", "99999999"},
    {"{\"vocab\":{\"a\":99999999999},\"merges\":[]}", "number of token 'a'"},
    {"{\"vocab\":{\"a\":0,\"b\":0},\"merges\":[]}", "number 0 has two tokens, 'a' and 'b'"},
    {"{\"vocab\":{\"a\":0,\"a\":1},\"merges\":[]}", "duplicate"},
    {"{\"vocab\":{\"a\":0,\"aa\":1},\"merges\":[\"a a\",[\"a\",\"a\"]]}", "merge 1 is the same as merge 0"},
    {"{\"vocab\":{\"a\":0},\"merges\":[\"a a\"]}", "merge 0: 'aa' is not in the vocabulary"},
    {"{\"vocab\":{\"a\":0,\"ab\":1},\"merges\":[\"a b\"]}", "merge 0: 'b' is not in the vocabulary"},
    {"{\"vocab\":{\"a\":0},\"merges\":[\"aa\"]}", "merge 0 is neither"},
    {"{\"vocab\":{\"a\":0},\"merges\":[\"a a a\"]}", "merge 0 is neither"},
    {"{\"vocab\":{\"a\":0},\"merges\":[[\"a\"]]}", "merge 0 is neither"},
    {"{\"vocab\":{\"a\":0},\"merges\":[[\"a\",1]]}", "merge 0 is neither"},
    {"{\"vocab\":{\"a\":0},\"merges\":[7]}", "merge 0 is neither"},
    {"{\"vocab\":{\"a\":0,\"aa\":1},\"merges\":[\"a a\"],\"continuing_subword_prefix\":\"##\"}", "shorter than the prefix"},
    {"{\"vocab\":{\"a\":0},\"merges\":[],\"dropout\":0.1}", "dropout is 0.1"},
    {"{\"vocab\":{\"a\":0},\"merges\":[],\"fuse_unk\":3}", "fuse_unk"},
    {"{\"vocab\":{\"a\":0},\"merges\":[],\"unk_token\":3}", "unk_token"},
    {"{\"vocab\":{\"a\":0},\"merges\":[],\"surprise\":3}", "surprise"},
    {"{\"vocab\":{\"a\":0},\"merges\":[],\"end_of_word_suffix\":\"0123456789012345678901234567890123456789012345678901234567890123456789\"}", "more than 64 bytes"},
};
// clang-format on

static void models_that_contradict_themselves_are_refused_by_name(void **state) {
  (void)state;
  for (size_t i = 0; i < COUNT(bad); i++) {
    tr__model *model = NULL;
    tr_status status = parse(bad[i].json, &model);
    if (status != TR_ERR_DATA) fail_msg("%s: status %d", bad[i].json, status);
    if (!strstr(tr_status_text(), bad[i].message)) fail_msg("%s: '%s'", bad[i].json, tr_status_text());
  }
}

static void use_spoiled(const json_t *json) {
  tr__model *model = NULL;
  if (tr__bpe_parse(json, "test", &model) != TR_OK) return;
  encoder e = encoder_of(model);
  (void)e.model->ops->encode(e.model, e.work,
                             "abxab\xC3\xA9"
                             "ba",
                             9, &e.tokens);
  for (size_t i = 0; i < e.tokens.size; i++) assert_true(e.tokens.data[i] < tr__vocabulary_limit(model->vocabulary));
  encoder_clear(&e);
}

static void spoiled_files_do_no_harm(void **state) {
  (void)state;
  assert_true(mutate_json(VOCAB AB ",\"unk_token\":\"U\",\"byte_fallback\":true}", 20000, use_spoiled) > 100);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(words_of_every_length_are_merged_by_the_book),
      cmocka_unit_test(words_of_megabytes_take_little_time),
      cmocka_unit_test(characters_that_are_unknown_go_where_the_options_say),
      cmocka_unit_test(a_missing_unk_token_is_an_error_only_when_it_is_needed),
      cmocka_unit_test(prefixes_are_left_out_of_what_is_merged),
      cmocka_unit_test(bytes_and_their_characters_give_the_same),
      cmocka_unit_test(the_alphabet_has_a_character_for_each_byte),
      cmocka_unit_test(models_that_contradict_themselves_are_refused_by_name),
      cmocka_unit_test(spoiled_files_do_no_harm),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
