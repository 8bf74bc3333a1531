// SPDX-License-Identifier: MIT
// Reference matrix product: three loops.
//
// Transposes are steps: element (i, l) of A lies at i * row step + l * inner step, with the two steps
// exchanged when A is stored transposed, and likewise for B.
#include "kernel/reference_internal.h"

// `product` is one element of A B + bias.
static void store(const tr_matmul *p, void *out, int64_t at, double product) {
  if (p->epilogue == TR_EPILOGUE_GELU) {
    tr__put(p->type, out, at, product);
    product = tr__get(p->type, out, at); // rounded, as it is kept
    if (p->aux) tr__put(p->type, p->aux, at, product);
    tr__put(p->type_c, out, at, tr__gelu(product));
  } else if (p->epilogue == TR_EPILOGUE_GELU_BACKWARD) {
    tr__put(p->type_c, out, at, product * tr__gelu_derivative(tr__get(p->type, p->aux, at)));
  } else {
    tr__put_add(p->type_c, out, at, product, p->add);
  }
}

tr_status tr__reference_matmul(const tr_compute *c, const tr_matmul *p, const void *a, const void *b,
                               const void *bias, void *out) {
  (void)c;
  if (p->type_c != p->type && p->type_c != tr_wide(p->type)) {
    return tr_error(TR_ERR_USAGE, "matmul of %s cannot write %s; type_c must be %s or %s", tr_dtype_name(p->type),
                    tr_dtype_name(p->type_c), tr_dtype_name(p->type), tr_dtype_name(tr_wide(p->type)));
  }
  int64_t a_row = p->trans_a ? 1 : p->lda, a_inner = p->trans_a ? p->lda : 1;
  int64_t b_inner = p->trans_b ? 1 : p->ldb, b_column = p->trans_b ? p->ldb : 1;
  for (int64_t i = 0; i < p->m; i++) {
    for (int64_t j = 0; j < p->n; j++) {
      double sum =
          tr__dot(p->type, p->k, tr__at(p->type, a, i * a_row), a_inner, tr__at(p->type, b, j * b_column), b_inner);
      if (bias) sum += tr__get(p->type, bias, j);
      store(p, out, i * p->ldc + j, sum);
    }
  }
  return TR_OK;
}
