// SPDX-License-Identifier: MIT
// What the files of the fast CPU table share.
//
// The arithmetic is compiled once per instruction set (simd_base.c, simd_avx2.c, simd_avx512.c, all from simd_body.h)
// and reached through one table of functions, tr_simd. Those functions know nothing of threads: each does one task, a
// range of rows, of elements or a tile. The cpu_*.c files cut the work into tasks by sizes only, hand the tasks to
// the pool and combine what tasks leave behind in a fixed order; so the bits depend on the instruction set and on
// sizes, never on the number of threads. On AMX, bf16 products run on its tiles (cpu_amx.c) or in oneDNN (cpu_dnnl.c).
#ifndef TRIREME_KERNEL_CPU_TABLE_INTERNAL_H
#define TRIREME_KERNEL_CPU_TABLE_INTERNAL_H

#include "trireme/kernel/kernel.h"

enum {
  TR_GEMM_ROWS = 96,      // rows of C per task: a multiple of every micro-kernel's height (4, 6, 12)
  TR_GEMM_COLS = 384,     // columns of C per task, or gemm_cols: a multiple of every micro-kernel's width (8, 16, 32)
  TR_GEMM_PANEL = 32,     // columns padded to this when B is packed (the widest micro-kernel)
  TR_GEMM_THIN = 8,       // fewer rows than this are done as matrix-vector products, without packing
  TR_GEMM_THIN_COLS = 64, // columns of C per task of such a product
  TR_ATTENTION_TILE = 96, // query rows per block and key rows per tile of attention
  TR_ATTENTION_LINE = 16, // floats to which rows in its scratch are padded
  TR_ATTENTION_GROUP = 4, // blocks of queries per task forward
  TR_ATTENTION_KEYS = 11, // tiles of keys whose copies a worker keeps, forward; at most 32
  TR_ATTENTION_CHUNK = 4, // tiles of keys, and blocks of queries, per task backward
  TR_STRIP = 64,          // columns per task where tasks own columns
  TR_FLAT = 32768         // elements per task of flat operations
};

// B packed: panels of `nr` columns as gemm_pack_b makes them, `step` elements from one to the next.
typedef struct tr_panels {
  tr_dtype type;
  const void *at;
  int64_t step;
} tr_panels;

// C[m, n] (+)= A B (+ bias). A(i, p) = a[i * a_row + p * a_col], B(p, j) = b[p * b_row + j * b_col], in
// elements; in each of A and B one of the two strides is 1. Types are f32 or bf16, each operand its own. With `packed`,
// B is read from there instead: panels, packed_step elements from one to the next (tr__gemm_from_packed). aux has
// the layout of c.
typedef struct tr_gemm {
  int64_t m, n, k;
  tr_dtype type_a, type_b, type_c, type_bias;
  const void *a, *b, *bias;
  const void *packed;
  void *c;
  int64_t a_row, a_col, b_row, b_col, ldc, packed_step;
  int add;
} tr_gemm;

// What a worker keeps between the tiles of one product.
typedef struct tr_gemm_space {
  int64_t held;             // first row of the block of A that is there, -1: none
  _Alignas(128) float at[]; // gemm_floats
} tr_gemm_space;

typedef struct tr_norm { // layernorm, either direction
  int64_t width;
  tr_dtype type;
  float eps;
  const void *x, *gamma, *beta, *dy;
  void *y, *dx;
  float *mean, *rstd;
  int add_dx;
} tr_norm;

typedef struct tr_rms { // RMSNorm, either direction
  const tr_rmsnorm *p;
  const void *x, *gamma, *dy;
  void *y, *dx;
  float *rstd;
  int add_dx;
} tr_rms;

typedef struct tr_embed { // embedding, either direction
  int64_t rows, width;
  tr_dtype type;
  const int32_t *token, *position;
  const void *wte, *wpe, *dy;
  void *y;
  const tr_dropout *dropout;
  float *dwte, *dwpe;
} tr_embed;

