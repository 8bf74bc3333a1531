// SPDX-License-Identifier: MIT
// Reading one run: first what the row says, then, with its device, whether it can be predicted and what was measured.
#ifndef TRIREME_PLAN_RUNS_INTERNAL_H
#define TRIREME_PLAN_RUNS_INTERNAL_H

#include "plan/csv_internal.h"
#include "trireme/plan/runs.h"

void tr__run_read(const tr__csv *csv, size_t row, tr_run *run);
void tr__run_finish(const tr__csv *csv, size_t row, const tr_device *device, tr_run *run);

// What a row says of its program, and what follows for a plan (software.c).
typedef struct tr__software {
  const char *framework, *notes, *number;
  int64_t year;
  int says_sequence_parallel; // the plan's is the row's
} tr__software;
void tr__software_apply(const tr__software *software, tr_plan *plan);

#endif
