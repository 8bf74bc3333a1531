// SPDX-License-Identifier: MIT
// Cutting a model into stages, and the model that a rank's stages are: the pieces of its ranges, copied with the units,
// parameters and values that they name.
//
// A cut is a place where one activation carries everything across, and where it is all that the pieces in front of the cut
// have left to give: none of them reads it, so its gradient comes from behind the cut alone. What else crosses is parameters
// that are used on both sides (tied embeddings); of a unit that begins in front of the cut nothing else may be used behind
// it, so that the part in which a unit begins has all of it.
#include "model/model_internal.h"
#include <stdlib.h>
#include <string.h>

// Who reads and writes what, in pieces; the part's own numbers of what it copies.
typedef struct cutter {
  const tr_model *whole;
  int *producer, *first_reader, *last_reader; // [values] -1: none
  int *first_user;                            // [params]
  int *unit, *param, *value;                  // own numbers, -1: not copied; values: of the range under way
} cutter;

static tr_status cutter_open(const tr_model *whole, cutter *c) {
  size_t nvalue = (size_t)tr_model_values(whole), nparam = (size_t)tr_model_params(whole),
         total = 4 * nvalue + 2 * nparam + (size_t)tr_model_units(whole);
  int *number = malloc((total + 1) * sizeof *number);
  if (!number) return tr_error(TR_ERR_MEMORY, "no memory to cut model '%s'", tr_model_name(whole));
  for (size_t i = 0; i < total; i++) number[i] = -1;
  *c = (cutter){.whole = whole, .producer = number};
  c->first_reader = c->producer + nvalue;
  c->last_reader = c->first_reader + nvalue;
  c->value = c->last_reader + nvalue;
  c->first_user = c->value + nvalue;
  c->param = c->first_user + nparam;
  c->unit = c->param + nparam;
  for (int i = 0; i < tr_model_pieces(whole); i++) {
    const tr_piece *piece = tr_model_piece(whole, i);
    for (int k = 0; k < piece->nout; k++) c->producer[piece->out[k].value] = i;
    for (int k = 0; k < piece->nin; k++) {
      int v = piece->in[k].value;
      if (c->first_reader[v] < 0) c->first_reader[v] = i;
      c->last_reader[v] = i;
    }
    for (int k = 0; k < piece->nparam; k++)
      if (c->first_user[piece->param[k]] < 0) c->first_user[piece->param[k]] = i;
  }
  return TR_OK;
}

static void cutter_close(cutter *c) { free(c->producer); }

// ---- where a model can be cut

static int unit_begins(const cutter *c, int at) {
  for (int unit = 0; unit < tr_model_units(c->whole); unit++)
    if (tr_model_unit_last_piece(c->whole, unit) == at) return 1;
  return 0;
}

static int params_allow(const cutter *c, int at) {
  for (int i = 0; i < tr_model_params(c->whole); i++)
    if (c->first_user[i] >= at && tr_model_unit_last_piece(c->whole, tr_model_param(c->whole, i)->unit) < at)
      return 0;
  return 1;
}

// The activation that crosses in front of piece `at`; -1 when the model cannot be cut there.
static int crossing_value(const cutter *c, int at) {
  int value = -1;
  for (int v = 0; v < tr_model_values(c->whole); v++) {
    if (c->producer[v] >= at || c->last_reader[v] < at) continue;
    if (value >= 0 || c->first_reader[v] < at || tr_model_value(c->whole, v)->kind != TR_VALUE_ACTIVATION) return -1;
    value = v;
  }
  return value;
}

static int can_cut(const cutter *c, int at) {
  return at > 0 && at < tr_model_pieces(c->whole) && unit_begins(c, at) && params_allow(c, at) &&
         crossing_value(c, at) >= 0;
}

int tr_model_cuts(const tr_model *model, int *piece, int capacity) {
  cutter c;
  int n = 0;
  if (cutter_open(model, &c) < 0) return 0;
  for (int at = 0; at < tr_model_pieces(model); at++)
    if (can_cut(&c, at) && n++ < capacity) piece[n - 1] = at;
  cutter_close(&c);
  return n;
}

// ---- a part