typedef struct tr_amx tr_amx; // cpu_amx_internal.h

typedef struct tr_attention_call { // one call of attention, forward
  const tr_attention *p;
  const tr_amx *amx; // makes the products; NULL: vectors do
  const void *q, *k, *v;
  tr_attention_running running;
  void *out;
  float *lse;
} tr_attention_call;

typedef struct tr_attention_copied { // which tiles of keys and values lie in a worker's scratch
  int64_t first_key, head_kv;        // of which chunk; first_key -1: none
  uint32_t tiles;                    // a bit for each
} tr_attention_copied;

// Backward: a chunk of keys against a chunk of queries of one sequence, for all query heads of one key/value head.
// The sums are f32 rows of D floats, one array per sequence and key/value head: dq [head / head_kv][queries], dk and dv
// [keys], each padded to whole tiles.
typedef struct tr_attention_chunk {
  const tr_attention *p;
  const tr_attention_grad *g;
  const tr_amx *amx;
  int seq, head_kv;
  int64_t query, key; // numbers of the chunks in their sequence
  float *dq, *dk, *dv;
} tr_attention_chunk;

typedef struct tr_simd {
  const char *name;
  int nr;          // columns of a panel of B: the micro-kernel's
  int gemm_cols;   // the widest tile of C
  int gemm_floats; // of a tr_gemm_space
  void (*gemm_pack_b)(const tr_gemm *g, int64_t j0, int64_t j1, tr_dtype to, void *packed); // to: type_b or f32
  void (*gemm_tile)(const tr_gemm *g, int64_t i0, int64_t i1, int64_t j0, int64_t j1, tr_panels b,
                    tr_gemm_space *space);
  // Rows i0 .. i0 + rows - 1, columns j0 .. j1 - 1 of A B, rows `ld` apart in `from`: bias, sum, store.
  void (*gemm_store)(const tr_gemm *g, const float *from, int64_t ld, int64_t i0, int64_t rows, int64_t j0,
                     int64_t j1);
  void (*gemm_thin)(const tr_gemm *g, const float *a, int64_t j0, int64_t j1);
  void (*norm_forward)(const tr_norm *n, int64_t r0, int64_t r1);
  void (*norm_backward)(const tr_norm *n, int64_t r0, int64_t r1, float *dgamma, float *dbeta);
  void (*rms_forward)(const tr_rms *n, int64_t r0, int64_t r1);
  void (*rms_backward)(const tr_rms *n, int64_t r0, int64_t r1, float *dgamma);
  void (*rope)(const tr_rope *p, void *x, int64_t r0, int64_t r1);
  void (*swiglu_forward)(int64_t rows, int64_t width, tr_dtype type, const void *x, void *y);
  void (*swiglu_backward)(int64_t rows, int64_t width, tr_dtype type, const void *x, const void *dy, void *dx);
  void (*gelu_forward)(size_t n, tr_dtype type, const void *x, void *y);
  void (*gelu_backward)(size_t n, tr_dtype type, const void *x, const void *dy, void *dx);
  void (*embed_forward)(const tr_embed *e, int64_t r0, int64_t r1);
  void (*embed_backward)(const tr_embed *e, int64_t j0, int64_t j1);
  void (*residual)(int64_t row, int64_t width, tr_dtype type, const void *x, const void *y, const tr_dropout *d,
                   void *out);
  void (*column_sum)(int64_t rows, int64_t width, tr_dtype type, const void *dy, int64_t j0, int64_t j1, float *out,
                     int add);
  void (*adamw)(size_t n, const tr_adamw *p, float *w, const float *g, float *m, float *v, tr_dtype type,
                void *working);
  void (*sgd)(size_t n, const tr_sgd *p, float *w, const float *g, float *momentum, tr_dtype type, void *working);
  double (*sum_squares)(size_t n, const float *x);
  void (*add)(size_t n, tr_dtype type, const void *x, void *y);
  void (*convert)(size_t n, tr_dtype from, const void *x, tr_dtype to, void *y); // f32 and bf16
  float (*cross_entropy)(int64_t n, float *logits, int64_t target, int want_gradient, float scale);
  void (*attention_forward)(const tr_attention_call *call, int seq, int head, int64_t q0, int64_t q1,
                            tr_attention_copied *copied, float *scratch);
  void (*attention_clear)(const tr_attention_chunk *c); // the sums of its queries and of its keys
  void (*attention_backward)(const tr_attention_chunk *c, float *scratch);
  void (*attention_store)(const tr_attention_chunk *c); // the same sums, to the gradients
  double (*peak)(int64_t turns, float seed,
                 double *flops); // returns a number that depends on every operation
} tr_simd;

