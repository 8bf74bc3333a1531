// SPDX-License-Identifier: MIT
// `trireme bench kernel`: how fast the CPU kernels are on this machine, f32 and bf16, one and two threads. bench_cases.c lists
// them.
//
// A row is the best of several calls, and its share of what the machine can do: of tr_kernel_peak for products, of a plain
// copy for kernels that move memory, the better of two measurements right before and right after. On one thread time is
// processor time, so that others on the machine count for little.
#include "cli/bench_describe_internal.h"
#include "cli/bench_internal.h"
#include "cli/cli_internal.h"
#include "trireme/base/clock.h"
#include "trireme/base/cpu.h"
#include "trireme/base/file.h"
#include "trireme/base/sort.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { CALLS_LEAST = 3, CALLS_MOST = 25, BURSTS = 4, COPY = 64 << 20, NAMES_MOST = 128 };
static const double most_seconds = 0.4, burst_seconds = 0.003;

// ---- the limits

static void copy_task(void *context, int task, int worker) {
  tr__kernel_bench *b = context;
  (void)worker;
  memcpy((char *)b->more + ((size_t)task << 20), b->b + ((size_t)task << 20), 1 << 20);
}
static void run_copy(tr__kernel_bench *b, const void *argument) {
  (void)argument;
  tr_pool_run(b->pool, COPY >> 20, copy_task, b);
}

static double now(const tr__kernel_bench *b) {
  struct timespec t;
  if (b->nthread > 1 || clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t) != 0) return tr_clock_seconds();
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double best_time(tr__kernel_bench *b, tr__kernel_fn fn, const void *argument, int least, int most) {
  double best = 1e30, total = 0;
  for (int i = 0; i < most && (i < least || total < most_seconds); i++) {
    const double start = now(b);
    fn(b, argument);
    const double seconds = now(b) - start;
    total += seconds;
    if (seconds < best) best = seconds;
  }
  return best;
}

static double take_limit(tr__kernel_bench *b, tr__kernel_limit *limit, int is_copy) {
  double best = 0;
  if (is_copy) best = 2.0 * COPY / best_time(b, run_copy, NULL, 2, 2);
  for (int i = 0; !is_copy && i < BURSTS; i++) {
    const double rate = tr_kernel_peak(b->type, b->nthread, burst_seconds);
    if (rate > best) best = rate;
  }
  if (limit->n < TR__KERNEL_SAMPLES) limit->sample[limit->n++] = best;
  return best;
}

// ---- one kernel

static int is_wanted(const tr__kernel_bench *b, const char *name) {
  for (size_t i = 0; i < b->words->n; i++)
    if (strstr(name, b->words->item[i])) return 1;
  return b->words->n == 0;
}

static void measure(tr__kernel_bench *b, const char *name, tr__kernel_fn fn, const void *argument, double amount,
                    int is_copy) {
  if (b->list) { // only asked for the names
    tr_text_append(b->list, "%s\n", name);
    return;
  }
  if (b->status < 0 || !is_wanted(b, name)) return;
  tr__kernel_limit *limit = is_copy ? &b->copy : &b->peak;
  double before = take_limit(b, limit, is_copy), seconds = best_time(b, fn, argument, CALLS_LEAST, CALLS_MOST),
         after = take_limit(b, limit, is_copy);
  if (b->status < 0) return;
  const double rate = amount / seconds, most = before > after ? before : after;
  char full[128];
  snprintf(full, sizeof full, "%s, %s, %d thread%s", name, tr_dtype_name(b->type), b->nthread,
           b->nthread > 1 ? "s" : "");
  if (!b->report->settings->json) {
    printf("%-34s %9.3f ms %8.1f %s %5.0f %% of %s\n", name, seconds * 1e3, rate * 1e-9,
           is_copy ? "GB/s   " : "GFLOP/s", 100 * rate / most, is_copy ? "copy" : "peak");
    fflush(stdout);
  }
  b->status =
      tr__bench_add(b->report, json_pack("{s:s, s:f, s:f, s:s, s:f, s:f}", "name", full, "seconds", seconds,
                                         is_copy ? "bytes_per_s" : "flops_per_s", rate, "limit",
                                         is_copy ? "copy" : "peak", "limit_per_s", most, "share", rate / most));
}

