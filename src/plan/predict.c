// SPDX-License-Identifier: MIT
// The time of a step from the cost of layers: pipeline, gradients, optimizer, and what is left.
//
// A rank passes m micro-batches through its stage: m x the slowest stage, and once the way of the first micro-batch
// through the other stages, shared by the chunks of a rank (the bubble, (p-1)/v average stages). Gathers and reductions of
// sharded weights run beside each layer, those of gradients and updated weights beside one pass; what they hide behind and
// what they take add as a fourth-power mean, since both slow each other where they are alike.
#include "plan/plan_internal.h"
#include <math.h>

const char *tr_time_term_name(tr_time_term term) {
  static const char *const name[TR_TERM_COUNT] = {"compute", "recompute", "tp",    "cp",        "ep",
                                                  "bubble",  "pp",        "grads", "optimizer", "fixed"};
  return name[term];
}

// Layers on stages. Where they divide only if the embedding and the head count as a layer each, they do.
tr__stages tr__stages_of(const tr_plan *p, const tr_workload *w) {
  int64_t chunks = p->pp * p->vpp, layers = w->layers + w->predict_more;
  double even = (double)layers / (double)p->pp;
  if (p->pp == 1) return (tr__stages){even, even, even};
  if (layers % chunks == 0) return (tr__stages){even, even, even};
  if ((layers + 2) % chunks == 0) {
    double most = (double)((layers + 2) / p->pp);
    return (tr__stages){most, most - 1, most - 1};
  }
  double most = ceil(even);
  return (tr__stages){most, most, fmax((double)layers - most * (double)(p->pp - 1), 1)};
}

double tr__stage_layers(const tr_plan *p, const tr_workload *w, int64_t stage) {
  tr__stages s = tr__stages_of(p, w);
  return stage == 0 ? s.first : stage == p->pp - 1 ? s.last : s.most;
}

// Layers with experts among [from, to).
static double expert_layers(const tr_workload *w, int64_t from, int64_t to) {
  int64_t every = w->every > 1 ? w->every : 1;
  if (w->experts == 0) return 0;
  from = from > w->dense_first ? from : w->dense_first;
  return to > from ? (double)((to - w->dense_first) / every - (from - w->dense_first) / every) : 0;
}

tr__local tr__local_params(const tr_plan *p, const tr_workload *w, int64_t from, int64_t to) {
  double sparse = expert_layers(w, from, to), dense = (double)(to - from) - sparse, tp = (double)p->tp;
  double expert = tr_workload_expert_params(w), norms = 2 * (double)w->width;
  tr__local n = {.dense = (double)(to - from) * (tr_workload_attention_params(w) / tp + norms)};
  n.dense += dense * tr_workload_mlp_params(w) / tp;
  n.dense += sparse * ((double)w->shared * expert / tp + (double)(w->experts * w->width));
  n.experts = sparse * (double)w->experts * expert / (double)p->ep;
  return n;
}

tr__local tr__stage_params(const tr_plan *p, const tr_workload *w, int64_t stage) {
  tr__stages s = tr__stages_of(p, w);
  double words = (double)(w->vocab * w->width) / (double)p->tp;
  int64_t before = stage == 0 ? 0 : (int64_t)s.first + (stage - 1) * (int64_t)s.most;
  tr__local n = tr__local_params(p, w, before, before + (int64_t)tr__stage_layers(p, w, stage));
  if (stage == 0) n.dense += words + (double)(w->positions * w->width);
  if (stage == p->pp - 1 && !(stage == 0 && w->tied)) n.dense += words;
  return n;
}

// ---- one pass of one micro-batch

typedef struct totals {
  double forward, backward, again, tp, tp_again, cp, ep; // of one layer, mean over the model
} totals;

static totals mean_layer(const tr_plan *p, const tr_workload *w, const tr_cluster *c) {
  double share = (double)tr_workload_expert_layers(w) / (double)w->layers;
  tr__layer dense = {0}, sparse = {0};
  if (share < 1) dense = tr__layer_time(p, w, c, 0);
  if (share > 0) sparse = tr__layer_time(p, w, c, 1);
#define MEAN(field) ((1 - share) * dense.field + share * sparse.field)
  return (totals){MEAN(forward), MEAN(backward), MEAN(again), MEAN(tp), MEAN(tp_again), MEAN(cp), MEAN(ep)};
#undef MEAN
}

