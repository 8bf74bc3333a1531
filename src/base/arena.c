// SPDX-License-Identifier: MIT
// Arenas: one mapping, a front that only moves forward until it is put back.
//
// Blocks start at aligned addresses (not merely offsets), so a wrapped range may start anywhere. A block's size is
// rounded up as tr_arena_rounded() says, except at the very end of a range that is not a multiple itself.
#include "trireme/base/arena.h"
#include "trireme/base/text.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { HUGE_FROM = 8 << 20 }; // from here on ask for transparent huge pages

static size_t page_size(void) {
  long size = sysconf(_SC_PAGESIZE);
  return size > 0 ? (size_t)size : 4096;
}

tr_status tr_arena_create(tr_arena *arena, const char *name, size_t nbyte) {
  size_t page = page_size();
  char asked[32];
  tr_format_bytes(asked, sizeof asked, (double)nbyte);
  if (nbyte > SIZE_MAX - page)
    return tr_error(TR_ERR_MEMORY, "arena '%s': %s is more than can be addressed", name, asked);
  size_t size = (nbyte + page - 1) / page * page;
  if (size == 0) size = page;
  void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    return tr_error(TR_ERR_MEMORY, "arena '%s': cannot map %s: %s", name, asked, strerror(errno));
  }
  // Fewer translation misses; a kernel that refuses costs speed only.
  if (size >= HUGE_FROM) madvise(memory, size, MADV_HUGEPAGE);
  tr_arena_wrap(arena, name, memory, size);
  arena->owned = 1;
  return TR_OK;
}

void tr_arena_wrap(tr_arena *arena, const char *name, void *memory, size_t nbyte) {
  *arena = (tr_arena){.base = memory, .size = nbyte, .name = name};
}

void tr_arena_destroy(tr_arena *arena) {
  if (arena->owned && arena->base) munmap(arena->base, arena->size);
  *arena = (tr_arena){.name = arena->name};
}

static void record_exhausted(const tr_arena *arena, size_t nbyte) {
  char asked[32], left[32], size[32];
  tr_format_bytes(asked, sizeof asked, (double)nbyte);
  tr_format_bytes(left, sizeof left, (double)(arena->size - arena->used));
  tr_format_bytes(size, sizeof size, (double)arena->size);
  tr_error(TR_ERR_MEMORY, "arena '%s': %s asked for, %s of %s left", arena->name, asked, left, size);
}

void *tr_arena_alloc(tr_arena *arena, size_t nbyte) {
  size_t left = arena->size - arena->used;
  size_t pad = (size_t)(-((uintptr_t)arena->base + arena->used)) & (TR_ARENA_ALIGN - 1);
  if (!arena->base || pad > left || nbyte > left - pad) {
    record_exhausted(arena, nbyte);
    return NULL;
  }
  char *block = arena->base + arena->used + pad;
  left -= pad;
  // nbyte <= left, so the only way to pass the end is the rounding; then the block takes all that is left.
  size_t rounded = nbyte > left - left % TR_ARENA_ALIGN ? left : tr_arena_rounded(nbyte);
  arena->used += pad + rounded;
  if (arena->used > arena->peak) arena->peak = arena->used;
  return block;
}

size_t tr_arena_mark(const tr_arena *arena) { return arena->used; }

void tr_arena_reset(tr_arena *arena, size_t mark) {
  if (mark <= arena->used) arena->used = mark;
}

void tr_arena_prefault(tr_arena *arena, void (*progress)(void *user), void *user) {
  enum { BLOCK = 64 << 20 };
  if (arena->size == 0) return;
  // Writing each page its own first byte keeps contents: wrapped memory may already be in use.
  size_t page = page_size();
  volatile char *base = arena->base;
  for (size_t i = 0; i < arena->size; i += page) {
    base[i] = base[i];
    if (progress && i % BLOCK == 0) progress(user);
  }
  base[arena->size - 1] = base[arena->size - 1];
}
