// SPDX-License-Identifier: MIT
// The reference table: the naive twin of every kernel.
//
// One thread, no blocking, arithmetic in double: written to be read beside the formulas and to be compared
// with. It needs no state of its own, so open and close are absent.
#include "kernel/reference_internal.h"

static size_t matmul_scratch(const tr_matmul *p, int nthread) {
  (void)p;
  (void)nthread;
  return 0;
}

static size_t rows_scratch(int64_t rows, int64_t width, tr_dtype type) {
  (void)rows;
  (void)width;
  (void)type;
  return 0;
}

static size_t rmsnorm_scratch(const tr_rmsnorm *p) {
  (void)p;
  return 0;
}

static const tr_kernels reference_table = {
    .name = "reference",
    .matmul = tr__reference_matmul,
    .matmul_scratch = matmul_scratch,
    .layernorm_forward = tr__reference_layernorm_forward,
    .layernorm_backward = tr__reference_layernorm_backward,
    .layernorm_backward_scratch = rows_scratch,
    .rmsnorm_forward = tr__reference_rmsnorm_forward,
    .rmsnorm_backward = tr__reference_rmsnorm_backward,
    .rmsnorm_backward_scratch = rmsnorm_scratch,
    .rope = tr__reference_rope,
    .swiglu_forward = tr__reference_swiglu_forward,
    .swiglu_backward = tr__reference_swiglu_backward,
    .gelu_forward = tr__reference_gelu_forward,
    .gelu_backward = tr__reference_gelu_backward,
    .embedding_forward = tr__reference_embedding_forward,
    .embedding_backward = tr__reference_embedding_backward,
    .residual_forward = tr__reference_residual_forward,
    .dropout_backward = tr__reference_dropout_backward,
    .attention_forward = tr__reference_attention_forward,
    .attention_backward = tr__reference_attention_backward,
    .attention_scratch = tr__reference_attention_scratch,
    .head_loss = tr__reference_head_loss,
    .head_loss_scratch = tr__reference_head_loss_scratch,
    .column_sum = tr__reference_column_sum,
    .column_sum_scratch = rows_scratch,
    .adamw = tr__reference_adamw,
    .sgd = tr__reference_sgd,
    .sum_squares = tr__reference_sum_squares,
    .add = tr__reference_add,
    .convert = tr__reference_convert,
};

const tr_kernels *tr_kernels_reference(void) { return &reference_table; }
