// SPDX-License-Identifier: MIT
// tier: quick
// timeout: 120
// Proves that a trace is what viewers expect and holds all that happened: every operation of the program and every piece,
// on every rank and step, nested and in order; arrows from and to slices that are there, one per edge between lanes; the
// newest events when there are too many; what was under way when a rank died; and that bad paths are refused.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "trireme/base/file.h"
#include "trireme/train/train.h"

#include <dirent.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PATH_SIZE = 512, DEPTH = 16, THREADS = 128, RANKS = 4, ARGUMENTS = 16 };

static char folder[64];

typedef struct job {
  tr_train_config config;
  tr_options *options;
  tr_train_plan plan;
  char trace[PATH_SIZE];
} job;

static tr_status apply(job *j, const char *format, ...) __attribute__((format(printf, 2, 3)));
static tr_status apply(job *j, const char *format, ...) {
  char argument[2 * PATH_SIZE];
  va_list list;
  va_start(list, format);
  vsnprintf(argument, sizeof argument, format, list);
  va_end(list);
  return tr_options_apply_argument(j->options, argument);
}

static void job_open(job *j, const char *const *argument) {
  static const char *const tiny[] = {"data.sequence=16",     "model.layers=2",    "model.width=16",
                                     "model.heads=2",        "run.threads=1",     "batch.sequences=12",
                                     "train.eval_samples=6", "batch.micro=2",     "train.eval_every=0",
                                     "train.log_every=1000", "checkpoint.every=2"};
  static int number;
  *j = (job){.options = NULL};
  assert_int_equal(tr_train_config_open(&j->config, &j->options), TR_OK);
  for (size_t i = 0; i < sizeof tiny / sizeof *tiny; i++) assert_int_equal(apply(j, "%s", tiny[i]), TR_OK);
  snprintf(j->trace, sizeof j->trace, "%s/traces-%d/trace.json", folder, ++number);
  assert_int_equal(apply(j, "data.path=%s/text.txt", folder), TR_OK);
  assert_int_equal(apply(j, "train.folder=%s/run-%d", folder, number), TR_OK);
  assert_int_equal(apply(j, "run.trace=%s", j->trace), TR_OK);
  for (; argument && *argument; argument++) assert_int_equal(apply(j, "%s", *argument), TR_OK);
}

static void job_plan(job *j) { assert_int_equal(tr_train_plan_make(&j->config, j->options, 0, &j->plan), TR_OK); }

static void job_close(job *j) {
  tr_train_plan_destroy(&j->plan);
  tr_options_destroy(j->options);
}

// ---- reading a trace

typedef struct event {
  const char *phase, *name, *category;
  int64_t rank, thread, begin, end; // ns
  int64_t step, op, id;
  int unfinished;
} event;

typedef struct trace {
  json_t *json;
  event *event;
  size_t n;
} trace;

static const char *string_of(const json_t *object, const char *key) {
  const char *text = json_string_value(json_object_get(object, key));
  return text ? text : "";
}

static int64_t integer_of(const json_t *object, const char *key) {
  const json_t *value = json_object_get(object, key);
  return json_is_integer(value) ? (int64_t)json_integer_value(value) : -1;
}

// Nanoseconds of a time in microseconds.
static int64_t time_of(const json_t *object, const char *key) {
  const json_t *value = json_object_get(object, key);
  assert_true(json_is_number(value));
  return llround(json_number_value(value) * 1000);
}

