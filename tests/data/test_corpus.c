// SPDX-License-Identifier: MIT
// tier: quick
// timeout: 60
//
// Token files of every format that an independent writer made (tests/data/oracle/tokens, by tests/oracle/token_files.py) are read
// token for token, with their documents; which format a path means; what is refused, by which words; a file that becomes
// shorter or holds foreign tokens is an error at the next read.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "data/token_files.h"
#include <sys/stat.h>

enum { GOLDEN_TOKENS = 23, GOLDEN_DOCUMENTS = 5 };

static tr_corpus *open_ok(const char *path, int text, int64_t vocab, int32_t end) {
  tr_corpus *corpus = NULL;
  tr_corpus_options options = {.path = path, .text = text, .vocab = vocab, .end = end};
  tr_status status = tr_corpus_open(&options, &corpus);
  if (status != TR_OK) fail_msg("%s: %s", path, tr_status_text());
  return corpus;
}

static void assert_refused(const char *path, int text, const char *words) {
  tr_corpus *corpus = NULL;
  tr_corpus_options options = {.path = path, .text = text, .end = -1};
  assert_failed(tr_corpus_open(&options, &corpus), TR_ERR_DATA, words);
  assert_null(corpus);
  if (!strstr(tr_status_text(), path)) fail_msg("'%s' does not name %s", tr_status_text(), path);
}

static void assert_golden(const char *name, const char *format, int64_t vocab) {
  char path[256];
  int32_t token[GOLDEN_TOKENS];
  snprintf(path, sizeof path, "%s/oracle/tokens/%s", TRIREME_TEST_DATA, name);
  tr_corpus *corpus = open_ok(path, 0, vocab, -1);
  assert_string_equal(tr_corpus_format_name(corpus), format);
  assert_int_equal(tr_corpus_tokens(corpus), GOLDEN_TOKENS);
  for (int64_t first = 0; first < GOLDEN_TOKENS; first++) { // every run of tokens
    for (int64_t count = 0; count <= GOLDEN_TOKENS - first; count++) {
      memset(token, 0x55, sizeof token);
      assert_int_equal(tr_corpus_read(corpus, first, count, token), TR_OK);
      for (int64_t i = 0; i < count; i++) assert_int_equal(token[i], token_at(first + i, vocab));
    }
  }
  assert_int_equal(tr_corpus_index(corpus), TR_OK);
  assert_int_equal(tr_corpus_index(corpus), TR_OK); // again is fine
  if (strcmp(format, "megatron") == 0) {
    const int64_t start[GOLDEN_DOCUMENTS + 1] = {0, 5, 6, 6, 21, 23};
    assert_int_equal(tr_corpus_documents(corpus), GOLDEN_DOCUMENTS);
    for (int d = 0; d <= GOLDEN_DOCUMENTS; d++) assert_int_equal(tr_corpus_document_start(corpus, d), start[d]);
    for (int64_t i = 0; i < GOLDEN_TOKENS; i++) {
      int64_t d = tr_corpus_document_of(corpus, i);
      assert_true(start[d] <= i && i < start[d + 1]);
    }
  } else {
    assert_int_equal(tr_corpus_documents(corpus), 1);
    assert_int_equal(tr_corpus_document_start(corpus, 1), GOLDEN_TOKENS);
  }
  tr_corpus_close(corpus);
}

static void files_of_an_independent_writer_are_read(void **state) {
  (void)state;
  assert_golden("nanogpt.bin", "nanogpt", 65536);
  assert_golden("llmc_u16.bin", "llm.c", 65536);
  assert_golden("llmc_u32.bin", "llm.c", 128256);
  assert_golden("megatron_u8", "megatron", 256);
  assert_golden("megatron_i8.idx", "megatron", 128);
  assert_golden("megatron_i16.bin", "megatron", 32768);
  assert_golden("megatron_i32", "megatron", 128256); // with modes
  assert_golden("megatron_i64", "megatron", 128256);
  assert_golden("megatron_u16", "megatron", 65536);
  assert_golden("megatron_scattered", "megatron", 65536);
}

static void text_is_bytes_and_one_document(void **state) {
  fixture *f = *state;
  unsigned char text[300];
  int32_t token[300];
  for (int i = 0; i < 300; i++) text[i] = (unsigned char)(i * 7);
  write_bytes(f->path, text, sizeof text);
  tr_corpus *corpus = open_ok(f->path, 1, 256, -1);
  assert_string_equal(tr_corpus_format_name(corpus), "text");
  assert_string_equal(tr_corpus_path(corpus), f->path);
  assert_int_equal(tr_corpus_tokens(corpus), 300);
  assert_int_equal(tr_corpus_read(corpus, 0, 300, token), TR_OK);
  for (int i = 0; i < 300; i++) assert_int_equal(token[i], text[i]);
  assert_int_equal(tr_corpus_index(corpus), TR_OK);
  assert_int_equal(tr_corpus_documents(corpus), 1);
  assert_int_equal(tr_corpus_document_of(corpus, 299), 0);
  tr_corpus_close(corpus);
}

