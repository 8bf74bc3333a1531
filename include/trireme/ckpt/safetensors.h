// SPDX-License-Identifier: MIT
// safetensors files: u64 little-endian header size, JSON header, tensor data packed without holes, row-major.
//
// Reading maps the file and checks everything before any tensor is used: header at most 100 000 000 bytes, no
// duplicate names, known types, offsets in order without holes or overlaps, sizes that match shapes (128-bit
// products), the file exactly as long as it says. Writing streams tensor by tensor; nothing the size of the
// model is ever allocated.
#ifndef TRIREME_CKPT_SAFETENSORS_H
#define TRIREME_CKPT_SAFETENSORS_H

#include "trireme/base/status.h"
#include "trireme/tensor/dtype.h"
#include "trireme/tensor/shape.h"
#include <stddef.h>
#include <stdint.h>

typedef struct tr_safetensors tr_safetensors;

typedef struct tr_safetensors_entry {
  const char *name;
  tr_dtype type;
  tr_shape shape;
  const void *data; // inside the map; not necessarily aligned to the element size
  size_t nbyte;
  const tr_safetensors *file; // whose map that is
} tr_safetensors_entry;

// TR_ERR_CKPT naming file, tensor and fault; TR_ERR_IO when it cannot be opened. Entries, names and metadata belong
// to the file and go with it.
tr_status tr_safetensors_open(const char *path, tr_safetensors **out);
void tr_safetensors_close(tr_safetensors *file);
size_t tr_safetensors_count(const tr_safetensors *file);
const tr_safetensors_entry *tr_safetensors_at(const tr_safetensors *file, size_t i); // file order
// NULL if absent.
const tr_safetensors_entry *tr_safetensors_find(const tr_safetensors *file, const char *name);
const char *tr_safetensors_metadata(const tr_safetensors *file, const char *key);

// Copy a tensor into dst as `type`, transposing a 2-D tensor on the way if asked ([a, b] stored, [b, a] in memory).
// TR_ERR_IO when the file was cut short after it was opened.
tr_status tr_safetensors_read(const tr_safetensors_entry *entry, int transpose, tr_dtype type, void *dst);

// One tensor to be written. `shape` and `type` are those of the memory at `data`; stored as `stored_type`,
// and transposed if asked.
typedef struct tr_safetensors_item {
  const char *name;
  tr_dtype type, stored_type;
  tr_shape shape;
  const void *data;
  int transpose;
} tr_safetensors_item;

typedef struct tr_metadata {
  const char *key, *value;
} tr_metadata;

// Write a new file (must not exist) and fsync it; *hash (may be NULL) gets the XXH3-64 of the bytes written;
// tensor_hash (may be NULL) one per item, of its stored bytes. `progress` (may be NULL) is called between blocks of
// at most 16 MiB. TR_ERR_USAGE or TR_ERR_IO; no unfinished file is left.
tr_status tr_safetensors_write(const char *path, const tr_safetensors_item *item, size_t nitem,
                               const tr_metadata *metadata, size_t nmetadata, uint64_t *hash, uint64_t *tensor_hash,
                               void (*progress)(void *), void *user);

#endif
