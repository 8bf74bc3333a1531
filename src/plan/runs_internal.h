// SPDX-License-Identifier: MIT
// Reading one run: first what the row says, then, with its device, whether it can be predicted and what was measured.
#ifndef TRIREME_PLAN_RUNS_INTERNAL_H
#define TRIREME_PLAN_RUNS_INTERNAL_H

#include "plan/csv_internal.h"
#include "trireme/plan/runs.h"

void tr__run_read(const tr__csv *csv, size_t row, tr_run *run);
void tr__run_finish(const tr__csv *csv, size_t row, const tr_device *device, tr_run *run);

// What a row leaves open (runs_settle.c). The device whose preset a name is most like; 0: like none.
enum { TR__OPEN_TP = 1, TR__OPEN_PP = 2 };
int tr__settle_device(const char *name, char *out, size_t nbyte);
void tr__settle_model(tr_run *run, double params);
void tr__settle_plan(tr_run *run, unsigned open);
void tr__run_note(tr_run *run, const char *format, ...) __attribute__((format(printf, 2, 3)));

// What a row says of its program, and what follows for a plan (software.c).
typedef struct tr__software {
  const char *framework, *notes, *number;
  int64_t year;
  int says_sequence_parallel; // the plan's is the row's
} tr__software;
int tr__software_zero(const char *framework, int64_t year); // the stage that goes without saying
void tr__software_apply(const tr__software *software, tr_plan *plan);

#endif
