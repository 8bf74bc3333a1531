// SPDX-License-Identifier: MIT
// What tests of token files share: a temporary folder, files of given bytes, corpora of given documents, and asserting that
// a failure has the right status and words.
#ifndef TRIREME_TESTS_DATA_TOKEN_FILES_H
#define TRIREME_TESTS_DATA_TOKEN_FILES_H

#include "trireme/base/file.h"
#include "trireme/data/data.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct fixture {
  char folder[64];
  char path[128]; // NAME in the folder
} fixture;

static inline int setup(void **state) {
  fixture *f = calloc(1, sizeof *f);
  assert_non_null(f);
  const char *root = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp"; // thousands of files: in memory if possible
  snprintf(f->folder, sizeof f->folder, "%s/trireme-data-XXXXXX", root);
  assert_non_null(mkdtemp(f->folder));
  snprintf(f->path, sizeof f->path, "%s/corpus", f->folder);
  *state = f;
  return 0;
}

static inline int teardown(void **state) {
  fixture *f = *state;
  tr_status status = tr_file_remove_tree(f->folder);
  free(f);
  return status;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

static inline void write_bytes(const char *path, const void *data, size_t nbyte) {
  FILE *file = fopen(path, "wb");
  assert_non_null(file);
  assert_int_equal(fwrite(data, 1, nbyte, file), nbyte);
  assert_int_equal(fclose(file), 0);
}

// Token i of the files that this header and the oracle's script make.
static inline int32_t token_at(int64_t i, int64_t vocab) { return (int32_t)((31 * i * i + 7 * i + 3) % vocab); }

// A corpus of documents of these lengths, written by the writer; its token i is token_at(i, vocab).
static inline void write_corpus(const char *path, tr_corpus_format format, int64_t vocab, const int64_t *length,
                                size_t ndocument) {
  tr_corpus_writer *writer = NULL;
  tr_corpus_writer_options options = {.path = path, .format = format, .vocab = vocab};
  int64_t first = 0;
  assert_int_equal(tr_corpus_writer_open(&options, NULL, &writer), TR_OK);
  for (size_t d = 0; d < ndocument; d++) {
    int32_t *token = malloc((size_t)(length[d] + 1) * sizeof *token);
    assert_non_null(token);
    for (int64_t i = 0; i < length[d]; i++) token[i] = token_at(first + i, vocab);
    assert_int_equal(tr_corpus_writer_append(writer, token, (size_t)length[d]), TR_OK);
    free(token);
    first += length[d];
  }
  assert_int_equal(tr_corpus_writer_finish(writer), TR_OK);
}

static inline void assert_failed(tr_status status, tr_status expected, const char *words) {
  if (status != expected) {
    fail_msg("%s, not %s: %s", tr_status_name(status), tr_status_name(expected), tr_status_text());
  }
  if (!strstr(tr_status_text(), words)) fail_msg("'%s' does not say '%s'", tr_status_text(), words);
}

// Numbers for tests that need many: the same in every run.
static inline uint64_t next_random(uint64_t *state) {
  *state += 0x9E3779B97F4A7C15u;
  return tr_hash_bytes(state, sizeof *state);
}

#endif
