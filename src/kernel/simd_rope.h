// SPDX-License-Identifier: MIT
// Rotary positions: the sines and cosines of a row's angles, once, then all its vectors turn by them. Included by
// simd_body.h only.
//
// The angle is the f32 product of position and frequency, as in PyTorch; from there on a sine is worked out in double
// and rounded at the end. Reducing by the nearest multiple of pi / 2 loses about 2^-53 of the angle, which only angles
// beyond 10^8 make visible in an f32.
#ifndef TRIREME_KERNEL_SIMD_ROPE_H
#define TRIREME_KERNEL_SIMD_ROPE_H

#include "kernel/simd_vector.h"

INLINE vd select_f64(vq mask, vd yes, vd no) { return (vd)(((vq)yes & mask) | ((vq)no & ~mask)); }

// Both to 2e-10: x = k pi / 2 + r, |r| <= pi / 4, the Taylor polynomials of r, and the quadrant k mod 4.
INLINE void sine_cosine(vd x, vd *sine, vd *cosine) {
  const double magic = 6755399441055744.0; // 1.5 * 2^52: adding it rounds to an integer in the low bits
  vd shifted = x * 0.63661977236758134308 + magic;
  vd r = x - (shifted - magic) * 1.57079632679489661923, g = r * r;
  vd s = r + r * g * (-1.0 / 6 + g * (1.0 / 120 + g * (-1.0 / 5040 + g * (1.0 / 362880 - g * (1.0 / 39916800)))));
  vd c = 1.0 + g * (-1.0 / 2 + g * (1.0 / 24 + g * (-1.0 / 720 + g * (1.0 / 40320 - g * (1.0 / 3628800)))));
  vq quadrant = (vq)shifted, odd = -(quadrant & 1);
  *sine = (vd)((vq)select_f64(odd, c, s) ^ (quadrant & 2) << 62);
  *cosine = (vd)((vq)select_f64(odd, s, c) ^ ((quadrant + 1) & 2) << 62);
}

// For n <= MASK_MAX frequencies from `first` on.
static void rotation(const tr_rope *p, int64_t row, int64_t first, int n, float *cosine, float *sine) {
  const float position = (float)p->position[row];
  const double scale = p->scale, turn = p->inverse ? -p->scale : p->scale;
  for (int i = 0; i < n; i += TR_VL / 2) {
    vd angle = {0}, s, c;
    for (int lane = 0; lane < TR_VL / 2 && i + lane < n; lane++)
      angle[lane] = (double)(position * (float)p->frequency[first + i + lane]);
    sine_cosine(angle, &s, &c);
    vf_half low = __builtin_convertvector(c * scale, vf_half), high = __builtin_convertvector(s * turn, vf_half);
    memcpy(cosine + i, &low, sizeof low);
    memcpy(sine + i, &high, sizeof high);
  }
}

INLINE void turn_vector(tr_dtype type, int64_t half, int64_t first, int64_t n, const float *cosine, const float *sine,
                        void *x) {
  for (int64_t i = 0; i < n; i += TR_VL) {
    const int64_t at = first + i, left = n - i;
    vf a = load(type, x, at, left), b = load(type, x, half + at, left);
    vf c = load_f32(cosine + i, left), s = load_f32(sine + i, left);
    store(type, x, at, a * c - b * s, left);
    store(type, x, half + at, b * c + a * s, left);
  }
}

INLINE void rope_in(tr_dtype type, const tr_rope *p, void *x, int64_t r0, int64_t r1) {
  const int64_t half = p->dim / 2;
  float cosine[MASK_MAX], sine[MASK_MAX];
  for (int64_t r = r0; r < r1; r++)
    for (int64_t first = 0; first < half; first += MASK_MAX) {
      const int64_t n = tr__min(half - first, MASK_MAX);
      rotation(p, r, first, (int)n, cosine, sine);
      for (int64_t h = 0; h < p->count; h++)
        turn_vector(type, half, first, n, cosine, sine, tr__elem_mut(type, x, r * p->ld + h * p->dim));
    }
}

static void rope(const tr_rope *p, void *x, int64_t r0, int64_t r1) {
  if (p->type == TR_BF16) {
    rope_in(TR_BF16, p, x, r0, r1);
  } else {
    rope_in(TR_F32, p, x, r0, r1);
  }
}

#endif
