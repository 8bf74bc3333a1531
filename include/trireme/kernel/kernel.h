// SPDX-License-Identifier: MIT
// Kernels: the mathematics of one rank, as pure functions on plain row-major arrays.
//
// A tr_kernels table holds one implementation of every operation: `tr_kernels_reference()` is the naive twin,
// written for reading, kept for ever, and the yardstick of every other table; `tr_kernels_cpu()` is the fast one
// for this processor. A tr_compute is what a kernel runs on: table, thread pool, scratch memory. Kernels never
// allocate; each says through its *_scratch function how much of compute->scratch it will use. They take pointers
// per call and keep none.
//
// Types. `type` is the type of activations and weights: f32, bf16, and f64 for the reference table only. Statistics,
// losses and weight gradients have type tr_wide(type): f64 for f64, else f32. Sums are accumulated in f32 or better.
// Work is cut into tasks by sizes only, never by the number of threads, so bits do not depend on it. Empty inputs are
// valid everywhere (a weight gradient with `add` 0 and no rows is written as zeros).
//
// `add` 0: the output is overwritten; 1: the result is added to it (gradients after a step's first contribution).
#ifndef TRIREME_KERNEL_KERNEL_H
#define TRIREME_KERNEL_KERNEL_H

#include "trireme/base/arena.h"
#include "trireme/base/philox.h"
#include "trireme/base/pool.h"
#include "trireme/base/status.h"
#include "trireme/tensor/dtype.h"
#include <stddef.h>
#include <stdint.h>

typedef struct tr_kernels tr_kernels;

typedef struct tr_compute {
  const tr_kernels *kernels;
  tr_pool *pool;     // NULL: the caller's thread only
  tr_arena *scratch; // used between a mark and a reset inside each call
  void *backend;     // the table's own state (oneDNN engine, primitive cache); NULL for the reference table
} tr_compute;

// Set up `out` on these (kept, not owned). The backend state is made by the table; TR_ERR_MEMORY or TR_ERR_INTERNAL.
tr_status tr_compute_open(const tr_kernels *kernels, tr_pool *pool, tr_arena *scratch, tr_compute *out);
void tr_compute_close(tr_compute *compute);

static inline tr_dtype tr_wide(tr_dtype type) { return type == TR_F64 ? TR_F64 : TR_F32; }

// A weight W [rows, cols] in the order in which a product's inner loop reads it, made once per update instead of once
// per product. FORWARD is for x W^T (trans_b, n = rows, k = cols), BACKWARD for dy W (n = cols, k = rows).
typedef enum tr_pack { TR_PACK_FORWARD, TR_PACK_BACKWARD, TR_PACKS } tr_pack;

// C[m, n] (+)= A B (+ bias on every row). A is [m, k], or [k, m] when trans_a; B is [k, n], or [n, k] when
// trans_b. Leading dimensions in elements. Types: A and B `type`; C `type` or tr_wide(type). bias has `type`, n
// elements, NULL for none. `b_packed`: B is what the table's pack made of a whole weight, FORWARD when trans_b, else
// BACKWARD; ldb is not read, the bits of the result are those of the plain B.
typedef struct tr_matmul {
  int64_t m, n, k;
  int trans_a, trans_b;
  int64_t lda, ldb, ldc;
  tr_dtype type, type_c;
  int add, b_packed;
} tr_matmul;

// Dropout by counter: element (row, feature) is kept when uniform(key, sample[row], position[row], feature) >= p and
// then scaled by 1 / (1 - p). p 0: off, the rest is not read.
typedef struct tr_dropout {
  float p;
  tr_rng_key key;
  const int64_t *sample;   // [rows] global sample index
  const int32_t *position; // [rows] position in the sample
} tr_dropout;

