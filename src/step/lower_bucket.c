// SPDX-License-Identifier: MIT
// Buckets: units in the order in which backward passes complete them, joined while they touch, the bucket is small, and the
// same pass completes them. A unit that is tied to another rank's has a bucket of its own.
#include "step/lower_internal.h"
#include <stdlib.h>

int tr__lower_is_tied(const tr_step_model *model, int unit) {
  for (int i = 0; i < model->ntied; i++)
    if (model->tied[i] == unit) return 1;
  return 0;
}

int tr__lower_unit_piece(const tr_program *program, const tr_step_model *model, int chunk, int unit) {
  if (model->unit_chunk_piece) return model->unit_chunk_piece[chunk * model->nunit + unit];
  uint32_t piece = (uint32_t)model->unit_last_piece[unit];
  return program->chunk[chunk].piece_begin <= piece && piece < program->chunk[chunk].piece_end ? (int)piece : -1;
}

// Place of the last pass that adds to a chunk's gradients.
static uint32_t last_entry(const tr__lowering *low, int chunk) {
  for (uint32_t i = low->nhalf; i-- > 0;)
    if (low->half[i].chunk == chunk && (low->half[i].kind == TR_OP_B || low->half[i].kind == TR_OP_W))
      return low->half[i].entry;
  return 0;
}

static void find_ready(const tr__lowering *low, tr__ready *ready) {
  const tr_step_model *model = low->model;
  for (int u = 0; u < model->nunit; u++) ready[u] = (tr__ready){0, -1};
  for (int c = 0; c < low->program->nchunk; c++) {
    uint32_t entry = last_entry(low, c);
    for (int u = 0; u < model->nunit; u++) {
      int piece = tr__lower_unit_piece(low->program, model, c, u);
      if (piece >= 0 && (ready[u].piece < 0 || entry > ready[u].entry)) ready[u] = (tr__ready){entry, piece};
    }
  }
}

static int compare_ready(const tr__ready *ready, int a, int b) {
  if (ready[a].entry != ready[b].entry) return ready[a].entry < ready[b].entry ? -1 : 1;
  return ready[a].piece != ready[b].piece ? ready[b].piece - ready[a].piece : b - a;
}

static void sort_units(const tr__ready *ready, int n, int *unit) {
  for (int i = 0; i < n; i++) {
    int at = i;
    for (; at > 0 && compare_ready(ready, unit[at - 1], i) > 0; at--) unit[at] = unit[at - 1];
    unit[at] = i;
  }
}

static int64_t bucket_size(const tr_step_model *model, const tr_bucket *bucket) {
  return model->unit_start[bucket->unit_end] - model->unit_start[bucket->unit_begin];
}

static int join_bucket(const tr_step_model *model, tr_bucket *bucket, int unit, int64_t enough) {
  if (bucket_size(model, bucket) >= enough) return 0;
  if (tr__lower_is_tied(model, unit) || tr__lower_is_tied(model, bucket->unit_begin)) return 0;
  if (unit == bucket->unit_begin - 1)
    bucket->unit_begin = unit;
  else if (unit == bucket->unit_end)
    bucket->unit_end = unit + 1;
  else
    return 0;
  return 1;
}

static void make(tr__lowering *low, const tr__ready *ready, const int *unit) {
  tr_program *p = low->program;
  for (int i = 0; i < low->model->nunit; i++) {
    tr__ready now = ready[unit[i]];
    int last = p->nbucket - 1;
    if (last < 0 || low->ready[last].entry != now.entry ||
        !join_bucket(low->model, &p->bucket[last], unit[i], low->options->bucket_elements)) {
      p->bucket[++last] = (tr_bucket){unit[i], unit[i] + 1, now.piece};
      p->nbucket++;
    }
    p->bucket[last].last_piece = now.piece;
    low->ready[last] = now;
  }
}

tr_status tr__lower_buckets(tr__lowering *low) {
  size_t n = (size_t)low->model->nunit;
  int *unit = malloc(sizeof *unit * (n + 1));
  tr__ready *ready = malloc(sizeof *ready * (n + 1));
  low->program->bucket = malloc(sizeof *low->program->bucket * (n + 1));
  low->ready = malloc(sizeof *low->ready * (n + 1));
  int failed = !unit || !ready || !low->program->bucket || !low->ready;
  if (!failed) {
    find_ready(low, ready);
    sort_units(ready, (int)n, unit);
    make(low, ready, unit);
  }
  free(unit);
  free(ready);
  return failed ? tr_error(TR_ERR_MEMORY, "no memory for %zu buckets", n) : TR_OK;
}
