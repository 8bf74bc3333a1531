// SPDX-License-Identifier: MIT
// Files that appear whole or not at all, and read-only maps.
//
// An atomic write goes to ".name.tmp.THREAD" in the same folder (THREAD is the system-wide number of the
// writing thread, so neither ranks in threads nor ranks in processes collide), is forced to disk, renamed
// over the target, and the folder is forced to disk too: after a crash at any moment a reader finds the old
// file or the new one. Every failure names the path and the system's reason, and leaves no temporary file.
#include "trireme/base/file.h"

#include "base/guard_internal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

enum { DEPTH_MAX = 64, READ_STEP = 1 << 16 };

const char *tr_errno_advice(int error) {
  if (error == EMFILE) return "; this process may open no more: raise the limit with ulimit -n";
  if (error == ENFILE) return "; this machine may open no more: close others or raise fs.file-max with sysctl";
  return "";
}

// errno as a recorded failure: "PATH: cannot VERB: reason".
static tr_status io_error(const char *path, const char *verb) {
  return tr_error(TR_ERR_IO, "%s: cannot %s: %s%s", path, verb, strerror(errno), tr_errno_advice(errno));
}

static int open_again(const char *path, int flags, mode_t mode) {
  int fd;
  do fd = open(path, flags | O_CLOEXEC, mode);
  while (fd < 0 && errno == EINTR);
  return fd;
}

tr_status tr_file_map_open(const char *path, tr_file_map *out) {
  struct stat about;
  tr_status status = TR_OK;
  tr_file_map map = {.guard = TR__GUARD_NONE};
  int fd = open_again(path, O_RDONLY | O_NONBLOCK, 0); // opening a FIFO must not wait
  if (fd < 0) return io_error(path, "open");
  if (fstat(fd, &about) != 0) {
    status = io_error(path, "stat");
  } else if (!S_ISREG(about.st_mode)) {
    status = tr_error(TR_ERR_IO, "%s: not a regular file, so it cannot be mapped", path);
  } else if (about.st_size > 0) {
    map.nbyte = (size_t)about.st_size;
    void *data = mmap(NULL, map.nbyte, PROT_READ, MAP_SHARED, fd, 0);
    if (data == MAP_FAILED) {
      status = io_error(path, "map");
    } else {
      map.data = data;
      map.guard = tr__guard_add(data, map.nbyte);
    }
  }
  close(fd);
  if (status == TR_OK) *out = map;
  return status;
}

void tr_file_map_close(tr_file_map *map) {
  if (map->data) {
    tr__guard_remove(map->guard);
    munmap((void *)map->data, map->nbyte);
  }
  *map = (tr_file_map){.guard = TR__GUARD_NONE};
}

tr_status tr_file_map_check(const tr_file_map *map, const char *path) {
  if (!map->data || !tr__guard_torn(map->guard)) return TR_OK;
  return tr_error(TR_ERR_IO, "%s: part of it could not be read: it was cut short while in use, or its disk failed",
                  path);
}

// Read to the end or to one byte past the limit, whatever the file claims its size is (pipes and /proc say 0).
static tr_status read_all(int fd, const char *path, size_t limit, size_t expected, char **data, size_t *nbyte) {
  size_t size = 0, capacity = (expected < limit ? expected : limit) + 2;
  char *buffer = malloc(capacity);
  while (buffer) {
    size_t room = capacity - 1 - size;
    ssize_t n = read(fd, buffer + size, room < SSIZE_MAX ? room : SSIZE_MAX);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      free(buffer);
      return io_error(path, "read");
    }
    size += (size_t)n;
    if (size > limit) {
      free(buffer);
      return tr_error(TR_ERR_IO, "%s: larger than the %zu bytes accepted here", path, limit);
    }
    if (n == 0) {
      buffer[size] = '\0';
      *data = buffer;
      *nbyte = size;
      return TR_OK;
    }
    if (size + 1 < capacity) continue;
    capacity += capacity / 2 + READ_STEP;
    char *larger = realloc(buffer, capacity);
    if (!larger) free(buffer);
    buffer = larger;
  }
  return tr_error(TR_ERR_MEMORY, "%s: no memory for a file of %zu bytes or more", path, size);
}

tr_status tr_file_read(const char *path, size_t limit, char **data, size_t *nbyte) {
  struct stat about;
  if (limit > SSIZE_MAX - 2) limit = SSIZE_MAX - 2;
  int fd = open_again(path, O_RDONLY | O_NONBLOCK, 0); // opening a FIFO must not wait
  if (fd < 0) return io_error(path, "open");
  int known = fstat(fd, &about) == 0;
  size_t expected = known && about.st_size > 0 ? (size_t)about.st_size : 0;
  tr_status status = known && S_ISFIFO(about.st_mode)
                         ? tr_error(TR_ERR_IO, "%s: a pipe, not a file that can be read again", path)
                         : read_all(fd, path, limit, expected, data, nbyte);
  close(fd);
  return status;
}

