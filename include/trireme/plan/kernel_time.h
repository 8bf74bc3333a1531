// SPDX-License-Identifier: MIT
// The library's own kernels as a time model: what a call has to do, and what this machine was seen to take for it.
//
// A piece of a model reads and writes activations, reads weights, multiplies and adds, and takes exponentials; each of these, and
// the call itself, has a price, so
//   seconds = call + in x elements read + out x elements written + weight x elements of weights + flop x FLOPs
//             + exp x exponentials (or sines) + far x elements read and written beyond the first MiB, which a core's cache has not
// for every kind of piece, pass, number type, and number of ranks that compute beside each other on one machine. A product's rate
// rises with its sizes by this too: m x n x k FLOPs against m x k + m x n + n x k elements. State has kinds of its own: "update",
// "pack" and "norm" (out: elements), and "step" for what a step takes besides (in: calls of pieces and operations, out: elements whose
// gradients are summed over ranks, far: of these what is beyond 4 Mi, flop: of all passes, where ranks wait for the slowest).
//
// `trireme bench step --write` measures the rates in steps of models of several sizes and writes them into the description of a
// cluster; nothing here measures.
#ifndef TRIREME_PLAN_KERNEL_TIME_H
#define TRIREME_PLAN_KERNEL_TIME_H

#include "trireme/model/model.h"
#include "trireme/step/program.h"

typedef enum tr_kernel_pass { TR_KERNEL_FORWARD, TR_KERNEL_BACKWARD, TR_KERNEL_PASSES } tr_kernel_pass;
const char *tr_kernel_pass_name(tr_kernel_pass pass);

// What one call has to do.
typedef struct tr_kernel_work {
  double in, out, weights, flops, exps, far;
} tr_kernel_work;
enum { TR_KERNEL_TERMS = 7 };
extern const char *const tr_kernel_term[TR_KERNEL_TERMS]; // "call", "in", ...: the names of prices

// A forward pass of a piece over `rows` tokens in sequences of `sequence`; backward passes read the same and are fitted apart.
tr_kernel_work tr_piece_work(const tr_model *model, int piece, tr_dtype type, int64_t rows, int64_t sequence);

enum { TR_KERNEL_KIND = 24 };
typedef struct tr_kernel_rate {
  char kind[TR_KERNEL_KIND];
  tr_kernel_pass pass;
  tr_dtype type;
  int ranks, threads;            // that computed at once, and of each
  double price[TR_KERNEL_TERMS]; // seconds of each unit of a term
  double error;                  // median of |predicted / measured - 1| of what it was fitted on
} tr_kernel_rate;

double tr_kernel_seconds(const tr_kernel_rate *rate, const tr_kernel_work *work);
// Prices >= 0 for n measurements that make the sum of squared errors least, each as a share of `scale` (NULL: of what was
// measured); sets price and error. n 0: all 0. TR_ERR_MEMORY.
tr_status tr_kernel_fit(const tr_kernel_work *work, const double *seconds, const double *scale, size_t n,
                        tr_kernel_rate *out);

// ---- a table of them
typedef struct tr_kernel_rates {
  tr_kernel_rate *row;
  size_t n;
} tr_kernel_rates;
// Seconds of a kind's work with so many ranks of so many threads at once: as measured, or between what was measured with fewer and more.
// < 0: the kind was not measured so.
double tr_kernel_rates_seconds(const tr_kernel_rates *rates, const char *kind, tr_kernel_pass pass, tr_dtype type,
                               int ranks, int threads, const tr_kernel_work *work);

#endif