// Attention of rows cut into sequences. A query row i sees a key row j of the same sequence when
// key_pos[j] <= query_pos[i] (causal; positions are global within the document, so a rank may hold any part of it) and,
// with a window, query_pos[i] - key_pos[j] < window.
// Row r of head h lies at q + r * ld_q + h * dim. head_kv divides head: query head h uses head
// h / (head / head_kv) of the keys and values.
//
// Keys may come in several calls: `first` and `last` mark the first and the last one, and tr_attention_running
// carries the online softmax between them. One call over all keys has both set and may pass NULL for it. The last
// call writes out and lse (log of the sum of exponentials, [nquery, head]). Dropout acts on the probabilities; its
// feature number is h * dropout_stride + key position.
typedef struct tr_attention {
  int nseq;
  // [nseq + 1] first row of each sequence; the last entry is the number of rows
  const int32_t *query_start, *key_start;
  const int32_t *query_pos, *key_pos; // [rows]
  int head, head_kv, dim;
  int64_t ld_q, ld_k, ld_v, ld_out;
  tr_dtype type;
  float scale;    // usually 1 / sqrt(dim)
  int64_t window; // keys that a query sees, itself included; 0: all
  int first, last;
  tr_dropout dropout;
  int64_t dropout_stride;
} tr_attention;

typedef struct tr_attention_running { // wide type; all NULL when one call sees all keys
  void *max, *sum;                    // [nquery, head]
  void *out;                          // [nquery, head, dim], unnormalised
} tr_attention_running;

// Gradient of attention. dq, dk, dv have the layout (leading dimensions included) of q, k, v and type `grad_type`
// (`type` or wide); each is overwritten or added to. lse and out are the forward's final ones (over all keys).
typedef struct tr_attention_grad {
  const void *q, *k, *v, *out, *lse, *dout; // dout: ld_out
  void *dq, *dk, *dv;
  tr_dtype grad_type;
  int add;
} tr_attention_grad;

// RMSNorm (Zhang and Sennrich, "Root mean square layer normalization"): y = x * rstd * gamma with
// rstd = 1 / sqrt(mean(x^2) + eps), over `count` vectors of `width` in each row: vector i of row r lies at
// x + r * ld_x + i * width. A layer's norm has count 1; norms of heads have one vector per head. rstd is
// [rows, count], wide.
typedef struct tr_rmsnorm {
  int64_t rows, count, width, ld_x, ld_y;
  tr_dtype type;
  float eps;
} tr_rmsnorm;

// Rotary positions (Su et al., "RoFormer"), in the half-split form of Hugging Face: elements i and i + dim / 2 of each
// of the first `count` vectors of a row turn by position[r] * frequency[i] (product in f32, or f64 for f64). Vector h
// of row r lies at x + r * ld + h * dim. `inverse` turns back: the gradient. `scale` multiplies the result.
typedef struct tr_rope {
  int64_t rows, count, dim, ld;
  tr_dtype type;
  const int32_t *position; // [rows]
  const double *frequency; // [dim / 2], rounded to f32 unless type is f64
  double scale;
  int inverse;
} tr_rope;

// The output projection and the cross-entropy, one tile of rows at a time, so full logits never exist. For row r with
// target t >= 0: loss[r] = log sum exp(logits) - logits[t], logits = x[r] . w[v] for v < vocab. Targets < 0 are
// ignored: loss 0, no gradient. When dx is not NULL: dx[r] = scale * dloss[r]/dx[r], and dw (+)= scale * sum over
// rows (dw NULL: not wanted).
typedef struct tr_head_loss {
  int64_t rows, width, vocab;
  tr_dtype type;
  double scale;                 // 1 / (valid tokens of the whole step)
  const void *x;                // [rows, width]
  const void *w;                // [vocab, width]
  const void *packed[TR_PACKS]; // of w; NULL: not packed
  const int32_t *target;        // [rows]
  void *loss;                   // [rows], wide
  void *dx;                     // [rows, width], type; may be NULL
  void *dw;                     // [vocab, width], wide; may be NULL
  int add;                      // for dw
} tr_head_loss;

