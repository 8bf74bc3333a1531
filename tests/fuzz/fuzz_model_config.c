// SPDX-License-Identifier: MIT
// links: model
// A config.json of any bytes: refused with a sentence, or its description of a model is sound and comes back the same from
// the text that it is written as.
#include "fuzz/fuzz.h"

#include "trireme/base/json.h"
#include "trireme/model/arch.h"

#include <string.h>

static tr_status describe(const char *text, size_t nbyte, tr_arch *out) {
  json_t *json = NULL;
  TR_TRY(tr_json_parse(text, nbyte, "config.json", &json));
  tr_status status = tr_arch_from_json(json, "config.json", out);
  json_decref(json);
  return status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  char *text = NULL, *again = NULL;
  tr_arch arch, other;
  tr_text difference = {0};
  if (describe((const char *)data, size, &arch) != TR_OK) {
    FUZZ_CHECK(tr_status_text()[0]);
    return 0;
  }
  FUZZ_CHECK(tr_arch_check(&arch) == TR_OK);
  FUZZ_CHECK(tr_arch_to_json(&arch, "float32", &text) == TR_OK);
  FUZZ_CHECK(describe(text, strlen(text), &other) == TR_OK);
  FUZZ_CHECK(tr_arch_to_json(&other, "float32", &again) == TR_OK && strcmp(text, again) == 0);
  tr_arch_compare(&arch, &other, &difference);
  FUZZ_CHECK(!difference.data || !difference.data[0]);
  tr_text_free(&difference);
  free(text);
  free(again);
  return 0;
}
