// SPDX-License-Identifier: MIT
// AMX tile products, for measuring the processor's peak only: bf16 products themselves go through oneDNN.
//
// Four accumulator tiles, two tiles of A and two of B: every tdpbf16ps multiplies 16 x 32 by 32 x 16 bf16.
// The kernel must have granted the tile state (tr_cpu_isa() says TR_ISA_AMX only then). Functions ask for the
// instructions by attribute, so the file needs no flags of its own.
#include "kernel/cpu_table_internal.h"

#if defined(__x86_64__)
#include <immintrin.h>
#include <string.h>

typedef struct tile_config { // the operand of ldtilecfg
  uint8_t palette, start_row, reserved[14];
  uint16_t bytes_per_row[16];
  uint8_t rows[16];
} tile_config;

__attribute__((target("amx-tile,amx-bf16"))) double tr__amx_peak(int64_t turns, double *flops) {
  _Alignas(64) tile_config config;
  _Alignas(64) uint16_t ones[16 * 32];
  _Alignas(64) float out[16 * 16];
  memset(&config, 0, sizeof config);
  config.palette = 1;
  for (int t = 0; t < 8; t++) config.bytes_per_row[t] = 64, config.rows[t] = 16;
  for (int i = 0; i < 16 * 32; i++) ones[i] = tr_f32_to_bf16(1.0f);
  _tile_loadconfig(&config);
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  _tile_loadd(4, ones, 64);
  _tile_loadd(5, ones, 64);
  _tile_loadd(6, ones, 64);
  _tile_loadd(7, ones, 64);
  for (int64_t i = 0; i < turns; i++) {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_stored(0, out, 64);
  _tile_release();
  *flops = (double)turns * 4 * 2 * 16 * 16 * 32;
  return (double)out[0];
}

#else

double tr__amx_peak(int64_t turns, double *flops) {
  (void)turns;
  *flops = 0;
  return 0;
}

#endif
