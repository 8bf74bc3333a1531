// SPDX-License-Identifier: MIT
// links: token
// A text of any bytes through the tokenizers of tests/data/token; the first byte chooses one. Its tokens belong to the
// vocabulary, are the same a second time (when the encoder knows the words), and those of GPT-2 give an ASCII text back.
#include "fuzz/fuzz.h"

#include "trireme/token/tokenizer.h"

#include <glob.h>
#include <string.h>

enum { TOKENIZERS_MAX = 64 };

static tr_tokenizer *tokenizers[TOKENIZERS_MAX];
static tr_encoder *encoders[TOKENIZERS_MAX];
static size_t ntokenizer;

static void close_all(void) {
  for (size_t i = 0; i < ntokenizer; i++) {
    tr_encoder_destroy(encoders[i]);
    tr_tokenizer_close(tokenizers[i]);
  }
}

static void open_all(void) {
  glob_t found;
  FUZZ_CHECK(glob(TRIREME_TEST_DATA "/token/*.json", 0, NULL, &found) == 0);
  for (size_t i = 0; i < found.gl_pathc && i < TOKENIZERS_MAX; i++) {
    FUZZ_CHECK(tr_tokenizer_open(found.gl_pathv[i], &tokenizers[i]) == TR_OK);
    FUZZ_CHECK(tr_encoder_create(tokenizers[i], &encoders[i]) == TR_OK);
    ntokenizer = i + 1;
  }
  globfree(&found);
  atexit(close_all);
}

static int is_ascii(const char *text, size_t nbyte) {
  for (size_t i = 0; i < nbyte; i++)
    if ((unsigned char)text[i] >= 0x80) return 0;
  return 1;
}

static int same_tokens(const tr_tokens *a, const tr_tokens *b) {
  return a->size == b->size && (a->size == 0 || memcmp(a->data, b->data, a->size * sizeof *a->data) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (ntokenizer == 0) open_all();
  if (size == 0) return 0;
  size_t pick = data[0] % ntokenizer, nbyte = size - 1;
  const char *text = (const char *)data + 1;
  const tr_tokenizer *tokenizer = tokenizers[pick];
  tr_tokens once = {0}, twice = {0};
  tr_text again = {0};
  tr_status status = tr_encode(encoders[pick], text, nbyte, 0, &once);
  FUZZ_CHECK(tr_encode(encoders[pick], text, nbyte, 0, &twice) == status);
  if (status != TR_OK) FUZZ_CHECK(tr_status_text()[0]);
  if (status == TR_OK) FUZZ_CHECK(same_tokens(&once, &twice));
  for (size_t i = 0; i < once.size; i++)
    FUZZ_CHECK(once.data[i] >= 0 && once.data[i] < tr_tokenizer_vocab(tokenizer));
  FUZZ_CHECK(tr_decode(tokenizer, once.data, once.size, 0, &again) == TR_OK);
  if (status == TR_OK && nbyte > 0 && strstr(tr_tokenizer_name(tokenizer), "/gpt2.json") && is_ascii(text, nbyte))
    FUZZ_CHECK(again.size == nbyte && memcmp(again.data, text, nbyte) == 0);
  tr_tokens_free(&once);
  tr_tokens_free(&twice);
  tr_text_free(&again);
  return 0;
}
