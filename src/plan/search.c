// SPDX-License-Identifier: MIT
// The search: nested loops over degrees, outermost those that decide a layer's cost, with two bounds.
//
// Memory: weights, gradients and optimizer states of a stage do not depend on micro-batch, chunks or recomputation; where
// they alone exceed the device, nothing below helps. Time: m micro-batches through 1/p of the layers take at least m/p times
// the model's products, whatever else the plan says; where that exceeds both the last kept plan and the range of error
// around the best, no plan below can enter the result.
#include "trireme/plan/search.h"
#include "plan/plan_internal.h"
#include "trireme/plan/pipeline.h"
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BINS = 16384, MICRO_MOST = 64, TOKENS_LEAST = 512 }; // fewer tokens per rank are no use
static const double BIN = 0.002, BIN_FIRST = -14;           // of ln(seconds): a microsecond to decades

typedef struct search {
  const tr_workload *w;
  const tr_cluster *c;
  const tr_search_options *o;
  tr_search_result *out;
  int64_t devices;
  double room;    // bytes of a device
  double lacking; // bytes that the smallest plan lacks
  double best;
  size_t keep;         // how many plans
  int32_t steps[BINS]; // how many plans take how long
} search;

static size_t bin_of(double step) {
  double at = (log(step) - BIN_FIRST) / BIN;
  return at < 0 ? 0 : at >= BINS ? BINS - 1 : (size_t)at;
}

// How many plans take at most `step`, to a share of a bin.
static int64_t plans_below(const search *s, double step) {
  size_t last = bin_of(step);
  double n = 0, inside = (log(step) - BIN_FIRST) / BIN - (double)last;
  for (size_t i = 0; i < last; i++) n += s->steps[i];
  return (int64_t)(n + inside * s->steps[last] + 0.5);
}

void tr_search_options_init(tr_search_options *options) {
  *options = (tr_search_options){.fixed_zero = -1, .fixed_recompute = -1, .top = 5};
  tr_plan_init(&options->fixed);
  tr_plan *p = &options->fixed;
  p->tp = p->pp = p->vpp = p->dp = p->cp = p->ep = p->micro = 0;
}

// ---- keeping the best

static int before(const tr_search_entry *a, const tr_search_entry *b) {
  if (a->prediction.step != b->prediction.step) return a->prediction.step < b->prediction.step;
  return a->prediction.memory.total < b->prediction.memory.total;
}

static void keep(search *s, const tr_search_entry *entry) {
  tr_search_result *r = s->out;
  size_t n = r->n;
  if (n == s->keep && !before(entry, &r->top[n - 1])) return;
  size_t at = n < s->keep ? n : n - 1;
  for (; at > 0 && before(entry, &r->top[at - 1]); at--) r->top[at] = r->top[at - 1];
  r->top[at] = *entry;
  if (n < s->keep) r->n++;
}

static double limit(const search *s) {
  if (s->o->all || s->o->visit || s->out->n < s->keep) return INFINITY;
  return fmax(s->out->top[s->out->n - 1].prediction.step, s->best * (1 + s->c->device.fit.p90));
}

// ---- families, for explanations

