// SPDX-License-Identifier: MIT
// Shapes: counting, checking and printing.
//
// tr_shape_check is the gate for shapes that come from outside; everything behind it may multiply freely. A zero
// among the dimensions makes the count zero whatever the others are, so it is looked for first: the product of the
// others alone could overflow. Not a view or a stride: arrays here are always dense and row-major.
#include "trireme/tensor/shape.h"

#include <inttypes.h>
#include <stdio.h>

static const int64_t NBYTE_LIMIT = INT64_C(1) << 62;

// How many entries of dim[] may be read; an ndim out of range is kept for tr_shape_check to report.
static int shape_used(const tr_shape *shape) {
  return shape->ndim < 0 ? 0 : shape->ndim > TR_MAX_DIM ? TR_MAX_DIM : shape->ndim;
}

tr_shape tr_shape_make(int ndim, const int64_t *dim) {
  tr_shape shape = {.ndim = ndim};
  int used = shape_used(&shape);
  for (int i = 0; i < used; i++) shape.dim[i] = dim[i];
  return shape;
}

static int has_zero(const tr_shape *shape) {
  int used = shape_used(shape);
  for (int i = 0; i < used; i++)
    if (shape->dim[i] == 0) return 1;
  return 0;
}

int64_t tr_shape_count(const tr_shape *shape) {
  if (has_zero(shape)) return 0;
  int64_t count = 1;
  int used = shape_used(shape);
  for (int i = 0; i < used; i++) count *= shape->dim[i];
  return count;
}

tr_status tr_shape_check(const tr_shape *shape, tr_dtype type, const char *name) {
  if (shape->ndim < 0 || shape->ndim > TR_MAX_DIM) {
    return tr_error(TR_ERR_DATA, "shape of '%s' has %d dimensions; 0 to %d are possible", name, shape->ndim,
                    TR_MAX_DIM);
  }
  for (int i = 0; i < shape->ndim; i++) {
    if (shape->dim[i] < 0) {
      return tr_error(TR_ERR_DATA, "dimension %d of '%s' is %" PRId64 "; it must not be negative", i, name,
                      shape->dim[i]);
    }
  }
  if (has_zero(shape)) return TR_OK;
  int64_t nbyte = (int64_t)tr_dtype_size(type);
  for (int i = 0; i < shape->ndim; i++) {
    if (__builtin_mul_overflow(nbyte, shape->dim[i], &nbyte) || nbyte >= NBYTE_LIMIT) {
      char text[200];
      tr_shape_text(shape, text, sizeof text);
      return tr_error(TR_ERR_DATA, "'%s' of shape %s in %s is larger than 2^62 bytes", name, text,
                      tr_dtype_name(type));
    }
  }
  return TR_OK;
}

int tr_shape_equal(const tr_shape *a, const tr_shape *b) {
  if (a->ndim != b->ndim) return 0;
  int used = shape_used(a);
  for (int i = 0; i < used; i++)
    if (a->dim[i] != b->dim[i]) return 0;
  return 1;
}

void tr_shape_text(const tr_shape *shape, char *out, size_t nbyte) {
  char text[8 + TR_MAX_DIM * 24] = "[";
  size_t used = 1;
  int ndim = shape_used(shape);
  for (int i = 0; i < ndim; i++) {
    int wrote = snprintf(text + used, sizeof text - used, "%s%" PRId64, i ? ", " : "", shape->dim[i]);
    used += (size_t)wrote;
  }
  text[used++] = ']';
  text[used] = '\0';
  if (nbyte > 0) snprintf(out, nbyte, "%s", text);
}
