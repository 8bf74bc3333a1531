// SPDX-License-Identifier: MIT
// The optimizer as anybody would write it: plain loops that the compiler makes fast for the machine it runs on. What
// bench_update lets the peer update with, besides this library's kernel.
#ifndef TRIREME_BENCH_UPDATE_PLAIN_H
#define TRIREME_BENCH_UPDATE_PLAIN_H

#include "trireme/kernel/kernel.h"

double plain_squares(size_t n, const float *x);
// AdamW as kernel.h states it; new weights also as bf16 to `working`, unless that is NULL.
void plain_adamw(size_t n, const tr_adamw *p, float *w, const float *g, float *m, float *v, uint16_t *working);

#endif
