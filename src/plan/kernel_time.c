// SPDX-License-Identifier: MIT
// Work of pieces from their ports, and prices from measurements (kernel_time.h).
//
// The fit is least squares on relative errors with prices that cannot be below 0, by coordinate descent: a few terms and a few dozen
// measurements, so it is exact after some thousand rounds.
#include "trireme/plan/kernel_time.h"
#include "trireme/base/sort.h"
#include "trireme/model/piece.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *tr_kernel_pass_name(tr_kernel_pass pass) {
  static const char *const name[TR_KERNEL_PASSES] = {"forward", "backward"};
  return name[pass];
}

const char *const tr_kernel_term[TR_KERNEL_TERMS] = {"call", "in", "out", "weight", "flop", "exp", "far"};

// ---- work

static double port_width(const tr_model *model, const tr_port *port, int n) {
  double width = 0;
  for (int k = 0; k < n; k++) width += (double)tr_model_value(model, port[k].value)->width;
  return width;
}

// A piece that reads no value looks rows up in its parameters.
static double weight_elements(const tr_model *model, const tr_piece *piece, double rows) {
  double n = 0;
  for (int k = 0; k < piece->nparam; k++) {
    const tr_shape *shape = &tr_model_param(model, piece->param[k])->shape;
    const double all = (double)tr_shape_count(shape), looked_up = rows * (double)shape->dim[shape->ndim - 1];
    n += piece->nin == 0 ? fmin(all, looked_up) : all;
  }
  return n;
}

// One per score of attention and per logit of the head; a sine and a cosine per pair of rotary positions.
static double exponentials(const tr_model *model, const tr_piece *piece, double rows, double flops) {
  const char *kind = piece->ops->kind ? piece->ops->kind : "";
  if (strcmp(kind, "attention") == 0)
    return flops / (4.0 * (double)((const tr_attention_config *)piece->config)->dim);
  if (strcmp(kind, "rotary") == 0) return rows * (double)((const tr_rotary_config *)piece->config)->dim;
  if (strcmp(kind, "head_loss") == 0) return rows * (double)tr_model_param(model, piece->param[0])->shape.dim[0];
  return 0;
}

tr_kernel_work tr_piece_work(const tr_model *model, int index, tr_dtype type, int64_t rows, int64_t sequence) {
  static const double near_bytes = 1048576;
  const tr_piece *piece = tr_model_piece(model, index);
  const double n = (double)rows;
  tr_kernel_work w = {.in = n * port_width(model, piece->in, piece->nin),
                      .out = n * port_width(model, piece->out, piece->nout),
                      .weights = weight_elements(model, piece, n)};
  if (piece->ops->flops) w.flops = n * piece->ops->flops(piece, sequence);
  w.exps = exponentials(model, piece, n, w.flops);
  w.far = fmax(w.in + w.out - near_bytes / (double)tr_dtype_size(type), 0);
  return w;
}

// ---- prices

static void features(const tr_kernel_work *w, double out[TR_KERNEL_TERMS]) {
  const double all[TR_KERNEL_TERMS] = {1, w->in, w->out, w->weights, w->flops, w->exps, w->far};
  memcpy(out, all, sizeof all);
}

double tr_kernel_seconds(const tr_kernel_rate *rate, const tr_kernel_work *work) {
  double x[TR_KERNEL_TERMS], seconds = 0;
  features(work, x);
  for (int j = 0; j < TR_KERNEL_TERMS; j++) seconds += rate->price[j] * x[j];
  return seconds;
}

// n measurements: term j of the i-th as a share of its scale, and what is not explained yet.
typedef struct equations {
  size_t n;
  double *share; // [n][TERMS]
  double *rest;  // [n]
} equations;

// One round over all terms; returns the largest relative change of a price.
static double descend(const equations *s, double price[TR_KERNEL_TERMS]) {
  double change = 0;
  for (int j = 0; j < TR_KERNEL_TERMS; j++) {
    double square = 0, product = 0;
    for (size_t i = 0; i < s->n; i++) {
      const double x = s->share[i * TR_KERNEL_TERMS + (size_t)j];
      square += x * x;
      product += x * s->rest[i];
    }
    if (!(square > 0)) continue;
    const double before = price[j], now = fmax(before + product / square, 0);
    for (size_t i = 0; i < s->n; i++) s->rest[i] -= (now - before) * s->share[i * TR_KERNEL_TERMS + (size_t)j];
    price[j] = now;
    if (now != before) change = fmax(change, fabs(now - before) / fmax(now, before));
  }
  return change;
}

