// SPDX-License-Identifier: MIT
// Which pass of a chunk overwrites gradients and which is the last to add, in the order of the rank's list.
//
// A piece may give a parameter's gradient in its backward pass for inputs or in that for weights, and an operation has one
// flag for both. A unit of several chunks gets its first gradient from the last chunk, because a piece overwrites only what no
// later piece uses. Orders for which no flags are right are refused.
#include "step/lower_internal.h"
#include <stdlib.h>

typedef struct tally {
  int input, weight;         // passes so far, then of all
  uint32_t first_i, first_w; // places of the first ones
} tally;

static int has_input(const tr__half *h) { return h->kind == TR_OP_B || h->kind == TR_OP_I; }
static int has_weight(const tr__half *h) { return h->kind == TR_OP_B || h->kind == TR_OP_W; }

static tr_status mixed(const tr__lowering *low, const tr__half *h) {
  return tr_error(
      TR_ERR_PLAN,
      "stage %d: B of micro-batch %d comes between I and W of the first one, so it would both begin and add to "
      "gradients; an earlier W, or I and W in its place would work",
      low->program->chunk[h->chunk].stage, h->microbatch);
}

static tr_status set_first(const tr__lowering *low, tally *t, tr__half *h) {
  if (h->kind == TR_OP_B && (t->input == 0) != (t->weight == 0)) return mixed(low, h);
  h->first = has_input(h) ? t->input == 0 : t->weight == 0;
  if (has_input(h) && t->input++ == 0) t->first_i = h->entry;
  if (has_weight(h) && t->weight++ == 0) t->first_w = h->entry;
  return TR_OK;
}

static void set_last(tally *t, tr__half *h) {
  if (has_input(h)) t->input--;
  if (has_weight(h)) t->weight--;
  h->last = has_weight(h) ? t->weight == 0 : t->input == 0;
}

static tr_status check_shared(const tr__lowering *low, const tally *t) {
  const tr_program *p = low->program;
  for (int u = 0; u < low->model->nunit; u++)
    for (int c = p->nchunk - 1, later = -1; c >= 0; c--) {
      if (tr__lower_unit_piece(p, low->model, c, u) < 0) continue;
      if (later >= 0 && t[c].first_i < t[later].first_w)
        return tr_error(
            TR_ERR_PLAN,
            "stages %d and %d on rank %d share unit %d: the first backward pass of stage %d must come before "
            "that of stage %d",
            p->chunk[c].stage, p->chunk[later].stage, p->rank, u, p->chunk[later].stage, p->chunk[c].stage);
      later = c;
    }
  return TR_OK;
}

static tr_status set_flags(tr__lowering *low, tally *t) {
  int every = low->options->grad_sync == TR_SYNC_EVERY;
  for (uint32_t i = 0; i < low->nhalf; i++) {
    tr__half *h = &low->half[i];
    if (!has_input(h) && !has_weight(h)) continue;
    tr_status status = set_first(low, &t[h->chunk], h);
    if (low->model && status < 0) return status;
    h->first |= (uint8_t)every;
  }
  for (uint32_t i = 0; i < low->nhalf; i++) {
    tr__half *h = &low->half[i];
    if (!has_input(h) && !has_weight(h)) continue;
    set_last(&t[h->chunk], h);
    h->last |= (uint8_t)every;
  }
  return low->model ? check_shared(low, t) : TR_OK;
}

tr_status tr__lower_flags(tr__lowering *low) {
  tally *t = calloc((size_t)low->program->nchunk, sizeof *t);
  if (!t) return tr_error(TR_ERR_MEMORY, "no memory to lower %d stages", low->program->nchunk);
  tr_status status = set_flags(low, t);
  free(t);
  return status;
}
