// SPDX-License-Identifier: MIT
// tier: quick
// timeout: 60
// The whole tokenizer through its public interface: "byte", added tokens and where they are found, flags, text that is not
// UTF-8, words of every length through the cache, threads that share a tokenizer, and files that are refused.
// test_token_golden.c proves that the numbers are those of the `tokenizers` library.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "token/mutate.h"
#include "trireme/base/file.h"
#include "trireme/token/tokenizer.h"
#include <pthread.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#define COUNT(table) (sizeof(table) / sizeof *(table))
#define FOLDER       TRIREME_TEST_DATA "/token/"

static tr_tokenizer *parse_good(const char *text) {
  tr_tokenizer *tokenizer = NULL;
  if (tr_tokenizer_parse(text, strlen(text), "test", &tokenizer) != TR_OK) fail_msg("%s: %s", text, tr_status_text());
  return tokenizer;
}

// The tokens of a text with blanks between.
static void encode(tr_encoder *encoder, const char *text, size_t nbyte, int flags, tr_text *out) {
  tr_tokens tokens = {0};
  if (tr_encode(encoder, text, nbyte, flags, &tokens) != TR_OK) fail_msg("'%s': %s", text, tr_status_text());
  out->size = 0;
  tr_text_append(out, "%s", "");
  for (size_t i = 0; i < tokens.size; i++) tr_text_append(out, i ? " %d" : "%d", tokens.data[i]);
  tr_tokens_free(&tokens);
}

static void tokens_may_hold_zero_bytes(void **state) {
  (void)state;
  static const struct {
    const char *model, *numbers;
  } row[] = {
      {"{\"type\":\"BPE\",\"vocab\":{\"\\u0000\":0,\"a\":1 , \"a\\u0000\" : 2,\"\\\\u0000\":3},\"merges\":[\"a "
       "\\u0000\"]}",
       "2 0"},
      {"{\"type\":\"Unigram\",\"unk_id\":0,\"vocab\":[[\"u\",0],[\"\\u0000\",-1],[\"a\",-1]]}", "2 1 1"},
      {"{\"type\":\"WordLevel\",\"vocab\":{\"u\":0,\"a\\u0000\\u0000\":7},\"unk_token\":\"u\"}", "7"},
  };
  for (size_t i = 0; i < COUNT(row); i++) {
    char json[256];
    tr_encoder *encoder;
    tr_text numbers = {0};
    snprintf(json, sizeof json, "{\"model\":%s}", row[i].model);
    tr_tokenizer *tokenizer = parse_good(json);
    assert_int_equal(tr_encoder_create(tokenizer, &encoder), TR_OK);
    encode(encoder, "a\0", 3, 0, &numbers); // with the zero byte that ends it
    assert_string_equal(numbers.data, row[i].numbers);
    if (i == 0) assert_int_equal(tr_tokenizer_find(tokenizer, "\\u0000"), 3);
    tr_text_free(&numbers);
    tr_encoder_destroy(encoder);
    tr_tokenizer_close(tokenizer);
  }
}

static void byte_tokens_are_the_bytes(void **state) {
  (void)state;
  tr_tokenizer *tokenizer;
  tr_encoder *encoder;
  tr_tokens tokens = {0};
  tr_text text = {0};
  char all[300];
  for (int i = 0; i < 300; i++) all[i] = (char)(i * 7);
  assert_int_equal(tr_tokenizer_open("byte", &tokenizer), TR_OK);
  assert_int_equal(tr_encoder_create(tokenizer, &encoder), TR_OK);
  assert_string_equal(tr_tokenizer_name(tokenizer), "byte");
  assert_int_equal(tr_tokenizer_vocab(tokenizer), 256);
  assert_true(tr_tokenizer_is_bytes(tokenizer));
  assert_int_equal(tr_tokenizer_find(tokenizer, "a"), 'a');
  assert_int_equal(tr_tokenizer_find(tokenizer, "ab"), -1);
  assert_int_equal(tr_tokenizer_end(tokenizer), -1);
  for (size_t again = 1; again <= 2; again++) {
    assert_int_equal(tr_encode(encoder, all, sizeof all, TR_ENCODE_TEMPLATE, &tokens), TR_OK);
    assert_int_equal(tokens.size, again * sizeof all);
  }
  for (size_t i = 0; i < tokens.size; i++) assert_int_equal(tokens.data[i], (unsigned char)all[i % sizeof all]);
  assert_int_equal(tr_decode(tokenizer, tokens.data, sizeof all, 1, &text), TR_OK);
  assert_int_equal(tr_decode(tokenizer, (int32_t[]){-1, 256, INT32_MAX, 'x'}, 4, 0, &text), TR_OK);
  assert_int_equal(text.size, sizeof all + 1);
  assert_memory_equal(text.data, all, sizeof all);
  assert_int_equal(text.data[sizeof all], 'x');
  tr_text_free(&text);
  tr_tokens_free(&tokens);
  tr_encoder_destroy(encoder);
  tr_tokenizer_close(tokenizer);
  tr_encoder_destroy(NULL);
  tr_tokenizer_close(NULL);
}

