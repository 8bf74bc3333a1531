// SPDX-License-Identifier: MIT
// Finding a checkpoint that can be loaded.
//
// `latest` is a hint. Whatever it names is checked like any other folder, and when it is missing, nonsense or
// names something damaged, all step folders are tried from the newest down. A folder below a run is a
// checkpoint only with its manifest; a folder given directly may also be a plain Hugging Face one, whose
// files are then checked by their own format alone. Nothing here changes a file.
#include "ckpt/ckpt_internal.h"
#include "trireme/base/file.h"
#include "trireme/base/json.h"
#include "trireme/base/log.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <xxhash.h>

tr_status tr__ckpt_join(char out[TR__CKPT_PATH_MAX], const char *folder, const char *name) {
  int n = snprintf(out, TR__CKPT_PATH_MAX, "%s/%s", folder, name);
  if (n > 0 && n < TR__CKPT_PATH_MAX) return TR_OK;
  return tr_error(TR_ERR_USAGE, "path of '%.40s' in '%.40s...' is longer than %d bytes", name, folder,
                  TR__CKPT_PATH_MAX);
}

int tr__ckpt_plain_name(const char *name) {
  if (name[0] == '\0' || name[0] == '.' || strlen(name) >= TR__CKPT_NAME_MAX) return 0;
  for (const char *c = name; *c; c++) {
    if ((unsigned char)*c < 0x20 || *c == 0x7f || *c == '/') return 0;
  }
  return 1;
}

const char *tr__ckpt_digits(const char *text, int64_t *out) {
  size_t n = strspn(text, "0123456789");
  if (n == 0 || n > 18) return NULL;
  *out = strtoll(text, NULL, 10);
  return text + n;
}

// "step-S" or "step-S.old-P".
static int parse_step(const char *name, int64_t *step, int *old) {
  size_t prefix = strlen(TR__CKPT_STEP), infix = strlen(TR__CKPT_OLD);
  int64_t process;
  if (strncmp(name, TR__CKPT_STEP, prefix) != 0 || !tr__ckpt_plain_name(name)) return 0;
  const char *end = tr__ckpt_digits(name + prefix, step);
  if (!end) return 0;
  *old = *end != '\0';
  if (!*old) return 1;
  if (strncmp(end, TR__CKPT_OLD, infix) != 0) return 0;
  end = tr__ckpt_digits(end + infix, &process);
  return end && *end == '\0';
}

int64_t tr_ckpt_step(const char *path) {
  char name[TR__CKPT_NAME_MAX];
  int64_t step;
  int old;
  size_t end = strlen(path);
  while (end > 0 && path[end - 1] == '/') end--;
  size_t begin = end;
  while (begin > 0 && path[begin - 1] != '/') begin--;
  if (end - begin >= sizeof name) return -1;
  memcpy(name, path + begin, end - begin);
  name[end - begin] = '\0';
  return parse_step(name, &step, &old) ? step : -1;
}

// Newest first; of one step the regular folder before one that was set aside.
static int compare_folder(const void *a, const void *b) {
  const tr__ckpt_folder *x = a, *y = b;
  if (x->step != y->step) return x->step > y->step ? -1 : 1;
  if (x->old != y->old) return x->old - y->old;
  return strcmp(x->name, y->name);
}

static tr_status list_add(tr__ckpt_folder **list, size_t *count, size_t *capacity, const tr__ckpt_folder *row) {
  if (*count == *capacity) {
    size_t more = *capacity ? 2 * *capacity : 16;
    tr__ckpt_folder *larger = reallocarray(*list, more, sizeof **list);
    if (!larger) return tr_error(TR_ERR_MEMORY, "no memory for a list of %zu checkpoints", more);
    *list = larger;
    *capacity = more;
  }
  (*list)[(*count)++] = *row;
  return TR_OK;
}

tr_status tr__ckpt_list(const char *folder, tr__ckpt_folder **out, size_t *count) {
  tr__ckpt_folder *list = NULL;
  size_t n = 0, capacity = 0;
  tr_status status = TR_OK;
  DIR *entries = opendir(folder);
  if (!entries) return tr_error(TR_ERR_IO, "%s: cannot list the folder: %s", folder, strerror(errno));
  struct dirent *entry;
  while (status == TR_OK && (entry = readdir(entries))) {
    tr__ckpt_folder row;
    if (!parse_step(entry->d_name, &row.step, &row.old)) continue;
    memcpy(row.name, entry->d_name, strlen(entry->d_name) + 1); // a plain name is short enough
    status = list_add(&list, &n, &capacity, &row);
  }
  closedir(entries);
  if (status < 0) {
    free(list);
    return status;
  }
  if (n) qsort(list, n, sizeof *list, compare_folder);
  *out = list;
  *count = n;
  return TR_OK;
}

static tr_status bad(const char *path) { return tr_error(TR_ERR_CKPT, "%s: %s", path, tr_status_text()); }

// How carefully to look: sizes only or hashes too, and whom to tell that it goes on.
typedef struct look {
  int verify;
  void (*progress)(void *user);
  void *user;
} look;

