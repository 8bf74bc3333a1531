// SPDX-License-Identifier: MIT
// The norm of the whole model's gradient. Squares are summed block by block, blocks unit by unit, and units in the order of the
// whole model, all in f64; each rank of a pipeline reports the units that begin in its part, and zero for all others. So the
// bits depend neither on who has which stage nor on who owns which block, a tied parameter is counted once, where its unit
// begins, and of two copies of a stage the one in direction 0 counts.
#include "run/run_internal.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static int whole_units(const tr_run *run) { return tr_model_units(tr_model_whole(run->options.model)); }

// The chunk that has the piece with this number in the whole model, -1 none.
static int chunk_of_whole_piece(const tr_run *run, int index) {
  for (int c = 0; c < run->nchunk; c++)
    for (uint32_t i = run->chunk[c].piece_begin; i < run->chunk[c].piece_end; i++)
      if (tr_model_piece(run->options.model, (int)i)->index == index) return c;
  return -1;
}

tr_status tr__norm_bind(tr_run *run) {
  const tr_model *model = run->options.model, *whole = tr_model_whole(model);
  int nunit = tr_model_units(model);
  run->norm_unit = malloc(((size_t)nunit + 1) * sizeof *run->norm_unit);
  if (!run->norm_unit) return tr_error(TR_ERR_MEMORY, "no memory for the table of %d units", nunit);
  for (int unit = 0; unit < nunit; unit++) run->norm_unit[unit] = -1;
  for (int i = 0; i < tr_model_params(model); i++) {
    int unit = tr_model_param(whole, tr_model_whole_param(model, i))->unit;
    int chunk = chunk_of_whole_piece(run, tr_model_unit_last_piece(whole, unit));
    if (chunk >= 0 && run->chunk[chunk].direction == 0) run->norm_unit[tr_model_param(model, i)->unit] = unit;
  }
  return TR_OK;
}

double *tr__norm_row(const tr_run *run, int rank) {
  return run->norms + run->pp + (size_t)rank * (size_t)whole_units(run);
}

// Every block, by all workers; sharers have summed theirs with the gradients.
static void sum_blocks(tr_run *run) {
  const tr_layout *layout = run->options.layout;
  for (int unit = 0; unit < layout->nunit; unit++) {
    const int64_t first = layout->unit_start[unit], count = layout->unit_start[unit + 1] - first;
    double *squares = run->squares + tr_layout_blocks(layout, unit);
    if (run->wide == TR_F32)
      run->compute.kernels->sum_squares(&run->compute, (size_t)count, TR_LAYOUT_BLOCK,
                                        (const float *)run->gradients + first, squares);
    for (int64_t at = 0; run->wide != TR_F32 && at < count; at += TR_LAYOUT_BLOCK)
      *squares++ = tr__squares_of_block(run, first + at, count - at < TR_LAYOUT_BLOCK ? count - at : TR_LAYOUT_BLOCK);
  }
}

void tr__norm_own(tr_run *run) {
  const tr_layout *layout = run->options.layout;
  double *row = tr__norm_row(run, run->pp_rank);
  if (!run->shares) sum_blocks(run);
  memset(row, 0, (size_t)whole_units(run) * sizeof *row);
  for (int unit = 0; unit < layout->nunit; unit++) {
    double sum = 0;
    for (int64_t b = tr_layout_blocks(layout, unit); b < tr_layout_blocks(layout, unit + 1); b++)
      sum += run->squares[b];
    if (run->norm_unit[unit] >= 0) row[run->norm_unit[unit]] = sum;
  }
}

double tr__norm_of_all(const tr_run *run) {
  double total = 0;
  for (int unit = 0; unit < whole_units(run); unit++) {
    double sum = 0; // one rank's, and zeros
    for (int rank = 0; rank < run->pp; rank++) sum += tr__norm_row(run, rank)[unit];
    total += sum;
  }
  return total;
}
