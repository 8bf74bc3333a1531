// SPDX-License-Identifier: MIT
// The kernels for any processor: 128-bit vectors, which x86-64 (SSE2) and ARM64 (NEON) always have. Built
// with plain flags; see simd_body.h for the code and cmake/isa.cmake for the flags.
#define TR_VL         4 // floats per vector
#define TR_MR         4 // micro-kernel: 4 rows by 2 vectors, 8 accumulators
#define TR_DEPTH      256
#define TR_COLS       384
#define TR_SIMD_TABLE tr__simd_base
#define TR_SIMD_NAME  "cpu-base"
#include "kernel/simd_body.h"
