// SPDX-License-Identifier: MIT
// Shapes: up to eight dimensions, row-major, 64-bit element counts with overflow checked.
#ifndef TRIREME_TENSOR_SHAPE_H
#define TRIREME_TENSOR_SHAPE_H

#include "trireme/base/status.h"
#include "trireme/tensor/dtype.h"
#include <stddef.h>
#include <stdint.h>

enum { TR_MAX_DIM = 8 };

typedef struct tr_shape {
  int ndim; // 0: a scalar, one element
  int64_t dim[TR_MAX_DIM];
} tr_shape;

tr_shape tr_shape_make(int ndim, const int64_t *dim);
int64_t tr_shape_count(const tr_shape *shape); // elements; shapes are checked when made, so this cannot overflow
// Checked form for shapes that come from a file: each dim >= 0, product of dims times the element size below 2^62.
tr_status tr_shape_check(const tr_shape *shape, tr_dtype type, const char *name);
int tr_shape_equal(const tr_shape *a, const tr_shape *b);
void tr_shape_text(const tr_shape *shape, char *out, size_t nbyte); // "[768, 3072]"

#endif
