// SPDX-License-Identifier: MIT
// What follows from the order of a schedule's lists alone, whatever passes take: how many micro-batches are alive at once, and
// whether weight gradients are added in one order.
#include "schedule_internal.h"
#include <stdlib.h>

// ---- peaks

// While a rank is counted, its entries of stage_peak hold the peak in their lower half and what is alive in their upper half.
enum { ALIVE = 1 << 16 };
_Static_assert(TR_STEP_MICROBATCHES < (1 << 15), "counts of micro-batches take half an int");

typedef struct count {
  const tr_schedule *schedule;
  int alive, peak;
  int *chunk; // [v], may be NULL
} count;

// Place of a stage among those of its rank, ascending.
static int chunk_of(const tr_schedule *s, int stage) {
  switch (s->map) {
  case TR_STAGES_LINEAR: return 0;
  case TR_STAGES_LOOP:
  case TR_STAGES_V: return stage / s->p;
  case TR_STAGES_BOTH: break;
  }
  return stage > s->p - 1 - stage;
}

static void begin_chunk(count *c, int stage) {
  if (++c->alive > c->peak) c->peak = c->alive;
  if (!c->chunk) return;
  int *chunk = &c->chunk[chunk_of(c->schedule, stage)];
  *chunk += ALIVE;
  if (*chunk / ALIVE > *chunk % ALIVE) *chunk += 1;
}

static void end_chunk(count *c, int stage) {
  c->alive--;
  if (c->chunk) c->chunk[chunk_of(c->schedule, stage)] -= ALIVE;
}

static void count_pass(count *c, const tr_pass *pass, tr_op_kind last) {
  if (pass->kind == TR_OP_F || pass->kind == TR_OP_X) begin_chunk(c, pass->stage);
  if (pass->kind == TR_OP_X) end_chunk(c, pass->back_stage);
  if (pass->kind == TR_OP_B || pass->kind == last) end_chunk(c, pass->stage);
}

void tr_schedule_peaks(const tr_schedule *schedule, tr_hold hold, int *rank_peak, int *stage_peak) {
  for (int r = 0; r < schedule->p; r++) {
    count c = {schedule, 0, 0, stage_peak ? stage_peak + (size_t)r * (size_t)schedule->v : NULL};
    for (int i = 0; c.chunk && i < schedule->v; i++) c.chunk[i] = 0;
    for (uint32_t i = schedule->begin[r]; i < schedule->begin[r + 1]; i++)
      count_pass(&c, &schedule->pass[i], hold == TR_HOLD_UNTIL_W ? TR_OP_W : TR_OP_I);
    if (rank_peak) rank_peak[r] = c.peak;
  }
}

// ---- order of sums

static int ascends(int *last, int stage, int microbatch) {
  int up = microbatch > last[stage];
  last[stage] = microbatch;
  return up;
}

int tr_schedule_ascends(const tr_schedule *schedule) {
  if (schedule->map == TR_STAGES_BOTH) return 0; // each half has a sum of its own
  int *last = malloc((size_t)schedule->S * sizeof *last), up = last != NULL;
  for (int s = 0; last && s < schedule->S; s++) last[s] = -1;
  for (uint32_t i = 0; up && i < schedule->begin[schedule->p]; i++) {
    const tr_pass *pass = &schedule->pass[i];
    if (pass->kind == TR_OP_B || pass->kind == TR_OP_W) up = ascends(last, pass->stage, pass->microbatch);
    if (pass->kind == TR_OP_X) up = ascends(last, pass->back_stage, pass->back_microbatch);
  }
  free(last);
  return up;
}
