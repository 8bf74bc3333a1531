// SPDX-License-Identifier: MIT
// The simulator: step programs of all ranks of a pipeline, read with a clock that only counts.
//
// Discrete events in integer ticks, so equal inputs give equal outputs to the last digit. A compute operation takes what the
// cost table says and holds its rank's compute lane; a message arrives `latency` (+ bytes / bandwidth) after its SEND starts;
// which starts when what it waits for is done. The same programs are executed by run.h: what is predicted is what runs.
//
// Letters as in step/schedule.h.
#ifndef TRIREME_SIM_SIM_H
#define TRIREME_SIM_SIM_H

#include "trireme/base/status.h"
#include "trireme/base/text.h"
#include "trireme/step/program.h"
#include "trireme/step/schedule.h"
#include <stdint.h>

// Ticks. cost(stage, kind) of F, B, I, W, R, X (X < 0: F + B, or F + I + W) and of REDUCE; stages beyond nstage take the last.
typedef struct tr_sim_costs {
  int nstage;
  const int64_t (*stage)[TR_OP_KIND_COUNT];
  // Real programs: ticks of one operation of one rank; NULL: the table.
  int64_t (*op)(void *user, int rank, uint32_t index, const tr_op *op);
  void *user;
  int64_t latency;   // of a message between two ranks
  int64_t occupancy; // ticks for which a message keeps its directed link busy; 0: unlimited bandwidth
  int64_t (*link)(void *user, int from, int to, int64_t *occupancy); // NULL: the two above for every pair
  int one_stream; // all messages of a rank in one order, each waiting for its partner, as one communication stream does
} tr_sim_costs;

typedef struct tr_sim_event {
  int64_t begin, end;
} tr_sim_event;

typedef struct tr_sim_rank {
  int64_t busy, first, last; // ticks of compute; when the first pass starts and the last ends
  int64_t wait_message;      // of the idle ticks between them: spent with a message on its way
  int peak_w, peak_i;        // chunks alive at once: until W, until I
  int parked;                // most messages that have arrived and wait for their reader
} tr_sim_rank;

typedef struct tr_sim_result {
  int p;
  int64_t makespan;   // from 0 to the end of the last pass
  double bubble;      // 1 - work / (p makespan)
  double span_bubble; // largest over ranks of (last - first - busy) / (last - first)
  int64_t span_idle;  // the same in ticks
  int64_t messages;
  tr_sim_rank *rank;    // [p]
  tr_sim_event **event; // [p][operations of that rank's program]
  uint32_t *critical;   // pairs (rank, operation) of the critical path, from its end to its start
  uint32_t ncritical;
} tr_sim_result;

// TR_ERR_PLAN when the programs wait for each other for ever, with each rank's blocked operation; TR_ERR_MEMORY. The caller
// destroys *out.
tr_status tr_sim_run(const tr_program *const *program, int p, const tr_sim_costs *costs, tr_sim_result *out);
void tr_sim_result_destroy(tr_sim_result *result);
// Lowers the schedule without a model for every rank and simulates it. Pipelines of dp equal replicas need one of them.
tr_status tr_sim_schedule(const tr_schedule *schedule, const tr_sim_costs *costs, tr_sim_result *out);

// ---- drawing: every reader of a timeline uses these, the exercise in examples/ too

// Digits forward (the micro-batch's last digit), letters backward ('a' + micro-batch modulo 26), dots idle; one character per
// `tick` ticks; "GPU0 |0123......aa4bb5cc6dd7ee.ff.gg.hh|".
void tr_sim_draw_text(const tr_program *const *program, const tr_sim_result *result, int64_t tick, tr_text *out);
void tr_sim_draw_svg(const tr_program *const *program, const tr_sim_result *result, const char *title, tr_text *out);
// Chrome and Perfetto JSON; ns per tick. `pid_base` and `label` let a measured timeline stand beside it in one file.
void tr_sim_draw_trace(const tr_program *const *program, const tr_sim_result *result, double ns, tr_text *out);

#endif
