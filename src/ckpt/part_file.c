// SPDX-License-Identifier: MIT
// Files written by ranges, fast.
//
// Going through the system's cache copies every byte, fills memory that training wants, and ends in one long wait. So
// a file is opened twice: with O_DIRECT for whole aligned blocks, and plainly for what is left at the ends of a
// range, which share their block with a neighbour's range; the two never touch the same block. Direct transfers want long
// stretches of physical memory: buffers lie in large pages, without which a disk gets many short requests and is
// several times slower. A file system that knows no O_DIRECT, or refuses these blocks, gets everything plainly, forced
// to disk every 64 MiB.
#include "ckpt/ckpt_internal.h"
#include "trireme/base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <xxhash.h>

enum { SYNC_BYTES = 64 << 20, STREAM_ROOM = 16 << 20, ITEM_PIECE = 1 << 20 };

static tr_status io_error(const char *path, const char *verb) {
  return tr_error(TR_ERR_IO, "%s: cannot %s: %s", path, verb, strerror(errno));
}

static size_t whole_pages(size_t nbyte) { return (nbyte + TR__PART_ALIGN - 1) / TR__PART_ALIGN * TR__PART_ALIGN; }

void *tr__huge_alloc(size_t nbyte) {
  size_t length = whole_pages(nbyte), room = length + TR__HUGE_PAGE;
  if (nbyte > SIZE_MAX / 2) return NULL;
  unsigned char *memory = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return NULL;
  // What is before the first boundary and behind the last page goes back.
  size_t skip = (size_t)(-(uintptr_t)memory & (TR__HUGE_PAGE - 1));
  if (skip) munmap(memory, skip);
  munmap(memory + skip + length, room - skip - length);
  madvise(memory + skip, length, MADV_HUGEPAGE);
  return memory + skip;
}

void tr__huge_free(void *memory, size_t nbyte) {
  if (memory) munmap(memory, whole_pages(nbyte));
}

static tr_status open_twice(tr__part_file *file, const char *path, int flags) {
  if (strlen(path) >= sizeof file->path)
    return tr_error(TR_ERR_USAGE, "%.60s...: path is longer than %zu bytes", path, sizeof file->path);
  memcpy(file->path, path, strlen(path) + 1);
  file->direct = -1;
  file->unsynced = 0;
  file->plain = open(path, O_WRONLY | O_NOFOLLOW | O_CLOEXEC | flags, 0666);
  if (file->plain < 0) return io_error(path, flags ? "create" : "open");
  file->direct = open(path, O_WRONLY | O_NOFOLLOW | O_CLOEXEC | O_DIRECT);
  return TR_OK;
}

void tr__part_abandon(tr__part_file *file) {
  if (file->direct >= 0) close(file->direct);
  if (file->plain >= 0) close(file->plain);
  file->direct = file->plain = -1;
}

tr_status tr__part_create(tr__part_file *file, const char *path, uint64_t nbyte) {
  TR_TRY(open_twice(file, path, O_CREAT | O_EXCL));
  if (nbyte == 0 || fallocate(file->plain, 0, 0, (off_t)nbyte) == 0) return TR_OK;
  // A full disk says so now. Where room cannot be promised, the size alone is set.
  int cannot = errno == EOPNOTSUPP || errno == ENOSYS || errno == EINTR;
  if (cannot && ftruncate(file->plain, (off_t)nbyte) == 0) return TR_OK;
  tr_status status =
      tr_error(TR_ERR_IO, "%s: cannot reserve %llu bytes: %s", path, (unsigned long long)nbyte, strerror(errno));
  tr__part_abandon(file);
  unlink(path);
  return status;
}

tr_status tr__part_open(tr__part_file *file, const char *path) { return open_twice(file, path, 0); }

static size_t smaller(size_t a, size_t b) { return a < b ? a : b; }

// How much to write next, and through which descriptor.
static size_t next_piece(const tr__part_file *file, const unsigned char *data, size_t nbyte, uint64_t offset,
                         int *fd) {
  size_t mask = TR__PART_ALIGN - 1, odd = (size_t)offset & mask;
  *fd = file->plain;
  if (file->direct < 0 || (((uintptr_t)data ^ offset) & mask)) return smaller(nbyte, TR__PART_BLOCK);
  if (odd) return smaller(nbyte, TR__PART_ALIGN - odd);
  if (nbyte <= mask) return nbyte;
  *fd = file->direct;
  return smaller(nbyte & ~mask, TR__PART_BLOCK);
}

