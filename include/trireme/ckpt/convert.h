// SPDX-License-Identifier: MIT
// From one folder of weights to another: Hugging Face folders and checkpoints of our own in both directions, other
// number types, other numbers of files. Streams: never more than one tensor in memory. The new folder appears whole or
// not at all.
#ifndef TRIREME_CKPT_CONVERT_H
#define TRIREME_CKPT_CONVERT_H

#include "trireme/ckpt/tensors.h"

typedef enum tr_convert_names {
  TR_NAMES_KEEP,  // as they are in the source
  TR_NAMES_MODEL, // as the library writes them ("transformer.h.0...", "model.layers.0...")
} tr_convert_names;

typedef struct tr_convert_options {
  const char *from, *to; // `to` must not exist
  int64_t dtype;         // tr_dtype of floating tensors; -1: as they are
  uint64_t shard_limit;  // most bytes per file; 0: one file
  int64_t shards;        // or so many files of about the same size; 0: shard_limit decides
  tr_convert_names names;
  int optimizer; // also take the optimizer's state and trainer.json: the result can be resumed from
  void (*progress)(void *user, uint64_t done, uint64_t all);
  void *user;
} tr_convert_options;

// Checks that the tensors are those of config.json (missing, unexpected and mis-shaped ones are listed), copies
// tokenizer and generation files along, and writes a manifest. TR_ERR_CKPT, TR_ERR_IO, TR_ERR_CONFIG.
tr_status tr_convert_folder(const tr_convert_options *options);

// The names of the texts that belong to a model besides weights and config.json (tokenizer.json, generation_config.json,
// ...): whoever makes a folder of a model from another one copies those that are there. NULL behind the last.
const char *tr_convert_side_file(size_t i);

// ---- comparing
typedef struct tr_diff_entry {
  const char *name;
  const char *what; // "same", "different", "only in the first", "only in the second", "other shape", "other type"
  double largest;   // |a - b|, when both can be compared as numbers
  double relative;  // largest / largest |a|
  int64_t unequal;  // elements whose bytes differ
} tr_diff_entry;
// Compare the tensors of two folders or files of the same names; calls entry() for each, in the first one's order. *equal:
// all tensors are there in both, with the same bytes.
tr_status tr_tensors_diff(const tr_tensors *a, const tr_tensors *b, void (*entry)(void *user, const tr_diff_entry *e),
                          void *user, int *equal);

#endif