static void nearest_cuts(const cutter *c, int at, int *below, int *above) {
  *below = at - 1;
  *above = at + 1;
  while (*below > 0 && !can_cut(c, *below)) --*below;
  while (*above < tr_model_pieces(c->whole) && !can_cut(c, *above)) ++*above;
}

static tr_status check_end(const cutter *c, int at) {
  int npiece = tr_model_pieces(c->whole), below, above;
  if (at == 0 || at == npiece || can_cut(c, at)) return TR_OK;
  nearest_cuts(c, at, &below, &above);
  return tr_error(TR_ERR_PLAN,
                  "model '%s' cannot be cut before piece %d ('%s'): there, exactly one activation has to cross and a "
                  "unit to end; the nearest places are before piece %d ('%s') and %s%s%s",
                  tr_model_name(c->whole), at, tr_model_piece(c->whole, at)->name, below,
                  tr_model_piece(c->whole, below)->name, above < npiece ? "before '" : "its end",
                  above < npiece ? tr_model_piece(c->whole, above)->name : "", above < npiece ? "'" : "");
}

static tr_status check_range(const cutter *c, int begin, int end) {
  TR_TRY(check_end(c, begin));
  TR_TRY(check_end(c, end));
  if (begin == 0 || end == tr_model_pieces(c->whole) || crossing_value(c, begin) != crossing_value(c, end))
    return TR_OK;
  return tr_error(TR_ERR_PLAN, "pieces %d to %d of model '%s' are no stage: what enters them, they leave as it is",
                  begin, end - 1, tr_model_name(c->whole));
}

static tr_status check_ranges(const cutter *c, const int *range, int nrange) {
  int npiece = tr_model_pieces(c->whole);
  if (c->whole->whole)
    return tr_error(TR_ERR_PLAN, "model '%s' is a part already: parts are cut from the whole",
                    tr_model_name(c->whole));
  if (nrange < 1) return tr_error(TR_ERR_PLAN, "a part of model '%s' needs pieces", tr_model_name(c->whole));
  for (int r = 0; r < nrange; r++)
    if (range[2 * r] < (r ? range[2 * r - 1] : 0) || range[2 * r + 1] <= range[2 * r] || range[2 * r + 1] > npiece)
      return tr_error(TR_ERR_PLAN,
                      "pieces %d to %d of model '%s' are no stage: stages are not empty, ascend, do not overlap and "
                      "end with piece %d at most",
                      range[2 * r], range[2 * r + 1] - 1, tr_model_name(c->whole), npiece - 1);
  for (int r = 0; r < nrange; r++) TR_TRY(check_range(c, range[2 * r], range[2 * r + 1]));
  return TR_OK;
}

static int is_used(const cutter *c, int param, const int *range, int nrange) {
  for (int r = 0; r < nrange; r++)
    for (int i = range[2 * r]; i < range[2 * r + 1]; i++) {
      const tr_piece *piece = tr_model_piece(c->whole, i);
      for (int k = 0; k < piece->nparam; k++)
        if (piece->param[k] == param) return 1;
    }
  return 0;
}

// Units in the whole model's order, of each the parameters that are used.
static void add_params(const cutter *c, const int *range, int nrange, tr_model *part) {
  int nunit = tr_model_units(c->whole), nparam = tr_model_params(c->whole);
  for (int i = 0; i < nparam; i++) c->param[i] = is_used(c, i, range, nrange) ? 0 : -1;
  for (int unit = 0; unit < nunit; unit++)
    for (int i = 0; i < nparam && c->unit[unit] < 0; i++)
      if (c->param[i] == 0 && tr_model_param(c->whole, i)->unit == unit)
        c->unit[unit] = tr_model_add_unit(part, tr_model_unit_name(c->whole, unit));
  for (int i = 0; i < nparam; i++) {
    if (c->param[i] < 0) continue;
    const tr_param *param = tr_model_param(c->whole, i);
    c->param[i] = tr_model_add_param(part, c->unit[param->unit], param);
    if (c->param[i] >= 0) part->whole_param[c->param[i]] = i;
  }
}

