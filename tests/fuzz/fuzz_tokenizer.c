// SPDX-License-Identifier: MIT
// links: token
// A tokenizer.json of any bytes: refused with a sentence, or a fixed text becomes tokens of the vocabulary, or is refused
// with a sentence, and tokens become text.
#include "fuzz/fuzz.h"

#include "trireme/token/tokenizer.h"

#include <string.h>

// Words, numbers, blanks, several scripts, combining marks, a special token's spelling, and bytes that are not UTF-8.
static const char text[] =
    "Hello, world's  12345!\n\n\t<s> <|endoftext|> Straße ﬁn e\xcc\x81 日本語 \xf0\x9f\x99\x82 \xff\xc3(\xe2\x82";

static void encode_and_decode(const tr_tokenizer *tokenizer, int flags) {
  tr_encoder *encoder = NULL;
  tr_tokens tokens = {0};
  tr_text again = {0};
  if (tr_encoder_create(tokenizer, &encoder) != TR_OK) return;
  tr_status status = tr_encode(encoder, text, sizeof text - 1, flags, &tokens);
  if (status != TR_OK) FUZZ_CHECK(tr_status_text()[0]);
  for (size_t i = 0; i < tokens.size; i++)
    FUZZ_CHECK(tokens.data[i] >= 0 && tokens.data[i] < tr_tokenizer_vocab(tokenizer));
  int32_t unknown[] = {-1, 0, 1, INT32_MAX};
  (void)tr_decode(tokenizer, tokens.data, tokens.size, flags != 0, &again);
  (void)tr_decode(tokenizer, unknown, 4, 0, &again);
  tr_text_free(&again);
  tr_tokens_free(&tokens);
  tr_encoder_destroy(encoder);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  tr_tokenizer *tokenizer = NULL;
  if (tr_tokenizer_parse((const char *)data, size, "tokenizer.json", &tokenizer) != TR_OK) {
    FUZZ_CHECK(tr_status_text()[0]);
    return 0;
  }
  FUZZ_CHECK(tr_tokenizer_vocab(tokenizer) >= 0 && tr_tokenizer_end(tokenizer) < tr_tokenizer_vocab(tokenizer));
  encode_and_decode(tokenizer, 0);
  encode_and_decode(tokenizer, TR_ENCODE_TEMPLATE | TR_ENCODE_PLAIN);
  tr_tokenizer_close(tokenizer);
  return 0;
}
