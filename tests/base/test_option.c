// SPDX-License-Identifier: MIT
// tier: quick
// timeout: 60
// One table drives every source of settings: later sources win, each value remembers where it came from,
// every bad key or value is refused with place, key, value and what is accepted, and printed settings load to
// the same values.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "trireme/base/option.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(table) (sizeof(table) / sizeof *(table))

typedef struct settings {
  int64_t sequences, dp, seed;
  double lr, decay, deadline, beta1;
  int optimizer, trace;
  char *path, *name;
} settings;

// Rows of one section need not stand together: batch.micro comes late on purpose.
static const tr_option table[] = {
    {"batch.sequences", TR_OPTION_INT, offsetof(settings, sequences), "8", 1, 1e6, NULL, 0, "sequences",
     "global-batch-size|train_batch_size", NULL, "Sequences per step, over all ranks."},
    {"parallel.dp", TR_OPTION_INT, offsetof(settings, dp), "auto", 1, 1024, "auto", -1, NULL, "data_parallel", NULL,
     "Data-parallel ways."},
    {"optim.name", TR_OPTION_CHOICE, offsetof(settings, optimizer), "adamw", 0, 0, "adamw|sgd|no_one", 0, NULL, NULL,
     NULL, "Which optimizer."},
    {"optim.lr", TR_OPTION_REAL, offsetof(settings, lr), "1e-3", 0, 1, NULL, 0, NULL, "learning_rate", NULL,
     "Peak learning rate."},
    {"optim.adam.beta1", TR_OPTION_REAL, offsetof(settings, beta1), "0.9", 0, 0, NULL, 0, NULL, NULL, NULL,
     "Decay of the first moment."},
    {"run.deadline", TR_OPTION_DURATION, offsetof(settings, deadline), "5min", 0.001, 86400, NULL, 0, "s", NULL,
     "TRIREME_TEST_DEADLINE", "Longest wait for a rank."},
    {"run.trace", TR_OPTION_BOOL, offsetof(settings, trace), "no", 0, 0, NULL, 0, NULL, NULL, NULL, "Write a trace."},
    {"run.name", TR_OPTION_STRING, offsetof(settings, name), "", 0, 0, NULL, 0, NULL, NULL, NULL, "A name."},
    {"data.path", TR_OPTION_STRING, offsetof(settings, path), "tokens.bin", 0, 0, NULL, 0, NULL, NULL, NULL,
     ".bin file of tokens \\ \"quoted\"."},
    {"optim.weight_decay", TR_OPTION_REAL, offsetof(settings, decay), "0.1", 0, INFINITY, NULL, 0, NULL, NULL, NULL,
     "Weight decay."},
    {"seed", TR_OPTION_INT, offsetof(settings, seed), "1", 0, 0, NULL, 0, NULL, NULL, NULL, "Of all random numbers."},
};

static tr_options *fresh(settings *s) {
  tr_options *options = NULL;
  *s = (settings){0};
  if (tr_options_create(table, COUNT(table), s, &options) != TR_OK) fail_msg("%s", tr_status_text());
  return options;
}

static tr_status apply_text(tr_options *options, const char *text, size_t n, const char *name) {
  tr_yaml *yaml = NULL;
  TR_TRY(tr_yaml_parse(text, n, name, &yaml));
  return tr_options_apply_yaml(options, yaml);
}

static void apply(tr_options *options, const char *text) {
  if (apply_text(options, text, strlen(text), "run.yaml") != TR_OK) fail_msg("%s", tr_status_text());
}

static void argue(tr_options *options, const char *argument) {
  if (tr_options_apply_argument(options, argument) != TR_OK) fail_msg("%s", tr_status_text());
}

static void defaults_fill_every_field(void **state) {
  (void)state;
  settings s;
  tr_options *options = fresh(&s);
  assert_int_equal(s.sequences, 8);
  assert_int_equal(s.dp, -1);
  assert_int_equal(s.optimizer, 0);
  assert_true(s.lr == 1e-3 && s.decay == 0.1 && s.deadline == 300 && s.trace == 0);
  assert_string_equal(s.path, "tokens.bin");
  assert_string_equal(s.name, "");
  assert_string_equal(tr_options_source(options, "optim.lr"), "default");
  assert_int_equal(tr_options_is_set(options, "optim.lr"), 0);
  tr_options_destroy(options);
  assert_null(s.path);
  tr_options_destroy(NULL);
}

