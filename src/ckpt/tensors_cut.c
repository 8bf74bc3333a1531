// SPDX-License-Identifier: MIT
// Cutting a list of tensors into files as Hugging Face does: in order, a new file when the next tensor would exceed the
// limit; names and the index follow from the cut.
#include "ckpt/ckpt_internal.h"
#include "trireme/base/json.h"

#include <stdio.h>
#include <stdlib.h>

size_t tr_tensors_cut(const tr_safetensors_item *item, size_t nitem, uint64_t limit, size_t *file_of) {
  uint64_t used = 0;
  size_t file = 0;
  for (size_t i = 0; i < nitem; i++) {
    uint64_t nbyte = tr__stored_nbyte(&item[i]);
    if (limit > 0 && used > 0 && nbyte > 0 && (nbyte > limit || used > limit - nbyte)) file++, used = 0;
    file_of[i] = file;
    used += nbyte;
  }
  return file + 1;
}

void tr_tensors_file_name(const char *name, size_t i, size_t n, char *out, size_t nbyte) {
  if (n == 1)
    snprintf(out, nbyte, "%s" TR__CKPT_TENSORS, name);
  else
    snprintf(out, nbyte, "%s-%05zu-of-%05zu" TR__CKPT_TENSORS, name, i + 1, n);
}

tr_status tr_tensors_index_text(const char *name, const tr_safetensors_item *item, size_t nitem,
                                const size_t *file_of, size_t nfile, char **text) {
  char file[TR__CKPT_NAME_MAX];
  uint64_t total = 0;
  json_t *map = json_object();
  int failed = !map;
  for (size_t i = 0; i < nitem && !failed; i++) {
    tr_tensors_file_name(name, file_of[i], nfile, file, sizeof file);
    failed = json_object_set_new(map, item[i].name, json_string(file)) != 0;
    total += tr__stored_nbyte(&item[i]);
  }
  if (failed) {
    json_decref(map);
    return tr_error(TR_ERR_USAGE, "the index of '%s' has a name that is not UTF-8, or no memory", name);
  }
  json_t *root = json_pack("{s:{s:I}, s:o}", "metadata", "total_size", (json_int_t)total, "weight_map", map);
  char *made = root ? json_dumps(root, JSON_INDENT(2)) : NULL;
  json_decref(root);
  if (!made) return tr_error(TR_ERR_MEMORY, "no memory for the index of '%s'", name);
  *text = made;
  return TR_OK;
}
