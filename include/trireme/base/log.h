// SPDX-License-Identifier: MIT
// Log lines: one sink for the process, one label per thread.
//
// A line carries time (UTC), level and the label of the rank that speaks ("rank 3"). Lines are written with one
// write() each, so ranks that share a terminal or a pipe do not mix within a line. Thread safe.
#ifndef TRIREME_BASE_LOG_H
#define TRIREME_BASE_LOG_H

typedef enum tr_log_level { TR_LOG_ERROR, TR_LOG_WARN, TR_LOG_INFO, TR_LOG_DEBUG } tr_log_level;

// Receives a finished line without its newline. Called with the log's lock held: must not log.
typedef void (*tr_log_sink)(tr_log_level level, const char *line, void *user);

void tr_log(tr_log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));
// The default is TR_LOG_INFO, or what the environment says: TRIREME_LOG=error|warn|info|debug.
void tr_log_set_level(tr_log_level least);
void tr_log_set_sink(tr_log_sink sink, void *user); // NULL: standard error
void tr_log_set_label(const char *label);           // of the calling thread; copied; "" for none
const char *tr_log_label(void);

#define tr_log_error(...) tr_log(TR_LOG_ERROR, __VA_ARGS__)
#define tr_log_warn(...)  tr_log(TR_LOG_WARN, __VA_ARGS__)
#define tr_log_info(...)  tr_log(TR_LOG_INFO, __VA_ARGS__)
#define tr_log_debug(...) tr_log(TR_LOG_DEBUG, __VA_ARGS__)

#endif