static void later_sources_win_and_are_remembered(void **state) {
  (void)state;
  settings s;
  setenv("TRIREME_TEST_DEADLINE", "2h", 1);
  tr_options *options = fresh(&s);
  unsetenv("TRIREME_TEST_DEADLINE");
  assert_true(s.deadline == 7200);
  assert_string_equal(tr_options_source(options, "run.deadline"), "environment variable TRIREME_TEST_DEADLINE");
  apply(options, "optim:\n  lr: 0.5\n  name: SGD\nrun: {deadline: 30, trace: on}\ndata:\n");
  assert_true(s.lr == 0.5 && s.deadline == 30 && s.optimizer == 1 && s.trace == 1);
  assert_string_equal(tr_options_source(options, "optim.lr"), "run.yaml:2:7");
  apply(options, "optim.lr: 0.25\n"); // a dotted key
  assert_true(s.lr == 0.25);
  argue(options, "optim.lr=0.125");
  argue(options, "seed=1k");
  assert_true(s.lr == 0.125 && s.seed == 1000);
  assert_string_equal(tr_options_source(options, "optim.lr"), "argument 1");
  assert_string_equal(tr_options_source(options, "seed"), "argument 2");
  assert_int_equal(tr_options_is_set(options, "optim.lr"), 1);
  tr_options_destroy(options);
}

static void a_better_default_is_no_value(void **state) {
  (void)state;
  settings s;
  tr_text text = {0};
  tr_options *options = fresh(&s);
  assert_int_equal(tr_options_default(options, "optim.lr", "0.5", "default of half"), TR_OK);
  assert_true(s.lr == 0.5);
  assert_int_equal(tr_options_is_set(options, "optim.lr"), 0);
  assert_string_equal(tr_options_source(options, "optim.lr"), "default of half");
  assert_int_equal(tr_options_default(options, "optim.lr", "0.75", "default of more"), TR_OK);
  tr_options_print(options, 1, &text);
  assert_non_null(strstr(text.data, "lr: 0.75  # default of more\n"));
  tr_text_free(&text);
  argue(options, "optim.lr=0.25");
  assert_int_equal(tr_options_is_set(options, "optim.lr"), 1);
  assert_int_equal(tr_options_default(options, "optim.lr", "0.5", "default of half"), TR_OK);
  assert_true(s.lr == 0.25);
  assert_string_equal(tr_options_source(options, "optim.lr"), "argument 1");
  assert_int_equal(tr_options_default(options, "optim.lr2", "0.5", "x"), TR_ERR_INTERNAL);
  tr_options_destroy(options);
}

static void bad_environment_is_refused_by_name(void **state) {
  (void)state;
  settings s = {0};
  tr_options *options = NULL;
  setenv("TRIREME_TEST_DEADLINE", "soon", 1);
  tr_status status = tr_options_create(table, COUNT(table), &s, &options);
  unsetenv("TRIREME_TEST_DEADLINE");
  assert_int_equal(status, TR_ERR_CONFIG);
  assert_non_null(strstr(tr_status_text(), "environment variable TRIREME_TEST_DEADLINE: run.deadline: \"soon\""));
  assert_null(options);
  assert_null(s.path);
}

static void keys_may_be_leaves_aliases_and_dashed(void **state) {
  static const char *const same[] = {"batch.sequences=32",     "sequences=32",         "--batch.sequences=32",
                                     "--global-batch-size=32", "global_batch_size=32", "train-batch-size=32"};
  (void)state;
  for (size_t i = 0; i < COUNT(same); i++) {
    settings s;
    tr_options *options = fresh(&s);
    argue(options, same[i]);
    assert_int_equal(s.sequences, 32);
    tr_options_destroy(options);
  }
  settings s;
  tr_options *options = fresh(&s);
  argue(options, "--weight-decay=0.5");
  argue(options, "data.path=a=b"); // only the first sign splits
  apply(options, "train_batch_size: 64\nbeta1: 0.75\ndp: auto\nrun: {name: ~}\n");
  assert_true(s.decay == 0.5 && s.beta1 == 0.75 && s.sequences == 64 && s.dp == -1);
  assert_string_equal(s.path, "a=b");
  assert_string_equal(s.name, "");
  tr_options_destroy(options);
}