extern const tr_simd tr__simd_base, tr__simd_avx2, tr__simd_avx512;

typedef struct tr_dnnl tr_dnnl; // cpu_dnnl.c

typedef struct tr_backend {
  const tr_simd *simd;
  tr_dnnl *dnnl;     // NULL: oneDNN is not used on this processor
  const tr_amx *amx; // NULL: nor are its tiles
} tr_backend;

static inline const tr_backend *tr__backend(const tr_compute *c) { return c->backend; }
static inline const tr_simd *tr__simd(const tr_compute *c) { return tr__backend(c)->simd; }
static inline int64_t tr__ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
static inline int64_t tr__min(int64_t a, int64_t b) { return a < b ? a : b; }
static inline const void *tr__elem(tr_dtype type, const void *base, int64_t i) {
  return (const char *)base + (type == TR_BF16 ? 2 : 4) * i;
}
static inline void *tr__elem_mut(tr_dtype type, void *base, int64_t i) {
  return (char *)base + (type == TR_BF16 ? 2 : 4) * i;
}

const tr_simd *tr__simd_best(void);

// cpu_matmul.c: the product with freely typed operands, and the scratch it takes.
tr_status tr__gemm(const tr_compute *c, const tr_gemm *g);
size_t tr__gemm_scratch(int64_t m, int64_t n, int64_t k, int nthread);
tr_status tr__cpu_matmul(const tr_compute *c, const tr_matmul *p, const void *a, const void *b, const void *bias,
                         void *out);
size_t tr__cpu_matmul_scratch(const tr_matmul *p, int nthread);

// cpu_pack.c: packed weights. tr__gemm_pack makes the panels of columns first .. last - 1 of g's B, of type `to` (type_b
// or f32); `first` begins one.
// tr__gemm_from_packed makes g read its B from a packed weight of k rows: from row p and column j on, multiples of 32.
void tr__gemm_pack(const tr_compute *c, const tr_gemm *g, int64_t first, int64_t last, tr_dtype to, void *packed);
void tr__gemm_from_packed(const tr_compute *c, tr_gemm *g, const void *packed, int64_t k, int64_t j, int64_t p);
size_t tr__cpu_pack_size(tr_dtype type, int64_t rows, int64_t cols, tr_pack use);
void tr__cpu_pack(const tr_compute *c, tr_dtype type, int64_t rows, int64_t cols, tr_pack use, const void *w,
                  int part, int parts, void *packed);

// cpu_attention.c, cpu_head.c
tr_status tr__cpu_attention_forward(const tr_compute *c, const tr_attention *p, const void *q, const void *k,
                                    const void *v, const tr_attention_running *running, void *out, void *lse);
tr_status tr__cpu_attention_backward(const tr_compute *c, const tr_attention *p, const tr_attention_grad *g);
size_t tr__cpu_attention_scratch(const tr_attention *p, int nthread);
tr_status tr__cpu_head_loss(const tr_compute *c, const tr_head_loss *p);
size_t tr__cpu_head_loss_scratch(const tr_head_loss *p, int nthread);

// simd_amx.c: a loop of tile products; flops 0 where the processor or the compiler has none.
double tr__amx_peak(int64_t turns, double *flops);

#endif
