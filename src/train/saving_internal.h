// SPDX-License-Identifier: MIT
// The inside of a run's checkpoints, shared by saving.c (files, writing, how often) and resuming.c (reading).
#ifndef TRIREME_TRAIN_SAVING_INTERNAL_H
#define TRIREME_TRAIN_SAVING_INTERNAL_H

#include "train/train_internal.h"
#include <stdatomic.h>

enum { TRAINER_VERSION = 2, TRAINER_LIMIT = 64 << 20, SAVED_NAME_BYTES = 192, SAVED_FILES = 512, SAVED_SIDES = 16 };
enum { SAVED_MODEL, SAVED_OPTIMIZER };

// The files of a checkpoint. `item` holds the model's tensors, then the optimizer's.
typedef struct saved_files {
  tr_safetensors_item *item;
  char (*name)[SAVED_NAME_BYTES]; // of the optimizer's tensors
  size_t nitem[2];
  tr_ckpt_file file[SAVED_FILES];
  char file_name[SAVED_FILES][SAVED_NAME_BYTES];
  const char *text[SAVED_FILES]; // contents of those that are texts
  size_t nfile;
  int *writer_side, *held; // side and held of tr_saver_options; NULL without a pipeline
  char *index[2];
  int config, trainer;          // places of texts in `file`
  int side[SAVED_SIDES], nside; // places of the files that belong to a Hugging Face folder, and their texts
  char *side_text[SAVED_SIDES];
} saved_files;

typedef struct slowness {
  int64_t steps, ns;
} slowness;

struct tr__saving {
  saved_files files;
  tr_saver *saver;
  char folder[4096];
  json_t *contract;
  atomic_int closing;
  int64_t step; // that is being written
  int64_t open_ns, last_save_ns;
  double seconds_before; // of training, by the processes before this one
  int failures;          // ends without a save at the end, so far
  double interval;       // checkpoint.every=auto: seconds between saves, -1: not chosen yet
  double stall;          // seconds that training waited in the last save
  slowness quiet, busy;  // steps without and with a save being written
};

tr_status tr__saved_files_make(const tr_train_plan *plan, const tr__trainer *t,
                               saved_files *out); // t NULL: sizes only
void tr__saved_files_free(saved_files *files);
// ---- saving_texts.c
void tr__side_files_list(const tr_train_plan *plan, saved_files *files);      // adds them to the list of files
tr_status tr__side_files_read(const tr_train_plan *plan, saved_files *files); // first rank: their texts
tr_status tr__config_text(const tr_train_plan *plan, char **out);             // config.json; the caller frees it

// The f32 buffers that make up the optimizer's file: prefix and memory, in file order. Weights of `type` other than
// f32 have master weights there. t NULL: no memory.
int tr__state_buffers(const tr__trainer *t, const tr_train_plan *plan, tr_dtype type, const char **prefix,
                      float **base);

#endif
