// SPDX-License-Identifier: MIT
// Who owns what of the state, and the sums of squares of owned gradients: ZeRO stage 1 on each machine. A bucket is cut into
// runs of whole blocks, one per sharer (tr_layout_own). Squares are summed block by block into an array that all sharers see,
// and the norm adds that up in order; so its bits depend neither on the number of ranks nor on who owns what.
#include "run/run_internal.h"
#include <stdlib.h>
#include <string.h>

static void cut_bucket(tr_run *run, int index, size_t *start) {
  const tr_layout *layout = run->options.layout;
  const tr_bucket *bucket = &run->options.program->bucket[index];
  int64_t base = layout->unit_start[bucket->unit_begin], first, count;
  for (int r = 0; r < run->nsharer; r++) {
    tr_layout_own(layout, bucket->unit_begin, bucket->unit_end, run->nsharer, r, &first, &count);
    start[r] = (size_t)(first - base);
  }
  start[run->nsharer] = (size_t)(layout->unit_start[bucket->unit_end] - base);
  run->share[index] = (tr__share){.run = run, .first = base, .start = start};
  for (int u = bucket->unit_begin; u < bucket->unit_end; u++) run->bucket_of[u] = index;
}

tr_status tr__shares_make(tr_run *run) {
  const tr_program *program = run->options.program;
  if (!program) return TR_OK;
  size_t n = (size_t)program->nbucket;
  run->share = calloc(n, sizeof *run->share);
  run->starts = calloc(n * ((size_t)run->nsharer + 1), sizeof *run->starts);
  run->bucket_of = calloc((size_t)run->options.layout->nunit, sizeof *run->bucket_of);
  if (!run->share || !run->starts || !run->bucket_of)
    return tr_error(TR_ERR_MEMORY, "no memory for the parts of %zu buckets", n);
  for (int b = 0; b < program->nbucket; b++) cut_bucket(run, b, run->starts + (size_t)b * ((size_t)run->nsharer + 1));
  return TR_OK;
}

void tr__shares_free(tr_run *run) {
  free(run->share);
  free(run->starts);
  free(run->bucket_of);
}

void tr__share_of_unit(const tr_run *run, int unit, int64_t *first, int64_t *count) {
  const int64_t *unit_start = run->options.layout->unit_start;
  int64_t begin = unit_start[unit], end = unit_start[unit + 1];
  if (run->shares) {
    const tr__share *s = &run->share[run->bucket_of[unit]];
    int64_t own = s->first + (int64_t)s->start[run->sharer], own_end = s->first + (int64_t)s->start[run->sharer + 1];
    if (begin < own) begin = own;
    if (end > own_end) end = own_end;
  }
  *first = begin;
  *count = end > begin ? end - begin : 0;
}

static void zero(void *base, size_t width, int64_t first, int64_t count) {
  if (base) memset((char *)base + (size_t)first * width, 0, (size_t)count * width);
}

void tr__share_zero(tr_run *run) {
  for (int unit = 0; unit < run->options.layout->nunit; unit++) {
    int64_t first, count;
    tr__share_of_unit(run, unit, &first, &count);
    zero(run->weights, tr_dtype_size(run->options.type), first, count);
    if (run->master != run->weights) zero(run->master, tr_dtype_size(run->wide), first, count);
    for (int i = 0; i < TR_OPTIM_MAX_STATE; i++) zero(run->state[i], sizeof(float), first, count);
  }
}

// ---- sums of squares

// The own part starts with a whole block: find its number.
void tr__share_begin(tr_run *run, int bucket) {
  const tr_layout *layout = run->options.layout;
  tr__share *s = &run->share[bucket];
  s->at = s->first + (int64_t)s->start[run->sharer];
  s->unit = run->options.program->bucket[bucket].unit_begin;
  while (s->unit + 1 < layout->nunit && layout->unit_start[s->unit + 1] <= s->at) s->unit++;
  s->block = tr_layout_blocks(layout, s->unit) + (s->at - layout->unit_start[s->unit]) / TR_LAYOUT_BLOCK;
}

double tr__squares_of_block(tr_run *run, int64_t first, int64_t count) {
  double sum = 0;
  if (run->wide == TR_F32) {
    run->compute.kernels->sum_squares(&run->inline_compute, (size_t)count, TR_LAYOUT_BLOCK,
                                      (const float *)run->gradients + first, &sum);
  } else {
    const double *g = (const double *)run->gradients + first;
    for (int64_t i = 0; i < count; i++) sum += g[i] * g[i];
  }
  return sum;
}

// Whole blocks only: a part may end within one, which then waits for the next part.
void tr__share_squares(void *share, size_t first, size_t n) {
  tr__share *s = share;
  tr_run *run = s->run;
  const int64_t *unit_start = run->options.layout->unit_start;
  const int64_t end = s->first + (int64_t)(s->start[run->sharer] + first + n);
  while (s->at < end) {
    while (unit_start[s->unit + 1] <= s->at) s->unit++;
    int64_t left = unit_start[s->unit + 1] - s->at, count = left < TR_LAYOUT_BLOCK ? left : TR_LAYOUT_BLOCK;
    if (s->at + count > end) return;
    run->squares[s->block++] = tr__squares_of_block(run, s->at, count);
    s->at += count;
  }
}
