// SPDX-License-Identifier: MIT
// `trireme bench comm`: collectives and links of a job, by size. Settings become a plan of points, or one of two other looks:
// every pair of ranks (--matrix), and a quick search for a slow rank or link (--preflight).
#include "cli/bench_comm_internal.h"
#include "cli/bench_describe_internal.h"
#include "cli/cli_internal.h"
#include "trireme/base/cpu.h"
#include "trireme/base/file.h"
#include "trireme/comm/probe.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { SIZES = 64, TYPES = 5, LINK_LEAST = 4 << 20, SLACK = 1 << 20, SMALLEST = 1, RANKS_MOST = 256 };
static const double memory_share = 0.8, sizes_most = 1e12;

typedef struct choice {
  int op[TR__OPS];
  size_t nop;
  tr_dtype type[TYPES];
  size_t ntype;
  size_t size[SIZES];
  size_t nsize;
} choice;

// ---- words and lists

static int same_word(const char *a, const char *b) { // but for hyphens: allreduce is all-reduce
  while (*a || *b) {
    while (*a == '-' || *a == '_') a++;
    while (*b == '-' || *b == '_') b++;
    if (*a != *b) return 0;
    if (*a) a++, b++;
  }
  return 1;
}

static tr_status no_such_op(const char *word) {
  const char *names[TR__OPS];
  tr_text list = {0};
  for (int i = 0; i < TR__OPS; i++) {
    names[i] = tr__comm_ops[i].name;
    tr_text_append(&list, "%s%s", i ? ", " : "", names[i]);
  }
  const char *closest = tr_text_closest(word, names, TR__OPS);
  tr_status status =
      closest
          ? tr__cli_usage("bench", "there is no operation '%.80s'; did you mean '%s'?", word, closest)
          : tr__cli_usage("bench", "there is no operation '%.80s'; there are %s", word, list.data ? list.data : "");
  tr_text_free(&list);
  return status;
}

static tr_status read_ops(const tr__argument_list *words, choice *c) {
  int wanted[TR__OPS] = {0};
  for (size_t i = 0; i < words->n; i++) {
    int op = 0;
    while (op < TR__OPS && !same_word(words->item[i], tr__comm_ops[op].name)) op++;
    if (op == TR__OPS) return no_such_op(words->item[i]);
    wanted[op] = 1;
  }
  for (int op = 0; op < TR__OPS; op++)
    if (wanted[op] || words->n == 0) c->op[c->nop++] = op;
  return TR_OK;
}

static int has_type(const choice *c, tr_dtype type) {
  for (size_t i = 0; i < c->ntype; i++)
    if (c->type[i] == type) return 1;
  return 0;
}

static tr_status read_types(const char *text, const tr_options *options, choice *c) {
  static const tr_dtype known[TYPES] = {TR_F32, TR_BF16, TR_F16, TR_I32, TR_U8};
  for (const char *at = text; at; at = strchr(at, ',')) {
    char word[16];
    if (*at == ',') at++;
    snprintf(word, sizeof word, "%.*s", (int)strcspn(at, ","), at);
    int k = 0;
    while (k < TYPES && strcmp(word, tr_dtype_name(known[k])) != 0) k++;
    if (k == TYPES || has_type(c, known[k]))
      return tr_options_error(options, "bench.types",
                              "'%.80s' is no list of f32, bf16, f16, i32 and u8 with commas between, each once",
                              text);
    c->type[c->ntype++] = known[k];
  }
  return TR_OK;
}

static tr_status bad_sizes(const char *text, const tr_options *options) {
  return tr_options_error(options, "bench.sizes",
                          "'%.80s' is neither FROM..TO, as in 8..64Mi, nor at most %d sizes in ascending order with "
                          "commas between; sizes are from %d byte to %.0f GB",
                          text, SIZES, SMALLEST, sizes_most / 1e9);
}

static int parse_size(const char *text, size_t n, int64_t *out) {
  char word[32];
  if (n == 0 || n >= sizeof word) return 0;
  snprintf(word, sizeof word, "%.*s", (int)n, text);
  return tr_parse_count(word, out) == TR_OK && *out >= SMALLEST && (double)*out <= sizes_most;
}