static void trace_open(const char *path, trace *t) {
  json_error_t error;
  *t = (trace){.json = json_load_file(path, JSON_REJECT_DUPLICATES, &error)};
  if (!t->json) fail_msg("%s:%d:%d: %s", path, error.line, error.column, error.text);
  json_t *list = json_object_get(t->json, "traceEvents");
  assert_true(json_is_array(list));
  t->event = calloc(json_array_size(list) + 1, sizeof *t->event);
  assert_non_null(t->event);
  for (size_t i = 0; i < json_array_size(list); i++) {
    const json_t *o = json_array_get(list, i), *arguments = json_object_get(o, "args");
    event e = {.phase = string_of(o, "ph"),
               .name = string_of(o, "name"),
               .category = string_of(o, "cat"),
               .rank = integer_of(o, "pid"),
               .thread = integer_of(o, "tid"),
               .id = integer_of(o, "id"),
               .step = integer_of(arguments, "step"),
               .op = integer_of(arguments, "op"),
               .unfinished = json_is_true(json_object_get(arguments, "unfinished"))};
    if (strcmp(e.phase, "M") != 0) e.begin = e.end = time_of(o, "ts");
    if (strcmp(e.phase, "X") == 0) e.end += time_of(o, "dur");
    assert_true(e.rank >= 0 && e.rank < RANKS && e.thread >= 0 && e.thread < THREADS && strlen(e.phase) == 1);
    t->event[t->n++] = e;
  }
}

static void trace_close(trace *t) {
  free(t->event);
  json_decref(t->json);
}

static int is(const event *e, const char *phase) { return strcmp(e->phase, phase) == 0; }

static size_t count(const trace *t, const char *category, int64_t rank, int64_t step) {
  size_t n = 0;
  for (size_t i = 0; i < t->n; i++) {
    const event *e = &t->event[i];
    n += is(e, "X") && strcmp(e->category, category) == 0 && e->rank == rank && e->step == step && !e->unfinished;
  }
  return n;
}

// ---- what holds for every trace

// On each thread slices begin in order and end before what is around them; pieces are inside something.
static void check_nesting(const trace *t) {
  static const event *open[RANKS][THREADS][DEPTH];
  static int depth[RANKS][THREADS];
  memset(depth, 0, sizeof depth);
  for (size_t i = 0; i < t->n; i++) {
    const event *e = &t->event[i];
    int *d = &depth[e->rank][e->thread];
    const event **stack = open[e->rank][e->thread];
    if (!is(e, "X")) continue;
    assert_true(e->end > e->begin);
    if (*d) assert_true(e->begin >= stack[*d - 1]->begin);
    while (*d && stack[*d - 1]->end <= e->begin) --*d;
    if (*d && e->end > stack[*d - 1]->end)
      fail_msg("%s of rank %d ends %lld ns after %s, which is around it", e->name, (int)e->rank,
               (long long)(e->end - stack[*d - 1]->end), stack[*d - 1]->name);
    if (strcmp(e->category, "piece") == 0) assert_true(*d == 1);
    assert_true(*d < DEPTH);
    stack[(*d)++] = e;
  }
}

static int touches(const event *slice, const event *arrow) {
  return is(slice, "X") && slice->rank == arrow->rank && slice->thread == arrow->thread &&
         (strcmp(slice->category, "compute") == 0 || strcmp(slice->category, "comm") == 0) &&
         slice->begin <= arrow->begin && arrow->begin < slice->end;
}

static int touches_any(const trace *t, const event *arrow) {
  for (size_t i = 0; i < t->n; i++)
    if (touches(&t->event[i], arrow)) return 1;
  return 0;
}

// Returns the number of arrows. Starts and ends come in pairs, as the file has them.
static size_t check_arrows(const trace *t) {
  const event *start = NULL;
  size_t n = 0;
  for (size_t i = 0; i < t->n; i++) {
    const event *e = &t->event[i];
    if (is(e, "s")) start = e;
    if (!is(e, "s") && !is(e, "f")) continue;
    assert_true(touches_any(t, e));
    if (is(e, "s")) continue;
    assert_non_null(start);
    assert_int_equal(e->id, (int64_t)++n);
    assert_int_equal(start->id, e->id);
    assert_int_equal(start->rank, e->rank);
    assert_true(start->thread != e->thread && start->begin <= e->begin);
    start = NULL;
  }
  return n;
}

