// SPDX-License-Identifier: MIT
// What collectives cost, by tier: a latency and a rate each, for groups inside the fast links and across hosts.
//
// Ring and tree forms of NCCL behave alike in what matters here. A group with `near` ranks per domain leaves it through
// `near` network ports at once, so its rate between hosts is near x one port, at most the links' rate; a group of n ranks
// moves (n-1)/n of the bytes. Latency grows with the doublings of domains (measured: about 100 us each), that of gathers
// also with the ranks of the ring.
#include "plan/plan_internal.h"
#include <math.h>

static double clamp(double value, double least, double most) {
  return value < least ? least : value > most ? most : value;
}

tr__links tr__links_of(const tr_cluster *cluster, int64_t degree, int64_t stride) {
  double room = floor((double)cluster->domain / (double)stride);
  tr__links g = {.ranks = (double)degree, .near = clamp(room, 1, (double)degree)};
  g.crosses = g.near < g.ranks;
  return g;
}

static double link_rate(const tr_cluster *c) { return c->device.link_gbs * 1e9 * c->device.fit.link; }
static double port_rate(const tr_cluster *c) { return c->network_gbit * 1e9 / 8 * c->device.fit.network; }

double tr__gather_rate(const tr_cluster *c, tr__links g) {
  return g.crosses ? fmin(link_rate(c), g.near * port_rate(c)) : link_rate(c);
}

static double doublings(tr__links g) { return g.crosses ? log2(g.ranks / g.near) : 0; }

double tr__gather_latency(const tr_cluster *c, tr__links g) {
  const tr_efficiency *fit = &c->device.fit;
  return 1e-6 * (fit->link_us + fit->network_us * doublings(g) + (g.crosses ? fit->hop_us * g.ranks : 0));
}

double tr__gather_time(const tr_cluster *c, tr__links g, double bytes) {
  if (g.ranks <= 1) return 0;
  return tr__gather_latency(c, g) + bytes * (g.ranks - 1) / g.ranks / tr__gather_rate(c, g);
}

double tr__sum_time(const tr_cluster *c, tr__links g, double bytes) {
  if (g.ranks <= 1) return 0;
  const tr_efficiency *fit = &c->device.fit;
  double gain = !g.crosses && g.ranks > 4 ? c->device.link_fused : 1;
  double latency = 1e-6 * (fit->link_us + fit->network_us * doublings(g));
  return latency + 2 * bytes * (g.ranks - 1) / g.ranks / (tr__gather_rate(c, g) * gain);
}

// How many of `places` that hold all experts in equal parts a token reaches on average: its copies fall on them at random, on
// those of its groups where the router keeps to some.
static double reached(const tr_workload *w, double places) {
  double open = places;
  if (w->groups > 0) open = fmin(places, (double)w->group_limit * fmax(places / (double)w->groups, 1));
  return open * (1 - pow(1 - 1 / open, (double)w->active));
}

// `bytes` would leave each rank if every copy of a token were sent; it goes once to each rank that has copies of it, and
// across domains once to each domain, where the fast links spread it. The fullest rank's share decides.
double tr__swap_time(const tr_cluster *c, tr__links g, double bytes, const tr_workload *w) {
  if (g.ranks <= 1) return 0;
  const tr_efficiency *fit = &c->device.fit;
  double latency = 1e-6 * (fit->link_us + fit->network_us * doublings(g));
  double token = bytes / (double)w->active * fmax(w->imbalance, 1), domains = g.ranks / g.near;
  double inside = token * reached(w, g.ranks) * (g.ranks - 1) / g.ranks / link_rate(c);
  if (!g.crosses) return latency + inside;
  double away = token * reached(w, domains) * (domains - 1) / domains / port_rate(c);
  return latency + fmax(inside, away);
}

double tr__send_time(const tr_cluster *c, int crosses, double bytes) {
  return 1e-6 * c->device.fit.link_us + bytes / (crosses ? port_rate(c) : link_rate(c));
}
