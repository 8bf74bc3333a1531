// SPDX-License-Identifier: MIT
// What the files of the ckpt module share: limits, names on disk, copying with conversion, listing of folders.
//
// Names in a checkpoint folder, S the step in at least eight digits and P the number of the process that saves:
//   step-S              a complete checkpoint (renamed to this name only when everything in it is on disk)
//   .tmp-step-S-P       one being written, or being deleted; never read
//   step-S.old-P        the former step-S for the moment in which it is replaced without an atomic exchange;
//                       complete, so a reader takes it when step-S is missing
// Not part of the public interface; tests include it to reach the replacement without exchange.
#ifndef TRIREME_CKPT_CKPT_INTERNAL_H
#define TRIREME_CKPT_CKPT_INTERNAL_H

#include "trireme/ckpt/checkpoint.h"
#include <stddef.h>
#include <stdint.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "tensor bytes are stored as they are in memory");

#define TR__CKPT_MANIFEST "manifest.json"
#define TR__CKPT_LATEST   "latest"
#define TR__CKPT_MODEL    "model.safetensors"
#define TR__CKPT_STEP     "step-"
#define TR__CKPT_OLD      ".old-"
#define TR__CKPT_TMP      ".tmp-step-"

enum {
  TR__ST_HEADER_MAX = 100000000, // bytes of JSON
  TR__ST_NAME_MAX = 1024,        // bytes of a tensor's name
  TR__ST_COUNT_MAX = 1000000,    // tensors of one file
  TR__CKPT_MANIFEST_MAX = 200000000,
  TR__CKPT_FILE_MAX = 10000, // files of one checkpoint
  TR__CKPT_NAME_MAX = 128,   // bytes of a base name including its end
  TR__CKPT_PATH_MAX = 4096,
  TR__CKPT_QUOTE_MAX = 132,
};

// A name from outside, fit for a message: control characters become '?', long names end in "...".
const char *tr__ckpt_quote(const char *name, char out[TR__CKPT_QUOTE_MAX]);

// n elements from src (any alignment) to dst (aligned to its type).
void tr__ckpt_copy(tr_dtype from, const void *src, tr_dtype to, void *dst, size_t n);
// src is a matrix of `width` columns, at any alignment. Rows [row0, row1) and columns [col0, col1) of its
// transpose go to dst, row by row without gaps.
void tr__ckpt_transpose(tr_dtype from, const void *src, size_t width, size_t row0, size_t row1, size_t col0,
                        size_t col1, tr_dtype to, void *dst);

// "folder/name" into out; TR_ERR_USAGE when it is too long.
tr_status tr__ckpt_join(char out[TR__CKPT_PATH_MAX], const char *folder, const char *name);
// A base name that stays in its folder: not empty, no '/', no leading '.', no control characters, not too long.
int tr__ckpt_plain_name(const char *name);
// 1 to 18 digits at `text` into *out; where they end, or NULL.
const char *tr__ckpt_digits(const char *text, int64_t *out);

typedef struct tr__ckpt_folder {
  int64_t step;
  int old; // a "step-S.old-P"
  char name[TR__CKPT_NAME_MAX];
} tr__ckpt_folder;

// The step folders in `folder`, newest first; *out is to be freed.
tr_status tr__ckpt_list(const char *folder, tr__ckpt_folder **out, size_t *count);

// Put the finished folder `temporary` in place of `final`. What was there is afterwards at `temporary`
// (exchange allowed and possible) or at `aside`, and is the caller's to remove.
tr_status tr__ckpt_publish(const char *temporary, const char *final, const char *aside, int exchange);

#endif
