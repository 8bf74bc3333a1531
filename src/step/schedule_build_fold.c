// SPDX-License-Identifier: MIT
// Schedules with two stages per rank that meet in the middle, so that work for both ends is at hand on every rank.
//
//   zbv        Qi et al. 2024: stage r and stage 2 p - 1 - r on rank r. The list is that for at least 2 p - 1 micro-batches, of
//              which those that there are not are left out.
//   dualpipe   DeepSeek-V3, 2024: stage r for micro-batches that enter at rank 0, stage p - 1 - r for those that enter at rank
//              p - 1. In the steady part a forward pass of one stream runs beside a backward pass of the other (X), in eight
//              steps whose lengths depend on the distance h of the rank from its end.
//   dualpipev  The same list on the V: one half of the ranks, folded, with twice as many ranks and micro-batches per stream.
#include "schedule_internal.h"

// ---- zbv

typedef struct vee {
  tr__pass_list *out;
  int m, stage[2];
  int forward[2], input[2], weight[2]; // next micro-batch of each chunk
} vee;

static void vee_add(vee *v, tr_op_kind kind, int chunk, int *next) {
  if (*next < v->m) tr__pass_add(v->out, kind, v->stage[chunk], *next);
  ++*next;
}

static void vee_f(vee *v, int chunk) { vee_add(v, TR_OP_F, chunk, &v->forward[chunk]); }
static void vee_i(vee *v, int chunk) { vee_add(v, TR_OP_I, chunk, &v->input[chunk]); }
static void vee_w(vee *v, int chunk) { vee_add(v, TR_OP_W, chunk, &v->weight[chunk]); }

static void vee_iw(vee *v, int chunk) {
  vee_i(v, chunk);
  vee_w(v, chunk);
}

void tr__generate_zbv(const tr__schedule_shape *shape, int rank, tr__pass_list *out) {
  int p = shape->p, n = shape->m < 2 * p - 1 ? 2 * p - 1 : shape->m;
  vee v = {.out = out, .m = shape->m, .stage = {rank, 2 * p - 1 - rank}};
  for (int i = 0; i < 2 * (p - rank) - 1; i++) vee_f(&v, 0);
  for (int i = 0; i < rank; i++) {
    vee_f(&v, 1);
    vee_f(&v, 0);
  }
  for (int i = 0; i < p - rank; i++) {
    vee_f(&v, 1);
    vee_iw(&v, 1);
  }
  while (v.forward[1] < v.forward[0] || v.forward[0] < n) {
    if (v.forward[0] < n) vee_f(&v, 0);
    vee_iw(&v, 0);
    vee_f(&v, 1);
    vee_iw(&v, 1);
  }
  for (int i = 0; i < rank; i++) {
    vee_i(&v, 0);
    vee_i(&v, 1);
  }
  for (int i = 0; i < p - rank; i++) vee_iw(&v, 0);
  while (v.weight[1] < n) vee_w(&v, 1);
  while (v.weight[0] < n) vee_w(&v, 0);
}

// ---- dualpipe

// Stream 0 enters the pipeline on this rank's half, stream 1 on the other.
typedef struct dual {
  tr__pass_list *out;
  int stage[2];
  int forward[2], backward[2]; // next micro-batch of each stream
  uint32_t waiting;            // the first I whose W is still to come, as a place in `out`
} dual;

static void dual_f(dual *d, int stream) { tr__pass_add(d->out, TR_OP_F, d->stage[stream], d->forward[stream]++); }
static void dual_b(dual *d, int stream) { tr__pass_add(d->out, TR_OP_B, d->stage[stream], d->backward[stream]++); }
static void dual_i(dual *d, int stream) { tr__pass_add(d->out, TR_OP_I, d->stage[stream], d->backward[stream]++); }

