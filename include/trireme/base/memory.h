// SPDX-License-Identifier: MIT
// How much memory is really there, as the system counts it: to be laid beside what was planned.
#ifndef TRIREME_BASE_MEMORY_H
#define TRIREME_BASE_MEMORY_H

#include <stddef.h>

// Bytes of this process's own memory: anonymous pages that are in memory, whatever asked for them. Pages that a fork has
// left shared with the parent count. 0 where the system does not say. Takes about 50 ns per page.
size_t tr_memory_private(void);
// Bytes of [at, at + nbyte) of a shared mapping that exist, whichever process has touched them. `at` starts a page.
size_t tr_memory_shared(const void *at, size_t nbyte);

#endif