static double beside(double work, double traffic) {
  double both = pow(pow(work, 4) + pow(traffic, 4), 0.25);
  return both - work;
}

// What `traffic` adds to `work` in a program that hides a share of it, or none.
static double exposed(const tr_plan *p, const tr_cluster *c, double work, double traffic) {
  if (!p->hides_grads) return traffic;
  double hidden = c->device.fit.hide_grad * traffic;
  return traffic - hidden + beside(work, hidden);
}

// The ranks that share a dense parameter, and those that hold a part of its state.
static tr__links replicas(const tr_plan *p, const tr_cluster *c) { return tr__links_of(c, p->dp * p->cp, p->tp); }
static tr__links shards(const tr_plan *p, const tr_cluster *c) {
  int64_t all = p->dp * p->cp, n = p->zero_ranks > 0 && p->zero_ranks < all ? p->zero_ranks : all;
  tr__links group = tr__links_of(c, n, p->tp);
  if (p->zero == 3 && p->gathers_singly && group.crosses) group.near = 1;
  return group;
}

// Sharded weights: gathered for each pass (again for the backward pass at stage 3), gradients reduced after it.
static double sharded_traffic(const tr_plan *p, const tr_workload *w, const tr_cluster *c, const totals *t,
                              double layers) {
  if (p->zero < 2) return 0;
  tr__links group = shards(p, c), all = replicas(p, c);
  tr__local one = tr__local_params(p, w, 0, w->layers);
  double bytes = 2 * (one.dense + one.experts) / (double)w->layers, gather = tr__gather_time(c, group, bytes);
  double reduce = gather;
  if (group.ranks < all.ranks) // the groups' sums, over the copies of each shard
    reduce += tr__sum_time(c, tr__links_of(c, (int64_t)(all.ranks / group.ranks), (int64_t)group.ranks * p->tp),
                           bytes / group.ranks);
  double ahead = exposed(p, c, t->forward + t->tp / 2, gather);
  double back = exposed(p, c, t->backward + t->again + t->tp / 2, reduce + (p->zero == 3 ? gather : 0));
  double ends = 0.5 * gather * (p->hides_grads ? 1 : 0); // the first has nothing to hide behind
  return layers * (ahead + back) + ends;
}

// Once a step: gradients summed (stage 0) or reduced to shards, with the copies of each shard where those are few.
static double gradient_time(const tr_plan *p, const tr_cluster *c, tr__local params) {
  tr__links group = shards(p, c), all = replicas(p, c);
  double grad = p->wire_bytes, time = 0;
  if (p->zero >= 2 || all.ranks <= 1) return 0;
  if (p->zero == 0 || group.ranks < all.ranks)
    time = tr__sum_time(c, all, grad * params.dense);
  else
    time = tr__gather_time(c, all, grad * params.dense);
  int64_t peers = p->dp * p->cp * p->tp / p->ep;
  if (params.experts > 0 && peers > 1)
    time += tr__gather_time(c, tr__links_of(c, peers, p->ep), grad * params.experts);
  return time;
}

// Updated weights, from those that updated them (stage 1), bucket by bucket.
static double weights_time(const tr_plan *p, const tr_cluster *c, tr__local params) {
  tr__links group = shards(p, c);
  if (p->zero != 1 || group.ranks <= 1) return 0;
  double buckets = fmax(2 * params.dense / 100e6, 1);
  double time = tr__gather_time(c, group, 2 * params.dense) + (buckets - 1) * tr__gather_latency(c, group);
  int64_t peers = p->dp * p->cp * p->tp / p->ep;
  if (params.experts > 0 && peers > 1) time += tr__gather_time(c, tr__links_of(c, peers, p->ep), 2 * params.experts);
  return time;
}

// One pass over gradients, master weights and moments, at the rate of long copies (measured: A100 0.77, H100 0.75).
static const double COPY = 0.76;
static double update_time(const tr_plan *p, const tr_cluster *c, tr__local params) {
  double parts = p->zero >= 1 ? shards(p, c).ranks : 1;
  double expert_parts = p->zero >= 1 ? fmax((double)(p->dp * p->cp * p->tp / p->ep), 1) : 1;
  double n = params.dense / parts + params.experts / expert_parts;
  return 30 * n / (c->device.memory_gbs * 1e9 * COPY);
}

