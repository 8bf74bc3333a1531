// SPDX-License-Identifier: MIT
// A tiny model whose layers send their rows to other ranks and back, as layers of experts do, with a piece of its own: `swap` gives
// what it reads to the other of two ranks and takes what that one reads. Attention's place is held by a product.
//
//   x --- norm --- mix --- swap ... up --- gelu --- down ... swap --- + --- x'
//    \_______________________________________________________________/
//
// In front of each swap there may be `work`, which passes on what it reads, and takes a set amount of time to do so.
//
// Between the swaps a rank works for the other, with the same weights. So everything is what it would be without swaps, and a
// gradient's sum over the two ranks has the same terms in the other order: the same bits.
#ifndef TRIREME_TESTS_RUN_EXCHANGE_MODEL_H
#define TRIREME_TESTS_RUN_EXCHANGE_MODEL_H

#include "trireme/base/clock.h"
#include "trireme/model/model.h"
#include "trireme/model/piece.h"
#include <stdio.h>
#include <string.h>

typedef struct ex_config {
  int layers;
  int64_t width, hidden, vocab, positions;
  int64_t rows; // of every micro-batch that is exchanged
  // Work forward, and twice as much backward; NULL: no such pieces.
  void (*spend)(int64_t amount);
  int64_t amount;
} ex_config;

// ---- the piece

typedef struct ex_swap {
  int64_t width, rows;
  size_t start[2][3]; // by group index: everything goes to the other rank, and comes from there
} ex_swap;

static inline tr_status ex_exchange(const tr_piece_call *c, const void *from, void *to) {
  const ex_swap *swap = c->piece->config;
  size_t nelem = (size_t)(c->input->rows * swap->width);
  if (!c->peers) {
    memcpy(to, from, nelem * tr_dtype_size(c->type));
    return TR_OK;
  }
  if (c->input->rows != swap->rows || tr_group_size(c->peers) != 2)
    return tr_error(TR_ERR_CONFIG, "piece '%s' exchanges %lld rows with one rank, not %lld with %d", c->piece->name,
                    (long long)swap->rows, (long long)c->input->rows, tr_group_size(c->peers) - 1);
  const size_t *start = swap->start[tr_group_rank(c->peers)];
  return tr_group_alltoall_v(c->peers, from, start, to, start, c->type, c->request);
}

static inline tr_status ex_swap_forward(const tr_piece_call *c) { return ex_exchange(c, c->in[0], c->out[0]); }
static inline tr_status ex_swap_backward(const tr_piece_call *c) { return ex_exchange(c, c->dout[0], c->din[0]); }

static const tr_piece_ops ex_swap_ops = {
    .kind = "swap", .exchanges = 1, .forward = ex_swap_forward, .backward_input = ex_swap_backward};

static inline void ex_add_swap(tr_model *model, const char *name, const ex_config *c, int x, int y) {
  const size_t n = (size_t)(c->rows * c->width);
  ex_swap swap = {.width = c->width, .rows = c->rows, .start = {{0, 0, n}, {0, n, n}}};
  tr_piece piece = {.name = name,
                    .ops = &ex_swap_ops,
                    .unit = -1,
                    .nin = 1,
                    .in = {{.value = x, .use = TR_SET_GRAD}},
                    .nout = 1,
                    .out = {{.value = y}},
                    .config = &swap,
                    .config_nbyte = sizeof swap};
  tr_model_add_piece(model, &piece);
}

// ---- work

typedef struct ex_work {
  int64_t width, amount;
  void (*spend)(int64_t amount);
} ex_work;

// The processor computes, so many loops of it.
static inline void ex_spin(int64_t loops) {
  volatile double seen = 2; // or the compiler would know what comes out
  double a = seen;
  for (int64_t i = 0; i < loops; i++) a = a * 0.999 + 0.001;
  seen = a;
}

// Something else computes for so many nanoseconds, and the processor waits for it.
static inline void ex_rest(int64_t ns) { tr_clock_sleep_ns(ns); }

static inline tr_status ex_work_forward(const tr_piece_call *c) {
  const ex_work *work = c->piece->config;
  memcpy(c->out[0], c->in[0], (size_t)(c->input->rows * work->width) * tr_dtype_size(c->type));
  work->spend(work->amount);
  return TR_OK;
}

static inline tr_status ex_work_backward(const tr_piece_call *c) {
  const ex_work *work = c->piece->config;
  memcpy(c->din[0], c->dout[0], (size_t)(c->input->rows * work->width) * tr_dtype_size(c->type));
  work->spend(2 * work->amount);
  return TR_OK;
}

static const tr_piece_ops ex_work_ops = {
    .kind = "work", .forward = ex_work_forward, .backward_input = ex_work_backward};