tr_status tr_file_write_all(int fd, const void *data, size_t nbyte, const char *path) {
  const char *next = data;
  while (nbyte > 0) {
    ssize_t n = write(fd, next, nbyte < SSIZE_MAX ? nbyte : SSIZE_MAX);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return io_error(path, "write");
    if (n == 0) return tr_error(TR_ERR_IO, "%s: cannot write: %zu bytes were not taken", path, nbyte);
    next += n;
    nbyte -= (size_t)n;
  }
  return TR_OK;
}

// The folder part of `path` as malloc'd text: "." without a slash, "/" for a file at the root.
static char *folder_of(const char *path) {
  const char *slash = strrchr(path, '/');
  if (!slash) return strdup(".");
  return slash == path ? strdup("/") : strndup(path, (size_t)(slash - path));
}

static char *temporary_of(const char *path) {
  const char *slash = strrchr(path, '/');
  const char *name = slash ? slash + 1 : path;
  char *out = NULL;
  int n = asprintf(&out, "%.*s.%s.tmp.%d", (int)(name - path), path, name, (int)gettid());
  return n < 0 ? NULL : out;
}

// To `at`; `path` is what the caller knows of.
static tr_status write_synced(const char *at, const char *path, const void *data, size_t nbyte) {
  int fd = open_again(at, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW, 0666);
  if (fd < 0) return io_error(path, "create");
  tr_status status = tr_file_write_all(fd, data, nbyte, path);
  if (status == TR_OK && fsync(fd) != 0) status = io_error(path, "force to disk");
  // Some network file systems report a failed write only here.
  if (close(fd) != 0 && errno != EINTR && status == TR_OK) status = io_error(path, "close");
  return status;
}

// Devices and pipes hold nothing that could be kept, and must not give way to a file.
static int is_stream(const char *path) {
  struct stat about;
  return stat(path, &about) == 0 && !S_ISREG(about.st_mode) && !S_ISDIR(about.st_mode);
}

static tr_status write_stream(const char *path, const void *data, size_t nbyte) {
  int fd = open_again(path, O_WRONLY, 0);
  if (fd < 0) return io_error(path, "open");
  tr_status status = tr_file_write_all(fd, data, nbyte, path);
  if (close(fd) != 0 && errno != EINTR && status == TR_OK) status = io_error(path, "close");
  return status;
}

tr_status tr_file_write_atomic(const char *path, const void *data, size_t nbyte) {
  if (is_stream(path)) return write_stream(path, data, nbyte);
  char *folder = folder_of(path), *temporary = temporary_of(path);
  tr_status status = TR_OK;
  if (!folder || !temporary) {
    status = tr_error(TR_ERR_MEMORY, "%s: no memory for the name of its temporary file", path);
    goto free_names;
  }
  status = write_synced(temporary, path, data, nbyte);
  if (status == TR_OK && rename(temporary, path) != 0) {
    status = io_error(path, "replace");
  }
  if (status == TR_OK) {
    status = tr_file_sync_folder(folder);
  } else {
    unlink(temporary);
  }
free_names:
  free(temporary);
  free(folder);
  return status;
}

tr_status tr_file_prove(const char *path) {
  struct stat about;
  char *temporary = temporary_of(path);
  if (!temporary) return tr_error(TR_ERR_MEMORY, "%s: no memory for the name of its temporary file", path);
  tr_status status = TR_OK;
  int fd = open_again(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW, 0666);
  if (fd < 0) {
    status = io_error(path, "create");
  } else {
    close(fd);
    unlink(temporary);
    if (stat(path, &about) == 0 && S_ISDIR(about.st_mode)) status = tr_error(TR_ERR_IO, "%s: it is a folder", path);
  }
  free(temporary);
  return status;
}

// ".NAME.tmp.DIGITS"
static int is_temporary_of(const char *entry, const char *name) {
  const size_t n = strlen(name);
  if (entry[0] != '.' || strncmp(entry + 1, name, n) != 0 || strncmp(entry + 1 + n, ".tmp.", 5) != 0) return 0;
  const char *digits = entry + 1 + n + 5;
  return *digits && digits[strspn(digits, "0123456789")] == '\0';
}

void tr_file_remove_temporaries(const char *path) {
  const char *slash = strrchr(path, '/');
  char *folder = folder_of(path);
  DIR *entries = folder ? opendir(folder) : NULL;
  for (struct dirent *entry; entries && (entry = readdir(entries));)
    if (is_temporary_of(entry->d_name, slash ? slash + 1 : path)) unlinkat(dirfd(entries), entry->d_name, 0);
  if (entries) closedir(entries);
  free(folder);
}

