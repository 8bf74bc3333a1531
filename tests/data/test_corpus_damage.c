// SPDX-License-Identifier: MIT
// tier: quick
// timeout: 120
//
// Damaged token files: every field of every header wrong, files cut at every byte, and thousands of random mutations give
// TR_ERR_DATA with words that name the trouble, or a corpus that can be read to its end; never a crash.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "data/token_files.h"

typedef struct file {
  char *data;
  size_t nbyte;
} file;

static file golden(const char *name) {
  char path[256];
  file out;
  snprintf(path, sizeof path, "%s/oracle/tokens/%s", TRIREME_TEST_DATA, name);
  assert_int_equal(tr_file_read(path, 1 << 16, &out.data, &out.nbyte), TR_OK);
  out.data = realloc(out.data, out.nbyte + 64); // room to grow
  assert_non_null(out.data);
  memset(out.data + out.nbyte, 0, 64);
  return out;
}

static void put(const fixture *f, const char *ending, file contents) {
  char path[160];
  snprintf(path, sizeof path, "%s%s", f->path, ending);
  write_bytes(path, contents.data, contents.nbyte);
}

static tr_status open_bin(const fixture *f, tr_corpus **out) {
  char path[160];
  snprintf(path, sizeof path, "%s.bin", f->path);
  tr_corpus_options options = {.path = path, .vocab = 65536, .end = 3};
  return tr_corpus_open(&options, out);
}

static void assert_refused(const fixture *f, const char *words) {
  tr_corpus *corpus = NULL;
  assert_failed(open_bin(f, &corpus), TR_ERR_DATA, words);
  assert_non_null(strstr(tr_status_text(), f->path));
  assert_null(corpus);
}

// The index of megatron_u16: sizes 5 1 0 12 3 2 at 34, pointers 0 10 12 12 36 42 at 58, bounds 0 1 2 3 5 6 at 106.
static void every_wrong_field_of_a_megatron_index_is_named(void **state) {
  fixture *f = *state;
  const struct {
    int offset, size;
    int64_t value;
    const char *words;
  } cases[] = {
      {0, 1, 'm', "does not begin with MMIDIDX"},
      {8, 1, 'X', "does not begin with MMIDIDX"},
      {9, 8, 2, "version 2"},
      {9, 8, (int64_t)1 << 32 | 1, "version 4294967297"},
      {17, 1, 0, "token type 0 is unknown"},
      {17, 1, 9, "token type 9 is unknown"},
      {17, 1, 255, "token type 255 is unknown"},
      {17, 1, 6, "tokens are of type f64"},
      {17, 1, 7, "tokens are of type f32"},
      {17, 1, 4, "no whole number of i32 tokens"},
      {18, 8, 5, "do not make its size"},
      {18, 8, 7, "do not make its size"},
      {18, 8, -1, "do not make its size"},
      {18, 8, INT64_MAX / 6, "do not make its size"}, // 12 times it is beyond 64 bits
      {26, 8, 5, "do not make its size"},
      {26, 8, 0, "do not make its size"},
      {26, 8, INT64_MIN, "do not make its size"},
      {34, 4, -1, "sequence 0 of -1 tokens"},
      {34, 4, INT32_MIN, "does not lie in"},
      {34, 4, 24, "sequence 0 of 24 tokens at byte 0 does not lie in"},
      {34, 4, 6, "more tokens than the 23"},
      {34 + 20, 4, 3, "sequence 5 of 3 tokens at byte 42"},
      {58, 8, -2, "at byte -2"},
      {58, 8, 1, "at byte 1 "}, // between two tokens
      {58, 8, INT64_MAX - 1, "does not lie in"},
      {58 + 40, 8, 44, "sequence 5 of 2 tokens at byte 44"},
      {106, 8, 1, "its documents are sequences 1 to 6"},
      {106 + 40, 8, 5, "its documents are sequences 0 to 5"},
      {106 + 40, 8, 7, "there are 0 to 6"},
      {106 + 16, 8, 4, "document 2 ends before it begins"},
      {106 + 16, 8, -1, "document 1 ends before it begins"},
      {106 + 32, 8, 7, "document 4 ends before it begins"},
  };
  file bin = golden("megatron_u16.bin");
  put(f, ".bin", bin);
  free(bin.data);
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    file idx = golden("megatron_u16.idx");
    memcpy(idx.data + cases[i].offset, &cases[i].value, (size_t)cases[i].size);
    put(f, ".idx", idx);
    assert_refused(f, cases[i].words);
    free(idx.data);
  }
}

