// SPDX-License-Identifier: MIT
// tier: quick
// timeout: 120
// Products on AMX tiles agree with the reference table: all layouts, block edges, packed weights, any number of
// threads. The tiles are emulated (amx_emulated.h), so packing, blocking and edges are proved on every machine; where the
// processor has tiles, its own give the same bits.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kernel/amx_emulated.h"
#include "kernel/kernel_conformance.h"
#include "thin.h"
#include "trireme/base/cpu.h"

#define TR_AMX_TABLE emulated_tiles
#include "kernel/amx_body.h"

#define COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))

static void use_tiles(conform_bench *b, const tr_amx *amx) {
  for (int t = 0; t < CONFORM_TABLE; t++) ((tr_backend *)b->table[t].backend)->amx = amx;
}

static int set_up(void **state) {
  conform_setup(state);
  use_tiles(*state, &emulated_tiles);
  return 0;
}

// --- the verbs ---

static float daz(float x) { return fabsf(x) < FLT_MIN ? copysignf(0, x) : x; }

// One element of tdpbf16ps, by the C library's fused multiply-add.
static float dot_element(float c, const tr_bf16 *a_row, const tr_bf16 b[16][32], int j) {
  float sum[2] = {0, 0};
  for (int k = 0; k < 32; k++)
    sum[k % 2] = daz(fmaf(daz(tr_bf16_to_f32(a_row[k])), daz(tr_bf16_to_f32(b[k / 2][2 * j + k % 2])), sum[k % 2]));
  return daz(daz(c) + daz(sum[0] + sum[1]));
}

static void check_dot(tr_bf16 a[16][32], tr_bf16 b[16][32], float c[16][16]) {
  float out[16][16];
  amx_begin();
  amx_load(0, c, sizeof c[0]);
  amx_load(3, a, sizeof a[0]);
  amx_load(7, b, sizeof b[0]);
  amx_dot(0, 3, 7);
  amx_store(0, out, sizeof out[0]);
  amx_end();
  for (int i = 0; i < 16; i++)
    for (int j = 0; j < 16; j++) {
      const float want = dot_element(c[i][j], a[i], (const tr_bf16(*)[32])b, j);
      if (isnan(want) ? !isnan(out[i][j]) : memcmp(&want, &out[i][j], sizeof want) != 0)
        fail_msg("element %d, %d is %a, not %a", i, j, (double)out[i][j], (double)want);
    }
}

static void dots_have_the_bits_of_fused_multiply_adds(void **state) {
  static const float scales[] = {1, 0x1p-63f, 0x1p-64f, 0x1p-70f, 0x1p+62f};
  tr_bf16 a[16][32], b[16][32];
  float c[16][16];
  (void)state;
  for (int s = 0; s < COUNT(scales); s++) {
    random_fill(TR_BF16, a, 512, 1, scales[s], 0);
    random_fill(TR_BF16, b, 512, 2, scales[s], 0);
    random_fill(TR_F32, c, 256, 3, scales[s] * scales[s], 0);
    check_dot(a, b, c);
  }
  for (int i = 0; i < 512; i++)
    a[i / 32][i % 32] = (tr_bf16)(i * 40503), b[i / 32][i % 32] = (tr_bf16)(i * 24989 + 7);
  check_dot(a, b, c); // all kinds of numbers: denormal, infinite, none
}

static void tiles_are_rows_in_memory(void **state) {
  unsigned char from[16 * 80], to[16 * 96];
  (void)state;
  for (int i = 0; i < COUNT(from); i++) from[i] = (unsigned char)(i * 7 + i / 80);
  memset(to, 0xee, sizeof to);
  amx_begin();
  amx_load(5, from, 80);
  amx_store(5, to, 96);
  for (int r = 0; r < 16; r++) {
    assert_memory_equal(to + r * 96, from + r * 80, 64);
    for (int i = 64; i < 96; i++) assert_int_equal(to[r * 96 + i], 0xee);
  }
  amx_zero(5);
  amx_store(5, to, 64);
  amx_end();
  for (int i = 0; i < 16 * 64; i++) assert_int_equal(to[i], 0);
}

