// SPDX-License-Identifier: MIT
// Memory as the system sees it: how much is really there, to be laid beside what was planned, and page tables.
#ifndef TRIREME_BASE_MEMORY_H
#define TRIREME_BASE_MEMORY_H

#include <stddef.h>

// Bytes of this process's own memory: anonymous pages that are in memory, whatever asked for them. Pages that a fork has
// left shared with the parent count. 0 where the system does not say. Takes about 50 ns per page.
size_t tr_memory_private(void);
// Give what was freed back to the system: the allocator keeps it otherwise, on the heaps of all threads.
void tr_memory_trim(void);
// Bytes of [at, at + nbyte) of a shared mapping that exist, whichever process has touched them. `at` starts a page.
size_t tr_memory_shared(const void *at, size_t nbyte);
// Enter all pages of [at, at + nbyte) into this process's page tables, so that the first look at one costs no fault. Contents
// stay. Where the kernel cannot do it (before Linux 5.14) each page is looked at.
void tr_memory_map_pages(const void *at, size_t nbyte);
// The same for the code of the program itself (not of shared libraries): a rare path is taken at any time.
void tr_memory_map_code(void);

#endif
