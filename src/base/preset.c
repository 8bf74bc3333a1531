// SPDX-License-Identifier: MIT
// Finding presets by name: the folders that may hold them, best first, and the closest name when there is none.
#include "trireme/base/preset.h"
#include "trireme/base/text.h"
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATH_LIMIT = 4096, FOLDERS = 4, NAMES = 200 };

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

// The folders that presets of a kind may be in, best first; returns how many.
static int preset_folders(const char *kind, char folder[FOLDERS][PATH_LIMIT]) {
  char program[PATH_LIMIT];
  const char *set = getenv("TRIREME_PRESETS");
  int n = 0;
  if (set && *set) snprintf(folder[n++], PATH_LIMIT, "%.3900s/%.40s", set, kind);
  snprintf(folder[n++], PATH_LIMIT, "presets/%.40s", kind);
  program_folder(program);
  if (!*program) return n;
  snprintf(folder[n++], PATH_LIMIT, "%.3900s/../presets/%.40s", program, kind);
  snprintf(folder[n++], PATH_LIMIT, "%.3900s/../share/trireme/presets/%.40s", program, kind);
  return n;
}

int tr_preset_find(const char *folder, const char *name, const char *suffix, char *path, size_t nbyte) {
  char folders[FOLDERS][PATH_LIMIT], found[PATH_LIMIT];
  if (strchr(name, '/')) return 0;
  for (int i = 0, n = preset_folders(folder, folders); i < n; i++) {
    int length = snprintf(found, PATH_LIMIT, "%s/%s%s", folders[i], name, suffix);
    if (length >= PATH_LIMIT || !is_file(found)) continue;
    snprintf(path, nbyte, "%s", found);
    return 1;
  }
  return 0;
}

// Names of the presets in a folder, without the suffix, appended to a list that the caller frees.
static size_t list_folder(const char *folder, const char *suffix, char **list, size_t n, size_t most) {
  DIR *stream = opendir(folder);
  for (struct dirent *entry; stream && n < most && (entry = readdir(stream));) {
    size_t length = strlen(entry->d_name), end = strlen(suffix);
    if (length <= end || strcmp(entry->d_name + length - end, suffix) != 0) continue;
    list[n] = strndup(entry->d_name, length - end);
    if (list[n]) n++;
  }
  if (stream) closedir(stream);
  return n;
}

tr_status tr_preset_missing(const char *folder, const char *name, const char *suffix, const char *sentence) {
  char folders[FOLDERS][PATH_LIMIT], *list[NAMES];
  size_t n = 0;
  for (int i = 0, nfolder = preset_folders(folder, folders); i < nfolder; i++)
    n = list_folder(folders[i], suffix, list, n, NAMES);
  const char *closest = tr_text_closest(name, (const char *const *)list, n);
  tr_status status = tr_error(TR_ERR_CONFIG, "%s%s%s%s", sentence,
                              closest ? "; did you mean '"
                              : n     ? ""
                                      : " (no presets were found; TRIREME_PRESETS=FOLDER says where they are)",
                              closest ? closest : "", closest ? "'?" : "");
  while (n > 0) free(list[--n]);
  return status;
}

static int by_name(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

size_t tr_preset_list(const char *folder, const char *suffix, char **name, size_t most) {
  char folders[FOLDERS][PATH_LIMIT];
  size_t n = 0, kept = 0;
  for (int i = 0, nfolder = preset_folders(folder, folders); i < nfolder; i++)
    n = list_folder(folders[i], suffix, name, n, most);
  qsort(name, n, sizeof *name, by_name);
  for (size_t i = 0; i < n; i++) {
    if (kept > 0 && strcmp(name[kept - 1], name[i]) == 0)
      free(name[i]);
    else
      name[kept++] = name[i];
  }
  return kept;
}
