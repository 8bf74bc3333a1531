// SPDX-License-Identifier: MIT
// Collecting what forked ranks print.
//
// Rank 0's standard output is the launcher's: inherited when there are no log files (so it stays a terminal),
// passed on byte by byte otherwise, so that progress bars work. Everything else is cut into lines, and each
// line is passed on as a whole under the prefix "[rank N] ", so lines do not mix. Log files receive every
// byte of their rank; the launcher's own outputs (launch_sink.c) what their readers keep up with.
#include "launch_output_internal.h"
#include "trireme/base/clock.h"
#include "trireme/base/file.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LINE_MOST = 64 * 1024, PREFIX_MOST = 24 };

static const int64_t finish_ns = 10000000000; // most time for what waits at the end

static void close_fd(int *fd) {
  if (*fd >= 0) close(*fd);
  *fd = -1;
}

static tr_status open_stream(tr__stream *s, int rank) {
  int fds[2];
  s->line = malloc(PREFIX_MOST + LINE_MOST + 1);
  if (!s->line) return tr_error(TR_ERR_MEMORY, "launch: no memory for the output of rank %d", rank);
  if (pipe2(fds, O_CLOEXEC) != 0)
    return tr_error(TR_ERR_IO, "launch: cannot make a pipe for rank %d: %s%s", rank, strerror(errno),
                    tr_errno_advice(errno));
  s->read_fd = fds[0];
  s->write_fd = fds[1];
  fcntl(s->read_fd, F_SETFL, O_NONBLOCK);
  return TR_OK;
}

static tr_status open_log(tr__output *o, const char *folder, int rank) {
  char path[4096];
  snprintf(path, sizeof path, "%s/rank-%d.log", folder, rank);
  // Appended to, so that a resumed run keeps what was said before; a pipe nobody reads is refused, not waited for.
  o->log_fds[rank] = open(path, O_WRONLY | O_CREAT | O_APPEND | O_NONBLOCK | O_CLOEXEC, 0666);
  if (o->log_fds[rank] >= 0) return TR_OK;
  return tr_error(TR_ERR_IO, "launch: cannot write '%s': %s%s", path, strerror(errno), tr_errno_advice(errno));
}

static tr_status open_rank(tr__output *o, const tr_launch_options *options, int rank) {
  tr__stream *out = &o->streams[2 * rank], *err = out + 1;
  out->to = STDOUT_FILENO;
  err->to = STDERR_FILENO;
  out->sink = &o->sinks[0];
  err->sink = &o->sinks[1];
  out->whole = rank == 0;
  if (options->log_folder) TR_TRY(open_log(o, options->log_folder, rank));
  if (rank > 0 || options->log_folder) TR_TRY(open_stream(out, rank));
  return open_stream(err, rank);
}

tr_status tr__output_open(tr__output *o, const tr_launch_options *options) {
  size_t n = (size_t)options->nrank;
  *o = (tr__output){
      .nrank = options->nrank, .streams = calloc(2 * n, sizeof(tr__stream)), .log_fds = calloc(n, sizeof(int))};
  tr_status status = TR_OK;
  if (!o->streams || !o->log_fds) {
    free(o->streams);
    free(o->log_fds);
    return tr_error(TR_ERR_MEMORY, "launch: no memory for the output of %zu ranks", n);
  }
  o->sinks[0].own_fd = o->sinks[1].own_fd = -1;
  for (size_t i = 0; i < 2 * n; i++) o->streams[i].read_fd = o->streams[i].write_fd = -1;
  for (size_t i = 0; i < n; i++) o->log_fds[i] = -1;
  status = tr__sink_open(&o->sinks[0], STDOUT_FILENO);
  if (status == TR_OK) status = tr__sink_open(&o->sinks[1], STDERR_FILENO);
  if (options->log_folder && status == TR_OK) status = tr_file_make_folders(options->log_folder);
  for (int r = 0; r < options->nrank && status == TR_OK; r++) status = open_rank(o, options, r);
  if (status < 0) tr__output_close(o);
  return status;
}

void tr__output_close(tr__output *o) {
  for (int i = 0; i < 2 * o->nrank; i++) {
    close_fd(&o->streams[i].read_fd);
    close_fd(&o->streams[i].write_fd);
    free(o->streams[i].line);
  }
  for (int r = 0; r < o->nrank; r++) close_fd(&o->log_fds[r]);
  for (int i = 0; i < 2; i++) tr__sink_close(&o->sinks[i]);
  free(o->streams);
  free(o->log_fds);
}

