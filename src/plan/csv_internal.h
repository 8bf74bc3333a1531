// SPDX-License-Identifier: MIT
// A table of texts read from a file: row 0 is the first below the header.
#ifndef TRIREME_PLAN_CSV_INTERNAL_H
#define TRIREME_PLAN_CSV_INTERNAL_H

#include "trireme/base/status.h"
#include <stddef.h>

typedef struct tr__csv {
  char *text, **field; // the header's fields first
  size_t ncolumn, nrow;
} tr__csv;

tr_status tr__csv_load(const char *path, tr__csv *out); // TR_ERR_DATA, TR_ERR_IO
void tr__csv_unload(tr__csv *csv);
int tr__csv_column(const tr__csv *csv, const char *name);           // -1: none
const char *tr__csv_at(const tr__csv *csv, size_t row, int column); // "" where there is no such column

#endif
