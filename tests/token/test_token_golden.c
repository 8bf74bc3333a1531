// SPDX-License-Identifier: MIT
// tier: quick
// timeout: 60
// Proves that tokenizers give the numbers and the texts of the `tokenizers` library, on a corpus of nasty texts.
//
// tests/oracle/tokenizer_golden.py made the files of tests/data/token and says what they hold. One test per tokenizer reports
// its first differences with the line of the corpus. Run with names, it compares only those.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "token/token_internal.h"
#include "trireme/base/file.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FOLDER TRIREME_TEST_DATA "/token/"
enum { FILE_LIMIT = 1 << 24, TEXTS_MAX = 1024, REPORTS_MAX = 5 };

static const char *const names[] = {"gpt2",   "llama3",    "qwen2",     "deepseek", "roberta",
                                    "llama2", "metaspace", "gemma",     "unigram",  "unigram_bytes",
                                    "albert", "bert",      "wordlevel", "added"};
enum { NAMES = sizeof names / sizeof *names };

typedef struct corpus {
  tr_text text[TEXTS_MAX];
  int line[TEXTS_MAX];
  size_t n;
} corpus;

// ---- reading the files

static int hex(char c) { return c <= '9' ? c - '0' : (c | 32) - 'a' + 10; }

// A field with its escapes; "=" is `whole` where that is given.
static void unescape(const char *at, const char *end, const tr_text *whole, tr_text *out) {
  for (; at < end; at++) {
    char c = *at;
    if (c == '=' && whole) {
      tr_text_append_bytes(out, whole->data, whole->size);
      continue;
    }
    if (c == '\\') {
      c = *++at;
      if (c == 'e') continue;
      if (c == 'x') {
        c = (char)(hex(at[1]) << 4 | hex(at[2]));
        at += 2;
      } else {
        c = c == 'n' ? '\n' : c == 'r' ? '\r' : c == 't' ? '\t' : c;
      }
    }
    tr_text_append_bytes(out, &c, 1);
  }
}

static void read_corpus(corpus *out) {
  char *data = NULL;
  size_t nbyte = 0;
  assert_int_equal(tr_file_read(FOLDER "corpus.txt", FILE_LIMIT, &data, &nbyte), TR_OK);
  int number = 0;
  for (char *line = data, *end; *line; line = end + 1) {
    end = strchr(line, '\n');
    number++;
    if (*line == '#' || line == end) continue;
    long count = 1;
    char *from = line;
    if (memcmp(line, "\\*", 2) == 0) {
      count = strtol(line + 2, &from, 10);
      from++;
    }
    assert_true(out->n < TEXTS_MAX);
    out->line[out->n] = number;
    tr_text *text = &out->text[out->n++];
    tr_text_append_bytes(text, "", 0);
    while (count-- > 0) unescape(from, end, NULL, text);
  }
  free(data);
}

// "5 7*3" up to `end`.
static void read_numbers(const char *at, const char *end, tr_tokens *out) {
  out->size = 0;
  while (at < end) {
    char *next;
    long number = strtol(at, &next, 10), count = 1;
    if (*next == '*') count = strtol(next + 1, &next, 10);
    assert_int_equal(tr_tokens_reserve(out, (size_t)count), TR_OK);
    while (count-- > 0) out->data[out->size++] = (int32_t)number;
    at = next + 1;
  }
}

// ---- comparing

typedef struct bench {
  const char *name;
  tr_tokenizer *tokenizer;
  tr_encoder *encoder;
  tr_tokens before, after; // of the template
  tr_tokens wanted, got, whole;
  tr_text wanted_text, got_text, got_repaired, repaired;
  int line, wrong;
} bench;

static int report(bench *b, const char *what) {
  if (b->wrong++ >= REPORTS_MAX) return 0;
  print_error("%s: corpus.txt:%d: %s ", b->name, b->line, what);
  return 1;
}

static void print_some(const char *label, const tr_tokens *tokens, size_t at) {
  print_error(" %s", label);
  for (size_t i = at < 2 ? 0 : at - 2; i < at + 8 && i < tokens->size; i++) print_error(" %d", tokens->data[i]);
}

static void check_numbers(bench *b, const char *what) {
  size_t n = b->wanted.size, at = 0;
  while (at < n && at < b->got.size && b->wanted.data[at] == b->got.data[at]) at++;
  if (at == n && n == b->got.size) return;
  if (!report(b, what)) return;
  print_error("differ from number %zu of %zu (got %zu):", at, n, b->got.size);
  print_some("wanted", &b->wanted, at);
  print_some("got", &b->got, at);
  print_error("\n");
}

static void encode(bench *b, const tr_text *text, int flags) {
  b->got.size = 0;
  if (tr_encode(b->encoder, text->data, text->size, flags, &b->got) < 0 && report(b, "encode"))
    print_error("fails: %s\n", tr_status_text());
}

static void add(tr_tokens *out, const tr_tokens *more) {
  assert_int_equal(tr_tokens_reserve(out, more->size), TR_OK);
  for (size_t i = 0; i < more->size; i++) out->data[out->size++] = more->data[i];
}