void tr__output_started(tr__output *o, int rank) {
  close_fd(&o->streams[2 * rank].write_fd);
  close_fd(&o->streams[2 * rank + 1].write_fd);
}

void tr__output_become_rank(tr__output *o, int rank) {
  // Whole lines leave at once, also rank 0's into a file that others write to.
  setvbuf(stdout, NULL, _IOLBF, 0);
  for (int i = 0; i < 2; i++) {
    tr__stream *s = &o->streams[2 * rank + i];
    if (s->write_fd < 0) continue;
    dup2(s->write_fd, s->to);
  }
  for (int i = 0; i < 2 * o->nrank; i++) {
    close_fd(&o->streams[i].read_fd);
    close_fd(&o->streams[i].write_fd);
  }
  for (int r = 0; r < o->nrank; r++) close_fd(&o->log_fds[r]);
  for (int i = 0; i < 2; i++) close_fd(&o->sinks[i].own_fd);
}

int tr__output_poll(const tr__output *o, struct pollfd *polls) {
  int n = 0, held[2];
  for (int i = 0; i < 2; i++) {
    held[i] = tr__sink_holds_back(&o->sinks[i]);
    if (o->sinks[i].used > 0) polls[n++] = (struct pollfd){.fd = o->sinks[i].fd, .events = POLLOUT};
  }
  for (int i = 0; i < 2 * o->nrank; i++)
    if (o->streams[i].read_fd >= 0 && !held[i & 1])
      polls[n++] = (struct pollfd){.fd = o->streams[i].read_fd, .events = POLLIN};
  return n;
}

// A log file may be full for good; the ranks go on, what could not be written is dropped.
static void put_log(int fd, const char *data, size_t nbyte) {
  while (nbyte > 0) {
    ssize_t n = write(fd, data, nbyte);
    struct pollfd room = {.fd = fd, .events = POLLOUT};
    if (n < 0 && errno == EAGAIN && poll(&room, 1, 1000) > 0) continue;
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return;
    data += n;
    nbyte -= (size_t)n;
  }
}

static void put_line(tr__stream *s, int rank) {
  char prefix[PREFIX_MOST + 1];
  int n = snprintf(prefix, sizeof prefix, "[rank %d] ", rank);
  char *start = s->line + PREFIX_MOST - n; // the line is kept behind room for its prefix
  memcpy(start, prefix, (size_t)n);
  s->line[PREFIX_MOST + s->used] = '\n';
  tr__sink_put(s->sink, start, (size_t)n + s->used + 1);
  s->used = 0;
}

static void collect_lines(tr__stream *s, int rank, const char *data, size_t nbyte) {
  for (size_t i = 0; i < nbyte; i++) {
    if (data[i] != '\n') s->line[PREFIX_MOST + s->used++] = data[i];
    if (data[i] == '\n' || s->used == LINE_MOST) put_line(s, rank);
  }
}

// Returns 0 when there is nothing more for now.
static int read_stream(tr__output *o, int index) {
  tr__stream *s = &o->streams[index];
  int rank = index / 2;
  char data[16 * 1024];
  if (s->read_fd < 0) return 0;
  ssize_t n = read(s->read_fd, data, sizeof data);
  if (n < 0 && errno == EINTR) return 1;
  if (n < 0 && errno == EAGAIN) return 0;
  if (n <= 0) {
    close_fd(&s->read_fd);
    return 0;
  }
  if (o->log_fds[rank] >= 0) put_log(o->log_fds[rank], data, (size_t)n);
  if (s->whole)
    tr__sink_put(s->sink, data, (size_t)n);
  else
    collect_lines(s, rank, data, (size_t)n);
  return 1;
}

void tr__output_read(tr__output *o) {
  for (int i = 0; i < 2; i++) tr__sink_flush(&o->sinks[i]);
  for (int i = 0; i < 2 * o->nrank; i++)
    if (!tr__sink_holds_back(o->streams[i].sink)) read_stream(o, i);
}

void tr__output_finish(tr__output *o) {
  int64_t now = tr_clock_ns(), until = now + finish_ns;
  for (int i = 0; i < 2; i++) o->sinks[i].moved = now; // its reader gets a second from here
  for (int i = 0; i < 2 * o->nrank; i++) {
    do tr__sink_make_room(o->streams[i].sink, until);
    while (read_stream(o, i));
    if (o->streams[i].used) put_line(&o->streams[i], i / 2);
  }
  for (int i = 0; i < 2; i++) tr__sink_finish(&o->sinks[i], until);
}
