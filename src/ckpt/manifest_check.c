// SPDX-License-Identifier: MIT
// A checkpoint against its manifest: the size of every file, and the hash of every byte.
//
// A text has one hash. A file of tensors has one of its header (the first bytes, whose number the manifest gives) and one
// per tensor; as the format allows no holes, these are all its bytes, and the list must be complete. Checkpoints of
// version 1 have one hash of a whole file of tensors, and those of tensors besides. The manifest is not trusted: its
// size is bounded and names cannot leave the folder. Bytes are hashed in pieces, so that others hear that it goes on.
#include "ckpt/ckpt_internal.h"
#include "trireme/base/file.h"
#include "trireme/base/json.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <xxhash.h>

enum { HASH_PIECE = 16 << 20, VERSION = 2 };

typedef struct manifest {
  char path[TR__CKPT_PATH_MAX];
  json_t *root; // owns the two lists
  const json_t *files, *tensors;
  size_t next; // row of tensors: those before it have been checked
  void (*progress)(void *user);
  void *user;
} manifest;

static tr_status check_head(manifest *m) {
  const char *format = NULL;
  int64_t version = 0, step = 0;
  TR_TRY(tr_json_get_string(m->root, m->path, "format", 1, &format));
  if (strcmp(format, "trireme-checkpoint") != 0)
    return tr_error(TR_ERR_CKPT, "%s: format is not \"trireme-checkpoint\"", m->path);
  TR_TRY(tr_json_get_int(m->root, m->path, "version", 1, &version));
  if (version < 1 || version > VERSION)
    return tr_error(TR_ERR_CKPT, "%s: version is %" PRId64 "; this program reads versions 1 to %d", m->path, version,
                    VERSION);
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

static tr_status hash_pieces(const manifest *m, const void *data, size_t nbyte, uint64_t *hash) {
  XXH3_state_t *state = XXH3_createState();
  if (!state) return tr_error(TR_ERR_MEMORY, "no memory for a hash");
  XXH3_64bits_reset(state);
  for (size_t at = 0; at < nbyte; at += HASH_PIECE) {
    XXH3_64bits_update(state, (const char *)data + at, nbyte - at < HASH_PIECE ? nbyte - at : HASH_PIECE);
    if (m->progress) m->progress(m->user);
  }
  *hash = XXH3_64bits_digest(state);
  XXH3_freeState(state);
  return TR_OK;
}

// Compare with the 16 hexadecimal digits of a manifest row. `what` is "", or names a part of the file.
static tr_status check_hash(const manifest *m, const json_t *row, const char *path, const char *what,
                            const void *data, size_t nbyte) {
  const char *wanted = NULL;
  char found[17];
  uint64_t hash = 0;
  TR_TRY(tr_json_get_string(row, m->path, "xxh3", 1, &wanted));
  TR_TRY(hash_pieces(m, data, nbyte, &hash));
  snprintf(found, sizeof found, "%016" PRIx64, hash);
  if (strcmp(found, wanted) == 0) return TR_OK;
  return tr_error(TR_ERR_CKPT, "%s: %shash is %s, where the manifest says %.16s: the bytes have changed", path, what,
                  found, wanted);
}

static tr_status check_text(const manifest *m, const json_t *row, const char *path) {
  tr_file_map map;
  TR_TRY(tr_file_map_open(path, &map));
  tr_status status = check_hash(m, row, path, "", map.data, map.nbyte);
  if (status == TR_OK) status = tr_file_map_check(&map, path);
  tr_file_map_close(&map);
  return status;
}

// One row of the manifest's tensors. `seen` has a byte per tensor of the file.
static tr_status check_tensor(const manifest *m, const json_t *row, const char *path, const tr_safetensors *file,
                              unsigned char *seen) {
  const char *name = NULL;
  char quoted[TR__CKPT_QUOTE_MAX], what[TR__CKPT_QUOTE_MAX + 16];
  TR_TRY(tr_json_get_string(row, m->path, "name", 1, &name));
  const tr_safetensors_entry *entry = tr_safetensors_find(file, name);
  if (!entry)
    return tr_error(TR_ERR_CKPT, "%s: tensor '%s' of the manifest is missing", path, tr__ckpt_quote(name, quoted));
  size_t i = (size_t)(entry - tr_safetensors_at(file, 0));
  if (seen[i]++)
    return tr_error(TR_ERR_CKPT, "%s: tensor '%s' is listed twice", m->path, tr__ckpt_quote(name, quoted));
  snprintf(what, sizeof what, "tensor '%s': ", tr__ckpt_quote(name, quoted));
  return check_hash(m, row, path, what, entry->data, entry->nbyte);
}

// The rows from m->next on that are of this file, which must be all of its tensors.
static tr_status check_tensors(manifest *m, const char *name, const char *path, const tr_safetensors *file) {
  size_t count = tr_safetensors_count(file), listed = 0;
  unsigned char *seen = calloc(count + 1, 1);
  tr_status status = seen ? TR_OK : tr_error(TR_ERR_MEMORY, "%s: no memory for %zu tensors", path, count);
  for (; status == TR_OK && m->next < json_array_size(m->tensors); m->next++, listed++) {
    const json_t *row = json_array_get(m->tensors, m->next);
    const char *owner = NULL;
    status = tr_json_get_string(row, m->path, "file", 1, &owner);
    if (status == TR_OK && strcmp(owner, name) != 0) break;
    if (status == TR_OK) status = check_tensor(m, row, path, file, seen);
  }
  free(seen);
  if (status == TR_OK && listed != count)
    status = tr_error(TR_ERR_CKPT, "%s: lists %zu of the %zu tensors of '%s'", m->path, listed, count, name);
  return status;
}

// Tensors first, so that a damaged one is named.
static tr_status check_parts(manifest *m, const json_t *row, const char *name, const char *path) {
  int64_t header = 0;
  tr_safetensors *file = NULL;
  TR_TRY(tr_json_get_int(row, m->path, "header", 1, &header));
  TR_TRY(tr_safetensors_open(path, &file));
  const unsigned char *data = tr__st_bytes(file);
  tr_status status = TR_OK;
  if (header < 0 || (size_t)header != tr__st_header_nbyte(file))
    status = tr_error(TR_ERR_CKPT, "%s: header of %zu bytes, where the manifest says %" PRId64, path,
                      tr__st_header_nbyte(file), header);
  if (status == TR_OK) status = check_tensors(m, name, path, file);
  if (status == TR_OK) status = check_hash(m, row, path, "header: ", data, (size_t)header);
  if (status == TR_OK) status = tr__st_check_map(file);
  tr_safetensors_close(file);
  return status;
}

// Version 1: rows of tensors besides the hash of the whole file.
static tr_status check_whole(manifest *m, const json_t *row, const char *name, const char *path) {
  const char *owner = NULL;
  const json_t *next = json_array_get(m->tensors, m->next);
  if (next) TR_TRY(tr_json_get_string(next, m->path, "file", 1, &owner));
  if (next && strcmp(owner, name) == 0) {
    tr_safetensors *file = NULL;
    TR_TRY(tr_safetensors_open(path, &file));
    tr_status status = check_tensors(m, name, path, file);
    tr_safetensors_close(file);
    if (status < 0) return status;
  }
  return check_text(m, row, path);
}

static tr_status check_file(manifest *m, const char *folder, size_t i, int hashes) {
  const json_t *row = json_array_get(m->files, i);
  char path[TR__CKPT_PATH_MAX];
  const char *name;
  TR_TRY(file_path(m, folder, i, &name, path));
  TR_TRY(check_size(m, row, path));
  if (!hashes) return TR_OK;
  return json_object_get(row, "header") ? check_parts(m, row, name, path) : check_whole(m, row, name, path);
}

tr_status tr__manifest_check(const char *folder, int hashes, void (*progress)(void *user), void *user) {
  manifest m = {.progress = progress, .user = user};
  tr_status status = load_manifest(folder, &m);
  if (status < 0) goto done;
  for (size_t i = 0; status == TR_OK && i < json_array_size(m.files); i++) status = check_file(&m, folder, i, hashes);
  if (status == TR_OK && hashes && m.next < json_array_size(m.tensors)) {
    status = tr_error(TR_ERR_CKPT, "%s: tensor %zu is of a file that is not listed, or not in the order of files",
                      m.path, m.next);
  }
  json_decref(m.root);
done:
  // A checkpoint that cannot be read is a bad checkpoint, whatever the reason.
  return status == TR_ERR_DATA || status == TR_ERR_IO ? tr_error(TR_ERR_CKPT, "%s", tr_status_text()) : status;
}

tr_status tr_ckpt_verify(const char *path) { return tr__manifest_check(path, 1, NULL, NULL); }
