// SPDX-License-Identifier: MIT
// Log lines: format, then hand over as a whole.
//
// A line is built in a buffer on the stack: "2026-11-29T13:10:53Z info  rank 3: text". Without a sink it goes
// to standard error with one write(), so lines of processes that share a pipe do not mix. Control characters
// in the text become spaces: one call is one line, and text from outside cannot forge another one. The sink,
// its user pointer and the level are the only state of the process; the label belongs to the thread.
#include "trireme/base/log.h"
#include "trireme/base/clock.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

enum { LINE_SIZE = 4096, LABEL_SIZE = 64, WHEN_SIZE = 20, LEVEL_UNSET = -1 }; // WHEN: 2026-11-29T13:10:53Z

typedef struct level_row {
  const char *name, *padded, *colour;
} level_row;

static const level_row level_table[] = {
    [TR_LOG_ERROR] = {"error", "error", "\033[31m"},
    [TR_LOG_WARN] = {"warn", "warn ", "\033[33m"},
    [TR_LOG_INFO] = {"info", "info ", "\033[32m"},
    [TR_LOG_DEBUG] = {"debug", "debug", "\033[2m"},
};

static pthread_mutex_t sink_lock = PTHREAD_MUTEX_INITIALIZER;
static tr_log_sink sink_function;
static void *sink_user;
static atomic_int least_level = LEVEL_UNSET;
static _Thread_local char thread_label[LABEL_SIZE];

static int level_from_environment(void) {
  const char *text = getenv("TRIREME_LOG");
  for (int level = TR_LOG_ERROR; text && level <= TR_LOG_DEBUG; level++) {
    if (strcasecmp(text, level_table[level].name) == 0) return level;
  }
  return TR_LOG_INFO;
}

static int wanted(tr_log_level level) {
  int least = atomic_load_explicit(&least_level, memory_order_relaxed);
  if (least == LEVEL_UNSET) {
    // Only from unset: a level set meanwhile by another thread stays.
    int unset = LEVEL_UNSET;
    least = level_from_environment();
    if (!atomic_compare_exchange_strong(&least_level, &unset, least)) least = unset;
  }
  return (int)level <= least;
}

void tr_log_set_level(tr_log_level least) { atomic_store(&least_level, (int)least); }

void tr_log_set_sink(tr_log_sink sink, void *user) {
  pthread_mutex_lock(&sink_lock);
  sink_function = sink;
  sink_user = user;
  pthread_mutex_unlock(&sink_lock);
}

void tr_log_set_label(const char *label) {
  // Through a copy, because the label may be the one of this thread.
  char copy[LABEL_SIZE];
  snprintf(copy, sizeof copy, "%s", label ? label : "");
  memcpy(thread_label, copy, sizeof copy);
}

const char *tr_log_label(void) { return thread_label; }

// The line without its newline, always terminated.
static void format_line(char *line, size_t nbyte, tr_log_level level, const char *format, va_list args) {
  char when[WHEN_SIZE + 1];
  tr_clock_utc(when, sizeof when);
  int head = snprintf(line, nbyte, "%-*s %s %s%s", WHEN_SIZE, when, level_table[level].padded, thread_label,
                      thread_label[0] ? ": " : "");
  size_t start = (size_t)head;
  int body = vsnprintf(line + start, nbyte - start, format, args);
  if (body < 0) body = snprintf(line + start, nbyte - start, "%s", format);
  size_t end = start + (size_t)body;
  if (end >= nbyte) {
    end = nbyte - 1;
    memcpy(line + end - 4, " ...", 4);
  }
  while (end > start && line[end - 1] == '\n') end--;
  line[end] = '\0';
  for (size_t i = start; i < end; i++) {
    unsigned char c = (unsigned char)line[i];
    if (c < 0x20 || c == 0x7f) line[i] = ' ';
  }
}

static int colour_wanted(void) {
  const char *no_color = getenv("NO_COLOR");
  return isatty(STDERR_FILENO) && !(no_color && no_color[0]);
}

// One write() in all ordinary cases; what a full pipe left over follows. On a terminal the level's word is coloured.
static void write_line(tr_log_level level, const char *line) {
  char out[LINE_SIZE + 32];
  int colour = colour_wanted();
  int head = WHEN_SIZE + 1, word = (int)strlen(level_table[level].padded);
  int n = snprintf(out, sizeof out, "%.*s%s%.*s%s%s\n", head, line, colour ? level_table[level].colour : "", word,
                   line + head, colour ? "\033[0m" : "", line + head + word);
  for (ssize_t done = 0; done < n;) {
    ssize_t more = write(STDERR_FILENO, out + done, (size_t)(n - done));
    if (more < 0 && errno == EINTR) continue;
    if (more <= 0) return;
    done += more;
  }
}

void tr_log(tr_log_level level, const char *format, ...) {
  if (level < TR_LOG_ERROR || level > TR_LOG_DEBUG || !wanted(level)) return;
  int saved_errno = errno; // callers log between a failed call and reading errno
  char line[LINE_SIZE];
  va_list args;
  va_start(args, format);
  format_line(line, sizeof line, level, format, args);
  va_end(args);
  pthread_mutex_lock(&sink_lock);
  int has_sink = sink_function != NULL;
  if (has_sink) sink_function(level, line, sink_user);
  pthread_mutex_unlock(&sink_lock);
  // Outside the lock: a reader that stalls the pipe must not stall threads that only change the sink.
  if (!has_sink) write_line(level, line);
  errno = saved_errno;
}
