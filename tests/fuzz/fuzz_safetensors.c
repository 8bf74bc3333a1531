// SPDX-License-Identifier: MIT
// links: ckpt
// A safetensors file of any bytes: refused with a sentence, or every entry lies inside the file and can be converted.
#include "fuzz/fuzz.h"

#include "trireme/ckpt/safetensors.h"

#include <string.h>

enum { ELEMENTS_MAX = 1 << 14 };

static void read_entry(const tr_safetensors_entry *entry) {
  int64_t n = tr_shape_count(&entry->shape);
  FUZZ_CHECK(n >= 0 && entry->nbyte == (size_t)n * tr_dtype_size(entry->type));
  if (n > ELEMENTS_MAX) return;
  for (tr_dtype type = TR_F32; type <= TR_BF16; type++) {
    void *values = malloc((size_t)n * tr_dtype_size(type) + 1);
    FUZZ_CHECK(values);
    (void)tr_safetensors_read(entry, entry->shape.ndim == 2, type, values);
    free(values);
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  char path[FUZZ_PATH];
  tr_safetensors *file = NULL;
  if (tr_safetensors_open(fuzz_file(path, "fuzz.safetensors", data, size), &file) != TR_OK) {
    FUZZ_CHECK(tr_status_text()[0]);
    return 0;
  }
  for (size_t i = 0; i < tr_safetensors_count(file); i++) {
    const tr_safetensors_entry *entry = tr_safetensors_at(file, i);
    ptrdiff_t at = (const char *)entry->data - (const char *)tr_safetensors_at(file, 0)->data;
    FUZZ_CHECK(tr_safetensors_find(file, entry->name) == entry);
    FUZZ_CHECK(at >= 0 && (size_t)at + entry->nbyte <= size);
    read_entry(entry);
  }
  const char *format = tr_safetensors_metadata(file, "format");
  FUZZ_CHECK(!format || strlen(format) <= size);
  tr_safetensors_close(file);
  return 0;
}
