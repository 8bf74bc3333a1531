// SPDX-License-Identifier: MIT
// A config.json that goes on telling other programs what the original told them: which tokens end a text, how a call
// returns its results. Fields of the model itself are not taken from the original, even where the new text has no such
// field: they may have been set differently since, or stand in the new text under another name.
#include "model/config_internal.h"
#include "trireme/base/json.h"
#include "trireme/model/arch.h"
#include <string.h>

enum { CONFIG_LIMIT = 1 << 20 };

static tr_status add_foreign(json_t *own, const json_t *original) {
  const char *key;
  json_t *value;
  json_object_foreach((json_t *)(uintptr_t)original, key, value) {
    if (!tr__config_is_foreign(key) || json_object_get(own, key)) continue;
    if (json_object_set(own, key, value) != 0) return tr_error(TR_ERR_MEMORY, "no memory for config.json");
  }
  return TR_OK;
}

tr_status tr_config_text_merge(const char *original_path, const char *own_text, char **out) {
  json_t *original = NULL, *own = NULL;
  TR_TRY(tr_json_load(original_path, CONFIG_LIMIT, &original));
  tr_status status = tr_json_parse(own_text, strlen(own_text), "config.json", &own);
  if (status == TR_OK && !(json_is_object(original) && json_is_object(own)))
    status = tr_error(TR_ERR_DATA, "%s: not a JSON object", json_is_object(own) ? original_path : "config.json");
  if (status == TR_OK) status = add_foreign(own, original);
  if (status == TR_OK && !(*out = json_dumps(own, JSON_INDENT(2))))
    status = tr_error(TR_ERR_MEMORY, "no memory for config.json");
  json_decref(own);
  json_decref(original);
  return status;
}
