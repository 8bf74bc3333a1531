// SPDX-License-Identifier: MIT
// For tests of schedules: building one or failing, every schedule that some p, m and v allow, and the rows of
// pipeline-oracles.csv.
#ifndef TRIREME_TESTS_STEP_SCHEDULE_CASES_H
#define TRIREME_TESTS_STEP_SCHEDULE_CASES_H

#include "thin.h"
#include "trireme/step/schedule.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SC_RANKS = 16 };

typedef struct sc_row {
  char name[TR_SCHEDULE_NAME];
  int p, m, v;
  int peak[SC_RANKS];
} sc_row;

static inline tr_status sc_try(const char *name, int p, int m, int v, int group, tr_schedule *out) {
  return tr_schedule_build(&(tr_schedule_spec){.name = name, .p = p, .m = m, .v = v, .group = group}, out);
}

static inline void sc_build(const char *name, int p, int m, int v, tr_schedule *out) {
  if (sc_try(name, p, m, v, 0, out) != TR_OK) fail_msg("%s p %d m %d v %d: %s", name, p, m, v, tr_status_text());
}

// Calls `visit` with every schedule of p to 8 ranks, m to 3 p + 2 and v to 3 that its rule allows. Returns how many there are.
static inline int sc_each(void (*visit)(const tr_schedule *schedule)) {
  int n = 0;
  const char *name;
  for (int k = 0; (name = tr_schedule_known(k, NULL)); k++)
    for (int p = 1; p <= 8; p++)
      for (int m = 1; m <= 3 * p + 2; m++)
        for (int v = 0; v <= 3; v++) {
          tr_schedule schedule;
          if (sc_try(name, p, m, v, 0, &schedule) != TR_OK) continue;
          if (n % STRIDE == 0) visit(&schedule);
          tr_schedule_destroy(&schedule);
          n++;
        }
  return n;
}

// Calls `visit` with every row of the table; times stand in its last columns and are for the simulator.
static inline int sc_rows(void (*visit)(const sc_row *row)) {
  FILE *file = fopen(TRIREME_TEST_DATA "/step/pipeline-oracles.csv", "r");
  char line[512];
  int n = 0;
  if (!file || !fgets(line, sizeof line, file)) return 0;
  while (fgets(line, sizeof line, file)) {
    sc_row row = {.p = 0};
    if (sscanf(line, "%31[^,],%d,%d,%d", row.name, &row.p, &row.m, &row.v) != 4 || row.p > SC_RANKS) break;
    const char *at = strrchr(line, ',');
    for (int r = 0; r < row.p && at; r++, at = strchr(at + 1, ';')) row.peak[r] = atoi(at + 1);
    visit(&row);
    n++;
  }
  fclose(file);
  return n;
}

#endif
