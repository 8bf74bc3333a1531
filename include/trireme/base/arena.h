// SPDX-License-Identifier: MIT
// Arenas: memory planned before the first step.
//
// An arena is one fixed range of memory handed out front to back and given back all at once (or to a mark). Nothing
// in a training step allocates; everything it touches was taken from an arena before. Pages of an owned arena are
// mapped privately and are faulted in by tr_arena_prefault(). Not thread safe: one owner.
//
//   base                 base+used                     base+size
//   | block | pad | block |          free               |
#ifndef TRIREME_BASE_ARENA_H
#define TRIREME_BASE_ARENA_H

#include "trireme/base/status.h"
#include <stddef.h>

enum { TR_ARENA_ALIGN = 128 }; // every block starts on a multiple of this many bytes (two cache lines)

typedef struct tr_arena {
  char *base;
  size_t size;      // bytes reserved
  size_t used;      // bytes handed out, padding included
  size_t peak;      // largest `used` seen
  const char *name; // for messages; not owned
  int owned;        // mapped by tr_arena_create
} tr_arena;

// Map `nbyte` (rounded up to pages) of zeroed private memory. TR_ERR_MEMORY if the system refuses.
tr_status tr_arena_create(tr_arena *arena, const char *name, size_t nbyte);
// Use memory owned by somebody else (a shared mapping, a part of another arena).
void tr_arena_wrap(tr_arena *arena, const char *name, void *memory, size_t nbyte);
void tr_arena_destroy(tr_arena *arena); // unmaps what create mapped; wrapped memory is left alone

// `nbyte` bytes aligned to TR_ARENA_ALIGN, or NULL with a recorded TR_ERR_MEMORY that names the arena, the request
// and what is left. Zero bytes give a valid, aligned pointer.
void *tr_arena_alloc(tr_arena *arena, size_t nbyte);
size_t tr_arena_mark(const tr_arena *arena);       // the present position
void tr_arena_reset(tr_arena *arena, size_t mark); // give back everything taken since that mark
// Touch every page, so that no step pays for it; progress(user), which may be NULL, is called every 64 MiB.
void tr_arena_prefault(tr_arena *arena, void (*progress)(void *user), void *user);

// `nbyte` rounded up to TR_ARENA_ALIGN: what one block of that size takes.
static inline size_t tr_arena_rounded(size_t nbyte) {
  return (nbyte + TR_ARENA_ALIGN - 1) & ~(size_t)(TR_ARENA_ALIGN - 1);
}

#endif