// Messages between stages, per micro-batch: two exchanges in turn, or, where chunks interleave, one both ways per chunk;
// programs that overlap hide a part of them.
static const double HIDDEN = 0.4;
static double message_time(const tr_plan *p, const tr_workload *w, const tr_cluster *c) {
  if (p->pp <= 1) return 0;
  double bytes = (double)(p->micro * p->sequence) * (double)w->width * 2 / (double)p->cp;
  if (!p->waits) bytes /= (double)p->tp; // each sends its part
  int crosses = p->tp * p->cp * p->dp >= c->domain;
  double one = tr__send_time(c, crosses, bytes);
  double exchanges = p->vpp > 1 ? (double)p->vpp : 2;
  return exchanges * one * (p->hides_grads ? 1 - HIDDEN : 1);
}

// Per step, and waiting for the slowest of all hosts.
static double fixed_time(const tr_plan *p, const tr_cluster *c, double rest) {
  double hosts = fmax((double)tr_plan_devices(p) / (double)c->host_devices, 1);
  return 1e-3 * c->device.fit.step_ms + c->device.fit.straggle * log2(hosts) * rest;
}

double tr_predict_step(const tr_plan *p, const tr_workload *w, const tr_cluster *c, double term[TR_TERM_COUNT]) {
  totals t = mean_layer(p, w, c);
  tr__stages stage = tr__stages_of(p, w);
  double head = tr__head_time(p, w, c), m = (double)(p->batch / (p->dp * p->micro));
  double layer = t.forward + t.backward + t.again + t.tp + t.tp_again + t.cp + t.ep;
  double middle = stage.most * layer, last = stage.last * layer + head;
  double slow = fmax(middle, last), layers = p->pp == 1 || last >= middle ? stage.last : stage.most;
  double mean = ((double)(w->layers + w->predict_more) * layer + head) / (double)p->pp;
  for (int i = 0; i < TR_TERM_COUNT; i++) term[i] = 0;
  term[TR_TERM_COMPUTE] = m * (layers * (t.forward + t.backward) + (last >= middle || p->pp == 1 ? head : 0));
  term[TR_TERM_RECOMPUTE] = m * layers * t.again;
  term[TR_TERM_TP] = m * layers * (t.tp + t.tp_again);
  term[TR_TERM_CP] = m * layers * t.cp;
  term[TR_TERM_EP] = m * layers * t.ep;
  term[TR_TERM_BUBBLE] = (double)(p->pp - 1) / (double)p->vpp * mean;
  term[TR_TERM_PP] = (m + (double)(p->pp - 1)) * message_time(p, w, c);
  tr__local params = tr__stage_params(p, w, 0);
  double grads = gradient_time(p, c, params), weights = weights_time(p, c, params);
  // Gradients hide behind the last backward pass, weights, where they do at all, behind the first forward pass.
  double once = exposed(p, c, 0.6 * slow, grads) + (p->hides_weights ? exposed(p, c, 0.35 * slow, weights) : weights);
  term[TR_TERM_GRADS] = m * sharded_traffic(p, w, c, &t, layers) + once;
  term[TR_TERM_OPTIMIZER] = update_time(p, c, params);
  double step = 0;
  for (int i = 0; i < TR_TERM_COUNT; i++) step += term[i];
  term[TR_TERM_FIXED] = fixed_time(p, c, step);
  return step + term[TR_TERM_FIXED];
}

void tr__finish_step(const tr_plan *p, const tr_workload *w, const tr_cluster *c, double rest, tr_prediction *out) {
  out->term[TR_TERM_FIXED] = fixed_time(p, c, rest);
  out->step = rest + out->term[TR_TERM_FIXED];
  out->low = out->step / (1 + c->device.fit.p90);
  out->high = out->step * (1 + c->device.fit.p90);
  double devices = (double)tr_plan_devices(p), tokens = (double)(p->batch * p->sequence);
  out->tokens_per_device = tokens / out->step / devices;
  out->mfu = tr_workload_flops(w, p->sequence, 0) * out->tokens_per_device / (c->device.peak_bf16 * 1e12);
}

void tr_predict(const tr_plan *p, const tr_workload *w, const tr_cluster *c, tr_prediction *out) {
  double step = tr_predict_step(p, w, c, out->term);
  tr__finish_step(p, w, c, step - out->term[TR_TERM_FIXED], out);
  tr_predict_memory(p, w, c, &out->memory);
  out->fits = out->memory.process <= c->device.memory_gib * 1073741824.0;
}
