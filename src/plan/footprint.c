// SPDX-License-Identifier: MIT
// The memory of a plan: item by item for the stages that can be the fullest (tr__full_places).
//
// States by ZeRO stage; activations by what each layer keeps for its backward pass (Korthikanti et al., "Reducing
// activation recomputation in large transformer models", generalised to gates, grouped heads and experts), times the
// micro-batches in flight at that stage; the head's logits on the last stage; gathered weights and buckets.
// Letters as in layer_cost.c; bytes per token of a layer, then times tokens.
#include "plan/plan_internal.h"
#include <math.h>

const char *tr_memory_item_name(tr_memory_item item) {
  static const char *const name[TR_ITEM_COUNT] = {"weights",     "gradients", "optimizer states", "gathered weights",
                                                  "activations", "logits",    "buffers"};
  return name[item];
}

// ---- activations

typedef struct kept {
  double all, some; // bytes per token of a layer, kept whole and under the plan's recomputation
} kept;

// Of a token's copies in its experts: rows of the first product, what its gates and its activation make of them. In fp8 products keep
// their operands so, and where the activation is computed again, what it is computed from.
static double copies_kept(const tr_plan *p, const tr_workload *w) {
  double operand = p->number == TR_PLAN_FP8 ? 1 : 2, gates = w->gated ? 2 : 1;
  int again = p->recompute == TR_PLAN_RECOMPUTE_PARTS;
  double inner = again ? operand * gates : 2 * gates + operand;
  return (double)w->active / (double)p->tp * fmax(w->imbalance, 1) *
         (operand * (double)w->width + inner * (double)w->expert_ffn);
}

static kept layer_kept(const tr_plan *p, const tr_workload *w, int experts) {
  double tp = (double)p->tp, cut = p->sequence_parallel ? tp : 1, h = (double)w->width;
  double heads = (double)(w->heads + 2 * w->heads_kv) * (double)w->head_dim / tp;
  double out = (double)(w->heads * (w->head_dim - w->rope_dim)) / tp;
  double ffn = experts ? (double)(w->shared * w->expert_ffn) : (double)w->ffn, gates = w->gated ? 2 : 1;
  double inputs = 4 * h / cut, norms = 4 * h / cut, masks = p->fused_attention ? 0 : 2 * h / cut;
  double attention = 2 * heads + 2 * out, act = 2 * ffn / tp;
  double up =
      (2 * gates + (w->gated && !p->fused_kernels ? 2 : 0)) * ffn / tp; // unfused, the gate also keeps its image
  double ranks = 2 * (double)(w->q_rank + w->kv_rank + w->rope_dim);
  double projected = w->kv_rank > 0 ? fmax(2 * heads - ranks, 0) : 0; // latent attention: its ranks are enough
  double scores = p->fused_attention ? 0 : 5 * (double)w->heads / tp * (double)p->sequence;
  double expert = experts ? copies_kept(p, w) : 0;
  double all = inputs + norms + masks + attention + up + act + scores + expert, input = 2 * h / cut;
  switch (p->recompute) {
  case TR_PLAN_RECOMPUTE_FULL: return (kept){all, input};
  case TR_PLAN_RECOMPUTE_HALF: return (kept){all, (all + input) / 2};
  case TR_PLAN_RECOMPUTE_SCORES: return (kept){all, all - scores};
  case TR_PLAN_RECOMPUTE_PARTS: return (kept){all, all - norms - act - projected};
  case TR_PLAN_RECOMPUTE_EXPERTS: return (kept){all, all - norms - act - projected - expert};
  case TR_PLAN_RECOMPUTE_NONE: break;
  }
  return (kept){all, all};
}

// Layers' worth of activations in flight on a stage, counted in whole micro-batches of `layers` layers.
static double in_flight(const tr_plan *p, int64_t stage, double layers) {
  double m = (double)(p->batch / (p->dp * p->micro)), after = (double)(p->pp - stage - 1);
  if (p->pp == 1) return layers;
  if (tr__pipe_form_of(p) == TR__PIPE_DUAL) return layers * fmin(m, (double)p->pp + 1);
  if (p->vpp == 1) return layers * fmin(m, after + 1);
  double chunks = 2 * after + (double)((p->vpp - 1) * p->pp) + 1;
  return layers * fmin(m, chunks / (double)p->vpp);
}

// ---- states

static double shards_of(const tr_plan *p, int stage) {
  double all = (double)(p->dp * p->cp), n = p->zero_ranks > 0 ? fmin((double)p->zero_ranks, all) : all;
  return p->zero >= stage ? n : 1;
}

static double expert_shards_of(const tr_plan *p, int stage) {
  return p->zero >= stage ? fmax((double)(p->dp * p->cp * p->tp) / (double)p->ep, 1) : 1;
}

static void states(const tr_plan *p, tr__local n, double item[TR_ITEM_COUNT]) {
#define SPREAD(stage, bytes) ((bytes) * (n.dense / shards_of(p, stage) + n.experts / expert_shards_of(p, stage)))
  item[TR_ITEM_WEIGHTS] = SPREAD(3, p->weight_bytes);
  item[TR_ITEM_GRADS] = SPREAD(2, p->grad_bytes);
  item[TR_ITEM_STATES] = SPREAD(1, p->state_bytes);
#undef SPREAD
}

