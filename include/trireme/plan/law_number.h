// SPDX-License-Identifier: MIT
// Laws of number types: the range of small floating-point formats, and which bytes become fewer by them.
//
// A format with e exponent and m mantissa bits has the bias 2^(e-1) - 1. IEEE formats keep the largest exponent for infinity
// and NaN (E5M2, f16, bf16); "fn" formats only its last pattern (E4M3; Micikevicius et al., "FP8 formats for deep learning",
// 2022). Bytes are halved only of what is stored or sent in the type: products in FP8 whose gradients are summed in 16 bits
// keep their bytes on the wire.
#ifndef TRIREME_PLAN_LAW_NUMBER_H
#define TRIREME_PLAN_LAW_NUMBER_H

typedef struct tr_law_format {
  int exponent, mantissa, fn;
} tr_law_format;

double tr_law_format_largest(tr_law_format format);  // finite
double tr_law_format_smallest(tr_law_format format); // subnormal above 0
double tr_law_format_step(tr_law_format format);     // relative spacing at 1
double tr_law_format_bytes(tr_law_format format);

// Bytes after a share of `bytes` (by what is stored or sent) is kept in `to` instead of `from` bytes per element.
double tr_law_narrowed(double bytes, double share, double from, double to);

#endif
