// SPDX-License-Identifier: MIT
// The time of a step from the cost of layers: pipeline, gradients, optimizer, and what is left.
//
// A rank passes m micro-batches through its stage: m x the slowest stage, and once the way of the first micro-batch
// through the other stages, shared by the chunks of a rank (the bubble, (p-1)/v average stages). What replicas exchange, and
// what of it sticks out, is in exchange.c.
#include "plan/plan_internal.h"
#include "trireme/plan/law_pipeline.h"
#include <math.h>
#include <string.h>

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

// DualPipe has every stage twice.
tr__local tr__rank_params(const tr_plan *p, const tr_workload *w, int64_t place) {
  tr__local n = tr__stage_params(p, w, place);
  if (tr__pipe_form_of(p) != TR__PIPE_DUAL) return n;
  tr__local other = tr__stage_params(p, w, p->pp - 1 - place);
  return (tr__local){n.dense + other.dense, n.experts + other.experts};
}

// Passes alike, the first stages hold the most activations; the first that has no dense layers, the most parameters.
int tr__full_places(const tr_plan *p, const tr_workload *w, int64_t place[TR__PLACES]) {
  int n = 0;
  tr__stages s = tr__stages_of(p, w);
  int64_t sparse = w->experts > 0 ? 1 + (int64_t)ceil(fmax((double)w->dense_first - s.first, 0) / s.most) : 1;
  int64_t want[TR__PLACES] = {0, 1, sparse < p->pp ? sparse : p->pp - 1, p->pp - 1};
  for (int i = 0; i < TR__PLACES; i++)
    if (want[i] < p->pp && (n == 0 || want[i] > place[n - 1])) place[n++] = want[i];
  return n;
}

tr__local tr__fullest_params(const tr_plan *p, const tr_workload *w) {
  tr__local most = tr__rank_params(p, w, 0);
  int64_t place[TR__PLACES];
  if (p->pp == 1 || w->experts == 0) return most;
  for (int i = 1, n = tr__full_places(p, w, place); i < n; i++) {
    tr__local one = tr__rank_params(p, w, place[i]);
    if ((place[i] < p->pp - 1 || p->pp == 2) && one.dense + one.experts > most.dense + most.experts) most = one;
  }
  return most;
}

// ---- one pass of one micro-batch

tr__pipe_form tr__pipe_form_of(const tr_plan *p) {
  if (p->pp == 1 || !p->schedule) return TR__PIPE_1F1B;
  if (strcmp(p->schedule, "dualpipe") == 0) return TR__PIPE_DUAL;
  return strcmp(p->schedule, "zb_h1") == 0 ? TR__PIPE_ZERO : TR__PIPE_1F1B;
}

static double sparse_share(const tr_workload *w) { return (double)tr_workload_expert_layers(w) / (double)w->layers; }

tr__work tr__work_of(const tr_plan *p, const tr_workload *w, const tr_cluster *c) {
  double share = sparse_share(w);
  tr__work x = {.head = tr__head_time(p, w, c)};
  if (share < 1) x.dense = tr__layer_work(p, w, c, 0);
  if (share > 0) x.sparse = tr__layer_work(p, w, c, 1);
  return x;
}

static tr__passes mean_layer(const tr_plan *p, const tr_workload *w, const tr_cluster *c, const tr__work *work) {
  double share = sparse_share(w);
  tr__layer dense = work->dense, sparse = work->sparse;
  if (share < 1) tr__layer_links(p, w, c, 0, &dense);
  if (share > 0) tr__layer_links(p, w, c, 1, &sparse);
#define MEAN(field) ((1 - share) * dense.field + share * sparse.field)
  return (tr__passes){MEAN(forward),  MEAN(backward), MEAN(weights), MEAN(again), MEAN(tp),
                      MEAN(tp_again), MEAN(cp),       MEAN(ep),      MEAN(beside)};
#undef MEAN
}

// A third of the head is forward, a third for its weights.
static void average_stage(const tr_plan *p, const tr_workload *w, double layer, double head, tr__pipe *x) {
  const tr__passes *t = &x->layer;
  double layers = (double)(w->layers + w->predict_more), stages = (double)p->pp;
  x->mean = (layers * layer + head) / stages;
  x->forward = (layers * (t->forward + (t->tp + t->cp + t->ep) / 2) + head / 3) / stages;
  x->weights = (layers * t->weights + head / 3) / stages;
  x->beside = layers * t->beside / stages;
}

// With DualPipe the ranks at both ends have the first and the last stage for half of the micro-batches each.
tr__pipe tr__pipe_of(const tr_plan *p, const tr_workload *w, const tr_cluster *c, const tr__work *work) {
  tr__pipe x = {.layer = mean_layer(p, w, c, work)};
  const tr__passes *t = &x.layer;
  tr__stages stage = tr__stages_of(p, w);
  int dual = tr__pipe_form_of(p) == TR__PIPE_DUAL;
  double layer = t->forward + t->backward + t->again + t->tp + t->tp_again + t->cp + t->ep;
  double end_layers = dual ? (stage.first + stage.last) / 2 : stage.last, end_head = work->head / (dual ? 2 : 1);
  double middle = stage.most * layer, end = end_layers * layer + end_head;
  int at_end = p->pp == 1 || end >= middle;
  x.micro_batches = (double)(p->batch / (p->dp * p->micro));
  x.head = at_end ? end_head : 0;
  x.layers = at_end ? end_layers : stage.most;
  x.slowest = fmax(middle, end);
  average_stage(p, w, layer, work->head, &x);
  return x;
}

