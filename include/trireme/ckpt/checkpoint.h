// SPDX-License-Identifier: MIT
// Checkpoints that appear whole or not at all.
//
//   runs/demo/checkpoints/
//     step-00000100/
//       model.safetensors       weights under their Hugging Face names
//       config.json             the model's description, Hugging Face form
//       optimizer.safetensors   master weights and moments, f32
//       trainer.json            step, sample position, settings: what resume needs besides tensors
//       manifest.json           written last: every file's size, the XXH3-64 of texts, headers and tensors
//     latest                    the name of the newest complete folder
//
// Tensors may be in several files with an index instead (tensors.h). A save writes into ".tmp-step-00000100-PID",
// fsyncs every file and the folder, renames it, fsyncs the parent, then replaces `latest`, and only then deletes folders
// beyond `keep` (never the one just written, never one marked by a step multiple of keep_every). Leftover temporary
// folders of dead processes are removed by the next save. Loading takes `latest`, verifies sizes and hashes, and falls
// back to the newest folder that verifies, saying so. Local: one rank calls.
#ifndef TRIREME_CKPT_CHECKPOINT_H
#define TRIREME_CKPT_CHECKPOINT_H

#include "trireme/ckpt/safetensors.h"

typedef struct tr_ckpt_file { // one file of a checkpoint: tensors, or text when item is NULL
  const char *name;           // base name
  const tr_safetensors_item *item;
  size_t nitem;
  const char *text;
} tr_ckpt_file;

typedef struct tr_ckpt_save_options {
  const char *folder; // made if missing
  int64_t step;
  int keep;                     // how many newest to keep; 0: all
  int64_t keep_every;           // also keep every step divisible by this; 0: none
  void (*progress)(void *user); // called between blocks; may be NULL
  void *user;
} tr_ckpt_save_options;

// TR_ERR_USAGE for a request that cannot be right, TR_ERR_IO for what the system refuses; the checkpoints that were
// there stay usable. The files' tensors and texts belong to the caller.
tr_status tr_ckpt_save(const tr_ckpt_save_options *options, const tr_ckpt_file *file, size_t nfile);

// Path of the newest loadable checkpoint below the folder `path` into out. `path` may also be a checkpoint itself (it
// has a manifest, a model.safetensors or its index). TR_ERR_CKPT when there is none. verify 0: sizes only, 1: hashes
// too.
tr_status tr_ckpt_find(const char *path, int verify, char *out, size_t nbyte);
// The same, calling progress(user) between pieces of at most 16 MiB of what is verified.
tr_status tr_ckpt_find_watched(const char *path, int verify, void (*progress)(void *user), void *user, char *out,
                               size_t nbyte);
tr_status tr_ckpt_verify(const char *path); // every byte of every file against the manifest's hashes
int64_t tr_ckpt_step(const char *path);     // from the folder's name; -1 if it has none

#endif
