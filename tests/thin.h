// SPDX-License-Identifier: MIT
// How much of a grid of cases is tried. The release build tries all. Under sanitizers, which slow down by ten what they look at, and
// look at the same code whatever the numbers are, a part does: one case of THIN, or every STRIDE-th where that meets all values of
// options that change with every second, third or fourth case.
#ifndef TRIREME_TESTS_THIN_H
#define TRIREME_TESTS_THIN_H

enum { THIN = TRIREME_SANITIZED ? 4 : 1, STRIDE = TRIREME_SANITIZED ? 5 : 1 };

#endif
