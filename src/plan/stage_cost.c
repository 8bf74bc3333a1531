// SPDX-License-Identifier: MIT
// What a stage costs, for whoever simulates a pipeline or cuts a model into one: sums over its layers, the embedding with the
// first stage, the head and the loss with the last; and messages between stages as the links have them.
#include "plan/plan_internal.h"

static int is_expert_layer(const tr_workload *w, int64_t layer) {
  int64_t every = w->every > 1 ? w->every : 1;
  return w->experts > 0 && layer >= w->dense_first && (layer - w->dense_first + 1) % every == 0;
}

static void add_time(tr_stage_cost *to, const tr__layer *l) {
  double beside = l->tp + l->cp + l->ep; // communication inside the layer, half of it forward
  to->forward += l->forward + beside / 2;
  to->input += l->backward - l->weights + l->again + l->tp_again + beside / 2;
  to->weights += l->weights;
}

// Of one token, on all ranks of the stage.
static double layer_flops(const tr_workload *w, int64_t sequence, int experts) {
  double mlp = experts
                   ? (double)(w->active + w->shared) * tr_workload_expert_params(w) + (double)(w->experts * w->width)
                   : tr_workload_mlp_params(w);
  double dims = (double)(2 * w->head_dim - w->rope_dim);
  double scores = (double)w->heads * dims * tr_workload_context(w, sequence, 0);
  return 6 * (tr_workload_attention_params(w) + mlp + scores);
}

typedef struct layer_kind {
  tr__layer time;
  double flops, kept; // per token
} layer_kind;

static layer_kind kind_of(const tr_plan *p, const tr_workload *w, const tr_cluster *c, int experts) {
  return (layer_kind){tr__layer_time(p, w, c, experts), layer_flops(w, p->sequence, experts),
                      tr__kept_bytes(p, w, experts)};
}

static tr__local params_of(const tr_plan *p, const tr_workload *w, const tr_stage_cut *cut) {
  tr__local params = tr__local_params(p, w, cut->begin, cut->begin + cut->layers);
  double words = (double)(w->vocab * w->width) / (double)p->tp;
  if (cut->first) params.dense += words + (double)(w->positions * w->width);
  if (cut->last && !(cut->first && w->tied)) params.dense += words;
  return params;
}

static void add_end(tr_stage_cost *to, tr__layer end) { add_time(to, &end); }

tr_stage_cost tr_predict_stage(const tr_plan *p, const tr_workload *w, const tr_cluster *c, const tr_stage_cut *cut) {
  layer_kind dense = kind_of(p, w, c, 0), sparse = dense;
  if (w->experts > 0) sparse = kind_of(p, w, c, 1);
  tr__local params = params_of(p, w, cut);
  double tokens = (double)(p->micro * p->sequence) / (double)p->cp, words = (double)w->vocab / (double)p->tp;
  tr_stage_cost out = {.params = params.dense + params.experts, .fixed = tr__states_bytes(p, params)};
  out.reduce = tr__sum_time(c, tr__links_of(c, p->dp * p->cp, p->tp), p->wire_bytes * params.dense);
  if (cut->first) add_end(&out, tr__embedding_layer(p, w, c));
  for (int64_t l = cut->begin; l < cut->begin + cut->layers; l++) {
    const layer_kind *kind = is_expert_layer(w, l) ? &sparse : &dense;
    add_time(&out, &kind->time);
    out.flops += tokens * kind->flops / (double)p->tp;
    out.kept += tokens * kind->kept;
  }
  if (cut->last) {
    add_end(&out, tr__head_layer(p, w, c));
    out.flops += 6 * tokens * words * (double)w->width;
    out.fixed += tokens * words * p->logit_bytes;
  }
  return out;
}

// With tensor parallelism each rank sends its part.
double tr_predict_message(const tr_plan *p, const tr_workload *w, const tr_cluster *c, int crosses, double *busy) {
  double bytes = (double)(p->micro * p->sequence) * (double)w->width * 2 / (double)(p->cp * p->tp);
  double latency = tr__send_time(c, crosses, 0);
  *busy = tr__send_time(c, crosses, bytes) - latency;
  return latency;
}
