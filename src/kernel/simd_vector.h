// SPDX-License-Identifier: MIT
// Vectors of TR_VL floats with the compiler's vector extension: loads and stores of f32 and bf16 with any
// tail, sums, exponential and logarithm, and the dropout mask. Included by simd_body.h only.
//
// Every loop handles its last, partial vector with the same vector arithmetic on zero-padded lanes, so that
// an element's bits do not depend on where in a buffer it lies.
#ifndef TRIREME_KERNEL_SIMD_VECTOR_H
#define TRIREME_KERNEL_SIMD_VECTOR_H

#include "kernel/cpu_table_internal.h"
#include <string.h>

typedef float vf __attribute__((vector_size(TR_VL * 4)));
typedef int32_t vi __attribute__((vector_size(TR_VL * 4)));
typedef uint32_t vu __attribute__((vector_size(TR_VL * 4)));
typedef uint16_t vh __attribute__((vector_size(TR_VL * 2)));
typedef float vf_half __attribute__((vector_size(TR_VL * 2)));
typedef double vd __attribute__((vector_size(TR_VL * 4))); // TR_VL / 2 doubles

#define INLINE static inline __attribute__((always_inline, unused))
enum { MASK_MAX = 256 }; // features per block of dropout factors

INLINE vf splat(float x) { return (vf){0} + x; }

// A copy of unknown length needs its vector in memory: it gets one of its own, so that whole ones stay in registers.
INLINE vf load_f32(const float *p, int64_t n) {
  vf v, part = {0};
  if (__builtin_expect(n >= TR_VL, 1)) {
    memcpy(&v, p, sizeof v);
    return v;
  }
  memcpy(&part, p, (size_t)n * sizeof *p);
  return part;
}
INLINE void store_f32(float *p, vf v, int64_t n) {
  if (__builtin_expect(n >= TR_VL, 1)) {
    memcpy(p, &v, sizeof v);
  } else {
    vf part = v;
    memcpy(p, &part, (size_t)n * sizeof *p);
  }
}
INLINE vf load_bf16(const tr_bf16 *p, int64_t n) {
  vh h, part = {0};
  if (__builtin_expect(n >= TR_VL, 1)) {
    memcpy(&h, p, sizeof h);
  } else {
    memcpy(&part, p, (size_t)n * sizeof *p);
    h = part;
  }
  return (vf)(__builtin_convertvector(h, vu) << 16);
}
// To the nearest bf16, ties to even: its bits, in the upper half of each lane.
INLINE vu bf16_bits(vf v) {
  vu bits = (vu)v, rounded = bits + 0x7fffu + ((bits >> 16) & 1u), nan = (vu)(v != v);
  return (rounded & ~nan) | ((bits | 0x400000u) & nan);
}
INLINE vf round_bf16(vf v) { return (vf)(bf16_bits(v) & 0xffff0000u); }
INLINE void store_bf16(tr_bf16 *p, vf v, int64_t n) {
  vh h = __builtin_convertvector(bf16_bits(v) >> 16, vh);
  if (__builtin_expect(n >= TR_VL, 1)) {
    memcpy(p, &h, sizeof h);
  } else {
    vh part = h;
    memcpy(p, &part, (size_t)n * sizeof *p);
  }
}
// Elements i .. i + TR_VL - 1 of an array that has n left from i on.
INLINE vf load(tr_dtype type, const void *base, int64_t i, int64_t n) {
  if (type == TR_BF16) return load_bf16((const tr_bf16 *)base + i, n);
  return load_f32((const float *)base + i, n);
}
INLINE void store(tr_dtype type, void *base, int64_t i, vf v, int64_t n) {
  if (type == TR_BF16) {
    store_bf16((tr_bf16 *)base + i, v, n);
  } else {
    store_f32((float *)base + i, v, n);
  }
}
INLINE float load_one(tr_dtype type, const void *base, int64_t i) {
  return type == TR_BF16 ? tr_bf16_to_f32(((const tr_bf16 *)base)[i]) : ((const float *)base)[i];
}

INLINE vf select_f32(vi mask, vf yes, vf no) { return (vf)(((vi)yes & mask) | ((vi)no & ~mask)); }
INLINE vf max_f32(vf a, vf b) { return select_f32(a > b, a, b); }

INLINE float sum_lanes(vf v) {
  float t[TR_VL];
  memcpy(t, &v, sizeof t);
  for (int w = TR_VL / 2; w > 0; w /= 2)
    for (int i = 0; i < w; i++) t[i] += t[i + w];
  return t[0];
}
INLINE float max_lanes(vf v) {
  float t[TR_VL];
  memcpy(t, &v, sizeof t);
  for (int i = 1; i < TR_VL; i++) t[0] = t[i] > t[0] ? t[i] : t[0];
  return t[0];
}
// All ones in the first n lanes.
INLINE vi first_lanes(int64_t n) {
  vi index;
  for (int i = 0; i < TR_VL; i++) index[i] = i;
  return index < (int32_t)(n < TR_VL ? n : TR_VL);
}

