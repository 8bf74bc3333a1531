// SPDX-License-Identifier: MIT
// What the search remembers (search_internal.h).
//
// Many plans differ in what hardly matters: dp against cp and micro-batch, ZeRO 0 against 1, chunks. Grouped by tp, pp and ep,
// the best of each group stand for them, with a count of those within a percent. Counts are kept in bins relative to the
// group's best, which move when a better one is found: exact to a tenth of a percent. The table of groups has room for
// all that can enter the result; the slowest gives way.
#include "plan/search_internal.h"
#include "trireme/plan/pipeline.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double BIN = 0.002, BIN_FIRST = -14; // of ln(seconds): a microsecond to decades
static const double NEAR = 0.001;

// ---- how many take how long

static size_t bin_of(double step) {
  double at = (log(step) - BIN_FIRST) / BIN;
  return at < 0 ? 0 : at >= TR__SEARCH_BINS ? TR__SEARCH_BINS - 1 : (size_t)at;
}

// To a share of a bin; all where the step is beyond the last.
int64_t tr__search_below(const tr__search *s, double step) {
  size_t last = bin_of(step);
  double n = 0, inside = fmax(0, fmin(1, (log(step) - BIN_FIRST) / BIN - (double)last));
  for (size_t i = 0; i < last; i++) n += s->steps[i];
  return (int64_t)(n + inside * s->steps[last] + 0.5);
}

// ---- the best

int tr__search_before(const tr_search_entry *a, const tr_search_entry *b) {
  if (a->prediction.step != b->prediction.step) return a->prediction.step < b->prediction.step;
  return a->prediction.memory.total < b->prediction.memory.total;
}

// Into a list of at most `most`, the best first.
static void insert(tr_search_entry *list, size_t *n, size_t most, const tr_search_entry *entry) {
  if (*n == most && !tr__search_before(entry, &list[most - 1])) return;
  size_t at = *n < most ? *n : most - 1;
  for (; at > 0 && tr__search_before(entry, &list[at - 1]); at--) list[at] = list[at - 1];
  list[at] = *entry;
  if (*n < most) (*n)++;
}

// ---- groups

static double best_of(const tr__search_group *g) { return g->best[0].prediction.step; }

static int alike(const tr_plan *a, const tr_plan *b) { return a->tp == b->tp && a->pp == b->pp && a->ep == b->ep; }

static tr__search_group *group_of(tr__search *s, const tr_search_entry *entry) {
  tr__search_group *slowest = &s->group[0];
  for (size_t i = 0; i < s->ngroup; i++) {
    if (alike(&s->group[i].best[0].plan, &entry->plan)) return &s->group[i];
    if (best_of(&s->group[i]) > best_of(slowest)) slowest = &s->group[i];
  }
  tr__search_group *g = s->ngroup < TR__SEARCH_GROUPS ? &s->group[s->ngroup++] : slowest;
  if (g == slowest && s->ngroup == TR__SEARCH_GROUPS && g->n > 0 && best_of(g) <= entry->prediction.step) return NULL;
  *g = (tr__search_group){0};
  return g;
}

// A better best moves all counts up.
static void count(tr__search_group *g, double step) {
  double best = g->n ? best_of(g) : step;
  if (step < best) {
    size_t by = (size_t)fmin((best / step - 1) / NEAR + 0.5, TR__SEARCH_NEAR);
    memmove(g->near + by, g->near, (TR__SEARCH_NEAR - by) * sizeof *g->near);
    memset(g->near, 0, by * sizeof *g->near);
    best = step;
  }
  double at = (step / best - 1) / NEAR;
  if (at < TR__SEARCH_NEAR) g->near[(size_t)at]++;
}

// The step of the last of the `keep` best groups.
static void find_last(tr__search *s) {
  double list[TR_SEARCH_TOP_MOST];
  size_t n = 0;
  if (s->ngroup < s->keep) return;
  for (size_t i = 0; i < s->ngroup; i++) {
    double step = best_of(&s->group[i]);
    if (n == s->keep && step >= list[n - 1]) continue;
    size_t at = n < s->keep ? n++ : n - 1;
    for (; at > 0 && step < list[at - 1]; at--) list[at] = list[at - 1];
    list[at] = step;
  }
  s->last_kept = list[s->keep - 1];
}

static void keep_in_group(tr__search *s, const tr_search_entry *entry) {
  tr__search_group *g = group_of(s, entry);
  if (!g) return;
  int better = g->n == 0 || entry->prediction.step < best_of(g);
  count(g, entry->prediction.step);
  insert(g->best, &g->n, TR__SEARCH_EACH, entry);
  if (better && entry->prediction.step < s->last_kept) find_last(s);
}

void tr__search_keep(tr__search *s, const tr_search_entry *entry) {
  double step = entry->prediction.step;
  s->best = fmin(s->best, step);
  s->steps[bin_of(step)]++;
  if (s->group)
    keep_in_group(s, entry);
  else
    insert(s->out->top, &s->out->n, s->keep, entry);
}

