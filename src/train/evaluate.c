// SPDX-License-Identifier: MIT
// Evaluation that prints the same number on any layout of ranks. Validation samples are cut into batches of the run file's
// micro-batch; batch b is computed by place b % dp in dp (by all ranks of a pipeline together); sums per sample travel as
// f64 and are added in global order.
#include "train/train_internal.h"
#include <stdlib.h>
#include <string.h>

// What one sample contributes: the sum of its losses, and over how many targets.
struct tr__eval_sum {
  double loss, targets;
};

size_t tr__train_eval_bytes(const tr_train_plan *plan) {
  int64_t batches = (plan->eval_samples + plan->micro - 1) / plan->micro, dp = plan->mesh.degree[TR_AXIS_DP];
  int64_t share = (batches + dp - 1) / dp * plan->micro;
  return (size_t)(share * dp) * sizeof(struct tr__eval_sum);
}

static int64_t batch_count(const tr_train_plan *plan, int64_t batch) {
  int64_t left = plan->eval_samples - batch * plan->micro;
  return left < plan->micro ? left : plan->micro;
}

// Losses of samples from those of their sequences (one, or one per document), in order.
static void add_batch(const tr_batch *b, const double *of_sequence, struct tr__eval_sum *out) {
  int64_t first = b->rows ? b->sample[0] : 0;
  for (int q = 0; q < b->nseq; q++) out[b->sample[b->start[q]] - first].loss += of_sequence[q];
  for (int64_t r = 0; r < b->rows; r++) out[b->sample[r] - first].targets += b->target[r] >= 0;
}

// How many batches go through the stages behind each other.
static int at_once(const tr_train_plan *plan) {
  const int most = 4 * plan->mesh.degree[TR_AXIS_PP];
  if (plan->schedule.p < 2) return 1;
  return plan->accumulation < most ? plan->accumulation : most;
}

// Batches first, first + dp, ... as far as there are some, into the training's buffers, which are free between steps.
static tr_status run_batches(tr__trainer *t, int64_t first, int n, double *of_sequence, struct tr__eval_sum *out) {
  const tr_train_plan *plan = t->plan;
  const int dp = plan->mesh.degree[TR_AXIS_DP];
  for (int k = 0; k < n; k++) {
    const int64_t batch = first + (int64_t)k * dp;
    const int count = (int)batch_count(plan, batch);
    for (int i = 0; i < count; i++) t->eval_index[i] = batch * plan->micro + i;
    TR_TRY(tr_batch_fill(plan->source, 1, t->eval_index, count, &t->batch[k]));
    t->input[k] = tr__batch_input(&t->batch[k]);
  }
  TR_TRY(tr_run_eval_all(t->run, t->input, n, of_sequence));
  for (int k = 0; k < n; k++) {
    add_batch(&t->batch[k], of_sequence, out + (int64_t)k * plan->micro);
    of_sequence += t->batch[k].nseq;
  }
  return TR_OK;
}

static tr_status own_share(tr__trainer *t, int dp, int64_t batches, struct tr__eval_sum *own) {
  const int most = at_once(t->plan);
  double *of_sequence = calloc((size_t)most * (size_t)t->batch[0].rows_capacity + 1, sizeof *of_sequence);
  if (!of_sequence) return tr_error(TR_ERR_MEMORY, "no memory for the losses of an evaluation");
  tr_status status = TR_OK;
  for (int64_t b = t->dp_rank; b < batches && status == TR_OK; b += (int64_t)most * dp) {
    int64_t left = (batches - b + dp - 1) / dp;
    status = run_batches(t, b, left < most ? (int)left : most, of_sequence, own + b / dp * t->plan->micro);
  }
  free(of_sequence);
  return status;
}

tr_status tr__evaluate(tr__trainer *t, double *loss) {
  const tr_train_plan *plan = t->plan;
  int dp = plan->mesh.degree[TR_AXIS_DP];
  int64_t batches = (plan->eval_samples + plan->micro - 1) / plan->micro,
          share = (batches + dp - 1) / dp * plan->micro;
  struct tr__eval_sum *own = t->eval_sum + t->dp_rank * share;
  tr__timing_begin(t, TR__SLICE_EVALUATION);
  memset(own, 0, (size_t)share * sizeof *own);
  TR_TRY(own_share(t, dp, batches, own));
  if (dp > 1) TR_TRY(tr_group_allgather(t->groups.dp, own, t->eval_sum, (size_t)share * sizeof *own, TR_U8, NULL));
  double sum = 0, targets = 0;
  for (int64_t i = 0; i < plan->eval_samples; i++) {
    int64_t b = i / plan->micro;
    const struct tr__eval_sum *sample = &t->eval_sum[b % dp * share + b / dp * plan->micro + i % plan->micro];
    sum += sample->loss;
    targets += sample->targets;
  }
  *loss = targets > 0 ? sum / targets : 0;
  tr__timing_end(t);
  return TR_OK;
}
