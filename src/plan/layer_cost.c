// SPDX-License-Identifier: MIT
// What one layer costs one rank: its matrix products, attention, elementwise passes, and its collectives.
//
// Products: 2mnk FLOPs at the device's large-product rate times mn/(mn+tile) (few tiles leave processors idle) times
// k/(k+depth) (short sums do not fill the pipes), each with its two backward products. Elementwise: bytes over the memory's
// rate. A layer never takes less than the host needs to launch it; near that floor both add up (a fourth-power mean).
// Letters: T tokens of a micro-batch on this rank, h width, f MLP, a heads, k heads of keys and values, d head size.
#include "plan/plan_internal.h"
#include <math.h>

typedef struct scope {
  const tr_plan *p;
  const tr_workload *w;
  const tr_cluster *c;
  const tr_efficiency *fit;
  double tokens, tp, h;
  double bytes_rate;
} scope;

static scope scope_of(const tr_plan *p, const tr_workload *w, const tr_cluster *c) {
  return (scope){.p = p,
                 .w = w,
                 .c = c,
                 .fit = &c->device.fit,
                 .tokens = (double)(p->micro * p->sequence) / (double)p->cp,
                 .tp = (double)p->tp,
                 .h = (double)w->width,
                 .bytes_rate = c->device.memory_gbs * 1e9 * c->device.fit.memory};
}

// ---- products

static double product(const scope *s, double m, double n, double k) {
  double fp8 = s->p->number == TR_PLAN_FP8 && s->c->device.peak_fp8 > 0;
  double rate = 1e12 * (fp8 ? s->c->device.peak_fp8 * s->fit->matmul_fp8 : s->c->device.peak_bf16 * s->fit->matmul);
  double tiles = m * n, tile = s->fit->tile_mi * 1048576;
  double time = 2 * m * n * k / rate * (tiles + tile) / tiles * (k + s->fit->depth) / k;
  return fp8 ? time + 3 * (m * k + n * k / 4) / s->bytes_rate : time; // operands are turned into fp8 first
}

typedef struct pass {
  double forward, backward, weights; // weights: the part of backward for them
} pass;

static pass linear(const scope *s, double tokens, double in, double out) {
  double weights = product(s, in, out, tokens);
  return (pass){product(s, tokens, out, in), product(s, tokens, in, out) + weights, weights};
}

static void add(pass *to, pass more, double times) {
  to->forward += times * more.forward;
  to->backward += times * more.backward;
  to->weights += times * more.weights;
}

// ---- parts

static pass attention_products(const scope *s) {
  const tr_workload *w = s->w;
  double a = (double)w->heads / s->tp, d = (double)w->head_dim, t = s->tokens;
  double k = fmax((double)w->heads_kv / s->tp, 1);
  pass sum = {0, 0, 0};
  if (w->kv_rank > 0) {
    double plain = d - (double)w->rope_dim, q = (double)w->q_rank, kv = (double)w->kv_rank;
    add(&sum, linear(s, t, s->h, q + kv + (double)w->rope_dim), 1);
    add(&sum, linear(s, t, q > 0 ? q : s->h, a * d), 1);
    add(&sum, linear(s, t, kv, 2 * a * plain), 1);
    add(&sum, linear(s, t, a * plain, s->h), 1);
    return sum;
  }
  add(&sum, linear(s, t, s->h, (a + 2 * k) * d), 1);
  add(&sum, linear(s, t, a * d, s->h), 1);
  return sum;
}

// Scores and their use. Fused attention computes what the causal mask leaves, backward with one product more; otherwise
// all of it, with passes over the scores in memory. Head sizes that are no multiple of 8 miss the matrix units' fast path.
static pass attention_core(const scope *s) {
  const tr_workload *w = s->w;
  double a = (double)w->heads / s->tp, d = (double)(2 * w->head_dim - w->rope_dim) / 2;
  double share = s->p->early_attention ? s->fit->attention_early : s->fit->attention;
  double context = tr_workload_context(w, s->p->sequence, s->p->fused_attention);
  double work = 4 * s->tokens * context * a * d / (1e12 * s->c->device.peak_bf16 * share);
  if (w->head_dim % 8 != 0) work *= 10;
  if (s->p->fused_attention) return (pass){work, 2.5 * work, 0};
  double scores = s->tokens * context * a / s->bytes_rate * s->fit->scores;
  return (pass){work + 11 * scores, 2 * work + 12 * scores, 0};
}

