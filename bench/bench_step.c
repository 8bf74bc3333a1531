// SPDX-License-Identifier: MIT
// Whole training steps against the machine's limit: GPT-2 on made-up tokens, ranks as processes. Prints tokens/s,
// model FLOP/s and their share of the matmul peak that a register-only loop reaches in the same run, and the speed-up
// of two ranks of one thread over one.
//
//   bench_step [TYPE [LAYERS WIDTH HEADS VOCAB SEQUENCE MICRO STEPS]]     default: bf16, GPT-2 124M, 1024, 1, 5
//
// Model FLOPs per token: 3 x forward; matrix products and causal attention (half the keys); look-ups are not counted.
#include "trireme/base/clock.h"
#include "trireme/base/cpu.h"
#include "trireme/comm/launch.h"
#include "trireme/model/gpt2.h"
#include "trireme/run/run.h"
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

typedef struct setup {
  tr_gpt2_config config;
  tr_model *model;
  tr_layout layout;
  tr_step_model step_model;
  tr_dtype type;
  int64_t sequence;
  int micro, steps, nthread;
  double *seconds; // [steps] of rank 0, in memory shared with the ranks
} setup;

static int compare(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return x < y ? -1 : x > y;
}

// A micro-batch of random tokens, different on every rank.
static tr_status make_input(const setup *s, int rank, tr_model_input *out) {
  int64_t n = s->micro * s->sequence;
  int32_t *token = malloc((size_t)n * 3 * sizeof *token), *start = malloc(((size_t)s->micro + 1) * sizeof *start);
  int64_t *sample = malloc((size_t)n * sizeof *sample);
  if (!token || !start || !sample) return tr_error(TR_ERR_MEMORY, "no memory for %lld tokens", (long long)n);
  int32_t *target = token + n, *position = target + n;
  tr_rng_key key = tr_rng_key_make(1, TR_RNG_TEST, (uint64_t)rank);
  for (int64_t i = 0; i < n; i++) {
    token[i] = (int32_t)(tr_rng_u32(key, 0, (uint32_t)i, 0) % (uint32_t)s->config.vocab);
    target[i] = (int32_t)(tr_rng_u32(key, 0, (uint32_t)i, 1) % (uint32_t)s->config.vocab);
    position[i] = (int32_t)(i % s->sequence);
    sample[i] = i / s->sequence;
  }
  for (int i = 0; i <= s->micro; i++) start[i] = (int32_t)(i * s->sequence);
  *out = (tr_model_input){.rows = n,
                          .nseq = s->micro,
                          .token = token,
                          .target = target,
                          .position = position,
                          .sample = sample,
                          .start = start,
                          .valid = n};
  return TR_OK;
}

static void fill_options(const setup *s, const tr_program *program, tr_run_options *o) {
  tr_run_options_init(o);
  o->model = s->model;
  o->layout = &s->layout;
  o->program = program;
  o->kernels = tr_kernels_cpu();
  o->type = s->type;
  o->rows = s->micro * s->sequence;
  o->clip = 1;
}

static tr_status time_steps(const setup *s, tr_comm *comm, tr_run *run) {
  tr_model_input input;
  tr_step_result result;
  TR_TRY(make_input(s, tr_comm_rank(comm), &input));
  TR_TRY(tr_run_step(run, 0, 1e-4, &input, &result)); // warm-up: primitives are made here
  for (int i = 0; i < s->steps; i++) {
    double begin = tr_clock_seconds();
    TR_TRY(tr_run_step(run, i + 1, 1e-4, &input, &result));
    if (tr_comm_rank(comm) == 0) s->seconds[i] = tr_clock_seconds() - begin;
  }
  return TR_OK;
}

// Ranks end with the benchmark, so what a failure leaves behind goes with the process.
static tr_status rank_main(tr_comm *comm, void *user) {
  const setup *s = user;
  tr_program program;
  tr_step_options step = {.microbatches = 1, .dp = tr_comm_size(comm), .bucket_elements = 25000000 / 4};
  TR_TRY(tr_program_build(&s->step_model, &step, &program));
  tr_run_options o;
  fill_options(s, &program, &o);
  TR_TRY(tr_pool_create(s->nthread, tr_comm_spin(comm), NULL, NULL, &o.pool));
  o.comm = comm;
  o.dp = tr_comm_world(comm);
  tr_run *run;
  TR_TRY(tr_run_create(&o, &run));
  tr_run_init_weights(run, 1);
  TR_TRY(time_steps(s, comm, run));
  tr_run_destroy(run);
  tr_pool_destroy(o.pool);
  tr_program_destroy(&program);
  return TR_OK;
}

