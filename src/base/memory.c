// SPDX-License-Identifier: MIT
// Memory that is really there.
//
// Private memory is read from smaps_rollup, for which the kernel walks the page tables. RssAnon in `status` costs nothing,
// but kernels from 6.2 to 6.16 tell it from counters per processor that lag behind by up to some hundred pages each; it
// stands in where there is no rollup. Shared memory is asked for page by page: what a process has mapped says nothing
// about what the others have touched.
#include "trireme/base/memory.h"

#include <link.h>
#include <malloc.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

// The number of kB behind `name` in a file of such lines; -1: there is none.
static long long kilobytes_in(const char *path, const char *format) {
  char line[256];
  long long kib = -1;
  FILE *file = fopen(path, "re");
  while (file && kib < 0 && fgets(line, sizeof line, file))
    if (sscanf(line, format, &kib) != 1) kib = -1;
  if (file) fclose(file);
  return kib;
}

size_t tr_memory_private(void) {
  long long kib = kilobytes_in("/proc/self/smaps_rollup", "Anonymous: %lld kB");
  if (kib < 0) kib = kilobytes_in("/proc/self/status", "RssAnon: %lld kB");
  return kib < 0 ? 0 : (size_t)kib * 1024;
}

size_t tr_memory_shared(const void *at, size_t nbyte) {
  enum { PAGES = 4096 };
  unsigned char there[PAGES];
  size_t page = (size_t)sysconf(_SC_PAGESIZE), count = 0;
  char *base = (char *)(uintptr_t)at; // mincore does not change it
  for (size_t i = 0; i < nbyte; i += PAGES * page) {
    size_t part = nbyte - i < PAGES * page ? nbyte - i : PAGES * page, n = (part + page - 1) / page;
    if (mincore(base + i, part, there) != 0) return count * page;
    for (size_t k = 0; k < n; k++) count += there[k] & 1;
  }
  return count * page;
}

void tr_memory_trim(void) { malloc_trim(0); }

void tr_memory_map_pages(const void *at, size_t nbyte) {
  uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), first = (uintptr_t)at / page * page;
  if (nbyte == 0 || madvise((void *)first, (uintptr_t)at + nbyte - first, MADV_POPULATE_READ) == 0) return;
  const volatile char *byte = at;
  for (size_t i = 0; i < nbyte; i += page) (void)byte[i];
  (void)byte[nbyte - 1];
}

static int map_object(struct dl_phdr_info *info, size_t size, void *user) {
  (void)size;
  (void)user;
  for (int i = 0; i < info->dlpi_phnum; i++) {
    const ElfW(Phdr) *part = &info->dlpi_phdr[i];
    if (part->p_type == PT_LOAD && part->p_flags & PF_X)
      tr_memory_map_pages((const void *)(info->dlpi_addr + part->p_vaddr), part->p_memsz);
  }
  return 1; // the first object is the program
}

void tr_memory_map_code(void) { dl_iterate_phdr(map_object, NULL); }
