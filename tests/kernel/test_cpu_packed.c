// SPDX-License-Identifier: MIT
// tier: quick
// timeout: 120
// Packed weights of tr_kernels_cpu(): a product with a packed weight has the bits of the plain one, which agrees with the
// reference table; the parts of a packed weight are disjoint and make the whole.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kernel/kernel_conformance.h"
#include "thin.h"

#define COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))

static const tr_dtype TYPES[] = {TR_F32, TR_BF16};

typedef struct product_case {
  tr_matmul p;
  const void *a, *b, *bias;
  void *packed; // of b; NULL: this table packs nothing of that type
} product_case;

static size_t scratch_product(const tr_kernels *kernels, const void *context, int nthread) {
  return kernels->matmul_scratch(&((const product_case *)context)->p, nthread);
}

static int64_t extent(int64_t rows, int64_t width, int64_t ld) { return rows && width ? (rows - 1) * ld + width : 0; }

// A weight is whole, so B has no padding; A and C have rows `pad` apart.
static product_case product_inputs(conform_bench *b, tr_matmul p, int pad, int with_bias) {
  const int64_t rows = p.trans_b ? p.n : p.k, cols = p.trans_b ? p.k : p.n, a_width = p.trans_a ? p.m : p.k;
  const tr_pack use = p.trans_b ? TR_PACK_FORWARD : TR_PACK_BACKWARD;
  const tr_kernels *cpu = tr_kernels_cpu();
  p.lda = a_width + pad, p.ldb = cols > 0 ? cols : 1, p.ldc = p.n + pad;
  if (p.lda == 0) p.lda = 1;
  product_case c = {.p = p};
  c.a = random_input(b, p.type, extent(p.trans_a ? p.k : p.m, a_width, p.lda), 1, 1, 0);
  c.b = random_input(b, p.type, rows * cols, 2, 1, 0);
  c.bias = with_bias ? random_input(b, p.type, p.n, 3, 1, 0) : NULL;
  const size_t nbyte = cpu->pack_size(p.type, rows, cols, use);
  if (nbyte == 0 && rows * cols > 0) return c;
  c.packed = bench_keep(b, exact_malloc(nbyte));
  cpu->pack(&b->table[2], p.type, rows, cols, use, c.b, 0, 1, c.packed);
  return c;
}

// Plain into out[0]; packed, where the table does that, into out[1].
static void run_product(const tr_compute *c, const void *context, void *const *out) {
  const product_case *m = context;
  tr_matmul p = m->p;
  const size_t nbyte = (size_t)extent(p.m, p.n, p.ldc) * tr_dtype_size(p.type_c);
  memcpy(out[1], out[0], nbyte);
  assert_int_equal(c->kernels->matmul(c, &p, m->a, m->b, m->bias, out[0]), TR_OK);
  p.b_packed = c->kernels->pack_size && m->packed;
  if (p.b_packed) p.ldb = 0;
  assert_int_equal(c->kernels->matmul(c, &p, m->a, p.b_packed ? m->packed : m->b, m->bias, out[1]), TR_OK);
  assert_memory_equal(out[0], out[1], nbyte);
}

static void check_packed(conform_bench *b, tr_matmul p, int pad, int with_bias) {
  product_case m = product_inputs(b, p, pad, with_bias);
  conform_case t = {.run = run_product, .scratch = scratch_product, .context = &m, .nout = 2};
  for (int k = 0; k < 2; k++)
    t.out[k] =
        (conform_out){p.type_c, extent(p.m, p.n, m.p.ldc), tolerance_of(p.type_c), p.add ? FILL_RANDOM : FILL_NAN, 1};
  snprintf(t.label, sizeof t.label, "packed m %d n %d k %d trans %d%d pad %d %s to %s add %d bias %d", (int)p.m,
           (int)p.n, (int)p.k, p.trans_a, p.trans_b, pad, tr_dtype_name(p.type), tr_dtype_name(p.type_c), p.add,
           with_bias);
  conform(b, &t);
}

