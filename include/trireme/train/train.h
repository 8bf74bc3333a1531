// SPDX-License-Identifier: MIT
// Training: the loop around the step program. Batches in, steps, log lines and metrics, evaluation, checkpoints, resume.
//
//   FOLDER/config.yaml        the effective settings
//   FOLDER/metrics.jsonl      one JSON object per log step, only ever appended to
//   FOLDER/checkpoints/       see checkpoint.h
//   FOLDER/logs/rank-N.log    what each rank printed
//   FOLDER/loss.svg           the loss curve, drawn at the end
//   FOLDER/events/            the same numbers for TensorBoard
//   FOLDER/contract.json      what decides every bit of the run: seed, data, order, types, kernels, program
//   FOLDER/data/              text as tokens, when it had to be tokenized (data.cache)
//
// A log line's "peak" is the run's share of what the processors of all ranks could multiply and add per second of their own time, measured
// for 20 to 200 ms before the ranks start; or of the fastest that was seen of the run itself, should that be more. With several ranks,
// "comm" is the share of time that rank 0 waited for communication, and "rho" communication (the time of its step programs outside pieces
// and state operations: moving data and waiting) as a multiple of computation (the time inside them). metrics.jsonl has peak_share,
// comm_wait and rho.
//
// With a pipeline all ranks are measured, and "bubble" is the share of their programs' time in which they compute nothing; behind
// it, in parentheses, the same as simulated from what operations took in the first steps (bubble_simulated). At the end one line,
// and an event "pipeline" in metrics.jsonl, hold the step's time against the simulated one, and against what it would take if
// nothing but kernels took time.
//
// run.trace: a timeline of all ranks (Chrome's trace events). Each rank keeps its newest 65536 events, or three steps where
// those have more, in memory that the plan counts; the launcher writes the file when the ranks have ended, however they did. Ranks
// that others have started send theirs to rank 0 at the end, with times of its clock; when such a job fails, rank 0's are what is
// left. For a pipeline the simulated step stands beside the last one.
// run.profile: every so many steps and at the end, rank 0 prints where its time went; the same is in metrics.jsonl as an
// object with "event": "profile".
#ifndef TRIREME_TRAIN_TRAIN_H
#define TRIREME_TRAIN_TRAIN_H

#include "trireme/run/run.h"
#include "trireme/shard/layout.h"
#include "trireme/train/config.h"

// Run a plan to its end, or until it is asked to stop: starts the ranks, waits for them. Returns what tr_launch
// returns, and TR_PENDING when the run was asked to stop, has saved, and has steps left. Ranks that others have started on several
// hosts go on with the smallest micro-batch that any host has chosen by its own memory (batch.micro=auto): the plan is changed to
// that.
tr_status tr_train(tr_train_plan *plan, const tr_options *options);

// Parts of it, for whoever takes steps without the loop. What a rank runs them with, but for pool, communicator, groups and
// observers, which the caller sets; and the plan's ranks, which live through `life`. `logs`: folder of what they print, NULL:
// none. The plan may be changed as by tr_train.
void tr_train_run_options(const tr_train_plan *plan, int rank, tr_run_options *out);
// The groups of a rank; those that a plan does not need are NULL. Open is collective over all ranks.
typedef struct tr_train_groups {
  tr_group *dp, *pp; // along the mesh
  tr_group *grads;   // whose gradients are summed, where that is not dp
  tr_group *share;   // those of them who have the state together, where that is not all
  tr_group *tied;    // who shares a parameter with another stage
} tr_train_groups;
tr_status tr_train_groups_open(const tr_train_plan *plan, tr_comm *comm, tr_train_groups *out);
void tr_train_groups_close(tr_train_groups *groups);
// Which of those that sum their gradients together a rank is; step.dp of the plan is how many they are.
int tr_train_gradient_place(const tr_train_plan *plan, int rank);
tr_status tr_train_launch(tr_train_plan *plan, const char *logs, tr_rank_main life, void *user);

// ---- loss curves
// Draw the losses of metrics.jsonl: as text of `columns` x `rows` characters, and as an SVG file (NULL: none).
tr_status tr_curve_draw(const char *metrics_path, const char *svg_path, int columns, int rows, tr_text *text);

#endif
