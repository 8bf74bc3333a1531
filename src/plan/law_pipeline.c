// SPDX-License-Identifier: MIT
// Laws of pipelines (law_pipeline.h). The makespans were checked against simulation of the schedules' own rules over all small
// cases, messages up to three times a pass included.
#include "trireme/plan/law_pipeline.h"

#include <math.h>

double tr_law_bubble(double stages, double micros, double chunks) {
  return (stages - 1) / (chunks * micros + stages - 1);
}

double tr_law_micros_for(double stages, double bubble, double chunks) {
  double exact = (stages - 1) * (1 - bubble) / (bubble * chunks);
  return fmax(1, ceil(exact - 1e-9 * exact)); // 7 x 0.95 / 0.05 is 133 and not the next number of a rounding error
}

double tr_law_pipe_idle(tr_law_schedule schedule, const tr_law_pipe *pipe) {
  double pair = pipe->pair > 0 ? pipe->pair : pipe->f + pipe->b;
  switch (schedule) {
  case TR_LAW_ZB1P: return (pipe->stages - 1) * (pipe->f + pipe->b - 2 * pipe->w);
  case TR_LAW_DUALPIPE: return (pipe->stages / 2 - 1) * (pair + pipe->b - 3 * pipe->w);
  default: return (pipe->stages - 1) * (pipe->f + pipe->b);
  }
}

double tr_law_pipe_messages(tr_law_schedule schedule, const tr_law_pipe *pipe) {
  double p = pipe->stages, m = pipe->micros, fill = 2 * (p - 1);
  if (schedule == TR_LAW_GPIPE) return fill;
  // Each round of p micro-batches waits once more for the way there and back: stage r has only p - r of them in flight.
  return schedule == TR_LAW_1F1B ? fill + 2 * (m - 1 - ceil((m - 1) / p)) : NAN;
}

double tr_law_pipe_makespan(tr_law_schedule schedule, const tr_law_pipe *pipe) {
  double ideal = pipe->micros * (pipe->f + pipe->b);
  return ideal + tr_law_pipe_idle(schedule, pipe) + pipe->message * tr_law_pipe_messages(schedule, pipe);
}

double tr_law_pipe_idle_share(tr_law_schedule schedule, const tr_law_pipe *pipe) {
  return 1 - pipe->micros * (pipe->f + pipe->b) / tr_law_pipe_makespan(schedule, pipe);
}

double tr_law_pipe_in_flight(tr_law_schedule schedule, const tr_law_pipe *pipe, double stage) {
  double p = pipe->stages, m = pipe->micros;
  switch (schedule) {
  case TR_LAW_GPIPE: return m;
  case TR_LAW_1F1B: return fmin(m, p - stage);
  case TR_LAW_ZB1P: return fmin(m, p);
  default: return fmin(m, p + 1);
  }
}

double tr_law_pipe_warm_up(const tr_law_pipe *pipe, double stage) {
  return fmin(pipe->stages - stage - 1, pipe->micros);
}

double tr_law_pipe_weight_copies(tr_law_schedule schedule) { return schedule == TR_LAW_DUALPIPE ? 2 : 1; }