// --- tile order ---

static void tiles_hold_what_the_product_wants(void **state) {
  static const int64_t sizes[][2] = {{16, 32}, {1, 1}, {16, 31}, {15, 32}, {3, 8}, {16, 2}};
  tr_bf16 narrow[16 * 40], tile_out[TILE];
  float wide[16 * 40];
  (void)state;
  random_fill(TR_F32, wide, COUNT(wide), 1, 1, 0);
  wide[3] = NAN, wide[4] = INFINITY, wide[5] = 3.4e38f, wide[6] = 0x1.01p0f, wide[7] = 0x1.03p0f; // ties as well
  tr_convert(TR_F32, wide, TR_BF16, narrow, COUNT(narrow));
  for (int s = 0; s < COUNT(sizes); s++)
    for (int option = 0; option < 8; option++) {
      const int pairs_first = option & 1;
      const tr_dtype type = option & 4 ? TR_F32 : TR_BF16;
      const void *source = option & 4 ? (const void *)wide : narrow;
      const tr_amx_operand o =
          option & 2 ? (tr_amx_operand){type, source, 1, 16} : (tr_amx_operand){type, source, 40, 1};
      memset(tile_out, 0xff, sizeof tile_out);
      pack_tile(o, pairs_first, 0, sizes[s][0], 0, sizes[s][1], tile_out);
      for (int v = 0; v < 16; v++)
        for (int p = 0; p < 32; p++) {
          const tr_bf16 got = tile_out[pairs_first ? p / 2 * 32 + v * 2 + p % 2 : v * 32 + p];
          assert_int_equal(got, v < sizes[s][0] && p < sizes[s][1] ? narrow[v * o.step_v + p * o.step_k] : 0);
        }
    }
}

// --- products ---

typedef struct gemm_case {
  tr_matmul p;
  const void *a, *b, *bias;
  const tr_bf16 *packed; // of b; NULL: plain
} gemm_case;

static tr_gemm gemm_of(const gemm_case *t, void *out) {
  const tr_matmul *p = &t->p;
  tr_gemm g = {.m = p->m, .n = p->n, .k = p->k, .type_c = p->type_c, .ldc = p->ldc, .add = p->add, .c = out};
  g.type_a = g.type_b = g.type_bias = TR_BF16;
  g.a = t->a, g.bias = t->bias, g.b = t->b;
  g.a_row = p->trans_a ? 1 : p->lda, g.a_col = p->trans_a ? p->lda : 1;
  g.b_row = p->trans_b ? 1 : p->ldb, g.b_col = p->trans_b ? p->ldb : 1;
  if (t->packed) g.packed = t->packed, g.packed_step = tr__amx_panel(p->k);
  return g;
}

static void run_gemm(const tr_compute *c, const void *context, void *const *out) {
  const gemm_case *t = context;
  if (!c->backend) {
    assert_int_equal(c->kernels->matmul(c, &t->p, t->a, t->b, t->bias, out[0]), TR_OK);
    return;
  }
  const tr_gemm g = gemm_of(t, out[0]);
  assert_true(tr__amx_takes(c->backend, &g) || !tr__backend(c)->amx);
  assert_int_equal(tr__amx_gemm(c, &g), TR_OK);
}

static size_t scratch_gemm(const tr_kernels *kernels, const void *context, int nthread) {
  const tr_matmul *p = &((const gemm_case *)context)->p;
  return kernels == tr_kernels_reference() ? 0 : tr__amx_gemm_scratch(p->m, p->n, p->k, nthread);
}

// Numbers that start on a cache line, or just do not.
static void *numbers(conform_bench *b, int64_t n, uint64_t seed, int off_line) {
  void *memory = NULL;
  assert_int_equal(posix_memalign(&memory, 64, (size_t)(n + 1) * sizeof(tr_bf16)), 0);
  bench_keep(b, memory);
  tr_bf16 *data = (tr_bf16 *)memory + off_line;
  random_fill(TR_BF16, data, n, seed, 1, 0);
  return data;
}

