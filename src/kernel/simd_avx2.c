// SPDX-License-Identifier: MIT
// The kernels for processors with AVX2 and FMA: 256-bit vectors. Built with those flags and reached only
// through the table, after tr_cpu_isa() has said yes; see simd_body.h for the code.
#define TR_VL         8 // floats per vector
#define TR_MR         6 // micro-kernel: 6 rows by 2 vectors, 12 accumulators of 16 registers
#define TR_DEPTH      256
#define TR_COLS       384
#define TR_SIMD_TABLE tr__simd_avx2
#define TR_SIMD_NAME  "cpu-avx2"
#include "kernel/simd_body.h"