// FROM, FROM x factor, ... and TO itself.
static tr_status read_range(const char *text, const char *dots, int64_t factor, const tr_options *options,
                            choice *c) {
  int64_t from, to;
  if (!parse_size(text, (size_t)(dots - text), &from) || !parse_size(dots + 2, strlen(dots + 2), &to) || from > to)
    return bad_sizes(text, options);
  for (int64_t at = from; at < to && c->nsize < SIZES; at *= factor) c->size[c->nsize++] = (size_t)at;
  if (c->nsize == SIZES) return bad_sizes(text, options);
  c->size[c->nsize++] = (size_t)to;
  return TR_OK;
}

static tr_status read_sizes(const tr__bench_settings *s, const tr_options *options, choice *c) {
  const char *dots = strstr(s->sizes, "..");
  if (dots) return read_range(s->sizes, dots, s->factor, options, c);
  for (const char *at = s->sizes; at; at = strchr(at, ',')) {
    int64_t size;
    if (*at == ',') at++;
    if (!parse_size(at, strcspn(at, ","), &size) || c->nsize == SIZES ||
        (c->nsize && (size_t)size <= c->size[c->nsize - 1]))
      return bad_sizes(s->sizes, options);
    c->size[c->nsize++] = (size_t)size;
  }
  return TR_OK;
}

// ---- the plan

static int wanted(int setting, int value) { return setting == 2 || setting == value; }

static int runs(const tr__bench_settings *s, tr__comm_case c, size_t variant) {
  const tr__comm_op_info *info = &tr__comm_ops[c.op];
  const int out_of_place = !c.in_place;
  if (c.in_place ? !info->knows_in : !info->knows_out) return 0;
  if (info->knows_in && info->knows_out && !wanted(s->place, out_of_place)) return 0;
  if (!s->direct ? !c.is_private : !wanted(s->buffers, c.is_private)) return 0;
  return c.op != TR__OP_BARRIER || variant == 0; // nothing of a barrier varies
}

static void add_sizes(tr__comm_job *job, const choice *c, tr__comm_case of) {
  const size_t first = job->npoint;
  for (size_t i = 0; i < c->nsize; i++) {
    tr__comm_point p = {.of = of};
    tr__comm_size(of.op, of.type, job->nrank, c->size[i], &p.nelem, &p.nbyte);
    if (job->npoint > first && p.nbyte <= job->point[job->npoint - 1].nbyte) continue; // rounds to one it has
    if (p.nbyte > job->most) job->most = p.nbyte;
    job->point[job->npoint++] = p;
  }
}

static void plan_points(tr__comm_job *job, const choice *c) {
  for (size_t o = 0; o < c->nop; o++) {
    size_t variant = 0;
    for (size_t t = 0; t < c->ntype; t++)
      for (int bits = 0; bits < 4; bits++) {
        const tr__comm_case of = {(tr__comm_op)c->op[o], c->type[t], !(bits & 1), bits >> 1};
        if (runs(job->settings, of, variant)) add_sizes(job, c, of), variant++;
      }
  }
}

static size_t areas(const tr__bench_settings *s) { return s->direct && s->buffers == 2 ? 4 : 2; }

// Leaves out what the ranks' buffers would not fit; at least one size stays.
static void limit_sizes(const tr__comm_job *job, choice *c, tr_text *note) {
  const double room = memory_share * (double)tr_cpu_memory() / job->nrank / (double)areas(job->settings);
  size_t left = c->nsize;
  while (left > 1 && (double)c->size[left - 1] > room) left--;
  if (left < c->nsize) {
    char size[32];
    tr_format_bytes(size, sizeof size, (double)c->size[left]);
    tr_text_append(note, "sizes from %s on are left out: %d ranks with %zu buffers each do not fit the memory\n",
                   size, job->nrank, areas(job->settings));
  }
  c->nsize = left;
}

// ---- the job

static void *map_shared(size_t nbyte) {
  void *memory = mmap(NULL, nbyte, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory != MAP_FAILED) return memory;
  (void)tr_error(TR_ERR_MEMORY, "no memory for the results of a benchmark");
  return NULL;
}

static size_t results_nbyte(int nrank) {
  const size_t points = (size_t)TR__OPS * TYPES * 4 * SIZES * sizeof(tr__comm_point);
  const size_t pairs = (size_t)nrank * (size_t)nrank * (2 * sizeof(double) + 1);
  return sizeof(tr__comm_results) + points + pairs;
}