// Options in bits: A transposed, B transposed, added, padded rows, bias, bf16, f32 result.
static tr_matmul product_of(int64_t m, int64_t n, int64_t k, int option) {
  tr_matmul p = {.m = m, .n = n, .k = k, .trans_a = option & 1, .trans_b = option >> 1 & 1, .add = option >> 2 & 1};
  p.type = TYPES[option >> 5 & 1];
  p.type_c = option >> 6 & 1 ? TR_F32 : p.type;
  return p;
}

static void packed_products_have_the_bits_of_plain_ones(void **state) {
  static const int64_t ms[] = {0, 1, 3, 7, 8, 12, 97}, ns[] = {0, 1, 31, 64, 129}, ks[] = {0, 1, 63, 65, 130};
  int option = 0;
  for (int m = 0; m < COUNT(ms); m++)
    for (int n = 0; n < COUNT(ns); n++)
      for (int k = 0; k < COUNT(ks); k++)
        for (int i = 0; i < 4; i++, option += 13)
          check_packed(*state, product_of(ms[m], ns[n], ks[k], option), option >> 3 & 1 ? 5 : 0, option >> 4 & 1);
}

// More than one block of k, of rows and of columns, with every option beside every other, though not in all combinations.
static void packed_products_of_many_blocks_agree(void **state) {
  static const int64_t shapes[][3] = {{113, 401, 800}, {5, 100, 1700}, {200, 33, 1537}};
  for (int s = 0; s < COUNT(shapes); s++)
    for (int option = 0; option < 128; option += (s == 0 ? 3 : 7) * STRIDE)
      check_packed(*state, product_of(shapes[s][0], shapes[s][1], shapes[s][2], option), option >> 3 & 1 ? 5 : 0,
                   option >> 4 & 1);
}

// --- packing ---

// How often each byte is written by one of the parts: seen by what a part changes in either of two fillings.
static void count_writes(const tr_compute *c, tr_dtype type, int64_t rows, int64_t cols, tr_pack use, const void *w,
                         int part, int parts, size_t nbyte, unsigned char *count) {
  unsigned char *low = malloc(nbyte + CONFORM_GUARD), *high = malloc(nbyte + CONFORM_GUARD);
  assert_non_null(low);
  assert_non_null(high);
  memset(low, 0x55, nbyte + CONFORM_GUARD);
  memset(high, 0xaa, nbyte + CONFORM_GUARD);
  c->kernels->pack(c, type, rows, cols, use, w, part, parts, low);
  c->kernels->pack(c, type, rows, cols, use, w, part, parts, high);
  for (size_t i = 0; i < nbyte + CONFORM_GUARD; i++)
    count[i] = (unsigned char)(count[i] + (low[i] != 0x55 || high[i] != 0xaa));
  free(low);
  free(high);
}

static void check_parts(conform_bench *b, tr_dtype type, int64_t rows, int64_t cols, tr_pack use, int parts) {
  const tr_compute *c = &b->table[1];
  const size_t nbyte = c->kernels->pack_size(type, rows, cols, use);
  const void *w = random_input(b, type, rows * cols, 9, 1, 0);
  unsigned char *whole = bench_keep(b, malloc(nbyte + 1)), *pieces = bench_keep(b, malloc(nbyte + 1)),
                *count = bench_keep(b, calloc(1, nbyte + CONFORM_GUARD));
  c->kernels->pack(c, type, rows, cols, use, w, 0, 1, whole);
  for (int part = parts - 1; part >= 0; part--) {
    c->kernels->pack(c, type, rows, cols, use, w, part, parts, pieces);
    count_writes(c, type, rows, cols, use, w, part, parts, nbyte, count);
  }
  assert_memory_equal(whole, pieces, nbyte);
  for (size_t i = 0; i < nbyte; i++) assert_int_equal(count[i], 1);
  for (size_t i = nbyte; i < nbyte + CONFORM_GUARD; i++) assert_int_equal(count[i], 0);
  bench_release(b);
}