static pass mlp(const scope *s, double ffn, double tokens) {
  pass sum = {0, 0, 0};
  add(&sum, linear(s, tokens, s->h, (s->w->gated ? 2 : 1) * ffn), 1);
  add(&sum, linear(s, tokens, ffn, s->h), 1);
  return sum;
}

// Norms, residuals, activation, rotary positions and, in older programs, dropout: passes over wide and narrow tensors.
static pass elementwise(const scope *s, double ffn) {
  double wide = s->tokens * s->h * 2 / (s->p->sequence_parallel ? s->tp : 1);
  double inner = s->tokens * ffn / s->tp * 2 * (s->w->gated ? 3 : 2);
  double heads = s->tokens * (double)((s->w->heads + 2 * s->w->heads_kv) * s->w->head_dim) / s->tp * 2 * 2;
  double passes = s->p->fused_kernels ? 8 : s->fit->passes;
  double time = (passes * wide + inner + heads * (s->p->fused_kernels ? 1 : 2)) / s->bytes_rate;
  return (pass){time, 2 * time, 0};
}

// Rows of a rank's experts, grouped by expert: `active` copies of each token, spread over all experts. The others wait for the
// rank that gets the most. Besides products, rows are put in the experts' order and back, and activated.
static pass expert_products(const scope *s) {
  const tr_workload *w = s->w;
  double rows = s->tokens * (double)w->active / s->tp * fmax(w->imbalance, 1);
  double each = rows * (double)s->p->ep / (double)w->experts;
  pass sum = mlp(s, (double)w->expert_ffn, rows);
  double slow = (each + 128) / each / s->fit->grouped;
  double moved = (rows * s->h * 2 * 6 + rows * (double)w->expert_ffn * 2 * (w->gated ? 3 : 2)) / s->bytes_rate;
  return (pass){sum.forward * slow + moved, sum.backward * slow + 2 * moved, sum.weights * slow};
}

// ---- collectives of a layer

// Sums over tensor-parallel ranks, two in each direction; cut along the sequence, a gather and a reduction each.
tr__call tr__tensor_call(const tr_plan *p, const tr_workload *w, const tr_cluster *c) {
  scope s = scope_of(p, w, c);
  tr__links group = tr__links_of(c, tr__group_of(p, TR__OVER_TP, 1, INFINITY));
  double bytes = s.tokens * s.h * 2;
  if (!p->sequence_parallel) return tr__sum(c, group, bytes);
  tr__call one = tr__gather(c, group, bytes);
  one.bytes *= 2, one.latency *= 2, one.seconds *= 2;
  return one;
}

// Where a layer has experts, they are not cut over tp: attention alone is, and experts that all tokens visit.
double tr__tensor_sums(const tr_plan *p, const tr_workload *w, int experts) {
  double forward = experts && w->shared == 0 ? 1 : 2;
  double again = p->recompute == TR_PLAN_RECOMPUTE_FULL ? 1 : p->recompute == TR_PLAN_RECOMPUTE_HALF ? 0.5 : 0;
  return forward * (2 + again);
}

// Copies inside the host run beside the tiles of products; not between hosts, and not where tokens leave for experts.
static double tensor_traffic(const scope *s, double sums, int experts) {
  if (s->p->tp <= 1 || sums <= 0) return 0;
  tr__call one = tr__tensor_call(s->p, s->w, s->c);
  int hides = s->p->hides_tp && !one.group.crosses && !experts;
  return sums * one.seconds * (hides ? 1 - s->fit->hide_tp : 1);
}

// Keys and values, which travel round the context-parallel ring.
tr__call tr__context_call(const tr_plan *p, const tr_workload *w, const tr_cluster *c) {
  tr__links group = tr__links_of(c, tr__group_of(p, TR__OVER_CP, 1, INFINITY));
  return tr__gather(c, group,
                    4 * (double)(p->micro * p->sequence) * (double)(w->heads_kv * w->head_dim) / (double)p->tp);
}

