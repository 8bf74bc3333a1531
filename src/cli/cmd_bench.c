// SPDX-License-Identifier: MIT
// `trireme bench`: how fast this machine trains and communicates, against what it could do. Settings of its own and the choice
// of a benchmark; bench_step.c, bench_kernel.c and bench_comm_*.c measure, bench_report.c writes and compares.
#include "cli/bench_describe_internal.h"
#include "cli/cli_internal.h"
#include <stdio.h>
#include <string.h>

#define AT(field) offsetof(tr__bench_settings, field)

// clang-format off
const tr_option tr__bench_options[TR__BENCH_OPTIONS] = {
    {.path = "bench.write", .type = TR_OPTION_STRING, .offset = AT(write), .def = "",
     .help = "File that gets the results as JSON, whole or not at all. A name that ends in .yaml gets a part of a cluster description instead, beside what it has: bench comm `links`, bench kernel `device`, bench step `device` and `kernels`."},
    {.path = "bench.baseline", .type = TR_OPTION_STRING, .offset = AT(baseline), .def = "",
     .help = "File that bench.write made: results are compared with it, as shares of the machine's limit where there is one, else as times. Exit code 9 when one is slower, 4 when the baseline lacks one, or has one that was not measured, unless names, layouts or sizes choose a part."},
    {.path = "bench.tolerance", .type = TR_OPTION_STRING, .offset = AT(tolerance), .def = "5%",
     .help = "How much slower than bench.baseline a result may be, as 5% or 0.05."},
    {.path = "bench.json", .type = TR_OPTION_BOOL, .offset = AT(json), .def = "false",
     .help = "Print one JSON object instead of tables (also --json alone)."},
    {.path = "bench.layouts", .type = TR_OPTION_STRING, .offset = AT(layouts), .def = "1x1,2x1,1x2",
     .help = "bench step: ranks x threads to measure, in this order; -n and run.threads choose one instead. The first 1x1 is what speed-ups count from."},
    {.path = "bench.rounds", .type = TR_OPTION_INT, .offset = AT(rounds), .def = "1", .min = 1, .max = 20, .unit = "rounds",
     .help = "bench step: layouts take turns so many times; steps of all rounds count, and a speed-up is the median of the rounds'."},
    {.path = "precision.compute", .type = TR_OPTION_CHOICE, .offset = AT(compute), .def = "all", .choices = "all|f32|bf16",
     .help = "bench kernel: type of the operands."},
    {.path = "run.threads", .type = TR_OPTION_INT, .offset = AT(threads), .def = "auto", .min = 1, .max = 1024, .choices = "auto",
     .word = -1, .unit = "threads", .help = "bench kernel: threads; auto: 1, and 2 where there are two cores."},
    {.path = "run.ranks", .type = TR_OPTION_INT, .offset = AT(ranks), .def = "auto", .min = 1, .max = 256, .choices = "auto",
     .word = -1, .unit = "ranks", .help = "bench comm: ranks of the job (also -n); auto: one per core, at least 2."},
    {.path = "run.launch", .type = TR_OPTION_CHOICE, .offset = AT(launch), .def = "processes", .choices = "processes|threads",
     .help = "bench comm: ranks as processes or as threads of one."},
    {.path = "bench.sizes", .type = TR_OPTION_STRING, .offset = AT(sizes), .def = "8..64Mi", .unit = "bytes",
     .help = "bench comm: FROM..TO, growing by bench.factor, or sizes with commas between; what the memory cannot hold is left out."},
    {.path = "bench.factor", .type = TR_OPTION_INT, .offset = AT(factor), .def = "2", .min = 2, .max = 1024,
     .help = "bench comm: each size is so many times the one before."},
    {.path = "bench.types", .type = TR_OPTION_STRING, .offset = AT(types), .def = "f32",
     .help = "bench comm: element types with commas between: f32, bf16, f16, i32, u8."},
    {.path = "bench.reduce", .type = TR_OPTION_CHOICE, .offset = AT(reduce), .def = "sum", .choices = "sum|max",
     .help = "bench comm: how operations that reduce do it."},
    {.path = "comm.order", .type = TR_OPTION_CHOICE, .offset = AT(order), .def = "tree", .choices = "tree|any",
     .help = "bench comm: sums over ranks in one order, or in any: rings and double trees need that. TRIREME_COMM demands one."},
    {.path = "bench.place", .type = TR_OPTION_CHOICE, .offset = AT(place), .def = "in", .choices = "in|out|both",
     .help = "bench comm: in place or out of place, where an operation knows both."},
    {.path = "bench.buffers", .type = TR_OPTION_CHOICE, .offset = AT(buffers), .def = "arena", .choices = "arena|private|both",
     .help = "bench comm: buffers in the ranks' shared memory or in their own."},
    {.path = "bench.seconds", .type = TR_OPTION_DURATION, .offset = AT(seconds), .def = "50ms", .min = 0.001, .max = 600, .unit = "s",
     .help = "bench comm: time for each size, by which the repetitions are chosen, from 7 to 1000."},
    {.path = "bench.svg", .type = TR_OPTION_STRING, .offset = AT(svg), .def = "",
     .help = "bench comm: file that gets the curves, or the map of pairs, as a drawing."},
    {.path = "bench.direct", .type = TR_OPTION_BOOL, .offset = AT(direct), .def = "true",
     .help = "bench comm: false (also --no-direct) forbids the direct path: buffers are private and nobody reads another's memory."},
    {.path = "bench.slow", .type = TR_OPTION_REAL, .offset = AT(slow), .def = "2", .min = 1, .max = 1e9,
     .help = "bench comm --preflight: how many times the median a rank or link takes that is called slow."},
};
// clang-format on