// Whole weights and gradients of sharded units while they are in use: two layers and the widest table, or the widest matrix alone, or, kept over a step, all of the stage's.
static double gathered(const tr_plan *p, const tr_workload *w, tr__local all) {
  tr__local one = tr__local_params(p, w, w->layers - 1, w->layers);
  double words = (double)(w->vocab * w->width) / (double)p->tp, layer = one.dense + one.experts;
  if (p->zero < 2) return 0;
  if (p->keeps_gathered) { // besides the shards, which hold a part of it; in pipelines buffers of their own do
    double more = p->pp > 1 ? 1 : 1 - 1 / shards_of(p, 3);
    return more * (2 + p->grad_bytes) * (all.dense + all.experts);
  }
  double matrix = (double)(w->width * w->ffn) * (w->gated ? 2 : 1) / (double)p->tp;
  if (p->gathers_matrices) return 4 * fmax(matrix, words);
  return (p->zero == 3 ? 4 * layer + 2 * words : 0) + 4 * layer;
}

void tr__states_of(const tr_plan *p, const tr_workload *w, double item[TR_ITEM_COUNT]) {
  states(p, tr__fullest_params(p, w), item);
}

// `flight`: layers' worth of activations alive at once. Returns what takes turns in the same memory: logits, and what a layer computes
// again.
static double one_stage(const tr_plan *p, const tr_workload *w, int64_t stage, double flight,
                        double item[TR_ITEM_COUNT]) {
  int dual = tr__pipe_form_of(p) == TR__PIPE_DUAL, last = stage == p->pp - 1 || (dual && stage == 0);
  double tokens = (double)(p->micro * p->sequence) / (double)p->cp;
  double share = (double)tr_workload_expert_layers(w) / (double)w->layers;
  kept dense = layer_kept(p, w, 0), sparse = layer_kept(p, w, w->experts > 0);
  double some = (1 - share) * dense.some + share * sparse.some, all = fmax(dense.all, share > 0 ? sparse.all : 0);
  double held = fmax(flight - (double)p->offloaded, 0);
  double words = (double)(w->vocab * w->width) / (double)p->tp;
  tr__local params = tr__rank_params(p, w, stage);
  states(p, params, item);
  double again = p->recompute == TR_PLAN_RECOMPUTE_NONE ? 0 : tokens * (all - some);
  item[TR_ITEM_ACTIVATIONS] = tokens * held * some + again;
  if (p->keeps_gathered && p->pp > 1) // stages' inputs, not cut over tp
    item[TR_ITEM_ACTIVATIONS] += tokens * in_flight(p, stage, 1) * 2 * (double)w->width;
  item[TR_ITEM_LOGITS] = last ? tokens * (double)w->vocab / (double)p->tp * p->logit_bytes : 0;
  item[TR_ITEM_GATHERED] = gathered(p, w, params);
  item[TR_ITEM_BUFFERS] = 4 * tokens * (double)w->width;
  // The embedding's gradient, before it is added.
  if ((stage == 0 || (dual && last)) && p->zero < 2) item[TR_ITEM_BUFFERS] += fmin(p->grad_bytes, 4) * words;
  return fmin(again, item[TR_ITEM_LOGITS]);
}

// What the update makes in the place of what passes hold.
static double update_room(const tr_plan *p, const tr_workload *w, int64_t stage) {
  tr__local n = tr__rank_params(p, w, stage);
  return p->update_bytes * (n.dense / shards_of(p, 1) + n.experts / expert_shards_of(p, 1));
}

void tr__rank_memory(const tr_plan *p, const tr_workload *w, const tr_cluster *c, int64_t stage, double flight,
                     tr_footprint *out) {
  *out = (tr_footprint){.stage = stage, .biggest = TR_ITEM_WEIGHTS};
  double turns = one_stage(p, w, stage, flight, out->item);
  double *item = out->item, update = update_room(p, w, stage), activations = item[TR_ITEM_ACTIVATIONS];
  double passes = activations + item[TR_ITEM_LOGITS] + item[TR_ITEM_GATHERED] + item[TR_ITEM_BUFFERS];
  item[TR_ITEM_BUFFERS] += fmax(update - passes, 0);
  for (int j = 0; j < TR_ITEM_COUNT; j++) {
    out->total += item[j];
    if (item[j] > item[out->biggest]) out->biggest = (tr_memory_item)j;
  }
  // Older allocators cache blocks of many sizes and hold more than is used: about 6 GB that stay torn, and 0.45 of the
  // activations. Passes and the update take turns in the same memory, but not in the same blocks.
  double torn = p->fused_attention ? 0 : 6e9, cached = p->fused_attention ? 0 : 0.45 * activations;
  double device = out->total + c->device.reserved_gb * 1e9 + torn;
  out->needed = device - turns;
  out->process = device + cached + fmin(update, passes);
}

void tr_predict_stage_memory(const tr_plan *p, const tr_workload *w, const tr_cluster *c, int64_t stage,
                             tr_footprint *out) {
  tr__rank_memory(p, w, c, stage, in_flight(p, stage, tr__stage_layers(p, w, stage)), out);
}

// What a device must have is the most of any stage.
void tr__take_fuller(tr_footprint *fullest, const tr_footprint *one) {
  double needed = fmax(fullest->needed, one->needed);
  if (one->total > fullest->total) *fullest = *one;
  fullest->needed = needed;
}

void tr_predict_memory(const tr_plan *p, const tr_workload *w, const tr_cluster *c, tr_footprint *out) {
  *out = (tr_footprint){.total = -1};
  int64_t place[TR__PLACES];
  for (int k = 0, n = tr__full_places(p, w, place); k < n; k++) {
    tr_footprint one;
    tr_predict_stage_memory(p, w, c, place[k], &one);
    tr__take_fuller(out, &one);
  }
}
