// SPDX-License-Identifier: MIT
// `trireme simulate`: what is asked, costs in exact ticks, and one schedule with everything that a simulation of it says.
#ifndef TRIREME_CLI_SIMULATE_INTERNAL_H
#define TRIREME_CLI_SIMULATE_INTERNAL_H

#include "cli/stage_cuts_internal.h"
#include "trireme/sim/sim.h"

typedef struct tr__simulate_request {
  const char *schedule, *compare, *costs, *pair, *comm, *occupancy, *reduce, *tick;
  const char *svg, *trace, *write;
  tr__stage_request stages;
  int64_t p, m, v, group;
  int one_stream, json, dump;
} tr__simulate_request;

// Links of a cluster, for ranks that are `stride` devices apart and share fast links with `domain` devices: [1] leaves them.
typedef struct tr__simulate_links {
  int64_t stride, domain, latency[2], occupancy[2];
} tr__simulate_links;

// Ticks, and what one of them is: unit_ticks of them are a unit, called unit_name ("" or "s").
typedef struct tr__simulate_costs {
  tr_sim_costs sim;
  int64_t (*row)[TR_OP_KIND_COUNT]; // [sim.nstage]
  tr__simulate_links links;         // what sim.user may point to: costs are not copied
  int64_t tick;                     // of a drawing, 0: not given
  double unit_ticks;
  const char *unit_name;
  char text[192]; // "F 1, B 2, a message 0"
} tr__simulate_costs;

// --costs and its like. `parts`: a rank's share of the model is cut into so many chunks, which share its costs.
tr_status tr__simulate_costs_parse(const tr__simulate_request *request, const tr_schedule *schedule, int parts,
                                   tr__simulate_costs *out);
// --model and --cluster, in nanoseconds.
tr_status tr__simulate_costs_predict(const tr__simulate_request *request, const tr_schedule *schedule,
                                     tr__simulate_costs *out);
void tr__simulate_costs_free(tr__simulate_costs *costs);

typedef struct tr__simulation {
  tr_schedule schedule;
  tr__simulate_costs costs;
  tr_sim_programs programs;
  tr_sim_result result;
} tr__simulation;

// `compares`: costs are those of a rank's whole share. The caller destroys *out.
tr_status tr__simulate(const tr__simulate_request *request, const char *schedule, int compares, tr__simulation *out);
void tr__simulation_destroy(tr__simulation *simulation);
int tr__simulate_splits(const tr_schedule *schedule); // whether it has passes for weights alone

void tr__simulate_print_help(void);
void tr__simulate_man(tr_text *out);
tr_status tr__simulate_report(const tr__simulate_request *request, const tr__simulation *simulation);
tr_status tr__simulate_compare(const tr__simulate_request *request);

#endif
