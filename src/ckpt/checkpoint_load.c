// SPDX-License-Identifier: MIT
// Finding a checkpoint that can be loaded, and checking one against its manifest.
//
// `latest` is a hint. Whatever it names is checked like any other folder, and when it is missing, nonsense or
// names something damaged, all step folders are tried from the newest down. A folder below a run is a
// checkpoint only with its manifest; a folder given directly may also be a plain Hugging Face one, whose
// files are then checked by their own format alone. Manifests are not trusted: sizes are bounded and names
// cannot leave the folder. Nothing here changes a file.
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

enum { HASH_PIECE = 16 << 20 };

// How carefully to look: sizes only or hashes too, and whom to tell that it goes on.
typedef struct look {
  int verify;
  void (*progress)(void *user);
  void *user;
} look;

typedef struct manifest {
  char path[TR__CKPT_PATH_MAX];
  json_t *root; // owns the two lists
  const json_t *files, *tensors;
  void (*progress)(void *user); // called between pieces of what is hashed; may be NULL
  void *user;
} manifest;

static tr_status check_head(manifest *m) {
  const char *format = NULL;
  int64_t version = 0, step = 0;
  TR_TRY(tr_json_get_string(m->root, m->path, "format", 1, &format));
  if (strcmp(format, "trireme-checkpoint") != 0)
    return tr_error(TR_ERR_CKPT, "%s: format is not \"trireme-checkpoint\"", m->path);
  TR_TRY(tr_json_get_int(m->root, m->path, "version", 1, &version));
  if (version != 1)
    return tr_error(TR_ERR_CKPT, "%s: version is %" PRId64 "; this program reads version 1", m->path, version);
  TR_TRY(tr_json_get_int(m->root, m->path, "step", 1, &step));
  m->files = json_object_get(m->root, "files");
  m->tensors = json_object_get(m->root, "tensors");
  if (!json_is_array(m->files) || !json_is_array(m->tensors))
    return tr_error(TR_ERR_CKPT, "%s: \"files\" and \"tensors\" must be lists", m->path);
  if (json_array_size(m->files) == 0 || json_array_size(m->files) > TR__CKPT_FILE_MAX)
    return tr_error(TR_ERR_CKPT, "%s: \"files\" has %zu entries; 1 to %d are possible", m->path,
                    json_array_size(m->files), TR__CKPT_FILE_MAX);
  return TR_OK;
}

// On success m->root is to be released.
static tr_status load_manifest(const char *folder, manifest *m) {
  TR_TRY(tr__ckpt_join(m->path, folder, TR__CKPT_MANIFEST));
  if (!tr_file_exists(m->path))
    return tr_error(TR_ERR_CKPT, "%s: no %s in it, so it is not a complete checkpoint", folder, TR__CKPT_MANIFEST);
  TR_TRY(tr_json_load(m->path, TR__CKPT_MANIFEST_MAX, &m->root));
  tr_status status = check_head(m);
  if (status < 0) json_decref(m->root);
  return status;
}

// Name and path of file i; the name is safe to open.
static tr_status file_path(const manifest *m, const char *folder, size_t i, const char **name, char *path) {
  char quoted[TR__CKPT_QUOTE_MAX];
  TR_TRY(tr_json_get_string(json_array_get(m->files, i), m->path, "name", 1, name));
  if (!tr__ckpt_plain_name(*name))
    return tr_error(TR_ERR_CKPT, "%s: file name '%s' is not a plain base name", m->path,
                    tr__ckpt_quote(*name, quoted));
  return tr__ckpt_join(path, folder, *name);
}

static tr_status check_size(const manifest *m, const json_t *row, const char *path) {
  int64_t nbyte = 0;
  struct stat about;
  TR_TRY(tr_json_get_int(row, m->path, "bytes", 1, &nbyte));
  if (stat(path, &about) != 0) return tr_error(TR_ERR_CKPT, "%s: %s", path, strerror(errno));
  if (!S_ISREG(about.st_mode)) return tr_error(TR_ERR_CKPT, "%s: not a regular file", path);
  if (about.st_size == nbyte) return TR_OK;
  return tr_error(TR_ERR_CKPT, "%s: %lld bytes, where the manifest says %" PRId64, path, (long long)about.st_size,
                  nbyte);
}

// The XXH3-64 of a range, in pieces, with a call of `progress` after each: others wait while a large file is read.
static uint64_t hash_slowly(const manifest *m, const void *data, size_t nbyte) {
  XXH3_state_t *state = m->progress ? XXH3_createState() : NULL;
  if (!state) return tr_hash_bytes(data, nbyte);
  XXH3_64bits_reset(state);
  for (size_t at = 0; at < nbyte; at += HASH_PIECE) {
    XXH3_64bits_update(state, (const char *)data + at, nbyte - at < HASH_PIECE ? nbyte - at : HASH_PIECE);
    m->progress(m->user);
  }
  uint64_t hash = XXH3_64bits_digest(state);
  XXH3_freeState(state);
  return hash;
}

