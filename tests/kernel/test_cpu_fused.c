// SPDX-License-Identifier: MIT
// tier: quick
// timeout: 120
// Attention and the fused output loss of tr_kernels_cpu() agree with the reference table: several sequences,
// grouped heads, keys in any order or none visible, keys split over two calls, dropout, ignored targets, and
// with the same bits for 1, 2 and 3 threads. kernel_conformance.h says what is checked in each case;
// test_cpu_kernels.c has the other kernels.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kernel/attention_cases.h"
#include "thin.h"

static const tr_dtype TYPES[] = {TR_F32, TR_BF16};

// --- attention ---

static void attention_forward_agrees(void **state) {
  int turn = 0; // walks through the options with a step that has no common factor with their number
  for (int type = 0; type < COUNT(TYPES); type++) {
    for (int l = 0; l < COUNT(LAYOUTS); l++) {
      for (int h = 0; h < COUNT(HEADS); h++) {
        for (int i = 0; i < (LAYOUTS[l].window ? 1 : (4 + THIN) / THIN); i++, turn += 3)
          check_attention_forward(*state, &LAYOUTS[l], h, TYPES[type], turn % 8);
      }
    }
  }
}

static void attention_backward_agrees(void **state) {
  int turn = 0;
  for (int type = 0; type < COUNT(TYPES); type++) {
    for (int l = 0; l < COUNT(LAYOUTS); l++) {
      for (int h = 0; h < COUNT(HEADS); h++) {
        for (int i = 0; i < (LAYOUTS[l].window ? 1 : (4 + THIN) / THIN); i++, turn += 13)
          check_attention_backward(*state, &LAYOUTS[l], h, TYPES[type], turn % 32);
      }
    }
  }
}

// Longer than what a task of the CPU table takes at once (384 queries, 384 keys backward, 1056 keys forward): tasks of
// a phase, sums that several of them add to, copies that are replaced.
static void attention_agrees_over_many_tasks(void **state) {
  static const layout many[] = {
      {"several chunks", 2, {470, 35}, {470, 100}, {0, 65}, 0, 0},
      {"chunks in any order", 2, {800, 390}, {800, 390}, {0, 0}, 1, 0},
      {"window over chunks", 1, {900}, {900}, {0}, 0, 128},
      {"more keys than are kept", 2, {5, 130}, {2200, 1300}, {2195, 1170}, 0, 0},
      {"window far into the keys", 1, {400}, {2200}, {1800}, 0, 300},
      {"queries beyond the keys", 1, {800}, {30}, {0}, 0, 0},
  };
  int turn = 0;
  for (int type = 0; type < COUNT(TYPES); type++) {
    for (int l = 0; l < COUNT(many); l++, turn += 5) {
      check_attention_forward(*state, &many[l], turn % 2 ? 1 : 2, TYPES[type], turn % 8);
      check_attention_backward(*state, &many[l], turn % 2 ? 2 : 1, TYPES[type], turn * 13 % 32);
    }
  }
}

// Callers size scratch for one sequence of all rows, whatever the rows are cut into later.
static void attention_scratch_covers_every_cut(void **state) {
  (void)state;
  const tr_kernels *k = tr_kernels_cpu();
  const tr_rng_key key = tr_rng_key_make(7, TR_RNG_TEST, 0);
  enum { MOST = 600 };
  int32_t whole[2] = {0}, start[MOST + 1];
  for (uint32_t i = 0; i < 3000; i++) {
    uint32_t word[4];
    tr_rng_u32x4(key, 0, i, 0, word);
    const int32_t rows = whole[1] = 1 + (int32_t)(word[0] % (i % 2 ? MOST : 20000));
    const int nthread = 1 + (int)(word[1] % 32), nseq = 1 + (int)(word[2] % (uint32_t)(rows < MOST ? rows : MOST));
    for (int s = 0; s <= nseq; s++) start[s] = (int32_t)((int64_t)rows * s / nseq);
    tr_attention one = {.nseq = 1, .query_start = whole, .key_start = whole, .type = TR_F32}, cut = one;
    one.head_kv = 1 + (int)(word[3] % 12), one.head = one.head_kv * (1 + (int)(word[3] / 16 % 4));
    one.dim = 1 + (int)(word[3] / 64 % 256);
    cut.head = one.head, cut.head_kv = one.head_kv, cut.dim = one.dim;
    cut.nseq = nseq, cut.query_start = cut.key_start = start;
    assert_true(k->attention_scratch(&cut, nthread) <= k->attention_scratch(&one, nthread));
  }
}

// Large scores: exponentials overflow unless the maximum is taken out first.
static void attention_survives_large_scores(void **state) {
  conform_bench *b = *state;
  attention_case a;
  attention_inputs(b, &a, &LAYOUTS[5], 4, TR_F32, 0);
  a.p.scale = 40;
  conform_case t = {.run = run_attention_forward, .scratch = scratch_attention, .context = &a, .nout = 2};
  t.out[0] = (conform_out){TR_F32, a.nquery * a.p.ld_out, 1e-3, FILL_NAN, 0};
  t.out[1] = (conform_out){TR_F32, a.nquery * a.p.head, TOLERANCE_F32, FILL_NAN, 1};
  snprintf(t.label, sizeof t.label, "attention with scores of some hundreds");
  conform(b, &t);
}