static tr_status check_manifest(const char *folder, const look *how) {
  return tr__manifest_check(folder, how->verify, how->progress, how->user);
}

int tr__ckpt_has(const char *folder, const char *name) {
  char path[TR__CKPT_PATH_MAX];
  return tr__ckpt_join(path, folder, name) == TR_OK && tr_file_exists(path);
}

static tr_status check_plain(const char *folder) {
  tr_tensors *tensors;
  TR_TRY(tr_tensors_open(folder, TR__CKPT_MODEL, &tensors));
  tr_tensors_close(tensors);
  return TR_OK;
}

static tr_status give(const char *path, char *out, size_t nbyte) {
  size_t n = strlen(path);
  if (n >= nbyte) return tr_error(TR_ERR_USAGE, "%s: path needs %zu bytes, %zu are there", path, n + 1, nbyte);
  memcpy(out, path, n + 1);
  return TR_OK;
}

// The folder name that `latest` gives. It is a name of this folder or refused.
static tr_status read_latest(const char *folder, char name[TR__CKPT_NAME_MAX]) {
  char path[TR__CKPT_PATH_MAX];
  char *text = NULL;
  size_t nbyte = 0;
  int64_t step;
  int old;
  TR_TRY(tr__ckpt_join(path, folder, TR__CKPT_LATEST));
  TR_TRY(tr_file_read(path, TR__CKPT_NAME_MAX - 1, &text, &nbyte));
  memcpy(name, text, nbyte + 1);
  free(text);
  name[strcspn(name, "\n")] = '\0';
  if (parse_step(name, &step, &old)) return TR_OK;
  return tr_error(TR_ERR_CKPT, "%s: does not hold the name of a step folder", path);
}

// Check `folder/name` and give it out.
static tr_status try_folder(const char *folder, const char *name, const look *how, char *out, size_t nbyte) {
  char path[TR__CKPT_PATH_MAX];
  TR_TRY(tr__ckpt_join(path, folder, name));
  TR_TRY(check_manifest(path, how));
  return give(path, out, nbyte);
}

static tr_status find_below(const char *folder, const look *how, char *out, size_t nbyte) {
  char latest[TR__CKPT_NAME_MAX] = "";
  tr__ckpt_folder *list = NULL;
  size_t count = 0;
  tr_status status = read_latest(folder, latest);
  if (status < 0)
    latest[0] = '\0';
  else
    status = try_folder(folder, latest, how, out, nbyte);
  if (status == TR_OK || status == TR_ERR_USAGE || status == TR_ERR_MEMORY) return status;
  if (tr__ckpt_list(folder, &list, &count) < 0) return bad(folder);
  if (count > 0) tr_log_warn("trying older checkpoints because of %s", tr_status_text());
  for (size_t i = 0; i < count; i++) {
    if (strcmp(list[i].name, latest) == 0) continue;
    status = try_folder(folder, list[i].name, how, out, nbyte);
    if (status == TR_OK) tr_log_warn("falling back to %s", out);
    if (status == TR_OK || status == TR_ERR_USAGE || status == TR_ERR_MEMORY) break;
    tr_log_warn("not loadable: %s", tr_status_text());
  }
  if (status < 0 && status != TR_ERR_USAGE && status != TR_ERR_MEMORY) {
    status = count ? tr_error(TR_ERR_CKPT, "%s: none of its %zu checkpoints can be loaded; the last reason: %s",
                              folder, count, tr_status_text())
                   : tr_error(TR_ERR_CKPT, "%s: no checkpoint in it (no %s, no %s, no %sN folder)%s", folder,
                              TR__CKPT_MANIFEST, TR__CKPT_MODEL TR__CKPT_TENSORS, TR__CKPT_STEP,
                              tr__ckpt_pickle_note(folder));
  }
  free(list);
  return status;
}

tr_status tr_ckpt_find_watched(const char *path, int verify, void (*progress)(void *user), void *user, char *out,
                               size_t nbyte) {
  const look how = {verify, progress, user};
  struct stat about;
  if (stat(path, &about) != 0) return tr_error(TR_ERR_CKPT, "%s: no checkpoint: %s", path, strerror(errno));
  if (!S_ISDIR(about.st_mode))
    return tr_error(TR_ERR_CKPT, "%s: not a folder; give a checkpoint or the folder that holds checkpoints", path);
  if (tr__ckpt_has(path, TR__CKPT_MANIFEST))
    TR_TRY(check_manifest(path, &how));
  else if (tr__ckpt_has(path, TR__CKPT_MODEL TR__CKPT_TENSORS) || tr__ckpt_has(path, TR__CKPT_MODEL TR__CKPT_INDEX))
    TR_TRY(check_plain(path));
  else
    return find_below(path, &how, out, nbyte);
  return give(path, out, nbyte);
}

tr_status tr_ckpt_find(const char *path, int verify, char *out, size_t nbyte) {
  return tr_ckpt_find_watched(path, verify, NULL, NULL, out, nbyte);
}
