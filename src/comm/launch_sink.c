// SPDX-License-Identifier: MIT
// The launcher's own standard output and error, written without ever blocking.
//
// Readers stop: Ctrl-S, a pager, a stalled tee. The launcher has to go on watching the ranks, so a write is at most
// PIPE_BUF bytes and only made when poll says that there is room; what does not go out waits here. A reader that is
// slow but moves holds the ranks' output back for a while; behind one that stands still whole lines are dropped and
// counted, and their number is said once there is room again. Pipes and terminals are opened once more: others write
// to them too, which may take the room after poll, and O_NONBLOCK on the inherited file would be theirs as well.
#include "launch_output_internal.h"
#include "trireme/base/clock.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
  SINK_NBYTE = 1024 * 1024,
  NOTICE_MOST = 80,    // always left for the line that says what was dropped
  SLOW_NS = 500000000, // a reader that has taken nothing for this long stands still
  GIVE_UP_NS = 1000000000,
};

static int reopen(int fd) {
  char path[48];
  struct stat info;
  if (fstat(fd, &info) != 0 || !(S_ISFIFO(info.st_mode) || isatty(fd))) return -1;
  snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
  return open(path, O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
}

tr_status tr__sink_open(tr__sink *s, int fd) {
  *s = (tr__sink){.fd = fd, .own_fd = reopen(fd), .data = malloc(SINK_NBYTE + NOTICE_MOST), .last = '\n'};
  if (s->own_fd >= 0) s->fd = s->own_fd;
  return s->data ? TR_OK : tr_error(TR_ERR_MEMORY, "launch: no memory for output that waits");
}

void tr__sink_close(tr__sink *s) {
  if (s->own_fd >= 0) close(s->own_fd);
  free(s->data);
  s->own_fd = -1;
  s->data = NULL;
}

// What is written next: whole lines if they fit, so that what others write stands between lines.
static size_t next_piece(const tr__sink *s) {
  if (s->used <= PIPE_BUF) return s->used;
  const char *start = s->data + s->at, *newline = memrchr(start, '\n', PIPE_BUF);
  return newline ? (size_t)(newline - start) + 1 : PIPE_BUF;
}

static void write_waiting(tr__sink *s) {
  struct pollfd room = {.fd = s->fd, .events = POLLOUT};
  while (s->used > 0 && poll(&room, 1, 0) > 0) {
    ssize_t n = write(s->fd, s->data + s->at, next_piece(s));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) return;
    if (n < 0) { // nobody reads any more, or a full disk: the ranks go on, their output is dropped
      s->used = 0;
      return;
    }
    s->at += (size_t)n;
    s->used -= (size_t)n;
    s->moved = tr_clock_ns();
  }
}

// `most` bytes may wait after it.
static int append(tr__sink *s, const char *data, size_t nbyte, size_t most) {
  if (s->used + nbyte > most) return 0;
  if (s->used == 0) s->moved = tr_clock_ns();
  if (s->used == 0 || s->at + s->used + nbyte > most) {
    memmove(s->data, s->data + s->at, s->used);
    s->at = 0;
  }
  memcpy(s->data + s->at + s->used, data, nbyte);
  s->used += nbyte;
  s->last = data[nbyte - 1];
  return 1;
}

static void say_dropped(tr__sink *s) {
  char line[NOTICE_MOST];
  int n = snprintf(line, sizeof line, "%s[launcher] %zu lines dropped: they were not read\n",
                   s->last == '\n' ? "" : "\n", s->dropped);
  if (append(s, line, (size_t)n, SINK_NBYTE + NOTICE_MOST)) s->dropped = 0;
}

void tr__sink_flush(tr__sink *s) {
  write_waiting(s);
  if (!s->dropped || s->used > SINK_NBYTE / 2) return;
  say_dropped(s);
  write_waiting(s);
}

void tr__sink_put(tr__sink *s, const char *data, size_t nbyte) {
  if (nbyte == 0) return;
  if (s->dropped || s->used + nbyte > SINK_NBYTE) tr__sink_flush(s);
  if (!s->dropped && append(s, data, nbyte, SINK_NBYTE)) {
    write_waiting(s);
    return;
  }
  size_t lines = 0;
  for (size_t i = 0; i < nbyte; i++) lines += data[i] == '\n';
  s->dropped += lines || s->dropped ? lines : 1; // never 0: it also says that the sink is dropping
}

int tr__sink_holds_back(const tr__sink *s) { return s->used > SINK_NBYTE / 2 && tr_clock_ns() - s->moved < SLOW_NS; }

// Wait until at most `most` bytes wait, the reader stands still for a second, or it is `until`.
static void drain(tr__sink *s, size_t most, int64_t until) {
  struct pollfd room = {.fd = s->fd, .events = POLLOUT};
  for (;;) {
    tr__sink_flush(s);
    int64_t now = tr_clock_ns(), end = s->moved + GIVE_UP_NS < until ? s->moved + GIVE_UP_NS : until;
    if (s->used <= most || now >= end) return;
    poll(&room, 1, (int)((end - now) / 1000000) + 1);
  }
}

void tr__sink_make_room(tr__sink *s, int64_t until) { drain(s, SINK_NBYTE / 2, until); }
void tr__sink_finish(tr__sink *s, int64_t until) { drain(s, 0, until); }
