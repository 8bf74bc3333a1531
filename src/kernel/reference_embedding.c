// SPDX-License-Identifier: MIT
// Reference embedding: rows of two tables are looked up and added; their gradients are scattered back.
//
// The scatter gives each table row to the first input row that names it. That row sums, in double, what all
// later rows with the same index contribute, and writes once. A strip of columns at a time keeps the sums in
// a local array.
#include "kernel/reference_internal.h"

#include <string.h>

enum { STRIP = 64 };

void tr__reference_embedding_forward(const tr_compute *c, int64_t rows, int64_t width, tr_dtype type,
                                     const int32_t *token, const int32_t *position, const void *wte, const void *wpe,
                                     const tr_dropout *dropout, void *y) {
  (void)c;
  for (int64_t r = 0; r < rows; r++) {
    for (int64_t j = 0; j < width; j++) {
      double value = tr__get(type, wte, token[r] * width + j);
      if (wpe) value += tr__get(type, wpe, position[r] * width + j);
      tr__put(type, y, r * width + j, value * tr__dropout_factor(dropout, r, j));
    }
  }
}

typedef struct scatter {
  int64_t rows, width;
  tr_dtype type;
  const int32_t *index; // [rows] row of the table
  const tr_dropout *dropout;
  const void *dy;
} scatter;

static int named_before(const int32_t *index, int64_t r) {
  for (int64_t i = 0; i < r; i++)
    if (index[i] == index[r]) return 1;
  return 0;
}

// Columns first .. last - 1 of the table row that input row r is the first to name.
static void scatter_strip(const scatter *s, int64_t r, int64_t first, int64_t last, void *table) {
  double sum[STRIP] = {0};
  for (int64_t i = r; i < s->rows; i++) {
    if (s->index[i] != s->index[r]) continue;
    for (int64_t j = first; j < last; j++) {
      sum[j - first] += tr__get(s->type, s->dy, i * s->width + j) * tr__dropout_factor(s->dropout, i, j);
    }
  }
  for (int64_t j = first; j < last; j++)
    tr__put_add(tr_wide(s->type), table, s->index[r] * s->width + j, sum[j - first], 1);
}

static void scatter_rows(const scatter *s, void *table, int64_t table_rows, int add) {
  if (!table) return;
  size_t nbyte = (size_t)(table_rows * s->width) * tr_dtype_size(tr_wide(s->type));
  if (!add && nbyte > 0) memset(table, 0, nbyte);
  for (int64_t r = 0; r < s->rows; r++) {
    if (named_before(s->index, r)) continue;
    for (int64_t first = 0; first < s->width; first += STRIP) {
      scatter_strip(s, r, first, s->width - first < STRIP ? s->width : first + STRIP, table);
    }
  }
}

void tr__reference_embedding_backward(const tr_compute *c, int64_t rows, int64_t width, tr_dtype type,
                                      const int32_t *token, const int32_t *position, const tr_dropout *dropout,
                                      const void *dy, void *dwte, int64_t vocab, int add_wte, void *dwpe,
                                      int64_t npos, int add_wpe) {
  (void)c;
  scatter s = {rows, width, type, token, dropout, dy};
  scatter_rows(&s, dwte, vocab, add_wte);
  s.index = position;
  scatter_rows(&s, dwpe, npos, add_wpe);
}
