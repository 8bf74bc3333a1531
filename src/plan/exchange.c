// SPDX-License-Identifier: MIT
// What replicas exchange: gradients, weights sharded over them, weights that others updated, as calls with what each adds
// to the step.
//
// At stage 0 and 1 once a step: gradients behind the last backward pass, updated weights, where the program can, behind the first
// forward pass. From stage 2 on per layer and micro-batch, beside its passes. What hides and what it hides behind add as a
// fourth-power mean, since both slow each other where they are alike, and what runs beside computation takes the share of
// the processor that its kernels occupy.
#include "plan/plan_internal.h"
#include <math.h>

typedef struct exchanges {
  const tr_plan *p;
  const tr_workload *w;
  const tr_cluster *c;
  tr__links replicas, shards, copies,
      experts; // those that share a dense parameter, hold parts of its state, hold one part; an expert
  tr__exchange *out;
  int n;
} exchanges;

static double shard_count(const tr_plan *p) {
  int64_t all = p->dp * p->cp;
  return (double)(p->zero_ranks > 0 && p->zero_ranks < all ? p->zero_ranks : all);
}

static void find_groups(exchanges *x) {
  double n = shard_count(x->p);
  x->replicas = tr__links_of(x->c, tr__group_of(x->p, TR__OVER_REPLICAS, 1, INFINITY));
  x->shards = tr__links_of(x->c, tr__group_of(x->p, TR__OVER_REPLICAS, 1, n));
  x->copies = tr__links_of(x->c, tr__group_of(x->p, TR__OVER_REPLICAS, n, INFINITY));
  x->experts = tr__links_of(x->c, tr__group_of(x->p, TR__OVER_EXPERTS, (double)x->p->ep, INFINITY));
  if (x->p->zero == 3 && x->p->gathers_singly && x->shards.crosses) x->shards.near = 1;
}

static double exposed(const exchanges *x, double work, double traffic) {
  if (!x->p->hides_grads || traffic <= 0) return traffic;
  double hidden = x->c->device.fit.hide_grad * traffic;
  double both = pow(pow(work, 4) + pow(hidden, 4), 0.25);
  return traffic - hidden + (both - work) + x->c->device.link_share * hidden;
}

static void append(exchanges *x, const char *what, const char *primitive, double count, tr__call one) {
  if (one.group.ranks <= 1 || one.payload <= 0) return;
  x->out[x->n++] = (tr__exchange){.what = what, .primitive = primitive, .call = one, .count = count};
}

// What the calls from `first` on add behind `work` (once: or not at all behind anything), by their shares of the time.
static void expose(exchanges *x, int first, double work, int hides) {
  double traffic = 0;
  for (int i = first; i < x->n; i++) traffic += x->out[i].call.seconds;
  double adds = hides ? exposed(x, work, traffic) : traffic;
  for (int i = first; i < x->n; i++)
    x->out[i].exposed = x->out[i].count * adds * (traffic > 0 ? x->out[i].call.seconds / traffic : 0);
}

static void once_a_step(exchanges *x, tr__local params, double slow) {
  double grad = x->p->wire_bytes;
  int whole = x->p->zero == 0 || x->shards.ranks < x->replicas.ranks;
  append(x, "gradients", whole ? "all-reduce" : "reduce-scatter", 1,
         whole ? tr__sum(x->c, x->replicas, grad * params.dense)
               : tr__gather(x->c, x->replicas, grad * params.dense));
  append(x, "expert gradients", "reduce-scatter", 1, tr__gather(x->c, x->experts, grad * params.experts));
  expose(x, 0, 0.6 * slow, 1);
  int first = x->n;
  if (x->p->zero == 0) return;
  tr__call one = tr__gather(x->c, x->shards, 2 * params.dense); // bucket by bucket
  one.seconds += (fmax(2 * params.dense / 100e6, 1) - 1) * one.latency;
  append(x, "updated weights", "all-gather", 1, one);
  append(x, "updated experts", "all-gather", 1, tr__gather(x->c, x->experts, 2 * params.experts));
  expose(x, first, 0.35 * slow, x->p->hides_weights);
}

// Weights gathered for each pass, again for the backward pass at stage 3; gradients reduced after it, and over the copies of
// each shard.
static void per_layer(exchanges *x, const tr__passes *t, double passes, double layers) {
  tr__local all = tr__local_params(x->p, x->w, 0, x->w->layers);
  double n = passes * layers, dense = 2 * all.dense / (double)x->w->layers;
  double experts = 2 * all.experts / (double)x->w->layers;
  tr__call part = tr__gather(x->c, x->shards, dense), own = tr__gather(x->c, x->experts, experts);
  append(x, "weights, forward", "all-gather", n, part);
  append(x, "experts, forward", "all-gather", n, own);
  expose(x, 0, t->forward + t->tp / 2, 1);
  if (x->n > 0 && x->p->hides_grads)
    x->out[0].exposed += passes * 0.5 * part.seconds; // the first hides behind nothing
  int first = x->n;
  append(x, "gradients", "reduce-scatter", n, part);
  append(x, "expert gradients", "reduce-scatter", n, own);
  append(x, "gradients of copies", "all-reduce", n, tr__sum(x->c, x->copies, dense / x->shards.ranks));
  if (x->p->zero == 3) append(x, "weights, backward", "all-gather", n, part);
  if (x->p->zero == 3) append(x, "experts, backward", "all-gather", n, own);
  expose(x, first, t->backward + t->again + t->tp / 2, 1);
}

int tr__exchanges_of(const tr_plan *p, const tr_workload *w, const tr_cluster *c, const tr__pipe *pipe,
                     tr__exchange out[TR__EXCHANGES]) {
  exchanges x = {.p = p, .w = w, .c = c, .out = out};
  find_groups(&x);
  if (p->zero >= 2)
    per_layer(&x, &pipe->layer, pipe->micro_batches, pipe->layers);
  else
    once_a_step(&x, tr__fullest_params(p, w), pipe->slowest);
  return x.n;
}

// One pass over gradients, master weights and moments, at the rate of long copies (measured: A100 0.77, H100 0.75).
static const double COPY = 0.76;
double tr__update_time(const tr_plan *p, const tr_workload *w, const tr_cluster *c) {
  tr__local params = tr__fullest_params(p, w);
  double parts = p->zero >= 1 ? shard_count(p) : 1;
  double expert_parts = p->zero >= 1 ? fmax((double)(p->dp * p->cp * p->tp) / (double)p->ep, 1) : 1;
  double n = params.dense / parts + params.experts / expert_parts;
  return 30 * n / (c->device.memory_gbs * 1e9 * COPY);
}
