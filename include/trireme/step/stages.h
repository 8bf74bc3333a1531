// SPDX-License-Identifier: MIT
// Stages from layers: where a model is cut so that the slowest stage of a pipeline is as fast as can be.
//
// A model can be cut at some places only (tr_model_cuts); a *part* is what lies between two neighbouring ones and goes to one
// stage whole: the embedding, a layer, the head with the loss. Stages are runs of parts, given by layer counts or found:
//   1. the least value of the largest stage, by dynamic programming over (stages, parts);
//   2. of all cuts that keep it, the evenest (least sum of squares), by a second pass, so that no stage is large without need;
//   3. where a rank has several stages (and all are at most 128), one part after the other moves to another stage as long as the sum of
//      squares of the ranks' values falls: evenest stages may still meet on one rank. No stage becomes larger than the largest.
// A stage's memory is its states and its activations times the micro-batches that it has alive (tr_schedule_peaks, held until
// W); a rank's is the sum over its stages. Both passes keep to a limit per stage; where a rank has several stages and their sum
// is over the limit, the passes are run again with a lower one. So with v > 1 a memory limit is kept but the cut may not be the
// best that keeps it. O(S n^2) for n parts. Pure numbers.
#ifndef TRIREME_STEP_STAGES_H
#define TRIREME_STEP_STAGES_H

#include "trireme/base/status.h"
#include "trireme/step/schedule.h"

typedef struct tr_stage_part {
  double forward, backward; // of one micro-batch, in any unit: FLOPs, seconds
  double states;            // bytes of weights, gradients and optimizer state
  double activations;       // bytes kept for the backward pass of one micro-batch
  int layers;               // of the model that it is: 0 for the embedding and the head
} tr_stage_part;

typedef enum tr_stage_goal {
  TR_STAGES_WORK,  // the largest forward + backward is least
  TR_STAGES_MEMORY // the largest number of bytes is least
} tr_stage_goal;

typedef struct tr_stage_problem {
  const tr_stage_part *part;
  int npart;
  const tr_schedule *schedule;
  tr_stage_goal goal;
  double limit; // bytes of a rank; 0: none
} tr_stage_problem;

// Stage s has parts [bound[s], bound[s + 1]); `bound` has room for S + 1. TR_ERR_PLAN when there are fewer parts than stages, or
// nothing keeps to the limit: names what the evenest cut takes.
tr_status tr_stages_balance(const tr_stage_problem *problem, int *bound);
// From counts of layers, "4,3,3,2", one per stage and together those of the parts. What is no layer goes with the layer before it,
// or to the first stage; so only the first and the last stage may have 0, if a part is left to them. TR_ERR_PLAN.
tr_status tr_stages_count(const tr_stage_problem *problem, const char *layers, int *bound);

// A stage of such a cut, and each rank's bytes.
typedef struct tr_stage_sum {
  tr_stage_part all; // added up over its parts
  int peak;          // micro-batches alive; the larger of two copies
  double bytes;      // states + peak x activations
} tr_stage_sum;
// stage[S], rank_bytes[p]. TR_ERR_MEMORY.
tr_status tr_stages_sum(const tr_stage_problem *problem, const int *bound, tr_stage_sum *stage, double *rank_bytes);

#endif