typedef struct bad_row {
  const char *text, *message;
  tr_status status;
} bad_row;

static void bad_run_files_are_refused_with_place_and_choices(void **state) {
  static const bad_row row[] = {
      {"optim:\n  lrr: 1\n", "run.yaml:2:3: unknown option \"optim.lrr\"; did you mean \"optim.lr\"?", TR_ERR_CONFIG},
      {"optm: {lr: 1}\n", "run.yaml:1:8: unknown option \"optm.lr\"; did you mean \"optim.lr\"?", TR_ERR_CONFIG},
      {"batch: {lr: 1}\n", "run.yaml:1:9: unknown option \"batch.lr\"; did you mean \"optim.lr\"?", TR_ERR_CONFIG},
      {"learning_rat: 1\n", "run.yaml:1:1: unknown option \"learning_rat\"; did you mean \"optim.lr\"?",
       TR_ERR_CONFIG},
      {"x:\n  y: 1\n", "run.yaml:2:3: unknown option \"x.y\"; --help lists all of them", TR_ERR_CONFIG},
      {"elephants: {}\n", "run.yaml:1:1: unknown option \"elephants\"", TR_ERR_CONFIG},
      {"elephants: [1]\n", "run.yaml:1:1: unknown option \"elephants\"", TR_ERR_CONFIG},
      {"name: x\n", "run.yaml:1:1: \"name\" is ambiguous; write one of \"optim.name\", \"run.name\"", TR_ERR_CONFIG},
      {"optim:\n  lr: fast\n",
       "run.yaml:2:7: optim.lr: \"fast\" is not a number: write one like 3, 0.25 or 1e-4; accepted: a number from 0 "
       "to 1",
       TR_ERR_CONFIG},
      {"optim: {lr: 2}\n", "run.yaml:1:13: optim.lr: 2 is out of range; accepted: a number from 0 to 1",
       TR_ERR_CONFIG},
      {"optim: {lr: }\n", "optim.lr: \"\" is not a number", TR_ERR_CONFIG},
      {"optim: {weight_decay: -1}\n", "-1 is out of range; accepted: a number of at least 0", TR_ERR_CONFIG},
      {"batch: {sequences: 0}\n",
       "run.yaml:1:20: batch.sequences: 0 is out of range; accepted: a whole number from 1 to 1000000 "
       "(sequences)",
       TR_ERR_CONFIG},
      {"batch: {sequences: 0.3}\n", "batch.sequences: \"0.3\" is not a whole number: it has a fraction; accepted",
       TR_ERR_CONFIG},
      {"parallel: {dp: some}\n", "accepted: a whole number from 1 to 1024, or auto", TR_ERR_CONFIG},
      {"parallel: {dp: -1}\n", "parallel.dp: -1 is out of range", TR_ERR_CONFIG},
      {"optim: {name: adamx}\n",
       "run.yaml:1:15: optim.name: \"adamx\" is no choice (did you mean \"adamw\"?); accepted: one of adamw, sgd, "
       "no_one",
       TR_ERR_CONFIG},
      {"optim: {name: zebra}\n", "\"zebra\" is no choice; accepted: one of adamw, sgd, no_one", TR_ERR_CONFIG},
      {"run: {trace: maybe}\n", "run.trace: \"maybe\" is not a truth value; accepted: true or false", TR_ERR_CONFIG},
      {"run: {deadline: 2 days}\n",
       "run.deadline: \"2 days\" is not a duration: write one like 30, 30s, 250ms, 5min, 2h or 1d; accepted: a "
       "duration from 0.001 to 86400 s",
       TR_ERR_CONFIG},
      {"optim:\n  lr: {peak: 1}\n", "run.yaml:2:7: optim.lr: a map is not a value; accepted: a number",
       TR_ERR_CONFIG},
      {"optim:\n  lr: [1, 2]\n", "run.yaml:2:7: optim.lr: a list is not a value; accepted: a number", TR_ERR_CONFIG},
      {"optim: 5\n", "run.yaml:1:8: \"optim\" is a section of options, not a value; write", TR_ERR_CONFIG},
      {"optim:\n- lr\n", "run.yaml:2:1: \"optim\" is a section of options, not a list", TR_ERR_CONFIG},
      {"optim: {lr: 0.1}\nlearning_rate: 0.2\n",
       "run.yaml:2:1: optim.lr was already set at run.yaml:1:13 of this file (as \"learning_rate\" here); "
       "keep one",
       TR_ERR_CONFIG},
  };
  (void)state;
  for (size_t i = 0; i < COUNT(row); i++) {
    settings s;
    tr_options *options = fresh(&s);
    assert_int_equal(apply_text(options, row[i].text, strlen(row[i].text), "run.yaml"), row[i].status);
    if (!strstr(tr_status_text(), row[i].message)) fail_msg("row %zu: %s", i, tr_status_text());
    tr_options_destroy(options);
  }
}

