// SPDX-License-Identifier: MIT
// One comparison of numbers, for everybody who sorts them.
#include "trireme/base/sort.h"
#include <stdlib.h>

static int ascending(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

void tr_sort_doubles(double *value, size_t n) { qsort(value, n, sizeof *value, ascending); }
