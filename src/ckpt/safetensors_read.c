// SPDX-License-Identifier: MIT
// Reading safetensors files: map, check everything, then hand out pointers into the map.
//
//   0        8             8+H                     end of file
//   | u64 H  | JSON, H bytes | tensor data, packed   |
//
// The file is not trusted. Before jansson sees the header, one pass over its bytes bounds nesting and the
// numbers of values and tensors (so a header of 100 MB cannot become many times that in memory); afterwards every entry is
// checked alone (type, shape, size), and all entries together, sorted by offset, must tile the data exactly.
// Names and metadata stay in the JSON tree, which lives as long as the file. A file that another process
// truncates while it is mapped reads as zeros from there on, and whoever has read from it is told (base/file.h).
#include "ckpt/ckpt_internal.h"
#include "trireme/base/file.h"
#include "trireme/base/json.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum {
  DEPTH_MAX = 8,                     // root, tensor, array: 3 are used
  VALUE_MAX = 16 * TR__ST_COUNT_MAX, // commas: a tensor of eight dimensions needs 12
};

struct tr_safetensors {
  tr_file_map map;
  char *path;
  size_t start;   // of the data
  json_t *header; // owns all names
  const json_t *metadata;
  tr_safetensors_entry *entry; // file order
  const tr_safetensors_entry **by_name;
  size_t nentry;
};

const char *tr__ckpt_quote(const char *name, char out[TR__CKPT_QUOTE_MAX]) {
  size_t n = strnlen(name, TR__CKPT_QUOTE_MAX);
  size_t keep = n < TR__CKPT_QUOTE_MAX - 4 ? n : TR__CKPT_QUOTE_MAX - 4;
  for (size_t i = 0; i < keep; i++) {
    unsigned char c = (unsigned char)name[i];
    out[i] = c < 0x20 || c == 0x7f ? '?' : name[i];
  }
  memcpy(out + keep, keep < n ? "..." : "", keep < n ? 4 : 1);
  return out;
}

// A failure recorded by a general function becomes one of this file.
static tr_status bad_file(const char *path) { return tr_error(TR_ERR_CKPT, "%s: %s", path, tr_status_text()); }

// Text that is not JSON may pass; the parser refuses it. One member more than there may be tensors is metadata.
tr_status tr__st_check_extent(const char *path, const char *text, size_t nbyte, int tensor_depth) {
  int depth = 0, in_string = 0;
  size_t nvalue = 0, ntensor = 0;
  for (size_t i = 0; i < nbyte; i++) {
    char c = text[i];
    if (in_string) {
      if (c == '\\') i++;
      in_string = c != '"';
      continue;
    }
    in_string = c == '"';
    if ((c == '{' || c == '[') && ++depth > DEPTH_MAX) {
      return tr_error(TR_ERR_CKPT, "%s: header is nested more than %d deep at byte %zu", path, DEPTH_MAX, i);
    }
    depth -= c == '}' || c == ']';
    if (c != ',') continue;
    if (depth == tensor_depth && ++ntensor > TR__ST_COUNT_MAX)
      return tr_error(TR_ERR_CKPT, "%s: more than %d tensors, which is the limit", path, TR__ST_COUNT_MAX);
    if (++nvalue > VALUE_MAX) return tr_error(TR_ERR_CKPT, "%s: header has more than %d values", path, VALUE_MAX);
  }
  return TR_OK;
}

// How the system should read the map: only hints, so whether they are taken does not matter.
static void advise(const tr_file_map *map, size_t nbyte, int advice) {
  if (map->data) madvise((void *)(uintptr_t)map->data, nbyte, advice);
}

// The header's bytes in few requests, and none behind it.
static void fetch_header(const tr_file_map *map, size_t nbyte) {
  enum { STEP = 1 << 20 };
  for (size_t at = 0; at < nbyte; at += STEP)
    madvise((void *)(uintptr_t)(map->data + at), nbyte - at < STEP ? nbyte - at : STEP, MADV_WILLNEED);
}

