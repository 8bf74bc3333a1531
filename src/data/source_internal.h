// SPDX-License-Identifier: MIT
// The inside of a token source, shared by source.c (opens files, cuts parts, reads windows) and batch.c (asks
// for the windows of a batch). Read-only after tr_source_open: ranks in threads may share one source.
#ifndef TRIREME_DATA_SOURCE_INTERNAL_H
#define TRIREME_DATA_SOURCE_INTERNAL_H

#include "trireme/base/file.h"
#include "trireme/data/data.h"

enum { TR__PART_TRAIN, TR__PART_VALIDATION, TR__NPART };

// A mapped file. The descriptor stays open so that a truncation can be seen before it becomes a SIGBUS.
typedef struct tr__source_file {
  char *path; // NULL: not in use
  int fd;
  tr_file_map map;
} tr__source_file;

// A part is a run of tokens of one file.
typedef struct tr__source_part {
  const tr__source_file *file;
  int64_t first, ntoken;
} tr__source_part;

struct tr_source {
  const tr_tokenizer *tokenizer; // kept, not owned
  int64_t sequence;
  uint64_t seed, hash;
  tr__source_file file[TR__NPART]; // the second only with a validation file of its own
  tr__source_part part[TR__NPART];
};

// TR_ERR_DATA when the file behind a part has become shorter than its map.
tr_status tr__source_check(const tr_source *source, int validation);

// Tokens and next tokens of one window of a part (0 <= window < samples): at most `sequence` of each. *count
// is how many pairs there are: at least 1, less than `sequence` only in the last window.
tr_status tr__source_window(const tr_source *source, int validation, int64_t window, int32_t *token, int32_t *target,
                            int64_t *count);

#endif
