// SPDX-License-Identifier: MIT
// The search: nested loops over degrees, outermost those that decide a layer's cost, with two bounds. Innermost, each plan is tried
// in every order of its axes, for which only communication is computed again.
//
// Memory: weights, gradients and optimizer states of a stage do not depend on micro-batch, chunks or recomputation; where
// they alone exceed the device, nothing below helps. Time: m micro-batches through 1/p of the layers take at least m/p times
// the model's products, whatever else the plan says; where that exceeds both the last kept plan and the range of error
// around the best, no plan below can enter the result.
#include "trireme/plan/search.h"
#include "plan/search_internal.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MICRO_MOST = 64, TOKENS_LEAST = 512 }; // fewer tokens per rank are no use
typedef tr__search search;

// The ways of recomputation that are tried, or the one that is fixed; and the computation of layers with each.
enum { WAYS = 4 };
typedef struct way {
  tr_plan_recompute recompute;
  tr__work work;
} way;

void tr_search_options_init(tr_search_options *options) {
  *options = (tr_search_options){.fixed_zero = -1, .fixed_recompute = -1, .top = 5};
  tr_plan_init(&options->fixed);
  tr_plan *p = &options->fixed;
  p->tp = p->pp = p->vpp = p->dp = p->cp = p->ep = p->micro = 0;
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
static void order_axes(const search *s, const tr__work *work, tr_search_entry *entry) {
  tr_axis order[TR__ORDERS][TR_AXIS_COUNT];
  double term[TR_TERM_COUNT], best = entry->prediction.step;
  if (s->o->fixed_map || without_links(&entry->prediction) > tr__search_limit(s)) return;
  int n = tr__orders(&entry->plan, order), at = 0;
  for (int i = 1; i < n; i++) {
    tr_plan other = entry->plan;
    memcpy(other.map, order[i], sizeof other.map);
    double step = tr__predict_step(&other, s->w, s->c, work, term);
    if (step < best * FASTER) best = step, at = i;
  }
  if (at == 0) return;
  memcpy(entry->plan.map, order[at], sizeof entry->plan.map);
  tr__predict_time(&entry->plan, s->w, s->c, work, &entry->prediction);
}

static void consider(search *s, const tr_plan *p, const tr__work *work) {
  tr_search_entry entry = {.plan = *p};
  s->out->considered++;
  tr_predict_memory(p, s->w, s->c, &entry.prediction.memory);
  double over = entry.prediction.memory.needed - s->room;
  if (over > 0) {
    s->out->too_big++;
    tr__search_note(s, p, 0, over);
    return;
  }
  tr__predict_time(p, s->w, s->c, work, &entry.prediction);
  entry.prediction.fits = 1;
  order_axes(s, work, &entry);
  s->out->predicted++;
  tr__search_note(s, p, entry.prediction.step, 0);
  tr__search_keep(s, &entry);
  if (s->o->visit) s->o->visit(s->o->user, &entry);
}

// ---- values of the knobs

static int free_or(int64_t fixed, int64_t value) { return fixed == 0 || fixed == value; }

// What the smallest of the plans below lacks, where none of them needs to be looked at.
static void note_smallest(search *s, const tr_plan *p) {
  tr_plan least = *p;
  tr_footprint m = {0};
  least.vpp = s->o->fixed.vpp > 0 ? s->o->fixed.vpp : 1;
  if (!tr_plan_is_even(&least, s->w)) return;
  least.recompute = s->o->fixed_recompute >= 0 ? (tr_plan_recompute)s->o->fixed_recompute : TR_PLAN_RECOMPUTE_FULL;
  tr_plan_follow_degrees(&least);
  tr_predict_memory(&least, s->w, s->c, &m);
  tr__search_note(s, &least, 0, m.needed - s->room);
}

static int states_fit(search *s, const tr_plan *p) {
  tr_plan least = *p;
  least.micro = 1;
  least.vpp = 1;
  tr_footprint m = {0};
  tr__states_of(&least, s->w, m.item);
  double bytes = m.item[TR_ITEM_WEIGHTS] + m.item[TR_ITEM_GRADS] + m.item[TR_ITEM_STATES];
  if (bytes + s->c->device.reserved_gb * 1e9 <= s->room) return 1;
  note_smallest(s, p);
  return 0;
}

static int schedule_is(const search *s, const tr_plan *p, const char *name) {
  const char *want = s->o->fixed.schedule;
  return p->pp == 1 || !want || strcmp(want, name) == 0;
}

// 1f1b or, with chunks, interleaved; and schedules that split the backward pass, which recomputation of layers would double.
static void over_schedules(search *s, tr_plan *p, const tr__work *work) {
  int64_t m = p->batch / (p->dp * p->micro);
  int whole = p->recompute == TR_PLAN_RECOMPUTE_NONE || p->recompute == TR_PLAN_RECOMPUTE_PARTS;
  p->schedule = NULL;
  if (schedule_is(s, p, p->vpp > 1 ? "interleaved" : "1f1b")) consider(s, p, work);
  if (p->pp == 1 || p->vpp > 1 || !whole) return;
  p->schedule = "zb_h1";
  if (schedule_is(s, p, p->schedule)) consider(s, p, work);
  p->schedule = "dualpipe"; // half of the micro-batches each way
  if (p->pp % 2 == 0 && m % 2 == 0 && m >= 2 * p->pp && schedule_is(s, p, p->schedule)) consider(s, p, work);
  p->schedule = NULL;
}

static void over_recompute(search *s, tr_plan *p, const way *ways, size_t n) {
  for (size_t i = 0; i < n; i++) {
    p->recompute = ways[i].recompute;
    over_schedules(s, p, &ways[i].work);
  }
}

static void over_chunks(search *s, tr_plan *p, const way *ways, size_t n, int64_t most) {
  for (int64_t vpp = 1; vpp <= most; vpp++) {
    if (!free_or(s->o->fixed.vpp, vpp)) continue;
    p->vpp = vpp;
    if (!tr_plan_is_even(p, s->w)) continue;
    tr_plan_follow_degrees(p);
    over_recompute(s, p, ways, n);
  }
}

static int64_t most_stages(const search *s) { return s->w->layers + s->w->predict_more + 2; }

static void over_states(search *s, tr_plan *p, const way *ways, size_t n, double products) {
  double m = (double)(p->batch / (p->dp * p->micro));
  for (int zero = 0; zero <= 3; zero++) {
    if (s->o->fixed_zero >= 0 && s->o->fixed_zero != zero) continue;
    if (zero > 0 && p->dp * p->cp == 1) continue;
    p->zero = zero;
    if (!states_fit(s, p)) {
      s->out->too_big++;
      continue;
    }
    if (m * products / (double)p->pp > tr__search_limit(s)) {
      s->out->bounded++;
      continue;
    }
    over_chunks(s, p, ways, n, p->pp > 1 ? most_stages(s) / p->pp : 1);
  }
}

// With everything that computation depends on: that of layers in each way, returned how many, and the model's products for one
// micro-batch on one rank.
static size_t ways_of(const search *s, const tr_plan *p, way out[WAYS], double *products) {
  static const tr_plan_recompute all[WAYS] = {TR_PLAN_RECOMPUTE_NONE, TR_PLAN_RECOMPUTE_PARTS, TR_PLAN_RECOMPUTE_HALF,
                                              TR_PLAN_RECOMPUTE_FULL};
  size_t n = s->o->fixed_recompute >= 0 ? 1 : WAYS;
  tr_plan with = *p;
  for (size_t i = 0; i < n; i++) {
    with.recompute = n == 1 ? (tr_plan_recompute)s->o->fixed_recompute : all[i];
    out[i] = (way){with.recompute, tr__work_of(&with, s->w, s->c)};
  }
  const tr__work *work = &out[0].work;
  double sparse = (double)tr_workload_expert_layers(s->w), dense = (double)s->w->layers - sparse;
  *products =
      sparse * (work->sparse.forward + work->sparse.backward) + dense * (work->dense.forward + work->dense.backward);
  return n;
}

static void over_stages(search *s, tr_plan *p, const way *ways, size_t n, double products) {
  int64_t rest = s->devices / (p->tp * p->cp);
  for (int64_t pp = 1; pp <= most_stages(s) && pp <= rest; pp++) {
    if (rest % pp != 0 || !free_or(s->o->fixed.pp, pp) || !free_or(s->o->fixed.dp, rest / pp)) continue;
    p->pp = pp;
    p->dp = rest / pp;
    p->vpp = 1;
    tr_plan_follow_degrees(p);
    if (p->batch % (p->dp * p->micro) != 0 || p->dp * p->cp * p->tp % p->ep != 0) continue;
    over_states(s, p, ways, n, products);
  }
}

static void over_experts(search *s, tr_plan *p) {
  way ways[WAYS];
  int64_t most = s->w->experts > 0 ? s->w->experts : 1;
  for (int64_t ep = 1; ep <= most && ep <= s->devices; ep++) {
    if (!free_or(s->o->fixed.ep, ep) || most % ep != 0) continue;
    p->ep = ep;
    for (int64_t micro = 1; micro <= MICRO_MOST && micro <= p->batch; micro++) {
      if (p->batch % micro != 0 || !free_or(s->o->fixed.micro, micro)) continue;
      p->micro = micro;
      double products;
      size_t n = ways_of(s, p, ways, &products);
      over_stages(s, p, ways, n, products);
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

static tr_status run(search *s) {
  tr_plan plan = s->o->fixed;
  int simulates = !s->o->closed && !s->o->visit;
  s->keep = s->o->grouped || !simulates ? s->o->top : TR_SEARCH_TOP_MOST;
  over_cuts(s, &plan);
  s->out->lacking = s->lacking;
  s->out->near = tr__search_below(s, s->best * (1 + tr_predict_spread(s->w, s->c)));
  TR_TRY(tr__search_finish(s));
  return s->out->n ? TR_OK : tr__search_nothing(s);
}

tr_status tr_search(const tr_workload *model, const tr_cluster *cluster, const tr_search_options *options,
                    tr_search_result *out) {
  if (options->top < 1 || options->top > TR_SEARCH_TOP_MOST)
    return tr_error(TR_ERR_USAGE, "top is %zu; it must be 1 to %d", options->top, TR_SEARCH_TOP_MOST);
  TR_TRY(tr_workload_check(model));
  search *s = calloc(1, sizeof *s);
  if (s && options->grouped) s->group = calloc(TR__SEARCH_GROUPS, sizeof *s->group);
  *out = (tr_search_result){0};
  tr_status status =
      s && (s->group || !options->grouped) ? TR_OK : tr_error(TR_ERR_MEMORY, "no memory to search for plans");
  if (status == TR_OK) {
    s->w = model, s->c = cluster, s->o = options, s->out = out;
    s->devices = cluster->hosts * cluster->host_devices;
    s->room = cluster->device.memory_gib * 1073741824.0;
    s->lacking = s->best = s->last_kept = INFINITY;
    status = run(s);
  }
  if (s) free(s->group);
  free(s);
  return status;
}