static tr_status open_job(tr__comm_job *job) {
  const size_t pairs = (size_t)job->nrank * (size_t)job->nrank;
  job->results = map_shared(results_nbyte(job->nrank));
  if (!job->results) return TR_ERR_MEMORY;
  job->point = (tr__comm_point *)(job->results + 1);
  job->small = (double *)(job->point + (size_t)TR__OPS * TYPES * 4 * SIZES);
  job->large = job->small + pairs;
  job->path = (char *)(job->large + pairs);
  return TR_OK;
}

static tr_status launch_job(tr__comm_job *job, tr_rank_main rank_main, size_t arena) {
  const tr__bench_settings *s = job->settings;
  tr_launch_options o;
  tr_launch_options_init(&o);
  o.mode = s->launch ? TR_LAUNCH_THREADS : TR_LAUNCH_PROCESSES;
  o.nrank = job->nrank;
  o.arena_nbyte = arena;
  o.any_order = s->order == TR_ORDER_ANY;
  o.read_peers = s->direct;
  fflush(stdout);
  return tr_launch(&o, rank_main, job, NULL);
}

// Buffers of the ranks that lie in shared memory, beside what every job needs.
static size_t arena_for(const tr__comm_job *job) {
  const tr__bench_settings *s = job->settings;
  const int shared = s->direct && (s->buffers != 1 || job->wants_links || s->matrix);
  return SLACK + (shared ? 2 * tr_arena_rounded(job->most) : 0);
}

static tr_status conclude(const tr__comm_job *job, tr__bench_report *report) {
  const tr__bench_settings *s = job->settings;
  report->peak = job->results->peak / job->nrank;
  TR_TRY(tr__comm_report(job, report));
  if (*s->svg) TR_TRY(tr__comm_write_curves(job, s->svg));
  if (job->wants_links) TR_TRY(tr__comm_write_links(job, s->write));
  return tr__bench_finish(report);
}

// Did somebody choose sizes, types or buffers?
static int chose_part(const tr_options *options) {
  static const char *const path[] = {"bench.sizes", "bench.factor", "bench.types", "bench.place", "bench.buffers"};
  for (size_t i = 0; i < sizeof path / sizeof *path; i++)
    if (tr_options_is_set(options, path[i])) return 1;
  return 0;
}

static tr_status sweep(tr__comm_job *job, const tr__argument_list *words, const tr_options *options) {
  static char nowhere[] = "";
  choice c = {.nop = 0};
  tr_text note = {0};
  tr__bench_settings own = *job->settings; // its results are JSON; links go elsewhere
  tr__bench_report report;
  char subject[128];
  TR_TRY(read_ops(words, &c));
  TR_TRY(read_types(own.types, options, &c));
  TR_TRY(read_sizes(job->settings, options, &c));
  job->wants_links = tr__is_description(own.write);
  if (job->wants_links) own.write = nowhere;
  if (job->wants_links && job->nrank == 1)
    return tr_options_error(options, "bench.write", "one rank has no links to describe; give -n 2 or more");
  limit_sizes(job, &c, &note);
  plan_points(job, &c);
  if (job->wants_links && job->most < LINK_LEAST) job->most = LINK_LEAST;
  snprintf(subject, sizeof subject, "%d ranks as %s%s%s", job->nrank, own.launch ? "threads" : "processes",
           own.direct ? "" : ", no direct path", own.order == TR_ORDER_ANY ? ", sums in any order" : "");
  tr_status status = tr__bench_open(&report, "comm", subject, &own, options);
  report.part = words->n > 0 || chose_part(options);
  if (status == TR_OK && note.data && !own.json && job->speaks) fputs(note.data, stdout);
  tr_text_free(&note);
  if (status == TR_OK) status = launch_job(job, tr__comm_bench_rank, arena_for(job));
  if (status == TR_OK && job->results->done) status = conclude(job, &report);
  tr__bench_close(&report);
  return status;
}

static tr_status pairs(tr__comm_job *job, const tr_options *options) {
  if (job->nrank == 1) return tr_options_error(options, "run.ranks", "one rank has no pairs; give -n 2 or more");
  job->most = LINK_LEAST;
  TR_TRY(launch_job(job, tr__comm_matrix_rank, arena_for(job)));
  if (!job->results->done) return TR_OK;
  TR_TRY(tr__comm_print_matrix(job));
  return *job->settings->svg ? tr__comm_write_matrix(job, job->settings->svg) : TR_OK;
}