static const layout LONG = {"long", 2, {300, 20}, {300, 150}, {0, 130}, 0, 0};

// Both directions on the CPU table, into new arrays: out, lse, dq, dk, dv.
static void attention_both(conform_bench *b, attention_case *a, void *out[5]) {
  const tr_attention *p = &a->p;
  const int64_t n[] = {a->nquery * p->ld_out, a->nquery * p->head, a->nquery * p->ld_q, a->nkey * p->ld_k,
                       a->nkey * p->ld_v};
  for (int i = 0; i < 5; i++) out[i] = random_input(b, i == 1 ? TR_F32 : p->type, n[i], 20, 0, 0);
  const tr_compute *c = &b->table[1];
  assert_int_equal(c->kernels->attention_forward(c, p, a->q, a->k, a->v, NULL, out[0], out[1]), TR_OK);
  tr_attention_grad g = {a->q, a->k, a->v, out[0], out[1], a->dout, out[2], out[3], out[4], p->type, 0};
  assert_int_equal(c->kernels->attention_backward(c, p, &g), TR_OK);
}

static void attention_with_a_window_of_the_whole_document_has_the_bits_of_no_window(void **state) {
  conform_bench *b = *state;
  static const int64_t windows[] = {300, 301, INT32_MAX, INT64_MAX};
  for (int type = 0; type < COUNT(TYPES); type++) {
    attention_case a;
    attention_inputs(b, &a, &LONG, 2, TYPES[type], 1);
    void *all[5], *windowed[5];
    attention_both(b, &a, all);
    const size_t size = tr_dtype_size(TYPES[type]);
    for (int w = 0; w < COUNT(windows); w++) {
      a.p.window = windows[w];
      attention_both(b, &a, windowed);
      assert_memory_equal(all[0], windowed[0], (size_t)(a.nquery * a.p.ld_out) * size);
      assert_memory_equal(all[1], windowed[1], (size_t)(a.nquery * a.p.head) * sizeof(float));
      assert_memory_equal(all[2], windowed[2], (size_t)(a.nquery * a.p.ld_q) * size);
      assert_memory_equal(all[3], windowed[3], (size_t)(a.nkey * a.p.ld_k) * size);
      assert_memory_equal(all[4], windowed[4], (size_t)(a.nkey * a.p.ld_v) * size);
    }
    a.p.window = 299; // one key of one query less
    attention_both(b, &a, windowed);
    assert_memory_not_equal(all[1], windowed[1], (size_t)(a.nquery * a.p.head) * sizeof(float));
    bench_release(b);
  }
}

static void expect_finite(tr_dtype type, const void *data, int64_t first, int64_t last) {
  for (int64_t i = first; i < last; i++) assert_true(isfinite(element(type, data, i)));
}

// Rows that hold no numbers would spoil every sum they enter, were it with weight 0: tiles before all windows are
// not worked on. For 1, 2 and many queries (which take different paths) at the end of a cache.
static void attention_skips_tiles_of_keys_before_the_window(void **state) {
  conform_bench *b = *state;
  static const int32_t queries[] = {1, 2, 5, 2 * ATTENTION_TILE};
  for (int type = 0; type < COUNT(TYPES); type++) {
    for (int i = 0; i < COUNT(queries); i++) {
      const int32_t nkey = 5 * ATTENTION_TILE, seen = queries[i] + 30;
      const layout l = {"cache", 1, {queries[i]}, {nkey}, {nkey - queries[i]}, 0, 30};
      attention_case a;
      attention_inputs(b, &a, &l, 2, TYPES[type], 0);
      const int64_t skipped = (nkey - seen) / ATTENTION_TILE * ATTENTION_TILE;
      assert_true(skipped >= 2 * ATTENTION_TILE);
      memset((void *)(uintptr_t)a.k, 0xff, (size_t)(skipped * a.p.ld_k) * tr_dtype_size(TYPES[type]));
      memset((void *)(uintptr_t)a.v, 0xff, (size_t)(skipped * a.p.ld_v) * tr_dtype_size(TYPES[type]));
      void *out[5];
      attention_both(b, &a, out);
      expect_finite(TYPES[type], out[0], 0, a.nquery * a.p.ld_out);
      expect_finite(TYPES[type], out[2], 0, a.nquery * a.p.ld_q);
      expect_finite(TYPES[type], out[3], 0, a.nkey * a.p.ld_k);
      for (int64_t j = 0; j < skipped * a.p.ld_k; j++) {
        assert_true(element(TYPES[type], out[3], j) == 0);
        assert_true(element(TYPES[type], out[4], j) == 0);
      }
      bench_release(b);
    }
  }
}

