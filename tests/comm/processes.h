// SPDX-License-Identifier: MIT
// What tests of forked ranks look at: open files, children left behind, a page shared with the ranks.
#ifndef TRIREME_TESTS_COMM_PROCESSES_H
#define TRIREME_TESTS_COMM_PROCESSES_H

#include "thread_sanitizer.h"
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static inline int open_files(void) {
  int n = 0;
  DIR *folder = opendir("/proc/self/fd");
  while (folder && readdir(folder)) n++;
  if (folder) closedir(folder);
  return n;
}

static inline int no_children(void) { return waitpid(-1, NULL, WNOHANG) < 0 && errno == ECHILD; }

static inline int count_lines_with(const char *path, const char *text) {
  char line[1024];
  int n = 0;
  FILE *file = fopen(path, "r");
  while (file && fgets(line, sizeof line, file)) n += strstr(line, text) != NULL;
  if (file) fclose(file);
  return n;
}

static inline int memory_files_mapped(void) { return count_lines_with("/proc/self/maps", "memfd:trireme"); }

static inline void *shared_page(void) {
  void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  return page == MAP_FAILED ? NULL : page;
}
static inline void free_shared_page(void *page) { munmap(page, 4096); }

// The thread sanitizer makes a thread of its own, at once or a little later, with which ranks cannot be forked.
static inline void skip_unless_forking_works(void) {
  if (!THREAD_SANITIZER && count_lines_with("/proc/self/status", "Threads:\t1\n")) return;
  printf("skipped: this process has more than one thread from the start (thread sanitizer), so ranks cannot "
         "be forked\n");
  exit(77);
}

#endif