static void a_megatron_file_of_another_length_is_refused(void **state) {
  fixture *f = *state;
  file bin = golden("megatron_u16.bin"), idx = golden("megatron_u16.idx");
  size_t whole = idx.nbyte;
  tr_corpus *corpus = NULL;
  put(f, ".bin", bin);
  for (idx.nbyte = 0; idx.nbyte < whole + 20; idx.nbyte++) {
    if (idx.nbyte == whole || idx.nbyte == whole + 6) continue; // with and without modes
    put(f, ".idx", idx);
    assert_refused(f, idx.nbyte == 0 ? "is empty" : idx.nbyte < 34 ? "is no Megatron index" : "do not make its size");
  }
  idx.nbyte = whole;
  put(f, ".idx", idx);
  whole = bin.nbyte;
  for (bin.nbyte = 0; bin.nbyte < whole + 20; bin.nbyte++) {
    if (bin.nbyte == whole) continue;
    put(f, ".bin", bin);
    assert_refused(f, bin.nbyte == 0      ? "is empty"
                      : bin.nbyte % 2     ? "no whole number of u16 tokens"
                      : bin.nbyte < whole ? "does not lie in"
                                          : "do not belong together");
  }
  bin.nbyte = whole;
  put(f, ".bin", bin);
  assert_int_equal(open_bin(f, &corpus), TR_OK); // nothing else was wrong
  tr_corpus_close(corpus);
  free(bin.data);
  free(idx.data);
}