// ---- added tokens

#define ADDED(id, content, rest)                                                                                     \
  "{\"id\":" #id ",\"content\":\"" content "\",\"special\":false,\"normalized\":false" rest "}"
#define SPECIAL(id, content)    "{\"id\":" #id ",\"content\":\"" content "\",\"special\":true,\"normalized\":false}"
#define NORMALIZED(id, content) "{\"id\":" #id ",\"content\":\"" content "\",\"special\":false,\"normalized\":true}"
#define MODEL                                                                                                        \
  "\"model\":{\"type\":\"BPE\",\"vocab\":{\"_\":0,\"a\":1,\"b\":2,\" \":3,\"ab\":4,\"A\":5},\"merges\":[\"a b\"],"   \
  "\"unk_token\":\"_\"}"

// a and b are letters, everything else but the blank is 0. Normalizing makes small letters.
// clang-format off
static const char with_added[] =
    "{\"version\":\"1.0\",\"truncation\":null,\"padding\":null,\"normalizer\":{\"type\":\"Lowercase\"},"
    "\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"_\",\"prepend_scheme\":\"never\",\"split\":false},"
    "\"added_tokens\":["
    ADDED(4, "ab", ",\"single_word\":true") "," ADDED(6, "<x>", "") "," ADDED(7, "<x>y", "") ","
    ADDED(8, "[l]", ",\"lstrip\":true") "," ADDED(9, "[r]", ",\"rstrip\":true") ","
    ADDED(10, "[lr]", ",\"lstrip\":true,\"rstrip\":true") "," SPECIAL(11, "</s>") "," NORMALIZED(12, "Qq") ","
    SPECIAL(13, "<x>z") "," ADDED(14, "\xE2\x80\x83", "") "]," MODEL "}";
// clang-format on

typedef struct added_row {
  const char *text, *numbers;
  int flags;
} added_row;

// clang-format off
static const added_row added_rows[] = {
    {"", "", 0},
    {"a<x>b", "1 6 2", 0},
    {"<x>y", "7", 0},               // the longest
    {"<x><x>y<x", "6 7 0 0", 0},
    {"<x>z", "13", 0},
    {"<x>z", "0 0 0 0", TR_ENCODE_PLAIN}, // a special token that is text hides what begins in it
    {"a</s>a", "1 11 1", 0},
    {"a</s>a", "1 0 0 0 0 1", TR_ENCODE_PLAIN},
    {"ab", "4", 0},                 // whole word
    {"ab ab", "4 0 4", 0},
    {"aba", "4 1", 0},              // by merging
    {"ab\xCC\x81", "4 0", 0},       // a mark goes on with the word, and merging makes 4
    {"a  [l]  a", "1 8 0 0 1", 0},
    {"a  [r]  a", "1 0 0 9 1", 0},
    {"a  [lr]\n a", "1 10 1", 0},
    {"a  [lr]\n\xE2\x80\x83 a", "1 10 14 0 1", 0}, // what is found in the blanks gives back those after it
    {" [l] [l]", "8 8", 0},
    {"[r]  [l]", "9 8", 0},         // the blanks are the first one's
    {"[r]\xE2\x80\x83" "a", "9 14 1", 0}, // swallowed, and found all the same
    {"qQ QQ qq", "12 0 12 0 12", 0},
    {"A", "1", 0},
};
// clang-format on

