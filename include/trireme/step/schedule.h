// SPDX-License-Identifier: MIT
// Schedules: which passes of which micro-batches through which stages every rank of a pipeline does, and in which order.
//
// The upper level of a step program (program.h), for all ranks at once. A schedule comes from a generator (tr_schedule_build),
// or from a file in PyTorch's token form (tr_schedule_read); the check proves that it can run before it is lowered, simulated
// or drawn. Pure data.
//
// Letters, used in src/step and src/sim only:
//   p ranks of the pipeline; v stages per rank (chunks); S stages, numbered along the model; m micro-batches per step
//   s a stage, i a micro-batch, r a rank of the pipeline
//
// Where stages live (tr_stage_map):
//   linear  S = p, stage s on rank s
//   loop    S = p v, stage s on rank s mod p
//   v       v = 2, S = 2 p, stage s < p on rank s, else on rank 2 p - 1 - s
//   both    S = p, v = 2: every stage twice, on rank s for micro-batches below m / 2 (which travel up the ranks), and on rank
//           p - 1 - s for the others (which travel down)
#ifndef TRIREME_STEP_SCHEDULE_H
#define TRIREME_STEP_SCHEDULE_H

#include "trireme/base/status.h"
#include "trireme/base/text.h"
#include "trireme/step/program.h"
#include <stdint.h>

typedef enum tr_stage_map { TR_STAGES_LINEAR, TR_STAGES_LOOP, TR_STAGES_V, TR_STAGES_BOTH } tr_stage_map;

// One pass: F, B, I, W, R of a stage and a micro-batch; X is F(stage, microbatch) beside B(back_stage, back_microbatch).
typedef struct tr_pass {
  uint8_t kind; // tr_op_kind
  uint16_t stage, back_stage;
  int32_t microbatch, back_microbatch;
} tr_pass;

enum { TR_SCHEDULE_NAME = 32 };

struct tr_schedule {
  char name[TR_SCHEDULE_NAME];
  int p, v, S, m;
  tr_stage_map map;
  uint32_t *begin; // [p + 1] rank r does pass[begin[r]] .. pass[begin[r + 1] - 1]
  tr_pass *pass;
};

// What generators need. `name`: naive, gpipe, gpipe_lifo, 1f1b, 1f1b_eager, interleaved, interleaved_flex, looped_bfs, zb_h1,
// zb_h2, zb_e0, zb_e1, ..., interleaved_zb, zbv, dualpipe, dualpipev.
typedef struct tr_schedule_spec {
  const char *name;
  int p, m;
  int v;     // 0: as the schedule has it (1, or 2)
  int group; // interleaved: micro-batches that go round together; 0: as the schedule has it (p)
} tr_schedule_spec;

// TR_ERR_PLAN names the rule that the numbers break, and the nearest that keep it. The caller destroys *out.
tr_status tr_schedule_build(const tr_schedule_spec *spec, tr_schedule *out);
tr_status tr_schedule_allows(const tr_schedule_spec *spec); // the same without building it
void tr_schedule_destroy(tr_schedule *schedule);
// Names that tr_schedule_build knows, in the order of the list above, with one line on each; NULL behind the last.
const char *tr_schedule_known(int i, const char **what);

// Who does this stage for this micro-batch.
int tr_schedule_rank(const tr_schedule *schedule, int stage, int microbatch);
int tr_schedule_direction(const tr_schedule *schedule, int microbatch); // 1: map `both`, second half; else 0
// Stages of a rank, ascending; `stage` has room for v. Returns how many.
int tr_schedule_stages(const tr_schedule *schedule, int rank, int *stage);

// Prove it: each (stage, micro-batch) has one F, and one B or one I and one W, in that order, on the rank where the stage
// lives; everything runs to its end when every rank takes its list in order (a schedule that does not gets each rank's blocked
// head operation and the input that it lacks). TR_ERR_PLAN.
tr_status tr_schedule_check(const tr_schedule *schedule);
// Whether every stage's weight gradients are added in ascending order of micro-batches: such schedules give the same bits.
// Never with map `both`, where each copy of a stage has a sum of its own.
int tr_schedule_ascends(const tr_schedule *schedule);

// Micro-batches alive at once, exactly, whatever the timing. A chunk is alive from the start of its F to the end of its B, or of
// W (TR_HOLD_UNTIL_W) or I (TR_HOLD_UNTIL_I) where the backward pass is split. rank_peak[p]; stage_peak[p][v] (chunks of a
// rank in ascending order of stages), each may be NULL.
typedef enum tr_hold { TR_HOLD_UNTIL_W, TR_HOLD_UNTIL_I } tr_hold;
void tr_schedule_peaks(const tr_schedule *schedule, tr_hold hold, int *rank_peak, int *stage_peak);

// ---- PyTorch's token form: one line per rank, "0F0,0F1,,0B0,(1F2;0B1)OVERLAP_F_B" ("1I0,1W0" for a split pass). A file of
// ours begins with a line of what the tokens cannot say: "# trireme schedule 1, name zb_h1, p 4, S 4, m 8, map linear, B full".

// Without that line: p from the lines, S, m, v and map from the tokens, `B full` assumed and tokens BW refused, since B then may
// mean either. `B input` reads files in which B is the half for inputs and BW the whole. Other lines that begin with # are
// passed over, and empty tokens (idle slots) too. Checked (tr_schedule_check). TR_ERR_PLAN or TR_ERR_IO names file, line and
// token; `name` in messages, and for a schedule without a name.
tr_status tr_schedule_read(const char *path, tr_schedule *out);
tr_status tr_schedule_parse(const char *name, const char *text, tr_schedule *out);
void tr_schedule_print(const tr_schedule *schedule, int header, tr_text *out);

#endif
