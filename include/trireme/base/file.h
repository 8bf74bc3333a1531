// SPDX-License-Identifier: MIT
// Files that appear whole or not at all, and read-only maps. What the system refuses is TR_ERR_IO with the
// path and its reason.
#ifndef TRIREME_BASE_FILE_H
#define TRIREME_BASE_FILE_H

#include "trireme/base/status.h"
#include <stddef.h>
#include <stdint.h>

// A file mapped for reading. Zero bytes: data is NULL. A map is guarded: when the file is cut short or its disk fails
// while it is mapped, reading it does not end the process with SIGBUS; the missing pages read as zeros and the map
// is torn. Whoever has read from a map and is about to trust it asks tr_file_map_check.
typedef struct tr_file_map {
  const unsigned char *data;
  size_t nbyte;
  int guard; // its place in the table of guarded maps; -1: none
} tr_file_map;
tr_status tr_file_map_open(const char *path, tr_file_map *out);
void tr_file_map_close(tr_file_map *map);
// TR_ERR_IO, naming `path`, when a read of this map met a page that the file no longer has. Any thread. What a file lost
// of its last page that is still there reads as zeros and is not noticed.
tr_status tr_file_map_check(const tr_file_map *map, const char *path);

// Read a whole file of at most `limit` bytes into memory that the caller frees, with a terminating zero byte added.
tr_status tr_file_read(const char *path, size_t limit, char **data, size_t *nbyte);
// Write `path` through a temporary file beside it: write, fsync, rename, fsync of the folder. Into a device or a pipe (/dev/stdout) it is
// written as it is.
tr_status tr_file_write_atomic(const char *path, const void *data, size_t nbyte);
// Could `path` be written like that? Found by making its temporary file, which is removed at once.
tr_status tr_file_prove(const char *path);
// Remove the temporary files of writes to `path` that were killed. No such write may be under way.
void tr_file_remove_temporaries(const char *path);
tr_status tr_file_append(const char *path, const void *data, size_t nbyte); // one write(), created if absent
tr_status tr_file_sync_folder(const char *path);
tr_status tr_file_make_folders(const char *path); // like mkdir -p
tr_status tr_file_remove_tree(const char *path);  // does not follow links; a missing path is fine
int tr_file_exists(const char *path);
// Write all of it, going on after short writes and EINTR.
tr_status tr_file_write_all(int fd, const void *data, size_t nbyte, const char *path);

const char *tr_errno_advice(int error); // what helps, as the end of a sentence; "" where nothing is known

uint64_t tr_hash_bytes(const void *data, size_t nbyte); // XXH3, 64 bits

#endif
