// SPDX-License-Identifier: MIT
// What a message costs: seconds = alpha + beta * bytes, fitted to measured points.
//
// The sum of the squares of (fitted / measured - 1) is made least, so that 8 bytes and 1 GiB count alike. Errors are
// standard errors of such a fit; they are 0 where two points leave nothing to judge by. Neither parameter is negative:
// when the best line has a negative one, the best line with that one 0 is given.
#ifndef TRIREME_COMM_FIT_H
#define TRIREME_COMM_FIT_H

#include "trireme/base/status.h"
#include <stddef.h>

typedef struct tr_fit {
  double alpha, beta;             // seconds, seconds per byte
  double alpha_error, beta_error; // in the same units
  double residual;                // root of the mean square of fitted / measured - 1
  size_t n;
} tr_fit;

// Pure. TR_ERR_DATA for fewer than two different sizes, or a time that is not above 0.
tr_status tr_fit_line(const double *bytes, const double *seconds, size_t n, tr_fit *out);
// What a line is worth. ROUGH: the times are off it by more than a quarter, as caches and busy machines make them; its
// parameters are estimates. VOID: by more than half, or one of its parameters is 0: nothing is to be planned with it.
typedef enum tr_fit_worth { TR_FIT_GOOD, TR_FIT_ROUGH, TR_FIT_VOID } tr_fit_worth;
tr_fit_worth tr_fit_judge(const tr_fit *fit);      // Pure.
const char *tr_fit_worth_name(tr_fit_worth worth); // "good", "rough", "void"
static inline double tr_fit_seconds(const tr_fit *fit, double bytes) { return fit->alpha + fit->beta * bytes; }

// Bandwidth over size: what a curve of measured points says without a model.
typedef struct tr_plateau {
  double bandwidth; // the highest, bytes per second
  double bytes;     // where it was reached
  double half;      // size at which half of it is first reached, between points by the logarithm of the size
  double enough;    // least measured size at which 90 % of it is reached: a bucket of that size loses little
} tr_plateau;
// Pure. Points in ascending order of bytes; those of 0 bytes are left out. TR_ERR_DATA when none is left.
tr_status tr_plateau_find(const double *bytes, const double *seconds, size_t n, tr_plateau *out);

#endif
