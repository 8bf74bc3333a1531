// SPDX-License-Identifier: MIT
// Saving beside training: every writer (rank) copies its share of the state into a buffer reserved at the start, and a
// thread of its own streams that to disk while training goes on.
//
// Files do not depend on the number of writers: each tensor has its place in a file that follows from the list of files
// alone, and belongs to one writer, chosen by bytes among those that have it. Writer 0 makes the temporary folder, the files and their headers;
// all write their tensors in place, force them to disk and leave a note with the hashes; writer 0 collects the
// notes, writes the manifest and publishes the folder as tr_ckpt_save does (checkpoint.h). Writers find each other
// through the folder alone, so they may be threads, processes or hosts with one file system. A writer that dies
// leaves a temporary folder, which a later save sweeps; waits end at the deadline or when `stopped` says so.
#ifndef TRIREME_CKPT_SAVER_H
#define TRIREME_CKPT_SAVER_H

#include "trireme/ckpt/checkpoint.h"

typedef struct tr_saver tr_saver;
typedef struct tr_saver_options {
  const char *folder; // as in tr_ckpt_save_options
  int keep;
  int64_t keep_every;
  const tr_ckpt_file *file; // all files, the same on all writers; `text` of text files is given per save (NULL here,
  size_t nfile;             //   with item NULL). Kept, not owned; data pointers are read by tr_saver_start.
  int writer, nwriter;
  // Where writers have only some of the tensors (stages of a pipeline): side[w] of writer w, from 0 on, and held[k], the side
  // whose writers all have tensor k, counted over the files in their order. Equal on all writers; read by tr_saver_bytes and
  // _create. NULL: every writer has everything.
  const int *side, *held;
  int64_t job;     // the same on all writers and different from every job that lives: writer 0's process number
  int background;  // 1: copy and write in a thread; 0: tr_saver_start writes, and needs no buffer
  double deadline; // seconds that writers wait for one another without a sign of life (a file being written)
  int (*stopped)(void *user);   // asked while waiting; may be NULL
  void (*progress)(void *user); // called by tr_saver_create, _start and _wait, never by the thread; may be NULL
  void (*written)(void *user);  // called by whoever writes, between blocks, possibly from the thread; may be NULL
  void *user;
} tr_saver_options;

// Bytes of the buffer of each of nwriter writers, whichever of them `options` are: 0 unless `background`. Pure.
void tr_saver_bytes(const tr_saver_options *options, size_t *each);
tr_status tr_saver_create(const tr_saver_options *options, tr_saver **out); // takes the buffer, starts the thread
void tr_saver_destroy(tr_saver *saver); // waits for the thread, at most until the deadline; NULL allowed

// What a finished save was like.
typedef struct tr_saved {
  int64_t step;
  uint64_t bytes;      // of the whole checkpoint
  double stall, write; // seconds: training waited, writing took (this writer)
} tr_saved;

// Collective over writers, in the same order. Waits for a save in progress (a failure that nobody has asked for yet is
// returned, and nothing is started), copies this writer's share, and returns: the state may change from then on.
// text[nfile]: contents of the text files (writer 0; copied; NULL elsewhere).
tr_status tr_saver_start(tr_saver *saver, int64_t step, const char *const *text);
// TR_PENDING while a save is in progress, else the outcome of the last one (once; TR_OK with step -1 when there is none).
tr_status tr_saver_poll(tr_saver *saver, tr_saved *saved);
tr_status tr_saver_wait(tr_saver *saver, tr_saved *saved); // until it is no longer pending

#endif
