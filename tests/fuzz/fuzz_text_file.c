// SPDX-License-Identifier: MIT
// links: data
// A text file of any bytes, plain, JSON lines or compressed: its documents come out or it is refused with a sentence, and a
// reader that goes on at an earlier one's offset finds the same rest. The first byte chooses the name and how to split.
#include "fuzz/fuzz.h"

#include "trireme/data/text_reader.h"

#include <string.h>

enum { PARTS_MAX = 200, OUTPUT_MAX = 1 << 22, DOCUMENT_LIMIT = 1 << 20 };

// A sum over the parts from here on that depends on their bytes and ends but not on how a document is cut into parts.
static tr_status sum_rest(tr_text_reader *reader, uint64_t *sum) {
  const char *text = NULL;
  size_t nbyte = 0, total = 0;
  int ends = 0;
  for (int part = 0; part < PARTS_MAX && total < OUTPUT_MAX; part++) {
    TR_TRY(tr_text_reader_next(reader, &text, &nbyte, &ends));
    if (!text) return TR_OK;
    for (size_t i = 0; i < nbyte; i++) *sum = *sum * 31 + (uint8_t)text[i] + 1;
    if (ends) *sum = *sum * 31;
    total += nbyte;
  }
  return TR_PENDING;
}

static void go_on_elsewhere(const tr_text_reader_options *options, int64_t offset, tr_status want, uint64_t sum) {
  tr_text_reader *reader = NULL;
  uint64_t again = 0;
  FUZZ_CHECK(tr_text_reader_open(options, &reader) == TR_OK);
  FUZZ_CHECK(tr_text_reader_skip(reader, offset) == TR_OK);
  FUZZ_CHECK(sum_rest(reader, &again) == want && again == sum);
  tr_text_reader_close(reader);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  char path[FUZZ_PATH];
  if (size == 0) return 0;
  fuzz_file(path, data[0] & 1 ? "text.jsonl" : "text.txt", data + 1, size - 1);
  tr_text_reader_options options = {.path = path, .document_limit = DOCUMENT_LIMIT, .split = data[0] >> 1 & 1};
  tr_text_reader *reader = NULL;
  const char *text = NULL;
  size_t nbyte = 0;
  int ends = 0;
  if (tr_text_reader_open(&options, &reader) != TR_OK) {
    FUZZ_CHECK(tr_status_text()[0]);
    return 0;
  }
  if (tr_text_reader_next(reader, &text, &nbyte, &ends) == TR_OK && text) {
    int64_t offset = tr_text_reader_offset(reader);
    uint64_t sum = 0;
    tr_status rest = sum_rest(reader, &sum);
    FUZZ_CHECK(tr_text_reader_share(reader) >= 0 && tr_text_reader_share(reader) <= 1);
    if (ends) go_on_elsewhere(&options, offset, rest, sum);
  }
  tr_text_reader_close(reader);
  return 0;
}
