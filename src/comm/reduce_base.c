// SPDX-License-Identifier: MIT
// Sums over ranks on any processor: 128-bit vectors.
// See reduce_body.h for the code, cmake/isa.cmake for the flags, and reduce.c for who calls it.
#define REDUCE tr__reduce_base
#define COPY   tr__copy_base
#define LANES  4
#include "comm/reduce_body.h"