static void check_names(const trace *t, int ranks) {
  for (int r = 0; r < ranks; r++) {
    char begin[32];
    int named = 0;
    snprintf(begin, sizeof begin, "rank %d (", r);
    for (size_t i = 0; i < t->n; i++) {
      if (strcmp(t->event[i].name, "process_name") != 0 || t->event[i].rank != r) continue;
      const json_t *o = json_array_get(json_object_get(t->json, "traceEvents"), i);
      named += strncmp(string_of(json_object_get(o, "args"), "name"), begin, strlen(begin)) == 0;
    }
    assert_int_equal(named, 1);
  }
}

// One machine has one clock, so an offset is within its error.
static void check_clocks(const trace *t, int ranks) {
  const json_t *list = json_object_get(json_object_get(t->json, "otherData"), "clock_offsets");
  assert_int_equal(json_array_size(list), ranks);
  for (int r = 0; r < ranks; r++) {
    const json_t *o = json_array_get(list, (size_t)r);
    double offset = json_number_value(json_object_get(o, "offset_us")),
           error = json_number_value(json_object_get(o, "error_us"));
    assert_int_equal(integer_of(o, "rank"), r);
    assert_true(fabs(offset) <= error + 0.001 && (r == 0 || error > 0));
  }
}

static int64_t dropped(const trace *t, int rank) {
  const json_t *list = json_object_get(json_object_get(t->json, "otherData"), "clock_offsets");
  return integer_of(json_array_get(list, (size_t)rank), "dropped");
}

static size_t program_count(const tr_program *program, int lane) {
  size_t n = 0;
  for (uint32_t i = 0; i < program->nop; i++) n += program->op[i].lane == lane;
  return n;
}

// Of what runs again, the executor chooses some pieces of a range.
static size_t program_pieces(const tr_program *program) {
  size_t n = 0;
  for (uint32_t i = 0; i < program->nop; i++)
    if (program->op[i].kind != TR_OP_R) n += program->op[i].piece_end - program->op[i].piece_begin;
  return n;
}

// Pieces of a step that ran once, or again.
static size_t count_passes(const trace *t, int64_t rank, int64_t step, int again) {
  size_t n = 0;
  for (size_t i = 0; i < t->n; i++) {
    const json_t *o = json_array_get(json_object_get(t->json, "traceEvents"), i);
    const char *pass = string_of(json_object_get(o, "args"), "pass");
    const event *e = &t->event[i];
    n += strcmp(e->category, "piece") == 0 && e->rank == rank && e->step == step && *pass &&
         (strcmp(pass, "recompute") == 0) == again;
  }
  return n;
}

static void check_step(const trace *t, const tr_train_plan *plan, int64_t rank, int64_t step) {
  assert_int_equal(count(t, "compute", rank, step), program_count(&plan->part[0].program, TR_LANE_COMPUTE));
  assert_int_equal(count(t, "comm", rank, step), program_count(&plan->part[0].program, TR_LANE_COMM));
  assert_int_equal(count_passes(t, rank, step, 0), program_pieces(&plan->part[0].program));
  assert_int_equal(count_passes(t, rank, step, 1) > 0, plan->config->memory.recompute != TR_RECOMPUTE_NONE);
}

static size_t edges_between_lanes(const tr_program *program, int64_t steps) {
  size_t n = 0;
  for (uint32_t i = 0; i < program->nop; i++)
    for (uint32_t e = program->op[i].edge_begin; e < program->op[i].edge_end; e++) {
      const tr_edge *edge = &program->edge[e];
      if (program->op[edge->op].lane != program->op[i].lane) n += (size_t)(steps + edge->step_offset);
    }
  return n;
}

// Gradients of one step: all of them go over the wire once, where there is another rank.
static double reduced_bytes(const trace *t, int64_t rank, int64_t step) {
  double sum = 0;
  for (size_t i = 0; i < t->n; i++) {
    const json_t *o = json_array_get(json_object_get(t->json, "traceEvents"), i),
                 *arguments = json_object_get(o, "args");
    if (strcmp(t->event[i].name, "REDUCE gradients") != 0 || t->event[i].rank != rank || t->event[i].step != step)
      continue;
    sum += json_number_value(json_object_get(arguments, "bytes"));
    assert_string_equal(string_of(arguments, "group"), "dp");
    assert_true(json_array_size(json_object_get(arguments, "ranks")) > 0);
  }
  return sum;
}

