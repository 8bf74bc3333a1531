// SPDX-License-Identifier: MIT
// Which samples the micro-batches of a place in dp hold (all ranks of a pipeline read the same): in the order of their numbers, or balanced so that all get about as many
// tokens. Every rank works it out alone, from the step and the lengths of samples, and all find the same.
#include "train/train_internal.h"
#include <stdlib.h>

struct tr__dealer {
  int balanced;
  int64_t step;           // that `bin` is for, -1: none yet
  int64_t *length, *work; // [batch], [batch + bins]
  int *bin;               // [batch] micro-batch that each sample of the step is in
  int64_t *index;         // [micro] of the micro-batch last asked for
};

void tr__dealer_free(struct tr__dealer *dealer) {
  if (!dealer) return;
  free(dealer->length);
  free(dealer->work);
  free(dealer->bin);
  free(dealer->index);
  free(dealer);
}

static size_t bins_of(const tr_train_plan *plan) {
  return (size_t)plan->mesh.degree[TR_AXIS_DP] * (size_t)plan->accumulation;
}

size_t tr__dealer_bytes(const tr_train_plan *plan) {
  const struct tr__dealer *d = NULL;
  size_t batch = (size_t)plan->config->batch.sequences, balanced = plan->config->data.dealing == TR_DEALING_BALANCED;
  return (size_t)plan->micro * sizeof *d->index +
         balanced * (batch * (sizeof *d->length + sizeof *d->bin) + (batch + bins_of(plan)) * sizeof *d->work);
}

tr_status tr__dealer_create(const tr_train_plan *plan, struct tr__dealer **out) {
  size_t batch = (size_t)plan->config->batch.sequences;
  size_t bins = bins_of(plan);
  struct tr__dealer *d = calloc(1, sizeof *d);
  if (!d) return tr_error(TR_ERR_MEMORY, "no memory to deal samples");
  d->balanced = plan->config->data.dealing == TR_DEALING_BALANCED;
  d->step = -1;
  d->index = calloc((size_t)plan->micro, sizeof *d->index);
  if (d->balanced) {
    d->length = calloc(batch, sizeof *d->length);
    d->work = calloc(batch + bins, sizeof *d->work);
    d->bin = calloc(batch, sizeof *d->bin);
  }
  if (!d->index || (d->balanced && (!d->length || !d->work || !d->bin))) {
    tr__dealer_free(d);
    return tr_error(TR_ERR_MEMORY, "no memory to deal %zu samples", batch);
  }
  *out = d;
  return TR_OK;
}

int64_t tr__samples_before(const tr_train_plan *plan, int64_t step) {
  int64_t samples = step * plan->config->batch.sequences;
  return plan->limit >= 0 && samples > plan->limit ? plan->limit : samples;
}

static void balance(struct tr__dealer *d, const tr_train_plan *plan, int64_t step) {
  int64_t first = tr__samples_before(plan, step);
  int n = (int)(tr__samples_before(plan, step + 1) - first);
  for (int i = 0; i < n; i++) d->length[i] = tr_source_length(plan->source, 0, first + i);
  tr_deal_balanced(d->length, n, plan->mesh.degree[TR_AXIS_DP] * plan->accumulation, plan->micro, d->bin, d->work);
  d->step = step;
}

void tr__dealer_take(struct tr__dealer *d, const tr_train_plan *plan, int64_t step, int dp_rank, int j,
                     const int64_t **index, int *count) {
  int dp = plan->mesh.degree[TR_AXIS_DP];
  int64_t first;
  *index = d->index;
  if (!d->balanced) {
    tr_deal(step, plan->config->batch.sequences, plan->micro, dp, dp_rank, j, plan->limit, &first, count);
    for (int i = 0; i < *count; i++) d->index[i] = first + i;
    return;
  }
  if (d->step != step) balance(d, plan, step);
  first = tr__samples_before(plan, step);
  int n = (int)(tr__samples_before(plan, step + 1) - first);
  *count = 0;
  for (int i = 0; i < n; i++)
    if (d->bin[i] == j * dp + dp_rank) d->index[(*count)++] = first + i;
}
