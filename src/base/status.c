// SPDX-License-Identifier: MIT
// The per-thread failure record behind tr_error() and the look-ups in the status table.
//
// One fixed buffer per thread, so that recording a failure never fails itself (no allocation). A sentence is
// formatted into a local buffer first: callers may pass tr_status_text() as an argument of the next
// tr_error(). Not a log: nothing is printed here.
#include "trireme/base/status.h"

#include <stdio.h>
#include <string.h>

enum { RECORD_SIZE = 2048 };

static _Thread_local char record[RECORD_SIZE];

typedef struct status_row {
  const char *name;
  tr_status code;
  int exit_code;
  const char *meaning;
} status_row;

static const status_row status_table[] = {
#define X(name, value, exit_code, text) {#name, name, exit_code, text},
    TR_STATUS_TABLE(X)
#undef X
};

static const status_row *find_row(tr_status code) {
  for (size_t i = 0; i < sizeof status_table / sizeof status_table[0]; i++) {
    if (status_table[i].code == code) return &status_table[i];
  }
  return NULL;
}

tr_status tr_error_v(tr_status code, const char *format, va_list args) {
  char text[RECORD_SIZE];
  if (vsnprintf(text, sizeof text, format, args) < 0) snprintf(text, sizeof text, "%s", format);
  memcpy(record, text, strlen(text) + 1);
  return code;
}

tr_status tr_error(tr_status code, const char *format, ...) {
  va_list args;
  va_start(args, format);
  tr_error_v(code, format, args);
  va_end(args);
  return code;
}

void tr_error_prefix(const char *format, ...) {
  char text[RECORD_SIZE];
  va_list args;
  va_start(args, format);
  int n = vsnprintf(text, sizeof text, format, args);
  va_end(args);
  if (n < 0) return;
  // The end of an over-long sentence is cut, not its beginning: the outermost context comes first.
  size_t used = strlen(text);
  if (snprintf(text + used, sizeof text - used, ": %s", record) < 0) return;
  memcpy(record, text, strlen(text) + 1);
}

const char *tr_status_text(void) { return record; }

void tr_status_clear(void) { record[0] = '\0'; }

const char *tr_status_name(tr_status code) {
  const status_row *row = find_row(code);
  return row ? row->name : "unknown status";
}

const char *tr_status_meaning(tr_status code) {
  const status_row *row = find_row(code);
  return row ? row->meaning : "unknown status";
}

int tr_status_exit_code(tr_status code) {
  const status_row *row = find_row(code);
  return row ? row->exit_code : 1;
}
