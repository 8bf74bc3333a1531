// SPDX-License-Identifier: MIT
// The tile verbs of amx_body.h without AMX: the eight tiles as arrays, and tdpbf16ps as Intel's manual describes it. Each
// thread has its own tiles. Using one outside of amx_begin() .. amx_end() is caught, as the processor would.
//
// For every row of A, tdpbf16ps sums the even and the odd k of the 32 apart, each by fused multiply-adds in f32, then
// adds both and what was in C. Everywhere denormal inputs count as zero, denormal results become zero, and rounding is to
// nearest even. Here a fused multiply-add is done in double, which gives its bits: the product of two bf16 is exact in 16
// bits, and where the sum with 24 more does not fit into 53, what is cut off lies too far below to decide a tie.
#ifndef TRIREME_TESTS_AMX_EMULATED_H
#define TRIREME_TESTS_AMX_EMULATED_H

#include "trireme/tensor/dtype.h"

#include <assert.h>
#include <float.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

// What stands for the processor is not what sanitizers are to look at.
#define AMX_HARDWARE __attribute__((no_sanitize("address"), no_sanitize("undefined")))

enum { TILES = 8, TILE_ROWS = 16, TILE_ROW_BYTES = 64 };

typedef union amx_register {
  unsigned char byte[TILE_ROWS][TILE_ROW_BYTES];
  float f32[TILE_ROWS][16];
  tr_bf16 bf16[TILE_ROWS][32];
} amx_register;

static _Thread_local struct {
  int begun;
  amx_register tile[TILES];
} amx_state;

static inline void amx_begin(void) { amx_state.begun = 1, memset(amx_state.tile, 0, sizeof amx_state.tile); }
static inline void amx_end(void) { amx_state.begun = 0; }

static inline amx_register *amx_tile(int t) {
  assert(amx_state.begun && t >= 0 && t < TILES);
  return &amx_state.tile[t];
}

static inline void amx_zero(int t) { memset(amx_tile(t), 0, sizeof(amx_register)); }

static inline void amx_load(int t, const void *from, int64_t step) {
  for (int r = 0; r < TILE_ROWS; r++) memcpy(amx_tile(t)->byte[r], (const char *)from + r * step, TILE_ROW_BYTES);
}

static inline void amx_store(int t, void *to, int64_t step) {
  for (int r = 0; r < TILE_ROWS; r++) memcpy((char *)to + r * step, amx_tile(t)->byte[r], TILE_ROW_BYTES);
}

// Rounded to f32, denormals to zero.
AMX_HARDWARE static inline float amx_f32(double x) {
  const float f = (float)x;
  return fabsf(f) < FLT_MIN ? copysignf(0.0f, f) : f;
}

static inline double amx_wide(tr_bf16 x) { return (x & 0x7f80) ? (double)tr_bf16_to_f32(x) : 0.0; }

AMX_HARDWARE static inline void amx_dot(int c, int a, int b) {
  const amx_register *x = amx_tile(a), *y = amx_tile(b);
  double wide[TILE_ROWS][32];
  for (int i = 0; i < TILE_ROWS * 32; i++) wide[i / 32][i % 32] = amx_wide(y->bf16[i / 32][i % 32]);
  for (int i = 0; i < TILE_ROWS; i++) {
    float sum[32] = {0}; // of even and odd k in turn
    for (int q = 0; q < TILE_ROWS; q++) {
      const double even = amx_wide(x->bf16[i][2 * q]), odd = amx_wide(x->bf16[i][2 * q + 1]);
      for (int j = 0; j < 32; j += 2) {
        sum[j] = amx_f32(even * wide[q][j] + (double)sum[j]);
        sum[j + 1] = amx_f32(odd * wide[q][j + 1] + (double)sum[j + 1]);
      }
    }
    for (int j = 0; j < 16; j++) {
      float *out = &amx_tile(c)->f32[i][j];
      const float both = amx_f32((double)sum[2 * j] + (double)sum[2 * j + 1]);
      *out = amx_f32((double)amx_f32((double)*out) + (double)both);
    }
  }
}

#endif
