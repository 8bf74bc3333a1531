// SPDX-License-Identifier: MIT
// The tensors of a model or checkpoint, in one file or many: a .safetensors file, or a folder that holds NAME.safetensors
// or NAME.safetensors.index.json with its shards NAME-0000i-of-0000N.safetensors. Opening maps and checks headers and reads
// no weights: a folder of many gigabytes opens in milliseconds.
#ifndef TRIREME_CKPT_TENSORS_H
#define TRIREME_CKPT_TENSORS_H

#include "trireme/ckpt/safetensors.h"

typedef struct tr_tensors tr_tensors;

// `name` is "model" or "optimizer" for a folder, ignored for a file. TR_ERR_CKPT: no such tensors, an index whose
// file names are not plain base names, a tensor that its shard does not have or that two shards have, tensors that the
// index does not list, a file missing.
tr_status tr_tensors_open(const char *path, const char *name, tr_tensors **out);
void tr_tensors_close(tr_tensors *tensors); // NULL allowed
size_t tr_tensors_count(const tr_tensors *tensors);
const tr_safetensors_entry *tr_tensors_at(const tr_tensors *tensors, size_t i);           // by file, in file order
const tr_safetensors_entry *tr_tensors_find(const tr_tensors *tensors, const char *name); // NULL if absent
size_t tr_tensors_files(const tr_tensors *tensors);
const char *tr_tensors_file(const tr_tensors *tensors, size_t file); // its path
size_t tr_tensors_file_of(const tr_tensors *tensors, size_t i);      // file number of tensor i
uint64_t tr_tensors_bytes(const tr_tensors *tensors);

// Cut a list of items into files of at most `limit` bytes of data (one tensor may exceed it), in order: writes the
// number of the file of each item into file_of[nitem] and returns the count of files. limit 0: one file.
size_t tr_tensors_cut(const tr_safetensors_item *item, size_t nitem, uint64_t limit, size_t *file_of);
// The name of file i of n: "model.safetensors" when n is 1, else "model-00001-of-00003.safetensors".
void tr_tensors_file_name(const char *name, size_t i, size_t n, char *out, size_t nbyte);
// The text of NAME.safetensors.index.json; the caller frees it.
tr_status tr_tensors_index_text(const char *name, const tr_safetensors_item *item, size_t nitem,
                                const size_t *file_of, size_t nfile, char **text);

#endif