// What a rank waits while a pipeline fills and runs empty (law_pipeline.h); with DualPipe, also that about as many micro-batches as
// there are stages go through it out of pairs.
static double bubble_time(const tr_plan *p, const tr__pipe *x) {
  tr_law_pipe pipe = {.stages = (double)p->pp,
                      .f = x->forward + x->beside / 2,
                      .b = x->mean - x->forward + x->beside / 2,
                      .w = x->weights,
                      .pair = x->mean};
  switch (tr__pipe_form_of(p)) {
  case TR__PIPE_ZERO: return fmax(tr_law_pipe_idle(TR_LAW_ZB1P, &pipe), 0);
  case TR__PIPE_DUAL: return fmax(tr_law_pipe_idle(TR_LAW_DUALPIPE, &pipe), 0) + (double)p->pp * x->beside;
  case TR__PIPE_1F1B: return (double)(p->pp - 1) / (double)p->vpp * x->mean;
  }
  return 0;
}

// Per micro-batch two exchanges in turn, or, where chunks interleave, one both ways per chunk; programs that overlap hide
// a part of them.
tr__call tr__stage_call(const tr_plan *p, const tr_workload *w, const tr_cluster *c) {
  double bytes = (double)(p->micro * p->sequence) * (double)w->width * 2 / (double)p->cp;
  if (!p->waits) bytes /= (double)p->tp; // each sends its part
  return tr__send(c, tr__stage_links(p, c), bytes);
}

double tr__stage_messages(const tr_plan *p) { return p->vpp > 1 ? (double)p->vpp : 2; }
double tr__stage_exposed(const tr_plan *p) {
  if (tr__pipe_form_of(p) == TR__PIPE_DUAL) return 0; // beside pairs of passes
  return p->hides_grads ? 0.6 : 1;
}

static double message_time(const tr_plan *p, const tr_workload *w, const tr_cluster *c) {
  if (p->pp <= 1) return 0;
  return tr__stage_messages(p) * tr__stage_call(p, w, c).seconds * tr__stage_exposed(p);
}

// Per step, and waiting for the slowest of all hosts.
static double fixed_time(const tr_plan *p, const tr_cluster *c, double rest) {
  double hosts = fmax((double)tr_plan_devices(p) / (double)c->host_devices, 1);
  return 1e-3 * c->device.fit.step_ms + c->device.fit.straggle * log2(hosts) * rest;
}

double tr__predict_step(const tr_plan *p, const tr_workload *w, const tr_cluster *c, const tr__work *work,
                        double term[TR_TERM_COUNT]) {
  tr__exchange exchange[TR__EXCHANGES];
  tr__pipe x = tr__pipe_of(p, w, c, work);
  const tr__passes *t = &x.layer;
  double m = x.micro_batches, passes = m * x.layers;
  for (int i = 0; i < TR_TERM_COUNT; i++) term[i] = 0;
  term[TR_TERM_COMPUTE] = passes * (t->forward + t->backward) + m * x.head;
  term[TR_TERM_RECOMPUTE] = passes * t->again;
  term[TR_TERM_TP] = passes * (t->tp + t->tp_again);
  term[TR_TERM_CP] = passes * t->cp;
  term[TR_TERM_EP] = passes * t->ep;
  term[TR_TERM_BUBBLE] = bubble_time(p, &x);
  term[TR_TERM_PP] = (m + (double)(p->pp - 1)) * message_time(p, w, c);
  for (int i = 0, n = tr__exchanges_of(p, w, c, &x, exchange); i < n; i++) term[TR_TERM_GRADS] += exchange[i].exposed;
  term[TR_TERM_OPTIMIZER] = tr__update_time(p, w, c);
  double step = 0;
  for (int i = 0; i < TR_TERM_COUNT; i++) step += term[i];
  term[TR_TERM_FIXED] = fixed_time(p, c, step);
  return step + term[TR_TERM_FIXED];
}

double tr_predict_step(const tr_plan *p, const tr_workload *w, const tr_cluster *c, double term[TR_TERM_COUNT]) {
  tr__work work = tr__work_of(p, w, c);
  return tr__predict_step(p, w, c, &work, term);
}

double tr_predict_spread(const tr_workload *w, const tr_cluster *c) {
  return w->experts > 0 ? c->device.fit.p90_experts : c->device.fit.p90;
}

void tr__finish_step(const tr_plan *p, const tr_workload *w, const tr_cluster *c, double rest, tr_prediction *out) {
  out->term[TR_TERM_FIXED] = fixed_time(p, c, rest);
  out->step = rest + out->term[TR_TERM_FIXED];
  out->low = out->step / (1 + tr_predict_spread(w, c));
  out->high = out->step * (1 + tr_predict_spread(w, c));
  double devices = (double)tr_plan_devices(p), tokens = (double)(p->batch * p->sequence);
  out->tokens_per_device = tokens / out->step / devices;
  out->mfu = tr_workload_flops(w, p->sequence, 0) * out->tokens_per_device / (c->device.peak_bf16 * 1e12);
}

void tr__predict_time(const tr_plan *p, const tr_workload *w, const tr_cluster *c, const tr__work *work,
                      tr_prediction *out) {
  double step = tr__predict_step(p, w, c, work, out->term);
  tr__finish_step(p, w, c, step - out->term[TR_TERM_FIXED], out);
}

void tr_predict(const tr_plan *p, const tr_workload *w, const tr_cluster *c, tr_prediction *out) {
  tr__work work = tr__work_of(p, w, c);
  tr__predict_time(p, w, c, &work, out);
  tr_predict_memory(p, w, c, &out->memory);
  out->fits = out->memory.needed <= c->device.memory_gib * 1073741824.0;
}