static void bad_arguments_are_refused_with_the_form(void **state) {
  static const bad_row row[] = {
      {"optim.lr", "argument 'optim.lr': settings have the form key=value; write optim.lr=VALUE", TR_ERR_CONFIG},
      {"--lr", "argument '--lr': settings have the form key=value; write optim.lr=VALUE", TR_ERR_CONFIG},
      {"elephants", "argument 'elephants': settings have the form key=value", TR_ERR_CONFIG},
      {"=5", "argument '=5': settings have the form key=value", TR_ERR_CONFIG},
      {"", "argument '': settings have the form key=value", TR_ERR_CONFIG},
      {"optim.lt=1", "argument 'optim.lt=1': unknown option \"optim.lt\"; did you mean \"optim.lr\"?", TR_ERR_CONFIG},
      {"--optim-lr=1", "unknown option \"optim-lr\"; did you mean \"optim.lr\"?", TR_ERR_CONFIG},
      {"lr=fast", "argument 'lr=fast': optim.lr: \"fast\" is not a number", TR_ERR_CONFIG},
      {"name=x", "argument 'name=x': \"name\" is ambiguous; write one of \"optim.name\", \"run.name\"",
       TR_ERR_CONFIG},
      {"optim=x", "argument 'optim=x': \"optim\" is a section of options; write optim.NAME=VALUE", TR_ERR_CONFIG},
      {"model.layers=2", "the section \"model\" is read from run files only", TR_ERR_CONFIG},
      {"run.name=\xff", "run.name: the text is not valid UTF-8, which run files need; accepted: text", TR_ERR_CONFIG},
  };
  (void)state;
  settings s;
  tr_options *options = fresh(&s);
  assert_int_equal(tr_options_allow_subtree(options, "model"), TR_OK);
  for (size_t i = 0; i < COUNT(row); i++) {
    assert_int_equal(tr_options_apply_argument(options, row[i].text), row[i].status);
    if (!strstr(tr_status_text(), row[i].message)) fail_msg("row %zu: %s", i, tr_status_text());
  }
  char endless[2048];
  memset(endless, 'k', sizeof endless);
  memcpy(endless + sizeof endless - 3, "=1", 3);
  assert_int_equal(tr_options_apply_argument(options, endless), TR_ERR_CONFIG);
  tr_options_destroy(options);
}

static void checks_across_options_name_the_source(void **state) {
  (void)state;
  settings s;
  tr_options *options = fresh(&s);
  apply(options, "batch:\n  sequences: 12\n");
  assert_int_equal(tr_options_error(options, "batch.sequences", "%d does not divide by %d", 12, 5), TR_ERR_CONFIG);
  assert_string_equal(tr_status_text(), "run.yaml:2:14: batch.sequences: 12 does not divide by 5");
  assert_int_equal(tr_options_error(options, "optim.lr", "no"), TR_ERR_CONFIG);
  assert_string_equal(tr_status_text(), "default: optim.lr: no");
  tr_options_destroy(options);
}

static void tables_that_hide_rows_are_refused(void **state) {
  static const tr_option twice[] = {{"a.b", TR_OPTION_INT, 0, "1", 0, 0, NULL, 0, NULL, NULL, NULL, ""},
                                    {"c", TR_OPTION_INT, 0, "1", 0, 0, NULL, 0, NULL, "a.b", NULL, ""}};
  static const tr_option inside[] = {{"a", TR_OPTION_INT, 0, "1", 0, 0, NULL, 0, NULL, NULL, NULL, ""},
                                     {"a.b", TR_OPTION_INT, 0, "1", 0, 0, NULL, 0, NULL, NULL, NULL, ""}};
  (void)state;
  int64_t value = 0;
  tr_options *options = NULL;
  assert_int_equal(tr_options_create(twice, 2, &value, &options), TR_ERR_INTERNAL);
  assert_int_equal(tr_options_create(inside, 2, &value, &options), TR_ERR_INTERNAL);
  assert_non_null(strstr(tr_status_text(), "\"a\" beside \"a.b\""));
}

