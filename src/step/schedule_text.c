// SPDX-License-Identifier: MIT
// Schedules as text: PyTorch's tokens, one line per rank, below a line that says what the tokens cannot.
#include "schedule_internal.h"
#include <stdio.h>
#include <string.h>

static const char *const map_name[] = {"linear", "loop", "v", "both"};

const char *tr__stage_map_name(tr_stage_map map) { return (unsigned)map < 4 ? map_name[map] : "unknown"; }

int tr__stage_map_find(const char *name) {
  for (int i = 0; i < 4; i++)
    if (!strcmp(map_name[i], name)) return i;
  return -1;
}

tr__token tr__pass_token(const tr_pass *pass) {
  tr__token token;
  if (pass->kind == TR_OP_X)
    snprintf(token.text, sizeof token.text, "(%dF%d;%dB%d)OVERLAP_F_B", pass->stage, pass->microbatch,
             pass->back_stage, pass->back_microbatch);
  else
    snprintf(token.text, sizeof token.text, "%d%s%d", pass->stage,
             pass->kind < TR_OP_KIND_COUNT ? tr_op_name((tr_op_kind)pass->kind) : "?", pass->microbatch);
  return token;
}

void tr_schedule_print(const tr_schedule *schedule, int header, tr_text *out) {
  if (header)
    tr_text_append(out, "# trireme schedule 1, name %s, p %d, S %d, m %d, map %s, B full\n", schedule->name,
                   schedule->p, schedule->S, schedule->m, tr__stage_map_name(schedule->map));
  for (int r = 0; r < schedule->p; r++) {
    for (uint32_t i = schedule->begin[r]; i < schedule->begin[r + 1]; i++)
      tr_text_append(out, "%s%s", i > schedule->begin[r] ? "," : "", tr__pass_token(&schedule->pass[i]).text);
    tr_text_append(out, "\n");
  }
}
