// SPDX-License-Identifier: MIT
// A model, or a rank's part of one, as the numbers that lowering needs: where units end, per stage; which of them another
// rank has too; which pieces exchange; and how long what enters a stage is read.
#include "run/run_internal.h"
#include <stdlib.h>

// Lowest piece of the range [begin, end) that contributes to the unit, -1: none.
static int lowest_piece(const tr_model *model, int unit, int begin, int end) {
  for (int i = begin; i < end; i++) {
    const tr_piece *piece = tr_model_piece(model, i);
    for (int k = 0; k < piece->nparam; k++)
      if (tr_model_param(model, piece->param[k])->unit == unit) return i;
  }
  return -1;
}

static int last_pass(unsigned use, unsigned by_weight, unsigned by_input) {
  return use & by_weight ? TR_OP_W : use & by_input ? TR_OP_I : TR_OP_F;
}

static void fill_range(const tr_model *model, const tr_value_facts *facts, int range, tr_run_step_model *out) {
  int begin, end, nunit = tr_model_units(model);
  tr_model_boundary boundary;
  tr_model_range(model, range, &begin, &end, &boundary);
  out->chunk_piece[2 * range] = begin;
  out->chunk_piece[2 * range + 1] = end;
  for (int unit = 0; unit < nunit; unit++)
    out->unit_chunk_piece[range * nunit + unit] = lowest_piece(model, unit, begin, end);
  unsigned enters = boundary.in < 0 ? 0 : facts->use[boundary.in],
           leaves = boundary.out < 0 ? 0 : facts->use[boundary.out];
  out->use[range] = (tr_step_use){.activation = (uint8_t)last_pass(enters, TR_USE_W, TR_USE_I),
                                  .gradient = leaves & TR_USE_DW ? TR_OP_W : TR_OP_I};
}

static void fill(const tr_model *model, const tr_layout *layout, const tr_value_facts *facts,
                 tr_run_step_model *out) {
  int nunit = tr_model_units(model);
  for (int r = 0; r < tr_model_ranges(model); r++) fill_range(model, facts, r, out);
  for (int unit = 0; unit < nunit; unit++) out->unit_last_piece[unit] = tr_model_unit_last_piece(model, unit);
  int ntied = 0, ncomm = 0;
  for (int i = 0; i < tr_model_params(model); i++)
    if (tr__param_elsewhere(model, i)) out->tied[ntied++] = tr_model_param(model, i)->unit;
  for (int i = 0; i < tr_model_pieces(model); i++)
    if (tr_model_piece(model, i)->ops->exchanges) out->comm_piece[ncomm++] = i;
  out->model = (tr_step_model){.npiece = tr_model_pieces(model),
                               .nunit = nunit,
                               .unit_last_piece = out->unit_last_piece,
                               .unit_start = layout->unit_start,
                               .unit_chunk_piece = out->unit_chunk_piece,
                               .tied = out->tied,
                               .ntied = ntied,
                               .ncomm = ncomm,
                               .comm_piece = out->comm_piece,
                               .use = out->use};
}

tr_status tr_run_step_model_make(const tr_model *model, const tr_layout *layout, tr_run_step_model *out) {
  size_t nunit = (size_t)tr_model_units(model), nrange = (size_t)tr_model_ranges(model);
  tr_value_facts facts;
  TR_TRY(tr_value_facts_make(model, &facts));
  *out = (tr_run_step_model){.unit_last_piece = calloc(nunit + 1, sizeof *out->unit_last_piece),
                             .unit_chunk_piece = calloc(nunit * nrange + 1, sizeof *out->unit_chunk_piece),
                             .chunk_piece = calloc(2 * nrange, sizeof *out->chunk_piece),
                             .tied = calloc((size_t)tr_model_params(model) + 1, sizeof *out->tied),
                             .comm_piece = calloc((size_t)tr_model_pieces(model), sizeof *out->comm_piece),
                             .use = calloc(nrange, sizeof *out->use)};
  int works =
      out->unit_last_piece && out->unit_chunk_piece && out->chunk_piece && out->tied && out->comm_piece && out->use;
  if (works) fill(model, layout, &facts, out);
  tr_value_facts_free(&facts);
  if (works) return TR_OK;
  tr_run_step_model_free(out);
  return tr_error(TR_ERR_MEMORY, "no memory for the numbers of model '%s'", tr_model_name(model));
}

void tr_run_step_model_free(tr_run_step_model *m) {
  free(m->unit_last_piece);
  free(m->unit_chunk_piece);
  free(m->chunk_piece);
  free(m->tied);
  free(m->comm_piece);
  free(m->use);
  *m = (tr_run_step_model){0};
}
