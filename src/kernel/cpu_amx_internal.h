// SPDX-License-Identifier: MIT
// bf16 products on AMX: what the task grid (cpu_amx.c) and the arithmetic of one task (amx_body.h) know of each other.
//
// The arithmetic is a table of functions, compiled twice: with the processor's tile instructions (simd_amx.c), and by a
// test with a software twin of them, which runs everywhere. So packing, blocking and edges are the same code in both.
#ifndef TRIREME_KERNEL_CPU_AMX_INTERNAL_H
#define TRIREME_KERNEL_CPU_AMX_INTERNAL_H

#include "kernel/cpu_table_internal.h"

enum {
  TR_AMX_SIDE = 32,   // the micro-kernel's rows, columns, and k per step: two tiles each way
  TR_AMX_DEPTH = 256, // k per chunk: a panel of A and one of B, 16 KiB each, stay in the first-level cache
};

// One operand seen as vectors (rows of A, columns of B) over k: element (v, p) is at[v * step_v + p * step_k], and one of
// the steps is 1.
typedef struct tr_amx_operand {
  const tr_bf16 *at;
  int64_t step_v, step_k;
} tr_amx_operand;

// One task: rows i0 .. i1 - 1 and columns j0 .. j1 - 1 of C, `height` rows at a time.
typedef struct tr_amx_block {
  int64_t i0, i1, j0, j1, height;
  const tr_bf16 *b; // the packed panel of column j0
  int64_t panel;    // elements from one panel of B to the next
  int stream_b;     // B comes from beyond the second-level cache each time: fetch it ahead
} tr_amx_block;

struct tr_amx {
  // Pack group `group` of B [k, n] (as vectors: n of them): a panel of SIDE columns when k runs side by side in memory,
  // else SIDE k of all panels; either way SIDE rows as they lie in memory.
  void (*pack_group)(tr_amx_operand b, int64_t n, int64_t k, int64_t group, int64_t panel, tr_bf16 *packed);
  void (*block)(const tr_gemm *g, const tr_simd *simd, const tr_amx_block *t, void *scratch);
};

extern const tr_amx tr__amx; // simd_amx.c; no functions where the compiler's target has no tiles

// The product of a bf16 A and B. g->packed may be a part of a packed weight.
tr_status tr__amx_gemm(const tr_compute *c, const tr_gemm *g);
tr_status tr__amx_unpacked_gemm(const tr_compute *c, const tr_gemm *g);    // by way of tr__gemm and a plain B
size_t tr__amx_gemm_scratch(int64_t m, int64_t n, int64_t k, int nthread); // grows with every argument

// On AMX, bf16 products run on the tiles or in oneDNN, as a table of shapes says (cpu_amx.c). TRIREME_GEMM=tiles|onednn
// makes it one of them throughout, for tests and for comparison.
int tr__amx_wanted(void);
int tr__dnnl_wanted(void);
int tr__amx_takes(const tr_backend *b, const tr_gemm *g);

size_t tr__amx_pack_size(int64_t rows, int64_t cols); // either use
void tr__amx_pack(const tr_compute *c, int64_t rows, int64_t cols, tr_pack use, const tr_bf16 *w, int part, int parts,
                  tr_bf16 *packed);

static inline int64_t tr__amx_padded(int64_t n) { return tr__ceil_div(n, TR_AMX_SIDE) * TR_AMX_SIDE; }

// Elements from one panel of a B of k rows to the next.
static inline int64_t tr__amx_panel(int64_t k) { return tr__amx_padded(k) * TR_AMX_SIDE; }

// From a packed weight's start to column j and k p of it, multiples of TR_AMX_SIDE, in elements.
static inline int64_t tr__amx_packed_at(int64_t panel, int64_t j, int64_t p) {
  return j / TR_AMX_SIDE * panel + p * TR_AMX_SIDE;
}

// From a panel's start to k p of its column v: tiles of 16 columns by 16 pairs of k, see amx_pack.h.
static inline int64_t tr__amx_element(int64_t v, int64_t p) {
  return p / 32 * 1024 + v / 16 * 512 + p % 32 / 2 * 32 + v % 16 * 2 + p % 2;
}

#endif