// What lies between rows is not part of the matrix, nor need it be a number.
static void *matrix(conform_bench *b, int64_t rows, int64_t width, int64_t ld, uint64_t seed, int off_line) {
  tr_bf16 *data = numbers(b, rows > 0 && width > 0 ? (rows - 1) * ld + width : 0, seed, off_line);
  for (int64_t i = 0; width > 0 && i + 1 < rows; i++)
    memset(data + i * ld + width, 0xff, (size_t)(ld - width) * sizeof *data);
  return data;
}

static int64_t extent(int64_t rows, int64_t width, int64_t ld) {
  return rows == 0 || width == 0 ? 0 : (rows - 1) * ld + width;
}

// The weight that B is: [n, k] when trans_b, else [k, n].
static tr_bf16 *pack_b(conform_bench *b, const gemm_case *t, int parts) {
  const tr_matmul *p = &t->p;
  const tr_pack use = p->trans_b ? TR_PACK_FORWARD : TR_PACK_BACKWARD;
  const int64_t rows = p->trans_b ? p->n : p->k, cols = p->trans_b ? p->k : p->n;
  const size_t size = tr__amx_pack_size(rows, cols);
  tr_bf16 *packed = NULL;
  assert_int_equal(posix_memalign((void **)&packed, 64, size + 1), 0);
  bench_keep(b, packed);
  memset(packed, 0xff, size);
  for (int part = 0; part < parts; part++)
    tr__amx_pack(&b->table[parts % CONFORM_TABLE], rows, cols, use, t->b, part, parts, packed);
  return packed;
}

static gemm_case gemm_inputs(conform_bench *b, tr_matmul p, int pad_a, int pad_b, int with_bias) {
  const int64_t a_width = p.trans_a ? p.m : p.k, b_width = p.trans_b ? p.k : p.n;
  p.type = TR_BF16;
  p.lda = a_width + pad_a > 0 ? a_width + pad_a : 1;
  p.ldb = b_width + pad_b > 0 ? b_width + pad_b : 1;
  p.ldc = p.n + pad_a > 0 ? p.n + pad_a : 1;
  gemm_case t = {.p = p};
  t.a = matrix(b, p.trans_a ? p.k : p.m, a_width, p.lda, 1, pad_a % 2);
  t.b = matrix(b, p.trans_b ? p.n : p.k, b_width, p.ldb, 2, pad_b % 2);
  if (with_bias) t.bias = numbers(b, p.n, 3, 1);
  return t;
}

static void check_gemm(conform_bench *b, tr_matmul p, int pad, int with_bias, int packed) {
  gemm_case m = gemm_inputs(b, p, pad, packed ? 0 : pad, with_bias);
  if (packed) m.packed = pack_b(b, &m, 1);
  conform_case t = {.run = run_gemm, .scratch = scratch_gemm, .context = &m, .nout = 1};
  const int64_t size = extent(p.m, p.n, m.p.ldc);
  t.out[0] = (conform_out){p.type_c, size, tolerance_of(p.type_c), p.add ? FILL_RANDOM : FILL_NAN, 1};
  snprintf(t.label, sizeof t.label, "m %d n %d k %d trans %d%d pad %d to %s add %d bias %d packed %d", (int)p.m,
           (int)p.n, (int)p.k, p.trans_a, p.trans_b, pad, tr_dtype_name(p.type_c), p.add, with_bias, packed);
  conform(b, &t);
}

static tr_matmul product(int64_t m, int64_t n, int64_t k, int option) {
  return (tr_matmul){.m = m,
                     .n = n,
                     .k = k,
                     .trans_a = option & 1,
                     .trans_b = option >> 1 & 1,
                     .type_c = option & 4 ? TR_BF16 : TR_F32,
                     .add = option >> 3 & 1};
}

static void small_products_agree(void **state) {
  static const int64_t sizes[] = {0, 1, 3, 17, 32, 33, 64, 70};
  int turn = 0; // walks through the options, so that each meets many shapes
  for (int m = 0; m < COUNT(sizes); m++)
    for (int n = 0; n < COUNT(sizes); n++)
      for (int k = 0; k < COUNT(sizes); k++, turn += 7)
        check_gemm(*state, product(sizes[m], sizes[n], sizes[k], turn), turn % 5 == 0 ? 3 : 0, turn % 3 == 0,
                   turn % 4 == 0);
}

