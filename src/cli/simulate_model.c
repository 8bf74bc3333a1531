// SPDX-License-Identifier: MIT
// Costs from descriptions: `trireme simulate --model M --cluster C`. Every stage has the time of its own layers (stage_cuts.c);
// messages are as long as activations are, over the links that they take. In nanoseconds, and exact to that.
#include "cli/cli_internal.h"
#include "cli/simulate_internal.h"
#include "trireme/base/text.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// What is longer than the clock can count is refused by the simulator.
static int64_t ticks(double seconds) { return seconds < 9e9 ? llround(seconds * 1e9) : INT64_MAX; }

static void fill_row(const tr_stage_time *t, int64_t row[TR_OP_KIND_COUNT]) {
  memset(row, 0, sizeof *row * TR_OP_KIND_COUNT);
  row[TR_OP_F] = row[TR_OP_R] = ticks(t->forward);
  row[TR_OP_I] = ticks(t->input);
  row[TR_OP_W] = ticks(t->weights);
  row[TR_OP_B] = row[TR_OP_I] < INT64_MAX - row[TR_OP_W] ? row[TR_OP_I] + row[TR_OP_W] : INT64_MAX;
  row[TR_OP_X] = -1;
  row[TR_OP_REDUCE] = ticks(t->reduce);
}

static int64_t link_of(void *user, int from, int to, int64_t *occupancy) {
  const tr__simulate_links *l = user;
  const int crosses = from * l->stride / l->domain != to * l->stride / l->domain;
  *occupancy = l->occupancy[crosses];
  return l->latency[crosses];
}

static void fill_links(const tr__stage_cuts *x, tr__simulate_costs *out) {
  tr__simulate_links *l = &out->links;
  *l = (tr__simulate_links){.stride = x->plan.tp * x->plan.cp * x->plan.dp, .domain = x->cluster.domain};
  for (int crosses = 0; crosses < 2; crosses++) {
    double busy;
    l->latency[crosses] = ticks(tr_predict_message(&x->plan, &x->model, &x->cluster, crosses, &busy));
    l->occupancy[crosses] = ticks(busy);
  }
  out->sim.link = link_of;
  out->sim.user = l;
}

// A message over the slowest link that neighbours have.
static double message_seconds(tr__simulate_links *links, int p) {
  int64_t most = 0, busy;
  for (int r = 1; r < p; r++) {
    const int64_t latency = link_of(links, r - 1, r, &busy);
    most = latency + busy > most ? latency + busy : most;
  }
  return (double)most * 1e-9;
}

static tr_status costs_of(const tr__stage_cuts *x, int one_stream, tr__simulate_costs *out) {
  double slowest = 0, all = 0;
  char message[32];
  *out = (tr__simulate_costs){.unit_ticks = 1e9, .unit_name = "s", .row = malloc(sizeof *out->row * (size_t)x->S)};
  if (!out->row) return tr_error(TR_ERR_MEMORY, "no memory for the costs of %d stages", x->S);
  for (int s = 0; s < x->S; s++) {
    fill_row(&x->time[s], out->row[s]);
    slowest = fmax(slowest, tr__stage_seconds(&x->time[s]));
    all += tr__stage_seconds(&x->time[s]);
  }
  out->sim =
      (tr_sim_costs){.nstage = x->S, .stage = (const int64_t(*)[TR_OP_KIND_COUNT])out->row, .one_stream = one_stream};
  fill_links(x, out);
  tr_format_duration(message, sizeof message, message_seconds(&out->links, (int)x->plan.pp));
  snprintf(out->text, sizeof out->text, "the slowest stage %.3g x the mean, a message %s", slowest * x->S / all,
           message);
  return TR_OK;
}

tr_status tr__simulate_costs_predict(const tr__simulate_request *request, const tr_schedule *schedule,
                                     tr__simulate_costs *out) {
  tr__stage_cuts cuts;
  TR_TRY(tr__stage_cuts_make(&request->stages, schedule, &cuts));
  tr_status status = costs_of(&cuts, request->one_stream, out);
  tr__stage_cuts_free(&cuts);
  return status;
}