static size_t counters(const trace *t, const char *name, int64_t rank) {
  size_t n = 0;
  for (size_t i = 0; i < t->n; i++)
    n += is(&t->event[i], "C") && t->event[i].rank == rank && strcmp(t->event[i].name, name) == 0;
  return n;
}

static void check_whole(const trace *t, const tr_train_plan *plan, int ranks, int64_t steps) {
  check_names(t, ranks);
  check_clocks(t, ranks);
  check_nesting(t);
  assert_int_equal(check_arrows(t), (size_t)ranks * edges_between_lanes(&plan->part[0].program, steps));
  for (int r = 0; r < ranks; r++) {
    assert_int_equal(dropped(t, r), 0);
    for (int64_t s = 1; s <= steps; s++) check_step(t, plan, r, s);
    assert_true(fabs(reduced_bytes(t, r, 2) - (ranks == 1 ? 0 : (double)plan->part[0].layout.total * 4)) < 1);
    assert_int_equal(counters(t, "resident (bytes)", r), steps);
    assert_int_equal(counters(t, "arenas (bytes)", r), steps);
    assert_int_equal(counters(t, "loss", r), r ? 0 : steps);
    assert_int_equal(counters(t, "tokens/s", r), r ? 0 : steps);
  }
  for (size_t i = 0; i < t->n; i++) assert_false(t->event[i].unfinished);
}

static void count_slices(const trace *t, const char *name, int64_t rank, size_t expected) {
  size_t n = 0;
  for (size_t i = 0; i < t->n; i++) n += t->event[i].rank == rank && strcmp(t->event[i].name, name) == 0;
  assert_int_equal(n, expected);
}

// Nothing else is in the trace's folder: it appeared whole.
static void check_alone(const job *j) {
  char path[PATH_SIZE];
  snprintf(path, sizeof path, "%s", j->trace);
  *strrchr(path, '/') = '\0';
  DIR *dir = opendir(path);
  assert_non_null(dir);
  for (struct dirent *entry; (entry = readdir(dir));)
    if (entry->d_name[0] != '.') assert_string_equal(entry->d_name, "trace.json");
  closedir(dir);
}

// ---- tests

static void whole_run(const char *ranks, int n, const char *launch, const char *more) {
  const char *const arguments[] = {ranks, launch, "train.steps=5", "train.eval_every=2", more, NULL};
  job j;
  trace t;
  job_open(&j, arguments);
  job_plan(&j);
  assert_int_equal(tr_train(&j.plan, j.options), TR_OK);
  trace_open(j.trace, &t);
  check_whole(&t, &j.plan, n, 5);
  for (int r = 0; r < n; r++) {
    count_slices(&t, "read data", r, 5);
    count_slices(&t, "program", r, 5);
    count_slices(&t, "save", r, 3);           // after steps 2, 4 and 5
    count_slices(&t, "evaluation", r, 2 * 3); // the same, on two threads
    count_slices(&t, "write checkpoint", r, 3);
  }
  check_alone(&j);
  trace_close(&t);
  job_close(&j);
}

static void processes_and_threads(void **state) {
  (void)state;
  whole_run("run.ranks=1", 1, "run.launch=processes", "batch.micro=4");
  whole_run("run.ranks=2", 2, "run.launch=processes", "comm.bucket=1kB");
  whole_run("run.ranks=3", 3, "run.launch=processes", "comm.grad_sync=last");
  whole_run("run.ranks=1", 1, "run.launch=threads", "batch.micro=4");
  whole_run("run.ranks=3", 3, "run.launch=threads", "comm.bucket=1kB");
  whole_run("run.ranks=2", 2, "run.launch=processes", "parallel.zero=0");
  whole_run("run.ranks=2", 2, "run.launch=processes", "memory.recompute=full");
}