double tr__context_rounds(const tr_plan *p) { return p->recompute == TR_PLAN_RECOMPUTE_FULL ? 4 : 3; }

// They travel beside the layer that uses them; what is longer than a share of it sticks out.
static double context_traffic(const scope *s, double layer) {
  if (s->p->cp <= 1) return 0;
  double time = tr__context_call(s->p, s->w, s->c).seconds;
  return fmax(time - 0.4 * layer, 0.1 * time);
}

tr__call tr__expert_call(const tr_plan *p, const tr_workload *w, const tr_cluster *c) {
  scope s = scope_of(p, w, c);
  double rows = s.tokens * (double)w->active / s.tp;
  tr__links group = tr__links_of(c, tr__group_of(p, TR__OVER_EXPERTS, 1, (double)p->ep));
  return tr__swap(c, group, rows * s.h * 2, w);
}

// Tokens go to their experts and back in each direction.
double tr__expert_rounds(const tr_plan *p) {
  return p->recompute == TR_PLAN_RECOMPUTE_FULL || p->recompute == TR_PLAN_RECOMPUTE_EXPERTS ? 6 : 4;
}

// DualPipe's pairs of a forward and a backward pass hide all of it that is no longer than what they compute, on processors that are set
// apart for as long as the pair takes: DeepSeek's 20 of 132 where the device does not say.
static const double DUAL_SHARE = 0.15;
static void expert_traffic(const scope *s, double work, tr__layer *out) {
  out->ep = out->beside = 0;
  if (s->p->ep <= 1) return;
  double share = s->c->device.link_share, hidden = s->p->hides_ep ? s->fit->hide_ep * (1 - share) : 0;
  double all = tr__expert_rounds(s->p) * tr__expert_call(s->p, s->w, s->c).seconds;
  out->ep = all * (1 - hidden);
  if (tr__pipe_form_of(s->p) != TR__PIPE_DUAL) return;
  double apart = share > 0 ? share : DUAL_SHARE, slower = work * apart / (1 - apart);
  out->ep = fmin(all, slower + fmax(all - work - slower, 0));
  out->beside = all - out->ep;
}

// Weights are read by each product, and gradients added to their sums, once per micro-batch whatever its size.
static double touched(const scope *s, int experts) {
  const tr_workload *w = s->w;
  double n = tr_workload_attention_params(w) / s->tp;
  if (!experts) return (n + tr_workload_mlp_params(w) / s->tp) * s->fit->touch / s->bytes_rate;
  n += tr_workload_expert_params(w) * ((double)w->shared / s->tp + (double)w->experts / (double)s->p->ep);
  return n * s->fit->touch / s->bytes_rate;
}

// Device and host work at the same time; in a program that waits for the device layer by layer, one after the other.
static double floored(const scope *s, double time, double host) {
  if (s->p->waits) return time + 2 * host;
  return pow(pow(time, 4) + pow(host, 4), 0.25);
}

// Latent attention's queries, keys and values from their ranks.
static double projected_again(const scope *s) {
  const tr_workload *w = s->w;
  double a = (double)w->heads / s->tp, plain = (double)(w->head_dim - w->rope_dim), kv = (double)w->kv_rank;
  if (w->kv_rank == 0) return 0;
  double queries = w->q_rank > 0 ? product(s, s->tokens, a * (double)w->head_dim, (double)w->q_rank) : 0;
  return queries + product(s, s->tokens, 2 * a * plain, kv);
}

static double again_time(const scope *s, pass products, pass core, pass light, pass expert, double host) {
  double all = floored(s, products.forward + core.forward + light.forward + expert.forward, host);
  switch (s->p->recompute) {
  case TR_PLAN_RECOMPUTE_FULL: return all;
  case TR_PLAN_RECOMPUTE_HALF: return 0.5 * all;
  case TR_PLAN_RECOMPUTE_SCORES: return s->p->fused_attention ? 0.5 * light.forward : core.forward;
  case TR_PLAN_RECOMPUTE_PARTS: return light.forward + projected_again(s);
  case TR_PLAN_RECOMPUTE_EXPERTS: return light.forward + projected_again(s) + expert.forward;
  case TR_PLAN_RECOMPUTE_NONE: return 0;
  }
  return 0;
}

