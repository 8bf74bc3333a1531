// SPDX-License-Identifier: MIT
// Clocks of the system behind three plain functions.
//
// Durations and deadlines use CLOCK_MONOTONIC, which never steps back and is the same for all processes of a host;
// the wall clock only ever becomes text. Sleeping goes to an absolute time, so signals do not lengthen it.
#include "trireme/base/clock.h"

#include <errno.h>
#include <time.h>

enum { NS_PER_S = 1000000000 };

int64_t tr_clock_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * NS_PER_S + now.tv_nsec;
}

double tr_clock_seconds(void) { return (double)tr_clock_ns() * 1e-9; }

void tr_clock_sleep_ns(int64_t ns) {
  if (ns <= 0) return;
  int64_t now = tr_clock_ns();
  int64_t until = ns > INT64_MAX - now ? INT64_MAX : now + ns;
  struct timespec end = {.tv_sec = (time_t)(until / NS_PER_S), .tv_nsec = (long)(until % NS_PER_S)};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &end, NULL) == EINTR) {
  }
}

void tr_clock_utc(char *out, size_t nbyte) {
  time_t now = time(NULL);
  struct tm utc;
  if (nbyte == 0) return;
  if (!gmtime_r(&now, &utc) || strftime(out, nbyte, "%Y-%m-%dT%H:%M:%SZ", &utc) == 0) out[0] = '\0';
}
