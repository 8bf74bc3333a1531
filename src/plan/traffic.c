// SPDX-License-Identifier: MIT
// The rows of traffic.h: calls of layers, messages between stages and exchanges of replicas, as predict.c adds them up.
#include "trireme/plan/traffic.h"
#include "plan/plan_internal.h"
#include <math.h>
#include <stdio.h>

typedef struct rows {
  const tr_plan *p;
  const tr_cluster *c;
  double compute, step;
  tr_traffic *out;
  size_t n;
} rows;

static const char *tier_of(const tr__links *g) {
  static const char *const tier[] = {"network", "network above the leaves", "network above the pods"};
  return g->crosses ? tier[g->above] : "fast links";
}

// Where share of (count x latency + bytes / rate) is what it may be.
static double rate_needed(double bytes, double share, double latency, double most) {
  double left = most / share - latency;
  return share <= 0 ? 0 : left > 0 ? bytes / left : INFINITY;
}

static void append(rows *r, const char *axis, const char *what, const char *primitive, double count, double exposed,
                   tr__call one, double processors) {
  if (one.group.ranks <= 1 || one.payload <= 0 || r->n == TR_TRAFFIC_MOST) return;
  double seconds = count * one.seconds, bytes = count * one.bytes;
  r->out[r->n++] =
      (tr_traffic){.axis = axis,
                   .what = what,
                   .primitive = primitive,
                   .tier = tier_of(&one.group),
                   .ranks = one.group.ranks,
                   .near = one.group.near,
                   .payload = one.payload,
                   .count = count,
                   .bytes = bytes,
                   .seconds = seconds,
                   .exposed = exposed,
                   .needs = rate_needed(bytes, exposed / seconds, count * one.latency, TR_TRAFFIC_SHARE * r->compute),
                   .has = bytes / (seconds - count * one.latency),
                   .processors = processors * seconds / r->step};
}

size_t tr_predict_traffic(const tr_plan *p, const tr_workload *w, const tr_cluster *c,
                          tr_traffic out[TR_TRAFFIC_MOST]) {
  double term[TR_TERM_COUNT], step = tr_predict_step(p, w, c, term), share = c->device.link_share;
  tr__work work = tr__work_of(p, w, c);
  tr__pipe x = tr__pipe_of(p, w, c, &work);
  tr__exchange exchange[TR__EXCHANGES];
  double passes = x.micro_batches * x.layers;
  double sparse = (double)tr_workload_expert_layers(w) / (double)w->layers;
  rows r = {.p = p, .c = c, .compute = term[TR_TERM_COMPUTE] + term[TR_TERM_RECOMPUTE], .step = step, .out = out};
  append(&r, "tp", "activations", p->sequence_parallel ? "all-gather, reduce-scatter" : "all-reduce",
         passes * (sparse * tr__tensor_sums(p, w, 1) + (1 - sparse) * tr__tensor_sums(p, w, 0)), term[TR_TERM_TP],
         tr__tensor_call(p, w, c), p->hides_tp ? 0 : share);
  append(&r, "cp", "keys, values", "ring", passes * tr__context_rounds(p), term[TR_TERM_CP],
         tr__context_call(p, w, c), share);
  if (p->ep > 1)
    append(&r, "ep", "tokens", "all-to-all", passes * sparse * tr__expert_rounds(p), term[TR_TERM_EP],
           tr__expert_call(p, w, c), share);
  if (p->pp > 1)
    append(&r, "pp", "activations", "send, receive", (x.micro_batches + (double)(p->pp - 1)) * tr__stage_messages(p),
           term[TR_TERM_PP], tr__stage_call(p, w, c), 0);
  for (int i = 0, n = tr__exchanges_of(p, w, c, &x, exchange); i < n; i++)
    append(&r, "dp", exchange[i].what, exchange[i].primitive, exchange[i].count, exchange[i].exposed,
           exchange[i].call, share);
  return r.n;
}

void tr_traffic_verdict(const tr_traffic *t, char *out, size_t nbyte) {
  if (t->has >= t->needs)
    snprintf(out, nbyte, "enough: it needs %.3g GB/s", t->needs / 1e9);
  else if (isinf(t->needs))
    snprintf(out, nbyte, "%s %.0f takes over a tenth of the computation by latency alone", t->axis, t->ranks);
  else
    snprintf(out, nbyte, "%s %.0f needs %.3g GB/s on the %s, which has %.3g", t->axis, t->ranks, t->needs / 1e9,
             t->tier, t->has / 1e9);
}

// ---- what fails together

// Replicas with ranks in a block of consecutive ranks: those that dp's stride does not keep out of it.
static double replicas_in(const tr_plan *p, double block) {
  return fmin(fmax(ceil(block / tr__stride(p, TR_AXIS_DP)), 1), (double)p->dp);
}

size_t tr_failure_domains(const tr_plan *p, const tr_cluster *c, tr_failure_domain out[TR_FAILURE_DOMAINS]) {
  const tr_fabric *f = &c->fabric;
  double devices = (double)tr_plan_devices(p), host = (double)c->host_devices;
  double leaf = (double)f->leaf_hosts * host, pod = (double)f->pod_hosts * host;
  const struct {
    const char *name;
    double block, parts, mtbf; // ranks below one, how many of it for such a block, hours
  } kind[TR_FAILURE_DOMAINS] = {{"device", 1, 1, c->mtbf_hours},
                                {"host", host, 1, f->host_mtbf},
                                {"fast links", (double)c->domain > host ? (double)c->domain : 0, 1, 0},
                                {"leaf switch", leaf, f->rails ? host : 1, f->switch_mtbf},
                                {"pod", pod, 1, 0}};
  size_t n = 0;
  for (int i = 0; i < TR_FAILURE_DOMAINS; i++) {
    double block = fmin(kind[i].block, devices);
    if (block <= 0) continue;
    double count = ceil(devices / fmax(kind[i].block, 1)) * kind[i].parts;
    out[n++] = (tr_failure_domain){.name = kind[i].name,
                                   .devices = block,
                                   .replicas = replicas_in(p, block),
                                   .count = count,
                                   .per_day = kind[i].mtbf > 0 ? 24 * count / kind[i].mtbf : 0};
  }
  return n;
}

double tr_domain_used(const tr_plan *p, const tr_cluster *c) {
  double domain = fmin((double)c->domain, (double)tr_plan_devices(p)), together = 1;
  for (int i = 0; i < TR_AXIS_COUNT; i++) {
    double next = together * (double)tr__degree(p, p->map[i]);
    if (next > domain) break;
    together = next;
  }
  return floor(domain / together) * together;
}
