// SPDX-License-Identifier: MIT
// What the files of the ckpt module share: limits, names on disk, copying with conversion, listing of folders.
//
// Names in a checkpoint folder, S the step in at least eight digits and P the job's number, the process that saves:
//   step-S              a complete checkpoint (renamed to this name only when everything in it is on disk)
//   .tmp-step-S-P       one being written, or being deleted; never read
//   step-S.old-P        the former step-S for the moment in which it is replaced without an atomic exchange;
//                       complete, so a reader takes it when step-S is missing
// Not part of the public interface; tests include it to reach the replacement without exchange.
#ifndef TRIREME_CKPT_CKPT_INTERNAL_H
#define TRIREME_CKPT_CKPT_INTERNAL_H

#include "trireme/base/text.h"
#include "trireme/ckpt/checkpoint.h"
#include "trireme/ckpt/saver.h"
#include "trireme/ckpt/tensors.h"
#include <stddef.h>
#include <stdint.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "tensor bytes are stored as they are in memory");

#define TR__CKPT_MANIFEST "manifest.json"
#define TR__CKPT_LATEST   "latest"
#define TR__CKPT_MODEL    "model"
#define TR__CKPT_TENSORS  ".safetensors"
#define TR__CKPT_INDEX    ".safetensors.index.json"
#define TR__CKPT_STEP     "step-"
#define TR__CKPT_OLD      ".old-"
#define TR__CKPT_TMP      ".tmp-step-"

enum {
  TR__ST_HEADER_MAX = 100000000, // bytes of JSON
  TR__ST_NAME_MAX = 1024,        // bytes of a tensor's name
  TR__ST_COUNT_MAX = 200000,     // tensors of one file, or of one folder
  TR__CKPT_MANIFEST_MAX = 200000000,
  TR__CKPT_FILE_MAX = 10000, // files of one checkpoint
  TR__CKPT_NAME_MAX = 128,   // bytes of a base name including its end
  TR__CKPT_PATH_MAX = 4096,
  TR__CKPT_QUOTE_MAX = 132,
};

// A name from outside, fit for a message: control characters become '?', long names end in "...".
const char *tr__ckpt_quote(const char *name, char out[TR__CKPT_QUOTE_MAX]);

// ---- tensors as bytes of a file (stored.c)

// n elements from src to dst, both at any alignment.
void tr__ckpt_copy(tr_dtype from, const void *src, tr_dtype to, void *dst, size_t n);
// src is a matrix of `width` columns. Rows [row0, row1) and columns [col0, col1) of its transpose go to dst, row by row
// without gaps; both at any alignment.
void tr__ckpt_transpose(tr_dtype from, const void *src, size_t width, size_t row0, size_t row1, size_t col0,
                        size_t col1, tr_dtype to, void *dst);
uint64_t tr__stored_nbyte(const tr_safetensors_item *item);
// Stored elements [first, first + count) of an item: converted, transposed.
void tr__stored_range(const tr_safetensors_item *item, size_t first, size_t count, void *dst);

// ---- checking (manifest_check.c)

// Every file's size, and with `hashes` its bytes, against the folder's manifest; progress (may be NULL) is called
// between pieces of at most 16 MiB. Whatever cannot be read is TR_ERR_CKPT.
tr_status tr__manifest_check(const char *folder, int hashes, void (*progress)(void *user), void *user);

// ---- files written by ranges (part_file.c)

enum { TR__PART_ALIGN = 4096, TR__PART_BLOCK = 8 << 20, TR__HUGE_PAGE = 2 << 20 };

// A file that is written by ranges, by several writers at once if need be. What is aligned goes to the disk directly, past
// the system's cache; the rest, and everything where the file system cannot do that, through the cache.
typedef struct tr__part_file {
  char path[TR__CKPT_PATH_MAX];
  int plain, direct;                            // descriptors; -1: none
  size_t unsynced;                              // bytes written through the cache since they were last forced to disk
  tr_status (*wrote)(void *user, size_t nbyte); // called after each piece; a failure ends the writing; may be NULL
  void *user;
} tr__part_file;

