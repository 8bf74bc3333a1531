// SPDX-License-Identifier: MIT
// The schedule object: where its stages live, and how long it lives itself. Its lists come from generators
// (schedule_build.c) or from text (schedule_parse.c).
#include "trireme/step/schedule.h"
#include <stdlib.h>

void tr_schedule_destroy(tr_schedule *schedule) {
  if (!schedule) return;
  free(schedule->begin);
  free(schedule->pass);
  *schedule = (tr_schedule){0};
}

int tr_schedule_direction(const tr_schedule *schedule, int microbatch) {
  return schedule->map == TR_STAGES_BOTH && microbatch >= schedule->m / 2;
}

int tr_schedule_rank(const tr_schedule *schedule, int stage, int microbatch) {
  int p = schedule->p;
  switch (schedule->map) {
  case TR_STAGES_LINEAR: return stage;
  case TR_STAGES_LOOP: return stage % p;
  case TR_STAGES_V: return stage < p ? stage : 2 * p - 1 - stage;
  case TR_STAGES_BOTH: break;
  }
  return tr_schedule_direction(schedule, microbatch) ? p - 1 - stage : stage;
}

int tr_schedule_stages(const tr_schedule *schedule, int rank, int *stage) {
  int p = schedule->p, low = rank, high = p - 1 - rank;
  switch (schedule->map) {
  case TR_STAGES_LINEAR: stage[0] = rank; return 1;
  case TR_STAGES_LOOP:
    for (int c = 0; c < schedule->v; c++) stage[c] = c * p + rank;
    return schedule->v;
  case TR_STAGES_V: stage[0] = rank, stage[1] = 2 * p - 1 - rank; return 2;
  case TR_STAGES_BOTH: break;
  }
  stage[0] = low < high ? low : high;
  stage[1] = low < high ? high : low;
  return 2;
}
