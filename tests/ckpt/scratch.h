// SPDX-License-Identifier: MIT
// For the tests of checkpoints: a scratch folder per process, paths in it, counting of names, and the small
// checkpoint that they save, whose contents tell the step. A helper that fails ends the test that called it.
#ifndef TRIREME_TESTS_CKPT_SCRATCH_H
#define TRIREME_TESTS_CKPT_SCRATCH_H

#include "trireme/base/file.h"
#include "trireme/ckpt/checkpoint.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SCRATCH_PATH = 512, SCRATCH_VALUES = 96 };

typedef struct scratch {
  char path[SCRATCH_PATH];
} scratch;

static inline scratch scratch_make_in(const char *base) {
  scratch out;
  assert_true(snprintf(out.path, sizeof out.path, "%s/ckpt-test-XXXXXX", base) < 300);
  assert_non_null(mkdtemp(out.path));
  return out;
}

static inline scratch scratch_make(void) {
  const char *base = getenv("TMPDIR");
  return scratch_make_in(base ? base : "/tmp");
}

// In memory where the system has such a place: for tests of thousands of saves in which power loss plays no part.
static inline scratch scratch_make_fast(void) {
  return access("/dev/shm", W_OK | X_OK) == 0 ? scratch_make_in("/dev/shm") : scratch_make();
}

static inline scratch scratch_path(const scratch *folder, const char *name) {
  scratch out;
  assert_true(snprintf(out.path, sizeof out.path, "%s/%s", folder->path, name) < SCRATCH_PATH);
  return out;
}

static inline void scratch_remove(const scratch *folder) {
  assert_int_equal(tr_file_remove_tree(folder->path), TR_OK);
}

static inline void scratch_write(const char *path, const void *data, size_t nbyte) {
  int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
  assert_true(fd >= 0);
  assert_int_equal(tr_file_write_all(fd, data, nbyte, path), TR_OK);
  assert_int_equal(close(fd), 0);
}

// Names in a folder that start with `prefix`.
static inline int scratch_count(const char *path, const char *prefix) {
  int count = 0;
  struct dirent *entry;
  DIR *entries = opendir(path);
  assert_non_null(entries);
  while ((entry = readdir(entries))) count += strncmp(entry->d_name, prefix, strlen(prefix)) == 0;
  closedir(entries);
  return count;
}

// Save a checkpoint in which every value of tensor "w" is `value`; plain status, so that children may call it.
static inline tr_status save_value(const tr_ckpt_save_options *options, float value) {
  float w[SCRATCH_VALUES], m[SCRATCH_VALUES];
  char text[64];
  for (int i = 0; i < SCRATCH_VALUES; i++) {
    w[i] = value;
    m[i] = value + 0.5f;
  }
  tr_safetensors_item model = {"w", TR_F32, TR_F32, {2, {8, 12}}, w, 1};
  tr_safetensors_item moment[2] = {{"m", TR_F32, TR_F32, {1, {SCRATCH_VALUES}}, m, 0},
                                   {"v", TR_F32, TR_BF16, {1, {SCRATCH_VALUES}}, m, 0}};
  snprintf(text, sizeof text, "{\"step\": %" PRId64 "}\n", options->step);
  tr_ckpt_file file[] = {{"model.safetensors", &model, 1, NULL},
                         {"config.json", NULL, 0, "{}"},
                         {"optimizer.safetensors", moment, 2, NULL},
                         {"trainer.json", NULL, 0, text}};
  return tr_ckpt_save(options, file, sizeof file / sizeof file[0]);
}

static inline float value_of(const char *checkpoint) {
  char path[SCRATCH_PATH + 64];
  float w[SCRATCH_VALUES];
  tr_safetensors *file;
  assert_true(snprintf(path, sizeof path, "%s/model.safetensors", checkpoint) < (int)sizeof path);
  assert_int_equal(tr_safetensors_open(path, &file), TR_OK);
  assert_int_equal(tr_safetensors_read(tr_safetensors_find(file, "w"), 1, TR_F32, w), TR_OK);
  tr_safetensors_close(file);
  for (int i = 1; i < SCRATCH_VALUES; i++) assert_true(w[i] == w[0]);
  return w[0];
}

#endif
