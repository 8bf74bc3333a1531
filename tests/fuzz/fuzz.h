// SPDX-License-Identifier: MIT
// For fuzz targets: one function that feeds bytes to a reader, the check that ends the process, and a private folder for
// readers that want files. Whatever the bytes are, a reader answers with a status; what it took must hold together.
//
// Each target names in its first lines the module it links ("// links: ckpt"). replay.c runs it over its kept inputs in
// every build; clang's libFuzzer searches for new ones (test_fuzz_short.sh says how).
#ifndef TRIREME_TESTS_FUZZ_FUZZ_H
#define TRIREME_TESTS_FUZZ_FUZZ_H

#include "trireme/base/file.h"

#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { FUZZ_PATH = 256 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

// damage_json.c and damage_table.c, for those who change inputs.
uint64_t fuzz_random(uint64_t *state); // the next number of a fixed series
// Change one value of the JSON in `data`, in place; the new size, at most `room`; 0: it is no JSON, or would not fit.
size_t fuzz_damage_json(uint8_t *data, size_t size, size_t room, uint64_t *state);
// The same of one field of a table below its head.
size_t fuzz_damage_table(uint8_t *data, size_t size, size_t room, uint64_t *state);

static inline size_t fuzz_damage_value(uint8_t *data, size_t size, size_t room, uint64_t *state) {
  size_t written = fuzz_damage_json(data, size, room, state);
  return written ? written : fuzz_damage_table(data, size, room, state);
}

// What must be true of every input.
#define FUZZ_CHECK(condition)                                                                                        \
  do {                                                                                                               \
    if (!(condition)) {                                                                                              \
      fprintf(stderr, "%s:%d: not so: %s (%s)\n", __FILE__, __LINE__, #condition, tr_status_text());                 \
      abort();                                                                                                       \
    }                                                                                                                \
  } while (0)

static char fuzz_folder_path[FUZZ_PATH / 2];

static inline void fuzz_folder_remove(void) { (void)tr_file_remove_tree(fuzz_folder_path); }

// A folder of this process, in memory where the system has such a place.
static inline const char *fuzz_folder(void) {
  if (fuzz_folder_path[0]) return fuzz_folder_path;
  const char *base = access("/dev/shm", W_OK | X_OK) == 0 ? "/dev/shm" : getenv("TMPDIR");
  snprintf(fuzz_folder_path, sizeof fuzz_folder_path, "%s/trireme-fuzz-XXXXXX", base ? base : "/tmp");
  FUZZ_CHECK(mkdtemp(fuzz_folder_path));
  atexit(fuzz_folder_remove);
  return fuzz_folder_path;
}

// The path of a file of that folder with these bytes; it belongs to the caller.
static inline const char *fuzz_file(char path[FUZZ_PATH], const char *name, const void *data, size_t size) {
  snprintf(path, FUZZ_PATH, "%s/%s", fuzz_folder(), name);
  int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  FUZZ_CHECK(fd >= 0 && tr_file_write_all(fd, data, size, path) == TR_OK);
  close(fd);
  return path;
}

#endif
