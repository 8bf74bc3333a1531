// SPDX-License-Identifier: MIT
// Where a plan's groups lie: axes laid over ranks in the order of its map, ranks over domains of fast links, hosts, leaf
// switches and pods, and what the links above the leaves leave of a port's rate.
//
// A group is a list of (degree, stride): its members are all sums of multiples of the strides. Experts are folded over tp x cp x
// dp in the map's order, and shards over cp x dp, so both are the first members of such a group, their copies the rest.
// In a block of B consecutive ranks lie prod min(degree, B / stride) members.
//
// Above the leaves: all groups of a kind communicate at once, so a block's uplinks carry what its members send out of it. A ring
// leaves a block once for all its members there, an exchange with the share of members elsewhere, a message between stages where
// the block ends. Ports below per port above (oversubscription), times how much fuller than an even spread the fullest link is
// (congestion), over that share: above 1 it is what the ports lose.
#include "plan/plan_internal.h"
#include <math.h>

static double clamp(double value, double least, double most) {
  return value < least ? least : value > most ? most : value;
}

int64_t tr__degree(const tr_plan *p, tr_axis axis) {
  const int64_t degree[TR_AXIS_COUNT] = {
      [TR_AXIS_TP] = p->tp, [TR_AXIS_CP] = p->cp, [TR_AXIS_DP] = p->dp, [TR_AXIS_PP] = p->pp};
  return degree[axis];
}

double tr__stride(const tr_plan *p, tr_axis axis) {
  double stride = 1;
  for (int i = 0; p->map[i] != axis; i++) stride *= (double)tr__degree(p, p->map[i]);
  return stride;
}

// Takes min(*most, degree) of an axis and leaves the rest.
static double take(double *degree, double *most) {
  double taken = fmin(*degree, *most);
  *degree /= taken;
  *most /= taken;
  return taken;
}

static void append(tr__group *g, double degree, double stride) {
  tr__run *last = g->n ? &g->run[g->n - 1] : NULL;
  if (degree <= 1) return;
  if (last && last->stride * last->degree == stride)
    last->degree *= degree;
  else
    g->run[g->n++] = (tr__run){degree, stride};
}

tr__group tr__group_of(const tr_plan *p, unsigned axes, double skip, double most) {
  tr__group g = {0};
  double stride = 1;
  for (int i = 0; i < TR_AXIS_COUNT; i++) {
    double whole = (double)tr__degree(p, p->map[i]), left = whole, inner = stride;
    stride *= whole;
    if (!(axes >> p->map[i] & 1)) continue;
    inner *= take(&left, &skip);
    append(&g, take(&left, &most), inner);
  }
  return g;
}

static double members_in(const tr__group *g, double block) {
  double n = 1;
  for (int i = 0; i < g->n; i++) n *= clamp(floor(block / g->run[i].stride), 1, g->run[i].degree);
  return n;
}

// ---- above the leaves

typedef struct level {
  double block, over; // ranks below, ports below per port above
} level;

enum { LEVELS = 2 };
static void levels_of(const tr_cluster *c, level out[LEVELS]) {
  const tr_fabric *f = &c->fabric;
  double hosts[LEVELS] = {(double)f->leaf_hosts, (double)f->pod_hosts};
  double over[LEVELS] = {f->leaf_oversubscription, f->pod_oversubscription};
  for (int i = 0; i < LEVELS; i++) {
    out[i].block = hosts[i] > 0 ? hosts[i] * (double)c->host_devices : INFINITY;
    out[i].over = fmax(over[i], 1) * fmax(f->congestion, 1);
  }
}

tr__links tr__links_of(const tr_cluster *c, tr__group group) {
  level l[LEVELS];
  tr__links g = {.ranks = members_in(&group, INFINITY), .ring_slow = 1, .swap_slow = 1};
  g.near = members_in(&group, (double)c->domain);
  g.crosses = g.near < g.ranks;
  if (!g.crosses) return g;
  levels_of(c, l);
  for (int i = 0; i < LEVELS; i++) {
    double inside = members_in(&group, fmax(l[i].block, (double)c->domain));
    if (inside >= g.ranks) continue;
    g.above = i + 1;
    g.ring_slow = fmax(g.ring_slow, l[i].over * g.near / inside);
    g.swap_slow = fmax(g.swap_slow, l[i].over * (g.ranks - inside) / (g.ranks - g.near));
  }
  return g;
}

// Neighbouring stages; the slowest pair decides. On another rail than its own a message goes above the leaves at once.
tr__links tr__stage_links(const tr_plan *p, const tr_cluster *c) {
  level l[LEVELS];
  double stride = tr__stride(p, TR_AXIS_PP), span = stride * (double)p->pp;
  tr__links g = {.ranks = 2, .near = 2, .ring_slow = 1, .swap_slow = 1};
  if (p->pp <= 1 || span <= (double)c->domain) return g;
  g.near = 1;
  g.crosses = 1;
  levels_of(c, l);
  int other_rail = c->fabric.rails && fmod(stride, (double)c->host_devices) != 0;
  for (int i = 0; i < LEVELS; i++) {
    if (span <= l[i].block && !(i == 0 && other_rail && isfinite(l[i].block))) continue;
    g.above = i + 1;
    double share = i == 0 && other_rail ? 1 : fmin(stride / l[i].block, 1);
    g.ring_slow = fmax(g.ring_slow, l[i].over * share);
  }
  return g;
}
