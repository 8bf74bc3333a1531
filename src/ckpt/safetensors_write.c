// SPDX-License-Identifier: MIT
// Writing safetensors files: header first, then tensor after tensor through one buffer of at most 16 MiB.
//
// All offsets follow from the shapes, so nothing has to be written twice and the file never seeks. A block is a run
// of stored elements: copied, converted or transposed into the buffer, hashed twice (for the file and for the tensor)
// and written, then `progress` is called. A transposed tensor is cut into blocks of whole stored rows, or, when one
// row is longer than the buffer, into parts of a row. A failure removes the unfinished file.
#include "ckpt/ckpt_internal.h"
#include "trireme/base/file.h"
#include "trireme/base/json.h"
#include "trireme/base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

enum { BLOCK = 16 << 20, SYNC_BYTES = 64 << 20, ALIGN = 8 };

typedef struct writer {
  int fd;
  const char *path;
  unsigned char *buffer;
  size_t nbuffer; // at least one element, at most BLOCK
  XXH3_state_t *file, *tensor;
  size_t unsynced; // bytes since the last fdatasync
  void (*progress)(void *);
  void *user;
} writer;

static size_t stored_bytes(const tr_safetensors_item *item) {
  return (size_t)tr_shape_count(&item->shape) * tr_dtype_size(item->stored_type);
}

static tr_shape stored_shape(const tr_safetensors_item *item) {
  tr_shape shape = item->shape;
  if (!item->transpose) return shape;
  shape.dim[0] = item->shape.dim[1];
  shape.dim[1] = item->shape.dim[0];
  return shape;
}

static tr_status check_item(const tr_safetensors_item *item, const char *quoted) {
  if (strlen(item->name) > TR__ST_NAME_MAX)
    return tr_error(TR_ERR_USAGE, "tensor '%s': name is longer than %d bytes", quoted, TR__ST_NAME_MAX);
  if (strcmp(item->name, "__metadata__") == 0)
    return tr_error(TR_ERR_USAGE, "a tensor cannot be named __metadata__; the format reserves that name");
  if ((unsigned)item->type >= TR_DTYPE_COUNT || (unsigned)item->stored_type >= TR_DTYPE_COUNT)
    return tr_error(TR_ERR_USAGE, "tensor '%s': type %d or %d is none of tr_dtype", quoted, (int)item->type,
                    (int)item->stored_type);
  TR_TRY(tr_shape_check(&item->shape, item->type, quoted));
  TR_TRY(tr_shape_check(&item->shape, item->stored_type, quoted));
  if (item->transpose && item->shape.ndim != 2)
    return tr_error(TR_ERR_USAGE, "tensor '%s' has %d dimensions; only 2-D tensors can be transposed", quoted,
                    item->shape.ndim);
  if (!item->data && tr_shape_count(&item->shape) > 0)
    return tr_error(TR_ERR_USAGE, "tensor '%s' has no data", quoted);
  return TR_OK;
}

static tr_status add_metadata(json_t *header, const tr_metadata *metadata, size_t nmetadata) {
  char quoted[TR__CKPT_QUOTE_MAX];
  if (nmetadata == 0) return TR_OK;
  json_t *object = json_object();
  if (json_object_set_new(header, "__metadata__", object) != 0)
    return tr_error(TR_ERR_MEMORY, "no memory for metadata");
  for (size_t i = 0; i < nmetadata; i++) {
    tr__ckpt_quote(metadata[i].key, quoted);
    if (json_object_get(object, metadata[i].key))
      return tr_error(TR_ERR_USAGE, "metadata key '%s' is given twice", quoted);
    if (json_object_set_new(object, metadata[i].key, json_string(metadata[i].value)) != 0)
      return tr_error(TR_ERR_USAGE, "metadata key '%s' or its value is not UTF-8", quoted);
  }
  return TR_OK;
}

// The description of one tensor; NULL when there is no memory.
static json_t *describe(const tr_safetensors_item *item, size_t begin, size_t end) {
  tr_shape shape = stored_shape(item);
  json_t *dims = json_array();
  for (int i = 0; i < shape.ndim; i++) {
    if (json_array_append_new(dims, json_integer(shape.dim[i])) != 0) {
      json_decref(dims);
      return NULL;
    }
  }
  return json_pack("{s:s, s:o, s:[I, I]}", "dtype", tr_dtype_safetensors(item->stored_type), "shape", dims,
                   "data_offsets", (json_int_t)begin, (json_int_t)end);
}

