// SPDX-License-Identifier: MIT
// Laws of memory: what weights, gradients, optimizer state and activations of a transformer take, in closed form.
//
// These are the figures that people compute on paper before they plan: bytes per parameter by role, divided over ranks by a
// ZeRO stage (Rajbhandari et al., "ZeRO", 2019), and activations per block (Korthikanti et al., "Reducing activation
// recomputation in large transformer models", 2022). They leave out gathered layers, buckets, logits and buffers, so
// they are subtotals. All functions of law_*.h are pure, take and return doubles in bytes, seconds, FLOP and
// devices, and give infinity or NaN, never a trap, where an argument makes no sense.
#ifndef TRIREME_PLAN_LAW_MEMORY_H
#define TRIREME_PLAN_LAW_MEMORY_H

// Bytes per parameter. A role that is not counted is 0.
typedef struct tr_law_roles {
  double weight, gradient, optimizer; // optimizer: master weights and moments
} tr_law_roles;

tr_law_roles tr_law_roles_mixed_adam(void); // 2 + 2 + 12: bf16 weights and gradients; f32 master, momentum, variance
double tr_law_roles_sum(tr_law_roles roles);

// Bytes on one of `ranks` ranks. Stage 1 divides the optimizer's part, 2 also gradients, 3 also weights; 0 nothing.
double tr_law_state_bytes(tr_law_roles roles, double params, int zero, double ranks);
double tr_law_params_within(tr_law_roles roles, double capacity); // that fit without activations
double tr_law_devices_for(double bytes, double capacity);         // ceil(bytes / capacity), at least 1

double tr_law_block_params(double layers, double width); // 12 L d^2: attention 4 d^2, feed-forward 8 d^2
// Residual blocks LayerNorm(d), d -> k d, k d -> d with biases: 2 k d^2 + (k + 3) d each.
double tr_law_mlp_params(double blocks, double width, double expansion);

// A stack of transformer blocks and one micro-batch in it.
typedef struct tr_law_blocks {
  double layers, width, heads, sequence, micro; // L, h, a, s, b
} tr_law_blocks;

typedef enum tr_law_keep {
  TR_LAW_KEEP_ALL,   // s b h (34 + 5 a s / h) per layer: attention scores are stored
  TR_LAW_KEEP_TILED, // 34 s b h: attention in tiles stores no scores
  TR_LAW_KEEP_INPUT, // 2 s b h: full recomputation keeps block inputs only
} tr_law_keep;

// 2-byte activations of all layers on one of `tp` tensor ranks, without logits. Without sequence parallelism what lies
// outside the matrix products (10 s b h; the block input) is on every rank in full.
double tr_law_activation_bytes(const tr_law_blocks *blocks, tr_law_keep keep, double tp, int sequence_parallel);
// One tensor [b, s, h]: what goes over a pipeline boundary, or into one tensor-parallel sum. `nbyte` per element.
double tr_law_boundary_bytes(const tr_law_blocks *blocks, double nbyte);

// Gradient accumulation over K micro-batches: one buffer whatever K; (K - 1) / K of the synchronisations saved; and the
// time of K micro-batches for each update, so it makes a batch possible and not a step faster.
typedef struct tr_law_accumulation {
  double buffer, saved, batch; // bytes, share, samples per update
} tr_law_accumulation;
tr_law_accumulation tr_law_accumulate(double params, double nbyte, double ranks, double micro, double passes);

#endif
