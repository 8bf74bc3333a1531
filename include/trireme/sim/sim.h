// SPDX-License-Identifier: MIT
// The simulator: step programs of all ranks of a pipeline, read with a clock that only counts.
//
// Discrete events in integer ticks, so equal inputs give equal outputs to the last digit. An operation starts when everything
// that its program says is done. A compute operation takes what the cost table says and holds its rank's compute lane. Messages
// of a channel keep their order, channels do not wait for each other: a SEND hands its message to the link, where it waits for
// those before it, keeps the link busy for `occupancy` ticks and arrives `latency` ticks later; its RECV ends when it has
// arrived and a slot is free. Of a rank's pieces that exchange, and of its other communication, each is one operation after the
// other; sums over ranks of the pipeline (of the loss, of squares, of tied gradients, and in map `both` of the gradients of a
// stage's copies) start when all are there that have a part, and end for all after the least of what they cost a rank. The same
// programs are executed by run.h: what is predicted is what runs.
//
// Symmetry: ranks that differ only in their data (replicas along dp, cp or tp) do the same at the same time, so one pipeline
// of p ranks stands for all of p x replicas; what replicas do together, any other REDUCE, is one operation with a cost. Nothing
// else depends on their number: 100 000 ranks of a pipeline of 16 are simulated as 16.
//
// Letters as in step/schedule.h.
#ifndef TRIREME_SIM_SIM_H
#define TRIREME_SIM_SIM_H

#include "trireme/base/status.h"
#include "trireme/base/text.h"
#include "trireme/step/program.h"
#include "trireme/step/schedule.h"
#include <stdint.h>

// Ticks, all >= 0 but for B and X in the table: B < 0 is I + W of that stage, X < 0 is F of its stage and B of its back_stage.
typedef struct tr_sim_costs {
  int nstage; // rows of the table; stages beyond them take the last
  const int64_t (*stage)[TR_OP_KIND_COUNT];
  // Instead of the table (not for SEND and RECV): ticks of one operation of one rank. NULL: the table.
  int64_t (*op)(void *user, int rank, uint32_t index, const tr_op *op);
  int64_t latency;   // of a message between two ranks
  int64_t occupancy; // ticks for which a message keeps its link, a pair of ranks in one direction, busy; 0: no limit
  int64_t (*link)(void *user, int from, int to, int64_t *occupancy); // returns the latency. NULL: the two above
  void *user;
  // All messages of a rank in one order, that in which its program posts them, each waiting for its partner and for the end of
  // the one before: what one communication stream without buffers does. A stage's copies do not wait for each other then.
  int one_stream;
} tr_sim_costs;

// A RECV begins when its message leaves, and ends when it is there; a sum over ranks begins when this rank is there.
typedef struct tr_sim_event {
  int64_t begin, end;
} tr_sim_event;

typedef struct tr_sim_rank {
  int64_t busy, first, last; // ticks of compute; when the first operation starts and the last ends
  int64_t wait_message;      // of the idle ticks between them: with the message that is waited for on its way
  int peak_w, peak_i;        // chunks alive at once, until W and until I (tr_hold)
  int parked;                // most messages that were there at once, from their arrival to the start of their reader
} tr_sim_rank;

typedef struct tr_sim_result {
  int p;
  int64_t makespan;   // from 0 to the end of the last operation
  double bubble;      // 1 - work / (p makespan)
  double span_bubble; // largest over ranks of (last - first - busy) / (last - first)
  int64_t span_idle;  // largest over ranks of last - first - busy
  int64_t messages;
  tr_sim_rank *rank;    // [p]
  tr_sim_event **event; // [p][operations of that rank's program]
  int **ring_parked;  // [p][rings of that rank's program] most messages that had arrived there and were not read yet
  uint32_t *critical; // pairs (rank, operation): what the makespan consists of, from its end to its start
  uint32_t ncritical; // pairs
} tr_sim_result;

// TR_ERR_PLAN when a message has no partner, or the programs wait for each other for ever, with the operation at which each
// rank is blocked and what it waits for; when a cost is negative or too large to add up. TR_ERR_MEMORY. The caller destroys
// *out, which does not refer to the programs.
tr_status tr_sim_run(const tr_program *const *program, int p, const tr_sim_costs *costs, tr_sim_result *out);
void tr_sim_result_destroy(tr_sim_result *result);

// The programs of all ranks of a schedule, lowered without a model.
typedef struct tr_sim_programs {
  int p;
  tr_program *owned;
  const tr_program **program; // [p] for tr_sim_run and for drawing
} tr_sim_programs;
tr_status tr_sim_lower(const tr_schedule *schedule, tr_sim_programs *out);
void tr_sim_programs_destroy(tr_sim_programs *programs);
// Lowers and simulates.
tr_status tr_sim_schedule(const tr_schedule *schedule, const tr_sim_costs *costs, tr_sim_result *out);

// ---- drawing: every reader of a timeline uses these, the exercise in examples/ too

// Digits forward (the micro-batch's last digit), letters backward ('a' + micro-batch modulo 26; W alone in capitals), X as both
// in turn, '*' what is computed again, '#' what is no pass, dots idle; one character per `tick` ticks, which shows what runs in
// its middle: "GPU0 |0123......aa4bb5cc6dd7ee.ff.gg.hh|".
void tr_sim_draw_text(const tr_program *const *program, const tr_sim_result *result, int64_t tick, tr_text *out);
// The axis counts in units of `unit` ticks, called `unit_name`. The critical path has a thick outline.
void tr_sim_draw_svg(const tr_program *const *program, const tr_sim_result *result, const char *title, double unit,
                     const char *unit_name, tr_text *out);

// Chrome's trace events, for Perfetto. A rank is a process: its compute lane, reductions, chunks alive; arrows are messages.
typedef struct tr_sim_trace {
  double ns;         // per tick
  int64_t begin_ns;  // of tick 0
  int pid_base;      // pid of rank 0
  const char *label; // "predicted": begins the names of the processes; "" for none
} tr_sim_trace;
void tr_sim_draw_trace(const tr_program *const *program, const tr_sim_result *result, const tr_sim_trace *trace,
                       tr_text *out);
// Only the events, with commas between and, unless it is "", `comma` before the first: a measured timeline stands beside them.
void tr_sim_draw_trace_events(const tr_program *const *program, const tr_sim_result *result,
                              const tr_sim_trace *trace, const char *comma, tr_text *out);

#endif
