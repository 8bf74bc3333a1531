// SPDX-License-Identifier: MIT
// Reference matrix product: three loops.
//
// Transposes are steps: element (i, l) of A lies at i * row step + l * inner step, with the two steps
// exchanged when A is stored transposed, and likewise for B.
#include "kernel/reference_internal.h"

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
      tr__put_add(p->type_c, out, i * p->ldc + j, sum, p->add);
    }
  }
  return TR_OK;
}
