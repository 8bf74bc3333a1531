// SPDX-License-Identifier: MIT
// A timeline as text, a line per rank and a character per tick. What lasts less than a tick shows only if it runs in the
// middle of one.
#include "trireme/sim/sim.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// The character of an operation in the nth of its cells.
static char symbol(const tr_op *op, int64_t nth) {
  const int forward = op->microbatch < 0 ? 0 : op->microbatch, back = op->back_microbatch;
  switch ((tr_op_kind)op->kind) {
  case TR_OP_F: return (char)('0' + forward % 10);
  case TR_OP_B:
  case TR_OP_I: return (char)('a' + forward % 26);
  case TR_OP_W: return (char)('A' + forward % 26);
  case TR_OP_X: return nth % 2 == 0 ? (char)('0' + forward % 10) : (char)('a' + back % 26);
  case TR_OP_R: return '*';
  default: return '#';
  }
}

// The first cell whose middle is at or behind `time`: 2 (cell tick) + tick >= 2 time.
static int64_t cell_at(int64_t time, int64_t tick) {
  const int64_t twice = 2 * time - tick;
  return twice <= 0 ? 0 : (twice + 2 * tick - 1) / (2 * tick);
}

static void draw_rank(const tr_program *program, const tr_sim_event *event, int64_t tick, char *cell, int64_t ncell) {
  memset(cell, '.', (size_t)ncell);
  for (uint32_t i = 0; i < program->nop; i++) {
    if (program->op[i].lane != TR_LANE_COMPUTE) continue;
    const int64_t first = cell_at(event[i].begin, tick), end = cell_at(event[i].end, tick);
    for (int64_t c = first; c < end && c < ncell; c++) cell[c] = symbol(&program->op[i], c - first);
  }
}

void tr_sim_draw_text(const tr_program *const *program, const tr_sim_result *result, int64_t tick, tr_text *out) {
  if (tick < 1) tick = 1;
  const int64_t ncell = result->makespan / tick + (result->makespan % tick != 0);
  const int width = snprintf(NULL, 0, "GPU%d", result->p - 1);
  char *cell = malloc((size_t)ncell + 1), name[32];
  if (!cell) {
    out->failed = 1;
    return;
  }
  for (int r = 0; r < result->p; r++) {
    draw_rank(program[r], result->event[r], tick, cell, ncell);
    snprintf(name, sizeof name, "GPU%d", r);
    tr_text_append(out, "%-*s |", width, name);
    tr_text_append_bytes(out, cell, (size_t)ncell);
    tr_text_append(out, "|\n");
  }
  free(cell);
}