// A new file of nbyte bytes, with room for them on disk where the file system can promise that.
tr_status tr__part_create(tr__part_file *file, const char *path, uint64_t nbyte);
tr_status tr__part_open(tr__part_file *file, const char *path); // one that somebody has created
// Bytes of which the address and `offset` are equal modulo TR__PART_ALIGN go directly.
tr_status tr__part_write(tr__part_file *file, const void *data, size_t nbyte, uint64_t offset);
tr_status tr__part_finish(tr__part_file *file); // everything on disk, closed; closed after a failure too
void tr__part_abandon(tr__part_file *file);     // closed

// Memory in large pages, in which a block is a few long stretches for the disk instead of thousands of short ones.
// NULL when there is none; tr__huge_free takes the same nbyte.
void *tr__huge_alloc(size_t nbyte);
void tr__huge_free(void *memory, size_t nbyte);

// Items written one after the other from some place in a file on, through one buffer of blocks.
typedef struct tr__stream {
  tr__part_file *file;
  unsigned char *buffer;     // at TR__PART_ALIGN
  size_t room, begin, end;   // of the buffer; what is not on disk yet lies between begin and end
  uint64_t base;             // the buffer's place in the file
  struct XXH3_state_s *hash; // of all bytes; may be NULL
} tr__stream;
tr_status tr__stream_open(tr__stream *stream, tr__part_file *file, uint64_t expected); // how many bytes will come
void tr__stream_seek(tr__stream *stream, uint64_t offset);                             // after a flush
tr_status tr__stream_bytes(tr__stream *stream, const void *data, size_t nbyte);
tr_status tr__stream_item(tr__stream *stream, const tr_safetensors_item *item, uint64_t *hash);
tr_status tr__stream_flush(tr__stream *stream);
void tr__stream_close(tr__stream *stream);

// ---- safetensors files before they are written (safetensors_header.c)

// Size and JSON, padded with spaces to a multiple of 8, as they go into the file; *nbyte: of the whole file. Data
// pointers are not looked at.
tr_status tr__st_header(const tr_safetensors_item *item, size_t nitem, const tr_metadata *metadata, size_t nmetadata,
                        tr_text *out, uint64_t *nbyte);
tr_status tr__st_check_data(const tr_safetensors_item *item); // TR_ERR_USAGE: there should be data, and is none
// Bound what parsing a JSON text can cost: its depth, its number of values, and its number of tensors, which are the members
// of objects at this depth.
tr_status tr__st_check_extent(const char *path, const char *text, size_t nbyte, int tensor_depth);
const unsigned char *tr__st_bytes(const tr_safetensors *file); // the whole file
size_t tr__st_header_nbyte(const tr_safetensors *file);        // where the data starts
tr_status tr__st_check_map(const tr_safetensors *file); // TR_ERR_IO: the file was cut short while it was mapped

// ---- a checkpoint's files before they are written (ckpt_plan.c)

typedef struct tr__plan_tensor {
  char *name;
  size_t file, item;      // which file, which of its items
  uint64_t offset, nbyte; // in the file
  int owner;              // the writer
  uint64_t hash;          // once written
} tr__plan_tensor;

typedef struct tr__plan_file {
  char *name;
  int is_text;
  tr_text header;        // of tensors
  uint64_t nbyte;        // of the whole file; texts: once written
  uint64_t hash;         // of header or text
  size_t first, ntensor; // its tensors
} tr__plan_file;

// Where everything goes: follows from the files alone, but for the owners.
typedef struct tr__plan {
  size_t nfile, ntensor;
  tr__plan_file *file;
  tr__plan_tensor *tensor; // by file
  uint64_t nbyte;          // of all tensors, without headers
  uint64_t hash;           // of names and headers: equal plans, equal hashes
} tr__plan;

// side, held: as in tr_saver_options.
tr_status tr__plan_make(const tr_ckpt_file *file, size_t nfile, int nwriter, const int *side, const int *held,
                        tr__plan *out);
void tr__plan_free(tr__plan *plan);
// The next tensors of file f that belong to `writer` and are neighbours, at or after *end: [*begin, *end). 0: there are none.
// *end starts as the file's first tensor.
int tr__plan_next_run(const tr__plan *plan, size_t f, int writer, size_t *begin, size_t *end);

