// SPDX-License-Identifier: MIT
// The kernels for processors with AVX-512 (F, BW, VL, DQ): 512-bit vectors. Built with those flags and
// reached only through the table, after tr_cpu_isa() has said yes; see simd_body.h for the code.
#define TR_VL         16 // floats per vector
#define TR_MR         12 // micro-kernel: 12 rows by 2 vectors, 24 accumulators of 32 registers
#define TR_DEPTH      768
#define TR_COLS       768
#define TR_SIMD_TABLE tr__simd_avx512
#define TR_SIMD_NAME  "cpu-avx512"
#include "kernel/simd_body.h"
