// SPDX-License-Identifier: MIT
// links: data
// A token file of any bytes: refused with a sentence, or its documents are in order and its tokens can be read or are refused
// by place. The first byte chooses what the others are: a file alone (text, nanogpt or llm.c), or the index of a Megatron
// pair beside 128 bytes of tokens.
#include "fuzz/fuzz.h"

#include "trireme/data/corpus.h"

enum { CHUNK = 37, DOCUMENTS_MAX = 1000 };

static void check_documents(tr_corpus *corpus) {
  int64_t n = tr_corpus_documents(corpus), tokens = tr_corpus_tokens(corpus);
  FUZZ_CHECK(n >= 0 && tr_corpus_document_start(corpus, n) == tokens);
  for (int64_t i = 0; i < n && i < DOCUMENTS_MAX; i++) {
    int64_t first = tr_corpus_document_start(corpus, i), end = tr_corpus_document_start(corpus, i + 1);
    FUZZ_CHECK(0 <= first && first <= end && end <= tokens);
    if (first < end)
      FUZZ_CHECK(tr_corpus_document_of(corpus, first) == i && tr_corpus_document_of(corpus, end - 1) == i);
  }
}

static void read_all(const tr_corpus *corpus, int64_t vocab) {
  int64_t tokens = tr_corpus_tokens(corpus);
  for (int64_t at = 0; at < tokens; at += CHUNK) {
    int32_t out[CHUNK];
    int64_t n = tokens - at < CHUNK ? tokens - at : CHUNK;
    if (tr_corpus_read(corpus, at, n, out) != TR_OK) {
      FUZZ_CHECK(tr_status_text()[0]);
      continue;
    }
    for (int64_t i = 0; i < n; i++) FUZZ_CHECK(out[i] >= 0 && (vocab == 0 || out[i] < vocab));
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  char path[FUZZ_PATH], bin[FUZZ_PATH];
  uint8_t tokens[128];
  if (size == 0) return 0;
  int pair = data[0] & 1, text = data[0] >> 1 & 1;
  int64_t vocab = data[0] & 4 ? 300 : 0;
  for (size_t i = 0; i < sizeof tokens; i++) tokens[i] = (uint8_t)(i % 2 ? 0 : i);
  fuzz_file(path, pair ? "pair.idx" : "alone.bin", data + 1, size - 1);
  if (pair) fuzz_file(bin, "pair.bin", tokens, sizeof tokens);
  tr_corpus_options options = {.path = path, .text = text, .vocab = vocab, .end = data[0] & 8 ? 10 : -1};
  tr_corpus *corpus = NULL;
  if (tr_corpus_open(&options, &corpus) != TR_OK) {
    FUZZ_CHECK(tr_status_text()[0]);
    return 0;
  }
  if (tr_corpus_index(corpus) == TR_OK) check_documents(corpus);
  read_all(corpus, vocab);
  (void)tr_corpus_hash(corpus);
  tr_corpus_close(corpus);
  return 0;
}
