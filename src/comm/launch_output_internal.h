// SPDX-License-Identifier: MIT
// The output of forked ranks: pipes from them, prefixed lines on the launcher's own output, log files.
#ifndef TRIREME_COMM_LAUNCH_OUTPUT_INTERNAL_H
#define TRIREME_COMM_LAUNCH_OUTPUT_INTERNAL_H

#include "comm_internal.h"
#include <poll.h>

// One of the launcher's own outputs. Its reader may stop for as long as it likes: what does not go out waits in `data`.
typedef struct tr__sink {
  int fd, own_fd; // own_fd: fd opened once more without blocking, -1 none
  char *data;     // [at, at + used) waits
  size_t at, used;
  size_t dropped; // lines; not 0: everything is dropped until that has been said
  char last;      // byte taken
  int64_t moved;  // when something last went out or began to wait, ns
} tr__sink;

typedef struct tr__stream { // one of a rank's two outputs
  int read_fd, write_fd;    // -1: inherited from the launcher, or closed
  int to;                   // STDOUT_FILENO or STDERR_FILENO of the launcher
  tr__sink *sink;           // the same
  int whole;                // pass on as it is (rank 0's standard output)
  size_t used;
  char *line; // the line that has no end yet
} tr__stream;

typedef struct tr__output {
  int nrank;
  tr__sink sinks[2];   // standard output, standard error
  tr__stream *streams; // [rank][2]
  int *log_fds;        // [rank], -1 none
} tr__output;

tr_status tr__sink_open(tr__sink *sink, int fd);
void tr__sink_close(tr__sink *sink);
void tr__sink_put(tr__sink *sink, const char *data, size_t nbyte); // a line or more, at most 128 KiB
void tr__sink_flush(tr__sink *sink);                               // what goes without waiting
int tr__sink_holds_back(const tr__sink *sink);                     // much waits for a reader that moves: read no more
// At the end: wait for the reader, but at most a second for it to move, and not longer than `until` (ns).
void tr__sink_make_room(tr__sink *sink, int64_t until);
void tr__sink_finish(tr__sink *sink, int64_t until);

tr_status tr__output_open(tr__output *output, const tr_launch_options *options);
void tr__output_started(tr__output *output, int rank);               // in the launcher, after the fork
void tr__output_become_rank(tr__output *output, int rank);           // in the rank
int tr__output_poll(const tr__output *output, struct pollfd *polls); // at most 2 * nrank + 2
void tr__output_read(tr__output *output);                            // whatever there is
void tr__output_finish(tr__output *output);                          // the rest, and lines without an end
void tr__output_close(tr__output *output);

#endif
