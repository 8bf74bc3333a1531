// SPDX-License-Identifier: MIT
// The kernels of `trireme bench kernel`, at the shapes that they have in GPT-2 124M with 1024 rows, and how much work each
// does: multiply-adds that the mathematics needs, or bytes that must be read and written.
#include "cli/bench_internal.h"
#include <stdio.h>

enum {
  ROWS = TR__KERNEL_ROWS,
  WIDTH = 768,
  HIDDEN = 3072,
  HEADS = 12,
  VOCAB = 50257,
  HEAD_ROWS = 256,
  PARAMETERS = 16 << 20
};

static const struct layer {
  const char *name;
  int64_t out, in;
} layer[] = {{"qkv", 3 * WIDTH, WIDTH}, {"attproj", WIDTH, WIDTH}, {"fc", HIDDEN, WIDTH}, {"fcproj", WIDTH, HIDDEN}};
enum { LAYERS = sizeof layer / sizeof *layer };

// Weights, operands and gradients: small numbers of either sign, in the type of the run.
void tr__kernel_fill(tr__kernel_bench *b) {
  uint32_t state = 1;
  for (size_t i = 0; i < TR__KERNEL_BIG; i++) {
    state = state * 1664525u + 1013904223u;
    const float value = (float)(int32_t)state * 0x1p-34f;
    tr_store(b->type, b->a, i % TR__KERNEL_SMALL, value);
    tr_store(b->type, b->b, i, value);
    b->more[i] = value * value; // AdamW's second moment must not be negative
  }
  for (int r = 0; r < ROWS; r++) b->position[r] = r, b->token[r] = (int32_t)((uint32_t)r * 7919u % VOCAB);
}

static void run_matmul(tr__kernel_bench *b, const void *argument) {
  tr__kernel_note(b, b->c.kernels->matmul(&b->c, argument, b->a, b->b, NULL, b->out));
}

static tr_matmul product(const tr__kernel_bench *b, int64_t m, int64_t n, int64_t k, int trans_a, int trans_b) {
  tr_matmul p = {
      .m = m, .n = n, .k = k, .trans_a = trans_a, .trans_b = trans_b, .ldc = n, .type = b->type, .type_c = b->type};
  p.lda = trans_a ? m : k;
  p.ldb = trans_b ? k : n;
  return p;
}

static void bench_matmul(tr__kernel_bench *b) {
  for (int pass = 0; pass < 3; pass++)
    for (size_t i = 0; i < LAYERS; i++) {
      const struct layer *s = &layer[i];
      static const char *const pass_name[] = {"forward", "dgrad", "wgrad"};
      tr_matmul p = pass == 0   ? product(b, ROWS, s->out, s->in, 0, 1)
                    : pass == 1 ? product(b, ROWS, s->in, s->out, 0, 0)
                                : product(b, s->out, s->in, ROWS, 1, 0);
      if (pass == 2) p.type_c = TR_F32, p.add = 1;
      char name[64];
      snprintf(name, sizeof name, "matmul %s %s", pass_name[pass], s->name);
      tr__kernel_flops(b, name, run_matmul, &p, 2.0 * (double)p.m * (double)p.n * (double)p.k);
    }
  tr_matmul one = product(b, 1, HIDDEN, WIDTH, 0, 1);
  tr__kernel_bytes(b, "matmul 1 row fc", run_matmul, &one, (double)(HIDDEN * WIDTH) * (double)tr_dtype_size(b->type));
}

// ---- weights packed once per update instead of once per product, where the table gains by it

typedef struct packed {
  tr_matmul p;
  tr_pack use;
  int64_t rows, cols; // of the weight
} packed;

static void run_pack(tr__kernel_bench *b, const void *argument) {
  const packed *w = argument;
  b->c.kernels->pack(&b->c, b->type, w->rows, w->cols, w->use, b->b, 0, 1, b->wide);
}
static void run_packed(tr__kernel_bench *b, const void *argument) {
  const packed *w = argument;
  tr__kernel_note(b, b->c.kernels->matmul(&b->c, &w->p, b->a, b->wide, NULL, b->out));
}

