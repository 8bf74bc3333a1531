// SPDX-License-Identifier: MIT
// How fast the CPU kernels are on this machine: GPT-2 124M shapes with 1024 rows, f32 and bf16, one and two threads.
//
// Each line gives the best time of a few runs, the rate, and its share of what the machine could do, measured
// in the same run: of tr_kernel_peak for products, of a plain copy for kernels that move memory. Nothing here
// fails on a slow machine.
//
//   bench_kernel [f32|bf16]    both types when none is named; under a minute
#include "trireme/base/clock.h"
#include "trireme/base/cpu.h"
#include "trireme/kernel/kernel.h"

#include <stdio.h>
#include <string.h>

enum { ROWS = 1024, WIDTH = 768, HIDDEN = 3072, HEADS = 12, VOCAB = 50257, HEAD_ROWS = 256, PARAMETERS = 16 << 20 };

typedef struct bench {
  tr_compute c;
  tr_arena memory, scratch;
  tr_pool *pool;
  tr_dtype type;
  double peak, copy; // flop/s, byte/s
  char *a, *b, *out; // operands, large enough for every kernel here
  float *wide, *more;
  int32_t *token, *position;
} bench;

typedef void (*bench_fn)(bench *b, const void *argument);

static double best_time(bench *b, bench_fn fn, const void *argument) {
  double best = 1e30, total = 0;
  for (int run = 0; run < 9 && (run < 2 || total < 0.5); run++) {
    double start = tr_clock_seconds();
    fn(b, argument);
    double t = tr_clock_seconds() - start;
    total += t;
    if (t < best) best = t;
  }
  return best;
}

static void report_flops(const bench *b, const char *name, double seconds, double flops) {
  printf("%-34s %9.3f ms %8.1f GFLOP/s %5.0f %% of peak\n", name, seconds * 1e3, flops / seconds * 1e-9,
         100 * flops / seconds / b->peak);
}
static void report_bytes(const bench *b, const char *name, double seconds, double bytes) {
  printf("%-34s %9.3f ms %8.1f GB/s    %5.0f %% of copy\n", name, seconds * 1e3, bytes / seconds * 1e-9,
         100 * bytes / seconds / b->copy);
}

static void run_matmul(bench *b, const void *argument) {
  if (b->c.kernels->matmul(&b->c, argument, b->a, b->b, NULL, b->out) < 0) fprintf(stderr, "%s\n", tr_status_text());
}

static tr_matmul product(const bench *b, int64_t m, int64_t n, int64_t k, int trans_a, int trans_b) {
  tr_matmul p = {
      .m = m, .n = n, .k = k, .trans_a = trans_a, .trans_b = trans_b, .ldc = n, .type = b->type, .type_c = b->type};
  p.lda = trans_a ? m : k;
  p.ldb = trans_b ? k : n;
  return p;
}

static void bench_matmul(bench *b) {
  const struct shape {
    const char *name;
    int64_t out, in;
  } layer[] = {
      {"qkv", 3 * WIDTH, WIDTH}, {"attproj", WIDTH, WIDTH}, {"fc", HIDDEN, WIDTH}, {"fcproj", WIDTH, HIDDEN}};
  for (int pass = 0; pass < 3; pass++)
    for (size_t i = 0; i < sizeof layer / sizeof layer[0]; i++) {
      const struct shape *s = &layer[i];
      static const char *const pass_name[] = {"forward", "dgrad", "wgrad"};
      tr_matmul p = pass == 0   ? product(b, ROWS, s->out, s->in, 0, 1)
                    : pass == 1 ? product(b, ROWS, s->in, s->out, 0, 0)
                                : product(b, s->out, s->in, ROWS, 1, 0);
      if (pass == 2) p.type_c = TR_F32, p.add = 1;
      char name[64];
      snprintf(name, sizeof name, "matmul %s %s", pass_name[pass], s->name);
      report_flops(b, name, best_time(b, run_matmul, &p), 2.0 * (double)p.m * (double)p.n * (double)p.k);
    }
  tr_matmul one = product(b, 1, HIDDEN, WIDTH, 0, 1);
  report_bytes(b, "matmul 1 row fc", best_time(b, run_matmul, &one),
               (double)(HIDDEN * WIDTH) * (double)tr_dtype_size(b->type));
}