void tr__kernel_flops(tr__kernel_bench *b, const char *name, tr__kernel_fn fn, const void *argument, double flops) {
  measure(b, name, fn, argument, flops, 0);
}
void tr__kernel_bytes(tr__kernel_bench *b, const char *name, tr__kernel_fn fn, const void *argument, double bytes) {
  measure(b, name, fn, argument, bytes, 1);
}
void tr__kernel_note(tr__kernel_bench *b, tr_status status) {
  if (status < 0 && b->status == TR_OK) b->status = status;
}

// ---- all of one type and number of threads

static tr_status open_bench(tr__kernel_bench *b) {
  const size_t big = (size_t)TR__KERNEL_BIG * sizeof(float), small = TR__KERNEL_SMALL * sizeof(float);
  TR_TRY(tr_pool_create(b->nthread, b->nthread <= tr_cpu_count(), NULL, NULL, &b->pool));
  TR_TRY(tr_arena_create(&b->memory, "bench", 2 * big + 3 * small + (1 << 20)));
  TR_TRY(tr_arena_create(&b->scratch, "scratch", (size_t)512 << 20));
  b->a = tr_arena_alloc(&b->memory, small);
  b->out = tr_arena_alloc(&b->memory, small);
  b->wide = tr_arena_alloc(&b->memory, small);
  b->b = tr_arena_alloc(&b->memory, big);
  b->more = tr_arena_alloc(&b->memory, big);
  b->token = tr_arena_alloc(&b->memory, TR__KERNEL_ROWS * sizeof *b->token);
  b->position = tr_arena_alloc(&b->memory, TR__KERNEL_ROWS * sizeof *b->position);
  if (!b->position) return TR_ERR_MEMORY;
  tr_arena_prefault(&b->memory, NULL, NULL);
  tr__kernel_fill(b);
  return tr_compute_open(tr_kernels_cpu(), b->pool, &b->scratch, &b->c);
}

static void close_bench(tr__kernel_bench *b) {
  if (b->c.kernels) tr_compute_close(&b->c);
  if (b->scratch.base) tr_arena_destroy(&b->scratch);
  if (b->memory.base) tr_arena_destroy(&b->memory);
  tr_pool_destroy(b->pool);
}

static void print_limit(const char *name, const char *unit, tr__kernel_limit *limit) {
  if (!limit->n) return;
  tr_sort_doubles(limit->sample, (size_t)limit->n);
  printf("%s: median %.1f %s, %.1f..%.1f in %d samples\n", name, limit->sample[limit->n / 2] * 1e-9, unit,
         limit->sample[0] * 1e-9, limit->sample[limit->n - 1] * 1e-9, limit->n);
}

static tr_status bench_all(const tr__argument_list *words, tr__bench_report *report, tr_dtype type, int nthread) {
  tr__kernel_bench *b = calloc(1, sizeof *b);
  if (!b) return tr_error(TR_ERR_MEMORY, "no memory for a benchmark");
  *b = (tr__kernel_bench){.type = type, .nthread = nthread, .words = words, .report = report};
  b->status = open_bench(b);
  const int print = !report->settings->json;
  if (b->status == TR_OK) {
    if (print)
      printf("\n%s, %s, %d thread%s\n", b->c.kernels->name, tr_dtype_name(type), nthread, nthread > 1 ? "s" : "");
    tr__kernel_cases(b);
  }
  if (b->status == TR_OK && print) {
    print_limit("peak", "GFLOP/s", &b->peak);
    print_limit("copy", "GB/s", &b->copy);
  }
  for (int i = 0; i < b->peak.n; i++)
    if (b->peak.sample[i] / nthread > report->peak) report->peak = b->peak.sample[i] / nthread;
  tr_status status = b->status;
  close_bench(b);
  free(b);
  return status;
}

// ---- the command

