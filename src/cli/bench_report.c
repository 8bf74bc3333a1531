// SPDX-License-Identifier: MIT
// The report of a benchmark: its machine, its rows as JSON, a file of them, and the comparison with such a file.
#include "cli/bench_internal.h"
#include "trireme/base/clock.h"
#include "trireme/base/cpu.h"
#include "trireme/base/file.h"
#include "trireme/base/json.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { FORMAT = 1, FILE_LIMIT = 16 << 20, NAMED = 6 };
static const double busy_machine = 0.10; // above this share of others, figures are said to be noisy

// ---- the machine

static double seconds_of(int who) {
  struct rusage usage;
  if (getrusage(who, &usage) != 0) return 0;
  return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
         1e-6 * (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

tr__bench_cpu tr__bench_cpu_now(void) {
  // user nice system idle iowait irq softirq steal, in ticks; time stolen by other guests is taken by others too.
  double ticks[8] = {0}, rate = (double)sysconf(_SC_CLK_TCK);
  tr__bench_cpu now = {.own = seconds_of(RUSAGE_SELF) + seconds_of(RUSAGE_CHILDREN)};
  FILE *file = fopen("/proc/stat", "re");
  if (!file) return now;
  int n = fscanf(file, "cpu %lf %lf %lf %lf %lf %lf %lf %lf", &ticks[0], &ticks[1], &ticks[2], &ticks[3], &ticks[4],
                 &ticks[5], &ticks[6], &ticks[7]);
  fclose(file);
  if (n < 4 || rate <= 0) return now;
  for (int i = 0; i < 8; i++) {
    now.all += ticks[i] / rate;
    if (i != 3 && i != 4) now.busy += ticks[i] / rate;
  }
  return now;
}

double tr__bench_foreign(const tr__bench_cpu *since) {
  const tr__bench_cpu now = tr__bench_cpu_now();
  double all = now.all - since->all, others = now.busy - since->busy - (now.own - since->own);
  return all > 0 && others > 0 ? others / all : 0;
}

static json_t *machine(const tr__bench_report *r) {
  char cpu[128];
  tr_cpu_name(cpu, sizeof cpu);
  return json_pack("{s:s, s:s, s:i, s:f}", "cpu", cpu, "isa", tr_isa_name(tr_cpu_isa()), "cores", tr_cpu_count(),
                   "peak_flops_per_s", r->peak);
}

// ---- opening

// "5%", "0.05"
static tr_status read_tolerance(const char *text, const tr_options *options, double *out) {
  char number[32];
  size_t n = strlen(text);
  int percent = n > 0 && text[n - 1] == '%';
  double value = -1;
  if (n < sizeof number) {
    snprintf(number, sizeof number, "%.*s", (int)(n - (size_t)percent), text);
    if (tr_parse_real(number, &value) < 0) value = -1;
  }
  if (percent) value /= 100;
  if (!(value >= 0 && value < 1))
    return tr_options_error(options, "bench.tolerance", "'%.40s' is no share below 100%%; 5%% or 0.05 would work",
                            text);
  *out = value;
  return TR_OK;
}

static tr_status check_rows(const json_t *rows, const char *path) {
  size_t i;
  json_t *row;
  if (!json_is_array(rows)) return tr_error(TR_ERR_DATA, "%s: it has no list \"results\"", path);
  json_array_foreach(rows, i, row) {
    const char *name;
    double seconds = 0, share = 1;
    TR_TRY(tr_json_get_string(row, path, "name", 1, &name));
    TR_TRY(tr_json_get_real(row, path, "seconds", 1, &seconds));
    TR_TRY(tr_json_get_real(row, path, "share", 0, &share));
    if (!(seconds > 0 && isfinite(seconds) && share > 0 && isfinite(share)))
      return tr_error(TR_ERR_DATA, "%s: \"seconds\" and \"share\" of '%.80s' are numbers above 0", path, name);
  }
  return TR_OK;
}

static tr_status check_baseline(const tr__bench_report *r, const char *path) {
  int64_t format = 0;
  const char *benchmark = NULL, *subject = NULL, *isa = NULL;
  const json_t *about = json_object_get(r->baseline, "machine");
  TR_TRY(tr_json_get_int(r->baseline, path, "trireme_bench", 1, &format));
  if (format != FORMAT)
    return tr_error(TR_ERR_DATA, "%s: format %lld of benchmark files; this version reads %d", path, (long long)format,
                    FORMAT);
  TR_TRY(tr_json_get_string(r->baseline, path, "benchmark", 1, &benchmark));
  TR_TRY(tr_json_get_string(r->baseline, path, "subject", 1, &subject));
  if (!json_is_object(about)) return tr_error(TR_ERR_DATA, "%s: it does not say which \"machine\" it is of", path);
  TR_TRY(tr_json_get_string(about, path, "isa", 1, &isa));
  if (strcmp(benchmark, r->benchmark) != 0)
    return tr_error(TR_ERR_DATA, "%s: a baseline of 'bench %.40s', which says nothing about 'bench %s'", path,
                    benchmark, r->benchmark);
  if (strcmp(isa, tr_isa_name(tr_cpu_isa())) != 0)
    return tr_error(TR_ERR_DATA,
                    "%s: a baseline of a machine with %.40s, this one has %s; only machines of one kind compare",
                    path, isa, tr_isa_name(tr_cpu_isa()));
  if (strcmp(subject, r->subject) != 0)
    return tr_error(TR_ERR_DATA, "%s: a baseline of '%.200s', this is '%s'; only the same work compares", path,
                    subject, r->subject);
  return check_rows(json_object_get(r->baseline, "results"), path);
}

tr_status tr__bench_open(tr__bench_report *r, const char *benchmark, const char *subject,
                         const tr__bench_settings *settings, const tr_options *options) {
  *r = (tr__bench_report){.benchmark = benchmark, .settings = settings, .rows = json_array()};
  snprintf(r->subject, sizeof r->subject, "%s", subject);
  if (!r->rows) return tr_error(TR_ERR_MEMORY, "no memory for a table of results");
  TR_TRY(read_tolerance(settings->tolerance, options, &r->tolerance));
  if (!*settings->baseline && tr_options_is_set(options, "bench.tolerance"))
    return tr_options_error(options, "bench.tolerance", "there is nothing to compare with; give bench.baseline too");
  if (*settings->write) TR_TRY(tr_file_prove(settings->write)); // what cannot be written is better known now
  if (*settings->baseline) {
    TR_TRY(tr_json_load(settings->baseline, FILE_LIMIT, &r->baseline));
    TR_TRY(check_baseline(r, settings->baseline));
  }
  r->start = tr__bench_cpu_now();
  return TR_OK;
}

tr_status tr__bench_add(tr__bench_report *r, json_t *row) {
  if (row && json_array_append_new(r->rows, row) == 0) return TR_OK;
  return tr_error(TR_ERR_MEMORY, "no memory for a row of results");
}

void tr__bench_close(tr__bench_report *r) {
  json_decref(r->baseline);
  json_decref(r->rows);
  json_decref(r->fits);
}

// ---- comparing

typedef struct comparison {
  double before, now, ratio; // of speeds: below 1 is slower
  int is_share;
} comparison;

static json_t *find_row(const json_t *rows, const char *name) {
  size_t i;
  json_t *row;
  json_array_foreach(rows, i, row) {
    if (strcmp(json_string_value(json_object_get(row, "name")), name) == 0) return row;
  }
  return NULL;
}

static comparison compare_rows(const json_t *before, const json_t *now) {
  const json_t *share_before = json_object_get(before, "share"), *share_now = json_object_get(now, "share");
  comparison c = {.is_share = json_is_number(share_before) && json_is_number(share_now)};
  const char *key = c.is_share ? "share" : "seconds";
  c.before = json_number_value(json_object_get(before, key));
  c.now = json_number_value(json_object_get(now, key));
  c.ratio = c.is_share ? c.now / c.before : c.before / c.now;
  return c;
}

static void print_value(const comparison *c, double value) {
  char time[32];
  tr_format_duration(time, sizeof time, value);
  if (c->is_share)
    printf(" %9.1f %%", 100 * value);
  else
    printf(" %11s", time);
}

// Times say something about one processor only; `path` is where the older one came from.
static tr_status check_processor(const tr__bench_report *r, const char *name) {
  char cpu[128];
  const char *before = json_string_value(json_object_get(json_object_get(r->baseline, "machine"), "cpu"));
  tr_cpu_name(cpu, sizeof cpu);
  if (before && strcmp(before, cpu) == 0) return TR_OK;
  return tr_error(TR_ERR_DATA,
                  "%s: '%.80s' is a time, without a share of a limit, on '%.80s'; this processor is '%s'",
                  r->settings->baseline, name, before ? before : "", cpu);
}

static void name_slower(tr_text *slower, size_t count, const char *name, const comparison *c) {
  if (count <= NAMED) tr_text_append(slower, "%s%s (%.2f)", count > 1 ? ", " : "", name, c->ratio);
  if (count == NAMED + 1) tr_text_append(slower, ", ...");
}

static tr_status compare_all(const tr__bench_report *r, int quiet, size_t *compared, size_t *nslower,
                             tr_text *slower) {
  const json_t *rows = json_object_get(r->baseline, "results");
  size_t i;
  json_t *row;
  json_array_foreach(r->rows, i, row) {
    const char *name = json_string_value(json_object_get(row, "name"));
    const json_t *before = find_row(rows, name);
    if (!before) continue;
    const comparison c = compare_rows(before, row);
    if (!c.is_share) TR_TRY(check_processor(r, name));
    const int is_slower = !(c.ratio >= 1 - r->tolerance);
    ++*compared;
    if (is_slower) name_slower(slower, ++*nslower, name, &c);
    if (quiet) continue;
    printf("%-44s", name);
    print_value(&c, c.before);
    print_value(&c, c.now);
    printf(" %8.2f%s\n", c.ratio, is_slower ? "  slower" : "");
  }
  return TR_OK;
}

// Names of the rows of `of` that `in` has not.
static size_t name_missing(const json_t *of, const json_t *in, tr_text *out) {
  size_t i, n = 0;
  json_t *row;
  json_array_foreach(of, i, row) {
    const char *name = json_string_value(json_object_get(row, "name"));
    if (find_row(in, name)) continue;
    if (++n <= NAMED) tr_text_append(out, "%s%s", n > 1 ? ", " : "", name);
    if (n == NAMED + 1) tr_text_append(out, ", ...");
  }
  return n;
}

// A comparison that leaves something out without a word would pass whatever became of it.
static tr_status check_complete(const tr__bench_report *r) {
  const json_t *before = json_object_get(r->baseline, "results");
  tr_text gone = {0}, added = {0};
  const size_t ngone = name_missing(before, r->rows, &gone), nadded = name_missing(r->rows, before, &added);
  tr_status status = TR_OK;
  if (ngone && !r->settings->json) printf("not measured, so not compared: %s\n", gone.data);
  if (nadded && !r->settings->json) printf("not in the baseline, so not compared: %s\n", added.data);
  if (nadded)
    status = tr_error(TR_ERR_DATA, "%s: it lacks results that were measured: %s; write a new baseline",
                      r->settings->baseline, added.data);
  else if (ngone && !r->part)
    status = tr_error(TR_ERR_DATA,
                      "%s: results in it were not measured: %s; choose what to measure, or write a new baseline",
                      r->settings->baseline, gone.data);
  tr_text_free(&gone);
  tr_text_free(&added);
  return status;
}

static tr_status compare(const tr__bench_report *r) {
  const char *path = r->settings->baseline;
  const int quiet = r->settings->json;
  size_t compared = 0, nslower = 0;
  tr_text slower = {0};
  if (!quiet)
    printf("\n%-44s %11s %11s %8s  (%s, tolerance %g %%)\n", "compared", "old", "new", "ratio", path,
           100 * r->tolerance);
  tr_status status = compare_all(r, quiet, &compared, &nslower, &slower);
  if (status == TR_OK && compared == 0)
    status = tr_error(TR_ERR_DATA, "%s: it has none of the results that were measured", path);
  if (status == TR_OK && nslower > 0)
    status = tr_error(TR_ERR_VERIFY, "%zu of %zu results are slower than in %s by more than %g %%: %s", nslower,
                      compared, path, 100 * r->tolerance, slower.data ? slower.data : "");
  if (status == TR_OK) status = check_complete(r);
  tr_text_free(&slower);
  return status;
}

// ---- the end

static tr_status write_results(const tr__bench_report *r, double foreign) {
  char now[32];
  tr_clock_utc(now, sizeof now);
  json_t *all =
      json_pack("{s:i, s:s, s:s, s:s, s:o, s:f, s:O}", "trireme_bench", FORMAT, "benchmark", r->benchmark, "subject",
                r->subject, "time", now, "machine", machine(r), "foreign_cpu", foreign, "results", r->rows);
  if (all && r->fits) json_object_set(all, "fits", r->fits);
  char *text = all ? json_dumps(all, JSON_INDENT(1) | JSON_REAL_PRECISION(9)) : NULL;
  json_decref(all);
  if (!text) return tr_error(TR_ERR_MEMORY, "no memory for the results");
  if (r->settings->json) puts(text);
  size_t n = strlen(text);
  text[n] = '\n'; // in place of the terminating zero
  tr_status status = *r->settings->write ? tr_file_write_atomic(r->settings->write, text, n + 1) : TR_OK;
  free(text);
  return status;
}

tr_status tr__bench_finish(tr__bench_report *r) {
  double foreign = tr__bench_foreign(&r->start);
  if (!r->settings->json) {
    printf("\nothers took %.0f %% of the processors", 100 * foreign);
    puts(foreign > busy_machine ? ": more than 10 %, so figures move; repeat, and quote medians" : "");
  }
  TR_TRY(write_results(r, foreign));
  return r->baseline ? compare(r) : TR_OK;
}