// One step of AdamW (Loshchilov and Hutter, "Decoupled weight decay regularization") on a flat range, f32:
// g' = grad_scale g; m = b1 m + (1-b1) g'; v = b2 v + (1-b2) g'^2;
// w = w - lr (decay w + (m / bias1) / (sqrt(v / bias2) + eps)), bias_i = 1 - b_i^t given by the caller.
// Both optimizers also write the new weights as `type` to `working`, unless that is NULL.
typedef struct tr_adamw {
  float lr, beta1, beta2, eps, decay, bias1, bias2, grad_scale;
} tr_adamw;
// SGD with momentum and decay as in PyTorch: g' = grad_scale g + decay w; buf = momentum buf + g' (buf = g' when
// `first`); w = w - lr (nesterov ? g' + momentum buf : buf). momentum 0: buf is not used and may be NULL.
typedef struct tr_sgd {
  float lr, momentum, decay, grad_scale;
  int nesterov, first;
} tr_sgd;

struct tr_kernels {
  const char *name;                       // "reference", "cpu-avx2", ...
  tr_status (*open)(tr_compute *compute); // optional: make backend state
  void (*close)(tr_compute *compute);

  tr_status (*matmul)(const tr_compute *c, const tr_matmul *p, const void *a, const void *b, const void *bias,
                      void *out);
  size_t (*matmul_scratch)(const tr_matmul *p, int nthread);
  // Bytes that a packed weight [rows, cols] takes; 0: this table gains nothing by it. NULL: never.
  size_t (*pack_size)(tr_dtype type, int64_t rows, int64_t cols, tr_pack use);
  // Write part `part` of `parts` of the packed form of w. Parts are disjoint and make the whole, whatever their number,
  // so several ranks may pack one weight.
  void (*pack)(const tr_compute *c, tr_dtype type, int64_t rows, int64_t cols, tr_pack use, const void *w, int part,
               int parts, void *packed);

  // y = (x - mean) * rstd * gamma + beta over rows of `width`; mean and rstd [rows], wide (may be NULL: not wanted).
  void (*layernorm_forward)(const tr_compute *c, int64_t rows, int64_t width, tr_dtype type, float eps, const void *x,
                            const void *gamma, const void *beta, void *y, void *mean, void *rstd);
  // The gradients of x (added to dx when add_dx), and of gamma and beta ([width], wide; added to when add).
  void (*layernorm_backward)(const tr_compute *c, int64_t rows, int64_t width, tr_dtype type, const void *dy,
                             const void *x, const void *gamma, const void *mean, const void *rstd, void *dx,
                             int add_dx, void *dgamma, void *dbeta, int add);
  size_t (*layernorm_backward_scratch)(int64_t rows, int64_t width, tr_dtype type);

  // In place (y == x with ld_y == ld_x) allowed. rstd may be NULL: not wanted.
  void (*rmsnorm_forward)(const tr_compute *c, const tr_rmsnorm *p, const void *x, const void *gamma, void *y,
                          void *rstd);
  // dy has ld_y, x and dx have ld_x. dx is overwritten or added to (add_dx); dx == dy allowed when ld_x == ld_y and
  // add_dx is 0. dgamma [width], wide, overwritten or added to (add): the sum over rows and vectors.
  void (*rmsnorm_backward)(const tr_compute *c, const tr_rmsnorm *p, const void *dy, const void *x, const void *gamma,
                           const void *rstd, void *dx, int add_dx, void *dgamma, int add);
  size_t (*rmsnorm_backward_scratch)(const tr_rmsnorm *p);

  void (*rope)(const tr_compute *c, const tr_rope *p, void *x); // in place

  // y = silu(gate) * up, where a row of x is [gate | up], each `width` wide, and silu(g) = g / (1 + exp(-g)).
  void (*swiglu_forward)(const tr_compute *c, int64_t rows, int64_t width, tr_dtype type, const void *x, void *y);
  void (*swiglu_backward)(const tr_compute *c, int64_t rows, int64_t width, tr_dtype type, const void *x,
                          const void *dy, void *dx); // dx [rows, 2 width], overwritten; dx == x allowed

