// SPDX-License-Identifier: MIT
// links: ckpt
// The index of a model in two files, of any bytes, beside those files: refused with a sentence, or every tensor is found in
// the file that the index names.
#include "fuzz/fuzz.h"

#include "trireme/ckpt/tensors.h"

#include <string.h>

static void write_shards(void) {
  static const float w[] = {1, 2, 3, 4, 5, 6};
  tr_safetensors_item item[] = {{"a", TR_F32, TR_F32, {2, {2, 3}}, w, 0},
                                {"b", TR_F32, TR_BF16, {1, {3}}, w, 0},
                                {"c", TR_F32, TR_F32, {1, {6}}, w, 0}};
  char path[FUZZ_PATH];
  snprintf(path, sizeof path, "%s/model-00001-of-00002.safetensors", fuzz_folder());
  FUZZ_CHECK(tr_safetensors_write(path, item, 2, NULL, 0, NULL, NULL, NULL, NULL) == TR_OK);
  snprintf(path, sizeof path, "%s/model-00002-of-00002.safetensors", fuzz_folder());
  FUZZ_CHECK(tr_safetensors_write(path, item + 2, 1, NULL, 0, NULL, NULL, NULL, NULL) == TR_OK);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  char path[FUZZ_PATH];
  static int written;
  tr_tensors *tensors = NULL;
  if (!written) write_shards();
  written = 1;
  fuzz_file(path, "model.safetensors.index.json", data, size);
  if (tr_tensors_open(fuzz_folder(), "model", &tensors) != TR_OK) {
    FUZZ_CHECK(tr_status_text()[0]);
    return 0;
  }
  uint64_t nbyte = 0;
  for (size_t i = 0; i < tr_tensors_count(tensors); i++) {
    const tr_safetensors_entry *entry = tr_tensors_at(tensors, i);
    FUZZ_CHECK(tr_tensors_find(tensors, entry->name) == entry);
    FUZZ_CHECK(tr_tensors_file_of(tensors, i) < tr_tensors_files(tensors));
    nbyte += entry->nbyte;
  }
  FUZZ_CHECK(nbyte == tr_tensors_bytes(tensors));
  for (size_t i = 0; i < tr_tensors_files(tensors); i++)
    FUZZ_CHECK(strncmp(tr_tensors_file(tensors, i), fuzz_folder(), strlen(fuzz_folder())) == 0);
  tr_tensors_close(tensors);
  return 0;
}
