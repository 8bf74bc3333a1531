// SPDX-License-Identifier: MIT
// Evaluation that prints the same number on any layout of ranks. Validation samples are cut into batches of the run file's
// micro-batch; batch b is computed by rank b % dp; sums per sequence travel as f64 and are added in global order.
#include "train/train_internal.h"
#include <string.h>

static int64_t batch_count(const tr_train_plan *plan, int64_t batch) {
  int64_t left = plan->eval_samples - batch * plan->micro;
  return left < plan->micro ? left : plan->micro;
}

static tr_status own_share(tr__trainer *t, int dp, int64_t batches, double *own) {
  const tr_train_plan *plan = t->plan;
  for (int64_t b = t->rank; b < batches; b += dp) {
    TR_TRY(tr_batch_fill(t->source, 1, b * plan->micro, (int)batch_count(plan, b), &t->eval_batch));
    tr_model_input input = tr__batch_input(&t->eval_batch);
    TR_TRY(tr_run_eval(t->run, &input, own + b / dp * plan->micro));
  }
  return TR_OK;
}

tr_status tr__evaluate(tr__trainer *t, double *loss) {
  const tr_train_plan *plan = t->plan;
  int dp = plan->mesh.degree[TR_AXIS_DP];
  int64_t batches = (plan->eval_samples + plan->micro - 1) / plan->micro,
          share = (batches + dp - 1) / dp * plan->micro;
  double *own = t->eval_loss + t->rank * share;
  memset(own, 0, (size_t)share * sizeof *own);
  TR_TRY(own_share(t, dp, batches, own));
  if (dp > 1) TR_TRY(tr_group_allgather(t->dp, own, t->eval_loss, (size_t)share * sizeof *own, TR_U8, NULL));
  double sum = 0;
  for (int64_t i = 0; i < plan->eval_samples; i++) {
    int64_t b = i / plan->micro;
    sum += t->eval_loss[b % dp * share + b / dp * plan->micro + i % plan->micro];
  }
  // Padded rows of a short last sample do not count; the source knows how many targets there are.
  int64_t valid = tr_source_tokens(t->source, 1) - 1, whole = plan->eval_samples * plan->config->data.sequence;
  *loss = sum / (double)(valid < whole ? valid : whole);
  return TR_OK;
}