static tr_status parse_header(const char *path, const tr_file_map *map, size_t *header_size, json_t **out) {
  uint64_t size = 0;
  if (map->nbyte < sizeof size) {
    return tr_error(TR_ERR_CKPT, "%s: %zu bytes are too few for a safetensors file (at least 8)", path, map->nbyte);
  }
  memcpy(&size, map->data, sizeof size);
  if (size == 0) return tr_error(TR_ERR_CKPT, "%s: header size is 0; the smallest header is {}", path);
  if (size > TR__ST_HEADER_MAX) {
    return tr_error(TR_ERR_CKPT,
                    "%s: not a safetensors file, or damaged: its first 8 bytes give a header of %" PRIu64
                    " bytes, the limit is %d",
                    path, size, TR__ST_HEADER_MAX);
  }
  if (size > map->nbyte - sizeof size) {
    return tr_error(TR_ERR_CKPT, "%s: header size %" PRIu64 " does not fit into a file of %zu bytes (truncated?)",
                    path, size, map->nbyte);
  }
  fetch_header(map, sizeof size + (size_t)size);
  const char *text = (const char *)map->data + sizeof size;
  if (text[0] != '{') {
    return tr_error(TR_ERR_CKPT, "%s: header starts with byte 0x%02x instead of '{'", path, (unsigned char)text[0]);
  }
  TR_TRY(tr__st_check_extent(path, text, (size_t)size, 1));
  tr_status status = tr_json_parse(text, (size_t)size, "header", out);
  if (status == TR_ERR_DATA) return bad_file(path);
  *header_size = (size_t)size;
  return status;
}

static tr_status check_metadata(const char *path, json_t *header, const json_t **out) {
  json_t *metadata = json_object_get(header, "__metadata__");
  const char *key;
  json_t *value;
  char quoted[TR__CKPT_QUOTE_MAX];
  *out = metadata;
  if (!metadata) return TR_OK;
  if (!json_is_object(metadata)) return tr_error(TR_ERR_CKPT, "%s: __metadata__ is not an object", path);
  json_object_foreach(metadata, key, value) {
    if (!json_is_string(value)) {
      return tr_error(TR_ERR_CKPT, "%s: __metadata__ key '%s' is not a string; only strings are allowed", path,
                      tr__ckpt_quote(key, quoted));
    }
  }
  return TR_OK;
}

static tr_status parse_type(const json_t *value, tr_dtype *out) {
  const char *text = json_string_value(value);
  char quoted[TR__CKPT_QUOTE_MAX];
  if (!text) return tr_error(TR_ERR_CKPT, "dtype is missing or not a string");
  for (int type = 0; type < TR_DTYPE_COUNT; type++) {
    if (strcmp(text, tr_dtype_safetensors((tr_dtype)type)) != 0) continue;
    *out = (tr_dtype)type;
    return TR_OK;
  }
  return tr_error(TR_ERR_CKPT, "dtype '%s' is not known; known are F64 F32 F16 BF16 F8_E4M3 F8_E5M2 I64 I32 U8",
                  tr__ckpt_quote(text, quoted));
}

static tr_status parse_shape(const json_t *value, tr_shape *out) {
  if (!json_is_array(value)) return tr_error(TR_ERR_CKPT, "shape is missing or not an array");
  if (json_array_size(value) > TR_MAX_DIM) {
    return tr_error(TR_ERR_CKPT, "shape has %zu dimensions; up to %d are possible", json_array_size(value),
                    TR_MAX_DIM);
  }
  out->ndim = (int)json_array_size(value);
  for (int i = 0; i < out->ndim; i++) {
    const json_t *dim = json_array_get(value, (size_t)i);
    if (!json_is_integer(dim)) return tr_error(TR_ERR_CKPT, "dimension %d of its shape is not an integer", i);
    out->dim[i] = json_integer_value(dim);
  }
  return TR_OK;
}

static tr_status parse_offsets(const json_t *value, size_t ndata, size_t *begin, size_t *end) {
  if (!json_is_array(value) || json_array_size(value) != 2 || !json_is_integer(json_array_get(value, 0)) ||
      !json_is_integer(json_array_get(value, 1)))
    return tr_error(TR_ERR_CKPT, "data_offsets is not an array of two integers");
  int64_t from = json_integer_value(json_array_get(value, 0)), to = json_integer_value(json_array_get(value, 1));
  if (from < 0 || to < from || (uint64_t)to > ndata) {
    return tr_error(TR_ERR_CKPT,
                    "data_offsets [%" PRId64 ", %" PRId64 "] are not within the %zu bytes of data (truncated?)", from,
                    to, ndata);
  }
  *begin = (size_t)from;
  *end = (size_t)to;
  return TR_OK;
}