static void note_family(search *s, const char *knob, int64_t value, double step, double overflow) {
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

static void note(search *s, const tr_plan *p, double step, double overflow) {
  static const char *const knob[] = {"tp", "pp", "cp", "ep", "vpp", "micro", "zero", "recompute"};
  const int64_t value[] = {p->tp, p->pp, p->cp, p->ep, p->vpp, p->micro, p->zero, p->recompute};
  if (overflow > 0 && overflow < s->lacking) s->lacking = overflow;
  if (!s->o->all) return;
  for (size_t i = 0; i < sizeof knob / sizeof *knob; i++) note_family(s, knob[i], value[i], step, overflow);
}

// ---- one plan

// What no order of the axes can change.
static double without_links(const tr_prediction *x) {
  static const tr_time_term own[] = {TR_TERM_COMPUTE, TR_TERM_RECOMPUTE, TR_TERM_BUBBLE, TR_TERM_OPTIMIZER};
  double sum = 0;
  for (size_t i = 0; i < sizeof own / sizeof *own; i++) sum += x->term[own[i]];
  return sum;
}

static const double FASTER = 1 - 1e-9; // anything less is rounding
static void order_axes(const search *s, tr_search_entry *entry) {
  tr_axis order[TR__ORDERS][TR_AXIS_COUNT];
  double term[TR_TERM_COUNT], best = entry->prediction.step;
  if (s->o->fixed_map || without_links(&entry->prediction) > limit(s)) return;
  int n = tr__orders(&entry->plan, order), at = 0;
  for (int i = 1; i < n; i++) {
    tr_plan other = entry->plan;
    memcpy(other.map, order[i], sizeof other.map);
    double step = tr_predict_step(&other, s->w, s->c, term);
    if (step < best * FASTER) best = step, at = i;
  }
  if (at == 0) return;
  memcpy(entry->plan.map, order[at], sizeof entry->plan.map);
  tr_predict(&entry->plan, s->w, s->c, &entry->prediction);
}

static void consider(search *s, const tr_plan *p) {
  tr_search_entry entry = {.plan = *p};
  s->out->considered++;
  tr_predict_memory(p, s->w, s->c, &entry.prediction.memory);
  double over = entry.prediction.memory.needed - s->room;
  if (over > 0) {
    s->out->too_big++;
    note(s, p, 0, over);
    return;
  }
  tr_predict(p, s->w, s->c, &entry.prediction);
  order_axes(s, &entry);
  s->out->predicted++;
  note(s, p, entry.prediction.step, 0);
  s->best = fmin(s->best, entry.prediction.step);
  s->steps[bin_of(entry.prediction.step)]++;
  keep(s, &entry);
  if (s->o->visit) s->o->visit(s->o->user, &entry);
}

// ---- values of the knobs

static int free_or(int64_t fixed, int64_t value) { return fixed == 0 || fixed == value; }

static int even_chunks(const tr_workload *w, int64_t pp, int64_t vpp) {
  int64_t layers = w->layers + w->predict_more, chunks = pp * vpp;
  if (chunks > layers) return 0;
  return layers % chunks == 0 || (layers + 2) % chunks == 0 || vpp == 1;
}

static int states_fit(search *s, const tr_plan *p) {
  tr_plan least = *p;
  least.micro = 1;
  least.vpp = 1;
  tr_footprint m = {0};
  tr__states_of(&least, s->w, m.item);
  double bytes = m.item[TR_ITEM_WEIGHTS] + m.item[TR_ITEM_GRADS] + m.item[TR_ITEM_STATES];
  double over = bytes + s->c->device.reserved_gb * 1e9 - s->room;
  if (over <= 0) return 1;
  note(s, p, 0, over);
  return 0;
}

static void over_recompute(search *s, tr_plan *p) {
  static const tr_plan_recompute ways[] = {TR_PLAN_RECOMPUTE_NONE, TR_PLAN_RECOMPUTE_PARTS, TR_PLAN_RECOMPUTE_HALF,
                                           TR_PLAN_RECOMPUTE_FULL};
  for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
    if (s->o->fixed_recompute >= 0 && s->o->fixed_recompute != (int)ways[i]) continue;
    p->recompute = ways[i];
    consider(s, p);
  }
}

static void over_chunks(search *s, tr_plan *p, int64_t most) {
  int64_t m = p->batch / (p->dp * p->micro);
  for (int64_t vpp = 1; vpp <= most; vpp++) {
    if (!free_or(s->o->fixed.vpp, vpp) || !even_chunks(s->w, p->pp, vpp)) continue;
    if (vpp > 1 && (p->pp == 1 || m % p->pp != 0)) continue; // interleaving deals micro-batches out in rounds of pp
    p->vpp = vpp;
    tr_plan_follow_degrees(p);
    over_recompute(s, p);
  }
}

static void over_states(search *s, tr_plan *p, double products) {
  double m = (double)(p->batch / (p->dp * p->micro));
  for (int zero = 0; zero <= 3; zero++) {
    if (s->o->fixed_zero >= 0 && s->o->fixed_zero != zero) continue;
    if (zero > 0 && p->dp * p->cp == 1) continue;
    p->zero = zero;
    if (!states_fit(s, p)) {
      s->out->too_big++;
      continue;
    }
    if (m * products / (double)p->pp > limit(s)) {
      s->out->bounded++;
      continue;
    }
    over_chunks(s, p, p->pp > 1 ? (s->w->layers + 2) / p->pp : 1);
  }
}

// With everything that a layer's cost depends on: products of the whole model for one micro-batch on one rank.
static double products_of(const search *s, const tr_plan *p) {
  tr_plan bare = *p;
  bare.recompute = TR_PLAN_RECOMPUTE_NONE;
  double share = (double)tr_workload_expert_layers(s->w) / (double)s->w->layers, sum = 0;
  for (int experts = 0; experts < 2; experts++) {
    double part = experts ? share : 1 - share;
    if (part <= 0) continue;
    tr__layer layer = tr__layer_time(&bare, s->w, s->c, experts);
    sum += part * (layer.forward + layer.backward);
  }
  return sum * (double)s->w->layers;
}