// Each word must occur in a name, so that a slip of the pen is not a benchmark of nothing.
static tr_status check_word(const char *word, char *list) {
  const char *known[NAMES_MOST];
  size_t n = 0;
  if (strstr(list, word)) return TR_OK;
  for (char *next = strtok(list, "\n ,"); next && n < NAMES_MOST; next = strtok(NULL, "\n ,")) known[n++] = next;
  const char *closest = tr_text_closest(word, known, n);
  if (closest) return tr__cli_usage("bench", "no kernel's name has '%.80s' in it; did you mean '%s'?", word, closest);
  return tr__cli_usage("bench", "no kernel's name has '%.80s' in it; trireme bench kernel measures all of them",
                       word);
}

static tr_status check_words(const tr__argument_list *words) {
  tr_text list = {0};
  tr__kernel_bench b = {.c = {.kernels = tr_kernels_cpu()}, .type = TR_F32, .nthread = 1, .list = &list};
  tr__kernel_cases(&b);
  tr_status status = list.failed ? tr_error(TR_ERR_MEMORY, "no memory for a list of kernels") : TR_OK;
  for (size_t i = 0; i < words->n && status == TR_OK; i++) status = check_word(words->item[i], list.data);
  tr_text_free(&list);
  return status;
}

static tr_status measure_all(const tr__bench_settings *s, const tr__argument_list *words, const tr_options *options) {
  static const tr_dtype type[] = {TR_F32, TR_BF16};
  const int first = s->threads < 0 ? 1 : (int)s->threads, last = s->threads < 0 ? 2 : first;
  tr__bench_report report;
  char cpu[128];
  tr_cpu_name(cpu, sizeof cpu);
  tr_status status = tr__bench_open(&report, "kernel", "GPT-2 124M's shapes, 1024 rows", s, options);
  report.part = words->n > 0 || s->compute > 0 || s->threads > 0;
  if (status == TR_OK && !s->json)
    printf("%s, %s, %d core%s\n", cpu, tr_isa_name(tr_cpu_isa()), tr_cpu_count(), tr_cpu_count() == 1 ? "" : "s");
  for (int n = first; n <= last && status == TR_OK; n++)
    for (int i = 0; i < 2 && status == TR_OK; i++)
      if ((s->threads > 0 || n <= tr_cpu_count()) && (s->compute == 0 || s->compute == 1 + i))
        status = bench_all(words, &report, type[i], n);
  if (status == TR_OK) status = tr__bench_finish(&report);
  tr__bench_close(&report);
  return status;
}

// The device alone; prices of kernels come from steps.
static tr_status describe(const tr__bench_settings *s, const tr__argument_list *words) {
  static const char *const once[] = {"name", "hosts", "host_devices", "source", NULL};
  tr_text text = {0};
  if (words->n || s->json || *s->baseline)
    return tr__cli_usage("bench",
                         "bench kernel --write FILE.yaml describes a core of this machine; give nothing else");
  TR_TRY(tr_file_prove(s->write));
  tr_status status = tr__describe_device(&text);
  if (status == TR_OK && text.failed) status = tr_error(TR_ERR_MEMORY, "no memory for a description");
  if (status == TR_OK) status = tr__description_put(s->write, text.data, once);
  if (status == TR_OK) printf("written: %s\n", s->write);
  tr_text_free(&text);
  return status;
}

int tr__cli_bench_kernel(int argc, char **argv) {
  tr_option table[TR__BENCH_COMM]; // without those of bench step
  tr__bench_settings s = {.json = 0};
  tr_options *options = NULL;
  tr__argument_list words = {.n = 0};
  const tr__argument flags[] = {{.name = "--json", .kind = TR__ARGUMENT_FLAG, .out = &s.json}};
  size_t n = 0;
  for (size_t i = 0; i < TR__BENCH_COMM; i++)
    if (i < TR__BENCH_COMMON || i >= TR__BENCH_KERNEL) table[n++] = tr__bench_options[i];
  tr_status status = tr_options_create(table, n, &s, &options);
  if (status == TR_OK) status = tr__cli_settings("bench", options, argc, argv, flags, 1, &words);
  const int is_description = status == TR_OK && tr__is_description(s.write);
  if (status == TR_OK && !is_description) status = check_words(&words);
  if (status == TR_OK) status = is_description ? describe(&s, &words) : measure_all(&s, &words, options);
  const int exit_code = status < 0 ? tr__cli_fail(status) : 0;
  tr_options_destroy(options);
  return exit_code;
}
