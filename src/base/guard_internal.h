// SPDX-License-Identifier: MIT
// The table of guarded maps, for file.c alone: see guard.c.
#ifndef TRIREME_BASE_GUARD_INTERNAL_H
#define TRIREME_BASE_GUARD_INTERNAL_H

#include <stddef.h>

enum { TR__GUARD_MAX = 4096, TR__GUARD_NONE = -1 };

// Guard these mapped bytes. Returns the place in the table, or TR__GUARD_NONE when it is full or no handler can be set.
int tr__guard_add(const void *data, size_t nbyte);
// Before the bytes are unmapped: afterwards somebody else may get the same addresses.
void tr__guard_remove(int place);
int tr__guard_torn(int place);

#endif
