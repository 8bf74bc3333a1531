// SPDX-License-Identifier: MIT
// The tile verbs of amx_body.h as the processor's instructions. Tile numbers are literals, since they are part of the
// instruction; hence macros.
//
// GCC does not tell its optimiser that ldtilecfg and tileloadd read memory, so a load is preceded by a statement that
// says it, and the configuration is a constant.
#ifndef TRIREME_KERNEL_AMX_TILE_INTERNAL_H
#define TRIREME_KERNEL_AMX_TILE_INTERNAL_H

#include <immintrin.h>
#include <stdint.h>

typedef struct tile_config { // the operand of ldtilecfg
  uint8_t palette, start_row, reserved[14];
  uint16_t bytes_per_row[16];
  uint8_t rows[16];
} tile_config;

static inline void amx_begin(void) {
  static const _Alignas(64) tile_config config = {
      .palette = 1, .bytes_per_row = {64, 64, 64, 64, 64, 64, 64, 64}, .rows = {16, 16, 16, 16, 16, 16, 16, 16}};
  _tile_loadconfig(&config);
}
static inline void amx_end(void) { _tile_release(); }

#define amx_zero(t) _tile_zero(t)
#define amx_load(t, from, step)                                                                                      \
  do {                                                                                                               \
    __asm__ volatile("" ::: "memory");                                                                               \
    _tile_loadd(t, from, step);                                                                                      \
  } while (0)
#define amx_store(t, to, step) _tile_stored(t, to, step)
#define amx_dot(c, a, b)       _tile_dpbf16ps(c, a, b)

#endif