static void run_attention(bench *b, const void *argument) {
  const tr_attention *p = argument;
  const size_t e = tr_dtype_size(b->type);
  b->c.kernels->attention_forward(&b->c, p, b->a, b->a + WIDTH * e, b->a + 2 * WIDTH * e, NULL, b->b, b->wide);
}
static void run_attention_backward(bench *b, const void *argument) {
  const tr_attention *p = argument;
  const size_t e = tr_dtype_size(b->type);
  tr_attention_grad g = {.q = b->a, .k = b->a + WIDTH * e, .v = b->a + 2 * WIDTH * e, .out = b->b, .lse = b->wide};
  g.dout = b->b, g.dq = b->out, g.dk = b->out + WIDTH * e, g.dv = b->out + 2 * WIDTH * e, g.grad_type = b->type;
  b->c.kernels->attention_backward(&b->c, p, &g);
}

static tr_attention attention_over(const bench *b, const int32_t *start) {
  tr_attention p = {
      .nseq = 1, .query_start = start, .key_start = start, .query_pos = b->position, .key_pos = b->position};
  p.head = HEADS, p.head_kv = HEADS, p.dim = WIDTH / HEADS, p.type = b->type, p.scale = 0.125f, p.first = 1,
  p.last = 1;
  p.ld_q = p.ld_k = p.ld_v = 3 * WIDTH, p.ld_out = WIDTH;
  return p;
}

static void bench_attention(bench *b) {
  static const int32_t start[2] = {0, ROWS};
  tr_attention p = attention_over(b, start);
  const double product_flops = (double)ROWS * ROWS * WIDTH; // of one causal product: half of the square
  report_flops(b, "attention forward", best_time(b, run_attention, &p), 2 * product_flops);
  report_flops(b, "attention backward", best_time(b, run_attention_backward, &p), 5 * product_flops);
  p.window = ROWS / 8;
  const double share = (double)p.window / ROWS * (2 - (double)p.window / ROWS); // of the pairs without a window
  report_flops(b, "attention forward, window 128", best_time(b, run_attention, &p), 2 * share * product_flops);
  report_flops(b, "attention backward, window 128", best_time(b, run_attention_backward, &p),
               5 * share * product_flops);
}

static void run_head(bench *b, const void *argument) {
  tr_head_loss p = {.rows = HEAD_ROWS, .width = WIDTH, .vocab = VOCAB, .type = b->type, .scale = 1.0 / HEAD_ROWS};
  p.x = b->a, p.w = b->b, p.target = b->token, p.loss = b->wide, p.add = 1;
  if (argument) p.dx = b->out, p.dw = b->more;
  if (b->c.kernels->head_loss(&b->c, &p) < 0) fprintf(stderr, "%s\n", tr_status_text());
}

static void bench_head(bench *b) {
  const double flops = 2.0 * HEAD_ROWS * WIDTH * VOCAB;
  report_flops(b, "head loss", best_time(b, run_head, NULL), flops);
  report_flops(b, "head loss with gradients", best_time(b, run_head, b), 3 * flops);
}

