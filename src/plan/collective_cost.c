// SPDX-License-Identifier: MIT
// What collectives cost, by tier: a latency and a rate each, for groups inside the fast links and across hosts.
//
// Ring and tree forms of NCCL behave alike in what matters here. A group with `near` ranks per domain leaves it through
// `near` network ports at once, so its rate between hosts is near x one port, at most the links' rate; a group of n ranks
// moves (n-1)/n of the bytes. Latency grows with the doublings of domains (measured: about 100 us each), that of gathers
// also with the ranks of the ring. What the switches above the leaves lack slows the ports (place.c).
#include "plan/plan_internal.h"
#include <math.h>

static double link_rate(const tr_cluster *c) { return c->device.link_gbs * 1e9 * c->device.fit.link; }
static double port_rate(const tr_cluster *c) { return c->network_gbit * 1e9 / 8 * c->device.fit.network; }

static double ring_rate(const tr_cluster *c, tr__links g) {
  return g.crosses ? fmin(link_rate(c), g.near * port_rate(c) / g.ring_slow) : link_rate(c);
}

static double doublings(tr__links g) { return g.crosses ? log2(g.ranks / g.near) : 0; }

static tr__call call(tr__links g, double payload, double bytes, double latency_us, double rate) {
  if (g.ranks <= 1) return (tr__call){.group = g};
  return (tr__call){.group = g,
                    .payload = payload,
                    .bytes = bytes,
                    .latency = 1e-6 * latency_us,
                    .seconds = 1e-6 * latency_us + bytes / rate};
}

tr__call tr__gather(const tr_cluster *c, tr__links g, double bytes) {
  const tr_efficiency *fit = &c->device.fit;
  double latency = fit->link_us + fit->network_us * doublings(g) + (g.crosses ? fit->hop_us * g.ranks : 0);
  return call(g, bytes, bytes * (g.ranks - 1) / g.ranks, latency, ring_rate(c, g));
}

tr__call tr__sum(const tr_cluster *c, tr__links g, double bytes) {
  const tr_efficiency *fit = &c->device.fit;
  double gain = !g.crosses && g.ranks > 4 ? c->device.link_fused : 1;
  double latency = fit->link_us + fit->network_us * doublings(g);
  return call(g, bytes, 2 * bytes * (g.ranks - 1) / g.ranks, latency, ring_rate(c, g) * gain);
}

// How many of `places` that hold all experts in equal parts a token reaches on average: its copies fall on them at random, on
// those of its groups where the router keeps to some.
static double reached(const tr_workload *w, double places) {
  double open = places;
  if (w->groups > 0) open = fmin(places, (double)w->group_limit * fmax(places / (double)w->groups, 1));
  return open * (1 - pow(1 - 1 / open, (double)w->active));
}

// `bytes` would leave each rank if every copy of a token were sent; it goes once to each rank that has copies of it, and
// across domains once to each domain, where the fast links spread it. The fullest rank's share decides, and the slower tier.
tr__call tr__swap(const tr_cluster *c, tr__links g, double bytes, const tr_workload *w) {
  const tr_efficiency *fit = &c->device.fit;
  double latency = fit->link_us + fit->network_us * doublings(g), domains = g.ranks / g.near;
  double token = bytes / (double)w->active * fmax(w->imbalance, 1);
  double inside = token * reached(w, g.ranks) * (g.ranks - 1) / g.ranks;
  double away = g.crosses ? token * reached(w, domains) * (domains - 1) / domains : 0;
  double away_rate = port_rate(c) / g.swap_slow;
  if (inside / link_rate(c) >= away / away_rate) return call(g, bytes, inside, latency, link_rate(c));
  return call(g, bytes, away, latency, away_rate);
}

tr__call tr__send(const tr_cluster *c, tr__links pair, double bytes) {
  return call(pair, bytes, bytes, c->device.fit.link_us, pair.crosses ? port_rate(c) / pair.ring_slow : link_rate(c));
}