tr_status tr_file_append(const char *path, const void *data, size_t nbyte) {
  int fd = open_again(path, O_WRONLY | O_CREAT | O_APPEND, 0666);
  if (fd < 0) return io_error(path, "open");
  tr_status status = TR_OK;
  ssize_t n;
  do n = write(fd, data, nbyte);
  while (n < 0 && errno == EINTR);
  if (n < 0) {
    status = io_error(path, "append");
  } else if ((size_t)n != nbyte) {
    // A second write() could land behind somebody else's record.
    status = tr_error(TR_ERR_IO, "%s: cannot append: only %zd of %zu bytes were taken (disk full?)", path, n, nbyte);
  }
  if (close(fd) != 0 && errno != EINTR && status == TR_OK) status = io_error(path, "close");
  return status;
}

tr_status tr_file_sync_folder(const char *path) {
  int fd = open_again(path, O_RDONLY | O_DIRECTORY, 0);
  if (fd < 0) return io_error(path, "open the folder");
  tr_status status = TR_OK;
  // EINVAL: a file system without the notion; nothing better can be done there.
  if (fsync(fd) != 0 && errno != EINVAL) status = io_error(path, "force the folder to disk");
  close(fd);
  return status;
}

static tr_status make_folder(const char *path) {
  struct stat about;
  if (mkdir(path, 0777) == 0) return TR_OK;
  int reason = errno;
  if (stat(path, &about) == 0) {
    if (S_ISDIR(about.st_mode)) return TR_OK;
    reason = ENOTDIR;
  }
  errno = reason;
  return io_error(path, "make the folder");
}

tr_status tr_file_make_folders(const char *path) {
  if (!path[0]) return tr_error(TR_ERR_USAGE, "a folder with an empty name cannot be made");
  char *part = strdup(path);
  if (!part) return tr_error(TR_ERR_MEMORY, "%s: no memory for its name", path);
  tr_status status = TR_OK;
  for (char *p = part + 1; *p && status == TR_OK; p++) {
    if (*p != '/') continue;
    *p = '\0';
    status = make_folder(part);
    *p = '/';
  }
  if (status == TR_OK) status = make_folder(part);
  free(part);
  return status;
}

static tr_status remove_entry(int folder, const char *name, const char *top, int depth);

// Empty the folder open at `fd` (which this closes).
static tr_status empty_folder(int fd, const char *top, int depth) {
  DIR *entries = fdopendir(fd);
  if (!entries) {
    tr_status status = io_error(top, "list a folder below it");
    close(fd);
    return status;
  }
  tr_status status = TR_OK;
  struct dirent *entry;
  while (status == TR_OK && (errno = 0, entry = readdir(entries))) {
    if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
    status = remove_entry(dirfd(entries), entry->d_name, top, depth);
  }
  if (status == TR_OK && errno != 0) status = io_error(top, "list a folder below it");
  closedir(entries);
  return status;
}

// Remove one name of a folder, whatever it is. Somebody else removing it first is fine.
static tr_status remove_entry(int folder, const char *name, const char *top, int depth) {
  int fd = openat(folder, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (fd >= 0) {
    if (depth == 0) {
      close(fd);
      return tr_error(TR_ERR_IO, "%s: cannot remove: folders are nested more than %d deep", top, DEPTH_MAX);
    }
    TR_TRY(empty_folder(fd, top, depth - 1));
    if (unlinkat(folder, name, AT_REMOVEDIR) == 0 || errno == ENOENT) return TR_OK;
  } else if (errno == ENOENT) {
    return TR_OK;
  } else if (errno == ENOTDIR || errno == ELOOP) {
    if (unlinkat(folder, name, 0) == 0 || errno == ENOENT) return TR_OK;
  }
  return tr_error(TR_ERR_IO, "%s: cannot remove '%s' in it: %s", top, name, strerror(errno));
}

tr_status tr_file_remove_tree(const char *path) {
  size_t n = strlen(path);
  while (n > 1 && path[n - 1] == '/') n--;
  if (n == 0 || (n == 1 && path[0] == '/')) return tr_error(TR_ERR_USAGE, "'%s' cannot be removed", path);
  // Without its closing slashes, because "link/" would follow the link.
  char *name = strndup(path, n);
  if (!name) return tr_error(TR_ERR_MEMORY, "%s: no memory for its name", path);
  tr_status status = remove_entry(AT_FDCWD, name, path, DEPTH_MAX);
  free(name);
  return status;
}

int tr_file_exists(const char *path) { return access(path, F_OK) == 0; }

uint64_t tr_hash_bytes(const void *data, size_t nbyte) { return XXH3_64bits(data, nbyte); }
