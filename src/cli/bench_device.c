// SPDX-License-Identifier: MIT
// The device that one core of this machine is, for the planner's general model (plan/device.h): its peaks, its part of the memory
// and of its bandwidth, how fast products of several sizes are, attention, and passes over memory.
//
// A device is a core with its share of everything, as data-parallel ranks have it. Links are shared memory; `trireme bench comm
// --write` measures them. What runs on these devices is this library, which hides no traffic behind computation.
#include "cli/bench_describe_internal.h"
#include "trireme/base/clock.h"
#include "trireme/base/cpu.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
  ELEMENTS = 4 << 20,
  COPY = 64 << 20,
  CALLS_LEAST = 3,
  CALLS_MOST = 60,
  BURSTS = 6,
  HEADS = 12,
  DIM = 64,
  SEQUENCE = 512
};
static const double most_seconds = 0.08, burst_seconds = 0.05;

// What is measured with: operands of ELEMENTS bf16 numbers, one thread.
typedef struct bench {
  tr_compute c;
  tr_arena memory, scratch;
  char *a, *b, *out;
  float *lse;
  int32_t *position;
  tr_matmul product;
} bench;

static double now(void) {
  struct timespec t;
  if (clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t) != 0) return tr_clock_seconds();
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double best(bench *b, void (*run)(bench *b)) {
  double least = INFINITY, total = 0;
  for (int i = 0; i < CALLS_MOST && (i < CALLS_LEAST || total < most_seconds); i++) {
    const double begin = now();
    run(b);
    const double seconds = now() - begin;
    total += seconds;
    least = fmin(least, seconds);
  }
  return least;
}

// ---- kernels

static void run_product(bench *b) { (void)b->c.kernels->matmul(&b->c, &b->product, b->a, b->b, NULL, b->out); }

static void run_attention(bench *b) {
  static const int32_t start[2] = {0, SEQUENCE};
  tr_attention p = {.nseq = 1,
                    .query_start = start,
                    .key_start = start,
                    .query_pos = b->position,
                    .key_pos = b->position,
                    .head = HEADS,
                    .head_kv = HEADS,
                    .dim = DIM,
                    .type = TR_BF16,
                    .scale = 0.125f,
                    .first = 1,
                    .last = 1};
  p.ld_q = p.ld_k = p.ld_v = 3 * HEADS * DIM, p.ld_out = HEADS * DIM;
  const size_t side = (size_t)HEADS * DIM * tr_dtype_size(TR_BF16);
  (void)b->c.kernels->attention_forward(&b->c, &p, b->a, b->a + side, b->a + 2 * side, NULL, b->out, b->lse);
}

static void run_norm(bench *b) {
  b->c.kernels->layernorm_forward(&b->c, 1024, 768, TR_BF16, 1e-5f, b->a, b->b, b->b, b->out, b->lse, b->lse + 1024);
}

static void run_copy(bench *b) { memcpy(b->memory.base + COPY, b->memory.base, COPY); }

static tr_status open_bench(bench *b) {
  const size_t nbyte = ELEMENTS * tr_dtype_size(TR_BF16);
  *b = (bench){.lse = NULL};
  TR_TRY(tr_arena_create(&b->memory, "bench", 2 * COPY + (1 << 20)));
  TR_TRY(tr_arena_create(&b->scratch, "scratch", (size_t)64 << 20));
  b->a = tr_arena_alloc(&b->memory, nbyte);
  b->b = tr_arena_alloc(&b->memory, nbyte);
  b->out = tr_arena_alloc(&b->memory, nbyte);
  b->lse = tr_arena_alloc(&b->memory, ELEMENTS);
  b->position = tr_arena_alloc(&b->memory, SEQUENCE * sizeof *b->position);
  tr_arena_prefault(&b->memory, NULL, NULL);
  if (!b->position) return TR_ERR_MEMORY;
  for (size_t i = 0; i < ELEMENTS; i++) {
    tr_store(TR_BF16, b->a, i, (float)(i % 17) * 0.01f - 0.08f);
    tr_store(TR_BF16, b->b, i, (float)(i % 13) * 0.01f - 0.06f);
  }
  for (int32_t i = 0; i < SEQUENCE; i++) b->position[i] = i;
  return tr_compute_open(tr_kernels_cpu(), NULL, &b->scratch, &b->c);
}

static void close_bench(bench *b) {
  if (b->c.kernels) tr_compute_close(&b->c);
  if (b->scratch.base) tr_arena_destroy(&b->scratch);
  if (b->memory.base) tr_arena_destroy(&b->memory);
}

// ---- the curve of products

static const int size[][3] = {{64, 64, 64},     {64, 256, 256},   {64, 768, 768},    {256, 64, 256},
                              {256, 256, 64},   {256, 256, 256},  {256, 768, 768},   {256, 1024, 256},
                              {1024, 256, 256}, {1024, 768, 768}, {1024, 256, 1024}, {1024, 1024, 1024},
                              {2048, 512, 512}};
enum { SIZES = sizeof size / sizeof *size };

static void measure_products(bench *b, double seconds[SIZES]) {
  for (int i = 0; i < SIZES; i++) {
    const int64_t m = size[i][0], n = size[i][1], k = size[i][2];
    b->product = (tr_matmul){
        .m = m, .n = n, .k = k, .trans_b = 1, .lda = k, .ldb = k, .ldc = n, .type = TR_BF16, .type_c = TR_BF16};
    seconds[i] = best(b, run_product);
  }
}