// e^x: x = k ln 2 + r with |r| <= ln 2 / 2, a polynomial for e^r (error below 2 ulp), times 2^k
// built from bits. Zero below -87 (no denormals); infinity above 88.37. NaN stays NaN.
INLINE vf exp_f32(vf x) {
  const float magic = 12582912.0f; // 1.5 * 2^23: adding it rounds to an integer in the low bits
  vi tiny = x < -87.0f;
  x = select_f32(x > 89.0f, splat(89.0f), x);
  vf shifted = x * 1.44269504f + magic, k = shifted - magic;
  vf r = x - k * 0.693359375f; // ln 2 in two parts, the first exact in few bits
  r = r + k * 2.12194440e-4f;
  vf p = 1.9875691500e-4f * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * (r * r) + r + 1.0f;
  vu scale = (((vu)shifted - 0x4b400000u) + 127u) << 23;
  return (vf)((vi)(p * (vf)scale) & ~tiny);
}

// Natural logarithm of a positive normal float (infinity and NaN are returned as they are), in double:
// x = 2^e m, m in [sqrt(1/2), sqrt(2)), log m = 2 atanh((m - 1) / (m + 1)).
INLINE float log_f32(float x) {
  if (!(x <= 3.402823466e38f)) return x;
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  int exponent = (int)(bits >> 23) - 127;
  bits = (bits & 0x7fffffu) | 0x3f800000u;
  float mf;
  memcpy(&mf, &bits, sizeof mf);
  double m = (double)mf;
  if (m > 1.4142135623730951) {
    m *= 0.5;
    exponent++;
  }
  double f = (m - 1.0) / (m + 1.0), g = f * f, sum = 1.0 / 15;
  for (int k = 13; k >= 3; k -= 2) sum = sum * g + 1.0 / k;
  return (float)(exponent * 0.69314718055994530942 + (2.0 * f + 2.0 * f * (g * sum)));
}

// The words of tr_rng_u32 for features 4 * block .. 4 * (block + nblock) - 1 of one (sample, position):
// feature f in out[f % 4][f / 4 - block]. Round by round over all blocks: loops of this form are what
// compilers turn into vectors.
static void random_words(tr_rng_key key, uint64_t sample, uint32_t position, uint32_t block, int nblock,
                         uint32_t out[4][MASK_MAX / 4 + 2]) {
  uint32_t *restrict c0 = out[0], *restrict c1 = out[1], *restrict c2 = out[2], *restrict c3 = out[3];
  for (int b = 0; b < nblock; b++) {
    c0[b] = (uint32_t)sample, c1[b] = (uint32_t)(sample >> 32);
    c2[b] = position, c3[b] = block + (uint32_t)b;
  }
  for (uint32_t round = 0; round < 10; round++) {
    const uint32_t k0 = key.word[0] + round * 0x9E3779B9u, k1 = key.word[1] + round * 0xBB67AE85u;
    for (int b = 0; b < nblock; b++) {
      const uint64_t p0 = (uint64_t)0xD2511F53u * c0[b], p1 = (uint64_t)0xCD9E8D57u * c2[b];
      const uint32_t next0 = (uint32_t)(p1 >> 32) ^ c1[b] ^ k0, next2 = (uint32_t)(p0 >> 32) ^ c3[b] ^ k1;
      c0[b] = next0, c1[b] = (uint32_t)p1;
      c2[b] = next2, c3[b] = (uint32_t)p0;
    }
  }
}

INLINE float keep_factor(uint32_t word, float p, float scale) {
  return (float)(int32_t)(word >> 8) * 0x1p-24f >= p ? scale : 0.0f;
}

// Dropout factors (0 or 1 / (1 - p)) of n <= MASK_MAX features from `feature` on, for one row.
static void keep_factors(const tr_dropout *d, int64_t row, uint32_t feature, int n, float *restrict factor) {
  uint32_t words[4][MASK_MAX / 4 + 2];
  int skip = (int)(feature % 4);
  random_words(d->key, (uint64_t)d->sample[row], (uint32_t)d->position[row], feature / 4, (skip + n + 3) / 4, words);
  const float p = d->p, scale = 1.0f / (1.0f - d->p);
  if (skip == 0 && n % 4 == 0) {
    for (int b = 0; b < n / 4; b++)
      for (int lane = 0; lane < 4; lane++) factor[4 * b + lane] = keep_factor(words[lane][b], p, scale);
    return;
  }
  for (int i = 0; i < n; i++) factor[i] = keep_factor(words[(skip + i) % 4][(skip + i) / 4], p, scale);
}

#endif
