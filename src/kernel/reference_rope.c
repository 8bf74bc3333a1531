// SPDX-License-Identifier: MIT
// Reference rotary positions (Su et al., "RoFormer: Enhanced transformer with rotary position embedding", 2021).
//
// Elements i and i + dim / 2 of a vector are the two coordinates of a point, which turns by the angle
// position * frequency[i]. The inverse turns by minus the angle: a rotation's transpose, and so its gradient. The angle
// is rounded to f32, as every implementation in f32 has it, unless the type is f64; its sine and cosine are not.
//
// Letters: r row, h vector of the row, i pair of coordinates.
#include "kernel/reference_internal.h"

#include <math.h>

static double angle(const tr_rope *p, int64_t r, int64_t i) {
  if (p->type == TR_F64) return p->position[r] * p->frequency[i];
  float rounded = (float)p->position[r] * (float)p->frequency[i];
  return (double)rounded;
}

void tr__reference_rope(const tr_compute *c, const tr_rope *p, void *x) {
  (void)c;
  int64_t half = p->dim / 2;
  for (int64_t r = 0; r < p->rows; r++) {
    for (int64_t i = 0; i < half; i++) {
      double cosine = p->scale * cos(angle(p, r, i)), sine = p->scale * sin(angle(p, r, i));
      if (p->inverse) sine = -sine;
      for (int64_t h = 0; h < p->count; h++) {
        int64_t at = r * p->ld + h * p->dim + i;
        double a = tr__get(p->type, x, at), b = tr__get(p->type, x, at + half);
        tr__put(p->type, x, at, a * cosine - b * sine);
        tr__put(p->type, x, at + half, b * cosine + a * sine);
      }
    }
  }
}
