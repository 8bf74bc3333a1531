// SPDX-License-Identifier: MIT
// links: data
// The ledger of a checkpoint of any bytes: refused with a sentence, or it comes back the same from its own text and takes
// the next samples.
#include "fuzz/fuzz.h"

#include "trireme/base/json.h"
#include "trireme/data/data.h"

#include <string.h>

static char *text_of(const tr_ledger *ledger) {
  json_t *json = NULL;
  FUZZ_CHECK(tr_ledger_to_json(ledger, &json) == TR_OK);
  char *text = json_dumps(json, JSON_COMPACT);
  FUZZ_CHECK(text);
  json_decref(json);
  return text;
}

static tr_status read_ledger(const char *text, size_t nbyte, tr_ledger *out) {
  json_t *json = NULL;
  TR_TRY(tr_json_parse(text, nbyte, "trainer.json", &json));
  tr_status status = tr_ledger_from_json(json, "trainer.json", out);
  json_decref(json);
  return status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  tr_ledger ledger = {0}, again = {0};
  if (read_ledger((const char *)data, size, &ledger) != TR_OK) {
    FUZZ_CHECK(tr_status_text()[0]);
    return 0;
  }
  char *text = text_of(&ledger);
  FUZZ_CHECK(read_ledger(text, strlen(text), &again) == TR_OK);
  char *twice = text_of(&again);
  FUZZ_CHECK(strcmp(text, twice) == 0);
  int64_t end = tr_ledger_end(&again);
  FUZZ_CHECK(end >= 0);
  if (end < INT64_MAX - 8) {
    FUZZ_CHECK(tr_ledger_add(&again, end, end + 8, 1, 2, tr_tally_expected(end, end + 8)) == TR_OK);
    FUZZ_CHECK(tr_ledger_end(&again) == end + 8);
  }
  free(text);
  free(twice);
  tr_ledger_free(&ledger);
  tr_ledger_free(&again);
  return 0;
}
