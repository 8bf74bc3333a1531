// SPDX-License-Identifier: MIT
// Philox 4x32-10 and what is drawn from it (Salmon, Moraes, Dror, Shaw, SC 2011).
//
//   counter of                           words                                           lane
//   a coordinate                         sample low, sample high, position, feature / 4  feature % 4
//   a flat index i (the fill functions)  (i / 4) low, (i / 4) high, 0, 0                 i % 4
//
// A normal block turns the four words of a counter into two Box-Muller pairs: words 0, 1 give elements 0, 1 and words
// 2, 3 give elements 2, 3. Logarithm, sine and cosine are polynomials in double with errors below 1e-15; built
// without contraction, they give the same bits with every compiler and processor that follows IEEE 754.
#include "trireme/base/philox.h"

#include <string.h>
#include <xxhash.h>

enum { ROUNDS = 10 };

void tr_philox4x32(const uint32_t key[2], const uint32_t counter[4], uint32_t out[4]) {
  uint32_t k0 = key[0], k1 = key[1];
  uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
  for (int round = 0; round < ROUNDS; round++) {
    uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
    c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
    c1 = (uint32_t)p1;
    c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
    c3 = (uint32_t)p0;
    k0 += 0x9E3779B9u; // Weyl sequence: golden ratio
    k1 += 0xBB67AE85u; // and sqrt(3) - 1
  }
  out[0] = c0, out[1] = c1, out[2] = c2, out[3] = c3;
}

// Add a word to a hash and mix (the finaliser of splitmix64: a bijection in which every bit reaches every other).
static uint64_t mix(uint64_t hash, uint64_t word) {
  uint64_t x = hash + 0x9E3779B97F4A7C15u + word;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

tr_rng_key tr_rng_key_make(uint64_t seed, uint32_t purpose, uint64_t step) {
  uint64_t hash = mix(mix(mix(0, seed), purpose), step);
  return (tr_rng_key){.word = {(uint32_t)hash, (uint32_t)(hash >> 32)}};
}

void tr_rng_u32x4(tr_rng_key key, uint64_t sample, uint32_t position, uint32_t feature, uint32_t out[4]) {
  const uint32_t counter[4] = {(uint32_t)sample, (uint32_t)(sample >> 32), position, feature / 4};
  tr_philox4x32(key.word, counter, out);
}

uint32_t tr_rng_u32(tr_rng_key key, uint64_t sample, uint32_t position, uint32_t feature) {
  uint32_t word[4];
  tr_rng_u32x4(key, sample, position, feature, word);
  return word[feature % 4];
}

static float unit_float(uint32_t word) { return (float)(word >> 8) * 0x1p-24f; }

float tr_rng_uniform(tr_rng_key key, uint64_t sample, uint32_t position, uint32_t feature) {
  return unit_float(tr_rng_u32(key, sample, position, feature));
}

// Natural logarithm of x in (0, 1), normal numbers only: x = 2^e m with m in [sqrt(1/2), sqrt(2)), and
// log m = 2 atanh((m - 1) / (m + 1)), whose series in f^2 <= 0.0295 is cut below 1e-18.
static double log_unit(double x) {
  uint64_t bits;
  memcpy(&bits, &x, sizeof bits);
  int exponent = (int)(bits >> 52) - 1023;
  bits = (bits & 0xFFFFFFFFFFFFFu) | 0x3FF0000000000000u;
  double m;
  memcpy(&m, &bits, sizeof m);
  if (m > 1.4142135623730951) {
    m *= 0.5;
    exponent++;
  }
  double f = (m - 1.0) / (m + 1.0), g = f * f, sum = 1.0 / 23;
  for (int k = 21; k >= 3; k -= 2) sum = sum * g + 1.0 / k;
  return exponent * 0.69314718055994530942 + (2.0 * f + 2.0 * f * (g * sum));
}

// Sine and cosine of 2 pi turn / 2^32. The quadrant is split off in integers, exactly; what is left is at
// most pi / 4.
static void sincos_turn(uint32_t turn, double *sine, double *cosine) {
  uint32_t quadrant = (turn + (1u << 29)) >> 30;
  double a = (double)(int32_t)(turn - (quadrant << 30)) * (6.28318530717958647693 * 0x1p-32), g = a * a;
  double s = 1.0, c = 1.0;
  for (int k = 16; k >= 2; k -= 2) {
    s = 1.0 - g * s * (1.0 / (k * (k + 1)));
    c = 1.0 - g * c * (1.0 / (k * (k - 1)));
  }
  s *= a;
  switch (quadrant & 3) {
  case 0: *sine = s, *cosine = c; break;
  case 1: *sine = c, *cosine = -s; break;
  case 2: *sine = -s, *cosine = -c; break;
  default: *sine = -c, *cosine = s; break;
  }
}

// The square root is an IEEE 754 operation, rounded the same way everywhere.
static void normal_pair(const uint32_t word[2], float out[2]) {
  double u = ((double)word[0] + 0.5) * 0x1p-32; // never 0 or 1
  double radius = __builtin_sqrt(-2.0 * log_unit(u)), sine, cosine;
  sincos_turn(word[1], &sine, &cosine);
  out[0] = (float)(radius * cosine);
  out[1] = (float)(radius * sine);
}

static void normal_block(tr_rng_key key, uint64_t block, float out[4]) {
  uint32_t word[4];
  tr_rng_u32x4(key, block, 0, 0, word);
  normal_pair(word, out);
  normal_pair(word + 2, out + 2);
}

static void uniform_block(tr_rng_key key, uint64_t block, float out[4]) {
  uint32_t word[4];
  tr_rng_u32x4(key, block, 0, 0, word);
  for (int lane = 0; lane < 4; lane++) out[lane] = unit_float(word[lane]);
}

// Whole blocks go straight to `out`; a block cut by either end goes through a buffer.
static void fill(void (*block_fn)(tr_rng_key, uint64_t, float[4]), tr_rng_key key, uint64_t first, size_t n,
                 float *out) {
  for (size_t done = 0; done < n;) {
    uint64_t block = (first + done) / 4;
    size_t lane = (size_t)((first + done) % 4), take = 4 - lane < n - done ? 4 - lane : n - done;
    if (take == 4) {
      block_fn(key, block, out + done);
    } else {
      float part[4];
      block_fn(key, block, part);
      memcpy(out + done, part + lane, take * sizeof *out);
    }
    done += take;
  }
}

void tr_rng_normal_fill(tr_rng_key key, uint64_t first, size_t n, float *out) {
  fill(normal_block, key, first, n, out);
}

void tr_rng_uniform_fill(tr_rng_key key, uint64_t first, size_t n, float *out) {
  fill(uniform_block, key, first, n, out);
}

uint64_t tr_hash_string(const char *text) { return XXH64(text, strlen(text), 0); }
