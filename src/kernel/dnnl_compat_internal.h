// SPDX-License-Identifier: MIT
// oneDNN 2.6 and 3.x behind one set of names. What differs: memory descriptors are structs in 2.x and handles
// in 3.x, and primitive descriptors are made from an operation descriptor in 2.x and directly in 3.x.
#ifndef TRIREME_KERNEL_DNNL_COMPAT_INTERNAL_H
#define TRIREME_KERNEL_DNNL_COMPAT_INTERNAL_H

#include <oneapi/dnnl/dnnl.h>
#include <stddef.h>

typedef struct tr_dnnl_matrices { // descriptors of one product; bias only when has_bias
  dnnl_memory_desc_t a, b, c, bias;
  int has_bias;
} tr_dnnl_matrices;

#if DNNL_VERSION_MAJOR >= 3
typedef const_dnnl_memory_desc_t tr_dnnl_desc; // borrowed
static inline tr_dnnl_desc tr__dnnl_borrow(const dnnl_memory_desc_t *desc) { return *desc; }
static inline dnnl_status_t tr__dnnl_desc_make(dnnl_memory_desc_t *out, int ndim, const dnnl_dims_t dims,
                                               dnnl_data_type_t type, const dnnl_dims_t strides) {
  return dnnl_memory_desc_create_with_strides(out, ndim, dims, type, strides);
}
static inline void tr__dnnl_desc_free(dnnl_memory_desc_t *desc) {
  if (*desc) dnnl_memory_desc_destroy(*desc);
}
static inline dnnl_status_t tr__dnnl_append_sum(dnnl_post_ops_t ops) {
  return dnnl_post_ops_append_sum(ops, 1.0f, 0, dnnl_data_type_undef);
}
static inline dnnl_status_t tr__dnnl_matmul_desc(dnnl_primitive_desc_t *out, const tr_dnnl_matrices *m,
                                                 const_dnnl_primitive_attr_t attr, dnnl_engine_t engine) {
  return dnnl_matmul_primitive_desc_create(out, engine, m->a, m->b, m->has_bias ? m->bias : NULL, m->c, attr);
}
#else
typedef const dnnl_memory_desc_t *tr_dnnl_desc; // borrowed
static inline tr_dnnl_desc tr__dnnl_borrow(const dnnl_memory_desc_t *desc) { return desc; }
static inline dnnl_status_t tr__dnnl_desc_make(dnnl_memory_desc_t *out, int ndim, const dnnl_dims_t dims,
                                               dnnl_data_type_t type, const dnnl_dims_t strides) {
  return dnnl_memory_desc_init_by_strides(out, ndim, dims, type, strides);
}
static inline void tr__dnnl_desc_free(dnnl_memory_desc_t *desc) { (void)desc; }
static inline dnnl_status_t tr__dnnl_append_sum(dnnl_post_ops_t ops) { return dnnl_post_ops_append_sum(ops, 1.0f); }
static inline dnnl_status_t tr__dnnl_matmul_desc(dnnl_primitive_desc_t *out, const tr_dnnl_matrices *m,
                                                 const_dnnl_primitive_attr_t attr, dnnl_engine_t engine) {
  dnnl_matmul_desc_t operation;
  dnnl_status_t status = dnnl_matmul_desc_init(&operation, &m->a, &m->b, m->has_bias ? &m->bias : NULL, &m->c);
  return status == dnnl_success ? dnnl_primitive_desc_create(out, &operation, attr, engine, NULL) : status;
}
#endif

#endif
