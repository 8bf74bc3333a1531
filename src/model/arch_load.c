// SPDX-License-Identifier: MIT
// Finding the description of a model: a config.json, a folder that holds one, or a preset by name. Presets are
// config.json files of well-known models that come with the library; nothing is ever fetched.
#include "trireme/base/json.h"
#include "trireme/base/preset.h"
#include "trireme/model/arch.h"
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum { PATH_LIMIT = 4096, CONFIG_LIMIT = 1 << 20 };

static int is_file(const char *path) {
  struct stat info;
  return stat(path, &info) == 0 && S_ISREG(info.st_mode);
}

static int find(const char *name, char path[PATH_LIMIT]) {
  snprintf(path, PATH_LIMIT, "%s", name);
  if (is_file(path)) return 1;
  snprintf(path, PATH_LIMIT, "%.4000s/config.json", name);
  return is_file(path) || tr_preset_find("models", name, ".json", path, PATH_LIMIT);
}

static tr_status nothing_found(const char *name) {
  char sentence[512];
  snprintf(sentence, sizeof sentence,
           "no model '%.300s': it is no config.json, no folder that holds one, and no preset", name);
  return tr_preset_missing("models", name, ".json", sentence);
}

static tr_status find_or_say(const char *name, char path[PATH_LIMIT]) {
  if (strlen(name) >= 4000)
    return tr_error(TR_ERR_CONFIG, "%.60s...: the name of a model is at most 4000 bytes long", name);
  return find(name, path) ? TR_OK : nothing_found(name);
}

tr_status tr_arch_find(const char *name, char *path, size_t nbyte) {
  char found[PATH_LIMIT];
  TR_TRY(find_or_say(name, found));
  snprintf(path, nbyte, "%s", found);
  return TR_OK;
}

tr_status tr_arch_load(const char *name, tr_arch *out, char *path, size_t nbyte) {
  char found[PATH_LIMIT];
  json_t *json = NULL;
  TR_TRY(find_or_say(name, found));
  TR_TRY(tr_json_load(found, CONFIG_LIMIT, &json));
  tr_status status = tr_arch_from_json(json, found, out);
  json_decref(json);
  if (status == TR_OK && path) snprintf(path, nbyte, "%s", found);
  return status;
}