// Names decide first, then magic numbers, then the ending.
static void a_path_means_the_right_format(void **state) {
  fixture *f = *state;
  char bin[160], other[160];
  const int64_t length[] = {3, 4};
  snprintf(bin, sizeof bin, "%s.bin", f->path);
  snprintf(other, sizeof other, "%s/pair", f->folder);
  write_bytes(bin, "abcdef", 6);
  write_corpus(other, TR_CORPUS_MEGATRON, 300, length, 2);
  const struct {
    const char *ending;
    int text;
    const char *format;
  } cases[] = {{"corpus.bin", 0, "nanogpt"}, {"corpus.bin", 1, "text"},   {"pair.bin", 0, "megatron"},
               {"pair.bin", 1, "megatron"},  {"pair.idx", 1, "megatron"}, {"pair", 1, "megatron"},
               {"pair", 0, "megatron"},      {"shard.bin", 1, "llm.c"},   {"shard.bin", 0, "llm.c"},
               {"shard.dat", 0, "llm.c"}};
  char shard[160], renamed[160];
  snprintf(shard, sizeof shard, "%s/shard", f->folder);
  snprintf(renamed, sizeof renamed, "%s/shard.dat", f->folder);
  write_corpus(shard, TR_CORPUS_LLMC, 300, length, 2);
  strcat(shard, ".bin");
  assert_int_equal(link(shard, renamed), 0);
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    char path[192];
    snprintf(path, sizeof path, "%s/%s", f->folder, cases[i].ending);
    tr_corpus *corpus = open_ok(path, cases[i].text, 0, -1);
    assert_string_equal(tr_corpus_format_name(corpus), cases[i].format);
    tr_corpus_close(corpus);
  }
  write_bytes(f->path, "words", 5);
  assert_refused(f->path, 0, "needs tokenizing");
}

static void bad_files_are_refused_by_name(void **state) {
  fixture *f = *state;
  char path[192];
  assert_refused(f->path, 1, "No such file");
  write_bytes(f->path, "", 0);
  assert_refused(f->path, 1, "is empty");
  assert_refused(f->folder, 1, "is a folder");
  assert_refused("/dev/null", 1, "not a regular file");
  snprintf(path, sizeof path, "%s/fifo", f->folder);
  assert_int_equal(mkfifo(path, 0600), 0);
  assert_refused(path, 1, "not a regular file"); // and does not wait for a writer
  snprintf(path, sizeof path, "%s/more", f->path);
  assert_refused(path, 1, "Not a directory");
  snprintf(path, sizeof path, "%s/odd.bin", f->folder);
  write_bytes(path, "abc", 3);
  assert_refused(path, 0, "no whole number of u16 tokens");
  snprintf(path, sizeof path, "%s/alone.idx", f->folder);
  write_bytes(path, "abc", 3);
  tr_corpus_options options = {.path = path};
  tr_corpus *corpus = NULL;
  assert_failed(tr_corpus_open(&options, &corpus), TR_ERR_DATA, "alone.bin: cannot be opened");
  options.path = "";
  assert_failed(tr_corpus_open(&options, &corpus), TR_ERR_CONFIG, "is empty");
  tr_corpus_close(NULL);
}

static void unreadable_files_are_refused(void **state) {
  fixture *f = *state;
  write_bytes(f->path, "abcd", 4);
  assert_int_equal(chmod(f->path, 0), 0);
  uid_t user = geteuid();
  if (user == 0 && seteuid(65534) != 0) { // root may read everything, so be nobody for a moment
    print_message("skipped: this user may read everything and cannot become another\n");
    skip();
  }
  assert_refused(f->path, 1, "Permission denied");
  assert_int_equal(seteuid(user), 0);
}

