// SPDX-License-Identifier: MIT
// Finding the description of a model: a config.json, a folder that holds one, or a preset by name. Presets are
// config.json files of well-known models that come with the library; nothing is ever fetched.
#include "trireme/base/file.h"
#include "trireme/base/json.h"
#include "trireme/model/arch.h"
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATH_LIMIT = 4096, CONFIG_LIMIT = 1 << 20, FOLDERS = 4, NAMES = 200 };

static int is_file(const char *path) {
  struct stat info;
  return stat(path, &info) == 0 && S_ISREG(info.st_mode);
}

// The folder of the running program, "" when the system does not say.
static void program_folder(char out[PATH_LIMIT]) {
  ssize_t n = readlink("/proc/self/exe", out, PATH_LIMIT - 1);
  out[n > 0 ? n : 0] = '\0';
  char *slash = strrchr(out, '/');
  if (slash) *slash = '\0';
}

// The folders that presets may be in, best first; returns how many.
static int preset_folders(char folder[FOLDERS][PATH_LIMIT]) {
  char program[PATH_LIMIT];
  const char *set = getenv("TRIREME_PRESETS");
  int n = 0;
  if (set && *set) snprintf(folder[n++], PATH_LIMIT, "%.4000s/models", set);
  snprintf(folder[n++], PATH_LIMIT, "presets/models");
  program_folder(program);
  if (!*program) return n;
  snprintf(folder[n++], PATH_LIMIT, "%.4000s/../presets/models", program);
  snprintf(folder[n++], PATH_LIMIT, "%.4000s/../share/trireme/presets/models", program);
  return n;
}

static int find(const char *name, char path[PATH_LIMIT]) {
  char folder[FOLDERS][PATH_LIMIT];
  snprintf(path, PATH_LIMIT, "%s", name);
  if (is_file(path)) return 1;
  snprintf(path, PATH_LIMIT, "%.4000s/config.json", name);
  if (is_file(path)) return 1;
  if (strchr(name, '/')) return 0;
  for (int i = 0, n = preset_folders(folder); i < n; i++) {
    int length = snprintf(path, PATH_LIMIT, "%s/%s.json", folder[i], name);
    if (length < PATH_LIMIT && is_file(path)) return 1;
  }
  return 0;
}

// Names of the presets in a folder, without ".json", appended to a list that the caller frees.
static size_t list_presets(const char *folder, char **list, size_t n) {
  DIR *stream = opendir(folder);
  for (struct dirent *entry; stream && n < NAMES && (entry = readdir(stream));) {
    size_t length = strlen(entry->d_name);
    if (length < 6 || strcmp(entry->d_name + length - 5, ".json") != 0) continue;
    list[n] = strndup(entry->d_name, length - 5);
    if (list[n]) n++;
  }
  if (stream) closedir(stream);
  return n;
}

static tr_status nothing_found(const char *name) {
  char folder[FOLDERS][PATH_LIMIT], *list[NAMES];
  size_t n = 0;
  for (int i = 0, nfolder = preset_folders(folder); i < nfolder; i++) n = list_presets(folder[i], list, n);
  const char *closest = tr_text_closest(name, (const char *const *)list, n);
  tr_status status = tr_error(
      TR_ERR_CONFIG, "no model '%.300s': it is no config.json, no folder that holds one, and no preset%s%s%s", name,
      closest ? "; did you mean '"
      : n     ? ""
              : " (no presets were found)",
      closest ? closest : "", closest ? "'?" : "");
  while (n > 0) free(list[--n]);
  return status;
}

tr_status tr_arch_load(const char *name, tr_arch *out, char *path, size_t nbyte) {
  char found[PATH_LIMIT];
  json_t *json = NULL;
  if (strlen(name) >= 4000)
    return tr_error(TR_ERR_CONFIG, "%.60s...: the name of a model is at most 4000 bytes long", name);
  if (!find(name, found)) return nothing_found(name);
  TR_TRY(tr_json_load(found, CONFIG_LIMIT, &json));
  tr_status status = tr_arch_from_json(json, found, out);
  json_decref(json);
  if (status == TR_OK && path) snprintf(path, nbyte, "%s", found);
  return status;
}
