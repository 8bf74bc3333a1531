// SPDX-License-Identifier: MIT
// From a schedule to its programs, and to what they take: what asks without a model starts here.
#include "trireme/sim/sim.h"
#include <stdlib.h>

tr_status tr_sim_lower(const tr_schedule *schedule, tr_sim_programs *out) {
  tr_sim_programs programs = {.owned = calloc((size_t)schedule->p, sizeof *programs.owned),
                              .program = calloc((size_t)schedule->p, sizeof *programs.program)};
  tr_status status = programs.owned && programs.program
                         ? tr_program_build_ranks(schedule, programs.owned)
                         : tr_error(TR_ERR_MEMORY, "no memory for the programs of %d ranks", schedule->p);
  if (status < 0) {
    tr_sim_programs_destroy(&programs);
    return status;
  }
  for (programs.p = 0; programs.p < schedule->p; programs.p++)
    programs.program[programs.p] = &programs.owned[programs.p];
  *out = programs;
  return TR_OK;
}

void tr_sim_programs_destroy(tr_sim_programs *programs) {
  for (int r = 0; r < programs->p; r++) tr_program_destroy(&programs->owned[r]);
  free(programs->owned);
  free(programs->program);
  *programs = (tr_sim_programs){0};
}

tr_status tr_sim_schedule(const tr_schedule *schedule, const tr_sim_costs *costs, tr_sim_result *out) {
  tr_sim_programs programs;
  TR_TRY(tr_sim_lower(schedule, &programs));
  tr_status status = tr_sim_run(programs.program, programs.p, costs, out);
  tr_sim_programs_destroy(&programs);
  return status;
}