static void bench_packed(tr__kernel_bench *b) {
  static const char *const pass_name[TR_PACKS] = {"forward", "dgrad"};
  const tr_kernels *k = b->c.kernels;
  for (int use = 0; k->pack_size && use < TR_PACKS; use++)
    for (size_t i = 0; i < LAYERS; i++) {
      const struct layer *s = &layer[i];
      packed w = {.use = (tr_pack)use, .rows = s->out, .cols = s->in};
      w.p = use == TR_PACK_FORWARD ? product(b, ROWS, s->out, s->in, 0, 1) : product(b, ROWS, s->in, s->out, 0, 0);
      w.p.b_packed = 1;
      const size_t nbyte = k->pack_size(b->type, w.rows, w.cols, w.use);
      if (nbyte == 0 || nbyte > TR__KERNEL_SMALL * sizeof(float)) continue;
      char name[64];
      snprintf(name, sizeof name, "pack %s %s", pass_name[use], s->name);
      tr__kernel_bytes(b, name, run_pack, &w, 2.0 * (double)nbyte);
      if (!b->list) run_pack(b, &w);
      snprintf(name, sizeof name, "matmul %s %s, packed", pass_name[use], s->name);
      tr__kernel_flops(b, name, run_packed, &w, 2.0 * (double)ROWS * (double)w.rows * (double)w.cols);
    }
}

static void run_attention(tr__kernel_bench *b, const void *argument) {
  const tr_attention *p = argument;
  const size_t e = tr_dtype_size(b->type);
  tr__kernel_note(b, b->c.kernels->attention_forward(&b->c, p, b->a, b->a + WIDTH * e, b->a + 2 * WIDTH * e, NULL,
                                                     b->b, b->wide));
}
static void run_attention_backward(tr__kernel_bench *b, const void *argument) {
  const tr_attention *p = argument;
  const size_t e = tr_dtype_size(b->type);
  tr_attention_grad g = {.q = b->a, .k = b->a + WIDTH * e, .v = b->a + 2 * WIDTH * e, .out = b->b, .lse = b->wide};
  g.dout = b->b, g.dq = b->out, g.dk = b->out + WIDTH * e, g.dv = b->out + 2 * WIDTH * e, g.grad_type = b->type;
  tr__kernel_note(b, b->c.kernels->attention_backward(&b->c, p, &g));
}

static tr_attention attention_over(const tr__kernel_bench *b, const int32_t *start) {
  tr_attention p = {
      .nseq = 1, .query_start = start, .key_start = start, .query_pos = b->position, .key_pos = b->position};
  p.head = HEADS, p.head_kv = HEADS, p.dim = WIDTH / HEADS, p.type = b->type, p.scale = 0.125f, p.first = 1,
  p.last = 1;
  p.ld_q = p.ld_k = p.ld_v = 3 * WIDTH, p.ld_out = WIDTH;
  return p;
}

static void bench_attention(tr__kernel_bench *b) {
  static const int32_t start[2] = {0, ROWS};
  tr_attention p = attention_over(b, start);
  const double product_flops = (double)ROWS * ROWS * WIDTH; // of one causal product: half of the square
  tr__kernel_flops(b, "attention forward", run_attention, &p, 2 * product_flops);
  tr__kernel_flops(b, "attention backward", run_attention_backward, &p, 5 * product_flops);
  p.window = ROWS / 8;
  const double share = (double)p.window / ROWS * (2 - (double)p.window / ROWS); // of the pairs without a window
  tr__kernel_flops(b, "attention forward, window 128", run_attention, &p, 2 * share * product_flops);
  tr__kernel_flops(b, "attention backward, window 128", run_attention_backward, &p, 5 * share * product_flops);
}

static void run_head(tr__kernel_bench *b, const void *argument) {
  tr_head_loss p = {.rows = HEAD_ROWS, .width = WIDTH, .vocab = VOCAB, .type = b->type, .scale = 1.0 / HEAD_ROWS};
  p.x = b->a, p.w = b->b, p.target = b->token, p.loss = b->wide, p.add = 1;
  if (argument) p.dx = b->out, p.dw = b->more;
  tr__kernel_note(b, b->c.kernels->head_loss(&b->c, &p));
}

