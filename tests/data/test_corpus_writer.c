// SPDX-License-Identifier: MIT
// tier: quick
// timeout: 60
//
// What is written is read back, in every format; a writer that was killed goes on from its mark with the same bytes as one
// that was not; a full disk, foreign tokens and existing files are errors that leave nothing under the final names.
// With --write FOLDER: the files that tests/oracle/token_files.py checks.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "data/token_files.h"
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

enum { DOCUMENTS = 100, TOKENS = DOCUMENTS * (DOCUMENTS - 1) / 2 };

static const struct {
  const char *name, *format;
  tr_corpus_format id;
  int64_t vocab;
} kinds[] = {
    {"nanogpt_small", "nanogpt", TR_CORPUS_NANOGPT, 50257},
    {"llmc_small", "llm.c", TR_CORPUS_LLMC, 50257},
    {"llmc_large", "llm.c", TR_CORPUS_LLMC, 128256},
    {"megatron_small", "megatron", TR_CORPUS_MEGATRON, 50257},
    {"megatron_large", "megatron", TR_CORPUS_MEGATRON, 128256},
};
enum { NKIND = sizeof kinds / sizeof kinds[0] };

static void kind_path(char *path, size_t size, const char *folder, int kind, const char *ending) {
  snprintf(path, size, "%s/%s%s", folder, kinds[kind].name, ending);
}

static tr_status open_writer(const char *folder, int kind, const tr_corpus_mark *from, tr_corpus_writer **out) {
  char path[128];
  kind_path(path, sizeof path, folder, kind, "");
  tr_corpus_writer_options options = {.path = path, .format = kinds[kind].id, .vocab = kinds[kind].vocab};
  return tr_corpus_writer_open(&options, from, out);
}

// Document d has d tokens.
static tr_status append_documents(tr_corpus_writer *writer, int kind, int first, int end) {
  int32_t token[DOCUMENTS];
  for (int d = first; d < end; d++) {
    for (int i = 0; i < d; i++) token[i] = token_at((int64_t)d * (d - 1) / 2 + i, kinds[kind].vocab);
    TR_TRY(tr_corpus_writer_append(writer, token, (size_t)d));
  }
  return TR_OK;
}

static void write_kind(const char *folder, int kind) {
  tr_corpus_writer *writer = NULL;
  assert_int_equal(open_writer(folder, kind, NULL, &writer), TR_OK);
  assert_int_equal(append_documents(writer, kind, 0, DOCUMENTS), TR_OK);
  assert_int_equal(tr_corpus_writer_finish(writer), TR_OK);
}

static void assert_kind(const char *folder, int kind) {
  char path[128];
  int32_t token[TOKENS];
  tr_corpus *corpus = NULL;
  kind_path(path, sizeof path, folder, kind, ".bin");
  tr_corpus_options options = {.path = path, .vocab = kinds[kind].vocab, .end = -1};
  assert_int_equal(tr_corpus_open(&options, &corpus), TR_OK);
  assert_string_equal(tr_corpus_format_name(corpus), kinds[kind].format);
  assert_int_equal(tr_corpus_tokens(corpus), TOKENS);
  assert_int_equal(tr_corpus_read(corpus, 0, TOKENS, token), TR_OK);
  for (int i = 0; i < TOKENS; i++) assert_int_equal(token[i], token_at(i, kinds[kind].vocab));
  assert_int_equal(tr_corpus_index(corpus), TR_OK);
  int megatron = kinds[kind].id == TR_CORPUS_MEGATRON;
  assert_int_equal(tr_corpus_documents(corpus), megatron ? DOCUMENTS : 1);
  for (int64_t d = 0; megatron && d <= DOCUMENTS; d++) {
    assert_int_equal(tr_corpus_document_start(corpus, d), d * (d - 1) / 2);
  }
  tr_corpus_close(corpus);
}