// Time of a product as the planner has it, at a rate of 1 FLOP a second.
static double shape_time(const int s[3], double tile, double depth) {
  const double mn = (double)s[0] * s[1], k = s[2];
  return 2 * mn * k * (mn + tile) / mn * (k + depth) / k;
}

// The tile and depth with which one rate explains the times best, in relative terms.
static tr_efficiency fit_products(const double seconds[SIZES], double peak) {
  tr_efficiency out = {0};
  double least = INFINITY;
  for (double tile = 0; tile < 4e5; tile = tile ? tile * 1.5 : 256)
    for (double depth = 0; depth < 1024; depth = depth ? depth * 1.3 : 4) {
      double sum = 0, square = 0;
      for (int i = 0; i < SIZES; i++) {
        const double x = shape_time(size[i], tile, depth) / seconds[i];
        sum += x;
        square += x * x;
      }
      const double error = SIZES - sum * sum / square; // with 1 / rate = sum / square
      if (error >= least) continue;
      least = error;
      out.matmul = square / sum / peak;
      out.tile_mi = tile / 1048576;
      out.depth = depth;
      out.median = sqrt(error / SIZES);
    }
  return out;
}

// ---- text

// By processor time, as everything here: what a core computes while it is ours.
static double peak_of(tr_dtype type) {
  double most = 0;
  for (int i = 0; i < BURSTS; i++) {
    const double wall = tr_clock_seconds(), own = now(), rate = tr_kernel_peak(type, 1, burst_seconds);
    most = fmax(most, rate * (tr_clock_seconds() - wall) / (now() - own));
  }
  return most;
}

static void append_device(const tr_efficiency *fit, double f32, double bf16, double copy, const char *source,
                          tr_text *out) {
  const int cores = tr_cpu_count();
  tr_text_append(
      out,
      "  peak: # TFLOP/s of a core\n    f32: %.5g\n    bf16: %.5g\n    source: \"%s\"\n"
      "  memory: # a core's share, GiB, GB/s\n    size: %.4g\n    bandwidth: %.4g\n    reserved: 0\n    source: "
      "\"%s\"\n"
      "  link: # shared memory; the list `links` takes its place\n    bandwidth: %.4g\n    devices: %d\n"
      "    source: \"a copy in memory, %s\"\n"
      "  network:\n    bandwidth: %.4g\n    source: \"not measured: one host\"\n",
      f32 * 1e-12, bf16 * 1e-12, source, (double)tr_cpu_memory() / 1073741824.0 / cores, copy * 1e-9, source,
      copy * 1e-9, cores > 1 ? cores : 2, source, copy * 8e-9);
  tr_text_append(
      out,
      "  fit: # shares of the figures above, us, ms\n    matmul: %.4g\n    matmul_fp8: 1\n    tile: %.4g\n    depth: "
      "%.4g\n"
      "    attention: %.4g\n    memory: %.4g\n    layer: 20\n    link: 0.95\n    link_latency: 1\n    hide_tp: 0\n"
      "    hide_grad: 0\n    hide_ep: 0\n    step: 0.05\n    straggle: 0\n    median: %.3f\n    p90: 0.5\n"
      "    source: \"products of %d sizes, attention and a norm alone, %s; `kernels` has what steps take\"\n",
      fit->matmul, fit->tile_mi, fit->depth, fit->attention, fit->memory, fit->median, SIZES, source);
}

static double within(double value, double least, double most) { return fmin(fmax(value, least), most); }

static tr_status measure(bench *b, double peak, tr_efficiency *fit, double *copy) {
  double seconds[SIZES];
  const double scores = 4.0 * SEQUENCE * (SEQUENCE + 1) / 2 * HEADS * DIM;
  measure_products(b, seconds);
  *fit = fit_products(seconds, peak);
  *copy = 2.0 * COPY / best(b, run_copy);
  fit->matmul = within(fit->matmul, 0.01, 1);
  fit->attention = within(scores / best(b, run_attention) / peak, 0.01, 1.2);
  fit->memory = within(2.0 * 1024 * 768 * 2 / best(b, run_norm) / *copy, 0.05, 1);
  return TR_OK;
}

tr_status tr__describe_device(tr_text *out) {
  const int cores = tr_cpu_count();
  const double f32 = peak_of(TR_F32), bf16 = peak_of(TR_BF16);
  char cpu[128], time[32], source[256];
  bench b;
  tr_efficiency fit = {0};
  double copy = 0;
  tr_status status = open_bench(&b);
  if (status == TR_OK) status = measure(&b, bf16, &fit, &copy);
  close_bench(&b);
  if (status < 0) return status;
  tr_cpu_name(cpu, sizeof cpu);
  tr_clock_utc(time, sizeof time);
  for (char *c = cpu; *c; c++)
    if (*c == '"' || *c == '\\') *c = ' ';
  snprintf(source, sizeof source, "trireme bench, %s, %s, %s", cpu, tr_isa_name(tr_cpu_isa()), time);
  tr_text_append(
      out, "name: \"%s\"\nhosts: 1\nhost_devices: %d # cores\nsource: \"%s\"\ndevice:\n  name: \"a core of %s\"\n",
      cpu, cores, source, cpu);
  append_device(&fit, f32, bf16, copy, source, out);
  return TR_OK;
}