static void added_tokens_are_found_where_they_may_stand(void **state) {
  (void)state;
  tr_tokenizer *tokenizer = parse_good(with_added);
  tr_encoder *encoder;
  tr_text got = {0};
  assert_int_equal(tr_encoder_create(tokenizer, &encoder), TR_OK);
  for (size_t i = 0; i < COUNT(added_rows); i++) {
    const added_row *row = &added_rows[i];
    encode(encoder, row->text, strlen(row->text), row->flags, &got);
    if (strcmp(got.data, row->numbers) != 0) fail_msg("'%s': %s, wanted %s", row->text, got.data, row->numbers);
  }
  assert_int_equal(tr_tokenizer_vocab(tokenizer), 15);
  assert_int_equal(tr_tokenizer_find(tokenizer, "</s>"), 11);
  assert_int_equal(tr_tokenizer_find(tokenizer, "ab"), 4);
  assert_int_equal(tr_tokenizer_find(tokenizer, "nowhere"), -1);
  assert_int_equal(tr_tokenizer_end(tokenizer), 11);
  tr_text_free(&got);
  tr_encoder_destroy(encoder);
  tr_tokenizer_close(tokenizer);
}

static void special_tokens_leave_nothing_when_they_are_skipped(void **state) {
  (void)state;
  tr_tokenizer *tokenizer = parse_good(with_added);
  tr_text text = {0};
  assert_int_equal(tr_decode(tokenizer, (int32_t[]){1, 11, 99, 6, -1}, 5, 1, &text), TR_OK);
  assert_string_equal(text.data, "a <x>");
  text.size = 0;
  assert_int_equal(tr_decode(tokenizer, (int32_t[]){1, 11, 6}, 3, 0, &text), TR_OK);
  assert_string_equal(text.data, "a </s> <x>");
  tr_text_free(&text);
  tr_tokenizer_close(tokenizer);
}

static void what_is_not_utf8_is_repaired_first(void **state) {
  (void)state;
  tr_tokenizer *tokenizer = parse_good(with_added);
  tr_encoder *encoder;
  tr_text got = {0};
  assert_int_equal(tr_encoder_create(tokenizer, &encoder), TR_OK);
  // One for each maximal part: F0 9F 98 | E2 82 | C0 | AF | ED | A0 | 80 | FF
  static const char broken[] = "a\xF0\x9F\x98\xE2\x82\xC0\xAF\xED\xA0\x80\xFF"
                               "a";
  encode(encoder, broken, sizeof broken - 1, 0, &got);
  assert_string_equal(got.data, "1 0 0 0 0 0 0 0 0 1");
  encode(encoder, "a\0a\xE2\x82", 5, 0, &got); // a zero byte is text; the end breaks off
  assert_string_equal(got.data, "1 0 1 0");
  tr_text_free(&got);
  tr_encoder_destroy(encoder);
  tr_tokenizer_close(tokenizer);
}

static void the_hash_is_of_what_decides_numbers(void **state) {
  (void)state;
  static const char *const texts[] = {
      "{" MODEL "}",
      "{ \"decoder\":{\"type\":\"Fuse\"}, " MODEL ",\"version\":\"1.0\"}", // the same numbers
      "{" MODEL ",\"normalizer\":{\"type\":\"NFC\"}}",
      "{" MODEL ",\"pre_tokenizer\":{\"type\":\"WhitespaceSplit\"}}",
      "{" MODEL ",\"added_tokens\":[" ADDED(6, "x", "") "]}",
      "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"_\":0},\"merges\":[]}}",
  };
  uint64_t hash[COUNT(texts)];
  for (size_t i = 0; i < COUNT(texts); i++) {
    tr_tokenizer *tokenizer = parse_good(texts[i]);
    hash[i] = tr_tokenizer_hash(tokenizer);
    tr_tokenizer_close(tokenizer);
  }
  assert_int_equal(hash[0], hash[1]);
  for (size_t i = 2; i < COUNT(texts); i++) {
    for (size_t k = 0; k < i; k++) assert_int_not_equal(hash[i], hash[k]);
  }
}

