// SPDX-License-Identifier: MIT
// The lists as step programs and the times as a simulation's result, which is all that the library's drawing reads.
#include "pipeline_draw.h"
#include "trireme/sim/sim.h"
#include <math.h>
#include <stdio.h>

enum { TICKS = 64 }; // of a unit of time

static tr_sim_event event_of(operation o, double start, const pass_costs *costs) {
  const double end = start + (o.kind == 'F' ? costs->forward : costs->backward);
  return (tr_sim_event){llround(start * TICKS), llround(end * TICKS)};
}

void draw(int p, const op_list *list, const pass_costs *costs, const timeline *times) {
  static tr_op op[MOST_RANKS][MOST_OPS];
  static tr_sim_event event[MOST_RANKS][MOST_OPS];
  tr_program program[MOST_RANKS];
  const tr_program *pointer[MOST_RANKS];
  tr_sim_event *events[MOST_RANKS];
  tr_text text = {0};
  for (int r = 0; r < p; r++) {
    for (int i = 0; i < list[r].n; i++) {
      const operation o = list[r].op[i];
      op[r][i] = (tr_op){.kind = o.kind == 'F' ? TR_OP_F : TR_OP_B, .stage = (uint16_t)r, .microbatch = o.micro};
      event[r][i] = event_of(o, times->start[r][i], costs);
    }
    program[r] = (tr_program){.op = op[r], .nop = (uint32_t)list[r].n};
    pointer[r] = &program[r];
    events[r] = event[r];
  }
  const tr_sim_result result = {.p = p, .makespan = llround(times->makespan * TICKS), .event = events};
  tr_sim_draw_text(pointer, &result, TICKS, &text);
  if (text.data) fputs(text.data, stdout);
  tr_text_free(&text);
}