static void over_stages(search *s, tr_plan *p, double products) {
  int64_t rest = s->devices / (p->tp * p->cp);
  for (int64_t pp = 1; pp <= s->w->layers && pp <= rest; pp++) {
    if (rest % pp != 0 || !free_or(s->o->fixed.pp, pp) || !free_or(s->o->fixed.dp, rest / pp)) continue;
    p->pp = pp;
    p->dp = rest / pp;
    p->vpp = 1;
    tr_plan_follow_degrees(p);
    if (p->batch % (p->dp * p->micro) != 0 || p->dp * p->cp * p->tp % p->ep != 0) continue;
    over_states(s, p, products);
  }
}

static void over_experts(search *s, tr_plan *p) {
  int64_t most = s->w->experts > 0 ? s->w->experts : 1;
  for (int64_t ep = 1; ep <= most; ep++) {
    if (!free_or(s->o->fixed.ep, ep) || most % ep != 0) continue;
    p->ep = ep;
    for (int64_t micro = 1; micro <= MICRO_MOST && micro <= p->batch; micro++) {
      if (p->batch % micro != 0 || !free_or(s->o->fixed.micro, micro)) continue;
      p->micro = micro;
      over_stages(s, p, products_of(s, p));
    }
  }
}

static void over_cuts(search *s, tr_plan *p) {
  for (int64_t tp = 1; tp <= s->w->heads && tp <= s->devices; tp++) {
    if (s->devices % tp != 0 || s->w->heads % tp != 0 || !free_or(s->o->fixed.tp, tp)) continue;
    if (tp > 2 * s->c->domain && s->o->fixed.tp == 0) continue; // sums over that many hosts never pay
    for (int64_t cp = 1; cp <= p->sequence / TOKENS_LEAST + 1 && tp * cp <= s->devices; cp++) {
      if (s->devices % (tp * cp) != 0 || p->sequence % cp != 0 || !free_or(s->o->fixed.cp, cp)) continue;
      p->tp = tp;
      p->cp = cp;
      tr_plan_follow_degrees(p);
      over_experts(s, p);
    }
  }
}

// ---- the best once more, with their schedules

static int by_step(const void *a, const void *b) {
  const tr_search_entry *x = a, *y = b;
  return before(x, y) ? -1 : before(y, x);
}

// A plan whose schedule cannot be built, or that holds more than the closed form says and does not fit, falls out.
static tr_status simulate_best(search *s) {
  tr_search_result *r = s->out;
  size_t n = 0;
  for (size_t i = 0; i < r->n; i++) {
    tr_search_entry *e = &r->top[i];
    tr_status status = tr_predict_simulated(&e->plan, s->w, s->c, &e->prediction);
    if (status != TR_OK && status != TR_ERR_PLAN) return status;
    r->simulated += e->plan.pp > 1;
    if (status == TR_OK && e->prediction.fits) r->top[n++] = *e;
  }
  qsort(r->top, n, sizeof *r->top, by_step);
  r->n = n < s->o->top ? n : s->o->top;
  return TR_OK;
}

static tr_status nothing(const search *s) {
  if (isfinite(s->lacking))
    return tr_error(
        TR_ERR_PLAN,
        "no plan fits: the smallest lacks %.1f GB of a device's %.0f GB on %lld devices of %s; more devices, a "
        "smaller batch or a shorter sequence would help",
        s->lacking / 1e9, s->room / 1e9, (long long)s->devices, s->c->name);
  return tr_error(
      TR_ERR_PLAN,
      "no plan divides %lld devices and a batch of %lld sequences as asked; a batch that is a multiple of the "
      "devices always works",
      (long long)s->devices, (long long)s->o->fixed.batch);
}

tr_status tr_search(const tr_workload *model, const tr_cluster *cluster, const tr_search_options *options,
                    tr_search_result *out) {
  search s = {.w = model,
              .c = cluster,
              .o = options,
              .out = out,
              .devices = cluster->hosts * cluster->host_devices,
              .room = cluster->device.memory_gib * 1073741824.0,
              .lacking = INFINITY,
              .best = INFINITY};
  if (options->top < 1 || options->top > TR_SEARCH_TOP_MOST)
    return tr_error(TR_ERR_USAGE, "top is %zu; it must be 1 to %d", options->top, TR_SEARCH_TOP_MOST);
  TR_TRY(tr_workload_check(model));
  *out = (tr_search_result){0};
  tr_plan plan = options->fixed;
  s.keep = options->closed || options->visit ? options->top : TR_SEARCH_TOP_MOST;
  over_cuts(&s, &plan);
  out->lacking = s.lacking;
  out->near = plans_below(&s, s.best * (1 + cluster->device.fit.p90));
  if (s.keep != options->top) TR_TRY(simulate_best(&s));
  return out->n ? TR_OK : nothing(&s);
}