// ---- the cache, the batches, the threads

// Texts of words of 1 to 70 bytes, each at the end of its text and before others: an encoder that has seen them says the same
// as a fresh one.
static void words_come_from_the_cache_as_they_went_in(void **state) {
  (void)state;
  tr_tokenizer *tokenizer;
  tr_encoder *used;
  tr_text wanted = {0}, got = {0};
  assert_int_equal(tr_tokenizer_open(FOLDER "gpt2.json", &tokenizer), TR_OK);
  assert_int_equal(tr_encoder_create(tokenizer, &used), TR_OK);
  for (size_t round = 0; round < 2 * 70; round++) {
    size_t n = round % 70 + 1;
    char text[200];
    for (size_t i = 0; i < n; i++) text[i] = (char)('a' + i * i % 7);
    for (int tail = 0; tail < 2; tail++) {
      if (tail) memset(text + n, tail ? ' ' : 0, sizeof text - n);
      size_t nbyte = tail ? sizeof text : n;
      tr_encoder *fresh;
      assert_int_equal(tr_encoder_create(tokenizer, &fresh), TR_OK);
      encode(fresh, text, nbyte, 0, &wanted);
      encode(used, text, nbyte, 0, &got);
      assert_string_equal(got.data, wanted.data);
      tr_encoder_destroy(fresh);
    }
  }
  tr_text_free(&wanted);
  tr_text_free(&got);
  tr_encoder_destroy(used);
  tr_tokenizer_close(tokenizer);
}

enum { THREADS = 4 };

typedef struct job {
  const tr_tokenizer *tokenizer;
  const char *text;
  size_t nbyte;
  tr_text got;
} job;

static void *encode_by_thread(void *user) {
  job *j = user;
  tr_encoder *encoder;
  if (tr_encoder_create(j->tokenizer, &encoder) != TR_OK) return NULL;
  encode(encoder, j->text, j->nbyte, TR_ENCODE_TEMPLATE, &j->got);
  tr_encoder_destroy(encoder);
  return NULL;
}

static void threads_share_a_tokenizer(void **state) {
  (void)state;
  static const char *const names[] = {"gpt2", "deepseek", "llama2", "unigram", "added", "bert"};
  char *text;
  size_t nbyte;
  assert_int_equal(tr_file_read(FOLDER "corpus.txt", 1 << 20, &text, &nbyte), TR_OK);
  for (size_t i = 0; i < COUNT(names); i++) {
    char path[512];
    tr_tokenizer *tokenizer;
    pthread_t thread[THREADS];
    job jobs[THREADS] = {0};
    (void)snprintf(path, sizeof path, FOLDER "%s.json", names[i]);
    assert_int_equal(tr_tokenizer_open(path, &tokenizer), TR_OK);
    for (int t = 0; t < THREADS; t++) {
      jobs[t] = (job){.tokenizer = tokenizer, .text = text, .nbyte = nbyte};
      assert_int_equal(pthread_create(&thread[t], NULL, encode_by_thread, &jobs[t]), 0);
    }
    for (int t = 0; t < THREADS; t++) assert_int_equal(pthread_join(thread[t], NULL), 0);
    assert_true(jobs[0].got.size > 1000);
    for (int t = 1; t < THREADS; t++) assert_string_equal(jobs[t].got.data, jobs[0].got.data);
    for (int t = 0; t < THREADS; t++) tr_text_free(&jobs[t].got);
    tr_tokenizer_close(tokenizer);
  }
  free(text);
}

