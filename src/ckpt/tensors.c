// SPDX-License-Identifier: MIT
// The tensors of a file, or of a folder with one file or several.
//
// What is in the files decides; an index only says which files there are and must then agree with them tensor by tensor, so
// that a folder that was put together wrongly is refused when it is opened and not in the middle of a run. Names in an
// index are base names of files beside it. Links are followed: caches of downloaded models are made of them.
#include "ckpt/ckpt_internal.h"
#include "trireme/base/file.h"
#include "trireme/base/json.h"
#include "trireme/base/text.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { INDEX_MAX = 100000000 }; // bytes

typedef struct shard {
  char *path;
  tr_safetensors *file;
  size_t first; // number of its first tensor
} shard;

struct tr_tensors {
  shard *shard;
  size_t nshard, ntensor;
  const tr_safetensors_entry **by_name;
  uint64_t nbyte;
};

static const char *base_name(const char *path) {
  const char *slash = strrchr(path, '/');
  return slash ? slash + 1 : path;
}

// ---- opening the files

static tr_status open_shard(tr_tensors *t, const char *path) {
  shard *s = &t->shard[t->nshard];
  s->path = strdup(path);
  s->first = t->ntensor;
  t->nshard++; // closed with the others, whatever happens
  if (!s->path) return tr_error(TR_ERR_MEMORY, "%s: no memory to open it", path);
  TR_TRY(tr_safetensors_open(path, &s->file));
  t->ntensor += tr_safetensors_count(s->file);
  if (t->ntensor <= TR__ST_COUNT_MAX) return TR_OK;
  return tr_error(TR_ERR_CKPT, "%s: with this file there are %zu tensors; the limit is %d", path, t->ntensor,
                  TR__ST_COUNT_MAX);
}

static int compare_name(const void *a, const void *b) {
  const tr_safetensors_entry *const *x = a, *const *y = b;
  return strcmp((*x)->name, (*y)->name);
}

static int compare_key(const void *key, const void *b) {
  const tr_safetensors_entry *const *y = b;
  return strcmp(key, (*y)->name);
}

static const shard *shard_of(const tr_tensors *t, const tr_safetensors_entry *entry) {
  const shard *s = t->shard;
  while (s->file != entry->file) s++;
  return s;
}

// All tensors in one order of names; a name may be there once.
static tr_status sort_names(tr_tensors *t) {
  char quoted[TR__CKPT_QUOTE_MAX];
  size_t n = 0;
  t->by_name = calloc(t->ntensor + 1, sizeof *t->by_name);
  if (!t->by_name) return tr_error(TR_ERR_MEMORY, "no memory for a list of %zu tensors", t->ntensor);
  for (size_t i = 0; i < t->nshard; i++) {
    for (size_t k = 0; k < tr_safetensors_count(t->shard[i].file); k++) {
      t->by_name[n] = tr_safetensors_at(t->shard[i].file, k);
      t->nbyte += t->by_name[n++]->nbyte;
    }
  }
  qsort(t->by_name, n, sizeof *t->by_name, compare_name);
  for (size_t i = 1; i < n; i++) {
    if (strcmp(t->by_name[i - 1]->name, t->by_name[i]->name) != 0) continue;
    return tr_error(TR_ERR_CKPT, "%s: tensor '%s' is also in %s", shard_of(t, t->by_name[i])->path,
                    tr__ckpt_quote(t->by_name[i]->name, quoted), base_name(shard_of(t, t->by_name[i - 1])->path));
  }
  return TR_OK;
}

// ---- the index

