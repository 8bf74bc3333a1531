// SPDX-License-Identifier: MIT
// Laws of number types (law_number.h): the largest and smallest numbers from the bits of a format. Used by the planner's
// advice; conversions themselves are in tensor/dtype.
#include "trireme/plan/law_number.h"

#include <math.h>

static int bias(tr_law_format format) { return (1 << (format.exponent - 1)) - 1; }

double tr_law_format_largest(tr_law_format format) {
  double step = ldexp(1, -format.mantissa);
  // IEEE: the exponent below the one that is kept. fn: the last exponent, all ones less one in the mantissa.
  if (format.fn) return ldexp(2 - 2 * step, (1 << format.exponent) - 1 - bias(format));
  return ldexp(2 - step, (1 << format.exponent) - 2 - bias(format));
}

double tr_law_format_smallest(tr_law_format format) { return ldexp(1, 1 - bias(format) - format.mantissa); }

double tr_law_format_step(tr_law_format format) { return ldexp(1, -format.mantissa); }

double tr_law_format_bytes(tr_law_format format) { return (1 + format.exponent + format.mantissa) / 8.0; }

double tr_law_narrowed(double bytes, double share, double from, double to) {
  return bytes * (1 - share + share * to / from);
}