static void a_text_that_fails_leaves_the_tokens_as_they_were(void **state) {
  (void)state;
  tr_tokenizer *tokenizer = parse_good("{\"model\":{\"vocab\":{\"a\":0},\"merges\":[],\"unk_token\":\"?\"},"
                                       "\"pre_tokenizer\":{\"type\":\"WhitespaceSplit\"}}");
  tr_encoder *encoder;
  tr_tokens tokens = {0};
  assert_int_equal(tr_encoder_create(tokenizer, &encoder), TR_OK);
  assert_int_equal(tr_encode(encoder, "a", 1, 0, &tokens), TR_OK);
  assert_int_equal(tr_encode(encoder, "a a b", 5, 0, &tokens), TR_ERR_DATA);
  assert_int_equal(tokens.size, 1);
  assert_int_equal(tr_encode(encoder, "a a", 3, 0, &tokens), TR_OK); // and the encoder can go on
  assert_int_equal(tokens.size, 3);
  tr_tokens_free(&tokens);
  tr_encoder_destroy(encoder);
  tr_tokenizer_close(tokenizer);
}

// ---- files

static void a_folder_or_its_file_is_opened(void **state) {
  (void)state;
  char folder[] = "/tmp/test_tokenizer.XXXXXX", path[64];
  tr_tokenizer *tokenizer;
  assert_non_null(mkdtemp(folder));
  (void)snprintf(path, sizeof path, "%s/tokenizer.json", folder);
  assert_int_equal(tr_tokenizer_open(folder, &tokenizer), TR_ERR_CONFIG);
  assert_non_null(strstr(tr_status_text(), folder));
  assert_int_equal(tr_tokenizer_open(path, &tokenizer), TR_ERR_CONFIG);
  assert_int_equal(tr_file_write_atomic(path, with_added, sizeof with_added - 1), TR_OK);
  uint64_t hash = 0;
  for (int i = 0; i < 2; i++) {
    assert_int_equal(tr_tokenizer_open(i ? path : folder, &tokenizer), TR_OK);
    assert_string_equal(tr_tokenizer_name(tokenizer), i ? path : folder);
    assert_false(tr_tokenizer_is_bytes(tokenizer));
    if (i) assert_int_equal(tr_tokenizer_hash(tokenizer), hash);
    hash = tr_tokenizer_hash(tokenizer);
    tr_tokenizer_close(tokenizer);
  }
  assert_int_equal(tr_file_remove_tree(folder), TR_OK);
}

// clang-format off
static const struct {
  const char *text, *message;
} bad[] = {
    {"", "test:1"},
    {"[]", "not a tokenizer"},
    {"{}", "\"model\" is no object"},
    {"{" MODEL, "test:1"},
    {"{" MODEL "," MODEL "}", "duplicate"},
    {"{" MODEL ",\"extra\":1}", "\"extra\""},
    {"{\"model\":{\"type\":\"Magic\"}}", "'Magic' is not supported"},
    {"{\"model\":{\"type\":1}}", "not supported"},
    {"{\"model\":{\"type\":\"BPE\",\"vocab\":{},\"merges\":[]}}", "vocabulary is empty"},
    {"{" MODEL ",\"truncation\":{\"max_length\":3}}", "\"truncation\""},
    {"{" MODEL ",\"padding\":{\"strategy\":{\"Fixed\":3}}}", "\"padding\""},
    {"{" MODEL ",\"padding\":{\"strategy\":\"BatchLongest\",\"pad_to_multiple_of\":8}}", "\"padding\""},
    {"{" MODEL ",\"normalizer\":{\"type\":\"Magic\"}}", "Magic"},
    {"{" MODEL ",\"pre_tokenizer\":{\"type\":\"Magic\"}}", "Magic"},
    {"{" MODEL ",\"post_processor\":{\"type\":\"Magic\"}}", "Magic"},
    {"{" MODEL ",\"decoder\":{\"type\":\"Magic\"}}", "Magic"},
    {"{" MODEL ",\"added_tokens\":{}}", "\"added_tokens\" is no list"},
    {"{" MODEL ",\"added_tokens\":[7]}", "wanted an object"},
    {"{" MODEL ",\"added_tokens\":[{\"id\":6,\"special\":true}]}", "no \"content\""},
    {"{" MODEL ",\"added_tokens\":[{\"id\":6,\"content\":\"\",\"special\":true}]}", "no \"content\""},
    {"{" MODEL ",\"added_tokens\":[{\"id\":6,\"content\":\"x\"}]}", "special"},
    {"{" MODEL ",\"added_tokens\":[{\"id\":6,\"content\":\"x\",\"special\":true,\"odd\":1}]}", "odd"},
    {"{" MODEL ",\"added_tokens\":[" SPECIAL(7, "x") "]}", "number 7, but the vocabulary makes it 6"},
    {"{" MODEL ",\"added_tokens\":[" SPECIAL(6, "ab") "]}", "number 6, but the vocabulary makes it 4"},
    {"{" MODEL ",\"added_tokens\":[" SPECIAL(6, "x") "," SPECIAL(6, "y") "]}", "makes it 7"},
    {"{" MODEL ",\"added_tokens\":[" SPECIAL(6, "x") "," SPECIAL(6, "x") "]}", "twice"},
    {"{" MODEL ",\"normalizer\":{\"type\":\"Strip\",\"strip_left\":true,\"strip_right\":true},\"added_tokens\":[" NORMALIZED(6, "  ") "]}", "leaves nothing"},
};
// clang-format on

