// SPDX-License-Identifier: MIT
// The head of a safetensors file that is to be written: every offset follows from the shapes, so it is known, and
// checked, before the first byte of data.
#include "ckpt/ckpt_internal.h"
#include "trireme/base/json.h"

#include <stdlib.h>
#include <string.h>

enum { ALIGN = 8 };

tr_status tr__st_check_data(const tr_safetensors_item *item) {
  char quoted[TR__CKPT_QUOTE_MAX];
  if (item->data || tr_shape_count(&item->shape) == 0) return TR_OK;
  return tr_error(TR_ERR_USAGE, "tensor '%s' has no data", tr__ckpt_quote(item->name, quoted));
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
static json_t *describe(const tr_safetensors_item *item, uint64_t begin, uint64_t end) {
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

static tr_status add_items(json_t *header, const tr_safetensors_item *item, size_t nitem, uint64_t *nbyte) {
  uint64_t begin = 0, end;
  char quoted[TR__CKPT_QUOTE_MAX];
  if (nitem > TR__ST_COUNT_MAX)
    return tr_error(TR_ERR_USAGE, "%zu tensors; the limit is %d", nitem, TR__ST_COUNT_MAX);
  for (size_t i = 0; i < nitem; i++, begin = end) {
    if (!item[i].name) return tr_error(TR_ERR_USAGE, "tensor %zu has no name", i);
    tr__ckpt_quote(item[i].name, quoted);
    TR_TRY(check_item(&item[i], quoted));
    if (json_object_get(header, item[i].name))
      return tr_error(TR_ERR_USAGE, "tensor '%s' is given twice; names must differ", quoted);
    if (__builtin_add_overflow(begin, tr__stored_nbyte(&item[i]), &end) || end > INT64_MAX)
      return tr_error(TR_ERR_USAGE, "tensor '%s' takes the file beyond 2^63 bytes", quoted);
    json_t *row = describe(&item[i], begin, end);
    if (!row) return tr_error(TR_ERR_MEMORY, "no memory to describe tensor '%s'", quoted);
    if (json_object_set_new(header, item[i].name, row) != 0)
      return tr_error(TR_ERR_USAGE, "name of tensor '%s' is not UTF-8", quoted);
  }
  *nbyte = begin;
  return TR_OK;
}

tr_status tr__st_header(const tr_safetensors_item *item, size_t nitem, const tr_metadata *metadata, size_t nmetadata,
                        tr_text *out, uint64_t *nbyte) {
  char *json = NULL;
  uint64_t data = 0;
  json_t *root = json_object();
  if (!root) return tr_error(TR_ERR_MEMORY, "no memory for the header");
  tr_status status = add_metadata(root, metadata, nmetadata);
  if (status == TR_OK) status = add_items(root, item, nitem, &data);
  if (status < 0) goto release_root;
  json = json_dumps(root, JSON_COMPACT);
  size_t length = json ? strlen(json) : 0;
  uint64_t size = (length + ALIGN - 1) / ALIGN * ALIGN;
  tr_text_append_bytes(out, &size, sizeof size);
  tr_text_append_bytes(out, json, length);
  tr_text_append_bytes(out, "        ", (size_t)size - length);
  *nbyte = sizeof size + size + data;
  if (!json || out->failed)
    status = tr_error(TR_ERR_MEMORY, "no memory for the header");
  else if (size > TR__ST_HEADER_MAX)
    status = tr_error(TR_ERR_USAGE, "header of %zu bytes is above the limit of %d bytes", length, TR__ST_HEADER_MAX);
  free(json);
release_root:
  json_decref(root);
  return status;
}