// Sums of input gradients are a little longer than what they hide behind in the smallest published model.
static const double UNHIDDEN = 0.2;
tr__layer tr__layer_work(const tr_plan *p, const tr_workload *w, const tr_cluster *c, int experts) {
  scope s = scope_of(p, w, c);
  double ffn = experts ? (double)(w->shared * w->expert_ffn) : (double)w->ffn;
  double host = 1e-6 * (experts ? s.fit->expert_layer_us : s.fit->layer_us);
  pass products = attention_products(&s), core = attention_core(&s), expert = {0, 0, 0};
  if (ffn > 0) add(&products, mlp(&s, ffn / s.tp, s.tokens), 1);
  if (experts) expert = expert_products(&s);
  pass light = elementwise(&s, ffn);
  tr__layer out = {.forward = floored(&s, products.forward + core.forward + light.forward + expert.forward, host),
                   .again = again_time(&s, products, core, light, expert, host)};
  double backward = products.backward + core.backward + light.backward + expert.backward;
  double least = floored(&s, backward, 1.5 * host);
  out.backward = least + touched(&s, experts);
  out.weights = least * (products.weights + expert.weights) / backward + touched(&s, experts);
  return out;
}

void tr__layer_links(const tr_plan *p, const tr_workload *w, const tr_cluster *c, int experts, tr__layer *out) {
  scope s = scope_of(p, w, c);
  int full = p->recompute == TR_PLAN_RECOMPUTE_FULL;
  tr_plan first = *p;
  first.recompute = TR_PLAN_RECOMPUTE_NONE;
  double sums = tr__tensor_sums(p, w, experts), again = sums - tr__tensor_sums(&first, w, experts);
  double hidden = p->hides_input_grads && !p->hides_tp ? (1 - UNHIDDEN) / 2 : 0; // of the backward half
  out->tp = tensor_traffic(&s, (sums - again) * (1 - hidden), experts);
  out->tp_again = tensor_traffic(&s, again, experts);
  out->cp = context_traffic(&s, out->forward) * (full ? 2 : 1) + 2 * context_traffic(&s, out->backward / 2);
  if (experts) expert_traffic(&s, out->forward + out->backward, out);
}

tr__layer tr__layer_time(const tr_plan *p, const tr_workload *w, const tr_cluster *c, int experts) {
  tr__layer out = tr__layer_work(p, w, c, experts);
  tr__layer_links(p, w, c, experts, &out);
  return out;
}

// The head's product in bf16, and the loss: each copy of the logits, written and read.
static pass head_pass(const scope *s, double *loss) {
  scope plain = *s;
  tr_plan bf16 = *s->p;
  bf16.number = TR_PLAN_BF16;
  plain.p = &bf16;
  *loss = s->tokens * (double)s->w->vocab / s->tp * 2.5 * s->p->logit_bytes / s->bytes_rate;
  return linear(&plain, s->tokens, s->h, (double)s->w->vocab / s->tp);
}

double tr__head_time(const tr_plan *p, const tr_workload *w, const tr_cluster *c) {
  scope s = scope_of(p, w, c);
  double loss;
  pass head = head_pass(&s, &loss);
  return (head.forward + head.backward + loss) * (1 + (double)w->predict_more);
}

// Half of the loss's passes over the logits come before their gradient is known.
tr__layer tr__head_layer(const tr_plan *p, const tr_workload *w, const tr_cluster *c) {
  scope s = scope_of(p, w, c);
  double loss, times = 1 + (double)w->predict_more;
  pass head = head_pass(&s, &loss);
  return (tr__layer){.forward = (head.forward + loss / 2) * times,
                     .backward = (head.backward + loss / 2) * times,
                     .weights = head.weights * times};
}

// Rows of the table are read and written as bf16; their gradients are read, and added to sums in f32.
tr__layer tr__embedding_layer(const tr_plan *p, const tr_workload *w, const tr_cluster *c) {
  scope s = scope_of(p, w, c);
  double elements = s.tokens * s.h, sums = elements * (2 + 4 + 4) / s.bytes_rate;
  return (tr__layer){.forward = elements * 4 / s.bytes_rate, .backward = sums, .weights = sums};
}