tr_status tr__part_write(tr__part_file *file, const void *data, size_t nbyte, uint64_t offset) {
  const unsigned char *next = data;
  while (nbyte > 0) {
    int fd;
    size_t piece = next_piece(file, next, nbyte, offset, &fd);
    ssize_t n = pwrite(fd, next, piece, (off_t)offset);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EINVAL && fd == file->direct) { // no such blocks here
      close(file->direct);
      file->direct = -1;
      continue;
    }
    if (n < 0) return io_error(file->path, "write");
    if (n == 0) return tr_error(TR_ERR_IO, "%s: cannot write: %zu bytes were not taken", file->path, nbyte);
    if (fd == file->plain) file->unsynced += (size_t)n;
    if (file->unsynced >= SYNC_BYTES) {
      if (fdatasync(file->plain) != 0) return io_error(file->path, "force to disk");
      file->unsynced = 0;
    }
    next += n, offset += (uint64_t)n, nbyte -= (size_t)n;
    if (file->wrote) TR_TRY(file->wrote(file->user, (size_t)n));
  }
  return TR_OK;
}

tr_status tr__part_finish(tr__part_file *file) {
  tr_status status = fsync(file->plain) != 0 ? io_error(file->path, "force to disk") : TR_OK;
  // Some network file systems report a failed write only when the file is closed.
  int direct = file->direct < 0 ? 0 : close(file->direct), reason = errno;
  int plain = close(file->plain);
  if (direct != 0 && plain == 0) errno = reason;
  if ((direct != 0 || plain != 0) && errno != EINTR && status == TR_OK) status = io_error(file->path, "close");
  file->direct = file->plain = -1;
  return status;
}

// ---- streams

tr_status tr__stream_open(tr__stream *stream, tr__part_file *file, uint64_t expected) {
  // One block more, because the buffer starts where the first byte's block does.
  uint64_t room = (expected / TR__PART_ALIGN + 2) * TR__PART_ALIGN;
  *stream = (tr__stream){.file = file, .room = room < STREAM_ROOM ? (size_t)room : STREAM_ROOM};
  stream->buffer = tr__huge_alloc(stream->room);
  if (stream->buffer) return TR_OK;
  return tr_error(TR_ERR_MEMORY, "no memory for a buffer of %zu bytes", stream->room);
}

void tr__stream_close(tr__stream *stream) {
  tr__huge_free(stream->buffer, stream->room);
  stream->buffer = NULL;
}

void tr__stream_seek(tr__stream *stream, uint64_t offset) {
  stream->base = offset / TR__PART_ALIGN * TR__PART_ALIGN;
  stream->begin = stream->end = (size_t)(offset - stream->base);
}

// Write whole blocks, and move the rest to the front.
static tr_status spill(tr__stream *stream) {
  size_t whole = stream->end / TR__PART_ALIGN * TR__PART_ALIGN;
  TR_TRY(tr__part_write(stream->file, stream->buffer + stream->begin, whole - stream->begin,
                        stream->base + stream->begin));
  memmove(stream->buffer, stream->buffer + whole, stream->end - whole);
  stream->base += whole;
  stream->begin = 0;
  stream->end -= whole;
  return TR_OK;
}

tr_status tr__stream_flush(tr__stream *stream) {
  tr_status status = tr__part_write(stream->file, stream->buffer + stream->begin, stream->end - stream->begin,
                                    stream->base + stream->begin);
  stream->begin = stream->end;
  return status;
}

tr_status tr__stream_bytes(tr__stream *stream, const void *data, size_t nbyte) {
  for (size_t done = 0; done < nbyte;) {
    size_t part = smaller(stream->room - stream->end, nbyte - done);
    memcpy(stream->buffer + stream->end, (const char *)data + done, part);
    if (stream->hash) XXH3_64bits_update(stream->hash, stream->buffer + stream->end, part);
    stream->end += part;
    done += part;
    if (stream->end == stream->room) TR_TRY(spill(stream));
  }
  return TR_OK;
}

tr_status tr__stream_item(tr__stream *stream, const tr_safetensors_item *item, uint64_t *hash) {
  size_t size = tr_dtype_size(item->stored_type), count = (size_t)tr_shape_count(&item->shape);
  XXH3_state_t *state = XXH3_createState();
  if (!state) return tr_error(TR_ERR_MEMORY, "no memory for a hash");
  XXH3_64bits_reset(state);
  tr_status status = TR_OK;
  for (size_t i = 0; i < count && status == TR_OK;) {
    // Pieces that are still in the cache when they are hashed, unless rows of a transpose are better kept together.
    size_t room = (stream->room - stream->end) / size, part = smaller(count - i, room);
    if (!item->transpose) part = smaller(part, ITEM_PIECE / size);
    tr__stored_range(item, i, part, stream->buffer + stream->end);
    XXH3_64bits_update(state, stream->buffer + stream->end, part * size);
    if (stream->hash) XXH3_64bits_update(stream->hash, stream->buffer + stream->end, part * size);
    stream->end += part * size;
    i += part;
    if (stream->room - stream->end < size) status = spill(stream);
  }
  *hash = XXH3_64bits_digest(state);
  XXH3_freeState(state);
  return status;
}
