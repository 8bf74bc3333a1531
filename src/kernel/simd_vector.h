// SPDX-License-Identifier: MIT
// Vectors of TR_VL floats with the compiler's vector extension: loads and stores of f32 and bf16 with any
// tail, sums, exponential and logarithm, and the dropout mask. Included by simd_body.h only.
//
// Every loop handles its last, partial vector with the same vector arithmetic on zero-padded lanes, so that
// an element's bits do not depend on where in a buffer it lies.
#ifndef TRIREME_KERNEL_SIMD_VECTOR_H
#define TRIREME_KERNEL_SIMD_VECTOR_H

#include "kernel/simd_lanes.h"

enum { MASK_MAX = 256 }; // features per block of dropout factors

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
  return widen_bf16(h);
}
// As a bf16 would hold it.
INLINE vf round_bf16(vf v) { return (vf)(rounded_bf16(v) & 0xffff0000u); }
INLINE void store_bf16(tr_bf16 *p, vf v, int64_t n) {
  const vh h = narrow_bf16(v);
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

// Towards the first-level cache: what the loop comes to AHEAD bytes later. Long streams of several arrays gain by it,
// since hardware prefetchers stop at pages.
enum { AHEAD = 2048 };
INLINE void fetch(tr_dtype type, const void *base, int64_t i) {
  __builtin_prefetch((const char *)tr__elem(type, base, i) + AHEAD, 0, 3);
}
INLINE void fetch_to_write(tr_dtype type, const void *base, int64_t i) {
  __builtin_prefetch((const char *)tr__elem(type, base, i) + AHEAD, 1, 3);
}

INLINE float max_lanes(vf v) {
  float t[TR_VL];
  memcpy(t, &v, sizeof t);
  for (int i = 1; i < TR_VL; i++) t[0] = t[i] > t[0] ? t[i] : t[0];
  return t[0];
}
INLINE vi first_numbers(void) { // 0, 1, 2, ...
  vi index;
  for (int i = 0; i < TR_VL; i++) index[i] = i;
  return index;
}
// All ones in the first n lanes.
INLINE vi first_lanes(int64_t n) { return first_numbers() < (int32_t)(n < TR_VL ? n : TR_VL); }

// e^x for x <= 88: x = k ln 2 + r with |r| <= ln 2 / 2, a polynomial for e^r (exact for 0), and k added to the
// exponent's bits. Relative error below 4e-7, 2e-7 for |x| < 10. Zero below -87 (no denormals). NaN stays NaN.
INLINE vf exp_f32(vf x) {
  const float magic = 12582912.0f; // 1.5 * 2^23: adding it rounds to an integer in the low bits
  vf shifted = x * 1.44269504f + magic, k = shifted - magic;
  // Where no multiply-add may round once, ln 2 in two parts, the first exact in few bits.
  vf r = TR_VL > 4 ? x - k * 0.69314718f : (x - k * 0.693359375f) + k * 2.12194440e-4f;
  vf p = 8.290272278e-3f * r + 4.189816039e-2f;
  p = p * r + 0.1666763813f;
  p = p * r + 0.4999914784f;
  p = p * r + 0.9999997063f;
  p = p * r + 1.0f;
  return (vf)((vi)((vu)p + ((vu)shifted << 23)) & ~(x < -87.0f));
}

// 1 / d for 1 <= d <= 2, relative error below 1e-7: a cubic guess, then one step of third order. Cheaper than a division,
// and the same bits everywhere, unlike the processor's estimates.
INLINE vf reciprocal_one_to_two(vf d) {
  vf y = -0.2218372303f * d + 1.331023384f;
  y = y * d - 2.939343015f;
  y = y * d + 2.828423814f;
  vf e = 1.0f - d * y;
  return y + y * (e + e * e);
}

// 1 / (1 + e^-u) as `value`, and its slope value (1 - value); no cancellation on either side.
INLINE vf sigmoid(vf u, vf *slope) {
  vf e = exp_f32((vf)((vu)u | 0x80000000u)); // e^-|u|
  vf s = reciprocal_one_to_two(1.0f + e);
  *slope = e * s * s;
  return times_where_negative(u, s, e);
}

// Natural logarithm of positive normal floats (infinity and NaN are returned as they are), in double: x = 2^e m, m in
// [sqrt(1/2), sqrt(2)), log m = 2 atanh((m - 1) / (m + 1)).
INLINE vd log_f64(vd x) {
  const vd magic = (vd){0} + 0x1p52;
  const vq one = (vq){0} + 0x3ff0000000000000u, bits = (vq)x;
  vd m = (vd)((bits & 0xfffffffffffffu) | one), e = (vd)((bits >> 52) | (vq)magic) - magic - 1023.0;
  const vq large = (vq)(m > 1.4142135623730951);
  m = (vd)((vq)m - (large & 0x0010000000000000u)); // half of it
  e += (vd)(large & one);
  const vd f = (m - 1.0) / (m + 1.0), g = f * f;
  vd sum = g * (1.0 / 15) + 1.0 / 13;
  sum = sum * g + 1.0 / 11;
  sum = sum * g + 1.0 / 9;
  sum = sum * g + 1.0 / 7;
  sum = sum * g + 1.0 / 5;
  sum = sum * g + 1.0 / 3;
  const vd log = e * 0.69314718055994530942 + (2.0 * f + 2.0 * f * (g * sum));
  const vq finite = (vq)(x <= 3.402823466e38);
  return (vd)(((vq)log & finite) | (bits & ~finite));
}
INLINE vf log_lanes(vf x) {
  vf_half half[2];
  memcpy(half, &x, sizeof x);
  for (int i = 0; i < 2; i++)
    half[i] = __builtin_convertvector(log_f64(__builtin_convertvector(half[i], vd)), vf_half);
  memcpy(&x, half, sizeof x);
  return x;
}
INLINE float log_f32(float x) { return log_lanes(splat(x))[0]; }

// The words of tr_rng_u32x4, one counter per lane. The four words of a counter in two vectors each, one for the even
// and one for the odd lanes, as 64-bit numbers of which the lower half counts.
typedef struct philox_lanes {
  vq word[4];
} philox_lanes;

INLINE void random_round(philox_lanes *c, vq key0, vq key1) {
  const vq m0 = (vq){0} + 0xD2511F53u, m1 = (vq){0} + 0xCD9E8D57u;
  const vq p0 = product_even(c->word[0], m0), p1 = product_even(c->word[2], m1);
  c->word[0] = (p1 >> 32) ^ c->word[1] ^ key0;
  c->word[2] = (p0 >> 32) ^ c->word[3] ^ key1;
  c->word[1] = p1;
  c->word[3] = p0;
}

INLINE void random_words(tr_rng_key key, const vu counter[4], vu out[4]) {
  philox_lanes even, odd;
  for (int w = 0; w < 4; w++) even.word[w] = (vq)counter[w], odd.word[w] = (vq)counter[w] >> 32;
#pragma GCC unroll 10
  for (uint32_t round = 0; round < 10; round++) {
    const vq key0 = (vq){0} + (key.word[0] + round * 0x9E3779B9u),
             key1 = (vq){0} + (key.word[1] + round * 0xBB67AE85u);
    random_round(&even, key0, key1);
    random_round(&odd, key0, key1);
  }
  for (int w = 0; w < 4; w++) out[w] = (vu)((even.word[w] & 0xffffffffu) | (odd.word[w] << 32));
}

// The factor of an element is `kept` = 1 / (1 - p) where the upper 24 bits of its word, as a fraction of 1, are p or more.
typedef struct keep_rule {
  int32_t least; // of those bits
  float kept;
} keep_rule;

INLINE keep_rule keep_of(const tr_dropout *d) {
  const float scaled = d->p * 0x1p24f, down = (float)(int32_t)scaled;
  return (keep_rule){(int32_t)scaled + (down < scaled), 1.0f / (1.0f - d->p)};
}
INLINE vf keep_lanes(keep_rule k, vu words) { return (vf)((vi)splat(k.kept) & ((vi)(words >> 8) >= k.least)); }

// Dropout factors (0 or 1 / (1 - p)) of n <= MASK_MAX features from `feature` on, for one row. `factor` has space for
// MASK_SPACE, since whole blocks of 4 features are written, TR_VL of them at once.
enum { MASK_SPACE = MASK_MAX + 5 * TR_VL };
static const float *keep_factors(const tr_dropout *d, int64_t row, uint32_t feature, int n, float *factor) {
  const uint64_t sample = (uint64_t)d->sample[row];
  const keep_rule k = keep_of(d);
  const int skip = (int)(feature % 4);
  vu counter[4] = {(vu){0} + (uint32_t)sample, (vu){0} + (uint32_t)(sample >> 32),
                   (vu){0} + (uint32_t)d->position[row], (vu)first_numbers() + feature / 4};
  for (int i = 0; i < skip + n; i += 4 * TR_VL, counter[3] += TR_VL) {
    vu words[4];
    random_words(d->key, counter, words);
    const vf f0 = keep_lanes(k, words[0]), f1 = keep_lanes(k, words[1]), f2 = keep_lanes(k, words[2]),
             f3 = keep_lanes(k, words[3]);
    const vf low02 = interleave_low(f0, f2), low13 = interleave_low(f1, f3);
    const vf high02 = interleave_high(f0, f2), high13 = interleave_high(f1, f3);
    store_f32(factor + i, interleave_low(low02, low13), TR_VL);
    store_f32(factor + i + TR_VL, interleave_high(low02, low13), TR_VL);
    store_f32(factor + i + 2 * TR_VL, interleave_low(high02, high13), TR_VL);
    store_f32(factor + i + 3 * TR_VL, interleave_high(high02, high13), TR_VL);
  }
  return factor + skip;
}

#endif