static void every_option_agrees(void **state) {
  static const int64_t shapes[][3] = {{64, 96, 64}, {37, 65, 290}};
  for (int s = 0; s < COUNT(shapes); s++)
    for (int option = 0; option < 128; option += STRIDE)
      check_gemm(*state, product(shapes[s][0], shapes[s][1], shapes[s][2], option), option & 16 ? 32 + s : 0,
                 option >> 5 & 1, option >> 6 & 1);
}

// More than one task, chunk and block each way, in both ways through memory.
static void large_products_agree(void **state) {
  check_gemm(*state, product(150, 1040, 300, 2), 0, 1, 0);
  check_gemm(*state, product(160, 520, 544, 0), 0, 0, 1);
  check_gemm(*state, product(200, 800, 1030, 2 + 4), 0, 1, 1);
  check_gemm(*state, product(224, 64, 1056, 0), 32, 0, 0);
  check_gemm(*state, product(64, 40, 70, 0), 26, 0, 0); // rows start on cache lines, but end within a step
  check_gemm(*state, product(40, 40, 64, 0), 32, 0, 0); // and are too few for whole panels
  check_gemm(*state, product(390, 96, 530, 1 + 8), 0, 0, 0);
}

// A slab of packed columns is not all of B.
static void many_columns_of_a_deep_product_agree(void **state) {
  check_gemm(*state, product(9, 800, 8200, 0), 0, 0, 0);
}

// --- packed weights ---

static void gemm_once(conform_bench *b, const gemm_case *t, void *out) {
  const tr_gemm g = gemm_of(t, out);
  assert_int_equal(tr__amx_gemm(&b->table[1], &g), TR_OK);
}

static void packed_and_plain_have_the_same_bits(void **state) {
  static const int64_t shapes[][3] = {{1, 40, 70}, {70, 600, 300}, {200, 50, 1100}, {5, 3, 0}};
  conform_bench *b = *state;
  for (int s = 0; s < COUNT(shapes); s++)
    for (int option = 0; option < 8; option++) {
      gemm_case t = gemm_inputs(b, product(shapes[s][0], shapes[s][1], shapes[s][2], option), 0, 0, 1);
      const size_t size = (size_t)(t.p.m * t.p.n) * tr_dtype_size(t.p.type_c);
      void *plain = bench_keep(b, malloc(size)), *packed = bench_keep(b, malloc(size));
      gemm_once(b, &t, plain);
      t.packed = pack_b(b, &t, 2);
      gemm_once(b, &t, packed);
      assert_memory_equal(plain, packed, size);
      bench_release(b);
    }
}

static void parts_make_the_whole(void **state) {
  static const int64_t shapes[][2] = {{1, 1}, {31, 64}, {100, 33}, {160, 70}};
  conform_bench *b = *state;
  for (int s = 0; s < COUNT(shapes); s++)
    for (int trans = 0; trans < 4; trans += 2) {
      const gemm_case t = gemm_inputs(b, product(1, shapes[s][0], shapes[s][1], trans), 0, 0, 0);
      const size_t size = tr__amx_pack_size(shapes[s][0], shapes[s][1]);
      const tr_bf16 *whole = pack_b(b, &t, 1);
      for (int parts = 2; parts < 8; parts++) assert_memory_equal(whole, pack_b(b, &t, parts), size);
      bench_release(b);
    }
}