static inline void ex_add_work(tr_model *model, const char *name, const ex_config *c, int x, int y) {
  const ex_work work = {.width = c->width, .amount = c->amount, .spend = c->spend};
  tr_piece piece = {.name = name,
                    .ops = &ex_work_ops,
                    .unit = -1,
                    .nin = 1,
                    .in = {{.value = x, .use = TR_SET_GRAD}},
                    .nout = 1,
                    .out = {{.value = y}},
                    .config = &work,
                    .config_nbyte = sizeof work};
  tr_model_add_piece(model, &piece);
}

// ---- the model

typedef struct ex_builder {
  tr_model *model;
  const ex_config *c;
  int unit, layer;
} ex_builder;

static inline const char *ex_name(const ex_builder *b, const char *what, char out[64]) {
  snprintf(out, 64, "h.%d.%s", b->layer, what);
  return out;
}

static inline int ex_param(const ex_builder *b, const char *what, int64_t rows, int64_t columns) {
  char name[64];
  tr_param p = {.name = ex_name(b, what, name),
                .shape = tr_shape_make(columns ? 2 : 1, (const int64_t[]){rows, columns}),
                .role = columns ? TR_ROLE_MATRIX : TR_ROLE_NORM,
                .init = columns ? TR_INIT_NORMAL : TR_INIT_ONES,
                .std = 0.2};
  return tr_model_add_param(b->model, b->unit, &p);
}

static inline int ex_value(const ex_builder *b, const char *what, int64_t width) {
  char name[64];
  return tr_model_add_value(b->model, ex_name(b, what, name), TR_VALUE_ACTIVATION, width);
}

static inline int ex_state(const ex_builder *b, const char *what) {
  char name[64];
  return tr_model_add_value(b->model, ex_name(b, what, name), TR_VALUE_STATE, 1);
}

static inline int ex_linear(const ex_builder *b, const char *what, int64_t in, int64_t out, int x) {
  char name[64];
  int weight = ex_param(b, what, out, in), y = ex_value(b, what, out);
  tr_piece_linear(b->model, ex_name(b, what, name), weight, -1, x, y, 0);
  return y;
}

static inline int ex_worked(const ex_builder *b, const char *what, int x) {
  char name[64], work[32];
  if (!b->c->spend) return x;
  snprintf(work, sizeof work, "%s.work", what);
  int y = ex_value(b, work, b->c->width);
  ex_add_work(b->model, ex_name(b, work, name), b->c, x, y);
  return y;
}

static inline int ex_swapped(const ex_builder *b, const char *what, int x) {
  char name[64];
  x = ex_worked(b, what, x);
  int y = ex_value(b, what, b->c->width);
  ex_add_swap(b->model, ex_name(b, what, name), b->c, x, y);
  return y;
}

static inline int ex_layer(const ex_builder *b, int x) {
  char name[64];
  const ex_config *c = b->c;
  int scale = ex_param(b, "norm", c->width, 0), norm = ex_value(b, "norm", c->width);
  tr_piece_rmsnorm(b->model, ex_name(b, "norm", name), scale, 1e-5, x, norm, ex_state(b, "rstd"));
  int sent = ex_swapped(b, "dispatch", ex_linear(b, "mix", c->width, c->width, norm));
  int up = ex_linear(b, "up", c->width, c->hidden, sent), act = ex_value(b, "act", c->hidden);
  tr_piece_gelu(b->model, ex_name(b, "act", name), up, act);
  int back = ex_swapped(b, "combine", ex_linear(b, "down", c->hidden, c->width, act)),
      out = ex_value(b, "sum", c->width);
  tr_piece_residual(b->model, ex_name(b, "sum", name), 0, x, back, out);
  return out;
}

static inline tr_status ex_model(const ex_config *c, tr_model **out) {
  TR_TRY(tr_model_create("exchange", out));
  ex_builder b = {.model = *out, .c = c};
  tr_model_set_limits(b.model, c->vocab, c->positions);
  b.unit = tr_model_add_unit(b.model, "embedding");
  int x = ex_value(&b, "embedded", c->width), wte = ex_param(&b, "wte", c->vocab, c->width),
      wpe = ex_param(&b, "wpe", c->positions, c->width);
  tr_piece_embedding(b.model, "embedding", wte, wpe, 0, x);
  for (; b.layer < c->layers; b.layer++) {
    char name[64];
    b.unit = tr_model_add_unit(b.model, ex_name(&b, "layer", name));
    x = ex_layer(&b, x);
  }
  b.unit = tr_model_add_unit(b.model, "head");
  tr_piece_head_loss(b.model, "head", ex_param(&b, "head", c->vocab, c->width), x, ex_state(&b, "loss"));
  return tr_model_finish(b.model);
}

#endif
