// SPDX-License-Identifier: MIT
// Sums over ranks on processors with AVX2.
// See reduce_body.h for the code, cmake/isa.cmake for the flags, and reduce.c for who calls it.
#define REDUCE tr__reduce_avx2
#define COPY   tr__copy_avx2
#define LANES  8
#include "comm/reduce_body.h"