static void end_tokens_bound_documents(void **state) {
  fixture *f = *state;
  enum { N = 10000 };
  char path[160];
  uint16_t token[N];
  int64_t start[N + 1], ndocument = 0;
  uint64_t random = 1;
  snprintf(path, sizeof path, "%s.bin", f->path);
  for (int round = 0; round < 20; round++) {
    int64_t n = 1 + (int64_t)(next_random(&random) % N);
    start[0] = ndocument = 0;
    for (int64_t i = 0; i < n; i++) {
      token[i] = next_random(&random) % (round % 2 ? 3 : 300) == 0 ? 50256 : (uint16_t)(i % 1000);
      if (token[i] == 50256) start[++ndocument] = i + 1;
    }
    if (start[ndocument] < n) start[++ndocument] = n;
    write_bytes(path, token, (size_t)n * sizeof *token);
    tr_corpus *corpus = open_ok(path, 0, 50257, 50256);
    assert_int_equal(tr_corpus_index(corpus), TR_OK);
    assert_int_equal(tr_corpus_documents(corpus), ndocument);
    for (int64_t d = 0; d <= ndocument; d++) assert_int_equal(tr_corpus_document_start(corpus, d), start[d]);
    for (int64_t d = 0; d < ndocument; d++) {
      assert_int_equal(tr_corpus_document_of(corpus, start[d]), d);
      assert_int_equal(tr_corpus_document_of(corpus, start[d + 1] - 1), d);
    }
    tr_corpus_close(corpus);
  }
}

// Blocks of the widening loop and their remainders, for every place in them.
static void tokens_beyond_the_vocabulary_are_named(void **state) {
  fixture *f = *state;
  enum { N = 1000 };
  char path[160], words[64];
  uint16_t token[N];
  int32_t out[N];
  snprintf(path, sizeof path, "%s.bin", f->path);
  for (int bad = 0; bad < N; bad += 37) {
    for (int i = 0; i < N; i++) token[i] = (uint16_t)(i % 500);
    token[bad] = 500;
    write_bytes(path, token, sizeof token);
    tr_corpus *corpus = open_ok(path, 0, 500, 499);
    snprintf(words, sizeof words, "token 500 at place %d is not in the vocabulary of 500", bad);
    assert_failed(tr_corpus_read(corpus, 0, N, out), TR_ERR_DATA, words);
    assert_non_null(strstr(tr_status_text(), path));
    assert_int_equal(tr_corpus_read(corpus, 0, bad, out), TR_OK);
    assert_int_equal(tr_corpus_read(corpus, bad + 1, N - bad - 1, out), TR_OK);
    assert_failed(tr_corpus_index(corpus), TR_ERR_DATA, words);
    tr_corpus_close(corpus);
    corpus = open_ok(path, 0, 0, -1); // any vocabulary
    assert_int_equal(tr_corpus_read(corpus, 0, N, out), TR_OK);
    tr_corpus_close(corpus);
  }
}

// Whatever the vocabulary, a token is a number of 31 bits.
static void negative_and_huge_tokens_are_refused(void **state) {
  fixture *f = *state;
  char bin[160], idx[160], words[64];
  const int64_t tokens[][2] = {{1, -1}, {1, INT64_MIN}, {1, (int64_t)1 << 31}, {1, (int64_t)1 << 40 | 5}};
  snprintf(bin, sizeof bin, "%s.bin", f->path);
  snprintf(idx, sizeof idx, "%s.idx", f->path);
  for (size_t i = 0; i < sizeof tokens / sizeof tokens[0]; i++) {
    unsigned char index[34 + 12 + 16] = "MMIDIDX\0";
    index[9] = 1, index[17] = 5, index[18] = 1, index[26] = 2, index[34] = 2, index[34 + 12 + 8] = 1;
    write_bytes(bin, tokens[i], sizeof tokens[i]);
    write_bytes(idx, index, sizeof index);
    tr_corpus *corpus = open_ok(f->path, 0, 0, -1);
    int32_t out[2];
    snprintf(words, sizeof words, "at place 1 is not in the vocabulary");
    assert_failed(tr_corpus_read(corpus, 0, 2, out), TR_ERR_DATA, words);
    assert_int_equal(tr_corpus_read(corpus, 0, 1, out), TR_OK);
    tr_corpus_close(corpus);
  }
}

static void tokens_that_do_not_exist_are_refused(void **state) {
  fixture *f = *state;
  int32_t out[8];
  write_bytes(f->path, "abcdef", 6);
  tr_corpus *corpus = open_ok(f->path, 1, 256, -1);
  const int64_t cases[][2] = {{-1, 1}, {0, 7}, {6, 1}, {0, -1}, {INT64_MAX, 1}, {1, INT64_MAX}, {7, 0}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    assert_failed(tr_corpus_read(corpus, cases[i][0], cases[i][1], out), TR_ERR_USAGE, "do not exist");
  }
  assert_int_equal(tr_corpus_read(corpus, 6, 0, out), TR_OK);
  tr_corpus_close(corpus);
}