double tr__search_limit(const tr__search *s) {
  const tr_search_result *r = s->out;
  double last = s->group ? s->last_kept : r->n < s->keep ? INFINITY : r->top[r->n - 1].prediction.step;
  if (s->o->all || s->o->visit) return INFINITY;
  return fmax(last, s->best * (1 + tr_predict_spread(s->w, s->c)));
}

// ---- families, for explanations

static void note_family(tr__search *s, const char *knob, int64_t value, double step, double overflow) {
  tr_search_result *r = s->out;
  size_t i = 0;
  while (i < r->nfamily && (r->family[i].knob != knob || r->family[i].value != value)) i++;
  if (i == TR_SEARCH_FAMILY_MOST) return;
  tr_search_family *f = &r->family[i];
  if (i == r->nfamily) {
    *f = (tr_search_family){.knob = knob, .value = value, .overflow = INFINITY};
    r->nfamily++;
  }
  if (step > 0 && (f->step == 0 || step < f->step)) f->step = step;
  f->overflow = fmin(f->overflow, overflow);
}

static int64_t schedule_of(const tr_plan *p) {
  const char *name = tr_plan_schedule(p);
  for (int64_t i = 0; tr_search_schedule_name(i); i++)
    if (strcmp(name, tr_search_schedule_name(i)) == 0) return i;
  return 0;
}

const char *tr__search_schedule_of(const tr_plan *p) { return tr_search_schedule_name(schedule_of(p)); }

const char *tr_search_schedule_name(int64_t i) {
  static const char *const name[] = {"1f1b", "interleaved", "zb_h1", "dualpipe"};
  return i >= 0 && i < (int64_t)(sizeof name / sizeof *name) ? name[i] : NULL;
}

void tr__search_note(tr__search *s, const tr_plan *p, double step, double overflow) {
  static const char *const knob[] = {"tp", "pp", "cp", "ep", "vpp", "micro", "zero", "recompute"};
  const int64_t value[] = {p->tp, p->pp, p->cp, p->ep, p->vpp, p->micro, p->zero, p->recompute};
  static const char schedule[] = "schedule";
  if (overflow > 0 && overflow < s->lacking) s->lacking = overflow;
  if (!s->o->all) return;
  for (size_t i = 0; i < sizeof knob / sizeof *knob; i++) note_family(s, knob[i], value[i], step, overflow);
  if (p->pp > 1) note_family(s, schedule, schedule_of(p), step, overflow);
}

// ---- the best once more, with their schedules

static int by_step(const void *a, const void *b) {
  const tr_search_entry *x = a, *y = b;
  return tr__search_before(x, y) ? -1 : tr__search_before(y, x);
}

static int by_best(const void *a, const void *b) {
  const tr__search_group *x = a, *y = b;
  return by_step(&x->best[0], &y->best[0]);
}

// A plan whose schedule cannot be built, or that holds more than the closed form says and does not fit, is none (*works 0).
static tr_status simulate(tr__search *s, tr_search_entry *e, int *works) {
  tr_status status = tr_predict_simulated(&e->plan, s->w, s->c, &e->prediction);
  s->out->simulated += e->plan.pp > 1;
  *works = status == TR_OK && e->prediction.fits;
  return status == TR_ERR_PLAN ? TR_OK : status;
}

// The best three of each group; the group's count stays with the winner.
static tr_status simulate_groups(tr__search *s) {
  tr_search_result *r = s->out;
  qsort(s->group, s->ngroup, sizeof *s->group, by_best);
  for (size_t i = 0; i < s->ngroup && r->n < TR_SEARCH_TOP_MOST; i++) {
    tr__search_group *g = &s->group[i];
    tr_search_entry *best = NULL;
    if (r->n >= s->keep && best_of(g) > s->best * (1 + tr_predict_spread(s->w, s->c))) break;
    for (size_t k = 0; k < g->n; k++) {
      int works = 1;
      if (!s->o->closed) TR_TRY(simulate(s, &g->best[k], &works));
      if (works && (!best || tr__search_before(&g->best[k], best))) best = &g->best[k];
    }
    if (!best) continue;
    best->alike = -1; // without itself
    for (int k = 0; k < TR__SEARCH_NEAR; k++) best->alike += g->near[k];
    r->top[r->n++] = *best;
  }
  return TR_OK;
}

static tr_status simulate_each(tr__search *s) {
  tr_search_result *r = s->out;
  size_t n = 0;
  for (size_t i = 0; i < r->n; i++) {
    int works = 1;
    TR_TRY(simulate(s, &r->top[i], &works));
    if (works) r->top[n++] = r->top[i];
  }
  r->n = n;
  return TR_OK;
}

tr_status tr__search_finish(tr__search *s) {
  tr_search_result *r = s->out;
  if (s->group)
    TR_TRY(simulate_groups(s));
  else if (!s->o->closed && !s->o->visit)
    TR_TRY(simulate_each(s));
  qsort(r->top, r->n, sizeof *r->top, by_step);
  if (r->n > s->o->top) r->n = s->o->top;
  return TR_OK;
}
