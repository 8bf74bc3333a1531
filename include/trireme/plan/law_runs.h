// SPDX-License-Identifier: MIT
// A table of somebody's own runs, for the fit of the power law (law_power.h): comma-separated, the first line with
// the names of the columns: loss, and compute (FLOP) or params and tokens (6 N D). The caller has the room.
#ifndef TRIREME_PLAN_LAW_RUNS_H
#define TRIREME_PLAN_LAW_RUNS_H

#include "trireme/base/status.h"
#include <stddef.h>

enum { TR_LAW_RUNS = 4096 };
typedef struct tr_law_runs {
  size_t n;
  double compute[TR_LAW_RUNS], loss[TR_LAW_RUNS];
} tr_law_runs;

// TR_ERR_DATA names file, row and cell, TR_ERR_IO. *out is half filled after a failure.
tr_status tr_law_runs_load(const char *path, tr_law_runs *out);

#endif