// Median seconds per step with these ranks and threads; 0 after a failure, which is printed.
static double measure(setup *s, int ranks, int threads) {
  tr_program program;
  tr_run_options o;
  tr_run_memory memory;
  tr_step_options step = {.microbatches = 1, .dp = ranks, .bucket_elements = 25000000 / 4};
  if (tr_program_build(&s->step_model, &step, &program) < 0) return 0;
  fill_options(s, &program, &o);
  tr_status status = tr_run_memory_predict(&o, threads, ranks, &memory);
  tr_program_destroy(&program);
  tr_launch_options launch;
  tr_launch_options_init(&launch);
  launch.nrank = ranks;
  launch.nthread = s->nthread = threads;
  launch.arena_nbyte = memory.shared_total + 4096;
  launch.deadline = 600;
  if (status == TR_OK) status = tr_launch(&launch, rank_main, s, NULL);
  if (status < 0) {
    fprintf(stderr, "bench_step: %s\n", tr_status_text());
    return 0;
  }
  qsort(s->seconds, (size_t)s->steps, sizeof *s->seconds, compare);
  return s->seconds[s->steps / 2];
}

// `base` is the time of one rank of one thread for the same work per rank: 0 leaves the speed-up out.
static double report(setup *s, int ranks, int threads, double peak, double base) {
  double seconds = measure(s, ranks, threads);
  if (seconds <= 0) exit(1);
  double tokens = (double)(ranks * s->micro * s->sequence) / seconds,
         flops = tokens * tr_model_flops(s->model, s->sequence);
  printf("%5d %7d %9.1f %10.1f %12.1f %9.1f%%", ranks, threads, seconds * 1e3, tokens, flops * 1e-9,
         100 * flops / peak);
  if (base > 0) printf(" %9.2fx", ranks * base / seconds);
  printf("\n");
  fflush(stdout);
  return seconds;
}

static tr_status prepare(setup *s, int argc, char **argv) {
  int64_t number[7] = {12, 768, 12, 50257, 1024, 1, 5};
  for (int i = 0; i < 7 && i + 2 < argc; i++) TR_TRY(tr_parse_count(argv[i + 2], &number[i]));
  s->type = TR_BF16;
  if (argc > 1) TR_TRY(tr_dtype_parse(argv[1], &s->type));
  tr_gpt2_config_init(&s->config);
  s->config.layers = number[0], s->config.width = number[1], s->config.heads = number[2], s->config.vocab = number[3];
  s->config.positions = s->sequence = number[4];
  s->micro = (int)number[5], s->steps = (int)number[6];
  TR_TRY(tr_gpt2_create(&s->config, &s->model));
  TR_TRY(tr_layout_build(s->model, &s->layout));
  int *last_piece = malloc(sizeof *last_piece * (size_t)s->layout.nunit);
  s->seconds =
      mmap(NULL, sizeof(double) * (size_t)s->steps, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (!last_piece || s->seconds == MAP_FAILED) return tr_error(TR_ERR_MEMORY, "no memory for the benchmark's tables");
  for (int i = 0; i < s->layout.nunit; i++) last_piece[i] = tr_model_unit_last_piece(s->model, i);
  s->step_model = (tr_step_model){tr_model_pieces(s->model), s->layout.nunit, last_piece, s->layout.unit_start};
  return TR_OK;
}

int main(int argc, char **argv) {
  setup s = {0};
  if (prepare(&s, argc, argv) < 0) {
    fprintf(stderr, "bench_step: %s\n", tr_status_text());
    return 2;
  }
  char cpu[128];
  tr_cpu_name(cpu, sizeof cpu);
  double peak1 = tr_kernel_peak(s.type, 1, 0.5), peak2 = tr_kernel_peak(s.type, 2, 0.5);
  printf("%s, %s, %d cores; matmul peak %s: %.1f GFLOP/s on one core, %.1f on two\n", cpu, tr_isa_name(tr_cpu_isa()),
         tr_cpu_count(), tr_dtype_name(s.type), peak1 * 1e-9, peak2 * 1e-9);
  printf("GPT-2 %.1fM parameters, sequence %lld, %d sequences per rank and step, %.1f MFLOP per token\n",
         (double)tr_model_count(s.model) * 1e-6, (long long)s.sequence, s.micro,
         tr_model_flops(s.model, s.sequence) * 1e-6);
  printf("ranks threads   ms/step   tokens/s      GFLOP/s  of peak   speed-up over 1 x 1\n");
  double base = report(&s, 1, 1, peak1, 0);
  report(&s, 2, 1, peak2, base);
  report(&s, 1, 2, peak2, base);
  return 0;
}
