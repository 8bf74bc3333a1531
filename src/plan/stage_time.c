// SPDX-License-Identifier: MIT
// The passes of a stage, for whoever simulates a pipeline: sums over its layers, the embedding with the first of the model,
// the head and the loss with the last; and messages between stages as the links have them.
#include "plan/plan_internal.h"
#include <math.h>

static int is_expert_layer(const tr_workload *w, int64_t layer) {
  int64_t every = w->every > 1 ? w->every : 1;
  return w->experts > 0 && layer >= w->dense_first && (layer - w->dense_first + 1) % every == 0;
}

static void add_layer(tr_stage_time *to, const tr__layer *l) {
  double beside = l->tp + l->cp + l->ep + l->beside; // communication inside the layer, half of it forward
  to->forward += l->forward + beside / 2;
  to->input += l->backward - l->weights + l->again + l->tp_again + beside / 2;
  to->weights += l->weights;
  to->beside += l->beside;
}

static double reduce_time(const tr_plan *p, const tr_workload *w, const tr_cluster *c, const tr_stage_cut *cut) {
  tr__local params = tr__local_params(p, w, cut->begin, cut->begin + cut->layers);
  double words = (double)(w->vocab * w->width) / (double)p->tp;
  if (cut->first) params.dense += words + (double)(w->positions * w->width);
  if (cut->last) params.dense += words;
  tr__group replicas = tr__group_of(p, TR__OVER_REPLICAS, 1, (double)(p->dp * p->cp));
  tr__group experts = tr__group_of(p, TR__OVER_EXPERTS, (double)p->ep, INFINITY);
  double sum = tr__sum(c, tr__links_of(c, replicas), p->wire_bytes * params.dense).seconds;
  if (params.experts > 0) sum += tr__sum(c, tr__links_of(c, experts), p->wire_bytes * params.experts).seconds;
  return sum;
}

tr_stage_time tr_predict_stage(const tr_plan *p, const tr_workload *w, const tr_cluster *c, const tr_stage_cut *cut) {
  tr_stage_time out = {.reduce = reduce_time(p, w, c, cut)};
  tr__layer dense = tr__layer_time(p, w, c, 0), sparse = dense, end;
  if (w->experts > 0) sparse = tr__layer_time(p, w, c, 1);
  if (cut->first) end = tr__embedding_layer(p, w, c), add_layer(&out, &end);
  for (int64_t l = cut->begin; l < cut->begin + cut->layers; l++)
    add_layer(&out, is_expert_layer(w, l) ? &sparse : &dense);
  if (cut->last) end = tr__head_layer(p, w, c), add_layer(&out, &end);
  return out;
}

// With tensor parallelism each rank sends its part.
double tr_predict_message(const tr_plan *p, const tr_workload *w, const tr_cluster *c, int crosses, double *busy) {
  double bytes = (double)(p->micro * p->sequence) * (double)w->width * 2 / (double)(p->cp * p->tp);
  tr__links pair = {.ranks = 2, .near = crosses ? 1 : 2, .ring_slow = 1, .swap_slow = 1, .crosses = crosses};
  if (crosses && p->pp > 1) pair.ring_slow = tr__stage_links(p, c).ring_slow;
  tr__call one = tr__send(c, pair, bytes);
  *busy = one.seconds - one.latency;
  return one.latency;
}
