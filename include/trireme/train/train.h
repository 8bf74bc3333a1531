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
#ifndef TRIREME_TRAIN_TRAIN_H
#define TRIREME_TRAIN_TRAIN_H

#include "trireme/run/run.h"
#include "trireme/shard/layout.h"
#include "trireme/train/config.h"

// Run a plan to its end, or until it is asked to stop: starts the ranks, waits for them. Returns what tr_launch
// returns.
tr_status tr_train(const tr_train_plan *plan, const tr_options *options);

// What a rank runs the steps of a plan with. The pool, the ranks and the observers are left to the caller.
void tr_train_run_options(const tr_train_plan *plan, tr_run_options *out);

// ---- loss curves
// Draw the losses of metrics.jsonl: as text of `columns` x `rows` characters, and as an SVG file (NULL: none).
tr_status tr_curve_draw(const char *metrics_path, const char *svg_path, int columns, int rows, tr_text *text);

#endif