// The part's number of a value in the range under way, added when it is met first.
static int own_value(const cutter *c, tr_model *part, int v) {
  const tr_value *value = tr_model_value(c->whole, v);
  if (c->value[v] < 0) c->value[v] = tr_model_add_value(part, value->name, value->kind, value->width);
  return c->value[v];
}

static void add_piece(const cutter *c, tr_model *part, int index) {
  tr_piece piece = *tr_model_piece(c->whole, index);
  for (int k = 0; k < piece.nin; k++) piece.in[k].value = own_value(c, part, piece.in[k].value);
  for (int k = 0; k < piece.nout; k++) piece.out[k].value = own_value(c, part, piece.out[k].value);
  for (int k = 0; k < piece.nparam; k++) piece.param[k] = c->param[piece.param[k]];
  if (piece.unit >= 0) piece.unit = c->unit[piece.unit];
  int number = tr_model_add_piece(part, &piece);
  if (number >= 0) ((tr_piece *)part->piece.item)[number].index = index;
}

// Values belong to their range: what one range hands to the next one of the same part is another value there.
static void add_range(const cutter *c, tr_model *part, int begin, int end, tr_model_boundary *boundary) {
  for (int v = 0; v < tr_model_values(c->whole); v++) c->value[v] = -1;
  for (int i = begin; i < end; i++) add_piece(c, part, i);
  boundary->in = begin > 0 ? c->value[crossing_value(c, begin)] : -1;
  boundary->out = end < tr_model_pieces(c->whole) ? c->value[crossing_value(c, end)] : -1;
}

static tr_status fill(const cutter *c, const int *range, int nrange, tr_model *part) {
  part->whole = c->whole;
  part->nrange = nrange;
  part->range_begin = calloc((size_t)nrange + 1, sizeof *part->range_begin);
  part->boundary = calloc((size_t)nrange, sizeof *part->boundary);
  part->whole_param = calloc((size_t)tr_model_params(c->whole) + 1, sizeof *part->whole_param);
  if (!part->range_begin || !part->boundary || !part->whole_param)
    return tr_error(TR_ERR_MEMORY, "no memory for a part of model '%s'", tr_model_name(c->whole));
  tr_model_set_limits(part, tr_model_vocab(c->whole), tr_model_positions(c->whole));
  add_params(c, range, nrange, part);
  for (int r = 0; r < nrange; r++) {
    add_range(c, part, range[2 * r], range[2 * r + 1], &part->boundary[r]);
    part->range_begin[r + 1] = part->range_begin[r] + range[2 * r + 1] - range[2 * r];
  }
  return tr_model_finish(part);
}

tr_status tr_model_part(const tr_model *whole, const int *range, int nrange, tr_model_boundary *boundary,
                        tr_model **out) {
  cutter c;
  tr_model *part = NULL;
  TR_TRY(cutter_open(whole, &c));
  tr_status status = check_ranges(&c, range, nrange);
  if (status == TR_OK) status = tr_model_create(tr_model_name(whole), &part);
  if (status == TR_OK) status = fill(&c, range, nrange, part);
  cutter_close(&c);
  if (status < 0) {
    tr_model_destroy(part);
    return status;
  }
  memcpy(boundary, part->boundary, (size_t)nrange * sizeof *boundary);
  *out = part;
  return TR_OK;
}

const tr_model *tr_model_whole(const tr_model *model) { return model->whole ? model->whole : model; }
int tr_model_whole_param(const tr_model *part, int i) { return part->whole ? part->whole_param[i] : i; }

int tr_model_ranges(const tr_model *model) { return model->whole ? model->nrange : 1; }

void tr_model_range(const tr_model *model, int range, int *begin, int *end, tr_model_boundary *boundary) {
  *begin = model->whole ? model->range_begin[range] : 0;
  *end = model->whole ? model->range_begin[range + 1] : tr_model_pieces(model);
  *boundary = model->whole ? model->boundary[range] : (tr_model_boundary){-1, -1};
}

int tr__model_enters(const tr_model *model, int value) {
  for (int r = 0; r < model->nrange; r++)
    if (model->boundary[r].in == value) return 1;
  return 0;
}

int tr__model_leaves(const tr_model *model, int value) {
  for (int r = 0; r < model->nrange; r++)
    if (model->boundary[r].out == value) return 1;
  return 0;
}