static void attention_refuses_a_negative_window(void **state) {
  conform_bench *b = *state;
  attention_case a;
  attention_inputs(b, &a, &LAYOUTS[1], 0, TR_F32, 0);
  a.p.window = -1;
  const tr_compute *computes[] = {&b->reference, &b->table[0]};
  for (int i = 0; i < 2; i++) {
    const tr_compute *c = computes[i];
    const tr_attention_grad g = {.grad_type = TR_F32};
    assert_int_equal(c->kernels->attention_forward(c, &a.p, a.q, a.k, a.v, NULL, NULL, NULL), TR_ERR_USAGE);
    assert_non_null(strstr(tr_status_text(), "window of -1"));
    assert_int_equal(c->kernels->attention_backward(c, &a.p, &g), TR_ERR_USAGE);
  }
  bench_release(b);
}

// --- output projection and loss ---

typedef struct head_case {
  tr_head_loss p;
  int no_dx, no_dw;
} head_case;

static tr_head_loss head_with_outputs(const head_case *h, void *const *out) {
  tr_head_loss p = h->p;
  p.loss = out[0];
  p.dx = h->no_dx ? NULL : out[1];
  p.dw = h->no_dw ? NULL : out[2];
  return p;
}

static void run_head(const tr_compute *c, const void *context, void *const *out) {
  tr_head_loss p = head_with_outputs(context, out);
  assert_int_equal(c->kernels->head_loss(c, &p), TR_OK);
}

static size_t scratch_head(const tr_kernels *kernels, const void *context, int nthread) {
  char present; // only whether an output is wanted counts here
  void *const out[] = {&present, &present, &present};
  tr_head_loss p = head_with_outputs(context, out);
  return kernels->head_loss_scratch(&p, nthread);
}

// Options: 0 everything, 1 added to dw, 2 no weight gradient, 3 loss only, 4 every target ignored.
static void check_head(conform_bench *b, int64_t rows, int64_t width, int64_t vocab, tr_dtype type, int option) {
  head_case h = {.no_dx = option == 3, .no_dw = option == 2 || option == 3};
  h.p = (tr_head_loss){.rows = rows, .width = width, .vocab = vocab, .type = type, .add = option == 1};
  h.p.scale = 1 / (double)(rows + 1);
  h.p.x = random_input(b, type, rows * width, 1, 1, 0);
  h.p.w = random_input(b, type, vocab * width, 2, 0.5f, 0);
  int32_t *target = random_index(b, rows, 3, 0, (int32_t)vocab);
  for (int64_t r = 0; r < rows; r++)
    if (option == 4 || r % 5 == 2) target[r] = r % 2 ? -1 : -100;
  h.p.target = target;
  conform_case t = {.run = run_head, .scratch = scratch_head, .context = &h, .nout = 3};
  t.out[0] = (conform_out){TR_F32, rows, TOLERANCE_F32, FILL_NAN, 1};
  t.out[1] = (conform_out){type, rows * width, tolerance_of(type), FILL_NAN, h.p.scale};
  // The gradient of the logits may be rounded to the operands' type before it meets x.
  t.out[2] = (conform_out){TR_F32, vocab * width, tolerance_of(type), h.p.add ? FILL_RANDOM : FILL_NAN, h.p.scale};
  snprintf(t.label, sizeof t.label, "head_loss rows %d width %d vocab %d %s option %d", (int)rows, (int)width,
           (int)vocab, tr_dtype_name(type), option);
  conform(b, &t);
}

static void head_loss_agrees(void **state) {
  static const int64_t rows[] = {0, 1, 5, 33, 100}, widths[] = {1, 3, 17, 64}, vocabs[] = {1, 5, 33, 257};
  int turn = 0;
  for (int type = 0; type < COUNT(TYPES); type++) {
    for (int r = 0; r < COUNT(rows); r++) {
      for (int w = 0; w < COUNT(widths); w++) {
        for (int v = 0; v < COUNT(vocabs); v++) {
          for (int i = 0; i < (2 + THIN) / THIN; i++, turn += 2)
            check_head(*state, rows[r], widths[w], vocabs[v], TYPES[type], turn % 5);
        }
      }
    }
  }
}

static void head_loss_agrees_over_many_tiles(void **state) {
  for (int type = 0; type < COUNT(TYPES); type++) {
    check_head(*state, 300, 65, 1111, TYPES[type], 0);
    check_head(*state, 7, 33, 9001, TYPES[type], 1);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(attention_forward_agrees),
      cmocka_unit_test(attention_backward_agrees),
      cmocka_unit_test(attention_agrees_over_many_tasks),
      cmocka_unit_test(attention_scratch_covers_every_cut),
      cmocka_unit_test(attention_survives_large_scores),
      cmocka_unit_test(attention_with_a_window_of_the_whole_document_has_the_bits_of_no_window),
      cmocka_unit_test(attention_skips_tiles_of_keys_before_the_window),
      cmocka_unit_test(attention_refuses_a_negative_window),
      cmocka_unit_test(head_loss_agrees),
      cmocka_unit_test(head_loss_agrees_over_many_tiles),
  };
  return cmocka_run_group_tests(tests, conform_setup, conform_teardown);
}
