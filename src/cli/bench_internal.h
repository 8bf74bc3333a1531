// SPDX-License-Identifier: MIT
// `trireme bench`: what its benchmarks share. A benchmark measures rows; a report says on which machine and against what,
// keeps the rows as JSON, writes them and compares them with a file that was written before.
//
// A row is an object with "name", "seconds" (median or best of one repetition) and, where the machine's limit was measured
// beside it, "share" of that limit; the rest is the benchmark's own. Shares are compared rather than times, so that a slower
// machine of the same kind, or a busy one, is no regression.
#ifndef TRIREME_CLI_BENCH_INTERNAL_H
#define TRIREME_CLI_BENCH_INTERNAL_H

#include "cli/arguments_internal.h"
#include "trireme/base/option.h"
#include "trireme/train/config.h"
#include "trireme/train/train.h"
#include <jansson.h>

typedef struct tr__bench_settings {
  char *write, *baseline, *tolerance, *layouts;
  int json;
  int compute;     // bench kernel: 0 both, 1 f32, 2 bf16
  int64_t rounds;  // bench step
  int64_t threads; // bench kernel: -1: 1 and 2
  // bench comm
  char *sizes, *types, *svg;
  int place, buffers, reduce, launch; // place, buffers: 0, 1 or 2 both
  int order;                          // as comm.order of a run file
  int direct, matrix, preflight;
  int64_t ranks, factor; // ranks -1: as many as cores, at least 2
  double seconds, slow;
} tr__bench_settings;

enum {
  TR__BENCH_OPTIONS = 21,
  TR__BENCH_COMMON = 4,                    // rows for all benchmarks come first,
  TR__BENCH_KERNEL = TR__BENCH_COMMON + 2, // then step's two, then kernel's two,
  TR__BENCH_COMM = TR__BENCH_KERNEL + 2,   // then comm's
};
extern const tr_option tr__bench_options[TR__BENCH_OPTIONS];

int tr__cli_bench_step(int argc, char **argv);     // bench_step.c
int tr__cli_bench_kernel(int argc, char **argv);   // bench_kernel.c
int tr__cli_bench_comm(int argc, char **argv);     // bench_comm_command.c
int tr__cli_bench_topology(int argc, char **argv); // bench_topology.c

// ---- the machine

// Processor time so far, in seconds: of everybody, of this process and the children that have ended, and all there was.
typedef struct tr__bench_cpu {
  double busy, own, all;
} tr__bench_cpu;
tr__bench_cpu tr__bench_cpu_now(void);
double tr__bench_foreign(const tr__bench_cpu *since); // share of the machine that others took since then; 0 unknown

// ---- steps (bench_ranks.c)

enum { TR__BENCH_STEPS = 400, TR__BENCH_PEAKS = 32, TR__BENCH_RANKS = 256 };
typedef struct tr__bench_times {
  int nstep, npeak;
  double seconds[TR__BENCH_STEPS],
      kernels[TR__BENCH_STEPS];                  // of rank 0: whole steps, and in pieces and optimizer operations
  double peak[TR__BENCH_PEAKS][TR__BENCH_RANKS]; // FLOP/s
} tr__bench_times;
// Run a plan's steps: config.train.steps, 0: as many as take a few seconds, at least 5.
tr_status tr__bench_ranks(tr_train_plan *plan, tr__bench_times *out);

// What rank 0's calls took, by what they were: processor time of its thread where a rank has one, so that what others do on the
// machine counts for little; whole steps by the clock where ranks wait for each other. Backward passes are whole.
enum { TR__SAMPLES = 40, TR__SAMPLE_PIECES = 128, TR__SAMPLE_OPS = 512 };
typedef struct tr__bench_sample {
  int n; // seen; the first TR__SAMPLES are kept
  float seconds[TR__SAMPLES];
} tr__bench_sample;
typedef struct tr__bench_samples {
  tr__bench_sample piece[TR__SAMPLE_PIECES][2], op[TR__SAMPLE_OPS], step; // [][1]: backward
  int64_t begin[3]; // of the step, the operation, the piece under way
  int thread;       // processor time is taken,
  int waits;        // but for steps
} tr__bench_samples;
extern const tr_run_observer tr__bench_sampler; // bench_samples.c; its user is a tr__bench_samples
void tr__bench_sample_step(tr__bench_samples *samples, int ends);
double tr__bench_sample_median(const tr__bench_sample *sample); // 0: there is none
// Steps for some `seconds`, the samples taken.
tr_status tr__bench_sampled(tr_train_plan *plan, double seconds, tr__bench_samples *out);

// ---- the report

typedef struct tr__bench_report {
  const char *benchmark; // "step"
  char subject[256];     // what is measured; only equal ones are compared
  const tr__bench_settings *settings;
  double tolerance; // 0.05
  int part;         // the caller chose what to measure: a baseline may have more
  json_t *baseline; // NULL: none
  json_t *rows;
  json_t *fits; // NULL: none; what a benchmark concludes from its rows
  double peak;  // of one core, FLOP/s, the best that was seen
  tr__bench_cpu start;
} tr__bench_report;

// Reads and checks the baseline before anything is measured. TR_ERR_CONFIG for the tolerance, TR_ERR_DATA for a baseline that
// cannot be used. `options` knows where settings came from. Close it in every case.
tr_status tr__bench_open(tr__bench_report *report, const char *benchmark, const char *subject,
                         const tr__bench_settings *settings, const tr_options *options);
tr_status tr__bench_add(tr__bench_report *report, json_t *row); // takes the row, which may be NULL (no memory)
// Prints what was asked for (JSON, the comparison, a note about others on the machine), writes the file.
// TR_ERR_VERIFY names the rows that are slower than the baseline by more than the tolerance. TR_ERR_DATA names the rows that
// only one of the two has; those of a baseline that were not measured are no fault when only a part was to be measured.
tr_status tr__bench_finish(tr__bench_report *report);
void tr__bench_close(tr__bench_report *report);

// ---- kernels

enum {
  TR__KERNEL_ROWS = 1024,
  TR__KERNEL_BIG = 50257 * 768, // elements of the largest operand
  TR__KERNEL_SMALL = 4 << 20,   // and of the others
  TR__KERNEL_SAMPLES = 256
};
typedef struct tr__kernel_limit {
  int n;
  double sample[TR__KERNEL_SAMPLES]; // per second
} tr__kernel_limit;

typedef struct tr__kernel_bench {
  tr_compute c;
  tr_arena memory, scratch;
  tr_pool *pool;
  tr_dtype type;
  int nthread;
  char *a, *out, *b;  // operands in `type`: small, small, big
  float *wide, *more; // small, big
  int32_t *token, *position;
  const tr__argument_list *words; // which kernels are wanted; none: all
  tr_text *list;                  // not NULL: names are listed and nothing is run
  tr__bench_report *report;
  tr__kernel_limit peak, copy;
  tr_status status; // the first failure
} tr__kernel_bench;
typedef void (*tr__kernel_fn)(tr__kernel_bench *b, const void *argument);

void tr__kernel_cases(tr__kernel_bench *b); // bench_cases.c: all kernels, each through one of these two:
void tr__kernel_flops(tr__kernel_bench *b, const char *name, tr__kernel_fn fn, const void *argument, double flops);
void tr__kernel_bytes(tr__kernel_bench *b, const char *name, tr__kernel_fn fn, const void *argument, double bytes);
void tr__kernel_note(tr__kernel_bench *b, tr_status status); // what a call returned
void tr__kernel_fill(tr__kernel_bench *b);                   // the operands

#endif