// How the bytes of a plan's tensors reach the disk. Zero is fine but for plan and folder.
typedef struct tr__build {
  tr__plan *plan;
  const char *folder;
  int64_t step;
  int writer;
  const tr_ckpt_file *file;                     // where tensors come from, converted on the way; or
  const unsigned char *buffer;                  // one writer's tensors as they are stored, each at place[]
  const size_t *place;                          // [ntensor]
  tr_status (*wrote)(void *user, size_t nbyte); // between blocks, see tr__part_file
  void *user;
} tr__build;

tr_status tr__build_begin(const tr__build *build); // make the folder, files of tensors with headers and room
tr_status tr__build_share(const tr__build *build); // this writer's tensors, on disk, with their hashes
tr_status tr__build_end(const tr__build *build, const char *const *text); // texts, manifest, all on disk
tr_status tr__build_all(const tr__build *build, const char *const *text); // the three; nothing is left of a failure

// ---- folders (checkpoint_save.c)

typedef struct tr__save_names {
  char step[TR__CKPT_NAME_MAX]; // "step-00000100"
  char temporary[TR__CKPT_PATH_MAX], final[TR__CKPT_PATH_MAX], aside[TR__CKPT_PATH_MAX];
  char latest[TR__CKPT_PATH_MAX];
} tr__save_names;

tr_status tr__save_check(const tr_ckpt_save_options *options);
tr_status tr__save_check_files(const tr_ckpt_file *file, size_t nfile);
tr_status tr__save_names_make(const char *folder, int64_t step, int64_t job, tr__save_names *out);
tr_status tr__save_prepare(const char *folder); // make it, sweep leftovers of dead processes
// Move the finished temporary folder to its place, point `latest` at it, remove what is beyond `keep`.
tr_status tr__save_publish(const tr_ckpt_save_options *options, int64_t job, const tr__save_names *names);
// Remove an unfinished folder; the recorded failure stays.
void tr__save_give_up(const char *temporary, tr_status status);

// ---- several writers (saver_meeting.c)

// The writers of one save, who find each other in its temporary folder through notes:
//   .ready-R     the first one has made the files
//   .done-R-W    writer W's tensors are on disk: a line with the plan's hash, then one per tensor of W
//   .failed-R-W  W cannot: a line with the status, then the sentence
// R counts the saves of this job, so that notes of an attempt that failed do not count for the next one.
typedef struct tr__meeting {
  tr__plan *plan;
  const char *temporary, *final;
  int64_t step, round;
  int writer, nwriter;
  double deadline;                  // seconds without a sign of life from those who are awaited
  tr_status (*waiting)(void *user); // called again and again; a failure ends the waiting
  void *user;
  uint64_t folder; // the temporary folder's number on its file system
} tr__meeting;

tr_status tr__meeting_call(const tr__meeting *meeting);    // the first writer: the files are there
tr_status tr__meeting_join(tr__meeting *meeting);          // the others: wait for that
tr_status tr__meeting_report(const tr__meeting *meeting);  // the others: our tensors are on disk
tr_status tr__meeting_collect(const tr__meeting *meeting); // the first: wait for reports, take hashes, remove notes
tr_status tr__meeting_await(const tr__meeting *meeting);   // the others: wait until the folder is in its place
// The others: this writer has failed. Returns the status, with the recorded failure; when writer 0 has given up, says that too.
tr_status tr__meeting_fail(const tr__meeting *meeting, tr_status status);

// ---- the rest

// "folder/name" into out; TR_ERR_USAGE when it is too long.
tr_status tr__ckpt_join(char out[TR__CKPT_PATH_MAX], const char *folder, const char *name);
// A base name that stays in its folder: not empty, no '/', no leading '.', no control characters, not too long.
int tr__ckpt_plain_name(const char *name);
int tr__ckpt_has(const char *folder, const char *name);
// "; it has pytorch_model.bin, which is never read: ..." when a folder holds weights only in such a form, else "".
const char *tr__ckpt_pickle_note(const char *folder);
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
