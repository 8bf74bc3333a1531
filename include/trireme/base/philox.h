// SPDX-License-Identifier: MIT
// Random numbers from a counter: Philox 4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as
// 1, 2, 3", SC 2011).
//
// A number is a pure function of a key (seed, purpose, step) and a counter (global sample, position, feature), never
// of the rank that asks or of what was drawn before, so every layout of ranks sees the same stream. All functions are
// pure and use no function of the C library's mathematics, so the bits do not depend on it.
#ifndef TRIREME_BASE_PHILOX_H
#define TRIREME_BASE_PHILOX_H

#include <stddef.h>
#include <stdint.h>

typedef struct tr_rng_key {
  uint32_t word[2];
} tr_rng_key;

// What a stream is used for; part of the key, so that no two uses share numbers.
typedef enum tr_rng_purpose {
  TR_RNG_WEIGHTS = 1,
  TR_RNG_SHUFFLE,
  TR_RNG_DROPOUT,
  TR_RNG_SAMPLE,
  TR_RNG_TEST
} tr_rng_purpose;

// The block function, 10 rounds; it gives the known answers of Random123.
void tr_philox4x32(const uint32_t key[2], const uint32_t counter[4], uint32_t out[4]);

tr_rng_key tr_rng_key_make(uint64_t seed, uint32_t purpose, uint64_t step);

// The word for one coordinate: block (sample, position, feature / 4), lane feature % 4.
uint32_t tr_rng_u32(tr_rng_key key, uint64_t sample, uint32_t position, uint32_t feature);
// Four features at once: feature must be a multiple of 4; out[i] is the word of feature + i.
void tr_rng_u32x4(tr_rng_key key, uint64_t sample, uint32_t position, uint32_t feature, uint32_t out[4]);
float tr_rng_uniform(tr_rng_key key, uint64_t sample, uint32_t position, uint32_t feature); // [0, 1), 24 bits

// Fill out[i] with normal(0, 1) numbers, i = first .. first + n - 1 of the stream of this key: index-addressed, so
// any split of a tensor over ranks gives the same values. (Box-Muller, with a logarithm, sine and cosine of its own.)
void tr_rng_normal_fill(tr_rng_key key, uint64_t first, size_t n, float *out);
void tr_rng_uniform_fill(tr_rng_key key, uint64_t first, size_t n, float *out);

uint64_t tr_hash_string(const char *text); // 64-bit hash of a name (XXH64, seed 0): the `step` word of a weight's key

#endif