// ---- printing

static void check_same(const settings *a, const settings *b) {
  assert_int_equal(a->sequences, b->sequences);
  assert_int_equal(a->dp, b->dp);
  assert_int_equal(a->seed, b->seed);
  assert_int_equal(a->optimizer, b->optimizer);
  assert_int_equal(a->trace, b->trace);
  assert_memory_equal(&a->lr, &b->lr, sizeof a->lr); // the same bits
  assert_memory_equal(&a->decay, &b->decay, sizeof a->decay);
  assert_memory_equal(&a->deadline, &b->deadline, sizeof a->deadline);
  assert_memory_equal(&a->beta1, &b->beta1, sizeof a->beta1);
  assert_string_equal(a->path, b->path);
  assert_string_equal(a->name, b->name);
}

static void check_round_trip(const tr_options *options, const settings *s) {
  for (int with_source = 0; with_source < 2; with_source++) {
    settings again;
    tr_options *reloaded = fresh(&again);
    tr_text printed = {0};
    tr_options_print(options, with_source, &printed);
    if (apply_text(reloaded, printed.data, printed.size, "printed") != TR_OK)
      fail_msg("%s\n%s", tr_status_text(), printed.data);
    check_same(s, &again);
    tr_text_free(&printed);
    tr_options_destroy(reloaded);
  }
}

static void printed_settings_load_to_the_same_values(void **state) {
  static const char *const hard[] = {"",
                                     "plain",
                                     "two words",
                                     "null",
                                     "~",
                                     "true",
                                     "12",
                                     "0x1f",
                                     "a: b",
                                     "a #b",
                                     "#x",
                                     "- x",
                                     "\"",
                                     "\\",
                                     "'",
                                     "tab\tnew\nline",
                                     " edge ",
                                     "\x01\x1f\x7f",
                                     "*x",
                                     "&x",
                                     "!x",
                                     "%x",
                                     "@x",
                                     "{a: b}",
                                     "[1, 2]",
                                     "\xc3\xa4",
                                     "\xc2\x85",
                                     "a \xe2\x80\xa8 b",
                                     "\xef\xbb\xbf",
                                     "\xf0\x9f\x9b\xb6",
                                     "---",
                                     "...",
                                     "/a/b-c.bin",
                                     "C:\\x",
                                     "\xef\xbf\xbd",
                                     "? x",
                                     ":",
                                     "|",
                                     ">",
                                     "\r\n"};
  (void)state;
  for (size_t i = 0; i < COUNT(hard); i++) {
    settings s;
    tr_options *options = fresh(&s);
    tr_text argument = {0};
    tr_text_append(&argument, "run.name=%s", hard[i]);
    argue(options, argument.data);
    assert_string_equal(s.name, hard[i]);
    check_round_trip(options, &s);
    tr_text_free(&argument);
    tr_options_destroy(options);
  }
}

static void printed_numbers_keep_every_bit(void **state) {
  static const char *const lr[] = {"0.1", "0.30000000000000004", "5e-324", "0.9999999999999999", "1", "0", "-0.0"};
  (void)state;
  for (size_t i = 0; i < COUNT(lr); i++) {
    settings s;
    tr_options *options = fresh(&s);
    tr_text argument = {0};
    tr_text_append(&argument, "beta1=%s", lr[i]);
    argue(options, argument.data);
    argue(options, "seed=-9223372036854775808");
    argue(options, "deadline=33ms");
    argue(options, "weight_decay=1.7976931348623157e308");
    argue(options, i % 2 ? "dp=4" : "dp=auto");
    argue(options, "optim.name=no-one");
    check_round_trip(options, &s);
    tr_text_free(&argument);
    tr_options_destroy(options);
  }
}

