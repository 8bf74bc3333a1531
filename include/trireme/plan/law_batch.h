// SPDX-License-Identifier: MIT
// Laws of the batch: how large it may grow, what it saves, and which learning-rate rule goes with it.
//
// The critical batch size is the gradient noise scale tr(Sigma) / |G|^2 (McCandlish et al., "An empirical model of
// large-batch training", 2018). Towards it steps fall as 1 / B and samples hardly rise; beyond it the reverse:
// (steps/S - 1)(samples/E - 1) = 1. Below it the learning rate goes up with the batch (Goyal et al., 2017), above it with the
// square root (Krizhevsky, 2014), until neither helps.
#ifndef TRIREME_PLAN_LAW_BATCH_H
#define TRIREME_PLAN_LAW_BATCH_H

double tr_law_batch(double ranks, double micro, double passes); // samples per update
double tr_law_critical_batch(double noise_trace, double gradient_square);
// From squared norms of gradients of two batch sizes: |G_B|^2 = |G|^2 + tr(Sigma) / B. NaN unless small < large.
typedef struct tr_law_noise {
  double trace, gradient_square, critical;
} tr_law_noise;
tr_law_noise tr_law_noise_from(double small, double small_square, double large, double large_square);

// Tokens, of language models at this loss in nats: 2e8 / loss^(1/0.21) (Kaplan et al., 2020).
double tr_law_critical_tokens(double loss);

double tr_law_steps_factor(double batch, double critical);   // 1 + B*/B: steps, against the fewest possible
double tr_law_samples_factor(double batch, double critical); // 1 + B/B*: samples, against the fewest possible
double tr_law_iterations(double one, double batch, double times, double critical); // of a batch `times` as large

typedef enum tr_law_lr_rule { TR_LAW_LR_LINEAR, TR_LAW_LR_SQRT } tr_law_lr_rule;
tr_law_lr_rule tr_law_lr_rule_for(double batch, double critical); // linear up to the critical size
double tr_law_lr_factor(tr_law_lr_rule rule, double times);       // for a batch `times` the base

// Bound on the mean squared gradient norm of SGD over K steps of B samples, 2 D / (lr K) + lr L sigma^2 / B, D = loss to go, L
// smoothness (Ghadimi and Lan, 2013), and the rate that makes it least: both terms are equal there.
typedef struct tr_law_sgd {
  double to_go, smoothness, variance, batch, steps;
} tr_law_sgd;
double tr_law_sgd_rate(const tr_law_sgd *sgd);
double tr_law_sgd_bound(const tr_law_sgd *sgd, double rate);

double tr_law_per_rank(double samples, double ranks);

#endif