static int compare_text(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

static tr_status check_file_name(const char *path, const char *tensor, const json_t *value) {
  char quoted[TR__CKPT_QUOTE_MAX], file[TR__CKPT_QUOTE_MAX];
  const char *name = json_string_value(value);
  tr__ckpt_quote(tensor, quoted);
  if (!name) return tr_error(TR_ERR_CKPT, "%s: file of tensor '%s' is not a string", path, quoted);
  if (!tr__ckpt_plain_name(name))
    return tr_error(TR_ERR_CKPT, "%s: file '%s' of tensor '%s' is not a plain base name", path,
                    tr__ckpt_quote(name, file), quoted);
  if (tr_text_ends_in(name, TR__CKPT_TENSORS)) return TR_OK;
  return tr_error(TR_ERR_CKPT, "%s: file '%s' of tensor '%s' is not a %s file; others are never read", path,
                  tr__ckpt_quote(name, file), quoted, TR__CKPT_TENSORS);
}

// The different file names of the map, sorted, into name[]; they belong to the map.
static tr_status list_files(const char *path, json_t *map, const char **name, size_t *count) {
  const char *tensor;
  json_t *value;
  size_t n = 0, kept = 0;
  json_object_foreach(map, tensor, value) {
    TR_TRY(check_file_name(path, tensor, value));
    name[n++] = json_string_value(value);
  }
  qsort(name, n, sizeof *name, compare_text);
  for (size_t i = 0; i < n; i++)
    if (kept == 0 || strcmp(name[kept - 1], name[i]) != 0) name[kept++] = name[i];
  if (kept > TR__CKPT_FILE_MAX)
    return tr_error(TR_ERR_CKPT, "%s: %zu files; the limit is %d", path, kept, TR__CKPT_FILE_MAX);
  *count = kept;
  return TR_OK;
}

static tr_status open_files(tr_tensors *t, const char *path, const char *const *name, size_t count) {
  char shard_path[TR__CKPT_PATH_MAX];
  t->shard = calloc(count, sizeof *t->shard);
  if (!t->shard) return tr_error(TR_ERR_MEMORY, "%s: no memory for %zu files", path, count);
  for (size_t i = 0; i < count; i++) {
    if (snprintf(shard_path, sizeof shard_path, "%.*s%s", (int)(base_name(path) - path), path, name[i]) >=
        (int)sizeof shard_path)
      return tr_error(TR_ERR_USAGE, "path of '%.40s' beside '%.40s...' is too long", name[i], path);
    if (!tr_file_exists(shard_path))
      return tr_error(TR_ERR_CKPT, "%s: lists '%s', which is not there: %s", path, name[i], strerror(errno));
    TR_TRY(open_shard(t, shard_path));
  }
  return TR_OK;
}

// Every tensor is where the index says, and the index leaves none out.
static tr_status check_map(const tr_tensors *t, const char *path, json_t *map) {
  char quoted[TR__CKPT_QUOTE_MAX];
  const char *name;
  json_t *value;
  json_object_foreach(map, name, value) {
    const tr_safetensors_entry *entry = tr_tensors_find(t, name);
    const char *wanted = json_string_value(value), *found = entry ? base_name(shard_of(t, entry)->path) : NULL;
    if (!found)
      return tr_error(TR_ERR_CKPT, "%s: tensor '%s' is not in '%s'", path, tr__ckpt_quote(name, quoted), wanted);
    if (strcmp(found, wanted) != 0)
      return tr_error(TR_ERR_CKPT, "%s: tensor '%s' is in '%s', not in '%s'", path, tr__ckpt_quote(name, quoted),
                      found, wanted);
  }
  for (size_t i = 0; i < t->ntensor && t->ntensor != json_object_size(map); i++) {
    name = t->by_name[i]->name;
    if (!json_object_get(map, name))
      return tr_error(TR_ERR_CKPT, "%s: tensor '%s' of '%s' is not listed", path, tr__ckpt_quote(name, quoted),
                      base_name(shard_of(t, t->by_name[i])->path));
  }
  return TR_OK;
}

static tr_status check_total(const tr_tensors *t, const char *path, const json_t *root) {
  const json_t *metadata = json_object_get(root, "metadata"), *total = json_object_get(metadata, "total_size");
  if (metadata && !json_is_object(metadata)) return tr_error(TR_ERR_CKPT, "%s: metadata is not an object", path);
  if (!total) return TR_OK;
  if (!json_is_number(total)) return tr_error(TR_ERR_CKPT, "%s: metadata.total_size is not a number", path);
  if (json_number_value(total) == (double)t->nbyte) return TR_OK;
  return tr_error(TR_ERR_CKPT, "%s: metadata.total_size is %.0f, the tensors have %" PRIu64 " bytes", path,
                  json_number_value(total), t->nbyte);
}

static tr_status load_index(const char *path, json_t **out) {
  char *text = NULL;
  size_t nbyte = 0;
  TR_TRY(tr_file_read(path, INDEX_MAX, &text, &nbyte));
  tr_status status = tr__st_check_extent(path, text, nbyte, 2);
  if (status == TR_OK) status = tr_json_parse(text, nbyte, path, out);
  free(text);
  return status == TR_ERR_DATA ? tr_error(TR_ERR_CKPT, "%s", tr_status_text()) : status;
}

static tr_status open_index(tr_tensors *t, const char *path) {
  json_t *root = NULL;
  const char **name = NULL;
  size_t count = 0;
  TR_TRY(load_index(path, &root));
  json_t *map = json_object_get(root, "weight_map");
  tr_status status = TR_OK;
  if (!json_is_object(map) || json_object_size(map) == 0 || json_object_size(map) > TR__ST_COUNT_MAX) {
    status = tr_error(TR_ERR_CKPT, "%s: weight_map must be an object with 1 to %d tensors", path, TR__ST_COUNT_MAX);
  } else if (!(name = calloc(json_object_size(map), sizeof *name))) {
    status = tr_error(TR_ERR_MEMORY, "%s: no memory for %zu tensors", path, json_object_size(map));
  } else {
    status = list_files(path, map, name, &count);
  }
  if (status == TR_OK) status = open_files(t, path, name, count);
  if (status == TR_OK) status = sort_names(t);
  if (status == TR_OK) status = check_map(t, path, map);
  if (status == TR_OK) status = check_total(t, path, root);
  free(name);
  json_decref(root);
  return status;
}

// ---- opening

const char *tr__ckpt_pickle_note(const char *folder) {
  static const char *const names[] = {"pytorch_model.bin", "pytorch_model.bin.index.json", "model.pt", "model.pth",
                                      "consolidated.00.pth"};
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
    if (tr__ckpt_has(folder, names[i]))
      return "; its weights are there only as pickle (.bin, .pt), which runs code when it is read and is never read "
             "here: save them as safetensors, in Python with save_pretrained(FOLDER, safe_serialization=True)";
  }
  return "";
}

