// SPDX-License-Identifier: MIT
// Profiles: what rank 0 spent its steps on, added up per kind of piece and pass, per state operation and per communication
// operation, with the FLOPs and bytes that the work has (cost.c). A table of the last run.profile steps and, at the end,
// of all. Communication is counted with the time that the compute lane waited for it; how long it was under way beside
// other work is kept apart. So all rows and what is left over add up to the time of the steps, evaluation and saving left out.
#include "train/timing_internal.h"
#include "trireme/base/clock.h"
#include <stdlib.h>
#include <string.h>

enum { ROLES = TR_ROLE_DERIVATIVE + 1 };

static const char *kind_of(const tr_model *model, int piece) {
  const char *kind = tr_model_piece(model, piece)->ops->kind;
  return kind ? kind : "piece";
}

static int find_kind(struct tr__profile *p, const char *kind) {
  int at = 0;
  while (at < p->nkind && strcmp(p->kind[at], kind) != 0) at++;
  if (at == p->nkind) p->kind[p->nkind++] = kind;
  return at;
}

tr_status tr__profile_open(const tr__trainer *t, struct tr__profile **out) {
  const tr_model *model = t->part->model;
  int n = tr_model_pieces(model);
  struct tr__profile *p = calloc(1, sizeof *p);
  if (!p) return tr_error(TR_ERR_MEMORY, "no memory for a profile");
  *out = p;
  p->kind = calloc((size_t)n, sizeof *p->kind);
  p->kind_of = calloc((size_t)n, sizeof *p->kind_of);
  if (!p->kind || !p->kind_of) return tr_error(TR_ERR_MEMORY, "no memory for a profile");
  for (int i = 0; i < n; i++) p->kind_of[i] = find_kind(p, kind_of(model, i));
  p->nrow = p->nkind * TR__PASSES + TR_OP_KIND_COUNT * ROLES;
  p->window.row = calloc((size_t)p->nrow, sizeof(tr__tally));
  p->total.row = calloc((size_t)p->nrow, sizeof(tr__tally));
  return p->window.row && p->total.row ? TR_OK : tr_error(TR_ERR_MEMORY, "no memory for a profile");
}

void tr__profile_close(struct tr__profile *p) {
  if (!p) return;
  free(p->window.row);
  free(p->total.row);
  free(p->kind);
  free(p->kind_of);
  free(p);
}

void tr__profile_name(const struct tr__profile *p, int row, char *out, size_t nbyte) {
  int op = row - p->nkind * TR__PASSES;
  if (op < 0) {
    snprintf(out, nbyte, "%s %s", p->kind[row / TR__PASSES], tr__pass_name((tr__pass)(row % TR__PASSES)));
    return;
  }
  const char *role = tr__role_name(op % ROLES);
  snprintf(out, nbyte, "%s%s%s", tr_op_name((tr_op_kind)(op / ROLES)), *role ? " " : "", role);
}

// ---- adding up

static void add(struct tr__profile *p, int row, tr__tally more) {
  for (int i = 0; i < 2; i++) {
    tr__tally *sum = &(i ? p->total : p->window).row[row];
    sum->calls++;
    sum->ns += more.ns;
    sum->under_way += more.under_way;
    sum->flops += more.flops;
    sum->bytes += more.bytes;
  }
}

void tr__profile_piece(struct tr__profile *p, const tr__trainer *t, int piece, const tr_op *op,
                       const tr_model_input *input, int64_t ns) {
  tr__pass pass = tr__pass_of(op);
  tr__cost cost = tr__piece_cost(t->plan, t->part->model, piece, pass, input);
  add(p, p->kind_of[piece] * TR__PASSES + (int)pass, (tr__tally){.ns = ns, .flops = cost.flops, .bytes = cost.bytes});
}

void tr__profile_op(struct tr__profile *p, const tr__trainer *t, const tr_op *op, int64_t ns, int64_t under_way) {
  int row = p->nkind * TR__PASSES + op->kind * ROLES + op->role;
  add(p, row, (tr__tally){.ns = ns, .under_way = under_way, .bytes = tr__op_bytes(t->plan, t->rank, op)});
}

void tr__profile_slice(struct tr__profile *p, tr__slice slice, int64_t ns) {
  p->window.slice[slice] += ns;
  p->total.slice[slice] += ns;
  if (slice != TR__SLICE_STEP) return;
  p->window.steps++;
  p->total.steps++;
}

// ---- saying it

static tr_status say(tr__trainer *t, const tr__table *table, int whole) {
  tr_text text = {0};
  int64_t begin = tr_clock_ns();
  tr_status status = tr__profile_print(t, table, whole, &text);
  if (status == TR_OK) {
    tr__metrics_clear_line(t);
    fputs(text.data, stdout);
    fflush(stdout);
    status = tr__metrics_append(t, tr__profile_json(t, table, whole));
  }
  tr_text_free(&text);
  t->mark_ns += tr_clock_ns() - begin; // rates are those of training
  t->begin_ns += tr_clock_ns() - begin;
  return status;
}

tr_status tr__profile_step(tr__trainer *t) {
  struct tr__profile *p = t->timing ? t->timing->profile : NULL;
  if (!p || t->step % t->plan->config->run.profile != 0) return TR_OK;
  if (t->step == t->plan->steps && p->window.steps == p->total.steps)
    return TR_OK; // the table of all steps is the same
  TR_TRY(say(t, &p->window, 0));
  tr__tally *row = p->window.row;
  memset(row, 0, (size_t)p->nrow * sizeof *row);
  p->window = (tr__table){.row = row};
  return TR_OK;
}

tr_status tr__profile_end(tr__trainer *t) {
  struct tr__profile *p = t->timing ? t->timing->profile : NULL;
  return p && p->total.steps > 0 ? say(t, &p->total, 1) : TR_OK;
}
