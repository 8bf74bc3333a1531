// SPDX-License-Identifier: MIT
// Sums over ranks on processors with AVX-512.
// See reduce_body.h for the code, cmake/isa.cmake for the flags, and reduce.c for who calls it.
#define REDUCE tr__reduce_avx512
#define COPY   tr__copy_avx512
#define LANES  16
#include "comm/reduce_body.h"