static int count_files(const char *folder, const char *ending) {
  char command[192];
  int n = -1;
  snprintf(command, sizeof command, "ls -A '%s' | grep -c '%s' || true", folder, ending);
  FILE *pipe = popen(command, "r");
  assert_non_null(pipe);
  assert_int_equal(fscanf(pipe, "%d", &n), 1);
  pclose(pipe);
  return n;
}

static void what_is_written_is_read_back(void **state) {
  fixture *f = *state;
  for (int kind = 0; kind < NKIND; kind++) {
    write_kind(f->folder, kind);
    assert_kind(f->folder, kind);
  }
  assert_int_equal(count_files(f->folder, "partial"), 0);
  assert_int_equal(count_files(f->folder, ""), NKIND + 2); // and the two indexes
}

static void assert_same_files(const char *a, const char *b, int kind, const char *ending) {
  char path[128], *data[2];
  size_t nbyte[2];
  kind_path(path, sizeof path, a, kind, ending);
  assert_int_equal(tr_file_read(path, 1 << 20, &data[0], &nbyte[0]), TR_OK);
  kind_path(path, sizeof path, b, kind, ending);
  assert_int_equal(tr_file_read(path, 1 << 20, &data[1], &nbyte[1]), TR_OK);
  assert_int_equal(nbyte[0], nbyte[1]);
  assert_memory_equal(data[0], data[1], nbyte[0]);
  free(data[0]);
  free(data[1]);
}

// Killed: what lies beyond the mark is partly on disk.
static void a_killed_writer_goes_on_from_its_mark(void **state) {
  fixture *f = *state;
  char whole[128];
  snprintf(whole, sizeof whole, "%s/whole", f->folder);
  assert_int_equal(mkdir(whole, 0700), 0);
  for (int kind = 0; kind < NKIND; kind++) {
    tr_corpus_writer *writer = NULL;
    tr_corpus_mark mark, later, again;
    write_kind(whole, kind);
    assert_int_equal(open_writer(f->folder, kind, NULL, &writer), TR_OK);
    for (int done = 0; done < DOCUMENTS; done += 33) {
      int end = done + 33 < DOCUMENTS ? done + 33 : DOCUMENTS;
      assert_int_equal(append_documents(writer, kind, done, end), TR_OK);
      assert_int_equal(tr_corpus_writer_mark(writer, &mark), TR_OK);
      assert_int_equal(mark.documents, end);
      assert_int_equal(mark.tokens, end * (end - 1) / 2);
      assert_int_equal(append_documents(writer, kind, 5, 10), TR_OK); // will be lost
      assert_int_equal(tr_corpus_writer_mark(writer, &later), TR_OK);
      assert_true(later.hash != mark.hash);
      tr_corpus_writer_abandon(writer, 1);
      assert_int_equal(open_writer(f->folder, kind, &mark, &writer), TR_OK);
      assert_int_equal(tr_corpus_writer_mark(writer, &again), TR_OK);
      assert_memory_equal(&mark, &again, sizeof mark);
    }
    assert_int_equal(tr_corpus_writer_finish(writer), TR_OK);
    assert_same_files(f->folder, whole, kind, ".bin");
    if (kinds[kind].id == TR_CORPUS_MEGATRON) assert_same_files(f->folder, whole, kind, ".idx");
  }
}

enum { MEGATRON = 3 }; // of kinds

// A finish that was killed after it had named the index.
static void a_finish_that_was_killed_is_finished_again(void **state) {
  fixture *f = *state;
  tr_corpus_writer *writer = NULL;
  tr_corpus_mark mark;
  char bin[128], partial[128];
  assert_int_equal(open_writer(f->folder, MEGATRON, NULL, &writer), TR_OK);
  assert_int_equal(append_documents(writer, MEGATRON, 0, DOCUMENTS), TR_OK);
  assert_int_equal(tr_corpus_writer_mark(writer, &mark), TR_OK);
  assert_int_equal(tr_corpus_writer_finish(writer), TR_OK);
  kind_path(bin, sizeof bin, f->folder, MEGATRON, ".bin");
  kind_path(partial, sizeof partial, f->folder, MEGATRON, ".bin.partial");
  assert_int_equal(rename(bin, partial), 0);
  assert_int_equal(open_writer(f->folder, MEGATRON, &mark, &writer), TR_OK);
  assert_int_equal(tr_corpus_writer_finish(writer), TR_OK);
  assert_kind(f->folder, MEGATRON);
}