tr_status tr_kernel_fit(const tr_kernel_work *work, const double *seconds, const double *scale, size_t n,
                        tr_kernel_rate *out) {
  enum { ROUNDS = 20000 };
  equations s = {n, malloc((n + 1) * TR_KERNEL_TERMS * sizeof *s.share), malloc((n + 1) * sizeof *s.rest)};
  if (!s.share || !s.rest) {
    free(s.share);
    free(s.rest);
    return tr_error(TR_ERR_MEMORY, "no memory for a fit of %zu measurements", n);
  }
  if (!scale) scale = seconds;
  for (size_t i = 0; i < n; i++) {
    double x[TR_KERNEL_TERMS];
    features(&work[i], x);
    for (int j = 0; j < TR_KERNEL_TERMS; j++) s.share[i * TR_KERNEL_TERMS + (size_t)j] = x[j] / scale[i];
    s.rest[i] = seconds[i] / scale[i];
  }
  for (int j = 0; j < TR_KERNEL_TERMS; j++) out->price[j] = 0;
  for (int k = 0; k < ROUNDS && descend(&s, out->price) > 1e-7;) k++;
  for (size_t i = 0; i < n; i++) s.rest[i] = fabs(s.rest[i]);
  tr_sort_doubles(s.rest, n);
  out->error = n ? s.rest[n / 2] : 0;
  free(s.share);
  free(s.rest);
  return TR_OK;
}

// ---- the table

static const tr_kernel_rate *find(const tr_kernel_rates *t, const tr_kernel_rate *like, int ranks, int threads) {
  for (size_t i = 0; i < t->n; i++) {
    const tr_kernel_rate *r = &t->row[i];
    if (r->ranks == ranks && r->threads == threads && r->pass == like->pass && r->type == like->type &&
        strcmp(r->kind, like->kind) == 0)
      return r;
  }
  return NULL;
}

// The most of `value`, ranks or threads, that such a row was measured with where the other is 1.
static int most_of(const tr_kernel_rates *t, const tr_kernel_rate *like, int of_threads) {
  int most = 0;
  for (size_t i = 0; i < t->n; i++) {
    const tr_kernel_rate *r = &t->row[i];
    const int value = of_threads ? r->threads : r->ranks, other = of_threads ? r->ranks : r->threads;
    if (other == 1 && value > most && find(t, like, r->ranks, r->threads) == r) most = value;
  }
  return most;
}

// One thread each: between one rank and as many as were measured, in proportion; more are as slow as those.
static double of_ranks(const tr_kernel_rates *t, const tr_kernel_rate *like, int ranks, const tr_kernel_work *work) {
  const int most = most_of(t, like, 0);
  const tr_kernel_rate *alone = find(t, like, 1, 1), *full = find(t, like, most, 1);
  if (!alone) return -1;
  const double one = tr_kernel_seconds(alone, work);
  if (most < 2 || !full || ranks < 2) return one;
  const double all = tr_kernel_seconds(full, work), share = ranks < most ? (ranks - 1.0) / (most - 1.0) : 1;
  return one + share * (all - one);
}

double tr_kernel_rates_seconds(const tr_kernel_rates *t, const char *kind, tr_kernel_pass pass, tr_dtype type,
                               int ranks, int threads, const tr_kernel_work *work) {
  tr_kernel_rate like = {.pass = pass, .type = type};
  strncpy(like.kind, kind, sizeof like.kind - 1);
  const tr_kernel_rate *same = find(t, &like, ranks, threads);
  if (same) return tr_kernel_seconds(same, work);
  const double one = of_ranks(t, &like, ranks * threads, work);
  if (threads == 1 || one < 0) return one;
  // Threads: a power of how many, such that what was measured with all cores comes out.
  const int most = most_of(t, &like, 1);
  const tr_kernel_rate *wide = most > 1 ? find(t, &like, 1, most) : NULL;
  if (!wide) return -1;
  return one * pow(tr_kernel_seconds(wide, work) / of_ranks(t, &like, most, work), log(threads) / log(most));
}