static void printing_nests_sections_once_and_names_sources(void **state) {
  (void)state;
  settings s;
  tr_options *options = fresh(&s);
  apply(options, "optim: {lr: 0.5, weight_decay: 0}\n");
  argue(options, "trace=yes");
  tr_text printed = {0};
  tr_options_print(options, 1, &printed);
  assert_string_equal(printed.data, "batch:\n"
                                    "  sequences: 8  # default\n"
                                    "parallel:\n"
                                    "  dp: auto  # default\n"
                                    "optim:\n"
                                    "  name: adamw  # default\n"
                                    "  lr: 0.5  # run.yaml:1:13\n"
                                    "  adam:\n"
                                    "    beta1: 0.9  # default\n"
                                    "  weight_decay: 0  # run.yaml:1:32\n"
                                    "run:\n"
                                    "  deadline: 300  # default\n"
                                    "  trace: true  # argument 1\n"
                                    "  name: \"\"  # default\n"
                                    "data:\n"
                                    "  path: tokens.bin  # default\n"
                                    "seed: 1  # default\n");
  tr_text_free(&printed);
  tr_options_destroy(options);
}

static void file_names_cannot_break_out_of_comments(void **state) {
  (void)state;
  settings s;
  tr_options *options = fresh(&s);
  assert_int_equal(apply_text(options, "seed: 5", 7, "a\nseed: 6\xff"), TR_OK);
  tr_text printed = {0};
  tr_options_print(options, 1, &printed);
  assert_non_null(strstr(printed.data, "seed: 5  # a?seed: 6?:1:7\n"));
  check_round_trip(options, &s);
  tr_text_free(&printed);
  tr_options_destroy(options);
}

static void check_same_tree(const tr_yaml_node *a, const tr_yaml_node *b) {
  assert_int_equal(a->kind, b->kind);
  assert_int_equal(a->nchild, b->nchild);
  if (a->kind == TR_YAML_SCALAR) {
    assert_string_equal(a->value, b->value);
    assert_int_equal(a->quoted, b->quoted);
  }
  for (size_t i = 0; i < a->nchild; i++) {
    if (a->kind == TR_YAML_MAP) assert_string_equal(a->child[i]->key, b->child[i]->key);
    check_same_tree(a->child[i], b->child[i]);
  }
}

static void subtrees_pass_through_unread_and_are_printed_back(void **state) {
  (void)state;
  settings s, again;
  tr_options *options = fresh(&s), *reloaded = fresh(&again);
  assert_int_equal(tr_options_allow_subtree(options, "model"), TR_OK);
  assert_int_equal(tr_options_allow_subtree(reloaded, "model"), TR_OK);
  assert_null(tr_options_subtree(options, "model"));
  apply(options, "model: {layers: 1}\n");
  apply(options, "model:\n  layers: 12\n  \"odd: key\": '12'\n  empty:\n  none: {}\n  nil: []\n  long: \"a\\nb\"\n"
                 "  url: http://x.y/z,[w]\n  list:\n    - a: 1\n      b: [2, [3, {c: d}]]\n    -\n    - \"x\"\n"
                 "seed: 3\n");
  tr_text printed = {0};
  tr_options_print(options, 1, &printed);
  if (apply_text(reloaded, printed.data, printed.size, "printed") != TR_OK)
    fail_msg("%s\n%s", tr_status_text(), printed.data);
  const tr_yaml_node *model = tr_options_subtree(options, "model");
  assert_string_equal(tr_yaml_find(model, "layers")->value, "12");
  check_same_tree(model, tr_options_subtree(reloaded, "model"));
  assert_null(tr_options_subtree(options, "optim"));
  tr_text_free(&printed);
  tr_options_destroy(options);
  tr_options_destroy(reloaded);
}

static void help_says_what_every_row_accepts(void **state) {
  (void)state;
  tr_text all = {0}, some = {0};
  tr_options_help(table, COUNT(table), NULL, &all);
  for (size_t i = 0; i < COUNT(table); i++) {
    assert_non_null(strstr(all.data, table[i].path));
    assert_non_null(strstr(all.data, table[i].help));
  }
  tr_options_help(table, COUNT(table), "optim.", &some);
  assert_string_equal(some.data, "optim:\n"
                                 "  optim.name  one of adamw, sgd, no_one, default adamw\n"
                                 "      Which optimizer.\n"
                                 "  optim.lr  a number from 0 to 1, default 1e-3; also --learning_rate\n"
                                 "      Peak learning rate.\n"
                                 "  optim.adam.beta1  a number, default 0.9\n"
                                 "      Decay of the first moment.\n"
                                 "  optim.weight_decay  a number of at least 0, default 0.1\n"
                                 "      Weight decay.\n");
  tr_text_free(&all);
  tr_text_free(&some);
}