static void bf16_and_llama(void **state) {
  (void)state;
  const char *const arguments[] = {"run.ranks=2", "model.kind=llama", "precision.compute=bf16", "train.steps=2",
                                   NULL};
  job j;
  trace t;
  job_open(&j, arguments);
  job_plan(&j);
  assert_int_equal(tr_train(&j.plan, j.options), TR_OK);
  trace_open(j.trace, &t);
  check_whole(&t, &j.plan, 2, 2);
  trace_close(&t);
  job_close(&j);
}

// More events than there is room for: the newest are here, and how many are not is told.
static void full_ring(void **state) {
  (void)state;
  enum { STEPS = 1500 };
  const char *const arguments[] = {"run.ranks=1",       "train.steps=1500",   "data.sequence=2",
                                   "batch.sequences=2", "checkpoint.every=0", NULL};
  job j;
  trace t;
  job_open(&j, arguments);
  job_plan(&j);
  assert_int_equal(tr_train(&j.plan, j.options), TR_OK);
  trace_open(j.trace, &t);
  check_nesting(&t);
  assert_true(dropped(&t, 0) > 0);
  assert_int_equal(count(&t, "compute", 0, 1), 0);
  for (int64_t s = STEPS - 99; s <= STEPS; s++) check_step(&t, &j.plan, 0, s);
  size_t kept = 0;
  for (size_t i = 0; i < t.n; i++) kept += is(&t.event[i], "X") || is(&t.event[i], "C");
  count_slices(&t, "evaluation", 0, 2);
  kept--; // the evaluation is on two threads
  const json_t *list = json_object_get(json_object_get(t.json, "otherData"), "clock_offsets");
  assert_int_equal((int64_t)kept + dropped(&t, 0), integer_of(json_array_get(list, 0), "events"));
  trace_close(&t);
  job_close(&j);
}

// What is known of a job whose rank 1 ended in B of step 4.
static void check_failed(const trace *t, const tr_train_plan *plan) {
  size_t struck = 0;
  check_names(t, 3);
  check_nesting(t);
  check_arrows(t);
  for (int r = 0; r < 3; r++) {
    for (int64_t s = 1; s < 4; s++) check_step(t, plan, r, s);
    count_slices(t, "step 4", r, 1);
    count_slices(t, "step 5", r, 0);
  }
  for (size_t i = 0; i < t->n; i++) {
    const event *e = &t->event[i];
    if (e->unfinished) assert_true(e->step == 4);
    struck += e->unfinished && e->rank == 1 && strcmp(e->name, "B") == 0;
  }
  assert_int_equal(struck, 1);
}

static void killed(void **state) {
  (void)state;
  const char *const arguments[] = {"run.ranks=3", "train.steps=8", "checkpoint.every=0", NULL};
  job j;
  trace t;
  job_open(&j, arguments);
  job_plan(&j);
  setenv("TRIREME_FAULT", "rank=1,op=B,step=4,action=kill", 1);
  tr_status status = tr_train(&j.plan, j.options);
  unsetenv("TRIREME_FAULT");
  assert_int_equal(status, TR_ERR_PEER);
  assert_non_null(strstr(tr_status_text(), "killed by signal 9"));
  trace_open(j.trace, &t);
  check_failed(&t, &j.plan);
  assert_non_null(strstr(string_of(json_object_get(t.json, "otherData"), "end"), "killed by signal 9"));
  check_alone(&j);
  trace_close(&t);
  job_close(&j);
}