// As the output loss does: some columns of W^T, some k of W.
static void part_of_a_packed_weight_is_a_weight(void **state) {
  conform_bench *b = *state;
  for (int trans = 0; trans < 4; trans += 2) {
    gemm_case t = gemm_inputs(b, product(40, 200, 130, trans), 0, 0, 0);
    const tr_bf16 *packed = pack_b(b, &t, 1);
    float *part = bench_keep(b, malloc(40 * 200 * sizeof *part)),
          *want = bench_keep(b, malloc(40 * 200 * sizeof *want));
    tr_gemm g = gemm_of(&t, want);
    g.n = 100, g.k = 66; // of columns and k from 64 on
    g.a = (const tr_bf16 *)g.a + 64 * g.a_col, g.b = (const tr_bf16 *)g.b + 64 * g.b_col + 64 * g.b_row;
    assert_int_equal(tr__amx_gemm(&b->table[0], &g), TR_OK);
    g.c = part, g.packed_step = tr__amx_panel(130);
    g.packed = packed + tr__amx_packed_at(g.packed_step, 64, 64);
    assert_int_equal(tr__amx_gemm(&b->table[0], &g), TR_OK);
    for (int i = 0; i < 40; i++) assert_memory_equal(part + i * 200, want + i * 200, 100 * sizeof *part);
    bench_release(b);
  }
}

// --- the table's way to the tiles ---

static void the_table_takes_bf16_products_to_the_tiles(void **state) {
  conform_bench *b = *state;
  const tr_compute *c = &b->table[1];
  gemm_case t = gemm_inputs(b, product(40, 100, 300, 2 + 4), 0, 0, 1);
  tr_bf16 *got = numbers(b, 40 * 100, 4, 0), *want = numbers(b, 40 * 100, 5, 0);
  gemm_once(b, &t, want);
  assert_int_equal(c->kernels->matmul(c, &t.p, t.a, t.b, t.bias, got), TR_OK);
  assert_memory_equal(got, want, 40 * 100 * sizeof *got);
  memset(got, 0xff, 40 * 100 * sizeof *got);
  t.packed = pack_b(b, &t, 1), t.p.b_packed = 1;
  assert_int_equal(c->kernels->matmul(c, &t.p, t.a, t.packed, t.bias, got), TR_OK);
  assert_memory_equal(got, want, 40 * 100 * sizeof *got);
  bench_release(b);
}

// Rows too few for tiles take another path, whose bits a packed weight must not change; here over several slabs too.
static void few_rows_have_the_bits_of_the_plain_weight(void **state) {
  static const int64_t shapes[][3] = {{1, 40, 70}, {7, 100, 33}, {3, 1, 1}, {2, 800, 10930}, {4, 5, 0}};
  conform_bench *b = *state;
  const tr_compute *c = &b->table[2];
  for (int s = 0; s < COUNT(shapes); s++)
    for (int option = 4; option < 8; option++) {
      gemm_case t = gemm_inputs(b, product(shapes[s][0], shapes[s][1], shapes[s][2], option), 0, 0, 1);
      const size_t n = (size_t)(t.p.m * t.p.n), size = n * sizeof(tr_bf16), space = b->scratch.size;
      tr_bf16 *out[2];
      t.packed = pack_b(b, &t, 1);
      for (int packed = 0; packed < 2; packed++) {
        out[packed] = numbers(b, t.p.m * t.p.n, 4, 0);
        t.p.b_packed = packed;
        if (packed) b->scratch.size = tr__amx_gemm_scratch(t.p.m, t.p.n, t.p.k, 3);
        assert_int_equal(c->kernels->matmul(c, &t.p, t.a, packed ? t.packed : t.b, t.bias, out[packed]), TR_OK);
        b->scratch.size = space;
      }
      assert_memory_equal(out[0], out[1], size);
      bench_release(b);
    }
}

// --- the output loss ---

static void run_head(const tr_compute *c, const void *context, void *const *out) {
  tr_head_loss p = *(const tr_head_loss *)context;
  p.loss = out[0], p.dx = out[1], p.dw = out[2];
  if (!c->backend) p.packed[TR_PACK_FORWARD] = p.packed[TR_PACK_BACKWARD] = NULL;
  assert_int_equal(c->kernels->head_loss(c, &p), TR_OK);
}

// The table asks for tiles only where the processor has them.
static size_t scratch_head(const tr_kernels *kernels, const void *context, int nthread) {
  const tr_head_loss *p = context;
  const size_t tiles = tr__amx_gemm_scratch(p->vocab, p->vocab, p->vocab, nthread);
  return kernels->head_loss_scratch(p, nthread) + (kernels == tr_kernels_reference() ? 0 : tiles);
}

