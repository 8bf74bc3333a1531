// SPDX-License-Identifier: MIT
// links: ckpt
// The manifest of a checkpoint of any bytes, beside files that a save made: refused with a sentence, or the checkpoint is
// found and verifies.
#include "fuzz/fuzz.h"

#include "trireme/base/log.h"
#include "trireme/ckpt/checkpoint.h"

#include <string.h>

// The checkpoint whose manifest.json the kept inputs are, in two versions.
static void save(const char *folder) {
  static const float w[] = {1, 2, 3, 4, 5, 6};
  tr_safetensors_item item[] = {{"w", TR_F32, TR_F32, {2, {2, 3}}, w, 0}, {"b", TR_F32, TR_BF16, {1, {3}}, w, 0}};
  tr_ckpt_file file[] = {{"model.safetensors", item, 2, NULL}, {"trainer.json", NULL, 0, "{\"step\": 7}"}};
  FUZZ_CHECK(tr_ckpt_save(&(tr_ckpt_save_options){.folder = folder, .step = 7}, file, 2) == TR_OK);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  char path[FUZZ_PATH], checkpoint[FUZZ_PATH], found[FUZZ_PATH];
  static int saved;
  if (!saved) save(fuzz_folder());
  saved = 1;
  tr_log_set_level(TR_LOG_ERROR); // it warns of what it skips
  snprintf(checkpoint, sizeof checkpoint, "%s/step-00000007", fuzz_folder());
  fuzz_file(path, "step-00000007/manifest.json", data, size);
  tr_status whole = tr_ckpt_verify(checkpoint);
  if (whole != TR_OK) FUZZ_CHECK(tr_status_text()[0]);
  tr_status status = tr_ckpt_find(fuzz_folder(), 1, found, sizeof found);
  FUZZ_CHECK((status == TR_OK) == (whole == TR_OK));
  if (status == TR_OK) FUZZ_CHECK(strcmp(found, checkpoint) == 0 && tr_ckpt_step(found) == 7);
  return 0;
}