// W in the order of the I of both streams: the list itself is the queue.
static void dual_w(dual *d) {
  while (d->out->pass[d->waiting].kind != TR_OP_I) d->waiting++;
  const tr_pass *input = &d->out->pass[d->waiting++];
  tr__pass_add(d->out, TR_OP_W, input->stage, input->microbatch);
}

static void dual_x(dual *d, int forward, int backward) {
  tr__pass_add_pair(d->out, d->stage[forward], d->forward[forward]++, d->stage[backward], d->backward[backward]++);
}

// `half` ranks lie between an end and the middle, this one at distance h from its end; m micro-batches per stream.
static void generate_dual(dual *d, int half, int h, int m) {
  int inner = half - h - 1, middle = inner == 0;
  for (int i = 0; i < 2 * inner; i++) dual_f(d, 0);
  for (int i = 0; i < h + 1; i++) {
    dual_f(d, 0);
    dual_f(d, 1);
  }
  for (int i = 0; i < inner; i++) {
    dual_i(d, 1);
    dual_w(d);
    dual_f(d, 1);
  }
  for (int i = 0; i < m - 2 * half + h + 1; i++) {
    if (i == 0 && middle) { // the partner needs this activation at once, not at the end of a pair
      dual_f(d, 0);
      dual_b(d, 1);
    } else {
      dual_x(d, 0, 1);
    }
    dual_x(d, 1, 0);
  }
  for (int i = 0; i < inner; i++) {
    dual_b(d, 1);
    dual_x(d, 1, 0);
  }
  for (int i = 0; i < 2 * (h + 1); i++) {
    int stream = i % 2 == 0;
    if (i < h + 1)
      dual_b(d, stream);
    else
      dual_i(d, stream);
  }
  for (int i = 0; i < inner; i++) {
    dual_w(d);
    dual_i(d, 0);
  }
  for (int i = 0; i < h + 1; i++) dual_w(d);
}

void tr__generate_dualpipe(const tr__schedule_shape *shape, int rank, tr__pass_list *out) {
  int p = shape->p, m = shape->m / 2, far = p - 1 - rank, upper = rank >= p / 2;
  dual d = {.out = out, .stage = {upper ? far : rank, upper ? rank : far}, .waiting = out->n};
  d.forward[!upper] = d.backward[!upper] = m; // the second half of the micro-batches enters at the last rank
  generate_dual(&d, p / 2, upper ? far : rank, m);
}

void tr__generate_dualpipev(const tr__schedule_shape *shape, int rank, tr__pass_list *out) {
  dual d = {.out = out, .stage = {rank, 2 * shape->p - 1 - rank}, .waiting = out->n};
  generate_dual(&d, shape->p, rank, shape->m);
}

tr_status tr__rule_dualpipe(const tr__schedule_shape *shape) {
  int p = shape->p, m = shape->m;
  if (p == 1) return tr_error(TR_ERR_PLAN, "schedule %s: p 1 has no other end; p 2 works", shape->name);
  if (p % 2)
    return tr_error(TR_ERR_PLAN, "schedule %s: p %d is odd, so the middle rank has no partner; p %d or p %d works",
                    shape->name, p, p - 1, p + 1);
  if (m < 2 * p)
    return tr_error(TR_ERR_PLAN, "schedule %s: m %d does not fill both directions of p %d ranks; m %d works",
                    shape->name, m, p, 2 * p);
  if (m % 2)
    return tr_error(TR_ERR_PLAN, "schedule %s: m %d is odd, and half of them go each way; m %d or m %d works",
                    shape->name, m, m - 1, m + 1);
  return TR_OK;
}

tr_status tr__rule_dualpipev(const tr__schedule_shape *shape) {
  if (shape->m >= 2 * shape->p) return TR_OK;
  return tr_error(TR_ERR_PLAN, "schedule %s: m %d does not fill the %d stages of p %d ranks; m %d works", shape->name,
                  shape->m, 2 * shape->p, shape->p, 2 * shape->p);
}
