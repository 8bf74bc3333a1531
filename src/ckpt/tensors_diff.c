// SPDX-License-Identifier: MIT
// Two sets of tensors, name by name: whether the bytes are the same, and if not, how far the numbers are apart.
//
// Bytes decide what is equal, so that two zeros of different sign, or two NaNs, are told apart like any other values. Numbers
// are compared in f64, a block at a time.
#include "ckpt/ckpt_internal.h"
#include "trireme/ckpt/convert.h"

#include <math.h>
#include <string.h>

enum { BLOCK = 1024 };

// As f64: elements [first, first + count).
static void numbers(const tr_safetensors_entry *entry, size_t first, size_t count, double *out) {
  tr__stored_range(&(tr_safetensors_item){entry->name, entry->type, TR_F64, entry->shape, entry->data, 0}, first,
                   count, out);
}

// Elements of the same type differ in their bytes; of different types, in their value.
static int64_t count_unequal(const tr_safetensors_entry *a, const tr_safetensors_entry *b, size_t first, size_t count,
                             const double *x, const double *y) {
  size_t size = tr_dtype_size(a->type);
  const char *left = (const char *)a->data + first * size, *right = (const char *)b->data + first * size;
  int64_t n = 0;
  for (size_t i = 0; i < count; i++)
    n += a->type == b->type ? memcmp(left + i * size, right + i * size, size) != 0
                            : !(x[i] == y[i] || (isnan(x[i]) && isnan(y[i])));
  return n;
}

// Shapes are equal. A difference that is no number (of an infinity or a NaN) counts as infinite.
static void measure(const tr_safetensors_entry *a, const tr_safetensors_entry *b, tr_diff_entry *out) {
  double x[BLOCK], y[BLOCK], scale = 0;
  size_t count = (size_t)tr_shape_count(&a->shape);
  for (size_t first = 0; first < count; first += BLOCK) {
    size_t part = count - first < BLOCK ? count - first : BLOCK;
    numbers(a, first, part, x);
    numbers(b, first, part, y);
    int64_t unequal = count_unequal(a, b, first, part, x, y);
    out->unequal += unequal;
    for (size_t i = 0; i < part; i++) {
      if (isfinite(x[i])) scale = fmax(scale, fabs(x[i]));
      if (!unequal || x[i] == y[i] || (isnan(x[i]) && isnan(y[i]))) continue;
      double apart = fabs(x[i] - y[i]);
      out->largest = fmax(out->largest, isnan(apart) ? INFINITY : apart);
    }
  }
  out->relative = out->largest > 0 ? out->largest / scale : 0;
}

static void compare(const tr_safetensors_entry *a, const tr_safetensors_entry *b, tr_diff_entry *out) {
  out->what = "same";
  if (!tr_shape_equal(&a->shape, &b->shape)) {
    out->what = "other shape";
  } else if (a->type != b->type) {
    out->what = "other type";
    measure(a, b, out);
  } else if (a->nbyte > 0 && memcmp(a->data, b->data, a->nbyte) != 0) {
    out->what = "different";
    measure(a, b, out);
  }
}

tr_status tr_tensors_diff(const tr_tensors *a, const tr_tensors *b, void (*entry)(void *user, const tr_diff_entry *e),
                          void *user, int *equal) {
  int same = 1;
  for (size_t i = 0; i < tr_tensors_count(a); i++) {
    const tr_safetensors_entry *left = tr_tensors_at(a, i), *right = tr_tensors_find(b, left->name);
    tr_diff_entry e = {.name = left->name, .what = "only in the first"};
    if (right) {
      compare(left, right, &e);
      TR_TRY(tr__st_check_map(left->file));
      TR_TRY(tr__st_check_map(right->file));
    }
    same &= strcmp(e.what, "same") == 0;
    entry(user, &e);
  }
  for (size_t i = 0; i < tr_tensors_count(b); i++) {
    tr_diff_entry e = {.name = tr_tensors_at(b, i)->name, .what = "only in the second"};
    if (tr_tensors_find(a, e.name)) continue;
    same = 0;
    entry(user, &e);
  }
  *equal = same;
  return TR_OK;
}