static void run_norm(bench *b, const void *argument) {
  (void)argument;
  b->c.kernels->layernorm_forward(&b->c, ROWS, WIDTH, b->type, 1e-5f, b->a, b->b, b->b, b->out, b->wide,
                                  b->wide + ROWS);
}
static void run_norm_backward(bench *b, const void *argument) {
  (void)argument;
  b->c.kernels->layernorm_backward(&b->c, ROWS, WIDTH, b->type, b->b, b->a, b->b, b->wide, b->wide + ROWS, b->out, 1,
                                   b->more, b->more + WIDTH, 1);
}
static tr_rmsnorm rms_shape(const bench *b) { return (tr_rmsnorm){ROWS, 1, WIDTH, WIDTH, WIDTH, b->type, 1e-5f}; }
static void run_rms(bench *b, const void *argument) {
  (void)argument;
  const tr_rmsnorm p = rms_shape(b);
  b->c.kernels->rmsnorm_forward(&b->c, &p, b->a, b->b, b->out, b->wide);
}
static void run_rms_backward(bench *b, const void *argument) {
  (void)argument;
  const tr_rmsnorm p = rms_shape(b);
  b->c.kernels->rmsnorm_backward(&b->c, &p, b->b, b->a, b->b, b->wide, b->out, 1, b->more, 1);
}
static void run_rope(bench *b, const void *argument) {
  (void)argument;
  double frequency[WIDTH / HEADS / 2];
  for (int i = 0; i < WIDTH / HEADS / 2; i++) frequency[i] = 1.0 / (1 + 300 * i);
  tr_rope p = {.rows = ROWS, .count = HEADS, .dim = WIDTH / HEADS, .ld = WIDTH, .type = b->type, .scale = 1};
  p.position = b->position, p.frequency = frequency;
  b->c.kernels->rope(&b->c, &p, b->out);
}
static void run_swiglu(bench *b, const void *argument) {
  (void)argument;
  b->c.kernels->swiglu_forward(&b->c, ROWS, HIDDEN / 2, b->type, b->a, b->out);
}
static void run_swiglu_backward(bench *b, const void *argument) {
  (void)argument;
  b->c.kernels->swiglu_backward(&b->c, ROWS, HIDDEN / 2, b->type, b->a, b->b, b->out);
}
static void run_gelu(bench *b, const void *argument) {
  (void)argument;
  b->c.kernels->gelu_forward(&b->c, (size_t)ROWS * HIDDEN, b->type, b->a, b->out);
}
static void run_gelu_backward(bench *b, const void *argument) {
  (void)argument;
  b->c.kernels->gelu_backward(&b->c, (size_t)ROWS * HIDDEN, b->type, b->a, b->b, b->out);
}
static void run_residual(bench *b, const void *argument) {
  static int64_t sample[ROWS];
  tr_dropout d = {.p = argument ? 0.1f : 0.0f,
                  .key = tr_rng_key_make(1, TR_RNG_DROPOUT, 1),
                  .sample = sample,
                  .position = b->position};
  b->c.kernels->residual_forward(&b->c, ROWS, WIDTH, b->type, b->a, b->b, &d, b->out);
}
static void run_column_sum(bench *b, const void *argument) {
  (void)argument;
  b->c.kernels->column_sum(&b->c, ROWS, HIDDEN, b->type, b->a, b->wide, 1);
}
static void run_embedding(bench *b, const void *argument) {
  (void)argument;
  b->c.kernels->embedding_forward(&b->c, ROWS, WIDTH, b->type, b->token, b->position, b->b, b->a, NULL, b->out);
}
static void run_embedding_backward(bench *b, const void *argument) {
  (void)argument;
  b->c.kernels->embedding_backward(&b->c, ROWS, WIDTH, b->type, b->token, b->position, NULL, b->a, b->more, VOCAB, 1,
                                   b->wide, ROWS, 1);
}
static void run_adamw(bench *b, const void *argument) {
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
static void run_sum_squares(bench *b, const void *argument) {
  (void)argument;
  static double sum[PARAMETERS / 8192 + 1];
  b->c.kernels->sum_squares(&b->c, PARAMETERS, 8192, b->more, sum);
}
static void run_add(bench *b, const void *argument) {
  (void)argument;
  b->c.kernels->add(&b->c, PARAMETERS, TR_F32, b->more, b->more + PARAMETERS);
}
static void run_convert(bench *b, const void *argument) {
  (void)argument;
  b->c.kernels->convert(&b->c, PARAMETERS, TR_F32, b->more, TR_BF16, b->b);
}
static void run_copy_task(void *context, int task, int worker) {
  bench *b = context;
  (void)worker;
  memcpy((char *)b->more + ((size_t)task << 20), b->b + ((size_t)task << 20), 1 << 20);
}
static void run_copy(bench *b, const void *argument) {
  (void)argument;
  tr_pool_run(b->pool, 64, run_copy_task, b);
}

static void bench_memory(bench *b) {
  const double e = (double)tr_dtype_size(b->type), small = (double)ROWS * WIDTH * e,
               large = (double)ROWS * HIDDEN * e;
  report_bytes(b, "layernorm forward", best_time(b, run_norm, NULL), 2 * small);
  report_bytes(b, "layernorm backward", best_time(b, run_norm_backward, NULL), 4 * small);
  report_bytes(b, "rmsnorm forward", best_time(b, run_rms, NULL), 2 * small);
  report_bytes(b, "rmsnorm backward", best_time(b, run_rms_backward, NULL), 4 * small);
  report_bytes(b, "rope", best_time(b, run_rope, NULL), 2 * small);
  report_bytes(b, "swiglu forward", best_time(b, run_swiglu, NULL), 1.5 * large);
  report_bytes(b, "swiglu backward", best_time(b, run_swiglu_backward, NULL), 2.5 * large);
  report_bytes(b, "gelu forward", best_time(b, run_gelu, NULL), 2 * large);
  report_bytes(b, "gelu backward", best_time(b, run_gelu_backward, NULL), 3 * large);
  report_bytes(b, "residual", best_time(b, run_residual, NULL), 3 * small);
  report_bytes(b, "residual with dropout", best_time(b, run_residual, b), 3 * small);
  report_bytes(b, "column sum", best_time(b, run_column_sum, NULL), large);
  report_bytes(b, "embedding forward", best_time(b, run_embedding, NULL), 3 * small);
  report_bytes(b, "embedding backward", best_time(b, run_embedding_backward, NULL),
               small + 4.0 * (double)ROWS * WIDTH * 4);
  report_bytes(b, "adamw", best_time(b, run_adamw, NULL), 7.0 * 4 * (PARAMETERS / 2));
  report_bytes(b, "sum of squares", best_time(b, run_sum_squares, NULL), 4.0 * PARAMETERS);
  report_bytes(b, "add f32", best_time(b, run_add, NULL), 12.0 * PARAMETERS);
  report_bytes(b, "convert f32 to bf16", best_time(b, run_convert, NULL), 6.0 * PARAMETERS);
}

// Weights, operands and gradients: small numbers of either sign, in the type of the run.
static void fill(bench *b, size_t nelem) {
  uint32_t state = 1;
  for (size_t i = 0; i < nelem; i++) {
    state = state * 1664525u + 1013904223u;
    const float value = (float)(int32_t)state * 0x1p-34f;
    tr_store(b->type, b->a, i % (4 << 20), value);
    tr_store(b->type, b->b, i, value);
    b->more[i] = value * value; // AdamW's second moment must not be negative
  }
  for (int r = 0; r < ROWS; r++) b->position[r] = r, b->token[r] = (int32_t)((uint32_t)r * 7919u % VOCAB);
}

static tr_status bench_open(bench *b, int nthread, tr_dtype type) {
  memset(b, 0, sizeof *b);
  b->type = type;
  const size_t big = (size_t)VOCAB * WIDTH * sizeof(float);
  TR_TRY(tr_pool_create(nthread, 1, NULL, NULL, &b->pool));
  TR_TRY(tr_arena_create(&b->memory, "bench", 2 * big + (48 << 20) + (1 << 20)));
  TR_TRY(tr_arena_create(&b->scratch, "scratch", (size_t)512 << 20));
  b->a = tr_arena_alloc(&b->memory, 16 << 20);
  b->out = tr_arena_alloc(&b->memory, 16 << 20);
  b->wide = tr_arena_alloc(&b->memory, 16 << 20);
  b->b = tr_arena_alloc(&b->memory, big);
  b->more = tr_arena_alloc(&b->memory, big);
  b->token = tr_arena_alloc(&b->memory, ROWS * sizeof *b->token);
  b->position = tr_arena_alloc(&b->memory, ROWS * sizeof *b->position);
  if (!b->position) return TR_ERR_MEMORY;
  tr_arena_prefault(&b->memory, NULL, NULL);
  fill(b, (size_t)VOCAB * WIDTH);
  return tr_compute_open(tr_kernels_cpu(), b->pool, &b->scratch, &b->c);
}

static void bench_close(bench *b) {
  if (b->c.kernels) tr_compute_close(&b->c);
  tr_arena_destroy(&b->scratch);
  tr_arena_destroy(&b->memory);
  tr_pool_destroy(b->pool);
}

static int bench_run(int nthread, tr_dtype type) {
  bench b;
  const tr_status status = bench_open(&b, nthread, type);
  if (status < 0) {
    fprintf(stderr, "bench_kernel: %s\n", tr_status_text());
    bench_close(&b);
    return tr_status_exit_code(status);
  }
  b.peak = tr_kernel_peak(type, nthread, 0.3);
  b.copy = 2.0 * (64 << 20) / best_time(&b, run_copy, NULL);
  printf("\n%s, %s, %d thread%s: peak %.1f GFLOP/s, copy %.1f GB/s\n", b.c.kernels->name, tr_dtype_name(type),
         nthread, nthread > 1 ? "s" : "", b.peak * 1e-9, b.copy * 1e-9);
  bench_matmul(&b);
  bench_attention(&b);
  bench_memory(&b);
  bench_head(&b);
  bench_close(&b);
  return 0;
}

int main(int argc, char **argv) {
  char cpu[128];
  tr_cpu_name(cpu, sizeof cpu);
  printf("%s, %d processors\n", cpu, tr_cpu_count());
  for (int nthread = 1; nthread <= 2 && nthread <= tr_cpu_count(); nthread++)
    for (int bf16 = 0; bf16 < 2; bf16++) {
      const tr_dtype type = bf16 ? TR_BF16 : TR_F32;
      if (argc > 1 && strcmp(argv[1], tr_dtype_name(type)) != 0) continue;
      const int code = bench_run(nthread, type);
      if (code) return code;
    }
  return 0;
}