static tr_status preflight(tr__comm_job *job) {
  TR_TRY(launch_job(job, tr__comm_preflight_rank, (size_t)2 * TR_PROBE_BYTES + SLACK));
  const tr_probe_verdict *v = &job->results->verdict;
  if (!job->results->done) return TR_OK;
  if (v->slow && job->speaks) return tr_error(TR_ERR_VERIFY, "%s", v->text);
  if (!job->settings->json) puts(v->text);
  return TR_OK;
}

// Settings that a mode has no use for are refused, so that nobody believes they counted.
static tr_status check_mode(const tr__bench_settings *s, const tr__argument_list *words, const tr_options *options) {
  static const char *const sweep_only[] = {"bench.write",   "bench.baseline", "bench.tolerance", "bench.sizes",
                                           "bench.factor",  "bench.types",    "bench.reduce",    "bench.place",
                                           "bench.seconds", "comm.order"};
  const char *mode = s->matrix ? "--matrix" : "--preflight";
  if (s->matrix && s->preflight) return tr__cli_usage("bench", "--matrix and --preflight are two looks; give one");
  if (!s->matrix && !s->preflight) return TR_OK;
  if (words->n > 0)
    return tr__cli_usage("bench", "%s looks at ranks and links, not at operations such as '%.80s'", mode,
                         words->item[0]);
  for (size_t i = 0; i < sizeof sweep_only / sizeof *sweep_only; i++)
    if (tr_options_is_set(options, sweep_only[i]))
      return tr_options_error(options, sweep_only[i], "%s takes no such setting", mode);
  return TR_OK;
}

static tr_status run_job(tr__bench_settings *s, const tr__argument_list *words, const tr_options *options) {
  tr__comm_job job = {.settings = s, .cores = tr_cpu_count()};
  tr_launch_place place = {0};
  TR_TRY(tr_launch_placed(&place));
  job.nrank = s->ranks > 0 ? (int)s->ranks : place.size > 0 ? place.size : job.cores > 1 ? job.cores : 2;
  if (job.nrank > RANKS_MOST) job.nrank = RANKS_MOST;
  job.speaks = place.rank == 0;
  TR_TRY(check_mode(s, words, options));
  if (*s->write) TR_TRY(tr_file_prove(s->write)); // what cannot be written is better known now
  if (*s->svg) TR_TRY(tr_file_prove(s->svg));
  TR_TRY(open_job(&job));
  tr_status status = s->matrix ? pairs(&job, options) : s->preflight ? preflight(&job) : sweep(&job, words, options);
  munmap(job.results, results_nbyte(job.nrank));
  return status;
}

int tr__cli_bench_comm(int argc, char **argv) {
  tr_option table[TR__BENCH_OPTIONS];
  tr__bench_settings s = {.json = 0};
  tr_options *options = NULL;
  tr__argument_list words = {.n = 0};
  int no_direct = 0;
  const tr__argument flags[] = {{.name = "--json", .kind = TR__ARGUMENT_FLAG, .out = &s.json},
                                {.name = "--matrix", .kind = TR__ARGUMENT_FLAG, .out = &s.matrix},
                                {.name = "--preflight", .kind = TR__ARGUMENT_FLAG, .out = &s.preflight},
                                {.name = "--no-direct", .kind = TR__ARGUMENT_FLAG, .out = &no_direct}};
  size_t n = 0;
  for (size_t i = 0; i < TR__BENCH_OPTIONS; i++)
    if (i < TR__BENCH_COMMON || i >= TR__BENCH_COMM) table[n++] = tr__bench_options[i];
  tr_status status = tr_options_create(table, n, &s, &options);
  if (status == TR_OK)
    status = tr__cli_settings("bench", options, argc, argv, flags, sizeof flags / sizeof *flags, &words);
  if (no_direct) s.direct = 0;
  if (status == TR_OK) status = run_job(&s, &words, options);
  const int exit_code = status < 0 ? tr__cli_fail(status) : 0;
  tr_options_destroy(options);
  return exit_code;
}