static tr_status open_single(tr_tensors *t, const char *path) {
  t->shard = calloc(1, sizeof *t->shard);
  if (!t->shard) return tr_error(TR_ERR_MEMORY, "%s: no memory to open it", path);
  TR_TRY(open_shard(t, path));
  return sort_names(t);
}

static tr_status open_folder(tr_tensors *t, const char *folder, const char *name) {
  char path[TR__CKPT_PATH_MAX], file[TR__CKPT_NAME_MAX];
  snprintf(file, sizeof file, "%s" TR__CKPT_TENSORS, name);
  TR_TRY(tr__ckpt_join(path, folder, file));
  if (tr_file_exists(path)) return open_single(t, path);
  snprintf(file, sizeof file, "%s" TR__CKPT_INDEX, name);
  TR_TRY(tr__ckpt_join(path, folder, file));
  if (tr_file_exists(path)) return open_index(t, path);
  return tr_error(TR_ERR_CKPT, "%s: neither %s" TR__CKPT_TENSORS " nor %s" TR__CKPT_INDEX " is in it%s", folder, name,
                  name, tr__ckpt_pickle_note(folder));
}

tr_status tr_tensors_open(const char *path, const char *name, tr_tensors **out) {
  struct stat about;
  if (stat(path, &about) != 0) return tr_error(TR_ERR_CKPT, "%s: no tensors: %s", path, strerror(errno));
  tr_tensors *t = calloc(1, sizeof *t);
  if (!t) return tr_error(TR_ERR_MEMORY, "%s: no memory to open it", path);
  tr_status status = S_ISDIR(about.st_mode) ? open_folder(t, path, name) : open_single(t, path);
  if (status == TR_OK)
    *out = t;
  else
    tr_tensors_close(t);
  return status;
}

void tr_tensors_close(tr_tensors *tensors) {
  if (!tensors) return;
  for (size_t i = 0; i < tensors->nshard; i++) {
    tr_safetensors_close(tensors->shard[i].file);
    free(tensors->shard[i].path);
  }
  free(tensors->shard);
  free(tensors->by_name);
  free(tensors);
}

// ---- reading

size_t tr_tensors_count(const tr_tensors *tensors) { return tensors->ntensor; }

size_t tr_tensors_files(const tr_tensors *tensors) { return tensors->nshard; }

const char *tr_tensors_file(const tr_tensors *tensors, size_t file) {
  return file < tensors->nshard ? tensors->shard[file].path : NULL;
}

uint64_t tr_tensors_bytes(const tr_tensors *tensors) { return tensors->nbyte; }

size_t tr_tensors_file_of(const tr_tensors *tensors, size_t i) {
  size_t low = 0, high = tensors->nshard;
  while (high - low > 1) {
    size_t middle = low + (high - low) / 2;
    if (tensors->shard[middle].first <= i)
      low = middle;
    else
      high = middle;
  }
  return low;
}

const tr_safetensors_entry *tr_tensors_at(const tr_tensors *tensors, size_t i) {
  if (i >= tensors->ntensor) return NULL;
  const shard *s = &tensors->shard[tr_tensors_file_of(tensors, i)];
  return tr_safetensors_at(s->file, i - s->first);
}

const tr_safetensors_entry *tr_tensors_find(const tr_tensors *tensors, const char *name) {
  const tr_safetensors_entry *const *found =
      bsearch(name, tensors->by_name, tensors->ntensor, sizeof *tensors->by_name, compare_key);
  return found ? *found : NULL;
}
