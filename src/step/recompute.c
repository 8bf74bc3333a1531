// SPDX-License-Identifier: MIT
// Which pieces run again before a backward pass, from nothing but the ports.
//
// The pieces of a unit go from the first that uses one of its parameters to the first of the next unit. A piece can run
// again when all that it writes is read within its unit only. recompute=full takes every such piece; recompute=selective
// the cheap ones whose inputs are kept anyway or computed again too, so that nothing is kept for their sake: a norm of
// the kept stream runs again, the sum of the stream and a branch that nobody keeps does not. Of these, those run that
// write what backward reads or what a piece that runs reads. The unit with the loss keeps what it writes: its backward pass
// follows its forward pass.
//
// What these pieces write lives in the recompute area, one for all units and micro-batches; what they read from elsewhere
// is kept as if backward read it.
#include "trireme/step/values.h"
#include <stdlib.h>

static void note_range(const tr_model *model, int range, tr_value_facts *out) {
  int begin, end;
  tr_model_boundary boundary;
  tr_model_range(model, range, &begin, &end, &boundary);
  for (int i = begin; i < end; i++) {
    const tr_piece *piece = tr_model_piece(model, i);
    for (int k = 0; k < piece->nin; k++) out->range[piece->in[k].value] = range;
    for (int k = 0; k < piece->nout; k++) out->range[piece->out[k].value] = range;
  }
  if (boundary.out >= 0) out->last_reader[boundary.out] = tr_model_pieces(model);
}

tr_status tr_value_facts_make(const tr_model *model, tr_value_facts *out) {
  int nvalue = tr_model_values(model), npiece = tr_model_pieces(model);
  int *numbers = malloc(4 * sizeof *numbers * ((size_t)nvalue + 1));
  unsigned *use = calloc((size_t)nvalue + 1, sizeof *use);
  if (!numbers || !use) {
    free(numbers);
    free(use);
    return tr_error(TR_ERR_MEMORY, "no memory to plan %d values", nvalue);
  }
  *out = (tr_value_facts){numbers, numbers + nvalue, numbers + 2 * nvalue, numbers + 3 * nvalue, use};
  for (int v = 0; v < nvalue; v++) {
    out->producer[v] = out->last_reader[v] = -1;
    out->lowest_user[v] = npiece;
    out->range[v] = 0;
  }
  for (int i = npiece; i-- > 0;) {
    const tr_piece *piece = tr_model_piece(model, i);
    for (int k = 0; k < piece->nin + piece->nout; k++) {
      const tr_port *port = k < piece->nin ? &piece->in[k] : &piece->out[k - piece->nin];
      if (k < piece->nin && out->last_reader[port->value] < 0) out->last_reader[port->value] = i;
      if (k >= piece->nin) out->producer[port->value] = i;
      if (port->use & (TR_USE_I | TR_USE_W)) out->lowest_user[port->value] = i;
      use[port->value] |= port->use;
    }
  }
  for (int r = 0; r < tr_model_ranges(model); r++) note_range(model, r, out);
  return TR_OK;
}

void tr_value_facts_free(tr_value_facts *facts) {
  free(facts->producer);
  free(facts->use);
  *facts = (tr_value_facts){0};
}

int tr_value_unit_end(const tr_model *model, int begin) {
  int end = tr_model_pieces(model);
  for (int unit = 0; unit < tr_model_units(model); unit++) {
    int first = tr_model_unit_last_piece(model, unit);
    if (first > begin && first < end) end = first;
  }
  return end;
}

static int can_run_again(const tr_model *model, const tr_value_facts *facts, int recompute, int index, int end,
                         const unsigned char *again) {
  const tr_piece *piece = tr_model_piece(model, index);
  for (int k = 0; k < piece->nout; k++)
    if (facts->last_reader[piece->out[k].value] >= end) return 0;
  if (recompute == TR_RECOMPUTE_FULL) return 1;
  for (int k = 0; k < piece->nin; k++) {
    int v = piece->in[k].value;
    if (facts->producer[v] < 0) continue; // from another part, kept until the backward pass
    if (!(facts->use[v] & (TR_USE_I | TR_USE_W)) && !again[facts->producer[v]]) return 0;
  }
  return piece->ops->cheap;
}

// Whether backward, or a piece that runs again in [index + 1, end), reads what piece `index` writes.
static int is_needed(const tr_model *model, const tr_value_facts *facts, int index, int end,
                     const unsigned char *again) {
  const tr_piece *piece = tr_model_piece(model, index);
  for (int k = 0; k < piece->nout; k++)
    if (facts->use[piece->out[k].value] & (TR_USE_I | TR_USE_W)) return 1;
  for (int i = index + 1; i < end; i++) {
    const tr_piece *reader = tr_model_piece(model, i);
    for (int j = 0; again[i] && j < reader->nin; j++)
      if (facts->producer[reader->in[j].value] == index) return 1;
  }
  return 0;
}

void tr_value_recompute(const tr_model *model, const tr_value_facts *facts, int recompute, unsigned char *again) {
  int npiece = tr_model_pieces(model);
  for (int i = 0; i < npiece; i++) again[i] = 0;
  for (int begin = 0, end; recompute != TR_RECOMPUTE_NONE && begin < npiece; begin = end) {
    end = tr_value_unit_end(model, begin);
    if (end == npiece && tr_model_loss_value(model) >= 0) break;
    for (int i = begin; i < end; i++) again[i] = (unsigned char)can_run_again(model, facts, recompute, i, end, again);
    for (int i = end; i-- > begin;) again[i] = again[i] && is_needed(model, facts, i, end, again);
  }
}

tr_status tr_value_recompute_ranges(const tr_model *model, tr_recompute recompute, tr_step_range *out, int *count) {
  tr_value_facts facts;
  int npiece = tr_model_pieces(model), n = 0;
  TR_TRY(tr_value_facts_make(model, &facts));
  unsigned char *again = malloc((size_t)npiece);
  if (again) tr_value_recompute(model, &facts, recompute, again);
  for (int begin = 0, end; again && begin < npiece; begin = end) {
    end = tr_value_unit_end(model, begin);
    int any = 0;
    for (int i = begin; i < end; i++) any |= again[i];
    if (any) out[n++] = (tr_step_range){begin, end};
  }
  free(again);
  tr_value_facts_free(&facts);
  if (!again) return tr_error(TR_ERR_MEMORY, "no memory to plan %d pieces", npiece);
  *count = n;
  return TR_OK;
}