static void parts_of_a_packed_weight_are_disjoint_and_make_the_whole(void **state) {
  static const int64_t shapes[][2] = {{1, 1}, {33, 5}, {64, 100}, {257, 31}, {130, 129}};
  static const int parts[] = {1, 2, 3, 7};
  conform_bench *b = *state;
  for (int t = 0; t < COUNT(TYPES); t++)
    for (int s = 0; s < COUNT(shapes); s++)
      for (int use = 0; use < TR_PACKS; use++)
        for (int i = 0; i < COUNT(parts); i++)
          if (b->table[0].kernels->pack_size(TYPES[t], 1, 1, TR_PACK_FORWARD) > 0)
            check_parts(b, TYPES[t], shapes[s][0], shapes[s][1], (tr_pack)use, parts[i]);
}

// --- output head ---

typedef struct head_results {
  float *loss, *dw;
  void *dx;
} head_results;

static head_results head_run(conform_bench *b, tr_head_loss p, void *const packed[TR_PACKS], int mask) {
  head_results r;
  r.loss = p.loss = bench_keep(b, malloc((size_t)p.rows * sizeof(float)));
  r.dx = p.dx = bench_keep(b, malloc((size_t)(p.rows * p.width) * tr_dtype_size(p.type)));
  r.dw = p.dw = bench_keep(b, malloc((size_t)(p.vocab * p.width) * sizeof(float)));
  for (int use = 0; use < TR_PACKS; use++) p.packed[use] = mask >> use & 1 ? packed[use] : NULL;
  assert_int_equal(b->table[1].kernels->head_loss(&b->table[1], &p), TR_OK);
  return r;
}

static void check_head(conform_bench *b, int64_t rows, int64_t width, int64_t vocab, tr_dtype type) {
  const tr_compute *c = &b->table[1];
  tr_head_loss p = {.rows = rows, .width = width, .vocab = vocab, .type = type, .scale = 1 / (double)rows};
  p.x = random_input(b, type, rows * width, 1, 1, 0);
  p.w = random_input(b, type, vocab * width, 2, 0.5f, 0);
  p.target = random_index(b, rows, 3, -1, (int32_t)vocab);
  void *packed[TR_PACKS];
  for (int use = 0; use < TR_PACKS; use++) {
    packed[use] = bench_keep(b, malloc(c->kernels->pack_size(type, vocab, width, (tr_pack)use)));
    c->kernels->pack(c, type, vocab, width, (tr_pack)use, p.w, 0, 1, packed[use]);
  }
  const head_results plain = head_run(b, p, packed, 0);
  for (int mask = 1; mask < 4; mask++) {
    const head_results r = head_run(b, p, packed, mask);
    assert_memory_equal(plain.loss, r.loss, (size_t)rows * sizeof(float));
    assert_memory_equal(plain.dx, r.dx, (size_t)(rows * width) * tr_dtype_size(type));
    assert_memory_equal(plain.dw, r.dw, (size_t)(vocab * width) * sizeof(float));
  }
  bench_release(b);
}

static void head_loss_with_packed_weights_has_the_bits_of_plain_ones(void **state) {
  conform_bench *b = *state;
  for (int t = 0; t < COUNT(TYPES); t++) {
    if (b->table[0].kernels->pack_size(TYPES[t], 1, 1, TR_PACK_FORWARD) == 0) continue;
    check_head(b, 5, 17, 100, TYPES[t]);
    check_head(b, 300, 65, 6200, TYPES[t]); // three blocks of the vocabulary, two tiles of rows
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(packed_products_have_the_bits_of_plain_ones),
      cmocka_unit_test(packed_products_of_many_blocks_agree),
      cmocka_unit_test(parts_of_a_packed_weight_are_disjoint_and_make_the_whole),
      cmocka_unit_test(head_loss_with_packed_weights_has_the_bits_of_plain_ones),
  };
  return cmocka_run_group_tests(tests, conform_setup, conform_teardown);
}
