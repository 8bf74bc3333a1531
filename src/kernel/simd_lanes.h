// SPDX-License-Identifier: MIT
// The few operations on vectors for which compilers find no good instruction in the portable form: larger and smaller
// of two, bf16 to f32 and back, the 64-bit product of 32-bit lanes. Included by simd_vector.h only.
//
// Each has a portable form, which says what it means, and that of the instruction set that the file is built for. All
// forms give the same bits.
#ifndef TRIREME_KERNEL_SIMD_LANES_H
#define TRIREME_KERNEL_SIMD_LANES_H

#include "kernel/cpu_table_internal.h"
#include <string.h>

#if defined(__SSE2__)
#include <immintrin.h>
#endif

typedef float vf __attribute__((vector_size(TR_VL * 4)));
typedef int32_t vi __attribute__((vector_size(TR_VL * 4)));
typedef uint32_t vu __attribute__((vector_size(TR_VL * 4)));
typedef uint64_t vq __attribute__((vector_size(TR_VL * 4))); // TR_VL / 2 lanes
typedef uint16_t vh __attribute__((vector_size(TR_VL * 2)));
typedef float vf_half __attribute__((vector_size(TR_VL * 2)));
typedef double vd __attribute__((vector_size(TR_VL * 4))); // TR_VL / 2 lanes

#define INLINE static inline __attribute__((always_inline, unused))

INLINE vf splat(float x) { return (vf){0} + x; }
INLINE vf select_f32(vi mask, vf yes, vf no) { return (vf)(((vi)yes & mask) | ((vi)no & ~mask)); }

// The 32 bits of bf16 that round to nearest, ties to even; NaN stays NaN. In the upper halves, with rubbish below.
INLINE vu rounded_bf16(vf v) {
  vu bits = (vu)v, rounded = bits + 0x7fffu + ((bits >> 16) & 1u), nan = (vu)(v != v);
  return (rounded & ~nan) | ((bits | 0x400000u) & nan);
}

