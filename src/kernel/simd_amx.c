// SPDX-License-Identifier: MIT
// The kernels for processors with AMX (tile, bf16) besides AVX-512, and a loop of tile products that measures their peak.
// Built with those flags and reached only through the table, after tr_cpu_isa() has said yes: the system must have
// granted the tile state as well. See amx_body.h for the code.
#include "kernel/cpu_amx_internal.h"

#if defined(__x86_64__)
#include "kernel/amx_tile_internal.h"

#define TR_AMX_TABLE tr__amx
#include "kernel/amx_body.h"

// Four accumulators, two tiles of A and two of B: what the micro-kernel does, without its loads.
double tr__amx_peak(int64_t turns, double *flops) {
  _Alignas(64) tr_bf16 ones[16 * 32];
  _Alignas(64) float out[16 * 16];
  for (int i = 0; i < 16 * 32; i++) ones[i] = tr_f32_to_bf16(1.0f);
  amx_begin();
  amx_zero(0);
  amx_zero(1);
  amx_zero(2);
  amx_zero(3);
  amx_load(4, ones, 64);
  amx_load(5, ones, 64);
  amx_load(6, ones, 64);
  amx_load(7, ones, 64);
  for (int64_t i = 0; i < turns; i++) {
    amx_dot(0, 4, 6);
    amx_dot(1, 4, 7);
    amx_dot(2, 5, 6);
    amx_dot(3, 5, 7);
  }
  amx_store(0, out, 64);
  amx_end();
  *flops = (double)turns * 4 * 2 * 16 * 16 * 32;
  return (double)out[0];
}

#else

const tr_amx tr__amx = {.pack_group = NULL};

double tr__amx_peak(int64_t turns, double *flops) {
  (void)turns;
  *flops = 0;
  return 0;
}

#endif
