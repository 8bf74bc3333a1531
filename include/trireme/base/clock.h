// SPDX-License-Identifier: MIT
// Time: a monotonic clock for durations and deadlines (never steps back), wall time only for people.
#ifndef TRIREME_BASE_CLOCK_H
#define TRIREME_BASE_CLOCK_H

#include <stddef.h>
#include <stdint.h>

int64_t tr_clock_ns(void);     // monotonic, nanoseconds
double tr_clock_seconds(void); // the same in seconds
void tr_clock_sleep_ns(int64_t ns);
void tr_clock_utc(char *out, size_t nbyte); // "2026-11-29T13:10:53Z"

#endif