static void poke(const char *folder, const char *ending, long offset) {
  char path[128];
  kind_path(path, sizeof path, folder, MEGATRON, ending);
  FILE *file = fopen(path, "r+b");
  assert_non_null(file);
  assert_int_equal(fseek(file, offset, SEEK_SET), 0);
  int byte = fgetc(file);
  assert_int_equal(fseek(file, offset, SEEK_SET), 0);
  fputc(byte ^ 1, file);
  fclose(file);
}

static void going_on_with_other_files_is_refused(void **state) {
  fixture *f = *state;
  tr_corpus_writer *writer = NULL;
  tr_corpus_mark mark, wrong;
  char partial[128];
  assert_int_equal(open_writer(f->folder, MEGATRON, NULL, &writer), TR_OK);
  assert_int_equal(append_documents(writer, MEGATRON, 0, DOCUMENTS), TR_OK);
  assert_int_equal(tr_corpus_writer_mark(writer, &mark), TR_OK);
  tr_corpus_writer_abandon(writer, 1);
  writer = NULL;
  wrong = mark, wrong.tokens = -1;
  assert_failed(open_writer(f->folder, MEGATRON, &wrong, &writer), TR_ERR_DATA, "a mark at -1 tokens");
  wrong = mark, wrong.documents = INT64_MAX;
  assert_failed(open_writer(f->folder, MEGATRON, &wrong, &writer), TR_ERR_DATA, "is none");
  wrong = mark, wrong.tokens++;
  assert_failed(open_writer(f->folder, MEGATRON, &wrong, &writer), TR_ERR_DATA, "ends before the mark");
  wrong = mark, wrong.hash++;
  assert_failed(open_writer(f->folder, MEGATRON, &wrong, &writer), TR_ERR_DATA, "holds other tokens");
  poke(f->folder, ".bin.partial", 1000);
  assert_failed(open_writer(f->folder, MEGATRON, &mark, &writer), TR_ERR_DATA, "holds other tokens");
  poke(f->folder, ".bin.partial", 1000);
  poke(f->folder, ".idx.partial", 34 + 40);
  assert_failed(open_writer(f->folder, MEGATRON, &mark, &writer), TR_ERR_DATA, "its documents have 4951 tokens");
  poke(f->folder, ".idx.partial", 34 + 40);
  assert_int_equal(open_writer(f->folder, MEGATRON, &mark, &writer), TR_OK); // all put right again
  tr_corpus_writer_abandon(writer, 0);
  assert_int_equal(count_files(f->folder, ""), 0);
  kind_path(partial, sizeof partial, f->folder, MEGATRON, ".bin.partial");
  writer = NULL;
  assert_failed(open_writer(f->folder, MEGATRON, &mark, &writer), TR_ERR_IO, partial);
  assert_null(writer);
}

static void existing_files_are_not_overwritten(void **state) {
  fixture *f = *state;
  const char *const endings[] = {".bin", ".idx"};
  for (int kind = 0; kind < NKIND; kind++) {
    for (int e = 0; e < 2; e++) { // an index matters to every format: it would make a pair
      char path[128];
      tr_corpus_writer *writer = NULL;
      kind_path(path, sizeof path, f->folder, kind, endings[e]);
      write_bytes(path, "mine", 4);
      assert_failed(open_writer(f->folder, kind, NULL, &writer), TR_ERR_IO, "exists already");
      assert_non_null(strstr(tr_status_text(), path));
      assert_int_equal(count_files(f->folder, ""), 1);
      assert_int_equal(unlink(path), 0);
    }
  }
}

