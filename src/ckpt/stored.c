// SPDX-License-Identifier: MIT
// Tensors as the bytes that files hold: copied, converted and transposed, any range of them at a time.
//
// Bytes in files are not aligned to their elements, so memory on either side is taken at any alignment: what cannot be
// handed to tr_convert as it is goes through a chunk on the stack that stays in the first cache. A matrix is
// transposed in square tiles, so that both sides are met in whole cache lines.
#include "ckpt/ckpt_internal.h"

#include <string.h>

enum {
  TILE = 64,    // rows and columns that are transposed at a time
  CHUNK = 1024, // elements that are converted at a time
};

static int aligned(tr_dtype type, const void *at) { return (uintptr_t)at % tr_dtype_size(type) == 0; }

void tr__ckpt_copy(tr_dtype from, const void *src, tr_dtype to, void *dst, size_t n) {
  _Alignas(8) unsigned char in[CHUNK * 8], out[CHUNK * 8];
  const unsigned char *source = src;
  unsigned char *target = dst;
  size_t from_size = tr_dtype_size(from), to_size = tr_dtype_size(to);
  if (from == to) {
    if (n) memcpy(dst, src, n * to_size);
    return;
  }
  int straight_in = aligned(from, src), straight_out = aligned(to, dst);
  for (size_t i = 0; i < n; i += CHUNK) {
    size_t part = n - i < CHUNK ? n - i : CHUNK;
    if (!straight_in) memcpy(in, source + i * from_size, part * from_size);
    tr_convert(from, straight_in ? source + i * from_size : in, to, straight_out ? target + i * to_size : out, part);
    if (!straight_out) memcpy(target + i * to_size, out, part * to_size);
  }
}

// tile[column][row] to dst[row][column]; called with constant sizes, so that each copy is one move.
static inline void scatter(const unsigned char *tile, size_t nrow, size_t ncol, unsigned char *dst, size_t stride,
                           size_t size) {
  for (size_t r = 0; r < nrow; r++) {
    for (size_t c = 0; c < ncol; c++) memcpy(dst + (r * stride + c) * size, tile + (c * TILE + r) * size, size);
  }
}

void tr__ckpt_transpose(tr_dtype from, const void *src, size_t width, size_t row0, size_t row1, size_t col0,
                        size_t col1, tr_dtype to, void *dst) {
  _Alignas(8) unsigned char tile[TILE * TILE * 8];
  size_t from_size = tr_dtype_size(from), size = tr_dtype_size(to), stride = col1 - col0;
  for (size_t row = row0; row < row1; row += TILE) {
    size_t nrow = row1 - row < TILE ? row1 - row : TILE;
    for (size_t col = col0; col < col1; col += TILE) {
      size_t ncol = col1 - col < TILE ? col1 - col : TILE;
      unsigned char *corner = (unsigned char *)dst + ((row - row0) * stride + (col - col0)) * size;
      for (size_t c = 0; c < ncol; c++) {
        const unsigned char *line = (const unsigned char *)src + ((col + c) * width + row) * from_size;
        tr__ckpt_copy(from, line, to, tile + c * TILE * size, nrow);
      }
      switch (size) {
      case 1: scatter(tile, nrow, ncol, corner, stride, 1); break;
      case 2: scatter(tile, nrow, ncol, corner, stride, 2); break;
      case 4: scatter(tile, nrow, ncol, corner, stride, 4); break;
      default: scatter(tile, nrow, ncol, corner, stride, 8); break;
      }
    }
  }
}

uint64_t tr__stored_nbyte(const tr_safetensors_item *item) {
  return (uint64_t)tr_shape_count(&item->shape) * tr_dtype_size(item->stored_type);
}

void tr__stored_range(const tr_safetensors_item *item, size_t first, size_t count, void *dst) {
  const unsigned char *data = item->data;
  unsigned char *out = dst;
  if (!item->transpose) {
    tr__ckpt_copy(item->type, data + first * tr_dtype_size(item->type), item->stored_type, out, count);
    return;
  }
  // As stored: nrow rows of ncol. Whole rows as far as the range holds them, parts of a row at its ends.
  size_t ncol = (size_t)item->shape.dim[0], nrow = (size_t)item->shape.dim[1];
  while (count > 0) {
    size_t row = first / ncol, col = first % ncol, rows = col == 0 ? count / ncol : 0;
    size_t end = rows || count > ncol - col ? ncol : col + count, part = (rows ? rows : 1) * (end - col);
    tr__ckpt_transpose(item->type, data, nrow, row, row + (rows ? rows : 1), col, end, item->stored_type, out);
    out += part * tr_dtype_size(item->stored_type);
    first += part;
    count -= part;
  }
}