  // GELU, tanh form: 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))). In place allowed.
  void (*gelu_forward)(const tr_compute *c, size_t n, tr_dtype type, const void *x, void *y);
  void (*gelu_backward)(const tr_compute *c, size_t n, tr_dtype type, const void *x, const void *dy, void *dx);

  // y[r] = dropout(wte[token[r]] + wpe[position[r]]); wpe may be NULL.
  void (*embedding_forward)(const tr_compute *c, int64_t rows, int64_t width, tr_dtype type, const int32_t *token,
                            const int32_t *position, const void *wte, const void *wpe, const tr_dropout *dropout,
                            void *y);
  // dwte[vocab, width], dwpe[npos, width] wide (+)= scatter of dropout'(dy).
  void (*embedding_backward)(const tr_compute *c, int64_t rows, int64_t width, tr_dtype type, const int32_t *token,
                             const int32_t *position, const tr_dropout *dropout, const void *dy, void *dwte,
                             int64_t vocab, int add_wte, void *dwpe, int64_t npos, int add_wpe);

  // out = x + dropout(y). In place (out == x) allowed.
  void (*residual_forward)(const tr_compute *c, int64_t rows, int64_t width, tr_dtype type, const void *x,
                           const void *y, const tr_dropout *dropout, void *out);
  // dy = dropout'(dout). In place allowed. (dx is dout itself.)
  void (*dropout_backward)(const tr_compute *c, int64_t rows, int64_t width, tr_dtype type, const tr_dropout *dropout,
                           const void *dout, void *dy);

  tr_status (*attention_forward)(const tr_compute *c, const tr_attention *p, const void *q, const void *k,
                                 const void *v, const tr_attention_running *running, void *out, void *lse);
  tr_status (*attention_backward)(const tr_compute *c, const tr_attention *p, const tr_attention_grad *g);
  size_t (*attention_scratch)(const tr_attention *p, int nthread); // enough for both

  tr_status (*head_loss)(const tr_compute *c, const tr_head_loss *p);
  size_t (*head_loss_scratch)(const tr_head_loss *p, int nthread);

  // out[j] (+)= sum over rows of dy[r, j]; out wide: the gradient of a bias.
  void (*column_sum)(const tr_compute *c, int64_t rows, int64_t width, tr_dtype type, const void *dy, void *out,
                     int add);
  size_t (*column_sum_scratch)(int64_t rows, int64_t width, tr_dtype type);

  void (*adamw)(const tr_compute *c, size_t n, const tr_adamw *p, float *w, const float *g, float *m, float *v,
                tr_dtype type, void *working);
  void (*sgd)(const tr_compute *c, size_t n, const tr_sgd *p, float *w, const float *g, float *momentum,
              tr_dtype type, void *working);
  // out[i] = sum of squares of elements [i block, (i + 1) block) below n, in f64, in an order fixed by the count.
  void (*sum_squares)(const tr_compute *c, size_t n, size_t block, const float *x, double *out);
  void (*add)(const tr_compute *c, size_t n, tr_dtype type, const void *x, void *y); // y += x
  void (*convert)(const tr_compute *c, size_t n, tr_dtype from, const void *x, tr_dtype to, void *y);
};

const tr_kernels *tr_kernels_reference(void);
const tr_kernels *tr_kernels_cpu(void); // the best table for tr_cpu_isa(); same operations, faster

// The best matmul rate this processor can reach in `type`, floating-point operations per second of `nthread` threads,
// measured by a register-only loop of its widest multiply-add (AMX, AVX-512, AVX2 or plain) for about `seconds`. The
// denominator of "share of peak".
double tr_kernel_peak(tr_dtype type, int nthread, double seconds);
// The same per second of processor time: what they would reach if nothing else ran, however busy the machine is now.
double tr_kernel_peak_alone(tr_dtype type, int nthread, double seconds);

#endif
