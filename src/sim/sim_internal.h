// SPDX-License-Identifier: MIT
// Inside the simulator: the operations of all ranks as one graph, numbered rank by rank in list order.
//
// sim_graph.c and sim_meetings.c build it, sim_events.c runs it, sim_blocked.c says why it stopped, sim_result.c sums it up.
#ifndef TRIREME_SIM_INTERNAL_H
#define TRIREME_SIM_INTERNAL_H

#include "trireme/sim/sim.h"

#define TR__SIM_NONE UINT32_MAX

typedef enum tr__sim_state {
  TR__SIM_WAITS,
  TR__SIM_CAME,  // waits for others that have to come too
  TR__SIM_MEETS, // a RECV of a stream, under way
  TR__SIM_ENDED  // or is known to
} tr__sim_state;

// A reduction over the ranks of the pipeline: member[first] .. member[first + size - 1], of which `left` have not come.
typedef struct tr__sim_meeting {
  uint32_t first, size, left;
} tr__sim_meeting;

// What one operation still waits for, and what waits for it besides its dependents (sim_graph.first): the next in its queue,
// and the partner: of a SEND its RECV and the other way round, of a REDUCE its meeting.
typedef struct tr__sim_node {
  uint32_t next, partner;
  uint32_t missing; // operations that must end before it
  uint32_t cause;   // the one of them that ended last
  int64_t ready;    // when it did
  int32_t rank;
  uint8_t state, read; // tr__sim_state; of a RECV: its message has been taken
} tr__sim_node;

typedef struct tr__sim_graph {
  const tr_program *const *program;
  const tr_sim_costs *costs;
  int p;
  uint32_t n;
  uint32_t *base;      // [p + 1] number of each rank's first operation
  uint32_t *ring_base; // [p + 1] number of each rank's first ring
  tr__sim_node *node;
  uint32_t *first, *dependent; // operations with an edge to i are dependent[first[i]] .. dependent[first[i + 1] - 1]
  tr__sim_meeting *meeting;
  uint32_t *member;
  int64_t most; // ticks that an operation may take, so that all of them add up
} tr__sim_graph;

tr_status tr__sim_graph_build(const tr_program *const *program, int p, const tr_sim_costs *costs, tr__sim_graph *out);
tr_status tr__sim_add_meetings(tr__sim_graph *graph);
void tr__sim_graph_destroy(tr__sim_graph *graph);
static inline const tr_op *tr__sim_op(const tr__sim_graph *graph, uint32_t i) {
  const int rank = graph->node[i].rank;
  return &graph->program[rank]->op[i - graph->base[rank]];
}
static inline int tr__sim_is_message(const tr_op *op) { return op->kind == TR_OP_SEND || op->kind == TR_OP_RECV; }

// Runs the graph; `event` and the ranks' figures that come with time (busy, first, last, wait_message, parked) are filled.
tr_status tr__sim_events(tr__sim_graph *graph, tr_sim_event *event, tr_sim_result *result);
tr_status tr__sim_blocked(const tr__sim_graph *graph); // TR_ERR_PLAN
tr_status tr__sim_summary(const tr__sim_graph *graph, const tr_sim_event *event, tr_sim_result *result);

#endif