static void a_damaged_llmc_file_is_refused(void **state) {
  fixture *f = *state;
  const struct {
    const char *name;
    int offset;
    int32_t value;
    const char *words;
  } cases[] = {
      {"llmc_u16.bin", 4, 7, "version 7 of llm.c token files is not known; version 1"},
      {"llmc_u32.bin", 4, 1, "version 1 of llm.c token files is not known; version 7"},
      {"llmc_u16.bin", 0, 20240801, "version 1"},
      {"llmc_u16.bin", 8, 22, "its header counts 22 tokens of u16"},
      {"llmc_u16.bin", 8, 24, "its header counts 24 tokens"},
      {"llmc_u32.bin", 8, -1, "its header counts -1 tokens"},
      {"llmc_u32.bin", 8, INT32_MAX, "its header counts 2147483647 tokens of u32"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    file bin = golden(cases[i].name);
    memcpy(bin.data + cases[i].offset, &cases[i].value, 4);
    put(f, ".bin", bin);
    assert_refused(f, cases[i].words);
    free(bin.data);
  }
  file bin = golden("llmc_u32.bin");
  size_t whole = bin.nbyte;
  for (bin.nbyte = 4; bin.nbyte < whole + 20; bin.nbyte++) {
    if (bin.nbyte == whole) continue;
    put(f, ".bin", bin);
    assert_refused(f, bin.nbyte < 1024 ? "less than the 1024 of an llm.c header" : "which do not make its size");
  }
  int32_t none = 0;
  bin.nbyte = 1024;
  memcpy(bin.data + 8, &none, 4);
  put(f, ".bin", bin);
  assert_refused(f, "is empty");
  free(bin.data);
}

static void mutate(file *contents, uint64_t *random) {
  int changes = 1 + (int)(next_random(random) % 4);
  for (int c = 0; c < changes && contents->nbyte > 0; c++) {
    uint64_t r = next_random(random), place = (r >> 16) % contents->nbyte;
    if (place > 200 && r & 1 << 12) place %= 40; // headers more often
    switch (r % 8) {
    case 0: contents->nbyte = place; break;
    case 1: contents->nbyte += contents->nbyte < 1400 ? (r >> 8) % 16 : 0; break;
    case 2: contents->data[place] = (char)0xFF; break;
    case 3: contents->data[place] = 0; break;
    case 4: contents->data[place] = (char)(contents->data[place] + 1); break;
    default: contents->data[place] = (char)(r >> 56);
    }
  }
}

// Everything that can be asked of a corpus that opened.
static void use(const fixture *f, tr_corpus *corpus) {
  int64_t tokens = tr_corpus_tokens(corpus);
  int32_t token[2048];
  assert_in_range(tokens, 1, 2048);
  tr_status status = tr_corpus_read(corpus, 0, tokens, token);
  assert_true(status == TR_OK || status == TR_ERR_DATA); // a foreign token
  if (tr_corpus_index(corpus) == TR_OK) {
    int64_t documents = tr_corpus_documents(corpus);
    assert_int_equal(tr_corpus_document_start(corpus, 0), 0);
    assert_int_equal(tr_corpus_document_start(corpus, documents), tokens);
    for (int64_t d = 0; d < documents; d++) {
      assert_true(tr_corpus_document_start(corpus, d) <= tr_corpus_document_start(corpus, d + 1));
    }
  }
  char path[160];
  snprintf(path, sizeof path, "%s.bin", f->path);
  const char *paths[] = {path};
  for (int packing = TR_PACK_STREAM; packing <= TR_PACK_FIRST_FIT; packing++) {
    tr_source *source = NULL;
    tr_batch batch;
    tr_source_options options = {
        .path = paths, .npath = 1, .sequence = 4, .packing = (tr_packing)packing, .documents = 1, .end = 3};
    if (tr_source_open(&options, &source) < 0) continue; // say, one token only
    assert_int_equal(tr_batch_create(1, 4, &batch), TR_OK);
    for (int64_t g = 0; g < tr_source_samples(source, 0); g++) {
      status = tr_batch_fill(source, 0, &g, 1, &batch);
      assert_true(status == TR_OK || status == TR_ERR_DATA);
    }
    tr_batch_destroy(&batch);
    tr_source_close(source);
  }
}

static void random_mutations_never_crash(void **state) {
  fixture *f = *state;
  enum { ROUNDS = 10000 };
  static const char *const names[] = {"megatron_u16", "megatron_i64", "megatron_scattered", "megatron_i32",
                                      "llmc_u16"};
  uint64_t random = 7;
  int opened = 0;
  char idx_path[160];
  snprintf(idx_path, sizeof idx_path, "%s.idx", f->path);
  for (int round = 0; round < ROUNDS; round++) {
    char name[64];
    const char *stem = names[next_random(&random) % 5];
    int pair = strncmp(stem, "megatron", 8) == 0;
    snprintf(name, sizeof name, "%s.bin", stem);
    file bin = golden(name);
    if (!pair || next_random(&random) % 4 == 0) mutate(&bin, &random);
    put(f, ".bin", bin);
    free(bin.data);
    unlink(idx_path);
    if (pair) {
      snprintf(name, sizeof name, "%s.idx", stem);
      file idx = golden(name);
      mutate(&idx, &random);
      put(f, ".idx", idx);
      free(idx.data);
    }
    tr_corpus *corpus = NULL;
    tr_status status = open_bin(f, &corpus);
    if (status < 0) {
      assert_int_equal(status, TR_ERR_DATA);
      continue;
    }
    opened++;
    use(f, corpus);
    tr_corpus_close(corpus);
  }
  assert_in_range(opened, ROUNDS / 20, ROUNDS * 9 / 10); // both ways were taken often
}

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(every_wrong_field_of_a_megatron_index_is_named),
      TEST(a_megatron_file_of_another_length_is_refused),
      TEST(a_damaged_llmc_file_is_refused),
      TEST(random_mutations_never_crash),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