// One tensor's description, without its neighbours. Failures are recorded without path and name.
static tr_status parse_entry(const tr_safetensors *file, const char *name, const json_t *value,
                             const unsigned char *data, size_t ndata, tr_safetensors_entry *out) {
  size_t begin = 0, end = 0;
  char quoted[TR__CKPT_QUOTE_MAX];
  *out = (tr_safetensors_entry){.name = name, .file = file};
  if (strlen(name) > TR__ST_NAME_MAX)
    return tr_error(TR_ERR_CKPT, "name has %zu bytes; the limit is %d", strlen(name), TR__ST_NAME_MAX);
  if (!json_is_object(value)) return tr_error(TR_ERR_CKPT, "description is not an object");
  TR_TRY(parse_type(json_object_get(value, "dtype"), &out->type));
  TR_TRY(parse_shape(json_object_get(value, "shape"), &out->shape));
  TR_TRY(parse_offsets(json_object_get(value, "data_offsets"), ndata, &begin, &end));
  TR_TRY(tr_shape_check(&out->shape, out->type, tr__ckpt_quote(name, quoted)));
  uint64_t wanted = (uint64_t)tr_shape_count(&out->shape) * tr_dtype_size(out->type);
  if (wanted != end - begin) {
    return tr_error(TR_ERR_CKPT, "shape and dtype need %" PRIu64 " bytes, data_offsets give %zu", wanted,
                    end - begin);
  }
  out->data = data + begin;
  out->nbyte = end - begin;
  return TR_OK;
}

// Empty tensors come before the one that starts where they are.
static int compare_offset(const void *a, const void *b) {
  const tr_safetensors_entry *x = a, *y = b;
  if (x->data != y->data) return (uintptr_t)x->data < (uintptr_t)y->data ? -1 : 1;
  if (x->nbyte != y->nbyte) return x->nbyte < y->nbyte ? -1 : 1;
  return strcmp(x->name, y->name);
}

static int compare_name(const void *a, const void *b) {
  const tr_safetensors_entry *const *x = a, *const *y = b;
  return strcmp((*x)->name, (*y)->name);
}

static int compare_key(const void *key, const void *b) {
  const tr_safetensors_entry *const *y = b;
  return strcmp(key, (*y)->name);
}

static tr_status check_tiling(const char *path, const tr_safetensors *file, const unsigned char *data, size_t ndata) {
  size_t next = 0;
  char quoted[TR__CKPT_QUOTE_MAX];
  for (size_t i = 0; i < file->nentry; i++) {
    const tr_safetensors_entry *entry = &file->entry[i];
    size_t begin = (size_t)((const unsigned char *)entry->data - data);
    if (begin != next) {
      return tr_error(TR_ERR_CKPT, "%s: tensor '%s' starts at byte %zu of the data where %zu was due: %s", path,
                      tr__ckpt_quote(entry->name, quoted), begin, next, begin < next ? "an overlap" : "a hole");
    }
    next = begin + entry->nbyte;
  }
  if (next == ndata) return TR_OK;
  return tr_error(TR_ERR_CKPT, "%s: %zu bytes at the end belong to no tensor", path, ndata - next);
}

