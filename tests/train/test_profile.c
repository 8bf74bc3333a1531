// SPDX-License-Identifier: MIT
// tier: quick
// timeout: 120
// Proves that profiles add up: the shares of all rows are the whole step, every piece of every micro-batch was counted in its
// pass and none of an evaluation, and FLOPs and bytes are those that the model's sizes give.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "trireme/base/file.h"
#include "trireme/train/train.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS = 10, EVERY = 4, SEQUENCE = 16, BATCH = 12, WIDTH = 16, LAYERS = 2, VOCAB = 256, MICRO = 2 };

static char folder[64];

typedef struct job {
  tr_train_config config;
  tr_options *options;
  tr_train_plan plan;
  json_t *profiles; // the records of metrics.jsonl
} job;

static void apply(job *j, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void apply(job *j, const char *format, ...) {
  char argument[256];
  va_list list;
  va_start(list, format);
  vsnprintf(argument, sizeof argument, format, list);
  va_end(list);
  assert_int_equal(tr_options_apply_argument(j->options, argument), TR_OK);
}

static void read_records(job *j) {
  char path[128], *data, *save = NULL;
  size_t nbyte;
  snprintf(path, sizeof path, "%s/metrics.jsonl", j->config.train.folder);
  assert_int_equal(tr_file_read(path, 1 << 24, &data, &nbyte), TR_OK);
  j->profiles = json_array();
  for (char *line = strtok_r(data, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
    json_t *record = json_loads(line, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(record);
    const char *event = json_string_value(json_object_get(record, "event"));
    if (event && strcmp(event, "profile") == 0) json_array_append(j->profiles, record);
    json_decref(record);
  }
  free(data);
}

// Train, and read what was said of it.
static void job_run(job *j, const char *const *argument) {
  static int number;
  *j = (job){.options = NULL};
  assert_int_equal(tr_train_config_open(&j->config, &j->options), TR_OK);
  apply(j, "data.path=%s/text.txt", folder);
  apply(j, "train.folder=%s/run-%d", folder, ++number);
  apply(j, "data.sequence=%d", SEQUENCE);
  apply(j, "batch.sequences=%d", BATCH);
  apply(j, "batch.micro=%d", MICRO);
  apply(j, "model.width=%d", WIDTH);
  apply(j, "model.layers=%d", LAYERS);
  apply(j, "train.steps=%d", STEPS);
  apply(j, "run.profile=%d", EVERY);
  apply(j, "model.heads=2");
  apply(j, "run.threads=1");
  apply(j, "train.eval_every=2");
  apply(j, "train.eval_samples=6");
  for (; *argument; argument++) apply(j, "%s", *argument);
  assert_int_equal(tr_train_plan_make(&j->config, j->options, 0, &j->plan), TR_OK);
  assert_int_equal(tr_train(&j->plan, j->options), TR_OK);
  read_records(j);
}

static void job_close(job *j) {
  json_decref(j->profiles);
  tr_train_plan_destroy(&j->plan);
  tr_options_destroy(j->options);
}

static double number(const json_t *object, const char *key) {
  const json_t *value = json_object_get(object, key);
  if (!json_is_number(value)) fail_msg("no number '%s'", key);
  return json_number_value(value);
}

static const json_t *row(const json_t *profile, const char *what) {
  const json_t *rows = json_object_get(profile, "rows");
  for (size_t i = 0; i < json_array_size(rows); i++) {
    const json_t *one = json_array_get(rows, i);
    if (strcmp(json_string_value(json_object_get(one, "what")), what) == 0) return one;
  }
  fail_msg("no row '%s'", what);
  return NULL;
}

static void check(const json_t *profile, const char *what, const char *key, double expected) {
  double got = number(row(profile, what), key);
  if (!(fabs(got - expected) <= 1e-9 * fabs(expected))) fail_msg("%s: %s is %g, not %g", what, key, got, expected);
}

static void check_sums(const json_t *profile) {
  const json_t *rows = json_object_get(profile, "rows");
  double sum = 0, seconds = 0, before = INFINITY;
  size_t n = json_array_size(rows);
  assert_true(n > 3);
  for (size_t i = 0; i < n; i++) {
    double share = number(json_array_get(rows, i), "share"), own = number(json_array_get(rows, i), "seconds");
    assert_true(share >= 0 && share < 1);
    if (i + 3 < n) assert_true(own <= before); // the last three are what is left over
    before = own;
    sum += share;
    seconds += own;
  }
  assert_true(fabs(sum - 1) < 1e-6);
  assert_true(fabs(seconds - number(profile, "seconds")) < 1e-6);
  assert_true(number(profile, "peak_flops_per_s") > 0 && number(profile, "copy_bytes_per_s") > 0);
}

static void check_tables(const job *j) {
  static const int64_t steps[] = {EVERY, EVERY, STEPS}, at[] = {EVERY, 2 * EVERY, STEPS};
  assert_int_equal(json_array_size(j->profiles), 3);
  for (size_t i = 0; i < 3; i++) {
    const json_t *profile = json_array_get(j->profiles, i);
    check_sums(profile);
    assert_int_equal((int64_t)number(profile, "steps"), steps[i]);
    assert_int_equal((int64_t)number(profile, "step"), at[i]);
    assert_int_equal(json_is_true(json_object_get(profile, "whole_run")), i == 2);
  }
}

// The counts of a GPT-2 step on `ranks` ranks, of all steps.
static void check_counts(const job *j, int ranks) {
  const json_t *p = json_array_get(j->profiles, 2);
  double passes = (double)STEPS * BATCH / ranks / MICRO, tokens = (double)STEPS * BATCH / ranks * SEQUENCE;
  double products = 2.0 * LAYERS * 12 * WIDTH * WIDTH, head = 2.0 * WIDTH * VOCAB;
  double scores = 4.0 * WIDTH * LAYERS * (SEQUENCE + 1) / 2; // a token sees half of the sequence
  check(p, "projection forward", "calls", passes * 4 * LAYERS);
  check(p, "projection backward", "calls", passes * 4 * LAYERS);
  check(p, "attention forward", "calls", passes * LAYERS);
  check(p, "head_loss backward", "calls", passes);
  check(p, "projection forward", "flops", products * tokens);
  check(p, "projection backward", "flops", 2 * products * tokens);
  check(p, "attention forward", "flops", scores * tokens);
  check(p, "attention backward", "flops", 2.5 * scores * tokens);
  check(p, "head_loss forward", "flops", 0);
  check(p, "head_loss backward", "flops", 3 * head * tokens);
  check(p, "gelu forward", "bytes", tokens * LAYERS * 2 * 4 * WIDTH * 4);
  check(p, "gelu backward", "bytes", tokens * LAYERS * 3 * 4 * WIDTH * 4);
  check(p, "residual backward", "bytes", 0);
  // Rows of the token and the position table, and what comes out.
  check(p, "embedding forward", "bytes", passes * (2 * MICRO * SEQUENCE + SEQUENCE) * WIDTH * 4);
  check(p, "UPDATE", "bytes", (double)j->plan.part[0].layout.total * 7 * 4 * STEPS);
  check(p, "NORM", "bytes", (double)j->plan.part[0].layout.total * 4 * STEPS);
  check(p, "REDUCE gradients", "bytes", ranks == 1 ? 0 : (double)j->plan.part[0].layout.total * 4 * STEPS);
  check(p, "REDUCE gradients", "calls", (double)j->plan.part[0].program.nbucket * STEPS);
  assert_true(number(row(p, "REDUCE gradients"), "under_way_seconds") > 0);
}

static void gpt2(void **state) {
  (void)state;
  static const char *const one[] = {"run.ranks=1", NULL},
                           *const two[] = {"run.ranks=2", "comm.bucket=1kB", "parallel.zero=0", NULL},
                           *const threads[] = {"run.ranks=2", "run.launch=threads", "parallel.zero=0", NULL};
  const struct {
    const char *const *argument;
    int ranks;
  } kind[] = {{one, 1}, {two, 2}, {threads, 2}};
  for (size_t i = 0; i < sizeof kind / sizeof *kind; i++) {
    job j;
    job_run(&j, kind[i].argument);
    check_tables(&j);
    check_counts(&j, kind[i].ranks);
    job_close(&j);
  }
}

// Rows of other models and types are there and add up too. bf16 reads and writes half the bytes, and the update writes
// the working weights; SGD has no state.
static void others(void **state) {
  (void)state;
  static const char *const arguments[] = {"run.ranks=1",    "model.kind=llama", "precision.compute=bf16",
                                          "optim.kind=sgd", "model.ffn=32",     NULL};
  job j;
  job_run(&j, arguments);
  check_tables(&j);
  const json_t *p = json_array_get(j.profiles, 2);
  double tokens = (double)STEPS * BATCH * SEQUENCE;
  check(p, "swiglu forward", "bytes", tokens * LAYERS * 3 * 32 * 2);
  check(p, "UPDATE", "bytes", (double)j.plan.part[0].layout.total * (3 * 4 + 2) * STEPS);
  check(p, "rmsnorm forward", "calls", (double)STEPS * BATCH / MICRO * (2 * LAYERS + 1));
  job_close(&j);
}

// Ranks that own parts of the state update and pack those only, and send gradients in half the bytes.
static void owned_parts(void **state) {
  (void)state;
  static const char *const arguments[] = {"run.ranks=2", "parallel.zero=1", "precision.grad_wire=bf16", NULL};
  job j;
  int64_t first, own = 0, sum = 0;
  job_run(&j, arguments);
  check_tables(&j);
  const json_t *p = json_array_get(j.profiles, 2);
  for (int b = 0; b < j.plan.part[0].program.nbucket; b++) {
    const tr_bucket *bucket = &j.plan.part[0].program.bucket[b];
    tr_layout_own(&j.plan.part[0].layout, bucket->unit_begin, bucket->unit_end, 2, 0, &first, &own);
    sum += own;
  }
  check(p, "UPDATE", "bytes", (double)sum * 7 * 4 * STEPS);
  check(p, "REDUCE gradients", "bytes", (double)j.plan.part[0].layout.total * 2 * STEPS);
  check(p, "NORM", "bytes",
        (double)tr_layout_blocks(&j.plan.part[0].layout, j.plan.part[0].layout.nunit) * 8 * STEPS);
  check(p, "GATHER weights", "calls", STEPS);
  check(p, "GATHER packed weights", "calls", STEPS);
  check(p, "REDUCE valid tokens", "calls", STEPS);
  job_close(&j);
}

// What is computed again has rows of its own: with selective, of the cheap pieces.
static void recomputed(void **state) {
  (void)state;
  static const char *const arguments[] = {"run.ranks=1", "memory.recompute=selective", NULL};
  job j;
  job_run(&j, arguments);
  check_tables(&j);
  const json_t *p = json_array_get(j.profiles, 2);
  double again = number(row(p, "attention recompute"), "calls"), calls = number(row(p, "attention forward"), "calls");
  assert_true(again > 0 && again < calls); // the last layer follows its forward pass
  check(p, "attention recompute", "flops", number(row(p, "attention forward"), "flops") * again / calls);
  job_close(&j);
}

// One table is enough for a run that ends when the first is due.
static void one_table(void **state) {
  (void)state;
  static const char *const arguments[] = {"run.profile=10", NULL};
  job j;
  job_run(&j, arguments);
  assert_int_equal(json_array_size(j.profiles), 1);
  assert_true(json_is_true(json_object_get(json_array_get(j.profiles, 0), "whole_run")));
  check_sums(json_array_get(j.profiles, 0));
  job_close(&j);
}

static int set_up(void **state) {
  (void)state;
  char path[96], text[8000];
  snprintf(folder, sizeof folder, "/tmp/test_profile.XXXXXX");
  if (!mkdtemp(folder)) return 1;
  for (size_t i = 0; i < sizeof text; i++) text[i] = "the oar and the sea\n"[i % 20];
  snprintf(path, sizeof path, "%s/text.txt", folder);
  return tr_file_write_atomic(path, text, sizeof text) < 0;
}

static int tear_down(void **state) {
  (void)state;
  return tr_file_remove_tree(folder) < 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(gpt2), cmocka_unit_test(others), cmocka_unit_test(owned_parts),
                                     cmocka_unit_test(recomputed), cmocka_unit_test(one_table)};
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