static void two_writers_of_one_name_are_refused(void **state) {
  fixture *f = *state;
  tr_corpus_writer *writer = NULL, *second = NULL;
  assert_int_equal(open_writer(f->folder, MEGATRON, NULL, &writer), TR_OK);
  assert_failed(open_writer(f->folder, MEGATRON, NULL, &second), TR_ERR_IO, "another program is writing it");
  assert_int_equal(append_documents(writer, MEGATRON, 0, DOCUMENTS), TR_OK);
  assert_int_equal(tr_corpus_writer_finish(writer), TR_OK);
  assert_kind(f->folder, MEGATRON);
}

static void foreign_tokens_are_refused_and_the_writer_goes_on(void **state) {
  fixture *f = *state;
  const int32_t bad[] = {-1, 50257, INT32_MAX, INT32_MIN};
  for (int kind = 0; kind < NKIND; kind++) {
    if (kinds[kind].vocab != 50257) continue;
    tr_corpus_writer *writer = NULL;
    assert_int_equal(open_writer(f->folder, kind, NULL, &writer), TR_OK);
    assert_int_equal(append_documents(writer, kind, 0, 50), TR_OK);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
      char words[64];
      const int32_t token[] = {1, 2, bad[i]};
      snprintf(words, sizeof words, "token %d at place %d", bad[i], 50 * 49 / 2 + 2);
      assert_failed(tr_corpus_writer_append(writer, token, 3), TR_ERR_DATA, words);
    }
    assert_int_equal(append_documents(writer, kind, 50, DOCUMENTS), TR_OK);
    assert_int_equal(tr_corpus_writer_finish(writer), TR_OK);
    assert_kind(f->folder, kind);
  }
}

