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

static tr_status one_batch(tr__trainer *t, int64_t batch, double *of_sequence, struct tr__eval_sum *out) {
  const tr_train_plan *plan = t->plan;
  int count = (int)batch_count(plan, batch);
  for (int i = 0; i < count; i++) t->eval_index[i] = batch * plan->micro + i;
  TR_TRY(tr_batch_fill(plan->source, 1, t->eval_index, count, &t->eval_batch));
  tr_model_input input = tr__batch_input(&t->eval_batch);
  TR_TRY(tr_run_eval(t->run, &input, of_sequence));
  add_batch(&t->eval_batch, of_sequence, out);
  return TR_OK;
}

static tr_status own_share(tr__trainer *t, int dp, int64_t batches, struct tr__eval_sum *own) {
  double *of_sequence = calloc((size_t)t->eval_batch.rows_capacity + 1, sizeof *of_sequence);
  if (!of_sequence) return tr_error(TR_ERR_MEMORY, "no memory for the losses of an evaluation");
  tr_status status = TR_OK;
  for (int64_t b = t->dp_rank; b < batches && status == TR_OK; b += dp)
    status = one_batch(t, b, of_sequence, own + b / dp * t->plan->micro);
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
  if (dp > 1) TR_TRY(tr_group_allgather(t->dp, own, t->eval_sum, (size_t)share * sizeof *own, TR_U8, NULL));
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