// Reading beyond the new end of a mapped file would raise SIGBUS.
static void a_file_cut_short_while_in_use_is_an_error(void **state) {
  fixture *f = *state;
  enum { N = 100000 };
  static unsigned char text[N];
  static int32_t out[N];
  for (int i = 0; i < N; i++) text[i] = (unsigned char)i;
  const int64_t sizes[] = {0, 1, 4096, 50000, N - 1};
  for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
    write_bytes(f->path, text, N);
    tr_corpus *corpus = open_ok(f->path, 1, 256, 'x');
    assert_int_equal(truncate(f->path, sizes[i]), 0);
    assert_failed(tr_corpus_read(corpus, 0, N, out), TR_ERR_DATA, "file shrank while in use");
    assert_non_null(strstr(tr_status_text(), f->path));
    assert_failed(tr_corpus_read(corpus, N - 1, 1, out), TR_ERR_DATA, "file shrank");
    assert_failed(tr_corpus_index(corpus), TR_ERR_DATA, "file shrank");
    tr_corpus_close(corpus);
  }
  write_bytes(f->path, text, N);
  tr_corpus *corpus = open_ok(f->path, 1, 256, -1);
  assert_int_equal(unlink(f->path), 0); // a removed file is still whole
  assert_int_equal(tr_corpus_read(corpus, 0, N, out), TR_OK);
  tr_corpus_close(corpus);
}

static void an_index_that_changes_while_in_use_is_an_error(void **state) {
  fixture *f = *state;
  char idx[160];
  const int64_t length[] = {100, 200, 300};
  snprintf(idx, sizeof idx, "%s.idx", f->path);
  write_corpus(f->path, TR_CORPUS_MEGATRON, 300, length, 3);
  tr_corpus *corpus = open_ok(f->path, 0, 300, -1);
  FILE *file = fopen(idx, "r+b");
  assert_non_null(file);
  assert_int_equal(fseek(file, 34, SEEK_SET), 0);
  fputc(101, file);
  fclose(file);
  assert_failed(tr_corpus_index(corpus), TR_ERR_DATA, "changed while in use");
  tr_corpus_close(corpus);
}

static uint64_t hash_with(const char *path, int64_t nbyte, int64_t changed) {
  unsigned char *text = malloc((size_t)nbyte);
  assert_non_null(text);
  for (int64_t i = 0; i < nbyte; i++) text[i] = (unsigned char)(i % 251);
  if (changed >= 0) text[changed] ^= 1;
  write_bytes(path, text, (size_t)nbyte);
  free(text);
  tr_corpus *corpus = open_ok(path, 1, 256, -1);
  uint64_t hash = tr_corpus_hash(corpus);
  tr_corpus_close(corpus);
  return hash;
}

static void hash_tells_size_both_ends_middle_and_index(void **state) {
  fixture *f = *state;
  const int64_t n = 6 << 20, mib = 1 << 20;
  uint64_t plain = hash_with(f->path, n, -1);
  const int64_t seen[] = {0, mib - 1, n / 2 - mib / 2, n / 2 + mib / 2 - 1, n - mib, n - 1};
  assert_true(plain == hash_with(f->path, n, -1));
  assert_true(plain != hash_with(f->path, n + 1, -1));
  for (size_t i = 0; i < sizeof seen / sizeof seen[0]; i++) assert_true(plain != hash_with(f->path, n, seen[i]));
  assert_true(hash_with(f->path, 2, -1) != hash_with(f->path, 3, -1));
  char one[192], two[192];
  const int64_t split[][2] = {{3, 4}, {4, 3}}; // the same tokens in other documents
  snprintf(one, sizeof one, "%s-one", f->path);
  snprintf(two, sizeof two, "%s-two", f->path);
  write_corpus(one, TR_CORPUS_MEGATRON, 300, split[0], 2);
  write_corpus(two, TR_CORPUS_MEGATRON, 300, split[1], 2);
  tr_corpus *a = open_ok(one, 0, 300, -1), *b = open_ok(two, 0, 300, -1);
  assert_true(tr_corpus_hash(a) != tr_corpus_hash(b));
  tr_corpus_close(a);
  tr_corpus_close(b);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(files_of_an_independent_writer_are_read),
      TEST(text_is_bytes_and_one_document),
      TEST(a_path_means_the_right_format),
      TEST(bad_files_are_refused_by_name),
      TEST(unreadable_files_are_refused),
      TEST(end_tokens_bound_documents),
      TEST(tokens_beyond_the_vocabulary_are_named),
      TEST(negative_and_huge_tokens_are_refused),
      TEST(tokens_that_do_not_exist_are_refused),
      TEST(a_file_cut_short_while_in_use_is_an_error),
      TEST(an_index_that_changes_while_in_use_is_an_error),
      TEST(hash_tells_size_both_ends_middle_and_index),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
