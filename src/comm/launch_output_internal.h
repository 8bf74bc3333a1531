// SPDX-License-Identifier: MIT
// The output of forked ranks: pipes from them, prefixed lines on the launcher's own output, log files.
#ifndef TRIREME_COMM_LAUNCH_OUTPUT_INTERNAL_H
#define TRIREME_COMM_LAUNCH_OUTPUT_INTERNAL_H

#include "comm_internal.h"
#include <poll.h>

typedef struct tr__stream { // one of a rank's two outputs
  int read_fd, write_fd;    // -1: inherited from the launcher, or closed
  int to;                   // STDOUT_FILENO or STDERR_FILENO of the launcher
  int whole;                // pass on as it is (rank 0's standard output)
  size_t used;
  char *line; // the line that has no end yet
} tr__stream;

typedef struct tr__output {
  int nrank;
  tr__stream *streams; // [rank][2]
  int *log_fds;        // [rank], -1 none
} tr__output;

tr_status tr__output_open(tr__output *output, const tr_launch_options *options);
void tr__output_started(tr__output *output, int rank);               // in the launcher, after the fork
void tr__output_become_rank(tr__output *output, int rank);           // in the rank
int tr__output_poll(const tr__output *output, struct pollfd *polls); // at most 2 * nrank
void tr__output_read(tr__output *output);                            // whatever there is
void tr__output_finish(tr__output *output);                          // the rest, and lines without an end
void tr__output_close(tr__output *output);

#endif