static tr_status add_items(json_t *header, const tr_safetensors_item *item, size_t nitem) {
  size_t begin = 0, end;
  char quoted[TR__CKPT_QUOTE_MAX];
  if (nitem > TR__ST_COUNT_MAX)
    return tr_error(TR_ERR_USAGE, "%zu tensors; the limit is %d", nitem, TR__ST_COUNT_MAX);
  for (size_t i = 0; i < nitem; i++, begin = end) {
    if (!item[i].name) return tr_error(TR_ERR_USAGE, "tensor %zu has no name", i);
    tr__ckpt_quote(item[i].name, quoted);
    TR_TRY(check_item(&item[i], quoted));
    if (json_object_get(header, item[i].name))
      return tr_error(TR_ERR_USAGE, "tensor '%s' is given twice; names must differ", quoted);
    if (__builtin_add_overflow(begin, stored_bytes(&item[i]), &end) || end > INT64_MAX)
      return tr_error(TR_ERR_USAGE, "tensor '%s' takes the file beyond 2^63 bytes", quoted);
    json_t *row = describe(&item[i], begin, end);
    if (!row) return tr_error(TR_ERR_MEMORY, "no memory to describe tensor '%s'", quoted);
    if (json_object_set_new(header, item[i].name, row) != 0)
      return tr_error(TR_ERR_USAGE, "name of tensor '%s' is not UTF-8", quoted);
  }
  return TR_OK;
}

// Size and JSON, padded with spaces to a multiple of 8, as they go into the file.
static tr_status make_header(const tr_safetensors_item *item, size_t nitem, const tr_metadata *metadata,
                             size_t nmetadata, tr_text *out) {
  char *json = NULL;
  json_t *root = json_object();
  if (!root) return tr_error(TR_ERR_MEMORY, "no memory for the header");
  tr_status status = add_metadata(root, metadata, nmetadata);
  if (status == TR_OK) status = add_items(root, item, nitem);
  if (status < 0) goto release_root;
  json = json_dumps(root, JSON_COMPACT);
  size_t length = json ? strlen(json) : 0;
  uint64_t size = (length + ALIGN - 1) / ALIGN * ALIGN;
  tr_text_append_bytes(out, &size, sizeof size);
  tr_text_append_bytes(out, json, length);
  tr_text_append_bytes(out, "        ", (size_t)size - length);
  if (!json || out->failed)
    status = tr_error(TR_ERR_MEMORY, "no memory for the header");
  else if (size > TR__ST_HEADER_MAX)
    status = tr_error(TR_ERR_USAGE, "header of %zu bytes is above the limit of %d bytes", length, TR__ST_HEADER_MAX);
  free(json);
release_root:
  json_decref(root);
  return status;
}

static tr_status put(writer *w, const void *data, size_t nbyte) {
  TR_TRY(tr_file_write_all(w->fd, data, nbyte, w->path));
  XXH3_64bits_update(w->file, data, nbyte);
  XXH3_64bits_update(w->tensor, data, nbyte);
  // To disk as we go, so that the fsync at the end, during which nobody hears of progress, has little left to do.
  w->unsynced += nbyte;
  if (w->unsynced >= SYNC_BYTES) {
    if (fdatasync(w->fd) != 0) return tr_error(TR_ERR_IO, "%s: cannot force to disk: %s", w->path, strerror(errno));
    w->unsynced = 0;
  }
  if (w->progress) w->progress(w->user);
  return TR_OK;
}

static tr_status put_header(writer *w, const tr_text *header) {
  for (size_t i = 0; i < header->size; i += BLOCK) {
    TR_TRY(put(w, header->data + i, header->size - i < BLOCK ? header->size - i : BLOCK));
  }
  return TR_OK;
}

static tr_status put_straight(writer *w, const tr_safetensors_item *item) {
  const unsigned char *data = item->data;
  size_t count = (size_t)tr_shape_count(&item->shape), size = tr_dtype_size(item->stored_type);
  size_t block = w->nbuffer / size;
  for (size_t i = 0; i < count; i += block) {
    size_t part = count - i < block ? count - i : block;
    tr__ckpt_copy(item->type, data + i * tr_dtype_size(item->type), item->stored_type, w->buffer, part);
    TR_TRY(put(w, w->buffer, part * size));
  }
  return TR_OK;
}

