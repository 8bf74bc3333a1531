// SPDX-License-Identifier: MIT
// Status codes and the text behind them.
//
// Every function that can fail returns a tr_status: 0 done, > 0 not finished yet, < 0 failed. Whoever detects a
// failure records one clear sentence with tr_error(): the field or object, its value, and what would work. Callers
// only pass the code on (TR_TRY). The sentence lives in a record of the calling thread until the next tr_error().
// The library never exits or aborts on a run-time condition; the command maps codes to exit codes.
#ifndef TRIREME_BASE_STATUS_H
#define TRIREME_BASE_STATUS_H

#include <stdarg.h>

//      name             value exit text
#define TR_STATUS_TABLE(X)                                                                                           \
  X(TR_OK, 0, 0, "ok")                                                                                               \
  X(TR_PENDING, 1, 0, "not finished yet")                                                                            \
  X(TR_ERR_INTERNAL, -1, 1, "internal error")                                                                        \
  X(TR_ERR_USAGE, -2, 2, "wrong use")                                                                                \
  X(TR_ERR_CONFIG, -3, 3, "bad configuration")                                                                       \
  X(TR_ERR_PLAN, -4, 3, "plan cannot work")                                                                          \
  X(TR_ERR_DATA, -5, 4, "bad data")                                                                                  \
  X(TR_ERR_CKPT, -6, 4, "bad checkpoint")                                                                            \
  X(TR_ERR_MEMORY, -7, 5, "not enough memory")                                                                       \
  X(TR_ERR_PEER, -8, 6, "peer lost")                                                                                 \
  X(TR_ERR_TIMEOUT, -9, 7, "timeout")                                                                                \
  X(TR_ERR_NAN, -10, 8, "not a number")                                                                              \
  X(TR_ERR_VERIFY, -11, 9, "verification failed")                                                                    \
  X(TR_ERR_IO, -12, 10, "input/output error")

typedef enum tr_status {
#define X(name, value, exit_code, text) name = (value),
  TR_STATUS_TABLE(X)
#undef X
} tr_status;

// Record a failure sentence for this thread and return `code`, so that `return tr_error(...)` reads naturally.
tr_status tr_error(tr_status code, const char *format, ...) __attribute__((format(printf, 2, 3)));
tr_status tr_error_v(tr_status code, const char *format, va_list args);

// Put "prefix: " before the recorded sentence (a caller that knows the file, the rank or the step).
void tr_error_prefix(const char *format, ...) __attribute__((format(printf, 1, 2)));

const char *tr_status_text(void);              // last recorded sentence of this thread; "" if none
void tr_status_clear(void);                    // forget it
const char *tr_status_name(tr_status code);    // "TR_ERR_CONFIG"
const char *tr_status_meaning(tr_status code); // "bad configuration"
int tr_status_exit_code(tr_status code);       // 0 ok, 2 usage, 3 config or plan, 4 data or checkpoint, ...

// Evaluate once; return from the enclosing function when it failed.
#define TR_TRY(expression)                                                                                           \
  do {                                                                                                               \
    tr_status tr_try_status_ = (expression);                                                                         \
    if (tr_try_status_ < 0) return tr_try_status_;                                                                   \
  } while (0)

#endif
