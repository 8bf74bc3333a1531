// SPDX-License-Identifier: MIT
// Which process has started the ranks of this host. Its number is the name under which they find each other: starters give
// no common name to a job, but one process of theirs (mpirun, orted, hydra_pmi_proxy, slurmstepd, torchrun) is above all
// ranks of a host. Between it and a rank there may be wrappers, and those have the rank's variables in their environment.
#include "external_internal.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// Parent and start time of a process; 0 when there is no such process.
static int read_stat(int pid, int *parent, unsigned long long *born) {
  char path[64], text[1024];
  snprintf(path, sizeof path, "/proc/%d/stat", pid);
  FILE *file = fopen(path, "re");
  size_t n = file ? fread(text, 1, sizeof text - 1, file) : 0;
  if (file) fclose(file);
  text[n] = 0;
  const char *rest = strrchr(text, ')'); // the name may hold anything
  return rest && sscanf(rest + 1, " %*c %d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu",
                        parent, born) == 2;
}

static int has_variable(int pid, const char *name) {
  char path[64], *line = NULL;
  size_t room = 0, length = strlen(name);
  int found = 0;
  snprintf(path, sizeof path, "/proc/%d/environ", pid);
  FILE *file = fopen(path, "re");
  while (file && !found && getdelim(&line, &room, 0, file) > 0)
    found = strncmp(line, name, length) == 0 && line[length] == '=';
  if (file) fclose(file);
  free(line);
  return found;
}

tr__starter tr__starter_find(const char *variable) {
  int pid = getppid(), parent;
  tr__starter starter = {.pid = pid};
  while (read_stat(pid, &parent, &starter.born)) {
    starter.pid = pid;
    if (parent <= 1 || !has_variable(pid, variable)) break;
    pid = parent;
  }
  return starter;
}