static void check_head(conform_bench *b, int64_t rows, int64_t vocab, int packed) {
  enum { WIDTH = 70 };
  tr_head_loss p = {.rows = rows, .width = WIDTH, .vocab = vocab, .type = TR_BF16, .scale = 0.02};
  p.x = random_input(b, TR_BF16, rows * WIDTH, 1, 1, 0);
  p.w = random_input(b, TR_BF16, vocab * WIDTH, 2, 0.5f, 0);
  p.target = random_index(b, rows, 3, -1, (int32_t)vocab);
  for (int use = 0; packed && use < TR_PACKS; use++) {
    void *to = bench_keep(b, malloc(tr__amx_pack_size(vocab, WIDTH)));
    b->table[1].kernels->pack(&b->table[1], TR_BF16, vocab, WIDTH, (tr_pack)use, p.w, 0, 1, to);
    p.packed[use] = to;
  }
  conform_case t = {.run = run_head, .scratch = scratch_head, .context = &p, .nout = 3};
  t.out[0] = (conform_out){TR_F32, rows, TOLERANCE_F32, FILL_NAN, 1};
  t.out[1] = (conform_out){TR_BF16, rows * WIDTH, TOLERANCE_BF16, FILL_NAN, p.scale};
  t.out[2] = (conform_out){TR_F32, vocab * WIDTH, TOLERANCE_BF16, FILL_NAN, p.scale};
  snprintf(t.label, sizeof t.label, "head_loss rows %d vocab %d packed %d", (int)rows, (int)vocab, packed);
  conform(b, &t);
}

// A vocabulary of two blocks, so that products read parts of the packed weights.
static void the_output_loss_agrees(void **state) {
  for (int packed = 0; packed < 2; packed++) {
    check_head(*state, 40, 3200, packed);
    check_head(*state, 5, 3200, packed);
  }
}

// --- the processor's own tiles ---

static void real_tiles_give_the_bits_of_the_emulated(void **state) {
  static const int64_t shapes[][3] = {{70, 600, 300}, {200, 50, 1100}, {33, 40, 100}};
  conform_bench *b = *state;
  if (tr_cpu_isa() != TR_ISA_AMX) skip();
  for (int s = 0; s < COUNT(shapes); s++)
    for (int option = 0; option < 8; option++) {
      const gemm_case t = gemm_inputs(b, product(shapes[s][0], shapes[s][1], shapes[s][2], option), 0, 0, 1);
      const size_t size = (size_t)(t.p.m * t.p.n) * tr_dtype_size(t.p.type_c);
      void *ours = bench_keep(b, malloc(size)), *theirs = bench_keep(b, malloc(size));
      gemm_once(b, &t, ours);
      use_tiles(b, &tr__amx);
      gemm_once(b, &t, theirs);
      use_tiles(b, &emulated_tiles);
      assert_memory_equal(ours, theirs, size);
      bench_release(b);
    }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(dots_have_the_bits_of_fused_multiply_adds),
      cmocka_unit_test(tiles_are_rows_in_memory),
      cmocka_unit_test(tiles_hold_what_the_product_wants),
      cmocka_unit_test(small_products_agree),
      cmocka_unit_test(every_option_agrees),
      cmocka_unit_test(large_products_agree),
      cmocka_unit_test(many_columns_of_a_deep_product_agree),
      cmocka_unit_test(packed_and_plain_have_the_same_bits),
      cmocka_unit_test(parts_make_the_whole),
      cmocka_unit_test(part_of_a_packed_weight_is_a_weight),
      cmocka_unit_test(the_table_takes_bf16_products_to_the_tiles),
      cmocka_unit_test(few_rows_have_the_bits_of_the_plain_weight),
      cmocka_unit_test(the_output_loss_agrees),
      cmocka_unit_test(real_tiles_give_the_bits_of_the_emulated),
  };
  return cmocka_run_group_tests(tests, set_up, conform_teardown);
}