static const tr__command benchmarks[] = {
    {"step", "whole training steps of a model, by ranks and threads", tr__cli_bench_step},
    {"kernel", "every kernel at GPT-2 124M's shapes", tr__cli_bench_kernel},
    {"comm", "collectives and links, by size", tr__cli_bench_comm},
    {"topology", "what this machine is made of: cores, caches, memory, network", tr__cli_bench_topology},
};
enum { BENCHMARKS = sizeof benchmarks / sizeof *benchmarks };

static int print_help(void) {
  tr_text text = {0};
  tr_options_help(tr__bench_options, TR__BENCH_OPTIONS, "", &text);
  printf(
      "usage: trireme bench step [MODEL] [RUN.yaml ...] [-n RANKS] [key=value ...]\n"
      "       trireme bench kernel [NAME ...] [key=value ...]\n"
      "       trireme bench comm [OPERATION ...] [-n RANKS] [--matrix | --preflight] [--no-direct] [key=value ...]\n"
      "       trireme bench topology [--json]\n"
      "       trireme bench --write CLUSTER.yaml\n\n"
      "step and kernel measure against a limit of this machine that is taken in the same run, again and again "
      "between:\n"
      "a loop of multiply-adds in registers (the peak), or a plain copy. Shares of the limit say more than times "
      "on a\n"
      "machine that others use; how much of it they took is printed.\n\n");
  for (int i = 0; i < BENCHMARKS; i++) printf("  %-9s %s\n", benchmarks[i].name, benchmarks[i].summary);
  printf(
      "\nstep takes every setting of trireme train (trireme train --help); MODEL is model.from. Unless they are "
      "set: the\n"
      "model is gpt2, without dropout; data.sequence is the model's longest, at most 1024; each rank gets "
      "batch.micro\n"
      "sequences, about 2048 tokens (with batch.sequences, all layouts share that batch); train.steps is 5 or "
      "more, as many\n"
      "as take three seconds. Tokens are made up. \"beyond kernels\" is what a step takes besides pieces and "
      "optimizer.\n"
      "kernel measures the kernels in whose names one of the words occurs, all without words.\n\n"
      "comm measures collectives (all without words): all-reduce, reduce, reduce-scatter, reduce-scatter-v, "
      "all-gather,\n"
      "all-gather-v, all-to-all, all-to-all-v, broadcast, gather, scatter, send-receive, barrier. Bandwidths are "
      "those of\n"
      "nccl-tests. --matrix measures every pair of ranks, --preflight looks for a slow rank or link for a few "
      "seconds (exit\n"
      "code 9 names it).\n\n"
      "--write CLUSTER.yaml alone describes this machine for trireme plan, in a few minutes: its cores, the "
      "prices of\n"
      "kernels in steps of small models, and its links. trireme plan train predicts steps of trireme train from "
      "it.\n\n"
      "%s\n"
      "examples:\n"
      "  trireme bench step gpt2 precision.compute=bf16\n"
      "  trireme bench step gpt2-char -n 2 run.threads=1 train.steps=9\n"
      "  trireme bench step gpt2-1m --write before.json && trireme bench step gpt2-1m --baseline before.json "
      "--tolerance 5%%\n"
      "  trireme bench kernel matmul attention precision.compute=f32 run.threads=1\n"
      "  trireme bench comm all-reduce -n 4 bench.sizes=8..1Gi bench.place=both bench.buffers=both --svg curve.svg\n"
      "  trireme bench --write cluster.yaml && trireme plan train model=gpt2-char --cluster cluster.yaml\n"
      "  trireme bench comm --preflight -n 8 && trireme train run.yaml -n 8\n",
      text.data ? text.data : "");
  tr_text_free(&text);
  return 0;
}

static int no_benchmark(const char *name) {
  const char *names[BENCHMARKS];
  for (int i = 0; i < BENCHMARKS; i++) names[i] = benchmarks[i].name;
  const char *closest = tr_text_closest(name, names, BENCHMARKS);
  if (closest)
    return tr__cli_fail(tr__cli_usage("bench", "there is no benchmark '%.80s'; did you mean '%s'?", name, closest));
  return tr__cli_fail(
      tr__cli_usage("bench", "there is no benchmark '%.80s'; there are step, kernel, comm and topology", name));
}

// The whole description of this machine, by the benchmarks that write parts of it.
static int describe(int argc, char **argv) {
  static char comm[] = "comm", least[] = "barrier"; // links are measured whatever else is
  const char *file = NULL;
  int at = 1;
  if (!tr__cli_option(argc, argv, &at, "--write", &file) || !file || at + 1 < argc || !tr__is_description(file))
    return tr__cli_fail(tr__cli_usage("bench", "--write FILE.yaml stands alone and describes this machine"));
  char *links[] = {comm, least, argv[1], argc > 2 ? argv[2] : NULL, NULL};
  const int code = tr__cli_bench_step(argc, argv);
  return code ? code : tr__cli_bench_comm(argc + 1, links);
}

int tr__cli_bench(int argc, char **argv) {
  if (tr__cli_wants_help(argc, argv)) return print_help();
  if (argc < 2) return tr__cli_fail(tr__cli_usage("bench", "give a benchmark: step, kernel, comm or topology"));
  for (int i = 0; i < BENCHMARKS; i++)
    if (strcmp(argv[1], benchmarks[i].name) == 0) return benchmarks[i].run(argc - 1, argv + 1);
  if (strncmp(argv[1], "--write", 7) == 0) return describe(argc, argv);
  return no_benchmark(argv[1]);
}
