// SPDX-License-Identifier: MIT
// Laws of pipelines: makespan, bubble and what is in flight, for schedules that have an exact formula.
//
// p stages, m micro-batches; F, B: forward and whole backward of one micro-batch on one stage, W the part of B for weights,
// `pair` an overlapped F and B; c: a message between neighbours. Exact for equal stages; the simulator has the
// rest. GPipe (Huang et al., 2019), 1F1B (PipeDream-flush), interleaved (Narayanan et al., 2021), ZB1P (Qi et al., "Zero
// bubble pipeline parallelism", 2023), DualPipe (DeepSeek-V3, 2024).
#ifndef TRIREME_PLAN_LAW_PIPELINE_H
#define TRIREME_PLAN_LAW_PIPELINE_H

typedef enum tr_law_schedule { TR_LAW_GPIPE, TR_LAW_1F1B, TR_LAW_ZB1P, TR_LAW_DUALPIPE } tr_law_schedule;

typedef struct tr_law_pipe {
  double stages, micros;
  double f, b, w, pair, message; // times; pair 0: f + b
} tr_law_pipe;

// (p-1) / (v m + p-1), v chunks per rank.
double tr_law_bubble(double stages, double micros, double chunks);
// Micro-batches for a bubble of at most this share: (p-1) (1-x) / (v x), rounded up.
double tr_law_micros_for(double stages, double bubble, double chunks);
// Idle time of a rank without messages.
double tr_law_pipe_idle(tr_law_schedule schedule, const tr_law_pipe *pipe);
// (m+p-1)(F+B) and messages on the critical path; GPipe and 1F1B, NaN for others.
double tr_law_pipe_makespan(tr_law_schedule schedule, const tr_law_pipe *pipe);
double tr_law_pipe_messages(tr_law_schedule schedule, const tr_law_pipe *pipe);   // on the critical path
double tr_law_pipe_idle_share(tr_law_schedule schedule, const tr_law_pipe *pipe); // 1 - m (F+B) / makespan
// Micro-batches whose activations a stage (from 0) holds at most, and forward passes before its first backward.
double tr_law_pipe_in_flight(tr_law_schedule schedule, const tr_law_pipe *pipe, double stage);
double tr_law_pipe_warm_up(const tr_law_pipe *pipe, double stage); // 1F1B: min(p - s - 1, m)
double tr_law_pipe_weight_copies(tr_law_schedule schedule);        // DualPipe keeps two

#endif