static tr_status put_transposed(writer *w, const tr_safetensors_item *item) {
  size_t size = tr_dtype_size(item->stored_type);
  size_t ncol = (size_t)item->shape.dim[0], nrow = (size_t)item->shape.dim[1]; // as stored
  if (ncol == 0 || nrow == 0) return TR_OK;
  size_t room = w->nbuffer / size;
  size_t cols = ncol < room ? ncol : room, rows = cols < ncol ? 1 : room / ncol;
  for (size_t row = 0; row < nrow; row += rows) {
    size_t row_end = nrow - row < rows ? nrow : row + rows;
    for (size_t col = 0; col < ncol; col += cols) {
      size_t col_end = ncol - col < cols ? ncol : col + cols;
      tr__ckpt_transpose(item->type, item->data, nrow, row, row_end, col, col_end, item->stored_type, w->buffer);
      TR_TRY(put(w, w->buffer, (row_end - row) * (col_end - col) * size));
    }
  }
  return TR_OK;
}

static tr_status write_items(writer *w, const tr_safetensors_item *item, size_t nitem, uint64_t *tensor_hash) {
  for (size_t i = 0; i < nitem; i++) {
    XXH3_64bits_reset(w->tensor);
    TR_TRY(item[i].transpose ? put_transposed(w, &item[i]) : put_straight(w, &item[i]));
    if (tensor_hash) tensor_hash[i] = XXH3_64bits_digest(w->tensor);
  }
  return TR_OK;
}

static tr_status io_error(const char *path, const char *verb) {
  return tr_error(TR_ERR_IO, "%s: cannot %s: %s", path, verb, strerror(errno));
}

// Create the file, write everything, force it to disk.
static tr_status write_file(writer *w, const tr_text *header, const tr_safetensors_item *item, size_t nitem,
                            uint64_t *tensor_hash) {
  w->fd = open(w->path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
  if (w->fd < 0) return io_error(w->path, "create");
  tr_status status = put_header(w, header);
  if (status == TR_OK) status = write_items(w, item, nitem, tensor_hash);
  if (status == TR_OK && fsync(w->fd) != 0) status = io_error(w->path, "force to disk");
  if (close(w->fd) != 0 && errno != EINTR && status == TR_OK) status = io_error(w->path, "close");
  if (status < 0) unlink(w->path);
  return status;
}

static tr_status acquire(writer *w, const tr_safetensors_item *item, size_t nitem) {
  w->nbuffer = 8;
  for (size_t i = 0; i < nitem; i++) {
    size_t nbyte = stored_bytes(&item[i]);
    if (nbyte > w->nbuffer) w->nbuffer = nbyte < BLOCK ? nbyte : BLOCK;
  }
  w->buffer = malloc(w->nbuffer);
  w->file = XXH3_createState();
  w->tensor = XXH3_createState();
  if (!w->buffer || !w->file || !w->tensor)
    return tr_error(TR_ERR_MEMORY, "%s: no memory for a buffer of %zu bytes", w->path, w->nbuffer);
  XXH3_64bits_reset(w->file);
  XXH3_64bits_reset(w->tensor);
  return TR_OK;
}

tr_status tr_safetensors_write(const char *path, const tr_safetensors_item *item, size_t nitem,
                               const tr_metadata *metadata, size_t nmetadata, uint64_t *hash, uint64_t *tensor_hash,
                               void (*progress)(void *), void *user) {
  tr_text header = {0};
  writer w = {.path = path, .progress = progress, .user = user};
  tr_status status = make_header(item, nitem, metadata, nmetadata, &header);
  if (status < 0) {
    tr_error_prefix("%s", path);
    goto release;
  }
  status = acquire(&w, item, nitem);
  if (status == TR_OK) status = write_file(&w, &header, item, nitem, tensor_hash);
  if (status == TR_OK && hash) *hash = XXH3_64bits_digest(w.file);
release:
  XXH3_freeState(w.tensor);
  XXH3_freeState(w.file);
  free(w.buffer);
  tr_text_free(&header);
  return status;
}