static void check_decode(bench *b, int skip_special, const char *field, const char *end) {
  b->wanted_text.size = b->got_text.size = 0;
  unescape(field, end, &b->repaired, &b->wanted_text);
  tr_text_append_bytes(&b->got_text, "", 0);
  tr_text_append_bytes(&b->wanted_text, "", 0);
  if (tr_decode(b->tokenizer, b->whole.data, b->whole.size, skip_special, &b->got_text) < 0 && report(b, "decode"))
    print_error("fails: %s\n", tr_status_text());
  b->got_repaired.size = 0; // bytes come out as they are here, and as U+FFFD there
  tr_utf8_repair(b->got_text.data, b->got_text.size, &b->got_repaired);
  const tr_text *wanted = &b->wanted_text, *got = &b->got_repaired;
  size_t at = 0;
  while (at < wanted->size && at < got->size && wanted->data[at] == got->data[at]) at++;
  if ((at == wanted->size && at == got->size) || !report(b, skip_special ? "text without special tokens" : "text"))
    return;
  print_error("differs from byte %zu of %zu (got %zu): wanted '%.40s' got '%.40s'\n", at, wanted->size, got->size,
              wanted->data + at, got->data + at);
}

// One text: `field` is its line of the golden file.
static void check_text(bench *b, const tr_text *text, const char *field) {
  const char *end[4];
  for (int i = 0; i < 4; i++) end[i] = (i ? end[i - 1] + 1 : field) + strcspn(i ? end[i - 1] + 1 : field, "\t\n");
  read_numbers(field, end[0], &b->wanted);
  encode(b, text, 0);
  check_numbers(b, "numbers");
  b->whole.size = 0;
  add(&b->whole, &b->before);
  add(&b->whole, &b->wanted);
  add(&b->whole, &b->after);
  encode(b, text, TR_ENCODE_TEMPLATE);
  tr_tokens wanted = b->wanted;
  b->wanted = b->whole;
  check_numbers(b, "numbers in the template");
  b->wanted = wanted;
  if (end[0][1] != '=') read_numbers(end[0] + 1, end[1], &b->wanted);
  encode(b, text, TR_ENCODE_PLAIN);
  check_numbers(b, "numbers with special tokens as text");
  check_decode(b, 0, end[1] + 1, end[2]);
  check_decode(b, 1, end[2] + 1, end[3]);
}

static void check_all(bench *b, const corpus *texts, const char *golden) {
  read_numbers(golden, golden + strcspn(golden, "\n"), &b->before);
  golden = strchr(golden, '\n') + 1;
  read_numbers(golden, golden + strcspn(golden, "\n"), &b->after);
  for (size_t i = 0; i < texts->n; i++) {
    golden = strchr(golden, '\n');
    assert_non_null(golden);
    golden++;
    b->line = texts->line[i];
    b->repaired.size = 0;
    tr_utf8_repair(texts->text[i].data, texts->text[i].size, &b->repaired);
    check_text(b, &texts->text[i], golden);
  }
  assert_string_equal(strchr(golden, '\n'), "\n"); // no text is left over
}

static void matches_the_library(void **state) {
  bench b = {.name = *state};
  corpus *texts = calloc(1, sizeof *texts);
  char path[512], *golden = NULL;
  size_t nbyte = 0;
  assert_non_null(texts);
  read_corpus(texts);
  snprintf(path, sizeof path, "%s%s.golden", FOLDER, b.name);
  assert_int_equal(tr_file_read(path, FILE_LIMIT, &golden, &nbyte), TR_OK);
  snprintf(path, sizeof path, "%s%s.json", FOLDER, b.name);
  tr_status status = tr_tokenizer_open(path, &b.tokenizer);
  if (status == TR_OK) status = tr_encoder_create(b.tokenizer, &b.encoder);
  if (status < 0) fail_msg("%s", tr_status_text());
  check_all(&b, texts, golden);
  tr_encoder_destroy(b.encoder);
  tr_tokenizer_close(b.tokenizer);
  tr_tokens *lists[] = {&b.before, &b.after, &b.wanted, &b.got, &b.whole};
  for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) tr_tokens_free(lists[i]);
  tr_text *all[] = {&b.wanted_text, &b.got_text, &b.got_repaired, &b.repaired};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) tr_text_free(all[i]);
  for (size_t i = 0; i < texts->n; i++) tr_text_free(&texts->text[i]);
  free(texts);
  free(golden);
  assert_int_equal(b.wrong, 0);
}

int main(int argc, char **argv) {
  struct CMUnitTest tests[NAMES];
  size_t n = 0;
  for (size_t i = 0; i < NAMES; i++) {
    int wanted = argc == 1;
    for (int k = 1; k < argc; k++) wanted |= strcmp(argv[k], names[i]) == 0;
    if (wanted) tests[n++] = (struct CMUnitTest){names[i], matches_the_library, NULL, NULL, (void *)names[i]};
  }
  return _cmocka_run_group_tests("golden", tests, n, NULL, NULL);
}