// Compare with the 16 hexadecimal digits of a manifest row. `tensor` may be NULL.
static tr_status check_hash(const manifest *m, const json_t *row, const char *path, const char *tensor,
                            const void *data, size_t nbyte) {
  const char *wanted = NULL;
  char found[17], quoted[TR__CKPT_QUOTE_MAX];
  TR_TRY(tr_json_get_string(row, m->path, "xxh3", 1, &wanted));
  snprintf(found, sizeof found, "%016" PRIx64, hash_slowly(m, data, nbyte));
  if (strcmp(found, wanted) == 0) return TR_OK;
  return tr_error(TR_ERR_CKPT, "%s: %s%s%shash is %s, where the manifest says %.16s: the bytes have changed", path,
                  tensor ? "tensor '" : "", tensor ? tr__ckpt_quote(tensor, quoted) : "", tensor ? "': " : "", found,
                  wanted);
}

// Rows of tensors stand in the order of files, so each file is opened once: take those of `name` from *next on.
static tr_status check_tensors(const manifest *m, const char *name, const char *path, size_t *next) {
  tr_safetensors *file = NULL;
  tr_status status = TR_OK;
  char quoted[TR__CKPT_QUOTE_MAX];
  for (; status == TR_OK && *next < json_array_size(m->tensors); ++*next) {
    const json_t *row = json_array_get(m->tensors, *next);
    const char *owner = NULL, *tensor = NULL;
    status = tr_json_get_string(row, m->path, "file", 1, &owner);
    if (status == TR_OK && strcmp(owner, name) != 0) break;
    if (status == TR_OK) status = tr_json_get_string(row, m->path, "name", 1, &tensor);
    if (status == TR_OK && !file) status = tr_safetensors_open(path, &file);
    if (status < 0) break;
    const tr_safetensors_entry *entry = tr_safetensors_find(file, tensor);
    if (entry)
      status = check_hash(m, row, path, tensor, entry->data, entry->nbyte);
    else
      status =
          tr_error(TR_ERR_CKPT, "%s: tensor '%s' of the manifest is missing", path, tr__ckpt_quote(tensor, quoted));
  }
  tr_safetensors_close(file);
  return status;
}

static tr_status check_file(const manifest *m, const char *folder, size_t i, int hashes, size_t *next) {
  const json_t *row = json_array_get(m->files, i);
  char path[TR__CKPT_PATH_MAX];
  const char *name;
  tr_file_map map;
  TR_TRY(file_path(m, folder, i, &name, path));
  TR_TRY(check_size(m, row, path));
  if (!hashes) return TR_OK;
  // Tensors first: a damaged one is named. The hash of the whole file then covers header and text.
  TR_TRY(check_tensors(m, name, path, next));
  TR_TRY(tr_file_map_open(path, &map));
  tr_status status = check_hash(m, row, path, NULL, map.data, map.nbyte);
  tr_file_map_close(&map);
  return status;
}

static tr_status check_manifest(const char *folder, const look *how) {
  manifest m = {.progress = how->progress, .user = how->user};
  int hashes = how->verify;
  size_t next = 0;
  tr_status status = load_manifest(folder, &m);
  if (status < 0) goto done;
  for (size_t i = 0; status == TR_OK && i < json_array_size(m.files); i++) {
    status = check_file(&m, folder, i, hashes, &next);
  }
  if (status == TR_OK && hashes && next < json_array_size(m.tensors)) {
    status = tr_error(TR_ERR_CKPT, "%s: tensor %zu is of a file that is not listed, or not in the order of files",
                      m.path, next);
  }
  json_decref(m.root);
done:
  // A checkpoint that cannot be read is a bad checkpoint, whatever the reason.
  return status == TR_ERR_DATA || status == TR_ERR_IO ? tr_error(TR_ERR_CKPT, "%s", tr_status_text()) : status;
}

tr_status tr_ckpt_verify(const char *path) { return check_manifest(path, &(look){.verify = 1}); }

static int has_file(const char *folder, const char *name) {
  char path[TR__CKPT_PATH_MAX];
  return tr__ckpt_join(path, folder, name) == TR_OK && tr_file_exists(path);
}

static tr_status check_plain(const char *folder) {
  char path[TR__CKPT_PATH_MAX];
  tr_safetensors *file;
  TR_TRY(tr__ckpt_join(path, folder, TR__CKPT_MODEL));
  TR_TRY(tr_safetensors_open(path, &file));
  tr_safetensors_close(file);
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
                   : tr_error(TR_ERR_CKPT, "%s: no checkpoint in it (no %s, no %s, no %sN folder)", folder,
                              TR__CKPT_MANIFEST, TR__CKPT_MODEL, TR__CKPT_STEP);
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
  if (has_file(path, TR__CKPT_MANIFEST))
    TR_TRY(check_manifest(path, &how));
  else if (has_file(path, TR__CKPT_MODEL))
    TR_TRY(check_plain(path));
  else
    return find_below(path, &how, out, nbyte);
  return give(path, out, nbyte);
}

tr_status tr_ckpt_find(const char *path, int verify, char *out, size_t nbyte) {
  return tr_ckpt_find_watched(path, verify, NULL, NULL, out, nbyte);
}
