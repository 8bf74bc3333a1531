// SPDX-License-Identifier: MIT
// The whole of the vectorised arithmetic, compiled once per instruction set: simd_<isa>.c says how wide a
// vector is and how many registers a micro-kernel may use, and includes this file; what comes out is one
// constant table. Nothing here knows of threads, memory or oneDNN.
//
// Wanted from the includer: TR_VL (floats per vector), TR_MR (rows of the micro-kernel, at most 12), TR_DEPTH (k per
// block of a product), TR_COLS (columns of its widest tile), TR_SIMD_TABLE and TR_SIMD_NAME.
#ifndef TRIREME_KERNEL_SIMD_BODY_H
#define TRIREME_KERNEL_SIMD_BODY_H

#include "kernel/simd_attention_backward.h"
#include "kernel/simd_flat.h"
#include "kernel/simd_gemm.h"
#include "kernel/simd_rope.h"
#include "kernel/simd_rows.h"

const tr_simd TR_SIMD_TABLE = {
    .name = TR_SIMD_NAME,
    .nr = TR_NR,
    .gemm_cols = TR_COLS,
    .gemm_floats = GEMM_FLOATS,
    .gemm_pack_b = gemm_pack_b,
    .gemm_tile = gemm_tile,
    .gemm_store = block_store,
    .gemm_thin = gemm_thin,
    .norm_forward = norm_forward,
    .norm_backward = norm_backward,
    .rms_forward = rms_forward,
    .rms_backward = rms_backward,
    .rope = rope,
    .swiglu_forward = swiglu_forward,
    .swiglu_backward = swiglu_backward,
    .gelu_forward = gelu_forward,
    .gelu_backward = gelu_backward,
    .embed_forward = embed_forward,
    .embed_backward = embed_backward,
    .residual = residual,
    .column_sum = column_sum,
    .adamw = adamw,
    .sgd = sgd,
    .sum_squares = sum_squares,
    .add = add,
    .convert = convert,
    .cross_entropy = cross_entropy,
    .attention_forward = attention_forward,
    .attention_clear = attention_clear,
    .attention_backward = attention_backward,
    .attention_store = attention_store,
    .peak = peak,
};

#endif
