// SPDX-License-Identifier: MIT
// Optimizers over flat ranges of f32, and the rules that set the learning rate.
//
// A rank's share of the weights is a flat range; `segments` say which part of it belongs to which parameter
// role, so that decay can go by role (matrices and embeddings decay, biases and norms do not, unless
// decay_all). State arrays have the layout of the weights: AdamW two (m, v), SGD one with momentum, none
// without. Local: nothing here communicates.
#ifndef TRIREME_OPTIM_OPTIM_H
#define TRIREME_OPTIM_OPTIM_H

#include "trireme/kernel/kernel.h"
#include "trireme/model/role.h"

typedef enum tr_optim_kind { TR_OPTIM_ADAMW, TR_OPTIM_SGD } tr_optim_kind;

typedef struct tr_optim {
  tr_optim_kind kind;
  double beta1, beta2, eps, weight_decay; // AdamW; weight_decay for both
  double momentum;
  int nesterov;
  int decay_all; // decay every role
} tr_optim;

enum { TR_OPTIM_MAX_STATE = 2 };

typedef struct tr_optim_segment {
  size_t start, count; // in elements
  tr_param_role role;
} tr_optim_segment;

int tr_optim_state_count(const tr_optim *optim);               // arrays of f32 per weight
const char *tr_optim_state_name(const tr_optim *optim, int i); // "exp_avg", "exp_avg_sq", "momentum_buffer"
int tr_optim_decays(const tr_optim *optim, tr_param_role role);

// Update w in place from g for update number `step` (from 1) at rate lr, gradients first multiplied by grad_scale
// (the clip factor). state[i] has as many elements as w. The new weights also go, as `type`, to `working`, which has as
// many elements as w (NULL: w is the working copy). Elements outside every segment (padding) are left alone.
void tr_optim_update(const tr_compute *c, const tr_optim *optim, int64_t step, double lr, double grad_scale,
                     const tr_optim_segment *segments, size_t nsegment, float *w, const float *g, float *const *state,
                     tr_dtype type, void *working);

// Clip factor for a gradient norm: min(1, max_norm / (norm + 1e-6)); 1 when max_norm <= 0.
double tr_clip_factor(double norm, double max_norm);

typedef enum tr_lr_kind { TR_LR_COSINE, TR_LR_LINEAR, TR_LR_WSD, TR_LR_CONSTANT } tr_lr_kind;

// Warm-up, then decay. The rate at step s (from 0) of `steps` is lr (s + 1) / warmup while s < warmup. After that,
// with x = (s - warmup) / max(1, steps - warmup) clamped to [0, 1]:
//   cosine     min_lr + (lr - min_lr) (1 + cos(pi x)) / 2
//   linear     lr + (min_lr - lr) x
//   wsd        (warm-up, stable, decay) lr until the last decay_steps steps, then linearly to min_lr
//   constant   lr
typedef struct tr_lr {
  tr_lr_kind kind;
  double lr, min_lr;
  int64_t warmup, steps, decay_steps;
} tr_lr;
double tr_lr_at(const tr_lr *rule, int64_t step);

#endif