// An error is noticed after the step's program, on threads as in processes.
static void failed_in_threads(void **state) {
  (void)state;
  const char *const arguments[] = {"run.ranks=2", "run.launch=threads", "train.steps=8", NULL};
  job j;
  trace t;
  job_open(&j, arguments);
  job_plan(&j);
  setenv("TRIREME_FAULT", "rank=1,op=B,step=4,action=error", 1);
  tr_status status = tr_train(&j.plan, j.options);
  unsetenv("TRIREME_FAULT");
  assert_int_equal(status, TR_ERR_INTERNAL);
  trace_open(j.trace, &t);
  check_nesting(&t);
  for (int64_t s = 1; s < 4; s++) check_step(&t, &j.plan, 0, s); // what it did of step 4 is a matter of time
  check_step(&t, &j.plan, 1, 4);
  count_slices(&t, "step 4", 1, 1);
  trace_close(&t);
  job_close(&j);
}

// A finished run that is started again leaves its trace as it was.
static void nothing_to_do(void **state) {
  (void)state;
  const char *const arguments[] = {"run.ranks=1", "train.steps=1", NULL};
  job j;
  char *before, *after;
  size_t nbefore, nafter;
  job_open(&j, arguments);
  job_plan(&j);
  assert_int_equal(tr_train(&j.plan, j.options), TR_OK);
  assert_int_equal(tr_file_read(j.trace, 1 << 24, &before, &nbefore), TR_OK);
  assert_int_equal(tr_train(&j.plan, j.options), TR_OK);
  assert_int_equal(tr_file_read(j.trace, 1 << 24, &after, &nafter), TR_OK);
  assert_int_equal(nbefore, nafter);
  assert_memory_equal(before, after, nbefore);
  free(before);
  free(after);
  job_close(&j);
}

static void bad_paths(void **state) {
  (void)state;
  static const char *const bad[] = {"%s", "%s/", "%s/text.txt/trace.json", "%s/text.txt/a/b/trace.json", "/dev/null"};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    job j;
    char path[2 * PATH_SIZE];
    const char *at = strstr(bad[i], "%s");
    snprintf(path, sizeof path, "%s%s", at ? folder : "", at ? at + 2 : bad[i]);
    job_open(&j, NULL);
    assert_int_equal(apply(&j, "run.trace=%s", path), TR_OK);
    assert_int_equal(tr_train_plan_make(&j.config, j.options, 0, &j.plan), TR_ERR_CONFIG);
    assert_non_null(strstr(tr_status_text(), "run.trace"));
    assert_non_null(strstr(tr_status_text(), path));
    tr_options_destroy(j.options);
  }
}

// The rings are part of what a rank is said to take.
static void memory_is_planned(void **state) {
  (void)state;
  job with, without;
  job_open(&with, NULL);
  job_plan(&with);
  job_open(&without, NULL);
  assert_int_equal(apply(&without, "run.trace="), TR_OK);
  job_plan(&without);
  assert_true(with.plan.rank_nbyte > without.plan.rank_nbyte + 65536 * 32);
  assert_non_null(strstr(with.plan.memory_text, "trace "));
  assert_null(strstr(without.plan.memory_text, "trace "));
  job_close(&with);
  job_close(&without);
}

static int set_up(void **state) {
  (void)state;
  char path[PATH_SIZE + 16], text[8000];
  snprintf(folder, sizeof folder, "/tmp/test_trace.XXXXXX");
  if (!mkdtemp(folder)) return 1;
  for (size_t i = 0; i < sizeof text; i++) text[i] = "the oar and the sea\n"[i % 20];
  snprintf(path, sizeof path, "%s/text.txt", folder);
  unsetenv("TRIREME_FAULT");
  return tr_file_write_atomic(path, text, sizeof text) < 0;
}

static int tear_down(void **state) {
  (void)state;
  return tr_file_remove_tree(folder) < 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(processes_and_threads),
                                     cmocka_unit_test(bf16_and_llama),
                                     cmocka_unit_test(full_ring),
                                     cmocka_unit_test(killed),
                                     cmocka_unit_test(failed_in_threads),
                                     cmocka_unit_test(nothing_to_do),
                                     cmocka_unit_test(bad_paths),
                                     cmocka_unit_test(memory_is_planned)};
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