// max_f32 and min_f32 give b when either is NaN. times_where_negative: a b where `sign` has its sign bit set, a elsewhere.
// product_even is the product of the lower halves of 64-bit lanes.
#if defined(__AVX512F__)
INLINE vf max_f32(vf a, vf b) { return (vf)_mm512_max_ps((__m512)a, (__m512)b); }
INLINE vf min_f32(vf a, vf b) { return (vf)_mm512_min_ps((__m512)a, (__m512)b); }
// Both by one permutation of words: a shift and a widening or narrowing move are two or three instructions of the same
// two execution units.
INLINE vf widen_bf16(vh h) {
  const __m512i word = _mm512_slli_epi32(_mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0), 16);
  return (vf)_mm512_maskz_permutexvar_epi16(0xaaaaaaaa, word, _mm512_castsi256_si512((__m256i)h));
}
INLINE vh narrow_bf16(vf v) {
  const __m512i word = _mm512_set_epi32(0, 0, 0, 0, 0, 0, 0, 0, 31 << 16 | 29, 27 << 16 | 25, 23 << 16 | 21,
                                        19 << 16 | 17, 15 << 16 | 13, 11 << 16 | 9, 7 << 16 | 5, 3 << 16 | 1);
  const __m512i bits = (__m512i)v;
  const __mmask16 odd = _mm512_test_epi32_mask(bits, _mm512_set1_epi32(0x10000));
  const __mmask16 nan = _mm512_cmp_ps_mask((__m512)v, (__m512)v, _CMP_UNORD_Q);
  __m512i rounded = _mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff));
  rounded = _mm512_mask_add_epi32(rounded, odd, bits, _mm512_set1_epi32(0x8000));
  rounded = _mm512_mask_or_epi32(rounded, nan, bits, _mm512_set1_epi32(0x400000));
  return (vh)_mm512_castsi512_si256(_mm512_permutexvar_epi16(word, rounded));
}
INLINE vf times_where_negative(vf sign, vf a, vf b) {
  return (vf)_mm512_mask_mul_ps((__m512)a, _mm512_movepi32_mask((__m512i)sign), (__m512)a, (__m512)b);
}
INLINE vq product_even(vq a, vq b) { return (vq)_mm512_mul_epu32((__m512i)a, (__m512i)b); }
#elif defined(__AVX2__)
INLINE vf max_f32(vf a, vf b) { return (vf)_mm256_max_ps((__m256)a, (__m256)b); }
INLINE vf min_f32(vf a, vf b) { return (vf)_mm256_min_ps((__m256)a, (__m256)b); }
INLINE vf widen_bf16(vh h) { return (vf)_mm256_slli_epi32(_mm256_cvtepu16_epi32((__m128i)h), 16); }
INLINE vh narrow_bf16(vf v) {
  __m256i upper = (__m256i)(rounded_bf16(v) >> 16);
  return (vh)_mm_packus_epi32(_mm256_castsi256_si128(upper), _mm256_extracti128_si256(upper, 1));
}
INLINE vf times_where_negative(vf sign, vf a, vf b) {
  return (vf)_mm256_blendv_ps((__m256)a, (__m256)(a * b), (__m256)sign);
}
INLINE vq product_even(vq a, vq b) { return (vq)_mm256_mul_epu32((__m256i)a, (__m256i)b); }
#else
INLINE vf max_f32(vf a, vf b) { return select_f32(a > b, a, b); }
INLINE vf min_f32(vf a, vf b) { return select_f32(a < b, a, b); }
INLINE vf widen_bf16(vh h) { return (vf)(__builtin_convertvector(h, vu) << 16); }
INLINE vh narrow_bf16(vf v) { return __builtin_convertvector(rounded_bf16(v) >> 16, vh); }
INLINE vf times_where_negative(vf sign, vf a, vf b) { return select_f32((vi)sign < 0, a * b, a); }
#if defined(__SSE2__)
INLINE vq product_even(vq a, vq b) { return (vq)_mm_mul_epu32((__m128i)a, (__m128i)b); }
#else
INLINE vq product_even(vq a, vq b) { return (a & 0xffffffffu) * (b & 0xffffffffu); }
#endif
#endif

// interleave: a0 b0 a1 b1 ..., the lower or the upper lanes of two vectors by turns. four_sums and four_largest: what
// lanes i, i + 4, i + 8, ... come to.
typedef float vf4 __attribute__((vector_size(16)));

#if TR_VL == 16
typedef float vf8 __attribute__((vector_size(32)));
INLINE vf interleave_low(vf a, vf b) {
  return __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
}
INLINE vf interleave_high(vf a, vf b) {
  return __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
}
INLINE vf4 four_sums(vf v) {
  vf8 h = __builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7) +
          __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15);
  return __builtin_shufflevector(h, h, 0, 1, 2, 3) + __builtin_shufflevector(h, h, 4, 5, 6, 7);
}
#elif TR_VL == 8
INLINE vf interleave_low(vf a, vf b) { return __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11); }
INLINE vf interleave_high(vf a, vf b) { return __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15); }
INLINE vf4 four_sums(vf v) {
  return __builtin_shufflevector(v, v, 0, 1, 2, 3) + __builtin_shufflevector(v, v, 4, 5, 6, 7);
}
#else
INLINE vf interleave_low(vf a, vf b) { return __builtin_shufflevector(a, b, 0, 4, 1, 5); }
INLINE vf interleave_high(vf a, vf b) { return __builtin_shufflevector(a, b, 2, 6, 3, 7); }
INLINE vf4 four_sums(vf v) { return v; }
#endif

INLINE float sum_lanes(vf v) {
  const vf4 f = four_sums(v);
  return (f[0] + f[2]) + (f[1] + f[3]);
}

#endif