static void what_a_format_cannot_hold_is_refused(void **state) {
  fixture *f = *state;
  tr_corpus_writer *writer = NULL;
  const struct {
    tr_corpus_writer_options options;
    tr_status status;
    const char *words;
  } cases[] = {
      {{.path = "", .format = TR_CORPUS_LLMC, .vocab = 1}, TR_ERR_USAGE, "needs a name"},
      {{.path = f->path, .format = TR_CORPUS_TEXT, .vocab = 1}, TR_ERR_USAGE, "text is no format"},
      {{.path = f->path, .format = TR_CORPUS_LLMC, .vocab = 0}, TR_ERR_CONFIG, "a vocabulary of 0"},
      {{.path = f->path, .format = TR_CORPUS_LLMC, .vocab = (int64_t)1 << 32},
       TR_ERR_CONFIG,
       "a vocabulary of 4294967296"},
      {{.path = f->path, .format = TR_CORPUS_NANOGPT, .vocab = 65537},
       TR_ERR_CONFIG,
       "too few for a vocabulary of 65537"},
      {{.path = "/nowhere/corpus", .format = TR_CORPUS_LLMC, .vocab = 1}, TR_ERR_IO, "/nowhere/corpus.bin"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    assert_failed(tr_corpus_writer_open(&cases[i].options, NULL, &writer), cases[i].status, cases[i].words);
    assert_null(writer);
  }
  for (int kind = 1; kind <= MEGATRON; kind += MEGATRON - 1) { // refused before a token is looked at
    assert_int_equal(open_writer(f->folder, kind, NULL, &writer), TR_OK);
    assert_failed(tr_corpus_writer_append(writer, NULL, (size_t)INT32_MAX + 1), TR_ERR_DATA, "counts at most");
    assert_failed(tr_corpus_writer_finish(writer), TR_ERR_DATA, "there is no token to write");
  }
  assert_int_equal(count_files(f->folder, ""), 0);
  tr_corpus_writer_abandon(NULL, 0);
}

static void limit_files(rlim_t bytes) {
  struct rlimit limit;
  assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
  limit.rlim_cur = bytes;
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

// A limit on the size of files fails like a full disk: in the middle of a write.
static void a_full_disk_leaves_nothing_under_the_final_names(void **state) {
  fixture *f = *state;
  enum { LONG = 300000 };
  int32_t *token = calloc(LONG, sizeof *token);
  assert_non_null(token);
  signal(SIGXFSZ, SIG_IGN);
  for (int kind = 0; kind < NKIND; kind++) {
    char partial[128];
    tr_corpus_writer *writer = NULL;
    tr_corpus_mark mark;
    kind_path(partial, sizeof partial, f->folder, kind, ".bin.partial");
    assert_int_equal(open_writer(f->folder, kind, NULL, &writer), TR_OK);
    assert_int_equal(append_documents(writer, kind, 0, DOCUMENTS), TR_OK);
    assert_int_equal(tr_corpus_writer_mark(writer, &mark), TR_OK);
    limit_files(1 << 16);
    tr_status status = TR_OK;
    for (int i = 0; i < 10 && status == TR_OK; i++) status = tr_corpus_writer_append(writer, token, LONG);
    assert_failed(status, TR_ERR_IO, partial);
    assert_failed(tr_corpus_writer_append(writer, token, 1), TR_ERR_IO, "could not be written before");
    assert_failed(tr_corpus_writer_mark(writer, &mark), TR_ERR_IO, "could not be written before");
    assert_failed(tr_corpus_writer_finish(writer), TR_ERR_IO, "could not be written before");
    limit_files(RLIM_INFINITY);
    assert_int_equal(count_files(f->folder, "bin$"), kind);
    assert_int_equal(open_writer(f->folder, kind, &mark, &writer), TR_OK); // there is room again
    assert_int_equal(tr_corpus_writer_finish(writer), TR_OK);
    assert_kind(f->folder, kind);
  }
  free(token);
}

// The index needs 20 bytes per document, 16 of them at the end.
static void a_disk_that_is_full_at_the_end_leaves_nothing_either(void **state) {
  fixture *f = *state;
  enum { MANY = 10000 };
  tr_corpus_writer *writer = NULL;
  tr_corpus_mark mark;
  const int32_t token = 7;
  signal(SIGXFSZ, SIG_IGN);
  assert_int_equal(open_writer(f->folder, MEGATRON, NULL, &writer), TR_OK);
  for (int i = 0; i < MANY; i++) assert_int_equal(tr_corpus_writer_append(writer, &token, 1), TR_OK);
  assert_int_equal(tr_corpus_writer_mark(writer, &mark), TR_OK);
  limit_files(1 << 16);
  assert_failed(tr_corpus_writer_finish(writer), TR_ERR_IO, "idx.partial");
  limit_files(RLIM_INFINITY);
  assert_int_equal(count_files(f->folder, "partial$"), 2);
  assert_int_equal(count_files(f->folder, ""), 2);
  assert_int_equal(open_writer(f->folder, MEGATRON, &mark, &writer), TR_OK);
  assert_int_equal(tr_corpus_writer_finish(writer), TR_OK);
  char path[128];
  kind_path(path, sizeof path, f->folder, MEGATRON, "");
  tr_corpus *corpus = NULL;
  tr_corpus_options options = {.path = path, .vocab = 8};
  assert_int_equal(tr_corpus_open(&options, &corpus), TR_OK);
  assert_int_equal(tr_corpus_index(corpus), TR_OK);
  assert_int_equal(tr_corpus_documents(corpus), MANY);
  tr_corpus_close(corpus);
}

int main(int argc, char **argv) {
  if (argc == 3 && strcmp(argv[1], "--write") == 0) {
    for (int kind = 0; kind < NKIND; kind++) write_kind(argv[2], kind);
    return 0;
  }
  const struct CMUnitTest tests[] = {
      TEST(what_is_written_is_read_back),
      TEST(a_killed_writer_goes_on_from_its_mark),
      TEST(a_finish_that_was_killed_is_finished_again),
      TEST(going_on_with_other_files_is_refused),
      TEST(existing_files_are_not_overwritten),
      TEST(two_writers_of_one_name_are_refused),
      TEST(foreign_tokens_are_refused_and_the_writer_goes_on),
      TEST(what_a_format_cannot_hold_is_refused),
      TEST(a_full_disk_leaves_nothing_under_the_final_names),
      TEST(a_disk_that_is_full_at_the_end_leaves_nothing_either),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
