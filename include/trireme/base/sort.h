// SPDX-License-Identifier: MIT
// Numbers in order, for medians and quantiles of what was measured.
#ifndef TRIREME_BASE_SORT_H
#define TRIREME_BASE_SORT_H

#include <stddef.h>

void tr_sort_doubles(double *value, size_t n); // ascending; none may be NaN

#endif
