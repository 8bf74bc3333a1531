// SPDX-License-Identifier: MIT
// Writing one safetensors file: header first, then tensor after tensor through one buffer of at most 16 MiB.
//
// All offsets follow from the shapes, so nothing has to be written twice. Tensors are copied, converted or transposed
// into the buffer and hashed there, for the file and for the tensor. A failure removes the unfinished file.
#include "ckpt/ckpt_internal.h"

#include <stdlib.h>
#include <unistd.h>
#include <xxhash.h>

typedef struct request {
  const tr_safetensors_item *item;
  size_t nitem;
  const tr_text *header;
  uint64_t nbyte;
  uint64_t *hash, *tensor_hash;
  void (*progress)(void *);
  void *user;
} request;

static tr_status pass_on(void *user, size_t nbyte) {
  const request *r = user;
  (void)nbyte;
  if (r->progress) r->progress(r->user);
  return TR_OK;
}

static tr_status write_stream(tr__stream *stream, const request *r) {
  uint64_t unused;
  TR_TRY(tr__stream_bytes(stream, r->header->data, r->header->size));
  for (size_t i = 0; i < r->nitem; i++)
    TR_TRY(tr__stream_item(stream, &r->item[i], r->tensor_hash ? &r->tensor_hash[i] : &unused));
  return tr__stream_flush(stream);
}

static tr_status write_file(const char *path, request *r) {
  tr__part_file file = {.wrote = pass_on, .user = r};
  tr__stream stream;
  TR_TRY(tr__part_create(&file, path, r->nbyte));
  tr_status status = tr__stream_open(&stream, &file, r->nbyte);
  if (status < 0) goto close_file;
  stream.hash = XXH3_createState();
  if (stream.hash) {
    XXH3_64bits_reset(stream.hash);
    status = write_stream(&stream, r);
    if (status == TR_OK && r->hash) *r->hash = XXH3_64bits_digest(stream.hash);
  } else {
    status = tr_error(TR_ERR_MEMORY, "%s: no memory for a hash", path);
  }
  XXH3_freeState(stream.hash);
  tr__stream_close(&stream);
close_file:
  if (status == TR_OK)
    status = tr__part_finish(&file);
  else
    tr__part_abandon(&file);
  if (status < 0) unlink(path);
  return status;
}

tr_status tr_safetensors_write(const char *path, const tr_safetensors_item *item, size_t nitem,
                               const tr_metadata *metadata, size_t nmetadata, uint64_t *hash, uint64_t *tensor_hash,
                               void (*progress)(void *), void *user) {
  tr_text header = {0};
  request r = {item, nitem, &header, 0, hash, tensor_hash, progress, user};
  tr_status status = tr__st_header(item, nitem, metadata, nmetadata, &header, &r.nbyte);
  for (size_t i = 0; i < nitem && status == TR_OK; i++) status = tr__st_check_data(&item[i]);
  if (status < 0)
    tr_error_prefix("%s", path);
  else
    status = write_file(path, &r);
  tr_text_free(&header);
  return status;
}
