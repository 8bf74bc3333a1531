// SPDX-License-Identifier: MIT
// Optimizers: which state they keep, which parameters decay, and the walk over the segments of a flat range.
//
// The arithmetic per element is the kernel table's (adamw, sgd); here the numbers that are the same for every
// element of a segment are made, in double, and rounded once. Elements between segments are padding of the
// layout and are never read or written.
#include "trireme/optim/optim.h"

static const char *const adamw_state[] = {"exp_avg", "exp_avg_sq"};
static const char *const sgd_state[] = {"momentum_buffer"};

int tr_optim_state_count(const tr_optim *optim) {
  if (optim->kind == TR_OPTIM_ADAMW) return 2;
  return optim->momentum != 0 ? 1 : 0;
}

const char *tr_optim_state_name(const tr_optim *optim, int i) {
  if (i < 0 || i >= tr_optim_state_count(optim)) return "";
  return optim->kind == TR_OPTIM_ADAMW ? adamw_state[i] : sgd_state[i];
}

int tr_optim_decays(const tr_optim *optim, tr_param_role role) {
  return optim->decay_all || role == TR_ROLE_MATRIX || role == TR_ROLE_EMBEDDING;
}

// base^n for n >= 0 by squaring: the same bits with every C library, which pow() does not promise.
static double power(double base, int64_t n) {
  double result = 1;
  for (; n > 0; n >>= 1, base *= base) {
    if (n & 1) result *= base;
  }
  return result;
}

// One segment's arrays.
typedef struct range {
  size_t count;
  float *w;
  const float *g;
  float *state[TR_OPTIM_MAX_STATE];
  tr_dtype type;
  void *working;
} range;

static range range_of(const tr_optim *optim, const tr_optim_segment *s, float *w, const float *g, float *const *state,
                      tr_dtype type, void *working) {
  range r = {.count = s->count, .w = w + s->start, .g = g + s->start, .type = type};
  for (int i = 0; i < tr_optim_state_count(optim); i++) r.state[i] = state[i] + s->start;
  if (working) r.working = (char *)working + s->start * tr_dtype_size(type);
  return r;
}

void tr_optim_update(const tr_compute *c, const tr_optim *optim, int64_t step, double lr, double grad_scale,
                     const tr_optim_segment *segments, size_t nsegment, float *w, const float *g, float *const *state,
                     tr_dtype type, void *working) {
  tr_adamw adamw = {.lr = (float)lr,
                    .beta1 = (float)optim->beta1,
                    .beta2 = (float)optim->beta2,
                    .eps = (float)optim->eps,
                    .bias1 = (float)(1 - power(optim->beta1, step)),
                    .bias2 = (float)(1 - power(optim->beta2, step)),
                    .grad_scale = (float)grad_scale};
  tr_sgd sgd = {.lr = (float)lr,
                .momentum = (float)optim->momentum,
                .grad_scale = (float)grad_scale,
                .nesterov = optim->nesterov,
                .first = step == 1};
  for (size_t i = 0; i < nsegment; i++) {
    range r = range_of(optim, &segments[i], w, g, state, type, working);
    adamw.decay = sgd.decay = tr_optim_decays(optim, segments[i].role) ? (float)optim->weight_decay : 0;
    if (optim->kind == TR_OPTIM_ADAMW)
      c->kernels->adamw(c, r.count, &adamw, r.w, r.g, r.state[0], r.state[1], r.type, r.working);
    else
      c->kernels->sgd(c, r.count, &sgd, r.w, r.g, r.state[0], r.type, r.working);
  }
}

double tr_clip_factor(double norm, double max_norm) {
  if (max_norm <= 0) return 1;
  double factor = max_norm / (norm + 1e-6);
  return factor > 1 ? 1 : factor; // a NaN norm stays visible as a NaN factor
}