static tr_status parse_entries(const char *path, tr_safetensors *file, const unsigned char *data, size_t ndata) {
  size_t count = json_object_size(file->header) - (file->metadata ? 1 : 0);
  if (count > TR__ST_COUNT_MAX)
    return tr_error(TR_ERR_CKPT, "%s: %zu tensors; the limit is %d", path, count, TR__ST_COUNT_MAX);
  file->entry = calloc(count ? count : 1, sizeof *file->entry);
  file->by_name = calloc(count ? count : 1, sizeof *file->by_name);
  if (!file->entry || !file->by_name) return tr_error(TR_ERR_MEMORY, "%s: no memory for %zu entries", path, count);
  const char *name;
  json_t *value;
  json_object_foreach(file->header, name, value) {
    char quoted[TR__CKPT_QUOTE_MAX];
    if (value == file->metadata) continue;
    if (parse_entry(file, name, value, data, ndata, &file->entry[file->nentry++]) < 0) {
      return tr_error(TR_ERR_CKPT, "%s: tensor '%s': %s", path, tr__ckpt_quote(name, quoted), tr_status_text());
    }
  }
  qsort(file->entry, count, sizeof *file->entry, compare_offset);
  for (size_t i = 0; i < count; i++) file->by_name[i] = &file->entry[i];
  qsort(file->by_name, count, sizeof *file->by_name, compare_name);
  return check_tiling(path, file, data, ndata);
}

tr_status tr_safetensors_open(const char *path, tr_safetensors **out) {
  size_t header_size = 0;
  tr_safetensors *file = calloc(1, sizeof *file);
  if (!file) return tr_error(TR_ERR_MEMORY, "%s: no memory to open it", path);
  tr_status status = tr_file_map_open(path, &file->map);
  file->path = strdup(path);
  if (status == TR_OK && !file->path) status = tr_error(TR_ERR_MEMORY, "%s: no memory to open it", path);
  // Opening reads the header and nothing else, however far ahead the system likes to read.
  if (status == TR_OK) advise(&file->map, file->map.nbyte, MADV_RANDOM);
  if (status == TR_OK) status = parse_header(path, &file->map, &header_size, &file->header);
  if (status == TR_OK) status = check_metadata(path, file->header, &file->metadata);
  if (status == TR_OK) {
    size_t start = file->start = sizeof(uint64_t) + header_size;
    status = parse_entries(path, file, file->map.data + start, file->map.nbyte - start);
  }
  if (status == TR_OK) status = tr_file_map_check(&file->map, path);
  if (status < 0) {
    tr_safetensors_close(file);
    return status;
  }
  // From here on in large pages, where the file system has them: several times faster from a cold disk.
  advise(&file->map, file->map.nbyte, MADV_NORMAL);
  advise(&file->map, file->map.nbyte, MADV_HUGEPAGE);
  *out = file;
  return TR_OK;
}

void tr_safetensors_close(tr_safetensors *file) {
  if (!file) return;
  free(file->by_name);
  free(file->entry);
  json_decref(file->header);
  tr_file_map_close(&file->map);
  free(file->path);
  free(file);
}

const unsigned char *tr__st_bytes(const tr_safetensors *file) { return file->map.data; }

size_t tr__st_header_nbyte(const tr_safetensors *file) { return file->start; }

tr_status tr__st_check_map(const tr_safetensors *file) { return tr_file_map_check(&file->map, file->path); }

size_t tr_safetensors_count(const tr_safetensors *file) { return file->nentry; }

const tr_safetensors_entry *tr_safetensors_at(const tr_safetensors *file, size_t i) {
  return i < file->nentry ? &file->entry[i] : NULL;
}

const tr_safetensors_entry *tr_safetensors_find(const tr_safetensors *file, const char *name) {
  const tr_safetensors_entry *const *found =
      bsearch(name, file->by_name, file->nentry, sizeof *file->by_name, compare_key);
  return found ? *found : NULL;
}

const char *tr_safetensors_metadata(const tr_safetensors *file, const char *key) {
  return json_string_value(json_object_get(file->metadata, key));
}

tr_status tr_safetensors_read(const tr_safetensors_entry *entry, int transpose, tr_dtype type, void *dst) {
  char quoted[TR__CKPT_QUOTE_MAX];
  if (transpose && entry->shape.ndim != 2) {
    return tr_error(TR_ERR_USAGE, "tensor '%s' has %d dimensions; only 2-D tensors can be transposed",
                    tr__ckpt_quote(entry->name, quoted), entry->shape.ndim);
  }
  tr__stored_range(&(tr_safetensors_item){entry->name, entry->type, type, entry->shape, entry->data, transpose}, 0,
                   (size_t)tr_shape_count(&entry->shape), dst);
  return tr__st_check_map(entry->file);
}