static void manual_page_escapes_roff(void **state) {
  (void)state;
  tr_text page = {0};
  tr_options_man(table, COUNT(table), "trireme-train", "train a model", &page);
  static const char *const part[] = {
      ".TH \"TRIREME\\-TRAIN\" 1\n.nh\n.ad l\n.SH NAME\ntrireme\\-train \\- train a model\n.SH OPTIONS",
      ".SS optim\n.TP\n.B optim.name\nWhich optimizer.\n",
      "Accepted: a number from 0 to 1. Default: 1e\\-3.\nAlso \\-\\-learning_rate.\n",
      "\n\\&.bin file of tokens \\e \\(dqquoted\\(dq.\n", "Environment: TRIREME_TEST_DEADLINE.\n"};
  for (size_t i = 0; i < COUNT(part); i++)
    if (!strstr(page.data, part[i])) fail_msg("missing %s in\n%s", part[i], page.data);
  tr_text_free(&page);
}

// ---- damaged input

static uint32_t draw(uint64_t *seed) {
  *seed = *seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
  return (uint32_t)(*seed >> 33);
}

static const char good_file[] = "batch: {sequences: 512}\nparallel:\n  dp: auto\noptim:\n  name: sgd\n  lr: 6e-4\n"
                                "  adam: {beta1: 0.85}\nmodel:\n  layers: 12\n  list: [1, a, {b: c}]\n"
                                "run:\n  deadline: 2h\n  trace: yes\n  name: \"n\"\nseed: 1e3\n";

static void damaged_files_and_arguments_do_no_worse_than_an_error(void **state) {
  (void)state;
  uint64_t seed = 7;
  int nrefused = 0, naccepted = 0;
  for (int i = 0; i < 1500; i++) {
    char text[sizeof good_file];
    memcpy(text, good_file, sizeof good_file);
    for (uint32_t edits = 1 + draw(&seed) % 2; edits--;) {
      size_t at = draw(&seed) % (sizeof good_file - 1), from = draw(&seed) % (sizeof good_file - 1);
      text[at] = draw(&seed) % 4 ? good_file[from] : (char)draw(&seed); // mostly swaps of likely characters
    }
    settings s;
    tr_options *options = fresh(&s);
    assert_int_equal(tr_options_allow_subtree(options, "model"), TR_OK);
    tr_status status = apply_text(options, text, sizeof good_file - 1, "run.yaml");
    if (status != TR_OK && status != TR_ERR_CONFIG) fail_msg("%s", tr_status_text());
    if (status == TR_OK && !tr_options_subtree(options, "model")) check_round_trip(options, &s);
    *(status == TR_OK ? &naccepted : &nrefused) += 1;
    text[sizeof good_file - 1] = '\0';
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
      char *colon = strchr(line, ':');
      if (colon) *colon = '=';
      status = tr_options_apply_argument(options, line + strspn(line, " "));
      if (status != TR_OK && status != TR_ERR_CONFIG) fail_msg("%s", tr_status_text());
    }
    tr_options_destroy(options);
  }
  if (nrefused < 200 || naccepted < 100) fail_msg("%d refused, %d accepted", nrefused, naccepted);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(defaults_fill_every_field),
      cmocka_unit_test(later_sources_win_and_are_remembered),
      cmocka_unit_test(a_better_default_is_no_value),
      cmocka_unit_test(bad_environment_is_refused_by_name),
      cmocka_unit_test(keys_may_be_leaves_aliases_and_dashed),
      cmocka_unit_test(bad_run_files_are_refused_with_place_and_choices),
      cmocka_unit_test(bad_arguments_are_refused_with_the_form),
      cmocka_unit_test(checks_across_options_name_the_source),
      cmocka_unit_test(tables_that_hide_rows_are_refused),
      cmocka_unit_test(printed_settings_load_to_the_same_values),
      cmocka_unit_test(printed_numbers_keep_every_bit),
      cmocka_unit_test(printing_nests_sections_once_and_names_sources),
      cmocka_unit_test(file_names_cannot_break_out_of_comments),
      cmocka_unit_test(subtrees_pass_through_unread_and_are_printed_back),
      cmocka_unit_test(help_says_what_every_row_accepts),
      cmocka_unit_test(manual_page_escapes_roff),
      cmocka_unit_test(damaged_files_and_arguments_do_no_worse_than_an_error),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
