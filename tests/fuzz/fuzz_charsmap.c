// SPDX-License-Identifier: MIT
// links: token
// A precompiled map of characters of any bytes, put as base64, which hides it from a fuzzer, into a tokenizer.json:
// refused with a sentence, or a fixed text can be normalized by it.
#include "fuzz/fuzz.h"

#include "trireme/token/tokenizer.h"

#include <string.h>

static const char text[] = "Ａｂｃ ① ﬁ e\xcc\x81 ㌔ \xe3\x80\x80 한국 a\xcc\x81\xcc\xa3 "
                           "\xf0\x9f\x91\xa9\xe2\x80\x8d\xf0\x9f\x9a\x80 \x7f\x01";

static void append_base64(const uint8_t *data, size_t size, tr_text *out) {
  static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  for (size_t i = 0; i < size; i += 3) {
    char four[4];
    uint32_t bits = (uint32_t)data[i] << 16;
    if (i + 1 < size) bits |= (uint32_t)data[i + 1] << 8;
    if (i + 2 < size) bits |= data[i + 2];
    for (int d = 0; d < 4; d++) four[d] = digits[bits >> (18 - 6 * d) & 63];
    if (i + 2 >= size) four[3] = '=';
    if (i + 1 >= size) four[2] = '=';
    tr_text_append_bytes(out, four, 4);
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  tr_text json = {0};
  tr_tokenizer *tokenizer = NULL;
  tr_encoder *encoder = NULL;
  tr_tokens tokens = {0};
  tr_text_append(
      &json,
      "{\"version\": \"1.0\", \"model\": {\"type\": \"WordLevel\", \"vocab\": {\"a\": 0}, \"unk_token\": \"a\"},"
      "\"normalizer\": {\"type\": \"Precompiled\", \"precompiled_charsmap\": \"");
  append_base64(data, size, &json);
  tr_text_append(&json, "\"}}");
  if (tr_tokenizer_parse(json.data, json.size, "tokenizer.json", &tokenizer) == TR_OK) {
    FUZZ_CHECK(tr_encoder_create(tokenizer, &encoder) == TR_OK);
    FUZZ_CHECK(tr_encode(encoder, text, sizeof text - 1, 0, &tokens) == TR_OK);
  } else {
    FUZZ_CHECK(strstr(tr_status_text(), "charsmap"));
  }
  tr_tokens_free(&tokens);
  tr_encoder_destroy(encoder);
  tr_tokenizer_close(tokenizer);
  tr_text_free(&json);
  return 0;
}