static void bench_head(tr__kernel_bench *b) {
  const double flops = 2.0 * HEAD_ROWS * WIDTH * VOCAB;
  tr__kernel_flops(b, "head loss", run_head, NULL, flops);
  tr__kernel_flops(b, "head loss with gradients", run_head, b, 3 * flops);
}

static void run_norm(tr__kernel_bench *b, const void *argument) {
  (void)argument;
  b->c.kernels->layernorm_forward(&b->c, ROWS, WIDTH, b->type, 1e-5f, b->a, b->b, b->b, b->out, b->wide,
                                  b->wide + ROWS);
}
static void run_norm_backward(tr__kernel_bench *b, const void *argument) {
  (void)argument;
  b->c.kernels->layernorm_backward(&b->c, ROWS, WIDTH, b->type, b->b, b->a, b->b, b->wide, b->wide + ROWS, b->out, 1,
                                   b->more, b->more + WIDTH, 1);
}
static tr_rmsnorm rms_shape(const tr__kernel_bench *b) {
  return (tr_rmsnorm){ROWS, 1, WIDTH, WIDTH, WIDTH, b->type, 1e-5f};
}
static void run_rms(tr__kernel_bench *b, const void *argument) {
  (void)argument;
  const tr_rmsnorm p = rms_shape(b);
  b->c.kernels->rmsnorm_forward(&b->c, &p, b->a, b->b, b->out, b->wide);
}
static void run_rms_backward(tr__kernel_bench *b, const void *argument) {
  (void)argument;
  const tr_rmsnorm p = rms_shape(b);
  b->c.kernels->rmsnorm_backward(&b->c, &p, b->b, b->a, b->b, b->wide, b->out, 1, b->more, 1);
}
static void run_rope(tr__kernel_bench *b, const void *argument) {
  (void)argument;
  double frequency[WIDTH / HEADS / 2];
  for (int i = 0; i < WIDTH / HEADS / 2; i++) frequency[i] = 1.0 / (1 + 300 * i);
  tr_rope p = {.rows = ROWS, .count = HEADS, .dim = WIDTH / HEADS, .ld = WIDTH, .type = b->type, .scale = 1};
  p.position = b->position, p.frequency = frequency;
  b->c.kernels->rope(&b->c, &p, b->out);
}
static void run_swiglu(tr__kernel_bench *b, const void *argument) {
  (void)argument;
  b->c.kernels->swiglu_forward(&b->c, ROWS, HIDDEN / 2, b->type, b->a, b->out);
}
static void run_swiglu_backward(tr__kernel_bench *b, const void *argument) {
  (void)argument;
  b->c.kernels->swiglu_backward(&b->c, ROWS, HIDDEN / 2, b->type, b->a, b->b, b->out);
}
static void run_gelu(tr__kernel_bench *b, const void *argument) {
  (void)argument;
  b->c.kernels->gelu_forward(&b->c, (size_t)ROWS * HIDDEN, b->type, b->a, b->out);
}
static void run_gelu_backward(tr__kernel_bench *b, const void *argument) {
  (void)argument;
  b->c.kernels->gelu_backward(&b->c, (size_t)ROWS * HIDDEN, b->type, b->a, b->b, b->out);
}
static void run_residual(tr__kernel_bench *b, const void *argument) {
  static int64_t sample[ROWS];
  tr_dropout d = {.p = argument ? 0.1f : 0.0f,
                  .key = tr_rng_key_make(1, TR_RNG_DROPOUT, 1),
                  .sample = sample,
                  .position = b->position};
  b->c.kernels->residual_forward(&b->c, ROWS, WIDTH, b->type, b->a, b->b, &d, b->out);
}
static void run_column_sum(tr__kernel_bench *b, const void *argument) {
  (void)argument;
  b->c.kernels->column_sum(&b->c, ROWS, HIDDEN, b->type, b->a, b->wide, 1);
}
static void run_embedding(tr__kernel_bench *b, const void *argument) {
  (void)argument;
  b->c.kernels->embedding_forward(&b->c, ROWS, WIDTH, b->type, b->token, b->position, b->b, b->a, NULL, b->out);
}
static void run_embedding_backward(tr__kernel_bench *b, const void *argument) {
  (void)argument;
  b->c.kernels->embedding_backward(&b->c, ROWS, WIDTH, b->type, b->token, b->position, NULL, b->a, b->more, VOCAB, 1,
                                   b->wide, ROWS, 1);
}
static void run_adamw(tr__kernel_bench *b, const void *argument) {
  (void)argument;
  tr_adamw p = {.lr = 1e-3f,
                .beta1 = 0.9f,
                .beta2 = 0.95f,
                .eps = 1e-8f,
                .decay = 0.1f,
                .bias1 = 0.1f,
                .bias2 = 0.05f,
                .grad_scale = 1.0f};
  float *w = b->more;
  b->c.kernels->adamw(&b->c, PARAMETERS / 2, &p, w, w + PARAMETERS / 2, w + PARAMETERS,
                      w + PARAMETERS + PARAMETERS / 2, TR_F32, NULL);
}
static void run_sum_squares(tr__kernel_bench *b, const void *argument) {
  (void)argument;
  static double sum[PARAMETERS / 8192 + 1];
  b->c.kernels->sum_squares(&b->c, PARAMETERS, 8192, b->more, sum);
}
static void run_add(tr__kernel_bench *b, const void *argument) {
  (void)argument;
  b->c.kernels->add(&b->c, PARAMETERS, TR_F32, b->more, b->more + PARAMETERS);
}
static void run_convert(tr__kernel_bench *b, const void *argument) {
  (void)argument;
  b->c.kernels->convert(&b->c, PARAMETERS, TR_F32, b->more, TR_BF16, b->b);
}
static void bench_memory(tr__kernel_bench *b) {
  const double e = (double)tr_dtype_size(b->type), small = (double)ROWS * WIDTH * e,
               large = (double)ROWS * HIDDEN * e;
  tr__kernel_bytes(b, "layernorm forward", run_norm, NULL, 2 * small);
  tr__kernel_bytes(b, "layernorm backward", run_norm_backward, NULL, 4 * small);
  tr__kernel_bytes(b, "rmsnorm forward", run_rms, NULL, 2 * small);
  tr__kernel_bytes(b, "rmsnorm backward", run_rms_backward, NULL, 4 * small);
  tr__kernel_bytes(b, "rope", run_rope, NULL, 2 * small);
  tr__kernel_bytes(b, "swiglu forward", run_swiglu, NULL, 1.5 * large);
  tr__kernel_bytes(b, "swiglu backward", run_swiglu_backward, NULL, 2.5 * large);
  tr__kernel_bytes(b, "gelu forward", run_gelu, NULL, 2 * large);
  tr__kernel_bytes(b, "gelu backward", run_gelu_backward, NULL, 3 * large);
  tr__kernel_bytes(b, "residual", run_residual, NULL, 3 * small);
  tr__kernel_bytes(b, "residual with dropout", run_residual, b, 3 * small);
  tr__kernel_bytes(b, "column sum", run_column_sum, NULL, large);
  tr__kernel_bytes(b, "embedding forward", run_embedding, NULL, 3 * small);
  tr__kernel_bytes(b, "embedding backward", run_embedding_backward, NULL, small + 4.0 * (double)ROWS * WIDTH * 4);
  tr__kernel_bytes(b, "adamw", run_adamw, NULL, 7.0 * 4 * (PARAMETERS / 2));
  tr__kernel_bytes(b, "sum of squares", run_sum_squares, NULL, 4.0 * PARAMETERS);
  tr__kernel_bytes(b, "add f32", run_add, NULL, 12.0 * PARAMETERS);
  tr__kernel_bytes(b, "convert f32 to bf16", run_convert, NULL, 6.0 * PARAMETERS);
}

void tr__kernel_cases(tr__kernel_bench *b) {
  bench_matmul(b);
  bench_packed(b);
  bench_attention(b);
  bench_memory(b);
  bench_head(b);
}