static void files_that_cannot_be_used_are_refused_by_name(void **state) {
  (void)state;
  for (size_t i = 0; i < COUNT(bad); i++) {
    tr_tokenizer *tokenizer = NULL;
    tr_status status = tr_tokenizer_parse(bad[i].text, strlen(bad[i].text), "test", &tokenizer);
    if (status != TR_ERR_DATA) fail_msg("%s: status %d", bad[i].text, status);
    if (!strstr(tr_status_text(), bad[i].message)) fail_msg("%s: '%s'", bad[i].text, tr_status_text());
  }
}

static void padding_that_changes_nothing_is_accepted(void **state) {
  (void)state;
  tr_tokenizer_close(parse_good("{" MODEL ",\"padding\":{\"strategy\":\"BatchLongest\",\"pad_id\":0}}"));
}

static void use_spoiled(const json_t *json) {
  char *text = json_dumps(json, 0);
  tr_tokenizer *tokenizer = NULL;
  assert_non_null(text);
  if (tr_tokenizer_parse(text, strlen(text), "test", &tokenizer) == TR_OK) {
    tr_encoder *encoder;
    tr_tokens tokens = {0};
    tr_text back = {0};
    static const char nasty[] = "ab a<x>b  [lr] \xE2\x80\x83</s>qQ\xFF";
    assert_int_equal(tr_encoder_create(tokenizer, &encoder), TR_OK);
    (void)tr_encode(encoder, nasty, sizeof nasty, TR_ENCODE_TEMPLATE, &tokens);
    for (size_t i = 0; i < tokens.size; i++) assert_in_range(tokens.data[i], 0, tr_tokenizer_vocab(tokenizer) - 1);
    (void)tr_decode(tokenizer, tokens.data, tokens.size, 0, &back);
    tr_text_free(&back);
    tr_tokens_free(&tokens);
    tr_encoder_destroy(encoder);
    tr_tokenizer_close(tokenizer);
  }
  free(text);
}

static void spoiled_files_do_no_harm(void **state) {
  (void)state;
  assert_true(mutate_json(with_added, 10000, use_spoiled) > 100);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(byte_tokens_are_the_bytes),
      cmocka_unit_test(tokens_may_hold_zero_bytes),
      cmocka_unit_test(added_tokens_are_found_where_they_may_stand),
      cmocka_unit_test(special_tokens_leave_nothing_when_they_are_skipped),
      cmocka_unit_test(what_is_not_utf8_is_repaired_first),
      cmocka_unit_test(the_hash_is_of_what_decides_numbers),
      cmocka_unit_test(words_come_from_the_cache_as_they_went_in),
      cmocka_unit_test(threads_share_a_tokenizer),
      cmocka_unit_test(a_text_that_fails_leaves_the_tokens_as_they_were),
      cmocka_unit_test(a_folder_or_its_file_is_opened),
      cmocka_unit_test(files_that_cannot_be_used_are_refused_by_name),
      cmocka_unit_test(padding_that_changes_nothing_is_accepted),
      cmocka_unit_test(spoiled_files_do_no_harm),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
