// SPDX-License-Identifier: MIT
// A permutation of 0 .. n - 1 that needs no memory: element i is computed from (seed, epoch, n, i) alone.
//
// A balanced Feistel network permutes 0 .. 4^half - 1, the smallest such range that holds n; its round
// function is Philox, keyed by seed and epoch. A result at or beyond n is put through the network again
// (cycle walking; Black and Rogaway, "Ciphers with arbitrary finite domains", 2002): the walk follows the
// cycle that i is on and so ends, at the latest at i itself, and different starts end at different places.
// The range is below 4n (or 4), so fewer than four passes are expected.
#include "trireme/base/philox.h"
#include "trireme/data/data.h"

enum { ROUNDS = 8 }; // even, so that the halves end where they began

static uint64_t network(tr_rng_key key, int half, uint64_t x) {
  uint32_t mask = (uint32_t)(((uint64_t)1 << half) - 1);
  uint32_t left = (uint32_t)(x >> half) & mask, right = (uint32_t)x & mask;
  for (uint32_t round = 0; round < ROUNDS; round++) {
    uint32_t next = left ^ (tr_rng_u32(key, right, round, 0) & mask);
    left = right;
    right = next;
  }
  return ((uint64_t)left << half) | right;
}

uint64_t tr_permute(uint64_t seed, uint64_t epoch, uint64_t n, uint64_t i) {
  if (n <= 1) return 0;
  int half = 1;
  while (half < 32 && ((uint64_t)1 << (2 * half)) < n) half++;
  tr_rng_key key = tr_rng_key_make(seed, TR_RNG_SHUFFLE, epoch);
  do i = network(key, half, i);
  while (i >= n);
  return i;
}
