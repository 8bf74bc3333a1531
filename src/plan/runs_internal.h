// SPDX-License-Identifier: MIT
// Reading one run: first what the row says, then, with its device, whether it can be predicted and what was measured.
#ifndef TRIREME_PLAN_RUNS_INTERNAL_H
#define TRIREME_PLAN_RUNS_INTERNAL_H

#include "plan/csv_internal.h"
#include "trireme/plan/runs.h"

void tr__run_read(const tr__csv *csv, size_t row, tr_run *run);
void tr__run_finish(const tr__csv *csv, size_t row, const tr_device *device, tr_run *run);

#endif
